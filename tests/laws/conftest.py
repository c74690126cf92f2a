from collections.abc import Callable

import pytest

import lawful
from lawful.checking.check import SearchBudget, judge_law
from tests.scripts import run_script


@pytest.fixture
def judge() -> Callable[..., lawful.Verdict]:
    """Checks one law on one map. Most tests need the verdict only, so no counterexample is shrunk."""

    def verdict(f, law, inputs=None, *, cases=50, shrinks=0, **options):
        return judge_law(law, f, inputs, "f", SearchBudget(cases, shrinks=shrinks, **options))

    return verdict


@pytest.fixture
def script_differs(tmp_path) -> Callable[[lawful.Verdict], bool]:
    """Runs the script of a verdict; returns whether it prints two different numbers."""

    def differ(verdict):
        left, right = run_script(verdict, tmp_path)
        return left != right

    return differ


def pytest_generate_tests(metafunc):
    """Parametrizes the tests of drivers.py with the tables of the file; names in SCRIPTS run their scripts, too."""
    tables = vars(metafunc.module)
    if "satisfied" in metafunc.fixturenames:
        metafunc.parametrize("satisfied", tables["SATISFIED"].values(), ids=tables["SATISFIED"])
    if "broken" in metafunc.fixturenames:
        cases = [(case, name in tables.get("SCRIPTS", ())) for name, case in tables["BROKEN"].items()]
        metafunc.parametrize("broken", cases, ids=tables["BROKEN"])
