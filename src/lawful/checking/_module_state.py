"""The state of the modules under test: cast to a dtype, reset before every call, restored at the end."""

from __future__ import annotations

import functools
import inspect
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from operator import is_
from types import ModuleType
from typing import Any
from zlib import crc32

import numpy
import torch
from torch import Tensor, nn

from lawful.checking._compare import RoundingNoise

_CONTAINERS = (dict, list, set)


def find_modules(target: Any) -> list[nn.Module]:
    """Returns the modules that a callable is, belongs to, holds, or closes over."""
    found: list[nn.Module] = []
    seen: set[int] = set()

    def visit(value: Any, depth: int) -> None:
        if id(value) in seen or depth > 4:
            return
        seen.add(id(value))
        if isinstance(value, nn.Module):
            found.append(value)
        elif isinstance(value, functools.partial):
            for part in (value.func, *value.args, *value.keywords.values()):
                visit(part, depth + 1)
        elif inspect.ismethod(value):
            visit(value.__self__, depth + 1)
        elif inspect.isfunction(value):
            try:
                names = inspect.getclosurevars(value)
            except ValueError:  # an empty closure cell
                return
            defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
            for part in (*names.nonlocals.values(), *names.globals.values(), *defaults):
                visit(part, depth + 1)
        elif isinstance(value, list | tuple | dict):
            for part in value.values() if isinstance(value, dict) else value:
                visit(part, depth + 1)
        elif hasattr(value, "__dict__") and not isinstance(value, type | ModuleType):
            for part in vars(value).values():
                visit(part, depth + 1)

    visit(target, 0)
    return found


class ModuleSnapshot:
    """Everything in some modules that a call may change.

    During a check every tensor of the modules holds a working copy in the dtype of the run. The original storage is
    not touched, and `restore` puts it back.
    """

    def __init__(self, roots: list[nn.Module]) -> None:
        self.roots = roots
        self.modules = list({id(m): m for root in roots for m in root.modules()}.values())
        self.parameters = {
            f"{n}: {name}" if len(roots) > 1 else name: p
            for n, root in enumerate(roots)
            for name, p in root.named_parameters()
        }
        self.named = self.parameters | {
            name: p for root in roots[:1] for name, p in root.named_parameters(remove_duplicate=False)
        }
        """The parameters of the first module by all their names; a shared parameter has several."""
        self.modes = [m.training for m in self.modules]
        self.structure = [(vars(m), dict(vars(m)), _copy_containers(vars(m))) for m in self.modules]
        self.generators = [
            (g, g.get_state()) for m in self.modules for g in vars(m).values() if isinstance(g, torch.Generator)
        ]
        tensors = {id(t): t for m in self.modules for t in _tensors(vars(m))}
        self.tensors = list(tensors.values())
        self.originals = [t.data for t in self.tensors]
        self.grads = [(p, p.grad, p.requires_grad) for p in self.parameters.values()]
        self.working = list(self.originals)
        self.degenerate = {
            name: kind
            for name, p in self.parameters.items()
            if p.requires_grad and (kind := _degenerate_kind(p.data)) is not None
        }
        """The parameters that are zero, one, constant or the identity."""
        self.changed_by_calls = False
        """Whether any call has changed the state."""
        self.keep_dtypes = False
        """Whether every tensor keeps its own dtype."""
        self.clean = False
        """Whether nothing has happened since the last reset; `BoundMap` clears it before a call."""
        self._prepared: dict[tuple[torch.dtype, int, bool], list[Tensor]] = {}
        self._current: tuple[torch.dtype, int, bool] | None = None
        for p, _, _ in self.grads:
            p.grad = None

    @property
    def buffers(self) -> dict[str, Tensor]:
        """The buffers by name, as they are now."""
        several = len(self.roots) > 1
        return {
            f"{n}: {name}" if several else name: buffer
            for n, root in enumerate(self.roots)
            for name, buffer in root.named_buffers()
        }

    @property
    def device(self) -> torch.device:
        return self.originals[0].device if self.originals else torch.device("cpu")

    @property
    def was_training(self) -> bool:
        """Whether any of the modules was in training mode."""
        return any(self.modes)

    @property
    def roots_training(self) -> bool:
        """Whether any module was in training mode itself, and not only its submodules."""
        modes = {id(m): mode for m, mode in zip(self.modules, self.modes, strict=True)}
        return any(modes[id(root)] for root in self.roots)

    def set_mode(self, training: bool) -> None:
        """Puts the modules into eval mode, or back into their original mode."""
        for (live, shallow, _), original in zip(self.structure, self.modes, strict=True):
            live["training"] = shallow["training"] = training and original

    def prepare(self, dtype: torch.dtype, seed: int, *, noise: RoundingNoise | None = None) -> None:
        """Casts every tensor to a dtype. A seed other than 0 re-randomizes degenerate parameters."""
        key = (dtype, seed, self.keep_dtypes)
        if key == self._current and noise is None:
            self.reset()
            return
        self._current = key if noise is None else None
        if key not in self._prepared:
            self._prepared[key] = self._working_copies(dtype, seed)
        self.working = self._prepared[key]
        if noise is not None:
            self.working = [
                noise.perturb(w, dtype=original.dtype) if w.is_floating_point() else w
                for w, original in zip(self.working, self.originals, strict=True)
            ]
        for i in range(len(self.tensors)):
            self._write(i)
        self.clean = False

    def _working_copies(self, dtype: torch.dtype, seed: int) -> list[Tensor]:
        originals = {id(t): data for t, data in zip(self.tensors, self.originals, strict=True)}
        counts: Counter[Any] = Counter()
        for name, kind in self.degenerate.items() if seed else ():
            key, root = id(self.parameters[name]), name.partition(": ")[0] if ": " in name else ""
            group = (kind, tuple(originals[key].shape))
            counts[root, group] += 1  # two modules with equal parameters stay equal
            generator = torch.Generator().manual_seed(crc32(repr((seed, group, counts[root, group])).encode()))
            originals[key] = _randomize(originals[key], kind, generator)
        if self.keep_dtypes:
            return [data.clone() for data in originals.values()]
        complex_type = torch.complex128 if dtype is torch.float64 else torch.complex64
        return [
            data.to(dtype if data.is_floating_point() else complex_type if data.is_complex() else data.dtype, copy=True)
            for data in originals.values()
        ]

    def _write(self, i: int) -> None:
        self.tensors[i].data = self.working[i].clone()

    def reset(self) -> None:
        """Undoes all changes of the last call to buffers, attributes, containers and parameters."""
        if self.clean:
            return
        for live, shallow, contents in self.structure:
            if not _same_items(live, shallow):
                live.clear()
                live.update(shallow)
                self.changed_by_calls = True
            for container, copy in contents:
                if (container or copy) and not _same_items(container, copy):
                    _refill(container, copy)
                    self.changed_by_calls = True
        for i, (tensor, working) in enumerate(zip(self.tensors, self.working, strict=True)):
            if tensor.shape != working.shape or tensor.dtype != working.dtype or not torch.equal(tensor, working):
                self._write(i)
                self.changed_by_calls = True
        for generator, state in self.generators:
            generator.set_state(state)
        self.clean = True

    def cast(self, dtype: torch.dtype) -> None:
        """Casts floating-point tensors to a dtype until the next reset."""
        for tensor in self.tensors:
            if tensor.is_floating_point():
                tensor.data = tensor.data.to(dtype)

    def reseed(self, seed: int) -> None:
        """Seeds the generators that the modules hold."""
        for generator, _ in self.generators:
            generator.manual_seed(seed)

    def restore(self) -> None:
        """Restores the original state."""
        self.clean = False
        self.reset()
        self.set_mode(True)
        for tensor, data in zip(self.tensors, self.originals, strict=True):
            tensor.data = data
        for p, grad, requires_grad in self.grads:
            p.requires_grad_(requires_grad)
            p.grad = grad


