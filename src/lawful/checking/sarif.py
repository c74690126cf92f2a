"""Reports in SARIF, the format in which code hosts take the results of analyses."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lawful.checking.show import details, one_line
from lawful.checking.verdict import Verdict


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
    text = "\n".join([f"{verdict.grade}: {one_line(verdict)}", *details(verdict)])
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
