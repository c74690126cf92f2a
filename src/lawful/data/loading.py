"""What a path leads to: what is there, and the table of a file.

New data, in the encoding that old data gave.
The one entry to data, by a name or a path.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lawful._suggest import did_you_mean
from lawful.data.builtin import BUILTIN
from lawful.data.dataset import Arrays, SupervisedDataset, finite
from lawful.data.images import Images, pictures, read_images
from lawful.data.table_encoding import TableEncoding, Task, fit_table_encoding
from lawful.data.tables import (
    INPUTS,
    TARGETS,
    Table,
    find_arrays,
    inputs_and_targets,
    read_arrays,
    read_delimited,
    read_parquet,
    table_of,
)

TEXT, ARRAYS = (".csv", ".tsv", ".txt", ".data"), (".npy", ".npz")


def resolve_path(source: str | Path) -> Path:
    """Returns the path, if something is there; otherwise says what is nearest."""
    path = Path(source)
    try:
        if path.exists():
            return path
    except (OSError, ValueError):
        pass
    if path.suffix or len(path.parts) > 1:
        beside = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
        raise FileNotFoundError(f"there is no file or folder {source}{did_you_mean(path.name, beside)}")
    raise FileNotFoundError(
        f"there are no data {str(source)!r}{did_you_mean(str(source), BUILTIN)} Built-in are {', '.join(BUILTIN)}; "
        "otherwise give a .csv, .tsv, .parquet, .npy or .npz file, or a folder with a folder of images for each class"
    )


def table_at(path: Path, *, header: bool | None = None) -> Table:
    """Reads the table of a file as its ending says."""
    ending = path.suffix.lower()
    if ending in TEXT:
        return read_delimited(path, header=header)
    if ending == ".parquet":
        return read_parquet(path)
    if ending in ARRAYS:
        return table_of(read_arrays(path), name=path.name)
    raise ValueError(f"{path.name} ends in {ending!r}: one of {', '.join((*TEXT, '.parquet', *ARRAYS))} was wanted")


Encodings = TableEncoding | Images | Arrays


class Encoded(NamedTuple):
    """New inputs, and their targets where the file has them."""

    inputs: Tensor
    targets: Tensor | None


def load_like(source: str | Path, encoding: Encodings, *, header: bool | None = None) -> Encoded:
    """Reads new data in an encoding that old data gave: columns by their names, levels and sizes as they were.

    Args:
        source: What `read` takes; a folder of images, or one image, needs no folders of classes.
        encoding: The encoding.
        header: Whether the first row of a text has the names; by default that is found out.

    Examples:
        >>> from lawful.data import read
        >>> load_like("iris", read("iris").encoding).inputs.shape
        torch.Size([150, 4])
    """
    if str(source) in BUILTIN:
        examples, own = BUILTIN[str(source)]()
        if own != encoding:
            raise ValueError(f"{source} has other columns, shapes or classes than the data of this encoding")
        return Encoded(examples.inputs, examples.targets)
    path = resolve_path(source)
    if isinstance(encoding, Images):
        return _encoded_images(path, encoding)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: a file was wanted, as the data of this encoding are no images")
    if isinstance(encoding, TableEncoding):
        table = table_at(path, header=header)
        values = table.columns.get(encoding.target.name)
        labelled = values is not None and not values.missing.any()
        return Encoded(encoding.inputs(table), encoding.targets(table) if labelled else None)
    if path.suffix.lower() not in ARRAYS:
        raise ValueError(f"{path.name} is to be a .npy or .npz file with examples of shape {encoding.shape}")
    arrays = read_arrays(path)
    x, y = find_arrays(arrays, ("", *INPUTS)), find_arrays(arrays, TARGETS)
    if not x:
        raise ValueError(f"{path.name} is to have an array x: it has {', '.join(arrays) or 'none'}")
    inputs = encoding.inputs(x[0], name=path.name)
    return Encoded(inputs, encoding.targets(y[0], n=len(inputs), name=path.name) if y else None)


def encoding_from_json(value: object) -> Encodings:
    """Reads an encoding of any kind, from a file that nobody vouches for: what is none is refused.

    Args:
        value: What JSON gave.

    Examples:
        >>> encoding_from_json({"kind": "arrays", "shape": [1, 40], "classes": None})
        Arrays(shape=(1, 40), classes=None)
    """
    kinds: dict[str, Callable[[object], Encodings]] = {
        "table": TableEncoding.from_json,
        "images": Images.from_json,
        "arrays": Arrays.from_json,
    }
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in kinds:
        raise ValueError(f"encoding.kind is to be one of {', '.join(kinds)}: got {str(kind)[:100]!r}")
    return kinds[kind](value)


def _encoded_images(path: Path, encoding: Images) -> Encoded:
    """Images, and their classes if each stands in the folder of one."""
    paths = pictures(path)
    if not paths:
        raise ValueError(f"{path} has no images")
    inputs = encoding.inputs(paths)
    places = {name: i for i, name in enumerate(encoding.classes)}
    names = [file.relative_to(path).parts[0] for file in paths] if path.is_dir() else [""]
    known = all(name in places for name in names)
    return Encoded(inputs, torch.tensor([places[name] for name in names]) if known else None)


class Data(NamedTuple):
    """Examples, how new ones are encoded in the same way, and what is worth knowing."""

    examples: SupervisedDataset
    encoding: Encodings
    notes: tuple[str, ...] = ()


def load_dataset(
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
        >>> data = load_dataset("iris")
        >>> data.examples.inputs.shape, data.examples.classes
        (torch.Size([150, 4]), ('setosa', 'versicolor', 'virginica'))
    """
    for_tables = {"target": target, "categorical": categorical, "ignore": ignore, "drop_missing": drop_missing}
    given = [name for name, value in for_tables.items() if value] + ["header"] * (header is not None)
    built_in = BUILTIN.get(str(source))
    path = Path(source) if built_in else resolve_path(source)
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
        encoding, table, notes = fit_table_encoding(
            table_at(path, header=header),
            target=target,
            task=task,
            categorical=categorical,
            ignore=ignore,
            drop_missing=drop_missing,
        )
        examples = SupervisedDataset(
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
        encoding, table, _ = fit_table_encoding(table, task="classify")
        targets, classes = encoding.targets(table), encoding.target.levels
    examples = SupervisedDataset(inputs=inputs, targets=targets, classes=classes, name=Path(name).stem)
    return Data(examples, Arrays(tuple(x.shape[1:]), classes))
