"""What a law did to its tensors, as lines of plain PyTorch: the body of a standalone script."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name

from lawful.laws._tree import children, leaves

if TYPE_CHECKING:
    from lawful.checking.bound_map import BoundMap


_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "div": "/", "pow": "**", "matmul": "@",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "and": "&", "or": "|",
}  # fmt: skip


_WORD = re.compile(r"[A-Za-z_]\w*")


class _Untold(Exception):
    """A value that has no plain expression."""


class OperationTrace(TorchFunctionMode):
    """Records every operation on tensors outside the map, and every call of the map, as a line of Python.

    A tensor that no recorded line made is a constant of the script.
    """

    def __init__(self, named: dict[str, Tensor]) -> None:
        super().__init__()
        self.steps: list[tuple[str, str]] = []
        """What each step gives a value to, and its text."""
        self.hints: dict[int, str] = {}
        self.helpers: dict[str, Any] = {}
        """The functions that were called besides the map."""
        self.lasting: set[str] = set()
        """Calls that later ones may depend on."""
        self.constants: dict[str, Tensor] = {}
        self.kept: list[Any] = list(named.values())  # ids stay unique as long as their tensors live
        self.names: dict[int, str] = {id(x): f"parameters[{name!r}]" for name, x in named.items()}
        self.paused = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.paused:
            return func(*args, **kwargs)
        with self.pause():
            given = (*args, *kwargs.values())
            before = {id(x): x.detach().clone() for x in given if isinstance(x, Tensor) and id(x) not in self.names}
            out = func(*args, **kwargs)
            name = "torch.autograd.grad" if func is torch.autograd.grad else resolve_name(func) or ""
            if name.endswith("__setitem__") or _has_tensor(out):
                with suppress(_Untold):
                    self._record(name, args, kwargs, out, before)
        return out

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Lets operations pass unrecorded."""
        before, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = before

    def suggest(self, x: Tensor, hint: str) -> None:
        """Says what a tensor should be called if it turns out to be a constant."""
        self.kept.append(x)
        self.hints[id(x)] = hint.replace("'", "_changed").replace(".", "_")

    def lines(self, ending: str) -> list[str]:
        """The text of the steps that the ending, in the end, depends on."""
        needed = set(_WORD.findall(ending)) | self.lasting
        kept = []
        for given, text in reversed(self.steps):
            if given in needed:
                needed |= set(_WORD.findall(text))
                kept.append(text)
        return kept[::-1]

    def name(self, x: Tensor, value: Tensor | None = None) -> str:
        """The variable that holds a tensor; a new constant if there is none."""
        if id(x) not in self.names:
            label = self._new(self.hints.get(id(x), "c"))
            self.constants[label] = (x if value is None else value).detach().clone()
            self._keep(x, label)
        return self.names[id(x)]

    def _new(self, hint: str) -> str:
        taken = {*self.names.values(), *self.constants, *(given for given, _ in self.steps)}
        return next(label for n in range(10**6) if (label := f"{hint}{n or ''}") not in taken)

    def _keep(self, x: Any, name: str) -> None:
        self.kept.append(x)
        self.names[id(x)] = name

    def _record(self, name: str, args: Any, kwargs: Any, out: Any, before: dict[int, Tensor]) -> None:
        def say(value: Any) -> str:
            return self.expression(value, before)

        parts = [say(a) for a in args]
        options = [f"{k}={say(v)}" for k, v in kwargs.items() if k != "device"]
        method = name.removeprefix("torch.Tensor.") if name.startswith("torch.Tensor.") else ""
        plain = method.strip("_")
        if method == "__setitem__":
            self.steps.append((parts[0], f"{parts[0]}[{self._index(args[1])}] = {parts[2]}"))
            return
        if method == "__getitem__":
            line = f"{parts[0]}[{self._index(args[1])}]"
        elif method.endswith(".__get__"):
            line = f"{parts[0]}.{method.removesuffix('.__get__')}"
        elif method.startswith("__r") and plain[1:] in _OPERATORS and len(parts) == 2:
            line = f"{parts[1]} {_OPERATORS[plain[1:]]} {parts[0]}"
        elif (plain in _OPERATORS and len(parts) == 2 and not options and not method.endswith("_")) or (
            method.startswith("__") and plain in _OPERATORS and len(parts) == 2
        ):
            line = f"{parts[0]} {_OPERATORS[plain]} {parts[1]}"
        elif method == "__invert__":
            line = f"~{parts[0]}"
        elif method == "__neg__" or method == "neg":
            line = f"-{parts[0]}"
        elif method:
            line = f"{parts[0]}.{method}({', '.join(parts[1:] + options)})"
        elif name.startswith("torch.") and "._" not in name:
            line = f"{name}({', '.join(parts + options)})"
        else:
            raise _Untold
        self._assign(out, line)

    def _assign(self, out: Any, line: str, hint: str = "v", before: str = "") -> None:
        if isinstance(out, Tensor) and id(out) in self.names:
            if line.partition("(")[0].endswith("_"):  # an update in place
                self.steps.append((self.names[id(out)], line))
            return
        label = self._new(hint)
        self.steps.append((label, f"{before}{label} = {line}"))
        self._keep(out, label)
        for n, part in enumerate(() if isinstance(out, Tensor) else out):
            if isinstance(part, Tensor):
                self._keep(part, f"{label}[{n}]")

    def _index(self, index: Any) -> str:
        if isinstance(index, slice):
            ends = ["" if end is None else str(end) for end in (index.start, index.stop, index.step)]
            return ":".join(ends if ends[2] else ends[:2])
        return ", ".join(map(self._index, index)) if isinstance(index, tuple) else self.expression(index)

    def expression(self, value: Any, before: dict[int, Tensor] | None = None) -> str:
        """Writes a value as Python: a variable, a literal, or a structure of them."""
        if isinstance(value, Tensor):
            return self.name(value, (before or {}).get(id(value)))
        if id(value) in self.names:
            return self.names[id(value)]
        if value is None or value is Ellipsis or isinstance(value, bool | int | str):
            return "..." if value is Ellipsis else repr(value)
        if isinstance(value, float):
            return repr(value) if value == value and abs(value) != float("inf") else f'float("{value}")'
        if isinstance(value, slice):
            return f"slice({value.start}, {value.stop}, {value.step})"
        if isinstance(value, torch.dtype):
            return str(value)
        if isinstance(value, tuple):
            return "(" + "".join(f"{self.expression(v, before)}, " for v in value).rstrip(" ") + ")"
        if isinstance(value, list):
            return "[" + ", ".join(self.expression(v, before) for v in value) + "]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k!r}: {self.expression(v, before)}" for k, v in value.items()) + "}"
        raise _Untold

    def call(self, made: BoundMap, inputs: Sequence[Any], output: Any, found: Any, *, turn: int | None = None) -> None:
        """Records a call of the map and what was read from it.

        It starts from a fresh state, unless it is one of several that come one after another: then `turn` is its
        number.
        """
        with self.pause():
            whole = inputs if made.bare else made.place(inputs)
            call = f"{self._function(made, turn is None)}({self._arguments(made, whole)})"
            before = self._before(made, turn)
            if isinstance(found, Tensor):
                self._assign(found, accessor(call, output, found), "y", before)
                self.lasting |= set() if turn is None else {self.names[id(found)]}
                return
            label = self._new("y")
            self.lasting |= set() if turn is None else {label}
            self.steps.append((label, f"{before}{label} = {call}"))
            for key, part in (children(output) or {}).items():
                self._keep(part, f"{label}[{key!r}]")  # a cache, say, that is handed on as it is
            for part in found:
                self._keep(part, accessor(label, output, part))

    def call_on_copies(self, made: BoundMap, inputs: Sequence[Any], after: Sequence[Any]) -> None:
        """Records a call whose inputs are looked at afterwards."""
        with self.pause():
            for x, left in zip(inputs, after, strict=True):
                name = self.name(x)
                self._assign(left, f"{name}.clone()", f"{name}_after")
            call = f"{self._function(made, True)}({self._arguments(made, made.place(after), copy=False)})"
            for left in after:
                self.steps.append((self.names[id(left)], ""))
            self.steps[-1] = (self.steps[-1][0], self._before(made) + call)

    def call_for_parameters(self, made: BoundMap, inputs: Sequence[Any], left: Mapping[str, Tensor]) -> None:
        """Records a call whose parameters are looked at afterwards."""
        with self.pause():
            label = self._new("after")
            call = f"({self._arguments(made, inputs if made.bare else made.place(inputs))})"
            lines = f"g = copy.deepcopy(f)\ng{call}\n{label} = dict(g.named_parameters())"
            self.steps.append((label, self._before(made) + lines))
            for name, x in left.items():
                self._keep(x, f"{label}[{name!r}]")

    def _function(self, made: BoundMap, fresh: bool) -> str:
        if made.changed and made.expression == "f":
            return _renamed(made, f"(lambda *a: torch.func.functional_call(f, {{{self._values(made)}}}, a))")
        if made.expression.isidentifier() and made.expression != "f":
            self.helpers[made.expression] = made.function
        if fresh and not _copied(made) and made.state.restless and isinstance(made.target, nn.Module):
            return made.expression.replace("f", "fresh(f)", 1) if re.match(r"f\b", made.expression) else made.expression
        if not fresh and isinstance(made.target, nn.Module):
            return re.sub(r"\bf\b", "g", made.expression)
        return _renamed(made, made.expression)

    def _values(self, made: BoundMap) -> str:
        """The parameters that have other values, as the entries of a dict."""
        cast = f".to({made.dtype})" if made.dtype is not None else ""
        return ", ".join(f"{name!r}: {self.expression(value)}{cast}" for name, value in made.changed)

    def _before(self, made: BoundMap, turn: int | None = None) -> str:
        """The lines before a call: mode, gradient, random state, and what is done to a copy of the map."""
        mode = ("f.train()\n" if made.setting.training else "f.eval()\n") if made.state.modules else ""
        grad = torch.is_grad_enabled() or made.setting.grad
        seed = f"torch.manual_seed({made.seed})\n" if not turn else ""
        lines = f"{mode}torch.set_grad_enabled({grad})\n{seed}"
        if turn or not (_copied(made) or turn == 0) or not isinstance(made.target, nn.Module):
            return lines
        if turn == 0 or re.search(r"\bf\b", made.expression):
            lines += "g = copy.deepcopy(f)" + (f".to({made.dtype})" if made.dtype is not None else "") + "\n"
            for _, said, tensors in made.changes:
                lines += said.format(*map(self.expression, tensors), f="g") + "\n"
            if made.changed and made.expression != "f":
                lines += f"g.load_state_dict({{{self._values(made)}}}, strict=False)\n"
        return lines

    def _arguments(self, made: BoundMap, whole: Any, copy: bool = True) -> str:
        def say(value: Any) -> str:
            text = self.expression(value)
            if copy and isinstance(value, Tensor) and text not in self.constants:
                text += ".clone()"
            if made.dtype is not None and isinstance(value, Tensor) and value.is_floating_point():
                text += f".to({made.dtype})"
            return f"{made.setting.layout}({text})" if made.setting.layout != "contiguous" else text

        if isinstance(whole, dict):
            return ", ".join(f"{key}={say(value)}" for key, value in whole.items())
        return ", ".join(say(value) for value in whole)


def _copied(made: BoundMap) -> bool:
    return bool(made.changes) or made.dtype is not None


def _renamed(made: BoundMap, text: str) -> str:
    """The copy stands where the map stood, if something was done to the copy."""
    return re.sub(r"\bf\b", "g", text) if _copied(made) and isinstance(made.target, nn.Module) else text


def accessor(call: str, output: Any, found: Tensor) -> str:
    """Writes how a tensor is reached from the output that holds it: `f(x)[0]`, `f(x).logits`."""
    if not isinstance(output, Tensor) and not children(output):
        return f"torch.tensor({call})"
    path = next((path for path, x in leaves(output).items() if x is found), "")
    for key in path.split(".") if path else []:
        parts = children(output) or {}
        named = next(k for k in parts if str(k) == key)
        attribute = not isinstance(output, Mapping) and isinstance(named, str)
        call += f".{named}" if attribute else f"[{named!r}]"
        output = parts[named]
    return call


def _has_tensor(out: Any) -> bool:
    return isinstance(out, Tensor) or (isinstance(out, tuple | list) and any(isinstance(x, Tensor) for x in out))
