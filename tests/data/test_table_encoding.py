import io
import json
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful.data import (
    Column,
    DateEncoding,
    TableEncoding,
    encoding_from_json,
    fit_table_encoding,
    table_from_rows,
    table_of,
)
from lawful.data.tables import _parse_delimited


def table(text, name="data.csv"):
    return _parse_delimited(io.StringIO(text, newline=""), name=name)


TRAINED = "size,color,code,price\n1.5,red,1,10\n2.5,blue,2,20\n3.5,red,2,30\n"


def test_numbers_stay_and_words_become_one_hot():
    encoding, rest, notes, _ = fit_table_encoding(table(TRAINED), categorical_columns=("code",))
    assert encoding.names == ("size", "color=blue", "color=red", "code=1", "code=2")
    expected = [[1.5, 0, 1, 1, 0], [2.5, 1, 0, 0, 1], [3.5, 0, 1, 0, 1]]
    assert encoding.inputs(rest).tolist() == expected
    assert encoding.targets(rest).tolist() == [[10], [20], [30]]
    assert notes == ()


def test_encoding_does_not_depend_on_column_order_or_extra_columns():
    encoding = fit_table_encoding(table(TRAINED), categorical_columns=("code",))[0]
    new = "code,extra,size,color\n2,?,7,blue\n1,x,8,blue\n"
    for held in (encoding, TableEncoding.from_json(json.loads(json.dumps(encoding.to_json())))):
        assert held.inputs(table(new, "new.csv")).tolist() == [[7, 1, 0, 0, 1], [8, 1, 0, 1, 0]]


def test_categories_that_look_like_numbers_stay_text():
    encoding = fit_table_encoding(table("kind,y\n01,1\n1,2\nx,3\n1,3\n"))[0]
    assert encoding.columns[0].levels == ("01", "1", "x")
    assert encoding.inputs(table("kind\n01\n1\n", "new.csv")).tolist() == [[1, 0, 0], [0, 1, 0]]


def test_categorical_numbers_compare_as_text():
    encoding, rest, notes, _ = fit_table_encoding(
        table("zip,y\n1234,1\n01234,2\n1e3,3\n"), categorical_columns=("zip",)
    )
    assert encoding.columns[0].levels == ("1e3", "01234", "1234")
    assert (encoding.inputs(rest).argmax(1).tolist(), notes) == ([2, 1, 0], ())
    held = TableEncoding.from_json(json.loads(json.dumps(encoding.to_json())))
    assert held.inputs(table("zip\n01234\n1234\n", "new.csv")).argmax(1).tolist() == [1, 2]
    for other in ("001234", "1234.0", "1000"):
        assert held.inputs(table(f"zip\n{other}\n", "new.csv")).tolist() == [[0, 0, 0]], other


def test_numeric_class_labels_compare_by_value():
    held = fit_table_encoding(table("x,y\n1,0\n2,1.0\n3,01\n"), task="classify")[0]
    assert held.target.levels == ("0", "1")
    assert held.targets(table("x,y\n1,1e0\n1,0.0\n", "new.csv")).tolist() == [1, 0]
    with pytest.raises(ValueError, match="unknown category 'x'"):
        held.targets(table("x,y\n1,1\n1,x\n", "new.csv"))


def test_categorical_columns_of_npz_files_compare_as_numbers():
    numeric = table_of({"code": np.array([1.0, 2.0]), "y": np.array([3.0, 4.0])}, name="data.npz")
    encoding = fit_table_encoding(numeric, categorical_columns=("code",))[0]
    assert encoding.inputs(table("code\n2.0\n01\n", "new.csv")).tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "size,code\n1,1\n",
            r"new.csv has no column 'color'\. It is an input of the model: add it, empty where unknown, or train "
            r"without it \(--ignore-columns color\)",
        ),
        ("size,colr,code\n1,red,1\n", "has no column 'color': did you mean colr?"),
        (
            "size,color,code\nbig,red,1\n2,red,1\n",
            "line 2 of new.csv, column 'size': expected a number, got 'big'",
        ),
        ("size,color,code\n1e39,red,1\n", r"line 2.*: expected a finite float32 number, got 1e\+39"),
        ("size,color,code\n-inf,red,1\n", "got -inf"),
    ],
)
def test_encoding_errors_name_row_and_column(text, message):
    encoding = fit_table_encoding(table(TRAINED), categorical_columns=("code",))[0]
    with pytest.raises(ValueError, match=message):
        encoding.inputs(table(text, "new.csv"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "size,color,code\n1,red,1\n2,green,1\n",
            "line 3 of new.csv, column 'color': unknown category 'green', expected 'blue', 'red'",
        ),
        ("size,color,code\n1,red,3\n", "unknown category '3', expected '1', '2'"),
        ("size,color,code\n,red,1\n", "missing value at line 2 of new.csv, column 'size', the first of 1"),
        ("size,color,code\n1,,1\n", "missing value at line 2 of new.csv, column 'color'"),
    ],
)
def test_without_imputation_missing_and_unknown_values_are_errors(text, message):
    encoding = fit_table_encoding(table(TRAINED), categorical_columns=("code",), impute=False)[0]
    with pytest.raises(ValueError, match=message):
        encoding.inputs(table(text, "new.csv"))


