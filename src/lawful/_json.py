"""Checks of values that come from a JSON file that nobody vouches for.

Dataclasses as JSON, read from files that nobody vouches for.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from lawful._suggest import did_you_mean

LETTERS = 10_000
"""The most letters of a name."""


def fields(value: object, names: Sequence[str], *, where: str) -> dict[str, Any]:
    """Returns an object with just these fields.

    Examples:
        >>> fields({"a": 1}, ("a",), where="it")
        {'a': 1}
    """
    if not isinstance(value, dict):
        raise ValueError(f"{where} is to be an object: got {type(value).__name__}")
    for name in value:
        if name not in names:
            raise ValueError(f"{where} has the unknown field {str(name)[:100]!r}{did_you_mean(str(name)[:100], names)}")
    for name in names:
        if name not in value:
            raise ValueError(f"{where} is to have the field {name!r}")
    return value


def items(value: object, most: int, *, where: str) -> list[Any]:
    """Returns a list with at least one item, and not too many."""
    if not isinstance(value, list) or not 1 <= len(value) <= most:
        came = f"{len(value)}" if isinstance(value, list) else type(value).__name__
        raise ValueError(f"{where} is to be a list of 1 to {most} items: got {came}")
    return value


def text(value: object, *, where: str) -> str:
    """Returns a text, not empty and not too long."""
    if not isinstance(value, str) or not 1 <= len(value) <= LETTERS:
        came = f"{len(value)} letters" if isinstance(value, str) else type(value).__name__
        raise ValueError(f"{where} is to be a text of 1 to {LETTERS} letters: got {came}")
    return value


def entry(value: object, known: Sequence[str], *, where: str) -> str:
    """Returns one of the known words."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{where} is to be one of {', '.join(map(repr, known))}: got {str(value)[:100]!r}")
    return value


def whole(value: object, low: int, high: int, *, where: str) -> int:
    """Returns a whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{where} is to be a whole number from {low} to {high}: got {str(value)[:100]}")
    return value


LARGEST = 1 << 20
"""The largest JSON file that is read, in bytes."""

T = TypeVar("T")


@dataclass(frozen=True)
class Range:
    """The numbers that a field takes: `Annotated[int, Between(1, 1000)]`."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"from {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class MaxLength:
    """How many items a tuple has, or characters a text."""

    length: int


@dataclass(frozen=True, kw_only=True)
class Config:
    """Base class of options: checks the types and ranges of all fields."""

    def __post_init__(self) -> None:
        validate(self)


class Tagged:
    """Base class of dataclasses in a tagged union: JSON stores `name` beside the fields."""

    name: typing.ClassVar[str]


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
    """Returns the dataclass that JSON describes.

    Every key is a field, and every value has the type and the bounds that the field states.

    Args:
        kind: The dataclass.
        value: What the JSON holds.
        at: Where it stands, for messages.

    Raises:
        ValueError: for an unknown key, a wrong type or a number out of bounds; it names the place.
    """
    return _read(kind, value, at)


def validate(value: Any, *, at: str = "") -> None:
    """Refuses a dataclass with a field of another type than it states, or out of its bounds."""
    hints = typing.get_type_hints(type(value), include_extras=True)
    for field in dataclasses.fields(value):
        _check(hints[field.name], getattr(value, field.name), f"{at}.{field.name}" if at else field.name)


def load(path: Path, *, largest: int = LARGEST) -> Any:
    """Reads a JSON file: of a megabyte at most unless told, each key once, numbers finite.

    Raises:
        ValueError: what is wrong, with the name of the file.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"{path.name} is a file: got something else")
    with path.open("rb") as file:
        data = file.read(largest + 1)
    if len(data) > largest:
        raise ValueError(f"{path.name} has at most {largest} bytes: got more")
    return parse(data, name=path.name)


def parse(data: bytes, *, name: str = "the text") -> Any:
    """Reads JSON: UTF-8, each key once, numbers finite.

    Args:
        data: The bytes.
        name: What they are, for messages.

    Raises:
        ValueError: what is wrong.
    """
    try:
        found = json.loads(data.decode("utf-8"), object_pairs_hook=_once, parse_constant=_none, parse_float=_finite)
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} holds half a character: {error.reason}") from None
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{name} is not JSON: {error}") from None
    return found


def dump(value: Any) -> str:
    """Writes JSON that people read."""
    return json.dumps(to_json(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {_shown(key)} stands there twice")
        found[key] = value
    return found


def _none(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{_shown(text)} is too large a number")
    return value


def _read(kind: Any, value: Any, at: str) -> Any:
    """Makes of JSON what a field of that type holds, and refuses what it does not."""
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
        raise ValueError(f"{at}.name must be one of {', '.join(named)}, got {_shown(name)}")
    return _read_dataclass(named[name], {key: entry for key, entry in value.items() if key != "name"}, at)


def _read_dataclass(kind: Any, value: Any, at: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{at} is an object with the fields of {kind.__name__}: got {_shown(value)}")
    names = [field.name for field in dataclasses.fields(kind)]
    for key in value:
        if key not in names:
            raise ValueError(f"{at} has no field {_shown(key)}{did_you_mean(key, names)}")
    hints = typing.get_type_hints(kind, include_extras=True)
    given = {key: _read(hints[key], entry, f"{at}.{key}") for key, entry in value.items()}
    missing = [field.name for field in dataclasses.fields(kind) if field.name not in given and _is_wanted(field)]
    if missing:
        raise ValueError(f"{at} wants {', '.join(missing)}")
    return kind(**given)


def _is_wanted(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _check(kind: Any, value: Any, at: str) -> None:
    bare, bounds = _bare(kind), _bounds(kind)
    matched = [option for option in _options(bare) if _is(option, value)]
    if not matched:
        raise ValueError(f"{at} is {_named(bare)}: got {_shown(value)}")
    if matched[0] is not bare:
        _check(matched[0], value, at)
    if (isinstance(value, float) and not math.isfinite(value)) or (isinstance(value, int) and abs(value) > 1 << 63):
        raise ValueError(f"{at} is a finite number: got {_shown(value)}")
    if isinstance(bounds, Range) and isinstance(value, int | float) and not bounds.low <= value <= bounds.high:
        raise ValueError(f"{at} is {bounds}: got {_shown(value)}")
    if isinstance(bounds, MaxLength) and isinstance(value, tuple | str) and len(value) > bounds.length:
        raise ValueError(f"{at} has at most {bounds.length} items: got {len(value)}")
    if dataclasses.is_dataclass(value):
        validate(value, at=at)
    if isinstance(value, tuple) and typing.get_origin(bare) is tuple:
        for i, (item, entry) in enumerate(_items(bare, value, at)):
            _check(item, entry, f"{at}[{i}]")


def _items(kind: Any, values: typing.Sequence[Any], at: str) -> list[tuple[Any, Any]]:
    """The entries of a tuple, each with its type: `tuple[int, ...]` has any number of them, `tuple[int, int]` two."""
    kinds = typing.get_args(kind)
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(values)
    if len(kinds) != len(values):
        raise ValueError(f"{at} has {len(kinds)} items: got {len(values)}")
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


def _named(kind: Any) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(kind)))
    if typing.get_origin(kind) is tuple:
        kinds = [_named(_bare(item)) for item in typing.get_args(kind) if item is not Ellipsis]
        return f"a list of {', '.join(dict.fromkeys(kinds))}"
    if len(_options(kind)) > 1:
        return " or ".join(_named(_bare(option)) for option in _options(kind))
    words = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", type(None): "null"}
    return words.get(kind, getattr(kind, "__name__", str(kind)))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
