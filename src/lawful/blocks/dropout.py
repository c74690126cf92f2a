"""Dropout variants that PyTorch lacks, and what they do on average: weight scaling, DropConnect, stochastic depth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.dropout import _DropoutNd

from lawful.blocks.modes import eval_mode
from lawful.laws import Claim, agreement, batch_independence, dropout_scaling, shape, unbiasedness

_MAX_UNITS = 20


class WeightScalingDropout(nn.Module):
    r"""Dropout as in the first paper: no scaling in training, multiplication by the keep probability in eval mode.

    $$y_i = m_i x_i \text{ in training}, \qquad y_i = p \, x_i \text{ in eval mode}, \qquad
    m_i \sim \operatorname{Bernoulli}(p)$$

    Multiplying the entries by $p$ is multiplying the outgoing weights. It differs from `nn.Dropout(1 - p)` by the
    constant factor $p$.

    Reference:
        Hinton, Srivastava, Krizhevsky, Sutskever and Salakhutdinov, *Improving neural networks by preventing
        co-adaptation of feature detectors*, 2012.

    Args:
        keep_prob: $p$, the probability of keeping an entry.

    Examples:
        >>> layer = WeightScalingDropout(0.5)
        >>> set(layer(torch.ones(100)).tolist()) == {0.0, 1.0}
        True
        >>> layer.eval()(torch.ones(2))
        tensor([0.5000, 0.5000])
    """

    def __init__(self, keep_prob: float = 0.5) -> None:
        _check_probability("keep_prob", keep_prob)
        super().__init__()
        self.keep_prob = keep_prob

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Drops entries in training; scales them in eval mode."""
        return x * torch.empty_like(x).bernoulli_(self.keep_prob) if self.training else self.keep_prob * x

    def extra_repr(self) -> str:
        return f"keep_prob={self.keep_prob}"


class GaussianMoments(NamedTuple):
    """An elementwise mean and variance."""

    mean: Tensor
    variance: Tensor


class DropConnect(nn.Linear):
    r"""Linear layer whose weights are dropped at random in training, with one mask per sample.

    $$y = \frac{M \odot W}{1 - p} \, x + b, \qquad M_{ij} \sim \operatorname{Bernoulli}(1 - p)$$

    Over masks, the mean is $W x + b$, which eval mode returns, and the variance is
    $\tfrac{p}{1 - p} (W \odot W)(x \odot x)$. Memory grows with one weight matrix per sample.

    Reference:
        Wan, Zeiler, Zhang, LeCun and Fergus, *Regularization of Neural Networks using DropConnect*, 2013.

    Args:
        in_features: Width of the input.
        out_features: Width of the output.
        p: Probability of dropping a weight.
        bias: Whether to add a bias, which is never dropped.

    Examples:
        >>> DropConnect(3, 2, p=0.5)(torch.ones(5, 3)).shape
        torch.Size([5, 2])
    """

    def __init__(self, in_features: int, out_features: int, *, p: float = 0.5, bias: bool = True) -> None:
        _check_probability("p", p)
        super().__init__(in_features, out_features, bias=bias)
        self.p = p

    # pyrefly: ignore [bad-override-param-name]
    def forward(self, x: Float[Tensor, "*batch i"]) -> Float[Tensor, "*batch o"]:
        """Maps the last axis, with one mask per vector."""
        if not self.training or self.p == 0:
            return super().forward(x)
        self._check(x)
        weight = F.dropout(self.weight.expand(*x.shape[:-1], -1, -1), self.p)
        y = torch.einsum("...oi,...i->...o", weight, x)
        return y if self.bias is None else y + self.bias

    def moments(self, x: Float[Tensor, "*batch i"]) -> GaussianMoments:
        """Returns the mean and variance of the output over masks."""
        if self.p == 1:
            raise ValueError("the moments of DropConnect are undefined for p=1")
        self._check(x)
        variance = self.p / (1 - self.p) * F.linear(x.square(), self.weight.square())
        return GaussianMoments(F.linear(x, self.weight, self.bias), variance)

    def _check(self, x: Tensor) -> None:
        if x.shape[-1:] != (self.in_features,):
            raise ValueError(f"expected x of shape (*batch, {self.in_features}), got {tuple(x.shape)}")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, p={self.p}"


