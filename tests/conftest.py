"""While the tests run, shapes and types are checked at every call of the library."""

import importlib

import pytest
import torch
from jaxtyping import config, install_import_hook

CHECKED = ("functions", "groups", "blocks", "solvers", "losses", "models")

install_import_hook([f"lawful.{folder}" for folder in CHECKED], "beartype.beartype")

# A warning that PyTorch gives once in a process would fail whichever test comes first.
torch.set_warn_always(True)


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
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
