"""Targets, laws and inputs from text, as the command line and the pytest plugin receive them."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from lawful import laws
from lawful._suggest import did_you_mean
from lawful.checking._module_state import seed_all
from lawful.laws.inputs import Input
from lawful.laws.law import Claim, Law

STANDARD_LAWS = (
    laws.determinism,
    laws.statelessness,
    laws.no_mutation,
    laws.no_parameter_change,
    laws.state_dict_round_trip,
    laws.every_parameter_receives_a_gradient,
    laws.gradient,
    laws.batch_independence,
)
"""The laws that are checked if none is named."""


class UsageError(Exception):
    """An invalid name or value in the request."""


class TargetError(Exception):
    """A target that raised while it was imported or constructed."""


def laws_by_name() -> dict[str, Law]:
    """Returns all laws of `lawful.laws` by name."""
    return {name: value for name, value in vars(laws).items() if isinstance(value, Law)}


def laws_by_kind() -> dict[str, dict[str, Law]]:
    """Returns all laws of `lawful.laws`, grouped by the docstring of the file that defines them."""
    found: dict[str, dict[str, Law]] = {}
    for finder in sorted(pkgutil.iter_modules(laws.__path__), key=lambda m: m.name):
        module = importlib.import_module(f"lawful.laws.{finder.name}")
        exported = {n: v for n, v in vars(module).items() if isinstance(v, Law) and n in vars(laws)}
        defined = {n: v for n, v in exported.items() if v.parts or v.function.__module__ == module.__name__}
        if defined and not finder.ispkg:
            found[(module.__doc__ or "").splitlines()[0].rstrip(".")] = defined
    return found


def import_target(text: str) -> ModuleType:
    """Imports `package.module` or `path/file.py`."""
    if text.endswith(".py") or "/" in text:
        path = Path(text)
        if not path.is_file():
            raise UsageError(f"no such file: {text}")
        sys.path.insert(0, str(path.parent.resolve()))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise UsageError(f"not a Python file: {text}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        return _import(text, lambda: (spec.loader.exec_module(module), module)[1])  # pyrefly: ignore
    try:
        found = importlib.util.find_spec(text)
    except (ModuleNotFoundError, ValueError):
        found = None
    except Exception as error:  # a parent package raised
        raise TargetError(f"importing {text} raised {type(error).__name__}: {error}") from error
    if found is None:
        shown = text if text.strip() else repr(text)
        raise UsageError(f"no module named {shown} (a target is package.module:Name or path/file.py:Name)")
    return _import(text, lambda: importlib.import_module(text))


def _import(text: str, load: Callable[[], ModuleType]) -> ModuleType:
    try:
        return load()
    except (Exception, SystemExit) as error:
        raise TargetError(f"importing {text} raised {type(error).__name__}: {error}") from error


def load_target(text: str) -> Any:
    """Returns the attribute that `module:Name` names."""
    place, _, name = text.rpartition(":")
    if not place or not name:
        raise UsageError(f"expected a target package.module:Name or path/file.py:Name, got {text!r}")
    value: Any = import_target(place)
    for part in name.split("."):
        if not hasattr(value, part):
            public = [n for n in vars(value) if not n.startswith("_")] if hasattr(value, "__dict__") else []
            raise UsageError(f"{place} has no attribute {part}{did_you_mean(part, public)}")
        value = getattr(value, part)
    return value


def build_target(value: Any, name: str, seed: int) -> tuple[Any, bool]:
    """Constructs the map: calls a class or a factory, and returns an instance or a function unchanged.

    Returns the map, and whether the target was called.
    """
    seed_all(seed)
    if isinstance(value, type) or (inspect.isfunction(value) and _has_no_required_arguments(value)):
        try:
            built = value()
        except Exception as error:
            remedy = "; use a factory without arguments" if isinstance(error, TypeError) else ""
            raise TargetError(f"{name}() raised {type(error).__name__}: {error}{remedy}") from error
        if isinstance(built, nn.Module) or callable(built) or isinstance(value, type):
            return built, True
    if not callable(value):
        raise UsageError(f"{name} must be a module, a class, a factory or a function, got {type(value).__name__}")
    return value, False


def _has_no_required_arguments(function: Any) -> bool:
    return all(p.default is not p.empty for p in inspect.signature(function).parameters.values())


def target_module(text: str) -> str:
    """Returns the module that `module:Name` or `path/file.py:Name` is imported from."""
    place = text.rpartition(":")[0]
    return Path(place).stem if place.endswith(".py") else place


def target_definition(text: str, called: bool, seed: int) -> str:
    """Writes lines of a script that define `f` as the command line did."""
    place, _, name = text.rpartition(":")
    folder = str(Path(place).parent) if place.endswith(".py") else "."
    lines = [f"import sys\n\nsys.path.insert(0, {folder!r})"]
    lines += [f"from {target_module(text)} import {name.split('.')[0]}\n"]
    lines += [f"torch.manual_seed({seed})", f"f = {name}()"] if called else [f"f = {name}"]
    return "\n".join(lines)


def parse_law(text: str) -> Law:
    """Parses a law: `causality`, `locality:radius=2,axis=1`, `mylaws.py:oddness`."""
    found = re.fullmatch(r"(?P<name>[^=]+?)(?::(?P<values>\w+=.*))?", text.strip(), re.S)
    if not found:
        raise UsageError(f"expected a law NAME or NAME:key=value,key=value, got {text!r}")
    name, options = found.group("name"), found.group("values") or ""
    known = laws_by_name()
    if ":" in name:
        law = load_target(name)
        if not isinstance(law, Law):
            raise UsageError(f"{name} is not a law but a {type(law).__name__}: define it with @lawful.laws.law")
    elif name in known:
        law = known[name]
    else:
        raise UsageError(f"no law named {name}{did_you_mean(name, known)} (`lawful laws` lists them)")
    values = {}
    for part in re.split(r",(?=\s*\w+\s*=)", options) if options else []:
        key, _, value = part.partition("=")
        values[key.strip()] = _parse_value(law, key.strip(), value.strip())
    try:
        law = law(**values)
        _ = law.values
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
    return law


def _parse_value(law: Law, key: str, text: str) -> Any:
    parameter = law.signature.get(key)
    kind = str(parameter.annotation) if parameter else ""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = load_target(text) if "Callable" in kind and ":" in text else text
    if isinstance(value, str) and "," in value and _takes_names(kind):
        value = tuple(name.strip() for name in value.split(","))
    if key == "rtol" or kind == "float":
        types: tuple[type, ...] = (int, float)
    else:
        types = {"int": (int,), "Axis": (int,), "bool": (bool,)}.get(kind, (object,))
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types and object not in types):
        names = {"int": "an integer", "Axis": "an axis (an integer)", "bool": "True or False"}
        raise UsageError(f"{law.name}: {key} must be {names.get(kind, 'a number')}, got {text!r}")
    return value


def _takes_names(kind: str) -> bool:
    """Returns whether a parameter with this annotation may be several names."""
    return "_Names" in kind or "tuple[str" in kind


def parse_inputs(texts: list[str]) -> Any:
    """Parses inputs: one description, several, named ones, or a function of a `Draw` (`graphs.py:graph`)."""
    if len(texts) == 1 and re.fullmatch(r"[\w./-]+:[A-Za-z_]\w*", texts[0].strip()):
        return load_target(texts[0].strip())
    try:
        parsed = [Input.parse(text) for text in texts]
    except ValueError as error:
        raise UsageError(str(error)) from error
    if not parsed:
        return None
    named = [name for name, _ in parsed if name]
    if named and len(named) < len(parsed):
        raise UsageError("name all inputs or none: --input 'x=b t 16' --input 'mask=mask(b t)'")
    if len(set(named)) < len(named):
        raise UsageError(f"duplicate input name: {', '.join(named)}")
    return dict(parsed) if named else tuple(described for _, described in parsed)


def find_claims(module: ModuleType) -> Iterator[tuple[str, Callable[[], Iterator[Claim]]]]:
    """Yields the name and the `claims` function of a module and, for a package, of all modules in it."""
    names = [module.__name__]
    if hasattr(module, "__path__"):
        names += [found.name for found in pkgutil.walk_packages(module.__path__, module.__name__ + ".")]
    for name in names:
        found = sys.modules[name] if name in sys.modules else import_target(name)
        function = vars(found).get("claims")
        if callable(function) and getattr(function, "__module__", "") == name:
            yield name, function
