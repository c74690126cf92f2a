"""Monte Carlo dropout: a network with dropout as a sampler of its own uncertainty."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.dropout import _DropoutNd

from lawful.blocks.dense import Dense
from lawful.blocks.dropout.drop_connect import DropConnect, Moments
from lawful.blocks.dropout.dropout import Dropout, WeightScalingDropout
from lawful.blocks.dropout.expectation import unbiased
from lawful.blocks.dropout.stochastic_depth import StochasticDepth
from lawful.blocks.modes import in_training
from lawful.laws import Claim, agreement, shape

RANDOM: tuple[type[nn.Module], ...] = (
    *(_DropoutNd, nn.RNNBase, nn.MultiheadAttention, nn.TransformerEncoderLayer),
    *(WeightScalingDropout, DropConnect, StochasticDepth),
)
"""The modules that are random in training: PyTorch's, of which `Dropout` is one, and lawful's."""


def monte_carlo(
    model: nn.Module, x: Float[Tensor, "*shape"], *, samples: int = 32, random: tuple[type[nn.Module], ...] = RANDOM
) -> Moments:
    r"""Predicts with dropout on, many times, and returns the mean and the variance of the predictions.

    $$\bar y = \frac{1}{S} \sum_s f(x; m_s), \qquad v = \frac{1}{S - 1} \sum_s (f(x; m_s) - \bar y)^2$$

    The modules that are random are in training mode while it runs, all others in evaluation mode, so that a batch
    norm uses its running statistics. Afterwards each is in the mode that it was in. A module that calls
    `F.dropout(..., self.training)` itself is random only if its class is among `random`.

    Reference:
        Gal and Ghahramani, *Dropout as a Bayesian Approximation: Representing Model Uncertainty in Deep
        Learning*, 2016.

    Args:
        model: The network $f$.
        x: The input.
        samples: $S$, at least 2.
        random: The classes of the modules whose randomness stays on.

    Examples:
        >>> model = nn.Sequential(Dense(3, 8), Dropout(0.5), Dense(8, 2))
        >>> mean, variance = monte_carlo(model, torch.ones(5, 3), samples=10)
        >>> mean.shape, bool((variance >= 0).all())
        (torch.Size([5, 2]), True)
    """
    if samples < 2:
        raise ValueError(f"a variance takes at least 2 samples: got samples={samples}")
    with in_training(model, random):
        variance, mean = torch.var_mean(torch.stack([model(x) for _ in range(samples)]), dim=0)
    return Moments(mean, variance)


def claims() -> Iterator[Claim]:
    """The laws that Monte Carlo dropout obeys."""
    layer, norm = Dense(4, 2), nn.BatchNorm1d(2, affine=False)
    model, plain = nn.Sequential(Dropout(0.3), layer), nn.Sequential(layer, norm)

    def mean(x: Tensor) -> Tensor:
        return monte_carlo(model, x, samples=2).mean

    def variance(x: Tensor) -> Tensor:
        return monte_carlo(model, x, samples=2).variance

    def exact_mean(x: Tensor) -> Tensor:
        return x @ layer.weight.T + layer.bias

    def exact_variance(x: Tensor) -> Tensor:
        return 0.3 / 0.7 * x.square() @ layer.weight.T.square()

    def certain(x: Tensor) -> Tensor:
        return torch.stack(monte_carlo(plain, x, samples=2))

    def evaluated(x: Tensor) -> Tensor:
        y = F.batch_norm(layer(x), norm.running_mean, norm.running_var)
        return torch.stack([y, torch.zeros_like(y)])

    yield Claim(unbiased(expected=exact_mean), mean, shape("b 4"), name="monte_carlo, mean")
    yield Claim(unbiased(expected=exact_variance), variance, shape("b 4"), name="monte_carlo, variance")
    yield Claim(agreement(other=evaluated), certain, shape("b 4"), name="monte_carlo without dropout")

    def drawn(x: Tensor) -> Tensor:
        calls: list[int] = []
        counted = nn.Linear(4, 1)
        counted.register_forward_hook(lambda *_: calls.append(1))
        monte_carlo(counted.to(x), x)
        return x.new_tensor(len(calls))

    yield Claim(agreement(other=lambda x: x.new_tensor(32)), drawn, shape("b 4"), name="monte_carlo, samples")
