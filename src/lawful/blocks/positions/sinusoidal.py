"""Sinusoidal positions: waves of many lengths, read off at each position."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.laws import Claim, agreement, relative_position_only, shape, tokens


class Sinusoidal(nn.Module):
    r"""Reads off waves of many lengths at each position, to be added to the vector of the token.

    $$y_{2i} = \sin(p \, \beta^{-2i/d}), \qquad y_{2i + 1} = \cos(p \, \beta^{-2i/d})$$

    A step along the positions turns every pair of entries by an angle of its own, whatever the position is, so that dot
    products depend on differences alone. Nothing is learned. The angles are computed in double precision.

    Reference:
        Vaswani et al., *Attention Is All You Need*, 2017.

    Args:
        d: The size of a vector, an even number.
        base: $\beta$.

    Examples:
        >>> Sinusoidal(2)(torch.tensor([0, 1]))
        tensor([[0.0000, 1.0000],
                [0.8415, 0.5403]])
    """

    like: Tensor

    def __init__(self, d: int, *, base: float = 10000.0) -> None:
        if d < 2 or d % 2:
            raise ValueError(f"d is to be even, and at least 2: got {d}")
        if not base > 0:
            raise ValueError(f"base is to be above 0: got {base}")
        super().__init__()
        self.d, self.base = d, base
        self.register_buffer("like", torch.empty(0), persistent=False)

    def forward(self, positions: Int[Tensor, "*batch t"]) -> Float[Tensor, "*batch t d"]:
        """Reads off the waves at any positions."""
        powers = torch.arange(0, self.d, 2, device=positions.device, dtype=torch.float64) / self.d
        angles = positions[..., None] * self.base**-powers
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).to(self.like.dtype)

    def extra_repr(self) -> str:
        return f"{self.d}, base={self.base:g}"


def claims() -> Iterator[Claim]:
    """The laws that sinusoidal positions obey."""
    layer = Sinusoidal(6)

    def equation(p: Tensor) -> Tensor:
        rows = [
            [(math.cos if i % 2 else math.sin)(int(one) / 1e4 ** (i // 2 / 3)) for i in range(6)] for one in p.flatten()
        ]
        return torch.tensor(rows, dtype=torch.float64).to(layer.like.dtype).reshape(*p.shape, 6)

    def similarities(x: Tensor, p: Tensor) -> Tensor:
        return x * (layer(p) @ layer(p).mT)

    yield Claim(agreement(other=equation), layer, tokens("b t", vocab=100))
    yield Claim(relative_position_only(), similarities, (shape("t t"), tokens("t", vocab=100)), name="dot products")
