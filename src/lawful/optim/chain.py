"""The chain: an optimizer made of parts, each of which turns updates into updates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lawful.optim.fused import KERNELS, Kernel, fits
from lawful.optim.transforms import GradientTransform, StepContext, options_of


class Chain(torch.optim.Optimizer):
    r"""Adds to the parameters what its parts make of the gradient, one after the other.

    $$\theta_{t + 1} = \theta_t + (P_k \circ \dots \circ P_1)(\nabla C(\theta_t))$$

    An optimizer is a list of parts, the last of which is mostly `Descend`, the factor $-\eta$. A chain for which
    PyTorch has a kernel runs through that; the parts remain its definition, and are what runs if `kernels` is empty.
    What is kept are tensors, under PyTorch's names where it has the same, and the options of a group are numbers.
    Parameters without a gradient are left alone.

    Args:
        params: The parameters, or groups of them: mappings with `params` and options of their own, such as `lr`.
        parts: The parts, from the gradient to the update; or several such lists by name, where the option `kind` of a
            group says which is its own.
        kernels: What runs chains of the given types of parts in one go.

    Examples:
        >>> from lawful.optim import Chain, Descend, Sign
        >>> x = torch.nn.Parameter(torch.tensor([3.0, -4.0]))
        >>> optimizer = Chain([x], [Sign(), Descend(lr=0.5)])
        >>> x.square().sum().backward()
        >>> optimizer.step()
        >>> x.tolist()
        [2.5, -3.5]
    """

    def __init__(
        self,
        params: Iterable[Any],
        parts: Sequence[GradientTransform] | Mapping[str, Sequence[GradientTransform]],
        *,
        kernels: Mapping[tuple[type, ...], Kernel] = KERNELS,
    ) -> None:
        kinds = parts if isinstance(parts, Mapping) else {"chain": parts}
        self.kinds = {kind: tuple(chain) for kind, chain in kinds.items()}
        self.kernels = kernels
        for chain in self.kinds.values():
            names = [name for part in chain for name in options_of(part)]
            if len(set(names)) < len(names):
                raise ValueError(f"each option belongs to one part: got {names}")
        super().__init__(params, {})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group of parameters; options that it does not set are those of the parts."""
        kind = param_group.setdefault("kind", next(iter(self.kinds)))
        if kind not in self.kinds:
            raise ValueError(f"kind is one of {list(self.kinds)}: got {kind!r}")
        options = {}
        for part in self.kinds[kind]:
            own = {name: param_group.get(name, value) for name, value in options_of(part).items()}
            options |= options_of(replace(part, **own))  # type: ignore[type-var]
        if unknown := param_group.keys() - options.keys() - {"params", "param_names", "kind"}:
            raise ValueError(f"the options of a group are {sorted(options)}: got {sorted(unknown)}")
        param_group |= options
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Takes one step; the closure, if there is one, computes the loss and the gradients anew."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parts = self.kinds[group["kind"]]
            kernel = self.kernels.get(tuple(map(type, parts)))
            for params, grads in _alike(group["params"]):
                at = StepContext(params, self._kept(params, parts), group)
                if kernel and fits(params, grads):
                    kernel(grads, at)
                    continue
                updates = grads
                for part in parts:
                    updates = part(updates, at)
                torch._foreach_add_(params, updates)
        return loss

    def _kept(self, params: list[Tensor], parts: Sequence[GradientTransform]) -> list[dict[str, Tensor]]:
        """What is kept of each parameter, begun where there is nothing yet."""
        states: list[Any] = list(map(self.state.get, params))
        for i in (i for i, state in enumerate(states) if state is None):
            state = states[i] = self.state[params[i]] = {}
            for part in parts:
                new = part.start(params[i])
                if twice := new.keys() & state.keys():
                    raise ValueError(f"what is kept belongs to one part: got {sorted(twice)} of two")
                state |= new
        return states

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a copy of what `state_dict()` gave, where its parameters are and laid out as they are."""
        super().load_state_dict(state_dict)
        for p, state in self.state.items():
            for name, value in state.items():
                like = torch.empty_like(p, dtype=value.dtype) if value.shape == p.shape else value.to(p.device).clone()
                state[name] = like.copy_(value)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"kinds": self.kinds, "kernels": self.kernels}


def _alike(params: list[Tensor]) -> Iterable[tuple[list[Tensor], list[Tensor]]]:
    """The parameters that have a gradient, and the gradients, for each device and type."""
    found: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
    for p in params:
        grad = p.grad
        if grad is None:
            continue
        kind = p.device, p.dtype, grad.layout
        pair = found.get(kind)
        if pair is None:
            if grad.layout is not torch.strided or not p.is_floating_point():
                raise TypeError(f"gradients are dense and real: got {grad.layout} of {p.dtype}")
            pair = found[kind] = [], []
        pair[0].append(p)
        pair[1].append(grad)
    return found.values()
