"""Targets whose denoiser is known exactly, for the tests of this folder."""

import torch

from lawful.solvers.diffusion import (
    AdaptiveProbabilityFlow,
    Ancestral,
    AnnealedLangevin,
    ExponentialMultistep,
    Heun,
    LangevinCorrector,
    PredictorCorrector,
    ProbabilityFlow,
    ReverseSDE,
    cosine_path,
    ddpm_path,
    edm,
    rectified,
    sub_variance_preserving,
    variance_exploding,
    variance_preserving,
)
from lawful.solvers.diffusion.paths import expand_like
from lawful.solvers.ode import DORMAND_PRINCE, HEUN

PATHS = (
    edm(),
    variance_exploding(),
    variance_preserving(),
    sub_variance_preserving(),
    ddpm_path(),
    cosine_path(),
    rectified(),
)
PURE_NOISE = ("cosine", "rectified")
DETERMINISTIC = {
    **{f"Exponential {order}": ExponentialMultistep(order=order) for order in (1, 2, 3, 4)},
    "Exponential, no correction": ExponentialMultistep(order=2, correction=0),
    "Heun": Heun(),
    "ProbabilityFlow": ProbabilityFlow(),
    "ProbabilityFlow, Dormand-Prince": ProbabilityFlow(tableau=DORMAND_PRINCE),
    "ProbabilityFlow, Heun": ProbabilityFlow(tableau=HEUN),
    "AdaptiveProbabilityFlow": AdaptiveProbabilityFlow(rtol=1e-3, atol=1e-3),
    "Ancestral, eta=0": Ancestral(eta=0.0),
}
STOCHASTIC = {
    "Heun, churn": Heun(churn=10.0, churn_max=20.0),
    "ReverseSDE": ReverseSDE(),
    "Ancestral": Ancestral(),
    "AnnealedLangevin": AnnealedLangevin(corrector=LangevinCorrector(steps=5, snr=0.3)),
    "PredictorCorrector": PredictorCorrector(predictor=Ancestral()),
    "PredictorCorrector, SDE": PredictorCorrector(),
}
SAMPLERS = DETERMINISTIC | STOCHASTIC


def exact_denoiser(density, path):
    """The exact denoiser of a density of data on a path."""

    def denoise(x, t):
        if t.dim():
            return torch.cat([denoise(row[None], time) for row, time in zip(x, t, strict=True)])
        return density.denoise(x, float(path.alpha(t)), float(path.sigma(t)))

    return denoise


def gaussian_denoiser(path, mean=0.5, scale=0.6):
    """The exact denoiser of independent Gaussian data."""

    def denoise(x, t):
        level = path.at(t)
        a, s = expand_like(level.alpha, x), expand_like(level.sigma, x)
        return (s.square() * mean + scale**2 * a * x) / (s.square() + (scale * a).square())

    return denoise


def gaussian_end(x, path, t, mean=0.5, scale=0.6):
    """End point of the probability flow of Gaussian data: quantiles are preserved."""
    a, s = float(path.alpha(t)), float(path.sigma(t))
    return mean + (x - a * mean) * scale / (s**2 + (scale * a) ** 2) ** 0.5
