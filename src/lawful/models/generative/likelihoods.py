"""Likelihoods: what the output of a decoder says of an example, in the units of the data.

The likelihood of levels: the share of each cell under a mixture of logistics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks import Standardize
from lawful.data.dequantizer import Dequantizer
from lawful.functions.random import normal_noise, uniform_noise
from lawful.laws import Claim, agreement, shape, transformed

LOG_2PI = math.log(2 * math.pi)


@runtime_checkable
class DecoderLikelihood(Protocol):
    r"""Reads the output of a decoder as a distribution $p(x \mid z)$ of examples."""

    outputs: int
    """How many numbers a decoder puts out for an example."""

    def fit(self, x: Float[Tensor, "n *shape"]) -> DecoderLikelihood:
        """Reads the units of the training data."""
        ...

    def inputs(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Returns examples as an encoder sees them."""
        ...

    def log_prob(self, x: Float[Tensor, "n *shape"], y: Float[Tensor, "*m n o"]) -> Float[Tensor, "*m n"]:
        r"""Returns $\log p(x \mid z)$ in nats, summed over entries."""
        ...

    def mean(self, y: Float[Tensor, "n o"]) -> Float[Tensor, "n *shape"]:
        """Returns the mean."""
        ...

    def sample(self, y: Float[Tensor, "n o"], *, seed: int, stream: int, first: int) -> Float[Tensor, "n *shape"]:
        """Draws examples."""
        ...


