"""Assertions about laws, for any test runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lawful.checking.check import DEFAULT_CASES, check
from lawful.checking.verdict import LawRefuted
from lawful.laws.law import Law


def assert_lawful(
    module: Callable[..., Any], *laws: Law, inputs: Any = None, cases: int = DEFAULT_CASES, seed: int = 0
) -> None:
    """Raises `LawRefuted`, with the smallest counterexample, unless a module or function satisfies all laws.

    A law that does not apply to the module counts as a failure.

    Args:
        module: An `nn.Module` or a function, as in `lawful.check`.
        laws: The laws, such as `causality(time=1)`.
        inputs: Inputs, as in `lawful.check`.
        cases: Number of cases per law.
        seed: Random seed; the same seed gives the same counterexample.

    Examples:
        >>> from torch import nn
        >>> from lawful import shape
        >>> from lawful.laws import batch_independence
        >>> assert_lawful(nn.LayerNorm(4), batch_independence(), inputs=shape("b t 4"), cases=10)
    """
    __tracebackhide__ = True
    if failures := check(module, *laws, inputs=inputs, cases=cases, seed=seed).failures:
        raise LawRefuted(*failures)
