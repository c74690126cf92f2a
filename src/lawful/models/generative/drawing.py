"""How a score model draws samples, and guides them towards labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from lawful.models.generative.noisy_classifier import NoisyClassifier
from lawful.solvers.diffusion import (
    Denoiser,
    Exponential,
    GaussianPath,
    Sampler,
    by_classifier,
    classifier_free,
)

EXPONENTIAL = Exponential()


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """How samples are drawn."""

    sampler: Sampler = EXPONENTIAL
    """The way from noise to data."""
    steps: int = 32
    """Its number of steps."""
    guidance: float = 1.0
    """The scale of guidance: 1 is the plain conditional model, more exaggerates the label."""
    classifier: NoisyClassifier | None = None
    """What guides towards labels; the null label, without a classifier."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps are at least 1: got {self.steps}")

    def towards(self, labels: Tensor, denoiser: Callable[..., Denoiser], path: GaussianPath) -> Denoiser:
        """Guides a denoiser, made with labels or without, towards labels."""
        if self.classifier is not None:
            return by_classifier(denoiser(), self.classifier.towards(labels), path, scale=self.guidance)
        return classifier_free(denoiser(labels), denoiser(), scale=self.guidance)


USUAL = Drawing()
