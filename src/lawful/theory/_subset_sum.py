"""Whether a piecewise-linear function with n breakpoints needs n hidden units, or one more: a subset-sum problem."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

_MAX_TERMS = 22
"""Largest number of jumps for which all subsets are compared, in two halves."""
_MAX_SUMS = 1 << 27
"""Largest product of the number of integer jumps and the sum of their absolute values for which all sums are listed."""
_MAX_DENOMINATOR_BITS = 1 << 21
"""Largest number of bits of the denominators that are compared, over all rounds."""
_MAX_NUMBER_BITS = 1 << 26
"""Largest number of bits of all slopes over their common denominator."""
_UNDECIDED = "a subset-sum problem with large numbers"


class Orientation(NamedTuple):
    """Which units face left, so that n breakpoints need n units."""

    left: list[bool] | None
    """One entry per breakpoint. None if no such orientation is known."""
    decided: bool
    """Whether None means that there is none."""
    reason: str = ""
    """Why n units are not enough, or why this is not known."""


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
        [False, True]
    """
    middle = (len(slopes) - 1) / 2
    flat = [k for k, (rise, _) in enumerate(slopes) if rise == 0]
    if flat:
        best = min(flat, key=lambda k: abs(k - middle))
        return Orientation([i < best for i in range(len(slopes) - 1)], True)
    odd = [(rise, run // (run & -run)) for rise, run in slopes]
    kept = _after_denominators([run // math.gcd(rise, run) for rise, run in odd])
    if not kept:
        return Orientation(None, True, "the denominators of the slopes exclude an alternating sum that is zero")
    denominators = {run // math.gcd(rise, run) for rise, run in (slopes[k] for k in kept)}
    odd_parts = {p // (p & -p) for p in denominators}
    num_bits = max(p.bit_length() for p in denominators) + sum(p.bit_length() for p in odd_parts)
    if len(kept) * num_bits > _MAX_NUMBER_BITS:
        return Orientation(None, False, _UNDECIDED)
    scale = math.lcm(*denominators)
    numbers = [rise * scale // run for rise, run in (slopes[k] for k in kept)]
    # The other slopes are not in the sum: the orientation changes at kept slopes only.
    target, jumps = -numbers[0], [b - a for a, b in pairwise(numbers)]
    if not sum(min(jump, 0) for jump in jumps) <= target <= sum(max(jump, 0) for jump in jumps):
        return Orientation(
            None, True, "the slope changes are too small, or have the wrong sign, to cancel the first slope"
        )
    if target % math.gcd(*jumps):
        reason = "the greatest common divisor of the slope changes does not divide the first slope"
        return Orientation(None, True, reason)
    if len(jumps) <= _MAX_TERMS:
        flips = _in_two_halves(jumps, target)
    elif len(jumps) * sum(map(abs, jumps)) <= _MAX_SUMS:
        flips = _by_bits(jumps, target)
    else:
        return Orientation(None, False, _UNDECIDED)
    if flips is None:
        return Orientation(None, True, "no alternating sum of slopes is zero")
    left = [True] * kept[0]
    for (start, stop), state in zip(pairwise(kept), flips, strict=True):
        left += [state] * (stop - start)
    left += [False] * (len(slopes) - 1 - kept[-1])
    return Orientation(left, True)


def _after_denominators(denominators: Sequence[int]) -> list[int]:
    r"""Returns which rational numbers may have a coefficient $c_k \in \{-1, 0, 1\}$ in $\sum_k c_k s_k = 0$.

    If the denominator of $s_k$ does not divide the product of the others, then $c_k = 0$.

    Args:
        denominators: Odd parts of the reduced denominators.
    """
    kept = list(range(len(denominators)))
    budget = _MAX_DENOMINATOR_BITS
    while kept:
        budget -= sum(denominators[k].bit_length() for k in kept)
        if budget < 0:
            break
        counts = Counter(denominators[k] for k in kept)
        single = [p for p, count in counts.items() if count == 1]  # the others divide their copies
        others = math.prod(p**count for p, count in counts.items() if count > 1)
        excluded = {p for p, rest in zip(single, _products_of_others(single, others), strict=True) if rest % p}
        if not excluded:
            break
        kept = [k for k in kept if denominators[k] not in excluded]
    return kept


def _products_of_others(numbers: list[int], factor: int = 1) -> list[int]:
    """Returns, modulo each number, the product of a factor and all other numbers, by a tree of remainders.

    Examples:
        >>> _products_of_others([3, 5, 7])
        [2, 1, 1]
    """
    if len(numbers) < 2:
        return [factor % p for p in numbers]
    levels = [numbers]
    while len(levels[-1]) > 1:
        level = levels[-1]
        levels.append([math.prod(level[i : i + 2]) for i in range(0, len(level), 2)])
    outside = [factor]
    for level in reversed(levels[:-1]):
        siblings = (level[i ^ 1] if i ^ 1 < len(level) else 1 for i in range(len(level)))
        outside = [
            outside[i // 2] % p * sibling % p for i, (p, sibling) in enumerate(zip(level, siblings, strict=True))
        ]
    return outside


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
