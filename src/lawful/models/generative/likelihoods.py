"""Likelihoods: what the output of a decoder says of an example, in the units of the data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks import Standardize
from lawful.functions.noise import normal_noise, uniform_noise
from lawful.laws import Claim, agreement, made, shape

LOG_2PI = math.log(2 * math.pi)


@runtime_checkable
class Likelihood(Protocol):
    r"""Reads the output of a decoder, one number for each entry of an example, as a distribution $p(x \mid z)$."""

    def fit(self, x: Float[Tensor, "n *shape"]) -> Likelihood:
        """Reads the units of the training data."""
        ...

    def inputs(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Returns examples as an encoder sees them."""
        ...

    def log_prob(self, x: Float[Tensor, "n *shape"], y: Float[Tensor, "*m n *shape"]) -> Float[Tensor, "*m n"]:
        r"""Returns $\log p(x \mid z)$ in nats, summed over entries."""
        ...

    def mean(self, y: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Returns the mean."""
        ...

    def sample(self, y: Float[Tensor, "n *shape"], *, seed: int, stream: int, first: int) -> Float[Tensor, "n *shape"]:
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

    def __init__(self, shape: tuple[int, ...], *, least: float = 1e-3) -> None:
        super().__init__()
        if not 0 < least < 1:
            raise ValueError(f"least is between 0 and 1: got {least}")
        self.shape, self.units, self.least = shape, Standardize(shape), least
        self.log_noise = nn.Parameter(torch.zeros(shape))

    def fit(self, x: Float[Tensor, "n *shape"]) -> GaussianLikelihood:
        """Reads mean and deviation of the training data; constant entries take the smallest deviation of others."""
        self.units.fit(x)
        never = (x == x[:1]).all(0)
        if bool(never.any()) and not bool(never.all()):
            self.units.std.masked_fill_(never, float(self.units.std[~never].min()))
        return self

    @property
    def std(self) -> Float[Tensor, "*shape"]:
        r"""The deviation of each entry, $s_j \rho_j$."""
        return self.units.std * self.log_noise.exp().clamp_min(self.least)

    def inputs(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Standardises."""
        return self.units(x)

    def log_prob(self, x: Float[Tensor, "n *shape"], y: Float[Tensor, "*m n *shape"]) -> Float[Tensor, "*m n"]:
        r"""Returns $\log p(x \mid z)$."""
        std, axes = self.std, [*range(-len(self.shape), 0)]
        off = (x - self.units.inverse(y)) / std
        return -(off.square().sum(axes) / 2 + std.log().sum() + std.numel() * LOG_2PI / 2)

    def mean(self, y: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Returns the output in the units of the data."""
        return self.units.inverse(y)

    def sample(self, y: Float[Tensor, "n *shape"], *, seed: int, stream: int, first: int) -> Float[Tensor, "n *shape"]:
        """Adds noise to the mean."""
        noise = normal_noise(len(y), *self.shape, seed=seed, stream=stream, first=first, dtype=y.dtype, device=y.device)
        return self.mean(y) + self.std * noise


class BernoulliLikelihood(nn.Module):
    r"""Takes each entry as a coin: above the middle or not, with the output of the decoder as its logit.

    $$b_j = [x_j > \tfrac12 (\text{low} + \text{high})], \qquad
    p(b \mid z) = \prod_j \operatorname{sigmoid}(y_j)^{b_j} \operatorname{sigmoid}(-y_j)^{1 - b_j}$$

    It is the probability of bits: of values between, only the side counts, and values beyond the ends are refused.

    Args:
        low: What a 0 is in the data.
        high: What a 1 is.

    Examples:
        >>> BernoulliLikelihood(high=16.0).log_prob(torch.tensor([[3.0, 16.0]]), torch.zeros(1, 2)).exp()
        tensor([0.2500])
    """

    def __init__(self, *, low: float = 0.0, high: float = 1.0) -> None:
        super().__init__()
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"low is below high, both finite: got {low} and {high}")
        self.low, self.high = low, high

    def fit(self, x: Float[Tensor, "n *shape"]) -> BernoulliLikelihood:
        """Looks whether the data lie between the ends."""
        self.inputs(x)
        return self

    def inputs(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Returns the bits."""
        if x.numel() and not self.low <= float(x.min()) <= float(x.max()) <= self.high:
            span = f"{float(x.min()):g} to {float(x.max()):g}"
            raise ValueError(f"values from {self.low:g} to {self.high:g} were wanted, for bits: got {span}")
        return (x > (self.low + self.high) / 2).to(x.dtype)

    def log_prob(self, x: Float[Tensor, "n *shape"], y: Float[Tensor, "*m n *shape"]) -> Float[Tensor, "*m n"]:
        r"""Returns $\log p(b \mid z)$."""
        axes = [*range(1 - x.dim(), 0)]
        return -F.softplus(torch.where(self.inputs(x) > 0, -y, y)).sum(axes)

    def mean(self, y: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Returns the probabilities of a 1, between the two values."""
        return self.low + (self.high - self.low) * y.sigmoid()

    def sample(self, y: Float[Tensor, "n *shape"], *, seed: int, stream: int, first: int) -> Float[Tensor, "n *shape"]:
        """Draws bits."""
        u = uniform_noise(len(y), *y.shape[1:], seed=seed, stream=stream, first=first, dtype=y.dtype, device=y.device)
        return self.low + (self.high - self.low) * (u < y.sigmoid()).to(y.dtype)


def claims() -> Iterator[Claim]:
    """The laws that likelihoods obey."""
    gaussian = GaussianLikelihood((3,))
    gaussian.fit(torch.tensor([[0.0, 1.0, 5.0], [2.0, 7.0, 5.0]]))
    gaussian.log_noise.data = torch.tensor([0.3, -0.2, 0.1])
    near = (made(torch.tanh, "n 3"), made(torch.tanh, "2 n 3"))

    def by_torch(x: Tensor, y: Tensor) -> Tensor:
        s, m = x.new_tensor([1.0, 3.0, 1.0]), x.new_tensor([1.0, 4.0, 5.0])
        noise = s * x.new_tensor([0.3, -0.2, 0.1]).exp()
        return torch.distributions.Normal(y * s + m, noise).log_prob(x).sum(-1)

    def density(x: Tensor, y: Tensor) -> Tensor:
        return gaussian.to(x).log_prob(x, y)

    yield Claim(agreement(other=by_torch), density, near, name="GaussianLikelihood")
    bits = BernoulliLikelihood(low=-1.0, high=3.0)

    def coins(x: Tensor, y: Tensor) -> Tensor:
        p = y.sigmoid()
        return torch.where(x > 1, p.log(), (1 - p).log()).sum(-1)

    wide = made(lambda x: 1 + 2 * x.tanh(), "n 3")
    yield Claim(agreement(other=coins), bits.log_prob, (wide, near[1]), name="BernoulliLikelihood")

    def means(y: Tensor) -> Tensor:
        return bits.mean(y)

    logistic = agreement(other=lambda y: 4 / (1 + (-y).exp()) - 1)
    yield Claim(logistic, means, shape("n 3"), name="BernoulliLikelihood.mean")
