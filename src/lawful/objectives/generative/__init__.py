"""Losses of generative models."""

from lawful.objectives.generative.adversarial import (
    HINGE,
    MINIMAX,
    NON_SATURATING,
    WASSERSTEIN,
    Game,
    gradient_penalty,
    told_apart,
    zero_centred_penalty,
)
from lawful.objectives.generative.denoising import denoising_error, flow_matching
from lawful.objectives.generative.elbo import gaussian_divergence, negative_elbo
from lawful.objectives.generative.gradient_estimators import gaussian_log_density, reparameterised, score_function
from lawful.objectives.generative.gumbel import (
    categorical_divergence,
    gumbel,
    gumbel_max,
    gumbel_softmax,
    gumbel_straight,
)
from lawful.objectives.generative.iwae import importance_bound, importance_estimate
from lawful.objectives.generative.noise_levels import (
    LogNormal,
    LogUniform,
    NoiseLevels,
    Steps,
    UniformInTime,
    stratified,
)
from lawful.objectives.generative.score_matching import (
    denoising_score_matching,
    explicit_score_matching,
    reduced_sliced_score_matching,
    signs_like,
    sliced_score_matching,
)

__all__ = [
    "HINGE",
    "MINIMAX",
    "NON_SATURATING",
    "WASSERSTEIN",
    "Game",
    "LogNormal",
    "LogUniform",
    "NoiseLevels",
    "Steps",
    "UniformInTime",
    "categorical_divergence",
    "denoising_error",
    "denoising_score_matching",
    "explicit_score_matching",
    "flow_matching",
    "gaussian_divergence",
    "gaussian_log_density",
    "gradient_penalty",
    "gumbel",
    "gumbel_max",
    "gumbel_softmax",
    "gumbel_straight",
    "importance_bound",
    "importance_estimate",
    "negative_elbo",
    "reduced_sliced_score_matching",
    "reparameterised",
    "score_function",
    "signs_like",
    "sliced_score_matching",
    "stratified",
    "told_apart",
    "zero_centred_penalty",
]
