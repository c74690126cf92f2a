import math

import pytest
import torch
from scipy import integrate, stats
from torch import nn
from torch.nn import functional as F

from lawful.blocks import (
    fans,
    gain,
    kaiming_normal,
    kaiming_uniform,
    lecun_normal,
    orthogonal,
    xavier_normal,
    xavier_uniform,
)

SHAPES = [(30, 20), (8, 4, 3), (8, 4, 3, 3)]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (xavier_normal, nn.init.xavier_normal_),
        (xavier_uniform, nn.init.xavier_uniform_),
        (kaiming_normal, nn.init.kaiming_normal_),
        (kaiming_uniform, nn.init.kaiming_uniform_),
        (orthogonal, nn.init.orthogonal_),
    ],
)
def test_equals_torch(ours, theirs, shape):
    torch.testing.assert_close(
        ours(torch.empty(shape), generator=seeded()), theirs(torch.empty(shape), generator=seeded())
    )


def test_lecun_has_the_variance_of_one_over_the_inputs():
    w = lecun_normal(torch.empty(50, 40, dtype=torch.float64), generator=seeded())
    assert stats.kstest(w.flatten() * math.sqrt(40), "norm").pvalue > 1e-3


@pytest.mark.parametrize("activation", [torch.relu, F.gelu, torch.tanh, torch.sigmoid, F.elu, F.silu])
def test_the_gain_makes_up_for_the_activation(activation):
    def integrand(z):
        return float(activation(torch.tensor(z, dtype=torch.float64))) ** 2 * stats.norm.pdf(z)

    moment = sum(integrate.quad(integrand, a, b)[0] for a, b in ((-12, 0), (0, 12)))
    assert gain(activation) == pytest.approx(moment**-0.5, rel=1e-6)


@pytest.mark.parametrize("activation", [torch.relu, torch.tanh, F.gelu])
def test_a_signal_that_went_through_an_activation_gets_its_size_back(activation):
    z = torch.randn(500, 200, generator=seeded(), dtype=torch.float64)
    w = kaiming_normal(torch.empty(2000, 200, dtype=torch.float64), gain=gain(activation), generator=seeded(1))
    assert float((activation(z) @ w.T).square().mean()) == pytest.approx(1, rel=0.05)


def test_it_changes_the_parameter_itself():
    layer = nn.Linear(3, 3)
    assert orthogonal(layer.weight) is layer.weight
    torch.testing.assert_close(layer.weight @ layer.weight.T, torch.eye(3))


def test_errors_say_what_was_wanted_and_what_came():
    assert fans(torch.empty(5, 2, 7)) == (14, 35)
    with pytest.raises(ValueError, match=r"got shape \(3,\)"):
        xavier_normal(torch.empty(3))
    with pytest.raises(ValueError, match=r"got shape \(0, 3\)"):
        orthogonal(torch.empty(0, 3))
    with pytest.raises(ValueError, match="second moment of 0"):
        gain(torch.zeros_like)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_orthogonal_takes_half_precision_and_any_layout(dtype):
    w = orthogonal(torch.empty(6, 4, dtype=dtype), generator=seeded()).float()
    torch.testing.assert_close(w.T @ w, torch.eye(4), rtol=0, atol=0.02)
    kernel = torch.empty(8, 2, 3, 3).to(memory_format=torch.channels_last)
    expected = orthogonal(torch.empty(8, 2, 3, 3), generator=seeded())
    torch.testing.assert_close(orthogonal(kernel, generator=seeded()), expected)
