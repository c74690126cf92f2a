"""Layer patterns: the order of a transformer's sublayers, as a short string."""

from __future__ import annotations

import re

_LETTERS = "sfhc"
MACARON = "(hsh)*"
"""Attention between two half steps of a feed-forward block."""

_REPEATED_TWICE = re.compile(r"\*\s*[*\d]|\d\s*\*")
_GROUP = re.compile(rf"\(([{_LETTERS}]+)\)(\*|\d+|)|([{_LETTERS}])(\*|\d+)")


def expand_layer_pattern(pattern: str, num_layers: int = 1) -> str:
    r"""Expands a layer pattern into one letter per sublayer.

    The letters are `s` self-attention, `f` feed-forward, `h` half a step of feed-forward, `c` cross-attention. A
    number after a letter or a group repeats it that many times, a star `num_layers` times:

    $$\texttt{"(sf)*"} \mapsto (sf)^{n}, \qquad \texttt{"s2(sf)3f2"} \mapsto s^2 (sf)^3 f^2$$

    Reference:
        Press, Smith and Levy, *Improving Transformer Models by Reordering their Sublayers*, 2020.

    Args:
        pattern: Layer pattern: `"(sf)*"` is the usual transformer, `"s*"` attention only, `"(hsh)*"` Macaron.
        num_layers: Number of repeats of a star.

    Examples:
        >>> expand_layer_pattern("(sf)*", 3), expand_layer_pattern("s2(sf)f2"), expand_layer_pattern("s*", 2)
        ('sfsfsf', 'sssfff', 'ss')
    """
    if num_layers < 1:
        raise ValueError(f"num_layers must be at least 1, got {num_layers}")

    def repeat(match: re.Match[str]) -> str:
        group, group_count, letter, letter_count = match.groups()
        count = group_count or letter_count
        return (group or letter) * (num_layers if count == "*" else int(count or 1))

    text, previous = pattern.replace(" ", ""), None
    while text != previous:
        previous, text = text, _GROUP.sub(repeat, text)
    if not text or text.strip(_LETTERS) or _REPEATED_TWICE.search(pattern):
        raise ValueError(f"layer_pattern may contain s, f, h, c, parentheses, numbers and *: got {pattern!r}")
    return text


def sandwich_pattern(num_layers: int, *, num_outer: int) -> str:
    r"""Returns the sandwich pattern, with some attention sublayers first and as many feed-forward sublayers last.

    $$s^k (sf)^{n - k} f^k$$

    Reference:
        Press, Smith and Levy, *Improving Transformer Models by Reordering their Sublayers*, 2020.

    Args:
        num_layers: $n$, the number of sublayers of each kind.
        num_outer: $k$, from 0 (the usual order) to $n$.

    Examples:
        >>> sandwich_pattern(4, num_outer=2), expand_layer_pattern(sandwich_pattern(4, num_outer=2))
        ('s2(sf)2f2', 'sssfsfff')
    """
    if num_layers < 1 or not 0 <= num_outer <= num_layers:
        raise ValueError(f"num_outer must be between 0 and num_layers: got {num_outer=}, {num_layers=}")
    return f"s{num_outer}(sf){num_layers - num_outer}f{num_outer}"
