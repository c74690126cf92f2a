import io
import json
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful.data import Column, TableEncoding, encoding_from_json, fit_table_encoding, table_of
from lawful.data.tables import _parse_delimited


def table(text, name="data.csv"):
    return _parse_delimited(io.StringIO(text, newline=""), name=name)


TRAINED = "size,color,code,price\n1.5,red,1,10\n2.5,blue,2,20\n3.5,red,2,30\n"


def test_numbers_stay_and_words_become_one_hot():
    encoding, rest, notes = fit_table_encoding(table(TRAINED), categorical=("code",))
    assert encoding.names == ("size", "color=blue", "color=red", "code=1", "code=2")
    wanted = [[1.5, 0, 1, 1, 0], [2.5, 1, 0, 0, 1], [3.5, 0, 1, 0, 1]]
    assert encoding.inputs(rest).tolist() == wanted
    assert encoding.targets(rest).tolist() == [[10], [20], [30]]
    assert notes == ()


def test_encoding_does_not_depend_on_column_order_or_extra_columns():
    encoding = fit_table_encoding(table(TRAINED), categorical=("code",))[0]
    new = "code,extra,size,color\n2,?,7,blue\n1,x,8,blue\n"
    for held in (encoding, TableEncoding.from_json(json.loads(json.dumps(encoding.to_json())))):
        assert held.inputs(table(new, "new.csv")).tolist() == [[7, 1, 0, 0, 1], [8, 1, 0, 1, 0]]


def test_categories_that_look_like_numbers_stay_text():
    encoding = fit_table_encoding(table("kind,y\n01,1\n1,2\nx,3\n1,3\n"))[0]
    assert encoding.columns[0].levels == ("01", "1", "x")
    assert encoding.inputs(table("kind\n01\n1\n", "new.csv")).tolist() == [[1, 0, 0], [0, 1, 0]]


def test_categorical_numbers_compare_as_text():
    encoding, rest, notes = fit_table_encoding(table("zip,y\n1234,1\n01234,2\n1e3,3\n"), categorical=("zip",))
    assert encoding.columns[0].levels == ("1e3", "01234", "1234")
    assert (encoding.inputs(rest).argmax(1).tolist(), notes) == ([2, 1, 0], ())
    held = TableEncoding.from_json(json.loads(json.dumps(encoding.to_json())))
    assert held.inputs(table("zip\n01234\n1234\n", "new.csv")).argmax(1).tolist() == [1, 2]
    for other in ("001234", "1234.0", "1000"):
        with pytest.raises(ValueError, match=f"unknown category '{other}', expected '1e3', '01234', '1234'"):
            held.inputs(table(f"zip\n{other}\n", "new.csv"))


def test_numeric_class_labels_compare_by_value():
    held = fit_table_encoding(table("x,y\n1,0\n2,1.0\n3,01\n"), task="classify")[0]
    assert held.target.levels == ("0", "1")
    assert held.targets(table("x,y\n1,1e0\n1,0.0\n", "new.csv")).tolist() == [1, 0]
    with pytest.raises(ValueError, match="unknown category 'x'"):
        held.targets(table("x,y\n1,1\n1,x\n", "new.csv"))


def test_categorical_columns_of_npz_files_compare_as_numbers():
    numeric = table_of({"code": np.array([1.0, 2.0]), "y": np.array([3.0, 4.0])}, name="data.npz")
    encoding = fit_table_encoding(numeric, categorical=("code",))[0]
    assert encoding.inputs(table("code\n2.0\n01\n", "new.csv")).tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size,code\n1,1\n", r"new.csv has no column 'color'\."),
        ("size,colr,code\n1,red,1\n", "has no column 'color': did you mean colr?"),
        (
            "size,color,code\n1,red,1\n2,green,1\n",
            "line 3 of new.csv, column 'color': unknown category 'green', expected 'blue', 'red'",
        ),
        ("size,color,code\n1,red,3\n", "unknown category '3', expected '1', '2'"),
        ("size,color,code\n1,red,2.0\n", "unknown category '2.0'"),
        ("size,color,code\n1,red,x\n", "unknown category 'x'"),
        (
            "size,color,code\nbig,red,1\n2,red,1\n",
            "line 2 of new.csv, column 'size': expected a number, got 'big'",
        ),
        ("size,color,code\n,red,1\n", "missing value at line 2 of new.csv, column 'size', the first of 1"),
        ("size,color,code\n1,,1\n", "missing value at line 2 of new.csv, column 'color'"),
        ("size,color,code\n1e39,red,1\n", r"line 2.*: expected a finite float32 number, got 1e\+39"),
        ("size,color,code\n-inf,red,1\n", "got -inf"),
    ],
)
def test_encoding_errors_name_row_and_column(text, message):
    encoding = fit_table_encoding(table(TRAINED), categorical=("code",))[0]
    with pytest.raises(ValueError, match=message):
        encoding.inputs(table(text, "new.csv"))


