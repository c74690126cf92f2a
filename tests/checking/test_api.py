"""The lines that a PyTorch user types first."""

import pytest
import torch
from torch import Tensor, nn

import lawful
from lawful.groups import SO3
from lawful.laws import batch_independence, causality, equivariance, invariance
from lawful.testing import assert_lawful


class Future(nn.Module):
    """Adds the next position; masked positions count as zero."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x if mask is None else x * mask.unsqueeze(-1)
        return x + x.roll(-1, dims=1)


@pytest.fixture(scope="module")
def report():
    return lawful.check(Future(), causality(time=1), batch_independence(), inputs=lawful.shape("b t 4"), cases=30)


def test_report(report):
    assert not report.passed
    assert [v.law for v in report.failures] == ["causality(time=1)"]
    assert len(report) == 2
    assert "causality(time=1)" in str(report)
    with pytest.raises(lawful.LawRefuted, match="causality"):
        report.raise_for_refuted()


def test_verdict(report):
    verdict = report["causality"]
    assert verdict.status == "refuted"
    assert verdict.counterexample.inputs[0].shape == (1, 2, 4)
    assert verdict.counterexample.left != verdict.counterexample.right
    assert verdict.seconds > 0
    assert "import torch" in verdict.script()
    assert report["batch_independence(batch=0)"].status == "held"


def test_unknown_and_ambiguous_names():
    report = lawful.check(nn.Identity(), causality(time=1), causality(time=2), inputs=lawful.shape("b t 4"), cases=5)
    with pytest.raises(KeyError, match=r"'locality' matches 0 verdicts of: causality\(time=1\), causality\(time=2\)"):
        report["locality"]
    with pytest.raises(KeyError, match="'causality' matches 2 verdicts"):
        report["causality"]
    assert report["causality(time=2)"].law == "causality(time=2)"


@pytest.mark.parametrize(
    "inputs",
    [torch.randn(2, 5, 4), {"x": lawful.shape("b t 4"), "mask": lawful.mask("b t")}],
    ids=["example", "keywords"],
)
def test_inputs(inputs):
    assert lawful.check(Future(), causality(time=1), inputs=inputs, cases=30)["causality"].status == "refuted"
    assert lawful.check(Future(), batch_independence(), inputs=inputs, cases=30).passed


def test_groups():
    inputs = lawful.shape("n 3")
    assert lawful.check(lambda x: 2 * x, equivariance(group=SO3(), axis=-1), inputs=inputs, cases=20).passed
    assert lawful.check(lambda x: x.norm(dim=-1), invariance(group=SO3()), inputs=inputs, cases=20).passed
    assert not lawful.check(torch.relu, equivariance(group=SO3()), inputs=inputs, cases=20).passed


def test_assert_lawful():
    assert_lawful(nn.Identity(), causality(time=1), inputs=lawful.shape("b t 4"), cases=5)
    with pytest.raises(lawful.LawRefuted, match="causality"):
        assert_lawful(Future(), causality(time=1), inputs=lawful.shape("b t 4"), cases=30)


def test_discover(few_laws):
    found = lawful.discover(nn.Identity(), inputs=lawful.shape("b t 4"), cases=5)
    assert found.held
    assert "def claims()" in found.claims


def test_script_uses_the_current_module(report):
    """The script is built on request, and leaves the module and the random state unchanged."""
    module = nn.Sequential(nn.Linear(4, 4), Future())
    verdict = lawful.check(module, causality(time=1), inputs=lawful.shape("b t 4"), cases=30)["causality"]
    weights, state = module[0].weight.clone(), torch.get_rng_state()
    assert "load_state_dict" in verdict.script()
    assert torch.equal(weights, module[0].weight)
    assert torch.equal(state, torch.get_rng_state())
    assert module.training
