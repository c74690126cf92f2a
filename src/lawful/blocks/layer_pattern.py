"""The order of sublayers: which of a transformer's blocks follow one another."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torch import Tensor

from lawful.laws import Claim, agreement, shape

LETTERS = "sfhc"
MACARON = "(hsh)*"
"""Attention between two half steps of a feed-forward block."""


def expand_layer_pattern(pattern: str, depth: int = 1) -> str:
    r"""Writes out the sublayers that a pattern stands for.

    The letters are s, self-attention; f, feed-forward; h, half a step of feed-forward; c, attention to a memory. A
    number after a letter or after a bracket repeats it that often, a star `depth` times:

    $$\texttt{"(sf)*"} \mapsto (sf)^{n}, \qquad \texttt{"s2(sf)3f2"} \mapsto s^2 (sf)^3 f^2$$

    Reference:
        Press, Smith and Levy, *Improving Transformer Models by Reordering their Sublayers*, 2020.

    Args:
        pattern: The pattern: the usual `"(sf)*"`, attention only `"s*"`, Macaron `"(hsh)*"`, any other.
        depth: $n$.

    Examples:
        >>> expand_layer_pattern("(sf)*", 3), expand_layer_pattern("s2(sf)f2"), expand_layer_pattern("s*", 2)
        ('sfsfsf', 'sssfff', 'ss')
    """
    if depth < 1:
        raise ValueError(f"depth is at least 1: got {depth}")
    text, written = pattern.replace(" ", ""), None
    while text != written:
        written, text = text, _REPEATED.sub(lambda m: _repeat(m, depth), text)
    if not text or text.strip(LETTERS) or _TWICE.search(pattern):
        raise ValueError(f"an order has the letters s, f, h and c, brackets, numbers and stars: got {pattern!r}")
    return text


_TWICE = re.compile(r"\*\s*[*\d]|\d\s*\*")
_REPEATED = re.compile(rf"\(([{LETTERS}]+)\)(\*|\d+|)|([{LETTERS}])(\*|\d+)")


def _repeat(found: re.Match[str], depth: int) -> str:
    group, many, letter, times = found.groups()
    count = many or times
    return (group or letter) * (depth if count == "*" else int(count or 1))


def sandwich(depth: int, *, bread: int) -> str:
    r"""Writes the pattern that has some of its attention first and as much feed-forward last.

    $$s^k (sf)^{n - k} f^k$$

    Reference:
        Press, Smith and Levy, *Improving Transformer Models by Reordering their Sublayers*, 2020.

    Args:
        depth: $n$, the number of sublayers of each kind.
        bread: $k$, from 0, which is the usual order, to $n$.

    Examples:
        >>> sandwich(4, bread=2), expand_layer_pattern(sandwich(4, bread=2))
        ('s2(sf)2f2', 'sssfsfff')
    """
    if not 0 <= bread <= depth or depth < 1:
        raise ValueError(f"bread is between 0 and depth, which is at least 1: got {bread} of {depth}")
    return f"s{bread}(sf){depth - bread}f{bread}"


def claims() -> Iterator[Claim]:
    """The laws that orders obey."""

    def lengths(x: Tensor) -> Tensor:
        n = len(x)
        written = [
            expand_layer_pattern(pattern, n)
            for pattern in ("(sf)*", "s*", "(hsh)*c", "((sf)2f)*", sandwich(n, bread=1))
        ]
        return x.new_tensor([[text.count(letter) for letter in LETTERS] for text in written])

    def counted(x: Tensor) -> Tensor:
        n = len(x)
        rows = [[n, n, 0, 0], [n, 0, 0, 0], [n, 0, 2 * n, 1], [2 * n, 3 * n, 0, 0], [n, n, 0, 0]]
        return x.new_tensor(rows)

    yield Claim(agreement(other=counted), lengths, shape("n:1..9"), name="order, how many of each")
