"""`discover`: tries every law on a map and reports which hold."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import lawful.laws
from lawful.checking._module_state import find_modules, preserve_global_state, seed_all
from lawful.checking._repro import construct_module
from lawful.checking.check import SearchBudget, judge_law
from lawful.checking.targets import STANDARD_LAWS
from lawful.checking.verdict import DiscoveredLaw, Discovery, Verdict
from lawful.groups import Euclidean, Group
from lawful.laws import determinism, equivariance, invariance
from lawful.laws._tree import children, leaves
from lawful.laws.implications import implied_laws
from lawful.laws.inputs import ExampleDomain, Input, Reals
from lawful.laws.law import Law

DISCOVERY_BUDGET = SearchBudget(cases=30, timeout=10.0, shrinks=20)
"""Limits of the search for each law."""

_LISTED_LAST = ("module_hygiene", "gradients")
"""Kinds of laws that any layer should satisfy; they come last in the table."""


def discover(
    target: Callable[..., Any], *, inputs: Any, cases: int = DISCOVERY_BUDGET.cases, seed: int = 0
) -> Discovery:
    """Tries every law with every axis, and reports which laws hold.

    Laws that follow from others are grouped: a law that holds implies weaker ones, a refuted law refutes stronger
    ones. If the last axis of an input has size 2 or 3, its vectors may be coordinates: rotations, reflections and
    translations are tried. Laws with other required parameters (a reference, a method) are not tried.

    Args:
        target: An `nn.Module`, a function, or a module class without required arguments.
        inputs: Inputs, as in `check`.
        cases: Number of cases per law.
        seed: Random seed; the same seed gives the same result.

    Examples:
        >>> import torch
        >>> from lawful import shape
        >>> found = discover(torch.relu, inputs=shape("b 4"), cases=10)
        >>> "idempotence()" in [row.verdict.law for row in found.held]
        True
    """
    name = getattr(target, "__name__", type(target).__name__)
    home = getattr(target if hasattr(target, "__name__") else type(target), "__module__", "")
    construction = f"{name}()" if isinstance(target, type) else name
    if isinstance(target, torch.nn.Module):
        construction = construct_module(target, name)
    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        with preserve_global_state():
            seed_all(seed)
            target = target()
    budget = SearchBudget(cases, seed, timeout=DISCOVERY_BUDGET.timeout, shrinks=DISCOVERY_BUDGET.shrinks)
    search = DiscoverySearch(target, inputs, name, budget)
    for _ in search.run():
        pass
    return search.result(construction, "" if home in ("__main__", "builtins") else home)


def candidate_laws(inputs: Any) -> Iterator[Law]:
    """Yields every law of `lawful.laws` with every axis of the first input, and the motions of coordinates."""
    described = leaves(inputs, (Input, Tensor))
    first = Input.from_value(next(iter(described.values()))) if described else None
    axes = range(len(first.axes)) if first is not None else range(0)
    axes_of = {"batch": axes[:1], "time": axes[1:], "axis": axes}
    for law in vars(lawful.laws).values():
        if not isinstance(law, Law) or law.discover_with is None or law.parts:
            continue
        for options in law.discover_with:
            if not law.axis_names:
                yield law(**options)
            for axis in axes_of[law.axis_names[0]] if law.axis_names else ():
                yield law(**options, **{law.axis_names[0]: axis})
    yield from _motion_laws([Input.from_value(value) for value in described.values()])


def _motion_laws(inputs: Sequence[Input | None]) -> Iterator[Law]:
    """Yields equivariance and invariance under motions, for each input that may have coordinates in the last axis.

    The output that moves with an input after the first has its position: `(h, x)` becomes `(h', x')`.
    """
    for index, described in enumerate(inputs):
        if described is None or len(described.axes) < 2 or described.axes[-1].number not in (2, 3):
            continue
        domain = described.domain
        if not isinstance(domain, Reals) and not (
            isinstance(domain, ExampleDomain) and domain.example.is_floating_point()
        ):
            continue
        moved: dict[str, Any] = {"input": index, "output": index} if index else {}
        one: dict[str, Any] = {"input": index} if index else {}
        for group in _with_subgroups(Euclidean(described.axes[-1].number)):
            yield equivariance(group=group, axis=-1, **moved)
            yield invariance(group=group, axis=-1, **one)


def _with_subgroups(group: Group) -> Iterator[Group]:
    """Yields a group and the subgroups that it names, largest first."""
    yield group
    for subgroup in getattr(group, "subgroups", tuple)():
        yield from _with_subgroups(subgroup)


@dataclass
class DiscoverySearch:
    """Tries laws one after another on a map.

    Args:
        target: The module or function.
        inputs: Inputs, as in `check`.
        name: Name of the target in the report.
        budget: Limits of the search for each law.
        known: Verdicts by law that are already known.
    """

    target: Any
    inputs: Any
    name: str
    budget: SearchBudget = DISCOVERY_BUDGET
    known: dict[str, Verdict] | None = None

    def __post_init__(self) -> None:
        self.start = time.monotonic()
        self.verdicts: dict[str, Verdict] = dict(self.known or {})
        self.laws = {str(law): law for law in candidate_laws(self.inputs)}
        is_function = callable(self.inputs) and not isinstance(self.inputs, Input)
        num_inputs = None if is_function else len(leaves(self.inputs, (Input, Tensor)))
        for name, law in self.laws.items():
            if num_inputs is not None and law.arity is not None and law.arity > num_inputs:
                reason = f"needs {law.arity} inputs, got {num_inputs}"
                self.verdicts[name] = Verdict("inapplicable", name, law.formula, self.name, reason)
        self.weaker = {name: implied_laws(law) & self.laws.keys() for name, law in self.laws.items()}

    def run(self, on_start: Callable[[Law], None] = lambda law: None) -> Iterator[Verdict]:
        """Yields verdicts. Weaker laws come first: if they are refuted, so are the stronger ones.

        A map that raises an error in the first law ends the search.
        """
        order = sorted(self.laws, key=lambda name: (name != str(determinism()), len(self.weaker[name])))
        for name in order:
            if name in self.verdicts or any(self._status(weaker) == "refuted" for weaker in self.weaker[name]):
                continue
            on_start(self.laws[name])
            self.verdicts[name] = judge_law(self.laws[name], self.target, self.inputs, self.name, self.budget)
            yield self.verdicts[name]
            if name == str(determinism()) and self._status(name) == "error":
                return

    def _status(self, name: str) -> str:
        return self.verdicts[name].status if name in self.verdicts else ""

    def result(self, construction: str, module: str = "") -> Discovery:
        """Groups the verdicts: laws that held under stronger ones, refuted laws under weaker ones.

        Args:
            construction: Python expression that constructs the map.
            module: Module to import the map from, if known.
        """
        held = [name for name in sorted(self.laws, key=self._comes_last) if self._status(name) == "held"]
        strongest = [name for name in held if not any(self._is_above(other, name, held) for other in held)]
        refuted = [name for name in sorted(self.laws, key=self._comes_last) if self._status(name) == "refuted"]
        also_refuted = {
            name: tuple(n for n in self.laws if n not in self.verdicts and name in self.weaker[n]) for name in refuted
        }
        implied = {
            name: tuple(other for other in self.laws if other in self.weaker[name] and self._status(other) != "refuted")
            for name in strongest
        }
        all_implied = {name for names in implied.values() for name in names}
        other = [n for n in self.laws if self._status(n) not in ("held", "refuted", "") and n not in all_implied]
        modules = find_modules(self.target)
        training = any(m.training for root in modules for m in root.modules())
        return Discovery(
            self.name,
            held=tuple(DiscoveredLaw(self.verdicts[n], implied[n], self._holds_for_any_weights(n)) for n in strongest),
            refuted=tuple(
                DiscoveredLaw(self.verdicts[n], also_refuted[n], expected=self._is_expected(n)) for n in refuted
            ),
            not_applicable=tuple(DiscoveredLaw(self.verdicts[n]) for n in other),
            claims=_write_claims([self.laws[n] for n in strongest], self.name, construction, module, self.inputs),
            mode=("training and eval mode" if training else "eval mode") if modules else "",
            seconds=time.monotonic() - self.start,
        )

    def _is_expected(self, name: str) -> bool:
        """Returns whether any layer should satisfy a law."""
        return self._comes_last(name) or self.laws[name].name in [law.name for law in STANDARD_LAWS]

    def _holds_for_any_weights(self, name: str) -> bool:
        """Tests a law that held, and that may depend on the weights, with random weights."""
        law, target = self.laws[name], self.target
        if law.any_weights or not any(True for root in find_modules(target) for _ in root.parameters()):
            return True
        if not isinstance(target, torch.nn.Module):
            return not any(note.startswith("tested with the current weights") for note in self.verdicts[name].notes)
        try:
            other = copy.deepcopy(target)
        except RuntimeError:  # a parameter that was computed from others
            return False
        generator = torch.Generator().manual_seed(self.budget.seed)
        with torch.no_grad():
            for p in other.parameters():
                if p.is_floating_point():
                    p.add_(torch.randn(p.shape, generator=generator).to(p))
        return judge_law(law, other, self.inputs, self.name, self.budget).status == "held"

    def _comes_last(self, name: str) -> bool:
        return self.laws[name].function.__module__.rpartition(".")[2] in _LISTED_LAST

    def _is_above(self, other: str, name: str, held: list[str]) -> bool:
        """Returns whether `other` implies `name`; of two equivalent laws the first is above."""
        if name not in self.weaker[other]:
            return False
        return other not in self.weaker[name] or held.index(other) < held.index(name)


def _write_claims(laws: list[Law], name: str, construction: str, module: str, inputs: Any) -> str:
    """Writes a `claims()` function with laws of a map."""
    text, words = _write_inputs(inputs)
    imported = sorted({"Claim", *(law.name for law in laws), *words}, key=lambda w: (w.islower(), w))
    known = construction.partition("(")[0].isidentifier()
    module = module if all(part.isidentifier() for part in module.split(".")) else ""
    head = ["from collections.abc import Iterator", ""]
    head += ["from lawful.laws import (", *(f"    {word}," for word in imported), ")"]
    groups = sorted({type(p).__name__ for law in laws for p in law.parameters.values() if isinstance(p, Group)})
    head[1:1] = [f"from lawful.groups import {', '.join(groups)}"] if groups else []
    head += [f"from {module} import {re.split('[.(]', construction)[0]}"] if module and known else []
    is_plain = name.isprintable() and not {'"', "\\"} & set(name)
    described, quoted = (name, f'"{name}"') if is_plain else ("a map", ascii(name))
    body = ["", "", "def claims() -> Iterator[Claim]:", f'    """The laws of {described}."""']
    if not laws:
        return "\n".join([*head, *body, "    yield from ()", ""])
    body += [f"    module = {construction if known else '...  # your module'}"]
    body += [f"    inputs = {text}"]
    body += ["    for law in (", *(f"        {law}," for law in laws), "    ):"]
    body += [f"        yield Claim(law, module, inputs, name={quoted})"]
    return "\n".join([*head, *body, ""])


def _write_inputs(inputs: Any) -> tuple[str, tuple[str, ...]]:
    """Returns inputs as Python, and the names that it imports."""
    described = Input.from_value(inputs)
    if described is not None:
        text = described.to_python()
        return text, (text.partition("(")[0],)
    parts = children(inputs)
    if parts is None:
        return "...  # your inputs", ()
    if isinstance(inputs, tuple) and len(inputs) == 1:
        return _write_inputs(inputs[0])
    written = {key: _write_inputs(part) for key, part in parts.items()}
    words = tuple(word for _, names in written.values() for word in names)
    if isinstance(inputs, Mapping):
        return "{" + ", ".join(f"{key!r}: {text}" for key, (text, _) in written.items()) + "}", words
    return "(" + "".join(f"{text}, " for text, _ in written.values()).strip() + ")", words
