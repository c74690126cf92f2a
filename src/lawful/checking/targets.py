"""From text to objects: targets, laws and inputs as they are named on the command line."""

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
from lawful.checking.module_state import seed_all
from lawful.laws.inputs import Input
from lawful.laws.law import Claim, Law

USUAL = (
    laws.determinism,
    laws.statelessness,
    laws.no_mutation,
    laws.no_parameter_change,
    laws.state_dict_round_trip,
    laws.every_parameter_receives_a_gradient,
    laws.gradient,
    laws.batch_independence,
)
"""What is asked of a target for which no law is named."""


class UsageError(Exception):
    """A name or a value on the command line that makes no sense; the message is one sentence."""


class TargetError(Exception):
    """A target that is there, but raised while it was imported or built."""


def laws_by_name() -> dict[str, Law]:
    """The laws of the catalogue."""
    return {name: value for name, value in vars(laws).items() if isinstance(value, Law)}


def laws_by_kind() -> dict[str, dict[str, Law]]:
    """The laws of the catalogue, by the file that they are in."""
    found: dict[str, dict[str, Law]] = {}
    for finder in sorted(pkgutil.iter_modules(laws.__path__), key=lambda m: m.name):
        module = importlib.import_module(f"lawful.laws.{finder.name}")
        named = {n: v for n, v in vars(module).items() if isinstance(v, Law) and n in vars(laws)}
        own = {n: v for n, v in named.items() if v.parts or v.function.__module__ == module.__name__}
        if own and not finder.ispkg:
            found[f"{finder.name}: {(module.__doc__ or '').splitlines()[0]}"] = own
    return found


