import math

import pytest
import torch

from lawful.data import Dequantizer, digits
from lawful.functions import LogProbEstimate


def test_digits_go_there_and_back():
    x = digits().inputs.double() * 16 if digits().inputs.max() <= 1 else digits().inputs.double()
    pixels = Dequantizer(levels=17, high=16.0)
    y = pixels.dequantized(x, seed=3)
    assert (y - x).abs().max() < 0.5
    assert torch.equal(pixels.quantized(y), x)
    torch.testing.assert_close(pixels.dequantized(x[5:7], seed=3, first=5), y[5:7])


def test_the_bits_of_levels_that_are_all_alike():
    for levels, low, high in ((2, 0.0, 1.0), (17, 0.0, 16.0), (256, -1.0, 1.0)):
        cells = Dequantizer(levels=levels, low=low, high=high)
        left, right = cells.support
        nats = -3 * math.log(right - left)
        assert cells.bits_per_dimension(nats, 3) == pytest.approx(math.log2(levels))
        found = cells.bits_per_dimension(LogProbEstimate(torch.tensor([nats]), torch.tensor([0.3]), 7), 3)
        torch.testing.assert_close(found.value, torch.tensor([math.log2(levels)]))
        torch.testing.assert_close(found.error, torch.tensor([0.1 / math.log(2)]))
        assert found.evaluations == 7


def test_it_bounds_the_bits_of_the_levels():
    """A normal density on three levels: the mean over the noise is above the bits of the mass of each cell."""
    cells = Dequantizer(levels=3, low=-1.0, high=1.0)
    normal = torch.distributions.Normal(0.2, 0.6)
    for level in (-1.0, 0.0, 1.0):
        mass = normal.cdf(torch.tensor(level + 0.5)) - normal.cdf(torch.tensor(level - 0.5))
        y = cells.dequantized(torch.full((20000, 1), level))
        bound = cells.bits_per_dimension(normal.log_prob(y[:, 0]).mean(), 1)
        assert 0 < bound + mass.log2() < 1


@pytest.mark.parametrize(
    "x", [torch.tensor([[0.0, 255.0]]), torch.tensor([[0.5, 1.0]]), torch.tensor([[-1.0, 0.0]])], ids=str
)
def test_a_wrong_range_is_noticed(x):
    with pytest.raises(ValueError, match=r"256 levels from 0 to 1, .* were wanted: got values from"):
        Dequantizer(levels=256).dequantized(x)


def test_what_is_no_data():
    with pytest.raises(ValueError, match="got NaN"):
        Dequantizer(levels=2).dequantized(torch.tensor([[float("nan")]]))
    with pytest.raises(ValueError, match="levels are at least 2"):
        Dequantizer(levels=1)
    with pytest.raises(ValueError, match="low is below high"):
        Dequantizer(levels=2, low=1.0, high=0.0)
    with pytest.raises(ValueError, match="dims"):
        Dequantizer(levels=2).bits_per_dimension(1.0, 0)
    assert Dequantizer(levels=2).dequantized(torch.zeros(0, 3)).shape == (0, 3)
