"""Instance normalisation: each channel of each sample by itself."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.normalization.normalize import axes_of, check_eps, normalize
from lawful.laws import Claim, agreement, batch_independence, scale_invariance, shape, shift_invariance, ties


class InstanceNorm(nn.Module):
    r"""Normalises each channel of each sample over its positions, and may then scale and shift it.

    $$y = \gamma_c \, \frac{x - \mu_{b, c}}{\sqrt{\sigma_{b, c}^2 + \epsilon}} + \beta_c$$

    On an image that takes the contrast and the brightness of each channel away. Parameters are named as those of
    `nn.InstanceNorm1d` to `3d`, and are not there by default either.

    Reference:
        Ulyanov, Vedaldi and Lempitsky, *Instance Normalization: The Missing Ingredient for Fast Stylization*, 2016.

    Args:
        c: The channels.
        eps: $\epsilon$.
        affine: Whether there are $\gamma$ (`weight`) and $\beta$ (`bias`).

    Examples:
        >>> InstanceNorm(1, eps=0.0)(torch.tensor([[[1.0, 3.0]]]))
        tensor([[[-1.,  1.]]])
    """

    def __init__(self, c: int, *, eps: float = 1e-5, affine: bool = False) -> None:
        super().__init__()
        check_eps(eps)
        if c < 1:
            raise ValueError(f"c is at least 1: got {c}")
        self.weight = nn.Parameter(torch.ones(c)) if affine else None
        self.bias = nn.Parameter(torch.zeros(c)) if affine else None
        self.c, self.eps = c, eps

    def forward(self, x: Float[Tensor, "b c *space"]) -> Float[Tensor, "b c *space"]:
        """Normalises the space axes."""
        if x.dim() < 3 or x.shape[1] != self.c:
            raise ValueError(f"axis 1 is to have size {self.c}, before space axes: got shape {tuple(x.shape)}")
        if math.prod(x.shape[2:]) == 1:
            raise ValueError(
                f"more than one position was wanted, for there is no other deviation: got shape {tuple(x.shape)}"
            )
        return F.instance_norm(x, weight=self.weight, bias=self.bias, eps=self.eps)

    def extra_repr(self) -> str:
        return f"{self.c}, eps={self.eps}, affine={self.weight is not None}"


def claims() -> Iterator[Claim]:
    """The laws that InstanceNorm obeys."""
    norm = InstanceNorm(3, affine=True)

    def equation(x: Tensor) -> Tensor:
        y = normalize(x, axes_of("instance", x.dim()), eps=1e-5)
        weight, bias = norm.parameters()
        return y * weight[:, None, None] + bias[:, None, None]

    yield Claim(agreement(other=equation), norm, shape("b 3 h 2"))
    yield Claim(batch_independence(), norm, shape("b 3 h 2"))
    plain = agreement(other=nn.InstanceNorm1d(3))
    yield Claim(plain, InstanceNorm(3), shape("b 3 n:2..4"))
    none = agreement(other=lambda x: x.new_tensor(0))
    yield Claim(none, lambda x: x.new_tensor(len([*InstanceNorm(3).parameters()])), shape("1"), name="no parameters")
    exact = InstanceNorm(3, eps=0.0)
    yield Claim(scale_invariance().except_near(ties), exact, shape("b 3 4"), name="InstanceNorm(eps=0)")
    yield Claim(shift_invariance().except_near(ties), exact, shape("b 3 4"), name="InstanceNorm(eps=0)")
