"""How large the output is: order, bounds, slopes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lawful.laws._helpers import require_real
from lawful.laws.interfaces import Draw, Map
from lawful.laws.law import Inapplicable, law
from lawful.laws.statements import AtMost, Finite, Statement


def _number(y: Tensor) -> Tensor:
    if not y.is_floating_point():
        raise Inapplicable(f"an output of real numbers was wanted: got {y.dtype}")
    return y


@law("x ≤ y ⇒ f(x) ≤ f(y)", any_weights=False, discover_with=[{"decreasing": False}, {"decreasing": True}])
def monotonicity(f: Map, x: Tensor, *, decreasing: bool = False, draw: Draw) -> Statement:
    """A larger input, entry by entry, gives no smaller output; `decreasing`: no larger one.

    Satisfied by: ReLU, sigmoid, sorting, a maximum, layers with non-negative weights.
    Broken by: GELU, softmax, a norm.
    """
    y = require_real(x) + draw.like(x).abs()
    low, high = _number(f(x)), f(y)
    return AtMost(high, low) if decreasing else AtMost(low, high)


@law("f(λx + (1 - λ)y) ≤ λ f(x) + (1 - λ) f(y)", any_weights=False)
def convexity(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """Each output is a convex function of the input (Jensen's inequality for two points), or of several jointly.

    Satisfied by: norms, ReLU, log-sum-exp, a maximum, cross-entropy as a function of the logits.
    Broken by: a sigmoid, a minimum, softmax.
    """
    ys = [draw.like(require_real(x)) for x in xs]
    weight = draw.choice((0.5, 0.25, 0.9), "λ")
    between = _number(f(*(weight * x + (1 - weight) * y for x, y in zip(xs, ys, strict=True))))
    return AtMost(between, weight * f(*xs) + (1 - weight) * f(*ys))


@law("f(x) and its gradient are finite, for any finite x")
def finiteness(f: Map, *xs: Tensor, draw: Draw) -> Statement:
    """Every finite input, be it zero, constant, tiny or huge, gives a finite output and a finite gradient.

    Satisfied by: softmax, a norm with an eps inside the root, log1p of a square.
    Broken by: a norm without an eps, at 0; an exponential, of huge inputs; a square root whose gradient is infinite.
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
        raise ValueError(f"low is below high: got low={low}, high={high}")
    y = _number(f(*xs))
    sides = {}
    if math.isfinite(low):
        sides["lower bound"] = (torch.full_like(y, low), y)
    if math.isfinite(high):
        sides["upper bound"] = (y, torch.full_like(y, high))
    if not sides:
        raise ValueError("boundedness wants a finite bound: write boundedness(low=0.0)")
    return AtMost([a for a, _ in sides.values()], [b for _, b in sides.values()], names=list(sides))


_ROUNDS, _STEP = 3, 1e-3


@law("‖f(x) - f(y)‖ ≤ L ‖x - y‖", any_weights=False)
def lipschitz(f: Map, x: Tensor, *, constant: float = 1.0, draw: Draw) -> Statement:
    """Outputs are at most `constant` times as far apart as inputs, in the Euclidean norm of all entries.

    The two inputs lie along the direction in which the derivative stretches most, found by a few steps of the
    power method. The report says the largest quotient that was seen: the constant is no smaller than that.

    Satisfied by: ReLU, softmax, an orthogonal or spectrally normalised matrix (1).
    Broken by: a square; attention with dot products; a matrix normalised by its largest entry.
    """
    if not constant > 0:
        raise ValueError(f"the constant is above 0: got {constant}")
    here, v = _number(f(require_real(x))), draw.normal(*x.shape)
    for _ in range(_ROUNDS):
        ahead = (f(x + _STEP * v / v.norm()) - here) / _STEP
        v = _pulled(f, x, ahead.detach(), v)
    draw.assume(v.norm() > 0)
    there = x + draw.choice((_STEP, 0.1, 1.0), "distance") * v / v.norm()
    apart, moved = (f(there) - here).norm(), (there - x).norm()
    if moved > 0 and apart.isfinite():
        draw.observe("‖f(x) - f(y)‖ / ‖x - y‖", float(apart / moved))
    return AtMost(apart, constant * moved)


def _pulled(f: Map, x: Tensor, c: Tensor, v: Tensor) -> Tensor:
    """Returns Df(x)ᵀ c; the direction v itself where that is nothing."""
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        y = f(leaf)
        found = torch.autograd.grad(y, leaf, c, allow_unused=True)[0] if y.requires_grad else None
    return found if found is not None and bool(found.isfinite().all()) and float(found.norm()) > 0 else v
