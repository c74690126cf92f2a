"""Mutation testing of lawful: how many small faults do its claims and tests find?

Run `OMP_NUM_THREADS=1 python benchmarks/mutants.py`, or name some modules: `python benchmarks/mutants.py attention
divergences`; `--each 10` takes ten mutants of each file, evenly spread; `--offset 0.5` takes the ten halfway between
them. Progress and survivors go to stderr. A mutant is a file of lawful with one changed expression. Each is imported in
a process of its own in place of its module, so that every package, re-export and test uses it. It is judged by the
claims and the examples of the module, by the mirrored test file (`tests/blocks/test_attention.py` for
`lawful/blocks/attention.py`), and by the test files of the same folder that use a name that the module defines. It is
killed if a claim is neither held nor waived, if an example or a test fails, or if anything raises.

Not mutated: text, annotations, type variables, methods without a body (as in a protocol), devices and dtypes, checks of
arguments (conditions that raise, functions named `check` or `require`, `zip(strict=True)`), random seeds and
generators, whether a buffer is persistent, limits of memory (the constants `MAX_...` and `..._ENTRIES`, the default of
`chunk_size`), `claims()`, laws, and functions that only these use.

The survivors are listed, with a reason if one is known: a mutant is equivalent (no output differs), or only rounding
differs, which does not count as equivalent. One thread, the same mutants and cases each time. A process forks from one
that has imported PyTorch but not lawful, so that a mutant does not pay for that.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
import doctest
import importlib
import importlib.machinery
import importlib.util
import io
import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch

CASES = 30
"""Cases per claim of a module."""
REPOSITORY = Path(__file__).parents[1]
ROOT = REPOSITORY / "src" / "lawful"
TEST_OPTIONS = (
    "-x",
    "-q",
    "-n0",
    "--assert=plain",
    "-p",
    "no:cacheprovider",
    "--no-header",
    "--rootdir",
    str(REPOSITORY),
)
NUM_OTHER_TESTS = 3
"""Maximum number of test files besides the mirrored one."""
SKIPPED_PACKAGES = ("lawful.laws", "lawful.checking", "lawful.pytorch")
"""Packages that are not mutated: they contain laws, the checker, and claims about PyTorch."""

REASONS: dict[tuple[str, str], str] = {
    ("comparison", "if not TYPE_CHECKING"): "equivalent: only an import for annotations",
    ("scale", "int(positions.m"): "equivalent: only an error message",
    ("swapped", "a * x, y, b"): "equivalent: a b = b a",
    ("off by one", "not mask.causal else 1"): "equivalent: a masked key",
    ("sign", "-empty.expand"): "equivalent: empty tensors",
    ("scale", "/ g.sum(last"): "equivalent: empty tensors",
    ("dropped argument", "eps=1e-30)"): "equivalent: they are one and zero",
    ("scale", "2 * target.get_parameter"): "equivalent: only its shape is read",
    ("sign", "-target.get_parameter"): "equivalent: only its shape is read",
    ("scale", "2 * tensor.new_zeros"): "equivalent: twice 0",
    ("sign", "-tensor.new_zeros"): "equivalent: minus 0",
    ("off by one", "if size > 1"): "rounding: a single entry converges at once",
    ("sign", "t = -((p - q)"): "equivalent: even in t",
    ("scale", "first = 2 * x.detach"): "rounding: it is added back",
    ("sign", "+ first).mean(0)"): "rounding: it is added back",
    ("dropped term", "angle = g.to("): "rounding: full turns are not removed",
    ("scale", "turns = 2 * torch.rand"): "equivalent: twice around is uniform, too",
    ("scale", "sizes = 2 * weights"): "equivalent: costs are only compared",
    ("axis", "a.shape[-2]"): "equivalent: the matrix is square",
    ("scale", "unit = 2 * torch.where"): "equivalent: the unit cancels",
    ("swapped", "norm(v - u)"): "equivalent: |a - b| = |b - a|",
    ("scale", "2 * (x / length"): "equivalent: the length cancels",
    ("sign", "(-axes.flip(-1)"): "equivalent: the sign is chosen later",
    ("swapped", "distance(q, p"): "equivalent: |p - q| = |q - p|",
    ("swapped", "(y, x, map="): "equivalent: a b = b a",
    ("scale", "square == 0, 2.0"): "equivalent: 0 / 2 = 0 / 1",
    ("axis", "covariance.shape[-2]"): "equivalent: the matrix is square",
    ("scale", "fixed = 2 * axes"): "equivalent: only signs are read",
    ("off by one", "degree + 2)]"): "equivalent: the last level is not read",
    ("comparison", "is not None or y"): "equivalent: both are set, or neither",
    ("dropped term", "if y is not None"): "equivalent: both are set, or neither",
    ("off by one", "nan_to_num(0.0).clamp(0, 2)"): "equivalent: 1/3 is the minimum",
    ("scale", "return 2 * torch.full_like"): "equivalent: twice 0 and twice -inf",
    ("scale", "_INFINITY = 2000000.0"): "equivalent: the sigmoid is 0 or 1",
    ("off by one", "clamp(-1, 1)"): "rounding: the root is at least 0",
    ("sign", "y, after = (-(q @ before)"): "equivalent: the sign cancels",
    ("scale", "near = t.abs() < 1.0"): "rounding: both forms are equal",
    ("scale", "2 * x.clone(), torch.arange"): "equivalent: every entry is replaced",
    ("default", "batch_size: int=1025"): "equivalent: only memory",
    ("swapped", "_check_features(y, x)"): "equivalent: the distance is symmetric",
    ("off by one", "log_rest < -math.log(1)"): "rounding: both forms are equal",
    ("off by one", "seed=seed, stream=2, first=first"): "equivalent: other random numbers",
    ("comparison", "elif labels.dim() >= 1"): "equivalent: one axis stays one axis",
    ("scale", "change = 2 * (cost[unit]"): "equivalent: costs are only compared",
    ("dropped call", "(bottom - top)).tan()"): "rounding: the angle is at most a right angle",
    ("comparison", "- sequence.shape[-1])) >= 0"): "equivalent: nothing is added",
    ("sign", "empty = -v.new_zeros"): "equivalent: minus 0",
    ("off by one", "@ rho)[..., -1]"): "equivalent: there is one column",
    ("sign", "x = -initial_noise("): "equivalent: other random numbers",
    ("swapped", "(min(last, t) - peak)"): "equivalent: the minimum is symmetric",
    ("swapped", "y.mean(-1, keepdim=True) - y if subtracts_mean"): "equivalent: the sign cancels",
    ("scale", "(4 / sum(a.shape[-2:]) * eps)"): "rounding: the minimum of the damping",
    ("dropped argument", "torch.cdist(x, self.inputs, p=self.p)"): "rounding: the other method cancels digits",
    ("dropped term", "elif len(y) == 1:"): "rounding: the same steps",
    ("comparison", "if rows >= _LARGE else"): "rounding: only what is stacked",
    ("comparison", "s * size >= cap"): "rounding: at a tie both terms are cap",
    ("scale", "/ slope).clamp(0, 2 * k)"): "rounding: it is at most the width of a cell",
    ("scale", "2 * x.new_zeros(len(x))"): "equivalent: twice 0",
    ("swapped", "seed + 40 ** 2"): "equivalent: other random numbers",
    ("off by one", "split(max(2, _MAX_DISTANCES // n))"): "equivalent: only memory",
    ("dropped term", "if self.output_normalizer is not None:"): "equivalent: both are set, or neither",
    ("dropped term", "if not torch.equal(before, stream):"): "shortcut: differs for NaN only",
    ("comparison", "if not x.is_cuda:"): "device: differs with CUDA only",
    ("off by one", "x[0].numel() if len(x) else 0)"): "equivalent: an empty batch",
    ("swapped", "self._zip_factors(h, g)), torch.zeros"): "equivalent: the distance is symmetric",
    ("swapped", "product = m @ a"): "rounding: m is a polynomial of a",
    ("off by one", "(order == unit).nonzero()[-1, 0])"): "equivalent: there is one entry",
    ("swapped", "directions = (1 - noise.round() * 2)"): "equivalent: even in the directions",
    ("sign", "row + shift[:, 0], column - shift[:, 1], here)"): "equivalent: the shifts are symmetric",
    ("comparison", "use_quadrature = tilt <= 8"): "rounding: both forms are equal",
    ("comparison", ".to(x.device) <= probability"): "rounding: a tie has probability 2**-24",
}
"""Reasons why mutants survive, by operator and part of the changed line."""

COUNTS = ("checked", "killed", "by a claim", "by a test", "equivalent")
WIDTH = 140

AXIS_NAMES = {"dim", "dims", "axis", "axes", "time", "batch"}
AXIS_CALLS = re.compile(
    "sum|mean|amax|amin|softmax|log_softmax|logsumexp|cumsum|cumprod|argmax|argmin|sort|std|var|flip|unbind|select|size"
    "|cat|stack|squeeze|unsqueeze|transpose|permute|movedim|flatten|index_select|gather"
)
PATTERN_CALLS = {"einsum", "rearrange", "reduce", "repeat"}
NORMS = re.compile(r"norm(?!al)|normali|softmax|mean|sqrt|^forward$")
DROPPABLE = re.compile(
    "exp|log|log1p|expm1|square|abs|sin|cos|tanh|sigmoid|logsigmoid|relu|gelu|silu|softplus|clamp|clamp_min|clamp_max"
    "|masked_fill|tril|triu|roll|flip|cumsum"
)
NAMESPACES = {"torch", "F", "nn", "self", "super", "math"}
SKIPPED_FIELDS = {"annotation", "returns", "decorator_list", "bases"}
SKIPPED_ARGUMENTS = {"strict", "device", "dtype", "generator", "persistent"}
SKIPPED_DEFAULTS = {"seed", "chunk_size"}
LIMITS = re.compile(r"_?(MAX|\w+_ENTRIES)\w*")
CHECKS = re.compile(r"_?(check|require)\w*")
BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
NEGATED = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}

Change = tuple[str, ast.expr]


@dataclass(frozen=True)
class Mutant:
    """A file with one change: its source, and the line before and after."""

    file: str
    operator: str
    number: int
    before: str
    after: str
    source: str

    @property
    def reason(self) -> str:
        return next((REASONS[key] for key in REASONS if self.matches(*key)), "")

    def matches(self, operator: str, part: str) -> bool:
        return self.operator == operator and part in self.after


@dataclass(frozen=True)
class Site:
    """An expression that can be changed: its parent, and its role."""

    node: ast.expr
    parent: ast.AST
    field: str
    index: int | None
    role: str = ""

    def replace(self, node: ast.expr) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def number(node: ast.AST) -> int | float | None:
    """Returns the value of a number literal, with its sign."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = number(node.operand)
        return None if value is None else -value
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return node.value
    return None


