"""JSON from untrusted files: strict parsing, validation, and conversion to and from dataclasses."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from lawful._files import read_file
from lawful._names import quote
from lawful._suggest import did_you_mean

MAX_TEXT_LENGTH = 10_000
"""Maximum number of characters of a string."""


def require_fields(value: object, names: Sequence[str], *, where: str) -> dict[str, Any]:
    """Returns an object that has exactly these fields.

    Examples:
        >>> require_fields({"a": 1}, ("a",), where="it")
        {'a': 1}
    """
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be an object, got {type(value).__name__}")
    for name in value:
        if name not in names:
            raise ValueError(f"{where} has an unknown field {str(name)[:100]!r}{did_you_mean(str(name)[:100], names)}")
    for name in names:
        if name not in value:
            raise ValueError(f"{where} has no field {name!r}")
    return value


def require_list(value: object, max_length: int, *, where: str) -> list[Any]:
    """Returns a list with 1 to `max_length` items."""
    if not isinstance(value, list) or not 1 <= len(value) <= max_length:
        actual = f"{len(value)}" if isinstance(value, list) else type(value).__name__
        raise ValueError(f"{where} must be a list of 1 to {max_length} items, got {actual}")
    return value


def require_text(value: object, *, where: str) -> str:
    """Returns a string that is not empty and not too long."""
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_TEXT_LENGTH:
        actual = f"{len(value)} characters" if isinstance(value, str) else type(value).__name__
        raise ValueError(f"{where} must be a string of 1 to {MAX_TEXT_LENGTH} characters, got {actual}")
    return value


def require_choice(value: object, known: Sequence[str], *, where: str) -> str:
    """Returns a string that is one of the options."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{where} must be one of {', '.join(map(repr, known))}, got {str(value)[:100]!r}")
    return value


