"""The form of observations: what a model is built for, and how new data are read in the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lawful.data import (
    BUILTIN,
    Column,
    Density,
    Dequantizer,
    Encoding,
    Encodings,
    checkerboard,
    encode,
    encoding_from_json,
    grid,
    ring,
    two_moons,
)
from lawful.data.arrays import Arrays
from lawful.data.images import Images, pictures
from lawful.data.untrusted import fields, whole

DENSITIES: dict[str, Callable[[], Density]] = {
    "ring": ring,
    "checkerboard": checkerboard,
    "moons": two_moons,
    "grid": grid,
}
"""Densities in the plane that samples are drawn from, by name."""
UNLABELLED = Column(" ")
"""What stands for the labels of a table that has none: no column can be called so."""
PLANE = (Column("x1"), Column("x2"))


def of_builtin(name: str) -> tuple[Tensor, Tensor | None, Encodings]:
    """Built-in data, their labels and encoding; a target that is a number is one more column."""
    examples, encoding = BUILTIN[name]()
    if examples.classes is None and isinstance(encoding, Encoding):
        together = Encoding((*encoding.columns, encoding.target), UNLABELLED)
        return torch.cat([examples.inputs, examples.targets], 1), None, together
    return examples.inputs, examples.targets, encoding


class New(NamedTuple):
    """New data: their values, their labels if they have them, and the files that they come from if they are images."""

    x: Tensor
    labels: Tensor | None
    files: tuple[Path, ...] | None


@dataclass(frozen=True, kw_only=True)
class Form:
    """Says what observations look like.

    Examples:
        >>> form = Form(encoding=Arrays((1, 8, 8)), dequantizer=Dequantizer(levels=17))
        >>> form.shape, Form.from_json(form.to_json()) == form
        ((1, 8, 8), True)
    """

    encoding: Encodings
    """How rows, images or arrays become numbers."""
    dequantizer: Dequantizer | None = None
    """The levels of the data, where they have some; bits per dimension are then of these."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an observation."""
        match self.encoding:
            case Encoding():
                return (len(self.encoding.names),)
            case Images():
                return self.encoding.channels, self.encoding.height, self.encoding.width
            case Arrays():
                return self.encoding.shape

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the labels; none where there are no labels."""
        return (self.encoding.target.levels if isinstance(self.encoding, Encoding) else self.encoding.classes) or ()

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns of a table."""
        return self.encoding.names if isinstance(self.encoding, Encoding) else None

    @property
    def picture(self) -> bool:
        """Whether an observation can be shown as an image: grey or coloured, `c h w`."""
        return len(self.shape) == 3 and self.shape[0] in (1, 3)

    def read(self, source: str | Path, *, seed: int = 1) -> New:
        """Reads new data in this form: what was trained on, or anything that looks like it.

        Args:
            source: A file, a folder of images, or a name of built-in data.
            seed: What samples of a built-in density depend on.
        """
        if (name := str(source)) in DENSITIES and isinstance(self.encoding, Encoding) and self.shape == (2,):
            x = DENSITIES[name]().sample(1000, seed).float()
            return New(x, None, None)
        if name in BUILTIN:
            x, labels, own = of_builtin(name)
            if own != self.encoding:
                raise ValueError(f"{source} has other columns, shapes or classes than the data of this run")
            return New(x, labels, None)
        x, labels = encode(source, self.encoding)
        files = tuple(pictures(Path(source))) if isinstance(self.encoding, Images) else None
        return New(x, labels if self.classes else None, files)

    def label(self, name: str | int) -> int:
        """The number of a label, by its name.

        Examples:
            >>> Form(encoding=Arrays((2,), ("cat", "dog"))).label("dog")
            1
        """
        if not self.classes:
            raise ValueError(f"the data of this run had no labels: got label {str(name)!r}")
        if str(name) not in self.classes:
            raise ValueError(f"the labels are {', '.join(self.classes[:20])}: got {str(name)!r}")
        return self.classes.index(str(name))

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        d = self.dequantizer
        levels = None if d is None else {"levels": d.levels, "low": d.low, "high": d.high}
        return {"encoding": self.encoding.to_json(), "dequantizer": levels}

    @classmethod
    def from_json(cls, value: object) -> Form:
        """Reads what `to_json` gave, from a file that nobody vouches for: anything else is refused."""
        held = fields(value, ("encoding", "dequantizer"), where="form")
        return cls(encoding=encoding_from_json(held["encoding"]), dequantizer=_dequantizer(held["dequantizer"]))

    @classmethod
    def described(cls, facts: Mapping[str, Any]) -> Form:
        """Reads the form of a run's data from what `Training.described` said."""
        return cls.from_json(facts.get("form"))


def _dequantizer(value: object) -> Dequantizer | None:
    if value is None:
        return None
    held = fields(value, ("levels", "low", "high"), where="form.dequantizer")
    levels = whole(held["levels"], 2, 2**31, where="form.dequantizer.levels")
    for name in ("low", "high"):
        if isinstance(held[name], bool) or not isinstance(held[name], int | float):
            raise ValueError(f"form.dequantizer.{name} is to be a number: got {str(held[name])[:100]}")
    return Dequantizer(levels=levels, low=float(held["low"]), high=float(held["high"]))
