"""Verdicts, reports and discoveries: plain data that prints as text and converts to and from JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from lawful._files import write_file
from lawful._names import printable, quote

Status = Literal["held", "refuted", "vacuous", "inapplicable", "waived", "error"]

_FAILED: tuple[Status, ...] = ("refuted", "error")


class LawRefuted(AssertionError):
    """Raised if laws are refuted or cannot be checked; the message contains the verdicts."""

    def __init__(self, *verdicts: Verdict) -> None:
        super().__init__("\n\n".join(map(str, verdicts)))
        self.verdicts = verdicts


@dataclass(frozen=True)
class TensorValue:
    """A tensor of a counterexample: its values as nested lists, or None if there are too many to print."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    values: Any


@dataclass(frozen=True)
class Counterexample:
    """The smallest case found that breaks a law."""

    kind: str
    """Kind of failure: "differs", "exceeds", "not finite", "changed", "shapes differ", "wrong distribution",
    "wrong mean", or "raised" for an error."""
    inputs: tuple[TensorValue, ...]
    drawn: tuple[TensorValue, ...] = ()
    """Tensors that the law drew: replaced values, a direction, a group element."""
    choices: Mapping[str, Any] = field(default_factory=dict)
    """Named choices of the law, such as a position."""
    output: int = 0
    """Index of the compared tensor, if the law compares several."""
    name: str = ""
    """Name of the compared tensor, if the law names them."""
    index: tuple[int, ...] = ()
    """Entry with the largest difference."""
    left: float | None = None
    right: float | None = None
    residual64: float | None = None
    residual32: float | None = None
    noise: float | None = None
    """Noise floor: the measured effect of rounding."""
    noise_ratio: float | None = None
    """The residual divided by the noise floor."""
    mode: str = ""
    settings: tuple[str, ...] = ()
    case: int = 0
    """Number of the first case that failed."""


@dataclass(frozen=True)
class Script:
    """A standalone reproduction script: all values as literals, or large tensors in a file next to it."""

    text: str
    short_text: str = ""
    tensors: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def write(self, path: Path | str) -> None:
        """Writes the script and, if it has large tensors, a safetensors file next to it."""
        path = Path(path)
        if not self.tensors:
            write_file(path, self.text)
            return
        from safetensors.torch import save

        beside = str(path).removesuffix(".py") + ".safetensors"
        write_file(beside, save({name: x.contiguous() for name, x in self.tensors.items()}))
        write_file(path, self.short_text)


@dataclass(frozen=True)
class Verdict:
    """The result for one law and one target."""

    status: Status
    law: str
    formula: str
    target: str
    reason: str = ""
    cases: int = 0
    """Number of cases that were tried; for a failure, the number of requested cases."""
    requested_cases: int = 0
    timed_out: bool = False
    """Whether the time limit ended the search before all requested cases were tried."""
    worst: float | None = None
    """Largest residual of a law that held, divided by the noise floor."""
    rtol: float | None = None
    inputs: tuple[str, ...] = ()
    """Names of the inputs of the target."""
    varied: tuple[str, ...] = ()
    """Names of the inputs that differed between the calls of a case; the others were the same in all of them."""
    largest_sizes: Mapping[str, int] = field(default_factory=dict)
    """Largest size that was tried, for each letter of the inputs."""
    notes: tuple[str, ...] = ()
    counterexample: Counterexample | None = None
    seconds: float = 0.0
    usage_error: bool = False
    """Whether an error comes from the request: an unknown law or parameter, or one that does not fit."""
    file: str = ""
    """File that defines the target, if known."""
    line: int = 0
    traceback: str = field(default="", repr=False, compare=False)
    make_script: Callable[[], Script] | None = field(default=None, repr=False, compare=False)
    """Builds the reproduction script; `script` calls it."""

    @property
    def failed(self) -> bool:
        """Whether the law was refuted or could not be checked."""
        return self.status in _FAILED

    def script(self, path: Path | str | None = None) -> str:
        """Returns a standalone script that reproduces the counterexample with torch and the module alone.

        The script is built by running the counterexample again, so call this before you change the module.

        Args:
            path: File to write the script to. Large tensors go to a safetensors file next to it.

        Raises:
            ValueError: If no single case refutes the law, or the failure does not repeat.
        """
        if self.make_script is None:
            raise ValueError(f"no script for {self.law}, which is {self.status}: it needs a counterexample")
        script = self.make_script()
        if path is not None:
            script.write(path)
        return script.text

    def to_json(self) -> dict[str, Any]:
        """Returns the verdict as JSON data; NaN and infinity become strings."""
        shown = {name: value for name, value in vars(self).items() if name not in ("make_script", "traceback")}
        shown["counterexample"] = asdict(self.counterexample) if self.counterexample else None
        return _to_json(shown)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Verdict:
        """Restores a verdict from `to_json`."""
        values = dict(data)
        for name in ("inputs", "varied", "notes"):
            values[name] = tuple(values.get(name, ()))
        for name in ("worst", "seconds"):
            values[name] = _number(values.get(name))
        if (found := values.get("counterexample")) is not None:
            found = dict(found)
            for name in ("inputs", "drawn"):
                found[name] = tuple(
                    TensorValue(v["name"], v["dtype"], tuple(v["shape"]), v["values"]) for v in found[name]
                )
            for name in ("left", "right", "residual64", "residual32", "noise", "noise_ratio"):
                found[name] = _number(found[name])
            found["index"], found["settings"] = tuple(found["index"]), tuple(found["settings"])
            values["counterexample"] = Counterexample(**found)
        return cls(**values)

    def __str__(self) -> str:
        from lawful.checking.formatting import format_verdict

        return format_verdict(self)

    def __repr__(self) -> str:
        reason = f": {self.reason}" if self.failed and self.reason else ""
        return f"<Verdict {self.status}: {self.law} of {self.target}{reason}>"

    def _repr_html_(self) -> str:
        from lawful.checking.formatting import _verdicts_html

        return _verdicts_html([self])


