"""`Chain`: an optimizer as a sequence of gradient transforms, run by a fused kernel of PyTorch if there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lawful.optim.transforms import (
    AddDecayedWeights,
    GradientTransform,
    Momentum,
    ScaleByAdam,
    ScaleByLearningRate,
    StepContext,
    _options,
)


class Chain(torch.optim.Optimizer):
    r"""Applies gradient transforms in order and adds the result to the parameters.

    $$\theta_{t + 1} = \theta_t + (T_k \circ \dots \circ T_1)(\nabla L(\theta_t))$$

    The last transform is usually `ScaleByLearningRate`. If PyTorch has a fused kernel for the whole sequence, that
    kernel runs; the transforms remain its definition. State has the same names as in `torch.optim`. Parameters without
    a gradient are skipped.

    Args:
        params: Parameters or parameter groups. A group may override any option of the transforms, such as `lr`.
        transforms: Gradient transforms, or several named sequences of them; the group option `optimizer` then names
            the sequence of a group.
        fused: Whether to use PyTorch's fused kernels.

    Examples:
        >>> from lawful.optim import Chain, ScaleByLearningRate, Sign
        >>> x = torch.nn.Parameter(torch.tensor([3.0, -4.0]))
        >>> optimizer = Chain([x], [Sign(), ScaleByLearningRate(lr=0.5)])
        >>> x.square().sum().backward()
        >>> optimizer.step()
        >>> x.tolist()
        [2.5, -3.5]
    """

    def __init__(
        self,
        params: Iterable[Any],
        transforms: Sequence[GradientTransform] | Mapping[str, Sequence[GradientTransform]],
        *,
        fused: bool = True,
    ) -> None:
        named = transforms if isinstance(transforms, Mapping) else {"chain": transforms}
        self.transforms = {name: tuple(sequence) for name, sequence in named.items()}
        self.fused = fused
        for sequence in self.transforms.values():
            names = [name for transform in sequence for name in _options(transform)]
            if len(set(names)) < len(names):
                raise ValueError(f"each option must belong to one transform, got {names}")
        super().__init__(params, {})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a parameter group; missing options are taken from the transforms."""
        name = param_group.setdefault("optimizer", next(iter(self.transforms)))
        if name not in self.transforms:
            raise ValueError(f"optimizer of a parameter group must be one of {list(self.transforms)}, got {name!r}")
        options = {}
        for transform in self.transforms[name]:
            own = {key: param_group.get(key, value) for key, value in _options(transform).items()}
            options |= _options(replace(transform, **own))  # type: ignore[type-var]
        if unknown := param_group.keys() - options.keys() - {"params", "param_names", "optimizer"}:
            raise ValueError(f"unknown options {sorted(unknown)} in a parameter group, expected {sorted(options)}")
        param_group |= options
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Takes one step.

        Args:
            closure: Recomputes the loss and its gradients, and returns the loss.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            transforms = self.transforms[group["optimizer"]]
            kernel = _FUSED.get(tuple(map(type, transforms))) if self.fused else None
            for params, grads in _group_by_device_and_dtype(group["params"]):
                context = StepContext(params, self._states(params, transforms), group)
                if kernel and _can_fuse(params, grads, group):
                    kernel(grads, context)
                    continue
                updates, (end, lr, decay) = grads, _in_place_tail(transforms, group)
                for transform in transforms[:end]:
                    updates = transform(updates, context)
                if decay:
                    torch._foreach_mul_(params, 1 - lr * decay)
                torch._foreach_add_(params, updates, alpha=-lr)
        return loss

    def _states(self, params: list[Tensor], transforms: Sequence[GradientTransform]) -> list[dict[str, Tensor]]:
        """Returns the state of each parameter, initialized at its first step."""
        states: list[Any] = list(map(self.state.get, params))
        for i in (i for i, state in enumerate(states) if state is None):
            state = states[i] = self.state[params[i]] = {}
            for transform in transforms:
                new = transform.init(params[i])
                if duplicates := new.keys() & state.keys():
                    raise ValueError(f"two transforms of a chain have the state {sorted(duplicates)}")
                state |= new
        return states

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a copy of `state_dict()`, on the device and in the memory layout of the parameters."""
        super().load_state_dict(state_dict)
        for group in self.param_groups:  # JSON has no tuples
            for name in group.keys() - {"params", "param_names"}:
                group[name] = tuple(group[name]) if isinstance(group[name], list) else group[name]
        for p, state in self.state.items():
            for name, value in state.items():
                like = torch.empty_like(p, dtype=value.dtype) if value.shape == p.shape else value.to(p.device).clone()
                state[name] = like.copy_(value)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"transforms": self.transforms, "fused": self.fused}


def _group_by_device_and_dtype(params: list[Tensor]) -> Iterable[tuple[list[Tensor], list[Tensor]]]:
    """Returns the parameters that have a gradient, and the gradients, per device and dtype."""
    groups: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
    for p in params:
        grad = p.grad
        if grad is None:
            continue
        key = p.device, p.dtype, grad.layout
        pair = groups.get(key)
        if pair is None:
            if grad.layout is not torch.strided or not p.is_floating_point():
                raise TypeError(f"expected dense real gradients, got {grad.layout} of {p.dtype}")
            pair = groups[key] = [], []
        pair[0].append(p)
        pair[1].append(grad)
    return groups.values()


def _in_place_tail(transforms: Sequence[GradientTransform], options: Mapping[str, Any]) -> tuple[int, float, float]:
    """Returns the number of transforms before a final weight decay and learning rate, the learning rate and the decay.

    The last two are applied to the parameters in place, without a scaled copy of the updates.
    """
    end = len(transforms)
    if not end or not isinstance(transforms[-1], ScaleByLearningRate):
        return end, -1.0, 0.0
    if end > 1 and isinstance(transforms[-2], AddDecayedWeights):
        return end - 2, options["lr"], options["weight_decay"]
    return end - 1, options["lr"], 0.0


def _can_fuse(params: list[Tensor], grads: list[Tensor], options: Mapping[str, Any]) -> bool:
    """Returns whether a fused kernel gives the same result as the transforms.

    PyTorch's CPU kernels ignore strides: a transposed gradient would be mixed up, and an expanded one read beyond its
    end. DTensors have no rule for the fused SGD.
    """
    if hasattr(params[0], "placements") or not options.get("bias_correction", True):
        return False
    return params[0].device.type in ("cpu", "cuda", "mps", "xpu") and all(map(_same_layout, params, grads))


def _same_layout(p: Tensor, grad: Tensor) -> bool:
    if p.is_contiguous() and grad.is_contiguous():
        return True
    return p.stride() == grad.stride() == torch.empty_like(p, device="meta").stride()


def _fused_sgd(grads: list[Tensor], context: StepContext) -> None:
    options = context.options
    momentum = options.get("momentum", 0.0)
    torch._fused_sgd_(
        context.params,
        grads,
        context.state("momentum_buffer") if momentum else [],
        weight_decay=options.get("weight_decay", 0.0),
        momentum=momentum,
        lr=options["lr"],
        dampening=0.0,
        nesterov=bool(options.get("nesterov") and momentum),
        maximize=False,
        is_first_step=False,
    )


_ONE = torch.ones(())


def _fused_adam(grads: list[Tensor], context: StepContext, *, kernel: Callable[..., object]) -> None:
    steps, options = context.state("step"), context.options
    torch._foreach_add_(steps, _ONE if steps[0].is_cpu else 1)
    kernel(
        context.params,
        grads,
        context.state("exp_avg"),
        context.state("exp_avg_sq"),
        [],
        steps,
        lr=options["lr"],
        beta1=options["betas"][0],
        beta2=options["betas"][1],
        weight_decay=options.get("weight_decay", 0.0),
        eps=options["eps"],
        amsgrad=False,
        maximize=False,
    )


_FUSED: Mapping[tuple[type, ...], Callable[[list[Tensor], StepContext], None]] = {
    (ScaleByLearningRate,): _fused_sgd,
    (AddDecayedWeights, ScaleByLearningRate): _fused_sgd,
    (AddDecayedWeights, Momentum, ScaleByLearningRate): _fused_sgd,
    (ScaleByAdam, ScaleByLearningRate): partial(_fused_adam, kernel=torch._fused_adam_),
    (AddDecayedWeights, ScaleByAdam, ScaleByLearningRate): partial(_fused_adam, kernel=torch._fused_adam_),
    (ScaleByAdam, AddDecayedWeights, ScaleByLearningRate): partial(_fused_adam, kernel=torch._fused_adamw_),
}
"""Fused kernels, by the types of the transforms."""
