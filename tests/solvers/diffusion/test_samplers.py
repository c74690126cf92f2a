import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from math import exp, inf, log, pi, sqrt

import pytest
import torch
from torch import Tensor

from lawful.data.densities import ring
from lawful.functions.random import normal_noise
from lawful.laws import Claim, agreement, batch_independence, samples_follow_density, shape, transformed
from lawful.solvers.diffusion import (
    DENOISED,
    FLOW,
    NOISE,
    SCORE,
    VELOCITY,
    AdaptiveProbabilityFlow,
    Ancestral,
    AnnealedLangevin,
    ExponentialMultistep,
    Heun,
    LangevinCorrector,
    PredictorCorrector,
    ProbabilityFlow,
    ReverseSDE,
    Sampler,
    SamplingContext,
    convert,
    ddim_step,
    ddpm_path,
    denoiser,
    edm,
    expand_like,
    exponential_step_weights,
    initial_noise,
    karras_grid,
    langevin,
    log_grid,
    preconditioned,
    rectified,
    saturating_log_grid,
    variance_preserving,
)
from tests.solvers.diffusion.analytic import (
    DETERMINISTIC,
    PATHS,
    PURE_NOISE,
    SAMPLERS,
    STOCHASTIC,
    exact_denoiser,
    gaussian_denoiser,
    gaussian_end,
)

KINDS = (SCORE, NOISE, DENOISED, VELOCITY, FLOW, preconditioned(0.6))


@cache
def predicting(kind, path):
    """The exact network for Gaussian data in a parameterization, converted to a denoiser."""
    exact = gaussian_denoiser(path)

    def network(x, t):
        return convert(exact(x, t), x, t, path, source=DENOISED, target=kind)

    return denoiser(network, path, prediction=kind)


@cache
def sample_two_steps(name, path, kind):
    """Samples after two steps from the same noise, in the units of each path."""
    grid = log_grid(path, 2, low=0.1, high=30.0)
    x = 30 * path.alpha(grid[0]) * normal_noise(2, 2, seed=1, dtype=torch.float64)
    sampler = AdaptiveProbabilityFlow(rtol=0.1, atol=0.1) if name == "AdaptiveProbabilityFlow" else SAMPLERS[name]
    return sampler(predicting(kind, path), x, path, grid, seed=1)


@pytest.mark.usefixtures("unchecked")  # for the time that it takes
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
@pytest.mark.parametrize("name", SAMPLERS)
def test_every_path_sampler_and_prediction(path, name):
    # In the noise ratio all paths are one, but for Euler's steps, which are in the time.
    expected = sample_two_steps(name, path if "SDE" in name else PATHS[0], DENOISED)
    turn = list(SAMPLERS).index(name) + PATHS.index(path)  # two predictions each: all pairs occur
    for kind in (KINDS[turn % len(KINDS)], KINDS[(turn + 3) % len(KINDS)]):
        torch.testing.assert_close(sample_two_steps(name, path, kind), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "path"),
    [(name, path) for name in SAMPLERS for path in (PATHS if name == "ReverseSDE" else PATHS[:1])],
    ids=lambda value: getattr(value, "name", value),
)
@pytest.mark.usefixtures("unchecked")
def test_samples_follow_the_data(name, path):
    sampler, steps = SAMPLERS[name], 50 if name in STOCHASTIC else 20
    grid = log_grid(path, steps, low=0.01, high=30.0)
    x = initial_noise(path, grid, 600, 2, seed=1, sigma_data=0.6)
    found = sampler(gaussian_denoiser(path), x, path, grid, seed=1)
    if name in DETERMINISTIC:
        tolerance = 0.06 if name not in ("Exponential 1", "Heun", "Ancestral, eta=0") else 0.25
        torch.testing.assert_close(found, gaussian_end(x, path, grid[0]), atol=tolerance, rtol=0)
    else:
        assert abs(float(found.mean()) - 0.5) < 0.08
        assert abs(float(found.std()) / 0.6 - 1) < (0.2 if name == "AnnealedLangevin" else 0.12)