GOOD = TableEncoding((Column("a"), Column("b", ("x", "y"))), Column("c", ("no", "yes"))).to_json()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.pop("target"), "encoding has no field 'target'"),
        (lambda v: v.update(tarqet=1), "unknown field 'tarqet': did you mean target?"),
        (lambda v: v.update(kind="pickle"), r"encoding\.kind must be one of table, images, arrays, got 'pickle'"),
        (lambda v: v.update(columns=[]), "list of 1 to .* items, got 0"),
        (lambda v: v.update(columns={}), "got dict"),
        (
            lambda v: v["columns"].append({"name": "a", "levels": None, "by_number": False}),
            "encoding must not repeat a column",
        ),
        (lambda v: v["columns"][0].update(name="c"), "encoding must not repeat a column"),
        (lambda v: v["columns"][0].update(name=3), r"encoding.columns\[0\].name must be a string"),
        (lambda v: v["columns"][0].update(name="a" * 10**5), "1 to 10000 characters, got 100000 characters"),
        (lambda v: v["columns"][1].update(levels=["x", "x"]), r"columns\[1\].levels must be distinct"),
        (
            lambda v: v["columns"][1].update(levels=["1", "1.0"], by_number=True),
            r"encoding\.columns\[1\]\.levels must be distinct",
        ),
        (lambda v: v["columns"][1].update(by_number=True), r"columns\[1\].levels must be finite numbers"),
        (lambda v: v["columns"][1].update(by_number=1), "by_number must be true or false, got 1"),
        (lambda v: v["columns"][1].update(levels=[str(i) for i in range(2000)]), "1 to 1000 items, got 2000"),
        (lambda v: v["target"].update(levels=["one"]), r"encoding\.target must have at least 2 classes, got 1"),
    ],
)
def test_an_altered_file_is_refused(change, message):
    value = json.loads(json.dumps(GOOD))
    change(value)
    with pytest.raises(ValueError, match=message):
        encoding_from_json(value)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(plain, st.data())
def test_arbitrary_json_loads_or_raises_value_error(value, data):
    kinds = [GOOD, {"kind": "arrays", "shape": [1, 8], "classes": ["a", "b"]}]
    kinds.append({"kind": "images", "height": 8, "width": 8, "channels": 1, "classes": ["a", "b"], "resized": True})
    altered = json.loads(json.dumps(data.draw(st.sampled_from(kinds))))
    part = altered
    while data.draw(st.booleans()) and isinstance(part, dict | list) and part:
        keys = list(part) if isinstance(part, dict) else range(len(part))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(part[key], dict | list) or data.draw(st.booleans()):
            part[key] = value
            break
        part = part[key]
    for candidate in (value, altered):
        with suppress(ValueError):
            encoding = encoding_from_json(candidate)
            assert encoding_from_json(json.loads(json.dumps(encoding.to_json()))) == encoding


names = st.text(min_size=1, max_size=6)


@settings(max_examples=100, deadline=None)
@given(st.lists(names, min_size=2, max_size=5, unique=True), st.lists(names, min_size=2, max_size=5, unique=True))
def test_every_encoding_survives_json(columns, levels):
    encoding = TableEncoding(tuple(Column(name) for name in columns[1:]), Column(columns[0], tuple(levels)))
    if len(encoding.target.keys) == len(levels):
        assert encoding_from_json(json.loads(json.dumps(encoding.to_json()))) == encoding


def test_targets_are_classes_or_numbers():
    encoding, rest, _ = fit_table_encoding(table("x,y\n1,10\n2,9\n3,10\n"), task="classify")
    assert encoding.target.levels == ("9", "10")
    assert encoding.targets(rest).tolist() == [1, 0, 1]
    assert encoding.targets(rest).dtype == torch.int64


