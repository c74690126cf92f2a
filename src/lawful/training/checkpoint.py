"""Checkpoints without pickle: safetensors and JSON with checksums, sharded tensors, and the state they hold."""

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
from contextlib import ExitStack, contextmanager
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

from lawful import _json
from lawful._files import (
    atomic_folder,
    create_file,
    fsync_file,
    list_folder,
    open_file,
    open_path,
    pin_folder,
    remove_folder,
)
from lawful._names import quote

_CHECKSUMS, _METADATA = "checksums.json", "metadata.json"
_MAX_METADATA_BYTES = 1 << 26

_Tensors = dict[str, Tensor]
_Metadata = dict[str, Any]
_ShardedLike = Callable[[str, Sequence[int]], Tensor | None]
"""Maps the name and shape of a tensor to a DTensor with the same placement, or to None for a plain tensor."""


def _unsharded(name: str, shape: Sequence[int]) -> None:
    """Loads every tensor as a plain tensor."""


class CorruptCheckpointError(ValueError):
    """A checkpoint is incomplete or was changed after it was written."""


@dataclass(frozen=True)
class Checkpoint:
    """The state of a training after a step: tensors, and JSON values as metadata."""

    step: int
    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, Any]

    def copy_to_cpu(self) -> Checkpoint:
        """Returns a copy that later training steps do not change."""
        tensors = {name: tensor.detach().to("cpu", copy=True) for name, tensor in self.tensors.items()}
        return Checkpoint(self.step, tensors, deepcopy(self.metadata))


class Checkpoints:
    """A folder of checkpoints `step-00000100`, ...

    A checkpoint is written to a temporary folder, flushed to disk and renamed, so that a crash leaves the previous
    ones intact. It holds `metadata.json`, one file of tensors per process such as `tensors-1-of-1.safetensors`, and
    `checksums.json`.

    Args:
        folder: The folder.
        root: Folder below which symbolic links are not followed. Defaults to `folder`.
    """

    def __init__(self, folder: Path, *, root: Path | None = None) -> None:
        self.folder, self.root = folder, folder if root is None else root

    def steps(self) -> list[int]:
        """Returns the steps that have a checkpoint."""
        names = {name for name, kind in list_folder(self.folder, root=self.root).items() if kind == "folder"}
        numbers = (int(match[1]) for name in names if (match := re.fullmatch(r"step-([0-9]{8,18})", name)))
        return sorted(step for step in numbers if self.path(step).name in names)

    def path(self, step: int) -> Path:
        """Returns the folder of a step's checkpoint."""
        return self.folder / f"step-{step:08d}"

    def save(
        self,
        checkpoint: Checkpoint,
        *,
        keep: int,
        best: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        barrier: Callable[[], None] = lambda: None,
        share: Callable[[str | None], str | None] = lambda text: text,
    ) -> None:
        """Writes a checkpoint. Every process calls it with its own tensors.

        Args:
            checkpoint: The checkpoint.
            keep: Number of checkpoints to keep besides the best.
            best: Step of the best checkpoint.
            rank: Rank of the process. Rank 0 writes the metadata.
            world_size: Number of processes.
            barrier: Waits for all processes.
            share: Broadcasts the text of rank 0 to every process.
        """
        metadata = _json.dump(checkpoint.metadata).encode()
        if len(metadata) > _MAX_METADATA_BYTES:
            raise ValueError(f"checkpoint metadata has {len(metadata)} bytes, the limit is {_MAX_METADATA_BYTES}")
        with ExitStack() as stack:
            folder = None
            if rank == 0:
                folder = stack.enter_context(atomic_folder(self.path(checkpoint.step), root=self.root))
            folder = self.folder / str(share(folder.name if folder else None))
            place = stack.enter_context(pin_folder(folder, root=self.root))
            _save_tensors(place / _file_name(rank, world_size), checkpoint.tensors)
            barrier()
            if rank == 0:
                with create_file(place / _METADATA) as file:
                    file.write(metadata)
                _write_checksums(place)
        if rank == 0:
            self.remove_old(keep=keep, best=best)
        barrier()

    def remove_old(self, *, keep: int, best: int | None = None) -> None:
        """Removes all checkpoints except the newest and the best."""
        for step in self.steps()[:-keep]:
            if step != best:
                with pin_folder(self.folder, root=self.root) as place:
                    remove_folder(place / self.path(step).name)

    def load(self, step: int, *, sharded_like: _ShardedLike = _unsharded) -> Checkpoint:
        """Loads the checkpoint of a step.

        Args:
            step: The step.
            sharded_like: Which tensors to load as shards of a DTensor.

        Raises:
            CorruptCheckpointError: If the checkpoint is incomplete or was changed.
        """
        folder = self.path(step)
        _verify_checksums(folder, self.root)
        try:
            metadata = _json.load(folder / _METADATA, largest=_MAX_METADATA_BYTES, root=self.root)
            tensors = _load_tensors(_tensor_files(folder, self.root), sharded_like, root=self.root)
        except PermissionError:
            raise
        except (ValueError, OSError, SafetensorError) as error:
            raise CorruptCheckpointError(f"cannot read checkpoint {folder.name}: {error}") from None
        if not isinstance(metadata, dict):
            kind = type(metadata).__name__
            raise CorruptCheckpointError(f"checkpoint {folder.name}: {_METADATA} must be a JSON object, got {kind}")
        return Checkpoint(step, tensors, metadata)

    def load_newest(
        self, *, corrupt: list[str] | None = None, sharded_like: _ShardedLike = _unsharded
    ) -> Checkpoint | None:
        """Loads the newest intact checkpoint, and appends the errors of newer ones to `corrupt`."""
        for step in reversed(self.steps()):
            try:
                return self.load(step, sharded_like=sharded_like)
            except CorruptCheckpointError as error:
                if corrupt is not None:
                    corrupt.append(str(error))
        return None

    def problems(self) -> list[str]:
        """Returns the errors of the checkpoints that are not intact."""
        found = []
        for step in self.steps():
            try:
                _verify_checksums(self.path(step), self.root)
            except ValueError as error:
                found.append(f"{error}, in {quote(self.folder)}")
        return found

    def mark_corrupt(self, *, after: int) -> None:
        """Renames the checkpoints after a step to `*.corrupt`."""
        for step in self.steps():
            if step > after:
                with pin_folder(self.folder, root=self.root) as place:
                    path = place / self.path(step).name
                    shutil.rmtree(path.with_suffix(".corrupt"), ignore_errors=True)
                    path.rename(path.with_suffix(".corrupt"))


