"""Targets whose denoiser is known exactly, for the tests of this folder."""

import torch

from lawful.solvers.diffusion import (
    AdaptiveFlow,
    Ancestral,
    AnnealedLangevin,
    Corrector,
    Exponential,
    Heun,
    PredictorCorrector,
    ProbabilityFlow,
    ReverseSDE,
    cosine,
    discrete_chain,
    edm,
    rectified,
    sub_variance_preserving,
    variance_exploding,
    variance_preserving,
)
from lawful.solvers.diffusion.gaussian_path import beside
from lawful.solvers.ode import DORMAND_PRINCE, HEUN

PATHS = (
    edm(),
    variance_exploding(),
    variance_preserving(),
    sub_variance_preserving(),
    discrete_chain(),
    cosine(),
    rectified(),
)
ENDLESS = ("cosine", "rectified")
CERTAIN = {
    **{f"Exponential {order}": Exponential(order=order) for order in (1, 2, 3, 4)},
    "Exponential, no correction": Exponential(order=2, correction=0),
    "Heun": Heun(),
    "ProbabilityFlow": ProbabilityFlow(),
    "ProbabilityFlow, Dormand-Prince": ProbabilityFlow(tableau=DORMAND_PRINCE),
    "ProbabilityFlow, Heun": ProbabilityFlow(tableau=HEUN),
    "AdaptiveFlow": AdaptiveFlow(rtol=1e-3, atol=1e-3),
    "Ancestral, no chance": Ancestral(chance=0.0),
}
CHANCY = {
    "Heun, churn": Heun(churn=10.0, high=20.0),
    "ReverseSDE": ReverseSDE(),
    "Ancestral": Ancestral(),
    "AnnealedLangevin": AnnealedLangevin(corrector=Corrector(steps=5, ratio=0.3)),
    "PredictorCorrector": PredictorCorrector(predictor=Ancestral()),
    "PredictorCorrector, SDE": PredictorCorrector(),
}
SAMPLERS = CERTAIN | CHANCY


def of_density(density, path):
    """The exact denoiser of a density of data on a path."""

    def denoise(x, t):
        if t.dim():
            return torch.cat([denoise(row[None], time) for row, time in zip(x, t, strict=True)])
        return density.denoised(x, float(path.alpha(t)), float(path.sigma(t)))

    return denoise


def of_gaussian(path, mean=0.5, scale=0.6):
    """The exact denoiser of independent Gaussian data."""

    def denoise(x, t):
        level = path.at(t)
        a, s = beside(level.alpha, x), beside(level.sigma, x)
        return (s.square() * mean + scale**2 * a * x) / (s.square() + (scale * a).square())

    return denoise


def gaussian_end(x, path, t, mean=0.5, scale=0.6):
    """Where the probability flow of Gaussian data ends: every quantile keeps its place."""
    a, s = float(path.alpha(t)), float(path.sigma(t))
    return mean + (x - a * mean) * scale / (s**2 + (scale * a) ** 2) ** 0.5