def literal(value: float) -> ast.expr:
    return ast.UnaryOp(ast.USub(), ast.Constant(-value)) if value < 0 else ast.Constant(value)


def name_of(function: ast.expr) -> str:
    """Returns the last part of the name of a function."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def operand_of(call: ast.Call) -> ast.expr | None:
    """Returns the operand of a call: its first argument, or the object whose method is called."""
    root = call.func
    while isinstance(root, ast.Attribute | ast.Call):
        root = root.value if isinstance(root, ast.Attribute) else root.func
    if isinstance(call.func, ast.Attribute) and getattr(root, "id", "") not in NAMESPACES:
        return call.func.value
    return call.args[0] if call.args else None


def is_law(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and name_of(decorator.func) == "law"


def judging(tree: ast.Module) -> set[str]:
    """The names of claims, laws, and the private functions that only these use."""
    functions = {part.name: part for part in tree.body if isinstance(part, ast.FunctionDef)}
    found = {name for name, part in functions.items() if name == "claims" or any(map(is_law, part.decorator_list))}
    while True:
        others = [part for part in tree.body if getattr(part, "name", "") not in found]
        used = {node.id for part in others for node in ast.walk(part) if isinstance(node, ast.Name)}
        more = {name for name in functions if name.startswith("_")} - used - found
        if not more:
            return found
        found |= more


def is_not_mutated(node: ast.AST) -> bool:
    """Whether a node is skipped: checks of arguments, exceptions, imports and text."""
    if isinstance(node, ast.FunctionDef):
        return (
            bool(CHECKS.fullmatch(node.name))
            or getattr(node.returns, "id", "") == "str"
            or (isinstance(node.body[-1], ast.Expr) and getattr(node.body[-1].value, "value", None) is ...)
        )
    if isinstance(node, ast.If):
        return isinstance(node.body[-1], ast.Raise) and not node.orelse
    if isinstance(node, ast.Expr):
        call = node.value
        return isinstance(call, ast.Constant) or (
            isinstance(call, ast.Call) and bool(CHECKS.fullmatch(name_of(call.func)))
        )
    if isinstance(node, ast.keyword):
        return node.arg in SKIPPED_ARGUMENTS
    if isinstance(node, ast.Assign):
        return bool(LIMITS.fullmatch(name_of(node.targets[0])))
    if isinstance(node, ast.AnnAssign):
        return name_of(node.target) in SKIPPED_DEFAULTS
    if isinstance(node, ast.Call):
        return name_of(node.func) in ("manual_seed", "TypeVar")
    return isinstance(node, ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr)


def role_of(node: ast.expr, parent: ast.AST, field: str, inherited: str) -> str:
    """Returns the role of an expression: an axis, a default, or a returned or assigned value."""
    if isinstance(parent, ast.Tuple | ast.List):
        return inherited
    if isinstance(parent, ast.keyword):
        return "axis" if parent.arg in AXIS_NAMES else ""
    if isinstance(parent, ast.Call) and field == "args":
        name, first = name_of(parent.func), parent.args[0] is node
        parts = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
        if all(number(part) is not None for part in parts) and (
            AXIS_CALLS.fullmatch(name) or (name == "narrow" and first)
        ):
            return "axis"
        return "pattern" if name in PATTERN_CALLS else ""
    if isinstance(parent, ast.Subscript) and field == "slice" and name_of(parent.value) == "shape":
        return "axis"
    gives = isinstance(parent, ast.Return | ast.Assign | ast.AnnAssign | ast.AugAssign) and field == "value"
    return "value" if gives else ""


def sites(node: ast.AST, role: str = "") -> Iterator[Site]:
    """Yields all expressions below a node that may be mutated."""
    if isinstance(node, ast.arguments):
        yield from defaults(node)
        return
    for field, value in ast.iter_fields(node):
        if field in SKIPPED_FIELDS:
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or is_not_mutated(child):
                continue
            inner = role_of(child, node, field, role) if isinstance(child, ast.expr) else ""
            if isinstance(child, ast.expr):
                yield Site(child, node, field, index, inner)
            if number(child) is None:
                yield from sites(child, inner)


def defaults(arguments: ast.arguments) -> Iterator[Site]:
    """The default values of a function's arguments."""
    positional = [*arguments.posonlyargs, *arguments.args]
    named = list(zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True))
    for field, pairs in (
        ("defaults", named),
        ("kw_defaults", list(zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))),
    ):
        for index, (argument, value) in enumerate(pairs):
            if value is not None and argument.arg not in SKIPPED_DEFAULTS:
                yield Site(value, arguments, field, index, "axis" if argument.arg in AXIS_NAMES else "default")


