"""Group normalisation: each sample by groups of its channels."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.normalization.normalize import axes_of, check_eps, normalize
from lawful.laws import Claim, agreement, batch_independence, shape


class GroupNorm(nn.Module):
    r"""Normalises each group of channels over its channels and positions, then scales and shifts each channel.

    $$y = \gamma_c \, \frac{x - \mu_g}{\sqrt{\sigma_g^2 + \epsilon}} + \beta_c$$

    One group is a layer norm over channels and space; a group for each channel is an instance norm. Parameters are
    named as those of `nn.GroupNorm`.

    Reference:
        Wu and He, *Group Normalization*, 2018.

    Args:
        groups: How many groups $g$.
        c: The channels, so many in all.
        eps: $\epsilon$.
        affine: Whether there are $\gamma$ (`weight`) and $\beta$ (`bias`).

    Examples:
        >>> GroupNorm(2, 4, eps=0.0)(torch.tensor([[1.0, 3.0, 10.0, 30.0]])).detach()
        tensor([[-1.,  1., -1.,  1.]])
    """

    def __init__(self, groups: int, c: int, *, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__()
        check_eps(eps)
        if min(groups, c) < 1 or c % groups:
            raise ValueError(f"groups must divide c: got c={c}, groups={groups}")
        self.weight = nn.Parameter(torch.ones(c)) if affine else None
        self.bias = nn.Parameter(torch.zeros(c)) if affine else None
        self.groups, self.c, self.eps = groups, c, eps

    def forward(self, x: Float[Tensor, "b c *space"]) -> Float[Tensor, "b c *space"]:
        """Normalises the channels of each group."""
        if x.dim() < 2 or x.shape[1] != self.c:
            raise ValueError(f"axis 1 is to have size {self.c}: got shape {tuple(x.shape)}")
        return F.group_norm(x, self.groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.groups}, {self.c}, eps={self.eps}, affine={self.weight is not None}"


def claims() -> Iterator[Claim]:
    """The laws that GroupNorm obeys."""
    norm = GroupNorm(2, 4)

    def equation(x: Tensor) -> Tensor:
        groups = x.unflatten(1, (2, 2))
        y = normalize(groups, axes_of("group", groups.dim(), batch=2), eps=1e-5).flatten(1, 2)
        weight, bias = norm.parameters()
        return y * weight[:, None] + bias[:, None]

    yield Claim(agreement(other=equation), norm, shape("b 4 n"), name="GroupNorm(2, 4)")
    yield Claim(batch_independence(), norm, shape("b 4 n"), name="GroupNorm(2, 4)")
    for groups, kind in ((1, "layer"), (4, "instance")):

        def same(x: Tensor, kind: str = kind) -> Tensor:
            return normalize(x, axes_of(kind, x.dim()), eps=0.1)

        limit = GroupNorm(groups, 4, eps=0.1, affine=False)
        yield Claim(agreement(other=same), limit, shape("b 4 h 2"), name=f"GroupNorm({groups}, 4) as {kind}")
