"""The module or function under test as a `Map`: every call starts from the same state, on copies of the inputs."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from lawful._suggest import did_you_mean
from lawful.checking._module_state import ModuleSnapshot, seed_all
from lawful.checking._strategies import Tracer, copy_with_layout
from lawful.laws._tree import Key, leaves, transform
from lawful.laws.interfaces import RejectCase
from lawful.laws.law import ALL, ExcludedRegion, Inapplicable, Law


class MapRaised(Exception):
    """The map raised an exception, or returned something other than tensors."""

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.cause = cause

    @classmethod
    def from_error(cls, error: BaseException) -> MapRaised:
        first_line = (str(error).strip() or "without a message").splitlines()[0]
        return cls(f"{type(error).__name__}: {first_line}", error)


class InExcludedRegion(RejectCase):
    """An input is in a region that the law excludes."""


class NotContiguous(Exception):
    """The map does not accept non-contiguous tensors: a limitation, not a fault."""


def select_output(output: Any, key: Any) -> Any:
    """Returns the first tensor of an output, all of them (`ALL`), or the one with a key."""
    if isinstance(output, int | float | complex) and not isinstance(output, bool):
        output = torch.tensor(output)
    found = leaves(output)
    if not found:
        kind = "None" if output is None else f"a {type(output).__name__} without tensors"
        raise MapRaised(f"expected the map to return a tensor or a structure of tensors, got {kind}")
    for x in found.values():
        if x.is_nested or x.layout is not torch.strided:
            raise MapRaised("expected the map to return dense tensors, got a nested or sparse tensor")
    if key is ALL:
        return tuple(found.values())
    if key is None:
        return next(iter(found.values()))
    if str(key) in found:
        return found[str(key)]
    if isinstance(key, int) and 0 <= key < len(found):
        return list(found.values())[key]
    if isinstance(key, str) and isinstance(getattr(output, key, None), Tensor):
        return getattr(output, key)
    known = [name or "a single tensor" for name in found]
    raise ValueError(f"the map has no output {key!r}{did_you_mean(str(key), known)} Outputs: {', '.join(known)}")


Letters = Mapping[str, tuple[str, ...]]
"""The letter of every axis of every input, by path; "" for an axis without one."""


def matching_axes(
    letters: Letters, shapes: Mapping[str, tuple[int, ...]], first: str, axis: int
) -> dict[str, tuple[int, ...]]:
    """Returns the axes of all inputs that are the same as `axis` of the input `first`, for inputs that have any.

    Axes with the same letter are the same. An axis without a letter is the same as one with the same index and size,
    if no other axis has that size.
    """
    shape = shapes[first]
    if not -len(shape) <= axis < len(shape):
        return {first: (axis,)}
    axis %= len(shape)
    n, known = shape[axis], letters.get(first, ())
    letter = known[axis] if axis < len(known) else ""
    found = {}
    for path, other in shapes.items():
        if path == first:
            axes: tuple[int, ...] = (axis,)
        elif letter:
            same = [a for a, other_letter in enumerate(letters.get(path, ())) if other_letter == letter]
            axes = tuple(a for a in same if a < len(other) and other[a] == n)
        else:
            unique = shape.count(n) == other.count(n) == 1
            axes = (axis,) if unique and axis < len(other) and other[axis] == n else ()
        if axes:
            found[path] = axes
    return found


def input_paths(law: Law, arguments: Any, names: list[str], letters: Letters) -> tuple[str, ...]:
    """Returns the paths of the law's inputs; `names` are the positional arguments of the map.

    By default a law of any number of inputs is about those with the axes that it names.
    """
    tensors = leaves(arguments)
    found = list(tensors)
    names = names if isinstance(arguments, tuple) else []
    if law.input is ALL:
        return tuple(found)
    if law.input is None and law.arity is None and len(found) > 1 and law.axes:
        shapes = {path: tuple(x.shape) for path, x in tensors.items()}
        matches = [matching_axes(letters, shapes, found[0], axis) for axis in law.axes.values()]
        return tuple(path for path in found if any(path in axes for axes in matches))
    if law.input is None:
        arity = 1 if law.arity is None else law.arity
        if len(found) < arity:
            raise ValueError(f"{law.name} needs {arity} inputs, got {len(found)}")
        return tuple(found[:arity])
    keys = law.input if isinstance(law.input, tuple) else (law.input,)
    paths = []
    for key in keys:
        if isinstance(key, int) and str(key) not in found and 0 <= key < len(found):
            path = found[key]
        else:
            path = str(names.index(key)) if key in names else str(key)
        if path not in found:
            known = [names[int(p)] if p.isdigit() and int(p) < len(names) else p for p in found]
            raise ValueError(f"no input {key!r}{did_you_mean(str(key), known)} Inputs: {', '.join(known)}")
        paths.append(path)
    if law.arity is not None and len(paths) != law.arity:
        raise ValueError(f"{law.name} needs {law.arity} inputs, but input={law.input!r} names {len(paths)}")
    return tuple(paths)


def argument_names(target: Any) -> list[str]:
    """Returns the names of the positional arguments of a map, if it has a signature."""
    function = target.forward if isinstance(target, nn.Module) else target
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY)]


def input_names(arguments: Any, names: list[str]) -> dict[str, str]:
    """Returns the name of every input by path: its name in the map's signature, or x."""
    found = list(leaves(arguments))
    if not isinstance(arguments, tuple):
        return {path: path for path in found}
    shown = {}
    for path in found:
        head, _, rest = path.partition(".")
        name = names[int(head)] if int(head) < len(names) else "x" if len(found) == 1 else f"x{head}"
        shown[path] = f"{name}.{rest}" if rest else name
    return shown


