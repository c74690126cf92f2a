import csv
import random
import signal
from unittest.mock import MagicMock

import pytest

from lawful.inference.metrics import intervals
from lawful.recipes import classify, graph_classify, molecules, node_classify, regress

TRAINER = {"threads": 1, "law_cases": 0}
"""Trainer options of a quick run."""
HEADER = ("size", "color", "weight", "kind")


class StopAt:
    """A logger that sends SIGINT after a step, as Ctrl-C does."""

    def __init__(self, step):
        self.step = step

    def start(self, run, setup):
        pass

    def log(self, step, metrics):
        if step == self.step:
            signal.raise_signal(signal.SIGINT)

    def close(self):
        pass


@pytest.fixture(autouse=True, scope="module")
def _few_bootstrap_samples():
    """Intervals from 20 bootstrap samples: 1000 for each metric take longer than the training."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(intervals.bootstrap.__kwdefaults__, "samples", 20)
        yield


@pytest.fixture
def stop_at():
    return StopAt


@pytest.fixture
def no_figures(monkeypatch):
    """Skips the figures of supervised recipes and of those on graphs, which take longer than the training."""
    for module in (classify, graph_classify, molecules, node_classify, regress):
        monkeypatch.setattr(module, "figures", MagicMock())


@pytest.fixture
def options():
    """Options of a quick supervised run on iris."""

    def build(**changes):
        merged = {"data": "iris", "epochs": 2, "batch_size": 32, **TRAINER, **changes}
        return {**merged, "data": str(merged["data"])}

    return build


@pytest.fixture
def closed_form():
    """Options of a model that is fitted in closed form: without those of gradient descent."""

    def build(**changes):
        merged = {"data": "iris", **TRAINER, **changes}
        return {**merged, "data": str(merged["data"])}

    return build


@pytest.fixture(scope="session")
def tiny():
    """Options of a quick run of a tiny transformer."""

    def build(**changes):
        sizes = {"dim": 8, "num_layers": 1, "num_heads": 2, "head_dim": 0, "ngram_rows": 32, "ngram_dim": 0}
        return {**sizes, "ngram_dropout": 0.0, "steps": 6, "batch_size": 4, **TRAINER, **changes}

    return build


@pytest.fixture(scope="session")
def words(tmp_path_factory):
    """A small text file."""
    path = tmp_path_factory.mktemp("words") / "words.txt"
    path.write_text("the cat sat on the mat, and the dog sat on the log.\n" * 30)
    return path


def rows(count=60, seed=0):
    """Rows of a table with three classes."""
    draw = random.Random(seed)
    for i in range(count):
        k = i % 3
        color = ("red", "blue", "green")[(k + (draw.random() < 0.2)) % 3]
        yield f"{draw.gauss(2 * k, 0.5):.4f}", color, f"{draw.gauss(-k, 0.5):.4f}", ("cat", "dog", "owl")[k]


@pytest.fixture
def table(tmp_path):
    """Writes the table to a file, optionally with changed rows."""

    def write(name="own.csv", *, change=list, delimiter=",", count=60):
        path = tmp_path / name
        with path.open("w", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows([HEADER, *change(list(rows(count)))])
        return path

    return write
