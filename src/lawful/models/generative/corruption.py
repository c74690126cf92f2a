"""Corruption: what a denoising model is given in place of the clean data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, agreement, made

Corruption = Callable[[Tensor], Tensor]
"""What is done to an input in training, before it is encoded."""


class GaussianCorruption(nn.Module):
    r"""Adds noise, $\tilde x = x + \sigma \varepsilon$.

    Args:
        sigma: $\sigma$, in the units of what it is added to.

    Examples:
        >>> GaussianCorruption(0.1)(torch.zeros(2, 3)).shape
        torch.Size([2, 3])
    """

    def __init__(self, sigma: float) -> None:
        super().__init__()
        if not 0 <= sigma < math.inf:
            raise ValueError(f"sigma is not negative, and finite: got {sigma}")
        self.sigma = sigma

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Adds noise from PyTorch's own generator."""
        return x + self.sigma * torch.randn_like(x)


class MaskingCorruption(nn.Module):
    r"""Puts entries to 0, each with probability $p$; nothing is scaled up for it.

    Args:
        p: $p$.

    Examples:
        >>> MaskingCorruption(1.0)(torch.ones(3))
        tensor([0., 0., 0.])
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"p is a probability: got {p}")
        self.p = p

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Drops entries by PyTorch's own generator."""
        return x * (torch.rand_like(x) >= self.p)


def claims() -> Iterator[Claim]:
    """The laws that corruption obeys, from one state of the generator."""

    def noise(x: Tensor) -> Tensor:
        return GaussianCorruption(0.5)(x) - x

    def alone(x: Tensor) -> Tensor:
        return 0.5 * torch.randn_like(x)

    def dropped(x: Tensor) -> Tensor:
        y = MaskingCorruption(0.3)(x)
        return torch.stack([y, (y == 0).to(x)])

    def some(x: Tensor) -> Tensor:
        gone = torch.rand_like(x) < 0.3
        return torch.stack([x.masked_fill(gone, 0.0), gone.to(x)])

    yield Claim(agreement(other=alone), noise, made(torch.tanh, "n 3"), name="GaussianCorruption")
    yield Claim(agreement(other=some), dropped, made(lambda x: x.tanh() + 2, "n 3"), name="MaskingCorruption")
