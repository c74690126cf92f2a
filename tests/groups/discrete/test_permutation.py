import itertools

import pytest
import torch
from sympy.combinatorics import Permutation as Oracle

from lawful.groups.finite import SymmetricGroup


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_signs_cycles_inverses_equal_sympy(n):
    group, g = SymmetricGroup(n), torch.tensor(list(itertools.permutations(range(n))))
    oracles = [Oracle(row.tolist()) for row in g]
    assert group.sign(g).tolist() == [o.signature() for o in oracles]
    assert group.cycles(g).tolist() == [o.cycles for o in oracles]
    assert group.inverse(g).tolist() == [(o**-1).array_form for o in oracles]
    assert group.distance(g, group.identity()).tolist() == [o.length() and n - o.cycles for o in oracles]


def test_long_permutations_equal_sympy():
    group = SymmetricGroup(200)
    g = group.sample(3, generator=torch.Generator().manual_seed(0))
    assert group.cycles(g).tolist() == [Oracle(row.tolist()).cycles for row in g]


def test_matrix_multiplies_as_the_element_acts():
    group = SymmetricGroup(4)
    g, x = group.sample(6, generator=torch.Generator().manual_seed(0)), torch.arange(4.0)
    assert torch.equal(group.matrix(g) @ x, group.act(g, x))
    assert torch.equal(torch.linalg.det(group.matrix(g)).round().long(), group.sign(g))


def test_indexing_is_the_inverse_action():
    g, x = torch.tensor([2, 0, 1]), torch.tensor([10, 20, 30])
    assert torch.equal(SymmetricGroup(3).act(SymmetricGroup(3).inverse(g), x), x[g])


def test_samples_are_uniform():
    drawn = SymmetricGroup(3).sample(12000, generator=torch.Generator().manual_seed(0))
    counts = drawn.unique(dim=0, return_counts=True)[1]
    assert len(counts) == 6
    assert ((counts - 2000).square() / 2000).sum() < 35  # chi-squared with 5 degrees of freedom


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="at least 1: got 0"):
        SymmetricGroup(0)
    with pytest.raises(ValueError, match=r"size 3: got shape \(4,\)"):
        SymmetricGroup(3).act(torch.arange(4), torch.zeros(4))


@pytest.mark.parametrize("g", [[0, 1, 1], [0, 1, 3], [-1, 0, 1]])
def test_what_is_no_permutation_is_refused(g):
    group, g = SymmetricGroup(3), torch.tensor(g)
    for use in (lambda: group.act(g, torch.ones(3)), lambda: group.inverse(g), lambda: group.distance(g, g)):
        with pytest.raises(ValueError, match="each of 0 to 2 once was wanted"):
            use()
    some = group.sample(4)
    torch.testing.assert_close(torch.vmap(group.inverse)(some), group.inverse(some))
