"""The options of a diffusion: its path, what its network predicts, and how noise levels are trained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from lawful.objectives.generative import LogNormal, LogUniform, NoiseLevels, Steps, UniformInTime
from lawful.solvers.diffusion import (
    DENOISED,
    FLOW,
    NOISE,
    SCORE,
    VELOCITY,
    GaussianPath,
    Prediction,
    cosine,
    discrete_chain,
    edm,
    preconditioned,
    rectified,
    sub_variance_preserving,
    variance_exploding,
    variance_preserving,
)
from lawful.training import Between, validate

PATHS: dict[str, Callable[[], GaussianPath]] = {
    "edm": edm,
    "ve": variance_exploding,
    "vp": variance_preserving,
    "sub-vp": sub_variance_preserving,
    "ddpm": discrete_chain,
    "cosine": cosine,
    "rectified": rectified,
}
PREDICTIONS = {"noise": NOISE, "denoised": DENOISED, "velocity": VELOCITY, "flow": FLOW, "score": SCORE}


@dataclass(frozen=True, kw_only=True)
class Noising:
    """How data become noise, and what is learned of it."""

    path: Literal["edm", "ve", "vp", "sub-vp", "ddpm", "cosine", "rectified"] = "edm"
    """The path from data to noise."""
    predicts: Literal["f", "noise", "denoised", "velocity", "flow", "score"] = "f"
    """What the network predicts, and its error counts in: EDM's F, or another; flow is flow matching."""
    levels: Literal["log-normal", "log-uniform", "uniform", "steps"] = "log-normal"
    """How training is spread over noise levels: log-normal, as EDM; even in logarithm or time; DDPM's 1000 steps."""
    level_mean: Annotated[float, Between(-20, 20)] = -1.2
    """log-normal: the mean of the logarithm of the noise, in deviations of the data."""
    level_std: Annotated[float, Between(0.01, 20)] = 1.4
    """log-normal: its standard deviation."""

    def __post_init__(self) -> None:
        validate(self)
        if self.predicts in ("noise", "score") and self.path in ("cosine", "rectified"):
            raise ValueError(
                f"the {self.path} path ends in noise alone, where {self.predicts} says nothing of the data: predict f, "
                "denoised, velocity or flow"
            )

    def along(self) -> GaussianPath:
        """The path."""
        return PATHS[self.path]()

    def prediction(self, sigma_data: float) -> Prediction:
        """What the network predicts."""
        return preconditioned(sigma_data) if self.predicts == "f" else PREDICTIONS[self.predicts]

    def spread(self) -> NoiseLevels:
        """How training is spread over noise levels."""
        match self.levels:
            case "log-normal":
                return LogNormal(mean=self.level_mean, std=self.level_std)
            case "log-uniform":
                return LogUniform()
            case "uniform":
                return UniformInTime()
            case "steps":
                return Steps()
