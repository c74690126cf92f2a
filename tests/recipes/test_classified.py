import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch

from lawful.recipes import ClassifyRecipe, load
from lawful.recipes.data import SupervisedData
from lawful.recipes.optimization import Learning
from lawful.training import train
from tests.recipes.conftest import ENGINE

FIGURES = {"calibration.png", "confidence far from the data.png", "confusion.png", "per class.png"}


class Opened(HTMLParser):
    """A page whose tags are counted and whose words are kept."""

    def __init__(self, text):
        super().__init__()
        self.open, self.words = [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "br", "img", "link", "input", "hr", "path", "line", "rect", "circle", "polyline", "use"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A run on digits with everything that a run shows."""
    engine = replace(ENGINE, laws=3)
    recipe = ClassifyRecipe(hidden=(16,), learning=Learning(epochs=2, batch=256), engine=engine)
    return train(recipe, folder=tmp_path_factory.mktemp("digits"))


def test_a_run_has_its_results(digits):
    results = digits.results
    assert results["steps"] == 12
    for part in ("test", "validation", "train"):
        found = results[part]["accuracy"]
        assert 0 <= found["low"] <= found["value"] <= found["high"] <= 1
    assert results["examples"] == {"train": 1294, "validation": 144, "test": 359}
    assert set(results["per class"]) == set("0123456789")
    assert results["baseline accuracy"]["commonest class"]["value"] < 0.15
    assert results["baseline accuracy"]["5 nearest examples"]["value"] > 0.9
    assert results["test"]["accuracy"]["value"] > results["baseline accuracy"]["commonest class"]["value"]
    assert list(results["dead units"]) == ["model.1.layers.0"]


def test_a_run_has_its_files(digits):
    assert {path.name for path in digits.figures.iterdir()} == FIGURES | {"dead units.png", "surest mistakes.png"}
    lines = (digits.samples / "test predictions.csv").read_text().splitlines()
    assert lines[0] == "true,predicted,probability"
    assert len(lines) == 201
    assert [line["step"] for line in digits.metrics()] == list(range(1, 13))
    assert [line["step"] for line in digits.metrics() if "validation/accuracy" in line] == [6, 12]
    assert json.loads((digits.path / "config.json").read_text())["options"]["hidden"] == [16]


def test_the_report_opens_and_has_the_verdicts(digits):
    page = Opened(digits.report.read_text(encoding="utf-8"))
    assert page.open == []
    for word in ("batch_independence", "sums_to_one", "held", "accuracy", "--hidden 16"):
        assert word in page.words


def test_what_is_reported_is_what_the_model_does(digits):
    """The test accuracy, from the weights and the split alone."""
    test = SupervisedData().parts("classify").test
    with torch.no_grad():
        right = (load(digits)(test.inputs).argmax(-1) == test.targets).double().mean()
    assert float(right) == pytest.approx(digits.results["test"]["accuracy"]["value"])
