"""Names from data and files, shown so that they cannot pose as something else: quoted, printable, no formulas."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

_FORMULA = ("=", "+", "-", "@")
"""First characters of a formula in a spreadsheet."""


def quote(name: object) -> str:
    r"""Returns a name as it is if it is printable, and otherwise as a Python string without control characters.

    Examples:
        >>> print(quote("digits 2"), quote("a\nb"), quote("\x1b[31m"))
        digits 2 'a\nb' '\x1b[31m'
    """
    text = str(name)
    return text if text.isprintable() else ascii(text)


def printable(text: str) -> str:
    r"""Replaces control characters of a message by spaces, and indents all lines but the first.

    Examples:
        >>> printable("a\x1b[31mb\nc")
        'a [31mb\n  c'
    """
    if text.isprintable():
        return text
    first, *rest = ("".join(c if c.isprintable() else " " for c in line).rstrip() for line in text.split("\n"))
    return "\n".join([first, *("  " + line.removeprefix("  ") if line else "" for line in rest)])


def csv_text(rows: Iterable[Sequence[object]], *, escape: bool = True) -> str:
    r"""Returns rows as CSV.

    Args:
        rows: The rows; the first is the header.
        escape: Whether cells that a spreadsheet would run as formulas get a leading apostrophe, and cells with control
            characters are quoted.

    Examples:
        >>> csv_text([["class", "p"], ["=1+1", -0.5], ["-3", "a\tb"]])
        "class,p\n'=1+1,-0.5\n-3,'a\\tb'\n"
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(_escape, row) if escape else row for row in rows)
    return text.getvalue()


def _escape(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    cell = quote(cell)
    return f"'{cell}" if cell.lstrip().startswith(_FORMULA) and not _is_number(cell) else cell


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
