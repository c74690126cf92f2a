import copy

import pytest
import torch
from torch import nn

import lawful
from lawful.blocks import PrincipalAxes, Symmetrized, lexicographic_order, rotate_image, symmetrize
from lawful.groups import SE2, SE3, SO2, SO3, Cyclic, Dihedral, Euclidean, Orthogonal, SymmetricGroup
from lawful.laws import equivariance, invariance, permutation_invariance, shape

GROUPS = Orthogonal(2), Orthogonal(3), SO2(), SO3(), Euclidean(3), SE2(), SE3()


def network(n, d, out=None):
    return nn.Sequential(nn.Flatten(-2), nn.Linear(n * d, 8), nn.Tanh(), nn.Linear(8, out or n * d)).double()


@pytest.mark.parametrize("group", GROUPS, ids=str)
@pytest.mark.parametrize("signs", ["all", "skewness"])
def test_frames_move_with_the_points(group, signs):
    d = 2 if isinstance(group, SO2 | SE2) or getattr(group, "d", 3) == 2 else 3
    x, g = torch.randn(4, 6, d, dtype=torch.float64), group.sample(dtype=torch.float64)
    frame = PrincipalAxes(group, signs=signs)
    still, moved = group.compose(g, frame(x)), frame(group.act(g, x))
    for n in range(4):  # the same sets of elements
        assert torch.cdist(still[:, n].flatten(1), moved[:, n].flatten(1)).min(1).values.max() < 1e-9
    if d == 3 and signs == "all":
        assert len(still) == (8 if isinstance(group, Orthogonal | Euclidean) else 4)


@pytest.mark.parametrize("group", [SO3(), Euclidean(3)], ids=str)
def test_a_network_becomes_invariant(group):
    plain = network(5, 3, 1)
    symmetric = Symmetrized(plain, group, frame=PrincipalAxes(group))
    law, inputs = invariance(group=group), shape("b 5 3")
    assert not lawful.check(plain, law, inputs=inputs, cases=20).passed
    assert lawful.check(symmetric, law, inputs=inputs, cases=20).passed


def test_a_proper_group_keeps_chirality():
    """A mirror image has another output under SO(3), and the same one under O(3)."""
    x, plain = torch.randn(5, 3, dtype=torch.float64), network(5, 3, 1)
    mirrored = x * torch.tensor([1.0, 1.0, -1.0])
    rotations = Symmetrized(plain, SO3(), frame=PrincipalAxes(SO3()))
    everything = Symmetrized(plain, Orthogonal(3), frame=PrincipalAxes(Orthogonal(3)))
    assert not torch.allclose(rotations(x), rotations(mirrored), rtol=1e-3)
    torch.testing.assert_close(everything(x), everything(mirrored))


def test_what_is_symmetric_stays_as_it_is():
    def norms(x):
        return x.square().sum(-1)

    x = torch.randn(4, 5, 3, dtype=torch.float64)
    torch.testing.assert_close(symmetrize(norms, Orthogonal(3), frame=PrincipalAxes(Orthogonal(3)))(x), norms(x))


def test_average_over_a_finite_group_by_hand():
    weights = torch.randn(4)
    found = symmetrize(lambda x: (x * weights).sum(-1).tanh(), Cyclic(4))(x := torch.randn(3, 4))
    torch.testing.assert_close(found, sum((x.roll(-k, -1) * weights).sum(-1).tanh() for k in range(4)) / 4)


@pytest.mark.parametrize("group", [Cyclic(4), Dihedral(4)], ids=str)
def test_images_under_quarter_turns(group):
    convolution = nn.Conv2d(1, 1, 3, padding=1).double()
    symmetric = Symmetrized(convolution, group, output="equivariant", act=rotate_image)
    x = torch.randn(2, 1, 5, 5, dtype=torch.float64)
    for g in group.elements():
        torch.testing.assert_close(symmetric(rotate_image(g, x)), rotate_image(g, symmetric(x)))
        for h in group.elements():
            both = rotate_image(g, rotate_image(h, x))
            assert torch.equal(both, rotate_image(group.compose(g, h), x))


def test_permutations_by_sorting_and_by_averaging():
    plain, group = network(4, 2, 1), SymmetricGroup(4)

    def act(g, x):
        return group.act(g[..., None, :], x.mT).mT

    def sort(x):
        return lexicographic_order(x)[None]

    x = torch.randn(3, 4, 2, dtype=torch.float64)
    for symmetric in (Symmetrized(plain, group, act=act), Symmetrized(plain, group, act=act, frame=sort)):
        assert lawful.check(symmetric, permutation_invariance(axis=1), inputs=shape("b 4 2"), cases=20).passed
    ordered = x.gather(1, lexicographic_order(x)[..., None].expand_as(x))
    torch.testing.assert_close(symmetric(x), plain(ordered))


def test_elements_of_finite_groups():
    for group, order in ((Cyclic(5), 5), (Dihedral(3), 6), (SymmetricGroup(4), 24)):
        elements = group.elements()
        assert len(elements.unique(dim=0)) == len(elements) == order
        products = group.compose(elements[:, None], elements[None])
        assert len(products.flatten(0, 1).unique(dim=0)) == order


def test_a_copy_has_its_own_module():
    symmetric = Symmetrized(nn.Linear(4, 4), Cyclic(4), output="equivariant")
    other, x = copy.deepcopy(symmetric), torch.randn(4)
    with torch.no_grad():
        symmetric.module.weight.zero_()
    assert not torch.allclose(symmetric(x), other(x))
    assert lawful.check(other, equivariance(group=Cyclic(4)), inputs=shape("b 4"), cases=10).passed
    assert "Cyclic(4), output='equivariant'" in repr(other)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Symmetrized(nn.Identity(), SO3()),
            r"SO3\(\) is not finite: pass a frame, such as PrincipalAxes\(SO3\(\)\)",
        ),
        (
            lambda: symmetrize(torch.relu, Cyclic(2), output="same"),
            "output must be 'invariant', 'equivariant' or an action",
        ),
        (lambda: PrincipalAxes(Cyclic(2)), r"group must be Orthogonal\(d\).*got Cyclic\(2\)"),
        (lambda: PrincipalAxes(SO3(), signs="no"), "signs must be 'all' or 'skewness', got 'no'"),
        (lambda: PrincipalAxes(SO3())(torch.full((4, 3), torch.nan)), "points must be finite"),
        (
            lambda: PrincipalAxes(Euclidean(3))(torch.randn(4, 2)),
            r"expected points of shape \(\*batch, n, 3\) with n of at least 1, got \(4, 2\)",
        ),
        (lambda: PrincipalAxes(SE2())(torch.randn(0, 2)), r"n of at least 1, got \(0, 2\)"),
        (lambda: SymmetricGroup(9).elements(), "expected n up to 8"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
