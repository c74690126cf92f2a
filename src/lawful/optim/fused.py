"""PyTorch's kernels for whole chains: what the parts say, in one pass over memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from lawful.optim.transforms import (
    AdamMoments,
    AddDecayedWeights,
    EmaMomentum,
    Momentum,
    NesterovTrace,
    ScaleByLearningRate,
    StepContext,
)

Kernel = Callable[[list[Tensor], StepContext], None]
_ONE = torch.ones(())


def fits(params: list[Tensor], grads: list[Tensor]) -> bool:
    """Whether a kernel is right: there is one for the device, and gradients lie in memory as their parameters do.

    On the processor PyTorch's kernels go through memory in order and do not look at strides: with a gradient that is
    transposed they would mix up its entries, and with one that is expanded they would read beyond its end.
    """
    if hasattr(params[0], "placements"):  # a share of a weight that many processes hold, for which SGD's has no rule
        return False
    return params[0].device.type in ("cpu", "cuda", "mps", "xpu") and all(map(_alike, params, grads))


def _alike(p: Tensor, grad: Tensor) -> bool:
    if p.is_contiguous() and grad.is_contiguous():
        return True
    return p.stride() == grad.stride() == torch.empty_like(p, device="meta").stride()


def fused_sgd(grads: list[Tensor], at: StepContext) -> None:
    """Descends along the gradient."""
    _sgd(grads, at, momentum=0.0, lr=at.options["lr"])


def fused_trace(grads: list[Tensor], at: StepContext, *, nesterov: bool = False) -> None:
    """Descends along a sum of gradients, or along the next one."""
    _sgd(grads, at, momentum=at.options["momentum"], lr=at.options["lr"], nesterov=nesterov)


def fused_average(grads: list[Tensor], at: StepContext) -> None:
    """Descends along an average of gradients."""
    _sgd(grads, at, momentum=at.options["beta"], lr=at.options["lr"], dampening=at.options["beta"])


def fused_heavy_ball(grads: list[Tensor], at: StepContext) -> None:
    """Moves by a velocity; the gradient's factor, of which the kernel takes 1 less, is right to 1e-16."""
    _sgd(grads, at, momentum=at.options["momentum"], lr=-1.0, dampening=1 + at.options["lr"])


def _sgd(
    grads: list[Tensor], at: StepContext, *, momentum: float, lr: float, dampening: float = 0.0, nesterov: bool = False
) -> None:
    torch._fused_sgd_(
        at.params,
        grads,
        at.kept("momentum_buffer") if momentum else [],
        weight_decay=at.options.get("decay", 0.0),
        momentum=momentum,
        lr=lr if momentum else at.options["lr"],
        dampening=dampening if momentum else 0.0,
        nesterov=nesterov and momentum > 0,
        maximize=False,
        is_first_step=False,
    )


def fused_adam(grads: list[Tensor], at: StepContext, *, kernel: Callable[..., object]) -> None:
    """Descends along the corrected moments."""
    steps, options = at.kept("step"), at.options
    torch._foreach_add_(steps, _ONE if steps[0].is_cpu else 1)
    kernel(
        at.params,
        grads,
        at.kept("exp_avg"),
        at.kept("exp_avg_sq"),
        [],
        steps,
        lr=options["lr"],
        beta1=options["beta1"],
        beta2=options["beta2"],
        weight_decay=options.get("decay", 0.0),
        eps=options["eps"],
        amsgrad=False,
        maximize=False,
    )


_ADAM = partial(fused_adam, kernel=torch._fused_adam_)

KERNELS: Mapping[tuple[type, ...], Kernel] = {
    (ScaleByLearningRate,): fused_sgd,
    (AddDecayedWeights, ScaleByLearningRate): fused_sgd,
    (AddDecayedWeights, Momentum, ScaleByLearningRate): fused_trace,
    (AddDecayedWeights, EmaMomentum, ScaleByLearningRate): fused_average,
    (AddDecayedWeights, NesterovTrace, ScaleByLearningRate): partial(fused_trace, nesterov=True),
    (AddDecayedWeights, ScaleByLearningRate, Momentum): fused_heavy_ball,
    (AdamMoments, ScaleByLearningRate): _ADAM,
    (AddDecayedWeights, AdamMoments, ScaleByLearningRate): _ADAM,
    (AdamMoments, AddDecayedWeights, ScaleByLearningRate): partial(fused_adam, kernel=torch._fused_adamw_),
}
"""The kernel of a chain, by the types of its parts."""