def _write_checksums(folder: Path) -> None:
    checksums = {name: _sha256(folder / name, folder) for name in list_folder(folder)}
    with create_file(folder / _CHECKSUMS) as file:
        file.write(_json.dump(checksums).encode())


def _verify_checksums(folder: Path, root: Path) -> None:
    """Raises `CorruptCheckpointError` with the first file that is missing, unknown or altered."""
    try:
        checksums = _json.load(folder / _CHECKSUMS, root=root)
    except PermissionError:
        raise
    except (ValueError, OSError) as error:
        raise CorruptCheckpointError(f"checkpoint {folder.name} has no readable {_CHECKSUMS}: {error}") from None
    if not isinstance(checksums, dict) or not checksums:
        raise CorruptCheckpointError(f"checkpoint {folder.name}: {_CHECKSUMS} lists no files")
    files = {name for name, kind in list_folder(folder, root=root).items() if kind == "file"} - {_CHECKSUMS}
    if different := sorted(files ^ checksums.keys()):
        name = different[0]
        reason = f"is not listed in {_CHECKSUMS}" if name in files else "is missing"
        raise CorruptCheckpointError(f"checkpoint {folder.name}: {name!r} {reason}")
    for name, checksum in checksums.items():
        if _sha256(folder / name, root) != checksum:
            raise CorruptCheckpointError(f"checkpoint {folder.name}: the checksum of {quote(name)} does not match")


def _sha256(path: Path, root: Path) -> str:
    with open_file(path, root=root) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ------------------------------------------------------------ state of modules, optimizers and random generators


