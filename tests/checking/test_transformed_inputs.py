"""Inputs that are functions of real numbers."""

import pytest
import torch

import lawful
from lawful.laws import Equal, law


def positive(x):
    return x.abs() + 1


@law("f(x) = f(y) for x, y of the kind")
def constancy(f, x, *, draw):
    return Equal(f(x), f(draw.like(x)))


@law("f does not depend on what is replaced")
def last_entry_ignored(f, x, *, draw):
    return Equal(f(x), f(draw.replace(x, lambda y: torch.arange(y.shape[-1]) == y.shape[-1] - 1)))


def test_transformed_inputs():
    seen = []

    def watch(x):
        seen.append(x)
        return torch.zeros(())

    assert lawful.check(watch, constancy(), inputs=lawful.transformed(positive, "b 3"), cases=20).passed
    assert min(float(x.min()) for x in seen) >= 1


def test_counterexamples_are_in_the_domain_and_simple():
    (verdict,) = lawful.check(lambda x: x.sum(), constancy(), inputs=lawful.transformed(positive, "b 3"))
    assert verdict.status == "refuted"
    assert "[[1, 1, 1]]" in str(verdict)


def test_entries_of_a_transformed_input_can_be_replaced():
    (verdict,) = lawful.check(
        lambda x: x[..., :-1].sum(), last_entry_ignored(), inputs=lawful.transformed(positive, "b 3")
    )
    assert verdict.status == "held"


KINDS = {
    "integers": lambda x: x.argsort(-1),
    "complex": lambda x: torch.complex(x, x),
    "other shape": lambda x: x[..., :1],
}


@pytest.mark.parametrize("function", KINDS.values(), ids=KINDS)
def test_other_dtypes_and_shapes(function):
    (verdict,) = lawful.check(lambda x: x * 0, constancy(), inputs=lawful.transformed(function, "b 3"), cases=10)
    assert verdict.status == "held"


def test_to_python():
    assert (lawful.transformed(positive, "b n:2,3")).to_python() == 'transformed(positive, "b n:2,3")'
