"""What random masks do on average: the laws of dropout, and the exact average over all masks.

Dropout: units that are left out at random while a network learns.
DropConnect: weights, rather than units, that are left out at random.
Stochastic depth: residual branches that are left out at random.
Monte Carlo dropout: a network with dropout as a sampler of its own uncertainty.
The limit on the length of weights that goes with dropout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.dropout import _DropoutNd

from lawful.blocks.linear import Activation, Dense
from lawful.blocks.modes import eval_mode
from lawful.functions.activations import identity
from lawful.laws import (
    Claim,
    Draw,
    Equal,
    Map,
    Statement,
    agreement,
    batch_independence,
    dropout_scaling,
    idempotence,
    law,
    lipschitz,
    shape,
    unbiasedness,
)

MOST_UNITS = 20


def average_over_masks(
    f: Callable[[Tensor], Tensor], x: Float[Tensor, "*batch n"], *, keep: float
) -> Float[Tensor, "*batch m"]:
    r"""HasMean a function over all masks of its input, each weighed by its probability.

    $$\sum_{m \in \{0, 1\}^n} p^{|m|} (1 - p)^{n - |m|} \, f(m \odot x)$$

    This is the ensemble of the $2^n$ networks that dropout trains. For an affine $f$ it is $f$ with the weights
    multiplied by $p$; if $f$ is a log-softmax of one, a softmax of the average, which is the normalised geometric
    mean of the predictions, is the softmax of that. For other functions weight scaling is an approximation.

    Reference:
        Hinton, Srivastava, Krizhevsky, Sutskever and Salakhutdinov, *Improving neural networks by preventing
        co-adaptation of feature detectors*, 2012.

    Args:
        f: The function $f$, of the last axis.
        x: The input $x$, of at most 20 units, for there are $2^n$ masks.
        keep: $p$, the probability that a unit stays.

    Examples:
        >>> average_over_masks(lambda x: x.sum(-1, keepdim=True), torch.tensor([2.0, 4.0]), keep=0.5)
        tensor([3.])
    """
    check_probability("keep", keep)
    if x.dim() == 0:
        raise ValueError("an input with a last axis was wanted: got shape ()")
    n = x.shape[-1]
    if n > MOST_UNITS:
        raise ValueError(f"at most {MOST_UNITS} units can be averaged over: got {n}")
    masks = torch.arange(2**n, device=x.device)[:, None] >> torch.arange(n, device=x.device) & 1
    weights = torch.where(masks == 1, x.new_tensor(keep), x.new_tensor(1 - keep)).prod(-1)
    masked = masks * x[..., None, :]
    y = f(masked)
    if y.shape[:-1] != masked.shape[:-1]:
        wanted = f"(*{tuple(masked.shape[:-1])}, m) of {tuple(masked.shape)}"
        raise ValueError(f"a function that makes {wanted} was wanted: got {tuple(y.shape)}")
    return torch.einsum("...mo,m->...o", y, weights)


def check_probability(name: str, value: float) -> None:
    """Refuses what is no probability."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is a probability, from 0 to 1: got {value}")


def _expectation_claims() -> Iterator[Claim]:
    """The laws that the average over all masks obeys."""
    layer, keep = Dense(4, 3), 0.7

    def ensemble(x: Tensor) -> Tensor:
        return average_over_masks(layer, x, keep=keep)

    def geometric(x: Tensor) -> Tensor:
        return average_over_masks(lambda z: layer(z).log_softmax(-1), x, keep=keep).softmax(-1)

    def scaled(x: Tensor) -> Tensor:
        return F.linear(x, keep * layer.weight, layer.bias)

    def scaled_softmax(x: Tensor) -> Tensor:
        return scaled(x).softmax(-1)

    def squares(x: Tensor) -> Tensor:
        return average_over_masks(torch.square, x, keep=keep)

    yield Claim(agreement(other=scaled), ensemble, shape("b 4"), name="average over all masks, of an affine map")
    yield Claim(agreement(other=scaled_softmax), geometric, shape("b 4"), name="geometric mean over all masks")
    yield Claim(agreement(other=lambda x: keep * x**2), squares, shape("b n:1..5"), name="average of squares")


