"""The dot product as one of many: any map of the pairs, then any reduction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.products.dot import dot
from lawful.functions.products.norms import check_vectors
from lawful.laws import (
    Claim,
    agreement,
    commutativity,
    convexity,
    homogeneity,
    linearity,
    non_negativity,
    permutation_invariance,
    shape,
)


def generalised_product(
    x: Float[Tensor, "*#batch d"],
    y: Float[Tensor, "*#batch d"],
    *,
    map: Callable[[Tensor, Tensor], Tensor] = torch.mul,
    reduce: Callable[..., Tensor] = torch.sum,
) -> Float[Tensor, "*batch"]:
    r"""Maps the pairs of entries of two vectors, and reduces what comes out.

    $$x \star y = \operatorname*{reduce}_i \, \operatorname{map}(x_i, y_i)$$

    Why is the dot product, (`mul`, `sum`), the special one? Of the four pairs of sums and products it alone is
    linear in each vector. (`add`, `sum`) and (`mul`, `prod`) come apart into a number for $x$ and a number for $y$:
    they never see which entries met. (`add`, `prod`) sees it, and is linear in each entry but not in the vector.

    Args:
        x: The vectors $x$, along the last axis.
        y: The vectors $y$.
        map: From two tensors to one, entry by entry.
        reduce: From a tensor and `dim`, the axis that it takes away.

    Examples:
        >>> generalised_product(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
        tensor(11.)
        >>> generalised_product(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]), map=torch.add, reduce=torch.prod)
        tensor(24.)
    """
    check_vectors(x, y)
    return reduce(map(x, y), dim=-1)


def rectified_dot(x: Float[Tensor, "*#batch d"], y: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch"]:
    r"""Adds up the products of the entries that agree in sign: a dot product that forgives what disagrees.

    $$\sum_i \max(0, x_i y_i)$$

    Args:
        x: The vectors $x$, along the last axis.
        y: The vectors $y$.

    Examples:
        >>> rectified_dot(torch.tensor([1.0, -2.0, 3.0]), torch.tensor([1.0, 1.0, 1.0]))
        tensor(4.)
    """
    return generalised_product(x, y, map=lambda a, b: torch.relu(a * b))


def amount_of_similarity(x: Float[Tensor, "*batch d"], features: Float[Tensor, "n d"]) -> Float[Tensor, "*batch"]:
    r"""Adds up how much a vector is like each of some features; those at more than a right angle count for nothing.

    $$\sum_j \max\big(0, (A x)_j\big)$$

    Args:
        x: The vectors $x$, along the last axis.
        features: The matrix $A$, a feature a row.

    Examples:
        >>> amount_of_similarity(torch.tensor([1.0, -2.0]), torch.eye(2))
        tensor(1.)
    """
    return torch.relu(x @ features.mT).sum(-1)


def claims() -> Iterator[Claim]:
    """The laws that tell the products apart."""
    pair = (shape("b 4"), shape("b 4"))
    yield Claim(agreement(other=dot), generalised_product, pair)
    yield Claim(linearity(input=1), generalised_product, pair, "(mul, sum)")
    sums = partial(generalised_product, map=torch.add)
    products = partial(generalised_product, reduce=torch.prod)
    mixed = partial(generalised_product, map=torch.add, reduce=torch.prod)
    yield Claim(agreement(other=lambda x, y: x.sum(-1) + y.sum(-1)), sums, pair, "(add, sum)")
    yield Claim(permutation_invariance(axis=-1, input=1), sums, pair, "(add, sum)")
    yield Claim(agreement(other=lambda x, y: x.prod(-1) * y.prod(-1)), products, pair, "(mul, prod)")
    yield Claim(permutation_invariance(axis=-1, input=1), products, pair, "(mul, prod)")
    yield Claim(homogeneity(degree=4.0), products, pair, "(mul, prod)")
    yield Claim(commutativity(), mixed, pair, "(add, prod)")
    yield Claim(homogeneity(degree=4.0), lambda z: mixed(z[..., 0], z[..., 1]), shape("b 4 2"), "(add, prod)")
    for law in (non_negativity(), commutativity(), homogeneity(), convexity()):
        yield Claim(law, rectified_dot, pair)
    difference = agreement(other=lambda x, y: rectified_dot(x, y) - rectified_dot(x, -y))
    yield Claim(difference, dot, pair, "dot = what agrees - what disagrees")
    features = (shape("b 4"), shape("n 4"))
    for law in (non_negativity(), homogeneity(), convexity()):
        yield Claim(law, amount_of_similarity, features)
    rows = agreement(other=lambda x, a: torch.stack([dot(x, row).clamp(min=0) for row in a], -1).sum(-1))
    yield Claim(rows, amount_of_similarity, features)
