"""Curves and times in few characters, and no characters that steer a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

WIDTH, LEVELS = 30, "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], *, width: int = WIDTH) -> str:
    """Draws numbers as blocks of eight heights, on a logarithmic scale if they are positive and far apart.

    Each block is the mean of its share of the numbers; one without a finite number is an `x`.

    Examples:
        >>> sparkline([1, 2, 3, 4, 5, 6, 7, 8])
        '▁▂▃▄▅▆▇█'
        >>> sparkline([1000, 100, float("nan"), 1])
        '█▆x▁'
    """
    values = list(values)
    n = min(width, len(values))
    shares = [values[i * len(values) // n : (i + 1) * len(values) // n] for i in range(n)]
    means = [sum(part) / len(part) if (part := [x for x in share if math.isfinite(x)]) else None for share in shares]
    finite = [x for x in means if x is not None]
    if not finite:
        return "x" * n
    low, high = min(finite), max(finite)
    if low > 0 and low * 10 < high:
        means, low, high = [x and math.log(x) for x in means], math.log(low), math.log(high)
    heights = [None if x is None else (x - low) / (high - low) if high > low else 0.0 for x in means]
    return "".join("x" if h is None else LEVELS[min(7, int(8 * h))] for h in heights)


def without_controls(text: str) -> str:
    r"""Replaces what could move the cursor or change its colour, such as an escape character in the name of a class.

    Examples:
        >>> without_controls("a\x1b[31mb")
        'a [31mb'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def duration(seconds: float) -> str:
    """Writes a time.

    Examples:
        >>> duration(75), duration(3700), duration(200000)
        ('1:15', '1:01:40', '2 d 7 h')
    """
    if not math.isfinite(seconds):
        return "-"
    minutes, s = divmod(round(seconds), 60)
    h, m = divmod(minutes, 60)
    if h >= 48:
        return f"{h // 24} d {h % 24} h"
    return f"{h}:{m:02d}:{s:02d}" if h else f"{m}:{s:02d}"
