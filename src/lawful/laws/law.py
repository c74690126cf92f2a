"""`Law`, the decorator `law` that defines one, and `Claim`, which ties a law to a module or function."""

from __future__ import annotations

import dataclasses
import inspect
import re
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
"""An axis of the first input. A law of any number of inputs is about those that have it.

The checker varies the size of the axes that a law names.
"""


class Inapplicable(Exception):
    """Raised by a law that does not apply to a map; the message says why."""


class Unsupported(Inapplicable):
    """Raised if the map does not support an operation that the law needs, such as a second derivative."""


class _All:
    def __repr__(self) -> str:
        return "ALL"


ALL = _All()
"""All inputs, or all outputs."""


@dataclass(frozen=True, eq=False)
class ExcludedRegion:
    """Inputs that a law excludes: those with `distance(*inputs) < radius`."""

    distance: Callable[..., Tensor]
    radius: float

    def __str__(self) -> str:
        return getattr(self.distance, "__name__", "a distance")


@dataclass(frozen=True, eq=False)
class Law:
    """A law with its parameters. Call it to set parameters: `causality(time=2)`.

    Every law also takes `input=` (the inputs it is about: an index, a name, or a tuple of them), `output=` (the
    output it is about) and `rtol=` (a tolerance relative to the largest entry of the output). By default a law that
    names an axis is about all inputs that have it, and other laws are about the first inputs.
    """

    function: Callable[..., Statement]
    formula: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    input: Key | tuple[Key, ...] | _All | None = None
    output: Key | _All | None = None
    rtol: float | None = None
    any_weights: bool = True
    eval_if_random: bool = False
    """Whether a map that is random in training mode is tested in eval mode only."""
    cases: int | None = None
    waiver: str | None = None
    exclusions: tuple[ExcludedRegion, ...] = ()
    """Regions of the inputs that are not checked."""
    discover_with: tuple[Mapping[str, Any], ...] | None = ({},)
    """Parameter values, besides axes, that `discover` tries; None excludes the law from discovery."""
    parts: tuple[Law, ...] = ()
    """The laws that `all_of` combined into this one."""

    @property
    def name(self) -> str:
        return self.function.__name__

    @cached_property
    def signature(self) -> Mapping[str, inspect.Parameter]:
        """The law's own parameters, without the map, its inputs and `draw`."""
        if self.parts:
            return MappingProxyType({name: p for part in self.parts for name, p in part.signature.items()})
        found = inspect.signature(self.function).parameters
        return MappingProxyType({name: p for name, p in found.items() if p.kind is p.KEYWORD_ONLY and name != "draw"})

    @cached_property
    def arity(self) -> int | None:
        """Number of inputs that the law is about; None for any number."""
        if self.parts:
            return max((part.arity for part in self.parts if part.arity is not None), default=None)
        positional = list(inspect.signature(self.function).parameters.values())[1:]
        if any(p.kind is p.VAR_POSITIONAL for p in positional):
            return None
        return sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in positional)

    @cached_property
    def takes_draw(self) -> bool:
        return "draw" in inspect.signature(self.function).parameters

    @cached_property
    def values(self) -> dict[str, Any]:
        """The value of every parameter. Raises a TypeError if one without a default is missing."""
        if self.parts:
            return {name: value for part in self.parts for name, value in part.values.items()}
        values = {name: p.default for name, p in self.signature.items()} | dict(self.parameters)
        missing = [name for name, value in values.items() if value is inspect.Parameter.empty]
        if missing:
            raise TypeError(f"{self.name} needs {', '.join(missing)}: write {self.name}({missing[0]}=...)")
        return values

    @cached_property
    def axes(self) -> dict[str, int]:
        """The parameters that are axes, with their values."""
        if self.parts:
            return {name: value for part in self.parts for name, value in part.axes.items()}
        return {
            name: value for name, value in self.values.items() if name in self.axis_names and isinstance(value, int)
        }

    @cached_property
    def axis_names(self) -> tuple[str, ...]:
        """The names of the parameters that are axes."""
        return tuple(name for name, p in self.signature.items() if _is_axis(p.annotation))

    def __call__(self, **parameters: Any) -> Law:
        known = [*self.signature, "input", "output", "rtol"]
        for name in parameters:
            if name not in known:
                raise TypeError(
                    f"{self.name} has no parameter {name}{did_you_mean(name, known)} Parameters: {', '.join(known)}"
                )
        if self.parts:
            return dataclasses.replace(self, parts=tuple(part(**part._own(parameters)) for part in self.parts))
        fields = {name: parameters.pop(name) for name in ("input", "output", "rtol") if name in parameters}
        if (rtol := fields.get("rtol")) is not None and not 0 <= rtol < 1:
            raise ValueError(f"rtol must be in [0, 1), got {rtol}")
        return dataclasses.replace(self, parameters=dict(self.parameters) | parameters, **fields)

    def _own(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Selects the parameters that this law has."""
        taken = (*self.signature, "input", "output", "rtol")
        return {name: value for name, value in parameters.items() if name in taken}

    def waived(self, reason: str) -> Law:
        """Returns the law marked as known not to hold; the report shows the reason instead of a verdict."""
        if not reason.strip():
            raise ValueError("waived needs a reason, got an empty string")
        return dataclasses.replace(self, waiver=reason)

    def on_output(self, key: Key) -> Law:
        """Returns the law about another output: an index, a key or an attribute, such as `"logits"`."""
        return self(output=key)

    def excluding(self, *distances: Callable[..., Tensor], radius: float = 1e-3) -> Law:
        """Returns the law without inputs closer than `radius` to a tie or a kink.

        A distance is a function of the law's inputs, such as `ties` or `kink_at(0.0)`. Cases in which any entry of
        it is below the radius are skipped and counted.
        """
        if not radius > 0:
            raise ValueError(f"radius must be positive, got {radius}")
        if self.parts:
            parts = tuple(part.excluding(*distances, radius=radius) for part in self.parts)
            return dataclasses.replace(self, parts=parts)
        return dataclasses.replace(self, exclusions=(*self.exclusions, *(ExcludedRegion(d, radius) for d in distances)))

    @property
    def summary(self) -> str:
        """The first sentence of the law's docstring."""
        return (inspect.getdoc(self.function) or "").split("\n")[0]

    def doc_section(self, heading: str) -> str:
        """Returns the section of the docstring after a heading, such as "Satisfied by"."""
        text = inspect.getdoc(self.function) or ""
        found = re.search(rf"^{heading}:\s*(.*?)(?=\n\s*\n|\n[A-Z][a-z]+( by)?:|\Z)", text, re.S | re.M)
        return " ".join(found.group(1).split()) if found else ""

    def __str__(self) -> str:
        shown: dict[str, Any] = {}
        for part in self.parts or (self,):
            shown |= {name: part.parameters.get(name, p.default) for name, p in part.signature.items()}
        shown |= {name: getattr(self, name) for name in ("input", "output", "rtol")}
        shown_values = [
            f"{name}={getattr(value, '__name__', None) or _brief(value)}"
            for name, value in shown.items()
            if value is not None and value is not inspect.Parameter.empty and value is not ALL
        ]
        if self.parts and self.name == "all_of":
            shown_values = [str(part) for part in self.parts]
        return f"{self.name}({', '.join(shown_values)})" + "".join(f".excluding({e})" for e in self.exclusions)

    __repr__ = __str__


def _is_axis(annotation: Any) -> bool:
    """Returns whether an annotation is `Axis`, also as a string that cannot be evaluated."""
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2] == "Axis"
    return "axis" in getattr(annotation, "__metadata__", ())


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 30 else type(value).__name__


