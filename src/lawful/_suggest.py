"""Suggestions for misspelled names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns ": did you mean X?" with the closest known name, or a full stop, to end an error message.

    Examples:
        >>> did_you_mean("casuality", ["causality", "linearity"])
        ': did you mean causality?'
        >>> did_you_mean("x", ["causality"])
        '.'
    """
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f": did you mean {close[0]}?" if close else "."
