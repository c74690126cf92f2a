"""Options of every law: input, output, rtol and waivers; statements, and the methods of a map."""

from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

import lawful
from lawful import mask, probabilities, shape
from lawful.laws import (
    ALL,
    AtMost,
    Draw,
    Equal,
    HasMean,
    Map,
    Occurs,
    Statement,
    agreement,
    batch_independence,
    causality,
    law,
    masked_positions_have_no_influence,
    permutation_invariance,
)

X = shape("b:1..3 t:1..4 2")


@dataclass
class Answer:
    past: Tensor
    whole: Tensor


class Pair(NamedTuple):
    past: Tensor
    whole: Tensor


def past(x):
    return x.cumsum(1)


def whole(x):
    return x - x.mean(1, keepdim=True)


OUTPUTS = {
    "tuple": (lambda x: (past(x), whole(x)), 0, 1),
    "list": (lambda x: [past(x), whole(x)], 0, 1),
    "dict": (lambda x: {"past": past(x), "whole": whole(x)}, "past", "whole"),
    "dataclass": (lambda x: Answer(past(x), whole(x)), "past", "whole"),
    "named tuple": (lambda x: Pair(past(x), whole(x)), "past", "whole"),
    "nested": (lambda x: (None, {"hidden": (past(x), whole(x))}), "1.hidden.0", "1.hidden.1"),
}


@pytest.mark.parametrize(("f", "good", "bad"), OUTPUTS.values(), ids=OUTPUTS)
def test_output_option(f, good, bad, judge):
    assert judge(f, causality(output=good), X, cases=20).status == "held"
    assert judge(f, causality(output=bad), X).status == "refuted"


@pytest.mark.parametrize(("f", "good", "bad"), OUTPUTS.values(), ids=OUTPUTS)
def test_unknown_output(f, good, bad, judge):
    verdict = judge(f, causality(output="zzz"), X)
    assert (verdict.status, verdict.usage_error) == ("error", True)
    assert f"Outputs: {good}, {bad}" in verdict.reason


class Decoder(nn.Module):
    """Causal in x; sees all of the memory."""

    def forward(self, x, memory):
        return past(x) + whole(memory)


POSITIONAL, KEYWORD = (X, X), {"x": X, "memory": X}


@pytest.mark.parametrize("inputs", [POSITIONAL, KEYWORD], ids=["positional", "keyword"])
@pytest.mark.parametrize(
    ("named", "status"),
    [(None, "refuted"), ("x", "held"), (1, "refuted"), ("memory", "refuted"), (("x", "memory"), "refuted")],
    ids=str,
)
def test_input_option(inputs, named, status, judge):
    assert judge(Decoder(), causality(input=named), inputs, cases=20).status == status


@pytest.mark.parametrize("inputs", [POSITIONAL, KEYWORD], ids=["positional", "keyword"])
@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ("memry", "no input 'memry': did you mean memory?"),
        ("zzz", "no input 'zzz'"),
        (2, "no input 2"),
    ],
)
def test_unknown_input(inputs, named, reason, judge):
    verdict = judge(Decoder(), causality(input=named), inputs)
    assert (verdict.status, verdict.usage_error) == ("error", True)
    assert verdict.reason.startswith(reason)
    assert verdict.reason.endswith("Inputs: x, memory")


def test_messages_without_a_suggestion(judge):
    verdict = judge(Decoder(), causality(input="zzz"), POSITIONAL)
    assert verdict.reason == "no input 'zzz'. Inputs: x, memory"
    verdict = judge(past, causality(output="zzz"), X)
    assert verdict.reason == "the map has no output 'zzz'. Outputs: a single tensor"
    with pytest.raises(TypeError, match=r"causality has no parameter zzz\. Parameters: time, input, output, rtol"):
        causality(zzz=1)


def test_input_order(judge):
    law = masked_positions_have_no_influence(input=("x", "m"))
    assert judge(lambda m, x: x * m[..., None], law, (mask("b t"), X)).status == "held"
    assert judge(lambda m, x: whole(x), law, (mask("b t"), X)).status == "refuted"


def test_a_law_about_two_inputs_needs_two(judge):
    verdict = judge(lambda x, m: x, masked_positions_have_no_influence(input="x"), (X, mask("b t")))
    assert (verdict.status, verdict.usage_error) == ("error", True)
    assert verdict.reason == "masked_positions_have_no_influence needs 2 inputs, but input='x' names 1"


def test_other_inputs_do_not_change(judge):
    def mixes_the_second(x, y):
        return x + y.sum()

    other = shape("c 4")
    assert judge(mixes_the_second, batch_independence(), (X, other)).status == "held"
    assert judge(mixes_the_second, batch_independence(input="x"), (X, X)).status == "held"
    assert judge(mixes_the_second, batch_independence(input=ALL), (X, other)).status == "refuted"


def test_rtol(judge):
    def roughly(x):
        return 1.001 * x

    statuses = {rtol: judge(roughly, agreement(other=torch.clone, rtol=rtol), X).status for rtol in (5e-4, 2e-3)}
    assert statuses == {5e-4: "refuted", 2e-3: "held"}


def test_rtol_in_the_verdict(judge):
    verdict = judge(torch.relu, agreement(other=torch.clamp_min, rtol=0.5), X)
    assert verdict.rtol == 0.5
    assert "rtol=0.5" in verdict.law


@pytest.mark.parametrize("rtol", [-0.1, 1.0, float("nan")])
def test_invalid_rtol(rtol):
    with pytest.raises(ValueError, match=r"rtol must be in \[0, 1\)"):
        causality(rtol=rtol)


