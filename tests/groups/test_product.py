"""Direct products."""

from collections.abc import Iterator

import pytest
import torch

from lawful.groups import Cyclic, DirectProduct, Orthogonal, Scaling, SymmetricGroup, Translation
from lawful.laws import Claim, agreement, shape


def seeded_generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_factors_are_independent():
    o, s = Orthogonal(3), SymmetricGroup(4)
    group = DirectProduct(o, s)
    g, h = (group.sample(5, generator=seeded_generator(k), dtype=torch.float64) for k in (0, 1))
    assert [part.dtype for part in g] == [torch.float64, torch.int64]
    x = (
        torch.randn(5, 3, generator=seeded_generator(2), dtype=torch.float64),
        torch.randn(5, 4, generator=seeded_generator(3)),
    )
    torch.testing.assert_close(group.compose(g, h), (g[0] @ h[0], s.compose(g[1], h[1])))
    torch.testing.assert_close(group.act(g, x), (o.act(g[0], x[0]), s.act(g[1], x[1])))
    torch.testing.assert_close(group.distance(g, h), o.distance(g[0], h[0]) + s.distance(g[1], h[1]))
    unit = group.compose(g, group.inverse(g))
    torch.testing.assert_close(unit, group.identity(5, dtype=torch.float64))


def test_coordinates_are_concatenated():
    group = DirectProduct(Orthogonal(3), Cyclic(4), DirectProduct(Translation(2), Scaling()))
    assert group.dim == 6
    v = torch.randn(5, 6, generator=seeded_generator(), dtype=torch.float64) / 4
    g = group.exp(v)
    assert torch.equal(g[1], torch.zeros(5).long())
    torch.testing.assert_close(group.log(g), v)
    torch.testing.assert_close(group.vee(group.hat(v)), v)
    for matrix, part in (
        (group.adjoint(g), Orthogonal(3).adjoint(g[0])),
        (group.left_jacobian(v), Orthogonal(3).left_jacobian(v[:, :3])),
    ):
        expected = torch.eye(6, dtype=v.dtype).repeat(5, 1, 1)
        expected[:, :3, :3] = part
        torch.testing.assert_close(matrix, expected)


def test_invalid_arguments_raise():
    with pytest.raises(ValueError, match="at least one factor, got none"):
        DirectProduct()
    group = DirectProduct(Scaling(), Cyclic(2))
    with pytest.raises(ValueError, match="a tuple of 2, one entry per factor, got 1"):
        group.inverse((torch.ones(()),))
    with pytest.raises(ValueError, match="identity of the finite factor Cyclic"):
        group.log((torch.ones(()), torch.ones(()).long()))
    with pytest.raises(ValueError, match=r"\(\*batch, 1\), got \(2,\)"):
        group.exp(torch.zeros(2))


@pytest.mark.parametrize("method", ["log", "adjoint", "left_jacobian"])
def test_without_a_lie_group_factor_there_is_no_algebra(method):
    group = DirectProduct(Cyclic(2), SymmetricGroup(3))
    assert group.dim == 0
    argument = torch.zeros(0) if method == "left_jacobian" else group.identity()
    with pytest.raises(ValueError, match=r"Lie group among the factors, got Cyclic\(2\), SymmetricGroup\(3\)"):
        getattr(group, method)(argument)


def test_adjoints_of_parts_with_different_batches_and_inverse_jacobians():
    group = DirectProduct(Orthogonal(3), Translation(2))
    g = (
        Orthogonal(3).sample(4, 1, generator=seeded_generator(), dtype=torch.float64),
        torch.zeros(5, 2, dtype=torch.float64),
    )
    assert group.adjoint(g).shape == (4, 5, 5, 5)
    v = torch.randn(4, 5, generator=seeded_generator(1), dtype=torch.float64) / 2
    one = torch.eye(5, dtype=torch.float64).expand(4, 5, 5)
    torch.testing.assert_close(group.left_jacobian(v) @ group.left_jacobian_inverse(v), one)


def claims() -> Iterator[Claim]:
    """Logarithm and exponential of a product of Lie groups."""
    group = DirectProduct(Orthogonal(3), Translation(2))

    def round_trip(v):
        return group.log(group.exp(group.vee(group.hat(v.tanh()))))

    yield Claim(agreement(other=torch.tanh), round_trip, shape("b 5"), name="DirectProduct.log of exp")
