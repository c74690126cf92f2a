"""Inputs: descriptions, examples, structures and functions."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import lawful
from lawful import mask, shape, tokens
from lawful.laws import Equal, batch_independence, causality, law, linearity, no_mutation, non_negativity
from lawful.laws.inputs import Input


def record_calls(inputs, law=no_mutation, cases=60):
    """Returns the arguments of all calls of a map."""
    calls = []

    def record(*args):
        calls.append(args)
        return args[0].double()

    lawful.check(record, law, inputs=inputs, cases=cases)
    return calls


def test_letters_and_numbers():
    calls = record_calls((shape("b t 3"), tokens("b t", vocab_size=5), mask("t t")))
    assert {x.shape[2] for x, _, _ in calls} == {3}
    assert len({x.shape[:2] for x, _, _ in calls}) > 10
    assert all(x.shape[:2] == ids.shape and visible.shape == (ids.shape[1],) * 2 for x, ids, visible in calls)
    assert {int(i) for _, ids, _ in calls for i in ids.unique()} == set(range(5))
    assert all(m.dtype is torch.bool for _, _, m in calls)


def test_range_of_lengths():
    lengths = {x.shape[1] for (x,) in record_calls(shape("b t 2"), cases=100)}
    assert {1, 2} <= lengths
    assert max(lengths) > 40


def test_axis_sizes_from_a_range_or_a_list():
    assert {x.shape[0] for (x,) in record_calls(shape("t:3..5"))} == {3, 4, 5}
    assert {x.shape[0] for (x,) in record_calls(shape("t:8,16"))} == {8, 16}


def test_ordinary_and_extreme_values_are_tried():
    values = [x for (x,) in record_calls(shape("b 4"), cases=200)]
    assert any((x == 0).all() for x in values)
    assert any(x.abs().max() > 1e5 for x in values)
    assert any(0 < x.abs().max() < 1e-4 for x in values)
    assert any(((x == 1).sum(-1) == 1).all() and ((x == 0).sum(-1) == 3).all() for x in values)
    assert any(not x.is_contiguous() for x in values)


def test_axes_of_an_example_that_vary():
    shapes = {x.shape for (x,) in record_calls(torch.randn(3, 7, 5), causality(time=1))}
    assert {s[2] for s in shapes} == {5}
    assert len({s[0] for s in shapes}) > 2
    assert len({s[1] for s in shapes}) > 2
    shapes = {x.shape for (x,) in record_calls(torch.randn(3, 7, 5), batch_independence())}
    assert {s[1:] for s in shapes} == {(7, 5)}


def test_examples_that_share_an_axis_vary_together():
    calls = record_calls((torch.randn(2, 6, 4), torch.ones(2, 6, dtype=torch.bool)), causality(time=1))
    assert all(x.shape[:2] == m.shape for x, m in calls)
    assert len({x.shape[1] for x, _ in calls}) > 2


def test_inputs_like_an_example_tensor():
    calls = record_calls((torch.rand(4, 3), torch.tensor([[2], [7], [4], [3]])))
    assert all((x >= 0).all() for x, _ in calls)
    assert all(((i >= 2) & (i <= 7)).all() and i.dtype is torch.int64 for _, i in calls)


def test_a_map_of_fixed_size_is_tested_with_the_example_size():
    table = torch.randn(6, 4)
    verdict = lawful.check(lambda x: x * table, causality(time=1), inputs=torch.randn(2, 6, 4)).verdicts[0]
    assert verdict.status == "held", verdict
    assert any("sizes of the example" in note for note in verdict.notes)


def test_nested_structures_and_keywords():
    @dataclass
    class Out:
        logits: Tensor
        hidden: tuple[Tensor, ...]

    def map(batch, *, scale):
        x = batch["x"]
        return Out(x.cumsum(1) * scale, (x.flip(1), x))

    inputs = {"batch": {"x": shape("b t 4"), "ids": tokens("b t", vocab_size=3)}, "scale": shape("1")}
    laws = [causality(output="logits"), causality(output="hidden.0"), causality(output="hidden.1", input="batch.x")]
    grades = [v.status for v in lawful.check(map, *laws, inputs=inputs)]
    assert grades == ["held", "refuted", "held"]


def test_function_of_the_draw():
    def graph(draw):
        n = draw.integer(2, 5)
        return {"x": draw.values(n, 3), "adjacency": (draw.normal(n, n) > 0).double()}

    def convolve(x, adjacency):
        return adjacency @ x

    verdict = lawful.check(convolve, linearity(input="x"), non_negativity(), inputs=graph)
    assert [v.status for v in verdict] == ["held", "refuted"]
    assert verdict.verdicts[1].counterexample.inputs[0].shape == (2, 3)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ("b t 4", 'write inputs=lawful.shape("b t 4")'),
        (3, "inputs must be a description, an example tensor or a function"),
        ([1, 2], "inputs must be a description, an example tensor or a function"),
    ],
)
def test_invalid_inputs(inputs, words):
    verdict = lawful.check(torch.sin, linearity(), inputs=inputs).verdicts[0]
    assert verdict.status == "error"
    assert verdict.usage_error
    assert words in verdict.reason


@pytest.mark.parametrize("text", ["b t( 4", "tokens(b t)", "", "t:4..2", "t:0..2", "b -1", "t:"])
def test_parse_errors(text):
    with pytest.raises(ValueError, match=r"got|upwards"):
        Input.parse(text)


def test_parse():
    assert Input.parse("b t 16") == ("", shape("b t 16"))
    assert Input.parse(" ids = tokens(b t, vocab_size=65) ") == ("ids", tokens("b t", vocab_size=65))
    assert Input.parse("tokens(b t, 65)")[1] == tokens("b t", vocab_size=65)
    assert Input.parse("m=mask(b t:2..3)") == ("m", mask("b t:2..3"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tokens("b", vocab_size=0), "vocab_size must be at least 1, got 0"),
        (lambda: shape("b 0"), "an axis must have size at least 1, got 0 in 'b 0'"),
        (lambda: shape("b,t"), "expected an axis as a letter, .* got 'b,t'"),
    ],
)
def test_errors_of_descriptions(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_errors_of_check():
    with pytest.raises(ValueError, match="at least one law"):
        lawful.check(torch.sin, inputs=shape("b"))
    with pytest.raises(TypeError, match="expected a law"):
        lawful.check(torch.sin, torch.sin, inputs=shape("b"))
    with pytest.raises(ValueError, match="cases must be at least 1, got 0"):
        lawful.check(torch.sin, linearity(), inputs=shape("b"), cases=0)
    with pytest.raises(TypeError, match="did you mean time"):
        causality(tim=1)
    with pytest.raises(ValueError, match="waived needs a reason"):
        causality().waived(" ")


def test_a_law_without_a_draw_and_without_parentheses():
    @law("f(-x) = -f(x)")
    def oddness(f, x):
        return Equal(f(-x), -f(x))

    assert lawful.check(torch.sin, oddness, inputs=shape("b")).verdicts[0].status == "held"
