"""Laws made of laws, and places to except."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lawful.laws.language.law import Law
from lawful.laws.language.map import Map
from lawful.laws.language.statement import Statement


def all_of(*laws: Law, name: str = "all_of", says: str = "") -> Law:
    """Makes one law of several: it holds if each of them does, and the first that does not is what is reported.

    Args:
        name: What the law is called.
        says: Its description, as a law's docstring is.
    """
    if not laws:
        raise ValueError("all_of wants at least one law")

    def state(f: Map, *xs: Tensor) -> Statement:
        raise TypeError(f"{name} is judged part by part")

    state.__name__, state.__doc__ = name, says or f"All of {', '.join(map(str, laws))}."
    formula = "; ".join(part.formula for part in laws)
    return Law(state, formula, tries=None, parts=laws)


def ties(x: Tensor, *_: Any) -> Tensor:
    """How far apart neighbours in size are along the last axis: 0 at a tie."""
    return x.sort(dim=-1).values.diff(dim=-1)


def kink_at(value: float) -> Callable[..., Tensor]:
    """How far each entry is from a value, such as the 0 of ReLU."""

    def distance(*xs: Tensor) -> Tensor:
        return torch.cat([(x - value).abs().reshape(-1) for x in xs if x.is_floating_point()])

    distance.__name__ = f"kink_at({value:g})"
    return distance