class GaussianLikelihood(nn.Module):
    r"""Takes each entry as Gaussian around the output of the decoder, with a noise of its own that is learned.

    $$p(x \mid z) = \prod_j \mathcal{N} \bigl(x_j; \; s_j y_j(z) + m_j, \; (s_j \rho_j)^2\bigr)$$

    $m$ and $s$ are mean and deviation of the data, so that the networks see standard units and the density is one in
    the units of the data. $\rho$ is kept above `least`: an entry that never varies would have an infinite density.

    Args:
        shape: The shape of an example.
        least: The least noise, in deviations of the data.

    Examples:
        >>> likelihood = GaussianLikelihood((2,))
        >>> likelihood.log_prob(torch.zeros(1, 2), torch.zeros(1, 2)).exp()
        tensor([0.1592], grad_fn=<ExpBackward0>)
    """

    log_noise: nn.Parameter

    def __init__(self, shape: tuple[int, ...], *, least: float = 1e-3) -> None:
        super().__init__()
        if not 0 < least < 1:
            raise ValueError(f"least is between 0 and 1: got {least}")
        self.shape, self.units, self.least = shape, Standardize(shape), least
        self.outputs = math.prod(shape)
        self.log_noise = nn.Parameter(torch.zeros(shape))

    def fit(self, x: Float[Tensor, "n *shape"]) -> GaussianLikelihood:
        """Reads mean and deviation of the training data; constant entries take the smallest deviation of others."""
        self.units.fit(x)
        never = (x == x[:1]).all(0)
        if bool(never.any()) and not bool(never.all()):
            self.units.std.masked_fill_(never, float(self.units.std[~never].min()))
        return self

    def read(self, y: Float[Tensor, "*m o"]) -> tuple[Tensor, Tensor]:
        """Returns the mean and the deviation of each entry, in the units of the data."""
        noise = self.log_noise.exp().clamp_min(self.least)
        return self.units.inverse(y.unflatten(-1, self.shape)), self.units.std * noise

    def inputs(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Standardises."""
        return self.units(x)

    def log_prob(self, x: Float[Tensor, "n *shape"], y: Float[Tensor, "*m n o"]) -> Float[Tensor, "*m n"]:
        r"""Returns $\log p(x \mid z)$."""
        mean, std = self.read(y)
        off, axes = (x - mean) / std, [*range(-len(self.shape), 0)]
        return -(off.square().sum(axes) / 2 + std.log().sum(axes) + math.prod(self.shape) * LOG_2PI / 2)

    def mean(self, y: Float[Tensor, "n o"]) -> Float[Tensor, "n *shape"]:
        """Returns the mean of each entry."""
        return self.read(y)[0]

    def sample(self, y: Float[Tensor, "n o"], *, seed: int, stream: int, first: int) -> Float[Tensor, "n *shape"]:
        """Adds noise to the mean."""
        mean, std = self.read(y)
        noise = normal_noise(len(y), *self.shape, seed=seed, stream=stream, first=first, dtype=y.dtype, device=y.device)
        return mean + std * noise


class HeteroscedasticGaussianLikelihood(GaussianLikelihood):
    r"""Takes each entry as Gaussian with a noise that the decoder says too, so that it depends on the code.

    $$p(x \mid z) = \prod_j \mathcal{N} \bigl(x_j; \; s_j y_j(z) + m_j, \; s_j^2 \rho_j(z)^2\bigr), \qquad
    \rho = \text{least} + \log(1 + e^{r(z)} (e - 1)), \quad (y, r) = \text{output}$$

    It suits data whose noise is bounded from below, such as levels that are spread over cells: blank pixels are sure.

    Args:
        shape: The shape of an example.
        least: The least noise, in deviations of the data.

    Examples:
        >>> HeteroscedasticGaussianLikelihood((2,)).outputs
        4
    """

    def __init__(self, shape: tuple[int, ...], *, least: float = 1e-3) -> None:
        super().__init__(shape, least=least)
        del self.log_noise
        self.outputs = 2 * math.prod(shape)

    def read(self, y: Float[Tensor, "*m o"]) -> tuple[Tensor, Tensor]:
        """Returns the mean and the deviation of each entry, in the units of the data."""
        mean, noise = (half.unflatten(-1, self.shape) for half in y.chunk(2, -1))
        return self.units.inverse(mean), self.units.std * (self.least + F.softplus(noise + math.log(math.e - 1)))


class BernoulliLikelihood(nn.Module):
    r"""Takes each entry as a coin: above the middle or not, with the output of the decoder as its logit.

    $$b_j = [x_j > \tfrac12 (\text{low} + \text{high})], \qquad
    p(b \mid z) = \prod_j \operatorname{sigmoid}(y_j)^{b_j} \operatorname{sigmoid}(-y_j)^{1 - b_j}$$

    It is the probability of bits: of values between, only the side counts, and values beyond the ends are refused.

    Args:
        shape: The shape of an example.
        low: What a 0 is in the data.
        high: What a 1 is.

    Examples:
        >>> BernoulliLikelihood((2,), high=16.0).log_prob(torch.tensor([[3.0, 16.0]]), torch.zeros(1, 2)).exp()
        tensor([0.2500])
    """

    def __init__(self, shape: tuple[int, ...], *, low: float = 0.0, high: float = 1.0) -> None:
        super().__init__()
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"low is below high, both finite: got {low} and {high}")
        self.shape, self.low, self.high, self.outputs = shape, low, high, math.prod(shape)

    def fit(self, x: Float[Tensor, "n *shape"]) -> BernoulliLikelihood:
        """Looks whether the data lie between the ends."""
        self.inputs(x)
        return self

    def inputs(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Returns the bits."""
        low, high = (float(end) for end in x.aminmax()) if x.numel() else (self.low, self.high)
        if not self.low <= low <= high <= self.high:
            span = f"{low:g} to {high:g}"
            raise ValueError(f"values from {self.low:g} to {self.high:g} were wanted, for bits: got {span}")
        return (x > (self.low + self.high) / 2).to(x.dtype)

    def log_prob(self, x: Float[Tensor, "n *shape"], y: Float[Tensor, "*m n o"]) -> Float[Tensor, "*m n"]:
        r"""Returns $\log p(b \mid z)$."""
        return -F.softplus(torch.where(self.inputs(x).flatten(1) > 0, -y, y)).sum(-1)

    def mean(self, y: Float[Tensor, "n o"]) -> Float[Tensor, "n *shape"]:
        """Returns the probabilities of a 1, between the two values."""
        return self.low + (self.high - self.low) * y.sigmoid().unflatten(-1, self.shape)

    def sample(self, y: Float[Tensor, "n o"], *, seed: int, stream: int, first: int) -> Float[Tensor, "n *shape"]:
        """Draws bits."""
        u = uniform_noise(*y.shape, seed=seed, stream=stream, first=first, dtype=y.dtype, device=y.device)
        bits = (u < y.sigmoid()).to(y.dtype).unflatten(-1, self.shape)
        return self.low + (self.high - self.low) * bits


def _likelihoods_claims() -> Iterator[Claim]:
    """The laws that likelihoods obey."""
    data = torch.tensor([[0.0, 1.0, 5.0], [2.0, 7.0, 5.0]])
    gaussian, varying = (kind((3,)).fit(data) for kind in (GaussianLikelihood, HeteroscedasticGaussianLikelihood))
    near = (transformed(torch.tanh, "n 3"), transformed(torch.tanh, "2 n 3"))

    def units(x: Tensor) -> tuple[Tensor, Tensor]:
        """Deviations and means of the data, the constant feature with the least of the deviations."""
        return x.new_tensor([1.0, 3.0, 1.0]), x.new_tensor([1.0, 4.0, 5.0])

    def by_torch(x: Tensor, y: Tensor) -> Tensor:
        s, m = units(x)
        noise = s * gaussian.log_noise.exp().clamp_min(1e-3)
        return torch.distributions.Normal(y * s + m, noise).log_prob(x).sum(-1)

    def density(x: Tensor, y: Tensor) -> Tensor:
        return gaussian.to(x).log_prob(x, y)

    def sure(x: Tensor, y: Tensor) -> Tensor:
        s, m = units(x)
        noise = 1e-3 + (1 + y[..., 3:].exp() * (math.e - 1)).log()
        return torch.distributions.Normal(y[..., :3] * s + m, s * noise).log_prob(x).sum(-1)

    def varied(x: Tensor, y: Tensor) -> Tensor:
        return varying.to(x).log_prob(x, y)

    yield Claim(agreement(other=by_torch), density, near, name="GaussianLikelihood")
    both = (near[0], transformed(torch.tanh, "2 n 6"))
    yield Claim(agreement(other=sure), varied, both, name="VaryingGaussianLikelihood")
    bits = BernoulliLikelihood((3,), low=-1.0, high=3.0)

    def coins(x: Tensor, y: Tensor) -> Tensor:
        p = y.sigmoid()
        return torch.where(x > 1, p.log(), (1 - p).log()).sum(-1)

    wide = transformed(lambda x: 1 + 2 * x.tanh(), "n 3")
    yield Claim(agreement(other=coins), bits.log_prob, (wide, near[1]), name="BernoulliLikelihood")
    logistic = agreement(other=lambda y: 4 / (1 + (-y).exp()) - 1)
    yield Claim(logistic, bits.mean, shape("n 3"), name="BernoulliLikelihood.mean")


class DiscretizedLogisticLikelihood(nn.Module):
    r"""Takes each entry as one of several levels, with what a mixture of logistics gives to its cell.

    $$P(k \mid z) = \sum_m \pi_m \Bigl[\sigma \Bigl(\frac{t_k + h - \mu_m}{s_m}\Bigr) -
    \sigma \Bigl(\frac{t_k - h - \mu_m}{s_m}\Bigr)\Bigr], \qquad p(x \mid z) = \prod_j \frac{P(k_j \mid z)}{w}$$

    The levels $t_k$ go from -1 to 1 and are $2h$ apart; the outermost cells reach to infinity, so that blank and full
    pixels can be sure. The density is constant on each cell of width $w$, in the units of the data: a `Dequantizer`
    turns it into the bits of the levels themselves, with no gap. The logarithm of a difference of sigmoids is
    $\log \sigma(a) + \log \sigma(-b) + \log(1 - e^{b - a})$: no digits are lost far from a middle.

    Reference:
        Salimans, Karpathy, Chen and Kingma, *PixelCNN++*, 2017.

    Args:
        shape: The shape of an example.
        levels: The levels of the data.
        components: How many logistics are mixed.

    Examples:
        >>> likelihood = DiscretizedLogisticLikelihood((2,), Dequantizer(levels=17))
        >>> likelihood.outputs, likelihood.log_prob(torch.zeros(1, 2), torch.zeros(1, 18)).shape
        (18, torch.Size([1]))
    """

    middles: Tensor

    def __init__(self, shape: tuple[int, ...], levels: Dequantizer, *, components: int = 3) -> None:
        super().__init__()
        if components < 1:
            raise ValueError(f"at least 1 component was wanted: got {components}")
        self.shape, self.levels, self.components = shape, levels, components
        self.outputs = 3 * components * math.prod(shape)
        middles = torch.linspace(-1, 1, components + 2)[1:-1]
        self.register_buffer("middles", middles.reshape(-1, *[1] * len(shape)), persistent=False)

    @property
    def reach(self) -> float:
        """$h$, half of what two levels are apart."""
        return 1 / (self.levels.levels - 1)

    def fit(self, x: Float[Tensor, "n *shape"]) -> DiscretizedLogisticLikelihood:
        """Looks whether the data lie in cells."""
        self.inputs(x)
        return self

    def inputs(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Returns the levels, from -1 to 1: where in their cells values are makes no difference."""
        low, high = self.levels.support
        least, most = (float(end) for end in x.aminmax()) if x.numel() else (low, high)
        slack = 1e-3 * self.levels.width
        if not low - slack <= least <= most <= high + slack:
            raise ValueError(f"values from {low:g} to {high:g} were wanted, for levels: got {least:g} to {most:g}")
        place = ((x - self.levels.low) / self.levels.width).round().clamp(0, self.levels.levels - 1)
        return 2 * self.reach * place - 1

    def read(self, y: Float[Tensor, "*m o"]) -> tuple[Tensor, Tensor, Tensor]:
        r"""Returns $\log \pi$, $\mu$ and $\log s$, each of the components before the shape; none is far below $h$."""
        weights, means, scales = y.unflatten(-1, (3, self.components, *self.shape)).unbind(-len(self.shape) - 2)
        axis = -len(self.shape) - 1
        return weights.log_softmax(axis), means + self.middles, (scales - 1).clamp(math.log(self.reach) - 3, 7)

    def log_prob(self, x: Float[Tensor, "n *shape"], y: Float[Tensor, "*m n o"]) -> Float[Tensor, "*m n"]:
        r"""Returns $\log p(x \mid z)$."""
        d = len(self.shape)
        weights, means, scales = self.read(y)
        t, inverse = self.inputs(x).unsqueeze(-d - 1), (-scales).exp()
        lowest, highest = t < self.reach - 1, t > 1 - self.reach
        logs = torch.where(highest, 0.0, F.logsigmoid((t + self.reach - means) * inverse))
        logs = logs + torch.where(lowest, 0.0, F.logsigmoid((means + self.reach - t) * inverse))
        inside = (-torch.expm1(-2 * self.reach * inverse)).log()
        logs = weights + logs + torch.where(lowest | highest, 0.0, inside)
        each = logs.logsumexp(-d - 1).sum([*range(-d, 0)])
        return each - math.prod(self.shape) * math.log(self.levels.width)

    def mean(self, y: Float[Tensor, "n o"]) -> Float[Tensor, "n *shape"]:
        r"""Returns the mean of the logistics, cut off at the ends: that of the levels to within half a step.

        $$-1 + \sum_m \pi_m s_m \Bigl[\log(1 + e^{(\mu_m + 1) / s_m}) - \log(1 + e^{(\mu_m - 1) / s_m})\Bigr]$$
        """
        weights, means, scales = self.read(y)
        above, below = (F.softplus((means + end) * (-scales).exp()) for end in (1, -1))
        t = (weights.exp() * scales.exp() * (above - below)).sum(1) - 1
        return self.levels.low + (t + 1) / 2 * (self.levels.high - self.levels.low)

    def sample(self, y: Float[Tensor, "n o"], *, seed: int, stream: int, first: int) -> Float[Tensor, "n *shape"]:
        """Draws levels, and a place in the cell of each."""
        weights, means, scales = self.read(y)
        u = uniform_noise(len(y), 3, *self.shape, seed=seed, stream=stream, first=first, dtype=y.dtype, device=y.device)
        which = (u[:, :1] > weights.exp().cumsum(1)[:, :-1]).sum(1, keepdim=True)
        mean, scale = (z.gather(1, which).squeeze(1) for z in (means, scales.exp()))
        t = mean + scale * u[:, 1].logit()
        place = ((t + 1) / (2 * self.reach)).round().clamp(0, self.levels.levels - 1)
        return self.levels.low + self.levels.width * (place + u[:, 2] - 0.5)


def _level_likelihood_claims() -> Iterator[Claim]:
    """The laws that the likelihood of levels obeys."""
    levels = Dequantizer(levels=4, low=2.0, high=5.0)
    model = DiscretizedLogisticLikelihood((2,), levels, components=2)
    outputs = transformed(lambda y: y.tanh() / 2, "n 12")

    def inner(y: Tensor) -> Tensor:
        return model.to(y).log_prob(y.new_tensor([[3.0, 5.0]]).expand(len(y), 2), y)

    def written_out(y: Tensor) -> Tensor:
        weights, means, scales = y.unflatten(-1, (3, 2, 2)).unbind(1)
        means, scales = means + y.new_tensor([[-1 / 3], [1 / 3]]), (scales - 1).exp()
        upper, lower = (((y.new_tensor(t) - means) / scales).sigmoid() for t in ([0.0, 9e9], [-2 / 3, 2 / 3]))
        return (weights.softmax(1) * (upper - lower)).sum(1).log().sum(1)

    yield Claim(replace(agreement(other=written_out), cases=20), inner, outputs, name="LevelLikelihood.log_prob")

    def moved(y: Tensor) -> Tensor:
        return model.to(y).log_prob(y.new_tensor([[3.4, 4.6]]).expand(len(y), 2), y)

    yield Claim(replace(agreement(other=inner), cases=10), moved, outputs, name="LevelLikelihood, constant on cells")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _likelihoods_claims()
    yield from _level_likelihood_claims()
