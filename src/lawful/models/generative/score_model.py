"""Score models: a network that denoises, and with it samples, likelihoods and completions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lawful.blocks.modes import in_training
from lawful.blocks.standardize import Standardize
from lawful.functions.estimate import Estimate
from lawful.laws import Claim, agreement, made
from lawful.models.generative.contract import unconditional
from lawful.models.generative.denoising_network import EVERY_LEVEL, DenoisingNetwork, TwoModes
from lawful.models.generative.drawing import USUAL, Drawing
from lawful.objectives.generative import NoiseLevels
from lawful.objectives.over_data import Reduce
from lawful.solvers.diffusion import (
    Denoiser,
    GaussianPath,
    Likelihood,
    Prediction,
    begin,
    completing,
    edm,
    input_scale,
    preconditioned,
    saturated,
)
from lawful.solvers.diffusion.gaussian_path import beside

_ROWS = 512
TRACED = Likelihood(scale=1.0)
FAR = 30.0
"""So many standard deviations from the data, on average over a batch, other units are suspected."""


class ScoreModel(nn.Module):
    r"""Denoises data at every noise level, and so knows their score, their likelihood and new samples.

    $$D(x, t) = a(t) \, x + b(t) \, F\bigl(c_\text{in}(t) \, x, \; \tfrac14 \log \rho(t)\bigr) \approx
    \mathbb{E}[x_0 \mid x_t = x], \qquad
    \nabla \log p_t = \frac{\alpha D - x}{\sigma^2}$$

    Data go in and come out in their own units. Inside they are standardised, and the determinant of that is part of
    their likelihood; what standard deviation remains (`sigma_data`, 1 unless some features never vary) is measured,
    and sets the weighted skip. Of a model with classes, no labels means the unconditional model, which the null label
    stands for.

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022;
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021.

    Args:
        network: $F$, from examples, noise levels (`condition_of`) and labels.
        shape: The shape of an example.
        path: The path from data to noise.
        predicts: From `sigma_data` to what the network predicts: EDM's $F$, or say `lambda _: NOISE`.
        classes: The number of labels that the network knows; 0 for none.
        units: How data are standardised: one mean and deviation for all entries unless given.
        drawing: How samples are drawn; its classifier, if it has one, becomes part of the model.
        likelihood: How likelihoods are found; its scale counts in deviations of the data, and its spread is theirs.

    Examples:
        >>> from lawful.models.generative.networks import TimeMLP, TimeMLPConfig
        >>> model = ScoreModel(TimeMLP(TimeMLPConfig(shape=(2,), width=8)), shape=(2,))
        >>> model = model.fit(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        >>> model.sample(3).shape, model.log_prob(torch.zeros(1, 2)).evaluations
        (torch.Size([3, 2]), 63)
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        shape: tuple[int, ...],
        path: GaussianPath | None = None,
        predicts: Callable[[float], Prediction] = preconditioned,
        classes: int = 0,
        units: Standardize | None = None,
        drawing: Drawing = USUAL,
        likelihood: Likelihood = TRACED,
    ) -> None:
        if not shape or min(shape) < 1 or classes < 0:
            raise ValueError(f"sizes of at least 1 and no fewer than 0 classes were wanted: got {shape} and {classes}")
        super().__init__()
        self.shape, self.classes = tuple(shape), classes
        self.core = DenoisingNetwork(network, path=edm() if path is None else path, predicts=predicts)
        self.units = Standardize((1,) * len(shape)) if units is None else units
        self.drawing, self.likelihood, self.guide = drawing, likelihood, drawing.classifier

    @torch.no_grad()
    def fit(self, x: Float[Tensor, "n *shape"]) -> ScoreModel:
        """Reads the data's moments; it trains nothing."""
        self._check(x)
        if len(x) < 2:
            raise ValueError(f"at least 2 examples were wanted, to learn how they vary: got {len(x)}")
        self.units.fit(x)
        spread = self.units(x).double().square().mean().sqrt()
        if not spread > 0:
            raise ValueError("examples that vary were wanted: all are the same")
        self.core.sigma_data.copy_(spread)
        if self.guide is not None:
            self.guide.sigma_data.copy_(spread)
        return self

    def denoiser(self, labels: Int[Tensor, " n"] | None = None) -> Denoiser:
        """The map from noisy data and times to what they were without noise, in standard units."""
        self._labelled(labels)
        return self.core.denoiser(labels)

    def loss(
        self,
        x: Float[Tensor, "n *shape"],
        labels: Int[Tensor, " n"] | None = None,
        *,
        levels: NoiseLevels = EVERY_LEVEL,
        unlabelled: float = 0.15,
        counted: Prediction | None = None,
        reduce: Reduce = torch.mean,
    ) -> Float[Tensor, "*reduced"]:
        """Draws noise levels and noise, and returns the error of the denoiser: what is trained on.

        Args:
            x: Examples, in their own units.
            labels: Their labels.
            levels: How training is spread over noise levels.
            unlabelled: The share of examples that is shown with the null label.
            counted: How noise levels are weighted: see `denoising_error`.
            reduce: What to make of the losses of the examples.
        """
        self._labelled(labels)
        if labels is not None and unlabelled:
            hidden = torch.rand(labels.shape, device=labels.device) < unlabelled
            labels = labels.masked_fill(hidden, self.classes)
        return self.core.error(self.units(x), labels, levels=levels, counted=counted, reduce=reduce)

    # ------------------------------------------------------------ what it is for, in the data's units

    @torch.inference_mode(mode=False)  # a classifier that guides, and a trace, need gradients
    @torch.no_grad()
    def sample(
        self,
        n: int,
        seed: int = 0,
        *,
        first: int = 0,
        labels: Int[Tensor, " n"] | None = None,
        drawing: Drawing | None = None,
    ) -> Float[Tensor, "n *shape"]:
        """Draws examples; without labels those of the unconditional model."""
        how = self.drawing if drawing is None else drawing
        return self._drawn(n, lambda rows: self._guided(_rows_of(labels, rows), how), how, seed=seed, first=first)

    @torch.inference_mode(mode=False)
    @torch.no_grad()
    def complete(
        self,
        x: Float[Tensor, "n *shape"],
        mask: Bool[Tensor, "..."],
        seed: int = 0,
        *,
        first: int = 0,
        labels: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n *shape"]:
        """Fills examples in where the mask, of one example or of each, is false; where it is true they stay."""
        mask = mask.expand_as(x)
        known = torch.where(mask, x, 0.0)
        self._check(known)
        z = self.units(known).double()

        def denoise(rows: slice) -> Denoiser:
            guided = self._guided(_rows_of(labels, rows), self.drawing)
            return completing(guided, z[rows], mask[rows])

        drawn = self._drawn(len(x), denoise, self.drawing, seed=seed, first=first)
        return torch.where(mask, x, drawn.to(x))

    @torch.inference_mode(mode=False)
    @torch.no_grad()
    def log_prob(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None, seed: int = 0
    ) -> Estimate:
        """Returns the log-density of each example, in nats: by the probability flow."""
        self._check(x)
        z, spread = self.units(x).double(), float(self.core.sigma_data)
        if len(z) and float(z.square().flatten(1).mean(1).sqrt().median()) > FAR:
            warnings.warn(
                f"most examples are more than {FAR:g} deviations away from the training data: are they in the same"
                " units, 0 to 1, say, and not 0 to 255?",
                stacklevel=2,
            )
        found, how = [], replace(self.likelihood, scale=self.likelihood.scale * spread, spread=spread)
        with in_training(self):
            for start in range(0, len(z), _ROWS):
                rows = slice(start, start + _ROWS)
                denoise = self.denoiser(_rows_of(labels, rows))
                found.append(how(denoise, z[rows], self.core.path, seed=seed, first=start))
        if not found:
            return Estimate.exact(z.new_zeros(0), evaluations=0)
        volume = self.units.std.double().expand(self.shape).log().sum()
        value = torch.cat([part.value for part in found]) - volume
        return Estimate(value, torch.cat([part.error for part in found]), found[0].evaluations)

    @torch.no_grad()
    def score(self, x: Float[Tensor, "n *shape"], *, ratio: float = 0.1) -> Float[Tensor, "n *shape"]:
        r"""Returns $\nabla \log p$ of data with noise: of so many of their deviations."""
        self._check(x)
        z, t = self.units(x), self.core.path.time_of(torch.tensor(ratio, dtype=torch.float64))
        alpha = float(self.core.path.alpha(t))
        with in_training(self):
            return alpha * self.core.path.score(alpha * z, self.denoiser()(alpha * z, t), t) / self.units.std

    @torch.no_grad()
    def trajectory(self, n: int, seed: int = 0) -> Float[Tensor, "steps n *shape"]:
        """Returns where samples are at each step, shrunk to the length that data have; the last are the samples."""
        ways: list[Tensor] = []
        denoise, spread = self.denoiser(), float(self.core.sigma_data)

        def seen(x: Tensor, t: Tensor) -> Tensor:
            inward = beside(input_scale(self.core.path, t, sigma_data=spread), x)
            ways.append(self.units.inverse((spread * inward * x).to(self.units.mean)))
            return denoise(x, t)

        last = self._drawn(n, lambda rows: seen, self.drawing, seed=seed, first=0)
        return torch.stack([*ways, last])

    # ------------------------------------------------------------ how

    def _guided(self, labels: Tensor | None, how: Drawing) -> Denoiser:
        return self.denoiser() if labels is None else how.towards(labels, self.denoiser, self.core.path)

    def _drawn(self, n: int, denoise: Callable[[slice], Denoiser], how: Drawing, *, seed: int, first: int) -> Tensor:
        """Goes from noise to data, some examples at a time."""
        like, parts = self.units.mean, []
        grid, spread = saturated(self.core.path, how.steps), float(self.core.sigma_data)
        with in_training(self):
            for start in range(0, n, _ROWS):
                rows, at = slice(start, min(n, start + _ROWS)), first + start
                x = begin(self.core.path, grid, rows.stop - start, *self.shape, seed=seed, first=at, spread=spread)
                parts.append(how.sampler(denoise(rows), x.to(like.device), self.core.path, grid, seed=seed, first=at))
        if n < 0:
            raise ValueError(f"n is at least 0: got {n}")
        drawn = torch.cat(parts) if parts else like.new_zeros(0, *self.shape)
        return self.units.inverse(drawn.to(like))

    def _labelled(self, labels: Tensor | None) -> None:
        if not self.classes:
            unconditional(labels)
        elif labels is not None and labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < self.classes:
            raise ValueError(f"labels are from 0 to {self.classes - 1}: got {int(labels.min())} to {int(labels.max())}")

    def _check(self, x: Tensor) -> None:
        if tuple(x.shape[1:]) != self.shape:
            raise ValueError(f"examples of shape {self.shape} were wanted: got shape {tuple(x.shape)}")
        if not bool(x.isfinite().all()):
            raise ValueError("finite examples were wanted: got NaN or infinite ones")


def _rows_of(labels: Tensor | None, rows: slice) -> Tensor | None:
    return None if labels is None else labels[rows].clone()


def claims() -> Iterator[Claim]:
    """The laws that score models obey."""
    model = ScoreModel(TwoModes(), shape=(2,), units=Standardize(2), likelihood=Likelihood(steps=4))
    with torch.no_grad():
        model.units.mean.copy_(torch.tensor([3.0, -1.0]))
        model.units.std.copy_(torch.tensor([2.0, 0.5]))

    def log_density(x: Tensor) -> Tensor:
        """By the change of variables."""
        z = (x - torch.tensor([3.0, -1.0]).to(x)) / torch.tensor([2.0, 0.5]).to(x)
        sides = [torch.distributions.Normal(side, 0.6).log_prob(z) - math.log(2) for side in (-0.8, 0.8)]
        return torch.logaddexp(*sides).sum(-1)  # log 2 + log 0.5 = 0

    def found(x: Tensor) -> Tensor:
        return model.log_prob(x).value.to(x)

    near = made(lambda x: torch.tensor([3.0, -1.0]).to(x) + torch.tensor([2.0, 0.5]).to(x) * x.tanh(), "n:1..2 2")
    yield Claim(replace(agreement(other=log_density, within=3e-2), cases=2), found, near, name="log_prob")
