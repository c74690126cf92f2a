"""RMS normalisation: divide by the root mean square."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import forward_ad
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
    second_order_gradient,
    shape,
)


class _Fused(torch.autograd.Function):
    r"""Computes what PyTorch's `rms_norm` does, to the last bit, and its gradients in fewer passes over memory.

    With $r$ the inverse root, $n = r x$ and $h = g \odot \bar y$, the gradient is that of a layer norm whose mean is
    held at 0, for which there is a kernel, and what that has taken away too much, $\tfrac{r}{d} \sum_j h_j$:

    $$\bar x = r \, \bigl(h - \tfrac{1}{d} \, n \sum_j h_j n_j\bigr), \qquad \bar g = \sum n \odot \bar y$$
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        root = x.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, root)
        ctx.eps = eps
        return (x * root).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (x, weight, root), (grad,) = ctx.saved_tensors, grads
        if torch.is_grad_enabled():  # for a second derivative, which the kernel does not know
            root = torch.rsqrt(x.square().mean(-1, keepdim=True) + ctx.eps)
            n, h = root * x, grad * weight
            return root * (h - n * (h * n).mean(-1, keepdim=True)), (grad * n).reshape(-1, len(weight)).sum(0), None
        wanted = [*ctx.needs_input_grad[:2], False]
        to_x, to_weight, _ = torch.ops.aten.native_layer_norm_backward(
            grad, x, weight.shape, torch.zeros_like(root), root, weight, None, wanted
        )
        if to_x is not None:
            to_x.addcmul_((grad @ weight).unsqueeze(-1), root, value=1 / len(weight))
        return to_x, to_weight, None


def _fits(x: Tensor, weight: Tensor) -> bool:
    """Whether the usual backward pass is all that is to come, on the processor and in full precision."""
    return (
        x.is_cpu
        and x.dtype == weight.dtype
        and x.dtype in (torch.float32, torch.float64)
        and torch.is_grad_enabled()
        and forward_ad._current_level < 0
        and not torch._C._are_functorch_transforms_active()
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
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
        if _fits(x, self.weight):
            return _Fused.apply(x, self.weight, self.eps)
        return F.rms_norm(x, self.shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.shape[0]}, eps={self.eps}"


def claims() -> Iterator[Claim]:
    """The laws that RMSNorm obeys."""
    for law in (batch_independence(), causality(time=1), gradient(), second_order_gradient(), finiteness()):
        yield Claim(law, RMSNorm(8), shape("b t 8"))
    yield Claim(scale_invariance(), RMSNorm(8, eps=0.0), shape("b t 8"), name="RMSNorm(eps=0)")
    for norm, d, eps in ((RMSNorm(1), 1, 1e-6), (RMSNorm(8, eps=0.1), 8, 0.1)):

        def equation(x: Tensor, norm: RMSNorm = norm, d: int = d, eps: float = eps) -> Tensor:
            return norm.weight * x * torch.rsqrt(x.square().sum(-1, keepdim=True) / d + eps)

        yield Claim(agreement(other=equation), norm, shape(f"b t {d}"), name=f"RMSNorm({d}, {eps=})")
