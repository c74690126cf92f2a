"""Layer normalisation: each sample by its own mean and deviation."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.normalization.normalize import axes_of, check_eps, normalize
from lawful.laws import (
    Claim,
    agreement,
    batch_independence,
    homogeneity,
    scale_free_weights,
    scale_invariance,
    shape,
    shift_invariance,
    ties,
)


class LayerNorm(nn.Module):
    r"""Normalises each sample, or each token, over its last axes, then scales and shifts every entry.

    $$y = \gamma \odot \frac{x - \operatorname{mean}(x)}{\sqrt{\operatorname{var}(x) + \epsilon}} + \beta$$

    It is the same in training and evaluation, and no sample sees another. After a layer (*post-norm*) it takes away
    the scale of the layer's matrix; before it (*pre-norm*) the scale of the data.

    Parameters are named as those of `nn.LayerNorm`.

    Reference:
        Ba, Kiros and Hinton, *Layer Normalization*, 2016.

    Args:
        d: The size of the last axis, or those of the last axes.
        eps: $\epsilon$.
        affine: Whether there are $\gamma$ (`weight`) and $\beta$ (`bias`).

    Examples:
        >>> LayerNorm(2, eps=0.0)(torch.tensor([1.0, 3.0])).detach()
        tensor([-1.,  1.])
    """

    def __init__(self, d: int | tuple[int, ...], *, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__()
        check_eps(eps)
        self.shape = (d,) if isinstance(d, int) else tuple(d)
        if min(self.shape, default=0) < 1:
            raise ValueError(f"d is one or several sizes of at least 1: got {d}")
        self.weight = nn.Parameter(torch.ones(self.shape)) if affine else None
        self.bias = nn.Parameter(torch.zeros(self.shape)) if affine else None
        self.eps = eps

    def forward(self, x: Float[Tensor, "*batch_d"]) -> Float[Tensor, "*batch_d"]:
        """Normalises the last axes."""
        if x.shape[-len(self.shape) :] != self.shape:
            raise ValueError(f"the last axes are to have sizes {self.shape}: got shape {tuple(x.shape)}")
        return F.layer_norm(x, self.shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.shape}, eps={self.eps}, affine={self.weight is not None}"


def claims() -> Iterator[Claim]:
    """The laws that LayerNorm obeys; `invariances` claims more."""
    rows = ((LayerNorm(4), 1e-5, shape("b t 4")), (LayerNorm((3, 2), eps=0.1), 0.1, shape("b 3 2")))
    for norm, eps, inputs in rows:

        def equation(x: Tensor, norm: LayerNorm = norm, eps: float = eps) -> Tensor:
            over = axes_of("layer", x.dim(), batch=x.dim() - len(norm.shape))
            weight, bias = norm.parameters()
            return weight * normalize(x, over, eps=eps) + bias

        yield Claim(agreement(other=equation), norm, inputs, name=f"LayerNorm({norm.shape})")
    exact = LayerNorm(4, eps=0.0)
    yield Claim(batch_independence(), exact, shape("b t 4"))
    yield Claim(shift_invariance().except_near(ties), exact, shape("b t 4"), name="LayerNorm(eps=0)")
    yield Claim(scale_invariance().except_near(ties), exact, shape("b t 4"), name="LayerNorm(eps=0)")
    mlp = nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.Linear(5, 4))
    post = nn.Sequential(mlp, exact)
    yield Claim(scale_free_weights(weights=("0.2.weight", "0.2.bias")), post, shape("b 3"), name="post-norm")
    pre = nn.Sequential(LayerNorm(3, eps=0.0), mlp)
    yield Claim(homogeneity(degree=0.0).except_near(ties), pre, shape("b 3"), name="pre-norm")
