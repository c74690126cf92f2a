import json
from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest

from lawful import _json as config
from lawful._json import MaxLength, Range


@dataclass(frozen=True, kw_only=True)
class Inner:
    width: Annotated[int, Range(1, 100)] = 3


@dataclass(frozen=True, kw_only=True)
class Outer:
    size: int
    rate: float = 0.1
    name: Annotated[str, MaxLength(5)] = "a"
    kind: Literal["one", "two"] = "one"
    hidden: Annotated[tuple[Annotated[int, Range(1, 9)], ...], MaxLength(3)] = (1,)
    limit: Annotated[int, Range(1, 10)] | None = None
    pair: tuple[int, float] | None = None
    few: Annotated[tuple[Annotated[int, Range(1, 9)], ...], MaxLength(2)] | None = None
    flag: bool = False
    inner: Inner = field(default_factory=Inner)

    def __post_init__(self):
        config.validate(self)


def test_round_trip():
    made = Outer(size=2, rate=1e-7, name="é", kind="two", hidden=(3, 4), limit=5, flag=True, inner=Inner(width=7))
    assert config.from_json(Outer, json.loads(config.dump(made))) == made
    assert config.from_json(Outer, {"size": 1}) == Outer(size=1)
    assert type(config.from_json(Outer, {"size": 1, "rate": 2}).rate) is float


@pytest.mark.parametrize("given", [{"pair": (1, 2.5)}, {"few": ()}, {"few": (1, 9)}, {"pair": None, "few": None}])
def test_optional_tuples_round_trip(given):
    made = Outer(size=1, **given)
    assert config.from_json(Outer, json.loads(config.dump(made))) == made


INVALID = {
    "config has no field 'szie': did you mean size": {"szie": 1},
    "config has no field 'zzz'": {"size": 1, "zzz": 1},
    "config has no size": {},
    "config.size must be an integer, got 'x'": {"size": "x"},
    "config.size must be an integer, got True": {"size": True},
    "config.size must be an integer, got 1.5": {"size": 1.5},
    "config.size must be a finite number": {"size": 1 << 70},
    "config.rate must be a finite number, got nan": {"size": 1, "rate": float("nan")},
    "config.name must have at most 5 items, got 6": {"size": 1, "name": "abcdef"},
    "config.kind must be one of one, two, got 'three'": {"size": 1, "kind": "three"},
    "config.hidden must be a list of an integer, got 3": {"size": 1, "hidden": 3},
    r"config.hidden\[1\] must be from 1 to 9, got 10": {"size": 1, "hidden": [2, 10]},
    "config.hidden must have at most 3 items, got 4": {"size": 1, "hidden": [1, 1, 1, 1]},
    "config.limit must be from 1 to 10, got 11": {"size": 1, "limit": 11},
    "config.limit must be an integer or null, got 'x'": {"size": 1, "limit": "x"},
    "config.pair must have 2 items, got 3": {"size": 1, "pair": [1, 2, 3]},
    r"config.pair\[0\] must be an integer, got 1.5": {"size": 1, "pair": [1.5, 2]},
    "config.pair must be a list of an integer, a number or null, got 3": {"size": 1, "pair": 3},
    r"config.few\[1\] must be from 1 to 9, got 10": {"size": 1, "few": [1, 10]},
    "config.few must have at most 2 items, got 3": {"size": 1, "few": [1, 1, 1]},
    "config.flag must be true or false, got 1": {"size": 1, "flag": 1},
    "config.inner.width must be from 1 to 100, got 101": {"size": 1, "inner": {"width": 101}},
    "config.inner has no field 'widht': did you mean width": {"size": 1, "inner": {"widht": 1}},
    "config.inner must be an object with the fields of Inner, got 3": {"size": 1, "inner": 3},
    r"config must be an object with the fields of Outer, got \[\]": [],
}


@pytest.mark.parametrize("message", INVALID)
def test_from_json_errors(message):
    with pytest.raises(ValueError, match=message):
        config.from_json(Outer, INVALID[message])


def test_validate_errors():
    with pytest.raises(ValueError, match="limit must be from 1 to 10, got 0"):
        Outer(size=1, limit=0)
    with pytest.raises(ValueError, match=r"inner.width must be from 1 to 100, got 0"):
        Outer(size=1, inner=Inner(width=0))


FILES = {
    "not UTF-8 text: invalid start byte at byte 0": b"\xff{}",
    "duplicate key 'a'": b'{"a": 1, "a": 2}',
    "NaN is not a JSON number": b'{"a": NaN}',
    "the number '1e999' is too large": b'{"a": 1e999}',
    "is nested too deeply": b"[" * 100_000,
    "is larger than 1048576 bytes": b" " * ((1 << 20) + 1),
    "is not JSON: Expecting value": b"",
    "contains an invalid character": b'"\\ud800"',
}


@pytest.mark.parametrize("message", FILES)
def test_invalid_files(tmp_path, message):
    path = tmp_path / "config.json"
    path.write_bytes(FILES[message])
    with pytest.raises(ValueError, match=f"^config.json .*{message}"):
        config.load(path)


def test_only_regular_files_are_read(tmp_path):
    (tmp_path / "endless").symlink_to("/dev/zero")
    for path in (tmp_path, tmp_path / "endless"):
        with pytest.raises(ValueError, match="expected a file"):
            config.load(path)
    with pytest.raises(FileNotFoundError, match="none"):
        config.load(tmp_path / "none")


def test_many_keys_are_fast():
    text = "{" + ",".join(f'"{i}": 0' for i in range(50_000)) + ', "49999": 0}'
    with pytest.raises(ValueError, match="duplicate key '49999'"):
        config.parse(text.encode())


def test_long_names_are_cut_in_messages():
    with pytest.raises(ValueError, match=r"has no field 'xxx") as found:
        config.from_json(Outer, {"x" * 100_000: 1})
    assert len(str(found.value)) < 300
