"""Smooth activations: the sigmoid and what is built from it, or from its like."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.laws import (
    AtMost,
    Claim,
    Same,
    Statement,
    agreement,
    boundedness,
    convexity,
    derivative,
    finiteness,
    law,
    lipschitz,
    monotonicity,
    oddness,
    shape,
)


def sigmoid(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Squeezes the real numbers between 0 and 1.

    $$\sigma(x) = \frac{1}{1 + e^{-x}}$$

    Args:
        x: The numbers $x$.

    Examples:
        >>> sigmoid(torch.tensor([-2.0, 0.0, 2.0]))
        tensor([0.1192, 0.5000, 0.8808])
    """
    return torch.sigmoid(x)


def tanh(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Squeezes the real numbers between -1 and 1.

    $$\tanh x = \frac{e^x - e^{-x}}{e^x + e^{-x}} = 2 \sigma(2 x) - 1$$

    Args:
        x: The numbers $x$.

    Examples:
        >>> tanh(torch.tensor([-100.0, 0.0]))
        tensor([-1.,  0.])
    """
    return torch.tanh(x)


def softplus(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Rounds off the corner of ReLU; its derivative is the sigmoid.

    $$\log(1 + e^x)$$

    Nothing overflows: above 40 it is $x$ to the last bit, and is taken to be that.

    Args:
        x: The numbers $x$.

    Examples:
        >>> softplus(torch.tensor([-50.0, 0.0, 50.0]))
        tensor([1.9287e-22, 6.9315e-01, 5.0000e+01])
    """
    return F.softplus(x, threshold=40.0)


def silu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Multiplies each number by its sigmoid; also called swish.

    $$x \, \sigma(x)$$

    Reference:
        Elfwing, Uchibe and Doya, *Sigmoid-Weighted Linear Units for Neural Network Function Approximation in
        Reinforcement Learning*, 2017.

    Args:
        x: The numbers $x$.

    Examples:
        >>> silu(torch.tensor([-2.0, 0.0, 2.0]))
        tensor([-0.2384,  0.0000,  1.7616])
    """
    return F.silu(x)


def gelu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Multiplies each number by the probability that a standard normal one is smaller.

    $$x \, \Phi(x) = \frac{x}{2} \Big( 1 + \operatorname{erf} \frac{x}{\sqrt 2} \Big)$$

    Reference:
        Hendrycks and Gimpel, *Gaussian Error Linear Units*, 2016.

    Args:
        x: The numbers $x$.

    Examples:
        >>> gelu(torch.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.1587,  0.0000,  0.8413])
    """
    return F.gelu(x)


def gelu_tanh(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Approximates GELU by a hyperbolic tangent, as GPT-2 does; off by less than 0.0005.

    $$\frac{x}{2} \Big( 1 + \tanh \sqrt{\tfrac{2}{\pi}} \, (x + 0.044715 \, x^3) \Big)$$

    Reference:
        Hendrycks and Gimpel, *Gaussian Error Linear Units*, 2016.

    Args:
        x: The numbers $x$.

    Examples:
        >>> gelu_tanh(torch.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.1588,  0.0000,  0.8412])
    """
    return F.gelu(x, approximate="tanh")


@law("f(-x) = 1 - f(x)", tries=None)
def complementarity(f: Callable[..., Tensor], x: Tensor) -> Statement:
    """The opposite input gives what is missing to one, as the probability of the other of two outcomes.

    Kept by: the sigmoid; the distribution function of a symmetric distribution.
    Broken by: tanh; a sigmoid of a shifted input.
    """
    return Same(f(-x), 1 - f(x))


@law("f(x) - f(-x) = x", tries=None)
def gated_identity(f: Callable[..., Tensor], x: Tensor) -> Statement:
    """What is let through of x, and of -x, make up the whole of x.

    Kept by: x times a gate g with g(-x) = 1 - g(x): SiLU, GELU, ReLU; softplus.
    Broken by: a leaky ReLU; ELU.
    """
    return Same(f(x) - f(-x), x)


@law("|f(x) - g(x)| ≤ ε", every_input=True, tries=None)
def approximation(f: Callable[..., Tensor], *xs: Tensor, other: Callable[..., Tensor], error: float) -> Statement:
    """Two maps differ by no more than an error, anywhere.

    Kept by: GELU by a hyperbolic tangent, with 0.0005.
    Broken by: GELU by SiLU, with 0.0005.
    """
    apart = (f(*xs) - other(*xs)).abs()
    return AtMost(apart, torch.full_like(apart, error))


def _normal_cdf(x: Tensor) -> Tensor:
    return torch.special.ndtr(x)


def _normal_density(x: Tensor) -> Tensor:
    return (-x.square() / 2).exp() / math.sqrt(2 * math.pi)


def claims() -> Iterator[Claim]:
    """The laws that smooth activations obey."""
    numbers = shape("b 4")
    rows = [
        (sigmoid, lambda x: (1 + (x / 2).tanh()) / 2, lambda x: sigmoid(x) * sigmoid(-x)),
        (tanh, lambda x: x.sinh() / x.cosh(), lambda x: 1 - x.tanh().square()),
        (softplus, lambda x: x.clamp(min=0) + (-x.abs()).exp().log1p(), torch.sigmoid),
        (silu, lambda x: x / (1 + (-x).exp()), lambda x: torch.sigmoid(x) * (1 + x * torch.sigmoid(-x))),
        (gelu, lambda x: x * _normal_cdf(x), lambda x: _normal_cdf(x) + x * _normal_density(x)),
    ]
    for f, equation, slope in rows:
        yield Claim(agreement(other=equation), f, numbers)
        yield Claim(derivative(formula=slope), f, numbers)
    for f, low, high, steepest in ((sigmoid, 0.0, 1.0, 0.25), (tanh, -1.0, 1.0, 1.0)):
        yield Claim(boundedness(low=low, high=high), f, numbers)
        yield Claim(monotonicity(), f, numbers)
        yield Claim(lipschitz(constant=steepest), f, numbers)
    yield Claim(complementarity(), sigmoid, numbers)
    yield Claim(oddness(), tanh, numbers)
    yield Claim(convexity(), softplus, numbers)
    yield Claim(finiteness(), softplus, numbers)
    yield Claim(finiteness(), silu, numbers)
    for f in (softplus, silu, gelu, gelu_tanh):
        yield Claim(gated_identity(), f, numbers)
    yield Claim(boundedness(low=-0.2785), silu, numbers)
    yield Claim(boundedness(low=-0.17), gelu, numbers)
    cubic = agreement(other=lambda x: x * torch.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)))
    yield Claim(cubic, gelu_tanh, numbers)
    yield Claim(approximation(other=gelu, error=5e-4), gelu_tanh, numbers)
