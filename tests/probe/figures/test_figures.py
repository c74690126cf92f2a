import numpy as np
import pytest
import torch

from lawful.probe.figures import (
    as_svg,
    attention_pattern,
    class_bars,
    confidence_along_rays,
    confusion,
    dead_unit_bars,
    decision_regions,
    double_descent,
    epoch_double_descent,
    head_grid,
    learning_curves,
    mistakes,
    part_bars,
    predicted_and_true,
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
    "losses that end": lambda: learning_curves({"train": ([0, 1, 2], [1.0, np.nan, np.inf])}),
    "confusion": lambda: confusion(torch.tensor([[8, 2], [0, 5]])),
    "confusion, empty class": lambda: confusion([[8, 2, 0], [1, 3, 0], [0, 0, 0]], names=["a", "b", "$c_"]),
    "confusion, one class": lambda: confusion([[3]]),
    "confusion, many": lambda: confusion(np.eye(100)),
    "reliability": lambda: reliability_diagram([BIN, {**BIN, "low": 0.9, "high": 1.0, "confidence": 0.99}], error=HALF),
    "reliability, one": lambda: reliability_diagram([BIN]),
    "bars": lambda: class_bars([SCORES, EMPTY], names=["first", "a long name of a class"]),
    "bars, one class": lambda: class_bars([SCORES]),
    "bars, many": lambda: class_bars([SCORES] * 40),
    "mistakes": lambda: mistakes(IMAGES, P, [1, 1, 0, 0]),
    "mistakes, none": lambda: mistakes(IMAGES, P, P.argmax(1)),
    "mistakes, series": lambda: mistakes(IMAGES[:, :1], P, [1, 1, 0, 2]),
    "mistakes, colours": lambda: mistakes(np.stack([IMAGES] * 3, 1), P, [1, 0, 0, 2]),
    "regression": lambda: predicted_and_true(torch.arange(9.0), torch.arange(9.0) + 1, unit="m"),
    "regression, several": lambda: predicted_and_true(np.ones((5, 2)), np.zeros((5, 2)), names=["a", "b"]),
    "regression, one": lambda: predicted_and_true([1.0], [1.0]),
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
    "parts": lambda: part_bars([f"embedding → {i}.0" for i in range(40)], torch.randn(40)),
    "parts, one": lambda: part_bars(["bias"], [0.0]),
    "epochs, one": lambda: epoch_double_descent([1], [5], [[0.2]]),
}


@pytest.mark.parametrize("name", FIGURES)
def test_it_draws_without_warnings_and_names_its_axes(name, tmp_path):
    figure = FIGURES[name]()
    save(figure, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    for axes in figure.axes:
        if axes.axison and axes.get_label() != "<colorbar>":
            assert axes.get_ylabel()
            assert axes.get_xlabel() or "reliability" in name


def test_the_same_data_give_the_same_file_without_a_date(tmp_path):
    text = as_svg(FIGURES["units"]())
    assert text == as_svg(FIGURES["units"]())
    assert "dc:date" not in text
    for i in "12":
        save(FIGURES["units"](), tmp_path / f"{i}.png")
    assert (tmp_path / "1.png").read_bytes() == (tmp_path / "2.png").read_bytes()
    save(FIGURES["units"](), tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == text


def test_names_are_drawn_as_they_stand():
    figure = confusion([[1, 0], [0, 1]], names=["costs $5 or $x^", "猫 <b>&"])
    text = as_svg(figure)
    assert "<b>" not in text
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [r"costs \$5 or \$x^", "猫 <b>&"]


def test_labels_say_what_is_drawn():
    axes = confusion([[8, 2], [0, 5]], names=["cat", "dog"]).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted class", "true class")
    assert [text.get_text() for text in axes.texts] == ["8", "2", "0", "5"]
    axes = FIGURES["mistakes"]().axes
    assert [a.get_title() for a in axes if a.get_title()] == [
        "is 1\nsaid 0, 90 %",
        "is 0\nsaid 1, 70 %",
        "is 0\nsaid 1, 60 %",
    ]
    bars = FIGURES["bars"]().axes[0]
    assert [text.get_text() for text in bars.get_legend().get_texts()] == ["precision", "recall", "F1"]
    assert "0.500 (95 % interval 0.300 to 0.700)" in FIGURES["reliability"]().axes[0].get_title()
    assert FIGURES["curves"]().axes[0].get_yscale() == "log"


def test_the_drawn_numbers_are_those_that_were_given():
    figure = double_descent([1, 10], [[0.5, 0.1], [0.3, 0.1]], [0.6, 0.9], threshold=5)
    train, test, line = figure.axes[0].lines
    np.testing.assert_allclose(train.get_ydata(), [0.4, 0.1])
    np.testing.assert_allclose(test.get_ydata(), [0.6, 0.9])
    assert line.get_xdata()[0] == 5
    image = FIGURES["confusion"]().axes[0].images[0]
    np.testing.assert_allclose(image.get_array(), [[0.8, 0.2], [0, 1]])


def test_errors_say_what_was_wanted_and_what_came(tmp_path):
    for draw, match in (
        (lambda: learning_curves({}), "at least one curve was wanted: got none"),
        (lambda: learning_curves({"a": ([1], [1, 2])}), "of 'a': got 1 and 2"),
        (lambda: confusion([[1, 2]]), r"square matrix of counts was wanted: got shape \(1, 2\)"),
        (lambda: confusion([[1]], names=["a", "b"]), "1 names were wanted: got 2"),
        (lambda: class_bars([]), "at least one class was wanted"),
        (lambda: reliability_diagram([]), "at least one bin was wanted"),
        (lambda: dead_unit_bars({}), "at least one layer was wanted"),
        (lambda: mistakes(IMAGES, P, [0]), r"\(4, 8, 8\), \(4, 3\) and \(1,\)"),
        (lambda: mistakes(np.ones((1, 2, 3, 3)), [[0.4, 0.6]], [0]), r"one or three channels.* got shape \(2, 3, 3\)"),
        (lambda: predicted_and_true([1.0], [1.0, 2.0]), r"got shapes \(1,\) and \(2,\)"),
        (lambda: decision_regions(halves, torch.eye(3), [0, 1, 1]), r"rows of two numbers.* got \(3, 3\)"),
        (lambda: confidence_along_rays([1, 2], [[0.5]], classes=2), r"got \(1, 1\)"),
        (lambda: double_descent([1, 2], [0.1], [0.1, 0.2]), r"a train error for each of 2 capacities"),
        (lambda: epoch_double_descent([1], [2], [[0.1, 0.2]]), r"errors of shape \(1, 1\) were wanted: got \(1, 2\)"),
        (lambda: attention_pattern([1.0]), r"shape \(heads, queries, keys\) was wanted: got \(1,\)"),
        (lambda: head_grid({}), "the scores of its heads were wanted: got none"),
        (lambda: part_bars(["a"], [1.0, 2.0]), r"got 1 names, numbers of shape \(2,\)"),
        (lambda: save(FIGURES["units"](), tmp_path / "a.pdf"), r"ends in \.svg or \.png was wanted: got 'a\.pdf'"),
    ):
        with pytest.raises(ValueError, match=match):
            draw()
