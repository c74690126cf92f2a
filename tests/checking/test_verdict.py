"""Verdicts and reports: text, exceptions, exit codes, JSON and scripts."""

import json
import math

import pytest
import torch
from torch import nn

import lawful
from lawful.checking._compare import judge, judge_samples
from lawful.checking.verdict import Report, Verdict
from lawful.laws import AtMost, BitwiseEqual, Equal, Finite, FollowsCDF, causality, law, linearity

INPUTS = lawful.shape("b t 4")


def leak(x):
    return x.flip(1)


@pytest.fixture(scope="module")
def report():
    return lawful.check(leak, causality(time=1), linearity(), inputs=INPUTS)


def test_text_of_a_refutation(report):
    text = str(report)
    found = report.verdicts[0].counterexample
    for part in (
        "causality(time=1)",
        report.verdicts[0].formula,
        "[1, 2, 4]",
        "t = 0",
        f"output{list(found.index)}",
        "× the noise floor",
        "residual float64",
        "float32",
        "of 100",
        "1 held, 1 refuted",
    ):
        assert part in text


def test_repr_and_html(report):
    failed = report.failures[0]
    assert repr(report).startswith("<Report: ")
    assert failed.law in repr(report)
    assert repr(failed).startswith(f"<Verdict refuted: {failed.law} of {failed.target}")
    assert "<table>" in report._repr_html_()
    assert f"<code>{failed.law}</code>" in failed._repr_html_()
    shown = Verdict("refuted", "law(x='<b>')", "1 < 2", "<script>", reason="a & b")._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "<b>'" not in shown
    assert "a &amp; b" in shown
    assert "1 &lt; 2" in shown


def test_values_are_simplified(report):
    found = report.verdicts[0].counterexample
    assert found.inputs[0].values == [[[0.0] * 4] * 2]
    changed = [x for row in found.drawn[0].values[0] for x in row if not math.isnan(x)]
    assert len(changed) == 1


def test_raise_for_refuted(report):
    with pytest.raises(lawful.LawRefuted, match="causality"):
        report.raise_for_refuted()
    lawful.check(leak, linearity(), inputs=INPUTS).raise_for_refuted()


def test_an_error_fails_like_a_refutation():
    def raises(x):
        raise KeyError("no")

    found = lawful.check(raises, linearity(), inputs=INPUTS)
    assert found.exit_code == 1
    with pytest.raises(lawful.LawRefuted, match="KeyError"):
        found.raise_for_refuted()


def test_json_round_trip(report):
    for verdict in report:
        again = Verdict.from_json(json.loads(json.dumps(verdict.to_json())))
        assert again.to_json() == verdict.to_json()
        assert str(again) == str(verdict)
    json.dumps(report.to_json(), allow_nan=False)


def test_exit_codes():
    def graded(*grades, usage=False):
        return Report(tuple(Verdict(g, "law", "f", "t", usage_error=usage) for g in grades)).exit_code

    assert graded("held", "vacuous", "waived", "inapplicable") == 0
    assert graded("held", "refuted") == graded("held", "error") == 1
    assert graded("error", usage=True) == 4
    assert graded() == graded("vacuous", "inapplicable") == 5


def test_script_needs_a_refutation(report):
    with pytest.raises(ValueError, match="no script for linearity"):
        report.verdicts[1].script()


def test_script_stores_larger_tensors_beside_it(tmp_path):
    verdict = lawful.check(nn.Linear(16, 16), linearity(), inputs=lawful.shape("b 16")).verdicts[0]
    path = tmp_path / "bias.py"
    text = verdict.script(path)
    assert path.with_suffix(".safetensors").exists()
    assert len(path.read_text()) < len(text)
    assert "load_file" not in text


def x(*values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        (Equal(x(1.0), x(1.0 + 1e-15)), "held"),
        (Equal(x(1.0), x(1.0 + 1e-9)), "differs"),
        (Equal(x(1e-30), x(2e-30)), "differs"),
        (Equal(x(1e30), x(1e30 * (1 + 1e-15))), "held"),
        (Equal(x(0.0), x(0.0)), "held"),
        (Equal(x(NAN), x(NAN)), "not finite"),
        (Equal(x(INF), x(INF)), "not finite"),
        (Equal(x(1.0, NAN), x(1.0, 2.0), where=torch.tensor([True, False])), "held"),
        (Equal(x(1.0), x(2.0), atol=1.5), "held"),
        (Equal(x(1.0), x(1.0, 2.0)), "shapes differ"),
        (Equal((x(1.0), x(1.0)), (x(1.0), x(3.0))), "differs"),
        (Equal((x(1.0),), (x(1.0), x(3.0))), "shapes differ"),
        (Equal(x(1, 2, dtype=torch.int64), x(1, 3, dtype=torch.int64)), "differs"),
        (Equal(torch.tensor([1 + 1j]), torch.tensor([1 + 2j])), "differs"),
        (AtMost(x(1.0), x(1.0)), "held"),
        (AtMost(x(1.0), x(0.5)), "exceeds"),
        (AtMost(x(NAN), x(0.5)), "not finite"),
        (Finite(x(1.0)), "held"),
        (Finite((x(1.0), x(INF))), "not finite"),
        (BitwiseEqual(x(1.0, NAN), x(1.0, NAN)), "held"),
        (BitwiseEqual(x(1.0), x(1.0 + 3e-16)), "changed"),
        (BitwiseEqual(x(1.0), x(1.0, dtype=torch.float32)), "changed"),
    ],
)
def test_statements(statement, kind):
    assert judge(statement, torch.float64).kind == kind


def test_distribution_of_samples():
    uniform = torch.rand(5000, generator=torch.Generator().manual_seed(0))
    assert not judge_samples(FollowsCDF(uniform)).failed
    assert judge_samples(FollowsCDF(uniform.square())).failed
    assert not judge_samples(FollowsCDF(uniform.square(), cdf=torch.sqrt)).failed
    assert judge_samples(FollowsCDF(torch.full((10,), NAN))).kind == "not finite"


def test_rtol_is_relative():
    def nearly(x):
        return x + 1e-4 * x.square() / (1 + x.abs())

    def status(rtol):
        return lawful.check(nearly, linearity(rtol=rtol), inputs=lawful.shape("b")).verdicts[0]

    assert status(1e-2).status == "held"
    assert "rtol=0.01" in str(status(1e-2))
    assert status(1e-9).status == "refuted"


def test_a_zero_output_beside_others():
    @law("the mean is 0 and the mean square 1")
    def standard(f, x):
        mean, square = f(x).mean(-1), f(x).square().mean(-1)
        return Equal((mean, square), (torch.zeros_like(mean), torch.ones_like(square)), exercised=True)

    def standardized(x):
        return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True, correction=0)

    uneven = lawful.transformed(lambda x: x.tanh() + torch.arange(x.shape[-1]), "b n:3..9")
    (verdict,) = lawful.check(standardized, standard(), inputs=uneven, cases=30)
    assert verdict.status == "held"
