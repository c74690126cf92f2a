import pytest
import torch

from lawful.recipes import SortRecipe, sample
from lawful.recipes.sort import Lists, held_back
from lawful.training import train


def test_no_list_is_both_trained_on_and_tested():
    seen = {tuple(row) for step in range(20) for row in Lists(length=6, kinds=3, size=64, seed=0).lists(step).tolist()}
    unseen = {tuple(row) for row in SortRecipe().drawn().tolist()}
    assert not seen & unseen
    assert 100 < len(unseen) < 250  # about a quarter of 3 ** 6


def test_a_batch_is_a_function_of_its_step():
    a, b = (Lists(length=4, kinds=5, size=8, seed=3) for _ in range(2))
    for x, y in zip(a.batch(7), b.batch(7), strict=True):
        assert torch.equal(x, y)
    assert not torch.equal(a.batch(8)[0], b.batch(7)[0])


def test_targets_are_sorted_and_inputs_hold_all_but_the_last():
    inputs, targets = Lists(length=4, kinds=5, size=8, seed=3).batch(0)
    assert torch.equal(targets, inputs[:, :4].sort(-1).values)
    assert torch.equal(inputs[:, 4:], targets[:, :-1])
    assert not held_back(inputs[:, :4]).any()


def test_a_run_sorts_a_prompt(tiny, tmp_path):
    run = train(SortRecipe(length=4, kinds=2, tests=50, **tiny()), folder=tmp_path)
    assert set(run.results["test"]["accuracy"]) == {"value", "low", "high"}
    assert set("".join(sample(run, "1010"))) <= set("01\ufffd")
    for prompt in ("10", "10101", "1020", ""):
        with pytest.raises(ValueError, match="4 digits from 0 to 1"):
            list(sample(run, prompt))


def test_lists_that_are_too_few_are_refused():
    with pytest.raises(ValueError, match="too few to hold some back"):
        Lists(length=2, kinds=2, size=10, seed=0, unseen=True).lists(0)


@pytest.mark.long
def test_all_unseen_lists_are_sorted(tmp_path):
    run = train(SortRecipe(), folder=tmp_path)
    assert run.results["lists"]["tested"] == 5000
    assert run.results["test"]["accuracy"]["value"] == 1.0
