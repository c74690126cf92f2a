"""What a network is shown of a number: the number alone, waves of it, or the level that it belongs to."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, made, shape


@runtime_checkable
class Encoding(Protocol):
    """Turns each entry into some numbers."""

    @property
    def size(self) -> int:
        """How many numbers an entry becomes."""
        ...

    def __call__(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
        """Encodes entries; the numbers of an entry stand side by side."""
        ...


@dataclass(frozen=True)
class Plain:
    """Leaves entries as they are.

    Examples:
        >>> Plain()(torch.ones(1, 2))
        tensor([[1., 1.]])
    """

    size = 1

    def __call__(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Returns the entries."""
        return x


@dataclass(frozen=True, kw_only=True)
class Waves:
    r"""Puts sines and cosines beside each entry, so that a small network can tell near values apart.

    $$x \mapsto \bigl(x, \; \sin \tfrac{\pi k x}{2 b}, \; \cos \tfrac{\pi k x}{2 b}\bigr), \qquad k = 1, \dots, K$$

    Reference:
        Tancik and others, *Fourier Features Let Networks Learn High Frequency Functions in Low Dimensional Domains*,
        2020.

    Args:
        count: $K$.
        box: $b$; from $-b$ to $b$ no two values look the same.

    Examples:
        >>> Waves(count=2)(torch.zeros(1, 3)).shape
        torch.Size([1, 15])
    """

    count: int = 8
    box: float = 3.0

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 < self.box < math.inf:
            raise ValueError(f"count is at least 1 and the box above 0: got {self.count} and {self.box}")

    @property
    def size(self) -> int:
        """How many numbers an entry becomes."""
        return 2 * self.count + 1

    def __call__(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
        """Encodes entries."""
        each = x.unsqueeze(-1)
        angles = each * torch.arange(1, self.count + 1, dtype=x.dtype, device=x.device).mul_(math.pi / (2 * self.box))
        return torch.cat([each, angles.sin(), angles.cos()], -1).flatten(-2)


@dataclass(frozen=True)
class Level:
    r"""Shows the cell of each entry and not where in the cell it lies, which dequantizing drew at random.

    $$x \mapsto (c, \; [c \text{ is the first}], \; [c \text{ is the last}]), \qquad
    c = \text{the centre of the cell of } x \text{ out of } K \text{ equal ones from } -1 \text{ to } 1$$

    Args:
        levels: $K$.

    Examples:
        >>> Level(2)(torch.tensor([[-0.9, 0.1]]))
        tensor([[-0.5000,  1.0000,  0.0000,  0.5000,  0.0000,  1.0000]])
    """

    levels: int
    size = 3

    def __post_init__(self) -> None:
        if self.levels < 2:
            raise ValueError(f"levels are at least 2: got {self.levels}")

    def __call__(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
        """Encodes entries."""
        k = self.levels
        which = ((x + 1) * (k / 2)).floor().clamp(0, k - 1)
        parts = (which * (2 / k) + (1 / k - 1), (which == 0).to(x.dtype), (which == k - 1).to(x.dtype))
        return torch.stack(parts, -1).flatten(-2)


def claims() -> Iterator[Claim]:
    """The laws that encodings obey."""

    def waves(x: Tensor) -> Tensor:
        rows = []
        for value in x.unbind(-1):
            rows += [value, *(torch.sin(math.pi * k * value / 4) for k in (1, 2))]
            rows += [torch.cos(math.pi * k * value / 4) for k in (1, 2)]
        return torch.stack(rows, -1)

    def by_centres(x: Tensor) -> Tensor:
        centres = x.new_tensor([-0.8, -0.4, 0.0, 0.4, 0.8])
        nearest = (x[..., None] - centres).abs().argmin(-1)
        return torch.stack([centres[nearest], (nearest == 0).to(x), (nearest == 4).to(x)], -1).flatten(1)

    yield Claim(agreement(other=waves), Waves(count=2, box=2.0), shape("n 2"), name="Waves")
    cells = made(lambda x: 1.2 * torch.tanh(x), "n 3")
    yield Claim(agreement(other=by_centres), Level(5), cells, name="Level")
