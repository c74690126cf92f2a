"""Every row of docs/notes.md says what implements it, or that it is planned; and what it names exists."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "notes.md").read_text(encoding="utf-8")
NOTES = (
    "Fundamental computations in ML",
    "Building blocks of modern machine learning",
    "Machine learning notes",
    "Notes on Dive into Deep Learning",
    "Deep learning notes",
)
HEADER, RULE = ["what", "in lawful"], ["---", "---"]
NAME = re.compile(r"`(lawful[^`]*)`")
LATER = {
    "adversarial",
    "attention",
    "autoencoders",
    "circuits",
    "data",
    "diffusion",
    "distributions",
    "equivariant layers",
    "flows",
    "generation",
    "graphs",
    "optimisers",
    "positions",
    "program synthesis",
    "solvers",
    "state spaces",
    "symmetry wrappers",
    "theory",
    "training",
    "transformers",
    "variational autoencoders",
    "web",
}
"""What may be planned: the parts of lawful that are not there yet. Functions, groups, blocks and losses are."""


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def tables(page: str) -> Iterator[list[tuple[int, str]]]:
    """The tables of a page: runs of lines that begin or end with a bar, each with its number."""
    table: list[tuple[int, str]] = []
    for number, line in enumerate([*page.splitlines(), ""], start=1):
        if line.strip().startswith("|") or line.strip().endswith("|"):
            table.append((number, line))
        elif table:
            yield table
            table = []


def exists(name: str) -> bool:
    """Whether a dotted path is a module, or leads to something in one."""
    words = name.split(".")
    for n in range(len(words), 0, -1):
        try:
            found = importlib.import_module(".".join(words[:n]))
        except ModuleNotFoundError:
            continue
        for word in words[n:]:
            if not hasattr(found, word):
                return False
            found = getattr(found, word)
        return True
    return False


def wrong_with(cell: str) -> Iterator[str]:
    """What is wrong with the second cell of a row."""
    names, planned = NAME.findall(cell), re.findall(r"\bplanned(?:: ([\w ]+))?", cell)
    if not names and not planned:
        yield "neither a name nor planned"
    yield from (f"there is no {name}" for name in names if not exists(name))
    yield from (f"planned as what: {subject!r}?" for subject in planned if subject not in LATER)


def faults(page: str) -> list[str]:
    found = []
    for table in tables(page):
        lines = [(number, cells(line)) for number, line in table]
        if [row for _, row in lines[:2]] != [HEADER, RULE] or len(lines) < 3:
            found.append(f"line {lines[0][0]}: a table begins with {HEADER} and a rule, and has a row")
            continue
        for number, row in lines[2:]:
            if len(row) != 2 or not all(row):
                found.append(f"line {number}: two cells were wanted: got {row}")
            else:
                found += [f"line {number}: {fault}" for fault in wrong_with(row[1])]
    return found


def test_every_row_names_what_exists_or_is_planned():
    assert not (found := faults(PAGE)), "\n".join(found)


def test_all_notes_are_there_and_every_section_has_a_table():
    assert tuple(re.findall(r"^## (.*)$", PAGE, re.M)) == NOTES
    sections = re.split(r"^### ", PAGE, flags=re.M)[1:]
    assert [section.splitlines()[0] for section in sections if "| what | in lawful |" not in section] == []


TABLE = "| what | in lawful |\n|---|---|\n"


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        (TABLE + "| softmax | `lawful.functions.softmax` |", None),
        (TABLE + "| a law | yes: `lawful.laws.metric` |", None),
        (TABLE + "| attention | planned: attention |", None),
        (TABLE + "| softmax | `lawful.functions.hardmax` |", "there is no lawful.functions.hardmax"),
        (TABLE + "| softmax | `lawful.nothing.softmax` |", "there is no lawful.nothing.softmax"),
        (TABLE + "| a method | `lawful.laws.metric.nothing` |", "there is no lawful.laws.metric.nothing"),
        (TABLE + "| softmax | `softmax` |", "neither a name nor planned"),
        (TABLE + "| softmax | |", "two cells"),
        (TABLE + "| softmax | planned |", "planned as what"),
        (TABLE + "| softmax | planned: functions |", "planned as what: 'functions'"),
        (TABLE + "| $|x|$ | `lawful.laws.metric` |", "two cells"),
        (TABLE + "softmax | `lawful.functions.softmax` |", "two cells"),
        (TABLE, "has a row"),
        ("| softmax | `lawful.functions.softmax` |", "a table begins with"),
    ],
)
def test_the_checker_can_fail(page, fault):
    found = faults(page)
    assert (found == []) if fault is None else (len(found) == 1 and fault in found[0]), found
