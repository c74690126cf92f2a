"""Large tables, which are read with Arrow and encoded batch by batch, equal small ones."""

from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lawful
from lawful.data import dataset, fingerprint, leaks, load_dataset, read_delimited, splits, table_encoding, tables
from lawful.data._arrow_columns import ArrowValues
from lawful.data._encoded_rows import EncodedRows
from lawful.data.tables import ColumnValues
from lawful.recipes import ClassifyRecipe, RegressRecipe
from lawful.recipes import classify as classify_module

pytest.importorskip("pyarrow")

WORDS = st.sampled_from(
    [
        *["1", "2.5", " 3", "-4e-3", "+1", "007", ".5", "1.", "1e400", "inf", "-Infinity", "nan", "NA", "", " ", "?"],
        *["1_000", "٣", "0x10", "red", " blue ", "Größe", '"quoted"', '"with, comma"', '"12"', "2024-01-31", "31.1.24"],
        *["True", "1,5", "null", "'", "#", "\\N", "a\tb", "\u00a0 7"],
    ]
)
ROWS = st.lists(st.lists(WORDS, min_size=3, max_size=3), min_size=1, max_size=8)


def read_both(path, monkeypatch, **options):
    """Reads a file as a small and as a large one; an error is returned as its message."""
    found = []
    for limit in (2**60, 0):
        monkeypatch.setattr(tables, "_LARGE", limit)
        try:
            found.append(read_delimited(path, **options))
        except ValueError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
@pytest.mark.parametrize("cases", [150, pytest.param(3000, marks=pytest.mark.long)])
def test_reading_with_arrow_equals_reading_line_by_line(tmp_path_factory, suffix, cases):
    path = tmp_path_factory.mktemp("tables") / f"data.{suffix}"

    @settings(max_examples=cases, deadline=None)
    @given(ROWS, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.sampled_from([None, True, False]), st.booleans())
    def run_case(rows, end, is_closed, header, has_mark):
        mark = "\t" if suffix == "tsv" else ","
        text = end.join(mark.join(row) for row in [["a", "b c", "d"], *rows]) + end * is_closed
        path.write_bytes(b"\xef\xbb\xbf" * has_mark + text.encode())
        with pytest.MonkeyPatch.context() as patch:
            small, large = read_both(path, patch, header=header)
        if isinstance(small, str):
            assert large == small
            return
        assert list(large.columns) == list(small.columns)
        assert (list(large.lines), large.notes, large.has_header) == (list(small.lines), small.notes, small.has_header)
        for name, values in small.columns.items():
            other = large.columns[name]
            assert list(other.words) == list(values.words)
            assert [word.strip() for word in other.text] == [word.strip() for word in values.text]
            assert (other.numbers is None) == (values.numbers is None)
            if values.numbers is not None:
                np.testing.assert_array_equal(other.numbers, values.numbers)
            np.testing.assert_array_equal(other.missing, values.missing)
            some = np.arange(len(values)) % 2 == 0
            assert list(other.take(some).words) == list(values.take(some).words)

    run_case()


