"""Figures of attention, classification and training: they draw without warnings, with labels, reproducibly."""

import itertools

import numpy as np
import pytest
import torch

from lawful.probe.figures import (
    as_svg,
    attention_pattern,
    class_scores,
    confidence_along_rays,
    confusion_matrix,
    contribution_bars,
    dead_unit_bars,
    decision_regions,
    double_descent,
    epoch_double_descent,
    forecast_band,
    head_grid,
    learning_curves,
    mistakes,
    predicted_vs_actual,
    predictions,
    reliability_diagram,
    save,
)

HALF, NOTHING = {"value": 0.5, "low": 0.3, "high": 0.7}, {"value": 0.0, "low": 0.0, "high": 1.0}
SCORES = {"precision": HALF, "recall": HALF, "f1": HALF, "support": 8}
EMPTY = {"precision": NOTHING, "recall": NOTHING, "f1": NOTHING, "support": 0}
BIN = {"low": 0.8, "high": 0.9, "confidence": 0.85, "accuracy": HALF, "count": 4}
IMAGES = np.random.default_rng(0).random((4, 8, 8))
P = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.4, 0.6, 0.0], [0.3, 0.7, 0.0]])


def halves(x):
    return torch.softmax(torch.stack([x[:, 0], x[:, 1]], -1), -1)


FIGURES = {
    "curves": lambda: learning_curves(
        {"train": (range(500), 1 / np.arange(1, 501)), "validation": ([0, 400], [1, 0.5])}
    ),
    "one point": lambda: learning_curves({"train": ([0], [1.0])}, best=0),
    "non-finite losses": lambda: learning_curves({"train": ([0, 1, 2], [1.0, np.nan, np.inf])}),
    "confusion": lambda: confusion_matrix(torch.tensor([[8, 2], [0, 5]])),
    "confusion, empty class": lambda: confusion_matrix([[8, 2, 0], [1, 3, 0], [0, 0, 0]], names=["a", "b", "$c_"]),
    "confusion, one class": lambda: confusion_matrix([[3]]),
    "confusion, many": lambda: confusion_matrix(np.eye(100)),
    "reliability": lambda: reliability_diagram([BIN, {**BIN, "low": 0.9, "high": 1.0, "confidence": 0.99}], error=HALF),
    "reliability, one": lambda: reliability_diagram([BIN]),
    "bars": lambda: class_scores([SCORES, EMPTY], names=["first", "a long name of a class"]),
    "bars, one class": lambda: class_scores([SCORES]),
    "bars, many": lambda: class_scores([SCORES] * 40),
    "mistakes": lambda: mistakes(IMAGES, P, [1, 1, 0, 0]),
    "mistakes, none": lambda: mistakes(IMAGES, P, P.argmax(1)),
    "mistakes, series": lambda: mistakes(IMAGES[:, :1], P, [1, 1, 0, 2]),
    "mistakes, color": lambda: mistakes(np.stack([IMAGES] * 3, 1), P, [1, 0, 0, 2]),
    "regression": lambda: predicted_vs_actual(torch.arange(9.0), torch.arange(9.0) + 1, unit="m"),
    "regression, several": lambda: predicted_vs_actual(np.ones((5, 2)), np.zeros((5, 2)), names=["a", "b"]),
    "regression, one": lambda: predicted_vs_actual([1.0], [1.0]),
    "regions": lambda: decision_regions(halves, torch.eye(2), [0, 1], points=9),
    "regions, empty class": lambda: decision_regions(halves, torch.eye(2), [1, 1], points=9),
    "regions, one class": lambda: decision_regions(
        lambda x: torch.ones(len(x), 1), torch.zeros(3, 2), [0, 0, 0], points=5
    ),
    "units": lambda: dead_unit_bars({"layers.0": (3, 64), "layers.1": (0, 5), "all": (7, 7)}),
    "rays": lambda: confidence_along_rays([0.1, 1, 10], [[0.4, 0.5, 1.0]], classes=3),
    "descent": lambda: double_descent([1, 10, 100], [0.5, 0.1, 0], [[0.6, 0.9, 0.4], [0.5, 0.8, 0.4]], threshold=20),
    "descent, one": lambda: double_descent([10], [0.1], [0.4]),
    "epochs": lambda: epoch_double_descent([1, 10, 100], [5, 50], np.ones((2, 3))),
    "pattern": lambda: attention_pattern(torch.rand(5, 6, 6), tokens=list("abcdef")),
    "pattern, one": lambda: attention_pattern([[1.0]], tokens=["$a"]),
    "pattern, long": lambda: attention_pattern(torch.rand(2, 3, 40), tokens=range(40)),
    "heads": lambda: head_grid({"layers.0": torch.rand(4), "layers.1": [0.5]}, title="induction"),
    "heads, signed": lambda: head_grid({"layers.0": [-1.0, 2.0]}),
    "heads, zero": lambda: head_grid({"layers.0": [0.0]}),
    "parts": lambda: contribution_bars([f"embedding → {i}.0" for i in range(40)], torch.randn(40)),
    "parts, one": lambda: contribution_bars(["bias"], [0.0]),
    "epochs, one": lambda: epoch_double_descent([1], [5], [[0.2]]),
}


