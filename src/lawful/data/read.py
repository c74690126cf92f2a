"""The one entry to data, by a name or a path."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lawful.data.arrays import Arrays, finite
from lawful.data.builtin.catalogue import BUILTIN
from lawful.data.encode import Encodings
from lawful.data.examples import Examples
from lawful.data.images import read_images
from lawful.data.sources import existing, table_at
from lawful.data.tables import Task, fitted, read_arrays, table_of
from lawful.data.tables.binary import inputs_and_targets


class Data(NamedTuple):
    """Examples, how new ones are encoded in the same way, and what is worth knowing."""

    examples: Examples
    encoding: Encodings
    notes: tuple[str, ...] = ()


def read(
    source: str | Path,
    *,
    target: str | None = None,
    task: Task | None = None,
    categorical: Collection[str] = (),
    ignore: Collection[str] = (),
    drop_missing: bool = False,
    header: bool | None = None,
    size: tuple[int, int] | None = None,
) -> Data:
    """Reads examples: built-in ones, a table, arrays, or a folder of images.

    A file whose name is that of built-in data is meant by a path, `./digits`.

    Args:
        source: The name of built-in data; a `.csv`, `.tsv`, `.parquet`, `.npy` or `.npz` file; or a folder with a
            folder of images for each class.
        target: The column to predict; by default the last.
        task: What the target is: classes to `classify`, or numbers to `regress`. By default words are classes.
        categorical: Columns whose values are words even if they look like numbers.
        ignore: Columns that are not inputs.
        drop_missing: Whether rows with a missing value are dropped; otherwise they are refused.
        header: Whether the first row of a text has the names; by default that is found out.
        size: The height and the width that images are resized to; by default all have one size already.

    Examples:
        >>> data = read("iris")
        >>> data.examples.inputs.shape, data.examples.classes
        (torch.Size([150, 4]), ('setosa', 'versicolor', 'virginica'))
    """
    for_tables = {"target": target, "categorical": categorical, "ignore": ignore, "drop_missing": drop_missing}
    given = [name for name, value in for_tables.items() if value] + ["header"] * (header is not None)
    built_in = BUILTIN.get(str(source))
    path = Path(source) if built_in else existing(source)
    stacked = None if built_in else _stacked(path)
    if given and (built_in or path.is_dir() or stacked):
        raise ValueError(f"{' and '.join(given)} {'is' if len(given) == 1 else 'are'} for tables: {source} is none")
    if size is not None and (built_in or not path.is_dir()):
        raise ValueError(f"size is for folders of images: {source} is none")
    if built_in:
        data = Data(*built_in())
    elif path.is_dir():
        data = Data(*read_images(path, size=size))
    elif stacked:
        data = _of_arrays(*stacked, name=path.name, task=task)
    else:
        encoding, table, notes = fitted(
            table_at(path, header=header),
            target=target,
            task=task,
            categorical=categorical,
            ignore=ignore,
            drop_missing=drop_missing,
        )
        examples = Examples(
            inputs=encoding.inputs(table),
            targets=encoding.targets(table),
            classes=encoding.target.levels,
            columns=encoding.names,
            name=path.stem,
        )
        data = Data(examples, encoding, notes)
    if task is not None and (task == "classify") == (data.examples.classes is None):
        came = "numbers" if data.examples.classes is None else "classes"
        raise ValueError(f"the target of {source} is {came}: it is not to {task}")
    return data


def _stacked(path: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Inputs with more axes than a table has, or several targets."""
    if path.suffix.lower() != ".npz":
        return None
    pair = inputs_and_targets(read_arrays(path))
    return pair if pair is not None and (pair[0].ndim > 2 or pair[1][:1].size > 1) else None


def _of_arrays(x: np.ndarray, y: np.ndarray, *, name: str, task: Task | None) -> Data:
    """Examples of arrays; whole numbers, or words, are classes unless they are to be fitted."""
    inputs = finite(x, name=f"the inputs of {name}")
    if task == "regress" or (task is None and y.dtype.kind == "f"):
        targets, classes = finite(y, name=f"the targets of {name}").reshape(len(y), -1), None
    else:
        table = table_of({"x": np.arange(len(y)), "y": y}, name=name)
        encoding, table, _ = fitted(table, task="classify")
        targets, classes = encoding.targets(table), encoding.target.levels
    examples = Examples(inputs=inputs, targets=targets, classes=classes, name=Path(name).stem)
    return Data(examples, Arrays(tuple(x.shape[1:]), classes))
