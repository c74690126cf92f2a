from collections.abc import Callable

import pytest

import lawful
from tests.scripts import shown


@pytest.fixture
def judge() -> Callable[..., lawful.Verdict]:
    """Judges one law on one map."""

    def verdict(f, law, inputs=None, *, cases=50, **options):
        return lawful.check(f, law, inputs=inputs, cases=cases, **options).verdicts[0]

    return verdict


@pytest.fixture
def shows(tmp_path) -> Callable[[lawful.Verdict], bool]:
    """Runs the standalone script of a verdict: whether it prints two numbers that differ."""

    def differ(verdict):
        left, right = shown(verdict, tmp_path)
        return left != right

    return differ


def pytest_generate_tests(metafunc):
    """Gives the drivers the tables of the file that they are in; names in SHOWN run their scripts too."""
    tables = vars(metafunc.module)
    if "kept" in metafunc.fixturenames:
        metafunc.parametrize("kept", tables["KEPT"].values(), ids=tables["KEPT"])
    if "broken" in metafunc.fixturenames:
        cases = [(case, name in tables.get("SHOWN", ())) for name, case in tables["BROKEN"].items()]
        metafunc.parametrize("broken", cases, ids=tables["BROKEN"])
