import lawful
from lawful.groups.finite import SymmetricGroup
from lawful.groups.group import distances, left_invariance, rigidity, separation
from lawful.laws import shape, transformed

GROUP = SymmetricGroup(4)
ELEMENT = transformed(lambda x: x.argsort(-1), "b 4")


def status(subject, law, inputs):
    return lawful.check(subject, law, inputs=inputs, cases=50).verdicts[0].status


def steps(g, h):
    """How far the places are apart: kept by composing from the right only."""
    return (g - h).abs().sum(-1)


def test_left_invariance_holds_and_is_refuted():
    law = left_invariance(compose=GROUP.compose)
    assert status(GROUP.distance, law, (ELEMENT, ELEMENT)) == "held"
    assert status(steps, law, (ELEMENT, ELEMENT)) == "refuted"
    assert status(steps, left_invariance(compose=lambda g, h: GROUP.compose(h, g)), (ELEMENT, ELEMENT)) == "held"


def test_separation_holds_and_is_refuted():
    assert status(GROUP.distance, separation(), (ELEMENT, ELEMENT)) == "held"
    assert status(lambda g, h: (GROUP.sign(g) - GROUP.sign(h)).abs(), separation(), (ELEMENT, ELEMENT)) == "refuted"


def test_rigidity_holds_and_is_refuted():
    assert status(GROUP.act, rigidity(), (ELEMENT, shape("b 4"))) == "held"
    assert status(lambda g, x: x * (1 + g), rigidity(), (ELEMENT, shape("b 4"))) == "refuted"


def test_the_claims_are_of_the_groups_distance():
    (claim,) = distances(GROUP, ELEMENT)
    assert claim.target == GROUP.distance


def test_a_distance_that_is_none_is_refuted_and_a_missing_composition_is_an_error():
    assert status(lambda g, h: (g - h).sum(-1), next(distances(GROUP, ELEMENT)).law, (ELEMENT, ELEMENT)) == "refuted"
    found = lawful.check(GROUP.distance, left_invariance(), inputs=(ELEMENT, ELEMENT), cases=5).verdicts[0]
    assert found.status == "error"
    assert "wants compose" in str(found)
