"""Whether a piecewise-linear function with n breakpoints needs n hidden units, or one more: a subset-sum problem."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

_MAX_TERMS = 22
"""Largest number of jumps for which all subsets are compared, in two halves."""
_MAX_SUM = 1 << 17
"""Largest sum of integer jumps for which all sums are listed as bits."""


class Orientation(NamedTuple):
    """Which units face left, so that n breakpoints need n units."""

    left: list[bool] | None
    """One entry per breakpoint. None if no such orientation is known."""
    decided: bool
    """Whether None means that there is none."""
    reason: str
    """Reason, for a reader."""


def left_units(slopes: Sequence[tuple[int, int]]) -> Orientation:
    r"""Finds a set $L$ of breakpoints with $s_0 + \sum_{i \in L} (s_i - s_{i-1}) = 0$.

    Args:
        slopes: Slopes of the pieces as pairs of integers, numerator and positive denominator. Neighbors differ.

    Examples:
        >>> left_units([(-1, 1), (1, 1)]).reason
        'the greatest common divisor of the slope changes does not divide the first slope'
        >>> left_units([(1, 1), (0, 1), (2, 1)]).left
        [True, False]
        >>> left_units([(1, 1), (3, 1), (2, 1)]).left
        [True, False]
    """
    middle = (len(slopes) - 1) / 2
    flat = [k for k, (rise, _) in enumerate(slopes) if rise == 0]
    if flat:
        best = min(flat, key=lambda k: abs(k - middle))
        return Orientation([i < best for i in range(len(slopes) - 1)], True, "a piece is flat")
    fractions = [(rise // g, run // g) for rise, run in slopes for g in (math.gcd(rise, run),)]
    kept = _after_denominators([run // (run & -run) for _, run in fractions])
    if not kept:
        return Orientation(None, True, "every slope has a prime in its denominator that no other slope has")
    scale = math.lcm(*(fractions[k][1] for k in kept))
    numbers = [fractions[k][0] * (scale // fractions[k][1]) for k in kept]
    # The other slopes cannot be in the sum: the orientation changes at kept slopes only.
    target, jumps = -numbers[0], [b - a for a, b in pairwise(numbers)]
    if not sum(min(jump, 0) for jump in jumps) <= target <= sum(max(jump, 0) for jump in jumps):
        return Orientation(
            None, True, "the slope changes are too small, or have the wrong sign, to cancel the first slope"
        )
    if target % math.gcd(*jumps):
        reason = "the greatest common divisor of the slope changes does not divide the first slope"
        return Orientation(None, True, reason)
    if len(jumps) <= _MAX_TERMS:
        chosen = _in_two_halves(jumps, target)
    elif sum(map(abs, jumps)) <= _MAX_SUM:
        chosen = _by_bits(jumps, target)
    else:
        return Orientation(None, False, "not decided: this is a subset-sum problem with large numbers")
    if chosen is None:
        return Orientation(None, True, "no alternating sum of slopes is zero")
    left, state = [True] * kept[0], True
    for (start, stop), state in zip(pairwise(kept), chosen, strict=True):
        left += [state] * (stop - start)
    left += [False] * (len(slopes) - 1 - kept[-1])
    return Orientation(left, True, "an alternating sum of slopes is zero")


def _after_denominators(denominators: Sequence[int]) -> list[int]:
    r"""Returns which rational numbers may have a coefficient $c_k \in \{-1, 0, 1\}$ in $\sum_k c_k s_k = 0$.

    If the denominator of $s_k$ does not divide the product of the others, then $c_k = 0$.

    Args:
        denominators: Odd parts of the reduced denominators.
    """
    kept, before = list(range(len(denominators))), len(denominators) + 1
    while kept and len(kept) < before:
        before = len(kept)
        found: list[int] = []
        _divides_the_others([denominators[k] for k in kept], kept, 1, found)
        kept = found
    return kept


def _divides_the_others(numbers: list[int], names: list[int], outside: int, found: list[int]) -> None:
    """Appends the names of the numbers that divide the product of all others, by a tree of remainders."""
    if len(numbers) <= 8:
        for i, (number, name) in enumerate(zip(numbers, names, strict=True)):
            if number == 1 or outside * math.prod(numbers[:i] + numbers[i + 1 :]) % number == 0:
                found.append(name)
        return
    half = len(numbers) // 2
    left, right = math.prod(numbers[:half]), math.prod(numbers[half:])
    _divides_the_others(numbers[:half], names[:half], outside * right % left, found)
    _divides_the_others(numbers[half:], names[half:], outside * left % right, found)


def _in_two_halves(jumps: list[int], target: int) -> list[bool] | None:
    """Finds a subset with the given sum from all sums of two halves."""
    half = len(jumps) // 2
    first, second = _all_sums(jumps[:half]), _all_sums(jumps[half:])
    for total, chosen in first.items():
        if (rest := second.get(target - total)) is not None:
            return [bool(chosen >> i & 1) for i in range(half)] + [
                bool(rest >> i & 1) for i in range(len(jumps) - half)
            ]
    return None


def _all_sums(jumps: list[int]) -> dict[int, int]:
    """Returns all sums of subsets, each with a subset as bits."""
    sums = {0: 0}
    for i, jump in enumerate(jumps):
        sums |= {total + jump: chosen | 1 << i for total, chosen in sums.items()}
    return sums


def _by_bits(jumps: list[int], target: int) -> list[bool] | None:
    """Finds a subset with the given sum. Bit j of an integer says that a subset of the first jumps has the sum j."""
    goal = target - sum(min(jump, 0) for jump in jumps)  # a negative jump is chosen if its absolute value is not
    reachable = [1]
    for jump in jumps:
        reachable.append(reachable[-1] | reachable[-1] << abs(jump))
    if not reachable[-1] >> goal & 1:
        return None
    chosen = []
    for jump, before in zip(reversed(jumps), reversed(reachable[:-1]), strict=True):
        use = not before >> goal & 1
        goal -= abs(jump) * use
        chosen.append(use if jump > 0 else not use)
    return chosen[::-1]