def test_columns_of_a_large_file_are_in_arrows_memory(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("x,y\n1,red\n2,blue\n")
    small, large = read_both(tmp_path / "a.csv", monkeypatch)
    assert {type(values) for values in small.columns.values()} == {ColumnValues}
    assert {type(values) for values in large.columns.values()} == {ArrowValues}
    assert large.columns["y"].text[1] == "blue"
    assert large.columns["y"].words[:1] == ["red"]


@pytest.mark.parametrize(
    "text",
    ['a,b\n1,"2\n3"\n', 'a,b\n1, "2"\n', 'a,b\n1,2"3\n', 'a,b\n1,"2""3"\n', "a,b\n\n1,2\n", "a,b\n1,2\n3\n", "a\n1\n"],
    ids=["line break", "space before a quote", "quote inside", "two quotes", "empty line", "short row", "one column"],
)
def test_files_that_arrow_reads_differently_are_read_line_by_line(tmp_path, text, monkeypatch):
    (tmp_path / "a.csv").write_text(text)
    small, large = read_both(tmp_path / "a.csv", monkeypatch)
    if isinstance(small, str):
        assert large == small
    else:
        assert {type(values) for values in large.columns.values()} == {ColumnValues}
        assert [list(v.words) for v in large.columns.values()] == [list(v.words) for v in small.columns.values()]


@pytest.fixture
def table(tmp_path):
    generator = np.random.default_rng(0)
    lines = ["number,color,day,code,gap,kind"]
    for i in range(400):
        color = ["red", "green", "blue"][generator.integers(3)]
        day = np.datetime64("2020-01-01") + generator.integers(700)
        gap = "" if i % 7 == 0 else f"{generator.normal():.3f}"
        lines.append(f"{generator.normal():.4f},{color},{day},{generator.integers(4)},{gap},{'yes' if i % 3 else 'no'}")
    path = tmp_path / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def is_large(monkeypatch):
    monkeypatch.setattr(tables, "_LARGE", 0)
    monkeypatch.setattr(table_encoding, "_MAX_DENSE", 0)
    monkeypatch.setattr("lawful.data._encoded_rows._MAX_DENSE_ROWS", 3)
    for module in (dataset, splits):
        monkeypatch.setattr(module, "_HASHED_ROWS", 7)


def test_encoded_rows_equal_the_dense_matrix(table, request):
    dense = load_dataset(table)
    request.getfixturevalue("is_large")
    rows = load_dataset(table)
    assert (rows.encoding, rows.notes, rows.columns) == (dense.encoding, dense.notes, dense.columns)
    x, expected = rows.examples.inputs, dense.examples.inputs
    assert isinstance(x, EncodedRows)
    assert rows.examples.fingerprint() == fingerprint(expected, dense.examples.targets) == dense.examples.fingerprint()
    assert torch.equal(rows.examples.targets, dense.examples.targets)
    some = torch.tensor([5, 3, -1, 3, 8])
    mask = expected[:, 0] > 0
    for read in (
        lambda x: x + 0,
        lambda x: x[2],
        lambda x: x[2:9:3] * 1,
        lambda x: x[some] * 1,
        lambda x: x[mask] * 1,
        lambda x: x[some][1:4] * 1,
        lambda x: x.index_select(0, some % len(x)) * 1,
        lambda x: torch.cat([part * 1 for part in x.split(90)]),
        lambda x: torch.cat([x[some], x[:7]]) * 1,
        lambda x: x[:, 2],
        lambda x: x[:, :2] * 1,
        lambda x: x[3, 1],
        lambda x: x.detach().T,
        lambda x: x.double().sum(),
        lambda x: x.mean(),
    ):
        assert torch.equal(read(x), read(expected))
        assert type(read(x)) is torch.Tensor
    torch.testing.assert_close(x.mean(0), expected.mean(0))
    torch.testing.assert_close(x.std(0, correction=0), expected.std(0, correction=0))
    torch.testing.assert_close(x.std(0), expected.std(0))
    parts = {"a": x[:200], "b": x[150:]}
    assert all(isinstance(part, EncodedRows) for part in parts.values())
    assert leaks(parts) == leaks({name: part * 1 for name, part in parts.items()})
    assert leaks(parts)[0].pairs[:2] == ((150, 0), (151, 1))
    assert repr(x) == f"EncodedRows{tuple(expected.shape)}"


@pytest.mark.parametrize("recipe", [ClassifyRecipe, RegressRecipe])
def test_training_on_encoded_rows_is_the_same(table, tmp_path, recipe, request, monkeypatch):
    monkeypatch.setattr(classify_module, "figures", MagicMock())
    target = "kind" if recipe is ClassifyRecipe else "number"
    options = recipe(data=str(table), target=target, model="mlp", epochs=2, threads=1, law_cases=0)
    dense = lawful.train(options, output_dir=tmp_path / "dense")
    request.getfixturevalue("is_large")
    rows = lawful.train(options, output_dir=tmp_path / "rows")
    assert rows.config == dense.config
    weights = dense.weights()
    assert all(torch.equal(weight, weights[name]) for name, weight in rows.weights().items())
    assert rows.results | {"seconds": 0} == dense.results | {"seconds": 0}


def test_a_wrong_value_of_a_large_table_has_its_place(table, is_large):
    encoding = load_dataset(table).encoding
    lines = table.read_text().splitlines()
    lines[300] = lines[300].replace("2020-", "soon-").replace("2021-", "soon-")
    table.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=r"line 301 of table\.csv, column 'day': expected a date, got 'soon-"):
        encoding.inputs(read_delimited(table))
