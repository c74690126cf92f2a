"""Verdicts and reports: plain data, that prints, and that reads and writes JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Status = Literal["held", "refuted", "vacuous", "inapplicable", "waived", "error"]

FAILING: tuple[Status, ...] = ("refuted", "error")


class LawRefuted(AssertionError):
    """Laws were refuted, or could not be judged: the message is their verdicts."""

    def __init__(self, *verdicts: Verdict) -> None:
        super().__init__("\n\n".join(map(str, verdicts)))
        self.verdicts = verdicts


@dataclass(frozen=True)
class Value:
    """A tensor of a counterexample: its values as nested lists, or None if there are too many to print."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    values: Any


@dataclass(frozen=True)
class Counterexample:
    """The smallest case found that breaks a law."""

    kind: str
    """How: differs, exceeds, not finite, changed, shapes differ, does not follow, averages otherwise; or raised,
    for an error."""
    inputs: tuple[Value, ...]
    drawn: tuple[Value, ...] = ()
    """What the law drew besides: the values that replace others, a direction, a group element."""
    bindings: Mapping[str, Any] = field(default_factory=dict)
    output: int = 0
    name: str = ""
    """What the law calls the output, if it has several with names."""
    index: tuple[int, ...] = ()
    left: float | None = None
    right: float | None = None
    residual64: float | None = None
    residual32: float | None = None
    noise: float | None = None
    times: float | None = None
    """The residual as a multiple of the noise floor."""
    mode: str = ""
    setting: tuple[str, ...] = ()
    case: int = 0


@dataclass(frozen=True)
class Script:
    """A standalone script: its text with literals only, or with the larger tensors in a file beside it."""

    text: str
    brief: str = ""
    tensors: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def write(self, path: Path | str) -> None:
        """Writes the script, and a safetensors file beside it if any of its tensors is large."""
        path = Path(path)
        if not self.tensors:
            path.write_text(self.text, encoding="utf-8")
            return
        from safetensors.torch import save_file

        beside = str(path).removesuffix(".py") + ".safetensors"
        save_file({name: x.contiguous() for name, x in self.tensors.items()}, beside)
        path.write_text(self.brief, encoding="utf-8")


@dataclass(frozen=True)
class Verdict:
    """What was found about one law and one map."""

    status: Status
    law: str
    formula: str
    target: str
    reason: str = ""
    cases: int = 0
    worst: float | None = None
    """The largest residual of a law that held, as a multiple of the noise floor."""
    rtol: float | None = None
    notes: tuple[str, ...] = ()
    counterexample: Counterexample | None = None
    seconds: float = 0.0
    usage: bool = False
    """Whether an error is the fault of the question: a law or a parameter that does not exist or fit."""
    file: str = ""
    line: int = 0
    """Where the map is defined, as far as that is known."""
    repro: Script | None = field(default=None, repr=False, compare=False)
    trace: str = field(default="", repr=False, compare=False)
    """The traceback of an error, for those who ask for it."""

    @property
    def failed(self) -> bool:
        return self.status in FAILING

    def script(self, path: Path | str | None = None) -> str:
        """Returns a standalone script that shows the counterexample with nothing but torch and the module.

        With a path it is written there too, with larger tensors in a safetensors file beside it.
        """
        if self.repro is None:
            raise ValueError(
                f"there is a script for a law that one case refutes, every time: {self.law} is {self.status}"
            )
        if path is not None:
            self.repro.write(path)
        return self.repro.text

    def to_json(self) -> dict[str, Any]:
        """Returns the verdict as JSON data; numbers that are not finite become strings."""
        shown = {name: value for name, value in vars(self).items() if name not in ("repro", "trace")}
        shown["counterexample"] = asdict(self.counterexample) if self.counterexample else None
        return plain(shown)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Verdict:
        """Reads back what `to_json` wrote."""
        values = dict(data)
        values["notes"] = tuple(values.get("notes", ()))
        for name in ("worst", "seconds"):
            values[name] = _number(values.get(name))
        if (found := values.get("counterexample")) is not None:
            found = dict(found)
            for name in ("inputs", "drawn"):
                found[name] = tuple(Value(v["name"], v["dtype"], tuple(v["shape"]), v["values"]) for v in found[name])
            for name in ("left", "right", "residual64", "residual32", "noise", "times"):
                found[name] = _number(found[name])
            found["index"], found["setting"] = tuple(found["index"]), tuple(found["setting"])
            values["counterexample"] = Counterexample(**found)
        return cls(**values)

    def __str__(self) -> str:
        from lawful.checking.formatting import verdict_text

        return verdict_text(self)


@dataclass(frozen=True)
class Report:
    """The verdicts of a check."""

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
            KeyError: If no verdict, or more than one, has that name; the message lists the names.
        """
        found = [v for v in self.verdicts if v.law == name] or [
            v for v in self.verdicts if v.law.partition("(")[0] == name
        ]
        if len(found) == 1:
            return found[0]
        names = ", ".join(f"{v.law} on {v.target}" for v in found or self.verdicts)
        raise KeyError(f"{name!r} matches {len(found)} verdicts; the report has {names}")

    @property
    def passed(self) -> bool:
        """Whether nothing was refuted, nothing failed, and at least one law held."""
        return not any(v.failed for v in self.verdicts) and any(v.status == "held" for v in self.verdicts)

    @property
    def failures(self) -> tuple[Verdict, ...]:
        """The verdicts about laws that did not hold and were not waived."""
        return tuple(v for v in self.verdicts if v.status not in ("held", "waived"))

    def raise_for_refuted(self) -> None:
        """Raises `LawRefuted`, with the counterexamples, if a law was refuted or could not be judged."""
        failed = [v for v in self.verdicts if v.failed]
        if failed:
            raise LawRefuted(*failed)

    @property
    def exit_code(self) -> int:
        """As pytest's: 0 held, 1 refuted or error, 4 a question that makes no sense, 5 nothing was checked."""
        failed = [v for v in self.verdicts if v.failed]
        if failed:
            return 4 if all(v.usage for v in failed) else 1
        return 0 if any(v.status == "held" for v in self.verdicts) else 5

    def to_json(self) -> dict[str, Any]:
        """Returns the report as JSON data, in the form that the documentation of the command line gives."""
        verdicts = [v.to_json() for v in self.verdicts]
        return {"version": 1, "seed": self.seed, "seconds": round(self.seconds, 3), "verdicts": verdicts}

    def __str__(self) -> str:
        from lawful.checking.formatting import report_text

        return report_text(self)


def plain(value: Any) -> Any:
    """Makes JSON data of nested values: tuples become lists, numbers that are not finite become strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    return value


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
