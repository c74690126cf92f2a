"""A law that names an axis is about all inputs that have it, and the report names the inputs that were varied."""

import json

import pytest
import torch
from torch import nn

from lawful import check, mask, shape, tokens
from lawful.checking.check import SearchBudget, judge_law
from lawful.cli import main
from lawful.laws import (
    Axis,
    Equal,
    batch_independence,
    causality,
    chunk_consistency,
    gradient_accumulation,
    law,
    linearity,
    locality,
    masked_positions_have_no_influence,
    permutation_equivariance,
    permutation_invariance,
    reversal_equivariance,
    translation_equivariance,
)
from tests.test_cli import in_process  # noqa: F401

MASKED = shape("b t 4"), mask("b t")
EXAMPLES = torch.linspace(-1, 1, 60).view(3, 5, 4), torch.ones(3, 5) > 0


def judge(target, law, inputs, cases=40, seed=0):
    return judge_law(law, target, inputs, "f", SearchBudget(cases, seed, shrinks=0))


def apply_mask(x, valid):
    return x * valid[..., None]


def mix_masks(x, valid):
    """The mask of one sample hides positions of all samples."""
    return x * valid.all(0)[..., None]


def read_future_mask(x, valid):
    return x.cumsum(1) * valid.all(1)[:, None, None]


def sequence_first(x, valid):
    """x has shape (t, b, d), the mask (b, t), as in torch.nn.MultiheadAttention."""
    return x * valid.T[..., None]


def sequence_first_mixed(x, valid):
    return x * valid.all(0)[:, None, None]


def graph_layer(x, edges):
    return edges.to(x) @ x


def attend(q, context):
    return (q @ context.mT).softmax(-1) @ context


HELD = {
    "a mask": (apply_mask, MASKED, batch_independence(), ("x", "valid")),
    "a mask and time": (apply_mask, MASKED, causality(time=1), ("x", "valid")),
    "a mask and its neighbors": (apply_mask, MASKED, locality(radius=0, axis=1), ("x", "valid")),
    "a permuted mask": (apply_mask, MASKED, permutation_equivariance(axis=1), ("x", "valid")),
    "a permuted mask under a sum": (
        lambda x, valid: apply_mask(x, valid).sum(1),
        MASKED,
        permutation_invariance(axis=1),
        ("x", "valid"),
    ),
    "a reversed mask": (apply_mask, MASKED, reversal_equivariance(axis=1), ("x", "valid")),
    "a shifted mask": (apply_mask, MASKED, translation_equivariance(axis=1), ("x", "valid")),
    "chunks of a mask": (apply_mask, MASKED, chunk_consistency(axis=1), ("x", "valid")),
    "chunks of a batch with a context": (
        attend,
        (shape("b t 4"), shape("b s 4")),
        chunk_consistency(axis=0),
        ("q", "context"),
    ),
    "chunks of queries": (attend, (shape("b t 4"), shape("b s 4")), chunk_consistency(axis=1), ("q",)),
    "another index of the axis": (sequence_first, (shape("t b 4"), mask("b t")), batch_independence(batch=1), None),
    "chunks at another index": (sequence_first, (shape("t b 4"), mask("b t")), chunk_consistency(axis=0), None),
    "an axis twice": (graph_layer, (shape("n 4"), mask("n n")), permutation_equivariance(axis=0), ("x", "edges")),
    "no such axis": (graph_layer, (shape("n 4"), mask("m n")), linearity(), ("x",)),
    "weights of classes in a loss": (
        lambda x, y, w: nn.functional.cross_entropy(x, y, w, reduction="sum"),
        (shape("b 4"), tokens("b", vocab_size=4), shape("4")),
        gradient_accumulation(reduction="sum"),
        ("x", "y"),
    ),
    "a mask that a law does not vary": (apply_mask, MASKED, masked_positions_have_no_influence(), ("x",)),
    "examples": (
        apply_mask,
        EXAMPLES,
        batch_independence(),
        ("x", "valid"),
    ),
    "sizes that fit two axes": (nn.functional.linear, (torch.eye(4), torch.eye(4)), batch_independence(), ("x0",)),
    "a function of a draw": (
        apply_mask,
        lambda d: (d.values(n := d.integer(2, 5), t := d.integer(2, 5), 4), d.normal(n, t) > 0),
        batch_independence(),
        ("x", "valid"),
    ),
    "a weight from a function of a draw": (
        nn.functional.linear,
        lambda d: (d.values(d.integer(2, 6), 4), d.values(d.integer(2, 6), 4)),
        batch_independence(),
        ("x0",),
    ),
}