@pytest.mark.parametrize("name", SAMPLERS)
def test_one_step_works_on_every_path_and_is_the_denoised_value(name):
    kinds = itertools.cycle(KINDS[list(SAMPLERS).index(name) % len(KINDS) :] + KINDS)
    for path, kind in zip(PATHS, kinds, strict=False):
        grid = karras_grid(path, 1, high=30.0)
        x = initial_noise(path, grid, 3, 2)
        found = SAMPLERS[name](predicting(kind, path), x, path, grid)
        assert found.isfinite().all()
        if name != "AnnealedLangevin" and "churn" not in name:
            torch.testing.assert_close(found, gaussian_denoiser(path)(x, grid[0]))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("path", [p for p in PATHS if p.name in PURE_NOISE], ids=lambda path: path.name)
@pytest.mark.parametrize("name", [name for name in SAMPLERS if "SDE" not in name])
def test_paths_may_start_at_pure_noise(path, name):
    grid = saturating_log_grid(path, 30 if name in STOCHASTIC else 12, low=0.01)
    x = initial_noise(path, grid, 300, 2)
    found = SAMPLERS[name](gaussian_denoiser(path), x, path, grid)
    assert abs(float(found.mean()) - 0.5) < 0.1
    if name != "AnnealedLangevin":  # it would need more steps at high noise
        assert abs(float(found.std()) / 0.6 - 1) < 0.2
    with pytest.raises(ValueError, match="cannot convert noise to denoised at t="):
        SAMPLERS[name](denoiser(lambda x, t: x, path, prediction=NOISE), x, path, grid)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sample_does_not_depend_on_its_batch(name):
    path, sampler = variance_preserving(), SAMPLERS[name]
    grid = log_grid(path, 3, high=30.0)
    many = sampler(gaussian_denoiser(path), initial_noise(path, grid, 5, 2, 3, seed=7), path, grid, seed=7)
    few = sampler(gaussian_denoiser(path), initial_noise(path, grid, 2, 2, 3, seed=7), path, grid, seed=7)
    late = sampler(
        gaussian_denoiser(path), initial_noise(path, grid, 2, 2, 3, seed=7, first=3), path, grid, seed=7, first=3
    )
    torch.testing.assert_close(few, many[:2], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(late, many[3:], rtol=1e-12, atol=1e-12)
    again = sampler(gaussian_denoiser(path), initial_noise(path, grid, 5, 2, 3, seed=7), path, grid, seed=7)
    assert torch.equal(again, many)
    if name in STOCHASTIC:
        other = sampler(gaussian_denoiser(path), initial_noise(path, grid, 5, 2, 3, seed=7), path, grid, seed=8)
        assert not torch.allclose(other, many)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("order", "correction"), [(1, 0), (2, 0), (3, 0), (4, 0), (3, 3), (4, 4)])
def test_the_measured_order_of_the_exponential_sampler(order, correction):
    path, target = edm(), ring(radius=1.0, scale=0.4)
    x = initial_noise(path, log_grid(path, 2), 64, 2)
    sampler = ExponentialMultistep(order=order, correction=correction)

    def end(steps, sampler):
        times = torch.logspace(math.log10(80), math.log10(0.05), steps + 1, dtype=torch.float64)
        return sampler(exact_denoiser(target, path), x, path, times.clamp(max=80))

    truth = end(200, ExponentialMultistep(order=4))
    errors = [float((end(n, sampler) - truth).norm()) for n in (40, 80)]
    assert math.log2(errors[0] / errors[1]) > order - 0.5


