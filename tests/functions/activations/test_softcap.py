import numpy as np
import pytest
import torch

from lawful.functions import softcap


def test_equals_numpy():
    x = torch.linspace(-100, 100, 41, dtype=torch.float64)
    np.testing.assert_allclose(softcap(x, cap=15.0).numpy(), 15 * np.tanh(x.numpy() / 15))


@pytest.mark.parametrize("cap", [0.0, -1.0, float("nan")])
def test_a_cap_is_positive(cap):
    with pytest.raises(ValueError, match="cap must be greater than 0"):
        softcap(torch.zeros(2), cap=cap)