def require_int(value: object, low: int, high: int, *, where: str) -> int:
    """Returns an integer from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{where} must be an integer from {low} to {high}, got {str(value)[:100]}")
    return value


MAX_FILE_BYTES = 1 << 20
"""Default maximum size of a JSON file."""

T = TypeVar("T")


@dataclass(frozen=True)
class Range:
    """Bounds of a number, both included: `Annotated[int, Range(1, 1000)]`."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"from {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class MaxLength:
    """Maximum number of items of a tuple, or characters of a string."""

    length: int


class Requires:
    """Conditions under which an option has an effect: `Annotated[float, Requires(optimizer=("sgd", "muon"))]`.

    A value other than the default is an error unless all conditions hold.

    Args:
        conditions: Names of other options, each with its allowed values, a `Range`, letters of which it must contain
            one, or True for a value that is not empty, 0 or None. Names that the dataclass does not have are ignored.
    """

    def __init__(self, **conditions: tuple[Any, ...] | Range | str | bool) -> None:
        self.conditions = conditions


@dataclass(frozen=True)
class Excludes:
    """An option that cannot be set together with this one: `Annotated[int, Excludes("epochs")]`."""

    name: str


@dataclass(frozen=True, kw_only=True)
class Config:
    """Base class of options: checks the types and ranges of all fields, and that no option is without effect.

    The name of a member of a tagged union stands for the member with its defaults.
    """

    def __post_init__(self) -> None:
        hints = field_types(type(self))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            named = {m.name: m for m in union_members(hints[field.name])}
            if isinstance(value, str) and value in named:
                object.__setattr__(self, field.name, named[value]())
        validate(self)


class Tagged:
    """Base class of dataclasses in a tagged union: JSON stores `name` beside the fields."""

    name: typing.ClassVar[str]


@cache
def field_types(kind: type[Any]) -> dict[str, Any]:
    """Returns the types of the fields of a dataclass, with `Range` and other annotations."""
    return typing.get_type_hints(kind, include_extras=True)


def union_members(kind: Any) -> tuple[type[Tagged], ...]:
    """Returns the members of a tagged union, or nothing for another type."""
    members = tuple(option for option in map(_bare, _options(_bare(kind))) if option is not type(None))
    return members if all(isinstance(m, type) and issubclass(m, Tagged) for m in members) else ()


def to_json(value: Any) -> Any:
    """Converts a dataclass to JSON: its fields by name, tuples as lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        tag = {"name": value.name} if isinstance(value, Tagged) else {}
        return tag | {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    return value


def from_json(kind: type[T], value: Any, *, at: str = "config") -> T:
    """Converts JSON data to a dataclass.

    Every key must be a field, and every value must have the type and the bounds of the field.

    Args:
        kind: The dataclass.
        value: JSON data.
        at: Path of the value, for error messages.

    Raises:
        ValueError: If a key is unknown, or a value has a wrong type or is out of bounds.
    """
    return _read(kind, value, at)


def validate(value: Any, *, at: str = "") -> None:
    """Raises a ValueError if a field of a dataclass has a wrong type or is out of bounds."""
    hints = field_types(type(value))
    for field in dataclasses.fields(value):
        _check(hints[field.name], getattr(value, field.name), f"{at}.{field.name}" if at else field.name)
    for name, hint in hints.items():
        for rule in getattr(hint, "__metadata__", ()):
            if isinstance(rule, Requires | Excludes):
                _check_rule(rule, value, name)


def load(path: Path, *, largest: int = MAX_FILE_BYTES, root: Path | None = None) -> Any:
    """Reads a JSON file: limited size, no duplicate keys, finite numbers.

    Args:
        path: The file.
        largest: Maximum size in bytes.
        root: Folder below which symbolic links are not followed.

    Raises:
        ValueError: If the file is invalid; the message contains its name.
    """
    return parse(read_file(path, limit=largest, root=root), name=path.name)


def parse(data: bytes, *, name: str = "data") -> Any:
    """Parses JSON: UTF-8, no duplicate keys, finite numbers.

    Args:
        data: The bytes.
        name: Name of the data, for error messages.

    Raises:
        ValueError: If the data is invalid.
    """
    try:
        found = json.loads(data.decode("utf-8"), **_STRICT)
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{quote(name)} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except UnicodeEncodeError as error:
        raise ValueError(f"{quote(name)} contains an invalid character: {error.reason}") from None
    except RecursionError:
        raise ValueError(f"{quote(name)} is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{quote(name)} is not JSON: {error}") from None
    return found


def dump(value: Any) -> str:
    """Returns indented JSON."""
    return json.dumps(to_json(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"duplicate key {_short(key)}")
        found[key] = value
    return found


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _finite_float(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"the number {_short(text)} is too large")
    return value


_STRICT: dict[str, Any] = {
    "object_pairs_hook": _unique_keys,
    "parse_constant": _reject_constant,
    "parse_float": _finite_float,
}


def _read(kind: Any, value: Any, at: str) -> Any:
    """Converts JSON data to the type of a field."""
    bare = _bare(kind)
    options = [option for option in _options(bare) if option is not type(None)]
    if members := union_members(bare):
        return _read_tagged(members, value, at)
    if dataclasses.is_dataclass(bare):
        return _read_dataclass(bare, value, at)
    if isinstance(value, dict):
        for option in filter(dataclasses.is_dataclass, options):
            return _read_dataclass(option, value, at)
    tuples = [option for option in map(_bare, options) if typing.get_origin(option) is tuple]
    if isinstance(value, list) and tuples:
        items = _items(tuples[0], value, at)
        value = tuple(_read(item, entry, f"{at}[{i}]") for i, (item, entry) in enumerate(items))
    _check(kind, value, at)
    if type(value) is int and float in options and int not in options:
        return float(value)
    return value


def _read_tagged(members: tuple[type[Tagged], ...], value: Any, at: str) -> Any:
    named = {member.name: member for member in members}
    name = value.get("name") if isinstance(value, dict) else None
    if name not in named:
        raise ValueError(f"{at}.name must be one of {', '.join(named)}, got {_short(name)}")
    return _read_dataclass(named[name], {key: entry for key, entry in value.items() if key != "name"}, at)


def _read_dataclass(kind: Any, value: Any, at: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{at} must be an object with the fields of {kind.__name__}, got {_short(value)}")
    names = [field.name for field in dataclasses.fields(kind)]
    for key in value:
        if key not in names:
            raise ValueError(f"{at} has no field {_short(key)}{did_you_mean(key, names)}")
    hints = field_types(kind)
    given = {key: _read(hints[key], entry, f"{at}.{key}") for key, entry in value.items()}
    missing = [field.name for field in dataclasses.fields(kind) if field.name not in given and _is_required(field)]
    if missing:
        raise ValueError(f"{at} has no {', '.join(missing)}")
    return kind(**given)


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _check(kind: Any, value: Any, at: str) -> None:
    bare, bounds = _bare(kind), _bounds(kind)
    matched = [option for option in _options(bare) if _is(option, value)]
    if not matched:
        raise ValueError(f"{at} must be {_type_name(bare)}, got {_short(value)}")
    if matched[0] is not bare:
        _check(matched[0], value, at)
    if (isinstance(value, float) and not math.isfinite(value)) or (isinstance(value, int) and abs(value) > 1 << 63):
        raise ValueError(f"{at} must be a finite number, got {_short(value)}")
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError(f"{at} must be UTF-8 text, got {_short(value)!a}: rename the file")
    if isinstance(bounds, Range) and isinstance(value, int | float) and not bounds.low <= value <= bounds.high:
        raise ValueError(f"{at} must be {bounds}, got {_short(value)}")
    if isinstance(bounds, MaxLength) and isinstance(value, tuple | str) and len(value) > bounds.length:
        raise ValueError(f"{at} must have at most {bounds.length} items, got {len(value)}")
    if dataclasses.is_dataclass(value):
        validate(value, at=at)
    if isinstance(value, tuple) and typing.get_origin(bare) is tuple:
        for i, (item, entry) in enumerate(_items(bare, value, at)):
            _check(item, entry, f"{at}[{i}]")


def is_default(value: Any, name: str) -> bool:
    """Returns whether a field of a dataclass has its default value."""
    field = next(field for field in dataclasses.fields(value) if field.name == name)
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    return getattr(value, name) == default


def _check_rule(rule: Requires | Excludes, value: Any, name: str) -> None:
    """Raises a ValueError if an option is set that has no effect, or that excludes another one."""
    if is_default(value, name):
        return
    if isinstance(rule, Excludes):
        if not is_default(value, rule.name):
            raise ValueError(f"{name} and {rule.name} exclude each other: set one of them")
        return
    for other, needed in rule.conditions.items():
        if not hasattr(value, other):
            continue
        actual = getattr(value, other)
        shown = actual.name if isinstance(actual, Tagged) else actual
        match needed:
            case tuple():
                holds, expected = shown in needed, f"{other}={' or '.join(map(str, needed))}"
            case Range():
                holds, expected = needed.low <= actual <= needed.high, f"{other} of at least {needed.low:g}"
            case str():
                holds, expected = any(c in actual for c in needed), f"{' or '.join(needed)} in {other}"
            case _:
                holds, expected = bool(actual), other
        if not holds:
            raise ValueError(f"{name} needs {expected}, got {other}={shown}")


def _items(kind: Any, values: typing.Sequence[Any], at: str) -> list[tuple[Any, Any]]:
    """Pairs the items of a tuple with their types; `tuple[int, ...]` has any number of items."""
    kinds = typing.get_args(kind)
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(values)
    if len(kinds) != len(values):
        raise ValueError(f"{at} must have {len(kinds)} items, got {len(values)}")
    return list(zip(kinds, values, strict=True))


def _bare(kind: Any) -> Any:
    return typing.get_args(kind)[0] if typing.get_origin(kind) is typing.Annotated else kind


def _bounds(kind: Any) -> Any:
    found = [m for m in getattr(kind, "__metadata__", ()) if isinstance(m, Range | MaxLength)]
    return found[0] if found else None


def _options(kind: Any) -> tuple[Any, ...]:
    return (
        typing.get_args(kind)
        if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union
        else (kind,)
    )


def _is(kind: Any, value: Any) -> bool:
    kind = _bare(kind)
    if typing.get_origin(kind) is typing.Literal:
        return value in typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        return isinstance(value, tuple)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, type(None) if kind is None else kind)


def _type_name(kind: Any) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(kind)))
    if typing.get_origin(kind) is tuple:
        kinds = [_type_name(_bare(item)) for item in typing.get_args(kind) if item is not Ellipsis]
        return f"a list of {', '.join(dict.fromkeys(kinds))}"
    if len(_options(kind)) > 1:
        return " or ".join(_type_name(_bare(option)) for option in _options(kind))
    words = {int: "an integer", float: "a number", str: "a string", bool: "true or false", type(None): "null"}
    return words.get(kind, getattr(kind, "__name__", str(kind)))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
