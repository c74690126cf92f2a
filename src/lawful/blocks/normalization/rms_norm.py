"""RMS normalisation: divide by the root mean square."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.normalization.normalize import check_eps
from lawful.laws import (
    Claim,
    agreement,
    batch_independence,
    causality,
    finiteness,
    gradient,
    scale_invariance,
    shape,
)


class RMSNorm(nn.Module):
    r"""Divides each vector by its root mean square and multiplies by a gain.

    $$y_i = g_i \, \frac{x_i}{\sqrt{\tfrac{1}{d} \sum_j x_j^2 + \epsilon}}$$

    The parameter `weight` is $g$, as in PyTorch's own module, so that weights move over. With $\epsilon = 0$ the
    length of $x$ does not matter at all, and $x = 0$ gives no number.

    Reference:
        Zhang and Sennrich, *Root Mean Square Layer Normalization*, 2019.

    Args:
        d: The width $d$, the size of the last axis.
        eps: $\epsilon$.

    Examples:
        >>> import torch
        >>> RMSNorm(2, eps=0.0)(torch.tensor([3.0, 3.0])).detach()
        tensor([1., 1.])
    """

    def __init__(self, d: int, *, eps: float = 1e-6) -> None:
        if d < 1:
            raise ValueError(f"d is at least 1: got {d}")
        check_eps(eps)
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))
        self.shape, self.eps = (d,), eps

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Normalises the last axis."""
        if x.shape[-1:] != self.shape:
            raise ValueError(f"the last axis is to have size {self.shape[0]}: got shape {tuple(x.shape)}")
        return F.rms_norm(x, self.shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.shape[0]}, eps={self.eps}"


def claims() -> Iterator[Claim]:
    """The laws that RMSNorm obeys."""
    for law in (batch_independence(), causality(time=1), gradient(), finiteness()):
        yield Claim(law, RMSNorm(8), shape("b t 8"))
    yield Claim(scale_invariance(), RMSNorm(8, eps=0.0), shape("b t 8"), name="RMSNorm(eps=0)")
    for norm, d, eps in ((RMSNorm(1), 1, 1e-6), (RMSNorm(8, eps=0.1), 8, 0.1)):

        def equation(x: Tensor, norm: RMSNorm = norm, d: int = d, eps: float = eps) -> Tensor:
            return norm.weight * x * torch.rsqrt(x.square().sum(-1, keepdim=True) / d + eps)

        yield Claim(agreement(other=equation), norm, shape(f"b t {d}"), name=f"RMSNorm({d}, {eps=})")
