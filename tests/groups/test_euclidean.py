"""E(d), translations and scalings."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from scipy import linalg

from lawful.groups import SE3, Euclidean, Scaling, Translation, homogeneous_matrix
from lawful.laws import Claim, agreement, invertibility, shape, transformed


def seeded_generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_exp_and_log_equal_scipy(d):
    group = Euclidean(d)
    v = torch.randn(5, group.dim, generator=seeded_generator(), dtype=torch.float64) / 2
    g = group.exp(v)
    torch.testing.assert_close(g, torch.stack([torch.as_tensor(linalg.expm(a.numpy())) for a in group.hat(v)]))
    expected = torch.stack([torch.as_tensor(np.real(linalg.logm(a.numpy()))) for a in g])
    torch.testing.assert_close(group.hat(group.log(g)), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("scale", [0.0, 1e-9, 1.0])
def test_log_of_exp_is_the_identity_with_its_derivatives(scale):
    group = Euclidean(3)
    v = scale * torch.randn(6, generator=seeded_generator(), dtype=torch.float64)

    def round_trip(v):
        return group.log(group.exp(v))

    torch.testing.assert_close(round_trip(v), v, rtol=1e-14, atol=0)
    torch.testing.assert_close(torch.func.jacrev(round_trip)(v), torch.eye(6, dtype=v.dtype), rtol=0, atol=1e-14)
    assert torch.func.jacrev(torch.func.jacrev(round_trip))(v).abs().max() < 1e-13


def test_log_and_exp_of_a_half_turn():
    group = Euclidean(3)
    g = homogeneous_matrix(torch.diag(torch.tensor([-1.0, -1.0, 1.0], dtype=torch.float64)), torch.arange(3.0).double())
    torch.testing.assert_close(group.exp(group.log(g)), g)


def test_equals_se3_for_rotations():
    group, other = Euclidean(3), SE3()
    v, x = (
        torch.randn(5, 6, generator=seeded_generator()).double(),
        torch.randn(5, 3, generator=seeded_generator(1)).double(),
    )
    g = group.exp(v)
    torch.testing.assert_close(g, other.exp(v))
    torch.testing.assert_close(group.log(g), other.log(g))
    torch.testing.assert_close(group.act(g, x), other.act(g, x))
    torch.testing.assert_close(group.adjoint(g), other.adjoint(g))
    torch.testing.assert_close(group.left_jacobian(v), other.left_jacobian(v))


def test_preserves_distances():
    group = Euclidean(4)
    g, x = (
        group.sample(generator=seeded_generator(), dtype=torch.float64),
        torch.randn(6, 4, generator=seeded_generator(1)).double(),
    )
    torch.testing.assert_close(torch.cdist(group.act(g, x), group.act(g, x)), torch.cdist(x, x))


def test_invalid_arguments_raise():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Euclidean(0)
    with pytest.raises(ValueError, match=r"\(\*batch, 3, 3\), got \(2, 2\)"):
        Euclidean(2).inverse(torch.eye(2))
    with pytest.raises(ValueError, match=r"\(\*batch, 6\), got \(5,\)"):
        Euclidean(3).exp(torch.zeros(5))
    with pytest.raises(ValueError, match="got determinant -1"):
        Euclidean(2).log(torch.diag(torch.tensor([1.0, -1.0, 1.0])))


def test_log_runs_under_vmap():
    group = Euclidean(3)
    g = group.exp(torch.randn(3, 6, generator=seeded_generator(), dtype=torch.float64) / 3)
    torch.testing.assert_close(torch.func.vmap(group.log)(g), group.log(g))


def test_translation_is_a_subgroup_of_the_euclidean_group():
    group, whole = Translation(3), Euclidean(3)
    v, x = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    still = whole.exp(torch.nn.functional.pad(v, (0, 3)))
    torch.testing.assert_close(whole.act(still, x), group.act(group.exp(v), x))
    torch.testing.assert_close(torch.linalg.matrix_exp(group.hat(v)), still)
    assert torch.equal(group.vee(group.hat(v)), v)


def test_translation_jacobians_are_the_unit_matrix():
    v = torch.zeros(2, 5, 3)
    for matrix in (Translation(3).adjoint(v), Translation(3).left_jacobian(v), Translation(3).right_jacobian(v)):
        assert torch.equal(matrix, torch.eye(3).expand(2, 5, 3, 3))


def test_translation_invalid_arguments_raise():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Translation(0)
    with pytest.raises(ValueError, match=r"\(\*batch, 3\), got \(2,\)"):
        Translation(3).act(torch.zeros(2), torch.zeros(2))


def test_translation_single_entries_are_not_broadcast():
    group = Translation(3)
    for method in ("compose", "distance"):
        with pytest.raises(ValueError, match=r"\(\*batch, 3\), got \(1,\)"):
            getattr(group, method)(torch.ones(3), torch.ones(1))
    for method in ("inverse", "exp", "log", "hat", "adjoint"):
        with pytest.raises(ValueError, match=r"\(\*batch, 3\), got \(2,\)"):
            getattr(group, method)(torch.ones(2))


def test_scaling_log_turns_products_into_sums():
    group = Scaling()
    g, h = group.sample(2, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(group.log(group.compose(g, h)), group.log(g) + group.log(h))
    torch.testing.assert_close(group.exp(group.log(g)), g)
    torch.testing.assert_close(group.distance(g, h), torch.log(g / h).abs())
    assert (g > 0).all()


def test_scaling_jacobians_are_the_unit_matrix():
    group = Scaling()
    v = torch.zeros(5, 1)
    assert torch.equal(group.left_jacobian(v), torch.ones(5, 1, 1))
    assert torch.equal(group.adjoint(group.exp(v)), torch.ones(5, 1, 1))


def test_scaling_factors_that_are_not_positive_have_no_logarithm():
    assert Scaling().log(torch.tensor(-1.0)).isnan().all()


def test_scaling_each_sample_of_a_batch_has_its_own_factor():
    g, x = torch.tensor([1.0, 2.0]), torch.ones(2, 3)
    assert torch.equal(Scaling().act(g, x), torch.tensor([[1.0] * 3, [2.0] * 3]))


@pytest.mark.parametrize("method", ["exp", "hat", "left_jacobian"])
def test_scaling_coordinates_are_one_number(method):
    with pytest.raises(ValueError, match=r"\(\*batch, 1\), got \(2,\)"):
        getattr(Scaling(), method)(torch.zeros(2))


def test_scaling_group_equals_numpy():
    group = Scaling()
    g, h = group.sample(2, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    np.testing.assert_allclose(group.compose(g, group.inverse(h)), g.numpy() / h.numpy(), rtol=1e-14)
    np.testing.assert_allclose(group.exp(g[:, None]), np.exp(g.numpy()), rtol=1e-14)


def claims() -> Iterator[Claim]:
    """Second derivations of E(3), translations and scalings."""
    group, vector, v = Euclidean(3), shape("b 3"), shape("b 6")

    def to_isometry(x):
        return homogeneous_matrix(torch.linalg.qr(x[..., :3])[0], x[..., 3])

    def exponential(v):
        return group.exp(v.tanh())

    def by_adjoint(g, v):
        return group.exp((group.adjoint(g) @ v.tanh()[..., None])[..., 0])

    def by_conjugation(g, v):
        return g @ exponential(v) @ torch.linalg.inv(g)

    near = transformed(lambda x: to_isometry(x.tanh()), "b 3 4")
    yield Claim(agreement(other=by_conjugation), by_adjoint, (near, v), name="Euclidean.adjoint")

    def derivative_of_exp(v, w):
        """The derivative of exp along w, a corner of an exponential of twice the size, moved to the identity."""
        a, b = group.hat(v.tanh()), group.hat(w.tanh())
        both = torch.cat([torch.cat([a, b], -1), torch.cat([torch.zeros_like(a), a], -1)], -2)
        return group.vee(torch.linalg.matrix_exp(both)[..., :4, 4:] @ group.inverse(exponential(v)))

    def jacobian(v, w):
        return (group.left_jacobian(v.tanh()) @ w.tanh()[..., None])[..., 0]

    yield Claim(agreement(other=derivative_of_exp), jacobian, (v, v), name="Euclidean.left_jacobian")
    yield from translation_claims(Translation(3), vector)
    yield from scaling_claims(Scaling())


def translation_claims(group, vector) -> Iterator[Claim]:
    yield Claim(invertibility(inverse=group.vee), group.hat, vector, name="Translation.hat")

    def homogeneous_product(g, x):
        padded = torch.nn.functional.pad(x, (0, 1), value=1.0)[..., None]
        return (torch.linalg.matrix_exp(group.hat(g)) @ padded)[..., :3, 0]

    yield Claim(agreement(other=homogeneous_product), group.act, (vector, vector), name="Translation.act = exp(hat)")

    def methods(g, h):
        frames = group.adjoint(g) + 2 * group.left_jacobian(h) + group.dim
        numbers = torch.stack([group.exp(g), group.log(h), group.distance(g, h)[..., None].expand_as(g)], -2)
        return torch.cat([frames, numbers], -2)

    def formulas(g, h):
        frames = (3 * torch.eye(3).to(g) + 3).expand(*g.shape, 3)
        distance = (g - h).square().sum(-1, keepdim=True).sqrt().expand_as(g)
        return torch.cat([frames, torch.stack([g, h, distance], -2)], -2)

    def moments(x):
        samples = group.sample(50, 40, generator=torch.Generator().manual_seed(0)).flatten(0, 1).to(x)
        return torch.cat([samples.mean(0)[None], samples.T.cov()])

    def standard_normal(x):
        return torch.cat([x.new_zeros(1, 3), torch.eye(3).to(x)])

    yield Claim(agreement(other=formulas), methods, (vector, vector), name="Translation and its algebra")
    yield Claim(agreement(other=standard_normal, rtol=0.1), moments, shape("1"), name="Translation.sample")


def scaling_claims(group) -> Iterator[Claim]:
    factor = transformed(lambda x: x.tanh().exp(), "b")

    def scaled_norm(g, x):
        return g * torch.linalg.vector_norm(x, dim=-1)

    def norm(g, x):
        return torch.linalg.vector_norm(group.act(g, x), dim=-1)

    yield Claim(agreement(other=scaled_norm), norm, (factor, shape("b 3")), name="‖Scaling.act‖")

    def methods(v):
        v, g, one = v.tanh(), group.exp(v.tanh()), group.identity(len(v)).to(v)
        numbers = (group.vee(group.hat(v)), group.log(g), group.adjoint(g)[..., 0], group.left_jacobian(v)[..., 0])
        return torch.cat([*numbers, group.distance(g, one)[..., None], torch.full_like(v, group.dim)], -1)

    def formulas(v):
        v, one = v.tanh(), torch.ones_like(v)
        return torch.cat([v, v, one, one, v.abs(), one], -1)

    yield Claim(agreement(other=formulas), methods, shape("b 1"), name="Scaling and its algebra")

    def moments(x):
        logs = group.sample(50, 40, generator=torch.Generator().manual_seed(0)).log().to(x)
        return torch.stack([logs.mean(), logs.std()])

    yield Claim(agreement(other=lambda x: x.new_tensor([0, 1]), rtol=0.1), moments, shape("1"), name="Scaling.sample")