class StochasticDepth(nn.Module):
    r"""Drops whole samples at random in training, and divides the others by the keep probability.

    $$y^{(i)} = \frac{m_i}{1 - p} \, x^{(i)}, \qquad m_i \sim \operatorname{Bernoulli}(1 - p)$$

    As the gate of a residual block it skips the block for some samples. The paper scales in eval mode instead.

    Reference:
        Huang, Sun, Liu, Sedra and Weinberger, *Deep Networks with Stochastic Depth*, 2016.

    Args:
        p: Probability of dropping a sample.

    Examples:
        >>> rows = StochasticDepth(0.5)(torch.ones(100, 2))
        >>> set(map(tuple, rows.tolist())) == {(0.0, 0.0), (2.0, 2.0)}
        True
    """

    def __init__(self, p: float = 0.5) -> None:
        _check_probability("p", p)
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Drops samples, along the first axis, in training; returns the input in eval mode."""
        if not self.training or self.p == 0:
            return x
        if self.p == 1:
            return torch.zeros_like(x)
        mask = x.new_empty(x.shape[:1] + (1,) * (x.dim() - 1)).bernoulli_(1 - self.p)
        return x * (mask / (1 - self.p))

    def extra_repr(self) -> str:
        return f"p={self.p}"


def linear_drop_rates(num_layers: int, *, last: float = 0.5) -> list[float]:
    r"""Returns drop probabilities for stochastic depth that increase linearly with depth.

    $$p_\ell = \frac{\ell}{L} \, p_L, \qquad \ell = 1, \dots, L$$

    Args:
        num_layers: Number of blocks $L$.
        last: Drop probability $p_L$ of the last block.

    Examples:
        >>> linear_drop_rates(4, last=0.5)
        [0.125, 0.25, 0.375, 0.5]
    """
    _check_probability("last", last)
    if num_layers < 0:
        raise ValueError(f"num_layers must be non-negative, got {num_layers}")
    return [last * (n + 1) / num_layers for n in range(num_layers)]


def average_over_masks(
    f: Callable[[Tensor], Tensor], x: Float[Tensor, "*batch n"], *, keep_prob: float
) -> Float[Tensor, "*batch m"]:
    r"""Returns the exact mean of a function over all dropout masks of its input.

    $$\sum_{m \in \{0, 1\}^n} p^{|m|} (1 - p)^{n - |m|} \, f(m \odot x)$$

    This is the ensemble of the $2^n$ networks that dropout trains. For an affine $f$ it equals $f$ with weights
    multiplied by $p$; for a log-softmax of an affine map, the softmax of the mean is the normalized geometric mean of
    the predictions and equals the softmax with scaled weights. For other functions weight scaling is an approximation.

    Reference:
        Hinton, Srivastava, Krizhevsky, Sutskever and Salakhutdinov, *Improving neural networks by preventing
        co-adaptation of feature detectors*, 2012.

    Args:
        f: Function of the last axis.
        x: Input with at most 20 units, since there are $2^n$ masks.
        keep_prob: $p$, the probability of keeping a unit.

    Examples:
        >>> average_over_masks(lambda x: x.sum(-1, keepdim=True), torch.tensor([2.0, 4.0]), keep_prob=0.5)
        tensor([3.])
    """
    _check_probability("keep_prob", keep_prob)
    if x.dim() == 0:
        raise ValueError("expected x of shape (*batch, n), got ()")
    n = x.shape[-1]
    if n > _MAX_UNITS:
        raise ValueError(f"expected at most {_MAX_UNITS} units, got {n}")
    masks = torch.arange(2**n, device=x.device)[:, None] >> torch.arange(n, device=x.device) & 1
    weights = torch.where(masks == 1, x.new_tensor(keep_prob), x.new_tensor(1 - keep_prob)).prod(-1)
    masked = masks * x[..., None, :]
    y = f(masked)
    if y.shape[:-1] != masked.shape[:-1]:
        raise ValueError(f"expected f to map the last axis of {tuple(masked.shape)}, got output {tuple(y.shape)}")
    return torch.einsum("...mo,m->...o", y, weights)


RANDOM_MODULES: tuple[type[nn.Module], ...] = (
    *(_DropoutNd, nn.RNNBase, nn.MultiheadAttention, nn.TransformerEncoderLayer),
    *(WeightScalingDropout, DropConnect, StochasticDepth),
)
"""Modules that are random in training mode: PyTorch's and ours."""


def monte_carlo(
    model: nn.Module,
    x: Float[Tensor, "*shape"],
    *,
    num_samples: int = 32,
    random_modules: tuple[type[nn.Module], ...] = RANDOM_MODULES,
) -> GaussianMoments:
    r"""Predicts many times with dropout on (Monte Carlo dropout), and returns mean and variance.

    $$\bar y = \frac{1}{S} \sum_s f(x; m_s), \qquad v = \frac{1}{S - 1} \sum_s (f(x; m_s) - \bar y)^2$$

    Random modules are in training mode, all others in eval mode; modes are restored afterwards. A module that calls
    `F.dropout(..., self.training)` itself is random only if its class is in `random_modules`.

    Reference:
        Gal and Ghahramani, *Dropout as a Bayesian Approximation: Representing Model Uncertainty in Deep
        Learning*, 2016.

    Args:
        model: The network $f$.
        x: Input.
        num_samples: $S$, at least 2.
        random_modules: Classes of modules that stay in training mode.

    Examples:
        >>> model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))
        >>> mean, variance = monte_carlo(model, torch.ones(5, 3), num_samples=10)
        >>> mean.shape, bool((variance >= 0).all())
        (torch.Size([5, 2]), True)
    """
    if num_samples < 2:
        raise ValueError(f"num_samples must be at least 2, got {num_samples}")
    with eval_mode(model, random_modules):
        variance, mean = torch.var_mean(torch.stack([model(x) for _ in range(num_samples)]), dim=0)
    return GaussianMoments(mean, variance)


def _check_probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be in [0, 1], got {value}")


def claims() -> Iterator[Claim]:
    """Laws of dropout variants."""
    linear, connect = nn.Linear(4, 3), DropConnect(4, 3, p=0.3)
    for layer, scale, eval_scale in (
        (WeightScalingDropout(0.7), 1.0, 0.7),
        (StochasticDepth(0.2), 1 / 0.8, 1.0),
    ):
        for law in (unbiasedness(), dropout_scaling(scale=scale, eval_scale=eval_scale)):
            yield Claim(law, layer, shape("b 4"))
    yield Claim(unbiasedness(), connect, shape("b 4"))
    yield Claim(batch_independence(), connect, shape("b 4"))
    scaled = agreement(other=lambda x: F.linear(x, 0.7 * linear.weight, linear.bias))
    average = lambda x: average_over_masks(linear, x, keep_prob=0.7)  # noqa: E731
    yield Claim(scaled, average, shape("b 4"), name="average over all masks of an affine map")
