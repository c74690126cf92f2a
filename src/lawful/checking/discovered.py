"""What was found out about a map: plain data, that prints as a table and as claims."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lawful.checking.show import pair, placed, short
from lawful.checking.verdict import Verdict


@dataclass(frozen=True)
class Row:
    """A law that was tried, and those that are known with it."""

    verdict: Verdict
    also: tuple[str, ...] = ()
    """Of a law that held, those that follow from it; of one that was refuted, those that it would follow from."""


@dataclass(frozen=True)
class Discovery:
    """Which laws a map obeys, which it breaks, and which have nothing to say of it."""

    target: str
    held: tuple[Row, ...]
    refuted: tuple[Row, ...]
    silent: tuple[Row, ...]
    claims: str
    """Python that declares what held."""
    seconds: float = 0.0

    def as_claims(self) -> str:
        """Returns Python that declares what held, to be pasted into a test file or beside the module."""
        return self.claims

    def lines(self) -> list[tuple[str, str, str]]:
        """The table: held, refuted or nothing (to say), the law, and what there is to say of it."""
        rows = [("held", row.verdict.law, _said(row)) for row in self.held]
        rows += [("refuted", row.verdict.law, _said(row)) for row in self.refuted]
        reasons: dict[str, list[str]] = {}
        for row in self.silent:
            reasons.setdefault(row.verdict.reason or row.verdict.grade, []).append(row.verdict.law.partition("(")[0])
        return rows + [("nothing", ", ".join(dict.fromkeys(laws)), reason) for reason, laws in reasons.items()]

    @property
    def summary(self) -> str:
        """The counts, and how long it took."""
        counts = [sum(1 + len(row.also) for row in rows) for rows in (self.held, self.refuted, self.silent)]
        return f"{counts[0]} held, {counts[1]} refuted, {counts[2]} had nothing to say in {self.seconds:.1f} s"

    def to_json(self) -> dict[str, Any]:
        """Returns the discovery as JSON data."""
        rows = {
            kind: [{"verdict": row.verdict.to_json(), "also": list(row.also)} for row in getattr(self, kind)]
            for kind in ("held", "refuted", "silent")
        }
        return {"version": 1, "target": self.target, **rows, "claims": self.claims, "seconds": round(self.seconds, 3)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Discovery:
        """Reads back what `to_json` wrote."""
        rows = {
            kind: tuple(Row(Verdict.from_json(row["verdict"]), tuple(row["also"])) for row in data[kind])
            for kind in ("held", "refuted", "silent")
        }
        return cls(data["target"], **rows, claims=data["claims"], seconds=data["seconds"])

    def __str__(self) -> str:
        lines = self.lines()
        width = max((len(law) for grade, law, _ in lines if grade != "nothing"), default=0)
        table = [f"{grade:<8} {law:<{width}}  {said}".rstrip() for grade, law, said in lines]
        return "\n".join([self.target, *table, self.summary])


def _said(row: Row) -> str:
    """What there is to say of a law that held or was refuted."""
    held = row.verdict.grade == "held"
    said = [note for note in row.verdict.notes if note.startswith("of the parameters as given")] if held else []
    said += [] if held else [witness(row.verdict)]
    if row.also:
        said.append(("so too " if held else "so neither ") + _listed(row.also))
    return "; ".join(said)


def _listed(laws: tuple[str, ...]) -> str:
    """Laws by name, those that differ in a radius or a border only once."""
    kinds: dict[str, list[str]] = {}
    for law in laws:
        kinds.setdefault(re.sub(r"(radius|border)=\d+", "", law), []).append(law)
    return ", ".join(alike[0] + (f" and {len(alike) - 1} wider" if alike[1:] else "") for alike in kinds.values())


def witness(verdict: Verdict) -> str:
    """A counterexample in a line: the inputs' shapes, what was chosen, and both sides."""
    found = verdict.counterexample
    if found is None:
        return verdict.reason
    said = [f"{value.name} {list(value.shape)}" for value in found.inputs]
    said += [f"{name} = {short(value)}" for name, value in found.bindings.items()]
    place = placed(found)
    if found.left is None or found.right is None:
        return f"{', '.join(said)}: {verdict.reason or found.kind}"
    left, right = pair(found.left, found.right)
    between = "above" if found.kind == "exceeds" else "against"
    return f"{', '.join(said)}: {place} {left} {between} {right}"
