"""Decoder likelihoods p(x | z): Gaussian, Bernoulli and discretized logistic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks import Standardize
from lawful.data.dequantizer import Dequantizer
from lawful.functions._validation import unless_traced
from lawful.functions.random import normal_noise, uniform_noise
from lawful.laws import Claim, batch_independence, transformed

_LOG_2PI = math.log(2 * math.pi)


@unless_traced
def _check_range(x: Tensor, support: tuple[float, float], slack: float = 0.0) -> None:
    """Raises if values are outside of the support."""
    low, high = (float(end) for end in x.aminmax()) if x.numel() else support
    if not support[0] - slack <= low <= high <= support[1] + slack:
        raise ValueError(f"expected values from {support[0]:g} to {support[1]:g}, got {low:g} to {high:g}")


@runtime_checkable
class DecoderLikelihood(Protocol):
    r"""Distribution $p(x \mid z)$ of examples, parameterized by the output of a decoder."""

    num_params: int
    """Size of the decoder's output."""

    def fit_normalizer(self, x: Float[Tensor, "n *shape"]) -> DecoderLikelihood:
        """Fits the normalizer, or checks the range of the data."""
        ...

    def normalize(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Returns the encoder's inputs."""
        ...

    def log_prob(self, x: Float[Tensor, "n *shape"], params: Float[Tensor, "*m n p"]) -> Float[Tensor, "*m n"]:
        r"""Returns $\log p(x \mid z)$ of each example, in nats."""
        ...

    def mean(self, params: Float[Tensor, "n p"]) -> Float[Tensor, "n *shape"]:
        """Returns the mean, in the units of the data."""
        ...

    def sample(self, params: Float[Tensor, "n p"], *, seed: int, stream: int, first: int) -> Float[Tensor, "n *shape"]:
        """Draws examples, in the units of the data."""
        ...


class GaussianLikelihood(nn.Module):
    r"""Gaussian likelihood with a learned noise of each entry.

    $$p(x \mid z) = \prod_j \mathcal{N} \bigl(x_j; \; s_j y_j(z) + m_j, \; (s_j \rho_j)^2\bigr)$$

    $m$ and $s$ are the mean and standard deviation of the data (`normalizer`): the networks see normalized data, and
    the density is in the units of the data. $\rho$ is at least `min_std`, since a constant entry would have an
    infinite density.

    Args:
        shape: Shape of an example.
        min_std: Minimum noise, in standard deviations of the data.

    Examples:
        >>> likelihood = GaussianLikelihood((2,))
        >>> likelihood.log_prob(torch.zeros(1, 2), torch.zeros(1, 2)).exp()
        tensor([0.1592], grad_fn=<ExpBackward0>)
    """

    log_noise: nn.Parameter

    def __init__(self, shape: tuple[int, ...], *, min_std: float = 1e-3) -> None:
        super().__init__()
        if not 0 < min_std < 1:
            raise ValueError(f"expected 0 < min_std < 1, got {min_std}")
        self.shape, self.normalizer, self.min_std = shape, Standardize(shape), min_std
        self.num_params = math.prod(shape)
        self.log_noise = nn.Parameter(torch.zeros(shape))

    def fit_normalizer(self, x: Float[Tensor, "n *shape"]) -> GaussianLikelihood:
        """Fits the mean and standard deviation; constant entries get the smallest standard deviation of the others."""
        self.normalizer.fit(x)
        constant = (x == x[:1]).all(0)
        if bool(constant.any()) and not bool(constant.all()):
            self.normalizer.std.masked_fill_(constant, float(self.normalizer.std[~constant].min()))
        return self

    def mean_and_std(self, params: Float[Tensor, "*m p"]) -> tuple[Tensor, Tensor]:
        """Returns the mean and standard deviation of each entry, in the units of the data."""
        noise = self.log_noise.exp().clamp_min(self.min_std)
        return self.normalizer.inverse(params.unflatten(-1, self.shape)), self.normalizer.std * noise

    def normalize(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Returns normalized examples."""
        return self.normalizer(x)

    def log_prob(self, x: Float[Tensor, "n *shape"], params: Float[Tensor, "*m n p"]) -> Float[Tensor, "*m n"]:
        r"""Returns $\log p(x \mid z)$."""
        mean, std = self.mean_and_std(params)
        z, axes = (x - mean) / std, [*range(-len(self.shape), 0)]
        return -(z.square().sum(axes) / 2 + std.log().sum(axes) + math.prod(self.shape) * _LOG_2PI / 2)

    def mean(self, params: Float[Tensor, "n p"]) -> Float[Tensor, "n *shape"]:
        """Returns the mean."""
        return self.mean_and_std(params)[0]

    def sample(self, params: Float[Tensor, "n p"], *, seed: int, stream: int, first: int) -> Float[Tensor, "n *shape"]:
        """Adds noise to the mean."""
        mean, std = self.mean_and_std(params)
        noise = normal_noise(
            len(params), *self.shape, seed=seed, stream=stream, first=first, dtype=params.dtype, device=params.device
        )
        return mean + std * noise


class HeteroscedasticGaussianLikelihood(GaussianLikelihood):
    r"""Gaussian likelihood whose noise is an output of the decoder.

    $$p(x \mid z) = \prod_j \mathcal{N} \bigl(x_j; \; s_j y_j(z) + m_j, \; s_j^2 \rho_j(z)^2\bigr), \qquad
    \rho = \rho_\text{min} + \log(1 + e^{r(z)} (e - 1)), \quad (y, r) = \text{params}$$

    It suits data with a bounded noise, such as dequantized levels.

    Args:
        shape: Shape of an example.
        min_std: Minimum noise $\rho_\text{min}$, in standard deviations of the data.

    Examples:
        >>> HeteroscedasticGaussianLikelihood((2,)).num_params
        4
    """

    def __init__(self, shape: tuple[int, ...], *, min_std: float = 1e-3) -> None:
        super().__init__(shape, min_std=min_std)
        del self.log_noise
        self.num_params = 2 * math.prod(shape)

    def mean_and_std(self, params: Float[Tensor, "*m p"]) -> tuple[Tensor, Tensor]:
        """Returns the mean and standard deviation of each entry, in the units of the data."""
        mean, noise = (half.unflatten(-1, self.shape) for half in params.chunk(2, -1))
        std = self.min_std + F.softplus(noise + math.log(math.e - 1))
        return self.normalizer.inverse(mean), self.normalizer.std * std


class BernoulliLikelihood(nn.Module):
    r"""Bernoulli likelihood of binarized entries; the decoder's output is the logit.

    $$b_j = [x_j > \tfrac12 (\text{low} + \text{high})], \qquad
    p(b \mid z) = \prod_j \operatorname{sigmoid}(y_j)^{b_j} \operatorname{sigmoid}(-y_j)^{1 - b_j}$$

    Values outside [low, high] raise an error.

    Args:
        shape: Shape of an example.
        low: Value of a 0 in the data.
        high: Value of a 1 in the data.

    Examples:
        >>> BernoulliLikelihood((2,), high=16.0).log_prob(torch.tensor([[3.0, 16.0]]), torch.zeros(1, 2)).exp()
        tensor([0.2500])
    """

    def __init__(self, shape: tuple[int, ...], *, low: float = 0.0, high: float = 1.0) -> None:
        super().__init__()
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"expected finite low < high, got low={low}, high={high}")
        self.shape, self.low, self.high, self.num_params = shape, low, high, math.prod(shape)

    @property
    def support(self) -> tuple[float, float]:
        """Lowest and highest value of the data."""
        return self.low, self.high

    def fit_normalizer(self, x: Float[Tensor, "n *shape"]) -> BernoulliLikelihood:
        """Checks the range of the data."""
        self.normalize(x)
        return self

    def normalize(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Returns the binarized examples."""
        _check_range(x, self.support)
        return (x > (self.low + self.high) / 2).to(x.dtype)

    def log_prob(self, x: Float[Tensor, "n *shape"], params: Float[Tensor, "*m n p"]) -> Float[Tensor, "*m n"]:
        r"""Returns $\log p(b \mid z)$."""
        return -F.softplus(torch.where(self.normalize(x).flatten(1) > 0, -params, params)).sum(-1)

    def mean(self, params: Float[Tensor, "n p"]) -> Float[Tensor, "n *shape"]:
        """Returns the probability of a 1, scaled to [low, high]."""
        return self.low + (self.high - self.low) * params.sigmoid().unflatten(-1, self.shape)

    def sample(self, params: Float[Tensor, "n p"], *, seed: int, stream: int, first: int) -> Float[Tensor, "n *shape"]:
        """Draws binary examples."""
        u = uniform_noise(
            *params.shape, seed=seed, stream=stream, first=first, dtype=params.dtype, device=params.device
        )
        bits = (u < params.sigmoid()).to(params.dtype).unflatten(-1, self.shape)
        return self.low + (self.high - self.low) * bits


class DiscretizedLogisticLikelihood(nn.Module):
    r"""Discretized mixture of logistics over the levels of quantized data.

    $$P(k \mid z) = \sum_m \pi_m \Bigl[\sigma \Bigl(\frac{t_k + h - \mu_m}{s_m}\Bigr) -
    \sigma \Bigl(\frac{t_k - h - \mu_m}{s_m}\Bigr)\Bigr], \qquad p(x \mid z) = \prod_j \frac{P(k_j \mid z)}{w}$$

    The levels $t_k$ range from -1 to 1, $2h$ apart; the outermost cells extend to infinity. The density is constant on
    each cell of width $w$, in the units of the data, so that a `Dequantizer` converts it to the exact bits of the
    levels. The logarithm of a difference of sigmoids is $\log \sigma(a) + \log \sigma(-b) + \log(1 - e^{b - a})$, which
    is accurate far from the means.

    Reference:
        Salimans, Karpathy, Chen and Kingma, *PixelCNN++*, 2017.

    Args:
        shape: Shape of an example.
        dequantizer: Levels of the data.
        num_components: Number of mixture components.

    Examples:
        >>> likelihood = DiscretizedLogisticLikelihood((2,), Dequantizer(levels=17))
        >>> likelihood.num_params, likelihood.log_prob(torch.zeros(1, 2), torch.zeros(1, 18)).shape
        (18, torch.Size([1]))
    """

    initial_means: Tensor

    def __init__(self, shape: tuple[int, ...], dequantizer: Dequantizer, *, num_components: int = 3) -> None:
        super().__init__()
        if num_components < 1:
            raise ValueError(f"expected num_components >= 1, got {num_components}")
        self.shape, self.dequantizer, self.num_components = shape, dequantizer, num_components
        self.num_params = 3 * num_components * math.prod(shape)
        means = torch.linspace(-1, 1, num_components + 2)[1:-1]
        self.register_buffer("initial_means", means.reshape(-1, *[1] * len(shape)), persistent=False)

    @property
    def support(self) -> tuple[float, float]:
        """Lowest and highest value of the data."""
        return self.dequantizer.support

    @property
    def half_step(self) -> float:
        """$h$, half the distance of two levels."""
        return 1 / (self.dequantizer.levels - 1)

    def fit_normalizer(self, x: Float[Tensor, "n *shape"]) -> DiscretizedLogisticLikelihood:
        """Checks the range of the data."""
        self.normalize(x)
        return self

    def normalize(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Returns the nearest levels, scaled to [-1, 1]."""
        cells = self.dequantizer
        _check_range(x, self.support, 1e-3 * cells.width)
        level = ((x - cells.low) / cells.width).round().clamp(0, cells.levels - 1)
        return 2 * self.half_step * level - 1

    def log_prob(self, x: Float[Tensor, "n *shape"], params: Float[Tensor, "*m n p"]) -> Float[Tensor, "*m n"]:
        r"""Returns $\log p(x \mid z)$."""
        d, h = len(self.shape), self.half_step
        log_weights, means, log_scales = self._mixture(params)
        t, inverse = self.normalize(x).unsqueeze(-d - 1), (-log_scales).exp()
        lowest, highest = t < h - 1, t > 1 - h
        logs = torch.where(highest, 0.0, F.logsigmoid((t + h - means) * inverse))
        logs = logs + torch.where(lowest, 0.0, F.logsigmoid((means + h - t) * inverse))
        inside = (-torch.expm1(-2 * h * inverse)).log()
        logs = log_weights + logs + torch.where(lowest | highest, 0.0, inside)
        log_probs = logs.logsumexp(-d - 1).sum([*range(-d, 0)])
        return log_probs - math.prod(self.shape) * math.log(self.dequantizer.width)

    def mean(self, params: Float[Tensor, "n p"]) -> Float[Tensor, "n *shape"]:
        r"""Returns the mean of the logistics censored to [-1, 1], which is within half a step of the levels' mean.

        $$-1 + \sum_m \pi_m s_m \Bigl[\log(1 + e^{(\mu_m + 1) / s_m}) - \log(1 + e^{(\mu_m - 1) / s_m})\Bigr]$$
        """
        log_weights, means, log_scales = self._mixture(params)
        above, below = (F.softplus((means + end) * (-log_scales).exp()) for end in (1, -1))
        t = (log_weights.exp() * log_scales.exp() * (above - below)).sum(1) - 1
        return self.dequantizer.low + (t + 1) / 2 * (self.dequantizer.high - self.dequantizer.low)

    def sample(self, params: Float[Tensor, "n p"], *, seed: int, stream: int, first: int) -> Float[Tensor, "n *shape"]:
        """Draws levels, and a uniform position in the cell of each."""
        log_weights, means, log_scales = self._mixture(params)
        u = uniform_noise(
            len(params), 3, *self.shape, seed=seed, stream=stream, first=first, dtype=params.dtype, device=params.device
        )
        component = (u[:, :1] > log_weights.exp().cumsum(1)[:, :-1]).sum(1, keepdim=True)
        mean, scale = (z.gather(1, component).squeeze(1) for z in (means, log_scales.exp()))
        t = mean + scale * u[:, 1].logit()
        level = ((t + 1) / (2 * self.half_step)).round().clamp(0, self.dequantizer.levels - 1)
        return self.dequantizer.low + self.dequantizer.width * (level + u[:, 2] - 0.5)

    def _mixture(self, params: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        r"""$\log \pi$, $\mu$ and $\log s$, (*m, components, *shape); scales are bounded from below, relative to $h$."""
        axis = -len(self.shape) - 1
        weights, means, scales = params.unflatten(-1, (3, self.num_components, *self.shape)).unbind(axis - 1)
        log_scales = (scales - 1).clamp(math.log(self.half_step) - 3, 7.0)
        return weights.log_softmax(axis), means + self.initial_means, log_scales


def claims() -> Iterator[Claim]:
    """Examples do not mix."""
    inputs = transformed(torch.sigmoid, "n 3")
    for likelihood in (
        GaussianLikelihood((3,)),
        HeteroscedasticGaussianLikelihood((3,)),
        BernoulliLikelihood((3,)),
        DiscretizedLogisticLikelihood((3,), Dequantizer(levels=4)),
    ):
        params = transformed(torch.tanh, f"n {likelihood.num_params}")
        yield Claim(batch_independence(), likelihood.log_prob, (inputs, params), name=type(likelihood).__name__)
