"""Rectifiers: activations with a straight piece on the right of 0 and something else on its left.

Smooth activations: the sigmoid and what is built from it, or from its like.
Gated linear units: one half of the features decides how much of the other passes.
Softmax: from any numbers to a probability distribution.
The soft cap: a smooth bound on logits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.laws import (
    AtMost,
    Claim,
    Draw,
    Equal,
    Statement,
    agreement,
    batch_independence,
    boundedness,
    convexity,
    derivative,
    finiteness,
    gradient,
    homogeneity,
    idempotence,
    law,
    linearity,
    lipschitz,
    monotonicity,
    oddness,
    permutation_equivariance,
    shape,
    shift_invariance,
    sums_to_one,
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


def squared_relu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Squares positive numbers and sets the others to 0; smooth at 0, unlike ReLU.

    $$\max(0, x)^2$$

    Reference:
        So et al., *Primer: Searching for Efficient Transformers for Language Modeling*, 2021.

    Args:
        x: The numbers $x$.

    Examples:
        >>> squared_relu(torch.tensor([-1.0, 2.0]))
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


def _rectifiers_claims() -> Iterator[Claim]:
    """The laws that rectifiers obey."""
    numbers = shape("b 4")
    steep, low = partial(leaky_relu, slope=0.2), partial(elu, alpha=0.5)
    rows = [
        ("identity", identity, lambda x: 1.0 * x),
        ("relu", relu, lambda x: (x > 0) * x),
        ("relu_squared", squared_relu, lambda x: (x > 0) * x * x),
        ("leaky_relu", leaky_relu, lambda x: torch.where(x > 0, x, 0.01 * x)),
        ("leaky_relu(slope=0.2)", steep, lambda x: torch.maximum(x, 0.2 * x)),
        ("elu", elu, lambda x: torch.where(x > 0, x, x.expm1())),
        ("elu(alpha=0.5)", low, lambda x: torch.where(x > 0, x, 0.5 * x.expm1())),
    ]
    for name, f, equation in rows:
        yield Claim(agreement(other=equation), f, numbers, name)
    slopes = [
        (relu, lambda x: (x > 0).to(x)),
        (squared_relu, lambda x: (x > 0) * 2 * x),
        (elu, lambda x: x.clamp(max=0).exp()),
    ]
    for f, slope in slopes:
        yield Claim(derivative(formula=slope), f, numbers)
        yield Claim(monotonicity(), f, numbers)
    for f in (relu, leaky_relu, elu):
        yield Claim(convexity(), f, numbers)
    for f, degree in ((relu, 1.0), (leaky_relu, 1.0), (squared_relu, 2.0)):
        yield Claim(homogeneity(degree=degree), f, numbers)
    yield Claim(idempotence(), relu, numbers)
    yield Claim(lipschitz(constant=1.0), relu, numbers)
    yield Claim(boundedness(low=-1.0), elu, numbers)
    yield Claim(finiteness(), elu, numbers)


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


@law("f(-x) = 1 - f(x)", discover_with=None)
def complementarity(f: Callable[..., Tensor], x: Tensor) -> Statement:
    """The opposite input gives what is missing to one, as the probability of the other of two outcomes.

    Satisfied by: the sigmoid; the distribution function of a symmetric distribution.
    Broken by: tanh; a sigmoid of a shifted input.
    """
    return Equal(f(-x), 1 - f(x))


@law("f(x) - f(-x) = x", discover_with=None)
def gated_identity(f: Callable[..., Tensor], x: Tensor) -> Statement:
    """What is let through of x, and of -x, make up the whole of x.

    Satisfied by: x times a gate g with g(-x) = 1 - g(x): SiLU, GELU, ReLU; softplus.
    Broken by: a leaky ReLU; ELU.
    """
    return Equal(f(x) - f(-x), x)


@law("|f(x) - g(x)| ≤ ε", every_input=True, discover_with=None)
def approximation(f: Callable[..., Tensor], *xs: Tensor, other: Callable[..., Tensor], error: float) -> Statement:
    """Two maps differ by no more than an error, anywhere.

    Satisfied by: GELU by a hyperbolic tangent, with 0.0005.
    Broken by: GELU by SiLU, with 0.0005.
    """
    apart = (f(*xs) - other(*xs)).abs()
    return AtMost(apart, torch.full_like(apart, error))


def _normal_cdf(x: Tensor) -> Tensor:
    return torch.special.ndtr(x)


def _normal_density(x: Tensor) -> Tensor:
    return (-x.square() / 2).exp() / math.sqrt(2 * math.pi)


def _sigmoids_claims() -> Iterator[Claim]:
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


def halves(x: Float[Tensor, "*batch d"]) -> tuple[Float[Tensor, "*batch half"], Float[Tensor, "*batch half"]]:
    """Splits the last axis into two halves, for a gate: `glu(*halves(x))`.

    $$x = (a, b)$$

    Args:
        x: The vectors $x$, of even size.

    Examples:
        >>> import torch
        >>> halves(torch.arange(4.0))
        (tensor([0., 1.]), tensor([2., 3.]))
    """
    if x.shape[-1] % 2:
        raise ValueError(f"the last axis is to have an even size: got shape {tuple(x.shape)}")
    first, second = x.chunk(2, -1)
    return first, second


def glu(x: Float[Tensor, "*#shape"], gate: Float[Tensor, "*#shape"]) -> Float[Tensor, "*shape"]:
    r"""Lets through as much as the sigmoid of the gate says.

    $$x \, \sigma(g)$$

    The gradient by $x$ is the gate itself, with no factor that vanishes: a way past the nonlinearity.

    Reference:
        Dauphin et al., *Language Modeling with Gated Convolutional Networks*, 2016.

    Args:
        x: What is to pass, $x$.
        gate: The gate $g$.

    Examples:
        >>> import torch
        >>> glu(torch.tensor(2.0), torch.tensor(0.0))
        tensor(1.)
    """
    return x * sigmoid(gate)


def bilinear(x: Float[Tensor, "*#shape"], gate: Float[Tensor, "*#shape"]) -> Float[Tensor, "*shape"]:
    r"""Multiplies by the gate as it is.

    $$x \, g$$

    Reference:
        Shazeer, *GLU Variants Improve Transformer*, 2020.

    Args:
        x: What is to pass, $x$.
        gate: The gate $g$.

    Examples:
        >>> import torch
        >>> bilinear(torch.tensor(2.0), torch.tensor(3.0))
        tensor(6.)
    """
    return x * gate


def reglu(x: Float[Tensor, "*#shape"], gate: Float[Tensor, "*#shape"]) -> Float[Tensor, "*shape"]:
    r"""Multiplies by the ReLU of the gate.

    $$x \max(0, g)$$

    Reference:
        Shazeer, *GLU Variants Improve Transformer*, 2020.

    Args:
        x: What is to pass, $x$.
        gate: The gate $g$.

    Examples:
        >>> import torch
        >>> reglu(torch.tensor(2.0), torch.tensor(-3.0))
        tensor(0.)
    """
    return x * relu(gate)


def geglu(x: Float[Tensor, "*#shape"], gate: Float[Tensor, "*#shape"]) -> Float[Tensor, "*shape"]:
    r"""Multiplies by the GELU of the gate.

    $$x \, g \, \Phi(g)$$

    Reference:
        Shazeer, *GLU Variants Improve Transformer*, 2020.

    Args:
        x: What is to pass, $x$.
        gate: The gate $g$.

    Examples:
        >>> import torch
        >>> geglu(torch.tensor(2.0), torch.tensor(1.0))
        tensor(1.6827)
    """
    return x * gelu(gate)


def swiglu(x: Float[Tensor, "*#shape"], gate: Float[Tensor, "*#shape"]) -> Float[Tensor, "*shape"]:
    r"""Multiplies by the SiLU of the gate.

    $$x \, g \, \sigma(g)$$

    Reference:
        Shazeer, *GLU Variants Improve Transformer*, 2020.

    Args:
        x: What is to pass, $x$.
        gate: The gate $g$.

    Examples:
        >>> import torch
        >>> swiglu(torch.tensor(2.0), torch.tensor(1.0))
        tensor(1.4621)
    """
    return x * silu(gate)


def gtu(x: Float[Tensor, "*#shape"], gate: Float[Tensor, "*#shape"]) -> Float[Tensor, "*shape"]:
    r"""Lets through as much of the hyperbolic tangent as the sigmoid of the gate says, as an LSTM does.

    $$\tanh(x) \, \sigma(g)$$

    The gradient by $x$ has the factor $\tanh' x = 1 - \tanh^2 x$, which vanishes for large $x$.

    Reference:
        van den Oord et al., *Conditional Image Generation with PixelCNN Decoders*, 2016.

    Args:
        x: What is to pass, $x$.
        gate: The gate $g$.

    Examples:
        >>> import torch
        >>> gtu(torch.tensor(100.0), torch.tensor(0.0))
        tensor(0.5000)
    """
    return tanh(x) * sigmoid(gate)


def _gates_claims() -> Iterator[Claim]:
    """The laws that gates obey."""
    pair = (shape("b 4"), shape("b 4"))
    gates: list[tuple[Callable[..., Tensor], Callable[[Tensor], Tensor]]] = [
        (glu, sigmoid),
        (bilinear, identity),
        (reglu, relu),
        (geglu, gelu),
        (swiglu, silu),
    ]
    for gated, activation in gates:
        yield Claim(linearity(input=0), gated, pair)
        yield Claim(derivative(formula=lambda x, g, a=activation: a(g)), gated, pair)
    yield Claim(linearity(input=1), bilinear, pair)
    yield Claim(agreement(other=lambda x, g: x.tanh() * (1 + (g / 2).tanh()) / 2), gtu, pair)
    yield Claim(derivative(formula=lambda x, g: (1 - x.tanh().square()) * sigmoid(g)), gtu, pair)
    yield Claim(agreement(other=F.glu), lambda x: glu(*halves(x)), shape("b 6"), "glu(*halves(x))")


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


@law("f(λx)_i ≤ exp(-λ(x_max - x_i)), and 1 - f(λx)_max ≤ Σ exp(-λ(x_max - x_i)) over the others", discover_with=None)
def concentration(f: Callable[..., Tensor], x: Tensor, *, draw: Draw) -> Statement:
    """Scaled up, the scores give all the probability to their maximum, exponentially fast in its lead.

    Satisfied by: softmax, along the last axis.
    Broken by: softmax along another axis; scores divided by their sum; a sigmoid.
    """
    scale = draw.choice((1.0, 4.0, 64.0), "λ")
    top, where = x.max(-1, keepdim=True)
    bound = (scale * (x - top)).exp()
    p = f(scale * x)
    missing = 1 - p.gather(-1, where)
    return AtMost((p, missing), (bound, bound.sum(-1, keepdim=True) - 1), names=("p", "1 - p_max"))


def _softmax_claims() -> Iterator[Claim]:
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


def _softcap_claims() -> Iterator[Claim]:
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


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _rectifiers_claims()
    yield from _sigmoids_claims()
    yield from _gates_claims()
    yield from _softmax_claims()
    yield from _softcap_claims()