def seed_everything(seed: int) -> None:
    """Seeds the global random generators of PyTorch, NumPy and Python."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


@contextmanager
def preserve_rng() -> Iterator[None]:
    """Restores the global random states of PyTorch (on every device), NumPy and Python on exit."""
    tensors, metadata = _rng_state()
    try:
        yield
    finally:
        _load_rng_state(tensors, metadata)


def module_state(module: nn.Module) -> _Tensors:
    """Returns all parameters and buffers by name, including non-persistent buffers. Shared tensors occur once."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def load_module_state(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copies tensors into the parameters and buffers of a module.

    Args:
        module: The module.
        tensors: Tensors as returned by `module_state`.

    Raises:
        ValueError: If a name, shape or dtype differs. Nothing is copied then.
    """
    own = module_state(module)
    if different := sorted(own.keys() ^ tensors.keys()):
        reason = "is missing in the checkpoint" if different[0] in own else "is not in the model"
        raise ValueError(f"the checkpoint is from another model: {different[0]!r} {reason}")
    for name, tensor in tensors.items():
        if own[name].shape != tensor.shape or own[name].dtype != tensor.dtype:
            raise ValueError(
                f"the checkpoint is from another model: {name!r} must be {own[name].dtype} {list(own[name].shape)}, "
                f"got {tensor.dtype} {list(tensor.shape)}"
            )
    with torch.no_grad():
        for name, tensor in tensors.items():
            own[name].copy_(tensor)


@contextmanager
def _preserve_module(module: nn.Module) -> Iterator[None]:
    """On exit, restores the buffers and the train or eval modes, and clears the gradients."""
    registered = [(part, dict(part._buffers)) for part in module.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    modes = [(part, part.training) for part in module.modules()]
    try:
        yield
    finally:
        module.zero_grad()
        for part, mode in modes:
            part.training = mode
        for part, own in registered:
            part._buffers.update(own)
        with torch.no_grad():
            for buffer, before in buffers:
                if not torch.equal(buffer, before):
                    buffer.copy_(before)


def _contiguous_copies(tensors: Mapping[str, Tensor]) -> _Tensors:
    """Returns tensors as safetensors needs them: contiguous, on the CPU, without shared memory."""
    storages: set[int] = set()
    copies = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        storage = tensor.untyped_storage()
        if storage.data_ptr() in storages or storage.nbytes() != tensor.nbytes:
            tensor = tensor.clone()
        storages.add(tensor.untyped_storage().data_ptr())
        copies[name] = tensor
    return copies


def _parameter_names(module: nn.Module) -> dict[int, str]:
    """Returns the name of each parameter by its `id`."""
    return {id(p): name for name, p in module.named_parameters()}


def _named_parameters(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> dict[str, Tensor]:
    """Returns the parameters of an optimizer by name.

    Raises:
        ValueError: If the optimizer has a parameter that does not belong to the model.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for p in parameters:
        if id(p) not in names:
            raise ValueError(f"the optimizer has a parameter of shape {list(p.shape)} that is not in the model")
    return {names[id(p)]: p for p in parameters}


