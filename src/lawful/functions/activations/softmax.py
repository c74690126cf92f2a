"""Softmax: from any numbers to a probability distribution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import (
    AtMost,
    Claim,
    Draw,
    Statement,
    agreement,
    batch_independence,
    boundedness,
    finiteness,
    gradient,
    law,
    lipschitz,
    permutation_equivariance,
    shape,
    shift_invariance,
    sums_to_one,
)


def softmax(x: Float[Tensor, "*shape"], *, axis: int = -1, temperature: float = 1.0) -> Float[Tensor, "*shape"]:
    r"""Turns the numbers along an axis into probabilities.

    $$p_i = \frac{e^{x_i / T}}{\sum_j e^{x_j / T}}$$

    A high temperature $T$ brings the probabilities together, a low one lets the largest win: for $T \to 0$ all
    goes to the maximum, so that softargmax would be the better name. Adding a constant changes nothing, which is
    why the largest entry can be subtracted first, before $T$ divides, and nothing overflows.

    Args:
        x: The scores $x$.
        axis: The axis that $i$ and $j$ run over.
        temperature: $T$, above 0.

    Examples:
        >>> softmax(torch.tensor([0.0, 0.0]))
        tensor([0.5000, 0.5000])
    """
    return torch.softmax(_tempered(x, axis, temperature), dim=axis)


def log_softmax(x: Float[Tensor, "*shape"], *, axis: int = -1, temperature: float = 1.0) -> Float[Tensor, "*shape"]:
    r"""Turns the numbers along an axis into logarithms of probabilities.

    $$\log p_i = \frac{x_i}{T} - \log \sum_j e^{x_j / T}$$

    It stays finite where the probability itself is too small for a number, and so does its gradient.

    Args:
        x: The scores $x$.
        axis: The axis that $i$ and $j$ run over.
        temperature: $T$, above 0.

    Examples:
        >>> log_softmax(torch.tensor([0.0, 1000.0]))
        tensor([-1000.,     0.])
    """
    return torch.log_softmax(_tempered(x, axis, temperature), dim=axis)


def _tempered(x: Tensor, axis: int, temperature: float) -> Tensor:
    if not temperature > 0:
        raise ValueError(f"temperature is to be above 0: got {temperature}")
    if temperature == 1 or not x.numel():
        return x
    return (x - x.detach().amax(axis, keepdim=True)) / temperature


@law("f(λx)_i ≤ exp(-λ(x_max - x_i)), and 1 - f(λx)_max ≤ Σ exp(-λ(x_max - x_i)) over the others", tries=None)
def concentration(f: Callable[..., Tensor], x: Tensor, *, draw: Draw) -> Statement:
    """Scaled up, the scores give all the probability to their maximum, exponentially fast in its lead.

    Kept by: softmax, along the last axis.
    Broken by: softmax along another axis; scores divided by their sum; a sigmoid.
    """
    scale = draw.choice((1.0, 4.0, 64.0), "λ")
    top, where = x.max(-1, keepdim=True)
    bound = (scale * (x - top)).exp()
    p = f(scale * x)
    missing = 1 - p.gather(-1, where)
    return AtMost((p, missing), (bound, bound.sum(-1, keepdim=True) - 1), names=("p", "1 - p_max"))


def claims() -> Iterator[Claim]:
    """The laws that softmax obeys."""
    for rule in (
        sums_to_one(axis=-1),
        boundedness(low=0.0, high=1.0),
        shift_invariance(axis=-1),
        concentration(),
        permutation_equivariance(axis=-1),
        batch_independence(),
        lipschitz(constant=0.5),
        gradient(),
    ):
        yield Claim(rule, softmax, shape("b n"))
    for axis, temperature in ((-1, 1.0), (0, 2.0)):

        def logarithm(x: Tensor, axis: int = axis, temperature: float = temperature) -> Tensor:
            return x / temperature - (x / temperature).logsumexp(axis, keepdim=True)

        def equation(x: Tensor, logarithm: Callable[..., Tensor] = logarithm) -> Tensor:
            return logarithm(x).exp()

        for f, other in ((softmax, equation), (log_softmax, logarithm)):
            plain = (axis, temperature) == (-1, 1.0)
            tempered = f if plain else partial(f, axis=axis, temperature=temperature)
            yield Claim(agreement(other=other), tempered, shape("b n"), name=f"{f.__name__}({axis=}, {temperature=})")
    for rule in (shift_invariance(axis=-1), boundedness(high=0.0), finiteness(), gradient()):
        yield Claim(rule, log_softmax, shape("b n"))
