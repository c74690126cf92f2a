"""The tests that every table of maps goes through: KEPT and BROKEN of the file that imports them."""


def test_kept(kept, judge):
    law, inputs, f = kept
    assert judge(f, law, inputs, cases=20).status == "held"


def test_broken(broken, judge, shows):
    (law, inputs, f), scripted = broken
    verdict = judge(f, law, inputs)
    assert verdict.status == "refuted"
    assert not scripted or shows(verdict)
