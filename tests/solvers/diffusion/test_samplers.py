import itertools
import math
from functools import cache

import pytest
import torch

from lawful.data.densities import ring
from lawful.functions.random import normal_noise
from lawful.solvers.diffusion import (
    DENOISED,
    FLOW,
    NOISE,
    SCORE,
    VELOCITY,
    AdaptiveFlow,
    Ancestral,
    Corrector,
    ExponentialMultistep,
    Heun,
    ReverseSDE,
    Sampler,
    convert,
    denoiser,
    edm,
    initial_noise,
    karras_grid,
    langevin,
    logarithmic,
    preconditioned,
    rectified,
    saturating_log_grid,
    variance_preserving,
)
from tests.solvers.diffusion.analytic import (
    CERTAIN,
    CHANCY,
    ENDLESS,
    PATHS,
    SAMPLERS,
    gaussian_end,
    of_density,
    of_gaussian,
)

KINDS = (SCORE, NOISE, DENOISED, VELOCITY, FLOW, preconditioned(0.6))


@cache
def predicting(kind, path):
    """A network that predicts Gaussian data in its own way, made a denoiser again."""
    exact = of_gaussian(path)

    def network(x, t):
        return convert(exact(x, t), x, t, path, given=DENOISED, to=kind)

    return denoiser(network, path, predicts=kind)


@cache
def led(name, path, kind):
    """Where two steps lead some noise, the same of each path in its own units."""
    grid = logarithmic(path, 2, low=0.1, high=30.0)
    x = 30 * path.alpha(grid[0]) * normal_noise(2, 2, seed=1, dtype=torch.float64)
    sampler = AdaptiveFlow(rtol=0.1, atol=0.1) if name == "AdaptiveFlow" else SAMPLERS[name]
    return sampler(predicting(kind, path), x, path, grid, seed=1)


@pytest.mark.usefixtures("unchecked")  # for the time that it takes
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
@pytest.mark.parametrize("name", SAMPLERS)
def test_every_path_sampler_and_prediction(path, name):
    # In the noise ratio all paths are one, but for Euler's steps, which are in the time.
    expected = led(name, path if "SDE" in name else PATHS[0], DENOISED)
    for kind in KINDS:
        torch.testing.assert_close(led(name, path, kind), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "path"),
    [(name, path) for name in SAMPLERS for path in (PATHS if name == "ReverseSDE" else PATHS[:1])],
    ids=lambda value: getattr(value, "name", value),
)
def test_samples_follow_the_data(name, path):
    sampler, steps = SAMPLERS[name], 50 if name in CHANCY else 20
    grid = logarithmic(path, steps, low=0.01, high=30.0)
    x = initial_noise(path, grid, 600, 2, seed=1, spread=0.6)
    found = sampler(of_gaussian(path), x, path, grid, seed=1)
    if name in CERTAIN:
        tolerance = 0.06 if name not in ("Exponential 1", "Heun", "Ancestral, no chance") else 0.25
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
            torch.testing.assert_close(found, of_gaussian(path)(x, grid[0]))