def test_the_target_is_the_last_column_or_the_one_that_is_named():
    read = table("a,b,c\n1,2,3\n4,5,6\n")
    assert fit_table_encoding(read)[0].target.name == "c"
    encoding = fit_table_encoding(read, target="a", ignore=("b",))[0]
    assert (encoding.names, encoding.target.name) == (("c",), "a")


def test_rows_with_missing_values_are_dropped_with_drop_missing():
    read = table("a,b,y\n1,,3\n,x,4\n5,x,6\n7,z,8\n")
    with pytest.raises(
        ValueError, match=r"missing value at line 3 of data.csv, column 'a', the first of 2: fill them in, or set"
    ):
        fit_table_encoding(read)
    encoding, rest, notes = fit_table_encoding(read, drop_missing=True)
    assert notes == ("dropped 2 rows with missing values",)
    assert encoding.inputs(rest).tolist() == [[5, 1, 0], [7, 0, 1]]
    assert rest.place(0, "a") == "line 4 of data.csv, column 'a'"


def test_column_becomes_numeric_when_rows_with_words_are_dropped():
    encoding, rest, _ = fit_table_encoding(table("a,b,y\nx,,1\n2,3,4\n5,6,7\n"), drop_missing=True)
    assert encoding.names == ("a", "b")
    assert encoding.inputs(rest).tolist() == [[2, 3], [5, 6]]


def test_missing_values_of_ignored_columns_do_not_matter():
    encoding, rest, notes = fit_table_encoding(table("a,b,y\n1,,3\n2,x,4\n"), ignore=("b",))
    assert (encoding.names, len(rest), notes) == (("a",), 2, ())


def test_constant_and_empty_columns_are_reported():
    encoding, _, notes = fit_table_encoding(table("a,b,c,d,y\n1,2,,k,3\n1,3,,k,4\n"))
    assert encoding.names == ("a", "b", "d=k")
    assert notes == ("dropped column 'c': it has no values", "column 'a' is constant", "column 'd' is constant")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,price\n1,2\n3,4\n", {"target": "prize"}, "no column 'prize': did you mean price? It has 'a', 'price'"),
        ("a,b\n1,2\n3,4\n", {"ignore": ("c",)}, "no column 'c'"),
        ("a,b\n1,2\n3,4\n", {"ignore": ("b",)}, "ignore must not contain the target 'b'"),
        ("a\n1\n2\n", {}, "a target and another column with"),
        ("a,b\n1,\n2,\n", {}, "another column with values"),
        ("a,b\n1,2\n", {}, "data.csv has 1 complete rows, expected at least 2"),
        ("a,b\n1,\n2,3\n", {"drop_missing": True}, "has 1 complete rows"),
        ("a,b\ninf,1\n2,3\n", {}, "line 2 of data.csv, column 'a': expected a finite float32 number, got inf"),
        ("a,b\n1,1e300\n2,3\n", {}, r"line 2 of data\.csv, column 'b': expected a finite float32 number, got 1e\+300"),
        ("a,b\n1,x\n2,x\n", {}, "target 'b' of data.csv has only the class 'x', expected at least 2"),
        ("a,b\n1,x\n2,y\n", {"task": "regress"}, "line 2 of data.csv, column 'b': expected a number, got 'x'"),
        (
            'a,b\n"1,5",1\n"2,5",2\n',
            {},
            r"line 2 of data.csv, column 'a': got '1,5', use a decimal point",
        ),
        ("a;b\n1,5;1\n2;2\n", {}, "decimal point"),
        ("a,b\n" + "1,1\n" * 20 + "oops,1\n", {}, "line 22 of data.csv, column 'a': got 'oops' among 20 numbers"),
        (
            "a,b\n" + "".join(f"w{i},{i}\n" for i in range(1001)),
            {},
            "1001 distinct values, at most 1000 are allowed: ignore",
        ),
        (
            "a,b\n" + "".join(f"{i},{i}\n" for i in range(1001)),
            {"task": "classify"},
            "for a numeric target, use task='regress'",
        ),
    ],
)
def test_invalid_tables_raise(text, options, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        fit_table_encoding(table(text), **options)


def test_word_among_numbers_is_allowed_in_a_categorical_column():
    encoding = fit_table_encoding(table("a,b\n" + "1,1\n" * 20 + "oops,1\n"), categorical=("a",))[0]
    assert encoding.columns[0].levels == ("1", "oops")
