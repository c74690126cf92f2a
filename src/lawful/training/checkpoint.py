"""Checkpoints: tensors and facts, each with a checksum, of which the newest sound one is used.

The whole state of a training as tensors and JSON: weights, optimizers, random states.
Tensors in several files, each with the parts that one process held; read back for any number of processes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from lawful import _json as config
from lawful.training import storage as files
from lawful.training.world import SingleProcess

SUMS = "checksums.json"
LARGEST = 1 << 26
"""The largest file of facts, in bytes."""


ALONE = SingleProcess()


def whole(name: str, shape: Sequence[int]) -> None:
    """Has every tensor read whole."""


class Damaged(ValueError):
    """A checkpoint that is not what was written."""


@dataclass(frozen=True)
class Checkpoint:
    """The state of a training after a step."""

    step: int
    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Any]

    def copied(self) -> Checkpoint:
        """Returns it with tensors of its own, on the processor, that later steps do not change."""
        tensors = {name: tensor.detach().to("cpu", copy=True) for name, tensor in self.tensors.items()}
        return Checkpoint(self.step, tensors, deepcopy(self.facts))


class Checkpoints:
    """A folder of checkpoints, `step-00000100` and so on.

    Each is written to a sibling, flushed to disk and renamed, so that a crash leaves the ones before. It holds
    `facts.json`, a file of tensors for each process that wrote, such as `tensors-1-of-1.safetensors`, and a checksum
    of each.

    Args:
        folder: Where they are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def steps(self) -> list[int]:
        """The steps at which there are checkpoints."""
        names = {path.name for path in self.folder.glob("step-*")}
        numbers = (int(match[1]) for name in names if (match := re.fullmatch(r"step-([0-9]{8,18})", name)))
        return sorted(step for step in numbers if self.at(step).name in names)

    def at(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def write(
        self, checkpoint: Checkpoint, *, keep: int, best: int | None = None, world: SingleProcess = ALONE
    ) -> None:
        """Adds a checkpoint, and removes all but the last `keep` and the best; every process of a world calls it."""
        facts = config.dump(checkpoint.facts).encode()
        if len(facts) > LARGEST:
            raise ValueError(f"the facts of a checkpoint have at most {LARGEST} bytes: got {len(facts)}")
        path, first = self.at(checkpoint.step), world.rank == 0
        with files.new_folder(path) if first else nullcontext(files.sibling_of(path)) as folder:
            world.wait()
            own = folder / file_name(world.rank, world.size)
            write_tensors(own, checkpoint.tensors)
            files.flush_file(own)
            world.wait()
            if first:
                (folder / "facts.json").write_bytes(facts)
                seal(folder)
        if first:
            self.prune(keep=keep, best=best)
        world.wait()

    def prune(self, *, keep: int, best: int | None) -> None:
        """Removes all but the last `keep` and the best."""
        steps = self.steps()
        for step in steps[:-keep]:
            if step != best:
                files.remove(self.at(step))

    def read(self, step: int, *, like: Like = whole) -> Checkpoint:
        """Reads a checkpoint, whole, or the parts of its tensors that this process is to hold.

        Raises:
            Damaged: where it is not what was written.
        """
        folder = self.at(step)
        verify(folder)
        try:
            facts = config.load(folder / "facts.json", largest=LARGEST)
            tensors = read(_files(folder), like)
        except PermissionError:
            raise
        except (ValueError, OSError, SafetensorError) as error:
            raise Damaged(f"checkpoint {folder.name} cannot be read: {error}") from None
        if not isinstance(facts, dict):
            raise Damaged(f"checkpoint {folder.name}: facts.json is an object: got {type(facts).__name__}")
        return Checkpoint(step, tensors, facts)

    def newest(self, *, damaged: list[str] | None = None, like: Like = whole) -> Checkpoint | None:
        """Reads the newest checkpoint that is sound, and puts what was wrong with newer ones into `damaged`."""
        for step in reversed(self.steps()):
            try:
                return self.read(step, like=like)
            except Damaged as error:
                if damaged is not None:
                    damaged.append(str(error))
        return None

    def set_aside(self, *, after: int) -> None:
        """Renames the checkpoints after a step to `….damaged`, so that they do not stand among those to come."""
        for step in self.steps():
            if step > after:
                aside = self.at(step).with_suffix(".damaged")
                shutil.rmtree(aside, ignore_errors=True)
                self.at(step).rename(aside)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes a file of tensors.

    Raises:
        OSError: where the system refuses; the library says so in words only.
    """
    try:
        held, metadata = laid_out(tensors)
        save_file(held, path, metadata=metadata)
    except SafetensorError as error:
        told = re.search(r"os error (\d+)", str(error))
        number = int(told[1]) if told else errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from error


def _files(folder: Path) -> list[Path]:
    """The files of tensors, one for each process that wrote."""
    there = {path.name for path in folder.glob("tensors-*.safetensors")}
    names = [file_name(rank, len(there)) for rank in range(len(there))]
    if not names or there != set(names):
        raise ValueError(f"its files of tensors are not one for each process: got {sorted(there)}")
    return [folder / name for name in names]


def seal(folder: Path) -> None:
    """Writes the checksums of a folder's files."""
    sums = {path.name: _sum(path) for path in sorted(folder.iterdir())}
    (folder / SUMS).write_text(config.dump(sums), encoding="utf-8")


def verify(folder: Path) -> None:
    """Compares a folder's files with their checksums.

    Raises:
        Damaged: which file is missing, cut off or altered.
    """
    try:
        sums = config.load(folder / SUMS)
    except PermissionError:
        raise
    except (ValueError, OSError) as error:
        raise Damaged(f"checkpoint {folder.name} has no readable {SUMS}: {error}") from None
    if not isinstance(sums, dict) or not sums:
        raise Damaged(f"checkpoint {folder.name}: {SUMS} lists no files")
    there = {path.name for path in folder.iterdir() if path.is_file()} - {SUMS}
    if odd := sorted(there ^ sums.keys()):
        how = f"is not in {SUMS}" if odd[0] in there else f"is missing, and {SUMS} lists it"
        raise Damaged(f"checkpoint {folder.name}: {odd[0]!r} {how}")
    for name, wanted in sums.items():
        if _sum(folder / name) != wanted:
            raise Damaged(f"checkpoint {folder.name}: {name} is not what was written (its checksum differs)")


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


Tensors = dict[str, Tensor]
Facts = dict[str, Any]


def plain(tensors: Mapping[str, Tensor]) -> Tensors:
    """Returns tensors as a file holds them: on the processor, each with memory of its own."""
    seen: set[int] = set()
    found = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        storage = tensor.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != tensor.nbytes:
            tensor = tensor.clone()
        seen.add(tensor.untyped_storage().data_ptr())
        found[name] = tensor
    return found


def module_state(module: nn.Module) -> Tensors:
    """Returns every parameter and buffer by its name, a shared one once."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def names_of(module: nn.Module) -> dict[int, str]:
    """The name of each parameter, by its `id`."""
    return {id(p): name for name, p in module.named_parameters()}


def load_module_state(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copies tensors into the parameters and buffers of those names.

    Raises:
        ValueError: where a name, a shape or a type differs; nothing is copied then.
    """
    own = module_state(module)
    if lacking := sorted(own.keys() ^ tensors.keys()):
        which = "the checkpoint lacks" if lacking[0] in own else "the model lacks"
        raise ValueError(f"{which} {lacking[0]!r}: it is of another model")
    for name, tensor in tensors.items():
        if own[name].shape != tensor.shape or own[name].dtype != tensor.dtype:
            raise ValueError(
                f"{name!r} is {own[name].dtype} {list(own[name].shape)}: "
                f"the checkpoint has {tensor.dtype} {list(tensor.shape)}"
            )
    with torch.no_grad():
        for name, tensor in tensors.items():
            own[name].copy_(tensor)


@contextmanager
def module_kept(module: nn.Module) -> Iterator[None]:
    """Leaves buffers and modes as they were before, and no gradients."""
    held = [(part, dict(part._buffers)) for part in module.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    modes = [(part, part.training) for part in module.modules()]
    try:
        yield
    finally:
        module.zero_grad()
        for part, mode in modes:
            part.training = mode
        for part, own in held:
            part._buffers.update(own)
        with torch.no_grad():
            for buffer, before in buffers:
                if not torch.equal(buffer, before):
                    buffer.copy_(before)


def of_optimizer(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> tuple[Tensors, Facts]:
    """Returns what an optimizer remembers of each parameter, and its settings.

    A tensor is named `parameter.key`. Numbers and lists are among the facts; a tensor within a list, such as a
    preconditioner, is named `parameter.key/0`, and stands in the list as `{"tensor": "parameter.key/0"}`.

    Args:
        optimizer: The optimizer.
        names: The name of each parameter, by its `id`.

    Raises:
        ValueError: where a parameter has no name, or something is remembered that neither file can hold.
    """
    tensors: Tensors = {}

    def laid_out(value: Any, at: str) -> Any:
        if isinstance(value, Tensor):
            tensors[at] = value
            return {"tensor": at}
        if isinstance(value, list | tuple):
            return [laid_out(item, f"{at}/{i}") for i, item in enumerate(value)]
        if not _simple(value):
            raise ValueError(f"an optimizer remembers tensors, finite numbers and lists: got {value!r} at {at}")
        return value

    memories = {name: optimizer.state[p] for name, p in named(optimizer, names).items() if p in optimizer.state}
    numbers = {
        f"{name}.{key}": laid_out(value, f"{name}.{key}")
        for name, memory in memories.items()
        for key, value in memory.items()
    }
    numbers = {at: value for at, value in numbers.items() if value != {"tensor": at}}
    settings = [{k: v for k, v in group.items() if _simple(v)} for group in optimizer.param_groups]
    return tensors, {"kind": type(optimizer).__name__, "numbers": numbers, "groups": settings}


def put_into_optimizer(
    optimizer: torch.optim.Optimizer, names: Mapping[int, str], tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
) -> None:
    """Gives an optimizer its memory and settings back.

    Raises:
        ValueError: where they are of another optimizer.
    """
    kind, numbers, groups = facts.get("kind"), facts.get("numbers"), facts.get("groups")
    if kind != type(optimizer).__name__ or not isinstance(numbers, dict) or not isinstance(groups, list):
        raise ValueError(f"the optimizer is {type(optimizer).__name__}: the checkpoint has {kind!r}")
    if len(groups) != len(optimizer.param_groups):
        raise ValueError(f"{len(optimizer.param_groups)} groups of parameters were wanted: got {len(groups)}")
    for group, settings in zip(optimizer.param_groups, groups, strict=True):
        _set(group, settings)
    by_name, within_lists = named(optimizer, names), set[str]()

    def built(value: Any) -> Any:
        if isinstance(value, dict):
            at = value.get("tensor")
            if at not in tensors:
                raise ValueError(f"the checkpoint lacks a tensor of the optimizer: {at!r}")
            within_lists.add(at)
            return tensors[at].clone()
        return [built(item) for item in value] if isinstance(value, list) else value

    memory = {at: built(value) for at, value in numbers.items()}
    memory |= {at: tensor for at, tensor in tensors.items() if at not in within_lists}
    for at, value in memory.items():
        name, _, key = at.rpartition(".")
        if name not in by_name:
            raise ValueError(f"the optimizer has no parameter {name!r}: the checkpoint is of another model")
        parameter = by_name[name]
        if isinstance(value, Tensor):
            counts = key == "step" and not _counts_on_device(optimizer, parameter)
            value = value.clone() if counts else _beside(parameter, value)
        optimizer.state[parameter][key] = value


def named(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> dict[str, Tensor]:
    """Returns the parameters of an optimizer by their names.

    Raises:
        ValueError: where one has none: it is not of the model, and nobody would keep it.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for p in parameters:
        if id(p) not in names:
            raise ValueError(f"an optimizer changes parameters of the model: got another, of shape {list(p.shape)}")
    return {names[id(p)]: p for p in parameters}


def _beside(parameter: Tensor, value: Tensor) -> Tensor:
    """Copies a tensor to the device of a parameter, and to its layout if the shape is the same."""
    if value.shape != parameter.shape:
        return value.to(parameter.device, copy=True)
    return torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)


def _counts_on_device(optimizer: torch.optim.Optimizer, parameter: Tensor) -> bool:
    """PyTorch keeps the number of steps beside the parameter only for its captured and fused kernels."""
    group = next(g for g in optimizer.param_groups if any(p is parameter for p in g["params"]))
    return bool(group.get("capturable") or group.get("fused"))


def _set(group: dict[str, Any], settings: Mapping[str, Any]) -> None:
    """Sets the settings of a group that it has, if they are of the same type."""
    for key, value in settings.items() if isinstance(settings, dict) else ():
        if key not in group or key == "params":
            continue
        value = tuple(value) if isinstance(group[key], tuple) and isinstance(value, list) else value
        numbers = all(type(v) in (int, float) for v in (value, group[key]))
        if type(value) is not type(group[key]) and not numbers:
            raise ValueError(f"the optimizer's {key} is {group[key]!r}: the checkpoint has {value!r}")
        group[key] = value


def _simple(value: Any) -> bool:
    """Says whether JSON holds a value exactly."""
    if isinstance(value, tuple | list):
        return all(map(_simple, value))
    return value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))


def of_randomness() -> tuple[Tensors, Facts]:
    """Returns the random states of PyTorch on every device, of NumPy and of Python."""
    version, numbers, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = cast("tuple[str, np.ndarray, int, int, float]", np.random.get_state())
    tensors = {
        "torch": torch.get_rng_state(),
        "python": torch.tensor(numbers, dtype=torch.int64),
        "numpy": torch.from_numpy(keys.astype(np.int64)),
    }
    if torch.cuda.is_available():
        tensors |= {f"cuda.{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    if torch.backends.mps.is_available():
        tensors["mps"] = torch.mps.get_rng_state()
    return tensors, {"python": [version, gauss], "numpy": [kind, position, has_gauss, cached]}


def put_into_randomness(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Puts every random state back.

    Raises:
        ValueError: where one is none.
    """
    try:
        torch.set_rng_state(tensors["torch"].clone())
        version, gauss = facts["python"]
        random.setstate((version, tuple(tensors["python"].tolist()), gauss))
        kind, position, has_gauss, cached = facts["numpy"]
        np.random.set_state((kind, tensors["numpy"].numpy().astype(np.uint32), position, has_gauss, cached))
        for i in range(torch.cuda.device_count()):
            if f"cuda.{i}" in tensors:
                torch.cuda.set_rng_state(tensors[f"cuda.{i}"].clone(), i)
        if "mps" in tensors and torch.backends.mps.is_available():
            torch.mps.set_rng_state(tensors["mps"].clone())
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(f"the checkpoint has no random states that can be used: {error}") from error


@contextmanager
def preserve_rng() -> Iterator[None]:
    """Leaves every random state as it was before."""
    tensors, facts = of_randomness()
    try:
        yield
    finally:
        put_into_randomness(tensors, facts)


def part(facts: Mapping[str, Any], name: str) -> Facts:
    """Returns the facts of a name.

    Raises:
        ValueError: where there are none.
    """
    if not isinstance(found := facts.get(name), dict):
        raise ValueError(f"the checkpoint has no facts of {name!r}: it is of another training")
    return found


def add_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> Tensors:
    """Returns tensors with a prefix to their names."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def strip_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> Tensors:
    """Returns the tensors of a prefix, without it."""
    return {name[len(prefix) + 1 :]: t for name, t in tensors.items() if name.startswith(prefix + ".")}


def seed(number: int) -> None:
    """Sets every random state."""
    torch.manual_seed(number)
    np.random.seed(number % 2**32)
    random.seed(number)


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
