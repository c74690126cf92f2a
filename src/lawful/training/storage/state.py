"""The whole state of a training as tensors and JSON: weights, optimizers, random states."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

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


def of_module(module: nn.Module) -> Tensors:
    """Returns every parameter and buffer by its name, a shared one once."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def names_of(module: nn.Module) -> dict[int, str]:
    """The name of each parameter, by its `id`."""
    return {id(p): name for name, p in module.named_parameters()}


def put_into_module(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copies tensors into the parameters and buffers of those names.

    Raises:
        ValueError: where a name, a shape or a type differs; nothing is copied then.
    """
    own = of_module(module)
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
def randomness_kept() -> Iterator[None]:
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


def under(prefix: str, tensors: Mapping[str, Tensor]) -> Tensors:
    """Returns tensors with a prefix to their names."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def within(prefix: str, tensors: Mapping[str, Tensor]) -> Tensors:
    """Returns the tensors of a prefix, without it."""
    return {name[len(prefix) + 1 :]: t for name, t in tensors.items() if name.startswith(prefix + ".")}


def seed(number: int) -> None:
    """Sets every random state."""
    torch.manual_seed(number)
    np.random.seed(number % 2**32)
    random.seed(number)
