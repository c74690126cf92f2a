"""Every broken layer of the gallery is refuted with a small counterexample and a script; every fixed layer holds."""

import importlib
import math
import pkgutil
import re
from pathlib import Path

import pytest
import torch

import lawful
import tests.gallery as gallery
from tests.scripts import run_script

FAULTS = sorted(found.name for found in pkgutil.iter_modules(gallery.__path__) if not found.name.startswith("test_"))
ROOT = Path(__file__).parents[2]


def load(name):
    return importlib.import_module(f"tests.gallery.{name}")


def judge(fault, layer, cases=100):
    torch.manual_seed(0)
    return lawful.check(layer(), fault.law, inputs=fault.inputs, cases=cases).verdicts[0]


@pytest.mark.parametrize("name", FAULTS)
def test_broken_is_refuted(name, tmp_path):
    fault = load(name)
    verdict = judge(fault, fault.Broken)
    assert verdict.status == "refuted", verdict
    if verdict.counterexample is None:  # an event that never occurred
        assert not fault.max_sizes
        return
    for letter, limit in fault.max_sizes.items():
        assert size(verdict, fault.inputs, letter) <= limit, verdict
    left, right = run_script(verdict, tmp_path)
    assert not math.isclose(left, right, rel_tol=1e-9), verdict.script()


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
def test_scripts_are_standalone(name, tmp_path):
    verdict = judge(load(name), load(name).Broken)
    if verdict.counterexample is not None:
        left, right = run_script(verdict, tmp_path, in_subprocess=True)
        assert not math.isclose(left, right, rel_tol=1e-9), verdict.script()


@pytest.mark.parametrize("name", FAULTS)
def test_fixed_holds(name):
    fault = load(name)
    verdict = judge(fault, fault.Fixed, cases=30)
    assert verdict.status == "held", verdict


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
def test_fixed_holds_in_many_cases(name):
    fault = load(name)
    verdict = judge(fault, fault.Fixed, cases=1000)
    assert verdict.status == "held", verdict


def test_readme_lists_every_fault():
    assert len(FAULTS) >= 25
    table = (Path(__file__).parent / "README.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in table if line.startswith("| [")] == [row(name) for name in FAULTS]


def row(name):
    """The row of a fault in the table."""
    fault = load(name)
    mechanism, thread = re.fullmatch(r"(.+) \((.+)\)\.", fault.__doc__).groups()
    law = ", ".join(f"`{part.name}`" for part in fault.law.parts or (fault.law,))
    max_sizes = ", ".join(f"{letter} = {limit}" for letter, limit in fault.max_sizes.items())
    return f"| [{name}]({name}.py) | {mechanism} | {thread} | {law} | {max_sizes} |"


def size(verdict, inputs, letter):
    """The size of a letter in the counterexample; for inputs from a function, the choice with that name."""
    if callable(inputs):
        return verdict.counterexample.choices[letter]
    described = inputs.values() if isinstance(inputs, dict) else inputs if isinstance(inputs, tuple) else [inputs]
    for value, axes in zip(verdict.counterexample.inputs, described, strict=True):
        for n, axis in zip(value.shape, axes.axes, strict=True):
            if axis.letter == letter:
                return n
    raise LookupError(letter)