def changes(site: Site) -> Iterator[Change]:
    """Yields the mutations of one expression, each with the name of its operator."""
    node, role = site.node, site.role
    if (value := number(node)) is not None:
        yield from mutate_number(value, role)
        return
    if role == "axis" and not isinstance(node, ast.Tuple | ast.List | ast.Slice | ast.Constant):
        yield from (("axis", literal(axis)) for axis in (0, -1))
    if isinstance(node, ast.Constant):
        yield from mutate_constant(node.value, role)
    elif isinstance(node, ast.BinOp):
        yield from mutate_arithmetic(node)
    elif isinstance(node, ast.UnaryOp):
        if not isinstance(node.op, ast.UAdd):
            yield "comparison" if isinstance(node.op, ast.Not) else "sign", node.operand
    elif isinstance(node, ast.Compare):
        yield from mutate_comparison(node)
    elif isinstance(node, ast.BoolOp):
        yield "comparison", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        yield from (("dropped term", part) for part in node.values)
    elif isinstance(node, ast.Call):
        yield from mutate_call(node)
    if site.field == "test" and isinstance(node, ast.Name | ast.Attribute | ast.Call):
        yield "comparison", ast.UnaryOp(ast.Not(), node)
    if role == "value" and scalable(node, site.parent):
        yield "scale", ast.BinOp(ast.Constant(2), ast.Mult(), node)
        yield "sign", ast.UnaryOp(ast.USub(), node)


