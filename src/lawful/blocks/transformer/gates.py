"""Residual gates: learned factors on what a block adds to the stream."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.dense import Dense
from lawful.blocks.residual import Residual
from lawful.laws import Claim, agreement, shape


class LayerScale(nn.Module):
    r"""Multiplies each entry of a vector by a learned factor.

    $$y = \lambda \odot x$$

    On what a block adds to the stream, with a small start, it makes a deep network nearly the identity at first. The
    parameter `weight` is $\lambda$.

    Reference:
        Touvron, Cord, Sablayrolles, Synnaeve and Jégou, *Going deeper with Image Transformers*, 2021.

    Args:
        d: The width of $x$.
        start: The value of all factors before training.

    Examples:
        >>> LayerScale(3, start=0.5)(torch.tensor([2.0, 4.0, 6.0])).detach()
        tensor([1., 2., 3.])
    """

    def __init__(self, d: int, *, start: float = 1e-4) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((d,), start))

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Scales the last axis."""
        return self.weight * x


class Gate(nn.Module):
    r"""Multiplies a tensor by one learned number, 0 at the start.

    $$y = \alpha x$$

    On what a block adds to the stream it makes any network the identity at first, with gradients that reach
    everything through $\alpha$ alone. The parameter `weight` is $\alpha$.

    Reference:
        Bachlechner, Majumder, Mao, Cottrell and McAuley, *ReZero is All You Need*, 2020.

    Args:
        start: $\alpha$ before training.

    Examples:
        >>> Gate()(torch.tensor([2.0, 4.0])).detach()
        tensor([0., 0.])
    """

    def __init__(self, *, start: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(start))

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Scales everything."""
        return self.weight * x


def claims() -> Iterator[Claim]:
    """The laws that residual gates obey."""
    block, scale, gate = Dense(4, 4, activation=torch.tanh), LayerScale(4, start=0.5), Gate(start=0.5)

    def scaled(x: Tensor) -> Tensor:
        return x + block(x) @ torch.diag(scale.weight)

    def gated(x: Tensor) -> Tensor:
        return x + gate.weight * block(x)

    for one, equation in ((scale, scaled), (gate, gated)):
        yield Claim(agreement(other=equation), Residual(block, gate=one), shape("b 4"), name=type(one).__name__)
    small = agreement(other=lambda x: 1e-4 * x)
    yield Claim(small, lambda x: LayerScale(4)(x), shape("b 4"), name="LayerScale at the start")
    closed = agreement(other=lambda x: 1 * x)
    yield Claim(closed, lambda x: Residual(block, gate=Gate())(x), shape("b 4"), name="Gate at the start")