@dataclass(frozen=True)
class Report:
    """The verdicts of a check.

    Examples:
        >>> from torch import nn
        >>> from lawful import check, shape
        >>> from lawful.laws import causality, linearity
        >>> report = check(nn.Linear(4, 4, bias=False), causality(time=1), linearity(), inputs=shape("b t 4"))
        >>> report.passed, len(report), report["causality"].status
        (True, 2, 'held')
    """

    verdicts: tuple[Verdict, ...]
    seconds: float = 0.0
    seed: int = 0

    def __iter__(self) -> Iterator[Verdict]:
        return iter(self.verdicts)

    def __len__(self) -> int:
        return len(self.verdicts)

    def __getitem__(self, name: str) -> Verdict:
        """Returns the verdict on a law: `report["causality"]` or `report["causality(time=1)"]`.

        Raises:
            KeyError: If no verdict or more than one matches; the message lists the names.
        """
        found = [v for v in self.verdicts if v.law == name]
        found = found or [v for v in self.verdicts if v.law.partition("(")[0] == name]
        if len(found) == 1:
            return found[0]
        names = ", ".join(dict.fromkeys(v.law for v in found or self.verdicts))
        raise KeyError(f"{name!r} matches {len(found)} verdicts of: {names}")

    @property
    def passed(self) -> bool:
        """Whether at least one law held, and none was refuted or raised an error."""
        return not any(v.failed for v in self.verdicts) and any(v.status == "held" for v in self.verdicts)

    @property
    def failures(self) -> tuple[Verdict, ...]:
        """The verdicts on laws that neither held nor were waived."""
        return tuple(v for v in self.verdicts if v.status not in ("held", "waived"))

    def raise_for_refuted(self) -> None:
        """Raises `LawRefuted` with the counterexamples if a law was refuted or could not be checked."""
        failed = [v for v in self.verdicts if v.failed]
        if failed:
            raise LawRefuted(*failed)

    @property
    def exit_code(self) -> int:
        """Exit code as in pytest: 0 held, 1 refuted or error, 4 usage error, 5 nothing was checked."""
        failed = [v for v in self.verdicts if v.failed]
        if failed:
            return 4 if all(v.usage_error for v in failed) else 1
        return 0 if any(v.status == "held" for v in self.verdicts) else 5

    def to_json(self) -> dict[str, Any]:
        """Returns the report as JSON data, in the format that `docs/command-line.md` describes."""
        verdicts = [v.to_json() for v in self.verdicts]
        return {"version": 1, "seed": self.seed, "seconds": round(self.seconds, 3), "verdicts": verdicts}

    def __str__(self) -> str:
        from lawful.checking.formatting import format_report

        return format_report(self)

    def __repr__(self) -> str:
        from lawful.checking.formatting import report_summary

        laws = ", ".join(dict.fromkeys(v.law for v in self.verdicts if v.failed))
        return f"<Report: {report_summary(self)}{f'; failed: {laws}' if laws else ''}>"

    def _repr_html_(self) -> str:
        from lawful.checking.formatting import _verdicts_html, report_summary

        return _verdicts_html(self.verdicts, caption=report_summary(self))


@dataclass(frozen=True)
class DiscoveredLaw:
    """The verdict on a law that `discover` tried, and the laws that follow."""

    verdict: Verdict
    implied: tuple[str, ...] = ()
    """For a law that held, the weaker laws that it implies; for a refuted law, the stronger laws that fail with it."""
    any_weights: bool = True
    """Whether a law that held also holds for other weights."""
    expected: bool = False
    """Whether any layer should satisfy the law."""


