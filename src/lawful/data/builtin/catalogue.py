"""The built-in data by name, each with the encoding of new ones."""

from __future__ import annotations

from collections.abc import Callable

from lawful.data.arrays import Arrays
from lawful.data.builtin.bundled import bundled
from lawful.data.builtin.digits import digits
from lawful.data.builtin.mnist1d import mnist1d
from lawful.data.builtin.synthetic import moons, sine
from lawful.data.examples import Examples
from lawful.data.tables import Column, Encoding

Made = tuple[Examples, Encoding | Arrays]


def _arrays(make: Callable[[], Examples]) -> Callable[[], Made]:
    def made() -> Made:
        examples = make()
        return examples, Arrays(tuple(examples.inputs.shape[1:]), examples.classes)

    return made


def _columns(make: Callable[[], Examples], target: str) -> Callable[[], Made]:
    def made() -> Made:
        examples = make()
        return examples, Encoding(tuple(map(Column, examples.columns or ())), Column(target, examples.classes))

    return made


BUILTIN: dict[str, Callable[[], Made]] = {
    "digits": _arrays(digits),
    "mnist1d": _arrays(mnist1d),
    "iris": lambda: bundled("iris"),
    "wine": lambda: bundled("wine"),
    "breast-cancer": lambda: bundled("breast-cancer"),
    "diabetes": lambda: bundled("diabetes"),
    "moons": _columns(moons, "moon"),
    "sine": _columns(sine, "y"),
}
"""The data that need no file, by name."""
