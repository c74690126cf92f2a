"""Claims from a table of rows: name, target, inputs, laws."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from lawful.laws import Claim, Law

CASES = 12

Row = tuple[str, Callable[..., Any], Any, Sequence[Law]]


def claims_from(rows: Iterable[Row], *, cases: int = CASES) -> Iterator[Claim]:
    """Yields one claim for every law of every row.

    Args:
        rows: Name, module or function, inputs, and laws.
        cases: Maximum number of cases per claim.
    """
    for name, target, inputs, laws in rows:
        for law in laws:
            yield Claim(_limit_cases(law, cases), target, inputs, name)


def _limit_cases(law: Law, cases: int) -> Law:
    parts = tuple(_limit_cases(part, cases) for part in law.parts)
    return replace(law, cases=min(law.cases or cases, cases), parts=parts)
