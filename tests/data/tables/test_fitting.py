import io

import pytest

from lawful.data import fit_table_encoding
from lawful.data.tables import _parse_delimited


def table(text):
    return _parse_delimited(io.StringIO(text, newline=""), name="data.csv")


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


def test_a_column_whose_words_are_all_dropped_has_numbers():
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
    ("text", "options", "said"),
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
def test_invalid_tables_raise(text, options, said):
    with pytest.raises(ValueError, match=said.replace("?", r"\?")):
        fit_table_encoding(table(text), **options)


def test_a_word_among_numbers_may_be_meant():
    encoding = fit_table_encoding(table("a,b\n" + "1,1\n" * 20 + "oops,1\n"), categorical=("a",))[0]
    assert encoding.columns[0].levels == ("1", "oops")
