"""The report of a run: one page that opens from disk, with nothing from elsewhere."""

from __future__ import annotations

import json
import shlex
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from lawful.checking.show import details, number, one_line, summary
from lawful.checking.verdict import Report, Verdict
from lawful.training.shown.characters import duration
from lawful.training.shown.curves import as_number, charts
from lawful.training.shown.drawing import chart
from lawful.training.shown.media import safe, short, shown
from lawful.training.storage import files

if TYPE_CHECKING:
    from lawful.training.run import Run

ROWS, LONG, MODEL, CHARTS, CURVES = 500, 300, 20_000, 24, 8
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
        for first, *rest in rows[:ROWS]
    )
    more = f"<p class=note>{len(rows) - ROWS:,} more are not shown.</p>" if len(rows) > ROWS else ""
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
    items = "".join(f"<p>{safe(short(item, most=2000))}</p>" for item in said[:ROWS])
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
    line = f"<span class='grade {safe(verdict.grade)}'>{safe(verdict.grade)}</span> {safe(one_line(verdict))}"
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
