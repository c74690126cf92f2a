"""Tests that run every entry of the tables SATISFIED and BROKEN of the file that imports them."""


def test_satisfied(satisfied, judge):
    law, inputs, f = satisfied
    verdict = judge(f, law, inputs, cases=12)
    assert verdict.status == "held", verdict


def test_broken(broken, judge, script_differs):
    (law, inputs, f), has_script = broken
    verdict = judge(f, law, inputs)
    assert verdict.status == "refuted", verdict
    assert not has_script or script_differs(verdict), verdict
