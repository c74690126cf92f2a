"""Laws in tests: one line for a module, in any test runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lawful.checking.check import CASES, check
from lawful.checking.verdict import LawRefuted
from lawful.laws.law import Law


def assert_lawful(
    module: Callable[..., Any], *laws: Law, inputs: Any = None, cases: int = CASES, seed: int = 0
) -> None:
    """Raises `LawRefuted`, with the smallest counterexample, unless a module or function keeps the laws.

    A law that has nothing to say of the module is not kept either.

    Args:
        module: As for `lawful.check`.
        laws: The laws, such as `causality(time=1)`.
        inputs: As for `lawful.check`.
        cases: How many cases to try for each law.
        seed: The same seed gives the same counterexample.

    Examples:
        >>> from torch import nn
        >>> from lawful import shape
        >>> from lawful.laws import batch_independence
        >>> assert_lawful(nn.LayerNorm(4), batch_independence(), inputs=shape("b t 4"), cases=10)
    """
    __tracebackhide__ = True
    if wrong := check(module, *laws, inputs=inputs, cases=cases, seed=seed).failures:
        raise LawRefuted(*wrong)
