"""A network made into a denoiser: by a path, a parametrisation and the scale of the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.laws import Claim, agreement, shape
from lawful.models.generative.noisy_classifier import condition_of
from lawful.objectives.generative import LogNormal, NoiseLevels, denoising_error, stratified
from lawful.objectives.over_data import Reduce
from lawful.solvers.diffusion import (
    DENOISED,
    Denoiser,
    GaussianPath,
    Prediction,
    convert,
    edm,
    input_scale,
    preconditioned,
)
from lawful.solvers.diffusion.gaussian_path import beside

EVERY_LEVEL = LogNormal(mean=-0.5)
"""EDM's noise levels, for data of a standard deviation of 1."""


class DenoisingNetwork(nn.Module):
    r"""Makes a network that sees and predicts numbers of the size of 1 into a denoiser.

    $$D(x, t) = a(t) \, x + b(t) \, F\bigl(c_\text{in}(t) \, x, \; \tfrac14 \log \rho(t)\bigr)$$

    The network computes in its own precision; the weighted skip is added in that of $x$.

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        network: $F$, from examples, noise levels (`condition_of`) and labels.
        path: The path from data to noise.
        predicts: From the standard deviation of the data, the buffer `sigma_data`, to what the network predicts.

    Examples:
        >>> from lawful.models.generative.networks import TimeMLP, TimeMLPConfig
        >>> core = DenoisingNetwork(TimeMLP(TimeMLPConfig(shape=(2,), width=8)), path=edm())
        >>> core.denoiser()(torch.ones(1, 2), torch.tensor(1.0))
        tensor([[0.5000, 0.5000]], grad_fn=<AddBackward0>)
    """

    sigma_data: Tensor

    def __init__(
        self, network: nn.Module, *, path: GaussianPath, predicts: Callable[[float], Prediction] = preconditioned
    ) -> None:
        super().__init__()
        self.network, self.path, self.predicts = network, path, predicts
        self.register_buffer("sigma_data", torch.ones(()))

    @property
    def prediction(self) -> Prediction:
        """What the network predicts."""
        return self.predicts(float(self.sigma_data))

    def forward(
        self, x: Float[Tensor, "n *shape"], t: Float[Tensor, "*n"], labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n *shape"]:
        """What the network predicts of noisy data."""
        inward = beside(input_scale(self.path, t, sigma_data=float(self.sigma_data)), x)
        level = condition_of(self.path, t).to(self.sigma_data).expand(len(x))
        return self.network((inward * x).to(self.sigma_data.dtype), level, labels)

    def denoiser(self, labels: Int[Tensor, " n"] | None = None) -> Denoiser:
        """The map from noisy data and times to what they were without noise."""
        given = self.prediction

        def denoise(x: Tensor, t: Tensor) -> Tensor:
            return convert(self(x, t, labels).to(x.dtype), x, t, self.path, given=given, to=DENOISED)

        return denoise

    def error(
        self,
        x: Float[Tensor, "n *shape"],
        labels: Int[Tensor, " n"] | None = None,
        *,
        levels: NoiseLevels = EVERY_LEVEL,
        counted: Prediction | None = None,
        reduce: Reduce = torch.mean,
    ) -> Float[Tensor, "*reduced"]:
        """Draws noise levels and noise, and returns the error of what is predicted."""
        return denoising_error(
            lambda y, t: self(y, t, labels),
            x,
            levels.times(stratified(len(x)), self.path),
            self.path,
            noise=torch.randn_like(x),
            predicts=self.prediction,
            counted=counted,
            reduce=reduce,
        )


class TwoModes(nn.Module):
    """The exact F of two equal Gaussians of deviation 0.6 at 0.8 and -0.8, in each coordinate, on EDM's path."""

    def forward(self, x: Float[Tensor, "n d"], c: Float[Tensor, " n"], labels: None = None) -> Float[Tensor, "n d"]:
        ratio = (4 * c).exp()[:, None]
        length, total = (1 + ratio**2).sqrt(), 0.36 + ratio**2
        y = x * length
        side = 0.8 * torch.tanh(0.8 * y / total)
        denoised = side + 0.36 / total * (y - side)
        return (denoised - y / length**2) * length / ratio


def claims() -> Iterator[Claim]:
    """The laws that denoising networks obey."""
    core = DenoisingNetwork(TwoModes(), path=edm())

    def denoised(x: Tensor) -> Tensor:
        return core.denoiser()(x, torch.tensor(0.7, dtype=torch.float64))

    def by_weights(x: Tensor) -> Tensor:
        """The mean of two posterior means, by their responsibilities."""
        p = torch.softmax(torch.stack([-((x - side) ** 2) / (2 * (0.36 + 0.49)) for side in (-0.8, 0.8)]), 0)
        means = torch.stack([(0.36 * x + 0.49 * side) / (0.36 + 0.49) for side in (-0.8, 0.8)])
        return (p * means).sum(0)

    yield Claim(replace(agreement(other=by_weights), cases=20), denoised, shape("n 2"), name="denoiser")