class Dropout(nn.Dropout):
    r"""Sets entries to 0 at random in training, and divides the others by the probability that they stay.

    $$y_i = \frac{m_i}{1 - p} \, x_i, \qquad m_i \sim \operatorname{Bernoulli}(1 - p)$$

    The expectation of $y$ is $x$, which is what evaluation gives. This is PyTorch's own, also called inverted
    dropout: $p$ is the probability that an entry is *dropped*, whereas in the paper it is that of staying.

    Reference:
        Srivastava, Hinton, Krizhevsky, Sutskever and Salakhutdinov, *Dropout: A Simple Way to Prevent Neural
        Networks from Overfitting*, 2014.

    Args:
        drop: $p$.

    Examples:
        >>> layer = Dropout(0.5)
        >>> set(layer(torch.ones(100)).tolist()) == {0.0, 2.0}
        True
        >>> layer.eval()(torch.ones(2))
        tensor([1., 1.])
    """

    def __init__(self, drop: float = 0.5) -> None:
        check_probability("drop", drop)
        super().__init__(drop)

    # pyrefly: ignore [bad-override-param-name]
    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Drops entries in training; does nothing in evaluation."""
        return F.dropout(x, self.p, self.training)


class WeightScalingDropout(nn.Module):
    r"""Sets entries to 0 at random in training, and multiplies all by the probability of staying in evaluation.

    $$y_i = m_i x_i \text{ in training}, \qquad y_i = p \, x_i \text{ in evaluation}, \qquad
    m_i \sim \operatorname{Bernoulli}(p)$$

    This is the form of the paper, in which $p$ is the probability that an entry *stays*. Multiplying the entries by
    $p$ is multiplying the weights that lead out of them. It differs from `Dropout` by the constant factor $p$.

    Reference:
        Hinton, Srivastava, Krizhevsky, Sutskever and Salakhutdinov, *Improving neural networks by preventing
        co-adaptation of feature detectors*, 2012.

    Args:
        keep: $p$.

    Examples:
        >>> layer = WeightScalingDropout(0.5)
        >>> set(layer(torch.ones(100)).tolist()) == {0.0, 1.0}
        True
        >>> layer.eval()(torch.ones(2))
        tensor([0.5000, 0.5000])
    """

    def __init__(self, keep: float = 0.5) -> None:
        check_probability("keep", keep)
        super().__init__()
        self.keep = keep

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Drops entries in training; scales them in evaluation."""
        return x * torch.empty_like(x).bernoulli_(self.keep) if self.training else self.keep * x

    def extra_repr(self) -> str:
        return f"keep={self.keep}"


def _dropout_claims() -> Iterator[Claim]:
    """The laws that dropout obeys."""
    layers = (Dropout(), 2.0, 1.0), (Dropout(0.2), 1 / 0.8, 1.0), (WeightScalingDropout(0.7), 1.0, 0.7)
    for layer, scale, evaluation in (*layers, (WeightScalingDropout(), 1.0, 0.5)):
        for law in (unbiasedness(), dropout_scaling(scale=scale, eval_scale=evaluation)):
            yield Claim(law, layer, shape("b 4"))


class GaussianMoments(NamedTuple):
    """A mean and a variance, entry by entry."""

    mean: Tensor
    variance: Tensor