def _optimizer_state(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> tuple[_Tensors, _Metadata]:
    """Returns the tensors and the other values of an optimizer's state.

    A tensor is named `parameter.key`. A tensor in a list, such as a preconditioner, is named `parameter.key/0`, and the
    list holds `{"tensor": "parameter.key/0"}`.

    Args:
        optimizer: The optimizer.
        names: The name of each parameter by its `id`.

    Raises:
        ValueError: If a parameter has no name or a value cannot be stored.
    """
    tensors: _Tensors = {}

    def encode(value: Any, key: str) -> Any:
        if isinstance(value, Tensor):
            tensors[key] = value
            return {"tensor": key}
        if isinstance(value, list | tuple):
            return [encode(item, f"{key}/{i}") for i, item in enumerate(value)]
        if not _is_json(value):
            raise ValueError(f"cannot save the optimizer state {key}: {value!r} is not a tensor, finite number or list")
        return value

    states = {
        name: optimizer.state[p] for name, p in _named_parameters(optimizer, names).items() if p in optimizer.state
    }
    values = {
        f"{name}.{key}": encode(value, f"{name}.{key}")
        for name, state in states.items()
        for key, value in state.items()
    }
    values = {key: value for key, value in values.items() if value != {"tensor": key}}
    groups = [{k: v for k, v in group.items() if _is_json(v)} for group in optimizer.param_groups]
    return tensors, {"class": type(optimizer).__name__, "values": values, "groups": groups}


def _load_optimizer_state(
    optimizer: torch.optim.Optimizer,
    names: Mapping[int, str],
    tensors: Mapping[str, Tensor],
    metadata: _Metadata,
    *,
    keep_options: bool = False,
) -> None:
    """Restores an optimizer's state and options.

    Args:
        optimizer: The optimizer.
        names: The name of each parameter by its `id`.
        tensors: Tensors of the state.
        metadata: Other values of the state, and the options.
        keep_options: Whether the optimizer keeps its own options, such as the learning rate.

    Raises:
        ValueError: If the state is from another optimizer.
    """
    kind, values, groups = metadata.get("class"), metadata.get("values"), metadata.get("groups")
    if kind != type(optimizer).__name__ or not isinstance(values, dict) or not isinstance(groups, list):
        raise ValueError(f"the checkpoint is from another optimizer: expected {type(optimizer).__name__}, got {kind!r}")
    if len(groups) != len(optimizer.param_groups):
        raise ValueError(f"expected {len(optimizer.param_groups)} parameter groups, got {len(groups)}")
    for group, options in zip(optimizer.param_groups, groups, strict=True):
        own = {key: group[key] for key in optimizer.defaults if key in group} if keep_options else {}
        _load_group_options(group, options)
        group |= own
    parameters, in_lists = _named_parameters(optimizer, names), set[str]()

    def decode(value: Any) -> Any:
        if isinstance(value, dict):
            key = value.get("tensor")
            if key not in tensors:
                raise ValueError(f"the checkpoint has no tensor {key!r} of the optimizer state")
            in_lists.add(key)
            return tensors[key].clone()
        return [decode(item) for item in value] if isinstance(value, list) else value

    state = {key: decode(value) for key, value in values.items()}
    state |= {key: tensor for key, tensor in tensors.items() if key not in in_lists}
    for path, value in state.items():
        name, _, key = path.rpartition(".")
        if name not in parameters:
            raise ValueError(f"the checkpoint is from another model: the optimizer has no parameter {name!r}")
        parameter = parameters[name]
        if isinstance(value, Tensor):
            step_on_cpu = key == "step" and not _step_is_on_device(optimizer, parameter)
            value = value.clone() if step_on_cpu else _copy_like(parameter, value)
        optimizer.state[parameter][key] = value


def _copy_like(parameter: Tensor, value: Tensor) -> Tensor:
    """Copies a tensor to the device of a parameter, and to its memory layout if the shapes are equal."""
    if value.shape != parameter.shape:
        return value.to(parameter.device, copy=True)
    return torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)


def _step_is_on_device(optimizer: torch.optim.Optimizer, parameter: Tensor) -> bool:
    """Returns whether `torch.optim` keeps the step count on the device: only for capturable and fused kernels."""
    group = next(g for g in optimizer.param_groups if any(p is parameter for p in g["params"]))
    return bool(group.get("capturable") or group.get("fused"))


def _load_group_options(group: dict[str, Any], options: Any) -> None:
    """Sets the options that the parameter group has, if their types match."""
    for key, value in options.items() if isinstance(options, dict) else ():
        if key not in group or key == "params":
            continue
        value = tuple(value) if isinstance(group[key], tuple) and isinstance(value, list) else value
        both_numbers = all(type(v) in (int, float) for v in (value, group[key]))
        if type(value) is not type(group[key]) and not both_numbers:
            raise ValueError(f"the optimizer has {key}={group[key]!r}, the checkpoint {key}={value!r}")
        group[key] = value


def _is_json(value: Any) -> bool:
    """Returns whether JSON represents a value exactly."""
    if isinstance(value, tuple | list):
        return all(map(_is_json, value))
    return value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))


def _rng_state() -> tuple[_Tensors, _Metadata]:
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