@pytest.mark.parametrize("name", [name for name in SAMPLERS if name != "Heun, churn"])  # churn_max is absolute
def test_samples_scale_with_the_data(name):
    factor, steps = 4.0, 8

    def samples(scale):
        """Samples of a mixture that is `scale` times wider, from noise that is `scale` times larger."""
        path = edm(80.0 * scale)
        target = ring(modes=3, radius=1.2 * scale, scale=0.3 * scale)
        grid = saturating_log_grid(path, steps, sigma_data=scale)
        x = initial_noise(path, grid, 4, 2, seed=2, sigma_data=scale)
        return SAMPLERS[name](exact_denoiser(target, path), x, path, grid, sigma_data=scale, seed=2)

    torch.testing.assert_close(samples(factor), factor * samples(1.0), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("scale", [0.15, 1.0, 4.0])
def test_the_default_follows_the_flow_at_every_scale_of_the_data(scale):
    path, target = edm(), ring(modes=3, radius=1.3 * scale, scale=0.2 * scale)
    x = initial_noise(path, path.max_time * torch.ones(1), 64, 2, sigma_data=scale)

    def end(steps):
        grid = saturating_log_grid(path, steps, sigma_data=scale)
        return ExponentialMultistep()(exact_denoiser(target, path), x, path, grid, sigma_data=scale)

    truth = end(300)
    for steps, within in ((18, 0.05), (36, 5e-3)):
        error = float((end(steps) - truth).square().sum(-1).mean().sqrt()) / scale
        assert error < within, f"{steps} steps"


@pytest.mark.parametrize("std", [1e-6, 0.05, 2.0])
@pytest.mark.parametrize("path", [edm(), rectified(), variance_preserving()], ids=lambda path: path.name)
def test_the_step_to_the_data_is_exact_for_gaussian_data_of_any_width(path, std):
    grid = log_grid(path, 20, low=0.1, high=0.6)
    denoise = gaussian_denoiser(path, 0.5, std)
    x = 0.5 * path.alpha(grid[0]) + torch.tensor([[1.0, -2.0], [0.3, 0.1]], dtype=torch.float64)
    before = ExponentialMultistep()(denoise, x, path, grid[:-1])
    exact = gaussian_end(before, path, grid[-2], 0.5, std)
    # the samples before the last step are close to the flow, but not on it
    torch.testing.assert_close(ExponentialMultistep()(denoise, x, path, grid), exact, rtol=0, atol=1e-4)


def test_a_rotated_denoiser_has_rotated_samples():
    path, target = edm(), ring(modes=3, radius=1.0, scale=0.3)
    grid = saturating_log_grid(path, 6)
    x = initial_noise(path, grid, 4, 2)
    turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=torch.float64)
    denoise = exact_denoiser(target, path)
    turned = ExponentialMultistep()(lambda y, t: denoise(y @ turn, t) @ turn.T, x @ turn.T, path, grid)
    torch.testing.assert_close(turned, ExponentialMultistep()(denoise, x, path, grid) @ turn.T)


def test_a_sampler_needs_the_scale_of_the_data():
    path, grid = edm(), saturating_log_grid(edm(), 3)
    with pytest.raises(ValueError, match="finite sigma_data > 0, got 0"):
        ExponentialMultistep()(gaussian_denoiser(path), torch.ones(2, 2), path, grid, sigma_data=0.0)
    with pytest.raises(ValueError, match="finite sigma_data > 0, got -1"):
        saturating_log_grid(path, 3, sigma_data=-1.0)


def test_the_default_follows_a_ring_of_modes():
    path, target = edm(), ring(radius=0.7036, scale=0.05)
    grid = saturating_log_grid(path, 35)
    x = ExponentialMultistep()(exact_denoiser(target, path), initial_noise(path, grid, 2000, 2), path, grid)
    assert abs(float(target.log_prob(x).mean()) + target.entropy) < 0.08
    nearest = torch.cdist(x, target.means).argmin(1).bincount(minlength=8)
    assert (nearest - 250).abs().max() < 70


def test_langevin_draws_from_its_density():
    x = langevin(lambda x: 1 - x, torch.zeros(4000, 1), steps=60, step_size=0.1)
    assert abs(float(x.mean()) - 1) < 0.06
    assert abs(float(x.var()) - 1 / (1 - 0.05)) < 0.1  # the variance of the discrete chain
    sizes = torch.tensor([0.1, 0.2])
    both = langevin(lambda x: -x, torch.ones(2, 1), steps=5, step_size=sizes, seed=3)
    alone = langevin(lambda x: -x, torch.ones(1, 1), steps=5, step_size=0.2, seed=3, first=1)
    torch.testing.assert_close(both[1:], alone)


def test_one_step_size_per_sample(unchecked):
    with pytest.raises(ValueError, match=r"one per sample \(3\), got 2"):
        langevin(lambda x: x, torch.ones(3, 2), steps=1, step_size=torch.ones(2))


