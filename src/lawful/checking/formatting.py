"""Verdicts as text: one line each, and a block for every counterexample.

Reports in SARIF, the format in which code hosts take the results of analyses.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lawful.checking.verdict import Counterexample, Report, Value, Verdict

COLOURS = {
    "held": "green",
    "refuted": "red",
    "error": "red",
    "vacuous": "yellow",
    "inapplicable": "yellow",
    "waived": "cyan",
}

_SIDES = {
    "changed": ("before", "after"),
    "exceeds": ("lower", "upper"),
    "does not follow": ("samples", "density"),
}


def number(x: float | None) -> str:
    """Writes a number in four digits."""
    return "-" if x is None else f"{x:.4g}"


def pair(x: float | None, y: float | None) -> tuple[str, str]:
    """Writes two numbers in as many digits as it takes to tell them apart, at least four."""
    for digits in range(4, 18) if x is not None and y is not None else ():
        texts = f"{x:.{digits}g}", f"{y:.{digits}g}"
        if texts[0] != texts[1]:
            return texts
    return number(x), number(y)


def one_line(verdict: Verdict) -> str:
    """The verdict in a line, without its status."""
    said = [f"{verdict.target}  {verdict.law}"]
    if verdict.status == "held":
        worst = f", worst residual {number(verdict.worst)} × noise" if verdict.worst is not None else ""
        said.append(f"{verdict.cases} cases{worst}")
    elif verdict.reason:
        said.append(verdict.reason)
    if verdict.rtol is not None and verdict.status in ("held", "refuted"):
        said.append(f"rtol {verdict.rtol:g}")
    return "  ".join(said)


def details(verdict: Verdict) -> list[str]:
    """The lines below a verdict: the formula and the counterexample, and what is to be known about the judgement."""
    lines = []
    if verdict.status == "refuted":
        lines.append(verdict.formula)
    if verdict.counterexample is not None:
        lines += counterexample_lines(verdict.counterexample, verdict.cases)
    lines += [f"note: {note}" for note in verdict.notes]
    return lines


def counterexample_lines(found: Counterexample, cases: int) -> list[str]:
    """The smallest case, the entry where both sides differ most, and how it was found."""
    lines = []
    for value in (*found.inputs, *found.drawn):
        lines += value_lines(value)
    if found.bindings:
        lines.append("with     " + ", ".join(f"{name} = {short(v)}" for name, v in found.bindings.items()))
    place = placed(found)
    if found.kind == "not finite":
        lines.append(f"{place} is {number(found.left if _odd(found.left) else found.right)}: not finite")
    elif found.kind == "does not follow":
        lines.append(
            f"distance {number(found.residual64)} between the distributions, where chance allows {number(found.noise)}"
        )
    elif found.kind == "averages otherwise":
        lines.append(
            f"the samples average {number(found.left)}, not {number(found.right)}: chance allows {number(found.noise)}"
        )
    elif found.left is not None:
        left, right = _SIDES.get(found.kind, ("left", "right"))
        shown = pair(found.left, found.right)
        lines.append(f"{place}: {left} {shown[0]}, {right} {shown[1]}")
        if found.times is not None:
            lines.append(f"         {number(found.times)} times the noise floor of {number(found.noise)}")
            lines.append(f"residual float64 {number(found.residual64)}, float32 {number(found.residual32)}")
    how = [f"case {found.case} of {cases}" if found.case else "", found.mode, *found.setting]
    lines.append("found in " + ", ".join(filter(None, how)))
    return lines


def placed(found: Counterexample) -> str:
    """Names the entry at which the two sides differ most."""
    what = "input" if found.kind == "changed" else "output"
    place = found.name or f"{what}{f' {found.output}' if found.output else ''}"
    return place + (str(list(found.index)) if found.index else "")


def _odd(x: float | None) -> bool:
    return x is not None and not math.isfinite(x)


def short(value: Any) -> str:
    """Writes a number in four digits, and anything else as it is."""
    return number(value) if isinstance(value, float) else str(value)


def value_lines(value: Value) -> list[str]:
    """A tensor: its shape, and its entries, or those that are not zero where most are."""
    head = f"{value.name:<8} {value.dtype} {list(value.shape)}"
    if value.values is None:
        return [head]
    entries = list(_entries(value.values))
    kept = [(i, x) for i, x in entries if not (isinstance(x, float) and math.isnan(x)) and x != "nan"]
    if value.name.endswith("'"):
        return [f"{head} = {value.name[:-1]} but for {_listed(kept)}" if kept else f"{head} = {value.name[:-1]}"]
    unlike = [(i, x) for i, x in entries if x != 0]
    if not unlike:
        return [f"{head}, all zero"]
    if len(entries) > 4 and len(unlike) <= max(1, len(entries) // 4):
        return [f"{head}, zero but for {_listed(unlike)}"]
    if len(entries) <= 40:
        return [f"{head} = {_nested(value.values)}"]
    return [f"{head}, with {_listed(unlike)}"]


def _entries(values: Any, index: tuple[int, ...] = ()) -> Any:
    if isinstance(values, list):
        for n, part in enumerate(values):
            yield from _entries(part, (*index, n))
    else:
        yield index, values


def _listed(entries: list[tuple[tuple[int, ...], Any]], most: int = 6) -> str:
    shown = ", ".join(f"{list(i) if i else ''} = {short(x)}" for i, x in entries[:most])
    return shown + (f" and {len(entries) - most} more" if len(entries) > most else "")


def _nested(values: Any) -> str:
    if isinstance(values, list):
        return "[" + ", ".join(map(_nested, values)) + "]"
    return short(values)


def verdict_text(verdict: Verdict) -> str:
    """A verdict with its details below it."""
    return "\n".join([f"{verdict.status:<12} {one_line(verdict)}", *(f"    {line}" for line in details(verdict))])


def summary(report: Report) -> str:
    """The counts of all grades, and how long it took."""
    counts = Counter(str(v.status) for v in report.verdicts)
    said = ", ".join(f"{counts[status]} {status}" for status in COLOURS if counts[status])
    return f"{said or 'nothing was checked'} in {report.seconds:.1f} s"


def report_text(report: Report) -> str:
    """All verdicts and their summary."""
    return "\n".join([*map(verdict_text, report.verdicts), summary(report)])


def sarif(verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """Returns a SARIF 2.1.0 log with a result for each of the verdicts, which are those that failed."""
    failed = list(verdicts)
    rules = {_rule(v): {"id": _rule(v), "shortDescription": {"text": v.formula or _rule(v)}} for v in failed}
    driver = {"name": "lawful", "rules": list(rules.values())}
    run = {"tool": {"driver": driver}, "results": [_result(verdict) for verdict in failed]}
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}


def _rule(verdict: Verdict) -> str:
    return verdict.law.partition("(")[0]


def _result(verdict: Verdict) -> dict[str, Any]:
    text = "\n".join([f"{verdict.status}: {one_line(verdict)}", *details(verdict)])
    result: dict[str, Any] = {"ruleId": _rule(verdict), "level": "error", "message": {"text": text}}
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": verdict.target}]}
    result["locations"] = [location]
    if verdict.file:
        path = Path(verdict.file)
        near = path.is_relative_to(Path.cwd())
        uri = path.relative_to(Path.cwd()).as_posix() if near else path.as_uri()
        where = {"artifactLocation": {"uri": uri}, "region": {"startLine": max(1, verdict.line)}}
        location["physicalLocation"] = where
    return result
