"""Rectifiers: activations with a straight piece on the right of 0 and something else on its left."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.laws import (
    Claim,
    agreement,
    boundedness,
    convexity,
    derivative,
    finiteness,
    homogeneity,
    idempotence,
    lipschitz,
    monotonicity,
    shape,
)


def identity(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Returns its input: the activation of a linear layer.

    $$f(x) = x$$

    Args:
        x: The numbers $x$.

    Examples:
        >>> identity(torch.tensor([-1.0, 2.0]))
        tensor([-1.,  2.])
    """
    return x


def relu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Lets positive numbers pass and sets the others to 0.

    $$\max(0, x)$$

    The derivative is 0 below 0 and 1 above; at 0, where there is none, it is taken to be 0. A unit that is negative
    everywhere therefore never learns.

    Args:
        x: The numbers $x$.

    Examples:
        >>> relu(torch.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """
    return torch.relu(x)


def relu_squared(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Squares positive numbers and sets the others to 0; smooth at 0, unlike ReLU.

    $$\max(0, x)^2$$

    Reference:
        So et al., *Primer: Searching for Efficient Transformers for Language Modeling*, 2021.

    Args:
        x: The numbers $x$.

    Examples:
        >>> relu_squared(torch.tensor([-1.0, 2.0]))
        tensor([0., 4.])
    """
    return torch.relu(x).square()


def leaky_relu(x: Float[Tensor, "*shape"], *, slope: float = 0.01) -> Float[Tensor, "*shape"]:
    r"""Lets positive numbers pass and makes negative ones small, so that no unit is ever dead.

    $$f(x) = \begin{cases} x & x > 0 \\ a x & x \le 0 \end{cases}$$

    Args:
        x: The numbers $x$.
        slope: $a$.

    Examples:
        >>> leaky_relu(torch.tensor([-1.0, 2.0]), slope=0.5)
        tensor([-0.5000,  2.0000])
    """
    return F.leaky_relu(x, slope)


def elu(x: Float[Tensor, "*shape"], *, alpha: float = 1.0) -> Float[Tensor, "*shape"]:
    r"""Lets positive numbers pass and bends negative ones towards a floor.

    $$f(x) = \begin{cases} x & x > 0 \\ \alpha (e^x - 1) & x \le 0 \end{cases}$$

    Reference:
        Clevert, Unterthiner and Hochreiter, *Fast and Accurate Deep Network Learning by Exponential Linear Units*,
        2015.

    Args:
        x: The numbers $x$.
        alpha: $\alpha$; the floor is $-\alpha$.

    Examples:
        >>> elu(torch.tensor([-100.0, 2.0]))
        tensor([-1.,  2.])
    """
    return F.elu(x, alpha)


def claims() -> Iterator[Claim]:
    """The laws that rectifiers obey."""
    numbers = shape("b 4")
    steep, low = partial(leaky_relu, slope=0.2), partial(elu, alpha=0.5)
    rows = [
        ("identity", identity, lambda x: 1.0 * x),
        ("relu", relu, lambda x: (x > 0) * x),
        ("relu_squared", relu_squared, lambda x: (x > 0) * x * x),
        ("leaky_relu", leaky_relu, lambda x: torch.where(x > 0, x, 0.01 * x)),
        ("leaky_relu(slope=0.2)", steep, lambda x: torch.maximum(x, 0.2 * x)),
        ("elu", elu, lambda x: torch.where(x > 0, x, x.expm1())),
        ("elu(alpha=0.5)", low, lambda x: torch.where(x > 0, x, 0.5 * x.expm1())),
    ]
    for name, f, equation in rows:
        yield Claim(agreement(other=equation), f, numbers, name)
    slopes = [
        (relu, lambda x: (x > 0).to(x)),
        (relu_squared, lambda x: (x > 0) * 2 * x),
        (elu, lambda x: x.clamp(max=0).exp()),
    ]
    for f, slope in slopes:
        yield Claim(derivative(formula=slope), f, numbers)
        yield Claim(monotonicity(), f, numbers)
    for f in (relu, leaky_relu, elu):
        yield Claim(convexity(), f, numbers)
    for f, degree in ((relu, 1.0), (leaky_relu, 1.0), (relu_squared, 2.0)):
        yield Claim(homogeneity(degree=degree), f, numbers)
    yield Claim(idempotence(), relu, numbers)
    yield Claim(lipschitz(constant=1.0), relu, numbers)
    yield Claim(boundedness(low=-1.0), elu, numbers)
    yield Claim(finiteness(), elu, numbers)
