"""What was found out about a map: plain data, that prints as a table and as claims.

`discover`: which laws does a map obey?
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import lawful.laws
from lawful.checking.check import SearchBudget, judge_law
from lawful.checking.formatting import pair, placed, short
from lawful.checking.module_state import preserve_global_state, seed_all
from lawful.checking.repro import construction
from lawful.checking.verdict import Verdict
from lawful.laws import determinism
from lawful.laws._tree import children, leaves
from lawful.laws.implications import implied_laws
from lawful.laws.inputs import Input
from lawful.laws.law import Law


@dataclass(frozen=True)
class DiscoveredLaw:
    """A law that was tried, and those that are known with it."""

    verdict: Verdict
    implied: tuple[str, ...] = ()
    """Of a law that held, those that follow from it; of one that was refuted, those that it would follow from."""


@dataclass(frozen=True)
class Discovery:
    """Which laws a map obeys, which it breaks, and which have nothing to say of it."""

    target: str
    held: tuple[DiscoveredLaw, ...]
    refuted: tuple[DiscoveredLaw, ...]
    not_applicable: tuple[DiscoveredLaw, ...]
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
        for row in self.not_applicable:
            reasons.setdefault(row.verdict.reason or row.verdict.status, []).append(row.verdict.law.partition("(")[0])
        return rows + [("nothing", ", ".join(dict.fromkeys(laws)), reason) for reason, laws in reasons.items()]

    @property
    def summary(self) -> str:
        """The counts, and how long it took."""
        counts = [sum(1 + len(row.implied) for row in rows) for rows in (self.held, self.refuted, self.not_applicable)]
        return f"{counts[0]} held, {counts[1]} refuted, {counts[2]} had nothing to say in {self.seconds:.1f} s"

    def to_json(self) -> dict[str, Any]:
        """Returns the discovery as JSON data."""
        rows = {
            kind: [{"verdict": row.verdict.to_json(), "implied": list(row.implied)} for row in getattr(self, kind)]
            for kind in ("held", "refuted", "not_applicable")
        }
        return {"version": 1, "target": self.target, **rows, "claims": self.claims, "seconds": round(self.seconds, 3)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Discovery:
        """Reads back what `to_json` wrote."""
        rows = {
            kind: tuple(DiscoveredLaw(Verdict.from_json(row["verdict"]), tuple(row["implied"])) for row in data[kind])
            for kind in ("held", "refuted", "not_applicable")
        }
        return cls(data["target"], **rows, claims=data["claims"], seconds=data["seconds"])

    def __str__(self) -> str:
        lines = self.lines()
        width = max((len(law) for status, law, _ in lines if status != "nothing"), default=0)
        table = [f"{status:<8} {law:<{width}}  {said}".rstrip() for status, law, said in lines]
        return "\n".join([self.target, *table, self.summary])


def _said(row: DiscoveredLaw) -> str:
    """What there is to say of a law that held or was refuted."""
    held = row.verdict.status == "held"
    said = [note for note in row.verdict.notes if note.startswith("of the parameters as given")] if held else []
    said += [] if held else [counterexample_summary(row.verdict)]
    if row.implied:
        said.append(("so too " if held else "so neither ") + _listed(row.implied))
    return "; ".join(said)


def _listed(laws: tuple[str, ...]) -> str:
    """Laws by name, those that differ in a radius or a border only once."""
    kinds: dict[str, list[str]] = {}
    for law in laws:
        kinds.setdefault(re.sub(r"(radius|border)=\d+", "", law), []).append(law)
    return ", ".join(alike[0] + (f" and {len(alike) - 1} wider" if alike[1:] else "") for alike in kinds.values())


def counterexample_summary(verdict: Verdict) -> str:
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


CASES = 30
"""How many cases discovery tries for each law."""

HOUSEKEEPING = ("module_hygiene", "gradients")
"""The kinds of law that are shown last."""

EFFORT = SearchBudget(cases=CASES, timeout=10.0, shrinks=20)


def discover(target: Callable[..., Any], *, inputs: Any, cases: int = CASES, seed: int = 0) -> Discovery:
    """Tries every law over every axis that it could speak of, and says which held.

    Laws that follow from others are folded under them: what holds under the strongest, what is refuted under the
    weakest. Laws that need to be told more than an axis (a group, a reference, a method) are left alone.

    Args:
        target: An `nn.Module`, a function, or a class without arguments to make a module with.
        inputs: As for `check`.
        cases: How many cases to try for each law.
        seed: The same seed gives the same result.

    Examples:
        >>> import torch
        >>> from lawful.laws import shape
        >>> found = discover(torch.relu, inputs=shape("b 4"), cases=10)
        >>> "idempotence()" in [row.verdict.law for row in found.held]
        True
    """
    name = getattr(target, "__name__", type(target).__name__)
    home = getattr(target if hasattr(target, "__name__") else type(target), "__module__", "")
    made = f"{name}()" if isinstance(target, type) else name
    if isinstance(target, torch.nn.Module):
        made = construction(target, name)
    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        with preserve_global_state():
            seed_all(seed)
            target = target()
    exploration = DiscoverySearch(
        target, inputs, name, SearchBudget(cases, seed, timeout=EFFORT.timeout, shrinks=EFFORT.shrinks)
    )
    for _ in exploration.verdicts():
        pass
    return exploration.discovery(made, "" if home in ("__main__", "builtins") else home)


def _drawn(inputs: Any) -> bool:
    """Whether inputs come from a function, so that their number is not known beforehand."""
    return callable(inputs) and not isinstance(inputs, Input)


def candidates(inputs: Any) -> Iterator[Law]:
    """Every law of the catalogue, with every axis of the first input that it could speak of."""
    described = leaves(inputs, (Input, Tensor))
    first = Input.from_value(next(iter(described.values()))) if described else None
    axes = range(len(first.axes)) if first is not None else range(0)
    spoken = {"batch": axes[:1], "time": axes[1:], "axis": axes}
    for stated in vars(lawful.laws).values():
        if not isinstance(stated, Law) or stated.discover_with is None or stated.parts:
            continue
        named = [name for name, p in stated.signature.items() if "Axis" in str(p.annotation)]
        for tried in stated.discover_with:
            if not named:
                yield stated(**tried)
            for axis in spoken[named[0]] if named else ():
                yield stated(**tried, **{named[0]: axis})


@dataclass
class DiscoverySearch:
    """The laws of the catalogue, tried one after another on a map.

    Args:
        known: Verdicts that are there already, by law.
    """

    target: Any
    inputs: Any
    name: str
    effort: SearchBudget = EFFORT
    known: dict[str, Verdict] | None = None

    def __post_init__(self) -> None:
        self.start = time.monotonic()
        self.judged: dict[str, Verdict] = dict(self.known or {})
        self.laws = {str(stated): stated for stated in candidates(self.inputs)}
        given = None if _drawn(self.inputs) else len(leaves(self.inputs, (Input, Tensor)))
        for name, stated in self.laws.items():
            if given is not None and stated.arity is not None and stated.arity > given:
                reason = f"it speaks of {stated.arity} inputs: got {given}"
                self.judged[name] = Verdict("inapplicable", name, stated.formula, self.name, reason)
        self.weaker = {name: implied_laws(stated) & self.laws.keys() for name, stated in self.laws.items()}

    def verdicts(self, listen: Callable[[Law], None] = lambda stated: None) -> Iterator[Verdict]:
        """Judges the weaker laws first: what they are refuted by refutes the stronger ones too.

        A map that does not even run ends it.
        """
        order = sorted(self.laws, key=lambda name: (name != str(determinism()), len(self.weaker[name])))
        for name in order:
            if name in self.judged or any(self._grade(weaker) == "refuted" for weaker in self.weaker[name]):
                continue
            listen(self.laws[name])
            self.judged[name] = judge_law(self.laws[name], self.target, self.inputs, self.name, self.effort)
            yield self.judged[name]
            if name == str(determinism()) and self._grade(name) == "error":
                return

    def _grade(self, name: str) -> str:
        return self.judged[name].status if name in self.judged else ""

    def discovery(self, made: str, home: str = "") -> Discovery:
        """Folds what was found: held laws under stronger ones, refuted ones under weaker ones.

        Args:
            made: Python that makes the map.
            home: The module that it is imported from, if it is known.
        """
        held = [name for name in sorted(self.laws, key=self._late) if self._grade(name) == "held"]
        heads = [name for name in held if not any(self._above(other, name, held) for other in held)]
        refuted = [name for name in sorted(self.laws, key=self._late) if self._grade(name) == "refuted"]
        hence = {
            name: tuple(n for n in self.laws if n not in self.judged and name in self.weaker[n]) for name in refuted
        }
        follow = {n: tuple(o for o in self.laws if o in self.weaker[n] and self._grade(o) != "refuted") for n in heads}
        implied = {name for names in follow.values() for name in names}
        not_applicable = [n for n in self.laws if self._grade(n) not in ("held", "refuted", "") and n not in implied]
        return Discovery(
            self.name,
            held=tuple(DiscoveredLaw(self.judged[n], follow[n]) for n in heads),
            refuted=tuple(DiscoveredLaw(self.judged[n], hence[n]) for n in refuted),
            not_applicable=tuple(DiscoveredLaw(self.judged[n]) for n in not_applicable),
            claims=claims_text([self.laws[n] for n in heads], self.name, made, home, self.inputs),
            seconds=time.monotonic() - self.start,
        )

    def _late(self, name: str) -> bool:
        """Whether a law is what any layer should keep, rather than what it does."""
        return self.laws[name].function.__module__.rpartition(".")[2] in HOUSEKEEPING

    def _above(self, other: str, name: str, held: list[str]) -> bool:
        """Whether a law follows from another one; of two that follow from each other the first is above."""
        if name not in self.weaker[other]:
            return False
        return other not in self.weaker[name] or held.index(other) < held.index(name)


def claims_text(laws: list[Law], name: str, made: str, home: str, inputs: Any) -> str:
    """Writes the function `claims()` that declares laws of a map."""
    described = _written(inputs)
    words = sorted({"Claim", *(stated.name for stated in laws), *described.words}, key=lambda w: (w.islower(), w))
    known = made.partition("(")[0].isidentifier()
    head = ["from collections.abc import Iterator", ""]
    head += ["from lawful.laws import (", *(f"    {word}," for word in words), ")"]
    head += [f"from {home} import {re.split('[.(]', made)[0]}"] if home and known else []
    body = ["", "", "def claims() -> Iterator[Claim]:", f'    """The laws that {name} obeys."""']
    if not laws:
        return "\n".join([*head, *body, "    yield from ()", ""])
    body += [f"    module = {made if known else '...  # as you built it'}"]
    body += [f"    inputs = {described.text}"]
    body += ["    for law in (", *(f"        {stated}," for stated in laws), "    ):"]
    body += [f'        yield Claim(law, module, inputs, name="{name}")']
    return "\n".join([*head, *body, ""])


@dataclass(frozen=True)
class _Written:
    text: str
    words: tuple[str, ...]


def _written(inputs: Any) -> _Written:
    """Inputs as Python."""
    described = Input.from_value(inputs)
    if described is not None:
        text = described.to_python()
        return _Written(text, (text.partition("(")[0],))
    parts = children(inputs)
    if parts is None:
        return _Written("...  # as you described them", ())
    if isinstance(inputs, tuple) and len(inputs) == 1:
        return _written(inputs[0])
    found = {key: _written(part) for key, part in parts.items()}
    words = tuple(word for part in found.values() for word in part.words)
    if isinstance(inputs, Mapping):
        return _Written("{" + ", ".join(f"{key!r}: {part.text}" for key, part in found.items()) + "}", words)
    return _Written("(" + "".join(f"{part.text}, " for part in found.values()).strip() + ")", words)
