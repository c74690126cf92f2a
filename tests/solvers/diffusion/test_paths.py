import math
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from math import cos, pi

import numpy as np
import pytest
import torch
from torch import Tensor

from lawful.laws import Claim, Draw, Equal, Map, Statement, agreement, derivative, law, shape, transformed
from lawful.solvers.diffusion import (
    DENOISED,
    FLOW,
    NOISE,
    SCORE,
    VELOCITY,
    GaussianPath,
    NoiseLevel,
    Prediction,
    angle_at,
    angular_rate,
    convert,
    cosine_grid,
    cosine_path,
    ddpm_path,
    denoiser,
    edm,
    expand_like,
    input_scale,
    karras_grid,
    linear_grid,
    log_grid,
    preconditioned,
    rectified,
    rectified_grid,
    saturating_log_grid,
    sub_variance_preserving,
    time_of_angle,
    variance_exploding,
    variance_preserving,
)
from tests.solvers.diffusion.analytic import PATHS, PURE_NOISE

KINDS = (SCORE, NOISE, DENOISED, VELOCITY, FLOW, preconditioned(0.6))
GRIDS = (karras_grid, log_grid, saturating_log_grid, cosine_grid, rectified_grid)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_every_path_leads_from_data_to_noise(path):
    assert float(path.alpha(0.0)) == 1
    assert float(path.sigma(0.0)) == 0
    times = torch.linspace(0, path.max_time, 200, dtype=torch.float64)
    ratios = path.ratio(times)
    assert (ratios.diff() > 0).all()
    assert float(path.time_of(torch.tensor(0.0))) == pytest.approx(0, abs=1e-15)
    assert float(path.time_of(ratios[-1])) == pytest.approx(path.max_time, rel=1e-9)
    assert math.isinf(float(ratios[-1])) == (path.name in PURE_NOISE)
    assert path.alpha(times).dtype == torch.float64
    t = path.time_of(torch.tensor(2.0))
    assert float(path.time_of_log_snr(path.log_snr(t))) == pytest.approx(float(t), rel=1e-12)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_sde_moments_equal_the_path(path):
    steps = 4000
    start, end = float(path.time_of(torch.tensor(0.1))), float(path.time_of(torch.tensor(3.0)))
    h, mean, variance = (end - start) / steps, 1.0, float(path.sigma(start)) ** 2
    times = torch.tensor([start + (i + 0.5) * h for i in range(steps)], dtype=torch.float64)
    for drift, squared in zip(path.drift(times).tolist(), path.squared_diffusion(times).tolist(), strict=True):
        middle = variance + h / 2 * (2 * drift * variance + squared)
        mean, variance = mean * math.exp(drift * h), variance + h * (2 * drift * middle + squared)
    assert mean == pytest.approx(float(path.alpha(end) / path.alpha(start)), rel=1e-4)
    assert variance == pytest.approx(float(path.sigma(end)) ** 2, rel=2e-3)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_paths_are_picklable(path):
    copy = pickle.loads(pickle.dumps(path))
    t = path.max_time * torch.tensor([0.1, 0.7], dtype=torch.float64)
    assert torch.equal(copy.ratio(t), path.ratio(t))


def test_small_noise_levels_are_accurate():
    path, tiny = variance_preserving(), torch.tensor(1e-9, dtype=torch.float64)
    assert float(path.sigma(tiny)) == pytest.approx(math.sqrt(1e-10), rel=1e-9)
    for path in PATHS:
        small = torch.logspace(-6, 0, 20, dtype=torch.float64)
        torch.testing.assert_close(path.ratio(path.time_of(small)), small, rtol=1e-6, atol=0)


