import csv
import random
import signal
from unittest.mock import MagicMock

import pytest

from lawful.recipes import classify as classified
from lawful.recipes import regress
from lawful.recipes.data import SupervisedData
from lawful.recipes.optimization import Learning
from lawful.training import TrainerConfig

ENGINE = TrainerConfig(threads=1, laws=0)
HEADER = ("size", "colour", "weight", "kind")


class Stops:
    """Wishes that the training stop after a step, as Ctrl-C does."""

    def __init__(self, step):
        self.step = step

    def start(self, run, training):
        pass

    def log(self, step, figures):
        if step == self.step:
            signal.raise_signal(signal.SIGINT)

    def close(self):
        pass


@pytest.fixture
def stops_at():
    """Makes a tracker that stops the training after a step."""
    return Stops


@pytest.fixture
def undrawn(monkeypatch):
    """Leaves the pictures out, which take longer than the training."""
    for module in (classified, regress):
        monkeypatch.setattr(module, "figures", MagicMock())


@pytest.fixture
def engine():
    """How a quick run is run."""
    return ENGINE


@pytest.fixture
def options(engine):
    """The options of a quick run of a recipe on iris, but for those that are given."""

    def made(*, data="iris", given=(), **learning):
        return {
            "given": SupervisedData(data=str(data), **dict(given)),
            "learning": Learning(**{"epochs": 2, "batch": 32, **learning}),
            "engine": engine,
        }

    return made


def rows(count=60, seed=0):
    """A table in which a number, a word and another number tell three kinds apart."""
    draw = random.Random(seed)
    for i in range(count):
        k = i % 3
        colour = ("red", "blue", "green")[(k + (draw.random() < 0.2)) % 3]
        yield f"{draw.gauss(2 * k, 0.5):.4f}", colour, f"{draw.gauss(-k, 0.5):.4f}", ("cat", "dog", "owl")[k]


@pytest.fixture
def table(tmp_path):
    """Writes the table to a file, after a change to its rows."""

    def written(name="own.csv", *, change=list, delimiter=",", count=60):
        path = tmp_path / name
        with path.open("w", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows([HEADER, *change(list(rows(count)))])
        return path

    return written
