"""Score matching against densities whose score is known at every noise level."""

import pytest
import torch

from lawful.data import Gaussian, Mixture
from lawful.functions.random import normal_noise
from lawful.losses.diffusion import (
    LogNormal,
    LogUniform,
    Steps,
    UniformInTime,
    denoising_error,
    denoising_score_matching,
    explicit_score_matching,
    flow_matching,
    reduced_sliced_score_matching,
    signs_like,
    sliced_score_matching,
    stratified,
)
from lawful.solvers.diffusion import (
    DENOISED,
    FLOW,
    NOISE,
    SCORE,
    VELOCITY,
    convert,
    ddpm_path,
    edm,
    preconditioned,
    rectified,
    variance_preserving,
)

MIXTURE = Mixture.of(means=torch.tensor([[1.0, 0.0], [-1.0, 0.5]]).double(), scale=0.6)
X = MIXTURE.sample(1500)


def directions(x):
    torch.manual_seed(0)
    return signs_like(x, count=2)


LOSSES = {
    "explicit": explicit_score_matching,
    "sliced": lambda f, x: sliced_score_matching(f, x, directions(x)),
    "reduced": lambda f, x: reduced_sliced_score_matching(f, x, directions(x)),
    "denoising": lambda f, x: denoising_score_matching(f, x, normal_noise(len(x), 2, seed=1, dtype=x.dtype), sigma=0.5),
}


@pytest.mark.parametrize("name", LOSSES)
def test_is_least_at_the_exact_score_and_not_at_its_opposite(name):
    target = MIXTURE.noised(1.0, 0.5) if name == "denoising" else MIXTURE
    x = X if name == "denoising" else X[:300]

    def loss(scale, shift=0.0):
        return float(LOSSES[name](lambda y: scale * target.score(y) + shift, x).detach())

    best = loss(1.0)
    for other in (loss(0.6), loss(1.5), loss(-1.0), loss(0.0), loss(1.0, 0.5)):
        assert best < other


def test_explicit_is_torchs_jacobian():
    x = X[:5]
    jacobian = torch.stack([torch.autograd.functional.jacobian(MIXTURE.score, one) for one in x])
    wanted = (MIXTURE.score(x).square().sum(1) / 2 + torch.einsum("nii->n", jacobian)).mean()
    torch.testing.assert_close(explicit_score_matching(MIXTURE.score, x).detach(), wanted)


def test_images_and_gradients_of_parameters():
    weight = torch.nn.Parameter(torch.tensor(-0.5))
    x = torch.randn(4, 1, 2, 2)
    explicit_score_matching(lambda y: weight * y, x).backward()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, -0.5 * x.square().flatten(1).sum(1).mean() + 4)


def test_the_reduced_varies_less():
    torch.manual_seed(0)
    x, score = X[:50], MIXTURE.score
    many = [
        [float(loss(score, x, signs_like(x)).detach()) for _ in range(30)]
        for loss in (sliced_score_matching, reduced_sliced_score_matching)
    ]
    assert torch.tensor(many[1]).std() < 0.7 * torch.tensor(many[0]).std()


@pytest.mark.parametrize("path", [edm(), variance_preserving(), ddpm_path()], ids=lambda p: p.name)
@pytest.mark.parametrize("kind", [SCORE, NOISE, DENOISED, VELOCITY, FLOW, preconditioned(1.0)], ids=lambda k: k.name)
def test_every_parametrisation_is_least_at_the_truth(path, kind):
    target = Gaussian(torch.tensor([0.5, -1.0]).double(), torch.tensor([[1.0, 0.6], [0.6, 2.0]]).double())
    x, noise = target.sample(400), normal_noise(400, 2, seed=3, dtype=torch.float64)
    t = path.time_of(torch.tensor(0.8).double()).expand(400)
    a, s = float(path.alpha(t[0])), float(path.sigma(t[0]))

    def loss(scale):
        def network(y, t):
            return convert(scale * target.denoised(y, a, s), y, t, path, given=DENOISED, to=kind)

        return float(denoising_error(network, x, t, path, noise=noise, predicts=kind))

    assert loss(1.0) < min(loss(0.7), loss(1.3), loss(-1.0))


def test_a_weighting_is_another_kind_to_count_in():
    path, x, noise = variance_preserving(), X[:20], normal_noise(20, 2, seed=3, dtype=torch.float64)
    t = torch.linspace(0.2, 0.8, 20).double()

    def as_noise(y, t):
        return convert(y.sin(), y, t, path, given=DENOISED, to=NOISE)

    one = denoising_error(as_noise, x, t, path, noise=noise, predicts=NOISE)
    same = denoising_error(lambda y, t: y.sin(), x, t, path, noise=noise, predicts=DENOISED, counted=NOISE)
    torch.testing.assert_close(one, same)
    velocity = denoising_error(lambda y, t: y.sin(), x, t, path, noise=noise, predicts=FLOW)
    torch.testing.assert_close(velocity, flow_matching(lambda y, t: y.sin(), x, t, path, noise=noise))


@pytest.mark.parametrize("levels", [LogNormal(), LogUniform(), UniformInTime(), Steps(count=10)], ids=str)
@pytest.mark.parametrize("path", [edm(), variance_preserving(), ddpm_path(), rectified()], ids=lambda p: p.name)
def test_noise_levels_stay_on_the_path(levels, path):
    t = levels.times(torch.tensor([0.0, 0.3, 1 - 1e-12]).double(), path)
    assert t.dtype == torch.float64
    assert bool(((t > 0) & (t <= path.last)).all())
    assert bool((t.diff() >= 0).all())
    assert path.ratio(t[:2]).isfinite().all()


def test_stratified_numbers_are_evenly_spread():
    u = stratified(8)
    assert ((8 * u).floor() == torch.arange(8)).all()
    assert stratified(0).shape == (0,)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: LogNormal(std=0.0),
        lambda: LogNormal(mean=float("nan")),
        lambda: LogUniform(low=1.0, high=0.5),
        lambda: Steps(count=0),
        lambda: denoising_score_matching(lambda y: y, torch.zeros(1, 2), torch.zeros(1, 2), sigma=0.0),
        lambda: signs_like(torch.zeros(1, 2), count=0),
        lambda: explicit_score_matching(lambda y: y[:, :1], torch.zeros(2, 2)),
        lambda: explicit_score_matching(lambda y: y, torch.zeros(0, 2)),
        lambda: denoising_score_matching(lambda y: y[:, :1], torch.zeros(1, 2), torch.zeros(1, 2), sigma=1.0),
    ],
)
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(ValueError, match="got"):
        wrong()
