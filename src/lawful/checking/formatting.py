"""Verdicts and reports as text, and as SARIF for code hosts."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lawful._names import printable, quote
from lawful.checking.verdict import Counterexample, Report, TensorValue, Verdict

STATUS_COLORS = {
    "held": "green",
    "refuted": "red",
    "error": "red",
    "vacuous": "yellow",
    "inapplicable": "yellow",
    "waived": "cyan",
}

_HTML_COLORS = {"green": "#1a7f37", "red": "#cf222e", "yellow": "#9a6700", "cyan": "#0969da"}

_SIDES = {"changed": ("before", "after"), "exceeds": ("lower side", "upper side")}


def format_number(x: float | None) -> str:
    """Formats a number with four digits; "-" for None.

    Examples:
        >>> format_number(0.123456), format_number(61577.3), format_number(8.389e6)
        ('0.1235', '61,580', '8.389e+06')
    """
    text = "-" if x is None else f"{x:.4g}"
    return f"{float(text):,.0f}" if text.endswith(("e+04", "e+05")) else text


def format_value(value: Any) -> str:
    """Formats a float with four digits, and anything else with `str`."""
    return format_number(value) if isinstance(value, float) else str(value)


def format_pair(x: float | None, y: float | None) -> tuple[str, str]:
    """Formats two numbers with at least four digits, and more if they would look equal."""
    for digits in range(4, 18) if x is not None and y is not None else ():
        texts = f"{x:.{digits}g}", f"{y:.{digits}g}"
        if texts[0] != texts[1]:
            return texts
    return format_number(x), format_number(y)


def format_report(report: Report) -> str:
    """Formats all verdicts and the summary."""
    return "\n".join([*map(format_verdict, report.verdicts), report_summary(report)])


def report_summary(report: Report) -> str:
    """Returns the number of verdicts of each status, and the time."""
    counts = Counter(str(v.status) for v in report.verdicts)
    counts_of_status = [f"{counts[status]} {status}" for status in STATUS_COLORS if counts[status]]
    if stopped := sum(v.timed_out for v in report.verdicts if v.status == "held"):
        counts_of_status[0] += f" ({stopped} timed out)"  # held comes first
    text = ", ".join(counts_of_status)
    return f"{text or 'nothing was checked'} in {report.seconds:.1f} s"


def format_verdict(verdict: Verdict) -> str:
    """Formats a verdict with its details on the lines below."""
    lines = [f"{verdict.status:<12} {verdict_line(verdict)}", *(f"    {line}" for line in verdict_details(verdict))]
    return "\n".join(lines)


def _verdicts_html(verdicts: Iterable[Verdict], *, caption: str = "") -> str:
    """Formats verdicts as an HTML table with escaped text, for notebooks.

    Args:
        verdicts: The verdicts.
        caption: Text below the table.
    """
    rows = []
    for verdict in verdicts:
        details = "\n".join(verdict_details(verdict))
        facts = html.escape(_verdict_facts(verdict))
        below = f'<pre style="margin: 0; text-align: left">{html.escape(details)}</pre>' if details else ""
        color = _HTML_COLORS[STATUS_COLORS[verdict.status]]
        rows.append(
            f'<tr style="vertical-align: top"><td style="color: {color}"><b>{verdict.status}</b></td>'
            f'<td style="text-align: left">{html.escape(verdict.target)}</td>'
            f'<td style="text-align: left"><code>{html.escape(verdict.law)}</code></td>'
            f'<td style="text-align: left">{facts}{below}</td></tr>'
        )
    head = "<tr><th></th><th>target</th><th>law</th><th>details</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>" + (
        f"<p>{html.escape(caption)}</p>" if caption else ""
    )


def verdict_line(verdict: Verdict) -> str:
    """Returns the verdict in one line, without its status and without control characters.

    Further lines of a message are indented.
    """
    return f"{quote(verdict.target)}  {quote(verdict.law)}  {printable(_verdict_facts(verdict))}".rstrip()


def _verdict_facts(verdict: Verdict) -> str:
    """Returns the facts of a law that held, and otherwise the reason."""
    if verdict.status == "held":
        facts = [f"{verdict.cases} cases"]
        if verdict.timed_out:
            facts = [f"held in {verdict.cases} of {verdict.requested_cases} cases (timed out)"]
        if verdict.largest_sizes:
            facts.append("sizes up to " + ", ".join(f"{name}={n}" for name, n in verdict.largest_sizes.items()))
        facts += _varied_inputs(verdict)
        if verdict.worst is not None:
            facts.append(f"largest residual {format_number(verdict.worst)} × noise")
        return ", ".join(facts)
    return verdict.reason + (" (timed out)" if verdict.timed_out else "") if verdict.reason else ""


def verdict_details(verdict: Verdict) -> list[str]:
    """Returns the lines below a verdict, without control characters: formula, counterexample and notes."""
    lines = []
    if verdict.status == "refuted":
        lines.append(verdict.formula)
    if verdict.counterexample is not None:
        lines += _counterexample_lines(verdict.counterexample, verdict.cases)
        lines += _varied_inputs(verdict)
    lines += [f"note: {note}" for note in verdict.notes]
    return [printable(line) for line in lines]


def _varied_inputs(verdict: Verdict) -> list[str]:
    """Returns a phrase that names the varied inputs, if the target has several."""
    if len(verdict.inputs) < 2 or not verdict.varied:
        return []
    *others, last = verdict.varied
    return ["varied " + (f"{', '.join(others)} and {last}" if others else last)]


def counterexample_summary(verdict: Verdict) -> str:
    """Returns a counterexample in one line: shapes of the inputs, choices of the law, and both sides."""
    found = verdict.counterexample
    if found is None:
        return verdict.reason
    parts = [f"{value.name} {list(value.shape)}" for value in found.inputs]
    parts += [f"{name} = {format_value(value)}" for name, value in found.choices.items()]
    if found.left is None or found.right is None:
        return f"{', '.join(parts)}: {verdict.reason or found.kind}"
    left, right = format_pair(found.left, found.right)
    relation = ">" if found.kind == "exceeds" else "≠"
    return f"{', '.join(parts)}: {_entry_name(found)} {left} {relation} {right}"


def _counterexample_lines(found: Counterexample, cases: int) -> list[str]:
    lines = [_tensor_line(value) for value in (*found.inputs, *found.drawn)]
    if found.choices:
        lines.append("with     " + ", ".join(f"{name} = {format_value(v)}" for name, v in found.choices.items()))
    entry, noise = _entry_name(found), format_number(found.noise)
    if found.kind == "not finite":
        value = found.left if found.left is not None and not math.isfinite(found.left) else found.right
        lines.append(f"{entry} is {format_number(value)}")
    elif found.kind == "wrong distribution":
        lines.append(f"distance of the distribution functions {format_number(found.residual64)}, allowed {noise}")
    elif found.kind == "wrong mean":
        left, right = format_pair(found.left, found.right)
        lines.append(f"mean of the samples {left}, expected {right} ± {noise}")
    elif found.left is not None:
        left, right = _SIDES.get(found.kind, ("left side", "right side"))
        values = format_pair(found.left, found.right)
        lines.append(f"{entry}: {left} {values[0]}, {right} {values[1]}")
        if found.noise_ratio is not None:
            residuals = f"float64 {format_number(found.residual64)}, float32 {format_number(found.residual32)}"
            lines.append(f"residual {residuals}; {format_number(found.noise_ratio)} × the noise floor of {noise}")
    origin = [f"case {found.case} of {cases}" if found.case else "", found.mode, *found.settings]
    lines.append("found in " + ", ".join(filter(None, origin)))
    return lines


def _entry_name(found: Counterexample) -> str:
    """Returns the name and index of the entry with the largest difference."""
    what = "input" if found.kind == "changed" else "output"
    name = found.name or f"{what}{f' {found.output}' if found.output else ''}"
    return name + (str(list(found.index)) if found.index else "")


def _tensor_line(value: TensorValue) -> str:
    """Formats a tensor: its shape, and all entries if it is small, or those that are not zero if it is sparse."""
    head = f"{value.name:<8} {value.dtype} {list(value.shape)}"
    if value.values is None:
        return head
    entries = list(_entries(value.values))
    if value.name.endswith("'"):  # a changed input: NaN stands for an unchanged entry
        changed = [(i, x) for i, x in entries if not (isinstance(x, float) and math.isnan(x)) and x != "nan"]
        return f"{head} = {value.name[:-1]}" + (f" except {_list_entries(changed)}" if changed else "")
    common = max((x for _, x in entries), key=[x for _, x in entries].count) if len(entries) <= 40 else 0
    common = common if len(entries) > 4 else 0
    shown = "zero" if common == 0 and common is not False else format_value(common)
    others = [(i, x) for i, x in entries if x != common]
    if not others:
        return f"{head}, all {shown}"
    if len(entries) > 4 and len(others) <= max(1, len(entries) // 4):
        return f"{head}, {shown} except {_list_entries(others)}"
    if len(entries) <= 40:
        return f"{head} = {_format_nested(value.values)}"
    return f"{head}, with {_list_entries(others)}"


def _entries(values: Any, index: tuple[int, ...] = ()) -> Any:
    if isinstance(values, list):
        for n, part in enumerate(values):
            yield from _entries(part, (*index, n))
    else:
        yield index, values


def _list_entries(entries: list[tuple[tuple[int, ...], Any]], limit: int = 6) -> str:
    shown = ", ".join(f"{list(i) if i else ''} = {format_value(x)}" for i, x in entries[:limit])
    return shown + (f" and {len(entries) - limit} more" if len(entries) > limit else "")


def _format_nested(values: Any) -> str:
    if isinstance(values, list):
        return "[" + ", ".join(map(_format_nested, values)) + "]"
    return format_value(values)


def to_sarif(verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """Returns a SARIF 2.1.0 log with one result for each verdict."""
    failed = list(verdicts)
    rules = {_rule(v): {"id": _rule(v), "shortDescription": {"text": v.formula or _rule(v)}} for v in failed}
    driver = {"name": "lawful", "rules": list(rules.values())}
    run = {"tool": {"driver": driver}, "results": [_sarif_result(verdict) for verdict in failed]}
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}


def _rule(verdict: Verdict) -> str:
    return verdict.law.partition("(")[0]


def _sarif_result(verdict: Verdict) -> dict[str, Any]:
    text = "\n".join([f"{verdict.status}: {verdict_line(verdict)}", *verdict_details(verdict)])
    result: dict[str, Any] = {"ruleId": _rule(verdict), "level": "error", "message": {"text": text}}
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": verdict.target}]}
    result["locations"] = [location]
    if verdict.file:
        path = Path(verdict.file)
        near = path.is_relative_to(Path.cwd())
        uri = path.relative_to(Path.cwd()).as_posix() if near else path.as_uri()
        region = {"startLine": max(1, verdict.line)}
        location["physicalLocation"] = {"artifactLocation": {"uri": uri}, "region": region}
    return result
