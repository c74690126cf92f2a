"""RMS normalisation: divide by the root mean square."""

from __future__ import annotations

from collections.abc import Iterator

from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, agreement, batch_independence, causality, determinism, gradient, scale_invariance, shape


class RMSNorm(nn.RMSNorm):
    r"""Divides each vector by its root mean square and multiplies by a gain.

    $$y_i = g_i \, \frac{x_i}{\sqrt{\tfrac{1}{d} \sum_j x_j^2 + \epsilon}}$$

    PyTorch's own module, with its parameter `weight` for $g$. With $\epsilon = 0$ the length of $x$ does not
    matter at all, and $x = 0$ gives no number.

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
        super().__init__(d, eps=eps)

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Normalises the last axis."""
        if x.shape[-1:] != self.normalized_shape:
            raise ValueError(f"the last axis is to have size {self.normalized_shape[0]}: got shape {tuple(x.shape)}")
        return super().forward(x)


def claims() -> Iterator[Claim]:
    """The laws that RMSNorm obeys."""
    for law in (batch_independence(), causality(time=1), determinism(), gradient()):
        yield Claim(law, RMSNorm(8), shape("b t 8"))
    yield Claim(scale_invariance(), RMSNorm(8, eps=0.0), shape("b t 8"), name="RMSNorm(eps=0)")
    for d, eps in ((1, 1e-6), (8, 0.1)):
        norm = RMSNorm(d, eps=eps) if eps != 1e-6 else RMSNorm(d)

        def equation(x: Tensor, norm: RMSNorm = norm, eps: float = eps) -> Tensor:
            return norm.weight * x / (x.square().mean(-1, keepdim=True) + eps).sqrt()

        yield Claim(agreement(other=equation), norm, shape(f"b t {d}"), name=f"RMSNorm({d=}, {eps=})")