def import_module(text: str) -> ModuleType:
    """Imports `package.module` or `path/file.py`."""
    if text.endswith(".py") or "/" in text:
        path = Path(text)
        if not path.is_file():
            raise UsageError(f"there is no file {text}")
        sys.path.insert(0, str(path.parent.resolve()))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise UsageError(f"{text} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        return _guarded(text, lambda: (spec.loader.exec_module(module), module)[1])  # pyrefly: ignore
    try:
        found = importlib.util.find_spec(text)
    except (ModuleNotFoundError, ValueError):
        found = None
    except Exception as error:  # a package above it raised
        raise TargetError(f"importing {text} raised {type(error).__name__}: {error}") from error
    if found is None:
        raise UsageError(f"there is no module {text} (a target reads package.module:Name or path/file.py:Name)")
    return _guarded(text, lambda: importlib.import_module(text))


def _guarded(text: str, load: Callable[[], ModuleType]) -> ModuleType:
    try:
        return load()
    except (Exception, SystemExit) as error:
        raise TargetError(f"importing {text} raised {type(error).__name__}: {error}") from error


def load(text: str) -> Any:
    """Finds the attribute that `module:Name` names."""
    place, _, name = text.rpartition(":")
    if not place or not name:
        raise UsageError(f"a target reads package.module:Name or path/file.py:Name: got {text!r}")
    value: Any = import_module(place)
    for part in name.split("."):
        if not hasattr(value, part):
            public = [n for n in vars(value) if not n.startswith("_")] if hasattr(value, "__dict__") else []
            raise UsageError(f"{place} has no attribute {part}{did_you_mean(part, public)}")
        value = getattr(value, part)
    return value


def build(value: Any, name: str, seed: int) -> tuple[Any, bool]:
    """Makes the map that a target is: calls a class or a factory, leaves an instance or a function as it is.

    Returns the map, and whether it was made by calling the target.
    """
    seed_all(seed)
    if isinstance(value, type) or (inspect.isfunction(value) and _needs_nothing(value)):
        try:
            made = value()
        except Exception as error:
            wants = "; name a factory that takes no arguments" if isinstance(error, TypeError) else ""
            raise TargetError(f"{name}() raised {type(error).__name__}: {error}{wants}") from error
        if isinstance(made, nn.Module) or callable(made) or isinstance(value, type):
            return made, True
    if not callable(value):
        raise UsageError(f"{name} is to be a module, a class, a factory or a function: got {type(value).__name__}")
    return value, False


def _needs_nothing(function: Any) -> bool:
    return all(p.default is not p.empty for p in inspect.signature(function).parameters.values())


def home(text: str) -> str:
    """The module that `module:Name` or `path/file.py:Name` is imported from."""
    place = text.rpartition(":")[0]
    return Path(place).stem if place.endswith(".py") else place


def definition(text: str, called: bool, seed: int) -> str:
    """Writes the lines of a script that make `f` as the command line did."""
    place, _, name = text.rpartition(":")
    place, module = (str(Path(place).parent) if place.endswith(".py") else "."), home(text)
    root = name.split(".")[0]
    lines = [f"import sys\n\nsys.path.insert(0, {place!r})", f"from {module} import {root}\n"]
    lines += [f"torch.manual_seed({seed})", f"f = {name}()"] if called else [f"f = {name}"]
    return "\n".join(lines)


def law(text: str) -> Law:
    """Reads a law: `causality`, `locality:radius=2,axis=1`, `mylaws.py:oddness`."""
    found = re.fullmatch(r"(?P<name>[^=]+?)(?::(?P<values>\w+=.*))?", text.strip(), re.S)
    if not found:
        raise UsageError(f"a law reads NAME or NAME:key=value,key=value: got {text!r}")
    name, given = found.group("name"), found.group("values") or ""
    known = laws_by_name()
    if ":" in name:
        stated = load(name)
        if not isinstance(stated, Law):
            raise UsageError(f"{name} is not a law: got {type(stated).__name__}; make one with @lawful.laws.law")
    elif name in known:
        stated = known[name]
    else:
        raise UsageError(f"there is no law {name}{did_you_mean(name, known)} (`lawful laws` lists them)")
    values = {}
    for part in re.split(r",(?=\s*\w+\s*=)", given) if given else []:
        key, _, value = part.partition("=")
        values[key.strip()] = _value(stated, key.strip(), value.strip())
    try:
        stated = stated(**values)
        _ = stated.values
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
    return stated


def _value(stated: Law, key: str, text: str) -> Any:
    parameter = stated.signature.get(key)
    kind = str(parameter.annotation) if parameter else ""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = load(text) if "Callable" in kind and ":" in text else text
    if key == "rtol" or kind == "float":
        wanted: tuple[type, ...] = (int, float)
    else:
        wanted = {"int": (int,), "Axis": (int,), "bool": (bool,)}.get(kind, (object,))
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted and object not in wanted):
        said = {"int": "a whole number", "Axis": "an axis, a whole number", "bool": "True or False"}.get(
            kind, "a number"
        )
        raise UsageError(f"{stated.name} wants {key} as {said}: got {text!r}")
    return value


def inputs(texts: list[str]) -> Any:
    """Reads the inputs: one description, several, or named ones; or a function of the draw, `graphs.py:graph`."""
    if len(texts) == 1 and re.fullmatch(r"[\w./-]+:[A-Za-z_]\w*", texts[0].strip()):
        return load(texts[0].strip())
    try:
        read = [Input.parse(text) for text in texts]
    except ValueError as error:
        raise UsageError(str(error)) from error
    if not read:
        return None
    named = [name for name, _ in read if name]
    if named and len(named) < len(read):
        raise UsageError("name every input or none: --input 'x=b t 16' --input 'mask=mask(b t)'")
    if len(set(named)) < len(named):
        raise UsageError(f"two inputs have one name: {', '.join(named)}")
    return dict(read) if named else tuple(described for _, described in read)


def claims_in(module: ModuleType) -> Iterator[tuple[str, Callable[[], Iterator[Claim]]]]:
    """Finds the `claims` functions of a module and, if it is a package, of all modules below it."""
    names = [module.__name__]
    if hasattr(module, "__path__"):
        names += [found.name for found in pkgutil.walk_packages(module.__path__, module.__name__ + ".")]
    for name in names:
        found = sys.modules[name] if name in sys.modules else import_module(name)
        function = vars(found).get("claims")
        if callable(function) and getattr(function, "__module__", "") == name:
            yield name, function
