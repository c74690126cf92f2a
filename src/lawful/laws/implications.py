"""Implications between laws, which `discover` uses to skip and to group laws."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lawful.laws.bounds import boundedness, convexity
from lawful.laws.dependence import batch_independence, causality, locality
from lawful.laws.law import Law
from lawful.laws.linearity import additivity, affinity, homogeneity, oddness
from lawful.laws.probability import non_negativity
from lawful.laws.transformations import (
    equivariance,
    invariance,
    permutation_equivariance,
    reversal_equivariance,
    reversal_invariance,
    translation_equivariance,
    translation_invariance,
)

_Values = Mapping[str, Any]


def _with_larger(law: Law, name: str, values: _Values) -> Iterator[Law]:
    """Yields the law with each larger value of a parameter that `discover` tries."""
    for option in law.discover_with or ():
        if option[name] > values[name]:
            yield law(**{**values, name: option[name]})


def _from_linearity(values: _Values) -> Iterator[Law]:
    yield from (additivity(), homogeneity(degree=1.0), oddness(), affinity())


def _from_locality(values: _Values) -> Iterator[Law]:
    yield from _with_larger(locality, "radius", values)
    if values["radius"] == 0:
        yield causality(time=values["axis"])
        yield batch_independence(batch=values["axis"])


def _from_batch_independence(values: _Values) -> Iterator[Law]:
    yield locality(radius=0, axis=values["batch"])


def _from_permutations(values: _Values) -> Iterator[Law]:
    yield reversal_equivariance(axis=values["axis"])
    yield translation_equivariance(axis=values["axis"], border=0)


def _from_invariance_to_permutations(values: _Values) -> Iterator[Law]:
    yield reversal_invariance(axis=values["axis"])
    yield translation_invariance(axis=values["axis"])


def _for_subgroups(law: Law) -> Callable[[_Values], Iterator[Law]]:
    def weaker(values: _Values) -> Iterator[Law]:
        for group in getattr(values["group"], "subgroups", tuple)():
            yield law(group=group, axis=values["axis"])

    return weaker


def _from_translations(values: _Values) -> Iterator[Law]:
    yield from _with_larger(translation_equivariance, "border", values)


def _from_bounds(values: _Values) -> Iterator[Law]:
    if values["low"] >= 0:
        yield non_negativity()
    for option in boundedness.discover_with or ():
        if option["low"] <= values["low"] and values["high"] <= option["high"] and option != values:
            yield boundedness(**option)


def _from_chunks(values: _Values) -> Iterator[Law]:
    yield locality(radius=0, axis=values["axis"])
    yield permutation_equivariance(axis=values["axis"])


_IMPLIED: dict[str, Callable[[_Values], Iterator[Law]]] = {
    "linearity": _from_linearity,
    "chunk_consistency": _from_chunks,
    "affinity": lambda values: iter([convexity()]),
    "additivity": lambda values: iter([oddness()]),
    "locality": _from_locality,
    "batch_independence": _from_batch_independence,
    "permutation_equivariance": _from_permutations,
    "permutation_invariance": _from_invariance_to_permutations,
    "equivariance": _for_subgroups(equivariance),
    "invariance": _for_subgroups(invariance),
    "translation_equivariance": _from_translations,
    "boundedness": _from_bounds,
    "divergence": lambda values: iter([non_negativity()]),
}


def implied_laws(law: Law) -> set[str]:
    """Returns the names of all laws that a law implies, without itself."""
    found: dict[str, Law] = {}
    pending = [law]
    while pending:
        current = pending.pop()
        for weaker in _IMPLIED.get(current.name, lambda values: iter(()))(current.values):
            if current.input is not None and current.function is weaker.function:
                weaker = dataclasses.replace(weaker, input=current.input, output=current.output)
            if str(weaker) not in found:
                found[str(weaker)] = weaker
                pending.append(weaker)
    return set(found) - {str(law)}