DATED = TableEncoding(
    (Column("day", dates=DateEncoding("day first", "2024-01-31", ("month", "weekday")), fill=3.5), Column("b")),
    Column("c"),
).to_json()
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
            lambda v: v["columns"].append(Column("a").to_json()),
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
        (lambda v: v["columns"][0].update(indicator=0), r"columns\[0\].indicator must be true or false, got 0"),
        (lambda v: v["columns"][0].update(fill="x"), r"columns\[0\].fill must be a finite float32 number, got x"),
        (lambda v: v["columns"][1].update(fill="z"), r"columns\[1\].fill must be one of 'x', 'y', got 'z'"),
        (lambda v: v["columns"][1].update(dates=DATED["columns"][0]["dates"]), "not have both levels and dates"),
        (lambda v: v["columns"][0].update(dates={"order": "day first"}), r"columns\[0\].dates has no field 'origin'"),
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
    kinds = [GOOD, DATED, {"kind": "arrays", "shape": [1, 8], "classes": ["a", "b"]}]
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
    encoding, rest, *_ = fit_table_encoding(table("x,y\n1,10\n2,9\n3,10\n"), task="classify")
    assert encoding.target.levels == ("9", "10")
    assert encoding.targets(rest).tolist() == [1, 0, 1]
    assert encoding.targets(rest).dtype == torch.int64


def test_the_target_is_the_last_column_or_the_one_that_is_named():
    read = table("a,b,c\n1,2,3\n4,5,6\n")
    assert fit_table_encoding(read)[0].target.name == "c"
    encoding = fit_table_encoding(read, target="a", ignore_columns=("b",))[0]
    assert (encoding.names, encoding.target.name) == (("c",), "a")


def test_rows_with_missing_values_are_dropped_with_drop_missing():
    read = table("a,b,y\n1,,3\n,x,4\n5,x,6\n7,z,8\n")
    with pytest.raises(
        ValueError,
        match=r"missing value at line 3 of data.csv, column 'a', the first of 2: fill them in, or .*--drop-missing",
    ):
        fit_table_encoding(read, impute=False)
    encoding, rest, notes, _ = fit_table_encoding(read, drop_missing=True)
    assert notes == ("dropped 2 rows with missing values",)
    assert encoding.inputs(rest).tolist() == [[5, 1, 0], [7, 0, 1]]
    assert rest.place(0, "a") == "line 4 of data.csv, column 'a'"


def test_column_becomes_numeric_when_rows_with_words_are_dropped():
    encoding, rest, *_ = fit_table_encoding(table("a,b,y\nx,,1\n2,3,4\n5,6,7\n"), drop_missing=True)
    assert encoding.names == ("a", "b")
    assert encoding.inputs(rest).tolist() == [[2, 3], [5, 6]]


def test_missing_values_of_ignored_columns_do_not_matter():
    encoding, rest, notes, _ = fit_table_encoding(table("a,b,y\n1,,3\n2,x,4\n"), ignore_columns=("b",))
    assert (encoding.names, len(rest), notes) == (("a",), 2, ())