def submodules_in_training_mode(root: nn.Module) -> list[str]:
    """Lists the submodules that read `training` and are in training mode, although the module is in eval mode.

    Submodules that are not registered, such as those in a plain list, are included.
    """
    found: dict[int, str] = {}
    seen: set[int] = set()

    def visit(value: Any, name: str, depth: int) -> None:
        if isinstance(value, nn.Module):
            if id(value) in seen:
                return
            seen.add(id(value))
            if value.training and "training" in getattr(type(value).forward, "__code__", visit.__code__).co_names:
                found[id(value)] = f"{name} ({type(value).__name__})"
            for key, part in value._modules.items():
                visit(part, f"{name}.{key}" if name else key, depth)
            for key, part in vars(value).items():
                if key != "_modules":
                    visit(part, f"{name}.{key}" if name else key, depth)
        elif isinstance(value, dict | list | tuple) and depth < 4:
            for key, part in value.items() if isinstance(value, dict) else enumerate(value):
                visit(part, f"{name}[{key!r}]", depth + 1)

    if not root.training:
        visit(root, "", 0)
    return list(found.values())


def _copy_containers(attributes: dict[str, Any]) -> list[tuple[Any, Any]]:
    return [(v, v.copy()) for v in attributes.values() if isinstance(v, _CONTAINERS)]


def _same_items(container: Any, copy: Any) -> bool:
    if isinstance(container, set):
        return container == copy
    if len(container) != len(copy):
        return False
    if isinstance(container, dict):
        return container.keys() == copy.keys() and all(map(is_, container.values(), copy.values()))
    return all(map(is_, container, copy))


def _refill(container: Any, copy: Any) -> None:
    container.clear()
    (container.extend if isinstance(container, list) else container.update)(copy)


def _tensors(value: Any, depth: int = 0) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | list | tuple) and depth < 3:
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part, depth + 1)


def _degenerate_kind(p: Tensor) -> str | None:
    """Returns "zero", "one", "identity" or "constant" for a parameter with such values, else None."""
    if not p.is_floating_point() or p.numel() == 0:
        return None
    if (p == 0).all():
        return "zero"
    if (p == 1).all():
        return "one"
    if p.dim() == 2 and p.numel() > 1 and torch.equal(p, torch.eye(*p.shape, dtype=p.dtype, device=p.device)):
        return "identity"
    return "constant" if p.numel() > 1 and (p == p.reshape(-1)[0]).all() else None


def _randomize(p: Tensor, kind: str, generator: torch.Generator) -> Tensor:
    if kind in ("zero", "identity"):
        return p + torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p) * 0.5
    return p * (0.5 + torch.rand(p.shape, generator=generator, dtype=torch.float64).to(p))


def seed_all(seed: int) -> None:
    """Seeds the global generators of torch, Python and NumPy."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    numpy.random.seed(seed)


@functools.cache
def seeded_state(seed: int) -> bytes:
    """Returns the state of torch's generator after `seed_all(seed)`."""
    return torch.Generator().manual_seed(seed).get_state().numpy().tobytes()


@contextmanager
def preserve_global_state() -> Iterator[None]:
    """Runs on one thread, and restores random states, default dtype, gradient mode and threads on exit.

    The tensors of a check are small: more threads would only wait for each other.
    """
    states = torch.get_rng_state(), random.getstate(), numpy.random.get_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    dtype, grad, threads = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        numpy.random.set_state(states[2])
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        torch.set_num_threads(threads)