def scalable(node: ast.expr, parent: ast.AST) -> bool:
    """Whether an expression that is returned or assigned may be a tensor of numbers."""
    if isinstance(node, ast.BinOp):
        return not isinstance(node.op, ast.BitAnd | ast.BitOr)
    if isinstance(node, ast.Call):
        name = name_of(node.func)
        return name[:1].islower() and name != "super" and not name.startswith("zeros")
    if isinstance(parent, ast.Return):
        return isinstance(node, ast.Name | ast.UnaryOp | ast.Subscript)
    return isinstance(node, ast.UnaryOp)


def is_type(node: ast.expr) -> bool:
    """Whether an expression is None or a type that Python has, as in `float | None`."""
    return isinstance(node, ast.Constant) or getattr(node, "id", "") in dir(builtins)


def mutate_number(value: float, role: str) -> Iterator[Change]:
    if role == "axis":
        yield "axis", literal(value - 1 if value == -1 or value > 0 else value + 1)
    elif isinstance(value, int):
        yield from (("default" if role == "default" else "off by one", literal(value + step)) for step in (1, -1))
    elif role == "default":
        yield "default", literal(float(f"{10 * value:g}") or 1.0)
    else:
        yield "scale", literal(2 * value or 1.0)


def mutate_constant(value: object, role: str) -> Iterator[Change]:
    if isinstance(value, bool):
        yield "default" if role == "default" else "flag", ast.Constant(not value)
    if isinstance(value, str) and role == "pattern" and "->" in value:
        before, after = value.rsplit("->", 1)
        names = list(re.finditer(r"[A-Za-z_]\w*" if " " in value.strip() else "[A-Za-z]", after))
        if len(names) > 1:
            a, b = names[-2:]
            swapped = after[: a.start()] + b.group() + after[a.end() : b.start()] + a.group() + after[b.end() :]
            yield "axis", ast.Constant(f"{before}->{swapped}")


