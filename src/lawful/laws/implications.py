"""Which law follows from which: what need not be said of a map of which more is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lawful.laws.bounds import boundedness, convexity
from lawful.laws.dependence import batch_independence, causality, locality
from lawful.laws.law import Law
from lawful.laws.linearity import additivity, homogeneity, oddness
from lawful.laws.probability import non_negativity
from lawful.laws.transformations import (
    permutation_equivariance,
    reversal_equivariance,
    reversal_invariance,
    translation_equivariance,
)

Values = Mapping[str, Any]


def _wider(stated: Law, name: str, values: Values) -> Iterator[Law]:
    """The same law with each larger value of a parameter that discovery tries."""
    for tried in stated.discover_with or ():
        if tried[name] > values[name]:
            yield stated(**{**values, name: tried[name]})


def _of_linearity(values: Values) -> Iterator[Law]:
    yield from (additivity(), homogeneity(degree=1.0), oddness(), convexity())


def _of_locality(values: Values) -> Iterator[Law]:
    yield from _wider(locality, "radius", values)
    if values["radius"] == 0:
        yield causality(time=values["axis"])
        yield batch_independence(batch=values["axis"])


def _of_batch_independence(values: Values) -> Iterator[Law]:
    yield locality(radius=0, axis=values["batch"])


def _of_permutations(values: Values) -> Iterator[Law]:
    yield reversal_equivariance(axis=values["axis"])
    yield translation_equivariance(axis=values["axis"], border=0)


def _of_translations(values: Values) -> Iterator[Law]:
    yield from _wider(translation_equivariance, "border", values)


def _of_bounds(values: Values) -> Iterator[Law]:
    if values["low"] >= 0:
        yield non_negativity()
    for tried in boundedness.discover_with or ():
        if tried["low"] <= values["low"] and values["high"] <= tried["high"] and tried != values:
            yield boundedness(**tried)


def _of_chunks(values: Values) -> Iterator[Law]:
    yield locality(radius=0, axis=values["axis"])
    yield permutation_equivariance(axis=values["axis"])


_FOLLOW: dict[str, Callable[[Values], Iterator[Law]]] = {
    "linearity": _of_linearity,
    "chunk_consistency": _of_chunks,
    "additivity": lambda values: iter([oddness()]),
    "locality": _of_locality,
    "batch_independence": _of_batch_independence,
    "permutation_equivariance": _of_permutations,
    "permutation_invariance": lambda values: iter([reversal_invariance(axis=values["axis"])]),
    "translation_equivariance": _of_translations,
    "boundedness": _of_bounds,
    "divergence": lambda values: iter([non_negativity()]),
}


def follows_from(stated: Law) -> set[str]:
    """Everything that a law implies, by what the laws are called, itself left out."""
    found: dict[str, Law] = {}
    pending = [stated]
    while pending:
        current = pending.pop()
        for weaker in _FOLLOW.get(current.name, lambda values: iter(()))(current.values):
            if str(weaker) not in found:
                found[str(weaker)] = weaker
                pending.append(weaker)
    return set(found) - {str(stated)}