def _load_rng_state(tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    try:
        torch.set_rng_state(tensors["torch"].clone())
        version, gauss = metadata["python"]
        random.setstate((version, tuple(tensors["python"].tolist()), gauss))
        kind, position, has_gauss, cached = metadata["numpy"]
        np.random.set_state((kind, tensors["numpy"].numpy().astype(np.uint32), position, has_gauss, cached))
        for i in range(torch.cuda.device_count()):
            if f"cuda.{i}" in tensors:
                torch.cuda.set_rng_state(tensors[f"cuda.{i}"].clone(), i)
        if "mps" in tensors and torch.backends.mps.is_available():
            torch.mps.set_rng_state(tensors["mps"].clone())
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(f"the checkpoint has no valid random states: {error}") from error


def _section(metadata: Mapping[str, Any], name: str) -> _Metadata:
    """Returns the object `name` of the metadata, or raises a ValueError."""
    if not isinstance(section := metadata.get(name), dict):
        raise ValueError(f"the checkpoint is from another training: its metadata has no {name!r}")
    return section


def _add_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> _Tensors:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _strip_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> _Tensors:
    """Returns the tensors whose names have the prefix, without it."""
    return {name[len(prefix) + 1 :]: t for name, t in tensors.items() if name.startswith(prefix + ".")}


# ------------------------------------------------------------ sharded tensors
#
# Each process writes the rows that it holds. `torch.distributed.checkpoint` with its safetensors storage is not used:
# it does not notice missing rows, and builds each file in memory.

_SHARDS = "shards"


def _file_name(rank: int, world_size: int) -> str:
    return f"tensors-{rank + 1}-of-{world_size}.safetensors"


def _tensor_files(folder: Path, root: Path) -> list[Path]:
    """Returns the tensor files of all processes, or raises a ValueError if one is missing."""
    names = {name for name in list_folder(folder, root=root) if re.fullmatch(r"tensors-.*\.safetensors", name)}
    expected = [_file_name(rank, len(names)) for rank in range(len(names))]
    if not expected or names != set(expected):
        raise ValueError(f"expected one tensor file per process, got {sorted(names)}")
    return [folder / name for name in expected]


def _is_sharded(tensor: Tensor) -> bool:
    """Returns whether a tensor is a DTensor, without the slow import of `torch.distributed.tensor`."""
    return hasattr(tensor, "placements")


def _local(tensor: Tensor) -> Tensor:
    """Returns this process's shard of a DTensor, or the tensor itself."""
    return tensor.to_local() if _is_sharded(tensor) else tensor  # type: ignore[not-callable]


def _full(tensor: Tensor) -> Tensor:
    """Returns the full tensor. For a DTensor, every process must call it."""
    return tensor.full_tensor() if _is_sharded(tensor) else tensor  # type: ignore[not-callable]


def _save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes this process's shards to a new file.

    Raises:
        OSError: If the file cannot be written; safetensors reports the error number in its message only.
    """
    try:
        shards, metadata = _to_shards(tensors)
        save_file(shards, path, metadata=metadata)  # writes a temporary file and renames it
        fsync_file(path)
    except SafetensorError as error:
        match = re.search(r"os error (\d+)", str(error))
        number = int(match[1]) if match else errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from error


def _to_shards(tensors: Mapping[str, Tensor]) -> tuple[_Tensors, dict[str, str]]:
    """Returns the content of a tensor file, and its header with the full shape and the offset of each shard."""
    header: dict[str, dict[str, list[int]]] = {}
    shards: _Tensors = {}
    for name, tensor in tensors.items():
        own = _local(tensor.detach())
        if _is_sharded(tensor):
            if tensor.numel() and not own.numel():
                continue
            header[name] = {"shape": list(tensor.shape), "offsets": [_row_range(tensor)[0]] + [0] * (tensor.dim() - 1)}
        shards[name] = own
    return _contiguous_copies(shards), {_SHARDS: json.dumps(header)}


@dataclass(frozen=True)
class _Shard:
    """Rows of a tensor, in a file."""

    slice: Any
    shape: tuple[int, ...]
    offset: int
    rows: int


def _load_tensors(paths: Sequence[Path], sharded_like: _ShardedLike, *, root: Path | None = None) -> _Tensors:
    """Assembles every tensor, or this process's shard of it, from the files of all processes.

    Args:
        paths: The files.
        sharded_like: Which tensors to load as shards of a DTensor.
        root: Folder below which symbolic links are not followed.

    Raises:
        ValueError: If a header is invalid, or shards overlap or are missing.
    """
    with ExitStack() as stack:
        shards: dict[str, list[_Shard]] = {}
        for path in paths:
            name = stack.enter_context(open_path(path, root=root))
            file = stack.enter_context(safe_open(name, framework="pt"))
            for name, shard in _read_shards(file):
                shards.setdefault(name, []).append(shard)
        for name, found in shards.items():
            _check_shards(name, found)
        return {name: _assemble(found, sharded_like(name, found[0].shape)) for name, found in shards.items()}


def _read_shards(file: Any) -> Iterator[tuple[str, _Shard]]:
    header = _json.parse((file.metadata() or {}).get(_SHARDS, "{}").encode(), name="the header of a tensor file")
    if not isinstance(header, dict):
        raise ValueError("the header of a tensor file is not a JSON object")
    names = set(file.keys())
    if unknown := header.keys() - names:
        raise ValueError(f"the header of a tensor file names the unknown tensor {min(unknown)!r}")
    for name in names:
        slice_ = file.get_slice(name)
        own = tuple(slice_.get_shape())
        if name not in header:
            yield name, _Shard(slice_, own, 0, own[0] if own else 1)
            continue
        shape, offsets = _read_sizes(name, header[name], "shape"), _read_sizes(name, header[name], "offsets")
        matches = len(shape) == len(offsets) == len(own) >= 1 and shape[1:] == own[1:] and not any(offsets[1:])
        if not matches or offsets[0] + own[0] > shape[0]:
            raise ValueError(f"the shard of {name!r} of shape {own} at {offsets} is not inside the shape {shape}")
        yield name, _Shard(slice_, shape, offsets[0], own[0])


def _read_sizes(name: str, entry: Any, key: str) -> tuple[int, ...]:
    sizes = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(sizes, list) or not all(type(n) is int and 0 <= n < 2**63 for n in sizes):
        raise ValueError(f"{key} of the shard of {name!r} must be a list of sizes, got {str(sizes)[:60]}")
    return tuple(sizes)


def _check_shards(name: str, shards: list[_Shard]) -> None:
    """Raises a ValueError if shards overlap or leave a gap, before anything of the claimed size is allocated."""
    first = shards[0]
    shards.sort(key=lambda shard: shard.offset)
    if any(s.shape != first.shape or s.slice.get_dtype() != first.slice.get_dtype() for s in shards):
        raise ValueError(f"the shards of {name!r} have different shapes or dtypes")
    if not first.shape and len(shards) > 1:
        raise ValueError(f"the scalar {name!r} has {len(shards)} shards")
    row = 0
    for shard in shards if prod(first.shape) else ():
        if shard.offset != row:
            raise ValueError(f"expected a shard of {name!r} at row {row}, got row {shard.offset}")
        row += shard.rows
    if first.shape and prod(first.shape) and row != first.shape[0]:
        raise ValueError(f"the shards of {name!r} have {row} of {first.shape[0]} rows")


def _assemble(shards: list[_Shard], like: Tensor | None) -> Tensor:
    shape = shards[0].shape
    if like is None or like.shape != shape:
        return _read_rows(shards, 0, shape[0] if shape else 1)
    from torch.distributed.tensor import DTensor

    if not isinstance(like, DTensor):
        raise TypeError(f"sharded_like must return a DTensor, got {type(like).__name__}")
    start, stop = _row_range(like)
    return DTensor.from_local(
        _read_rows(shards, start, stop).to(like.device),
        like.device_mesh,
        like.placements,
        shape=like.shape,
        stride=like.stride(),
    )


def _read_rows(shards: list[_Shard], start: int, stop: int) -> Tensor:
    if not shards[0].shape:
        return shards[0].slice[...]
    rows = []
    for shard in shards:
        low, high = max(start, shard.offset), min(stop, shard.offset + shard.rows)
        if low < high:
            rows.append(shard.slice[low - shard.offset : high - shard.offset])
    if not rows:
        rows = [shards[0].slice[0:0]]
    return torch.cat(rows) if len(rows) > 1 else rows[0]


def _row_range(tensor: Any) -> tuple[int, int]:
    """Returns the first row of a DTensor that this process holds, and the row after the last."""
    if len(tensor.placements) != 1 or not tensor.placements[0].is_shard(0):
        raise ValueError(f"expected a DTensor sharded along rows of a one-dimensional mesh, got {tensor.placements}")
    length, size = tensor.shape[0], tensor.device_mesh.size()
    start = min(tensor.device_mesh.get_local_rank() * -(-length // size), length)
    return start, start + len(tensor.to_local())