def mutate_arithmetic(node: ast.BinOp) -> Iterator[Change]:
    left, right, kind = node.left, node.right, type(node.op)
    if kind in (ast.BitAnd, ast.BitOr) and not (is_type(left) or is_type(right)):
        yield "comparison", ast.BinOp(left, ast.BitOr() if kind is ast.BitAnd else ast.BitAnd(), right)
        yield from (("dropped term", part) for part in (left, right))
    if kind in (ast.Add, ast.Sub):
        yield "sign", ast.BinOp(left, ast.Sub() if kind is ast.Add else ast.Add(), right)
    if kind in (ast.Mult, ast.Div):
        yield "scale", ast.BinOp(left, ast.Div() if kind is ast.Mult else ast.Mult(), right)
    if kind is ast.Div:
        yield "normalization", left
    if kind in (ast.Add, ast.Sub, ast.Mult, ast.Pow, ast.FloorDiv, ast.Mod):
        yield "dropped term", left
    if kind in (ast.Add, ast.Sub, ast.Mult, ast.Div):
        yield "dropped term", right
    if kind in (ast.Sub, ast.Div, ast.MatMult, ast.Pow):
        yield "swapped", ast.BinOp(right, node.op, left)


def mutate_comparison(node: ast.Compare) -> Iterator[Change]:
    for index, op in enumerate(node.ops):
        for other in (BOUNDARY.get(type(op)), NEGATED.get(type(op))):
            if other is not None:
                ops = [*node.ops[:index], other(), *node.ops[index + 1 :]]
                yield "comparison", ast.Compare(node.left, ops, node.comparators)