def test_samplers_satisfy_the_protocol():
    for sampler in SAMPLERS.values():
        assert isinstance(sampler, Sampler)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_diverging_denoiser_raises(name):
    path = edm()
    grid = log_grid(path, 5)
    x = initial_noise(path, grid, 3, 2)
    with pytest.raises(ValueError, match="returns NaN or infinity for 3 of 3 samples at t=80 of the EDM path"):
        SAMPLERS[name](lambda x, t: x * math.nan, x, path, grid)
    with pytest.raises(ValueError, match="NaN or infinity for 1 of 3"):
        SAMPLERS[name](lambda x, t: torch.where(torch.arange(3)[:, None] == 1, math.inf, x), x, path, grid)
    if name in DETERMINISTIC:
        with pytest.raises((ValueError, RuntimeError), match=r"NaN or infinity|max_evaluations=|step size vanishes"):
            SAMPLERS[name](lambda x, t: -(x**9) * 1e30, x, path, grid)
    with pytest.raises(ValueError, match=r"return shape \(3, 2\), got \(3, 1\)"):
        SAMPLERS[name](lambda x, t: x[:, :1], x, path, grid)
    with pytest.raises(ValueError, match="expected finite initial samples"):
        SAMPLERS[name](lambda x, t: x, x * math.nan, path, grid)
    with pytest.raises(ValueError, match="strictly decreasing times"):
        SAMPLERS[name](lambda x, t: x, x, path, grid.flip(0))
    with pytest.raises(ValueError, match="at least 2 times"):
        SAMPLERS[name](lambda x, t: x, x, path, grid[:1])
    with pytest.raises(TypeError, match=r"floating-point x of shape .* got torch\.int64"):
        SAMPLERS[name](lambda x, t: x, x.long(), path, grid)


@pytest.mark.parametrize(
    ("sampler", "options", "message"),
    [
        (ExponentialMultistep, {"order": 5}, r"order from 1 to 4 .* got .*order=5"),
        (ExponentialMultistep, {"order": 0}, r"order from 1 to 4 .* got .*order=0"),
        (ExponentialMultistep, {"correction": -1}, r"correction from 0 to 4, got .*correction=-1"),
        (Heun, {"churn": -1.0}, r"churn >= 0, .* got .*churn=-1\.0"),
        (Heun, {"churn_min": 2.0, "churn_max": 1.0}, r"churn_min <= churn_max .* got .*churn_min=2\.0, churn_max=1\.0"),
        (ReverseSDE, {"eta": -0.1}, r"eta >= 0, got -0\.1"),
        (Ancestral, {"eta": 1.5}, r"eta <= 1, got 1\.5"),
        (LangevinCorrector, {"steps": 0}, r"steps >= 1 .* got .*steps=0"),
        (LangevinCorrector, {"snr": 0.0}, r"a finite snr > 0, got .*snr=0\.0"),
    ],
)
def test_invalid_settings(sampler, options, message):
    with pytest.raises(ValueError, match=message):
        sampler(**options)


@pytest.mark.parametrize(
    ("score", "options", "message"),
    [
        (lambda x: x, {"steps": 0}, "expected steps >= 1, got 0"),
        (lambda x: x, {"step_size": -0.1}, "expected step_size > 0"),
        (lambda x: x * math.nan, {}, "the score is NaN or infinite after 0 of 1 steps"),
        (lambda x: x[:, :1], {}, r"the score to return shape \(1, 2\), got \(1, 1\)"),
    ],
)
def test_invalid_arguments_of_langevin(score, options, message):
    with pytest.raises(ValueError, match=message):
        langevin(score, torch.ones(1, 2), **{"steps": 1, "step_size": 0.1} | options)


def test_unsolvable_equations_raise():
    path = rectified()
    grid = saturating_log_grid(path, 3)
    with pytest.raises(ValueError, match=r"reverse SDE is singular at t=1 of the rectified path"):
        ReverseSDE()(gaussian_denoiser(path), initial_noise(path, grid, 2, 2), path, grid)
    with pytest.raises(RuntimeError, match="max_evaluations=20"):
        AdaptiveProbabilityFlow(max_evaluations=20)(
            gaussian_denoiser(edm()), 80 * normal_noise(2, 2, seed=0), edm(), karras_grid(edm(), 2)
        )


