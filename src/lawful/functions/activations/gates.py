"""Gated linear units: one half of the features decides how much of the other passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.functions.activations.rectifiers import identity, relu
from lawful.functions.activations.sigmoids import gelu, sigmoid, silu, tanh
from lawful.laws import Claim, agreement, derivative, linearity, shape


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


def claims() -> Iterator[Claim]:
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