def mutate_call(node: ast.Call) -> Iterator[Change]:
    name = name_of(node.func)
    if NORMS.search(name) or DROPPABLE.fullmatch(name):
        argument = operand_of(node)
        if argument is not None:
            yield "normalization" if NORMS.search(name) else "dropped call", argument
    for dropped in node.keywords:
        if dropped.arg is not None and dropped.arg not in SKIPPED_ARGUMENTS:
            yield "dropped argument", ast.Call(node.func, node.args, [k for k in node.keywords if k is not dropped])
    for index, (one, other) in enumerate(zip(node.args, node.args[1:], strict=False)):
        if isinstance(one, ast.Name) and isinstance(other, ast.Name):
            args = [*node.args[:index], other, one, *node.args[index + 2 :]]
            yield "swapped", ast.Call(node.func, args, node.keywords)


def mutants_of(file: Path) -> list[Mutant]:
    """All mutants of a file, each once."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    plain = ast.unparse(tree)
    found: dict[str, Mutant] = {}
    judges = judging(tree)
    judged = ast.Module([part for part in tree.body if getattr(part, "name", "") not in judges], [])
    for site in list(sites(judged)):
        for operator, node in list(changes(site)):
            site.replace(node)
            source = ast.unparse(tree)
            site.replace(site.node)
            lines = zip(plain.splitlines(), source.splitlines(), strict=True)
            before, after = next(((a.strip(), b.strip()) for a, b in lines if a != b), ("", ""))
            if before:
                short = file.relative_to(ROOT).as_posix()
                found.setdefault(source, Mutant(short, operator, site.node.lineno, before, after, source))
    return list(found.values())


class MutantFinder:
    """Imports a source in place of the file of a module."""

    def __init__(self, name: str, file: Path, source: str) -> None:
        self.name, self.file, self.source = name, file, source

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        loader = MutantLoader(name, str(self.file))
        loader.source = self.source
        return importlib.util.spec_from_file_location(name, self.file, loader=loader)


class MutantLoader(importlib.machinery.SourceFileLoader):
    """Compiles a source instead of the file."""

    source = ""

    def get_code(self, fullname: str) -> object:
        return compile(self.source, self.path, "exec", dont_inherit=True)


def test_files(name: str, file: Path) -> list[Path]:
    """Returns the mirrored test file, and those of its folder that use most of the names that a module defines."""
    *packages, last = name.split(".")[1:]
    folder = REPOSITORY.joinpath("tests", *packages)
    mirrored, tree = folder / f"test_{last}.py", ast.parse(file.read_text(encoding="utf-8"))
    kinds = ast.FunctionDef | ast.ClassDef
    names = {part.name for part in tree.body if isinstance(part, kinds) and not part.name.startswith("_")} - {"claims"}
    uses = {}
    for path in sorted(folder.glob("test_*.py")):
        imported = {
            alias.name
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lawful")
            for alias in node.names
        }
        if path != mirrored and names & imported:
            uses[path] = len(names & imported)
    others = sorted(uses, key=lambda path: -uses[path])[:NUM_OTHER_TESTS]
    return [mirrored, *others] if mirrored.is_file() else others


def judge_claims(module: ModuleType) -> str:
    """Checks the claims of a module; returns the status of the first that fails, or nothing."""
    from lawful.checking.check import SearchBudget, judge_law, seeded_claims

    budget = SearchBudget(cases=CASES, shrinks=0)
    for claim in seeded_claims(module.claims(), budget.seed):
        status = judge_law(claim.law, claim.target, claim.inputs, claim.label, budget).status
        if status not in ("held", "waived"):
            return status
    return ""


def judge(name: str, tests: Sequence[Path]) -> str:
    """Checks the claims, examples and tests of a module; returns what failed first, or nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = importlib.import_module(name)
        if status := judge_claims(module):
            return status
        torch.manual_seed(0)
        if doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed:
            return "example"
    if tests and pytest.main([*TEST_OPTIONS, *map(str, tests)]) not in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
        return "test"
    return ""


