import csv
import io
import math
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lawful.data import fit_table_encoding, read_delimited
from lawful.data.tables import _parse_delimited


def table(text, **options):
    return _parse_delimited(io.StringIO(text, newline=""), name="data.csv", **options)


def columns(text, **options):
    return {name: values.words for name, values in table(text, **options).columns.items()}


def write(folder, content, name="data.csv"):
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        b"a,b\n1,x\n2,y\n",
        b"a,b\r\n1,x\r\n2,y",
        b"a,b\r1,x\r2,y\r",
        b"\xef\xbb\xbfa,b\n1,x\n2,y\n",
        b'"a","b"\n"1","x"\n"2","y"\n',
        b"\n\na,b\n\n1,x\n   \n2,y\n\n\n",
        b"a;b\n1;x\n2;y\n",
        b"a\tb\n1\tx\n2\ty\n",
        b"a|b\n1|x\n2|y\n",
        b" a , b \n 1 , x\n 2 ,y \n",
        b",a,b\n0,1,x\n1,2,y\n",
        b"a,b,\n1,x,\n2,y,\n",
    ],
)
def test_table_format_variants(tmp_path, content):
    read = read_delimited(write(tmp_path, content))
    assert list(read.columns) == ["a", "b"]
    assert read.columns["a"].numbers.tolist() == [1, 2]
    assert read.columns["b"].words == ["x", "y"]
    assert read.columns["b"].numbers is None


def test_quoted_fields_have_delimiters_quotes_and_ends_of_lines():
    read = table('a,b\n"1,5","say ""hi"""\n"x\ny",z\n3,4,5\n'.replace("3,4,5\n", ""))
    assert read.columns["a"].words == ["1,5", "x\ny"]
    assert read.columns["b"].words == ['say "hi"', "z"]
    assert read.place(1, "a") == "line 4 of data.csv, column 'a'"


@pytest.mark.parametrize(
    ("text", "header", "names"),
    [
        ("a,b\n1,2\n", None, ["a", "b"]),
        ("1,2\n3,4\n", None, ["x1", "x2"]),
        ("5.1,setosa\n4.9,virginica\n", None, ["x1", "x2"]),
        ("size,kind\n5.1,setosa\n", None, ["size", "kind"]),
        ("name,kind\nann,x\nbob,y\n", None, ["name", "kind"]),
        ("ann,x\nbob,y\n", False, ["x1", "x2"]),
        ("1,2\n3,4\n", True, ["1", "2"]),
        ("a,b\n,2\n1,\n", None, ["a", "b"]),
        ("nan,2\n1,2\n", None, ["x1", "x2"]),
        ("2024-01-01,red\n2024-01-02,blue\n", None, ["x1", "x2"]),
        ("day,color\n2024-01-01,red\n2024-01-02,blue\n", None, ["day", "color"]),
    ],
)
def test_a_header_is_found(text, header, names):
    assert list(table(text, header=header).columns) == names


def test_a_file_without_a_header_says_so():
    read = table("1,2\n3,4\n")
    assert read.notes == ("data.csv has no header: its columns are named x1 to x2",)
    assert not read.has_header
    assert table("1,2\n3,4\n", header=False).notes == table("a,b\n3,4\n").notes == ()
    with pytest.raises(ValueError, match=r"has no column 'size'\. data.csv has no header"):
        fit_table_encoding(table("size,y\n3,4\n5,6\n")).encoding.inputs(read)


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_decimal_commas(header, delimiter):
    rows = [["1,5", "1.234", "-2,25", "a,b", "1,5", "12.5"], ["", "999", "1.000,5", "c", "x", "3.25"]]
    lines = [["size", "people", "price", "names", "code", "point"]] * header + rows
    table = _parse_delimited([delimiter.join(line) for line in lines], name="data.csv")
    size, people, price, names, code, point = table.columns.values()
    assert list(table.columns)[:2] == (["size", "people"] if header else ["x1", "x2"])
    np.testing.assert_array_equal(size.numbers, [1.5, math.nan])
    assert people.numbers.tolist() == [1234, 999]
    assert price.numbers.tolist() == [-2.25, 1000.5]
    assert names.words == ["a,b", "c"]
    assert code.words == ["1,5", "x"]
    assert point.numbers.tolist() == [12.5, 3.25]
    what = "'size', 'people', 'price'" if header else "'x1', 'x2', 'x3'"
    assert table.notes[-1] == f"data.csv has decimal commas: 1,5 is 1.5 in column {what}"