def test_samples_of_any_shape_and_precision():
    path = edm()
    grid = saturating_log_grid(path, 2)
    for size in ((), (2, 4, 4)):
        x = initial_noise(path, grid, 2, *size).float()
        for sampler in SAMPLERS.values():
            found = sampler(gaussian_denoiser(path), x, path, grid)
            assert found.shape == x.shape
            assert found.dtype == torch.float64


def _sampling_claims() -> Iterator[Claim]:
    """Laws of initial noise and of the DDIM step."""
    path = variance_preserving()
    t, s = torch.tensor([0.6, 0.2], dtype=torch.float64)

    def known(x: Tensor, noise: Tensor) -> Tensor:
        return ddim_step(path.add_noise(x, noise, t), x, path, t, s)

    there = agreement(other=lambda x, noise: path.add_noise(x, noise, s))
    yield Claim(there, known, (shape("n 2"), shape("n 2")), name="towards, where the data are known")
    yield Claim(
        agreement(other=lambda x, d: d),
        lambda x, d: ddim_step(x, d, path, t, 0 * s),
        (shape("n 2"), shape("n 2")),
        name="towards the data",
    )
    grid = torch.tensor([0.3, 0.0], dtype=torch.float64)
    variance = float(path.sigma(0.3) ** 2 + 4 * path.alpha(0.3) ** 2)

    def log_prob(x: Tensor) -> Tensor:
        return -0.5 * (x.square() / variance + log(2 * pi * variance)).sum(-1)

    drawn = samples_follow_density(
        sample=lambda n: initial_noise(path, grid, n, 2, seed=int(torch.randint(2**31, ())), sigma_data=2.0),
        log_prob=log_prob,
    )
    yield Claim(drawn, log_prob, shape("2"), name="begin")


def _heun_claims() -> Iterator[Claim]:
    """Laws of Heun's sampler."""
    path = edm()
    grid = torch.tensor([3.0, 1.0, 0.2, 0.0], dtype=torch.float64)

    def by_hand(x: Tensor, churn: float, seed: int = 4) -> Tensor:
        """Algorithm 2 of Karras et al."""
        sigmas = grid.tolist()
        for i, (sigma, end) in enumerate(itertools.pairwise(sigmas)):
            more = sigma * (1 + min(churn / 3, sqrt(2) - 1))
            noise = normal_noise(len(x), *x.shape[1:], seed=seed, stream=1 + i, dtype=torch.float64).to(x)
            x = x + sqrt(more**2 - sigma**2) * noise
            d = (x - (x / (1 + more)).sin()) / more
            ahead = x + (end - more) * d
            if end:
                d = (d + (ahead - (ahead / (1 + end)).sin()) / end) / 2
            x = x + (end - more) * d
        return x

    for churn in (0.0, 0.6, 9.0):

        def ours(x: Tensor, churn: float = churn) -> Tensor:
            return Heun(churn=churn)(lambda x, t: (x / (1 + t)).sin(), x, path, grid, seed=4).to(x)

        other = replace(agreement(other=lambda x, churn=churn: by_hand(x, churn)), cases=8)
        yield Claim(other, ours, shape("n 2"), name=f"Heun, churn {churn:g}")


