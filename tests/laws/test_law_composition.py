"""Combined laws, exclusions, waivers and laws about one output."""

import re
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

import lawful
from lawful import shape
from lawful.laws import (
    all_of,
    batch_independence,
    boundedness,
    causality,
    gradient,
    involution,
    kink_at,
    no_mutation,
    permutation_equivariance,
    permutation_invariance,
    ties,
)
from tests.laws.drivers import test_broken, test_satisfied  # noqa: F401

torch.manual_seed(0)

X = shape("b t 4")


def past(x):
    return x.cumsum(1)


def whole(x):
    return x - x.mean(1, keepdim=True)


class Answer(NamedTuple):
    logits: Tensor
    pooled: Tensor


class Decoder(nn.Module):
    """The logits are causal; the pooled output sees everything."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return Answer(logits=past(self.layer(x)), pooled=whole(x))


def route(x):
    """Routes each token by the larger of two features; jumps at ties."""
    return torch.where(x[..., :1] > x[..., 1:2], x.exp(), -x)


def route_shuffled(x):
    """Sorts the tokens before routing: not equivariant even away from ties."""
    return route(x.sort(dim=1).values)


LAYER = all_of(causality(), batch_independence(), no_mutation(), name="decoder_layer")
SEPARATE = all_of(causality(), batch_independence())

SATISFIED = {
    "all: each part": (SEPARATE, X, past),
    "all: with a name": (LAYER, X, past),
    "all: within another": (all_of(LAYER, gradient()), X, past),
    "all: a part waived": (all_of(causality().waived("it looks ahead"), batch_independence()), X, whole),
    "output: by name": (causality().on_output("logits"), X, Decoder()),
    "output: by number": (causality().on_output(1), X, lambda x: (whole(x), past(x))),
    "output: of all parts": (SEPARATE.on_output("logits"), X, Decoder()),
    "ties: a choice": (permutation_equivariance().excluding(ties), X, route),
    "kinks: ReLU": (gradient().excluding(kink_at(0.0)), X, torch.relu),
    "kinks: another place": (gradient().excluding(kink_at(1.0), kink_at(-1.0)), X, nn.functional.hardtanh),
    "kinks and ties": (all_of(gradient(), causality()).excluding(ties, kink_at(0.0)), X, torch.relu),
    "parameters for all parts": (all_of(causality(), permutation_equivariance())(input="x"), X, lambda x: 2 * x),
}
BROKEN = {
    "all: the first part": (SEPARATE, X, whole),
    "all: the last part": (all_of(batch_independence(), causality()), X, whole),
    "all: within another": (all_of(gradient(), LAYER), X, whole),
    "all: but for a part waived": (all_of(causality(), batch_independence().waived("it is one sample")), X, whole),
    "output: by name": (causality().on_output("pooled"), X, Decoder()),
    "output: of all parts": (SEPARATE.on_output("pooled"), X, Decoder()),
    "ties: wrong away from them too": (permutation_equivariance().excluding(ties), X, route_shuffled),
    "kinks: wrong away from them too": (gradient().excluding(kink_at(0.0)), X, lambda x: x * x.detach()),
}


def test_str_of_a_combined_law():
    assert str(SEPARATE) == "all_of(causality(time=1), batch_independence(batch=0))"
    assert LAYER.name == "decoder_layer"
    assert SEPARATE.formula == f"{causality.formula}; {batch_independence.formula}"
    assert "causality(time=1)" in SEPARATE.summary


def test_the_failing_part_is_named(judge):
    verdict = judge(whole, LAYER, X)
    assert verdict.law.startswith("decoder_layer(")
    assert verdict.formula == causality.formula
    assert verdict.reason == "causality(time=1)"
    assert "causality(time=1)" in str(verdict)


def test_the_first_part_that_breaks_is_reported(judge):
    verdict = judge(lambda x: whole(x) - x.mean(), all_of(batch_independence(), causality()), X)
    assert (verdict.status, verdict.reason) == ("refuted", "batch_independence(batch=0)")


def test_number_of_cases(judge):
    assert judge(past, SEPARATE, X, cases=10).cases == 20


def test_script_of_a_combined_law(judge, script_differs):
    assert script_differs(judge(whole, SEPARATE, X))


def test_an_inapplicable_part(judge):
    verdict = judge(lambda x: x.sum(1), all_of(batch_independence(), causality()), shape("b:1..3 t:5..7 4"), cases=5)
    assert verdict.status == "inapplicable"
    assert verdict.reason.startswith("causality(time=1): the output and the input have different sizes along axis 1")


def test_a_usage_error_in_a_part(judge):
    verdict = judge(past, all_of(batch_independence(), causality(time=3)), X)
    assert (verdict.status, verdict.usage_error) == ("error", True)
    assert verdict.reason.startswith("causality(time=3): time=3 is out of range")


def test_all_of_needs_a_law():
    with pytest.raises(ValueError, match="all_of needs at least one law"):
        all_of()


def test_parameters_of_parts(judge):
    law = all_of(causality(), batch_independence())(time=2)
    assert [part.parameters for part in law.parts] == [{"time": 2}, {}]
    with pytest.raises(TypeError, match=r"all_of has no parameter tme: did you mean time\?"):
        SEPARATE(tme=1)


def test_a_waived_combined_law_is_not_checked(judge):
    verdict = judge(whole, LAYER.waived("it is bidirectional"), X)
    assert (verdict.status, verdict.reason) == ("waived", "it is bidirectional")


def test_all_parts_waived(judge):
    law = all_of(causality().waived("it looks ahead"), batch_independence().waived("it is one sample"))
    assert judge(whole, law, X).status == "waived"


@pytest.mark.parametrize(
    ("law", "said"),
    [
        (gradient().excluding(kink_at(0.0)), "close to kink_at(0)"),
        (gradient().excluding(ties), "close to ties"),
        (gradient().excluding(ties, kink_at(0.0)), "close to ties, kink_at(0)"),
        (all_of(gradient(), causality()).excluding(ties), "close to ties"),
    ],
    ids=["kink", "ties", "both", "all_of"],
)
def test_excluded_cases_are_counted(law, said, judge):
    notes = [note for note in judge(torch.relu, law, X).notes if "excluded" in note]
    assert notes
    for note in notes:
        assert re.search(rf"[1-9]\d* cases excluded: {re.escape(said)}$", note)


def test_str_with_exclusions():
    assert str(gradient().excluding(kink_at(0.5))) == "gradient(rtol=1e-06).excluding(kink_at(0.5))"


def test_excluding_everything_is_vacuous(judge):
    verdict = judge(torch.relu, causality().excluding(kink_at(0.0), radius=1e9), X, cases=11)
    assert verdict.status == "vacuous"


def test_invalid_radius():
    with pytest.raises(ValueError, match="radius must be positive, got 0"):
        gradient().excluding(ties, radius=0)


def test_narrowed_and_combined(judge):
    """Two narrowed laws in one, of two outputs."""
    law = all_of(
        causality().on_output("logits").excluding(ties),
        permutation_equivariance().on_output("pooled"),
        boundedness(low=0.0).waived("it is centered"),
    )
    assert judge(Decoder(), law, X, cases=20).status == "held"
    assert judge(Decoder(), law, X, cases=20).law.startswith("all_of(causality(time=1, output='logits')")


def test_combined_law_agrees_with_its_parts():
    report = lawful.check(whole, causality(), batch_independence(), SEPARATE, inputs=X, cases=20)
    assert [v.status for v in report] == ["refuted", "held", "refuted"]
    assert str(report.verdicts[0].counterexample) == str(report.verdicts[2].counterexample)


def test_unknown_output(judge):
    verdict = judge(Decoder(), SEPARATE.on_output("logit"), X)
    assert (verdict.status, verdict.usage_error) == ("error", True)
    assert "the map has no output 'logit': did you mean logits?" in verdict.reason


def test_a_law_of_its_own(judge):
    """Distances are functions of the law's inputs."""

    def sum_near_zero(x):
        return x.sum(-1).abs()

    law = permutation_invariance().excluding(sum_near_zero)
    verdict = judge(lambda x: x.sum(-1).sign().sum(1), law, X, cases=20)
    assert verdict.status == "held"
    assert any("close to sum_near_zero" in note for note in verdict.notes)


def test_a_waived_part_is_noted(judge):
    law = all_of(involution().waived("known"), batch_independence())
    verdict = judge(torch.neg, law, shape("b 3"), cases=5)
    assert verdict.status == "held"
    assert verdict.notes == ("involution(): waived: known",)


def test_str_with_parameters():
    whole = all_of(causality(), permutation_equivariance(), name="whole")
    assert str(whole(axis=2, time=2)) == "whole(time=2, axis=2)"
