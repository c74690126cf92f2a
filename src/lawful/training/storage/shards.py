"""Tensors in several files, each with the parts that one process held; read back for any number of processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from lawful.training.storage import config
from lawful.training.storage.state import plain

Like = Callable[[str, Sequence[int]], Tensor | None]
"""From a tensor's name and shape to the shared-out tensor that it is to be like; nothing for a whole one."""

PARTS = "parts"


def file_name(rank: int, size: int) -> str:
    """Returns the name of the file of a process."""
    return f"tensors-{rank + 1}-of-{size}.safetensors"


def is_shared(tensor: Tensor) -> bool:
    """Says whether each process holds a part of a tensor, without importing PyTorch's `DTensor`, which takes long."""
    return hasattr(tensor, "placements")


def local(tensor: Tensor) -> Tensor:
    """Returns what this process holds of a tensor."""
    return tensor.to_local() if is_shared(tensor) else tensor  # type: ignore[not-callable]


def full(tensor: Tensor) -> Tensor:
    """Returns a whole tensor; for one that is shared out every process must ask."""
    return tensor.full_tensor() if is_shared(tensor) else tensor  # type: ignore[not-callable]


def laid_out(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Returns what a file holds of tensors, and the metadata of its header.

    The metadata has, as JSON, the shape of the whole and where the part begins for each tensor that is shared out.
    """
    parts: dict[str, dict[str, list[int]]] = {}
    held: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        own = local(tensor.detach())
        if is_shared(tensor):
            if tensor.numel() and not own.numel():
                continue
            parts[name] = {"shape": list(tensor.shape), "offsets": [_rows(tensor)[0]] + [0] * (tensor.dim() - 1)}
        held[name] = own
    return plain(held), {PARTS: json.dumps(parts)}


def read(paths: Sequence[Path], like: Like) -> dict[str, Tensor]:
    """Assembles every tensor, or the part of it that this process is to hold.

    Args:
        paths: The files of all the processes that wrote.
        like: Which tensors are shared out now, and how.

    Raises:
        ValueError: where a header is not what `laid_out` gives, or parts do not make a whole.
    """
    with ExitStack() as stack:
        pieces: dict[str, list[_Piece]] = {}
        for path in paths:
            file = stack.enter_context(safe_open(path, framework="pt"))
            for name, piece in _pieces(file):
                pieces.setdefault(name, []).append(piece)
        for name, found in pieces.items():
            _check(name, found)
        return {name: _assembled(found, like(name, found[0].shape)) for name, found in pieces.items()}


@dataclass(frozen=True)
class _Piece:
    """A part of a tensor in a file: rows of the whole, from an offset on."""

    slice: Any
    shape: tuple[int, ...]
    offset: int
    rows: int


def _pieces(file: Any) -> Iterator[tuple[str, _Piece]]:
    parts = config.parse((file.metadata() or {}).get(PARTS, "{}").encode(), name="what a header says of parts")
    if not isinstance(parts, dict):
        raise ValueError("its parts are no JSON object")
    names = set(file.keys())
    if strange := parts.keys() - names:
        raise ValueError(f"there is no tensor {min(strange)!r} for a part of that name")
    for name in names:
        slice_ = file.get_slice(name)
        own = tuple(slice_.get_shape())
        if name not in parts:
            yield name, _Piece(slice_, own, 0, own[0] if own else 1)
            continue
        shape, offsets = _numbers(name, parts[name], "shape"), _numbers(name, parts[name], "offsets")
        fits = len(shape) == len(offsets) == len(own) >= 1 and shape[1:] == own[1:] and not any(offsets[1:])
        if not fits or offsets[0] + own[0] > shape[0]:
            raise ValueError(f"a part of {name!r} of shape {own} at {offsets} is not inside a whole of shape {shape}")
        yield name, _Piece(slice_, shape, offsets[0], own[0])


def _numbers(name: str, part: Any, key: str) -> tuple[int, ...]:
    found = part.get(key) if isinstance(part, dict) else None
    if not isinstance(found, list) or not all(type(n) is int and 0 <= n < 2**63 for n in found):
        raise ValueError(f"the {key} of the part of {name!r} is a list of numbers: got {str(found)[:60]}")
    return tuple(found)


def _check(name: str, pieces: list[_Piece]) -> None:
    """Refuses parts that overlap, or leave a gap: what is then allocated is as large as what the files hold."""
    first = pieces[0]
    pieces.sort(key=lambda piece: piece.offset)
    if any(p.shape != first.shape or p.slice.get_dtype() != first.slice.get_dtype() for p in pieces):
        raise ValueError(f"the parts of {name!r} are of different wholes")
    if not first.shape and len(pieces) > 1:
        raise ValueError(f"{name!r} is there {len(pieces)} times")
    row = 0
    for piece in pieces if prod(first.shape) else ():
        if piece.offset != row:
            raise ValueError(f"the parts of {name!r} do not make a whole: one begins at row {piece.offset}, not {row}")
        row += piece.rows
    if first.shape and prod(first.shape) and row != first.shape[0]:
        raise ValueError(f"the parts of {name!r} do not make a whole: {row} of {first.shape[0]} rows are there")


def _assembled(pieces: list[_Piece], like: Tensor | None) -> Tensor:
    shape = pieces[0].shape
    if like is None or like.shape != shape:
        return _span(pieces, 0, shape[0] if shape else 1)
    from torch.distributed.tensor import DTensor

    if not isinstance(like, DTensor):
        raise TypeError(f"a part is to be like a shared-out tensor: got {type(like).__name__}")
    start, stop = _rows(like)
    return DTensor.from_local(
        _span(pieces, start, stop).to(like.device),
        like.device_mesh,
        like.placements,
        shape=like.shape,
        stride=like.stride(),
    )


def _span(pieces: list[_Piece], start: int, stop: int) -> Tensor:
    """The rows from `start` to `stop`, out of the parts that have them."""
    if not pieces[0].shape:
        return pieces[0].slice[...]
    found = []
    for piece in pieces:
        low, high = max(start, piece.offset), min(stop, piece.offset + piece.rows)
        if low < high:
            found.append(piece.slice[low - piece.offset : high - piece.offset])
    if not found:
        found = [pieces[0].slice[0:0]]
    return torch.cat(found) if len(found) > 1 else found[0]


def _rows(tensor: Any) -> tuple[int, int]:
    """The first row of a shared-out tensor that this process holds, and the one after its last."""
    if len(tensor.placements) != 1 or not tensor.placements[0].is_shard(0):
        raise ValueError(f"tensors are shared out by rows, over one axis of processes: got {tensor.placements}")
    length, size = tensor.shape[0], tensor.device_mesh.size()
    start = min(tensor.device_mesh.get_local_rank() * -(-length // size), length)
    return start, start + len(tensor.to_local())