@pytest.mark.parametrize("path", [p for p in PATHS if p.name in ENDLESS], ids=lambda path: path.name)
@pytest.mark.parametrize("name", [name for name in SAMPLERS if "SDE" not in name])
def test_paths_may_begin_at_noise_alone(path, name):
    grid = saturating_log_grid(path, 30 if name in CHANCY else 12, low=0.01)
    x = initial_noise(path, grid, 300, 2)
    found = SAMPLERS[name](of_gaussian(path), x, path, grid)
    assert abs(float(found.mean()) - 0.5) < 0.1
    if name != "AnnealedLangevin":  # it would need more steps where there is little but noise
        assert abs(float(found.std()) / 0.6 - 1) < 0.2
    with pytest.raises(ValueError, match="noise does not tell denoised at t="):
        SAMPLERS[name](denoiser(lambda x, t: x, path, predicts=NOISE), x, path, grid)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sample_does_not_depend_on_its_batch(name):
    path, sampler = variance_preserving(), SAMPLERS[name]
    grid = logarithmic(path, 3, high=30.0)
    many = sampler(of_gaussian(path), initial_noise(path, grid, 5, 2, 3, seed=7), path, grid, seed=7)
    few = sampler(of_gaussian(path), initial_noise(path, grid, 2, 2, 3, seed=7), path, grid, seed=7)
    late = sampler(of_gaussian(path), initial_noise(path, grid, 2, 2, 3, seed=7, first=3), path, grid, seed=7, first=3)
    torch.testing.assert_close(few, many[:2], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(late, many[3:], rtol=1e-12, atol=1e-12)
    again = sampler(of_gaussian(path), initial_noise(path, grid, 5, 2, 3, seed=7), path, grid, seed=7)
    assert torch.equal(again, many)
    if name in CHANCY:
        other = sampler(of_gaussian(path), initial_noise(path, grid, 5, 2, 3, seed=7), path, grid, seed=8)
        assert not torch.allclose(other, many)


@pytest.mark.parametrize(("order", "correction"), [(1, 0), (2, 0), (3, 0), (4, 0), (3, 3), (4, 4)])
def test_the_measured_order_of_the_exponential_sampler(order, correction):
    path, target = edm(), ring(radius=1.0, scale=0.4)
    x = initial_noise(path, logarithmic(path, 2), 64, 2)
    sampler = ExponentialMultistep(order=order, correction=correction)

    def end(steps, sampler):
        times = torch.logspace(math.log10(80), math.log10(0.05), steps + 1, dtype=torch.float64)
        return sampler(of_density(target, path), x, path, times.clamp(max=80))

    truth = end(200, ExponentialMultistep(order=4))
    errors = [float((end(n, sampler) - truth).norm()) for n in (40, 80)]
    assert math.log2(errors[0] / errors[1]) > order - 0.5


def test_the_default_follows_a_ring_of_modes():
    path, target = edm(), ring(radius=0.7036, scale=0.05)
    grid = saturating_log_grid(path, 35)
    x = ExponentialMultistep()(of_density(target, path), initial_noise(path, grid, 2000, 2), path, grid)
    assert abs(float(target.log_prob(x).mean()) + target.entropy) < 0.08
    nearest = torch.cdist(x, target.means).argmin(1).bincount(minlength=8)
    assert (nearest - 250).abs().max() < 70


def test_langevin_draws_from_its_density():
    x = langevin(lambda x: 1 - x, torch.zeros(4000, 1), steps=60, size=0.1)
    assert abs(float(x.mean()) - 1) < 0.06
    assert abs(float(x.var()) - 1 / (1 - 0.05)) < 0.1  # the variance of the discrete chain
    sizes = torch.tensor([0.1, 0.2])
    both = langevin(lambda x: -x, torch.ones(2, 1), steps=5, size=sizes, seed=3)
    alone = langevin(lambda x: -x, torch.ones(1, 1), steps=5, size=0.2, seed=3, first=1)
    torch.testing.assert_close(both[1:], alone)


def test_as_many_sizes_as_samples(unchecked):
    with pytest.raises(ValueError, match="one for each of 3 samples, is wanted: got 2"):
        langevin(lambda x: x, torch.ones(3, 2), steps=1, size=torch.ones(2))


def test_things_that_are_samplers():
    for sampler in SAMPLERS.values():
        assert isinstance(sampler, Sampler)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_denoiser_that_diverges_is_told_and_nothing_hangs(name):
    path = edm()
    grid = logarithmic(path, 5)
    x = initial_noise(path, grid, 3, 2)
    with pytest.raises(ValueError, match="gives NaN or infinity for 3 of 3 samples at t=80 of the EDM path"):
        SAMPLERS[name](lambda x, t: x * math.nan, x, path, grid)
    with pytest.raises(ValueError, match="NaN or infinity for 1 of 3"):
        SAMPLERS[name](lambda x, t: torch.where(torch.arange(3)[:, None] == 1, math.inf, x), x, path, grid)
    if name in CERTAIN:
        with pytest.raises((ValueError, RuntimeError), match=r"NaN or infinity|do not do|no step is short enough"):
            SAMPLERS[name](lambda x, t: -(x**9) * 1e30, x, path, grid)
    with pytest.raises(ValueError, match=r"keep the shape \(3, 2\): got \(3, 1\)"):
        SAMPLERS[name](lambda x, t: x[:, :1], x, path, grid)
    with pytest.raises(ValueError, match="begin with finite numbers"):
        SAMPLERS[name](lambda x, t: x, x * math.nan, path, grid)
    with pytest.raises(ValueError, match="times that go down"):
        SAMPLERS[name](lambda x, t: x, x, path, grid.flip(0))
    with pytest.raises(ValueError, match="two times or more"):
        SAMPLERS[name](lambda x, t: x, x, path, grid[:1])
    with pytest.raises(TypeError):
        SAMPLERS[name](lambda x, t: x, x.long(), path, grid)


def test_bad_settings_are_refused():
    for wrong in (
        lambda: ExponentialMultistep(order=5),
        lambda: ExponentialMultistep(order=0),
        lambda: ExponentialMultistep(correction=-1),
        lambda: Heun(churn=-1.0),
        lambda: Heun(low=2.0, high=1.0),
        lambda: ReverseSDE(chance=-0.1),
        lambda: Ancestral(chance=1.5),
        lambda: Corrector(steps=0),
        lambda: Corrector(ratio=0.0),
        lambda: langevin(lambda x: x, torch.ones(1, 1), steps=0, size=0.1),
        lambda: langevin(lambda x: x, torch.ones(1, 1), steps=1, size=-0.1),
        lambda: langevin(lambda x: x * math.nan, torch.ones(1, 1), steps=1, size=0.1),
        lambda: langevin(lambda x: x[:, :1], torch.ones(1, 2), steps=1, size=0.1),
    ):
        with pytest.raises(ValueError, match=r"wanted|at least|NaN|keep the shape"):
            wrong()
    path = rectified()
    grid = saturating_log_grid(path, 3)
    with pytest.raises(ValueError, match=r"reverse SDE is singular at t=1 of the rectified path"):
        ReverseSDE()(of_gaussian(path), initial_noise(path, grid, 2, 2), path, grid)
    with pytest.raises(RuntimeError, match="20 evaluations do not do"):
        AdaptiveFlow(most=20)(of_gaussian(edm()), 80 * normal_noise(2, 2, seed=0), edm(), karras_grid(edm(), 2))


def test_samples_of_any_shape_and_precision():
    path = edm()
    grid = saturating_log_grid(path, 2)
    for shape in ((), (2, 4, 4)):
        x = initial_noise(path, grid, 2, *shape).float()
        for sampler in SAMPLERS.values():
            found = sampler(of_gaussian(path), x, path, grid)
            assert found.shape == x.shape
            assert found.dtype == torch.float64
