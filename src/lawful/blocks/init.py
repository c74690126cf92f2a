"""Initialisations: random weights that neither blow a signal up nor let it fade."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from lawful.laws import Claim, agreement, isometry, orthonormality, shape, variance_preservation

Weight = Float[Tensor, "*shape"]


def fans(weight: Weight) -> tuple[int, int]:
    """Counts how many numbers flow into a unit, and out of one; a kernel counts with all its taps.

    Args:
        weight: A weight with the outputs along its first axis and the inputs along its second.

    Examples:
        >>> fans(torch.empty(5, 3)), fans(torch.empty(8, 4, 3, 3))
        ((3, 5), (36, 72))
    """
    if weight.dim() < 2 or weight.numel() == 0:
        raise ValueError(f"a weight with outputs and inputs was wanted: got shape {tuple(weight.shape)}")
    taps = weight[0, 0].numel()
    return weight.shape[1] * taps, weight.shape[0] * taps


def gain(activation: Callable[[Tensor], Tensor]) -> float:
    r"""Computes the factor that makes up for what an activation does to the size of a signal.

    $$g = \frac{1}{\sqrt{\mathbb{E} \, \sigma(z)^2}}, \qquad z \sim \mathcal{N}(0, 1)$$

    For the ReLU, which halves the second moment, this is $\sqrt 2$. The integral is a sum over a fine grid, right to
    six digits or more.

    Args:
        activation: $\sigma$, of each entry.

    Examples:
        >>> round(gain(torch.relu), 6)
        1.414214
    """
    z = torch.linspace(-12, 12, 4801, dtype=torch.float64)
    density = torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    moment = float(torch.trapezoid(activation(z).square() * density, z))
    if not moment > 0:
        raise ValueError(f"the activation is to pass something on: got a second moment of {moment}")
    return moment**-0.5


def xavier_normal(weight: Weight, *, gain: float = 1.0, generator: Generator | None = None) -> Weight:
    r"""Fills a weight with normal numbers, the variance a compromise between both directions.

    $$\operatorname{Var} W_{ij} = g^2 \frac{2}{n_\text{in} + n_\text{out}}$$

    It keeps the size of signals, and that of gradients, where $n_\text{in} = n_\text{out}$ and there is no activation.

    Reference:
        Glorot and Bengio, *Understanding the difficulty of training deep feedforward neural networks*, 2010.

    Args:
        weight: The weight, which is changed in place.
        gain: $g$.
        generator: Where the numbers come from.

    Examples:
        >>> xavier_normal(nn.Linear(3, 2).weight).shape
        torch.Size([2, 3])
    """
    return nn.init.normal_(weight, std=gain * math.sqrt(2 / sum(fans(weight))), generator=generator)


def xavier_uniform(weight: Weight, *, gain: float = 1.0, generator: Generator | None = None) -> Weight:
    r"""Fills a weight with uniform numbers of the variance that `xavier_normal` has.

    $$W_{ij} \sim U(-a, a), \qquad a = g \sqrt{\frac{6}{n_\text{in} + n_\text{out}}}$$

    Args:
        weight: The weight, which is changed in place.
        gain: $g$.
        generator: Where the numbers come from.

    Examples:
        >>> bool(xavier_uniform(torch.empty(2, 4)).abs().max() <= 1)
        True
    """
    bound = gain * math.sqrt(6 / sum(fans(weight)))
    return nn.init.uniform_(weight, -bound, bound, generator=generator)


def kaiming_normal(weight: Weight, *, gain: float = math.sqrt(2), generator: Generator | None = None) -> Weight:
    r"""Fills a weight with normal numbers that keep the size of a signal through an activation.

    $$\operatorname{Var} W_{ij} = \frac{g^2}{n_\text{in}}, \qquad \mathbb{E} (W \sigma(z))_i^2 = \mathbb{E} z_j^2$$

    The second equation is for standard normal $z$. The default $g = \sqrt 2$ is that of the ReLU, for which
    $\mathbb{E} \, \sigma(W x)_i^2$ is the mean of $x_j^2$ for any $x$.

    Reference:
        He, Zhang, Ren and Sun, *Delving Deep into Rectifiers*, 2015.

    Args:
        weight: The weight, which is changed in place.
        gain: $g$, from `gain(activation)`.
        generator: Where the numbers come from.

    Examples:
        >>> kaiming_normal(nn.Linear(3, 2).weight, gain=gain(torch.tanh)).shape
        torch.Size([2, 3])
    """
    return nn.init.normal_(weight, std=gain / math.sqrt(fans(weight)[0]), generator=generator)


def kaiming_uniform(weight: Weight, *, gain: float = math.sqrt(2), generator: Generator | None = None) -> Weight:
    r"""Fills a weight with uniform numbers of the variance that `kaiming_normal` has.

    $$W_{ij} \sim U(-a, a), \qquad a = g \sqrt{\frac{3}{n_\text{in}}}$$

    Args:
        weight: The weight, which is changed in place.
        gain: $g$.
        generator: Where the numbers come from.

    Examples:
        >>> bool(kaiming_uniform(torch.empty(2, 6)).abs().max() <= 1)
        True
    """
    bound = gain * math.sqrt(3 / fans(weight)[0])
    return nn.init.uniform_(weight, -bound, bound, generator=generator)


def lecun_normal(weight: Weight, *, generator: Generator | None = None) -> Weight:
    r"""Fills a weight with normal numbers that keep the size of a signal where there is no activation.

    $$\operatorname{Var} W_{ij} = \frac{1}{n_\text{in}}$$

    Reference:
        LeCun, Bottou, Orr and Müller, *Efficient BackProp*, 1998.

    Args:
        weight: The weight, which is changed in place.
        generator: Where the numbers come from.

    Examples:
        >>> lecun_normal(nn.Linear(3, 2).weight).shape
        torch.Size([2, 3])
    """
    return kaiming_normal(weight, gain=1.0, generator=generator)


def orthogonal(weight: Weight, *, gain: float = 1.0, generator: Generator | None = None) -> Weight:
    r"""Fills a weight with a random matrix whose rows or columns, whichever are fewer, are orthonormal.

    $$W^\top W = g^2 \, 1 \quad \text{or} \quad W W^\top = g^2 \, 1$$

    Where there are no fewer rows than columns, it keeps all lengths and angles. A kernel counts as the matrix of
    its first axis against the others.

    Reference:
        Saxe, McClelland and Ganguli, *Exact solutions to the nonlinear dynamics of learning in deep linear neural
        networks*, 2014.

    Args:
        weight: The weight, which is changed in place.
        gain: $g$.
        generator: Where the numbers come from.

    Examples:
        >>> w = orthogonal(torch.empty(3, 2))
        >>> torch.allclose(w.T @ w, torch.eye(2), atol=1e-6)
        True
    """
    fans(weight)
    precise = torch.promote_types(weight.dtype, torch.float32)
    drawn = torch.empty_like(weight, dtype=precise, memory_format=torch.contiguous_format, requires_grad=False)
    with torch.no_grad():
        return weight.copy_(nn.init.orthogonal_(drawn, gain=gain, generator=generator))


def claims() -> Iterator[Claim]:
    """The laws that initialisations obey."""

    def filled(fill: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda x: fill(torch.empty_like(x))

    tall, kernel = shape("30 10"), shape("24 2 3")
    for fill in (xavier_normal, xavier_uniform):
        yield Claim(variance_preservation(ratio=2 * 10 / (10 + 30)), filled(fill), tall, name=fill.__name__)
    for fill in (kaiming_normal, kaiming_uniform):
        yield Claim(variance_preservation(activation=torch.relu), filled(fill), kernel, name=fill.__name__)
    yield Claim(variance_preservation(), filled(lecun_normal), tall, name="lecun_normal")
    gains = torch.relu, torch.square, torch.ones_like

    def computed(x: Tensor) -> Tensor:
        return x.new_tensor([gain(lambda z, f=f: f(z) * len(x)) for f in gains])

    def expected(x: Tensor) -> Tensor:
        return x.new_tensor([0.5, 3.0, 1.0]).rsqrt() / len(x)

    yield Claim(agreement(other=expected), computed, shape("n"), name="gain")

    def repeated(x: Tensor) -> Tensor:
        fills = xavier_normal, xavier_uniform, kaiming_normal, kaiming_uniform, lecun_normal, orthogonal
        return torch.stack([fill(torch.empty_like(x), generator=Generator().manual_seed(0)) for fill in fills])

    again = agreement(other=lambda x: repeated(x + 0 * torch.rand(()).to(x)))
    yield Claim(again, repeated, shape("2 3"), name="a seeded generator")
    yield Claim(orthonormality(), filled(orthogonal), shape("5 3"), name="orthogonal")
    yield Claim(isometry(), lambda x: x @ orthogonal(torch.empty(6, 4).to(x)).T, shape("b 4"), name="orthogonal")
