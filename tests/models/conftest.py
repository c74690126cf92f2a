import pytest
from jaxtyping import config


@pytest.fixture
def unchecked():
    """Lets values of a wrong type through to the library's own errors, as in a user's session."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
