"""Reading observations: with labels where there are some, and never a target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import Tensor

from lawful.data import (
    BUILTIN,
    Column,
    Density,
    Dequantizer,
    Encoding,
    Encodings,
    Mixture,
    fitted,
    read_arrays,
    table_of,
)
from lawful.data.arrays import Arrays, finite
from lawful.data.images import PARTS, pictures, read_images, read_pictures
from lawful.data.sources import ARRAYS, existing, table_at
from lawful.data.tables.binary import INPUTS, TARGETS, called
from lawful.data.tables.table import Table, Values
from lawful.recipes.generative.form import DENSITIES, PLANE, UNLABELLED, of_builtin

PIXELS = Dequantizer(levels=256)
"""The levels of images of 8 bits, read as numbers from 0 to 1."""


class Seen(NamedTuple):
    """All observations, before they are split."""

    x: Tensor
    labels: Tensor | None
    encoding: Encodings
    dequantizer: Dequantizer | None = None
    density: Density | None = None
    notes: tuple[str, ...] = ()


def of_density(name: str, *, n: int, seed: int) -> Seen:
    """Samples of a density in the plane; their labels say which part of it they come from."""
    density = DENSITIES[name]()
    labels, target = None, UNLABELLED
    if isinstance(density, Mixture) and name in ("ring", "moons"):
        parts = 2 if name == "moons" else len(density.weights)
        labels = density.components(n, seed) * parts // len(density.weights)
        target = Column("label", tuple(map(str, range(parts))))
    return Seen(density.sample(n, seed).float(), labels, Encoding(PLANE, target), None, density)


def of_images(root: Path, *, size: tuple[int, int] | None) -> Seen:
    """The images of a folder, with labels where there is a folder for each."""
    folders = [f.name for f in root.iterdir() if f.is_dir() and not f.name.startswith(".") and pictures(f)]
    if len(folders) > 1 and not {name.lower() for name in folders} <= PARTS:
        examples, encoding = read_images(root, size=size)
        x, labels = examples.inputs, examples.targets
    else:
        x, encoding = read_pictures(root, size=size)
        labels = None
    steps = x * 255
    return Seen(x, labels, encoding, PIXELS if bool(((steps - steps.round()).abs() < 1e-3).all()) else None)


def of_arrays(path: Path) -> Seen | None:
    """The observations `x` of a NumPy file, and their labels `y`; none if the file holds columns."""
    arrays = read_arrays(path)
    found = called(arrays, ("", *INPUTS))
    if len(found) != 1 or found[0].ndim < 2 or found[0].dtype.names:
        return None
    x, classes, labels, notes = found[0], None, None, []
    if y := called(arrays, TARGETS):
        if y[0].ndim == 1 and y[0].dtype.kind in "iuUb" and 1 < len(np.unique(y[0])) <= 1000:
            table = table_of({"x": np.arange(len(y[0])), "y": y[0]}, name=path.name)
            encoding, table, _ = fitted(table, task="classify")
            labels, classes = encoding.targets(table), encoding.target.levels
            if len(labels) != len(x):
                raise ValueError(f"{path.name} has {len(x)} observations and {len(labels)} labels")
        else:
            notes.append("y has no labels, which are whole numbers or words, at least two of them: left out")
    if not x.size:
        raise ValueError(f"{path.name} is empty: its shape is {x.shape}")
    if x.ndim == 4 and x.shape[-1] in (1, 3) and x.shape[1] > 4:
        notes.append(f"shape {x.shape} looks as if channels come last: images are n c h w here")
    top = {"u": 255.0 if x.dtype.itemsize == 1 else 0.0, "b": 1.0}.get(x.dtype.kind, 0.0)
    levels = Dequantizer(levels=int(top) + 1, high=top) if top else None
    return Seen(finite(x, name=path.name), labels, Arrays(tuple(x.shape[1:]), classes), levels, None, tuple(notes))


def of_table(table: Table, *, labels: str | None, ignore: tuple[str, ...], drop_missing: bool) -> Seen:
    """The rows of a table: every column is part of the observation but that of the labels."""
    if labels is None:
        table = replace(table, columns={**table.columns, UNLABELLED.name: Values(None, np.zeros(len(table)))})
    encoding, kept, notes = fitted(
        table,
        target=labels or UNLABELLED.name,
        task="regress" if labels is None else "classify",
        ignore=ignore,
        drop_missing=drop_missing,
    )
    words = [column.name for column in encoding.columns if column.levels is not None]
    if words:
        notes = (*notes, f"words become a 1 among 0s, which is no density: columns {', '.join(words[:5])}")
    found = encoding.targets(kept)
    return Seen(encoding.inputs(kept), None if labels is None else found, encoding, notes=tuple(notes))


def of_file(path: Path, *, labels: str | None, ignore: tuple[str, ...], drop_missing: bool) -> Seen:
    """The observations of a file, as its ending says."""
    if path.suffix.lower() in ARRAYS and labels is None and not ignore and (found := of_arrays(path)) is not None:
        return found
    return of_table(table_at(path), labels=labels, ignore=ignore, drop_missing=drop_missing)


def seen(
    source: str,
    *,
    labels: str | None = None,
    ignore: tuple[str, ...] = (),
    drop_missing: bool = False,
    size: tuple[int, int] | None = None,
    n: int = 20_000,
    seed: int = 0,
) -> Seen:
    """Reads all observations of a source.

    Args:
        source: The name of a density or of built-in data, a file, or a folder of images.
        labels: The column of a table that has the labels.
        ignore: Columns that are left out.
        drop_missing: Whether rows with a missing value are dropped.
        size: The height and the width that images are resized to.
        n: How many samples are drawn of a density.
        seed: What these depend on.

    Examples:
        >>> seen("iris").x.shape, seen("ring", n=5).x.shape, seen("diabetes").x.shape
        (torch.Size([150, 4]), torch.Size([5, 2]), torch.Size([442, 11]))
    """
    named = source in DENSITIES or source in BUILTIN
    path = Path(source) if named else existing(source)
    folder = not named and path.is_dir()
    if (labels or ignore or drop_missing) and (named or folder):
        raise ValueError(f"labels, ignore and drop_missing are for tables: {source} is none")
    if size is not None and not folder:
        raise ValueError(f"resize is for folders of images: {source} is none")
    if source in DENSITIES:
        return of_density(source, n=n, seed=seed)
    if source in BUILTIN:
        return Seen(*of_builtin(source), Dequantizer(levels=17) if source == "digits" else None)
    if folder:
        return of_images(path, size=size)
    return of_file(path, labels=labels, ignore=ignore, drop_missing=drop_missing)
