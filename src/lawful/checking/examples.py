"""Examples as inputs: what of them varies."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import Tensor

from lawful.laws.language import Input, Law
from lawful.laws.language.inputs import Like, Size, as_input
from lawful.laws.language.tree import leaves, transform


def described(inputs: Any, law: Law) -> tuple[Any, bool]:
    """Makes descriptions of examples: their batch axis and the axes that the law names vary.

    Returns the descriptions and whether any size of an example varies.
    """
    if inputs is None:
        return (), False
    if callable(inputs) and not isinstance(inputs, Input):
        return inputs, False
    if isinstance(inputs, str):
        raise TypeError(f'inputs is a description, an example or a function: write lawful.shape("{inputs}")')
    found = transform(inputs, lambda _, x: as_input(x), (Input, Tensor))
    examples = leaves(inputs, Tensor)
    if not leaves(found, Input) and inputs not in ((), {}):
        raise TypeError(f"inputs is a description, an example or a function of the draw: got {type(inputs).__name__}")
    if not examples:
        return found, False
    first = next(iter(examples.values()))
    varying = (
        {0, *(a % first.dim() for a in law.axes.values() if -first.dim() <= a < first.dim())} if first.dim() else set()
    )

    def vary(path: str, described: Input) -> Input:
        if path not in examples:
            return described
        axes = tuple(
            Size(letter=f"axis{n}") if n in varying and size.number == first.shape[n] else size
            for n, size in enumerate(described.axes)
        )
        return dataclasses.replace(described, axes=axes)

    return transform(found, vary, Input), bool(varying)


def fixed(inputs: Any) -> Any:
    """The same descriptions, with examples in their own sizes."""

    def fix(_: str, described: Input) -> Input:
        if not isinstance(described.domain, Like):
            return described
        return dataclasses.replace(described, axes=tuple(Size(number=n) for n in described.domain.example.shape))

    return transform(inputs, fix, Input)