def in_child(work: Iterable[str], seconds: float) -> str:
    """Runs work in a forked process; returns the text that it yields. A process that is killed yields "error"."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        text = "error"
        try:
            os.close(read)
            signal.setitimer(signal.ITIMER_PROF, seconds)  # the signal ends the process: a mutant may run forever
            signal.alarm(round(60 + 20 * seconds))
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                text = "".join(work)
        finally:
            os.write(write, text.encode())
            os._exit(0)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as pipe:
        text = pipe.read()
    _, code = os.waitpid(child, 0)
    return text if not code else "error"


def failure(name: str, file: Path, source: str, tests: Sequence[Path], seconds: float) -> str:
    """Judges a source in place of a module; returns what failed first, or nothing."""

    def work() -> Iterator[str]:
        sys.meta_path.insert(0, MutantFinder(name, file, source))
        sys.path.insert(0, str(REPOSITORY))
        os.chdir(REPOSITORY)
        yield judge(name, tests)

    return in_child(work(), seconds)


def import_dependencies() -> None:
    """Imports everything that lawful and its tests import, except themselves."""

    def work() -> Iterator[str]:
        before = {*sys.modules}
        for package in ("", ".checking.pytest_plugin", ".models", ".recipes", ".solvers", ".optim", ".inference"):
            importlib.import_module(f"lawful{package}")
        yield "\n".join(name for name in sys.modules if name not in before and not name.startswith("lawful"))

    # The plugin of hypothesis warns if it is imported after claims have drawn inputs.
    for name in ("_hypothesis_pytestplugin", *in_child(work(), 600).split()):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def spread(mutants: list[Mutant], limit: int, offset: float = 0.0) -> list[Mutant]:
    """Selects at most `limit` mutants, evenly spread; the offset shifts them by a part of their distance."""
    if len(mutants) <= limit:
        return mutants
    return [mutants[int((n + offset) * len(mutants) / limit)] for n in range(limit)]


def run_mutants(name: str, file: Path, limit: int, offset: float = 0.0) -> tuple[int, dict[Mutant, str]] | str:
    """Returns the number of mutants of a file and the status of at most `limit` of them (empty for a survivor).

    If the unchanged file fails, returns its status.
    """
    tests, start = test_files(name, file), time.monotonic()
    if status := failure(name, file, file.read_text(encoding="utf-8"), tests, 600):
        print(f"{file.relative_to(ROOT)}: skipped", file=sys.stderr)
        return status
    seconds = 10 + 4 * (time.monotonic() - start)
    found, statuses = mutants_of(file), {}
    for mutant in spread(found, limit, offset):
        statuses[mutant] = failure(name, file, mutant.source, tests, seconds)
        if not statuses[mutant] and not mutant.reason:
            print(describe(mutant), file=sys.stderr)
    print(f"{file.relative_to(ROOT)}: killed {sum(map(bool, statuses.values()))} of {len(statuses)}", file=sys.stderr)
    return len(found), statuses


def modules(names: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Yields the modules of lawful that have claims, except the checker."""
    endings = tuple(f".{name}" for name in names)
    for file in sorted(ROOT.rglob("*.py")):
        name = ".".join(["lawful", *file.relative_to(ROOT).with_suffix("").parts])
        functions = (
            part for part in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(part, ast.FunctionDef)
        )
        has_claims = any(part.name == "claims" for part in functions) and not name.startswith(SKIPPED_PACKAGES)
        if has_claims and (not endings or name.endswith(endings)):
            yield name, file


