"""Diffusion models: compared with exact densities, and the public API."""

import copy
import math
import pickle
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks import Standardize
from lawful.data import GaussianMixture
from lawful.laws import Claim, agreement, transformed
from lawful.losses.diffusion import LogNormal, stratified_uniform
from lawful.models.generative import (
    DiffusionModel,
    DiffusionSampling,
    NoisyClassifier,
    SupportsLogProbEstimate,
    SupportsSample,
    TimeMLP,
    UNet,
)
from lawful.models.generative.diffusion import _TwoModes
from lawful.optim import adamw
from lawful.solvers.diffusion import (
    NOISE,
    VELOCITY,
    Ancestral,
    Heun,
    ProbabilityFlow,
    ProbabilityFlowLikelihood,
    edm,
    preconditioned,
    rectified,
    variance_preserving,
)


class Exact(nn.Module):
    """The exact network output for a mixture, conditional on the component, for standardized data."""

    def __init__(self, density):
        super().__init__()
        self.density = density
        self.anchor = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def denoised(self, y, ratio, label):
        means, s = self.density.means, 0.3**2
        each = (s * y[:, None] + ratio**2 * means) / (s + ratio**2)
        logs = -((y[:, None] - means) ** 2).sum(-1) / (2 * (s + ratio**2))
        if label is not None:
            return torch.where(
                label[:, None] < 2, each[torch.arange(len(y)), label.clamp(max=1)], self.denoised(y, ratio, None)
            )
        return (logs.softmax(-1)[..., None] * each).sum(1)

    def forward(self, x, c, labels=None):
        ratio = float((4 * c[0]).exp())
        length = math.sqrt(1 + ratio**2)
        y = x.double() * length
        return (self.denoised(y, ratio, labels) - y / length**2) * length / ratio + 0 * self.anchor


PAIR = GaussianMixture.from_moments(means=torch.tensor([[0.9, 0.0], [-0.9, 0.3]]).double(), scale=0.3)


def exact(**options):
    return DiffusionModel(Exact(PAIR), shape=(2,), num_classes=2, **options).double()


