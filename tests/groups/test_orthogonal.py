"""O(d): accuracy, derivatives, uniform samples."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from scipy import linalg
from scipy.stats import ks_2samp

from lawful.groups import SO2, SO3, Orthogonal
from lawful.laws import Claim, agreement, shape, transformed

PI = math.pi


def seeded_generator(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=seeded_generator(seed), dtype=dtype)


def random_rotations(angles, d, n, dtype=torch.float64):
    """Rotations by these angles in random planes, computed exactly and rounded to `dtype`."""
    frame = Orthogonal(d).sample(n, generator=seeded_generator(1), dtype=torch.float64)
    turn = torch.eye(d, dtype=torch.float64)
    for i, angle in enumerate(angles):
        c, s = math.cos(angle), math.sin(angle)
        turn[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
    return (frame @ turn @ frame.mT).to(dtype)


@pytest.mark.parametrize("d", [2, 3, 4, 5])
def test_exp_equals_scipy(d):
    group = Orthogonal(d)
    v = normal(10, group.dim)
    expected = torch.stack([torch.as_tensor(linalg.expm(a.numpy())) for a in group.hat(v)])
    torch.testing.assert_close(group.exp(v), expected)


@pytest.mark.parametrize("d", [2, 3, 4, 5, 8])
def test_log_equals_scipy(d):
    group = Orthogonal(d)
    g = group.exp(normal(10, group.dim))
    expected = torch.stack([torch.as_tensor(np.real(linalg.logm(r.numpy()))) for r in g])
    torch.testing.assert_close(group.hat(group.log(g)), expected, rtol=0, atol=1e-12)


def test_equals_so3_and_so2_for_rotations():
    for group, other in ((Orthogonal(3), SO3()), (Orthogonal(2), SO2())):
        v = normal(10, group.dim)
        g = group.exp(v)
        torch.testing.assert_close(g, other.exp(v))
        torch.testing.assert_close(group.log(g), other.log(g))
        torch.testing.assert_close(group.hat(v), other.hat(v))
        torch.testing.assert_close(group.left_jacobian(v), other.left_jacobian(v))
        torch.testing.assert_close(group.adjoint(g), other.adjoint(g))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("d", "angles"),
    [
        (2, [0.0]),
        (2, [PI]),
        (3, [1e-9]),
        (3, [1e-4]),
        (3, [PI - 1e-2]),
        (3, [PI - 1e-6]),
        (3, [PI]),
        (4, [1.0, 1.0]),
        (4, [1.0, -1.0]),
        (4, [PI, PI]),
        (4, [PI - 1e-6, PI]),
        (4, [PI, 1e-9]),
        (5, [PI - 1e-6, PI - 1e-6]),
        (8, [2.0, 2.0, 2.0, 2.0]),
        (8, [PI, PI, PI, PI]),
    ],
)
def test_exp_inverts_log_at_every_angle(d, angles, dtype):
    group, g = Orthogonal(d), random_rotations(angles, d, 200, dtype)
    v = group.log(g)
    few = 10 * torch.finfo(dtype).eps
    assert (group.exp(v) - g).abs().max() < few
    longest = torch.linalg.matrix_norm(group.hat(v), 2)
    ulps = 2 * few  # of π, whose last place is twice that of 1
    torch.testing.assert_close(longest, torch.full_like(longest, max(map(abs, angles))), rtol=0, atol=ulps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [2, 3, 4, 5, 6])
def test_log_inverts_exp_to_ten_units_in_the_last_place(d, dtype):
    group, few = Orthogonal(d), 10 * torch.finfo(dtype).eps
    h = group.sample(500, generator=seeded_generator(), dtype=dtype)
    g = h @ h
    assert (group.exp(group.log(g)) - g).abs().max() < few
    v = normal(500, group.dim, seed=1)
    v = (3 * v / torch.linalg.matrix_norm(group.hat(v), 2)[:, None]).to(dtype)
    assert (group.log(group.exp(v)) - v).abs().max() < 2 * few  # angles up to 3, whose last place is twice that of 1


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own, in forward mode
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-9, 1e-4, 1.0])
@pytest.mark.parametrize("d", [2, 3, 4])
def test_log_of_exp_is_the_identity_with_its_derivatives(d, scale):
    group = Orthogonal(d)
    v = scale * torch.nn.functional.normalize(normal(group.dim), dim=-1)

    def round_trip(v):
        return group.log(group.exp(v))

    assert (round_trip(v) - v).abs().max() <= 1e-15 * scale
    one = torch.eye(group.dim, dtype=v.dtype)
    torch.testing.assert_close(torch.func.jacrev(round_trip)(v), one, rtol=0, atol=1e-14)
    torch.testing.assert_close(torch.func.jacfwd(round_trip)(v), one, rtol=0, atol=1e-14)
    assert torch.func.jacrev(torch.func.jacrev(round_trip))(v).abs().max() < 1e-13


@pytest.mark.parametrize("angle", [0.0, 1.0, PI - 1e-3])
def test_gradient_of_log_is_its_derivative_along_the_group(angle):
    group, g = Orthogonal(4), random_rotations([angle, angle / 2], 4, 1)[0]
    path = normal(group.dim, seed=3)

    def moved(s):
        return group.log(group.exp(s * path) @ g)

    s = torch.zeros((), dtype=torch.float64)
    h = 1e-6
    numeric = (moved(s + h) - moved(s - h)) / (2 * h)
    torch.testing.assert_close(torch.func.jacrev(moved)(s), numeric, rtol=1e-6, atol=1e-7)


def test_half_turns_in_every_plane_have_finite_values_and_gradients():
    for d in (2, 4, 6):
        g = (-torch.eye(d, dtype=torch.float64)).requires_grad_()
        v = Orthogonal(d).log(g)
        v.sum().backward()
        assert v.isfinite().all()
        assert g.grad is not None
        assert g.grad.isfinite().all()


def test_log_raises_for_reflections_and_propagates_nan():
    group = Orthogonal(3)
    with pytest.raises(ValueError, match="got determinant -1"):
        group.log(torch.stack([torch.eye(3), -torch.eye(3)]))
    with pytest.raises(ValueError, match=r"max \|R.T @ R - 1\| = 3"):
        group.log(2 * torch.eye(3))
    assert group.log(torch.full((2, 3, 3), torch.nan)).isnan().all()


@pytest.mark.parametrize("d", [2, 3, 4])
def test_samples_are_uniform(d):
    """The first moments equal the Haar measure, also after a rotation by a fixed element."""
    n = 20000
    group = Orthogonal(d)
    g = group.sample(n, generator=seeded_generator(), dtype=torch.float64)
    torch.testing.assert_close(g.mT @ g, torch.eye(d, dtype=g.dtype).expand_as(g))
    for h in (
        g,
        group.compose(group.exp(normal(group.dim)), g),
        group.compose(g, group.exp(normal(group.dim, seed=1))),
    ):
        bound = 5 / math.sqrt(n)
        assert h.mean(0).abs().max() < bound
        assert (h.square().mean(0) - 1 / d).abs().max() < bound
        assert torch.linalg.det(h).mean().abs() < bound
        trace = h.diagonal(dim1=-2, dim2=-1).sum(-1)
        assert (trace.square().mean() - 1).abs() < 3 * bound  # the trace has mean 0 and variance 1 for every d


def test_samples_are_invariant():
    """Two-sample Kolmogorov-Smirnov test: samples, and samples composed with a fixed element."""
    group = Orthogonal(3)
    g, h = group.sample(2, 5000, generator=seeded_generator(5), dtype=torch.float64)
    turn = group.sample(generator=seeded_generator(6), dtype=torch.float64)
    for k in (turn @ h, h @ turn):
        assert ks_2samp(g[:, 0, 0].numpy(), k[:, 0, 0].numpy()).pvalue > 1e-4
        assert (
            ks_2samp(g.diagonal(dim1=1, dim2=2).sum(1).numpy(), k.diagonal(dim1=1, dim2=2).sum(1).numpy()).pvalue > 1e-4
        )


def test_one_dimension_has_two_elements():
    group = Orthogonal(1)
    assert group.dim == 0
    assert group.sample(50, generator=seeded_generator()).abs().eq(1).all()
    assert group.log(group.exp(torch.zeros(3, 0))).shape == (3, 0)


def test_one_element_acts_on_many_points():
    group = Orthogonal(3)
    g, x = group.sample(4, generator=seeded_generator(), dtype=torch.float64), normal(4, 5, 3)
    torch.testing.assert_close(group.act(g[:, None], x), x @ g.mT)
    torch.testing.assert_close(group.act(g[0], x), x @ g[0].mT)


def test_invalid_arguments_raise():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Orthogonal(0)
    with pytest.raises(ValueError, match=r"\(\*batch, 3\), got \(2, 4\)"):
        Orthogonal(3).hat(torch.zeros(2, 4))
    with pytest.raises(ValueError, match=r"\(\*batch, 3, 3\), got \(2, 2\)"):
        Orthogonal(3).log(torch.eye(2))


def test_log_runs_under_vmap():
    group = Orthogonal(4)
    g = group.exp(normal(3, 6) / 3)
    torch.testing.assert_close(torch.func.vmap(group.log)(g), group.log(g))


def claims() -> Iterator[Claim]:
    """Second derivations of O(4)."""
    group, spatial, v = Orthogonal(4), Orthogonal(3), shape("b 6")
    element = transformed(lambda x: torch.linalg.qr(x)[0], "b 4 4")

    def rotation(v):
        return group.exp(v.tanh())

    def round_trip(v, c):
        """The logarithm of the exponential, and its vector-Jacobian product."""
        with torch.enable_grad():
            v = v.tanh().detach().requires_grad_()
            w = group.log(group.exp(v))
            return torch.stack([w.detach(), *torch.autograd.grad(w, v, c.tanh())])

    def identity(v, c):
        return torch.stack([v.tanh(), c.tanh()])

    few = shape("b:1..3 6")
    yield Claim(agreement(other=identity), round_trip, (few, few), name="Orthogonal.log of exp and its gradient")

    def by_adjoint(g, v):
        return group.exp((group.adjoint(g) @ v.tanh()[..., None])[..., 0])

    def by_conjugation(g, v):
        return g @ rotation(v) @ g.mT

    yield Claim(agreement(other=by_conjugation), by_adjoint, (element, v), name="Orthogonal.adjoint")

    def cross_product(v, x):
        return torch.linalg.cross(v, x, dim=-1)

    def by_hat(v, x):
        return spatial.act(spatial.hat(v), x)

    yield Claim(agreement(other=cross_product), by_hat, (shape("b 3"), shape("b 3")), name="Orthogonal(3).hat")

    def derivative_of_exp(v, w):
        """The derivative of exp along w, a corner of an exponential of twice the size, moved to the identity."""
        a, b = group.hat(v.tanh()), group.hat(w.tanh())
        both = torch.cat([torch.cat([a, b], -1), torch.cat([torch.zeros_like(a), a], -1)], -2)
        return group.vee(torch.linalg.matrix_exp(both)[..., :4, 4:] @ rotation(v).mT)

    def jacobian(v, w):
        return (group.left_jacobian(v.tanh()) @ w.tanh()[..., None])[..., 0]

    yield Claim(agreement(other=derivative_of_exp), jacobian, (v, v), name="Orthogonal.left_jacobian")