@dataclass(frozen=True)
class CallSettings:
    """Settings of the calls of a case."""

    training: bool = False
    layout: str = "contiguous"
    grad: bool = False
    weights_seed: int = 0
    """Seed for re-randomized weights; 0 leaves the weights unchanged."""
    seed: int = 0
    """Random seed of the calls, unless the law sets one."""


@dataclass
class CallLog:
    """Records whether anything differed between the calls of a statement."""

    first: tuple[Any, ...] | None = None
    varied: bool = False
    first_inputs: tuple[Any, ...] | None = None
    varied_inputs: set[str] = field(default_factory=set)
    """Paths of the inputs that differed between calls of the map."""
    trained: bool = False
    count: int = 0
    final_random_states: set[bytes] = field(default_factory=set)
    """Random states after the calls in training mode."""
    random_operations: set[tuple[Any, ...]] | None = None
    """The random operations of each call in training mode, and the shapes of their results; None to record none."""

    def add(self, training: bool, *signature: Any, inputs: tuple[Any, ...], paths: tuple[str, ...]) -> None:
        """Records a call; `paths` are the paths of the inputs, if they are inputs of the map."""
        self.trained |= training
        self.count += 1
        if paths and self.first_inputs is None:
            self.first_inputs = inputs
        elif self.first_inputs is not None:
            for path, a, b in zip(paths, self.first_inputs, inputs, strict=False):
                if path not in self.varied_inputs and not _equal(a, b):
                    self.varied_inputs.add(path)
        signature = (training, *signature, inputs)
        if self.first is None:
            self.first = signature
        elif not self.varied:
            pairs = zip(self.first, signature, strict=True)
            self.varied = bool(self.varied_inputs) or not all(_equal(a, b) for a, b in pairs)


