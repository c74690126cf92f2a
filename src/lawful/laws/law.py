"""A law: a formula, a function that states it, and the parameters it is stated with.

A claim: a law tied to a map, where the map lives.
Laws made of laws, and places to except.
Axes that a law names: their size in the input, and the same axis in the output.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any

import torch
from torch import Tensor

from lawful._suggest import did_you_mean
from lawful.laws._tree import Key
from lawful.laws.interfaces import Map
from lawful.laws.statements import Statement

Axis = Annotated[int, "axis"]
"""An axis of the input that a law speaks of; the checker varies the size of such axes."""


class Inapplicable(Exception):
    """Raised by a law that has nothing to say of a map: the message says why."""


class Unsupported(Inapplicable):
    """Raised where the map cannot do what the law needs, in this case and perhaps in others."""


class _All:
    def __repr__(self) -> str:
        return "ALL"


ALL = _All()
"""Every input, or every output."""


@dataclass(frozen=True, eq=False)
class ExcludedRegion:
    """Inputs for which a law is not asked for: those at a distance below a radius."""

    distance: Callable[..., Tensor]
    radius: float

    def __str__(self) -> str:
        return getattr(self.distance, "__name__", "a distance")


@dataclass(frozen=True, eq=False)
class Law:
    """A law with its parameters. Call it to state it with others: `causality(time=2)`.

    Every law also takes `input=` (which inputs it speaks of: an index, a name, or a tuple of them), `output=`
    (which output) and `rtol=` (an error, relative to the size of the output, that the law allows for).
    """

    state: Callable[..., Statement]
    formula: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    input: Key | tuple[Key, ...] | _All | None = None
    output: Key | _All | None = None
    rtol: float | None = None
    any_weights: bool = True
    cases: int | None = None
    waiver: str | None = None
    exclusions: tuple[ExcludedRegion, ...] = ()
    """Where the law is not asked for."""
    discover_with: tuple[Mapping[str, Any], ...] | None = ({},)
    """The parameters, besides axes, with which discovery discover_with the law; None for a law that it leaves alone."""
    parts: tuple[Law, ...] = ()
    """The laws that this one is made of, if it is made of others."""

    @property
    def name(self) -> str:
        return self.state.__name__

    @cached_property
    def signature(self) -> Mapping[str, inspect.Parameter]:
        """The parameters that the law takes, besides the map, its inputs and the source of choices."""
        if self.parts:
            return MappingProxyType({name: p for part in self.parts for name, p in part.signature.items()})
        found = inspect.signature(self.state).parameters
        return MappingProxyType({name: p for name, p in found.items() if p.kind is p.KEYWORD_ONLY and name != "draw"})

    @cached_property
    def arity(self) -> int | None:
        """How many inputs the law speaks of; None for any number."""
        if self.parts:
            return max((part.arity for part in self.parts if part.arity is not None), default=None)
        positional = list(inspect.signature(self.state).parameters.values())[1:]
        if any(p.kind is p.VAR_POSITIONAL for p in positional):
            return None
        return sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in positional)

    @cached_property
    def takes_draw(self) -> bool:
        return "draw" in inspect.signature(self.state).parameters

    @cached_property
    def values(self) -> dict[str, Any]:
        """The value of every parameter; a missing one that has no default is a TypeError."""
        if self.parts:
            return {name: value for part in self.parts for name, value in part.values.items()}
        values = {name: p.default for name, p in self.signature.items()} | dict(self.parameters)
        missing = [name for name, value in values.items() if value is inspect.Parameter.empty]
        if missing:
            raise TypeError(f"{self.name} wants {', '.join(missing)}: write {self.name}({missing[0]}=...)")
        return values

    @cached_property
    def axes(self) -> dict[str, int]:
        """The parameters that name an axis, with their values."""
        if self.parts:
            return {name: value for part in self.parts for name, value in part.axes.items()}
        hints = typing.get_type_hints(self.state, include_extras=True)
        return {
            name: value
            for name, value in self.values.items()
            if isinstance(value, int) and "axis" in getattr(hints.get(name), "__metadata__", ())
        }

    def __call__(self, **parameters: Any) -> Law:
        known = [*self.signature, "input", "output", "rtol"]
        for name in parameters:
            if name not in known:
                raise TypeError(
                    f"{self.name} has no parameter {name}{did_you_mean(name, known)} It takes {', '.join(known)}."
                )
        if self.parts:
            return dataclasses.replace(self, parts=tuple(part(**part._own(parameters)) for part in self.parts))
        fields = {name: parameters.pop(name) for name in ("input", "output", "rtol") if name in parameters}
        if (rtol := fields.get("rtol")) is not None and not 0 <= rtol < 1:
            raise ValueError(f"rtol is a relative error from 0 to below 1: got {rtol}")
        return dataclasses.replace(self, parameters=dict(self.parameters) | parameters, **fields)

    def _own(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the parameters that the law takes."""
        taken = (*self.signature, "input", "output", "rtol")
        return {name: value for name, value in parameters.items() if name in taken}

    def waived(self, reason: str) -> Law:
        """The law, known not to hold, and why: it is reported and not judged."""
        if not reason.strip():
            raise ValueError("a waiver wants its reason")
        return dataclasses.replace(self, waiver=reason)

    def on_output(self, key: Key) -> Law:
        """The law, of the output that a key names: an index, a key or an attribute, such as `"logits"`."""
        return self(output=key)

    def excluding(self, *distances: Callable[..., Tensor], radius: float = 1e-3) -> Law:
        """The law, but for inputs closer than `radius` to where it is not asked for: ties, kinks.

        Each distance is a function of the inputs that the law speaks of, such as `ties` or `kink_at(0.0)`; a case
        in which it is below the radius, at any entry of any call, is passed over and counted.
        """
        if not radius > 0:
            raise ValueError(f"a radius is above 0: got {radius}")
        if self.parts:
            parts = tuple(part.excluding(*distances, radius=radius) for part in self.parts)
            return dataclasses.replace(self, parts=parts)
        return dataclasses.replace(self, exclusions=(*self.exclusions, *(ExcludedRegion(d, radius) for d in distances)))

    @property
    def summary(self) -> str:
        """The first sentence of the law's description."""
        return (inspect.getdoc(self.state) or "").split("\n")[0]

    def doc_section(self, heading: str) -> str:
        """Returns what the description says after `heading`, such as "Satisfied by" or "Broken by"."""
        text = inspect.getdoc(self.state) or ""
        found = re.search(rf"^{heading}:\s*(.*?)(?=\n\s*\n|\n[A-Z][a-z]+( by)?:|\Z)", text, re.S | re.M)
        return " ".join(found.group(1).split()) if found else ""

    def __str__(self) -> str:
        shown: dict[str, Any] = {}
        for part in self.parts or (self,):
            shown |= {name: part.parameters.get(name, p.default) for name, p in part.signature.items()}
        shown |= {name: getattr(self, name) for name in ("input", "output", "rtol")}
        said = [
            f"{name}={getattr(value, '__name__', None) or _brief(value)}"
            for name, value in shown.items()
            if value is not None and value is not inspect.Parameter.empty and value is not ALL
        ]
        if self.parts and self.name == "all_of":
            said = [str(part) for part in self.parts]
        return f"{self.name}({', '.join(said)})" + "".join(f".excluding({e})" for e in self.exclusions)

    __repr__ = __str__


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 30 else type(value).__name__


