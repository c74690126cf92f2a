"""What a map takes and returns: which inputs and outputs a law names, and what the report calls them.

The map under judgement, as laws see it: every call from the same state, on copies, in the precision of the run.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from lawful._suggest import did_you_mean
from lawful.checking.module_state import ModuleSnapshot, seed_all
from lawful.checking.strategies import lay
from lawful.checking.trace import OperationTrace
from lawful.laws._tree import Key, leaves, transform
from lawful.laws.interfaces import RejectCase
from lawful.laws.law import ALL, ExcludedRegion, Inapplicable, Law


class MapRaised(Exception):
    """The map raised, or returned what no law can speak of."""

    def __init__(self, sentence: str, cause: BaseException | None = None) -> None:
        super().__init__(sentence)
        self.cause = cause


def read(output: Any, key: Any) -> Any:
    """Picks an output: the first tensor, all of them, or the one that a key names."""
    if isinstance(output, int | float | complex) and not isinstance(output, bool):
        output = torch.tensor(output)
    found = leaves(output)
    if not found:
        kind = "None" if output is None else f"a {type(output).__name__} with no tensor in it"
        raise MapRaised(f"a tensor, or a structure of tensors, was wanted: the map returned {kind}")
    for x in found.values():
        if x.is_nested or x.layout is not torch.strided:
            raise MapRaised("dense tensors were wanted: the map returned a nested or sparse one")
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
    raise ValueError(f"there is no output {key!r}{did_you_mean(str(key), known)} The map returned: {', '.join(known)}")


def focus(law: Law, arguments: Any, names: list[str]) -> tuple[str, ...]:
    """Finds the paths of the inputs that a law speaks of; `names` are those of the map's positional arguments."""
    found = list(leaves(arguments))
    names = names if isinstance(arguments, tuple) else []
    if law.input is ALL:
        return tuple(found)
    if law.input is None:
        wanted = 1 if law.arity is None else law.arity
        if len(found) < wanted:
            raise ValueError(f"{law.name} speaks of {wanted} inputs: got {len(found)}")
        return tuple(found[:wanted])
    keys = law.input if isinstance(law.input, tuple) else (law.input,)
    paths = []
    for key in keys:
        if isinstance(key, int) and str(key) not in found and 0 <= key < len(found):
            path = found[key]
        else:
            path = str(names.index(key)) if key in names else str(key)
        if path not in found:
            known = [names[int(p)] if p.isdigit() and int(p) < len(names) else p for p in found]
            raise ValueError(
                f"there is no input {key!r}{did_you_mean(str(key), known)} The inputs are: {', '.join(known)}"
            )
        paths.append(path)
    if law.arity is not None and len(paths) != law.arity:
        raise ValueError(f"{law.name} speaks of {law.arity} inputs: input={law.input!r} names {len(paths)}")
    return tuple(paths)


def argument_names(target: Any) -> list[str]:
    """The names of the positional arguments of a map, as far as it has a signature."""
    function = target.forward if isinstance(target, nn.Module) else target
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY)]


def labels(arguments: Any, names: list[str]) -> dict[str, str]:
    """Names every input as the map's own signature does, or x for an only one."""
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
class Setting:
    """How the calls of a case are made."""

    training: bool = False
    layout: str = "contiguous"
    grad: bool = False
    randomised: int = 0
    """The seed with which plain parameters are re-randomised; 0 leaves the module as given."""
    seed: int = 0
    """Of the random state that calls start from, unless the law says otherwise."""


@dataclass
class Calls:
    """Whether anything differed between the calls of a statement."""

    first: tuple[Any, ...] | None = None
    varied: bool = False
    trained: bool = False
    count: int = 0
    ends: set[bytes] = field(default_factory=set)
    """The random states that calls in training mode ended in."""

    def note(self, training: bool, *signature: Any) -> None:
        self.trained |= training
        self.count += 1
        signature = (training, *signature)
        if self.first is None:
            self.first = signature
        elif not self.varied:
            self.varied = not all(_equal(a, b) for a, b in zip(self.first, signature, strict=True))


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        alike = a.shape == b.shape and a.dtype == b.dtype and a.layout == b.layout
        return alike and torch.equal(a.detach(), b.detach())
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    return a is b or (isinstance(a, int | str | bool) and a == b)