def test_a_waived_law_is_not_checked(judge):
    def never_called(x):
        raise AssertionError

    verdict = judge(never_called, causality().waived("it is bidirectional"), X)
    assert (verdict.status, verdict.reason) == ("waived", "it is bidirectional")
    assert not verdict.failed


def test_waived_needs_a_reason():
    with pytest.raises(ValueError, match="waived needs a reason"):
        causality().waived(" ")


def test_unknown_parameter():
    with pytest.raises(TypeError, match=r"causality has no parameter tme: did you mean time\?"):
        causality(tme=1)


def test_parameters_can_be_set_again():
    first = causality(time=2)
    assert first(input="x").parameters == {"time": 2}
    assert first.input is None


def test_str_and_docstring():
    assert str(causality()) == "causality(time=1)"
    assert str(causality(time=2, input="x", output=1)) == "causality(time=2, input='x', output=1)"
    assert permutation_invariance().doc_section("Satisfied by").startswith("sum, mean and maximum")
    assert permutation_invariance().summary == "Permuting the input along an axis changes nothing."


def test_several_laws():
    report = lawful.check(past, causality(), permutation_invariance(), inputs=X, cases=20)
    assert [v.status for v in report] == ["held", "refuted"]


@pytest.mark.parametrize(("output", "reason"), [(None, "got None"), ("text", "a str without tensors")])
def test_an_output_of_no_tensors(output, reason, judge):
    verdict = judge(lambda x: output, causality(), X)
    assert verdict.status == "error"
    assert reason in verdict.reason


@law("some output is above 1, and some below -1")
def spreads(f: Map, x: Tensor) -> Statement:
    y = f(x)
    return Occurs(["above 1", "below -1"], [bool((y > 1).any()), bool((y < -1).any())])


@pytest.mark.parametrize(
    ("f", "reason"),
    [(torch.clone, ""), (torch.relu, "below -1"), (torch.tanh, "above 1, below -1")],
    ids=["clone", "relu", "tanh"],
)
def test_occurs(f, reason, judge):
    verdict = judge(f, spreads, X, cases=20)
    assert verdict.status == ("refuted" if reason else "held")
    assert verdict.reason == (f"not observed in {verdict.cases} cases: {reason}" if reason else "")
    assert verdict.counterexample is None


@law("E f(z) = 0, z ~ N(0, 1)", cases=2)
def centered(f: Map, x: Tensor, *, draw: Draw) -> Statement:
    return HasMean(f(draw.normal(draw.samples)), torch.zeros(()))


@pytest.mark.parametrize(("f", "status"), [(torch.sin, "held"), (torch.square, "refuted")], ids=["sin", "square"])
def test_has_mean(f, status, judge):
    verdict = judge(f, centered, X)
    assert verdict.status == status
    if status == "refuted":
        assert verdict.counterexample.kind == "wrong mean"
        assert verdict.counterexample.left == pytest.approx(1.0, abs=0.1)


@law("|f(x)| ≤ 10 |x|")
def observed(f: Map, x: Tensor, *, draw: Draw) -> Statement:
    y = f(x)
    draw.observe("|f(x)|", float(y.abs().max()))
    return AtMost(y.abs(), 10 * x.abs())


def test_observe(judge):
    (note,) = judge(torch.tanh, observed, X).notes
    assert note == "largest |f(x)|: 1"


@law("probabilities are what they are")
def are_probabilities(f: Map, p: Tensor) -> Statement:
    total = f(p).sum(-1)
    return Equal(total, torch.ones_like(total), exercised=bool((p >= 0).all()))


def test_probabilities_add_up_to_one(judge):
    assert judge(torch.clone, are_probabilities, probabilities("b t 5"), cases=20).status == "held"
    assert judge(torch.clone, are_probabilities, shape("b t 5"), cases=20).status == "refuted"


def test_like_draws_probabilities(judge):
    @law("fresh p adds up to one")
    def fresh(f: Map, p: Tensor, *, draw: Draw) -> Statement:
        total = f(draw.like(p)).sum(-1)
        return Equal(total, torch.ones_like(total), exercised=True)

    assert judge(torch.clone, fresh, probabilities("b 5"), cases=20).status == "held"


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = 0.0

    def forward(self, x):
        return x + self.start


@law("f after f.start = 1 is f + 1")
def shifted(f: Map, x: Tensor) -> Statement:
    return Equal(f.modified(lambda module: setattr(module, "start", 1.0))(x), f(x) + 1)


@law("f through a wrapper is 2 f")
def doubled(f: Map, x: Tensor) -> Statement:
    return Equal(f.wrapped(lambda function: lambda *a: 2 * function(*a))(x), 2 * f(x), exercised=True)


@law("f in float32 is f within 1e-6", rtol=1e-6)
def cast(f: Map, x: Tensor) -> Statement:
    return Equal(f.cast(torch.float32)(x).to(x), f(x))


@pytest.mark.parametrize("stated", [shifted, doubled, cast], ids=str)
def test_modified_wrapped_and_cast(stated, judge):
    module = Counter()
    assert judge(module, stated, X, cases=20).status == "held"
    assert module.start == 0.0


@law("two tensors that are drawn one after another are not the same")
def drawn_twice(f: Map, x: Tensor, *, draw: Draw) -> Statement:
    a, b = draw.normal(*x.shape), draw.normal(*x.shape)
    return Equal((a == b).all().double(), torch.zeros((), dtype=torch.float64), exercised=True)


def test_two_draws_differ(judge):
    assert judge(torch.relu, drawn_twice, shape("b 3")).status == "held"
