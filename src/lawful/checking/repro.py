"""Standalone scripts: a counterexample in plain PyTorch, for an issue or a colleague."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

import torch
from torch import Tensor, nn

from lawful.checking.compare import Finding, Statistical
from lawful.checking.runner import CaseRun, CaseRunner
from lawful.checking.strategies import SAMPLES, replay
from lawful.checking.trace import OperationTrace
from lawful.checking.verdict import Script
from lawful.laws.interfaces import RejectCase
from lawful.laws.statements import AtMost, BitwiseEqual, Equal, Finite, FollowsCDF, HasMean, Occurs

SMALL = 64
"""Tensors of up to this many entries are written out."""

_HELPERS = {
    "transposed": "def transposed(x):\n    return x.mT.contiguous().mT if x.dim() > 1 else x",
    "strided": "def strided(x):\n    return torch.stack([x, x], dim=-1)[..., 0]",
    "fresh": "def fresh(f):\n    return copy.deepcopy(f, {id(p): p for p in f.parameters()})  # all but the parameters",
}

_SETTINGS = (("f.train()", "f.eval()"), ("torch.set_grad_enabled(True)", "torch.set_grad_enabled(False)"))


def literal(x: Tensor) -> str:
    """Writes a tensor as an expression that gives it back bit by bit."""
    text = repr(x.tolist()).replace("nan", 'float("nan")').replace("inf", 'float("inf")')
    return f"torch.tensor({text}, dtype={x.dtype})"


def origin(target: Any, variable: str = "f") -> str:
    """Writes lines that define a variable as the target; the parameters of a module still have to be loaded."""
    source = type(target) if isinstance(target, nn.Module) else target
    name = getattr(source, "__qualname__", "")
    module = inspect.getmodule(source)
    if getattr(torch, name.rpartition(".")[2], None) is source:
        return f"{variable} = torch.{name.rpartition('.')[2]}"
    if not name.isidentifier() or module is None:
        what = "module" if isinstance(target, nn.Module) else "function"
        return f'raise SystemExit("put your {what} here: {variable} = ...")'
    if module.__name__ in ("__main__", "builtins"):
        try:
            head = "from torch import Tensor, nn\nfrom torch.nn import functional as F\n\n"
            head += textwrap.dedent(inspect.getsource(source)) + "\n"
        except (OSError, TypeError):
            head = f"# the definition of {name} goes here"
    else:
        head = f"from {module.__name__} import {name}\n"
    made = construction(target, name) if isinstance(target, nn.Module) else name
    return head if made == variable else f"{head}\n{variable} = {made}"


def construction(target: nn.Module, name: str) -> str:
    """Writes how a module is made, as far as that is known."""
    if type(target).__module__.startswith("torch.nn") and "\n" not in repr(target):
        return repr(target)
    known = []
    if type(target).__init__ is not nn.Module.__init__:
        known = list(inspect.signature(type(target)).parameters.values())
    wanted = [p.name for p in known if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return f"{name}({', '.join(f'{p}=...' for p in wanted)})" + ("  # as you built it" if known else "")


def script(trial: CaseRunner, run: CaseRun, finding: Finding, made: str | None = None) -> Script:
    """Runs a counterexample once more and writes down what happens as a script.

    Args:
        made: Lines that define `f` with the very parameters that were checked; else they are stored.
    """
    dtype = finding.dtype if finding.kind == "not finite" else trial.precision
    trial.state.prepare(dtype, run.setting.randomised)
    parameters: dict[str, Tensor] = dict(trial.state.parameters)
    trace = OperationTrace(parameters)
    statistical = isinstance(run.statement, Statistical)
    again = trial.run(
        replay(run.record),
        dtype,
        given=None if statistical else run.record.tensors,
        samples=10 * SAMPLES if statistical else SAMPLES,
        trace=trace,
    )
    with trace.pause():
        ending = _ending(trace, again, finding)
    trial.state.reset()
    definition = made or origin(trial.target)
    states: dict[str, dict[str, Tensor]] = {}
    for name, helper in trace.helpers.items():
        definition = f"{origin(helper, name)}\n{definition}"
        if isinstance(helper, nn.Module):
            states[name] = _state(helper)
    if isinstance(trial.target, nn.Module):
        states["f"] = _state(trial.target) if not made else {}
        if made and run.setting.randomised:
            states["f"] = {name: parameters[name].detach().clone() for name in trial.state.plain if name in parameters}
    return _compose(trial, run, dtype, definition, states, trace, ending)


def _state(module: nn.Module) -> dict[str, Tensor]:
    return {name: x.detach().clone() for name, x in module.state_dict().items() if isinstance(x, Tensor)}


def _compose(
    trial: CaseRunner,
    run: CaseRun,
    dtype: torch.dtype,
    definition: str,
    states: dict[str, dict[str, Tensor]],
    trace: OperationTrace,
    ending: list[str],
) -> Script:
    body = _tidy("\n".join([*trace.lines("\n".join(ending)), *ending]))
    constants = {name: x for name, x in trace.constants.items() if re.search(rf"\b{name}\b", body)}
    head = [f'"""{trial.law} is refuted: {trial.law.formula}."""', ""]
    head += ["import copy", ""] if "copy." in body or "fresh(" in body else []
    head += ["import torch"]
    after = [definition]
    after += [f"{name} = {name}.to({dtype})" for name in states]
    if trial.state.modules and not states:
        after.append("# The parameters that the function uses are to be float64 too.")
    after.append(f"torch.set_default_dtype({dtype})")
    for helper, text in _HELPERS.items():
        after += ["", text, ""] if f"{helper}(" in body else []
    everything = {f"{owner}.{name}": x for owner, state in states.items() for name, x in state.items()}
    large = {name: x for name, x in {**constants, **everything}.items() if x.numel() > SMALL}

    def written(beside: bool) -> str:
        def write(name: str, x: Tensor) -> str:
            return f"tensors[{name!r}]" if beside and name in large else literal(x)

        top = [*head, *(["from safetensors.torch import load_file"] if beside else [])]
        lines = [*top, "", *after]
        lines += ['tensors = load_file(__file__.removesuffix(".py") + ".safetensors")'] if beside else []
        for owner, state in states.items():
            entries = "".join(f"    {name!r}: {write(f'{owner}.{name}', x)},\n" for name, x in state.items())
            lines += [f"{owner}.load_state_dict({{\n{entries}}}, strict=False)"] if state else []
        if re.search(r"\bparameters\[", body):
            lines.append("parameters = dict(f.named_parameters())")
        lines += [f"{name} = {write(name, x)}" for name, x in constants.items()]
        return "\n".join([*lines, "", body, ""])

    return Script(written(False), written(True) if large else "", large)


def _tidy(body: str) -> str:
    """Leaves out settings that are already in force."""
    kept, force = [], {"torch.set_grad_enabled(True)"}
    for line in body.splitlines():
        setting = next((options for options in _SETTINGS if line in options), ())
        if line in force:
            continue
        force = (force - set(setting)) | ({line} if setting else set())
        kept.append(line)
    return "\n".join(kept)


def _ending(trace: OperationTrace, run: CaseRun, finding: Finding) -> list[str]:
    """The last lines: both sides at the entry where they differ most."""

    def entry(side: Any) -> str:
        x = side if isinstance(side, Tensor) else list(side)[finding.output]
        name = trace.name(x)
        if x.is_complex():
            name = f"torch.view_as_real({name})"
        return f"{name}[{', '.join(map(str, finding.index))}]" if finding.index else name

    statement = run.statement
    if isinstance(statement, Occurs):
        raise RejectCase  # no single case shows what never happens
    if isinstance(statement, Finite):
        return [f'print("value ", {entry(statement.value)}.item())']
    if isinstance(statement, FollowsCDF):
        u = trace.name(statement.samples)
        bound = f"{finding.noise:.4f}"
        return [
            f"n = {u}.numel()",
            f"apart = ({u}.sort().values - torch.arange(1, n + 1) / n).abs().max()",
            f'print("distance from the uniform distribution", apart.item(), "where chance allows {bound}")',
        ]
    if isinstance(statement, HasMean):
        return [
            f'print("average of the samples", {trace.name(statement.samples)}.mean().item())',
            f'print("expectation", {trace.name(statement.mean)}.item(), "where chance allows {finding.noise:.4g}")',
        ]
    if finding.kind == "shapes differ" or (finding.kind == "changed" and finding.reason):
        pair = (
            (statement.before, statement.after)
            if isinstance(statement, BitwiseEqual)
            else (statement.left, statement.right)
        )
        names = [trace.name(x if isinstance(x, Tensor) else list(x)[finding.output]) for x in pair]
        return [f'print("left ", {names[0]}.shape)', f'print("right", {names[1]}.shape)']
    left, right = (
        (statement.left, statement.right)
        if isinstance(statement, Equal | AtMost)
        else (statement.before, statement.after)
    )
    words = ("left ", "right") if isinstance(statement, Equal | AtMost) else ("before", "after ")
    return [f'print("{words[0]}", {entry(left)}.item())', f'print("{words[1]}", {entry(right)}.item())']
