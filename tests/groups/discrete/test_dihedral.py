import itertools
from inspect import unwrap

import pytest
import torch

from lawful.groups.finite import Dihedral


def every(n):
    return torch.tensor(list(itertools.product(range(n), range(2))))


def test_a_turn_and_a_reflection_have_the_relations_that_define_the_group():
    group, turn, flip = Dihedral(5), torch.tensor([1, 0]), torch.tensor([0, 1])
    power = group.identity()
    for _ in range(5):
        power = group.compose(turn, power)
    assert torch.equal(power, group.identity())
    assert torch.equal(group.compose(flip, flip), group.identity())
    assert torch.equal(group.compose(flip, group.compose(turn, flip)), group.inverse(turn))


def test_is_closed_and_acts_faithfully():
    group, g = Dihedral(5), every(5)
    products = group.compose(g[:, None], g[None]).reshape(-1, 2)
    assert len(products.unique(dim=0)) == 10
    assert len(group.act(g, torch.arange(5)).unique(dim=0)) == 10


@pytest.mark.parametrize("n", [3, 4, 7])
def test_matrices_move_the_corners_as_the_sequence(n):
    group, g = Dihedral(n), every(n)
    corners = group.matrix(torch.stack([torch.arange(n), torch.zeros(n).long()], -1), dtype=torch.float64)[:, :, 0]
    moved = group.act(g[:, None], corners.mT)
    torch.testing.assert_close(group.matrix(group.inverse(g), dtype=torch.float64) @ corners.mT, moved)


def test_samples_are_uniform():
    drawn = Dihedral(3).sample(12000, generator=torch.Generator().manual_seed(0))
    counts = (2 * drawn[:, 0] + drawn[:, 1]).bincount(minlength=6)
    assert ((counts - 2000).square() / 2000).sum() < 35  # chi-squared with 5 degrees of freedom


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="at least 1: got 0"):
        Dihedral(0)
    with pytest.raises(ValueError, match=r"size 4: got shape \(3,\)"):
        Dihedral(4).act(torch.tensor([1, 0]), torch.zeros(3))


def test_a_reflection_is_one_or_none():
    with pytest.raises(ValueError, match="0 or 1, for a reflection"):
        Dihedral(3).act(torch.tensor([0, 2]), torch.arange(3))
    with pytest.raises(ValueError, match=r"size 2: got shape \(3,\)"):
        unwrap(Dihedral.compose)(Dihedral(3), torch.tensor([0, 1, 1]), torch.tensor([0, 1]))
