"""Every claim of every file of lawful."""

import importlib

import pytest

from lawful.checking.check import judge_law, seeded
from lawful.checking.process.targets import claims_in

CLAIMS = [
    pytest.param(claim, id=f"{claim.label}-{claim.law.name}")
    for _, function in claims_in(importlib.import_module("lawful"))
    for claim in seeded(function())
]


@pytest.mark.parametrize("claim", CLAIMS)
def test_claim_holds(claim):
    verdict = judge_law(claim.law, claim.subject, claim.inputs, claim.label)
    assert verdict.grade in ("held", "waived"), verdict


def test_there_are_claims():
    assert CLAIMS
