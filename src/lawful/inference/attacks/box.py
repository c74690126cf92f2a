"""The box of an attack: where inputs may lie, and what is asked of them before the first step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from lawful.laws import Claim, agreement, boundedness, shape


@dataclass(frozen=True)
class Box:
    r"""Says where every entry of an input lies, before an attack and after it.

    $$\text{low} \le x_i \le \text{high}$$

    Args:
        low: The least value that an entry may have; $-\infty$ for no bound.
        high: The greatest.

    Examples:
        >>> import torch
        >>> Box(0.0, 255.0).clamp(torch.tensor([-3.0, 300.0]))
        tensor([  0., 255.])
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"low is below high: got low={self.low}, high={self.high}")

    @property
    def span(self) -> float:
        """How wide it is; 1 without bounds."""
        return self.high - self.low if math.isfinite(self.high - self.low) else 1.0

    def clamp(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Moves what lies outside to the nearest bound."""
        return x.clamp(self.low, self.high)

    def room(self, x: Float[Tensor, "n ..."]) -> tuple[Float[Tensor, "n ..."], Float[Tensor, "n ..."]]:
        """How far each entry may be lowered, a number that is not positive, and raised."""
        return self.low - x, self.high - x

    def inward(self, g: Float[Tensor, "n ..."], x: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        """Leaves out the entries of a direction that lead out of the box."""
        return g.masked_fill(((x >= self.high) & (g > 0)) | ((x <= self.low) & (g < 0)), 0.0)


UNIT = Box(0.0, 1.0)
"""Images from 0 to 1."""
FREE = Box(-math.inf, math.inf)
"""Tables, series: no bounds."""


def checked(x: Float[Tensor, "n ..."], y: Int[Tensor, " n"], box: Box) -> None:
    """Refuses inputs that no attack can start from, and says why.

    Raises:
        TypeError: where inputs are not real numbers or classes not integers.
        ValueError: where there are none, where some are not finite, or where some lie outside the box.
    """
    if not x.is_floating_point():
        raise TypeError(f"inputs are real numbers: got {x.dtype}; x.float() / 255 makes such of bytes")
    if y.is_floating_point() or y.is_complex():
        raise TypeError(f"classes are integers: got {y.dtype}")
    if x.dim() < 2 or not x.numel():
        raise ValueError(f"at least one example, along the first axis, was wanted: got shape {tuple(x.shape)}")
    if tuple(y.shape) != (len(x),):
        raise ValueError(f"a class for each of {len(x)} examples was wanted: got shape {tuple(y.shape)}")
    if not bool(x.isfinite().all()):
        bad = int((~x.isfinite()).flatten(1).any(1).nonzero()[0])
        raise ValueError(f"inputs are finite: example {bad} is not")
    least, most = float(x.min()), float(x.max())
    if bool((x < box.low).any() or (x > box.high).any()):
        inside = f"{box.low:g} to {box.high:g}"
        high = 255 if least >= 0 and 128 <= most <= 255 else max(most, 1)  # it takes all 8 bits of a byte
        wide = f"box=Box({min(least, 0):g}, {high:g})"
        raise ValueError(f"inputs from {inside} were wanted: got {least:g} to {most:g}; scale them, or say {wide}")


def claims() -> Iterator[Claim]:
    """The laws that a box obeys."""
    box = Box(-0.5, 2.0)
    yield Claim(boundedness(low=-0.5, high=2.0), box.clamp, shape("n 3"), name="Box.clamp")

    def moved(x: Tensor) -> Tensor:
        low, high = box.room(x)
        return (x + high - x - low) / box.span

    yield Claim(agreement(other=lambda x: 0 * x + 1), moved, shape("n 3"), name="Box.room is as wide as the box")