def test_constant_and_empty_columns_are_reported():
    encoding, _, notes, columns = fit_table_encoding(table("a,b,c,d,y\n1,2,,k,3\n1,3,,k,4\n"))
    assert columns[3].detail == "1 category: k"
    assert encoding.names == ("a", "b", "d=k")
    assert notes == ("left out column 'c': it has no values", "column 'a' is constant", "column 'd' is constant")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,price\n1,2\n3,4\n", {"target": "prize"}, "no column 'prize': did you mean price? It has 'a', 'price'"),
        ("a,b\n1,2\n3,4\n", {"ignore_columns": ("c",)}, "no column 'c'"),
        ("a,b\n1,2\n3,4\n", {"ignore_columns": ("b",)}, "ignore_columns must not contain the target 'b'"),
        ("a\n1\n2\n", {}, "a target and another column with"),
        ("a,b\n1,\n2,\n", {}, "another column with values"),
        ("a,b\n1,2\n", {}, "data.csv has 1 complete rows, expected at least 2"),
        ("a,b\n1,\n2,3\n", {"drop_missing": True}, "has 1 complete rows"),
        ("a,b\ninf,1\n2,3\n", {}, "line 2 of data.csv, column 'a': expected a finite float32 number, got inf"),
        ("a,b\n1,1e300\n2,3\n", {}, r"line 2 of data\.csv, column 'b': expected a finite float32 number, got 1e\+300"),
        ("a,b\n1,x\n2,x\n", {}, "target 'b' of data.csv has only the class 'x', expected at least 2"),
        (
            "a,b\n1,x\n2,y\n",
            {"task": "regress"},
            r"line 2 of data.csv, column 'b': expected a number, got 'x'\. Numeric columns, to set as target: 'a'",
        ),
        (
            'a,b\n"1,5",1\n"2,5",2\n',
            {},
            r"line 2 of data.csv, column 'a': got '1,5', use a decimal point",
        ),
        (
            'rate,b\n"12.5 %",1\n,2\n"7%",3\n',
            {},
            "line 2 of data.csv, column 'rate': got '12.5 %', write numbers without a unit or list the column in "
            "--categorical-columns",
        ),
        ('cost,b\n"$1,200",1\n$90,2\n', {}, r"column 'cost': got '\$1,200', write numbers without a unit"),
        ("a,b\n" + "1,1\n" * 20 + "oops,1\n", {}, "line 22 of data.csv, column 'a': got 'oops' among 20 numbers"),
        (
            "a,b\n" + "".join(f"w{i},{i}\n" for i in range(50)),
            {},
            "no input column left: left out column 'a': it looks like an identifier, with 50 different",
        ),
        (
            "day,y\n" + "2024-01-02,1\n" * 20 + "soon,2\n",
            {},
            "line 22 of data.csv, column 'day': got 'soon' among dates",
        ),
        ("x,day\n1,2024-01-02\n2,2024-01-03\n", {"task": "regress"}, "target 'day' of data.csv is a date"),
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


def test_units_are_allowed_in_categories_and_classes():
    encoding = fit_table_encoding(table("rate,b\n5%,1\n7%,2\n"), categorical_columns=("rate",))[0]
    assert encoding.columns[0].levels == ("5%", "7%")
    assert fit_table_encoding(table("b,rate\n1,5%\n2,7%\n")).encoding.target.levels == ("5%", "7%")
    assert fit_table_encoding(table("size,b\n5%,1\nlarge,2\n")).encoding.columns[0].levels == ("5%", "large")


def test_word_among_numbers_is_allowed_in_a_categorical_column():
    encoding = fit_table_encoding(table("a,b\n" + "1,1\n" * 20 + "oops,1\n"), categorical_columns=("a",))[0]
    assert encoding.columns[0].levels == ("1", "oops")


def test_dates_become_time_month_and_weekday():
    """The 903 dates of the issue, one level each before, and new dates."""
    days = np.arange("2021-01-01", "2023-06-23", dtype="datetime64[D]")
    read = table("day,y\n" + "".join(f"{day},{i}\n" for i, day in enumerate(days)))
    encoding, rest, notes, columns = fit_table_encoding(read)
    weekdays = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    assert encoding.names == (
        "day: time",
        "day: month sin",
        "day: month cos",
        *(f"day: weekday={name}" for name in weekdays),
    )
    inputs = encoding.inputs(rest)
    assert inputs[:, 0].tolist() == list(range(len(days)))
    torch.testing.assert_close(inputs[:, 1].square() + inputs[:, 2].square(), torch.ones(len(days)))
    assert [weekdays[i] for i in inputs[:, 3:].argmax(1)] == [day.item().strftime("%A") for day in days]
    assert notes == ()
    assert columns[0][1:] == ("date", 0, "2021-01-01 to 2023-06-22; used as time, month, weekday")
    held = TableEncoding.from_json(json.loads(json.dumps(encoding.to_json())))
    new = held.inputs(table("day\n2024-01-01\n2021-01-02T12:00\n", "new.csv"))
    assert new[:, 0].tolist() == [1095, 1.5]
    with pytest.raises(ValueError, match=r"line 3 of new.csv, column 'day': expected a date, got 'soon'"):
        held.inputs(table("day\n2024-01-01\nsoon\n", "new.csv"))