def test_deepcopy_and_pickle():
    model = DiffusionModel(TimeMLP((2,), dim=8), shape=(2,)).fit_normalizer(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(other.sample(3, seed=0, steps=2), model.sample(3, seed=0, steps=2))


def test_protocols():
    model = exact()
    assert isinstance(model, SupportsSample)
    assert isinstance(model, SupportsLogProbEstimate)


@pytest.mark.parametrize("label", [None, 1])
def test_log_prob_equals_the_true_density(label):
    truth = PAIR if label is None else GaussianMixture.from_moments(means=PAIR.means[label][None], scale=0.3)
    x = truth.sample(9, seed=0)
    found = exact().log_prob_estimate(x, labels=None if label is None else torch.full((9,), label))
    off = (found.value - truth.log_prob(x)).abs()
    assert off.max() < 5e-3
    assert (off <= found.error).all()
    assert found.error.max() < 0.1
    assert found.evaluations == 63


def test_samples_and_log_prob_are_in_the_units_of_the_data():
    torch.manual_seed(0)
    x = torch.randn(200, 3).double() * torch.tensor([1.0, 10.0, 0.1]).double() + 5
    model = DiffusionModel(TimeMLP((3,), dim=8), shape=(3,), normalizer=Standardize(3)).double().fit_normalizer(x)
    normal = torch.distributions.Normal(x.mean(0), x.std(0, correction=0))
    torch.testing.assert_close(model.log_prob_estimate(x[:9]).value, normal.log_prob(x[:9]).sum(1), atol=1e-6, rtol=0)
    drawn = model.sample(1000, seed=0, steps=16)
    torch.testing.assert_close(drawn.std(0), x.std(0), rtol=0.15, atol=0)


def test_samples_cover_both_modes_and_labels_select_one():
    model = exact()
    x = model.sample(600, seed=1)
    near = PAIR.responsibilities(x)[:, 0] > 0.5
    assert 0.4 < near.double().mean() < 0.6
    assert (PAIR.log_prob(x).mean() + PAIR.entropy).abs() < 0.15
    labels = torch.arange(40) % 2
    chosen = model.sample(40, seed=0, labels=labels)
    assert torch.equal(PAIR.responsibilities(chosen)[:, 1] > 0.5, labels == 1)


def test_guidance_scale_amplifies_the_label():
    model, labels = exact(), torch.zeros(200, dtype=torch.long)
    plain = model.sample(200, seed=0, labels=labels)
    more = model.sample(200, seed=0, labels=labels, guidance_scale=3.0)
    none = model.sample(200, seed=0, labels=labels, guidance_scale=0.0)
    assert more[:, 0].mean() > plain[:, 0].mean() + 0.02
    torch.testing.assert_close(none, model.sample(200, seed=0))


def test_a_sample_does_not_depend_on_its_batch():
    model = exact()
    for sampler in (DiffusionSampling().sampler, Heun(), Ancestral()):
        how = DiffusionSampling(sampler=sampler, steps=8)
        torch.testing.assert_close(model.sample(5, 3, sampling=how)[2:4], model.sample(2, 3, first=2, sampling=how))
    assert model.sample(0).shape == (0, 2)
    assert model.sample(1, steps=1).isfinite().all()


def test_inpainting_keeps_known_values():
    model = exact()
    x = torch.tensor([[0.9, math.nan], [-0.9, math.nan]]).double().repeat(100, 1)
    filled = model.inpaint(x, torch.tensor([True, False]), seed=1)
    assert torch.equal(filled[:, 0], x[:, 0])
    assert filled[::2, 1].mean() < filled[1::2, 1].mean() - 0.15


def test_the_score_is_the_gradient_of_the_noisy_density():
    x = PAIR.sample(9, seed=0)
    torch.testing.assert_close(exact().score(x, noise_ratio=0.5), PAIR.with_noise(1.0, 0.5).score(x))


def test_trajectories_end_in_samples():
    model = exact()
    ways = model.trajectory(4, 2)
    torch.testing.assert_close(ways[-1], model.sample(4, 2))
    assert ways.shape[1:] == (4, 2)
    assert ways.abs().max() < 6
    assert ways.diff(dim=0)[-5:].abs().max() < 0.2 < ways[-5:].abs().max()


@pytest.mark.parametrize(
    ("path", "prediction"),
    [(edm(), preconditioned), (variance_preserving(), lambda s: NOISE), (rectified(), lambda s: VELOCITY)],
    ids=["EDM, F", "VP, noise", "rectified, velocity"],
)
@pytest.mark.usefixtures("unchecked")  # type checks would take most of the time
def test_a_few_steps_of_training_lower_the_loss(path, prediction):
    """On data on a line, which an untrained network does not know."""
    torch.manual_seed(0)
    x = torch.randn(128, 1).expand(128, 2)
    core = TimeMLP((2,), dim=16, num_layers=1)
    model = DiffusionModel(
        core, shape=(2,), path=path, prediction=prediction, likelihood=ProbabilityFlowLikelihood(steps=2)
    ).fit_normalizer(x)
    optimizer, losses = adamw(model.parameters(), lr=1e-2), []
    for _ in range(50):
        torch.manual_seed(1)
        optimizer.zero_grad()
        losses.append(model.loss(x))
        losses[-1].backward()
        optimizer.step()
    assert float(losses[-1].detach()) < 0.8 * float(losses[0].detach())
    assert model.sample(3, steps=4).isfinite().all()
    assert model.log_prob_estimate(x[:2]).value.isfinite().all()


def test_a_noisy_classifier_learns_bayes_and_guides():
    torch.manual_seed(0)
    path, levels = edm(), LogNormal(mean=-0.5)
    network = TimeMLP((2,), dim=32, num_layers=1, out_dim=2).double()
    classifier = NoisyClassifier(network, path=path)
    optimizer = adamw(classifier.parameters(), lr=1e-2)
    for seed in range(60):
        x, y = PAIR.sample(256, seed), PAIR.sample_components(256, seed)
        optimizer.zero_grad()
        t = levels.times(stratified_uniform(256), path)
        classifier.loss(x, y, t, noise=torch.randn_like(x)).backward()
        optimizer.step()
    x, t = PAIR.with_noise(1.0, 0.6).sample(200, 9), torch.tensor(0.6).double()
    truth = PAIR.with_noise(1.0, 0.6).responsibilities(x)
    assert (classifier(x, t).exp() - truth).abs().mean() < 0.06
    labels = torch.ones(50, dtype=torch.long)
    chosen = exact().sample(50, seed=0, labels=labels, sampling=DiffusionSampling(classifier=classifier))
    assert (PAIR.responsibilities(chosen)[:, 1] > 0.5).double().mean() > 0.9


def test_constant_feature_keeps_samples_finite():
    x = torch.cat([torch.randn(50, 1), torch.full((50, 1), 3.0)], 1)
    model = DiffusionModel(TimeMLP((2,), dim=8), shape=(2,), normalizer=Standardize(2)).fit_normalizer(x)
    assert float(model.denoiser.sigma_data) == pytest.approx(math.sqrt(0.5), rel=1e-3)
    assert model.sample(5).isfinite().all()


class Diverged(nn.Module):
    def forward(self, x, c, labels=None):
        return x * math.nan


def test_diverged_network():
    model = DiffusionModel(Diverged(), shape=(2,))
    with pytest.raises(ValueError, match="diverged"):
        model.sample(2)
    with pytest.raises(ValueError, match="diverged"):
        model.log_prob_estimate(torch.zeros(1, 2))


def test_warning_for_other_units():
    core = UNet((1, 2, 2), channels=2, num_heads=0)
    model = DiffusionModel(core, shape=(1, 2, 2), likelihood=ProbabilityFlowLikelihood(steps=2)).fit_normalizer(
        torch.rand(9, 1, 2, 2)
    )
    with pytest.warns(UserWarning, match="0 to 255"):
        model.log_prob_estimate(255 * torch.rand(3, 1, 2, 2))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda m: m.fit_normalizer(torch.zeros(1, 2)), "at least 2"),
        (lambda m: m.fit_normalizer(torch.zeros(0, 2)), "at least 2"),
        (lambda m: m.fit_normalizer(torch.ones(5, 2)), "with variance"),
        (lambda m: m.fit_normalizer(torch.tensor([[0.0, math.nan], [0.0, 1.0]])), "finite"),
        (lambda m: m.fit_normalizer(torch.zeros(4, 3)), "shape"),
        (lambda m: m.log_prob_estimate(torch.tensor([[0.0, math.inf]])), "finite"),
        (lambda m: m.sample(-1), "expected n >= 0"),
        (lambda m: m.sample(2, labels=torch.tensor([0, 1])), "takes no labels"),
        (lambda m: m.sample(2, steps=0), "expected steps >= 1"),
        (lambda m: DiffusionModel(nn.Identity(), shape=()), "sizes >= 1"),
    ],
)
def test_invalid_arguments(wrong, message):
    model = DiffusionModel(TimeMLP((2,), dim=4), shape=(2,))
    with pytest.raises(ValueError, match=message):
        wrong(model)


