"""AdaNorm: a layer norm whose gain is made from what it normalises."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.normalization.normalize import check_eps, normalize
from lawful.laws import (
    Claim,
    agreement,
    batch_independence,
    derivative,
    scale_invariance,
    shape,
    shift_invariance,
    ties,
)


class AdaNorm(nn.Module):
    r"""Normalises each vector and scales every entry by how large it came out, in place of a learned gain and bias.

    $$z = C (1 - k y) \odot y \qquad y = \frac{x - \operatorname{mean}(x)}{\sqrt{\operatorname{var}(x) + \epsilon}}$$

    Up to its two constants this gain is the only one that is differentiable, has the mean $C$ whatever comes in, and
    keeps the mean of $z$ bounded: at $-C k$. In the backward pass the gain counts as a constant, so that the gradient
    is centred and scaled as that of a layer norm; it is not the derivative of the output.

    Reference:
        Xu et al., *Understanding and Improving Layer Normalization*, 2019.

    Args:
        scale: $C$.
        k: $k$, how much less the larger entries are scaled.
        eps: $\epsilon$.

    Examples:
        >>> AdaNorm(eps=0.0)(torch.tensor([1.0, 3.0]))
        tensor([-1.1000,  0.9000])
    """

    def __init__(self, *, scale: float = 1.0, k: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        check_eps(eps)
        self.scale, self.k, self.eps = scale, k, eps

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Normalises the last axis."""
        if x.dim() == 0:
            raise ValueError("an input with a last axis was wanted: got shape ()")
        y = F.layer_norm(x, x.shape[-1:], eps=self.eps)
        return self.scale * (1 - self.k * y.detach()) * y

    def extra_repr(self) -> str:
        return f"scale={self.scale}, k={self.k}, eps={self.eps}"


def claims() -> Iterator[Claim]:
    """The laws that AdaNorm obeys."""
    c, k, eps = 2.0, 0.3, 0.1
    norm, exact = AdaNorm(scale=c, k=k, eps=eps), AdaNorm(eps=0.0)
    inputs = shape("b 4")

    def equation(x: Tensor) -> Tensor:
        y = normalize(x, (-1,), eps=1e-5)
        return y - y.square() / 10

    def mean(x: Tensor) -> Tensor:
        return norm(x).mean(-1)

    def bound(x: Tensor) -> Tensor:
        variance = x.var(-1, correction=0)
        return -c * k * variance / (variance + eps)

    def through_a_constant_gain(x: Tensor) -> Tensor:
        gain = c * (1 - k * normalize(x, (-1,), eps=eps))
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            return torch.autograd.grad(normalize(leaf, (-1,), eps=eps), leaf, gain)[0]

    yield Claim(agreement(other=equation), AdaNorm(), inputs)
    yield Claim(agreement(other=bound), mean, inputs, name="mean of AdaNorm")
    yield Claim(derivative(formula=through_a_constant_gain), norm, inputs)
    yield Claim(batch_independence(), norm, inputs)
    yield Claim(scale_invariance().except_near(ties), exact, inputs, name="AdaNorm(eps=0)")
    yield Claim(shift_invariance().except_near(ties), exact, inputs, name="AdaNorm(eps=0)")
