"""Rounding, made visible: every result of every operation is moved in its last bit.

A map is run again with its inputs, its parameters and each intermediate result multiplied by 1 ± eps, the eps of
the type that the operation itself returned. How far the outcome moves is the noise that rounding may cause. A
module that casts to float32 inside shows float32 noise, a tie or a branch that rounding can flip shows a jump,
and neither has to be known beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lawful.laws.language.tree import leaves, transform

LOW = (torch.float32, torch.bfloat16, torch.float16)


aten = torch.ops.aten
COPIES = (
    *(aten.clone, aten.where, aten.cat, aten.stack, aten.index_select, aten.flip, aten.roll),
    aten._efficientzerotensor,  # the zeros of forward-mode derivatives, which have no storage
)
"""Operations that only put numbers elsewhere, or have none."""


class LastBit(TorchDispatchMode):
    """Moves the result of every operation in its last bit, and notes the lowest precision that it sees."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)
        self.lowest = torch.float64
        self.busy = False

    def move(self, x: Tensor, size: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
        """Returns `x (1 ± eps)`, the sign drawn for each entry; `x ± eps size` if there is a size.

        The eps is that of `x`, or of the type that it was stored in.
        """
        sign = torch.randint(0, 2, x.shape, generator=self.generator).to(x.device, x.dtype) * 2 - 1
        step = sign * torch.finfo(dtype or x.dtype).eps
        return x * (1 + step) if size is None else x + size * step

    def move_input(self, x: Tensor) -> Tensor:
        """Moves an input, its zeros too (as far as the largest entry), so that a tie of zeros is a tie."""
        if not x.is_floating_point() or not x.numel():
            return x
        with paused(self):
            largest = x.abs().amax()
            return self.move(x, torch.where(x == 0, largest if largest > 0 else torch.ones_like(largest), x))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self.busy:
            return out
        for value in leaves(out).values():
            self._see(value)
        schema = func._schema
        if func.overloadpacket in COPIES or any(a.alias_info for a in (*schema.arguments, *schema.returns)):
            return out  # a copy, a view, or an update in place: nothing was rounded, or its storage is shared
        with paused(self):
            return transform(out, lambda _, x: self.move(x) if x.is_floating_point() else x)

    def _see(self, x: Tensor) -> None:
        if x.dtype in LOW and torch.finfo(x.dtype).eps > torch.finfo(self.lowest).eps:
            self.lowest = x.dtype


@contextmanager
def paused(mode: LastBit) -> Iterator[None]:
    """Lets operations pass as they are."""
    before, mode.busy = mode.busy, True
    try:
        yield
    finally:
        mode.busy = before