def test_parameters_of_paths_equal_their_equations():
    t = torch.tensor([0.25, 1.0], dtype=torch.float64)
    torch.testing.assert_close(variance_exploding(0.5, 8.0).sigma(t), 0.5 * (16 ** (2 * t) - 1).sqrt())
    total = 0.3 * t + (5.0 - 0.3) * t.square() / 2  # the integral of beta
    torch.testing.assert_close(variance_preserving(0.3, 5.0).alpha(t), (-total / 2).exp())
    torch.testing.assert_close(variance_preserving(0.3, 5.0).sigma(t), (1 - (-total).exp()).sqrt())
    torch.testing.assert_close(sub_variance_preserving(0.3, 5.0).alpha(t), (-total / 2).exp())
    torch.testing.assert_close(sub_variance_preserving(0.3, 5.0).sigma(t), 1 - (-total).exp())
    angle, start = (t + 0.1) / 1.1 * pi / 2, 0.1 / 1.1 * pi / 2
    alpha = angle.cos() / math.cos(start)
    torch.testing.assert_close(cosine_path(0.1).alpha(t), alpha)
    torch.testing.assert_close(cosine_path(0.1).sigma(t), (1 - alpha.square()).sqrt())


def test_the_chain_passes_through_the_steps_of_ddpm():
    betas = np.linspace(1e-4, 0.02, 1000)
    path, steps = ddpm_path(), torch.arange(1, 1001).double()
    np.testing.assert_allclose(path.alpha(steps).square(), np.cumprod(1 - betas), rtol=1e-9)
    torch.testing.assert_close(path.time_of(path.ratio(steps)), steps, rtol=1e-9, atol=0)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
