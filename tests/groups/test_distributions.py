import math

import numpy as np
import pytest
import torch

from lawful.groups import SE2, SE3, SO2, SO3, Haar, Orthogonal, VonMises, WrappedNormal, homogeneous_matrix

GROUPS = SO2(), SO3(), SE2(), SE3()
VOLUMES = {SO2: 2 * math.pi, SO3: 8 * math.pi**2}


def gauss_legendre(n, low, high):
    nodes, weights = np.polynomial.legendre.leggauss(n)
    half = (high - low) / 2
    return torch.from_numpy(nodes * half + (low + high) / 2), torch.from_numpy(weights * half)


@pytest.mark.parametrize("scale", [0.1, 1.0, 8.0])
def test_on_so2_it_is_the_fourier_series_of_the_wrapped_normal(scale):
    angle = torch.linspace(-3.1, 3.1, 50, dtype=torch.float64)
    n = torch.arange(1, 100, dtype=torch.float64)
    series = (1 + 2 * ((-(n**2) * scale**2 / 2).exp() * (angle[:, None] * n).cos()).sum(-1)) / (2 * math.pi)
    p = WrappedNormal(SO2(), scale=torch.tensor(scale).double()).log_prob(SO2().exp(angle[:, None])).exp()
    torch.testing.assert_close(p, series, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [0.1, 0.5, 1.0, 2.0, 4.0, 8.0])
