"""Two ways to the same result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from lawful.laws.language import Map, Same, Statement, law


@law("f(x) = g(x)", every_input=True)
def agreement(f: Map, *xs: Tensor, other: Callable[..., Any]) -> Statement:
    """Two maps give the same output on the same inputs.

    Kept by: a fused and a plain path; a cached and a full pass; a module and its reference.
    Broken by: a path that drops an argument; a mask aligned to the wrong corner.
    """
    return Same(f(*xs), f.other(other)(*xs))
