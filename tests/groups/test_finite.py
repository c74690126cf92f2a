"""Permutations, cyclic and dihedral groups."""

import itertools
from collections.abc import Iterator

import pytest
import torch
from sympy.combinatorics import Permutation as Oracle

from lawful.groups import Cyclic, Dihedral, SymmetricGroup
from lawful.laws import Claim, agreement, shape, tokens, transformed


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


def test_matrix_agrees_with_the_action():
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


def test_invalid_arguments_raise():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        SymmetricGroup(0)
    with pytest.raises(ValueError, match=r"\(\*batch, 3\), got \(4,\)"):
        SymmetricGroup(3).act(torch.arange(4), torch.zeros(4))


@pytest.mark.parametrize("g", [[0, 1, 1], [0, 1, 3], [-1, 0, 1]])
@pytest.mark.parametrize("method", ["act", "inverse", "distance"])
def test_invalid_permutations_raise(g, method):
    g = torch.tensor(g)
    arguments = {"act": (g, torch.ones(3)), "inverse": (g,), "distance": (g, g)}[method]
    with pytest.raises(ValueError, match="expected a permutation of 0 to 2"):
        getattr(SymmetricGroup(3), method)(*arguments)


def test_inverses_under_vmap():
    group = SymmetricGroup(3)
    some = group.sample(4)
    torch.testing.assert_close(torch.vmap(group.inverse)(some), group.inverse(some))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_cyclic_acts_as_roll(n):
    x = torch.arange(3 * n).reshape(3, n)
    for k in range(n):
        assert torch.equal(Cyclic(n).act(torch.tensor(k), x), x.roll(k, -1))
    each = torch.arange(3) % n
    assert torch.equal(Cyclic(n).act(each, x), torch.stack([row.roll(int(k)) for k, row in zip(each, x, strict=True)]))


def test_cyclic_rotation_is_a_root_of_the_identity():
    group, one = Cyclic(6), torch.eye(2, dtype=torch.float64)
    turn = group.rotation(torch.tensor(1), dtype=torch.float64)
    torch.testing.assert_close(torch.linalg.matrix_power(turn, 6), one)
    torch.testing.assert_close(turn @ one[0], torch.tensor([0.5, 0.75**0.5], dtype=torch.float64))


def test_cyclic_distance_is_circular():
    assert Cyclic(6).distance(torch.tensor(0), torch.arange(6)).tolist() == [0, 1, 2, 3, 2, 1]


def test_cyclic_samples_are_uniform():
    counts = Cyclic(5).sample(10000, generator=torch.Generator().manual_seed(0)).bincount(minlength=5)
    assert ((counts - 2000).square() / 2000).sum() < 30  # chi-squared with 4 degrees of freedom


def test_cyclic_gradients_pass_through_the_action():
    x = torch.arange(4.0).requires_grad_()
    Cyclic(4).act(torch.tensor(1), x)[0].backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 0.0, 0.0, 1.0]


def test_cyclic_invalid_arguments_raise():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Cyclic(0)
    with pytest.raises(ValueError, match=r"\(\*batch, 4\), got \(3,\)"):
        Cyclic(4).act(torch.tensor(1), torch.zeros(3))


def all_elements(n):
    return torch.tensor(list(itertools.product(range(n), range(2))))


def test_dihedral_defining_relations():
    group, turn, flip = Dihedral(5), torch.tensor([1, 0]), torch.tensor([0, 1])
    power = group.identity()
    for _ in range(5):
        power = group.compose(turn, power)
    assert torch.equal(power, group.identity())
    assert torch.equal(group.compose(flip, flip), group.identity())
    assert torch.equal(group.compose(flip, group.compose(turn, flip)), group.inverse(turn))


def test_dihedral_is_closed_and_acts_faithfully():
    group, g = Dihedral(5), all_elements(5)
    products = group.compose(g[:, None], g[None]).reshape(-1, 2)
    assert len(products.unique(dim=0)) == 10
    assert len(group.act(g, torch.arange(5)).unique(dim=0)) == 10


@pytest.mark.parametrize("n", [3, 4, 7])
def test_dihedral_matrices_agree_with_the_action(n):
    group, g = Dihedral(n), all_elements(n)
    corners = group.matrix(torch.stack([torch.arange(n), torch.zeros(n).long()], -1), dtype=torch.float64)[:, :, 0]
    moved = group.act(g[:, None], corners.mT)
    torch.testing.assert_close(group.matrix(group.inverse(g), dtype=torch.float64) @ corners.mT, moved)


