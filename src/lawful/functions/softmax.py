"""Softmax: from any numbers to a probability distribution."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import (
    Claim,
    agreement,
    batch_independence,
    gradient,
    non_negativity,
    permutation_equivariance,
    shape,
    shift_invariance,
    sums_to_one,
)


def softmax(x: Float[Tensor, "*shape"], *, axis: int = -1, temperature: float = 1.0) -> Float[Tensor, "*shape"]:
    r"""Turns the numbers along an axis into probabilities.

    $$p_i = \frac{e^{x_i / T}}{\sum_j e^{x_j / T}}$$

    A high temperature $T$ brings the probabilities together, a low one lets the largest win. Adding a constant
    changes nothing, which is why the largest entry can be subtracted first and nothing overflows.

    Args:
        x: The scores $x$.
        axis: The axis that $i$ and $j$ run over.
        temperature: $T$, above 0.

    Examples:
        >>> softmax(torch.tensor([0.0, 0.0]))
        tensor([0.5000, 0.5000])
    """
    if not temperature > 0:
        raise ValueError(f"temperature is to be above 0: got {temperature}")
    return torch.softmax(x / temperature, dim=axis)


def claims() -> Iterator[Claim]:
    """The laws that softmax obeys."""
    for law in (
        sums_to_one(axis=-1),
        non_negativity(),
        shift_invariance(axis=-1),
        permutation_equivariance(axis=-1),
        batch_independence(),
        gradient(),
    ):
        yield Claim(law, softmax, shape("b n"))
    for axis, temperature in ((-1, 1.0), (0, 2.0)):

        def equation(x: Tensor, axis: int = axis, temperature: float = temperature) -> Tensor:
            return (x / temperature - (x / temperature).logsumexp(axis, keepdim=True)).exp()

        plain = (axis, temperature) == (-1, 1.0)
        tempered = softmax if plain else partial(softmax, axis=axis, temperature=temperature)
        yield Claim(agreement(other=equation), tempered, shape("b n"), name=f"softmax({axis=}, {temperature=})")
