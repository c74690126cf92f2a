"""The tests of a package check shapes and types at every call of the library."""

import gc
import importlib
from pathlib import Path

import pytest
import torch
from jaxtyping import config, install_import_hook

CHECKED = ("functions", "groups", "blocks", "solvers", "losses", "models")

install_import_hook([f"lawful.{folder}" for folder in CHECKED], "beartype.beartype")

# A warning that PyTorch gives once in a process would fail whichever test comes first.
torch.set_warn_always(True)

# With the default thresholds, Python walks the objects of all modules so often that it takes a third of the time.
gc.set_threshold(100_000, 20, 50)


@pytest.fixture(autouse=True, scope="module")
def check_types(request):
    """Checks types in the tests of the packages above and of all claims; elsewhere the checks would double the time."""
    folder = request.path.relative_to(Path(__file__).parent).parts[0]
    config.update("jaxtyping_disable", folder not in (*CHECKED, "test_claims.py"))
    yield
    config.update("jaxtyping_disable", False)


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


@pytest.fixture
def unchecked():
    """Disables the type checks of jaxtyping, so that values of a wrong type reach the errors of the library."""
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", before)
