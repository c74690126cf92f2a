"""Losses of diffusion models: denoising, flow matching, score matching; and noise-level distributions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, mean_over_samples, shape, transformed
from lawful.losses.reduction import _reduce
from lawful.solvers.diffusion.energy import Score
from lawful.solvers.diffusion.parameterization import FLOW, Denoiser, Prediction
from lawful.solvers.diffusion.paths import GaussianPath, edm, expand_like, variance_preserving

Reduction = Literal["mean", "sum", "none"]
"""Reduction over the examples, as in `torch.nn.functional`."""


def denoising_loss(
    network: Denoiser,
    x: Float[Tensor, "n *shape"],
    t: Float[Tensor, " n"],
    path: GaussianPath,
    *,
    noise: Float[Tensor, "n *shape"],
    prediction: Prediction,
    weighting: Prediction | None = None,
    reduction: Reduction = "mean",
) -> Float[Tensor, "*reduced"]:
    r"""Mean squared error of a network's prediction on noisy data.

    $$\ell = \frac{w(t)}{d} \bigl\lVert y(x_t, t) - y^* \bigr\rVert^2, \qquad y^* = \frac{x - a x_t}{b}, \qquad
    w = \frac{b^2}{b'^2}$$

    where $D = a x_t + b y$ for a prediction $y$. Errors of two prediction types differ by a factor that depends only on
    the noise level, so that a weighting of the noise levels is a prediction type: `SCORE` for denoising score matching,
    `NOISE` for DDPM's simple loss, `preconditioned(s)` for EDM's loss, `FLOW` for flow matching. All have the same
    minimum.

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        network: Network $y$, called with $x_t$ and $t$.
        x: Clean data.
        t: Time of each example: see `NoiseLevelDistribution`.
        path: Noise path.
        noise: Standard normal noise $\varepsilon$.
        prediction: Prediction type of the network, with $a$ and $b$.
        weighting: Prediction type with $b'$. Defaults to `prediction`.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Examples:
        >>> from lawful.solvers.diffusion import DENOISED, edm
        >>> x, t = torch.ones(1, 2), torch.tensor([2.0], dtype=torch.float64)
        >>> denoising_loss(lambda x, t: x, x, t, edm(), noise=torch.ones(1, 2), prediction=DENOISED)
        tensor(4.)
    """
    noisy = path.add_noise(x, noise, t)
    a, b = prediction.coefficients(path, t)
    error = network(noisy, t) - (x - expand_like(a, x) * noisy) / expand_like(b, x)
    losses = error.square().flatten(1).mean(1)
    if weighting is not None and weighting is not prediction:
        losses = losses * (b / weighting.coefficients(path, t)[1]).square().to(losses)
    return _reduce(losses, reduction)


def flow_matching_loss(
    velocity: Denoiser,
    x: Float[Tensor, "n *shape"],
    t: Float[Tensor, " n"],
    path: GaussianPath,
    *,
    noise: Float[Tensor, "n *shape"],
    reduction: Reduction = "mean",
) -> Float[Tensor, "*reduced"]:
    r"""Flow matching loss of a velocity field.

    $$\ell = \frac1d \bigl\lVert v(x_t, t) - (\dot\alpha x + \dot\sigma \varepsilon) \bigr\rVert^2$$

    Its minimum is the velocity of the probability flow. On the rectified path the target is $\varepsilon - x$.

    Reference:
        Lipman, Chen, Ben-Hamu, Nickel and Le, *Flow Matching for Generative Modeling*, 2023.

    Args:
        velocity: Velocity field $v$, called with $x_t$ and $t$.
        x: Clean data, at time 0.
        t: Time of each example.
        path: Noise path.
        noise: Standard normal noise $\varepsilon$.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Examples:
        >>> from lawful.solvers.diffusion.paths import rectified
        >>> t = torch.tensor([0.5], dtype=torch.float64)
        >>> flow_matching_loss(lambda x, t: 0 * x, torch.ones(1, 2), t, rectified(), noise=-torch.ones(1, 2))
        tensor(4.)
    """
    level = path.at(t)
    target = expand_like(level.alpha_rate, x) * x + expand_like(level.sigma_rate, x) * noise
    losses = (velocity(path.add_noise(x, noise, t), t) - target).square().flatten(1).mean(1)
    return _reduce(losses, reduction)


_MIN_RATIO, _MAX_RATIO = 1e-4, 1e6  # noise ratios of training


@runtime_checkable
class NoiseLevelDistribution(Protocol):
    """Distribution of times on a noise path."""

    def times(self, u: Float[Tensor, " n"], path: GaussianPath) -> Float[Tensor, " n"]:
        """Returns the quantiles of times, in float64, of uniform numbers u."""
        ...


@dataclass(frozen=True, kw_only=True)
class LogNormal:
    r"""Log-normal distribution of the noise ratio $\rho = \sigma / \alpha$, as in EDM.

    $$\log \rho = m + s \, \Phi^{-1}(u)$$

    The defaults are EDM's for data of standard deviation 0.5; for standard deviation 1 the mean is $-1.2 + \log 2$.

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        mean: Mean $m$ of $\log \rho$.
        std: Standard deviation $s$ of $\log \rho$.

    Examples:
        >>> LogNormal(mean=0.0).times(torch.tensor([0.5]), edm())
        tensor([1.], dtype=torch.float64)
    """

    mean: float = -1.2
    std: float = 1.2

    def __post_init__(self) -> None:
        if not (0 < self.std < inf and -inf < self.mean < inf):
            raise ValueError(f"expected a finite mean and a finite std > 0, got {self}")

    def times(self, u: Float[Tensor, " n"], path: GaussianPath) -> Float[Tensor, " n"]:
        """Returns the quantiles."""
        return _clamped_times(path, (self.mean + self.std * torch.special.ndtri(u.double())).exp())


@dataclass(frozen=True, kw_only=True)
class LogUniform:
    r"""Log-uniform distribution of the noise ratio.

    $$\rho = \rho_\text{low}^{1 - u} \, \rho_\text{high}^u$$

    Args:
        low: $\rho_\text{low} > 0$.
        high: $\rho_\text{high} > \rho_\text{low}$.

    Examples:
        >>> LogUniform(low=0.01, high=1.0).times(torch.tensor([0.5]), edm())
        tensor([0.1000], dtype=torch.float64)
    """

    low: float = 0.002
    high: float = 80.0

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high < inf:
            raise ValueError(f"expected noise ratios 0 < low < high, got {self}")

    def times(self, u: Float[Tensor, " n"], path: GaussianPath) -> Float[Tensor, " n"]:
        """Returns the quantiles."""
        return _clamped_times(path, self.low * (self.high / self.low) ** u.double())


@dataclass(frozen=True, kw_only=True)
class UniformTime:
    r"""Uniform distribution of time, $t = u \, T$, as in flow matching and score SDEs.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021.

    Examples:
        >>> from lawful.solvers.diffusion import rectified
        >>> UniformTime().times(torch.tensor([0.25]), rectified())
        tensor([0.2500], dtype=torch.float64)
    """

    def times(self, u: Float[Tensor, " n"], path: GaussianPath) -> Float[Tensor, " n"]:
        """Returns the quantiles; times near 0, without noise, are clamped."""
        return (path.max_time * u.double()).clamp(_min_time(path), path.max_time)


@dataclass(frozen=True, kw_only=True)
class DiscreteTime:
    r"""Uniform distribution over the steps of a Markov chain, $t = k T / N$ with $k = 1, \dots, N$, as in DDPM.

    Reference:
        Ho, Jain and Abbeel, *Denoising Diffusion Probabilistic Models*, 2020.

    Args:
        num_steps: Number of steps $N$.

    Examples:
        >>> from lawful.solvers.diffusion import ddpm_path
        >>> DiscreteTime(num_steps=2).times(torch.tensor([0.1, 0.4, 0.6]), ddpm_path([0.1, 0.2]))
        tensor([1., 1., 2.], dtype=torch.float64)
    """

    num_steps: int = 1000

    def __post_init__(self) -> None:
        if self.num_steps < 1:
            raise ValueError(f"expected num_steps >= 1, got {self.num_steps}")

    def times(self, u: Float[Tensor, " n"], path: GaussianPath) -> Float[Tensor, " n"]:
        """Returns the quantiles."""
        step = (u.double() * self.num_steps).floor().clamp(0, self.num_steps - 1) + 1
        return path.max_time * step / self.num_steps


def stratified_uniform(n: int, *, device: torch.device | None = None) -> Float[Tensor, " n"]:
    r"""Draws $n$ stratified uniform numbers, one in each interval of length $1 / n$.

    $$u_i = \frac{i + w}{n}, \qquad w \sim U(0, 1)$$

    They reduce the variance of a loss over noise levels.

    Reference:
        Kingma, Salimans, Poole and Ho, *Variational Diffusion Models*, 2021.

    Args:
        n: Number of samples.
        device: Device.

    Examples:
        >>> (4 * stratified_uniform(4)).floor()
        tensor([0., 1., 2., 3.], dtype=torch.float64)
    """
    index = torch.arange(n, dtype=torch.float64, device=device)
    return (index + torch.rand((), dtype=torch.float64, device=device)) / max(n, 1)


def _min_time(path: GaussianPath) -> float:
    return float(path.time_of(torch.tensor(_MIN_RATIO, dtype=torch.float64)))


def _clamped_times(path: GaussianPath, ratios: Tensor) -> Tensor:
    """The times of noise ratios, clamped to the path."""
    high = min(_MAX_RATIO, float(path.ratio(path.max_time)))
    return path.time_of(ratios.clamp(_MIN_RATIO, high)).clamp(max=path.max_time)


def explicit_score_matching(
    score: Score, x: Float[Tensor, "n *shape"], *, reduction: Reduction = "mean"
) -> Float[Tensor, "*reduced"]:
    r"""Explicit (Hyvärinen) score matching.

    $$\ell(x) = \tfrac12 \lVert s(x) \rVert^2 + \operatorname{tr} \frac{\partial s}{\partial x}, \qquad
    \mathbb{E} \, \ell = \tfrac12 \, \mathbb{E} \lVert s - \nabla \log p \rVert^2 -
    \tfrac12 \, \mathbb{E} \lVert \nabla \log p \rVert^2$$

    The trace takes one backward pass per entry, so that the loss suits small data.

    Reference:
        Hyvärinen, *Estimation of Non-Normalized Statistical Models by Score Matching*, 2005.

    Args:
        score: Score function $s$.
        x: Examples.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Examples:
        >>> explicit_score_matching(lambda x: -x, torch.tensor([[1.0, 1.0]]))
        tensor(-1., grad_fn=<MeanBackward0>)
    """
    s, leaf = _score_with_grad(score, x)
    axes = torch.eye(s[0].numel(), dtype=s.dtype, device=s.device).reshape(-1, 1, *s.shape[1:])
    trace = sum(_directional_trace(s, leaf, axis.expand_as(s)) for axis in axes)
    return _reduce(s.square().flatten(1).sum(1) / 2 + trace, reduction)


def sliced_score_matching(
    score: Score,
    x: Float[Tensor, "n *shape"],
    directions: Float[Tensor, "k n *shape"],
    *,
    reduction: Reduction = "mean",
) -> Float[Tensor, "*reduced"]:
    r"""Sliced score matching along random directions.

    $$\ell(x) = \frac1k \sum_v \Bigl(v^\top \frac{\partial s}{\partial x} v +
    \tfrac12 \bigl(v^\top s(x)\bigr)^2\Bigr)$$

    For $\mathbb{E} v v^\top = 1$ it is an unbiased estimate of explicit score matching, with one backward pass per
    direction.

    Reference:
        Song, Garg, Shi and Ermon, *Sliced Score Matching*, 2019.

    Args:
        score: Score function $s$.
        x: Examples.
        directions: Directions $v$, $k$ per example: see `random_signs_like`.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Examples:
        >>> x = torch.tensor([[1.0, 1.0]])
        >>> sliced_score_matching(lambda x: -x, x, torch.tensor([[[1.0, 1.0]], [[1.0, -1.0]]]))
        tensor(-1., grad_fn=<MeanBackward0>)
    """
    s, leaf = _score_with_grad(score, x)
    slices = [_directional_trace(s, leaf, v) + (s * v).flatten(1).sum(1).square() / 2 for v in directions]
    return _reduce(torch.stack(slices).mean(0), reduction)


def reduced_sliced_score_matching(
    score: Score,
    x: Float[Tensor, "n *shape"],
    directions: Float[Tensor, "k n *shape"],
    *,
    reduction: Reduction = "mean",
) -> Float[Tensor, "*reduced"]:
    r"""Sliced score matching with reduced variance: only the trace is estimated.

    $$\ell(x) = \tfrac12 \lVert s(x) \rVert^2 + \frac1k \sum_v v^\top \frac{\partial s}{\partial x} v$$

    Reference:
        Song, Garg, Shi and Ermon, *Sliced Score Matching*, 2019.

    Args:
        score: Score function $s$.
        x: Examples.
        directions: Directions $v$ with $\mathbb{E} v v^\top = 1$: see `random_signs_like`.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Examples:
        >>> reduced_sliced_score_matching(lambda x: -x, torch.ones(1, 2), torch.ones(1, 1, 2))
        tensor(-1., grad_fn=<MeanBackward0>)
    """
    s, leaf = _score_with_grad(score, x)
    trace = torch.stack([_directional_trace(s, leaf, v) for v in directions]).mean(0)
    return _reduce(s.square().flatten(1).sum(1) / 2 + trace, reduction)


def denoising_score_matching(
    score: Score,
    x: Float[Tensor, "n *shape"],
    noise: Float[Tensor, "n *shape"],
    *,
    sigma: float,
    reduction: Reduction = "mean",
) -> Float[Tensor, "*reduced"]:
    r"""Denoising score matching at one noise level.

    $$\ell = \tfrac12 \Bigl\lVert s(x + \sigma \varepsilon) + \frac{\varepsilon}{\sigma} \Bigr\rVert^2$$

    Its minimum is the score $\nabla \log p_\sigma$ of the noisy data. For several noise levels and other prediction
    types see `denoising_loss`.

    Reference:
        Vincent, *A Connection Between Score Matching and Denoising Autoencoders*, 2011.

    Args:
        score: $s$.
        x: Clean data.
        noise: Standard normal noise $\varepsilon$.
        sigma: Noise scale $\sigma > 0$.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Examples:
        >>> denoising_score_matching(lambda y: -y, torch.zeros(1, 2), torch.ones(1, 2), sigma=1.0)
        tensor(0.)
    """
    if not 0 < sigma < float("inf"):
        raise ValueError(f"expected a finite sigma > 0, got {sigma}")
    s = _check_score(score(x + sigma * noise), x)
    return _reduce((s + noise / sigma).square().flatten(1).sum(1) / 2, reduction)


def random_signs_like(x: Float[Tensor, "n *shape"], *, count: int = 1) -> Float[Tensor, "count n *shape"]:
    r"""Draws directions of random signs, with $\mathbb{E} v v^\top = 1$ and a trace estimate of minimal variance.

    Args:
        x: Examples.
        count: Number of directions per example.

    Examples:
        >>> x = torch.zeros(3, 2)
        >>> random_signs_like(x, count=4).abs().unique(), random_signs_like(x).shape
        (tensor([1.]), torch.Size([1, 3, 2]))
    """
    if count < 1:
        raise ValueError(f"expected count >= 1, got {count}")
    return torch.randint(2, (count, *x.shape), device=x.device).to(x.dtype) * 2 - 1


def _score_with_grad(score: Score, x: Tensor) -> tuple[Tensor, Tensor]:
    """The score, and the leaf tensor that it depends on."""
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        s = score(leaf)
    return _check_score(s, x), leaf


def _check_score(s: Tensor, x: Tensor) -> Tensor:
    if s.shape != x.shape or not len(x):
        raise ValueError(f"expected at least one example and a score of shape {tuple(x.shape)}, got {tuple(s.shape)}")
    return s


def _directional_trace(s: Tensor, leaf: Tensor, v: Tensor) -> Tensor:
    r"""$v^\top \frac{\partial s}{\partial x} v$ of each example, differentiable."""
    if not s.requires_grad:
        return s.new_zeros(len(s))
    (gradient,) = torch.autograd.grad(s, leaf, v, create_graph=True, allow_unused=True)
    return s.new_zeros(len(s)) if gradient is None else (gradient * v).flatten(1).sum(1)


def claims() -> Iterator[Claim]:
    """Flow matching is the denoising loss of the flow prediction, and a mean; noise levels have their distribution."""
    path = variance_preserving()
    inputs = (shape("n 2"), shape("n 2"), transformed(lambda x: 0.1 + 0.6 * torch.sigmoid(x), "n"))

    def flow_matching(x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return flow_matching_loss(lambda y, t: y.sin(), x, t, path, noise=noise, reduction="none")

    def denoising(x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return denoising_loss(lambda y, t: y.sin(), x, t, path, noise=noise, prediction=FLOW, reduction="none")

    yield Claim(agreement(other=denoising), flow_matching, inputs, name="flow_matching_loss")

    def mean_flow_matching(x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return flow_matching_loss(lambda y, t: y.sin(), x, t, path, noise=noise)

    yield Claim(mean_over_samples(), mean_flow_matching, inputs, name="flow_matching_loss")

    def cdf(u: Tensor) -> Tensor:
        ratio = edm().ratio(LogNormal(mean=-0.7, std=0.9).times(u, edm()))
        return (0.5 + 0.5 * torch.erf((ratio.log() + 0.7) / (0.9 * 2**0.5))).to(u)

    inner = transformed(lambda x: 0.1 + 0.8 * torch.sigmoid(x), "n")
    yield Claim(agreement(other=lambda u: 1 * u), cdf, inner, name="LogNormal")