class DropConnect(Dense):
    r"""Applies a dense layer whose weights are set to 0 at random in training, anew for each sample.

    $$y = \sigma\Bigl(\frac{M \odot W}{1 - p} \, x + b\Bigr), \qquad M_{ij} \sim \operatorname{Bernoulli}(1 - p)$$

    Before the activation, the mean of this is $W x + b$, which is what evaluation uses, and the variance is
    $\tfrac{p}{1 - p} (W \odot W)(x \odot x)$. A mask for each sample takes the memory of a weight for each sample.

    Reference:
        Wan, Zeiler, Zhang, LeCun and Fergus, *Regularization of Neural Networks using DropConnect*, 2013.

    Args:
        d_in: The size of $x$.
        d_out: The size of $y$.
        drop: $p$, the probability that a weight is dropped.
        activation: $\sigma$.
        bias: Whether there is a $b$, which is never dropped.

    Examples:
        >>> DropConnect(3, 2, drop=0.5)(torch.ones(5, 3)).shape
        torch.Size([5, 2])
    """

    def __init__(
        self, d_in: int, d_out: int, *, drop: float = 0.5, activation: Activation = identity, bias: bool = True
    ) -> None:
        check_probability("drop", drop)
        super().__init__(d_in, d_out, activation=activation, bias=bias)
        self.drop = drop

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Maps the last axis, each vector with a mask of its own."""
        if not self.training or self.drop == 0:
            return super().forward(x)
        self._check(x)
        weight = F.dropout(self.weight.expand(*x.shape[:-1], -1, -1), self.drop)
        y = torch.einsum("...oi,...i->...o", weight, x)
        return self.activation(y if self.bias is None else y + self.bias)

    def moments(self, x: Float[Tensor, "*batch d_in"]) -> GaussianMoments:
        """Returns the mean and the variance, over masks, of what training feeds the activation."""
        if self.drop == 1:
            raise ValueError("with drop=1 nothing stays, and there is no scale to make up for it")
        self._check(x)
        variance = self.drop / (1 - self.drop) * F.linear(x.square(), self.weight.square())
        return GaussianMoments(F.linear(x, self.weight, self.bias), variance)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, drop={self.drop}"


def _drop_connect_claims() -> Iterator[Claim]:
    """The laws that DropConnect obeys."""
    layer, evaluated = DropConnect(4, 3, drop=0.3), DropConnect(4, 3, drop=0.3).eval()

    def spread(x: Tensor) -> Tensor:
        return (layer.train()(x) - x @ layer.weight.T - layer.bias).square()

    def variance(x: Tensor) -> Tensor:
        return layer.moments(x).variance

    def plain(x: Tensor) -> Tensor:
        return x @ evaluated.weight.T + evaluated.bias

    yield Claim(unbiasedness(), layer, shape("b 4"))
    yield Claim(unbiasedness(expected=variance), spread, shape("b 4"), name="DropConnect, variance")
    yield Claim(batch_independence(), layer, shape("b 4"))
    yield Claim(agreement(other=plain), evaluated, shape("b 4"), name="DropConnect in evaluation")
    half = DropConnect(4, 3)
    by_half = agreement(other=lambda x: (x[:, None] * half.weight).square().sum(-1))
    yield Claim(by_half, lambda x: half.moments(x).variance, shape("b 4"), name="DropConnect(drop=0.5), variance")


class StochasticDepth(nn.Module):
    r"""Sets whole samples to 0 at random in training, and divides the others by the probability that they stay.

    $$y^{(i)} = \frac{m_i}{1 - p} \, x^{(i)}, \qquad m_i \sim \operatorname{Bernoulli}(1 - p)$$

    At the end of a residual branch, `Residual(nn.Sequential(block, StochasticDepth(p)))`, it skips the block for
    some samples, so that the network is shorter on average while it learns. The paper multiplies in evaluation
    instead of dividing in training.

    Reference:
        Huang, Sun, Liu, Sedra and Weinberger, *Deep Networks with Stochastic Depth*, 2016.

    Args:
        drop: $p$, the probability that a sample is dropped.

    Examples:
        >>> rows = StochasticDepth(0.5)(torch.ones(100, 2))
        >>> set(map(tuple, rows.tolist())) == {(0.0, 0.0), (2.0, 2.0)}
        True
    """

    def __init__(self, drop: float = 0.5) -> None:
        check_probability("drop", drop)
        super().__init__()
        self.drop = drop

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Drops samples, along the first axis, in training; does nothing in evaluation."""
        if not self.training or self.drop == 0:
            return x
        if self.drop == 1:
            return torch.zeros_like(x)
        mask = x.new_empty(x.shape[:1] + (1,) * (x.dim() - 1)).bernoulli_(1 - self.drop)
        return x * (mask / (1 - self.drop))

    def extra_repr(self) -> str:
        return f"drop={self.drop}"


def linear_drop_rates(depth: int, *, last: float = 0.5) -> list[float]:
    r"""Returns the probabilities of being dropped that rise in equal steps up to that of the last block.

    $$p_\ell = \frac{\ell}{L} \, p_L, \qquad \ell = 1, \dots, L$$

    Early blocks, which the others build upon, are dropped least.

    Args:
        depth: The number of blocks $L$.
        last: $p_L$.

    Examples:
        >>> linear_drop_rates(4, last=0.5)
        [0.125, 0.25, 0.375, 0.5]
    """
    check_probability("last", last)
    if depth < 0:
        raise ValueError(f"depth is at least 0: got {depth}")
    return [last * (n + 1) / depth for n in range(depth)]


@law("f(x)[i] = s_i x[i]", discover_with=None)
def one_factor_a_sample(f: Map, x: Tensor, *, draw: Draw) -> Statement:
    """Each sample is multiplied by one number, the same for all its entries.

    Satisfied by: stochastic depth.
    Broken by: dropout, which has a mask of its own for each entry.
    """
    y, z = f(x).flatten(1), x.flatten(1)
    order = draw.permutation(z.shape[1])
    return Equal(y * z[:, order], y[:, order] * z, exercised=z.shape[1] > 1)