@pytest.mark.parametrize(("target", "inputs", "law", "varied"), HELD.values(), ids=HELD)
def test_correct_maps_hold(target, inputs, law, varied):
    verdict = judge(target, law, inputs)
    assert verdict.status == "held", verdict
    assert varied is None or verdict.varied == varied


BROKEN = {
    "a mask mixes the batch": (mix_masks, MASKED, batch_independence()),
    "the mask of later positions": (read_future_mask, MASKED, causality(time=1)),
    "the mask of other positions": (read_future_mask, MASKED, locality(radius=1, axis=1)),
    "chunks of a mask": (read_future_mask, MASKED, chunk_consistency(axis=1)),
    "another index of the axis": (sequence_first_mixed, (shape("t b 4"), mask("b t")), batch_independence(batch=1)),
    "one of two axes": (
        lambda x, edges: edges.to(x).cumsum(0) @ x,
        (shape("n 4"), mask("n n")),
        permutation_equivariance(axis=0),
    ),
    "examples": (mix_masks, EXAMPLES, batch_independence()),
    "keyword arguments": (mix_masks, {"x": MASKED[0], "valid": MASKED[1]}, batch_independence()),
    "a function of a draw": (
        mix_masks,
        lambda d: (d.values(n := d.integer(2, 5), t := d.integer(2, 5), 4), d.normal(n, t) > 0),
        batch_independence(),
    ),
}


@pytest.mark.parametrize(("target", "inputs", "law"), BROKEN.values(), ids=BROKEN)
def test_faults_of_other_inputs_are_refuted(target, inputs, law):
    assert judge(target, law, inputs).status == "refuted"


def test_input_selects_the_inputs_of_a_law():
    verdict = judge(mix_masks, batch_independence(input="x"), MASKED)
    assert (verdict.status, verdict.varied) == ("held", ("x",))


def test_inputs_that_a_call_names_have_the_same_axis():
    """The letters differ, so only `input=` says that the second input has the axis, too."""

    def add_sum(x, y):
        return x + y.sum(0)

    inputs = shape("b 4"), shape("c 4")
    default, both = (
        judge(add_sum, batch_independence(), inputs),
        judge(add_sum, batch_independence(input=(0, 1)), inputs),
    )
    assert (default.status, default.varied) == ("held", ("x",))
    assert (both.status, both.varied) == ("refuted", ("x", "y"))


def test_a_law_asks_for_the_axes_of_its_inputs():
    found = []

    @law("f(x) = f(x)")
    def record_axes(f, *xs, axis: Axis = 1):
        found.append((f.input_axes(axis), [tuple(x.shape) for x in xs]))
        return Equal(f(*xs), f(*xs))

    judge(lambda x, m, w: x * 1.0, record_axes(axis=-2), (shape("b n 3"), mask("n n"), shape("3")), cases=12)
    axes, shapes = found[0]
    assert axes == [(1,), (0, 1)]
    assert [len(s) for s in shapes] == [3, 2]


def test_the_report_names_the_varied_inputs():
    report = check(apply_mask, causality(time=1), inputs=MASKED, cases=20)
    assert "varied x and valid" in str(report)
    assert report.to_json()["verdicts"][0]["varied"] == ["x", "valid"]
    assert "varied" not in str(check(torch.relu, causality(time=1), inputs=shape("b t 4"), cases=20))


def test_the_command_line_refutes_a_mask_that_mixes_the_batch(in_process, tmp_path, monkeypatch, capsys):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mixed_masks.py").write_text(
        "def apply(x, valid):\n    return x * valid.all(0)[..., None]\n", encoding="utf-8"
    )
    arguments = [
        "check",
        "mixed_masks.py:apply",
        "--law",
        "batch_independence",
        "--input",
        "b t 4",
        "--input",
        "mask(b t)",
    ]
    assert main([*arguments, "--json", "report.json"]) == 1
    (verdict,) = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["verdicts"]
    assert verdict["varied"] == ["x", "valid"]
    assert "varied x and valid" in capsys.readouterr().out
