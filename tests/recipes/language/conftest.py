import pytest

from lawful.recipes.optimization import Descent
from lawful.recipes.transformer import Transformer
from lawful.training import TrainerConfig

TINY = {"width": 8, "depth": 1, "heads": 2, "rows": 32}


@pytest.fixture(scope="session")
def tiny():
    """The options of a quick run, but for those that are given."""

    def made(*, transformer=(), engine=(), **learning):
        return {
            "transformer": Transformer(**TINY | dict(transformer)),
            "learning": Descent(**{"steps": 6, "batch": 4, "evaluations": 2} | learning),
            "engine": TrainerConfig(**{"threads": 1, "laws": 0} | dict(engine)),
        }

    return made


@pytest.fixture(scope="session")
def words(tmp_path_factory):
    """A small text file."""
    path = tmp_path_factory.mktemp("words") / "words.txt"
    path.write_text("the cat sat on the mat, and the dog sat on the log.\n" * 30)
    return path
