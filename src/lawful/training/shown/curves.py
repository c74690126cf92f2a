"""Learning curves: the figures of a run by name, thinned out and smoothed for the eye."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

POINTS = 2000
LARGEST, LAST = 1e300, 2**53

Point = tuple[int, float]


@dataclass(frozen=True)
class Curve:
    """A figure at the steps at which it was taken."""

    name: str
    """Where it comes from, such as `training` or `validation`."""
    points: Sequence[Point]

    @cached_property
    def finite(self) -> list[Point]:
        return [(x, y) for x, y in self.points if math.isfinite(y)]


def charts(metrics: Iterable[Mapping[str, Any]]) -> dict[str, list[Curve]]:
    """Sorts the lines of `metrics.jsonl` into charts: `loss` and `validation/loss` belong together.

    A step that comes twice, as after a resume, counts as it was the second time. Numbers that are too large to be
    drawn are infinite.

    Examples:
        >>> [*charts([{"step": 1, "loss": 2.0, "validation/loss": 3.0, "time": 0.1}]).items()]
        [('loss', [Curve(name='training', points=[(1, 2.0)]), Curve(name='validation', points=[(1, 3.0)])])]
    """
    found: dict[str, dict[int, float]] = {}
    for line in metrics:
        if abs(line["step"]) > LAST:
            continue
        for key, value in line.items():
            if key not in ("step", "time") and (y := as_number(value)) is not None:
                found.setdefault(key, {})[line["step"]] = y
    grouped: dict[str, list[Curve]] = {}
    for key, points in found.items():
        source, _, name = key.rpartition("/")
        grouped.setdefault(name, []).append(Curve(source or "training", sorted(points.items())))
    return dict(sorted(grouped.items(), key=lambda item: (item[0] != "loss", item[0] == "learning_rate")))


def as_number(value: Any) -> float | None:
    """Returns a number, also one that is not finite and so was written as text or as nothing; None for the rest."""
    if value is None or value in ("nan", "inf", "-inf"):
        return math.nan if value is None else float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if abs(value) > LARGEST:
        return math.inf if value > 0 else -math.inf
    return float(value)


def envelope(points: Sequence[Point], *, most: int = POINTS) -> list[Point]:
    """Thins points out to the lowest and the highest of each stretch, so that no peak is lost.

    Examples:
        >>> envelope([(i, float(i == 500)) for i in range(1000)], most=4)
        [(0, 0.0), (0, 0.0), (500, 1.0), (501, 0.0)]
    """
    if len(points) <= most:
        return list(points)
    n, kept = most // 2, []
    for i in range(n):
        part = points[i * len(points) // n : (i + 1) * len(points) // n]
        finite = [point for point in part if math.isfinite(point[1])]
        low, high = (min(finite, key=height), max(finite, key=height)) if finite else (part[0], part[-1])
        kept += sorted((low, high))
    return kept


def smooth(points: Sequence[Point], *, most: int = POINTS // 2) -> list[Point]:
    """Averages points with as many before as after them, up to a fiftieth of all; at the end with those before.

    Values that are not finite are passed over, and of many points some are taken.

    Examples:
        >>> smooth([(0, 4.0), (1, 2.0), (2, 3.0)])
        [(0, 4.0), (1, 3.0), (2, 2.5)]
    """
    kept = [point for point in points if math.isfinite(point[1])]
    values, last, reach = [y for _, y in kept], len(kept) - 1, max(1, len(kept) // 100)
    n = min(most, len(kept))
    averaged = []
    for i in (k * last // max(1, n - 1) for k in range(n)):
        part = values[i - min(i, reach) : i + 1 + min(i, reach)]
        averaged.append((kept[i][0], sum(part) / len(part)))
    return averaged


def height(point: Point) -> float:
    return point[1]
