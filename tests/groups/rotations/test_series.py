from fractions import Fraction
from math import factorial, perm, pi

import pytest
import torch

from lawful.groups import stumpff
from lawful.groups.so3 import arctangent_ratio, length

POINTS = [0.0, 1e-30, 1e-18, 1e-9, 1e-4, 0.3, 1.0, 3.999999, 4.0, 4.000001, 5.0, pi**2, 20.0, 100.0]


def exact(s, k, d):
    """The d-th derivative of the series, in fractions, which do not round."""
    terms = [Fraction((-1) ** m * perm(m, d), factorial(2 * m + k)) for m in range(80)]
    return [float(sum(c * Fraction(x) ** (m - d) for m, c in enumerate(terms) if m >= d)) for x in s.tolist()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", range(6))
def test_values_and_three_derivatives(k, dtype):
    s = torch.tensor(POINTS, dtype=dtype)

    def f(x):
        return stumpff(x, last=5)[k]

    for d in range(4):
        error = torch.func.vmap(f)(s).double() - torch.tensor(exact(s, k, d), dtype=torch.float64)
        assert error.abs().max() <= 2 * torch.finfo(dtype).eps
        f = torch.func.grad(f)


@pytest.mark.parametrize("last", [1, 2, 3, 4, 5])
def test_each_is_the_same_whatever_the_last(last):
    s = torch.tensor(POINTS, dtype=torch.float64)
    for one, other in zip(stumpff(s, last=last), stumpff(s, last=7), strict=False):
        torch.testing.assert_close(one, other, rtol=1e-14, atol=1e-15)


def test_last_is_at_least_one():
    with pytest.raises(ValueError, match="at least 1: got 0"):
        stumpff(torch.zeros(2), last=0)


def test_arctangent_ratio():
    x = torch.linspace(1e-6, 0.04, 50, dtype=torch.float64)
    torch.testing.assert_close(arctangent_ratio(x), x.sqrt().atan() / x.sqrt(), rtol=1e-15, atol=0)


def test_length_has_no_nan_at_zero():
    v = torch.zeros(3, dtype=torch.float64)
    assert torch.func.grad(length)(v).eq(0).all()
    assert torch.func.hessian(length)(v).isfinite().all()


def test_nan_propagates():
    assert all(c.isnan() for c in stumpff(torch.tensor(torch.nan), last=3))
