"""While the tests run, shapes and types are checked at every call of the library."""

import pytest
import torch
from jaxtyping import config, install_import_hook

CHECKED = ("functions", "groups", "blocks", "solvers", "losses", "models")

install_import_hook([f"lawful.{folder}" for folder in CHECKED], "beartype.beartype")

# A warning that PyTorch gives once in a process would fail whichever test comes first.
torch.set_warn_always(True)


@pytest.fixture
def unchecked():
    """Disables the type checks of jaxtyping, so that values of a wrong type reach the errors of the library."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
