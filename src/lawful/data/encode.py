"""New data, in the encoding that old data gave."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from lawful.data.arrays import Arrays
from lawful.data.builtin.catalogue import BUILTIN
from lawful.data.images import Images, pictures
from lawful.data.sources import ARRAYS, existing, table_at
from lawful.data.tables import Encoding, read_arrays
from lawful.data.tables.binary import INPUTS, TARGETS, called

Encodings = Encoding | Images | Arrays


class Encoded(NamedTuple):
    """New inputs, and their targets where the file has them."""

    inputs: Tensor
    targets: Tensor | None


def encode(source: str | Path, encoding: Encodings, *, header: bool | None = None) -> Encoded:
    """Reads new data in an encoding that old data gave: columns by their names, levels and sizes as they were.

    Args:
        source: What `read` takes; a folder of images, or one image, needs no folders of classes.
        encoding: The encoding.
        header: Whether the first row of a text has the names; by default that is found out.

    Examples:
        >>> from lawful.data import read
        >>> encode("iris", read("iris").encoding).inputs.shape
        torch.Size([150, 4])
    """
    if str(source) in BUILTIN:
        examples, own = BUILTIN[str(source)]()
        if own != encoding:
            raise ValueError(f"{source} has other columns, shapes or classes than the data of this encoding")
        return Encoded(examples.inputs, examples.targets)
    path = existing(source)
    if isinstance(encoding, Images):
        return _encoded_images(path, encoding)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: a file was wanted, as the data of this encoding are no images")
    if isinstance(encoding, Encoding):
        table = table_at(path, header=header)
        values = table.columns.get(encoding.target.name)
        labelled = values is not None and not values.missing.any()
        return Encoded(encoding.inputs(table), encoding.targets(table) if labelled else None)
    if path.suffix.lower() not in ARRAYS:
        raise ValueError(f"{path.name} is to be a .npy or .npz file with examples of shape {encoding.shape}")
    arrays = read_arrays(path)
    x, y = called(arrays, ("", *INPUTS)), called(arrays, TARGETS)
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
        "table": Encoding.from_json,
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
