"""Where numbers stopped being finite: the step, and the layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from lawful.training.storage.shards import local


class Diverged(ArithmeticError):
    """A training whose loss, gradient or weights are not finite."""


def not_finite(module: nn.Module) -> str | None:
    """Names the first parameter that is not finite, or buffer that holds NaN; a mask may hold infinities."""
    buffers = ((name, t) for name, t in module.named_buffers() if t.is_floating_point())
    held = [(name, t.nan_to_num(nan=torch.nan, posinf=0, neginf=0)) for name, t in buffers]
    return _first([*module.named_parameters(), *held])


def _first(named: Iterable[tuple[str, Tensor]]) -> str | None:
    named = [(name, local(t.detach())) for name, t in named if _real(t)]
    sums = [t.abs().sum().double().cpu() for _, t in named]
    if not sums or bool(torch.stack(sums).isfinite().all()):
        return None
    return next((name for name, t in named if not bool(t.isfinite().all())), None)


def bad_gradient(module: nn.Module) -> str | None:
    """Names the first parameter whose gradient is not finite."""
    found = ((name, p.grad) for name, p in module.named_parameters() if p.grad is not None)
    return next((name for name, gradient in found if not bool(local(gradient).isfinite().all())), None)


def where(model: nn.Module, call: Callable[[], object], batch: tuple[Tensor, ...]) -> str | None:
    """Says where a forward pass stops being finite: in the batch, a weight or a layer; nothing if in neither.

    The pass is done in any case, since processes that train together make the same calls.
    """
    found: list[str] = []

    def look(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: object, output: object) -> None:
            if not found and not all(bool(t.isfinite().all()) for t in _tensors(output)):
                found.append(f"{name} ({type(module).__name__})")

        return hook

    with ExitStack() as stack, torch.no_grad():
        for name, module in model.named_modules():
            if name:
                stack.callback(module.register_forward_hook(look(name)).remove)
        call()
    for i, tensor in enumerate(batch):
        if _real(tensor) and not bool(tensor.isfinite().all()):
            return f"the batch itself is not finite (tensor {i})"
    if name := _first(model.named_parameters()):
        return (
            f"the weight {name} is not finite: the update before made it so; a lower learning rate or clipping may help"
        )
    return f"the layer {found[0]} is the first whose output is not finite" if found else None


def _real(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _tensors(value: object) -> Iterator[Tensor]:
    """The tensors of an output, which may be a tuple, a list or a dict of outputs."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item)
