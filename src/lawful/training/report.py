"""The report of a run: one self-contained HTML page with results, learning curves, figures, laws and options."""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from html import escape
from itertools import count
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from lawful._files import list_folder, open_file
from lawful.checking.formatting import format_number, report_summary, verdict_details, verdict_line
from lawful.checking.verdict import Report, Verdict
from lawful.training.loggers import _format_duration

if TYPE_CHECKING:
    from lawful.training.run import Run


_MAX_POINTS = 2000
_LARGEST_VALUE, _LARGEST_STEP = 1e300, 2**53

_Point = tuple[int, float]


@dataclass(frozen=True)
class _Curve:
    """A metric over the steps."""

    name: str
    """Source, such as `training` or `validation`."""
    points: Sequence[_Point]

    @cached_property
    def finite(self) -> list[_Point]:
        return [(x, y) for x, y in self.points if math.isfinite(y)]


def _charts(metrics: Iterable[Mapping[str, Any]]) -> dict[str, list[_Curve]]:
    """Groups the lines of `metrics.jsonl` into charts: `loss` and `validation/loss` share one.

    If a step occurs twice, the second line counts. Values too large to draw become infinite.

    Examples:
        >>> [*_charts([{"step": 1, "loss": 2.0, "validation/loss": 3.0, "time": 0.1}]).items()]
        [('loss', [_Curve(name='training', points=[(1, 2.0)]), _Curve(name='validation', points=[(1, 3.0)])])]
    """
    found: dict[str, dict[int, float]] = {}
    for line in metrics:
        if abs(line["step"]) > _LARGEST_STEP:
            continue
        for key, value in line.items():
            if key not in ("step", "time") and (y := _as_number(value)) is not None:
                found.setdefault(key, {})[line["step"]] = y
    grouped: dict[str, list[_Curve]] = {}
    for key, points in found.items():
        source, _, name = key.rpartition("/")
        grouped.setdefault(name, []).append(_Curve(source or "training", sorted(points.items())))
    return dict(sorted(grouped.items(), key=lambda item: (item[0] != "loss", item[0] == "learning_rate")))


def _as_number(value: Any) -> float | None:
    """Converts a JSON value to a number: null and "nan" to NaN, "inf" to infinity. Returns None for others."""
    if value is None or value in ("nan", "inf", "-inf"):
        return math.nan if value is None else float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if abs(value) > _LARGEST_VALUE:
        return math.inf if value > 0 else -math.inf
    return float(value)