def _stochastic_depth_claims() -> Iterator[Claim]:
    """The laws that stochastic depth obeys."""
    for law_ in (unbiasedness(), dropout_scaling(scale=1 / 0.8), one_factor_a_sample()):
        yield Claim(law_, StochasticDepth(0.2), shape("b 2 3"))
    for drop, scale in ((0.0, 1.0), (1.0, 0.0)):
        layer, scaled = StochasticDepth(drop), agreement(other=lambda x, scale=scale: scale * x)
        yield Claim(scaled, lambda x, f=layer: f.train()(x), shape("b 2"), name=f"StochasticDepth({drop:g})")
    yield Claim(dropout_scaling(scale=2.0), StochasticDepth(), shape("b 2"))

    def rates(x: Tensor) -> Tensor:
        return x.new_tensor([*linear_drop_rates(len(x), last=0.3), *linear_drop_rates(len(x))])

    def equal_steps(x: Tensor) -> Tensor:
        return torch.cat([torch.linspace(0, last, len(x) + 1).to(x)[1:] for last in (0.3, 0.5)])

    yield Claim(agreement(other=equal_steps), rates, shape("n:1..9"), name="depth_rates")


RANDOM: tuple[type[nn.Module], ...] = (
    *(_DropoutNd, nn.RNNBase, nn.MultiheadAttention, nn.TransformerEncoderLayer),
    *(WeightScalingDropout, DropConnect, StochasticDepth),
)
"""The modules that are random in training: PyTorch's, of which `Dropout` is one, and lawful's."""


def monte_carlo(
    model: nn.Module, x: Float[Tensor, "*shape"], *, samples: int = 32, random: tuple[type[nn.Module], ...] = RANDOM
) -> GaussianMoments:
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
    with eval_mode(model, random):
        variance, mean = torch.var_mean(torch.stack([model(x) for _ in range(samples)]), dim=0)
    return GaussianMoments(mean, variance)


def _monte_carlo_claims() -> Iterator[Claim]:
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

    yield Claim(unbiasedness(expected=exact_mean), mean, shape("b 4"), name="monte_carlo, mean")
    yield Claim(unbiasedness(expected=exact_variance), variance, shape("b 4"), name="monte_carlo, variance")
    yield Claim(agreement(other=evaluated), certain, shape("b 4"), name="monte_carlo without dropout")

    def drawn(x: Tensor) -> Tensor:
        calls: list[int] = []
        counted = nn.Linear(4, 1)
        counted.register_forward_hook(lambda *_: calls.append(1))
        monte_carlo(counted.to(x), x)
        return x.new_tensor(len(calls))

    yield Claim(agreement(other=lambda x: x.new_tensor(32)), drawn, shape("b 4"), name="monte_carlo, samples")


def max_norm(weight: Float[Tensor, "*shape"], *, limit: float) -> Float[Tensor, "*shape"]:
    r"""Shrinks each row that is longer than a limit to that length.

    $$w_i \leftarrow w_i \, \min\Bigl(1, \frac{c}{\lVert w_i \rVert_2}\Bigr)$$

    A row holds what leads into a unit. The paper does this after each step of learning with dropout, which allows
    for large steps. It is the projection onto the ball of radius $c$: rows within it stay as they are.

    Reference:
        Hinton, Srivastava, Krizhevsky, Sutskever and Salakhutdinov, *Improving neural networks by preventing
        co-adaptation of feature detectors*, 2012.

    Args:
        weight: The rows $w_i$, along the first axis.
        limit: $c$, above 0; at infinity nothing changes.

    Examples:
        >>> max_norm(torch.tensor([[3.0, 4.0], [0.5, 0.0]]), limit=1.0)
        tensor([[0.6000, 0.8000],
                [0.5000, 0.0000]])
    """
    if not limit > 0:
        raise ValueError(f"limit is to be above 0: got {limit}")
    if weight.dim() < 2:
        raise ValueError(f"a weight with rows was wanted: got shape {tuple(weight.shape)}")
    if math.isinf(limit):
        return weight.clone()
    length = torch.linalg.vector_norm(weight, dim=tuple(range(1, weight.dim())), keepdim=True)
    return weight * (limit / length.clamp_min(limit))


def _max_norm_claims() -> Iterator[Claim]:
    """The laws that the limit on lengths obeys: those of a projection onto a convex set."""

    def projection(weight: Tensor) -> Tensor:
        rows = [w / w.norm() * 1.5 if w.norm() > 1.5 else w for w in weight]
        return torch.stack(rows)

    for law in (agreement(other=projection), idempotence(), lipschitz()):
        yield Claim(law, partial(max_norm, limit=1.5), shape("b 4"), name="max_norm")
    yield Claim(agreement(other=projection), partial(max_norm, limit=1.5), shape("b 2 2"), name="max_norm of kernels")
    unchanged = agreement(other=torch.clone)
    yield Claim(unchanged, partial(max_norm, limit=math.inf), shape("b 4"), name="max_norm without a limit")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _expectation_claims()
    yield from _dropout_claims()
    yield from _drop_connect_claims()
    yield from _stochastic_depth_claims()
    yield from _monte_carlo_claims()
    yield from _max_norm_claims()
