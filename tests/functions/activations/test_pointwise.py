import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch

from lawful.functions import (
    elu,
    gelu,
    gelu_tanh,
    identity,
    leaky_relu,
    relu,
    sigmoid,
    silu,
    softplus,
    squared_relu,
    tanh,
)

X = torch.cat([torch.linspace(-30, 45, 301, dtype=torch.float64), torch.tensor([0.0, -1e-8, 1e-8])])

ORACLES = {
    identity: lambda x: x,
    relu: lambda x: np.maximum(x, 0),
    squared_relu: lambda x: np.maximum(x, 0) ** 2,
    leaky_relu: lambda x: np.where(x > 0, x, 0.01 * x),
    elu: lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    gelu: lambda x: x * scipy.stats.norm.cdf(x),
    gelu_tanh: lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    sigmoid: scipy.special.expit,
    tanh: np.tanh,
    silu: lambda x: x * scipy.special.expit(x),
    softplus: lambda x: np.logaddexp(x, 0),
}


@pytest.mark.parametrize("function", ORACLES, ids=lambda f: f.__name__)
def test_equals_numpy(function):
    np.testing.assert_allclose(function(X), ORACLES[function](X.numpy()), rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("function", ORACLES, ids=lambda f: f.__name__)
def test_float32_is_finite_far_out_and_nan_propagates(function):
    x = torch.tensor([-1e4, -100.0, 0.0, 100.0, 1e4], requires_grad=True)
    y = function(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert y.isfinite().all()
    assert slope.isfinite().all()
    assert function(torch.tensor(math.nan)).isnan()
    assert function(torch.zeros(2, 0)).shape == (2, 0)


def test_parameters():
    x = torch.tensor([-2.0, 3.0], dtype=torch.float64)
    assert leaky_relu(x, slope=0.5).tolist() == [-1.0, 3.0]
    np.testing.assert_allclose(elu(x, alpha=2.0), [2 * math.expm1(-2), 3.0])


def test_derivative_of_relu_at_zero_is_zero():
    x = torch.zeros(1, requires_grad=True)
    relu(x).backward()
    assert float(x.grad) == 0.0


def test_softplus_keeps_its_digits_past_twenty():
    x = torch.linspace(19, 45, 50, dtype=torch.float64)
    torch.testing.assert_close(softplus(x), torch.logaddexp(x, torch.zeros_like(x)), rtol=1e-15, atol=0)


@pytest.mark.parametrize("function", [f for f in ORACLES if f is not identity], ids=lambda f: f.__name__)
def test_what_is_no_tensor_is_refused(function):
    with pytest.raises((TypeError, AttributeError)):
        function([1.0, 2.0])
