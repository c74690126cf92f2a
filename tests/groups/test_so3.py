"""SO(3): accuracy, derivatives, uniform samples."""

import re
from collections.abc import Iterator
from math import pi

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from scipy.stats import kstest
from torch.fx.experimental.proxy_tensor import make_fx

from lawful.groups import SO3, phi1
from lawful.groups._helpers import safe_norm, shorten
from lawful.laws import Claim, agreement, transformed

G = SO3()
SMALL = [10.0**-k for k in range(9, 0, -1)]
ANGLES = [0.0, *SMALL, 1.0, 2.0, 3.0, *(pi - a for a in reversed(SMALL)), pi]
DTYPES = [torch.float32, torch.float64]
CORNERS = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [-1, 0, 0], [0, 0, -1], [1, 1, 0], [1, -1, 0], [0, 1, -1], [1, 1, 1]]


def axes(n):
    normal = torch.randn(n, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.nn.functional.normalize(torch.cat([normal, torch.tensor(CORNERS).double()]), dim=-1)


def hat(v):
    """Independent implementation, for the references."""
    zero = torch.zeros_like(v[..., 0])
    x, y, z = v.unbind(-1)
    return torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).unflatten(-1, (3, 3))


def reference(v):
    return torch.linalg.matrix_exp(hat(v))


def vectors(angles, dtype):
    """Rotation vectors of each of the angles, about each of many axes."""
    return (torch.tensor(angles, dtype=torch.float64)[:, None, None] * axes(3)).flatten(0, 1).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("angle", ANGLES)
def test_exp_inverts_log_to_10_ulp(angle, dtype):
    v = angle * axes(2000)
    for r in (G.exp(v.to(dtype)), torch.from_numpy(Rotation.from_rotvec(v).as_matrix()).to(dtype)):
        assert (G.exp(G.log(r)) - r).abs().max() <= 10 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("angle", ANGLES)
def test_log_inverts_exp_below_pi(angle, dtype):
    v, eps = (angle * axes(2000)).to(dtype), torch.finfo(dtype).eps
    length = v.double().norm(dim=-1, keepdim=True)
    other = (v - 2 * pi * v / length.clamp_min(1)).to(dtype)
    error = (G.log(G.exp(v)) - v).abs().amax(-1)
    wrapped = (G.log(G.exp(v)) - other).abs().amax(-1)
    ambiguous = length[..., 0] > pi * (1 - 2 * eps)  # the last numbers before pi: rounding may end on either side
    assert torch.where(ambiguous, torch.minimum(error, wrapped), error).max() <= 10 * eps * pi


@pytest.mark.parametrize("dtype", DTYPES)
def test_derivatives_of_exp(dtype):
    v, eps = vectors([*ANGLES, 5.0, 7.0, 20.0], dtype)[::5], torch.finfo(dtype).eps
    scale = v.double().norm(dim=-1).clamp_min(1.0)

    def derivatives(f):
        first = torch.func.vmap(torch.func.jacrev(f))
        second = torch.func.vmap(torch.func.jacrev(torch.func.jacrev(f)))
        return first, second

    for ours, truth in zip(derivatives(G.exp), derivatives(reference), strict=True):
        error = (ours(v).double() - truth(v.double())).abs().flatten(1).amax(-1)
        assert (error / scale).max() <= 30 * eps


@pytest.mark.parametrize("dtype", DTYPES)
def test_derivatives_of_log_along_the_group(dtype):
    eps = torch.finfo(dtype).eps
    v = vectors([a for a in ANGLES if a < pi * (1 - 4 * eps)], torch.float64)  # closer ones round to either branch
    w = axes(len(v))[: len(v)]
    r = torch.from_numpy(Rotation.from_rotvec(v).as_matrix()).to(dtype)

    def ours(t):
        return G.log(r @ G.exp(t * w.to(dtype)))

    def velocity(v):
        return torch.linalg.solve(phi1(hat(-v)), w[..., None])[..., 0]

    def first(f):
        return lambda t: torch.func.jvp(f, (t,), (torch.ones_like(t),))[1]

    zero = torch.zeros((), dtype=dtype)
    truth, bend = torch.func.jvp(velocity, (v,), (velocity(v),))
    assert (first(ours)(zero).double() - truth).abs().max() <= 40 * eps
    assert (first(first(ours))(zero).double() - bend).abs().max() <= 300 * eps


@pytest.mark.parametrize("dtype", DTYPES)
def test_derivatives_are_finite_also_at_half_turns(dtype):
    v = vectors(ANGLES, dtype)
    given = torch.from_numpy(Rotation.from_rotvec(v).as_matrix()).to(dtype)
    for f, x in ((G.exp, v), (G.log, G.exp(v)), (G.log, given)):
        jacobian = torch.func.jacrev(f)
        assert torch.func.vmap(jacobian)(x).isfinite().all()
        assert torch.func.vmap(torch.func.jacrev(jacobian))(x).isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_derivative_of_log_at_the_identity_is_the_euclidean_one(dtype):
    expected = torch.func.jacrev(lambda r: G.vee(r))(torch.eye(3, dtype=dtype))
    torch.testing.assert_close(torch.func.jacrev(G.log)(torch.eye(3, dtype=dtype)), expected)


@pytest.mark.parametrize("corner", CORNERS)
def test_half_turns_take_the_axis_with_the_first_entry_positive(corner):
    axis = torch.nn.functional.normalize(torch.tensor(corner).double(), dim=-1)
    r = (2 * axis[:, None] * axis[None, :] - torch.eye(3)).requires_grad_()
    v = G.log(r)
    first = axis[axis.nonzero()[0, 0]].sign()
    torch.testing.assert_close(v, pi * axis * first, rtol=0, atol=1e-14)
    assert torch.autograd.grad(v.sum(), r)[0].isfinite().all()