def main() -> None:
    parser = argparse.ArgumentParser(description="Counts the mutants of lawful that its claims and tests kill.")
    parser.add_argument("modules", nargs="*", help="last part of a module name (default: all modules)")
    parser.add_argument("--each", type=int, default=10**9, metavar="N", help="maximum number of mutants of each file")
    parser.add_argument("--offset", type=float, default=0.0, help="shift of the selected mutants, from 0 to 1")
    options = parser.parse_args()
    if not 0 <= options.offset < 1:
        parser.error(f"--offset must be at least 0 and less than 1, got {options.offset}")
    torch.set_num_threads(1)
    import_dependencies()
    runs = {name: run_mutants(name, file, options.each, options.offset) for name, file in modules(options.modules)}
    results = {name: result for name, result in runs.items() if not isinstance(result, str)}
    if any(statuses for _, statuses in results.values()):
        report(results, sum(os.times()[2:4]))
    elif len(results) == len(runs):
        raise SystemExit("no module with claims has these names, or there is nothing to change")
    for name, result in runs.items():
        if isinstance(result, str):
            print(f"Skipped: {name}, whose claims, examples or tests fail without a change ({result})")


def report(results: dict[str, tuple[int, dict[Mutant, str]]], seconds: float) -> None:
    """Prints the killed mutants by folder and by operator, and the survivors."""
    print(f"torch {torch.__version__}, one thread, {CASES} cases per claim\n")
    folders: dict[str, list[tuple[int, dict[Mutant, str]]]] = {}
    for found, grades in results.values():
        folder = next((mutant.file.rpartition("/")[0] for mutant in grades), "")
        folders.setdefault(folder, []).append((found, grades))
    table("folder", "files", "mutants", *COUNTS)
    for folder, files in folders.items():
        row(
            folder,
            len(files),
            sum(found for found, _ in files),
            *counts({k: v for _, g in files for k, v in g.items()}),
        )
    graded = {mutant: status for _, grades in results.values() for mutant, status in grades.items()}
    print()
    table("operator", *COUNTS)
    for operator in sorted({mutant.operator for mutant in graded}):
        row(operator, *counts({mutant: status for mutant, status in graded.items() if mutant.operator == operator}))
    judged, killed, *_, same = counts(graded)
    print(
        f"\nKilled {killed} of {judged}: {killed / judged:.1%}; without equivalent mutants {killed} of "
        f"{judged - same}: {killed / (judged - same):.1%}. {seconds:.0f} s of processor time, "
        f"{seconds / judged:.1f} s per mutant.\n"
    )
    alive = [mutant for mutant, status in graded.items() if not status]
    for mutant in sorted(alive, key=lambda mutant: bool(mutant.reason)):
        print(describe(mutant))
    for mutant, status in graded.items():
        if status and mutant.reason:
            print(f"Unneeded reason: {mutant.file}:{mutant.number}, {mutant.operator}")


def describe(mutant: Mutant) -> str:
    """Returns the place of a mutant, why it survives, and its line before and after."""
    lines = "".join(f"\n    - `{line[:WIDTH]}`" for line in (mutant.before, mutant.after))
    return f"- {mutant.file}:{mutant.number}, {mutant.operator}: {mutant.reason or 'not found'}{lines}"


def counts(grades: dict[Mutant, str]) -> tuple[int, int, int, int, int]:
    """Returns the number of mutants: all, killed, killed by a claim, by an example or a test, and equivalent."""
    killed = [status for status in grades.values() if status]
    by_test = sum(status in ("example", "test") for status in killed)
    by_claim = sum(status not in ("example", "test", "error") for status in killed)
    same = [mutant for mutant, status in grades.items() if not status and mutant.reason.startswith("equivalent")]
    return len(grades), len(killed), by_claim, by_test, len(same)


def table(*names: str) -> None:
    row(*names)
    print("|---" * len(names) + "|")


def row(*cells: object) -> None:
    print("|", " | ".join(map(str, cells)), "|")


if __name__ == "__main__":
    main()
