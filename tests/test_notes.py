"""Every row of docs/notes.md says what implements it, or that it is planned; and what it names exists."""

import importlib
import pkgutil
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

import lawful
from lawful.laws import Law

PAGE = (Path(__file__).parent.parent / "docs" / "notes.md").read_text(encoding="utf-8")
NOTES = (
    "Fundamental computations in ML",
    "Building blocks of modern machine learning",
    "Machine learning notes",
    "Notes on Dive into Deep Learning",
    "Deep learning notes",
)
HEADER, RULE = ["what", "in lawful"], ["---", "---"]
NAME = re.compile(r"`((?:lawful|torch)\b[^`]*)`")
LATER = {
    "attention",
    "circuits",
    "distributions",
    "equivariant layers",
    "graphs",
    "optimisers",
    "positions",
    "program synthesis",
    "state spaces",
    "symmetry wrappers",
    "theory",
    "training",
    "transformers",
    "web",
}
"""What may be planned: the parts of lawful that are not there yet. Functions, groups, blocks and losses are."""

CITED = {
    "Fundamental computations in ML": ("Attention is All you Need", "Dehmamy", "Satorras", "Falorsi"),
    "Building blocks of modern machine learning": (
        "Brosowski and Deutsch",
        "Ba et al.",
        "Calin",
        "Foucart",
        "Glorot",
        "Goodfellow",
        "Garrigos and Gower",
        "Hein",
        "Hanin",
        "Ioffe and Szegedy",
        "Adam",
        "Krizhevsky",
        "Lang",
        "Loomis",
        "Montufar",
        "Topology of deep networks",
        "Telgarsky",
        "Attention is all you need",
        "nn251.py",
    ),
    "Machine learning notes": (
        "2407.09468",
        "rotary",
        "annotated S4",
        "Attention Is All You Need",
        "Deep Residual Learning",
        "Transformer Circuits",
        "system of particles",
        "Reordering Sublayers",
        "ensembles",
        "co-adaptation",
        "Layer Normalization",
        "Shimodaira",
        "Understanding and Improving Layer Normalization",
        "Brain-Inspired Modular Training",
        "gated convolutional networks",
        "GLU variants",
        "NICE",
        "HiPPO",
        "x-transformers",
        "minGPT",
        "time series",
    ),
    "Notes on Dive into Deep Learning": ("link: Dive into Deep Learning",),
    "Deep learning notes": ("transformers from scratch",),
}
"""What each of the notes cites: by author, by title, or by what its row calls it."""


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


@pytest.mark.parametrize("notes", NOTES)
def test_all_that_the_notes_cite_is_there(notes):
    (section,) = re.findall(rf"^## {notes}$(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert [cited for cited in CITED[notes] if cited not in section] == []


def laws_of_claims() -> Iterator[str]:
    for found in pkgutil.walk_packages(lawful.__path__, "lawful."):
        if found.name.startswith(tuple(f"lawful.{upper}" for upper in ("checking", "cli", "web", "__main__"))):
            continue
        module = importlib.import_module(found.name)
        if "claims" in vars(module):
            yield from (claim.law.name for claim in module.claims())


def test_every_law_that_a_row_names_is_claimed_by_a_piece_or_judged_here():
    said = runpy.run_path(str(Path(__file__).parent / "test_what_notes_say.py"))
    known = {law.name for table in ("DENIED", "SAID") for law, *_ in said[table].values()} | set(laws_of_claims())
    catalogue = importlib.import_module("lawful.laws")
    unknown = []
    for row in PAGE.splitlines():
        names = set(re.findall(r"`lawful\.laws\.(\w+)`", row)) if "planned: " not in row else set()
        unknown += [(row, name) for name in names - known if isinstance(getattr(catalogue, name), Law)]
    assert unknown == []


TABLE = "| what | in lawful |\n|---|---|\n"


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        (TABLE + "| softmax | `torch.nn.functional.softmax` |", None),
        (TABLE + "| whitening | `lawful.functions.whiten` |", None),
        (TABLE + "| a law | yes: `lawful.laws.metric` |", None),
        (TABLE + "| attention | planned: attention |", None),
        (TABLE + "| softmax | `torch.nn.functional.hardmax` |", "there is no torch.nn.functional.hardmax"),
        (TABLE + "| softmax | `lawful.functions.hardmax` |", "there is no lawful.functions.hardmax"),
        (TABLE + "| softmax | `lawful.nothing.softmax` |", "there is no lawful.nothing.softmax"),
        (TABLE + "| a method | `lawful.laws.metric.nothing` |", "there is no lawful.laws.metric.nothing"),
        (TABLE + "| softmax | `softmax` |", "neither a name nor planned"),
        (TABLE + "| softmax | |", "two cells"),
        (TABLE + "| softmax | planned |", "planned as what"),
        (TABLE + "| softmax | planned: functions |", "planned as what: 'functions'"),
        (TABLE + "| $|x|$ | `lawful.laws.metric` |", "two cells"),
        (TABLE + "softmax | `torch.nn.functional.softmax` |", "two cells"),
        (TABLE, "has a row"),
        ("| softmax | `torch.nn.functional.softmax` |", "a table begins with"),
    ],
)
def test_the_checker_can_fail(page, fault):
    found = faults(page)
    assert (found == []) if fault is None else (len(found) == 1 and fault in found[0]), found