@pytest.mark.parametrize(
    ("values", "features"),
    [
        (["2024-01", "2024-05", "2024-06"], ["time"]),
        (["2022-01-01", "2023-01-01", "2024-01-01"], ["time", "month sin", "month cos"]),
        (["2024-01-01 10:00", "2024-01-01 12:30", "2024-01-01 12:40"], ["time", "hour sin", "hour cos"]),
        (["20240131", "20240201", "20240202"], ["time", *(f"weekday={day}" for day in range(7))]),
    ],
    ids=["months", "years", "hours", "digits"],
)
def test_dates_have_the_cycles_that_they_can_show(values, features):
    read = table("date,y\n" + "".join(f"{value},{i}\n" for i, value in enumerate(values)))
    encoding, rest, *_ = fit_table_encoding(read)
    assert encoding.columns[0].kind == "date"
    assert len(encoding.names) == len(features), encoding.names
    first, second, third = encoding.inputs(rest)[:, 0].tolist()
    assert first < second < third
    assert encoding.inputs(table(f"date\n{values[1]}\n", "new.csv"))[0, 0] == second


def test_the_order_of_day_and_month_is_kept():
    read = table("day,y\n03/04/2024,1\n25/04/2024,2\n26/04/2024,2\n")
    encoding = fit_table_encoding(read)[0]
    held = TableEncoding.from_json(encoding.to_json())
    assert held.inputs(table("day\n04/04/2024\n", "new.csv"))[0, 0] == 1
    notes = fit_table_encoding(table("day,y\n01/02/2024,1\n05/02/2024,2\n03/02/2024,2\n"))[2]
    assert notes == ("column 'day': day and month are ambiguous; read as month first",)


def test_numbers_with_leading_zeros_are_text():
    encoding = fit_table_encoding(table("code,y\n00042,1\n00007,2\n12345,3\n00042,3\n"))[0]
    assert encoding.columns[0].levels == ("00007", "00042", "12345")
    assert fit_table_encoding(table("x,y\n1,007\n2,042\n"))[0].target.levels == ("007", "042")
    assert fit_table_encoding(table("size,y\n0.5,1\n0,2\n"))[0].columns[0].kind == "number"


IDS = "customer_id,ticket,size,y\n" + "".join(f"{100 + i},T{i:04},{i % 7},{i % 3}\n" for i in range(40))


def test_identifiers_are_left_out_with_a_warning():
    encoding, _, notes, columns = fit_table_encoding(table(IDS))
    assert encoding.names == ("size",)
    reason = "it looks like an identifier, with 40 different values in 40 rows"
    assert notes == tuple(
        f"left out column {name!r}: {reason}; to use it, list it in --keep-columns"
        for name in ("customer_id", "ticket")
    )
    assert [(c.name, c.kind) for c in columns] == [
        ("customer_id", "left out"),
        ("ticket", "left out"),
        ("size", "number"),
        ("y", "target"),
    ]


def test_identifiers_can_be_kept():
    encoding, _, notes, _ = fit_table_encoding(table(IDS), keep_columns=("customer_id", "ticket"))
    assert [column.kind for column in encoding.columns] == ["number", "category", "number"]
    assert len(encoding.names) == 42
    assert notes == ()
    with pytest.raises(ValueError, match="no column 'tickt': did you mean ticket"):
        fit_table_encoding(table(IDS), keep_columns=("tickt",))


def test_rare_and_unknown_categories_are_other():
    """3 rows of 400 are fewer than 1 %."""
    words = ["red"] * 200 + ["blue"] * 197 + ["pink", "teal", "lime"]
    read = table("color,y\n" + "".join(f"{word},{i % 3}\n" for i, word in enumerate(words)))
    encoding, rest, notes, columns = fit_table_encoding(read)
    assert encoding.names == ("color=blue", "color=red", "color=(other)")
    assert encoding.inputs(rest)[-4:].tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]]
    assert notes == ()
    assert "rare" in columns[0].detail
    new = table("color\nred\ngold\npink\n", "new.csv")
    assert encoding.inputs(new).tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 1]]
    message = "column 'color': 2 values are unknown categories, which count as other: 'gold', 'pink'"
    assert encoding.notes(new) == (message,)