class _RandomOperations(TorchDispatchMode):
    """Records the operations that draw random numbers, and the shapes of their results."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[Any, ...]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Avoids the import of torch._dynamo, which takes seconds: nothing here is compiled."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.found.append((func.overloadpacket, *(tuple(x.shape) for x in leaves(out).values())))
        return out


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        comparable = a.shape == b.shape and a.dtype == b.dtype and a.layout == b.layout
        return comparable and torch.equal(a.detach(), b.detach())
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    return a is b or (isinstance(a, int | str | bool) and a == b)


class CallTracer(Tracer, Protocol):
    """Records the calls of a map for the reproduction script."""

    def record_call(
        self, f: BoundMap, inputs: Sequence[Any], output: Any, found: Any, *, call_index: int | None = None
    ) -> None:
        """Records a call; `call_index` is its number in a sequence of calls without a reset."""

    def record_inputs_after(self, f: BoundMap, inputs: Sequence[Any], after: Sequence[Any]) -> None:
        """Records a call whose inputs are compared afterwards."""

    def record_state_after(self, f: BoundMap, inputs: Sequence[Any], after: Mapping[str, Tensor], kind: str) -> None:
        """Records a call whose parameters or buffers (`kind`) are compared afterwards."""


@dataclass(frozen=True)
class BoundMap:
    """Implements `Map` for a module or function."""

    target: Any
    function: Callable[..., Any]
    arguments: Any
    input_paths: tuple[str, ...]
    output_key: Key | Any
    state: ModuleSnapshot
    settings: CallSettings
    calls: CallLog = field(default_factory=CallLog)
    seed: int = 0
    parameter_values: tuple[tuple[str, Tensor], ...] = ()
    """Parameters whose values differ from the module."""
    own_arguments: bool = False
    """Whether the function takes the inputs alone, without the other drawn arguments."""
    changes: tuple[Callable[[Any], object], ...] = ()
    """Functions that are applied to the target before a call."""
    origin: tuple[tuple[str, Any], ...] = ()
    """How `function` derives from the target: ("method", name), ("function", other), ("wrapper", wrapper)."""
    dtype: torch.dtype | None = None
    """Precision of the call, if it differs from the precision of the run."""
    exclusions: tuple[ExcludedRegion, ...] = ()
    letters: Letters = field(default_factory=dict)
    call_count: list[int] | None = None
    """Number of calls without a reset; None if every call is reset."""
    tracer: CallTracer | None = None

    def __call__(self, *inputs: Any) -> Any:
        return self._call(inputs)[1]

    def call_sequence(self, *calls: tuple[Any, ...]) -> list[Any]:
        f = self.stateful() if len(calls) > 1 else self
        return [f._call(inputs)[1] for inputs in calls]

    def stateful(self) -> BoundMap:
        return dataclasses.replace(self, call_count=[0])

    def raw_output(self, *inputs: Any) -> Any:
        return self._call(inputs, all_tensors=True)[0]

    def _call(self, inputs: tuple[Any, ...], all_tensors: bool = False) -> tuple[Any, Any]:
        """Returns the raw output, and the output that the law is about."""
        call_index = None
        if self.call_count is not None:
            call_index = self.call_count[0]
            self.call_count[0] += 1
        if not call_index:
            self._reset()
        output, _ = self._run(inputs)
        found = tuple(leaves(output).values()) if all_tensors else select_output(output, self.output_key)
        if self.tracer is not None:
            self.tracer.record_call(self, inputs, output, found, call_index=call_index)
        return output, found

    def arguments_for(self, *inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self._all_arguments(inputs)

    def _all_arguments(
        self, inputs: tuple[Any, ...], copy: Callable[[Tensor], Tensor] = lambda x: x
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments of a call: the inputs, and copies of the other drawn arguments."""
        full = inputs if self.own_arguments else self.place(inputs, copy)
        return ((), full) if isinstance(full, dict) else (full, {})

    def inputs_after(self, *inputs: Any) -> tuple[Any, ...]:
        self._reset()
        _, passed = self._run(inputs)
        if self.tracer is not None:
            self.tracer.record_inputs_after(self, inputs, passed)
        return passed

    def drawn_inputs(self) -> list[Tensor]:
        """Returns the drawn inputs of the law."""
        drawn = leaves(self.arguments)
        return [drawn[path] for path in self.input_paths]

    def input_axes(self, axis: int) -> list[tuple[int, ...]]:
        drawn = leaves(self.arguments)
        shapes = {path: tuple(drawn[path].shape) for path in self.input_paths}
        found = matching_axes(self.letters, shapes, self.input_paths[0], axis)
        for path, shape in shapes.items():
            if path not in found and not -len(shape) <= axis < len(shape):
                raise ValueError(f"axis {axis} is out of range for input {path} of shape {shape}")
        return [found.get(path, (axis,)) for path in self.input_paths]

    def place(self, inputs: Sequence[Any], copy: Callable[[Tensor], Tensor] = lambda x: x) -> Any:
        """Returns the drawn arguments, or copies of them, with the law's inputs replaced."""
        if type(self.arguments) is tuple and self.input_paths == tuple(map(str, range(len(self.arguments)))):
            return tuple(inputs)  # the usual case: the law is about all arguments
        placed = dict(zip(self.input_paths, inputs, strict=True))
        return transform(self.arguments, lambda path, x: placed[path] if path in placed else copy(x))

    def output(self, key: Key) -> BoundMap:
        return dataclasses.replace(self, output_key=key)

    def method(self, method: str | Callable[..., Any]) -> BoundMap:
        if not isinstance(method, str):
            return dataclasses.replace(self.with_function(method), own_arguments=True)
        if not hasattr(self.target, method):
            raise Inapplicable(f"{type(self.target).__name__} has no method {method!r}")
        function = getattr(self.target, method)
        origin = (("method", method),)
        return dataclasses.replace(self, function=function, output_key=None, own_arguments=True, origin=origin)

    def with_function(self, function: str | Callable[..., Any]) -> BoundMap:
        if isinstance(function, str):
            if not callable(getattr(self.target, function, None)):
                similar = did_you_mean(function, dir(self.target))
                raise ValueError(f"{type(self.target).__name__} has no method {function!r}{similar}")
            return dataclasses.replace(self.method(function), own_arguments=False)
        return dataclasses.replace(self, function=function, output_key=None, origin=(("function", function),))

    def wrapped(self, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> BoundMap:
        return dataclasses.replace(self, function=wrapper(self.function), origin=(*self.origin, ("wrapper", wrapper)))

    def modified(self, change: Callable[[Any], object]) -> BoundMap:
        return dataclasses.replace(self, changes=(*self.changes, change))

    def cast(self, dtype: torch.dtype) -> BoundMap:
        return dataclasses.replace(self, dtype=dtype)

    def with_layout(self, layout: str) -> BoundMap:
        return dataclasses.replace(self, settings=dataclasses.replace(self.settings, layout=layout))

    def eval(self) -> BoundMap:
        return dataclasses.replace(self, settings=dataclasses.replace(self.settings, training=False))

    def with_seed(self, seed: int) -> BoundMap:
        return dataclasses.replace(self, seed=seed)

    def parameters_after(self, *inputs: Any) -> dict[str, Tensor]:
        return self._state_after(inputs, "parameters")

    def buffers_after(self, *inputs: Any) -> dict[str, Tensor]:
        return self._state_after(inputs, "buffers")

    def _state_after(self, inputs: tuple[Any, ...], kind: Literal["parameters", "buffers"]) -> dict[str, Tensor]:
        """Returns copies of the parameters or buffers as they are after a call."""
        self._reset()
        self._run(inputs)
        with self._pause_tracer():
            state = self.state.parameters if kind == "parameters" else self.state.buffers
            after = {name: x.detach().clone() for name, x in state.items()}
        if self.tracer is not None:
            self.tracer.record_state_after(self, inputs, after, kind)
        return after

    @property
    def parameters(self) -> dict[str, Tensor]:
        return {name: p for name, p in self.state.parameters.items() if p.requires_grad}

    @property
    def buffers(self) -> dict[str, Tensor]:
        return self.state.buffers

    def with_parameters(self, values: Mapping[str, Tensor]) -> BoundMap:
        return dataclasses.replace(self, parameter_values=tuple(values.items()))

    def _reset(self) -> None:
        self.state.reset()
        self.state.clean = False
        self.state.set_mode(self.settings.training)
        if self.dtype is not None:
            self.state.cast(self.dtype)
        seed = self.seed or self.settings.seed
        seed_all(seed)
        if seed:
            self.state.reseed(seed)
        with self._pause_tracer():
            for change in self.changes:
                try:
                    change(self.target)
                except Inapplicable:
                    raise
                except Exception as error:
                    raise MapRaised.from_error(error) from error

    def _run(self, inputs: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """Calls the function on copies of the inputs; returns its output, and the copies after the call."""
        settings = (self.settings.training, self.function, self.seed, self.dtype, self.settings.layout)
        with self._pause_tracer():
            paths = () if self.own_arguments else self.input_paths
            self.calls.add(*settings, self.changes, self.parameter_values, inputs=inputs, paths=paths)
            if any((e.distance(*inputs) < e.radius).any() for e in self.exclusions):
                raise InExcludedRegion
            passed = tuple(self._copy(x) if isinstance(x, Tensor) else self._copy_tree(x) for x in inputs)
            args, kwargs = self._all_arguments(passed, self._copy)
        for name, value in self.parameter_values:  # they stay until the next reset, for the backward pass
            self.state.named[name].data = value if self.dtype is None else value.to(self.dtype)
        record = self.settings.training and self.calls.random_operations is not None
        operations = _RandomOperations() if record else None
        grad = torch.is_grad_enabled() or self.settings.grad
        try:
            with self._pause_tracer(), operations or nullcontext(), torch.set_grad_enabled(grad):  # pyrefly: ignore
                output = self.function(*args, **kwargs)
        except (Exception, SystemExit) as error:
            if isinstance(error, RuntimeError) and self.settings.layout != "contiguous" and "view" in str(error):
                raise NotContiguous from error
            raise MapRaised.from_error(error) from error
        if self.settings.training:
            self.calls.final_random_states.add(torch.get_rng_state().numpy().tobytes())
        if operations is not None and self.calls.random_operations is not None:
            self.calls.random_operations.add(tuple(operations.found))
        return output, passed

    def _pause_tracer(self) -> AbstractContextManager[None]:
        return self.tracer.pause() if self.tracer is not None else nullcontext()

    def _copy(self, x: Tensor) -> Tensor:
        """Returns a copy of an input in the layout and dtype of the call."""
        if self.dtype is not None and x.is_floating_point():
            x = x.to(self.dtype)
        return x if x.layout is not torch.strided else copy_with_layout(x, self.settings.layout)

    def _copy_tree(self, tree: Any) -> Any:
        return transform(tree, lambda _, x: self._copy(x))