def test_labels_out_of_range():
    with pytest.raises(ValueError, match="expected labels from 0 to 1"):
        exact().sample(1, labels=torch.tensor([2]))


def test_samples_and_likelihoods_follow_sigma_data():
    class Network(nn.Module):
        """A network that does not see the noise level, so that the model scales with its data."""

        def forward(self, x, noise_level, labels=None):
            return 0.5 * torch.sin(2 * x)

    def model(scale):
        built = DiffusionModel(Network(), shape=(2,), path=edm(80.0 * scale))
        built.denoiser.sigma_data.fill_(scale)
        return built

    one, wide = model(1.0), model(4.0)
    torch.testing.assert_close(wide.sample(5, seed=0, steps=6), 4 * one.sample(5, seed=0, steps=6))
    x = torch.tensor([[0.4, -1.0], [1.5, 0.2]])
    torch.testing.assert_close(
        wide.log_prob_estimate(4 * x).value + 2 * math.log(4), one.log_prob_estimate(x).value, rtol=1e-5, atol=1e-5
    )


def test_an_empty_batch_has_no_likelihoods():
    assert exact().log_prob_estimate(torch.zeros(0, 2).double()).value.shape == (0,)


@pytest.mark.usefixtures("unchecked")
def test_log_prob_matches_a_histogram_of_samples():
    """The density of two modes in 1-D, by the model and as a histogram of its samples."""
    model = DiffusionModel(_TwoModes(), shape=(1,), prediction=preconditioned)
    x = model.sample(3000, seed=0, sampling=DiffusionSampling(sampler=ProbabilityFlow(), steps=12))
    at = torch.tensor([[-0.8], [0.0], [0.8]])
    p = model.log_prob_estimate(at).value.exp()
    share = torch.stack([((x - a).abs() < 0.1).double().mean() / 0.2 for a in at])
    torch.testing.assert_close(share, p, atol=0.05, rtol=0)