def draws_the_same_parts(name):
    """Whether another figure of the table runs the same code with more elements."""
    return name.endswith((", one", ", one class", ", zero")) or name == "mistakes, color"


def test_large_numbers_are_written_out():
    figure = predicted_vs_actual([2e5, 1.2e6], [3e5, 1.1e6])
    figure.canvas.draw()
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        assert axis.get_offset_text().get_text() == ""
        assert "1000000" in [tick.get_text() for tick in axis.get_ticklabels()] or axis is figure.axes[1].yaxis


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if draws_the_same_parts(name) else ()) for name in FIGURES]
)
def test_draws_without_warnings_and_labels_its_axes(name, tmp_path):
    figure = FIGURES[name]()
    save(figure, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    for axes in figure.axes:
        if axes.axison and axes.get_label() != "<colorbar>":
            assert axes.get_ylabel()
            assert axes.get_xlabel() or "reliability" in name


def test_files_are_reproducible(tmp_path):
    text = as_svg(FIGURES["units"]())
    assert text == as_svg(FIGURES["units"]())
    assert "dc:date" not in text
    for i in "12":
        save(FIGURES["units"](), tmp_path / f"{i}.png")
    assert (tmp_path / "1.png").read_bytes() == (tmp_path / "2.png").read_bytes()
    save(FIGURES["units"](), tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == text


def test_names_are_not_interpreted():
    figure = confusion_matrix([[1, 0], [0, 1]], names=["costs $5 or $x^", "猫 <b>&"])
    text = as_svg(figure)
    assert "<b>" not in text
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [r"costs \$5 or \$x^", "猫 <b>&"]


def test_labels():
    axes = confusion_matrix([[8, 2], [0, 5]], names=["cat", "dog"]).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted class", "true class")
    assert [text.get_text() for text in axes.texts] == ["8", "2", "0", "5"]
    axes = FIGURES["mistakes"]().axes
    assert [a.get_title() for a in axes if a.get_title()] == [
        "true 1\npredicted 0, 90 %",
        "true 0\npredicted 1, 70 %",
        "true 0\npredicted 1, 60 %",
    ]
    bars = FIGURES["bars"]().axes[0]
    assert [text.get_text() for text in bars.get_legend().get_texts()] == ["precision", "recall", "F1"]
    assert "0.500 (95 % interval 0.300 to 0.700)" in FIGURES["reliability"]().axes[0].get_title()
    assert FIGURES["curves"]().axes[0].get_yscale() == "log"


def test_drawn_values():
    figure = double_descent([1, 10], [[0.5, 0.1], [0.3, 0.1]], [0.6, 0.9], threshold=5)
    train, test, line = figure.axes[0].lines
    np.testing.assert_allclose(train.get_ydata(), [0.4, 0.1])
    np.testing.assert_allclose(test.get_ydata(), [0.6, 0.9])
    assert line.get_xdata()[0] == 5
    image = FIGURES["confusion"]().axes[0].images[0]
    np.testing.assert_allclose(image.get_array(), [[0.8, 0.2], [0, 1]])


def test_predictions_and_mistakes_keep_the_brightness_of_images():
    x = np.stack([np.zeros((2, 2)), np.full((2, 2), 0.5), np.eye(2)])
    p = [[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]]
    for draw in (predictions, mistakes):
        shown = [axes.images[0] for axes in draw(x, p, [1, 0, 1]).axes if axes.images]
        assert {image.get_clim() for image in shown} == {(0.0, 1.0)}, draw.__name__


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: learning_curves({}), "at least one curve, got none"),
        (lambda: learning_curves({"a": ([1], [1, 2])}), "of 'a', got 1 and 2"),
        (lambda: confusion_matrix([[1, 2]]), r"square matrix of counts, got shape \(1, 2\)"),
        (lambda: confusion_matrix([[1]], names=["a", "b"]), "expected 1 names, got 2"),
        (lambda: class_scores([]), "at least one class"),
        (lambda: reliability_diagram([]), "at least one bin"),
        (lambda: dead_unit_bars({}), "at least one layer"),
        (lambda: mistakes(IMAGES, P, [0]), r"\(4, 8, 8\), \(4, 3\) and \(1,\)"),
        (
            lambda: mistakes(np.ones((1, 2, 3, 3, 3)), [[0.4, 0.6]], [0]),
            "one or three channels",
        ),
        (lambda: predicted_vs_actual([1.0], [1.0, 2.0]), r"got \(1,\) and \(2,\)"),
        (lambda: decision_regions(halves, torch.eye(3), [0, 1, 1]), r"x of shape \(n, 2\).* got \(3, 3\)"),
        (lambda: confidence_along_rays([1, 2], [[0.5]], classes=2), r"got \(1, 1\)"),
        (lambda: double_descent([1, 2], [0.1], [0.1, 0.2]), "one train error per capacity"),
        (lambda: epoch_double_descent([1], [2], [[0.1, 0.2]]), r"errors of shape \(1, 1\), got \(1, 2\)"),
        (lambda: attention_pattern([1.0]), r"shape \(heads, queries, keys\), got \(1,\)"),
        (lambda: head_grid({}), "scores for each layer, got none"),
        (lambda: contribution_bars(["a"], [1.0, 2.0]), r"got 1 names and values \(2,\)"),
        (lambda: save(FIGURES["units"](), "a.pdf"), r"end in \.svg or \.png, got 'a\.pdf'"),
    ],
)
def test_invalid_arguments_raise(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


def test_the_legend_of_a_forecast_covers_no_values():
    zigzag = np.tile([0.0, 1.0], 30)
    figure = forecast_band(zigzag, (zigzag - 1, zigzag, zigzag + 1), truth=zigzag)
    figure.canvas.draw()
    axes = figure.axes[0]
    assert axes.get_legend().get_window_extent().y0 >= axes.get_window_extent().y1


def test_the_epochs_of_a_short_double_descent_do_not_overlap():
    figure = epoch_double_descent(np.arange(2, 71), [10, 1000], np.full((2, 69), 0.5))
    figure.canvas.draw()
    for axes in figure.axes[:2]:
        labels = [*axes.get_xticklabels(), *axes.get_xticklabels(minor=True)]
        boxes = sorted((t.get_window_extent() for t in labels if t.get_text() and t.get_visible()), key=lambda b: b.x0)
        assert len(boxes) > 2
        assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))
