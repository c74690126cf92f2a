import math

import numpy as np
import pytest
import torch

from lawful.solvers.diffusion import (
    DENOISED,
    FLOW,
    NOISE,
    SCORE,
    VELOCITY,
    convert,
    cosine_path,
    cosine_spaced,
    ddpm_path,
    denoiser,
    edm,
    karras_grid,
    linear,
    logarithmic,
    preconditioned,
    rectified,
    rectified_spaced,
    saturating_log_grid,
    variance_exploding,
    variance_preserving,
)
from tests.solvers.diffusion.analytic import ENDLESS, PATHS

KINDS = (SCORE, NOISE, DENOISED, VELOCITY, FLOW, preconditioned(0.6))
GRIDS = (karras_grid, logarithmic, saturating_log_grid, cosine_spaced, rectified_spaced)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_every_path_leads_from_data_to_noise(path):
    assert float(path.alpha(0.0)) == 1
    assert float(path.sigma(0.0)) == 0
    times = torch.linspace(0, path.last, 200, dtype=torch.float64)
    ratios = path.ratio(times)
    assert (ratios.diff() > 0).all()
    assert float(path.time_of(torch.tensor(0.0))) == pytest.approx(0, abs=1e-15)
    assert float(path.time_of(ratios[-1])) == pytest.approx(path.last, rel=1e-9)
    assert math.isinf(float(ratios[-1])) == (path.name in ENDLESS)
    assert path.alpha(times).dtype == torch.float64
    t = path.time_of(torch.tensor(2.0))
    assert float(path.time_of_log_snr(path.log_snr(t))) == pytest.approx(float(t), rel=1e-12)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_the_moments_of_the_sde_are_those_of_the_path(path):
    steps = 4000
    start, end = float(path.time_of(torch.tensor(0.1))), float(path.time_of(torch.tensor(3.0)))
    h, mean, variance = (end - start) / steps, 1.0, float(path.sigma(start)) ** 2
    times = torch.tensor([start + (i + 0.5) * h for i in range(steps)], dtype=torch.float64)
    for drift, squared in zip(path.drift(times).tolist(), path.squared_diffusion(times).tolist(), strict=True):
        middle = variance + h / 2 * (2 * drift * variance + squared)
        mean, variance = mean * math.exp(drift * h), variance + h * (2 * drift * middle + squared)
    assert mean == pytest.approx(float(path.alpha(end) / path.alpha(start)), rel=1e-4)
    assert variance == pytest.approx(float(path.sigma(end)) ** 2, rel=2e-3)


def test_little_noise_is_exact():
    path, tiny = variance_preserving(), torch.tensor(1e-9, dtype=torch.float64)
    assert float(path.sigma(tiny)) == pytest.approx(math.sqrt(1e-10), rel=1e-9)
    for path in PATHS:
        small = torch.logspace(-6, 0, 20, dtype=torch.float64)
        torch.testing.assert_close(path.ratio(path.time_of(small)), small, rtol=1e-6, atol=0)


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
        there = convert(y, x, t, path, given=given, to=to)
        torch.testing.assert_close(convert(there, x, t, path, given=to, to=given), y, rtol=1e-8, atol=1e-8)
    asked = denoiser(lambda x, t: y, path, predicts=given)(x, t)
    torch.testing.assert_close(asked, convert(y, x, t, path, given=given, to=DENOISED))


@pytest.mark.parametrize("path", [cosine_path(), rectified()], ids=lambda path: path.name)
def test_what_noise_alone_cannot_tell_is_refused(path):
    x = torch.ones(2, 3, dtype=torch.float64)
    for kind in (SCORE, NOISE):
        with pytest.raises(ValueError, match=f"{kind.name} does not tell denoised at t=1 of the {path.name} path"):
            convert(x, x, 1.0, path, given=kind, to=DENOISED)
    for kind in (DENOISED, VELOCITY, preconditioned(), FLOW):
        assert convert(x, x, 1.0, path, given=kind, to=DENOISED).isfinite().all()
    with pytest.raises(ValueError, match="denoised does not tell score at t=0"):
        convert(x, x, 0.0, path, given=DENOISED, to=SCORE)


def test_precision_is_that_of_the_data():
    x = torch.ones(2, 3)
    assert edm().noised(x, x, torch.tensor([1.0, 2.0])).dtype == torch.float32
    assert convert(x, x, 0.5, rectified(), given=VELOCITY, to=NOISE).dtype == torch.float32


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
@pytest.mark.parametrize("n", [1, 2, 7])
def test_grids_go_down_to_the_data_in_n_steps(path, n):
    for grid in (*GRIDS, linear):
        times = grid(path, n)
        assert len(times) == n + 1
        assert (times.diff() < 0).all()
        assert float(times[-1]) == 0
        assert times.dtype == torch.float64
        assert times.isfinite().all()
    assert float(saturating_log_grid(path, n)[0]) == pytest.approx(path.last)


def test_grids_have_whole_numbers_of_steps(unchecked):
    for grid in (*GRIDS, linear):
        with pytest.raises(ValueError, match=r"a whole number of steps, at least 1: got n=2\.5"):
            grid(edm(), 2.5)
        assert len(grid(edm(), np.int64(2))) == 3


def test_bad_grids_and_paths_are_refused():
    path = edm()
    for grid in (*GRIDS, linear):
        with pytest.raises(ValueError, match="a whole number of steps, at least 1: got n=0"):
            grid(path, 0)
    for grid in GRIDS:
        for low, high in ((1.0, 0.5), (0.0, 1.0), (0.1, 100.0), (math.nan, 1.0), (-1.0, 1.0)):
            with pytest.raises(ValueError, match=r"0 < low < high, up to 80 on the EDM path"):
                grid(path, 3, low=low, high=high)
    for wrong, match in (
        (lambda: edm(0.0), "sigma_max is to be above 0"),
        (lambda: variance_exploding(2.0, 1.0), "sigma_max is to be above 2"),
        (lambda: variance_preserving(1.0, 0.5), "beta_max is to be above 1"),
        (lambda: ddpm_path([]), "betas between 0 and 1"),
        (lambda: ddpm_path([0.1, 1.0]), "betas between 0 and 1"),
        (lambda: cosine_path(-1.0), "offset is to be above 0"),
        (lambda: preconditioned(0.0), "sigma_data is to be above 0"),
        (lambda: edm().alpha(81.0), r"from 0 to 80: got 81\.0"),
        (lambda: edm().alpha(math.nan), "from 0 to 80: got nan"),
        (lambda: karras_grid(path, 3, power=0.0), "power is to be above 0"),
        (lambda: saturating_log_grid(path, 3, knee=-1.0), "knee is to be above 0"),
        (lambda: rectified_spaced(path, 3, shift=0.0), "shift is to be above 0"),
        (lambda: linear(path, 3, last=90.0), "up to 80"),
    ):
        with pytest.raises(ValueError, match=match):
            wrong()
