"""Inequalities: monotonicity, convexity, bounds and Lipschitz constants."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lawful.laws._helpers import require_real
from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Inapplicable, law
from lawful.laws.statements import AtMost, Finite, Statement


def _require_real_output(y: Tensor) -> Tensor:
    if not y.is_floating_point():
        raise Inapplicable(f"expected a floating-point output, got {y.dtype}")
    return y


@law("x ≤ y ⇒ f(x) ≤ f(y)", any_weights=False, discover_with=[{"decreasing": False}, {"decreasing": True}])
def monotonicity(f: Map, x: Tensor, *, decreasing: bool = False, draw: Draw) -> Statement:
    """A larger input, entry by entry, never gives a smaller output (with `decreasing`, never a larger one).

    Satisfied by: ReLU, sigmoid, sorting, a maximum, layers with non-negative weights.
    Broken by: GELU, softmax, a norm.
    """
    y = require_real(x) + draw.like(x).abs()
    low, high = _require_real_output(f(x)), f(y)
    return AtMost(high, low) if decreasing else AtMost(low, high)


@law("f(λx + (1 - λ)y) ≤ λ f(x) + (1 - λ) f(y)", any_weights=False)
def convexity(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """Each output is a convex function of the inputs (Jensen's inequality for two points).

    Satisfied by: norms, ReLU, log-sum-exp, a maximum, cross-entropy as a function of the logits.
    Broken by: a sigmoid, a minimum, softmax.
    """
    ys = [draw.like(require_real(x)) for x in xs]
    weight = draw.choice((0.5, 0.25, 0.9), "λ")
    between = _require_real_output(f(*(weight * x + (1 - weight) * y for x, y in zip(xs, ys, strict=True))))
    return AtMost(between, weight * f(*xs) + (1 - weight) * f(*ys))


@law("f(x) and its gradient are finite, for any finite x")
def finiteness(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """Output and gradient are finite for every finite input, including zero, constant, tiny and huge ones.

    Satisfied by: softmax, a norm with eps inside the root, log1p of a square.
    Broken by: a norm without eps at 0; the exponential of huge inputs; a square root, whose gradient at 0 is infinite.
    """
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in xs]
        y = f(*leaves)
        reals = [x for x in leaves if x.requires_grad]
        grads = ()
        if y.requires_grad and reals:
            grads = torch.autograd.grad(y, reals, draw.normal(*y.shape), allow_unused=True)
    return Finite([y, *(g for g in grads if g is not None)], include_extremes=True)


_BOUNDS = ({"low": 0.0, "high": 1.0}, {"low": -1.0, "high": 1.0})


@law("low ≤ f(x) ≤ high", discover_with=_BOUNDS)
def boundedness(f: Map, *xs: Tensor, low: float = -math.inf, high: float = math.inf) -> Statement:
    """Every output lies between two bounds.

    Satisfied by: a sigmoid (0 and 1), tanh (-1 and 1), softmax (0 and 1).
    Broken by: a residual around a sigmoid; a clamp on the wrong side of a scale.
    """
    if not low < high:
        raise ValueError(f"low must be less than high: got low={low}, high={high}")
    y = _require_real_output(f(*xs))
    sides = {}
    if math.isfinite(low):
        sides["lower bound"] = (torch.full_like(y, low), y)
    if math.isfinite(high):
        sides["upper bound"] = (y, torch.full_like(y, high))
    if not sides:
        raise ValueError("boundedness needs a finite bound: write boundedness(low=0.0)")
    return AtMost([a for a, _ in sides.values()], [b for _, b in sides.values()], names=list(sides))


_POWER_ITERATIONS, _STEP = 3, 1e-3


@law("‖f(x) - f(y)‖ ≤ L ‖x - y‖", any_weights=False)
def lipschitz(f: Map, x: Tensor, *, constant: float = 1.0, draw: Draw) -> Statement:
    """The distance of two outputs is at most `constant` times the distance of the inputs, in the Euclidean norm.

    The second input is a step from the first in the direction of the largest singular value of the Jacobian, found
    by power iteration. The report shows the largest ratio that was found, a lower bound of the Lipschitz constant.

    Satisfied by: ReLU, softmax, an orthogonal or spectrally normalized matrix (1).
    Broken by: a square; attention with dot products; a matrix divided by its largest entry.
    """
    if not constant > 0:
        raise ValueError(f"constant must be positive, got {constant}")
    y, v = _require_real_output(f(require_real(x))), draw.normal(*x.shape)
    for _ in range(_POWER_ITERATIONS):
        ahead = (f(x + _STEP * v / v.norm()) - y) / _STEP
        v = _vector_jacobian_product(f, x, ahead.detach(), v)
    draw.assume(v.norm() > 0)
    other = x + draw.choice((_STEP, 0.1, 1.0), "distance") * v / v.norm()
    output_distance, input_distance = (f(other) - y).norm(), (other - x).norm()
    if input_distance > 0 and output_distance.isfinite():
        draw.observe("‖f(x) - f(y)‖ / ‖x - y‖", float(output_distance / input_distance))
    return AtMost(output_distance, constant * input_distance)


def _vector_jacobian_product(f: Map, x: Tensor, c: Tensor, default: Tensor) -> Tensor:
    """Returns Df(x)ᵀ c, or the default if that is zero or not finite."""
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        y = f(leaf)
        found = torch.autograd.grad(y, leaf, c, allow_unused=True)[0] if y.requires_grad else None
    return found if found is not None and bool(found.isfinite().all()) and float(found.norm()) > 0 else default


@law("min_j v_j ≤ f(q, k, v)_i ≤ max_j v_j", discover_with=None)
def convex_combination(f: Map, q: Tensor, k: Tensor, v: Tensor) -> Statement:
    """Every output of attention lies between the smallest and the largest value, entry by entry.

    Satisfied by: softmax attention; kernel regression.
    Broken by: weights that are negative or do not sum to one; a residual connection.
    """
    y = f(q, k, v)
    low, high = v.amin(-2, keepdim=True), v.amax(-2, keepdim=True)
    return AtMost((low.expand_as(y), y), (y, high.expand_as(y)), names=("min v", "y"))
