"""Shapes and types of what the library computes are checked at every call while the tests run."""

import pytest
import torch
from jaxtyping import config, install_import_hook

CHECKED = ("functions", "groups", "blocks", "solvers", "losses", "models")

install_import_hook([f"lawful.{folder}" for folder in CHECKED], "beartype.beartype")

# A warning that PyTorch gives once in a process would fail whichever test comes first.
torch.set_warn_always(True)


@pytest.fixture
def unchecked():
    """Lets values of a wrong type through to the library's own errors, as in a user's session."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
