from functools import partial
from itertools import permutations

import pytest
import torch
from torch import nn

from lawful.optim import adamw, greedy_row_swaps, permute_units, sgd


def random_weights(n, m, seed=0):
    return torch.rand(2, n, m, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_each_swap_is_the_best_one():
    weights, lengths = random_weights(6, 4)
    unit = int(weights.sum(1).argmax())
    costs = []
    for other in range(6):
        order = torch.arange(6)
        order[unit], order[other] = other, unit
        costs.append(float((weights[order] * lengths).sum()))
    found = greedy_row_swaps(weights, lengths, max_swaps=1)
    assert float((weights[found] * lengths).sum()) == pytest.approx(min(costs), rel=1e-12)


def test_the_cost_never_rises_and_often_reaches_the_minimum():
    best = 0
    for seed in range(20):
        weights, lengths = random_weights(5, 3, seed)
        before, order = float((weights * lengths).sum()), torch.arange(5)
        for _ in range(5):
            order = order[greedy_row_swaps(weights[order], lengths, max_swaps=5)]
            after = float((weights[order] * lengths).sum())
            assert after <= before * (1 + 1e-12)
            before = after
        lowest = min(float((weights[list(p)] * lengths).sum()) for p in permutations(range(5)))
        best += before == pytest.approx(lowest, rel=1e-9)
    assert best >= 12


def test_units_without_a_better_position_stay():
    assert greedy_row_swaps(torch.ones(4, 2), torch.rand(4, 2), max_swaps=4).tolist() == [0, 1, 2, 3]
    assert greedy_row_swaps(torch.rand(4, 2), torch.rand(4, 2), max_swaps=0).tolist() == [0, 1, 2, 3]


def test_shapes_must_match():
    with pytest.raises(ValueError, match=r"expected lengths of shape \(4, 2\), got \(4, 3\)"):
        greedy_row_swaps(torch.ones(4, 2), torch.ones(4, 3), max_swaps=1)


@pytest.mark.parametrize("build", [partial(adamw, lr=0.01), partial(sgd, lr=0.01, momentum=0.9), torch.optim.Adam])
def test_permuting_the_state_too_leaves_training_unchanged(build, tools):
    order = torch.tensor([2, 0, 5, 1, 4, 3])

    def moved(model, optimizer):
        permute_units(model[0].weight, order, optimizer=optimizer)
        permute_units(model[0].bias, order, optimizer=optimizer)
        permute_units(model[1].weight, order, dim=1, optimizer=optimizer)

    def trained(*, early):
        model = tools.network(torch.float64)
        optimizer = build(model.parameters())
        x = torch.randn(20, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        for t in range(20):
            if early and t == 10:
                moved(model, optimizer)
            optimizer.zero_grad()
            (model(x).tanh() - 0.3).square().mean().backward()
            optimizer.step()
        if not early:
            moved(model, optimizer)
        return model

    tools.assert_close(trained(early=True), trained(early=False), torch.float64)


def test_integers_and_other_dimensions():
    numbers, x = torch.arange(3), nn.Parameter(torch.arange(6.0).reshape(2, 3))
    permute_units(numbers, torch.tensor([2, 0, 1]))
    permute_units(x, torch.tensor([2, 0, 1]), dim=1)
    assert numbers.tolist() == [2, 0, 1]
    assert x.tolist() == [[2.0, 0.0, 1.0], [5.0, 3.0, 4.0]]
