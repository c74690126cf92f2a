"""Learning curves as SVG inside a page, drawn without any library."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from lawful.training.shown.curves import Curve, Point, envelope, height, smooth
from lawful.training.shown.media import safe

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 72, 26, 12, 38
COLOURS = {"training": "s0", "validation": "s1"}


def chart(name: str, curves: Sequence[Curve], *, number: int) -> str:
    """Draws a chart as HTML: the curves on a linear and, where they allow it, on a logarithmic scale."""
    finite = [y for curve in curves for _, y in curve.finite]
    if not finite:
        return f"<figure class=chart><figcaption>{safe(name)}</figcaption><p>It has no finite value.</p></figure>"
    evened = [smooth(c.points) if len(c.points) > 50 else [] for c in curves]
    colours = _colours(curves)
    thin = [Curve(c.name, envelope(c.points)) for c in curves]
    drawn = list(zip(colours, thin, evened, strict=True))
    scales, ranked = [_scale(finite, log=False)], min(finite) > 0
    if ranked:
        scales.append(_scale(finite, log=True))
    steps = [x for curve in curves for x, _ in curve.points]
    across = _Axis(min(steps), max(steps), LEFT, WIDTH - RIGHT, log=False)
    layers = "".join(_layer(drawn, across, scale) for scale in scales)
    steep = ranked and "loss" in name and max(finite) > 20 * min(finite)
    boxes = _box(f"log{number}", "log", "logarithmic", steep) if ranked else ""
    if any(evened):
        boxes += _box(f"smooth{number}", "smooth", "smoothed", True)
    said = [f"{c.name}: {_said(c)}" for c in curves]
    legend = "".join(f"<li class={colour}>{safe(words)}</li>" for colour, words in zip(colours, said, strict=True))
    data = "".join(
        f'<data value="{safe(c.name)}" data-x="{" ".join(str(x) for x, _ in c.points)}" '
        f'data-y="{" ".join(f"{y:.6g}" for _, y in c.points)}"></data>'
        for c in thin
    )
    ends = f'data-low="{across.low}" data-high="{across.high}" data-left="{LEFT}" data-right="{WIDTH - RIGHT}"'
    label = safe(f"{name} against the step. {'. '.join(said)}.")
    return (
        f"<figure class=chart {ends}><figcaption>{safe(name)}</figcaption>{boxes}"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role=img aria-label="{label}">{layers}'
        f'<line class=cursor y1="{TOP}" y2="{HEIGHT - BOTTOM}" visibility=hidden /></svg>'
        f"<output></output><ul>{legend}</ul>{data}</figure>"
    )


@dataclass(frozen=True)
class _Axis:
    """A scale from values to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        low, high, at = (self._grown(v) for v in (self.low, self.high, value))
        return self.start + (self.end - self.start) * ((at - low) / (high - low) if high > low else 0.5)

    def _grown(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def ticks(self, most: int) -> list[float]:
        """Round values within the ends: 1, 2 or 5 times a power of ten."""
        if self.log:
            return _log_ticks(self.low, self.high)
        span = self.high - self.low
        if span <= 0 or not math.isfinite(span):
            return [self.low]
        power = 10.0 ** math.floor(math.log10(span / most))
        step = next(power * m for m in (1, 2, 5, 10) if span / (power * m) <= most)
        first = math.ceil(self.low / step - 1e-9)
        return [(first + i) * step for i in range(math.floor(self.high / step + 1e-9) - first + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    digits = (1, 2, 5) if last - first <= 3 else (1,)
    every = max(1, (last - first) // 6)
    marks = [m * 10.0**p for p in range(first, last + 1, every) for m in digits]
    return [mark for mark in marks if low <= mark <= high] or [low]


def _scale(values: Sequence[float], *, log: bool) -> _Axis:
    low, high = min(values), max(values)
    room = (high - low) * 0.04
    if not log and math.isfinite(room):
        low, high = low - room, high + room
    return _Axis(low, high, HEIGHT - BOTTOM, TOP, log)


def _layer(drawn: Sequence[tuple[str, Curve, list[Point]]], across: _Axis, up: _Axis) -> str:
    marks = []
    for y in up.ticks(5):
        at = f"{up(y):.1f}"
        marks.append(f'<path class=grid d="M{LEFT},{at}H{WIDTH - RIGHT}"/>')
        marks.append(f'<text class=y x="{LEFT - 6}" y="{at}">{y:.4g}</text>')
    for x in across.ticks(6):
        marks.append(f'<text class=x x="{across(x):.1f}" y="{HEIGHT - BOTTOM + 18}">{x:,.10g}</text>')
    marks.append(f'<text class=x x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 3}">step</text>')
    for colour, curve, smoothed in drawn:
        kind = " raw" if smoothed else ""
        marks.append(f'<path class="curve {colour}{kind}" d="{_path(curve.points, across, up)}"/>')
        if smoothed:
            marks.append(f'<path class="curve {colour} even" d="{_path(smoothed, across, up)}"/>')
        if len(curve.points) <= 50:
            dots = (f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3"/>' for x, y in curve.finite)
            marks.append(f'<g class="dots {colour}">{"".join(dots)}</g>')
    return f"<g class={'log' if up.log else 'linear'}>{''.join(marks)}</g>"


def _colours(curves: Iterable[Curve]) -> list[str]:
    """The classes that give curves their colours: the same for training and for validation in every chart."""
    others = count()
    return [COLOURS.get(curve.name) or f"s{2 + next(others) % 4}" for curve in curves]


def _path(points: Iterable[Point], across: _Axis, up: _Axis) -> str:
    drawn, pen = [], "M"
    for x, y in points:
        if math.isfinite(y) and (y > 0 or not up.log):
            drawn.append(f"{pen}{across(x):.1f},{up(y):.1f}")
            pen = "L"
        else:
            pen = "M"
    return "".join(drawn)


def _box(name: str, kind: str, label: str, checked: bool) -> str:
    state = " checked" if checked else ""
    return f"<input type=checkbox id={name} class={kind}{state}><label for={name}>{label}</label>"


def _said(curve: Curve) -> str:
    """A curve in words: its last value, its lowest and highest, and what is missing."""
    finite = curve.finite
    if not finite:
        return "no finite value"
    low, high = min(finite, key=height), max(finite, key=height)
    ends = f"lowest {low[1]:.4g} at step {low[0]:,}, highest {high[1]:.4g} at step {high[0]:,}"
    said = f"last {curve.points[-1][1]:.4g}, {ends}"
    missing = [x for x, y in curve.points if not math.isfinite(y)]
    return said + (f"; {len(missing):,} not finite, the first at step {missing[0]:,}" if missing else "")
