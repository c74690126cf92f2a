"""Denoising over noise levels: what is lost where a network predicts noise, data, a velocity or EDM's F.

Noise levels: how training time is spread over them.
Score matching: the gradient of a log-density learned from samples alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, shape, transformed
from lawful.losses.reduction import Reduce
from lawful.solvers.diffusion.parameterization import (
    DENOISED,
    FLOW,
    NOISE,
    SCORE,
    VELOCITY,
    Denoiser,
    Prediction,
    preconditioned,
)
from lawful.solvers.diffusion.paths import GaussianPath, edm, expand_like, rectified, variance_preserving


def denoising_error(
    network: Denoiser,
    x: Float[Tensor, "n *shape"],
    t: Float[Tensor, " n"],
    path: GaussianPath,
    *,
    noise: Float[Tensor, "n *shape"],
    predicts: Prediction,
    counted: Prediction | None = None,
    reduce: Reduce = torch.mean,
) -> Float[Tensor, "*reduced"]:
    r"""Averages the square of what a network is off by, on data with noise, at any noise levels.

    $$\ell = \frac{w(t)}{d} \bigl\lVert y(x_t, t) - y^* \bigr\rVert^2, \qquad y^* = \frac{x - a x_t}{b}, \qquad
    w = \frac{b^2}{b'^2}$$

    A prediction $y$ says $D = a x_t + b y$ of the clean data. The errors of one kind of prediction are those of another
    times a number that depends on the noise level alone, so that a weighting of the noise levels is a kind to count
    in: `SCORE` for denoising score matching, `NOISE` for DDPM's simple loss, `preconditioned(s)` for EDM's, `FLOW` for
    flow matching's. All are least at the same network.

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        network: $y$, from $x_t$ and $t$.
        x: The clean data.
        t: A time for each example: see `NoiseLevels`.
        path: The path.
        noise: $\varepsilon$, standard normal.
        predicts: What $y$ is, with its $a$ and $b$.
        counted: What is counted in, with its $b'$; the same unless given.
        reduce: What to make of the losses of the examples.

    Examples:
        >>> from lawful.solvers.diffusion.paths import edm
        >>> x, t = torch.ones(1, 2), torch.tensor([2.0], dtype=torch.float64)
        >>> denoising_error(lambda x, t: x, x, t, edm(), noise=torch.ones(1, 2), predicts=DENOISED)
        tensor(4.)
    """
    noisy = path.noised(x, noise, t)
    a, b = predicts.coefficients(path, t)
    off = network(noisy, t) - (x - expand_like(a, x) * noisy) / expand_like(b, x)
    errors = off.square().flatten(1).mean(1)
    if counted is not None and counted is not predicts:
        errors = errors * (b / counted.coefficients(path, t)[1]).square().to(errors)
    return reduce(errors)


def flow_matching(
    velocity: Denoiser,
    x: Float[Tensor, "n *shape"],
    t: Float[Tensor, " n"],
    path: GaussianPath,
    *,
    noise: Float[Tensor, "n *shape"],
    reduce: Reduce = torch.mean,
) -> Float[Tensor, "*reduced"]:
    r"""Compares a velocity with that of a straight journey of each example to its own noise.

    $$\ell = \frac1d \bigl\lVert v(x_t, t) - (\dot\alpha x + \dot\sigma \varepsilon) \bigr\rVert^2$$

    It is least at the velocity of the probability flow, the mean of all journeys that pass by. On the rectified path
    the target is $\varepsilon - x$.

    Reference:
        Lipman, Chen, Ben-Hamu, Nickel and Le, *Flow Matching for Generative Modeling*, 2023.

    Args:
        velocity: $v$, from $x_t$ and $t$.
        x: The clean data, at time 0.
        t: A time for each example.
        path: The path.
        noise: $\varepsilon$, standard normal.
        reduce: What to make of the losses of the examples.

    Examples:
        >>> from lawful.solvers.diffusion.paths import rectified
        >>> t = torch.tensor([0.5], dtype=torch.float64)
        >>> flow_matching(lambda x, t: 0 * x, torch.ones(1, 2), t, rectified(), noise=-torch.ones(1, 2))
        tensor(4.)
    """
    level = path.at(t)
    target = expand_like(level.alpha_rate, x) * x + expand_like(level.sigma_rate, x) * noise
    return reduce((velocity(path.noised(x, noise, t), t) - target).square().flatten(1).mean(1))


def _denoising_claims() -> Iterator[Claim]:
    """The laws that denoising losses obey."""
    path = variance_preserving()
    f = preconditioned(0.7)
    inputs = (shape("n 2"), shape("n 2"), transformed(lambda x: 0.1 + 0.6 * torch.sigmoid(x), "n"))

    def each(values: Tensor) -> Tensor:
        return values

    def target(kind: Prediction, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        a, s, a_rate, s_rate = (value[:, None].to(x) for value in path.at(t))
        length = (s.square() + (0.7 * a).square()).sqrt()
        return {
            SCORE: -noise / s,
            NOISE: noise,
            DENOISED: x,
            VELOCITY: a * noise - s * x,
            FLOW: a_rate * x + s_rate * noise,
            f: (x * length - a * 0.49 * (a * x + s * noise) / length) / (s * 0.7),
        }[kind]

    for kind in (SCORE, NOISE, DENOISED, VELOCITY, FLOW, f):

        def found(x: Tensor, noise: Tensor, t: Tensor, kind: Prediction = kind) -> Tensor:
            return denoising_error(lambda y, t: y.sin(), x, t, path, noise=noise, predicts=kind, reduce=each)

        def written(x: Tensor, noise: Tensor, t: Tensor, kind: Prediction = kind) -> Tensor:
            return (path.noised(x, noise, t).sin() - target(kind, x, noise, t)).square().mean(1)

        yield Claim(agreement(other=written), found, inputs, name=f"denoising_error of {kind.name}")

    def converted(x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return denoising_error(
            lambda y, t: y.sin(), x, t, path, noise=noise, predicts=DENOISED, counted=NOISE, reduce=each
        )

    def in_noise(x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        y = path.noised(x, noise, t)
        a, s = path.alpha(t)[:, None].to(x), path.sigma(t)[:, None].to(x)
        return ((y - a * y.sin()) / s - noise).square().mean(1)

    yield Claim(agreement(other=in_noise), converted, inputs, name="denoised data, counted in noise")

    def matched(x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return flow_matching(lambda y, t: y.sin(), x, t, path, noise=noise, reduce=each)

    def as_flow(x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return (path.noised(x, noise, t).sin() - target(FLOW, x, noise, t)).square().mean(1)

    yield Claim(agreement(other=as_flow), matched, inputs, name="flow_matching")

    nodes, weights = np.polynomial.hermite_e.hermegauss(4)
    pairs = torch.cartesian_prod(torch.tensor(nodes), torch.tensor(nodes))
    masses = torch.outer(torch.tensor(weights), torch.tensor(weights)).flatten() / weights.sum() ** 2

    def least(u: Tensor) -> Tensor:
        """The loss of D = c x_t is least at the true c = a τ² / (a² τ² + σ²), for data of deviation τ = 0.7."""
        x, noise = 0.7 * pairs[:, :1].to(u), pairs[:, 1:].to(u)
        t = (0.1 + 0.6 * torch.sigmoid(u)).double().expand(len(x))
        a, s = path.alpha(t[0]).to(u), path.sigma(t[0]).to(u)
        true = a * 0.49 / (a * a * 0.49 + s * s)
        with torch.enable_grad():
            c = true.detach().clone().requires_grad_()
            loss = denoising_error(
                lambda y, t: c * y,
                x,
                t,
                path,
                noise=noise,
                predicts=DENOISED,
                reduce=lambda e: (masses.to(e) * e).sum(),
            )
            return 1 + torch.autograd.grad(loss, c)[0]

    yield Claim(agreement(other=torch.ones_like), least, shape(""), name="least at the true denoiser")


LOWEST, HIGHEST = 1e-4, 1e6
"""The smallest and the largest noise ratio that are trained on."""


@runtime_checkable
class NoiseLevelDistribution(Protocol):
    """A distribution of times on a path, told by its quantiles."""

    def times(self, u: Float[Tensor, " n"], path: GaussianPath) -> Float[Tensor, " n"]:
        """Returns the quantiles of times, in double precision, of numbers from 0 to 1."""
        ...


@dataclass(frozen=True, kw_only=True)
class LogNormal:
    r"""Spreads the logarithm of the noise ratio $\rho = \sigma / \alpha$ as a normal variable: EDM's choice.

    $$\log \rho = m + s \, \Phi^{-1}(u)$$

    Time goes where there is something to learn: far below the data's spread the noise cannot be told, far above it the
    mean is the best guess. The defaults are EDM's for data of a standard deviation of 0.5: for one of 1 the mean is
    that much larger, $-1.2 + \log 2$.

    Reference:
        Karras, Aittala, Aila and Laine, *Elucidating the Design Space of Diffusion-Based Generative Models*, 2022.

    Args:
        mean: $m$.
        std: $s$, above 0.

    Examples:
        >>> LogNormal(mean=0.0).times(torch.tensor([0.5]), edm())
        tensor([1.], dtype=torch.float64)
    """

    mean: float = -1.2
    std: float = 1.2

    def __post_init__(self) -> None:
        if not (0 < self.std < inf and -inf < self.mean < inf):
            raise ValueError(f"a finite mean and a std above 0 were wanted: got {self}")

    def times(self, u: Float[Tensor, " n"], path: GaussianPath) -> Float[Tensor, " n"]:
        """Returns the quantiles."""
        return _within(path, (self.mean + self.std * torch.special.ndtri(u.double())).exp())


@dataclass(frozen=True, kw_only=True)
class LogUniform:
    r"""Spreads the logarithm of the noise ratio evenly: as much time for every octave.

    $$\rho = \rho_\text{low}^{1 - u} \, \rho_\text{high}^u$$

    Args:
        low: $\rho_\text{low}$.
        high: $\rho_\text{high}$, above it.

    Examples:
        >>> LogUniform(low=0.01, high=1.0).times(torch.tensor([0.5]), edm())
        tensor([0.1000], dtype=torch.float64)
    """

    low: float = 0.002
    high: float = 80.0

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high < inf:
            raise ValueError(f"noise ratios with 0 < low < high were wanted: got {self}")

    def times(self, u: Float[Tensor, " n"], path: GaussianPath) -> Float[Tensor, " n"]:
        """Returns the quantiles."""
        return _within(path, self.low * (self.high / self.low) ** u.double())


@dataclass(frozen=True, kw_only=True)
class UniformInTime:
    r"""Spreads time evenly, $t = u \, T$, as flow matching and the SDE papers do.

    Reference:
        Song et al., *Score-Based Generative Modeling through Stochastic Differential Equations*, 2021.

    Examples:
        >>> UniformInTime().times(torch.tensor([0.25]), rectified())
        tensor([0.2500], dtype=torch.float64)
    """

    def times(self, u: Float[Tensor, " n"], path: GaussianPath) -> Float[Tensor, " n"]:
        """Returns the quantiles; the very beginning, where there is no noise, is left out."""
        return (path.last * u.double()).clamp(_first(path), path.last)


@dataclass(frozen=True, kw_only=True)
class Steps:
    r"""Takes the steps of a chain, each as often: $t = k T / N$ with $k = 1, \dots, N$. DDPM's choice.

    Reference:
        Ho, Jain and Abbeel, *Denoising Diffusion Probabilistic Models*, 2020.

    Args:
        count: $N$.

    Examples:
        >>> from lawful.solvers.diffusion.paths import discrete_chain
        >>> Steps(count=2).times(torch.tensor([0.1, 0.4, 0.6]), discrete_chain([0.1, 0.2]))
        tensor([1., 1., 2.], dtype=torch.float64)
    """

    count: int = 1000

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"count is at least 1: got {self.count}")

    def times(self, u: Float[Tensor, " n"], path: GaussianPath) -> Float[Tensor, " n"]:
        """Returns the quantiles."""
        step = (u.double() * self.count).floor().clamp(0, self.count - 1) + 1
        return path.last * step / self.count


def stratified(n: int, *, device: torch.device | None = None) -> Float[Tensor, " n"]:
    r"""Draws $n$ numbers from 0 to 1 that are each uniform, and together evenly spread: one in each $n$-th.

    $$u_i = \frac{i + w}{n}, \qquad w \sim U(0, 1)$$

    With them the noise levels of a batch vary less from step to step.

    Reference:
        Kingma, Salimans, Poole and Ho, *Variational Diffusion Models*, 2021.

    Args:
        n: How many.
        device: Where.

    Examples:
        >>> (4 * stratified(4)).floor()
        tensor([0., 1., 2., 3.], dtype=torch.float64)
    """
    places = torch.arange(n, dtype=torch.float64, device=device)
    return (places + torch.rand((), dtype=torch.float64, device=device)) / max(n, 1)


def _first(path: GaussianPath) -> float:
    return float(path.time_of(torch.tensor(LOWEST, dtype=torch.float64)))


def _within(path: GaussianPath, ratios: Tensor) -> Tensor:
    """The times of noise ratios, where the path has them."""
    return path.time_of(ratios.clamp(LOWEST, min(HIGHEST, float(path.ratio(path.last))))).clamp(max=path.last)


def _noise_levels_claims() -> Iterator[Claim]:
    """The laws that noise levels obey: their distribution function, taken of a quantile, gives it back."""
    inner = transformed(lambda x: 0.1 + 0.8 * torch.sigmoid(x), "n")
    path, line = edm(), rectified()

    def normal(u: Tensor) -> Tensor:
        ratio = path.ratio(LogNormal(mean=-0.7, std=0.9).times(u, path))
        return (0.5 + 0.5 * torch.erf((ratio.log() + 0.7) / (0.9 * 2**0.5))).to(u)

    def even(u: Tensor) -> Tensor:
        ratio = line.ratio(LogUniform(low=0.1, high=5.0).times(u, line))
        return ((ratio / 0.1).log() / torch.tensor(50.0).log()).to(u)

    def in_time(u: Tensor) -> Tensor:
        return (UniformInTime().times(u, path) / 80).to(u)

    same = agreement(other=lambda u: 1 * u)
    for name, f in (("LogNormal", normal), ("LogUniform", even), ("UniformInTime", in_time)):
        yield Claim(same, f, inner, name=name)

    def stepwise(u: Tensor) -> Tensor:
        return Steps(count=5).times(u, line).to(u)

    counted = agreement(other=lambda u: sum((u >= k / 5).to(u) for k in range(1, 5)) / 5 + 0.2)
    yield Claim(counted, stepwise, inner, name="Steps")


Score = Callable[[Tensor], Tensor]
r"""From $x$, (n, *shape), to $s(x)$ of the same shape; samples do not mix."""


def explicit_score_matching(
    score: Score, x: Float[Tensor, "n *shape"], *, reduce: Reduce = torch.mean
) -> Float[Tensor, "*reduced"]:
    r"""Compares a score with that of the data, without knowing the latter: by parts.

    $$\ell(x) = \tfrac12 \lVert s(x) \rVert^2 + \operatorname{tr} \frac{\partial s}{\partial x}, \qquad
    \mathbb{E} \, \ell = \tfrac12 \, \mathbb{E} \lVert s - \nabla \log p \rVert^2 -
    \tfrac12 \, \mathbb{E} \lVert \nabla \log p \rVert^2$$

    It is least at the score of the data, where it is negative. The trace is exact, by a backward pass for each entry:
    for small data.

    Reference:
        Hyvärinen, *Estimation of Non-Normalized Statistical Models by Score Matching*, 2005.

    Args:
        score: $s$.
        x: $x$.
        reduce: What to make of the losses of the examples.

    Examples:
        >>> explicit_score_matching(lambda x: -x, torch.tensor([[1.0, 1.0]]))
        tensor(-1., grad_fn=<MeanBackward0>)
    """
    s, leaf = _scored(score, x)
    axes = torch.eye(s[0].numel(), dtype=s.dtype, device=s.device).reshape(-1, 1, *s.shape[1:])
    trace = sum(_along(s, leaf, axis.expand_as(s)) for axis in axes)
    return reduce(s.square().flatten(1).sum(1) / 2 + trace)


def sliced_score_matching(
    score: Score,
    x: Float[Tensor, "n *shape"],
    directions: Float[Tensor, "k n *shape"],
    *,
    reduce: Reduce = torch.mean,
) -> Float[Tensor, "*reduced"]:
    r"""Compares a score with that of the data along random directions only.

    $$\ell(x) = \frac1k \sum_v \Bigl(v^\top \frac{\partial s}{\partial x} v +
    \tfrac12 \bigl(v^\top s(x)\bigr)^2\Bigr)$$

    Where $\mathbb{E} v v^\top = 1$ its mean is that of explicit score matching, for one backward pass a direction.

    Reference:
        Song, Garg, Shi and Ermon, *Sliced Score Matching*, 2019.

    Args:
        score: $s$.
        x: $x$.
        directions: $v$, $k$ of them for each example: see `signs_like`.
        reduce: What to make of the losses of the examples.

    Examples:
        >>> x = torch.tensor([[1.0, 1.0]])
        >>> sliced_score_matching(lambda x: -x, x, torch.tensor([[[1.0, 1.0]], [[1.0, -1.0]]]))
        tensor(-1., grad_fn=<MeanBackward0>)
    """
    s, leaf = _scored(score, x)
    return reduce(
        torch.stack([_along(s, leaf, v) + (s * v).flatten(1).sum(1).square() / 2 for v in directions]).mean(0)
    )


def reduced_sliced_score_matching(
    score: Score,
    x: Float[Tensor, "n *shape"],
    directions: Float[Tensor, "k n *shape"],
    *,
    reduce: Reduce = torch.mean,
) -> Float[Tensor, "*reduced"]:
    r"""Compares as sliced score matching does, with less variance: only the trace is left to chance.

    $$\ell(x) = \tfrac12 \lVert s(x) \rVert^2 + \frac1k \sum_v v^\top \frac{\partial s}{\partial x} v$$

    Reference:
        Song, Garg, Shi and Ermon, *Sliced Score Matching*, 2019.

    Args:
        score: $s$.
        x: $x$.
        directions: $v$, with $\mathbb{E} v v^\top = 1$: see `signs_like`.
        reduce: What to make of the losses of the examples.

    Examples:
        >>> reduced_sliced_score_matching(lambda x: -x, torch.ones(1, 2), torch.ones(1, 1, 2))
        tensor(-1., grad_fn=<MeanBackward0>)
    """
    s, leaf = _scored(score, x)
    trace = torch.stack([_along(s, leaf, v) for v in directions]).mean(0)
    return reduce(s.square().flatten(1).sum(1) / 2 + trace)


def denoising_score_matching(
    score: Score,
    x: Float[Tensor, "n *shape"],
    noise: Float[Tensor, "n *shape"],
    *,
    sigma: float,
    reduce: Reduce = torch.mean,
) -> Float[Tensor, "*reduced"]:
    r"""Compares a score with that of noise that was added.

    $$\ell = \tfrac12 \Bigl\lVert s(x + \sigma \varepsilon) + \frac{\varepsilon}{\sigma} \Bigr\rVert^2$$

    It is least at the score of the *noisy* data, $\nabla \log p_\sigma$, which points back from the noise: hence the
    plus. For several noise levels, and networks that predict something else, see `denoising_error`.

    Reference:
        Vincent, *A Connection Between Score Matching and Denoising Autoencoders*, 2011.

    Args:
        score: $s$.
        x: The clean data.
        noise: $\varepsilon$, standard normal.
        sigma: $\sigma$, above 0.
        reduce: What to make of the losses of the examples.

    Examples:
        >>> denoising_score_matching(lambda y: -y, torch.zeros(1, 2), torch.ones(1, 2), sigma=1.0)
        tensor(0.)
    """
    if not 0 < sigma < float("inf"):
        raise ValueError(f"sigma is above 0, and finite: got {sigma}")
    s = _kept(score(x + sigma * noise), x)
    return reduce((s + noise / sigma).square().flatten(1).sum(1) / 2)


def signs_like(x: Float[Tensor, "n *shape"], *, count: int = 1) -> Float[Tensor, "count n *shape"]:
    r"""Draws directions of random signs, for which $\mathbb{E} v v^\top = 1$ and the trace varies least.

    Args:
        x: What they are for.
        count: How many each example has.

    Examples:
        >>> signs_like(torch.zeros(3, 2), count=4).abs().unique(), signs_like(torch.zeros(3, 2)).shape
        (tensor([1.]), torch.Size([1, 3, 2]))
    """
    if count < 1:
        raise ValueError(f"count is at least 1: got {count}")
    return torch.randint(2, (count, *x.shape), device=x.device).to(x.dtype) * 2 - 1


def _scored(score: Score, x: Tensor) -> tuple[Tensor, Tensor]:
    """The score, and the data that it depends on."""
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        s = score(leaf)
    return _kept(s, x), leaf


def _kept(s: Tensor, x: Tensor) -> Tensor:
    if s.shape != x.shape or not len(x):
        raise ValueError(
            f"at least one example, and a score that keeps the shape {tuple(x.shape)}, are wanted: got {tuple(s.shape)}"
        )
    return s


def _along(s: Tensor, leaf: Tensor, v: Tensor) -> Tensor:
    """The derivative of each example's score along v, in that direction; parameters may learn from it."""
    if not s.requires_grad:
        return s.new_zeros(len(s))
    (slope,) = torch.autograd.grad(s, leaf, v, create_graph=True, allow_unused=True)
    return s.new_zeros(len(s)) if slope is None else (slope * v).flatten(1).sum(1)


def _score_matching_claims() -> Iterator[Claim]:
    """The laws that score matching obeys: each loss is the distance to the true score, up to a constant.

    Expectations are exact: by Gauss-Hermite quadrature, of scores that are polynomials.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(6)
    line, mass = torch.tensor(nodes), torch.tensor(weights / weights.sum())
    pairs, masses = torch.cartesian_prod(line, line), torch.outer(mass, mass).flatten()
    mean, std = torch.tensor([0.5, -1.0]).double(), torch.tensor([0.8, 1.3]).double()
    signs = torch.tensor([[1.0, 1.0], [1.0, -1.0]]).double()[:, None].expand(2, 36, 2)

    def expected(values: Tensor) -> Tensor:
        return (masses.to(values) * values).sum()

    def bent(theta: Tensor, x: Tensor) -> Tensor:
        """A score that is not linear, and whose Jacobian is not symmetric."""
        a, b, c = theta.to(x)
        return torch.stack([a * x[:, 0] + b * x[:, 1] + c * x[:, 0] * x[:, 1], b + c * x[:, 1] ** 2 + x[:, 0]], 1)

    def data(theta: Tensor) -> Tensor:
        return (mean + std * pairs).to(theta)

    def fisher(theta: Tensor) -> Tensor:
        x = data(theta)
        true = -(x - mean.to(x)) / std.to(x).square()
        return expected(((bent(theta, x) - true).square() - true.square()).sum(1) / 2)

    losses = {
        "explicit": lambda f, x: explicit_score_matching(f, x, reduce=expected),
        "sliced": lambda f, x: sliced_score_matching(f, x, signs.to(x), reduce=expected),
        "reduced": lambda f, x: reduced_sliced_score_matching(f, x, signs.to(x), reduce=expected),
    }
    for name, loss in losses.items():

        def found(theta: Tensor, loss: Callable[[Score, Tensor], Tensor] = loss) -> Tensor:
            return loss(lambda x: bent(theta, x), data(theta)).detach()

        yield Claim(agreement(other=fisher), found, shape("3"), name=f"{name} score matching, the Fisher divergence")

    def denoising(theta: Tensor) -> Tensor:
        """Data of mean 0.5 and deviation 0.8 on a line, and noise of 0.6."""
        x, noise = (0.5 + 0.8 * pairs[:, :1]).to(theta), pairs[:, 1:].to(theta)

        def score(y: Tensor) -> Tensor:
            return theta[0] + theta[1] * y + theta[2] * y**2

        return denoising_score_matching(score, x, noise, sigma=0.6, reduce=expected)

    def of_noisy(theta: Tensor) -> Tensor:
        y = (0.5 + 1.0 * line).to(theta)  # its variance is 0.64 + 0.36 = 1
        true = 0.5 - y
        off = (theta[0] + theta[1] * y + theta[2] * y**2 - true).square()
        constant = (1 / 0.6**2 - 1) / 2
        return (mass.to(y) * off).sum() / 2 + constant

    yield Claim(agreement(other=of_noisy), denoising, shape("3"), name="denoising score matching, of the noisy data")

    def spread(x: Tensor) -> Tensor:
        """The variance of sliced score matching with s = -c x and signs, which the reduced one has not."""
        v = torch.tensor([[1.0, 1.0], [1.0, -1.0]]).to(x)[:, None].expand(2, len(x), 2)
        both = [sliced_score_matching(lambda y: -3 * y, x, one[None], reduce=lambda z: z).detach() for one in v]
        return (both[0] - both[1]) / 2

    by_hand = agreement(other=lambda x: 9 * x[:, 0] * x[:, 1])
    yield Claim(by_hand, spread, shape("n 2"), name="what the direction changes")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _denoising_claims()
    yield from _noise_levels_claims()
    yield from _score_matching_claims()
