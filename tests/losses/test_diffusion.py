"""Score matching against densities whose score is known at every noise level."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from lawful.data import GaussianMixture, gaussian_density
from lawful.functions.random import normal_noise
from lawful.laws import Claim, agreement, shape, transformed
from lawful.losses.diffusion import (
    DiscreteTime,
    LogNormal,
    LogUniform,
    UniformTime,
    denoising_loss,
    denoising_score_matching,
    explicit_score_matching,
    flow_matching_loss,
    random_signs_like,
    reduced_sliced_score_matching,
    sliced_score_matching,
    stratified_uniform,
)
from lawful.solvers.diffusion import (
    DENOISED,
    FLOW,
    NOISE,
    SCORE,
    VELOCITY,
    Prediction,
    Score,
    convert,
    ddpm_path,
    edm,
    preconditioned,
    rectified,
    variance_preserving,
)

MIXTURE = GaussianMixture.from_moments(means=torch.tensor([[1.0, 0.0], [-1.0, 0.5]]).double(), scale=0.6)
X = MIXTURE.sample(1500, seed=0)


def directions(x):
    torch.manual_seed(0)
    return random_signs_like(x, count=2)


LOSSES = {
    "explicit": explicit_score_matching,
    "sliced": lambda f, x: sliced_score_matching(f, x, directions(x)),
    "reduced": lambda f, x: reduced_sliced_score_matching(f, x, directions(x)),
    "denoising": lambda f, x: denoising_score_matching(f, x, normal_noise(len(x), 2, seed=1, dtype=x.dtype), sigma=0.5),
}


@pytest.mark.parametrize("name", LOSSES)
def test_is_least_at_the_exact_score_and_not_at_its_opposite(name):
    target = MIXTURE.with_noise(1.0, 0.5) if name == "denoising" else MIXTURE
    x = X if name == "denoising" else X[:300]

    def loss(scale, shift=0.0):
        return float(LOSSES[name](lambda y: scale * target.score(y) + shift, x).detach())

    best = loss(1.0)
    for other in (loss(0.6), loss(1.5), loss(-1.0), loss(0.0), loss(1.0, 0.5)):
        assert best < other


def test_explicit_is_torchs_jacobian():
    x = X[:5]
    jacobian = torch.stack([torch.autograd.functional.jacobian(MIXTURE.score, one) for one in x])
    expected = (MIXTURE.score(x).square().sum(1) / 2 + torch.einsum("nii->n", jacobian)).mean()
    torch.testing.assert_close(explicit_score_matching(MIXTURE.score, x).detach(), expected)


def test_images_and_gradients_of_parameters():
    weight = torch.nn.Parameter(torch.tensor(-0.5))
    x = torch.randn(4, 1, 2, 2)
    explicit_score_matching(lambda y: weight * y, x).backward()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, -0.5 * x.square().flatten(1).sum(1).mean() + 4)


def test_reduced_estimator_has_less_variance():
    torch.manual_seed(0)
    x, score = X[:50], MIXTURE.score
    many = [
        [float(loss(score, x, random_signs_like(x)).detach()) for _ in range(30)]
        for loss in (sliced_score_matching, reduced_sliced_score_matching)
    ]
    assert torch.tensor(many[1]).std() < 0.7 * torch.tensor(many[0]).std()


@pytest.mark.parametrize("path", [edm(), variance_preserving(), ddpm_path()], ids=lambda p: p.name)
@pytest.mark.parametrize("kind", [SCORE, NOISE, DENOISED, VELOCITY, FLOW, preconditioned(1.0)], ids=lambda k: k.name)
def test_every_parameterization_is_minimized_by_the_true_denoiser(path, kind):
    target = gaussian_density(torch.tensor([0.5, -1.0]).double(), torch.tensor([[1.0, 0.6], [0.6, 2.0]]).double())
    x, noise = target.sample(400, seed=0), normal_noise(400, 2, seed=3, dtype=torch.float64)
    t = path.time_of(torch.tensor(0.8).double()).expand(400)
    a, s = float(path.alpha(t[0])), float(path.sigma(t[0]))

    def loss(scale):
        def network(y, t):
            return convert(scale * target.denoise(y, a, s), y, t, path, source=DENOISED, target=kind)

        return float(denoising_loss(network, x, t, path, noise=noise, prediction=kind))

    assert loss(1.0) < min(loss(0.7), loss(1.3), loss(-1.0))


def test_weighting():
    path, x, noise = variance_preserving(), X[:20], normal_noise(20, 2, seed=3, dtype=torch.float64)
    t = torch.linspace(0.2, 0.8, 20).double()

    def as_noise(y, t):
        return convert(y.sin(), y, t, path, source=DENOISED, target=NOISE)

    one = denoising_loss(as_noise, x, t, path, noise=noise, prediction=NOISE)
    same = denoising_loss(lambda y, t: y.sin(), x, t, path, noise=noise, prediction=DENOISED, weighting=NOISE)
    torch.testing.assert_close(one, same)
    velocity = denoising_loss(lambda y, t: y.sin(), x, t, path, noise=noise, prediction=FLOW)
    torch.testing.assert_close(velocity, flow_matching_loss(lambda y, t: y.sin(), x, t, path, noise=noise))


@pytest.mark.parametrize("levels", [LogNormal(), LogUniform(), UniformTime(), DiscreteTime(num_steps=10)], ids=str)
@pytest.mark.parametrize("path", [edm(), variance_preserving(), ddpm_path(), rectified()], ids=lambda p: p.name)
def test_noise_levels_stay_on_the_path(levels, path):
    t = levels.times(torch.tensor([0.0, 0.3, 1 - 1e-12]).double(), path)
    assert t.dtype == torch.float64
    assert bool(((t > 0) & (t <= path.max_time)).all())
    assert bool((t.diff() >= 0).all())
    assert path.ratio(t[:2]).isfinite().all()


def test_stratified_numbers_are_evenly_spread():
    u = stratified_uniform(8)
    assert ((8 * u).floor() == torch.arange(8)).all()
    assert stratified_uniform(0).shape == (0,)


def linear_score(y):
    return -y


def narrow_score(y):
    return -y[:, :1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LogNormal(std=0.0), r"a finite std > 0, got .*std=0\.0"),
        (lambda: LogNormal(mean=float("nan")), "a finite mean .* got .*mean=nan"),
        (lambda: LogUniform(low=1.0, high=0.5), r"0 < low < high, got .*low=1\.0, high=0\.5"),
        (lambda: DiscreteTime(num_steps=0), "num_steps >= 1, got 0"),
        (
            lambda: denoising_score_matching(linear_score, torch.zeros(1, 2), torch.zeros(1, 2), sigma=0.0),
            r"a finite sigma > 0, got 0\.0",
        ),
        (lambda: random_signs_like(torch.zeros(1, 2), count=0), "count >= 1, got 0"),
        (lambda: explicit_score_matching(narrow_score, torch.zeros(2, 2)), r"score of shape \(2, 2\), got \(2, 1\)"),
        (lambda: explicit_score_matching(linear_score, torch.zeros(0, 2)), r"at least one example .* got \(0, 2\)"),
        (
            lambda: denoising_score_matching(narrow_score, torch.zeros(1, 2), torch.zeros(1, 2), sigma=1.0),
            r"score of shape \(1, 2\), got \(1, 1\)",
        ),
    ],
)
def test_invalid_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def _denoising_claims() -> Iterator[Claim]:
    """Laws of denoising losses."""
    path = variance_preserving()
    f = preconditioned(0.7)
    inputs = (shape("n 2"), shape("n 2"), transformed(lambda x: 0.1 + 0.6 * torch.sigmoid(x), "n"))

    def target(kind: Prediction, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        a, s, a_rate, s_rate = (value[:, None].to(x) for value in path.at(t))
        length = (s.square() + (0.7 * a).square()).sqrt()
        return {
            SCORE: -noise / s,
            NOISE: noise,
            DENOISED: x,
            VELOCITY: a * noise - s * x,
            FLOW: a_rate * x + s_rate * noise,
            f: (x * length - a * 0.49 * (a * x + s * noise) / length) / (s * 0.7),
        }[kind]

    for kind in (SCORE, NOISE, DENOISED, VELOCITY, FLOW, f):

        def found(x: Tensor, noise: Tensor, t: Tensor, kind: Prediction = kind) -> Tensor:
            return denoising_loss(lambda y, t: y.sin(), x, t, path, noise=noise, prediction=kind, reduction="none")

        def written(x: Tensor, noise: Tensor, t: Tensor, kind: Prediction = kind) -> Tensor:
            return (path.add_noise(x, noise, t).sin() - target(kind, x, noise, t)).square().mean(1)

        yield Claim(agreement(other=written), found, inputs, name=f"denoising_error of {kind.name}")

    def converted(x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return denoising_loss(
            lambda y, t: y.sin(), x, t, path, noise=noise, prediction=DENOISED, weighting=NOISE, reduction="none"
        )

    def in_noise(x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        y = path.add_noise(x, noise, t)
        a, s = path.alpha(t)[:, None].to(x), path.sigma(t)[:, None].to(x)
        return ((y - a * y.sin()) / s - noise).square().mean(1)

    yield Claim(agreement(other=in_noise), converted, inputs, name="denoised data, counted in noise")

    def matched(x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return flow_matching_loss(lambda y, t: y.sin(), x, t, path, noise=noise, reduction="none")

    def as_flow(x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return (path.add_noise(x, noise, t).sin() - target(FLOW, x, noise, t)).square().mean(1)

    yield Claim(agreement(other=as_flow), matched, inputs, name="flow_matching")

    nodes, weights = np.polynomial.hermite_e.hermegauss(4)
    pairs = torch.cartesian_prod(torch.tensor(nodes), torch.tensor(nodes))
    masses = torch.outer(torch.tensor(weights), torch.tensor(weights)).flatten() / weights.sum() ** 2

    def least(u: Tensor) -> Tensor:
        """The loss of D = c x_t is minimal at the true c = a τ² / (a² τ² + σ²), for data of deviation τ = 0.7."""
        x, noise = 0.7 * pairs[:, :1].to(u), pairs[:, 1:].to(u)
        t = (0.1 + 0.6 * torch.sigmoid(u)).double().expand(len(x))
        a, s = path.alpha(t[0]).to(u), path.sigma(t[0]).to(u)
        true = a * 0.49 / (a * a * 0.49 + s * s)
        with torch.enable_grad():
            c = true.detach().clone().requires_grad_()
            loss = denoising_loss(
                lambda y, t: c * y,
                x,
                t,
                path,
                noise=noise,
                prediction=DENOISED,
                reduction="none",
            )
            return 1 + torch.autograd.grad((masses.to(loss) * loss).sum(), c)[0]

    yield Claim(agreement(other=torch.ones_like), least, shape(""), name="least at the true denoiser")


def _noise_levels_claims() -> Iterator[Claim]:
    """Laws of noise levels: the CDF of a quantile is its probability."""
    inner = transformed(lambda x: 0.1 + 0.8 * torch.sigmoid(x), "n")
    path, line = edm(), rectified()

    def normal(u: Tensor) -> Tensor:
        ratio = path.ratio(LogNormal(mean=-0.7, std=0.9).times(u, path))
        return (0.5 + 0.5 * torch.erf((ratio.log() + 0.7) / (0.9 * 2**0.5))).to(u)

    def even(u: Tensor) -> Tensor:
        ratio = line.ratio(LogUniform(low=0.1, high=5.0).times(u, line))
        return ((ratio / 0.1).log() / torch.tensor(50.0).log()).to(u)

    def in_time(u: Tensor) -> Tensor:
        return (UniformTime().times(u, path) / 80).to(u)

    same = agreement(other=lambda u: 1 * u)
    for name, f in (("LogNormal", normal), ("LogUniform", even), ("UniformInTime", in_time)):
        yield Claim(same, f, inner, name=name)

    def stepwise(u: Tensor) -> Tensor:
        return DiscreteTime(num_steps=5).times(u, line).to(u)

    counted = agreement(other=lambda u: sum((u >= k / 5).to(u) for k in range(1, 5)) / 5 + 0.2)
    yield Claim(counted, stepwise, inner, name="Steps")


def _score_matching_claims() -> Iterator[Claim]:
    """Laws of score matching: each loss is the distance to the true score, up to a constant.

    Expectations are exact: by Gauss-Hermite quadrature, of scores that are polynomials.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(6)
    line, mass = torch.tensor(nodes), torch.tensor(weights / weights.sum())
    pairs, masses = torch.cartesian_prod(line, line), torch.outer(mass, mass).flatten()
    mean, std = torch.tensor([0.5, -1.0]).double(), torch.tensor([0.8, 1.3]).double()
    signs = torch.tensor([[1.0, 1.0], [1.0, -1.0]]).double()[:, None].expand(2, 36, 2)

    def expected(values: Tensor) -> Tensor:
        return (masses.to(values) * values).sum()

    def bent(theta: Tensor, x: Tensor) -> Tensor:
        """A nonlinear score with an asymmetric Jacobian."""
        a, b, c = theta.to(x)
        return torch.stack([a * x[:, 0] + b * x[:, 1] + c * x[:, 0] * x[:, 1], b + c * x[:, 1] ** 2 + x[:, 0]], 1)

    def data(theta: Tensor) -> Tensor:
        return (mean + std * pairs).to(theta)

    def fisher(theta: Tensor) -> Tensor:
        x = data(theta)
        true = -(x - mean.to(x)) / std.to(x).square()
        return expected(((bent(theta, x) - true).square() - true.square()).sum(1) / 2)

    losses = {
        "explicit": lambda f, x: expected(explicit_score_matching(f, x, reduction="none")),
        "sliced": lambda f, x: expected(sliced_score_matching(f, x, signs.to(x), reduction="none")),
        "reduced": lambda f, x: expected(reduced_sliced_score_matching(f, x, signs.to(x), reduction="none")),
    }
    for name, loss in losses.items():

        def found(theta: Tensor, loss: Callable[[Score, Tensor], Tensor] = loss) -> Tensor:
            return loss(lambda x: bent(theta, x), data(theta)).detach()

        yield Claim(agreement(other=fisher), found, shape("3"), name=f"{name} score matching, the Fisher divergence")

    def denoising(theta: Tensor) -> Tensor:
        """Data of mean 0.5 and deviation 0.8 on a line, and noise of 0.6."""
        x, noise = (0.5 + 0.8 * pairs[:, :1]).to(theta), pairs[:, 1:].to(theta)

        def score(y: Tensor) -> Tensor:
            return theta[0] + theta[1] * y + theta[2] * y**2

        return expected(denoising_score_matching(score, x, noise, sigma=0.6, reduction="none"))

    def of_noisy(theta: Tensor) -> Tensor:
        y = (0.5 + 1.0 * line).to(theta)  # its variance is 0.64 + 0.36 = 1
        true = 0.5 - y
        off = (theta[0] + theta[1] * y + theta[2] * y**2 - true).square()
        constant = (1 / 0.6**2 - 1) / 2
        return (mass.to(y) * off).sum() / 2 + constant

    yield Claim(agreement(other=of_noisy), denoising, shape("3"), name="denoising score matching, of the noisy data")

    def spread(x: Tensor) -> Tensor:
        """Half of the difference of sliced score matching between two directions, for s = -3 x."""
        v = torch.tensor([[1.0, 1.0], [1.0, -1.0]]).to(x)[:, None].expand(2, len(x), 2)
        both = [sliced_score_matching(lambda y: -3 * y, x, one[None], reduction="none").detach() for one in v]
        return (both[0] - both[1]) / 2

    by_hand = agreement(other=lambda x: 9 * x[:, 0] * x[:, 1])
    yield Claim(by_hand, spread, shape("n 2"), name="sliced_score_matching, difference of directions")


def claims() -> Iterator[Claim]:
    """Second derivations of diffusion losses."""
    yield from _denoising_claims()
    yield from _noise_levels_claims()
    yield from _score_matching_claims()
