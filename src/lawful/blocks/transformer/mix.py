"""The mix: a learned combination of two streams."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, agreement, shape


class Mix(nn.Module):
    r"""Adds two tensors with learned weights.

    $$z = a \, x + b \, y$$

    With $y$ the embedding of the tokens it is a shortcut into a layer deep down; with $y$ the values of the first
    attention layer, the value residual. The parameter `weight` is $(a, b)$. At the start $y$ has no part in it.

    Reference:
        Zhou et al., *Value Residual Learning*, 2024.

    Args:
        start: $(a, b)$ before training.

    Examples:
        >>> Mix(start=(0.5, 2.0))(torch.tensor([2.0]), torch.tensor([1.0])).detach()
        tensor([3.])
    """

    def __init__(self, *, start: tuple[float, float] = (1.0, 0.0)) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(start))

    def forward(self, x: Float[Tensor, "*shape"], y: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Mixes y into x."""
        a, b = self.weight.unbind()
        return torch.addcmul(a * x, b, y)


def claims() -> Iterator[Claim]:
    """The laws that a mix obeys."""
    mix = Mix(start=(0.5, 2.0))

    def equation(x: Tensor, y: Tensor) -> Tensor:
        return mix.weight[0] * x + mix.weight[1] * y

    yield Claim(agreement(other=equation), mix, (shape("b t 3"), shape("b t 3")))
    new = agreement(other=lambda x, y: 1 * x)
    yield Claim(new, lambda x, y: Mix()(x, y), (shape("b 3"), shape("b 3")), name="Mix at the start")
