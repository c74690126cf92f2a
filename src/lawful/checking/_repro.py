"""Reproduction scripts: a counterexample as a standalone script in plain PyTorch.

The counterexample runs once more under a tracer that records every operation of the law and every call of the map.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name

from lawful.checking._bound_map import BoundMap, MapRaised
from lawful.checking._compare import Finding, Pausable, Statistical
from lawful.checking._module_state import preserve_global_state
from lawful.checking._runner import CaseRun, CaseRunner
from lawful.checking._strategies import SAMPLES, replay
from lawful.checking.verdict import Script
from lawful.laws._tree import children, leaves
from lawful.laws.interfaces import RejectCase
from lawful.laws.statements import AtMost, BitwiseEqual, Equal, Finite, FollowsCDF, HasMean

_SMALL = 64
"""Tensors with up to this many entries are written as literals."""

_HELPERS = {
    "transposed": "def transposed(x):\n    return x.mT.contiguous().mT if x.dim() > 1 else x",
    "strided": "def strided(x):\n    return torch.stack([x, x], dim=-1)[..., 0]",
    "fresh": "def fresh(f):  # a copy that shares the parameters\n"
    "    return copy.deepcopy(f, {id(p): p for p in f.parameters()})",
}

_SETTINGS = (("f.train()", "f.eval()"), ("torch.set_grad_enabled(True)", "torch.set_grad_enabled(False)"))

_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "div": "/", "pow": "**", "matmul": "@",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "and": "&", "or": "|",
}  # fmt: skip

_WORD = re.compile(r"[A-Za-z_]\w*")


def build_script(runner: CaseRunner, run: CaseRun, finding: Finding, definition: str | None = None) -> Script:
    """Runs a counterexample again and writes its operations as a script.

    Args:
        runner: The runner of the check. The script uses a new snapshot of its modules.
        run: The smallest failing case.
        finding: Its finding.
        definition: Lines that define `f` with the parameters of the check. Otherwise they are stored in the script.

    Raises:
        ValueError: If the case cannot be run again.
    """
    with preserve_global_state():
        runner = runner.fresh_copy()
        try:
            return _build(runner, run, finding, definition)
        except (RejectCase, MapRaised) as error:
            raise ValueError(f"no script for {runner.law.name}: the failure does not repeat") from error
        finally:
            runner.state.restore()


def _build(runner: CaseRunner, run: CaseRun, finding: Finding, definition: str | None) -> Script:
    dtype = finding.dtype if finding.kind == "not finite" else runner.precision
    runner.state.prepare(dtype, run.settings.weights_seed)
    parameters: dict[str, Tensor] = dict(runner.state.parameters)
    trace = OperationTrace(parameters)
    statistical = isinstance(run.statement, Statistical)
    again = runner.run(
        replay(run.record),
        dtype,
        tensors=None if statistical else run.record.tensors,
        samples=10 * SAMPLES if statistical else SAMPLES,
        tracer=trace,
    )
    with trace.pause():
        ending = _last_lines(trace, again, finding)
    runner.state.reset()
    head = definition or define_target(runner.target)
    states: dict[str, dict[str, Tensor]] = {}
    for name, helper in trace.helpers.items():
        head = f"{define_target(helper, name)}\n{head}"
        if isinstance(helper, nn.Module):
            states[name] = _state_dict(helper)
    if isinstance(runner.target, nn.Module):
        states["f"] = {} if definition else _state_dict(runner.target)
        if definition and run.settings.weights_seed:
            randomized = [name for name in runner.state.degenerate if name in parameters]
            states["f"] = {name: parameters[name].detach().clone() for name in randomized}
    return _compose(runner, dtype, head, states, trace, ending)


def _state_dict(module: nn.Module) -> dict[str, Tensor]:
    return {name: x.detach().clone() for name, x in module.state_dict().items() if isinstance(x, Tensor)}


def _compose(
    runner: CaseRunner,
    dtype: torch.dtype,
    definition: str,
    states: dict[str, dict[str, Tensor]],
    trace: OperationTrace,
    ending: list[str],
) -> Script:
    body = _drop_repeated_settings("\n".join([*trace.lines("\n".join(ending)), *ending]))
    constants = {name: x for name, x in trace.constants.items() if re.search(rf"\b{name}\b", body)}
    imports = set(trace.imports) | {"import torch"} | ({"import copy"} if re.search(r"copy\.|fresh\(", body) else set())
    head = [f'"""{runner.law} is refuted: {runner.law.formula}."""', "", *sorted(imports, key=_import_order)]
    after = [definition]
    after += [f"{name} = {name}.to({dtype})" for name in states]
    if runner.state.modules and not states:
        after.append(f"# Convert the parameters that the function uses to {dtype}, too.")
    after.append(f"torch.set_default_dtype({dtype})")
    for helper, text in _HELPERS.items():
        after += ["", text, ""] if f"{helper}(" in body else []
    for text in trace.definitions.values():
        after += ["", text, ""]
    state_tensors = {f"{owner}.{name}": x for owner, state in states.items() for name, x in state.items()}
    large = {name: x for name, x in {**constants, **state_tensors}.items() if x.numel() > _SMALL}

    def write(beside: bool) -> str:
        def value(name: str, x: Tensor) -> str:
            return f"tensors[{name!r}]" if beside and name in large else _literal(x)

        lines = [*head, *(["from safetensors.torch import load_file"] if beside else []), "", *after]
        lines += ['tensors = load_file(__file__.removesuffix(".py") + ".safetensors")'] if beside else []
        for owner, state in states.items():
            entries = "".join(f"    {name!r}: {value(f'{owner}.{name}', x)},\n" for name, x in state.items())
            lines += [f"{owner}.load_state_dict({{\n{entries}}}, strict=False)"] if state else []
        if re.search(r"\bparameters\[", body):
            lines.append("parameters = dict(f.named_parameters())")
        lines += [f"{name} = {value(name, x)}" for name, x in constants.items()]
        return "\n".join([*lines, "", body, ""])

    return Script(write(False), write(True) if large else "", large)


def _import_order(line: str) -> tuple[bool, str]:
    return line.startswith("from"), line


def _literal(x: Tensor) -> str:
    """Writes a tensor as an expression that restores it exactly."""
    text = repr(x.tolist()).replace("nan", 'float("nan")').replace("inf", 'float("inf")')
    return f"torch.tensor({text}, dtype={x.dtype})"


def define_target(target: Any, variable: str = "f") -> str:
    """Writes lines that define a variable as the target. Parameters of a module still have to be loaded."""
    source = type(target) if isinstance(target, nn.Module) else target
    name = getattr(source, "__qualname__", "")
    module = inspect.getmodule(source)
    if getattr(torch, name.rpartition(".")[2], None) is source:
        return f"{variable} = torch.{name.rpartition('.')[2]}"
    if not name.isidentifier() or module is None:
        kind = "module" if isinstance(target, nn.Module) else "function"
        return f'raise SystemExit("insert your {kind} here: {variable} = ...")'
    if module.__name__ in ("__main__", "builtins"):
        try:
            head = "from torch import Tensor, nn\nfrom torch.nn import functional as F\n\n"
            head += textwrap.dedent(inspect.getsource(source)) + "\n"
        except (OSError, TypeError):
            head = f"# insert the definition of {name} here"
    else:
        head = f"from {module.__name__} import {name}\n"
    value = construct_module(target, name) if isinstance(target, nn.Module) else name
    return head if value == variable else f"{head}\n{variable} = {value}"


def construct_module(target: nn.Module, name: str) -> str:
    """Writes the constructor call of a module, as far as it is known."""
    if type(target).__module__.startswith("torch.nn") and "\n" not in repr(target):
        return repr(target)
    parameters = []
    if type(target).__init__ is not nn.Module.__init__:
        parameters = list(inspect.signature(type(target)).parameters.values())
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in variadic]
    return f"{name}({', '.join(f'{p}=...' for p in required)})" + ("  # your arguments" if parameters else "")


def _drop_repeated_settings(body: str) -> str:
    """Removes settings that are already in effect."""
    kept, active = [], {"torch.set_grad_enabled(True)"}
    for line in body.splitlines():
        setting = next((options for options in _SETTINGS if line in options), ())
        if line in active:
            continue
        active = (active - set(setting)) | ({line} if setting else set())
        kept.append(line)
    return "\n".join(kept)


def _last_lines(trace: OperationTrace, run: CaseRun, finding: Finding) -> list[str]:
    """Writes the lines that print both sides at the entry with the largest difference."""

    def tensor(side: Any) -> Tensor:
        return side if isinstance(side, Tensor) else list(side)[finding.output]

    def entry(side: Any) -> str:
        name = trace.name(tensor(side))
        if tensor(side).is_complex():
            name = f"torch.view_as_real({name})"
        return f"{name}[{', '.join(map(str, finding.index))}]" if finding.index else name

    statement = run.statement
    if isinstance(statement, Finite):
        return [f'print("value ", {entry(statement.value)}.item())']
    if isinstance(statement, FollowsCDF):
        u = trace.name(statement.samples)
        return [
            f"n = {u}.numel()",
            f"distance = ({u}.sort().values - torch.arange(1, n + 1) / n).abs().max()",
            f'print("distance from the uniform distribution", distance.item(), "allowed {finding.noise:.4f}")',
        ]
    if isinstance(statement, HasMean):
        return [
            f'print("mean of the samples", {trace.name(statement.samples)}.mean().item())',
            f'print("expected mean", {trace.name(statement.mean)}.item(), "± {finding.noise:.4g}")',
        ]
    if isinstance(statement, Equal | AtMost):
        left, right, words = statement.left, statement.right, ("left ", "right")
    elif isinstance(statement, BitwiseEqual):
        left, right, words = statement.before, statement.after, ("before", "after ")
    else:
        raise RejectCase
    if finding.kind == "shapes differ" or (finding.kind == "changed" and finding.reason):
        return [f'print("{word}", {trace.name(tensor(x))}.shape)' for word, x in zip(words, (left, right), strict=True)]
    return [f'print("{word}", {entry(x)}.item())' for word, x in zip(words, (left, right), strict=True)]


class _NotExpressible(Exception):
    """A value or function that cannot be written as Python."""


class OperationTrace(Pausable, TorchFunctionMode):
    """Records every tensor operation of a law, and every call of the map, as a line of Python.

    A tensor that no recorded line computes is a constant of the script. Functions that the law applies to the map
    (`Map.modified`, `Map.wrapped`) are written from their source code.
    """

    def __init__(self, parameters: dict[str, Tensor]) -> None:
        super().__init__()
        self.steps: list[tuple[str, str]] = []
        """The variable that each step assigns, and its text."""
        self.suggested_names: dict[int, str] = {}
        self.helpers: dict[str, Any] = {}
        """Functions that are called besides the map."""
        self.definitions: dict[str, str] = {}
        """Source code of functions of the law."""
        self.imports: set[str] = set()
        self.sequence: set[str] = set()
        """Calls on which later calls may depend."""
        self.constants: dict[str, Tensor] = {}
        self.alive: list[Any] = list(parameters.values())  # ids are unique as long as the tensors live
        self.names: dict[int, str] = {id(x): f"parameters[{name!r}]" for name, x in parameters.items()}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.paused:
            return func(*args, **kwargs)
        with self.pause():
            values = (*args, *kwargs.values())
            before = {id(x): x.detach().clone() for x in values if isinstance(x, Tensor) and id(x) not in self.names}
            out = func(*args, **kwargs)
            name = "torch.autograd.grad" if func is torch.autograd.grad else resolve_name(func) or ""
            if name.endswith("__setitem__") or _has_tensor(out):
                with suppress(_NotExpressible):
                    self._record_operation(name, args, kwargs, out, before)
        return out

    def suggest_name(self, x: Tensor, name: str) -> None:
        """Names a tensor in case it becomes a constant."""
        self.alive.append(x)
        self.suggested_names[id(x)] = name.replace("'", "_changed").replace(".", "_").replace(" ", "_")

    def lines(self, ending: str) -> list[str]:
        """Returns the steps that the last lines depend on."""
        needed = set(_WORD.findall(ending)) | self.sequence
        kept = []
        for variable, text in reversed(self.steps):
            if variable in needed:
                needed |= set(_WORD.findall(text))
                kept.append(text)
        return kept[::-1]

    def name(self, x: Tensor, value: Tensor | None = None) -> str:
        """Returns the variable that holds a tensor; a new constant if there is none."""
        if id(x) not in self.names:
            variable = self._new_variable(self.suggested_names.get(id(x), "c"))
            self.constants[variable] = (x if value is None else value).detach().clone()
            self._set_name(x, variable)
        return self.names[id(x)]

    def _new_variable(self, hint: str) -> str:
        taken = {*self.names.values(), *self.constants, *(variable for variable, _ in self.steps)}
        return next(name for n in range(10**6) if (name := f"{hint}{n or ''}") not in taken)

    def _set_name(self, x: Any, name: str) -> None:
        self.alive.append(x)
        self.names[id(x)] = name

    def _record_operation(self, name: str, args: Any, kwargs: Any, out: Any, before: dict[int, Tensor]) -> None:
        parts = [self.expression(a, before) for a in args]
        options = [f"{k}={self.expression(v, before)}" for k, v in kwargs.items() if k != "device"]
        method = name.removeprefix("torch.Tensor.") if name.startswith("torch.Tensor.") else ""
        operator = method.strip("_")
        if method == "__setitem__":
            self.steps.append((parts[0], f"{parts[0]}[{self._index(args[1])}] = {parts[2]}"))
            return
        if method == "__getitem__":
            line = f"{parts[0]}[{self._index(args[1])}]"
        elif method.endswith(".__get__"):
            line = f"{parts[0]}.{method.removesuffix('.__get__')}"
        elif method.startswith("__r") and operator[1:] in _OPERATORS and len(parts) == 2:
            line = f"{parts[1]} {_OPERATORS[operator[1:]]} {parts[0]}"
        elif (operator in _OPERATORS and len(parts) == 2 and not options and not method.endswith("_")) or (
            method.startswith("__") and operator in _OPERATORS and len(parts) == 2
        ):
            line = f"{parts[0]} {_OPERATORS[operator]} {parts[1]}"
        elif method == "__invert__":
            line = f"~{parts[0]}"
        elif method == "__neg__" or method == "neg":
            line = f"-{parts[0]}"
        elif method:
            line = f"{parts[0]}.{method}({', '.join(parts[1:] + options)})"
        elif name.startswith("torch.") and "._" not in name:
            line = f"{name}({', '.join(parts + options)})"
        else:
            raise _NotExpressible
        self._assign(out, line)

    def _assign(self, out: Any, line: str, hint: str = "v", before: str = "") -> None:
        if isinstance(out, Tensor) and id(out) in self.names:
            if line.partition("(")[0].endswith("_"):  # an in-place update
                self.steps.append((self.names[id(out)], line))
            return
        variable = self._new_variable(hint)
        self.steps.append((variable, f"{before}{variable} = {line}"))
        self._set_name(out, variable)
        for n, part in enumerate(() if isinstance(out, Tensor) else out):
            if isinstance(part, Tensor):
                self._set_name(part, f"{variable}[{n}]")

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
        raise _NotExpressible

    def record_call(
        self, f: BoundMap, inputs: Sequence[Any], output: Any, found: Any, *, call_index: int | None = None
    ) -> None:
        """Records a call of the map; `call_index` is its number in a sequence of calls without a reset."""
        with self.pause():
            arguments = inputs if f.own_arguments else f.place(inputs)
            call = f"{self._function(f, call_index is None)}({self._arguments(f, arguments)})"
            before = self._lines_before(f, call_index)
            if isinstance(found, Tensor):
                self._assign(found, _access(call, output, found), "y", before)
                self.sequence |= set() if call_index is None else {self.names[id(found)]}
                return
            variable = self._new_variable("y")
            self.sequence |= set() if call_index is None else {variable}
            self.steps.append((variable, f"{before}{variable} = {call}"))
            for key, part in (children(output) or {}).items():
                self._set_name(part, f"{variable}[{key!r}]")  # such as a cache that is passed on
            for part in found:
                self._set_name(part, _access(variable, output, part))

    def record_inputs_after(self, f: BoundMap, inputs: Sequence[Any], after: Sequence[Any]) -> None:
        """Records a call whose inputs are compared afterwards."""
        with self.pause():
            for x, x_after in zip(inputs, after, strict=True):
                name = self.name(x)
                self._assign(x_after, f"{name}.clone()", f"{name}_after")
            call = f"{self._function(f, True)}({self._arguments(f, f.place(after), copy=False)})"
            for x_after in after:
                self.steps.append((self.names[id(x_after)], ""))
            self.steps[-1] = (self.steps[-1][0], self._lines_before(f) + call)

    def record_state_after(self, f: BoundMap, inputs: Sequence[Any], after: Mapping[str, Tensor], kind: str) -> None:
        """Records a call whose parameters or buffers (`kind`) are compared afterwards."""
        with self.pause():
            variable = self._new_variable("after")
            arguments = self._arguments(f, inputs if f.own_arguments else f.place(inputs))
            lines = f"g = copy.deepcopy(f)\ng({arguments})\n{variable} = dict(g.named_{kind}())"
            self.steps.append((variable, self._lines_before(f) + lines))
            for name, x in after.items():
                self._set_name(x, f"{variable}[{name!r}]")

    def _function(self, f: BoundMap, reset: bool) -> str:
        """Writes the function of a call: `f`, a copy of it, a method of it, another function, or a wrapper."""
        text = "f"
        if isinstance(f.target, nn.Module):
            if not reset or _is_copied(f):
                text = "g"
            elif f.state.changed_by_calls:
                text = "fresh(f)"
        if f.parameter_values and not f.origin:
            return f"(lambda *a: torch.func.functional_call({text}, {{{self._parameter_values(f)}}}, a))"
        for kind, value in f.origin:
            if kind == "method":
                text = f"{text}.{value}"
            elif kind == "function":
                text = self._helper(value)
            else:
                text = self._apply(value, text)
        return text

    def _helper(self, function: Any) -> str:
        """Returns the name of another function, which the script imports or defines."""
        name = getattr(function, "__name__", "")
        if isinstance(function, FunctionType) and "<" in function.__qualname__:  # a lambda or a nested function
            with suppress(_NotExpressible):
                return self._define(function, "other" if name == "<lambda>" else name)
        name = name if name.isidentifier() else "other"
        self.helpers[name] = function
        return name

    def _parameter_values(self, f: BoundMap) -> str:
        cast = f".to({f.dtype})" if f.dtype is not None else ""
        return ", ".join(f"{name!r}: {self.expression(value)}{cast}" for name, value in f.parameter_values)

    def _lines_before(self, f: BoundMap, call_index: int | None = None) -> str:
        """Writes mode, gradient, random seed, and changes to a copy of the map."""
        mode = ("f.train()\n" if f.settings.training else "f.eval()\n") if f.state.modules else ""
        grad = torch.is_grad_enabled() or f.settings.grad
        seed = f"torch.manual_seed({f.seed})\n" if not call_index else ""
        lines = f"{mode}torch.set_grad_enabled({grad})\n{seed}"
        first = call_index == 0
        if call_index or not (_is_copied(f) or first) or not isinstance(f.target, nn.Module):
            return lines
        if first or not any(kind == "function" for kind, _ in f.origin):
            lines += "g = copy.deepcopy(f)" + (f".to({f.dtype})" if f.dtype is not None else "") + "\n"
            lines += "".join(f"{self._apply(change, 'g')}\n" for change in f.changes)
            if f.parameter_values and f.origin:
                lines += f"g.load_state_dict({{{self._parameter_values(f)}}}, strict=False)\n"
        return lines

    def _arguments(self, f: BoundMap, arguments: Any, copy: bool = True) -> str:
        def write(value: Any) -> str:
            text = self.expression(value)
            if not isinstance(value, Tensor):
                return text
            if copy and text not in self.constants:
                text += ".clone()"
            if f.dtype is not None and value.is_floating_point():
                text += f".to({f.dtype})"
            return f"{f.settings.layout}({text})" if f.settings.layout != "contiguous" else text

        if isinstance(arguments, dict):
            return ", ".join(f"{key}={write(value)}" for key, value in arguments.items())
        return ", ".join(write(value) for value in arguments)

    def _apply(self, function: Callable[..., Any], argument: str) -> str:
        """Writes the call of a law's function on the map: inline for a lambda, else by name."""
        try:
            if isinstance(function, functools.partial):
                options = [f"{name}={self.expression(value)}" for name, value in function.keywords.items()]
                arguments = [*map(self.expression, function.args), argument, *options]
                return f"{self._reference(function.func)}({', '.join(arguments)})"
            if isinstance(function, FunctionType) and function.__name__ == "<lambda>":
                node = _parse(function)
                if isinstance(node, ast.Lambda) and not node.args.vararg and not node.args.kwarg:
                    names = [a.arg for a in node.args.args]
                    defaults = dict(zip(reversed(names), reversed(function.__defaults__ or ()), strict=False))
                    values = {name: ast.parse(self.expression(v), mode="eval").body for name, v in defaults.items()}
                    values[names[0]] = ast.parse(argument, mode="eval").body
                    text = ast.unparse(ast.fix_missing_locations(self._resolve(function, node.body, values)))
                    return f"({text})" if text.startswith("lambda") else text
            return f"{self._reference(function)}({argument})"
        except _NotExpressible:
            return f'raise SystemExit("apply the change of the law to {argument} here")'

    def _reference(self, function: Any) -> str:
        """Returns an expression for a function: an imported name, or a name that the script defines."""
        module, name = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", "")
        if getattr(torch, name, None) is function:
            return f"torch.{name}"
        if module.partition(".")[0] in (*sys.stdlib_module_names, "torch") and name.isidentifier():
            self.imports.add(f"from {module} import {name}")
            return name
        if isinstance(function, FunctionType):
            return self._define(function, function.__name__)
        raise _NotExpressible

    def _define(self, function: FunctionType, name: str) -> str:
        """Adds the source code of a function to the script, and returns its name there."""
        if name not in self.definitions:
            node = _parse(function)
            self.definitions[name] = ""  # a recursive function refers to itself
            try:
                node = self._resolve(function, node, {})
            except _NotExpressible:
                del self.definitions[name]
                raise
            if isinstance(node, ast.FunctionDef):
                node.name, node.decorator_list = name, []
                node.body = node.body[1:] if ast.get_docstring(node) else node.body
            text = ast.unparse(ast.fix_missing_locations(node))
            text = text if isinstance(node, ast.FunctionDef) else f"{name} = {text}"
            del self.definitions[name]  # definitions that it refers to come first
            self.definitions[name] = text
        return name

    def _resolve(self, function: FunctionType, node: Any, values: dict[str, ast.expr]) -> Any:
        """Replaces the free variables of a function by literals, imports and definitions, and drops annotations."""
        bound = {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
        bound |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        bound |= {n.name for n in ast.walk(node) if isinstance(n, ast.FunctionDef)} - {function.__name__}
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        scope = function.__globals__ | {name: cell.cell_contents for name, cell in cells}
        trace = self

        class Resolver(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.expr:
                if node.id in values:
                    return values[node.id]
                if node.id in bound or node.id not in scope or not isinstance(node.ctx, ast.Load):
                    return node
                value = scope[node.id]
                if isinstance(value, ModuleType):
                    parent, _, child = value.__name__.rpartition(".")
                    trace.imports.add(f"from {parent} import {child}" if parent else f"import {child}")
                    return ast.Name(child, ast.Load())
                if isinstance(value, type) or callable(value):
                    return ast.parse(trace._reference(value), mode="eval").body
                return ast.parse(trace.expression(value), mode="eval").body

            def visit_arg(self, node: ast.arg) -> ast.arg:
                return ast.arg(node.arg)

            def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
                node.returns = None
                self.generic_visit(node)
                return node

        return Resolver().visit(node)


def _parse(function: FunctionType) -> ast.Lambda | ast.FunctionDef:
    """Parses the source of a function; raises `_NotExpressible` if it is missing or ambiguous."""
    try:
        lines, first = inspect.getsourcelines(function)
        source = textwrap.dedent("".join(lines))
    except (OSError, TypeError) as error:
        raise _NotExpressible from error
    try:
        tree = ast.parse(source)
    except SyntaxError as error:  # a lambda in the middle of a call over several lines
        raise _NotExpressible from error
    kind = ast.Lambda if function.__name__ == "<lambda>" else ast.FunctionDef
    found = [n for n in ast.walk(tree) if isinstance(n, kind)]
    if kind is ast.FunctionDef:
        found = [n for n in found if n.name == function.__name__]  # pyrefly: ignore
    else:
        line = function.__code__.co_firstlineno - first + 1
        found = [n for n in found if n.lineno == line and [a.arg for a in n.args.args] == _positional(function)]
    if len(found) != 1:
        raise _NotExpressible
    return found[0]  # pyrefly: ignore


def _positional(function: FunctionType) -> list[str]:
    return list(function.__code__.co_varnames[: function.__code__.co_argcount])


def _is_copied(f: BoundMap) -> bool:
    return bool(f.changes) or f.dtype is not None


def _access(call: str, output: Any, found: Tensor) -> str:
    """Writes how a tensor is accessed in the output: `f(x)[0]`, `f(x).logits`."""
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
