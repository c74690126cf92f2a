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
    wanted: int
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


def test_there_and_back():
    made = Outer(wanted=2, rate=1e-7, name="é", kind="two", hidden=(3, 4), limit=5, flag=True, inner=Inner(width=7))
    assert config.from_json(Outer, json.loads(config.dump(made))) == made
    assert config.from_json(Outer, {"wanted": 1}) == Outer(wanted=1)
    assert type(config.from_json(Outer, {"wanted": 1, "rate": 2}).rate) is float


@pytest.mark.parametrize("given", [{"pair": (1, 2.5)}, {"few": ()}, {"few": (1, 9)}, {"pair": None, "few": None}])
def test_tuples_that_may_be_missing_are_read_back(given):
    made = Outer(wanted=1, **given)
    assert config.from_json(Outer, json.loads(config.dump(made))) == made


WRONG = {
    "config has no field 'wantde': did you mean 'wanted'": {"wantde": 1},
    "config has no field 'zzz': there are wanted, rate": {"wanted": 1, "zzz": 1},
    "config wants wanted": {},
    "config.wanted is a whole number: got 'x'": {"wanted": "x"},
    "config.wanted is a whole number: got True": {"wanted": True},
    "config.wanted is a whole number: got 1.5": {"wanted": 1.5},
    "config.wanted is a finite number": {"wanted": 1 << 70},
    "config.rate is a finite number: got nan": {"wanted": 1, "rate": float("nan")},
    "config.name has at most 5 items: got 6": {"wanted": 1, "name": "abcdef"},
    "config.kind is one of one, two: got 'three'": {"wanted": 1, "kind": "three"},
    "config.hidden is a list of a whole number: got 3": {"wanted": 1, "hidden": 3},
    r"config.hidden\[1\] is from 1 to 9: got 10": {"wanted": 1, "hidden": [2, 10]},
    "config.hidden has at most 3 items: got 4": {"wanted": 1, "hidden": [1, 1, 1, 1]},
    "config.limit is from 1 to 10: got 11": {"wanted": 1, "limit": 11},
    "config.limit is a whole number or null: got 'x'": {"wanted": 1, "limit": "x"},
    "config.pair has 2 items: got 3": {"wanted": 1, "pair": [1, 2, 3]},
    r"config.pair\[0\] is a whole number: got 1.5": {"wanted": 1, "pair": [1.5, 2]},
    "config.pair is a list of a whole number, a number or null: got 3": {"wanted": 1, "pair": 3},
    r"config.few\[1\] is from 1 to 9: got 10": {"wanted": 1, "few": [1, 10]},
    "config.few has at most 2 items: got 3": {"wanted": 1, "few": [1, 1, 1]},
    "config.flag is true or false: got 1": {"wanted": 1, "flag": 1},
    "config.inner.width is from 1 to 100: got 101": {"wanted": 1, "inner": {"width": 101}},
    "config.inner has no field 'widht': did you mean 'width'": {"wanted": 1, "inner": {"widht": 1}},
    "config.inner is an object with the fields of Inner: got 3": {"wanted": 1, "inner": 3},
    r"config is an object with the fields of Outer: got \[\]": [],
}


@pytest.mark.parametrize("sentence", WRONG)
def test_what_does_not_fit_is_refused_with_its_place(sentence):
    with pytest.raises(ValueError, match=sentence):
        config.from_json(Outer, WRONG[sentence])


def test_a_dataclass_refuses_the_same():
    with pytest.raises(ValueError, match="limit is from 1 to 10: got 0"):
        Outer(wanted=1, limit=0)
    with pytest.raises(ValueError, match=r"inner.width is from 1 to 100: got 0"):
        Outer(wanted=1, inner=Inner(width=0))


FILES = {
    "not UTF-8 text: invalid start byte at byte 0": b"\xff{}",
    "the key 'a' stands there twice": b'{"a": 1, "a": 2}',
    "NaN is no number of JSON": b'{"a": NaN}',
    "'1e999' is too large a number": b'{"a": 1e999}',
    "is nested too deeply": b"[" * 100_000,
    "has at most 1048576 bytes": b" " * ((1 << 20) + 1),
    "is not JSON: Expecting value": b"",
    "holds half a character": b'"\\ud800"',
}


@pytest.mark.parametrize("sentence", FILES)
def test_files_that_nobody_vouches_for(tmp_path, sentence):
    path = tmp_path / "config.json"
    path.write_bytes(FILES[sentence])
    with pytest.raises(ValueError, match=f"^config.json .*{sentence}"):
        config.load(path)


def test_only_files_are_read(tmp_path):
    (tmp_path / "endless").symlink_to("/dev/zero")
    for path in (tmp_path, tmp_path / "endless"):
        with pytest.raises(ValueError, match="is a file: got something else"):
            config.load(path)
    with pytest.raises(FileNotFoundError):
        config.load(tmp_path / "none")


def test_many_keys_take_no_long_time():
    text = "{" + ",".join(f'"{i}": 0' for i in range(50_000)) + ', "49999": 0}'
    with pytest.raises(ValueError, match="the key '49999' stands there twice"):
        config.parse(text.encode())


def test_long_names_are_cut_in_messages():
    with pytest.raises(ValueError, match=r"has no field 'xxx") as found:
        config.from_json(Outer, {"x" * 100_000: 1})
    assert len(str(found.value)) < 300