def _exponential_claims() -> Iterator[Claim]:
    """Laws of the exponential sampler."""
    path = variance_preserving()
    ratios = [3.0, 5.0, 6.0, 20.0]

    def weighed(x: Tensor) -> Tensor:
        return x @ x.new_tensor(exponential_step_weights(ratios, 3.0, 0.5))

    def integral(x: Tensor) -> Tensor:
        """The integral of a cubic through the values, by a fine midpoint rule."""
        edges = torch.linspace(log(0.5), log(3.0), 5001, dtype=torch.float64)
        log_ratio = (edges[1:] + edges[:-1]) / 2
        at = (4 / log_ratio.exp()).log1p()
        nodes = (4 / torch.tensor(ratios, dtype=torch.float64)).log1p()
        powers = torch.linalg.solve(torch.stack([nodes**k for k in range(4)], 1), x.double().T)
        values = powers.T @ torch.stack([at**k for k in range(4)])
        return (values * (0.5 * (-log_ratio).exp()) * (edges[1] - edges[0])).sum(-1).to(x)

    yield Claim(replace(agreement(other=integral), rtol=1e-5, cases=10), weighed, shape("n 4"), name="step_weights")

    def from_pure_noise(x: Tensor) -> Tensor:
        return x @ x.new_tensor(exponential_step_weights([inf, 9.0, 2.0], inf, 0.5, knee=2.0))

    def mean_over_inverse_ratios(x: Tensor) -> Tensor:
        """The mean over 1 / rho from 0 to 2 of the parabola in log(1 + k / rho) through the values."""
        nodes = (2 / torch.tensor([inf, 9.0, 2.0], dtype=torch.float64)).log1p()
        at = (2 * (torch.arange(5000, dtype=torch.float64) + 0.5) / 2500).log1p()
        powers = torch.linalg.solve(torch.stack([nodes**k for k in range(3)], 1), x.double().T)
        return (powers.T @ torch.stack([at**k for k in range(3)])).mean(-1).to(x)

    same = replace(agreement(other=mean_over_inverse_ratios), rtol=1e-5, cases=10)
    yield Claim(same, from_pure_noise, shape("n 3"), name="step_weights from pure noise")
    grid = torch.tensor([0.9, 0.5, 0.2, 0.0], dtype=torch.float64)

    def ddim(x: Tensor) -> Tensor:
        return ExponentialMultistep(order=1, correction=0)(lambda x, t: x.sin(), x, path, grid).to(x)

    def by_hand(x: Tensor) -> Tensor:
        for t, s in itertools.pairwise(grid):
            x = ddim_step(x, x.sin(), path, t, s)
        return x

    yield Claim(replace(agreement(other=by_hand), cases=20), ddim, shape("n 2"), name="Exponential of order 1")
    for order in (2, 4):

        def known(x: Tensor, order: int = order) -> Tensor:
            return ExponentialMultistep(order=order)(lambda x, t: 0 * x + 2, x, path, grid[:3]).to(x)

        exactly = agreement(other=lambda x: ddim_step(x, 0 * x + 2, path, grid[0], grid[2]))
        yield Claim(replace(exactly, cases=20), known, shape("n 2"), name=f"Exponential({order}), known data")
    yield Claim(
        replace(batch_independence(), cases=10),
        lambda x: ExponentialMultistep()(lambda x, t: x.sin(), x, path, grid).to(x),
        shape("n 2"),
        name="Exponential",
    )


def _probability_flow_claims() -> Iterator[Claim]:
    """Laws of the probability flow."""
    path = variance_preserving()
    grid = torch.linspace(0.9, 0.1, 9, dtype=torch.float64)

    def denoise(x: Tensor, t: Tensor) -> Tensor:
        """Gaussian data of mean 1 and variance 1/4."""
        level = path.at(t)
        a, s = expand_like(level.alpha, x), expand_like(level.sigma, x)
        return (s.square() + a * x / 4) / (s.square() + a.square() / 4)

    def exactly(x: Tensor) -> Tensor:
        """End point of the flow of Gaussian data: quantiles are preserved."""
        (a, b), (s, q) = path.alpha(grid[[0, -1]]).tolist(), path.sigma(grid[[0, -1]]).tolist()
        return b + (x - a) * sqrt((q**2 + b**2 / 4) / (s**2 + a**2 / 4))

    for name, sampler in (("ProbabilityFlow", ProbabilityFlow()), ("AdaptiveFlow", AdaptiveProbabilityFlow())):

        def draw_samples(x: Tensor, sampler: ProbabilityFlow | AdaptiveProbabilityFlow = sampler) -> Tensor:
            return sampler(denoise, x, path, grid).to(x)

        near = transformed(torch.tanh, "n:1..3 2")
        yield Claim(replace(agreement(other=exactly), rtol=1e-3, cases=4), draw_samples, near, name=name)
        yield Claim(
            replace(batch_independence(), cases=2), draw_samples, transformed(torch.tanh, "n:2..3 2"), name=name
        )