@dataclass(frozen=True)
class BoundMap:
    """A module or function as a map between the inputs and the output that a law names; implements `Map`."""

    target: Any
    function: Callable[..., Any]
    arguments: Any
    focus: tuple[str, ...]
    key: Key | Any
    state: ModuleSnapshot
    setting: Setting
    calls: Calls = field(default_factory=Calls)
    seed: int = 0
    changed: tuple[tuple[str, Tensor], ...] = ()
    bare: bool = False
    """Whether it is called with just what it is given, rather than with the drawn inputs around it."""
    changes: tuple[tuple[Callable[[Any], object], str, tuple[Tensor, ...]], ...] = ()
    """What is done to the target before a call, and how that reads in Python, with the tensors in it."""
    dtype: torch.dtype | None = None
    """The precision of the call, where it is not that of the run."""
    exclusions: tuple[ExcludedRegion, ...] = ()
    made: Counter[str] | None = None
    """How many calls were made, if each goes on where the one before ended."""
    trace: OperationTrace | None = None
    expression: str = "f"

    def __call__(self, *inputs: Any) -> Any:
        return self._called(inputs)[1]

    def call_sequence(self, *calls: tuple[Any, ...]) -> list[Any]:
        f = self.stateful() if len(calls) > 1 else self
        return [f._called(inputs)[1] for inputs in calls]

    def stateful(self) -> BoundMap:
        return dataclasses.replace(self, made=Counter())

    def raw_output(self, *inputs: Any) -> Any:
        return self._called(inputs, whole=True)[0]

    def _called(self, inputs: tuple[Any, ...], whole: bool = False) -> tuple[Any, Any]:
        """Makes a call; returns its output, and what the law reads of it."""
        turn = None
        if self.made is not None:
            turn = self.made["calls"]
            self.made["calls"] += 1
        if not turn:
            self._reset()
        output, _ = self._run(inputs)
        found = tuple(leaves(output).values()) if whole else read(output, self.key)
        if self.trace is not None:
            self.trace.call(self, inputs, output, found, turn=turn)
        return output, found

    def arguments_for(self, *inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self._around(inputs)

    def _around(
        self, inputs: tuple[Any, ...], copy: Callable[[Tensor], Tensor] = lambda x: x
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the function is called with: the inputs, and copies of the drawn arguments around them."""
        full = inputs if self.bare else self.place(inputs, copy)
        return ((), full) if isinstance(full, dict) else (full, {})

    def inputs_after(self, *inputs: Any) -> tuple[Any, ...]:
        self._reset()
        _, passed = self._run(inputs)
        if self.trace is not None:
            self.trace.call_on_copies(self, inputs, passed)
        return passed

    def inputs(self) -> list[Tensor]:
        """The drawn inputs that the law names."""
        drawn = leaves(self.arguments)
        return [drawn[path] for path in self.focus]

    def place(self, inputs: Sequence[Any], copy: Callable[[Tensor], Tensor] = lambda x: x) -> Any:
        """The drawn arguments, or copies of them, with other values at the inputs that the law names."""
        placed = dict(zip(self.focus, inputs, strict=True))
        return transform(self.arguments, lambda path, x: placed[path] if path in placed else copy(x))

    def output(self, key: Key) -> BoundMap:
        return dataclasses.replace(self, key=key)

    def method(self, method: str | Callable[..., Any]) -> BoundMap:
        if not isinstance(method, str):
            return dataclasses.replace(self.with_function(method), bare=True)
        if not hasattr(self.target, method):
            raise Inapplicable(f"{type(self.target).__name__} has no method {method!r}")
        bound = getattr(self.target, method)
        return dataclasses.replace(self, function=bound, key=None, bare=True, expression=f"f.{method}")

    def with_function(self, other: Callable[..., Any]) -> BoundMap:
        name = getattr(other, "__name__", "other")
        return dataclasses.replace(self, function=other, key=None, expression=name if name.isidentifier() else "other")

    def wrapped(self, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]], said: str = "") -> BoundMap:
        expression = said.format(f=self.expression) if said else "wrapped"
        return dataclasses.replace(self, function=wrapper(self.function), expression=expression)

    def modified(self, change: Callable[[Any], object], said: str = "", *tensors: Tensor) -> BoundMap:
        return dataclasses.replace(self, changes=(*self.changes, (change, said, tensors)))

    def cast(self, dtype: torch.dtype) -> BoundMap:
        return dataclasses.replace(self, dtype=dtype)

    def with_layout(self, layout: str) -> BoundMap:
        return dataclasses.replace(self, setting=dataclasses.replace(self.setting, layout=layout))

    def eval(self) -> BoundMap:
        return dataclasses.replace(self, setting=dataclasses.replace(self.setting, training=False))

    def with_seed(self, seed: int) -> BoundMap:
        return dataclasses.replace(self, seed=seed)

    def parameters_after(self, *inputs: Any) -> dict[str, Tensor]:
        self._reset()
        self._run(inputs)
        with self._unrecorded():
            left = {name: p.detach().clone() for name, p in self.state.parameters.items()}
        if self.trace is not None:
            self.trace.call_for_parameters(self, inputs, left)
        return left

    @property
    def parameters(self) -> dict[str, Tensor]:
        return {name: p for name, p in self.state.parameters.items() if p.requires_grad}

    def with_parameters(self, values: Mapping[str, Tensor]) -> BoundMap:
        return dataclasses.replace(self, changed=tuple(values.items()))

    def _reset(self) -> None:
        self.state.reset()
        self.state.set_mode(self.setting.training)
        if self.dtype is not None:
            self.state.cast(self.dtype)
        seed = self.seed or self.setting.seed
        seed_all(seed)
        if seed:
            self.state.reseed(seed)
        with self._unrecorded():
            for change, _, _ in self.changes:
                try:
                    change(self.target)
                except Inapplicable:
                    raise
                except Exception as error:
                    raise raised(error) from error

    def _run(self, inputs: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """Calls the function on copies of its inputs; returns its output, and the copies as it left them."""
        how = (self.setting.training, self.function, self.seed, self.dtype, self.setting.layout)
        with self._unrecorded():
            self.calls.note(*how, self.changes, self.changed, inputs)
            if any((e.distance(*inputs) < e.radius).any() for e in self.exclusions):
                raise Excepted
            passed = tuple(self._laid(x) if isinstance(x, Tensor) else self._copied(x) for x in inputs)
            args, kwargs = self._around(passed, self._laid)
        for name, value in self.changed:  # until the next reset: a gradient may still be asked for
            self.state.named[name].data = value if self.dtype is None else value.to(self.dtype)
        try:
            with self._unrecorded(), torch.set_grad_enabled(torch.is_grad_enabled() or self.setting.grad):
                output = self.function(*args, **kwargs)
        except (Exception, SystemExit) as error:
            if isinstance(error, RuntimeError) and self.setting.layout != "contiguous" and "view" in str(error):
                raise NotContiguous from error
            raise raised(error) from error
        if self.setting.training:
            self.calls.ends.add(torch.get_rng_state().numpy().tobytes())
        return output, passed

    def _unrecorded(self) -> AbstractContextManager[None]:
        return self.trace.pause() if self.trace is not None else nullcontext()

    def _laid(self, x: Tensor) -> Tensor:
        """A copy of an input, as the call wants it to lie, in the type that the call wants."""
        if self.dtype is not None and x.is_floating_point():
            x = x.to(self.dtype)
        return x if x.layout is not torch.strided else lay(x, self.setting.layout)

    def _copied(self, tree: Any) -> Any:
        return transform(tree, lambda _, x: self._laid(x))


class Excepted(RejectCase):
    """An input is close to where the law is not asked for."""


class NotContiguous(Exception):
    """The map refuses a tensor that is not contiguous: a limitation that it states, not a fault."""


def raised(error: BaseException) -> MapRaised:
    """What a map raised, in a sentence."""
    return MapRaised(f"{type(error).__name__}: {_first_line(error)}", error)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or "without a message").splitlines()[0]