def test_inference_mode_changes_nothing():
    classifier = NoisyClassifier(TimeMLP((2,), dim=8, out_dim=2), path=edm())
    model, sampling = exact(), DiffusionSampling(classifier=classifier, steps=2)

    def draw():
        x, labels = torch.ones(2, 2).double(), torch.tensor([0, 1])
        return model.log_prob_estimate(x).value, model.sample(2, seed=0, labels=labels, sampling=sampling)

    with torch.inference_mode():
        within = draw()
    assert all(torch.equal(a, b) for a, b in zip(within, draw(), strict=True))


def test_guidance_classifier_is_part_of_the_model():
    classifier = NoisyClassifier(TimeMLP((2,), dim=8, out_dim=2), path=edm())
    network = TimeMLP((2,), dim=8)
    model = DiffusionModel(
        network, shape=(2,), normalizer=Standardize(2), sampling=DiffusionSampling(classifier=classifier)
    )
    model.fit_normalizer(torch.tensor([[0.0, 3.0], [1.0, 3.0], [2.0, 3.0]]))
    assert float(classifier.sigma_data) == float(model.denoiser.sigma_data) == pytest.approx(math.sqrt(0.5), rel=1e-3)
    assert any(name.startswith("classifier.network") for name in model.state_dict())


class _Bayes(nn.Module):
    """The exact classifier of two Gaussians of variance 1 at 2 and -2, on the VP path, for sigma_data = 1."""

    def forward(self, x: Float[Tensor, "n 1"], c: Float[Tensor, " n"]) -> Float[Tensor, "n 2"]:
        alpha = 1 / (1 + (8 * c).exp()).sqrt()
        return torch.cat([2 * alpha[:, None] * x, -2 * alpha[:, None] * x], 1)


def _noisy_classifier_claims() -> Iterator[Claim]:
    """Laws of the classifier of noisy data."""
    path = variance_preserving()
    classifier = NoisyClassifier(_Bayes(), path=path)

    def odds(x: Tensor, t: Tensor) -> Tensor:
        """Of noisy data, whose variance is 1: log N(x; 2 a, 1) - log N(x; -2 a, 1)."""
        a = path.alpha(t).to(x)[:, None]
        return ((x + 2 * a).square() - (x - 2 * a).square()) / 2

    def found(x: Tensor, t: Tensor) -> Tensor:
        both = classifier(x, t)
        return both[:, :1] - both[:, 1:]

    inputs = (transformed(torch.tanh, "n 1"), transformed(lambda u: 0.1 + 0.6 * torch.sigmoid(u), "n"))
    yield Claim(agreement(other=odds), found, inputs, name="NoisyClassifier of two Gaussians")


def _score_model_claims() -> Iterator[Claim]:
    """Laws of score models."""
    model = DiffusionModel(
        _TwoModes(), shape=(2,), normalizer=Standardize(2), likelihood=ProbabilityFlowLikelihood(steps=4)
    )
    with torch.no_grad():
        model.normalizer.mean.copy_(torch.tensor([3.0, -1.0]))
        model.normalizer.std.copy_(torch.tensor([2.0, 0.5]))

    def log_density(x: Tensor) -> Tensor:
        """By the change of variables."""
        z = (x - torch.tensor([3.0, -1.0]).to(x)) / torch.tensor([2.0, 0.5]).to(x)
        sides = [torch.distributions.Normal(side, 0.6).log_prob(z) - math.log(2) for side in (-0.8, 0.8)]
        return torch.logaddexp(*sides).sum(-1)  # log 2 + log 0.5 = 0

    def found(x: Tensor) -> Tensor:
        return model.log_prob_estimate(x).value.to(x)

    near = transformed(
        lambda x: torch.tensor([3.0, -1.0]).to(x) + torch.tensor([2.0, 0.5]).to(x) * x.tanh(), "n:1..2 2"
    )
    yield Claim(replace(agreement(other=log_density, rtol=3e-2), cases=2), found, near, name="log_prob")


def claims() -> Iterator[Claim]:
    """Second derivations of diffusion models."""
    yield from _noisy_classifier_claims()
    yield from _score_model_claims()
