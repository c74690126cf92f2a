import json
from html.parser import HTMLParser

import pytest
import torch

from lawful.recipes import ClassifyRecipe, MLPSpec, load
from lawful.recipes.data import SupervisedDataConfig
from lawful.training import train

FIGURES = {"calibration.png", "confidence far from the data.png", "confusion.png", "per class.png"}


class Opened(HTMLParser):
    """Checks that tags are balanced and collects the text."""

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
    recipe = ClassifyRecipe(model=MLPSpec(hidden_dims=(16,)), epochs=2, batch_size=256, threads=1, law_cases=3)
    return train(recipe, output_dir=tmp_path_factory.mktemp("digits"))


def test_results(digits):
    results = digits.results
    assert results["steps"] == 12
    for part in ("test", "validation", "train"):
        found = results[part]["accuracy"]
        assert 0 <= found["low"] <= found["value"] <= found["high"] <= 1
    assert results["examples"] == {"train": 1294, "validation": 144, "test": 359}
    assert set(results["F1 per class"]) == set("0123456789")
    assert results["baseline accuracy"]["most frequent class"]["value"] < 0.15
    assert results["baseline accuracy"]["5 nearest neighbors"]["value"] > 0.9
    assert results["test"]["accuracy"]["value"] > results["baseline accuracy"]["most frequent class"]["value"]
    assert list(results["dead units"]) == ["model.1.activations.0"]


def test_files(digits):
    assert {path.name for path in digits.figures.iterdir()} == FIGURES | {
        "dead units.png",
        "most confident mistakes.png",
        "predictions.png",
    }
    assert digits.results["lead_figures"] == ["predictions.png", "most confident mistakes.png"]
    lines = (digits.samples / "test predictions.csv").read_text().splitlines()
    assert lines[0] == "true,predicted,probability"
    assert len(lines) == 201
    assert [line["step"] for line in digits.metrics] == list(range(1, 13))
    assert [line["step"] for line in digits.metrics if "validation/accuracy" in line] == [6, 12]
    assert json.loads((digits.path / "config.json").read_text())["options"]["model"] == {
        "name": "mlp",
        "hidden_dims": [16],
        "dropout": 0.3,
    }


def test_report_is_valid_html_with_verdicts(digits):
    page = Opened(digits.report.read_text(encoding="utf-8"))
    assert page.open == []
    for word in ("batch_independence", "sums_to_one", "held", "accuracy", "--hidden-dims 16"):
        assert word in page.words


def test_reported_accuracy_equals_the_loaded_model(digits):
    test = SupervisedDataConfig().load_splits("classify").test
    with torch.no_grad():
        right = (load(digits)(test.inputs).argmax(-1) == test.targets).double().mean()
    assert float(right) == pytest.approx(digits.results["test"]["accuracy"]["value"])
