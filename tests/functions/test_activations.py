"""Squared ReLU, soft cap and gated linear units."""

import math
from functools import partial

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from torch.nn import functional as F

from lawful.functions import bilinear_glu, geglu, glu, gtu, identity, reglu, softcap, squared_relu, swiglu
from lawful.laws import Claim, agreement, derivative, linearity, monotonicity, shape

X = torch.cat([torch.linspace(-30, 45, 301, dtype=torch.float64), torch.tensor([0.0, -1e-8, 1e-8])])
POINTWISE = {identity: lambda x: x, squared_relu: lambda x: np.maximum(x, 0) ** 2}
GATES = {
    glu: lambda x, g: x * scipy.special.expit(g),
    bilinear_glu: lambda x, g: x * g,
    reglu: lambda x, g: x * np.maximum(g, 0),
    geglu: lambda x, g: x * g * scipy.stats.norm.cdf(g),
    swiglu: lambda x, g: x * g * scipy.special.expit(g),
    gtu: lambda x, g: np.tanh(x) * scipy.special.expit(g),
}


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("function", POINTWISE, ids=lambda f: f.__name__)
def test_activation_equals_numpy(function):
    np.testing.assert_allclose(function(X), POINTWISE[function](X.numpy()), rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("function", POINTWISE, ids=lambda f: f.__name__)
def test_float32_is_finite_and_nan_propagates(function):
    x = torch.tensor([-1e4, -100.0, 0.0, 100.0, 1e4], requires_grad=True)
    y = function(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert y.isfinite().all()
    assert slope.isfinite().all()
    assert function(torch.tensor(math.nan)).isnan()
    assert function(torch.zeros(2, 0)).shape == (2, 0)


@pytest.mark.parametrize("gate", GATES, ids=lambda f: f.__name__)
def test_gate_equals_numpy(gate):
    x, g = randn(3, 4), randn(3, 4, seed=1)
    np.testing.assert_allclose(gate(x, g), GATES[gate](x.numpy(), g.numpy()), rtol=1e-11)


def test_glu_of_halves_equals_pytorch():
    x = randn(3, 8)
    torch.testing.assert_close(glu(*x.chunk(2, -1)), F.glu(x))


def test_only_the_gradient_of_gtu_vanishes():
    x, g = torch.tensor(50.0, requires_grad=True), torch.tensor(2.0)
    slopes = {gate: float(torch.autograd.grad(gate(x, g), x)[0]) for gate in GATES}
    assert [gate for gate, slope in slopes.items() if slope == 0] == [gtu]


def test_shapes_that_do_not_broadcast_raise():
    with pytest.raises((TypeError, RuntimeError), match=r"size|shape"):
        glu(torch.zeros(3), torch.zeros(4))


@pytest.mark.parametrize("cap", [0.0, -1.0, math.nan])
def test_softcap_must_be_positive(cap):
    with pytest.raises(ValueError, match=f"cap must be greater than 0, got {cap}"):
        softcap(torch.zeros(2), cap=cap)


def claims():
    """Second derivations of activations."""
    pair, capped = (shape("b 4"), shape("b 4")), partial(softcap, cap=2.0)

    def logistic(x):
        e = torch.exp(-x.abs())
        return 2 * x.sign() * (1 - e) / (1 + e)

    yield Claim(agreement(other=lambda x: (x > 0) * x * x), squared_relu, shape("b 4"))
    yield Claim(monotonicity(), squared_relu, shape("b 4"))
    yield Claim(agreement(other=logistic), capped, shape("b n"), name="softcap(cap=2)")
    slope = derivative(formula=lambda x: 1 / torch.cosh(x / 2) ** 2)
    yield Claim(slope, capped, shape("b n"), name="softcap(cap=2)")
    yield Claim(linearity(input=1), bilinear_glu, pair)
    yield Claim(agreement(other=lambda x, g: x.tanh() * (1 + (g / 2).tanh()) / 2), gtu, pair)
    yield Claim(derivative(formula=lambda x, g: (1 - x.tanh().square()) * torch.sigmoid(g)), gtu, pair)
