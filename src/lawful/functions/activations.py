"""Activations that PyTorch lacks: squared ReLU, soft cap, and gated linear units with a separate gate."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.laws import (
    Claim,
    boundedness,
    derivative,
    homogeneity,
    linearity,
    lipschitz,
    monotonicity,
    oddness,
    shape,
)


def identity(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Returns its input: the activation of a linear layer.

    $$f(x) = x$$

    Args:
        x: Any tensor.

    Examples:
        >>> identity(torch.tensor([-1.0, 2.0]))
        tensor([-1.,  2.])
    """
    return x


def squared_relu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Squared ReLU, whose derivative is continuous at 0.

    $$\max(0, x)^2$$

    Reference:
        So et al., *Primer: Searching for Efficient Transformers for Language Modeling*, 2021.

    Args:
        x: Any tensor.

    Examples:
        >>> squared_relu(torch.tensor([-1.0, 2.0]))
        tensor([0., 4.])
    """
    return torch.relu(x).square()


def softcap(x: Float[Tensor, "*shape"], *, cap: float) -> Float[Tensor, "*shape"]:
    r"""Bounds values smoothly to $(-c, c)$; small values are nearly unchanged.

    $$y = c \tanh(x / c)$$

    Reference:
        Gemma Team, *Gemma 2: Improving Open Language Models at a Practical Size*, 2024.

    Args:
        x: Any tensor, usually logits.
        cap: Bound $c$, greater than 0.

    Examples:
        >>> softcap(torch.tensor([0.0, 1000.0]), cap=30.0)
        tensor([ 0., 30.])
    """
    if not cap > 0:
        raise ValueError(f"cap must be greater than 0, got {cap}")
    return cap * torch.tanh(x / cap)


def glu(x: Float[Tensor, "*#shape"], gate: Float[Tensor, "*#shape"]) -> Float[Tensor, "*shape"]:
    r"""Gated linear unit.

    $$x \, \sigma(g)$$

    `torch.nn.functional.glu` takes both halves in one tensor. The gradient by $x$ is $\sigma(g)$: the linear path
    does not vanish.

    Reference:
        Dauphin et al., *Language Modeling with Gated Convolutional Networks*, 2016.

    Args:
        x: Values $x$.
        gate: Gate $g$, before its activation.

    Examples:
        >>> glu(torch.tensor(2.0), torch.tensor(0.0))
        tensor(1.)
    """
    return x * torch.sigmoid(gate)


def bilinear_glu(x: Float[Tensor, "*#shape"], gate: Float[Tensor, "*#shape"]) -> Float[Tensor, "*shape"]:
    r"""Gated linear unit without an activation of the gate.

    $$x \, g$$

    Reference:
        Shazeer, *GLU Variants Improve Transformer*, 2020.

    Args:
        x: Values $x$.
        gate: Gate $g$.

    Examples:
        >>> bilinear_glu(torch.tensor(2.0), torch.tensor(3.0))
        tensor(6.)
    """
    return x * gate


def reglu(x: Float[Tensor, "*#shape"], gate: Float[Tensor, "*#shape"]) -> Float[Tensor, "*shape"]:
    r"""Gated linear unit with ReLU.

    $$x \max(0, g)$$

    Reference:
        Shazeer, *GLU Variants Improve Transformer*, 2020.

    Args:
        x: Values $x$.
        gate: Gate $g$, before its activation.

    Examples:
        >>> reglu(torch.tensor(2.0), torch.tensor(-3.0))
        tensor(0.)
    """
    return x * torch.relu(gate)


def geglu(x: Float[Tensor, "*#shape"], gate: Float[Tensor, "*#shape"]) -> Float[Tensor, "*shape"]:
    r"""Gated linear unit with GELU.

    $$x \, g \, \Phi(g)$$

    Reference:
        Shazeer, *GLU Variants Improve Transformer*, 2020.

    Args:
        x: Values $x$.
        gate: Gate $g$, before its activation.

    Examples:
        >>> geglu(torch.tensor(2.0), torch.tensor(1.0))
        tensor(1.6827)
    """
    return x * F.gelu(gate)


def swiglu(x: Float[Tensor, "*#shape"], gate: Float[Tensor, "*#shape"]) -> Float[Tensor, "*shape"]:
    r"""Gated linear unit with SiLU.

    $$x \, g \, \sigma(g)$$

    Reference:
        Shazeer, *GLU Variants Improve Transformer*, 2020.

    Args:
        x: Values $x$.
        gate: Gate $g$, before its activation.

    Examples:
        >>> swiglu(torch.tensor(2.0), torch.tensor(1.0))
        tensor(1.4621)
    """
    return x * F.silu(gate)


def gtu(x: Float[Tensor, "*#shape"], gate: Float[Tensor, "*#shape"]) -> Float[Tensor, "*shape"]:
    r"""Gated tanh unit, as in an LSTM.

    $$\tanh(x) \, \sigma(g)$$

    The gradient by $x$ has the factor $1 - \tanh^2 x$, which vanishes for large $x$.

    Reference:
        van den Oord et al., *Conditional Image Generation with PixelCNN Decoders*, 2016.

    Args:
        x: Values $x$.
        gate: Gate $g$, before its activation.

    Examples:
        >>> gtu(torch.tensor(100.0), torch.tensor(0.0))
        tensor(0.5000)
    """
    return torch.tanh(x) * torch.sigmoid(gate)


def claims() -> Iterator[Claim]:
    """Laws of activations."""
    yield Claim(homogeneity(degree=2.0), squared_relu, shape("b 4"))
    yield Claim(derivative(formula=lambda x: 2 * torch.relu(x)), squared_relu, shape("b 4"))
    capped = partial(softcap, cap=2.0)
    for law in (boundedness(low=-2.0, high=2.0), oddness(), monotonicity(), lipschitz()):
        yield Claim(law, capped, shape("b n"), name="softcap(cap=2)")
    pair = (shape("b 4"), shape("b 4"))
    gates = ((glu, torch.sigmoid), (bilinear_glu, identity), (reglu, torch.relu), (geglu, F.gelu), (swiglu, F.silu))
    for gated, activation in gates:
        yield Claim(linearity(input=0), gated, pair)
        yield Claim(derivative(formula=lambda x, g, a=activation: a(g)), gated, pair)
