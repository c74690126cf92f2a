"""Loading of supervised datasets: built-in data, tables, arrays and image folders."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lawful._suggest import did_you_mean
from lawful.data.builtin import BUILTIN
from lawful.data.dataset import Arrays, SupervisedDataset, _channels_first, _check_axes, _to_finite
from lawful.data.images import ImageEncoding, list_images, read_images
from lawful.data.table_encoding import _DROP_HINT, ColumnSummary, TableEncoding, Task, fit_table_encoding
from lawful.data.tables import (
    _INPUT_NAMES,
    _TARGET_NAMES,
    Table,
    _find_arrays,
    _inputs_and_targets,
    read_arrays,
    read_delimited,
    read_parquet,
    table_of,
)

_TEXT_SUFFIXES, _ARRAY_SUFFIXES = (".csv", ".tsv", ".txt", ".data"), (".npy", ".npz")


def resolve_path(source: str | Path) -> Path:
    """Returns an existing path. Raises FileNotFoundError with the closest name otherwise."""
    path = Path(source)
    try:
        if path.exists():
            return path
    except (OSError, ValueError):
        pass
    if path.suffix or len(path.parts) > 1:
        beside = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
        raise FileNotFoundError(f"no such file or folder: {source}{did_you_mean(path.name, beside)}")
    raise FileNotFoundError(
        f"no such dataset: {str(source)!r}{did_you_mean(str(source), BUILTIN)} "
        f"Built-in datasets: {', '.join(BUILTIN)}. "
        "Or pass a .csv, .tsv, .parquet, .npy or .npz file, or a folder with one subfolder of images per class"
    )


def read_table(path: Path, *, header: bool | None = None) -> Table:
    """Reads a table; the file suffix selects the format."""
    suffix = path.suffix.lower()
    if suffix in _TEXT_SUFFIXES:
        return read_delimited(path, header=header)
    if suffix == ".parquet":
        return read_parquet(path)
    if suffix in _ARRAY_SUFFIXES:
        return table_of(read_arrays(path), name=path.name)
    supported = ", ".join((*_TEXT_SUFFIXES, ".parquet", *_ARRAY_SUFFIXES))
    raise ValueError(f"{path.name} has the suffix {suffix!r}, expected one of {supported}")


Encodings = TableEncoding | ImageEncoding | Arrays


class Encoded(NamedTuple):
    """Encoded inputs, with targets if the file has them."""

    inputs: Tensor
    targets: Tensor | None
    notes: tuple[str, ...] = ()
    """Notes for the user: filled values, unknown categories, dropped rows."""
    rows: tuple[int, ...] | None = None
    """Index of each row in the file; None if no row was dropped."""


def load_like(
    source: str | Path, encoding: Encodings, *, header: bool | None = None, drop_missing: bool = False
) -> Encoded:
    """Loads new data with the encoding of the training data.

    Args:
        source: As for `load_dataset`. Images need no class folders.
        encoding: Encoding of the training data.
        header: Whether the first row of a text file is a header. Detected by default.
        drop_missing: Whether to drop the rows of a table with missing values instead of filling them.

    Examples:
        >>> load_like("iris", load_dataset("iris").encoding).inputs.shape
        torch.Size([150, 4])
    """
    if drop_missing and (str(source) in BUILTIN or not isinstance(encoding, TableEncoding)):
        raise ValueError(f"drop_missing only applies to tables, {source} is not a table")
    if str(source) in BUILTIN:
        examples, own = BUILTIN[str(source)]()
        if own != encoding:
            raise ValueError(f"{source} has other columns, shapes or classes than the training data")
        return Encoded(examples.inputs, examples.targets)
    path = resolve_path(source)
    if isinstance(encoding, ImageEncoding):
        return _load_images(path, encoding)
    if path.is_dir():
        raise ValueError(f"{path} is a folder, expected a file: the training data are not images")
    if isinstance(encoding, TableEncoding):
        return _encode_table(read_table(path, header=header), encoding, drop_missing=drop_missing)
    if path.suffix.lower() not in _ARRAY_SUFFIXES:
        raise ValueError(f"expected a .npy or .npz file with examples of shape {encoding.shape}, got {path.name}")
    arrays = read_arrays(path)
    x, y = _find_arrays(arrays, ("", *_INPUT_NAMES)), _find_arrays(arrays, _TARGET_NAMES)
    if not x:
        raise ValueError(f"{path.name} has no array x, it has {', '.join(arrays) or 'none'}")
    inputs = encoding.inputs(x[0], name=path.name)
    return Encoded(inputs, encoding.targets(y[0], n=len(inputs), name=path.name) if y else None)


def _encode_table(table: Table, encoding: TableEncoding, *, drop_missing: bool) -> Encoded:
    """Encodes new rows, with targets if every row has one."""
    rows, notes = None, []
    if drop_missing:
        complete = encoding.complete(table)
        if not complete.any():
            raise ValueError(f"{table.name} has no row without missing values: leave out drop_missing")
        rows = tuple(np.flatnonzero(complete).tolist())
        if count := len(table) - len(rows):
            notes.append(f"dropped {count} row{'s' if count > 1 else ''} with missing values")
            table = table.take(complete)
    values = table.columns.get(encoding.target.name)
    labeled = values is not None and not values.missing.any()
    inputs, targets = encoding.inputs(table), encoding.targets(table) if labeled else None
    return Encoded(inputs, targets, (*notes, *encoding.notes(table, hint=_DROP_HINT)), rows)


def encoding_from_json(value: object) -> Encodings:
    """Rebuilds an encoding from untrusted JSON. Raises ValueError if it is malformed.

    Args:
        value: What `to_json` returned.

    Examples:
        >>> encoding_from_json({"kind": "arrays", "shape": [1, 40], "classes": None})
        Arrays(shape=(1, 40), classes=None)
    """
    kinds: dict[str, Callable[[object], Encodings]] = {
        "table": TableEncoding.from_json,
        "images": ImageEncoding.from_json,
        "arrays": Arrays.from_json,
    }
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in kinds:
        raise ValueError(f"encoding.kind must be one of {', '.join(kinds)}, got {str(kind)[:100]!r}")
    return kinds[kind](value)


def _load_images(path: Path, encoding: ImageEncoding) -> Encoded:
    """Loads images, with labels if every parent folder is a class."""
    paths = list_images(path)
    if not paths:
        raise ValueError(f"{path} has no images")
    inputs = encoding.inputs(paths)
    places = {name: i for i, name in enumerate(encoding.classes)}
    names = [file.relative_to(path).parts[0] for file in paths] if path.is_dir() else [""]
    known = all(name in places for name in names)
    return Encoded(inputs, torch.tensor([places[name] for name in names]) if known else None)


class LoadedDataset(NamedTuple):
    """A dataset with its encoding and notes for the user."""

    examples: SupervisedDataset
    encoding: Encodings
    notes: tuple[str, ...] = ()
    columns: tuple[ColumnSummary, ...] = ()
    """How each column of a table is used."""
    table: Table | None = None
    """Raw rows of a table."""


def load_dataset(
    source: str | Path,
    *,
    target: str | None = None,
    task: Task | None = None,
    categorical_columns: Collection[str] = (),
    ignore_columns: Collection[str] = (),
    keep_columns: Collection[str] = (),
    drop_missing: bool = False,
    header: bool | None = None,
    size: tuple[int, int] | None = None,
) -> LoadedDataset:
    """Loads a built-in dataset, a table, arrays, or a folder of images.

    Write `./digits` for a file named like a built-in dataset.

    Args:
        source: Name of a built-in dataset; a `.csv`, `.tsv`, `.parquet`, `.npy` or `.npz` file; or a folder with one
            subfolder of images per class.
        target: Target column. Defaults to the last column.
        task: "classify" or "regress". By default a text target is classified and a numeric one regressed.
        categorical_columns: Columns to treat as text even if they look like numbers or dates.
        ignore_columns: Columns to leave out.
        keep_columns: Columns to use although they look like identifiers.
        drop_missing: Whether to drop rows with missing values. By default they are filled; see `fit_table_encoding`.
        header: Whether the first row of a text file is a header. Detected by default.
        size: Height and width to resize images to. By default all images must have the same size.

    Examples:
        >>> data = load_dataset("iris")
        >>> data.examples.inputs.shape, data.examples.classes
        (torch.Size([150, 4]), ('setosa', 'versicolor', 'virginica'))
    """
    for_tables = {
        "target": target,
        "categorical_columns": categorical_columns,
        "ignore_columns": ignore_columns,
        "keep_columns": keep_columns,
        "drop_missing": drop_missing,
    }
    table_options = [name for name, value in for_tables.items() if value] + ["header"] * (header is not None)
    built_in = BUILTIN.get(str(source))
    path = Path(source) if built_in else resolve_path(source)
    stacked = None if built_in else _read_stacked(path)
    if table_options and (built_in or path.is_dir() or stacked):
        verb = "applies" if len(table_options) == 1 else "apply"
        raise ValueError(f"{' and '.join(table_options)} only {verb} to tables, {source} is not a table")
    if size is not None and (built_in or not path.is_dir()):
        raise ValueError(f"resize needs a folder of images, {source} is not one")
    if built_in:
        data = LoadedDataset(*built_in())
    elif path.is_dir():
        data = LoadedDataset(*read_images(path, size=size))
    elif stacked:
        data = _from_arrays(*stacked, name=path.name, task=task)
    else:
        encoding, table, notes, columns = fit_table_encoding(
            read_table(path, header=header),
            target=target,
            task=task,
            categorical_columns=categorical_columns,
            ignore_columns=ignore_columns,
            keep_columns=keep_columns,
            drop_missing=drop_missing,
        )
        examples = SupervisedDataset(
            inputs=encoding.inputs(table),
            targets=encoding.targets(table),
            classes=encoding.target.levels,
            columns=encoding.names,
            name=path.stem,
        )
        data = LoadedDataset(examples, encoding, notes, columns, table)
    if task is not None and (task == "classify") == (data.examples.classes is None):
        kind = "numeric" if data.examples.classes is None else "categorical"
        raise ValueError(f"task={task!r} does not fit the {kind} target of {source}")
    return data


def _read_stacked(path: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns inputs and targets of an archive that is not a table: more than 2 axes, or several targets."""
    if path.suffix.lower() != ".npz":
        return None
    pair = _inputs_and_targets(read_arrays(path))
    return pair if pair is not None and (pair[0].ndim > 2 or pair[1][:1].size > 1) else None


def _from_arrays(x: np.ndarray, y: np.ndarray, *, name: str, task: Task | None) -> LoadedDataset:
    """Builds a dataset from arrays. Integer and text targets are classes unless the task is "regress"."""
    _check_axes(x, name=f"the array of inputs of {name}")
    x, note = _channels_first(x)
    inputs = _to_finite(x, name=f"the inputs of {name}")
    if task == "regress" or (task is None and y.dtype.kind == "f"):
        targets, classes = _to_finite(y, name=f"the targets of {name}").reshape(len(y), -1), None
    else:
        table = table_of({"x": np.arange(len(y)), "y": y}, name=name)
        encoding, table, *_ = fit_table_encoding(table, task="classify")
        targets, classes = encoding.targets(table), encoding.target.levels
    examples = SupervisedDataset(inputs=inputs, targets=targets, classes=classes, name=Path(name).stem)
    return LoadedDataset(examples, Arrays(tuple(x.shape[1:]), classes), () if note is None else (note,))
