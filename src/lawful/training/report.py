"""Learning curves: the figures of a run by name, thinned out and smoothed for the eye.

Files of a run inside a page: images, texts and the heads of tables, each bounded in size.
Learning curves as SVG inside a page, drawn without any library.
The report of a run: one page that opens from disk, with nothing from elsewhere.
"""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from html import escape
from itertools import count
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from lawful.checking.formatting import details, number, one_line, summary
from lawful.checking.verdict import Report, Verdict
from lawful.training import storage as files
from lawful.training.loggers import duration

if TYPE_CHECKING:
    from lawful.training.run import Run


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


IMAGES, IMAGE_BYTES, ALL_BYTES = 60, 4 << 20, 24 << 20
TEXTS, TEXT_CHARACTERS, ROWS, COLUMNS, CELL, NAMED = 30, 4000, 10, 12, 60, 30
SMALL = 96
"""The width in pixels below which an image is enlarged."""
PICTURES, WORDS = (".png", ".svg"), (".txt", ".md", ".csv", ".json", ".jsonl")
PNG = b"\x89PNG\r\n\x1a\n"


def safe(text: object) -> str:
    r"""Escapes anything for HTML; control characters, which HTML does not have, are replaced.

    Examples:
        >>> safe("<b>" + chr(0))
        '&lt;b&gt;\ufffd'
    """
    shown = "".join(c if (c >= " " and c != "\x7f") or c in "\n\t" else "\ufffd" for c in str(text))
    return escape(shown, quote=True)


def caption(path: Path) -> str:
    """Makes a caption of the name of a file.

    Examples:
        >>> caption(Path("figures/confusion_matrix.png"))
        'Confusion matrix'
    """
    words = " ".join(path.stem.replace("_", " ").replace("-", " ").split())
    return words[:1].upper() + words[1:] or path.name


def shown(folder: Path) -> str:
    """Shows the pictures of a folder, then its texts, and names what is neither or too much."""
    found = media_files(folder)
    left = [path for path in found if path.suffix.lower() not in PICTURES + WORDS]
    pictures = "".join(images(found, left))
    words = "".join(texts(found, left))
    named = [f"{path.name} ({path.stat().st_size / 1000:,.0f} kB)" for path in left[:NAMED]]
    named += ["…"] if len(left) > NAMED else []
    note = f"<p class=note>Not shown here: {safe(', '.join(named))}.</p>" if left else ""
    return (f"<div class=gallery>{pictures}</div>" if pictures else "") + words + note


