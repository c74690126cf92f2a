"""Stumpff functions, the left Jacobian of rotations, and the norm that is smooth at 0."""

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import factorial, perm, pi

import pytest
import torch

from lawful.groups import phi1, skew
from lawful.groups._helpers import (
    arctan_ratio,
    check_last_axes,
    rotation_left_jacobian,
    rotation_left_jacobian_inverse,
    safe_norm,
    shorten,
    stumpff,
)
from lawful.laws import Claim, agreement, derivative, second_order_gradient, transformed

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
        return stumpff(x, max_order=5)[k]

    for d in range(4):
        error = torch.func.vmap(f)(s).double() - torch.tensor(exact(s, k, d), dtype=torch.float64)
        assert error.abs().max() <= 2 * torch.finfo(dtype).eps
        f = torch.func.grad(f)


@pytest.mark.parametrize("max_order", [1, 2, 3, 4, 5])
def test_does_not_depend_on_max_order(max_order):
    s = torch.tensor(POINTS, dtype=torch.float64)
    for one, other in zip(stumpff(s, max_order=max_order), stumpff(s, max_order=7), strict=False):
        torch.testing.assert_close(one, other, rtol=1e-14, atol=1e-15)


def test_max_order_zero_raises():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        stumpff(torch.zeros(2), max_order=0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_other_dtypes_raise(dtype):
    with pytest.raises(TypeError, match=f"expected a floating-point tensor, got {dtype}"):
        stumpff(torch.zeros(2, dtype=dtype), max_order=3)


@pytest.mark.parametrize(("sizes", "wrong"), [((3,), (4,)), ((3,), ()), ((3, 3), (3,)), ((2, 3), (5, 3, 2))])
def test_last_axes_of_another_size_raise(sizes, wrong):
    expected = re.escape(f"(*batch, {', '.join(map(str, sizes))}), got {wrong}")
    with pytest.raises(ValueError, match=expected):
        check_last_axes(torch.zeros(wrong), *sizes)
    x = torch.zeros(5, *sizes)
    assert check_last_axes(x, *sizes) is x


def test_arctangent_ratio():
    x = torch.linspace(1e-6, 0.04, 50, dtype=torch.float64)
    torch.testing.assert_close(arctan_ratio(x), x.sqrt().atan() / x.sqrt(), rtol=1e-15, atol=0)


def test_length_has_no_nan_at_zero():
    v = torch.zeros(3, dtype=torch.float64)
    assert torch.func.grad(safe_norm)(v).eq(0).all()
    assert torch.func.hessian(safe_norm)(v).isfinite().all()


def test_nan_propagates():
    assert all(c.isnan() for c in stumpff(torch.tensor(torch.nan), max_order=3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-4, 0.1, 1.0, 1.999, 2.001, pi, 5.0, 6.0])
def test_equals_the_integral(angle, dtype):
    axes = torch.nn.functional.normalize(
        torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64), dim=-1
    )
    v, eps = (angle * axes).to(dtype), torch.finfo(dtype).eps
    expected = phi1(skew(v.double()))
    found = rotation_left_jacobian(skew(v), angle_squared=v.square().sum(-1))
    back = rotation_left_jacobian_inverse(skew(v), angle_squared=v.square().sum(-1))
    assert (found - expected).abs().max() <= 10 * eps
    inverse = torch.linalg.inv(expected)
    assert (back - inverse).abs().max() <= 50 * eps * inverse.abs().max() ** 2


@pytest.mark.parametrize("function", [rotation_left_jacobian, rotation_left_jacobian_inverse])
def test_generators_are_square(function):
    with pytest.raises(ValueError, match=r"\(\*batch, 3, 3\), got \(2, 3\)"):
        function(torch.zeros(2, 3), angle_squared=torch.zeros(()))


def claims() -> Iterator[Claim]:
    """Second derivations of the series and of the left Jacobian of rotations."""
    squares = transformed(torch.square, "n")

    def cosine_and_sinc(s):
        return torch.stack([s.sqrt().cos(), torch.sinc(s.sqrt() / torch.pi)])

    def arctan(x):
        return torch.where(x > 0, x.sqrt().atan() / torch.where(x > 0, x, 1.0).sqrt(), 1.0)

    first_two = agreement(other=cosine_and_sinc)
    yield Claim(first_two, lambda s: torch.stack(stumpff(s, max_order=1)), squares, name="c_0, c_1")
    for k in range(4):

        def slope(s, k=k):
            c = stumpff(s, max_order=k + 2)
            return (k * c[k + 2] - c[k + 1]) / 2

        function = partial(lambda s, k: stumpff(s, max_order=k + 1)[k], k=k)
        yield Claim(derivative(formula=slope), function, squares, name=f"c_{k}")
    yield Claim(agreement(other=arctan), arctan_ratio, transformed(lambda x: 0.04 * torch.sigmoid(x), "n"))

    def jacobian(v):
        return rotation_left_jacobian(skew(v), angle_squared=v.square().sum(-1))

    def inverse(v):
        return rotation_left_jacobian_inverse(skew(v), angle_squared=v.square().sum(-1))

    def identity(v):
        return torch.eye(3).to(v).expand(*v.shape, 3)

    vector = transformed(shorten, "b 3")
    yield Claim(agreement(other=lambda v: phi1(skew(v))), jacobian, vector, name="rotation_left_jacobian = phi1")
    yield Claim(agreement(other=identity), lambda v: jacobian(v) @ inverse(v), vector, name="inverse left Jacobian")
    yield Claim(replace(second_order_gradient(), cases=8), inverse, vector, name="rotation_left_jacobian_inverse")