def test_dots_without_decimal_commas_are_decimal_points():
    table = _parse_delimited(["a;b", "1.234;1", "2.345;2"], name="data.csv")
    assert table.columns["a"].numbers.tolist() == [1.234, 2.345]
    assert table.notes == ()


def test_missing_values_are_nan_and_underscores_are_text():
    read = table("a,b,c\n1,NA,1_0\n,x,2_0\nnull,?,3\n")
    assert np.isnan(read.columns["a"].numbers).tolist() == [False, True, True]
    assert read.columns["b"].words == [None, "x", None]
    assert read.columns["b"].missing.tolist() == [True, False, True]
    assert read.columns["c"].numbers is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "data.csv is empty"),
        (b"\n  \n\n", "data.csv is empty"),
        (b"a,b\n", r"data\.csv has a header but no rows: 'a', 'b'"),
        (b"a,b\n1,2\n3\n", "line 3 of data.csv has 1 fields, expected 2 as in line 1"),
        (b"a,b\n1,2\n\n3,4,5\n", "line 4 of data.csv has 3 fields"),
        (b"a,b,a\n1,2,3\n", r"two columns named 'a', number 1 and 3: rename one"),
        (b"a,b\n1,caf\xe9\n", "data.csv is not UTF-8 text: .*0xe9.: save it as UTF-8"),
        (b"\xff\xfea\x00,\x00", "data.csv is not UTF-8 text"),
        (b'a,b\n1,"open\n2,3\n', "line 3 of data.csv cannot be read"),
        (b'a,b\n1,"x"y\n', "line 2 of data.csv cannot be read"),
        (b"a,b\n1," + b"x" * 200_000 + b"\n", "line 2 of data.csv cannot be read: field larger"),
    ],
)
def test_read_errors_name_the_line(tmp_path, content, said):
    with pytest.raises(ValueError, match=said):
        read_delimited(write(tmp_path, content))


def test_table_without_named_columns_raises():
    with pytest.raises(ValueError, match="no named column with values"):
        table(",\n,\n", header=True)


def test_tabs_are_the_delimiter_of_tsv(tmp_path):
    read = read_delimited(write(tmp_path, b"a, with b, and c\tz\n1\t2\n", "data.tsv"))
    assert list(read.columns) == ["a, with b, and c", "z"]


words = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=8)
floats = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(floats, words), min_size=1, max_size=8),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(",;\t|"),
)
def test_csv_round_trip(rows, end, delimiter):
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator=end, delimiter=delimiter, quoting=csv.QUOTE_ALL)
    writer.writerows([("number", "word"), *((repr(a), b) for a, b in rows)])
    text.seek(0)
    read = _parse_delimited(text, name="data.csv", header=True)
    assert read.columns["number"].numbers.tolist() == [a for a, _ in rows]
    assert list(read.columns["word"].text) == [b for _, b in rows]


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.text(max_size=60), st.text('01.,;\t|"\n\r aenN-_?', max_size=60)))
@example('"')
@example("\x00,\n\x00")
@example("a\n1e999\n2")
@example("a,b\n1,1\n9" + "9" * 400 + ",2")
def test_arbitrary_text_loads_or_raises_value_error(text):
    try:
        read = table(text)
        assert len({len(values) for values in read.columns.values()}) == 1
        encoding, rest, *_ = fit_table_encoding(read, drop_missing=True)
    except ValueError:
        return
    inputs, targets = encoding.inputs(rest), encoding.targets(rest)
    assert inputs.shape == (len(rest), len(encoding.names))
    assert inputs.isfinite().all()
    assert len(targets) == len(rest)


@settings(max_examples=300, deadline=None)
@given(content=st.binary(max_size=80))
def test_arbitrary_bytes_load_or_raise_value_error(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(content)
    with suppress(ValueError):
        assert len(read_delimited(path)) > 0


def test_numbers_equal_pythons():
    spellings = ["1", "-1.5", "+2", "1e-3", ".5", "5.", "0x10", "1,5", "1 2", "1e5", "-0", "00012", "١٢"]
    for text in spellings:
        column = table(f'a\n"{text}"\n', header=True).columns["a"]
        try:
            expected = float(text)
        except ValueError:
            assert column.numbers is None
        else:
            assert column.numbers[0] == expected
            assert math.isfinite(expected)