def test_on_so3_it_integrates_to_one(scale, dtype):
    angle, weights = gauss_legendre(400, 0.0, math.pi)
    v = torch.zeros(400, 3, dtype=dtype)
    v[:, 1] = angle.to(dtype)
    p = WrappedNormal(SO3(), scale=torch.tensor(scale, dtype=dtype)).log_prob(SO3().exp(v)).double().exp()
    total = (weights * p * 4 * math.pi * (2 - 2 * angle.cos())).sum()
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-3 if dtype is torch.float32 else 1e-10)


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_with_different_scales_it_integrates_to_one(group):
    """The weights of samples from another density have the mean 1."""
    n, scale = 100_000, torch.tensor([0.4, 1.0, 2.0, 0.4, 1.0, 2.0][: group.dim], dtype=torch.float64)
    rotations = SO2() if group.dim in (1, 3) and not isinstance(group, SO3) else SO3()
    g, log_density = rotations.sample(n, dtype=torch.float64), -math.log(VOLUMES[type(rotations)])
    if isinstance(group, SE2 | SE3):
        t = 3 * torch.randn(n, g.shape[-1], dtype=torch.float64)
        g = homogeneous_matrix(g, t)
        log_density = log_density + torch.distributions.Normal(0.0, 3.0).log_prob(t).sum(-1)
    weights = (WrappedNormal(group, scale=scale).log_prob(g) - log_density).exp()
    assert abs(float(weights.mean()) - 1) < 4 * float(weights.std()) / n**0.5


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_near_the_location_it_is_the_normal_density_of_the_algebra(group):
    scale = torch.linspace(0.1, 0.3, group.dim, dtype=torch.float64)
    v = 1e-5 * torch.randn(20, group.dim, dtype=torch.float64)
    normal = torch.distributions.Normal(0, scale).log_prob(v).sum(-1)
    torch.testing.assert_close(WrappedNormal(group, scale=scale).log_prob(group.exp(v)), normal, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("scale", [0.7, 3.0])
def test_samples_on_so3_have_the_angles_of_the_density(scale):
    """The distribution function of the angle, by quadrature, is uniform over the samples."""
    n = 20_000
    distribution = WrappedNormal(SO3(), scale=torch.tensor(scale).double())
    angles = SO3().log(distribution.sample((n,))).norm(dim=-1).sort().values
    grid, v = torch.linspace(1e-6, math.pi, 5000, dtype=torch.float64), torch.zeros(5000, 3, dtype=torch.float64)
    v[:, 2] = grid
    density = distribution.log_prob(SO3().exp(v)).exp() * 4 * math.pi * (2 - 2 * grid.cos())
    below = torch.cumulative_trapezoid(density, grid)
    found = below[(torch.searchsorted(grid, angles) - 2).clamp(0)]
    distance = (found - (torch.arange(n) + 0.5) / n).abs().max()
    assert distance < 1.95 / n**0.5  # Kolmogorov-Smirnov, false alarms at 1e-3


@pytest.mark.parametrize("group", GROUPS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_are_finite_at_special_elements(group, dtype):
    v = torch.zeros(4, group.dim, dtype=dtype)
    v[1, -1], v[2, -1], v[3] = math.pi, 1e-7, 1e-20
    v.requires_grad_()
    scale = torch.full((group.dim,), 3.0, dtype=dtype, requires_grad=True)
    values = WrappedNormal(group, scale=scale).log_prob(group.exp(v))
    values.sum().backward()
    assert values.isfinite().all()
    assert v.grad.isfinite().all()
    assert scale.grad.isfinite().all()


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_float32_agrees_with_float64(group):
    g = group.exp(torch.randn(50, group.dim, dtype=torch.float64))
    exact, rounded = (
        WrappedNormal(group, scale=torch.tensor(0.8, dtype=d)).log_prob(g.to(d)) for d in (g.dtype, torch.float32)
    )
    torch.testing.assert_close(rounded.double(), exact, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_gradient_of_samples_is_that_of_the_expectation(group):
    """Against the score function estimator, with independent samples."""
    n, scale = 10_000, torch.full((group.dim,), 0.6, dtype=torch.float64, requires_grad=True)
    loc = group.exp(torch.full((group.dim,), 0.5, dtype=torch.float64))
    weights = torch.randn(loc.shape, dtype=torch.float64)
    distribution = WrappedNormal(group, loc, scale)

    def h(g):
        return (g * weights).sum((-1, -2)).tanh()

    groups = h(distribution.rsample((n,))).reshape(40, -1).mean(-1)
    through = torch.stack([torch.autograd.grad(x, scale, retain_graph=True)[0] for x in groups])
    y = distribution.sample((n,))
    values = h(y)
    terms = ((values - values.mean()) * distribution.log_prob(y)).reshape(40, -1).mean(-1)
    score = torch.stack([torch.autograd.grad(x, scale, retain_graph=True)[0] for x in terms])
    difference = through - score
    assert (difference.mean(0).abs() < 4 * difference.std(0) / 40**0.5).all()


def test_shapes_and_expansion():
    loc, scale = SO3().sample(4, 1), torch.rand(5, 3) + 0.1
    distribution = WrappedNormal(SO3(), loc, scale)
    assert distribution.batch_shape == (4, 5)
    assert distribution.event_shape == (3, 3)
    g = distribution.rsample((2,))
    assert g.shape == (2, 4, 5, 3, 3)
    assert distribution.log_prob(g).shape == (2, 4, 5)
    assert distribution.expand((7, 4, 5)).log_prob(g[0]).shape == (7, 4, 5)


def test_more_wraps_change_nothing():
    g, scale = SE3().sample(20, dtype=torch.float64), torch.tensor(2.0).double()
    few, many = (WrappedNormal(SE3(), scale=scale, num_wraps=n).log_prob(g) for n in (None, 30))
    torch.testing.assert_close(few, many)
    assert (WrappedNormal(SE3(), scale=scale, num_wraps=0).log_prob(g) < many - 0.01).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"group": Orthogonal(3)}, r"group must be SO2\(\), SO3\(\), SE2\(\) or SE3\(\), got Orthogonal\(3\)"),
        ({"group": SO3(), "loc": torch.eye(2)}, r"expected loc of shape \(\*batch, 3, 3\)"),
        ({"group": SO3(), "scale": torch.ones(2)}, "expected scale with 1 or 3 entries"),
        ({"group": SO3(), "scale": 0.0}, "scale must be positive"),
        ({"group": SO3(), "num_wraps": -1}, "num_wraps must be at least 0, got -1"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        WrappedNormal(**arguments)


def test_haar():
    haar = Haar(SO3(), dtype=torch.float64)
    assert haar.sample((4, 2)).shape == (4, 2, 3, 3)
    g, h = haar.sample((10_000,)), SO3().exp(torch.tensor([1.0, 2.0, 0.5]).double())
    for x in (g, h @ g, g @ h):  # the mean of the angle is π/2 + 2/π
        angles = SO3().log(x).norm(dim=-1)
        assert abs(angles.mean() - (math.pi / 2 + 2 / math.pi)) < 4 * angles.std() / 100
    assert haar.log_prob(g).shape == (10_000,)
    assert haar.entropy() == pytest.approx(math.log(8 * math.pi**2))
    with pytest.raises(ValueError, match="which are compact, got SE3"):
        Haar(SE3())


@pytest.mark.parametrize("concentration", [0.05, 1.0, 30.0, 3000.0])
def test_von_mises_gradient(concentration):
    """The mean of the cosine is I1 / I0 of the concentration."""
    kappa, loc = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (concentration, 2.5))
    cosines = (VonMises(loc, kappa).rsample((100, 1000)) - loc.detach()).cos().mean(-1)
    found = torch.stack([torch.autograd.grad(c, kappa, retain_graph=True)[0] for c in cosines])
    ratio = torch.special.i1e(kappa) / torch.special.i0e(kappa)
    (expected,) = torch.autograd.grad(ratio, kappa)
    assert abs(found.mean() - expected) < 4 * found.std() / 10 + 1e-4 * expected
    moved = VonMises(loc, kappa).rsample((10,)).sum()
    assert torch.autograd.grad(moved, loc)[0] == 10