def test_equals_scipy():
    v = torch.randn(200, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2
    scipy = Rotation.from_rotvec(v.numpy())
    np.testing.assert_allclose(G.exp(v), scipy.as_matrix(), atol=1e-14)
    np.testing.assert_allclose(G.log(G.exp(v)), scipy.as_rotvec(), atol=1e-13)
    np.testing.assert_allclose(
        G.distance(G.exp(v[:100]), G.exp(v[100:])), (scipy[:100].inv() * scipy[100:]).magnitude()
    )


def test_right_jacobian_and_inverses():
    v = torch.randn(5, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    torch.testing.assert_close(G.right_jacobian(v), phi1(-hat(v)))
    torch.testing.assert_close(G.right_jacobian_inverse(v), torch.linalg.inv(phi1(-hat(v))))


def test_samples_are_uniform():
    r = G.sample(20_000, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert kstest(G.distance(r, G.identity(dtype=torch.float64)), lambda t: (t - np.sin(t)) / pi).pvalue > 1e-3
    axis = G.log(r) / G.log(r).norm(dim=-1, keepdim=True)
    assert all(kstest(axis[:, n], "uniform", (-1, 2)).pvalue > 1e-3 for n in range(3))


def test_batches_of_any_shape_and_vmap():
    v = torch.randn(2, 3, 4, 3, generator=torch.Generator().manual_seed(4))
    r = G.exp(v)
    assert r.shape == (2, 3, 4, 3, 3)
    torch.testing.assert_close(torch.vmap(G.log)(r), G.log(r))
    assert G.exp(torch.zeros(0, 3)).shape == (0, 3, 3)
    assert G.log(torch.zeros(0, 3, 3)).shape == (0, 3)
    assert G.sample(2, 5).shape == G.identity(2, 5).shape == (2, 5, 3, 3)


def test_no_data_dependent_control_flow():
    v = torch.randn(4, 3, generator=torch.Generator().manual_seed(5))
    others = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1e-9, 0.0], [pi, 0.0, 0.0], [0.0, -2.0, 2.0]])
    for f, x, y in ((G.exp, v, others), (G.log, G.exp(v), G.exp(others))):

        def plain(x, /):
            return f(x)

        torch.testing.assert_close(make_fx(plain)(x)(y), f(y), rtol=0, atol=0)


def test_distance_has_no_nan_in_its_gradient():
    r = G.exp(torch.randn(3, 3, generator=torch.Generator().manual_seed(6))).requires_grad_()
    assert torch.autograd.grad(G.distance(r, r.detach()).sum(), r)[0].isfinite().all()


def test_nan_propagates():
    v = torch.tensor([[torch.nan, 0.0, 0.0], [1.0, 0.0, 0.0]])
    assert G.exp(v)[0].isnan().any()
    assert G.exp(v)[1].isfinite().all()
    assert G.log(torch.full((3, 3), torch.nan)).isnan().any()


@pytest.mark.parametrize(
    ("method", "expected", "wrong"),
    [("exp", "3", (2, 4)), ("log", "3, 3", (3, 2)), ("inverse", "3, 3", (4, 4)), ("hat", "3", (2,))],
)
def test_wrong_shapes_raise(method, expected, wrong):
    with pytest.raises(ValueError, match=rf"shape \(\*batch, {expected}\), got {re.escape(str(wrong))}"):
        getattr(G, method)(torch.zeros(wrong))


def test_integers_raise():
    with pytest.raises(TypeError, match=r"expected a floating-point tensor, got torch\.int64"):
        G.exp(torch.zeros(3, dtype=torch.int64))


NO_ROTATIONS = {
    "zero": torch.zeros(3, 3),
    "reflection": -torch.eye(3),
    "swapped axes": torch.eye(3)[[1, 0, 2]],
    "scaled": 1.1 * torch.eye(3),
    "sheared": torch.eye(3) + torch.tensor([[0, 0.1, 0], [0, 0, 0], [0, 0, 0]]),
    "rank one": torch.diag(torch.tensor([0.0, 1.0, 0.0])),
    "transposed homogeneous": torch.ones(3, 3).tril(),
}


@pytest.mark.parametrize("name", NO_ROTATIONS)
def test_log_refuses_what_is_no_rotation(name):
    matrix = NO_ROTATIONS[name]
    with pytest.raises(ValueError, match=r"expected rotation matrices .* at index \(1, 0\)"):
        G.log(torch.stack([torch.eye(3), matrix]).unsqueeze(1))
    torch.vmap(G.log)(torch.stack([torch.eye(3), matrix]))  # values are not available there


def test_log_accepts_rounded_rotations():
    r = G.sample(100)
    assert (G.log((1000 * r).round() / 1000) - G.log(r)).abs().max() < 0.01 * torch.pi
    assert G.log(r.bfloat16()).isfinite().all()
    assert G.log(torch.full((3, 3), torch.nan)).isnan().all()


def test_log_compiles():
    compiled, r = torch.compile(G.log, backend="eager", fullgraph=True), G.sample(4)
    torch.testing.assert_close(compiled(r), G.log(r))


def claims() -> Iterator[Claim]:
    """Second derivation of the distance."""

    def distance_to_identity(v):
        return G.distance(G.exp(v), G.identity().to(v))

    yield Claim(agreement(other=safe_norm), distance_to_identity, transformed(shorten, "b 3"), name="SO3.distance")
