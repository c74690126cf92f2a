"""With `--check-types`, as in `make test-all`, every call of the library checks its shapes and types."""

import functools
import gc
import importlib
import linecache
import random
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from jaxtyping import config, install_import_hook

CHECKED = ("functions", "groups", "blocks", "solvers", "losses", "models")


def pytest_addoption(parser):
    parser.addoption(
        "--check-types", action="store_true", help="check jaxtyping annotations at every call (twice the time)"
    )


def pytest_configure(config):
    if config.option.check_types:
        install_import_hook([f"lawful.{folder}" for folder in CHECKED], "beartype.beartype")


# A warning that PyTorch gives once in a process would fail whichever test comes first.
torch.set_warn_always(True)

# With the default thresholds, the collector visits the objects of all modules too often: a seventh of the time.
gc.set_threshold(100_000, 20, 50)


@pytest.fixture(autouse=True, scope="module")
def check_types(request):
    """Limits the type checks to the tests of the packages above and of all claims."""
    folder = request.path.relative_to(Path(__file__).parent).parts[0]
    config.update("jaxtyping_disable", folder not in (*CHECKED, "test_claims.py"))
    yield
    config.update("jaxtyping_disable", False)


@contextmanager
def without_type_checks() -> Iterator[None]:
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", before)


@pytest.fixture
def unchecked():
    """Disables the type checks of jaxtyping."""
    with without_type_checks():
        yield


original_raises = pytest.raises


@contextmanager
def raises_without_type_checks(expected, *, match):
    """Is `pytest.raises` for users, who have no type checks: the library itself must raise. The message is required."""
    __tracebackhide__ = True
    with original_raises(expected, match=match) as found, without_type_checks():
        yield found


pytest.raises = raises_without_type_checks


def seed_everything():
    random.seed(0)
    np.random.seed(0)
    torch.default_generator.manual_seed(0)  # torch.manual_seed formats a stack trace for each device that is missing


@pytest.hookimpl(tryfirst=True)
def pytest_collectstart():
    """Seeds the random numbers of tables, which a test file draws when it is imported."""
    seed_everything()


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure():
    """Spares the last collections of pytest, which would visit every object ten times."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup():
    seed_everything()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call():
    """Seeds every test, whatever ran before it."""
    seed_everything()


def lambda_source(function):
    """Returns the source of the body of a lambda, if it is on one line."""
    code = function.__code__
    places = [p for p in code.co_positions() if p[3]]
    lines = {line for first, last, *_ in places for line in (first, last)}
    if len(lines) != 1:
        return None
    source = linecache.getline(code.co_filename, lines.pop()).encode()
    return source[min(p[2] for p in places) : max(p[3] for p in places)].decode()


def describe(value):
    """Returns a short text that says what a parameter of a test is, or None."""
    if isinstance(value, functools.partial):
        value = value.func
    if isinstance(value, types.FunctionType) and value.__name__ == "<lambda>":
        return lambda_source(value)
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, tuple | list):
        parts = [describe(part) for part in value]
        return None if None in parts else f"({', '.join(parts)})"
    if isinstance(value, dict):
        parts = {str(key): describe(part) for key, part in value.items()}
        return None if None in parts.values() else ", ".join(f"{key}={part}" for key, part in parts.items()) or "{}"
    if isinstance(value, str | bytes | int | float | complex | torch.dtype | None):
        return str(value).removeprefix("torch.")
    return getattr(value, "__name__", type(value).__name__)


def pytest_make_parametrize_id(val):
    """Names the cases of a test by what they are: lambdas, tensors and containers would have a number only."""
    if isinstance(val, str | bytes | int | float | complex | None):
        return None
    text = describe(val)
    return None if text is None else text[:80].encode("unicode_escape").decode()


FEW_LAWS = (
    "causality",
    "commutativity",
    "determinism",
    "fully_masked_row_is_finite",
    "invertibility",
    "linearity",
    "masked_positions_have_no_influence",
    "oddness",
    "reversal_equivariance",
)


@pytest.fixture
def few_laws(monkeypatch):
    """Restricts `discover` to a few laws, for tests of what it does with the verdicts."""
    module = importlib.import_module("lawful.checking.discover")
    candidates = module.candidate_laws
    monkeypatch.setattr(
        module, "candidate_laws", lambda inputs: [law for law in candidates(inputs) if law.name in FEW_LAWS]
    )
