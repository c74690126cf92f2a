"""The soft cap: a smooth bound on logits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, boundedness, derivative, lipschitz, monotonicity, oddness, shape


def softcap(x: Float[Tensor, "*shape"], *, cap: float) -> Float[Tensor, "*shape"]:
    r"""Bends numbers so that they stay below a bound in size, and leaves small ones nearly as they are.

    $$y = c \tanh(x / c)$$

    Reference:
        Gemma Team, *Gemma 2: Improving Open Language Models at a Practical Size*, 2024.

    Args:
        x: The numbers.
        cap: $c$, above 0.

    Examples:
        >>> softcap(torch.tensor([0.0, 1000.0]), cap=30.0)
        tensor([ 0., 30.])
    """
    if not cap > 0:
        raise ValueError(f"cap is to be above 0: got {cap}")
    return cap * torch.tanh(x / cap)


def claims() -> Iterator[Claim]:
    """The laws that the soft cap obeys."""
    capped = partial(softcap, cap=2.0)

    def equation(x: Tensor) -> Tensor:
        e = torch.exp(-x.abs())
        return 2 * x.sign() * (1 - e) / (1 + e)

    def slope(x: Tensor) -> Tensor:
        return 1 / torch.cosh(x / 2) ** 2

    for law in (
        agreement(other=equation),
        boundedness(low=-2.0, high=2.0),
        oddness(),
        monotonicity(),
        lipschitz(constant=1.0),
        derivative(formula=slope),
    ):
        yield Claim(law, capped, shape("b n"), name="softcap(2)")
