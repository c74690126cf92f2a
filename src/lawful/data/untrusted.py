"""Checks of values that come from a JSON file that nobody vouches for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lawful.laws.language.law import nearest

LETTERS = 10_000
"""The most letters of a name."""


def fields(value: object, names: Sequence[str], *, where: str) -> dict[str, Any]:
    """Returns an object with just these fields.

    Examples:
        >>> fields({"a": 1}, ("a",), where="it")
        {'a': 1}
    """
    if not isinstance(value, dict):
        raise ValueError(f"{where} is to be an object: got {type(value).__name__}")
    for name in value:
        if name not in names:
            raise ValueError(f"{where} has the unknown field {str(name)[:100]!r}{nearest(str(name)[:100], names)}")
    for name in names:
        if name not in value:
            raise ValueError(f"{where} is to have the field {name!r}")
    return value


def items(value: object, most: int, *, where: str) -> list[Any]:
    """Returns a list with at least one item, and not too many."""
    if not isinstance(value, list) or not 1 <= len(value) <= most:
        came = f"{len(value)}" if isinstance(value, list) else type(value).__name__
        raise ValueError(f"{where} is to be a list of 1 to {most} items: got {came}")
    return value


def text(value: object, *, where: str) -> str:
    """Returns a text, not empty and not too long."""
    if not isinstance(value, str) or not 1 <= len(value) <= LETTERS:
        came = f"{len(value)} letters" if isinstance(value, str) else type(value).__name__
        raise ValueError(f"{where} is to be a text of 1 to {LETTERS} letters: got {came}")
    return value


def entry(value: object, known: Sequence[str], *, where: str) -> str:
    """Returns one of the known words."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{where} is to be one of {', '.join(map(repr, known))}: got {str(value)[:100]!r}")
    return value


def whole(value: object, low: int, high: int, *, where: str) -> int:
    """Returns a whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{where} is to be a whole number from {low} to {high}: got {str(value)[:100]}")
    return value
