"""Placing a change: added in floating point so that neither the ball nor the box is left by a single bit."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.inference.attacks.box import Box
from lawful.inference.attacks.norms import L1, L2, LInf, Norm
from lawful.laws import AtMost, Claim, Draw, Map, Statement, law, shape


def downward(value: float, dtype: torch.dtype) -> float:
    """Returns the largest number of a precision that is not above a value: in float32, 0.1 is just below 0.1.

    Examples:
        >>> downward(0.1, torch.float32) <= 0.1 < torch.tensor(0.1).item()
        True
    """
    rounded = torch.tensor(value, dtype=dtype)
    if rounded.item() > value:
        rounded = rounded.nextafter(torch.tensor(-math.inf, dtype=dtype))
    return rounded.item()


def surely_within(radius: float, norm: Norm, dtype: torch.dtype) -> float:
    """The length up to which a change is in the ball however its terms are added up."""
    return downward(radius, dtype) * (1 - norm.rounding * torch.finfo(dtype).eps)


def placed(
    x: Float[Tensor, "n ..."], delta: Float[Tensor, "n ..."], *, norm: Norm, radius: float, box: Box
) -> Float[Tensor, "n ..."]:
    r"""Adds a change to inputs, rounding toward them, so that $\|x' - x\| \le r$ as it is measured in their precision.

    $x + \delta$ is rounded to the nearest number, which may be farther from $x$ than $\delta$ is long. Such entries go
    one number back. A sum of many entries may be rounded up too, more in one order than in another: the ball is taken
    some units in the last place smaller where the norm is a sum, and a change that is still too long is shortened.

    Args:
        x: The inputs $x$, in the box.
        delta: The change $\delta$, in the ball up to rounding.
        norm: What measures it.
        radius: $r$.
        box: Where the result lies.

    Examples:
        >>> x, delta = torch.tensor([[0.02]]), torch.tensor([[0.1]])
        >>> bool(x + delta - x > 0.1), bool(placed(x, delta, norm=LInf(), radius=0.1, box=Box()) - x > 0.1)
        (True, False)
    """
    inside = norm.project(delta, surely_within(radius, norm, x.dtype), *box.room(x))
    near, radius, shorter = _toward(x, inside, box), downward(radius, x.dtype), torch.finfo(x.dtype).eps
    while bool((far := norm.length(near - x) > radius).any()):
        factor = torch.where(far, max(0.0, 1 - shorter), 1.0).to(x).reshape(-1, *[1] * (x.dim() - 1))
        near, shorter = _toward(x, factor * (near - x), box), 2 * shorter
    return near


def _toward(x: Tensor, delta: Tensor, box: Box) -> Tensor:
    near = box.clamp(x + delta)
    return torch.where((near - x).abs() > delta.abs(), near.nextafter(x), near)


@law("‖f(x) - x‖ ≤ r, low ≤ f(x) ≤ high: to the last bit")
def stays_near(f: Map, x: Tensor, *, norm: Norm, radius: float, box: Box, draw: Draw) -> Statement:
    """No input is moved farther than r, nor out of the box, as measured in its own precision, without a tolerance.

    Kept by: attacks that round toward their input.
    Broken by: a projection followed by an addition that rounds to nearest; no clamp after a random start.
    """
    x = box.clamp(x)
    y = f(x)
    over = (norm.length(y - x) > radius).any() | (y < box.low).any() | (y > box.high).any()
    moved = norm.length(y - x).amax()
    draw.observe("‖f(x) - x‖", float(moved))
    return AtMost(over.to(x), torch.zeros_like(moved))


def claims() -> Iterator[Claim]:
    """The laws that placing obeys."""
    box = Box(-0.7, 1.3)
    for norm, radius in ((LInf(), 0.1), (L2(), 0.3), (L1(), 0.7), (LInf(), 1e-9)):

        def far(x: Tensor, norm: Norm = norm, radius: float = radius) -> Tensor:
            delta = (9 * x).sin() + torch.linspace(-1, 1, x.shape[1]).to(x)
            return placed(x, delta, norm=norm, radius=radius, box=box)

        name = f"placed in {norm} of radius {radius:g}"
        yield Claim(stays_near(norm=norm, radius=radius, box=box), far, shape("n 5"), name=name)
