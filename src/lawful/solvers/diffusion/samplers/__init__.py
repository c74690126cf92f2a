"""Samplers: from noise to data along a path."""

from lawful.solvers.diffusion.samplers.exponential import Exponential
from lawful.solvers.diffusion.samplers.heun import Heun
from lawful.solvers.diffusion.samplers.langevin import AnnealedLangevin, Corrector, PredictorCorrector, langevin
from lawful.solvers.diffusion.samplers.probability_flow import AdaptiveFlow, ProbabilityFlow
from lawful.solvers.diffusion.samplers.stochastic import Ancestral, ReverseSDE

__all__ = [
    "AdaptiveFlow",
    "Ancestral",
    "AnnealedLangevin",
    "Corrector",
    "Exponential",
    "Heun",
    "PredictorCorrector",
    "ProbabilityFlow",
    "ReverseSDE",
    "langevin",
]