def test_missing_values_are_filled_and_marked():
    read = table("size,color,day,y\n1,red,2024-01-01,1\n,,,2\n3,red,2024-01-03,3\n4,blue,2024-01-09,4\n")
    encoding, rest, notes, columns = fit_table_encoding(read)
    x = dict(zip(encoding.names, encoding.inputs(rest).T.tolist(), strict=True))
    assert x["size"] == [1, 3, 3, 4]
    assert x["color=red"] == [1, 1, 1, 0]
    assert x["day: time"] == [0, 2, 2, 8]
    for name in ("size", "color", "day"):
        assert x[f"{name} is missing"] == [0, 1, 0, 0]
    assert notes == (
        "filled 3 missing values of 3 columns, 'size', 'color', 'day'; to drop these rows, use --drop-missing "
        "(drop_missing=True)",
    )
    assert [column.missing for column in columns] == [1, 1, 1, 0]
    assert columns[1].detail.endswith("1 missing value, filled with the most frequent, red")
    assert columns[2].detail.endswith("1 missing value, filled with the median, 2024-01-03")


def test_missing_values_of_new_rows_are_filled_with_and_without_a_mark():
    encoding = fit_table_encoding(table(TRAINED))[0]
    assert "size is missing" not in encoding.names
    held = TableEncoding.from_json(json.loads(json.dumps(encoding.to_json())))
    new = table("size,color,code\n,,1\n", "new.csv")
    assert held.inputs(new).tolist() == [[2.5, 0, 1, 1]]
    assert held.notes(new)[0].startswith("filled 2 missing values of 2 columns, 'size', 'color'")
    assert held.complete(table("size,color,code\n,red,1\n1,red,2\n", "new.csv")).tolist() == [False, True]


def test_fill_values_come_from_the_rows_that_are_given():
    read = table("size,color,y\n1,red,1\n2,red,2\n,,2\n90,blue,3\n80,blue,3\n")
    encoding = fit_table_encoding(read)[0].fit_fill(read.take(np.array([1, 1, 1, 0, 0], dtype=bool)))
    assert [column.fill for column in encoding.columns] == [1.5, "red"]


def test_rows_without_a_target_are_dropped():
    encoding, rest, notes, _ = fit_table_encoding(table("a,y\n1,3\n2,\n5,6\n"))
    assert encoding.inputs(rest).tolist() == [[1], [5]]
    assert notes == ("dropped 1 row without a target",)


def test_rows_of_python_become_a_table():
    from datetime import date, datetime

    class Frame:
        """As a data frame: columns, and one column by name."""

        columns = ("a", "day")

        def __getitem__(self, name):
            return {"a": np.array([1.5, np.nan]), "day": np.array(["2024-01-05", "NaT"], "datetime64[ns]")}[name]

    sources = [
        [{"a": 1.5, "day": date(2024, 1, 5)}, {"a": None}],
        [{"a": np.float32(1.5), "day": "2024-01-05"}, {"a": float("nan"), "day": None}],
        {"a": [1.5, None], "day": [datetime(2024, 1, 5), None]},
        {"a": torch.tensor([1.5, torch.nan]), "day": np.array(["2024-01-05", "NaT"], "datetime64[D]")},
        [[1.5, "2024-01-05"], (None, "")],
        np.array([(1.5, "2024-01-05"), (np.nan, "")], dtype=[("a", float), ("day", "U10")]),
        Frame(),
    ]
    encoding = TableEncoding(
        (Column("a", fill=9.0), Column("day", dates=DateEncoding(cycles=()), fill=1.0)), Column("y")
    )
    for rows in sources:
        read = table_from_rows(rows, columns=("a", "day"))
        assert encoding.inputs(read).tolist() == [[1.5, 8770], [9, 1]], rows
    assert len(table_from_rows({"a": 1.5, "day": "2024-01-05"}, columns=())) == 1
    with pytest.raises(
        ValueError, match="must be dicts, a data frame, or rows of the 2 columns 'a', 'b', got rows of 3"
    ):
        table_from_rows(np.zeros((4, 3)), columns=("a", "b"))
    with pytest.raises(ValueError, match="got rows of single values"):
        table_from_rows([1.0, 2.0], columns=("a", "b"))
    with pytest.raises(ValueError, match="got no rows"):
        table_from_rows([], columns=("a",))
