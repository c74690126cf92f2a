"""`docs/pytorch-laws.md` is the table that `docs/pytorch_laws.py` writes."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("pytorch_laws", DOCS / "pytorch_laws.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["pytorch_laws"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page():
    return (DOCS / "pytorch-laws.md").read_text(encoding="utf-8")


def split(line):
    return [cell.strip() for cell in line.strip("|\n").split("|")]


@pytest.fixture(scope="module")
def table(page):
    """The cells of the page, by row and column."""
    lines = page.split("## Table")[1].split("## Counterexamples")[0].strip().splitlines()
    header = split(lines[0])[1:]
    rows = [split(line) for line in lines[2:]]
    return {name.strip("`"): dict(zip(header, cells, strict=True)) for name, *cells in rows}


def symbol(cell):
    return re.sub(r"\[(.)\]\(#c\d+\)", r"\1", cell)


def test_the_page_has_the_rows_and_columns_of_the_script(script, table):
    assert list(table) == [row.name for row in script.ROWS]
    assert all(list(cells) == list(script.COLUMNS) for cells in table.values())


def test_every_refuted_cell_has_its_counterexample(script, page, table):
    cells = [cell for row in table.values() for cell in row.values()]
    assert {symbol(cell) for cell in cells} == {script.HELD, script.REFUTED, script.NOT_APPLICABLE}
    linked = [int(n) for cell in cells for n in re.findall(r"#c(\d+)", cell)]
    notes = [int(n) for n in re.findall(r'^<a id="c(\d+)"></a>\1\. ', page, re.M)]
    assert linked == notes == list(range(1, len(notes) + 1))
    assert len(linked) == sum(symbol(cell) == script.REFUTED for cell in cells)


SAMPLE = [
    ("nn.Linear", "linear"),
    ("nn.Linear(bias=False)", "linear"),
    ("nn.Conv1d(circular)", "translate"),
    ("nn.Conv1d(left-padded)", "causal"),
    ("nn.GRU(bidirectional)", "causal"),
    ("nn.MultiheadAttention", "permute"),
    ("nn.BatchNorm1d, training mode", "batch"),
    ("nn.BatchNorm1d, eval mode", "batch"),
    ("nn.CrossMapLRN2d", "gradient"),
    ("nn.Embedding", "odd"),
    ("nn.ReLU(inplace=True)", "no mut."),
    ("nn.Softmax", "shift"),
]


@pytest.mark.parametrize(("name", "column"), SAMPLE)
def test_a_sample_of_cells_is_up_to_date(script, table, name, column):
    row = next(row for row in script.ROWS if row.name == name)
    assert script.judge(row, column).symbol == symbol(table[name][column])


@pytest.mark.long
def test_every_cell_is_up_to_date(script, table):
    found = {row.name: {column: script.judge(row, column).symbol for column in script.COLUMNS} for row in script.ROWS}
    assert found == {name: {c: symbol(cell) for c, cell in cells.items()} for name, cells in table.items()}
