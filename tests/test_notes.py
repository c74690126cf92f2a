"""Every row of docs/notes.md names an implementation that exists, or says that it is planned."""

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
NAME = re.compile(r"`((?:lawful|torch|examples)\b[^`]*)`")
PLANNED = {
    "attention",
    "circuits",
    "distributions",
    "equivariant layers",
    "graphs",
    "optimizers",
    "positions",
    "program synthesis",
    "state spaces",
    "symmetry wrappers",
    "theory",
    "training",
    "transformers",
    "web",
}
"""Parts of lawful that may be planned."""

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
"""Citations of each set of notes: author, title or name in its row."""


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def tables(page: str) -> Iterator[list[tuple[int, str]]]:
    """Yields the tables of a page: consecutive lines that start or end with a bar, with their line numbers."""
    table: list[tuple[int, str]] = []
    for number, line in enumerate([*page.splitlines(), ""], start=1):
        if line.strip().startswith("|") or line.strip().endswith("|"):
            table.append((number, line))
        elif table:
            yield table
            table = []


def exists(name: str) -> bool:
    """Whether a dotted path is a module or an attribute of one, or a path is a file of the repository."""
    if "/" in name:
        return (Path(__file__).parent.parent / name).is_file()
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


def cell_faults(cell: str) -> Iterator[str]:
    """Yields the faults of the second cell of a row."""
    names, planned = NAME.findall(cell), re.findall(r"\bplanned(?:: ([\w ]+))?", cell)
    if not names and not planned:
        yield "neither a name nor planned"
    yield from (f"no such name: {name}" for name in names if not exists(name))
    yield from (f"unknown planned part: {subject!r}" for subject in planned if subject not in PLANNED)


def faults(page: str) -> list[str]:
    found = []
    for table in tables(page):
        lines = [(number, cells(line)) for number, line in table]
        if [row for _, row in lines[:2]] != [HEADER, RULE] or len(lines) < 3:
            found.append(f"line {lines[0][0]}: a table begins with {HEADER} and a rule, and has a row")
            continue
        for number, row in lines[2:]:
            if len(row) != 2 or not all(row):
                found.append(f"line {number}: expected two cells, got {row}")
            else:
                found += [f"line {number}: {fault}" for fault in cell_faults(row[1])]
    return found


def test_every_row_names_existing_objects_or_is_planned():
    assert not (found := faults(PAGE)), "\n".join(found)


def test_page_has_all_notes_and_each_section_has_a_table():
    assert tuple(re.findall(r"^## (.*)$", PAGE, re.M)) == NOTES
    sections = re.split(r"^### ", PAGE, flags=re.M)[1:]
    assert [section.splitlines()[0] for section in sections if "| what | in lawful |" not in section] == []


@pytest.mark.parametrize("notes", NOTES)
def test_page_has_all_citations(notes):
    (section,) = re.findall(rf"^## {notes}$(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert [cited for cited in CITED[notes] if cited not in section] == []


def laws_of_claims() -> Iterator[str]:
    for found in pkgutil.walk_packages(lawful.__path__, "lawful."):
        if found.name.startswith(tuple(f"lawful.{upper}" for upper in ("checking", "cli", "web", "__main__"))):
            continue
        module = importlib.import_module(found.name)
        if "claims" in vars(module):
            yield from (claim.law.name for claim in module.claims())


def test_every_named_law_is_claimed_or_tested():
    tested = runpy.run_path(str(Path(__file__).parent / "test_what_notes_say.py"))
    known = {law.name for table in ("REFUTED", "HELD") for law, *_ in tested[table].values()} | set(laws_of_claims())
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
        (TABLE + "| softmax | `torch.nn.functional.hardmax` |", "no such name: torch.nn.functional.hardmax"),
        (TABLE + "| softmax | `lawful.functions.hardmax` |", "no such name: lawful.functions.hardmax"),
        (TABLE + "| softmax | `lawful.nothing.softmax` |", "no such name: lawful.nothing.softmax"),
        (TABLE + "| jigsaw | `examples/jigsaw.py` |", None),
        (TABLE + "| a file | `examples/nothing.py` |", "no such name: examples/nothing.py"),
        (TABLE + "| a method | `lawful.laws.metric.nothing` |", "no such name: lawful.laws.metric.nothing"),
        (TABLE + "| softmax | `softmax` |", "neither a name nor planned"),
        (TABLE + "| softmax | |", "two cells"),
        (TABLE + "| softmax | planned |", "unknown planned part"),
        (TABLE + "| softmax | planned: functions |", "unknown planned part: 'functions'"),
        (TABLE + "| $|x|$ | `lawful.laws.metric` |", "two cells"),
        (TABLE + "softmax | `torch.nn.functional.softmax` |", "two cells"),
        (TABLE, "has a row"),
        ("| softmax | `torch.nn.functional.softmax` |", "a table begins with"),
    ],
)
def test_the_checker_can_fail(page, fault):
    found = faults(page)
    assert (found == []) if fault is None else (len(found) == 1 and fault in found[0]), found
