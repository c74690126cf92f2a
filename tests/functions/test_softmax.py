import pytest
import torch

from lawful.functions import softmax


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_equals_its_equation(axis, temperature):
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = (x / temperature).exp()
    torch.testing.assert_close(
        softmax(x, axis=axis, temperature=temperature), weights / weights.sum(axis, keepdim=True)
    )


def test_temperature_is_above_zero():
    with pytest.raises(ValueError, match="above 0: got 0"):
        softmax(torch.zeros(2), temperature=0.0)
