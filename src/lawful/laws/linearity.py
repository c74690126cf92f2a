"""Linearity, affinity and the parts of linearity: sums, multiples, signs and shifts of the input."""

from __future__ import annotations

from torch import Tensor

from lawful.laws._helpers import axis_size, require_real
from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Axis, law
from lawful.laws.statements import Equal, Statement

_FACTORS = (2.0, 0.5, 3.0, 0.1, 10.0, 1.7)


@law("f(a x + b y) = a f(x) + b f(y)", any_weights=False)
def linearity(f: Map, x: Tensor, *, draw: Draw) -> Statement:
    """The output of a linear combination is the linear combination of the outputs.

    Satisfied by: a linear layer or convolution without bias; a derivative; an average.
    Broken by: a bias; any activation.
    """
    y = draw.like(require_real(x))
    a, b = draw.choice((1.0, -1.0, *_FACTORS), "a"), draw.choice((1.0, -1.0, *_FACTORS), "b")
    return Equal(f(a * x + b * y), a * f(x) + b * f(y))


@law("f(λx + (1 - λ)y) = λ f(x) + (1 - λ) f(y)", any_weights=False)
def affinity(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """The map is affine: linear up to a constant.

    Satisfied by: a linear layer or convolution with bias; batch norm in eval mode.
    Broken by: any activation; a product of two functions of the input.
    """
    ys = [draw.like(require_real(x)) for x in xs]
    weight = draw.choice((0.5, 0.25, 0.9), "λ")
    between = [weight * x + (1 - weight) * y for x, y in zip(xs, ys, strict=True)]
    return Equal(f(*between), weight * f(*xs) + (1 - weight) * f(*ys))


@law("f(x + y) = f(x) + f(y)", any_weights=False)
def additivity(f: Map, x: Tensor, *, draw: Draw) -> Statement:
    """The output of a sum is the sum of the outputs.

    Satisfied by: linear maps; the real part of a complex number.
    Broken by: a bias; any activation.
    """
    y = draw.like(require_real(x))
    return Equal(f(x + y), f(x) + f(y))


@law("f(-x) = -f(x)", any_weights=False)
def oddness(f: Map, x: Tensor) -> Statement:
    """Negating the input negates the output.

    Satisfied by: linear maps, tanh, sine.
    Broken by: a bias; ReLU, GELU.
    """
    return Equal(f(-require_real(x)), -f(x))


@law("f(-x) = f(x)", any_weights=False)
def evenness(f: Map, x: Tensor) -> Statement:
    """Negating the input changes nothing.

    Satisfied by: a norm, a square, cosine.
    Broken by: any map that depends on the sign.
    """
    return Equal(f(-require_real(x)), f(x))


@law("f(a x) = a^k f(x), a > 0", any_weights=False, discover_with=[{"degree": 1.0}, {"degree": 2.0}])
def homogeneity(f: Map, x: Tensor, *, degree: float = 1.0, draw: Draw) -> Statement:
    """Scaling the input by a > 0 scales the output by a^degree.

    Satisfied by: ReLU networks without biases (degree 1); a norm (1); a quadratic form (2).
    Broken by: a bias; GELU, tanh, softmax.
    """
    a = draw.choice(_FACTORS, "a")
    return Equal(f(a * require_real(x)), a**degree * f(x))


@law("f(x + c) = f(x), c constant along the axis", any_weights=False)
def shift_invariance(f: Map, x: Tensor, *, axis: Axis = -1, draw: Draw) -> Statement:
    """Adding a constant along an axis changes nothing.

    Satisfied by: softmax over the axis; layer norm; differences.
    Broken by: RMS norm; softmax over another axis.
    """
    axis_size(require_real(x), axis)
    c = draw.normal(*x.narrow(axis, 0, 1).shape) * draw.choice((1.0, 10.0), "size of c")
    return Equal(f(x + c), f(x))


@law("f(a x) = f(x), a > 0, x ≠ 0", any_weights=False)
def scale_invariance(f: Map, x: Tensor, *, axis: Axis = -1, draw: Draw) -> Statement:
    """Multiplying each slice along an axis by a positive factor changes nothing.

    Slices that are zero are excluded.

    Satisfied by: RMS norm and layer norm over the axis with eps = 0; normalizing to length 1.
    Broken by: a norm whose eps is not small relative to the input; softmax.
    """
    axis_size(require_real(x), axis)
    draw.assume(x.abs().amax(axis) > 0)
    a = draw.normal(*x.narrow(axis, 0, 1).shape).exp() * draw.choice((1.0, 10.0, 0.1), "size of a")
    return Equal(f(a * x), f(x))


@law("f(λx + (1 - λ)y) = λ f(x) + (1 - λ) f(y) for x, y of one region", discover_with=None)
def piecewise_affinity(f: Map, x: Tensor, *, region: str = "active_units", draw: Draw) -> Statement:
    """The map is affine on a segment between two points of the same region.

    `region` names the method that returns the region of a point, such as which hidden units are active.

    Satisfied by: networks with ReLU or leaky ReLU.
    Broken by: GELU, tanh; a softmax output.
    """
    y = x + draw.choice((0.01, 0.1, 1.0), "distance") * draw.normal(*x.shape)
    weight = draw.choice((0.5, 0.25, 0.9), "λ")
    draw.assume(f.method(region)(x) == f.method(region)(y))
    return Equal(f(weight * x + (1 - weight) * y), weight * f(x) + (1 - weight) * f(y))
