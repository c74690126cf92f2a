"""Measuring two ways to do one thing: in turn, in the same run, many times."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Work = Callable[[], object]


def seconds(work: Work, repeats: int = 1) -> float:
    """How much processor time a call takes, as the mean of some in a row; others on the machine do not count."""
    start = time.process_time()
    for _ in range(repeats):
        work()
    return (time.process_time() - start) / repeats


@dataclass(frozen=True)
class Comparison:
    """Seconds of each round, ours and the peer's."""

    ours: list[float]
    peer: list[float]

    @property
    def ratio(self) -> float:
        """The median over rounds of ours to the peer's, each measured at about the same time."""
        return statistics.median(a / b for a, b in zip(self.ours, self.peer, strict=True))

    @property
    def spread(self) -> tuple[float, float]:
        """The middle half of the ratios."""
        first, _, third = statistics.quantiles([a / b for a, b in zip(self.ours, self.peer, strict=True)], n=4)
        return first, third


def compare(ours: Work, peer: Work, *, rounds: int = 21, least: float = 2e-3) -> Comparison:
    """Measures both in turn, who is first alternating; a round repeats each for at least `least` seconds."""
    for work in (ours, peer):
        work()
    repeats = max(1, round(least / max(seconds(peer, 3), 1e-9)))
    taken: dict[int, list[float]] = {0: [], 1: []}
    for n in range(rounds):
        for which in (0, 1) if n % 2 else (1, 0):
            taken[which].append(seconds((ours, peer)[which], repeats))
    return Comparison(taken[0], taken[1])


def row(name: str, found: Comparison) -> str:
    """A row of a table: milliseconds of both, the ratio, and the middle half of the ratios."""
    low, high = found.spread
    ours, peer = (1e3 * statistics.median(times) for times in (found.ours, found.peer))
    return f"| {name} | {ours:.3f} | {peer:.3f} | {found.ratio:.2f} | {low:.2f} to {high:.2f} |"