def _envelope(points: Sequence[_Point], *, limit: int = _MAX_POINTS) -> list[_Point]:
    """Keeps the lowest and the highest point of each interval, so that no peak is lost.

    Examples:
        >>> _envelope([(i, float(i == 500)) for i in range(1000)], limit=4)
        [(0, 0.0), (0, 0.0), (500, 1.0), (501, 0.0)]
    """
    if len(points) <= limit:
        return list(points)
    n, kept = limit // 2, []
    for i in range(n):
        part = points[i * len(points) // n : (i + 1) * len(points) // n]
        finite = [point for point in part if math.isfinite(point[1])]
        low, high = (min(finite, key=_height), max(finite, key=_height)) if finite else (part[0], part[-1])
        kept += sorted((low, high))
    return kept


def _smooth(points: Sequence[_Point], *, limit: int = _MAX_POINTS // 2) -> list[_Point]:
    """Smooths a curve by a centered moving average over at most 2 % of the points. Skips values that are not finite.

    Examples:
        >>> _smooth([(0, 4.0), (1, 2.0), (2, 3.0)])
        [(0, 4.0), (1, 3.0), (2, 2.5)]
    """
    kept = [point for point in points if math.isfinite(point[1])]
    values, last, reach = [y for _, y in kept], len(kept) - 1, max(1, len(kept) // 100)
    n = min(limit, len(kept))
    averaged = []
    for i in (k * last // max(1, n - 1) for k in range(n)):
        part = values[i - min(i, reach) : i + 1 + min(i, reach)]
        averaged.append((kept[i][0], sum(part) / len(part)))
    return averaged


def _height(point: _Point) -> float:
    return point[1]


_MAX_IMAGES, _MAX_IMAGE_BYTES, _MAX_TOTAL_BYTES = 60, 4 << 20, 24 << 20
_MAX_TEXTS, _MAX_TEXT_CHARACTERS, _MAX_TABLE_ROWS, _MAX_TABLE_COLUMNS, _MAX_CELL_CHARACTERS, _MAX_FILE_NAMES = (
    30,
    4000,
    10,
    12,
    60,
    30,
)
_SMALL_IMAGE_WIDTH = 96
"""Images narrower than this, in pixels, are enlarged."""
_IMAGE_SUFFIXES, _TEXT_SUFFIXES = (".png", ".svg"), (".txt", ".md", ".csv", ".json", ".jsonl")
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def _escape(text: object) -> str:
    r"""Escapes text for HTML, and replaces control characters.

    Examples:
        >>> _escape("<b>" + chr(0))
        '&lt;b&gt;\ufffd'
    """
    printable = "".join(c if (c >= " " and c != "\x7f") or c in "\n\t" else "\ufffd" for c in str(text))
    return escape(printable, quote=True)


def _caption(path: Path) -> str:
    """Returns a caption from a file name.

    Examples:
        >>> _caption(Path("figures/confusion_matrix.png"))
        'Confusion matrix'
    """
    caption = " ".join(path.stem.replace("_", " ").replace("-", " ").split())
    return caption[:1].upper() + caption[1:] or path.name


def _folder_html(folder: Path, *, root: Path, without: Collection[str] = ()) -> str:
    """Shows the images of a folder, then its texts, and lists the other files."""
    found = [path for path in _list_files(folder, root=root) if path.name not in without]
    left = [path for path in found if path.suffix.lower() not in _IMAGE_SUFFIXES + _TEXT_SUFFIXES]
    pictures = "".join(_images_html(found, left, root=root))
    texts = "".join(_texts_html(found, left, root=root))
    named = [f"{path.name} ({path.lstat().st_size / 1000:,.0f} kB)" for path in left[:_MAX_FILE_NAMES]]
    named += ["…"] if len(left) > _MAX_FILE_NAMES else []
    note = f"<p class=note>Not shown here: {_escape(', '.join(named))}.</p>" if left else ""
    return (f"<div class=gallery>{pictures}</div>" if pictures else "") + texts + note


def _list_files(folder: Path, *, root: Path) -> list[Path]:
    """Returns the files of a folder by name, without links."""
    try:
        return [folder / name for name, kind in list_folder(folder, root=root).items() if kind == "file"]
    except ValueError:  # the folder is a link
        return []


def _images_html(paths: Iterable[Path], left: list[Path], *, root: Path) -> Iterator[str]:
    """Shows PNG and SVG files. Appends files that are too large, too many or invalid to `left`."""
    room, count = _MAX_TOTAL_BYTES, _MAX_IMAGES
    for path in paths:
        ending = path.suffix.lower()
        if ending not in _IMAGE_SUFFIXES:
            continue
        with open_file(path, root=root) as file:
            limit = min(_MAX_IMAGE_BYTES, room) if count else 0
            data = file.read(limit + 1)
            data = data if len(data) <= limit else b""
        if not data or (ending == ".png" and not data.startswith(_PNG_SIGNATURE)):
            left.append(path)
            continue
        room, count, name = room - len(data), count - 1, _escape(_caption(path))
        kind = "png" if ending == ".png" else "svg+xml"
        small = " class=small" if kind == "png" and int.from_bytes(data[16:20]) < _SMALL_IMAGE_WIDTH else ""
        source = f"data:image/{kind};base64,{b64encode(data).decode()}"
        yield f'<figure><img{small} src="{source}" alt="{name}"><figcaption>{name}</figcaption></figure>'


def _texts_html(paths: Iterable[Path], left: list[Path], *, root: Path) -> Iterator[str]:
    """Shows the beginning of texts, and of CSV files as tables. Appends files that are too many to `left`."""
    texts = [path for path in paths if path.suffix.lower() in _TEXT_SUFFIXES]
    left += texts[_MAX_TEXTS:]
    for path in texts[:_MAX_TEXTS]:
        with open_file(path, root=root) as file:
            text = file.read(4 * _MAX_TEXT_CHARACTERS + 4).decode("utf-8", "replace")
        cut, text = len(text) > _MAX_TEXT_CHARACTERS, text[:_MAX_TEXT_CHARACTERS]
        body = _csv_html(text, cut=cut) if path.suffix.lower() == ".csv" else None
        if body is None:
            note = f"<p class=note>The first {_MAX_TEXT_CHARACTERS:,} characters.</p>" if cut else ""
            body = f"<pre>{_escape(text)}</pre>{note}"
        yield f"<h3>{_escape(path.name)}</h3>{body}"


def _csv_html(text: str, *, cut: bool) -> str | None:
    """Shows the first rows of a CSV file. Returns None if it is not valid CSV."""
    try:
        rows = list(csv.reader(io.StringIO(text)))
    except csv.Error:
        return None
    rows = rows[:-1] if cut and len(rows) > 1 else rows
    if not rows:
        return None
    head, *body = [row[:_MAX_TABLE_COLUMNS] for row in rows[: _MAX_TABLE_ROWS + 1]]
    more = cut or len(rows) > _MAX_TABLE_ROWS + 1 or any(len(row) > _MAX_TABLE_COLUMNS for row in rows)
    note = (
        f"<p class=note>The first {_MAX_TABLE_ROWS} rows and {_MAX_TABLE_COLUMNS} columns at most.</p>" if more else ""
    )
    return _table_html(head, body) + note


def _table_html(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Builds a table. Long cells are truncated."""
    top = "".join(f"<th scope=col>{_escape(_truncate(cell))}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{_escape(_truncate(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=wide><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


def _truncate(cell: object, *, limit: int = _MAX_CELL_CHARACTERS) -> str:
    """Shortens a text, with an ellipsis at the end."""
    text = str(cell)
    return text if len(text) <= limit else text[: limit - 1] + "…"


_WIDTH, _HEIGHT = 720, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 26, 12, 38
_COLORS = {"training": "s0", "validation": "s1"}


def _chart_html(name: str, curves: Sequence[_Curve], *, number: int) -> str:
    """Draws curves on a linear scale and, if all values are positive, on a log scale."""
    finite = [y for curve in curves for _, y in curve.finite]
    if not finite:
        return f"<figure class=chart><figcaption>{_escape(name)}</figcaption><p>No finite values.</p></figure>"
    smoothed = [_smooth(c.points) if len(c.points) > 50 else [] for c in curves]
    colors = _colors(curves)
    thinned = [_Curve(c.name, _envelope(c.points)) for c in curves]
    styled = list(zip(colors, thinned, smoothed, strict=True))
    scales, positive = [_value_axis(finite, log=False)], min(finite) > 0
    if positive:
        scales.append(_value_axis(finite, log=True))
    steps = [x for curve in curves for x, _ in curve.points]
    x_axis = _Axis(min(steps), max(steps), _LEFT, _WIDTH - _RIGHT, log=False)
    layers = "".join(_layer_svg(styled, x_axis, scale) for scale in scales)
    log_by_default = positive and "loss" in name and max(finite) > 20 * min(finite)
    checkboxes = _checkbox(f"log{number}", "log", "logarithmic", log_by_default) if positive else ""
    if any(smoothed):
        checkboxes += _checkbox(f"smooth{number}", "smooth", "smoothed", True)
    descriptions = [f"{c.name}: {_describe_curve(c)}" for c in curves]
    legend = "".join(
        f"<li class={color}>{_escape(text)}</li>" for color, text in zip(colors, descriptions, strict=True)
    )
    data = "".join(
        f'<data value="{_escape(c.name)}" data-x="{" ".join(str(x) for x, _ in c.points)}" '
        f'data-y="{" ".join(f"{y:.6g}" for _, y in c.points)}"></data>'
        for c in thinned
    )
    ends = f'data-low="{x_axis.low}" data-high="{x_axis.high}" data-left="{_LEFT}" data-right="{_WIDTH - _RIGHT}"'
    label = _escape(f"{name} against the step. {'. '.join(descriptions)}.")
    return (
        f"<figure class=chart {ends}><figcaption>{_escape(name)}</figcaption>{checkboxes}"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role=img aria-label="{label}">{layers}'
        f'<line class=cursor y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" visibility=hidden /></svg>'
        f"<output></output><ul>{legend}</ul>{data}</figure>"
    )


@dataclass(frozen=True)
class _Axis:
    """Maps values to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        low, high, at = (self._transform(v) for v in (self.low, self.high, value))
        return self.start + (self.end - self.start) * ((at - low) / (high - low) if high > low else 0.5)

    def _transform(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def ticks(self, limit: int) -> list[float]:
        """Returns tick values: 1, 2 or 5 times a power of ten."""
        if self.log:
            return _log_ticks(self.low, self.high)
        span = self.high - self.low
        if span <= 0 or not math.isfinite(span):
            return [self.low]
        power = 10.0 ** math.floor(math.log10(span / limit))
        step = next(power * m for m in (1, 2, 5, 10) if span / (power * m) <= limit)
        first = math.ceil(self.low / step - 1e-9)
        return [(first + i) * step for i in range(math.floor(self.high / step + 1e-9) - first + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    digits = (1, 2, 5) if last - first <= 3 else (1,)
    every = max(1, (last - first) // 6)
    marks = [m * 10.0**p for p in range(first, last + 1, every) for m in digits]
    return [mark for mark in marks if low <= mark <= high] or [low]


def _value_axis(values: Sequence[float], *, log: bool) -> _Axis:
    low, high = min(values), max(values)
    room = (high - low) * 0.04
    if not log and math.isfinite(room):
        low, high = low - room, high + room
    return _Axis(low, high, _HEIGHT - _BOTTOM, _TOP, log)


def _layer_svg(styled: Sequence[tuple[str, _Curve, list[_Point]]], x_axis: _Axis, y_axis: _Axis) -> str:
    marks = []
    for y in y_axis.ticks(5):
        at = f"{y_axis(y):.1f}"
        marks.append(f'<path class=grid d="M{_LEFT},{at}H{_WIDTH - _RIGHT}"/>')
        marks.append(f'<text class=y x="{_LEFT - 6}" y="{at}">{format_number(y)}</text>')
    for x in x_axis.ticks(6):
        marks.append(f'<text class=x x="{x_axis(x):.1f}" y="{_HEIGHT - _BOTTOM + 18}">{x:,.10g}</text>')
    marks.append(f'<text class=x x="{(_LEFT + _WIDTH) / 2}" y="{_HEIGHT - 3}">step</text>')
    for color, curve, smoothed in styled:
        kind = " raw" if smoothed else ""
        marks.append(f'<path class="curve {color}{kind}" d="{_svg_path(curve.points, x_axis, y_axis)}"/>')
        if smoothed:
            marks.append(f'<path class="curve {color} even" d="{_svg_path(smoothed, x_axis, y_axis)}"/>')
        if len(curve.points) <= 50:
            dots = (f'<circle cx="{x_axis(x):.1f}" cy="{y_axis(y):.1f}" r="3"/>' for x, y in curve.finite)
            marks.append(f'<g class="dots {color}">{"".join(dots)}</g>')
    return f"<g class={'log' if y_axis.log else 'linear'}>{''.join(marks)}</g>"


def _colors(curves: Iterable[_Curve]) -> list[str]:
    """Returns the CSS class of each curve; training and validation have the same color in every chart."""
    others = count()
    return [_COLORS.get(curve.name) or f"s{2 + next(others) % 4}" for curve in curves]


def _svg_path(points: Iterable[_Point], x_axis: _Axis, y_axis: _Axis) -> str:
    commands, pen = [], "M"
    for x, y in points:
        if math.isfinite(y) and (y > 0 or not y_axis.log):
            commands.append(f"{pen}{x_axis(x):.1f},{y_axis(y):.1f}")
            pen = "L"
        else:
            pen = "M"
    return "".join(commands)


def _checkbox(name: str, kind: str, label: str, checked: bool) -> str:
    state = " checked" if checked else ""
    return f"<input type=checkbox id={name} class={kind}{state}><label for={name}>{label}</label>"


def _describe_curve(curve: _Curve) -> str:
    """Describes a curve: last, lowest and highest value, and values that are not finite."""
    finite = curve.finite
    if not finite:
        return "no finite values"
    low, high = min(finite, key=_height), max(finite, key=_height)
    ends = f"lowest {format_number(low[1])} at step {low[0]:,}, highest {format_number(high[1])} at step {high[0]:,}"
    description = f"last {format_number(curve.points[-1][1])}, {ends}"
    missing = [x for x, y in curve.points if not math.isfinite(y)]
    return description + (f"; {len(missing):,} not finite, the first at step {missing[0]:,}" if missing else "")


_MAX_ROWS, _MAX_LINE_CHARACTERS, _MAX_MODEL_CHARACTERS, _MAX_CHARTS, _MAX_CURVES = 500, 300, 20_000, 24, 8
_OPTION_KEYS = ("recipe", "options", "defaults", "model")
"""Keys of `config.json` that hold options. The others describe the environment."""
_OTHER_RESULTS = ("summary", "lead_figures", "warnings", "columns", "steps", "seconds")
"""Keys of `results.json` that are not metrics."""
_COUNTS = ("examples", "tokens", "texts", "pairs")
"""Keys of `results.json` with the size of each split."""
_TEXT_RESULTS = ("summary", "lead_figures", "warnings", "columns")
"""Keys of `results.json` that the report shows outside the table of results."""


_TIE = 1e-3
"""Relative difference of values without a confidence interval below which neither is called better."""


def compare_with_baselines(
    metric: str,
    value: float | Mapping[str, float],
    baselines: Mapping[str, float | Mapping[str, float]],
    *,
    higher_is_better: bool,
    model: str = "the model",
) -> str:
    """Returns a sentence that says whether the model or a baseline is better.

    A recipe returns the sentence as `results["summary"]`; the report starts with it. Baselines that are not finite are
    left out. Values without an interval that differ by less than 0.1 % nearly tie.

    Args:
        metric: Name of the metric, with its unit, such as `test accuracy`.
        value: Value of the model, or a mapping with `value`, `low` and `high`.
        baselines: Value of each baseline, in the same form.
        higher_is_better: Whether the largest value wins.
        model: Name of the model.

    Examples:
        >>> accuracy = {"value": 0.95, "low": 0.91, "high": 0.97}
        >>> compare_with_baselines("test accuracy", accuracy, {"logistic regression": 0.9}, higher_is_better=True)
        'The model beats logistic regression in test accuracy: 0.95 (0.91 to 0.97) against 0.9.'
        >>> compare_with_baselines("test error", 3.0, {"mean": 4.0, "last value": 2.5}, higher_is_better=False)
        'The baseline last value beats the model in test error: 2.5 against 3; lower is better.'
    """
    spread = f" ({_interval(value)})" if _interval(value) else ""
    own, others = _number_of(value), {name: _number_of(v) for name, v in baselines.items()}
    others = {name: v for name, v in others.items() if math.isfinite(v)}
    direction = "" if higher_is_better else "; lower is better"
    if not math.isfinite(own):
        return f"{_capitalize(model)} has no finite {metric}."
    if not others:
        return f"{_capitalize(model)} has {metric} {_format(own)}{spread}{direction}."
    best = (max if higher_is_better else min)(others, key=lambda name: others[name])
    score, rival, name = f"{_format(own)}{spread}", _format(others[best]), _capitalize(model)
    if _format(own) == rival:
        return f"{name} and {best} tie: both have {metric} {score}{direction}."
    if not spread and math.isclose(own, others[best], rel_tol=_TIE):
        return f"{name} and {best} nearly tie in {metric}: {score} against {rival}{direction}."
    if (own > others[best]) != higher_is_better:
        sentence = f"The baseline {best} beats {model} in {metric}: {rival} against {score}{direction}."
    elif len(others) == 1:
        sentence = f"{name} beats {best} in {metric}: {score} against {rival}{direction}."
    else:
        sentence = (
            f"{_capitalize(model)} beats every baseline in {metric}: {score} against {rival} of {best}{direction}."
        )
    within = isinstance(value, Mapping) and spread and value["low"] <= others[best] <= value["high"]
    return sentence + (" The difference is within the confidence interval." if within else "")


def _number_of(value: Any) -> float:
    """Returns the number of a result, NaN if there is none."""
    number = _as_number(value.get("value") if isinstance(value, Mapping) else value)
    return math.nan if number is None else number


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


def write_report(run: Run, verdicts: Iterable[Verdict] = ()) -> Path:
    """Writes `report.html` of a run: results, learning curves, figures, samples, laws and options.

    All content is escaped. A content security policy forbids other scripts and network access.

    Args:
        run: The run.
        verdicts: Verdicts on the laws of the trained model.

    Returns:
        Path of the report.
    """
    metrics, results, verdicts = run.metrics, run.results, tuple(verdicts)
    title = f"{run.config.get('recipe') or 'Training'} · {run.path.name}"
    lead = _lead_figures(results)
    parts = {
        "Results": _results_html(results),
        "Columns": _columns_html(results),
        "Learning curves": _curves_html(metrics, run.config, finished=bool(results)),
        "Figures": _folder_html(run.figures, root=run.root, without=lead),
        "Samples": _folder_html(run.samples, root=run.root),
        "Laws": _laws_html(verdicts),
        "Configuration": _configuration_html(run.config),
        "Environment": _pairs_html(
            _flatten({k: v for k, v in run.config.items() if k not in _OPTION_KEYS and v != ""})
        ),
        "Reproduce": _commands_html(run),
    }
    parts = {name: body for name, body in parts.items() if body}
    links = "".join(f'<li><a href="#{_anchor(name)}">{name}</a></li>' for name in parts)
    sections = "".join(f"<section><h2 id={_anchor(name)}>{name}</h2>{body}</section>" for name, body in parts.items())
    summary = _summary_html(results)
    outcome = f"{_outcome(metrics, results, metric=not summary)} {_describe_training(run.config, results)}".strip()
    head = f"<h1>{_escape(title)}</h1>{summary}<p>{_escape(outcome)}</p>"
    nav = f'<nav aria-label="Contents"><ul>{links}</ul></nav>'
    shown = [path for path in _list_files(run.figures, root=run.root) if path.name in lead]
    first = "".join(_images_html(sorted(shown, key=lambda path: lead.index(path.name)), [], root=run.root))
    first = f"<section class=lead aria-label='Main figures'>{first}</section>" if first else ""
    body = f"<header>{head}{_warnings_html(results)}{nav}</header><main>{first}{sections}</main>"
    return run.write("report.html", _page_html(_escape(title), body).encode("utf-8", "replace"))


def _page_html(title: str, body: str) -> str:
    here = Path(__file__)
    page, style, script = (here.with_suffix(kind).read_text("utf-8") for kind in (".html", ".css", ".js"))
    return Template(page).substitute(
        title=title, body=body, style=style, script=script, style_hash=_hash(style), script_hash=_hash(script)
    )


def _hash(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def _anchor(name: str) -> str:
    return name.lower().replace(" ", "-")


def _outcome(metrics: Sequence[Mapping[str, Any]], results: Mapping[str, Any], *, metric: bool = True) -> str:
    """Summarizes a run in one line.

    Examples:
        >>> _outcome([{"step": 500, "time": 75.0}], {"test": {"accuracy": {"value": 0.9, "low": 0.85, "high": 0.94}}})
        'Finished after 500 steps in 1:15: test accuracy 0.9 (0.85 to 0.94).'
        >>> _outcome([{"step": 500, "loss": 0.25}], {})
        'Stopped after 500 steps: loss 0.25.'
        >>> _outcome([{"step": 500}], {"test": {"accuracy": 0.9}}, metric=False)
        'Finished after 500 steps.'
    """
    if not metrics:
        return "Finished." if results else "Not started."
    last = metrics[-1]
    seconds = _as_number(results.get("seconds", last.get("time", "unknown")))
    how = f"{last['step']:,} steps" + (f" in {_format_duration(seconds)}" if seconds is not None else "")
    leaves = [(name, leaf) for name, leaf in _flatten(results).items() if name not in _OTHER_RESULTS]
    leaves.sort(key=lambda item: (not item[0].startswith("test"), not _interval(item[1])))
    name, leaf = (leaves or [("loss", last.get("loss"))])[0]
    spread = f" ({_interval(leaf)})" if _interval(leaf) else ""
    figure = (
        ""
        if leaf is None or not metric
        else f": {_truncate(name.replace('.', ' '))} {_truncate(_format(leaf))}{spread}"
    )
    return f"{'Finished after' if results else 'Stopped after'} {how}{figure}."


def _describe_training(config: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    """Describes the training data and the model.

    Examples:
        >>> config = {"options": {"data": "flowers.csv", "model": {"name": "mlp"}}}
        >>> _describe_training(config, {"examples": {"train": 108, "validation": 12, "test": 30}})
        'Data: flowers.csv, 108 train, 12 validation, 30 test examples. Model: mlp.'
        >>> _describe_training({}, {"tokens": {"train": 9000, "validation": 1000, "vocabulary": 65}})
        'Data: 9,000 train, 1,000 validation tokens.'
    """
    options = config.get("options")
    options = options if isinstance(options, Mapping) else {}
    data, model = options.get("data"), options.get("model")
    unit, counts = next(((unit, results[unit]) for unit in _COUNTS if isinstance(results.get(unit), Mapping)), ("", {}))
    numbers = [(name, counts.get(name)) for name in ("train", "validation", "test", "attacked")]
    texts = [f"{number:,} {name}" for name, number in numbers if type(number) is int and number]
    examples = f"{', '.join(texts)} {unit}" if texts else ""
    sentence = ", ".join(filter(None, [_truncate(data) if isinstance(data, str) else "", _truncate(examples)]))
    name = model.get("name") if isinstance(model, Mapping) else None
    named = f"Model: {_truncate(name)}." if isinstance(name, str) and name != "auto" else ""
    return f"{f'Data: {sentence}.' if sentence else ''} {named}".strip()


def _lead_figures(results: Mapping[str, Any]) -> list[str]:
    """Returns the names of the figures that are shown first."""
    names = results.get("lead_figures")
    names = names if isinstance(names, list) else []
    return [name for name in names if isinstance(name, str) and Path(name).name == name and "\0" not in name]


def _flatten(values: Any, prefix: str = "") -> dict[str, Any]:
    """Flattens nested mappings to dotted names. A value with its confidence interval stays together.

    Examples:
        >>> _flatten({"test": {"accuracy": {"value": 0.9, "low": 0.8, "high": 1.0}}, "steps": 3})
        {'test.accuracy': {'value': 0.9, 'low': 0.8, 'high': 1.0}, 'steps': 3}
    """
    found = {}
    for name, value in values.items() if isinstance(values, Mapping) else ():
        if isinstance(value, Mapping) and "value" not in value and value:
            found |= _flatten(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def _interval(leaf: Any) -> str:
    if isinstance(leaf, Mapping) and {"low", "high"} <= leaf.keys():
        return f"{_format(leaf['low'])} to {_format(leaf['high'])}"
    return ""


def _format(leaf: Any) -> str:
    if isinstance(leaf, Mapping) and "value" in leaf:
        return _format(leaf["value"])
    if isinstance(leaf, float):
        return format_number(leaf)
    return leaf if isinstance(leaf, str) else json.dumps(leaf, ensure_ascii=False, default=str)


def _rows_html(rows: Sequence[Sequence[str]], head: Sequence[str]) -> str:
    """Builds a table whose first column holds row headers."""
    top = "".join(f"<th scope=col>{_escape(cell)}</th>" for cell in head)
    body = "".join(
        f"<tr><th scope=row>{_escape(_truncate(first, limit=_MAX_LINE_CHARACTERS))}</th>"
        + "".join(f"<td>{_escape(_truncate(cell, limit=_MAX_LINE_CHARACTERS))}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows[:_MAX_ROWS]
    )
    more = f"<p class=note>{len(rows) - _MAX_ROWS:,} more rows.</p>" if len(rows) > _MAX_ROWS else ""
    return f"<div class=wide><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>{more}"


def _results_html(results: Mapping[str, Any]) -> str:
    leaves = {name: leaf for name, leaf in _flatten(results).items() if name not in _TEXT_RESULTS}
    if not leaves:
        return "<p>No results yet.</p>"
    if any(map(_interval, leaves.values())):
        rows = [(name, _format_result(leaf), _interval(leaf)) for name, leaf in leaves.items()]
        return _rows_html(rows, ("metric", "value", "confidence interval"))
    return _rows_html([(name, _format_result(leaf)) for name, leaf in leaves.items()], ("metric", "value"))


def _format_result(leaf: Any) -> str:
    return f"{leaf:,}" if type(leaf) is int else _format(leaf)


def _columns_html(results: Mapping[str, Any]) -> str:
    """Shows how each column of the data is used."""
    found = results.get("columns")
    rows = [row for row in found if isinstance(row, Mapping) and row] if isinstance(found, list) else []
    if not rows:
        return ""
    return _rows_html([[_format(value) for value in row.values()] for row in rows], [str(key) for key in rows[0]])


def _summary_html(results: Mapping[str, Any]) -> str:
    """Shows the sentences of `results["summary"]`."""
    text = results.get("summary")
    return f"<p class=outcome>{_escape(_truncate(text, limit=2000))}</p>" if isinstance(text, str) and text else ""


def _warnings_html(results: Mapping[str, Any]) -> str:
    found = results.get("warnings") or []
    messages = list(map(_format, found)) if isinstance(found, list) else [_format(found)]
    items = "".join(f"<p>{_escape(_truncate(item, limit=2000))}</p>" for item in messages[:_MAX_ROWS])
    return f'<section class=warnings aria-label="Warnings"><h2>Warnings</h2>{items}</section>' if items else ""


def _curves_html(metrics: Sequence[Mapping[str, Any]], config: Mapping[str, Any], *, finished: bool) -> str:
    found = list(_charts(metrics).items())
    if not found:
        return "" if finished else "<p>No metrics yet.</p>"
    charts = [_chart_html(name, curves[:_MAX_CURVES], number=i) for i, (name, curves) in enumerate(found[:_MAX_CHARTS])]
    left = [name for name, _ in found[_MAX_CHARTS:]] + [
        name for name, curves in found[:_MAX_CHARTS] if len(curves) > _MAX_CURVES
    ]
    if left:
        charts.append(f"<p class=note>Not shown: {_escape(_truncate(', '.join(left), limit=2000))}.</p>")
    differences = _curve_differences(config) if any(len(curves) > 1 for _, curves in found) else ""
    return (f"<p class=note>{differences}</p>" if differences else "") + "".join(charts)


_AUGMENTATIONS = {"noise_std", "random_shift", "random_flip", "cutout"}
"""Options that augment training examples."""


def _curve_differences(config: Mapping[str, Any]) -> str:
    """Explains why training and validation curves differ even on the same data.

    Examples:
        >>> _curve_differences({"options": {"ema_decay": 0.99, "model": {"dropout": 0.1}}})
        'Training values have dropout; validation values are of averaged weights.'
    """
    options = _flatten(config.get("options"))
    used = {name.rpartition(".")[2] for name, value in options.items() if isinstance(value, int | float) and value > 0}
    training = ["dropout"] if any(name.endswith("dropout") for name in used - {"label_dropout"}) else []
    training += ["augmentation"] if used & _AUGMENTATIONS else []
    texts = [f"training values have {' and '.join(training)}"] if training else []
    texts += ["validation values are of averaged weights"] if "ema_decay" in used else []
    return f"{_capitalize('; '.join(texts))}." if texts else ""


def _laws_html(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return ""
    total = Report(tuple(verdicts), seconds=sum(v.seconds for v in verdicts))
    return f"<p>{_escape(report_summary(total))}</p>" + "".join(map(_law_html, verdicts))


def _law_html(verdict: Verdict) -> str:
    status = _escape(verdict.status)
    line = f"<span class='status {status}'>{status}</span> {_escape(verdict_line(verdict))}"
    lines = [verdict.formula, *(line for line in verdict_details(verdict) if line != verdict.formula)]
    state = " open" if verdict.failed else ""
    return f"<details{state}><summary>{line}</summary><pre>{_escape(chr(10).join(lines))}</pre></details>"


def _configuration_html(config: Mapping[str, Any]) -> str:
    options, defaults = _flatten(config.get("options")), _flatten(config.get("defaults"))
    changed = _changed_options(config)
    same = {name: value for name, value in options.items() if name not in changed}
    body = ""
    if defaults:
        rows = [(name, _format(value), _format(defaults.get(name, ""))) for name, value in changed.items()]
        body = _rows_html(rows, ("option", "value", "default")) if rows else "<p>All options have their defaults.</p>"
        body += f"<details><summary>Options with default values</summary>{_pairs_html(same)}</details>" if same else ""
    elif options:
        body = _pairs_html(options)
    model = config.get("model")
    if model:
        text = model if isinstance(model, str) else json.dumps(model, indent=2, ensure_ascii=False, default=str)
        text = _escape(_truncate(text, limit=_MAX_MODEL_CHARACTERS))
        body += f"<details><summary>Model</summary><pre>{text}</pre></details>"
    return body


def _pairs_html(values: Mapping[str, Any]) -> str:
    return _rows_html([(name, _format(value)) for name, value in values.items()], ("name", "value")) if values else ""


def _changed_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options that differ from the defaults, or all if the defaults are unknown."""
    options, defaults = _flatten(config.get("options")), _flatten(config.get("defaults"))
    return {name: value for name, value in options.items() if name not in defaults or defaults[name] != value}


def _train_command(config: Mapping[str, Any]) -> str:
    """Returns the command that repeats the training.

    Examples:
        >>> _train_command({"recipe": "classify", "options": {"hidden_dims": [64, 32], "data": "my table.csv"}})
        "lawful train classify --hidden-dims 64 32 --data 'my table.csv'"
    """
    return shlex.join(["lawful", "train", str(config.get("recipe")), *_flags(_changed_options(config))])


def _flags(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        parent, _, last = name.replace("_", "-").rpartition(".")
        flag = parent.rpartition(".")[2] if parent and last == "name" else last  # the name of a union's member
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
            continue
        yield f"--{flag}"
        yield from map(str, value) if isinstance(value, list | tuple) else (str(value),)


def _commands_html(run: Run) -> str:
    path = str(run.path)
    if run.config.get("recipe") is None:
        commands = [("Resume this run in Python, with the same setup:", f"lawful.train(setup, resume={path!r})")]
    else:
        commands = [
            ("Train again:", _train_command(run.config)),
            ("Resume this run:", shlex.join(["lawful", "train", "--resume", path])),
        ]
    return "".join(
        f"<p>{title}</p><pre>{_escape(_truncate(text, limit=_MAX_MODEL_CHARACTERS))}</pre>" for title, text in commands
    )