def media_files(folder: Path) -> list[Path]:
    """Lists the files of a folder by name, without links, which may lead elsewhere."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_file() and not path.is_symlink())


def images(paths: Iterable[Path], left: list[Path]) -> Iterator[str]:
    """Shows PNG and SVG files; those that are too large, too many or no images join what is left."""
    room, count = ALL_BYTES, IMAGES
    for path in paths:
        ending = path.suffix.lower()
        if ending not in PICTURES:
            continue
        data = path.read_bytes() if count and path.stat().st_size <= min(IMAGE_BYTES, room) else b""
        if not data or (ending == ".png" and not data.startswith(PNG)):
            left.append(path)
            continue
        room, count, name = room - len(data), count - 1, safe(caption(path))
        kind = "png" if ending == ".png" else "svg+xml"
        small = " class=small" if kind == "png" and int.from_bytes(data[16:20]) < SMALL else ""
        source = f"data:image/{kind};base64,{b64encode(data).decode()}"
        yield f'<figure><img{small} src="{source}" alt="{name}"><figcaption>{name}</figcaption></figure>'


def texts(paths: Iterable[Path], left: list[Path]) -> Iterator[str]:
    """Shows the beginnings of texts, and of CSV files as tables; those that are too many join what is left."""
    words = [path for path in paths if path.suffix.lower() in WORDS]
    left += words[TEXTS:]
    for path in words[:TEXTS]:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            text = file.read(TEXT_CHARACTERS + 1)
        cut, text = len(text) > TEXT_CHARACTERS, text[:TEXT_CHARACTERS]
        body = table_head(text, cut=cut) if path.suffix.lower() == ".csv" else None
        if body is None:
            note = f"<p class=note>The first {TEXT_CHARACTERS:,} characters.</p>" if cut else ""
            body = f"<pre>{safe(text)}</pre>{note}"
        yield f"<h3>{safe(path.name)}</h3>{body}"


def table_head(text: str, *, cut: bool) -> str | None:
    """Shows the first rows of a CSV file, or None if it cannot be read as one."""
    try:
        rows = list(csv.reader(io.StringIO(text)))
    except csv.Error:
        return None
    rows = rows[:-1] if cut and len(rows) > 1 else rows
    if not rows:
        return None
    shown = [row[:COLUMNS] for row in rows[: ROWS + 1]]
    more = cut or len(rows) > ROWS + 1 or any(len(row) > COLUMNS for row in rows)
    note = f"<p class=note>The first {ROWS} rows and {COLUMNS} columns at most.</p>" if more else ""
    return table(shown[0], shown[1:]) + note


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Makes a table of texts, each cut to a bounded length."""
    top = "".join(f"<th scope=col>{safe(short(cell))}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{safe(short(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=wide><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


def short(cell: object, *, most: int = CELL) -> str:
    """Cuts a text that is too long for a cell."""
    text = str(cell)
    return text if len(text) <= most else text[: most - 1] + "…"


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


ROWS_REPORT, LONG, MODEL, CHARTS, CURVES = 500, 300, 20_000, 24, 8
DESCRIBED = ("recipe", "options", "defaults", "model")
"""The keys of a configuration that say what was asked for; the others say where it ran."""


def write_report(run: Run, verdicts: Iterable[Verdict] = ()) -> Path:
    """Writes `report.html` of a run: what was asked for, how it went, what came of it, and the laws that it keeps.

    Whatever stands in the files of the run is shown as text, and the page may neither run it nor reach the network.
    A run that has not ended, or has no figures or samples, gives a shorter page.

    Args:
        run: The run.
        verdicts: What was found about the laws of the trained model.

    Returns:
        Where the page is.
    """
    metrics, results, verdicts = run.metrics(), run.results, tuple(verdicts)
    title = f"{run.config.get('recipe') or 'Training'} · {run.path.name}"
    parts = {
        "Results": _results(results),
        "Learning curves": _curves(metrics),
        "Figures": shown(run.figures),
        "Samples": shown(run.samples),
        "Laws": _laws(verdicts),
        "Configuration": _configuration(run.config),
        "Environment": _pairs(flat({k: v for k, v in run.config.items() if k not in DESCRIBED and v != ""})),
        "To train it again": _again(run),
    }
    parts = {name: body for name, body in parts.items() if body}
    links = "".join(f'<li><a href="#{_anchor(name)}">{name}</a></li>' for name in parts)
    sections = "".join(f"<section><h2 id={_anchor(name)}>{name}</h2>{body}</section>" for name, body in parts.items())
    head = f"<h1>{safe(title)}</h1><p class=outcome>{safe(outcome(metrics, results))}</p>"
    nav = f'<nav aria-label="Contents"><ul>{links}</ul></nav>'
    body = f"<header>{head}{_warnings(results)}{nav}</header><main>{sections}</main>"
    files.write(run.report, _page(safe(title), body).encode("utf-8", "replace"))
    return run.report


def _page(title: str, body: str) -> str:
    here = Path(__file__)
    page, style, script = (here.with_suffix(kind).read_text("utf-8") for kind in (".html", ".css", ".js"))
    return Template(page).substitute(
        title=title, body=body, style=style, script=script, style_hash=_hash(style), script_hash=_hash(script)
    )


def _hash(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def _anchor(name: str) -> str:
    return name.lower().replace(" ", "-")


def outcome(metrics: Sequence[Mapping[str, Any]], results: Mapping[str, Any]) -> str:
    """Says in a line what came of a run.

    Examples:
        >>> outcome([{"step": 500, "time": 75.0}], {"test": {"accuracy": {"value": 0.9, "low": 0.85, "high": 0.94}}})
        'Finished after 500 steps in 1:15: test accuracy 0.9 (0.85 to 0.94).'
        >>> outcome([{"step": 500, "loss": 0.25}], {})
        'Not finished, after 500 steps: loss 0.25.'
    """
    if not metrics:
        return "Finished." if results else "Not begun: there are no steps yet."
    last = metrics[-1]
    seconds = as_number(results.get("seconds", last.get("time", "unknown")))
    how = f"{last['step']:,} steps" + (f" in {duration(seconds)}" if seconds is not None else "")
    leaves = [(name, leaf) for name, leaf in flat(results).items() if name not in ("warnings", "steps", "seconds")]
    leaves.sort(key=lambda item: (not item[0].startswith("test"), not _interval(item[1])))
    name, leaf = (leaves or [("loss", last.get("loss"))])[0]
    spread = f" ({_interval(leaf)})" if _interval(leaf) else ""
    figure = "" if leaf is None else f": {short(name.replace('.', ' '))} {short(_shown(leaf))}{spread}"
    return f"{'Finished after' if results else 'Not finished, after'} {how}{figure}."


def flat(values: Any, prefix: str = "") -> dict[str, Any]:
    """Joins the names of nested values by dots; a value with its confidence interval stays together.

    What has no names gives none.

    Examples:
        >>> flat({"test": {"accuracy": {"value": 0.9, "low": 0.8, "high": 1.0}}, "steps": 3})
        {'test.accuracy': {'value': 0.9, 'low': 0.8, 'high': 1.0}, 'steps': 3}
    """
    found = {}
    for name, value in values.items() if isinstance(values, Mapping) else ():
        if isinstance(value, Mapping) and "value" not in value and value:
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def _interval(leaf: Any) -> str:
    if isinstance(leaf, Mapping) and {"low", "high"} <= leaf.keys():
        return f"{_shown(leaf['low'])} to {_shown(leaf['high'])}"
    return ""


def _shown(leaf: Any) -> str:
    if isinstance(leaf, Mapping) and "value" in leaf:
        return _shown(leaf["value"])
    if isinstance(leaf, float):
        return number(leaf)
    return leaf if isinstance(leaf, str) else json.dumps(leaf, ensure_ascii=False, default=str)


def _rows(rows: Sequence[Sequence[str]], head: Sequence[str]) -> str:
    """A table whose first column names the rows."""
    top = "".join(f"<th scope=col>{safe(cell)}</th>" for cell in head)
    body = "".join(
        f"<tr><th scope=row>{safe(short(first, most=LONG))}</th>"
        + "".join(f"<td>{safe(short(cell, most=LONG))}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows[:ROWS_REPORT]
    )
    more = f"<p class=note>{len(rows) - ROWS_REPORT:,} more are not shown.</p>" if len(rows) > ROWS_REPORT else ""
    return f"<div class=wide><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>{more}"


def _results(results: Mapping[str, Any]) -> str:
    leaves = {name: leaf for name, leaf in flat(results).items() if name != "warnings"}
    if not leaves:
        return "<p>There are no results yet.</p>"
    if any(map(_interval, leaves.values())):
        rows = [(name, _shown(leaf), _interval(leaf)) for name, leaf in leaves.items()]
        return _rows(rows, ("figure", "value", "confidence interval"))
    return _rows([(name, _shown(leaf)) for name, leaf in leaves.items()], ("figure", "value"))


def _warnings(results: Mapping[str, Any]) -> str:
    found = results.get("warnings") or []
    said = list(map(_shown, found)) if isinstance(found, list) else [_shown(found)]
    items = "".join(f"<p>{safe(short(item, most=2000))}</p>" for item in said[:ROWS_REPORT])
    return f'<section class=warnings aria-label="Warnings"><h2>Warnings</h2>{items}</section>' if items else ""


def _curves(metrics: Sequence[Mapping[str, Any]]) -> str:
    found = list(charts(metrics).items())
    if not found:
        return "<p>There are no metrics yet.</p>"
    drawn = [chart(name, curves[:CURVES], number=i) for i, (name, curves) in enumerate(found[:CHARTS])]
    left = [name for name, _ in found[CHARTS:]] + [name for name, curves in found[:CHARTS] if len(curves) > CURVES]
    if left:
        drawn.append(f"<p class=note>Not or not all drawn: {safe(short(', '.join(left), most=2000))}.</p>")
    return "".join(drawn)


def _laws(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return ""
    total = Report(tuple(verdicts), seconds=sum(v.seconds for v in verdicts))
    return f"<p>{safe(summary(total))}</p>" + "".join(map(_law, verdicts))


def _law(verdict: Verdict) -> str:
    line = f"<span class='status {safe(verdict.status)}'>{safe(verdict.status)}</span> {safe(one_line(verdict))}"
    lines = [verdict.formula, *(line for line in details(verdict) if line != verdict.formula)]
    state = " open" if verdict.failed else ""
    return f"<details{state}><summary>{line}</summary><pre>{safe(chr(10).join(lines))}</pre></details>"


def _configuration(config: Mapping[str, Any]) -> str:
    options, defaults = flat(config.get("options")), flat(config.get("defaults"))
    changed = changes(config)
    same = {name: value for name, value in options.items() if name not in changed}
    body = ""
    if defaults:
        rows = [(name, _shown(value), _shown(defaults.get(name, ""))) for name, value in changed.items()]
        body = _rows(rows, ("option", "value", "default")) if rows else "<p>Every option has its default.</p>"
        body += f"<details><summary>The other options</summary>{_pairs(same)}</details>" if same else ""
    elif options:
        body = _pairs(options)
    model = config.get("model")
    if model:
        text = model if isinstance(model, str) else json.dumps(model, indent=2, ensure_ascii=False, default=str)
        body += f"<details><summary>The model</summary><pre>{safe(short(text, most=MODEL))}</pre></details>"
    return body


def _pairs(values: Mapping[str, Any]) -> str:
    return _rows([(name, _shown(value)) for name, value in values.items()], ("name", "value")) if values else ""


def changes(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options that are not as by default; all, where the defaults are not known."""
    options, defaults = flat(config.get("options")), flat(config.get("defaults"))
    return {name: value for name, value in options.items() if name not in defaults or defaults[name] != value}


def command(config: Mapping[str, Any]) -> str:
    """Returns the command that trains the same again.

    Examples:
        >>> command({"recipe": "classify", "options": {"hidden": [64, 32], "bias": False, "data": "my table.csv"}})
        "lawful train classify --hidden 64 32 --no-bias --data 'my table.csv'"
    """
    return shlex.join(["lawful", "train", str(config.get("recipe")), *_words(changes(config))])


def _words(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        last = name.replace("_", "-").rpartition(".")[2]
        if isinstance(value, bool):
            yield f"--{last}" if value else f"--no-{last}"
            continue
        yield f"--{last}"
        yield from map(str, value) if isinstance(value, list | tuple) else (str(value),)


def _again(run: Run) -> str:
    path = str(run.path)
    if run.config.get("recipe") is None:
        what = "To go on with this run, with the same model, data and optimizer, in Python:"
        said = [(what, f"lawful.train(training, resume=Run({path!r}))")]
    else:
        said = [("To train the same again:", command(run.config))]
        said.append(("To go on with this run:", shlex.join(["lawful", "train", "--resume", path])))
    return "".join(f"<p>{what}</p><pre>{safe(short(how, most=MODEL))}</pre>" for what, how in said)
