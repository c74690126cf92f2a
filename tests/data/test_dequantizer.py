import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from lawful.data import Dequantizer, digits
from lawful.functions import LogProbEstimate
from lawful.laws import Claim, agreement, shape


def test_round_trip_of_digits():
    x = digits().inputs.double() * 16 if digits().inputs.max() <= 1 else digits().inputs.double()
    pixels = Dequantizer(levels=17, high=16.0)
    y = pixels.dequantize(x, seed=3)
    assert (y - x).abs().max() < 0.5
    assert torch.equal(pixels.quantize(y), x)
    torch.testing.assert_close(pixels.dequantize(x[5:7], seed=3, first=5), y[5:7])


def test_bits_of_uniform_levels():
    for levels, low, high in ((2, 0.0, 1.0), (17, 0.0, 16.0), (256, -1.0, 1.0)):
        cells = Dequantizer(levels=levels, low=low, high=high)
        left, right = cells.support
        nats = -3 * math.log(right - left)
        assert cells.bits_per_dim(nats, 3) == pytest.approx(math.log2(levels))
        found = cells.bits_per_dim(LogProbEstimate(torch.tensor([nats]), torch.tensor([0.3]), 7), 3)
        torch.testing.assert_close(found.value, torch.tensor([math.log2(levels)]))
        torch.testing.assert_close(found.error, torch.tensor([0.1 / math.log(2)]))
        assert found.evaluations == 7


def test_upper_bound_on_the_bits_of_levels():
    """A normal density on three levels: the mean over the noise is above the bits of the mass of each cell."""
    cells = Dequantizer(levels=3, low=-1.0, high=1.0)
    normal = torch.distributions.Normal(0.2, 0.6)
    for level in (-1.0, 0.0, 1.0):
        mass = normal.cdf(torch.tensor(level + 0.5)) - normal.cdf(torch.tensor(level - 0.5))
        y = cells.dequantize(torch.full((20000, 1), level))
        bound = cells.bits_per_dim(normal.log_prob(y[:, 0]).mean(), 1)
        assert 0 < bound + mass.log2() < 1


@pytest.mark.parametrize(
    "x", [torch.tensor([[0.0, 255.0]]), torch.tensor([[0.5, 1.0]]), torch.tensor([[-1.0, 0.0]])], ids=str
)
def test_wrong_range(x):
    with pytest.raises(ValueError, match=r"expected 256 levels from 0 to 1, .* got values from"):
        Dequantizer(levels=256).dequantize(x)


def test_invalid_arguments():
    with pytest.raises(ValueError, match="got NaN"):
        Dequantizer(levels=2).dequantize(torch.tensor([[float("nan")]]))
    with pytest.raises(ValueError, match="expected levels >= 2"):
        Dequantizer(levels=1)
    with pytest.raises(ValueError, match="expected finite low < high"):
        Dequantizer(levels=2, low=1.0, high=0.0)
    with pytest.raises(ValueError, match="expected dim >= 1"):
        Dequantizer(levels=2).bits_per_dim(1.0, 0)
    assert Dequantizer(levels=2).dequantize(torch.zeros(0, 3)).shape == (0, 3)


def claims() -> Iterator[Claim]:
    """Second derivation of bits per dimension."""

    def bits_of_levels(x: Tensor) -> Tensor:
        """Bits of a density that is constant on each cell."""
        cells = Dequantizer(levels=len(x), low=0.0, high=2.0 * (len(x) - 1))
        return cells.bits_per_dim((x.softmax(0) / 2).log(), 1)

    bits = agreement(other=lambda x: -x.log_softmax(0) / math.log(2))
    yield Claim(bits, bits_of_levels, shape("n:2..6"), name="Dequantizer.bits_per_dim")