def law(
    formula: str,
    *,
    any_weights: bool = True,
    eval_if_random: bool = False,
    every_input: bool = False,
    every_output: bool = False,
    rtol: float | None = None,
    cases: int | None = None,
    discover_with: Sequence[Mapping[str, Any]] | None = ({},),
) -> Callable[[Callable[..., Statement]], Law]:
    """Turns a function `(f, *inputs, *, parameters, draw) -> Statement` into a law.

    Args:
        formula: The law in one line of mathematics.
        any_weights: Whether the law must hold for all weights. If so, the checker also re-randomizes weights that
            are zero, one, constant or the identity.
        eval_if_random: Whether a map that is random in training mode is tested in eval mode only. All calls of a case
            use the same random numbers, such as one dropout mask. Set it if the law changes which entries they belong
            to: it permutes, shifts, swaps or resizes inputs, composes the map with itself, or calls another function.
        every_input: Whether a law of `*inputs` is about all inputs. Otherwise it is about those that have the axis that
            it names (a parameter with the annotation `Axis`) of the first input, or about the first input.
        every_output: Whether the law is about all outputs instead of the first; the map then returns a tuple.
        rtol: Relative error of the statement itself, such as the error of a quadrature or a finite difference.
        cases: Maximum number of cases, for a statement that is slow to evaluate.
        discover_with: Parameter values, besides axes, that `discover` tries; None excludes the law from discovery.

    Examples:
        >>> from lawful import check, shape
        >>> from lawful.laws import Equal
        >>> @law("f(2x) = 2 f(x)")
        ... def doubling(f, x):
        ...     return Equal(f(2 * x), 2 * f(x))
        >>> check(lambda x: 3 * x, doubling(), inputs=shape("b 4")).passed
        True
    """

    def make(function: Callable[..., Statement]) -> Law:
        return Law(
            function,
            formula,
            input=ALL if every_input else None,
            output=ALL if every_output else None,
            rtol=rtol,
            any_weights=any_weights,
            eval_if_random=eval_if_random,
            cases=cases,
            discover_with=None if discover_with is None else tuple(discover_with),
        )

    return make


@dataclass(frozen=True, eq=False)
class Claim:
    """The claim that `target`, a module or function, satisfies `law` on `inputs`.

    A file that defines a block also defines a generator `claims()`. The tests, `lawful check` and the
    documentation read it there.
    """

    law: Law
    target: Callable[..., Any]
    inputs: Any = None
    name: str = ""

    @property
    def label(self) -> str:
        """The name of the claim. Defaults to the name of the target."""
        return self.name or getattr(self.target, "__name__", type(self.target).__name__)


def all_of(*laws: Law, name: str = "all_of", doc: str = "") -> Law:
    """Combines laws into one, which holds if all of them hold. The report shows the first that fails.

    Args:
        name: Name of the law.
        doc: Its docstring.
    """
    if not laws:
        raise ValueError("all_of needs at least one law")

    def function(f: Map, *xs: Tensor) -> Statement:
        raise TypeError(f"{name} is checked part by part")

    function.__name__, function.__doc__ = name, doc or f"All of {', '.join(map(str, laws))}."
    formula = "; ".join(part.formula for part in laws)
    return Law(function, formula, discover_with=None, parts=laws)


def ties(x: Tensor, *_: Any) -> Tensor:
    """Returns the gaps between sorted neighbors along the last axis: 0 at a tie."""
    return x.sort(dim=-1).values.diff(dim=-1)


def kink_at(value: float) -> Callable[..., Tensor]:
    """Returns a function of the distance to a value, such as the kink of ReLU at 0."""

    def distance(*xs: Tensor) -> Tensor:
        return torch.cat([(x - value).abs().reshape(-1) for x in xs if x.is_floating_point()])

    distance.__name__ = f"kink_at({value:g})"
    return distance