def law(
    formula: str,
    *,
    any_weights: bool = True,
    every_input: bool = False,
    every_output: bool = False,
    rtol: float | None = None,
    cases: int | None = None,
    discover_with: Sequence[Mapping[str, Any]] | None = ({},),
) -> Callable[[Callable[..., Statement]], Law]:
    """Makes a law of a function that states it: `function(f, *inputs, *, parameters, draw) -> Statement`.

    Args:
        formula: The law in one line of mathematics.
        any_weights: Whether the law should hold for any values of the parameters. If so, the map is also
            judged with those that are zero, one or the identity re-randomised.
        every_input: Whether it speaks of all inputs rather than the first ones.
        every_output: Whether it speaks of all outputs rather than the first; the map then returns a tuple.
        rtol: The relative error that the statement itself has: quadrature, finite differences.
        cases: The largest number of cases worth trying, for a statement that is costly to judge.
        discover_with: The parameters, besides axes, with which discovery discover_with the law; None to leave it alone.
    """

    def make(state: Callable[..., Statement]) -> Law:
        return Law(
            state,
            formula,
            input=ALL if every_input else None,
            output=ALL if every_output else None,
            rtol=rtol,
            any_weights=any_weights,
            cases=cases,
            discover_with=None if discover_with is None else tuple(discover_with),
        )

    return make


@dataclass(frozen=True, eq=False)
class Claim:
    """Says that `target`, a module or function, keeps `law` on `inputs`.

    A file that defines a block also defines `claims()`, a generator of these; the tests, the command line and
    the documents read it there.
    """

    law: Law
    target: Callable[..., Any]
    inputs: Any = None
    name: str = ""

    @property
    def label(self) -> str:
        """The claim's name, or that of its target."""
        return self.name or getattr(self.target, "__name__", type(self.target).__name__)


def all_of(*laws: Law, name: str = "all_of", doc: str = "") -> Law:
    """Makes one law of several: it holds if each of them does, and the first that does not is what is reported.

    Args:
        name: What the law is called.
        doc: Its description, as a law's docstring is.
    """
    if not laws:
        raise ValueError("all_of wants at least one law")

    def state(f: Map, *xs: Tensor) -> Statement:
        raise TypeError(f"{name} is judged part by part")

    state.__name__, state.__doc__ = name, doc or f"All of {', '.join(map(str, laws))}."
    formula = "; ".join(part.formula for part in laws)
    return Law(state, formula, discover_with=None, parts=laws)


def ties(x: Tensor, *_: Any) -> Tensor:
    """How far apart neighbours in size are along the last axis: 0 at a tie."""
    return x.sort(dim=-1).values.diff(dim=-1)


def kink_at(value: float) -> Callable[..., Tensor]:
    """How far each entry is from a value, such as the 0 of ReLU."""

    def distance(*xs: Tensor) -> Tensor:
        return torch.cat([(x - value).abs().reshape(-1) for x in xs if x.is_floating_point()])

    distance.__name__ = f"kink_at({value:g})"
    return distance


def length(x: Tensor, axis: int, name: str = "axis") -> int:
    """Returns the size of the axis that the law's parameter `name` gives, or says that there is none."""
    if not -x.dim() <= axis < x.dim():
        raise ValueError(f"{name}={axis} is out of range: the input has shape {tuple(x.shape)}")
    return x.shape[axis]


def real(x: Tensor) -> Tensor:
    """Returns the input if it is made of real numbers, or says that the law does not apply."""
    if not x.is_floating_point():
        raise Inapplicable(f"the input is to be made of real numbers: got {x.dtype}")
    return x


def along(y: Tensor, x: Tensor, axis: int, name: str = "axis") -> Tensor:
    """Returns the output `y` if it runs along `axis` as the input `x` does, or says that the law does not apply."""
    n = length(x, axis, name)
    if not -y.dim() <= axis < y.dim() or y.shape[axis] != n:
        raise Inapplicable(
            f"the output does not run along the input's axis {axis}: input {tuple(x.shape)}, output {tuple(y.shape)}"
        )
    return y