def test_dihedral_samples_are_uniform():
    drawn = Dihedral(3).sample(12000, generator=torch.Generator().manual_seed(0))
    counts = (2 * drawn[:, 0] + drawn[:, 1]).bincount(minlength=6)
    assert ((counts - 2000).square() / 2000).sum() < 35  # chi-squared with 5 degrees of freedom


def test_dihedral_invalid_arguments_raise():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Dihedral(0)
    with pytest.raises(ValueError, match=r"\(\*batch, 4\), got \(3,\)"):
        Dihedral(4).act(torch.tensor([1, 0]), torch.zeros(3))


def test_dihedral_invalid_reflections_raise():
    with pytest.raises(ValueError, match="f = 0 or 1"):
        Dihedral(3).act(torch.tensor([0, 2]), torch.arange(3))
    with pytest.raises(ValueError, match=r"\(\*batch, 2\), got \(3,\)"):
        Dihedral(3).compose(torch.tensor([0, 1, 1]), torch.tensor([0, 1]))


def claims() -> Iterator[Claim]:
    """Second derivations of the actions, the sign, and frequencies of samples."""
    yield from permutation_claims(SymmetricGroup(5))
    yield from cyclic_claims(Cyclic(5))
    yield from dihedral_claims(Dihedral(5))


def permutation_claims(group) -> Iterator[Claim]:
    element = transformed(lambda x: x.argsort(-1), "b 5")

    def matrix(g):
        return group.matrix(g, dtype=torch.float64)

    def matrix_product(g, x):
        return (matrix(g).to(x) @ x[..., None])[..., 0]

    def frequencies(x):
        samples = SymmetricGroup(3).sample(40, 100, generator=torch.Generator().manual_seed(0)).flatten(0, 1)
        return (torch.bincount(samples @ torch.tensor([9, 3, 1]), minlength=27) / 4000).to(x)

    def uniform(x):
        permutations = torch.tensor(list(itertools.permutations(range(3))))
        return torch.zeros(27).index_fill(0, permutations @ torch.tensor([9, 3, 1]), 1 / 6).to(x)

    determinant = agreement(other=lambda g: torch.linalg.det(matrix(g)))
    yield Claim(determinant, lambda g: group.sign(g).double(), element, name="SymmetricGroup.sign = det")
    yield Claim(agreement(other=matrix_product), group.act, (element, shape("b 5")), name="SymmetricGroup.act = matrix")
    yield Claim(agreement(other=uniform, rtol=0.2), frequencies, shape("1"), name="SymmetricGroup.sample")


def cyclic_claims(group) -> Iterator[Claim]:
    element = tokens("b", 5)

    def roll(g, x):
        return torch.stack([row.roll(int(k), 0) for k, row in zip(g, x, strict=True)])

    def as_complex(g):
        return torch.view_as_complex(group.rotation(g, dtype=torch.float64)[..., 0].contiguous())

    def root_of_unity(g):
        return torch.polar(torch.ones(len(g)).double(), 2 * torch.pi * g.double() / 5)

    def frequencies(g):
        return torch.bincount(group.sample(4000, generator=torch.Generator().manual_seed(0))) / 4000

    uniform = agreement(other=lambda g: torch.full((5,), 0.2), rtol=0.2)
    yield Claim(agreement(other=roll), group.act, (element, shape("b 5")), name="Cyclic.act = roll")
    yield Claim(agreement(other=root_of_unity), as_complex, element, name="Cyclic.rotation = root of unity")
    yield Claim(uniform, frequencies, tokens("1", 5), name="Cyclic.sample")


def dihedral_claims(group) -> Iterator[Claim]:
    def to_element(x):
        return torch.stack([(x[..., 0] * 7).long() % 5, (x[..., 1] > 0).long()], -1)

    def matrix(g):
        return group.matrix(g, dtype=torch.float64)

    def move_vertices(g, x):
        vertices = matrix(torch.stack([torch.arange(5), torch.zeros(5, dtype=torch.int64)], -1))[:, :, 0]
        moved = (matrix(g) @ vertices.mT).mT if g.dim() == 1 else torch.einsum("bij,cj->bci", matrix(g), vertices)
        nearest = (moved[..., None, :] - vertices).norm(dim=-1).argmin(-1)
        return torch.zeros_like(x).scatter(-1, nearest, x)

    def frequencies(x):
        k, f = group.sample(4000, generator=torch.Generator().manual_seed(0)).unbind(-1)
        return (torch.bincount(k + 5 * f) / 4000).to(x)

    element, uniform = transformed(to_element, "b 2"), agreement(other=lambda x: torch.full((10,), 0.1).to(x), rtol=0.2)
    yield Claim(agreement(other=move_vertices), group.act, (element, shape("b 5")), name="Dihedral.act on a polygon")
    yield Claim(uniform, frequencies, shape("1"), name="Dihedral.sample")
