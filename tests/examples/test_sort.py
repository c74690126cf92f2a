import pytest
import torch

from lawful.recipes import generate_from_run
from lawful.training import train
from tests.examples.loading import load_example

sort = load_example("sort")
TINY = {"dim": 8, "num_layers": 1, "num_heads": 2, "steps": 6, "batch_size": 4, "threads": 1, "law_cases": 0}


def test_training_and_test_lists_are_disjoint():
    source = sort.DigitLists(length=6, num_digits=3, batch_size=64, seed=0)
    train_lists = {tuple(row) for step in range(20) for row in source.lists(step).tolist()}
    test_lists = {tuple(row) for row in sort.SortRecipe().test_lists().tolist()}
    assert not train_lists & test_lists
    assert 100 < len(test_lists) < 250  # about a quarter of 3 ** 6


def test_a_batch_depends_on_its_step_only():
    a, b = (sort.DigitLists(length=4, num_digits=5, batch_size=8, seed=3) for _ in range(2))
    for x, y in zip(a.batch(7), b.batch(7), strict=True):
        assert torch.equal(x, y)
    assert not torch.equal(a.batch(8)[0], b.batch(7)[0])


def test_targets_are_sorted():
    inputs, targets = sort.DigitLists(length=4, num_digits=5, batch_size=8, seed=3).batch(0)
    assert torch.equal(targets, inputs[:, :4].sort(-1).values)
    assert torch.equal(inputs[:, 4:], targets[:, :-1])
    assert not sort.is_held_out(inputs[:, :4]).any()


def test_a_run_generates(tmp_path):
    run = train(sort.SortRecipe(length=4, num_digits=2, num_test_lists=50, **TINY), output_dir=tmp_path)
    assert set(run.results["test"]["accuracy"]) == {"value", "low", "high"}
    assert set("".join(generate_from_run(run, "1010"))) <= set("01\ufffd")
    for prompt in ("10", "10101", "1020", ""):
        with pytest.raises(ValueError, match="4 digits from 0 to 1"):
            list(generate_from_run(run, prompt))


def test_too_few_lists_are_an_error():
    with pytest.raises(ValueError, match="too few to hold some out"):
        sort.DigitLists(length=2, num_digits=2, batch_size=10, seed=0, held_out=True).lists(0)


@pytest.mark.long
def test_all_unseen_lists_are_sorted(tmp_path):
    run = train(sort.SortRecipe(), output_dir=tmp_path)
    assert run.results["lists"]["tested"] == 5000
    assert run.results["test"]["accuracy"]["value"] == 1.0