@dataclass(frozen=True)
class Discovery:
    """The laws that a map satisfies, those that it breaks, and those that do not apply."""

    target: str
    held: tuple[DiscoveredLaw, ...]
    refuted: tuple[DiscoveredLaw, ...]
    not_applicable: tuple[DiscoveredLaw, ...]
    claims: str
    """Python source of a `claims()` function with the laws that held."""
    mode: str = ""
    """The mode in which a module was tested: "eval mode" or "training and eval mode"."""
    seconds: float = 0.0

    def rows(self, *, all: bool = False) -> list[tuple[str, str, str]]:
        """Returns the rows of the table: status, law and details.

        Laws that held come first: for any weights, then for the current weights only. Of the refuted laws, those that
        any layer should satisfy have a row each.

        Args:
            all: Whether every refuted law has a row with its counterexample, and laws that do not apply their reason.
        """
        held = sorted(self.held, key=lambda row: not row.any_weights)
        rows = [("held", row.verdict.law, _discovery_details(row)) for row in held]
        shown = [row for row in self.refuted if all or row.expected]
        rows += [("refuted", row.verdict.law, _discovery_details(row)) for row in shown]
        if not all:
            folded = [row.verdict for row in self.refuted if not row.expected]
            others = [row.verdict for row in self.not_applicable]
            errors = [v for v in others if v.status == "error" and not v.usage_error]
            rows += [("refuted", ", ".join(v.law.removesuffix("()") for v in folded), "")] if folded else []
            rows += [("error", v.law, v.reason) for v in errors]
            others = [v for v in others if v not in errors]
            return rows + ([("n/a", _law_names(others), "")] if others else [])
        reasons: dict[str, list[Verdict]] = {}
        for row in self.not_applicable:
            reasons.setdefault(row.verdict.reason or row.verdict.status, []).append(row.verdict)
        return rows + [("n/a", _law_names(found), reason) for reason, found in reasons.items()]

    @property
    def heading(self) -> str:
        """The target and the mode in which it was tested."""
        target = quote(self.target)
        return f"{target}, tested in {self.mode}" if self.mode else target

    @property
    def summary(self) -> str:
        """The number of laws that held, were refuted and did not apply, and the time."""
        counts = [sum(1 + len(row.implied) for row in rows) for rows in (self.held, self.refuted, self.not_applicable)]
        return f"{counts[0]} held, {counts[1]} refuted, {counts[2]} not applicable in {self.seconds:.1f} s"

    def to_json(self) -> dict[str, Any]:
        """Returns the discovery as JSON data."""
        rows = {
            kind: [
                {
                    "verdict": row.verdict.to_json(),
                    "implied": list(row.implied),
                    "any_weights": row.any_weights,
                    "expected": row.expected,
                }
                for row in getattr(self, kind)
            ]
            for kind in ("held", "refuted", "not_applicable")
        }
        found = {"version": 1, "target": self.target, "mode": self.mode, **rows, "claims": self.claims}
        return {**found, "seconds": round(self.seconds, 3)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Discovery:
        """Restores a discovery from `to_json`."""
        rows = {
            kind: tuple(
                DiscoveredLaw(
                    Verdict.from_json(row["verdict"]), tuple(row["implied"]), row["any_weights"], row["expected"]
                )
                for row in data[kind]
            )
            for kind in ("held", "refuted", "not_applicable")
        }
        return cls(data["target"], **rows, claims=data["claims"], mode=data["mode"], seconds=data["seconds"])

    def table(self, *, all: bool = False) -> str:
        """Returns the heading, the rows and the summary as text; `all` as in `rows`."""
        rows = self.rows(all=all)
        width = max((len(law) for _, law, details in rows if details), default=0)
        lines = [printable(f"{status:<8} {law:<{width}}  {details}".rstrip()) for status, law, details in rows]
        return "\n".join([self.heading, *lines, self.summary])

    def __str__(self) -> str:
        return self.table()


def _discovery_details(row: DiscoveredLaw) -> str:
    from lawful.checking.formatting import counterexample_summary

    held = row.verdict.status == "held"
    if held:
        details = [] if row.any_weights else ["for these weights only"]
        details += ["in eval mode only" for note in row.verdict.notes if note.startswith("tested in eval mode only")]
    else:
        details = [counterexample_summary(row.verdict)]
    if row.implied:
        details.append(("implies " if held else "also refutes ") + _list_laws(row.implied))
    return "; ".join(details)


def _law_names(verdicts: list[Verdict]) -> str:
    return ", ".join(dict.fromkeys(verdict.law.partition("(")[0] for verdict in verdicts))


def _list_laws(laws: tuple[str, ...]) -> str:
    """Lists laws; those that differ only in a radius or a border are listed once."""
    kinds: dict[str, list[str]] = {}
    for law in laws:
        kinds.setdefault(re.sub(r"(radius|border)=\d+", "", law), []).append(law)
    return ", ".join(
        similar[0] + (f" and {len(similar) - 1} larger" if similar[1:] else "") for similar in kinds.values()
    )


def _to_json(value: Any) -> Any:
    """Converts tuples to lists, and NaN and infinity to strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _to_json(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_to_json(part) for part in value]
    return value


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