def _stochastic_claims() -> Iterator[Claim]:
    """Laws of stochastic steps."""
    path, chain = variance_preserving(), ddpm_path([0.1, 0.3, 0.2])
    three = (shape("n 2"),) * 3

    def ancestral(x: Tensor, d: Tensor, noise: Tensor) -> Tensor:
        t, s = torch.tensor([3.0, 2.0], dtype=torch.float64)
        return Ancestral().step(x, d, noise, chain, t, s)

    def ddpm(x: Tensor, d: Tensor, noise: Tensor) -> Tensor:
        """Equations 6 and 7 of Ho et al., from step 3 to step 2."""
        beta, before, here = 0.2, 0.9 * 0.7, 0.9 * 0.7 * 0.8
        mean = sqrt(before) * beta / (1 - here) * d + sqrt(1 - beta) * (1 - before) / (1 - here) * x
        return mean + sqrt((1 - before) / (1 - here) * beta) * noise

    yield Claim(agreement(other=ddpm), ancestral, three, name="Ancestral, DDPM")
    t, s = torch.tensor([0.6, 0.5], dtype=torch.float64)
    yield Claim(
        agreement(other=lambda x, d, noise: ddim_step(x, d, path, t, s)),
        lambda x, d, noise: Ancestral(eta=0.0).step(x, d, noise, path, t, s),
        three,
        name="Ancestral without eta, DDIM",
    )
    for eta in (0.0, 1.0):

        def euler(x: Tensor, d: Tensor, noise: Tensor, eta: float = eta) -> Tensor:
            return ReverseSDE(eta=eta).step(x, d, noise, path, t, s)

        def by_hand(x: Tensor, d: Tensor, noise: Tensor, eta: float = eta) -> Tensor:
            beta, b = 0.1 + 19.9 * 0.6, 0.06 + 9.95 * 0.36
            score = (exp(-b / 2) * d - x) / (1 - exp(-b))
            drift = -beta / 2 * x - (1 + eta) / 2 * beta * score
            return x - 0.1 * drift + eta * sqrt(0.1 * beta) * noise

        yield Claim(agreement(other=by_hand), euler, three, name=f"ReverseSDE, eta {eta:g}")


def _langevin_claims() -> Iterator[Claim]:
    """Laws of Langevin dynamics."""
    path = variance_preserving()
    t = torch.tensor(0.4, dtype=torch.float64)
    grid = torch.tensor([0.9, 0.4, 0.0], dtype=torch.float64)

    def twice(x: Tensor) -> Tensor:
        return langevin(lambda x: x.cos(), x, steps=2, step_size=torch.linspace(0.1, 0.2, len(x)), seed=3).to(x)

    def by_hand(x: Tensor) -> Tensor:
        size = torch.linspace(0.1, 0.2, len(x)).to(x)[:, None]
        for i in (1, 2):
            noise = normal_noise(len(x), 2, seed=3, stream=i, dtype=torch.float64).to(x)
            x = x + size * x.cos() + (2 * size).sqrt() * noise
        return x

    yield Claim(agreement(other=by_hand), twice, shape("n 2"), name="langevin")

    def corrected(x: Tensor) -> Tensor:
        walk, state = SamplingContext.create(lambda x, t: x.sin(), x, path, grid, seed=3)
        return LangevinCorrector(snr=0.3).correct(walk, state, t, 5).to(x)

    def written(x: Tensor) -> Tensor:
        a, s = path.alpha(t).to(x), path.sigma(t).to(x)
        score = (a * x.sin() - x) / s**2
        size = 2 * 0.09 * torch.minimum(s**2, 18 / score.square().sum(1, keepdim=True))
        noise = normal_noise(len(x), 2, seed=3, stream=6, dtype=torch.float64).to(x)
        return x + size * score + (2 * size).sqrt() * noise

    yield Claim(agreement(other=written), corrected, shape("n 2"), name="Corrector")
    for sampler in (AnnealedLangevin(corrector=LangevinCorrector(steps=2)), PredictorCorrector()):

        def draw_samples(x: Tensor, sampler: AnnealedLangevin | PredictorCorrector = sampler) -> Tensor:
            return sampler(lambda x, t: x.sin(), x, path, grid).to(x)

        yield Claim(replace(batch_independence(), cases=10), draw_samples, shape("n 2"), name=type(sampler).__name__)


def claims() -> Iterator[Claim]:
    """Second derivations of samplers."""
    yield from _sampling_claims()
    yield from _heun_claims()
    yield from _exponential_claims()
    yield from _probability_flow_claims()
    yield from _stochastic_claims()
    yield from _langevin_claims()
