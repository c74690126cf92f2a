"""Every law is documented and exported, and has a map that satisfies it and one that breaks it."""

import importlib
import pkgutil

import pytest

import lawful.laws
import tests.laws
from lawful.checking.targets import laws_by_kind
from lawful.laws import Law

LAWS = {name: value for name, value in vars(lawful.laws).items() if isinstance(value, Law)}
MODULES = [
    importlib.import_module(f"tests.laws.{found.name}")
    for found in pkgutil.iter_modules(tests.laws.__path__)
    if found.name.startswith("test_") and found.name != "test_coverage"
]


def test_all_laws_are_exported():
    assert set(LAWS) <= set(lawful.laws.__all__)
    assert all(isinstance(LAWS[name], Law) and LAWS[name].name == name for name in LAWS)


@pytest.mark.parametrize("name", LAWS)
def test_documentation(name):
    law = LAWS[name]
    assert law.formula
    assert law.summary.endswith(".")
    for heading in ("Satisfied by", "Broken by"):
        assert law.doc_section(heading).endswith("."), heading


@pytest.mark.parametrize("table", ["SATISFIED", "BROKEN"])
def test_every_law_has_an_entry(table):
    rows = [row for module in MODULES for row in getattr(module, table, {}).values()]
    assert set(LAWS) <= {row[0].name for row in rows}


def test_laws_by_kind_lists_each_law_once():
    listed = [name for members in laws_by_kind().values() for name in members]
    assert sorted(listed) == sorted(LAWS)
