"""Every law says what it is, who keeps it and who breaks it, and is shown to be kept and to be broken."""

import importlib
import pkgutil

import pytest

import lawful.laws
import tests.laws
from lawful.checking.targets import laws_by_kind
from lawful.laws import Law

LAWS = {name: value for name, value in vars(lawful.laws).items() if isinstance(value, Law)}
TABLES = [
    importlib.import_module(f"tests.laws.{found.name}")
    for found in pkgutil.iter_modules(tests.laws.__path__)
    if found.name.startswith("test_") and found.name != "test_catalogue"
]


def shown(table):
    """The names of the laws that stand in the tables of one name, each with its parts."""
    rows = [row for module in TABLES for row in getattr(module, table, {}).values()]
    return {row[0].name for row in rows}


def test_all_laws_are_exported():
    assert set(LAWS) <= set(lawful.laws.__all__)
    assert all(isinstance(LAWS[name], Law) and LAWS[name].name == name for name in LAWS)


@pytest.mark.parametrize("name", LAWS)
def test_a_law_says_what_it_is(name):
    law = LAWS[name]
    assert law.formula
    assert law.summary.endswith(".")
    for heading in ("Satisfied by", "Broken by"):
        assert law.doc_section(heading).endswith("."), heading


@pytest.mark.parametrize("table", ["KEPT", "BROKEN"])
def test_each_law_is_kept_and_broken(table):
    assert set(LAWS) <= shown(table)


def test_each_law_is_listed_once_under_its_own_file():
    listed = [name for members in laws_by_kind().values() for name in members]
    assert sorted(listed) == sorted(LAWS)