@pytest.mark.parametrize("given", KINDS, ids=lambda kind: kind.name)
def test_predictions_convert_into_each_other(path, given):
    x, y = torch.randn(2, 3, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    t = path.time_of(torch.tensor([0.05, 0.8, 9.0]))
    for to in KINDS:
        there = convert(y, x, t, path, source=given, target=to)
        torch.testing.assert_close(convert(there, x, t, path, source=to, target=given), y, rtol=1e-8, atol=1e-8)
    denoised = denoiser(lambda x, t: y, path, prediction=given)(x, t)
    torch.testing.assert_close(denoised, convert(y, x, t, path, source=given, target=DENOISED))


@pytest.mark.parametrize("path", [cosine_path(), rectified()], ids=lambda path: path.name)
def test_impossible_conversions_raise(path):
    x = torch.ones(2, 3, dtype=torch.float64)
    for kind in (SCORE, NOISE):
        with pytest.raises(ValueError, match=f"cannot convert {kind.name} to denoised at t=1 of the {path.name} path"):
            convert(x, x, 1.0, path, source=kind, target=DENOISED)
    for kind in (DENOISED, VELOCITY, preconditioned(), FLOW):
        assert convert(x, x, 1.0, path, source=kind, target=DENOISED).isfinite().all()
    with pytest.raises(ValueError, match="cannot convert denoised to score at t=0"):
        convert(x, x, 0.0, path, source=DENOISED, target=SCORE)


def test_output_dtype_is_the_dtype_of_the_data():
    x = torch.ones(2, 3)
    assert edm().add_noise(x, x, torch.tensor([1.0, 2.0])).dtype == torch.float32
    assert convert(x, x, 0.5, rectified(), source=VELOCITY, target=NOISE).dtype == torch.float32


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
@pytest.mark.parametrize("n", [1, 2, 7])
def test_grids_go_down_to_the_data_in_n_steps(path, n):
    for grid in (*GRIDS, linear_grid):
        times = grid(path, n)
        assert len(times) == n + 1
        assert (times.diff() < 0).all()
        assert float(times[-1]) == 0
        assert times.dtype == torch.float64
        assert times.isfinite().all()
    assert float(saturating_log_grid(path, n)[0]) == pytest.approx(path.max_time)


def test_grids_need_an_integer_number_of_steps(unchecked):
    for grid in (*GRIDS, linear_grid):
        with pytest.raises(ValueError, match=r"integer number of steps n >= 1, got 2\.5"):
            grid(edm(), 2.5)
        assert len(grid(edm(), np.int64(2))) == 3


def test_invalid_grids_and_paths():
    path = edm()
    for grid in (*GRIDS, linear_grid):
        with pytest.raises(ValueError, match="integer number of steps n >= 1, got 0"):
            grid(path, 0)
    for grid in GRIDS:
        for low, high in ((1.0, 0.5), (0.0, 1.0), (0.1, 100.0), (math.nan, 1.0), (-1.0, 1.0)):
            with pytest.raises(ValueError, match="0 < low < high <= 80 on the EDM path"):
                grid(path, 3, low=low, high=high)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: edm(0.0), "finite sigma_max > 0"),
        (lambda: variance_exploding(2.0, 1.0), "finite sigma_max > 2"),
        (lambda: variance_preserving(1.0, 0.5), "finite beta_max > 1"),
        (lambda: ddpm_path([]), "at least one beta"),
        (lambda: ddpm_path([0.1, 1.0]), "at least one beta"),
        (lambda: cosine_path(-1.0), "finite offset > 0"),
        (lambda: preconditioned(0.0), "finite sigma_data > 0"),
        (lambda: edm().alpha(81.0), r"from 0 to 80, got 81\.0"),
        (lambda: edm().alpha(math.nan), "from 0 to 80, got nan"),
        (lambda: karras_grid(edm(), 3, power=0.0), "finite power > 0"),
        (lambda: saturating_log_grid(edm(), 3, knee=-1.0), "finite knee > 0"),
        (lambda: rectified_grid(edm(), 3, shift=0.0), "finite shift > 0"),
        (lambda: linear_grid(edm(), 3, max_time=90.0), "max_time <= 80"),
    ],
)
def test_invalid_parameters_of_paths_and_grids(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def _gaussian_path_claims() -> Iterator[Claim]:
    """Laws of a generic path, alpha = exp(-t²), sigma = t (2 + t)."""

    def level(t: Tensor) -> NoiseLevel:
        alpha = (-t.square()).exp()
        return NoiseLevel(alpha, t * (2 + t), -2 * t * alpha, 2 + 2 * t)

    path = GaussianPath(name="odd", level=level, time_of=lambda ratio: ratio, max_time=1.0)

    def inside(x: Tensor) -> Tensor:
        return 0.1 + 0.8 * torch.sigmoid(x)

    def flow(x: Tensor, d: Tensor, t: Tensor) -> Tensor:
        return path.velocity(x, d, t)

    def by_score(x: Tensor, d: Tensor, t: Tensor) -> Tensor:
        """The probability flow as Song et al. write it: f x - g² score / 2."""
        drift, squared = expand_like(path.drift(t), x), expand_like(path.squared_diffusion(t), x)
        return drift * x - squared / 2 * path.score(x, d, t)

    near = transformed(lambda x: 1 + torch.sigmoid(x), "n 2")
    inputs = (near, near, transformed(inside, "n"))
    yield Claim(agreement(other=by_score), flow, inputs, name="velocity, by the score")

    def tweedie(x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return path.score(path.add_noise(x, noise, t), x, t)

    yield Claim(
        agreement(other=lambda x, noise, t: -noise / (t * (2 + t))[:, None]),
        tweedie,
        inputs,
        name="score of known data",
    )

    def rate_of_variance(t: Tensor) -> Tensor:
        return (2 * path.drift(t) * path.sigma(t).square() + path.squared_diffusion(t)).to(t)

    grows = agreement(other=lambda t: 2 * t * (2 + t) * (2 + 2 * t))
    yield Claim(grows, rate_of_variance, transformed(inside, "n"), name="the noise that drift and diffusion make")
    yield Claim(
        agreement(other=lambda t: -2 * t.square() - 2 * (t * (2 + t)).log()),
        lambda t: path.log_snr(t).to(t),
        transformed(inside, "n"),
        name="log_snr",
    )


def _paths_claims() -> Iterator[Claim]:
    """Laws of the paths."""
    chain = [0.1, 0.3, 0.2]

    def inside(x: Tensor) -> Tensor:
        return 0.02 + 0.5 * torch.sigmoid(x)

    def decay(t: Tensor) -> Tensor:
        return t / 10 + 9.95 * t.square()

    noises = {
        edm(): lambda t: 2 * t,
        variance_exploding(0.1, 10.0): lambda t: 0.01 * 100 ** (2 * t) * 2 * t.new_tensor(100.0).log(),
        variance_preserving(): lambda t: 0.1 + 19.9 * t,
        sub_variance_preserving(): lambda t: (0.1 + 19.9 * t) * (1 - (-2 * decay(t)).exp()),
        ddpm_path(chain): lambda t: -(1 - t.new_tensor(chain)).log()[t.long()],
        cosine_path(): lambda t: (pi / 1.008) * ((t + 0.008) / 1.008 * pi / 2).tan(),
        rectified(): lambda t: 2 * t / (1 - t),
    }
    scales = {
        "VP": lambda t: (-decay(t) / 2).exp(),
        "sub-VP": lambda t: (-decay(t) / 2).exp(),
        "DDPM": lambda t: (1 - chain[0]) ** (t / 2),
        "cosine": lambda t: ((t + 0.008) / 1.008 * pi / 2).cos() / cos(0.008 / 1.008 * pi / 2),
        "rectified": lambda t: 1 - t,
    }
    times = transformed(inside, "n")
    for path, squared in noises.items():

        def found(t: Tensor, which: str, path: GaussianPath = path) -> Tensor:
            return getattr(path, which)(t).to(t)

        def rate(t: Tensor, which: str, path: GaussianPath = path) -> Tensor:
            return getattr(path.at(t), f"{which}_rate").to(t)

        def back(t: Tensor, path: GaussianPath = path) -> Tensor:
            return path.time_of(path.ratio(t)).to(t)

        scale = scales.get(path.name, torch.ones_like)
        for which, other in (("squared_diffusion", squared), ("alpha", scale)):
            yield Claim(agreement(other=other), partial(found, which=which), times, name=f"{path.name}, {which}")
        for which in ("alpha", "sigma")[scale is torch.ones_like :]:
            law = derivative(formula=partial(rate, which=which))
            yield Claim(law, partial(found, which=which), times, name=f"{path.name}, {which}")
        yield Claim(agreement(other=lambda t: t), back, times, name=f"{path.name}, time of a ratio")


@law("t_0 > t_1 > ... > t_n = 0, and the spaced quantity goes down by equal steps")
def even_spacing(f: Map, x: Tensor, *, quantity: Callable[[Tensor], Tensor], draw: Draw) -> Statement:
    """In a grid with one step per entry of x, a function of the noise ratios is evenly spaced; the last ratio is 0.

    Satisfied by: a logarithmic grid and the logarithm.
    Broken by: a logarithmic grid and the ratio itself; a grid without the data at its end.
    """
    ratios = f(x)
    spaced = quantity(ratios[:-1])
    even = spaced[0] + (spaced[-1] - spaced[0]) * torch.arange(len(spaced)).to(x) / max(1, len(spaced) - 1)
    return Equal((spaced, ratios[-1:]), (even, torch.zeros_like(ratios[-1:])), exercised=True)


def _grids_claims() -> Iterator[Claim]:
    """Laws of grids."""
    path = variance_preserving()
    rows = (
        ("karras", karras_grid, lambda r: r ** (1 / 7)),
        ("logarithmic", log_grid, torch.log),
        ("saturated", saturating_log_grid, lambda r: -(4 / r).log1p()),
        ("cosine_spaced", cosine_grid, torch.atan),
        ("rectified_spaced", rectified_grid, lambda r: r / (1 + r)),
    )
    for name, grid, quantity in rows:

        def ratios(x: Tensor, grid: Callable[..., Tensor] = grid) -> Tensor:
            return path.ratio(grid(path, len(x), low=0.01, high=20.0)).to(x)

        yield Claim(even_spacing(quantity=quantity), ratios, shape("n:1..9"), name=name)

        def ends(x: Tensor, grid: Callable[..., Tensor] = grid) -> Tensor:
            found = path.ratio(grid(path, 1 + len(x), low=0.01, high=20.0)).to(x)
            return torch.stack([found[0], found[-2], found[-1]])

        same_ends = agreement(other=lambda x: x.new_tensor([20.0, 0.01, 0.0]))
        yield Claim(same_ends, ends, shape("n:1..9"), name=f"{name}, its ends")

    def times(x: Tensor) -> Tensor:
        return linear_grid(path, len(x), max_time=0.8).to(x)

    by_hand = agreement(other=lambda x: 0.8 * (len(x) - torch.arange(len(x) + 1).to(x)) / len(x))
    yield Claim(by_hand, times, shape("n:1..9"), name="linear")


def _angles_claims() -> Iterator[Claim]:
    """Laws of the equation in the angle."""
    path, scale = variance_preserving(), 0.7

    def inside(x: Tensor) -> Tensor:
        return 0.1 + 0.6 * torch.sigmoid(x)

    def there(t: Tensor) -> Tensor:
        return time_of_angle(path, angle_at(path, t, scale=scale), scale=scale).to(t)

    yield Claim(agreement(other=lambda t: t), there, transformed(inside, "n"), name="time of an angle")

    def field(v: Tensor, t: Tensor) -> Tensor:
        return angular_rate(lambda x, t: x.sin(), path, scale=scale)(angle_at(path, t, scale=scale), v)

    def by_hand(v: Tensor, t: Tensor) -> Tensor:
        """The chain rule: v = x / r, x by its velocity, and time by the angle."""
        a, s, a_rate, s_rate = (value.to(v)[:, None] for value in path.at(t))
        r = (s.square() + (scale * a).square()).sqrt()
        x = r * v
        velocity = path.velocity(x, x.sin(), t)
        r_rate = (s * s_rate + scale**2 * a * a_rate) / r
        angle_rate = scale * (s_rate * a - s * a_rate) / r.square()
        return (velocity / r - x * r_rate / r.square()) / angle_rate

    yield Claim(agreement(other=by_hand), field, (shape("n 2"), transformed(inside, "n")), name="turning")

    def still(v: Tensor, t: Tensor) -> Tensor:
        """For Gaussian data of this scale the derivative is 0."""

        def denoise(x: Tensor, t: Tensor) -> Tensor:
            level = path.at(t)
            a, s = level.alpha.to(x)[:, None], level.sigma.to(x)[:, None]
            return a * scale**2 * x / (s.square() + (scale * a).square())

        return v + angular_rate(denoise, path, scale=scale)(angle_at(path, t, scale=scale), v)

    yield Claim(
        agreement(other=lambda v, t: v), still, (shape("n 2"), transformed(inside, "n")), name="turning, Gaussian data"
    )


def _own_claims() -> Iterator[Claim]:
    """Laws of predictions."""
    path = variance_preserving()
    f = preconditioned(0.7)

    def truth(kind: Prediction, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        """The exact output of a network of this kind, given the data and the noise."""
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

    near = transformed(lambda x: 1 + torch.sigmoid(x), "n 2")
    inputs = (near, near, transformed(lambda x: 0.2 + 0.3 * torch.sigmoid(x), "n"))
    kinds = (SCORE, NOISE, DENOISED, VELOCITY, FLOW, f)
    for given, to in zip(kinds, (*kinds[1:], kinds[0]), strict=True):

        def converted(x: Tensor, noise: Tensor, t: Tensor, given: Prediction = given, to: Prediction = to) -> Tensor:
            y = truth(given, x, noise, t)
            return convert(y, path.add_noise(x, noise, t), t, path, source=given, target=to)

        other = agreement(other=lambda x, noise, t, to=to: truth(to, x, noise, t))
        yield Claim(other, converted, inputs, name=f"{given.name} to {to.name}")

    def unit(x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return input_scale(path, t, sigma_data=0.7).to(x)

    def written(x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return 1 / (path.sigma(t).square() + 0.49 * path.alpha(t).square()).sqrt().to(x)

    yield Claim(agreement(other=written), unit, inputs, name="input_scale")


def claims() -> Iterator[Claim]:
    """Second derivations of paths, grids and predictions."""
    yield from _gaussian_path_claims()
    yield from _paths_claims()
    yield from _grids_claims()
    yield from _angles_claims()
    yield from _own_claims()
