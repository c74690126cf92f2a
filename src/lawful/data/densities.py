"""Densities with exact log-density, score and entropy, also under noise: uniform boxes and Gaussian mixtures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.random import categorical_noise, integer_noise, normal_noise, resolve_seed, uniform_noise
from lawful.laws import Claim, agreement, derivative, samples_follow_density, shape


@runtime_checkable
class Density(Protocol):
    """Density with samples, log-density, score and entropy, also under Gaussian noise."""

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        ...

    @property
    def entropy(self) -> float:
        r"""Entropy $-\int p \log p$, in nats."""
        ...

    def sample(self, n: int, seed: int | None = None, *, first: int = 0) -> Float[Tensor, "n d"]:
        """Draws samples; with a seed, sample i does not depend on n."""
        ...

    def log_prob(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
        r"""Returns $\log p(x)$."""
        ...

    def score(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        r"""Returns the score $\nabla \log p(x)$."""
        ...

    def with_noise(self, alpha: float, sigma: float) -> Density:
        r"""Returns the density of $\alpha x + \sigma \varepsilon$, $\varepsilon \sim N(0, 1)$."""
        ...

    def denoise(self, y: Float[Tensor, "*batch d"], alpha: float, sigma: float) -> Float[Tensor, "*batch d"]:
        r"""Returns the posterior mean $\mathbb{E}[x \mid \alpha x + \sigma \varepsilon = y]$."""
        ...


def _check_noise(alpha: float, sigma: float) -> None:
    if not (0 <= alpha < float("inf") and 0 <= sigma < float("inf")) or alpha == sigma == 0:
        raise ValueError(f"expected finite alpha >= 0 and sigma >= 0, not both 0, got {alpha} and {sigma}")


@dataclass(frozen=True, eq=False)
class UniformBoxes:
    r"""Uniform density on disjoint boxes of one size, optionally with Gaussian noise.

    $$p(x) = \frac{1}{K} \sum_k \prod_j \frac{\Phi\bigl((x_j - c_{kj} + h) / s\bigr)
    - \Phi\bigl((x_j - c_{kj} - h) / s\bigr)}{2 h}$$

    Without noise the density is piecewise constant. With noise the density and the score are smooth and finite
    everywhere.

    Args:
        centers: Centers $c$ of the boxes.
        half_width: Half the side $h$ of a box.
        noise_std: Standard deviation $s$ of the noise.

    Examples:
        >>> one = UniformBoxes(torch.zeros(1, 2), half_width=0.5)
        >>> one.log_prob(torch.tensor([[0.2, 0.4], [0.2, 0.6]])), one.entropy
        (tensor([0., -inf]), 0.0)
    """

    centers: Float[Tensor, "k d"]
    half_width: float
    noise_std: float = 0.0

    def __post_init__(self) -> None:
        if not (
            0 <= self.half_width < math.inf and 0 <= self.noise_std < math.inf and self.half_width + self.noise_std > 0
        ):
            raise ValueError(
                f"expected half_width >= 0 and noise_std >= 0, not both 0, got {self.half_width} and {self.noise_std}"
            )

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return self.centers.shape[1]

    def sample(self, n: int, seed: int | None = None, *, first: int = 0) -> Float[Tensor, "n d"]:
        """Draws samples; with a seed, sample i does not depend on n."""
        seed = resolve_seed(seed)
        like = {"seed": seed, "first": first, "dtype": self.centers.dtype, "device": self.centers.device}
        which = integer_noise(n, high=len(self.centers), seed=seed, first=first, stream=1)
        x = self.centers[which] + self.half_width * (2 * uniform_noise(n, self.dim, stream=2, **like) - 1)
        return x + self.noise_std * normal_noise(n, self.dim, **like) if self.noise_std else x

    def log_prob(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
        r"""Returns $\log p(x)$."""
        off = x[..., None, :] - self.centers
        return self._axis_log_density(off)[0].sum(-1).logsumexp(-1) - math.log(len(self.centers))

    def score(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        r"""Returns the score $\nabla \log p(x)$."""
        if not self.noise_std:
            return torch.where(x.isnan(), x, 0.0)
        off = x[..., None, :] - self.centers
        logs, inside = self._axis_log_density(off)
        slopes = (self.half_width * inside - off) / self.noise_std**2
        return (logs.sum(-1).softmax(-1)[..., None] * slopes).sum(-2)

    def with_noise(self, alpha: float, sigma: float) -> UniformBoxes:
        r"""Returns the density of $\alpha x + \sigma \varepsilon$."""
        _check_noise(alpha, sigma)
        return replace(
            self,
            centers=alpha * self.centers,
            half_width=alpha * self.half_width,
            noise_std=math.hypot(alpha * self.noise_std, sigma),
        )

    def denoise(self, y: Float[Tensor, "*batch d"], alpha: float, sigma: float) -> Float[Tensor, "*batch d"]:
        r"""Returns the posterior mean $\mathbb{E}[x \mid \alpha x + \sigma \varepsilon = y]$."""
        noisy = self.with_noise(alpha, sigma)
        off = y[..., None, :] - noisy.centers
        logs, inside = noisy._axis_log_density(off)
        back = alpha * self.noise_std**2 / noisy.noise_std**2 if noisy.noise_std else 0.0
        means = self.centers + self.half_width * inside + back * (off - noisy.half_width * inside)
        return (logs.sum(-1).softmax(-1)[..., None] * means).sum(-2) if noisy.noise_std else y / alpha

    @cached_property
    def entropy(self) -> float:
        r"""Entropy in nats: exact without noise, else by the trapezoidal rule in 1 and 2 dimensions.

        In more dimensions it is $H(x \mid k) + H(k) - \mathbb{E} \, H(k \mid x)$ with the box $k$ of $x$; the last term
        is estimated from $2^{16}$ samples (error below $\log K / 500$).
        """
        if not self.noise_std:
            return math.log(len(self.centers)) + self.dim * math.log(2 * self.half_width)
        centers = self.centers.double().cpu()
        if self.dim < 3:
            return self._entropy_on_grid(centers)
        double = replace(self, centers=centers)
        boxes = double._axis_log_density(double.sample(2**16, seed=0)[:, None] - centers)[0].sum(-1).softmax(-1)
        ambiguity = float(torch.special.entr(boxes).sum(-1).mean())
        return self.dim * self._entropy_on_grid(centers[:1, :1] * 0) + math.log(len(centers)) - ambiguity

    def _entropy_on_grid(self, centers: Tensor) -> float:
        factors, cell_volume = [], 1.0
        for c in centers.mT:
            low, high, reach = float(c.min()) - self.half_width, float(c.max()) + self.half_width, 9 * self.noise_std
            n = min(4000, max(200, math.ceil(4 * (high - low + 2 * reach) / self.noise_std)))
            x = torch.linspace(low - reach, high + reach, n, dtype=torch.float64)
            factors.append(self._axis_log_density(x - c[:, None])[0].exp())
            cell_volume *= float(x[1] - x[0])
        p = (torch.einsum("ka,kb->ab", *factors) if len(factors) == 2 else factors[0].sum(0)) / len(centers)
        return float(torch.special.entr(p).sum()) * cell_volume

    def to(self, dtype: torch.dtype) -> UniformBoxes:
        """Converts the data type."""
        return replace(self, centers=self.centers.to(dtype))

    def _axis_log_density(self, off: Tensor) -> tuple[Tensor, Tensor]:
        r"""Returns the log-density of $h u + s \varepsilon$ along each coordinate, and the posterior mean of $u$.

        $u$ is uniform on [-1, 1]. Differences of $\Phi$ cancel if the box is small relative to the noise; then
        Gauss-Legendre quadrature is used.
        """
        h, s, distance = self.half_width, self.noise_std, off.abs()
        if not s:
            logs = torch.where(distance > h, -math.inf, 0 * distance) - math.log(2 * h)
            return logs, off / h
        tilt, bend = distance * (h / s**2), h**2 / (2 * s**2)
        use_quadrature = tilt < 8 if bend < 0.5 else torch.zeros_like(tilt, dtype=torch.bool)
        logs, means = self._axis_log_density_from_tails(
            torch.where(use_quadrature, 9 * s**2 / h + h, distance) if h else distance
        )
        if bend < 0.5:
            nodes, weights = (torch.from_numpy(a).to(off) for a in np.polynomial.legendre.leggauss(20))
            terms = (tilt.clamp_max(8)[..., None] * nodes - bend * nodes.square()).exp() * weights / 2
            total = terms.sum(-1)
            normal = -0.5 * (distance / s).square() - math.log(s * math.sqrt(2 * math.pi))
            logs = torch.where(use_quadrature, normal + total.log(), logs)
            means = torch.where(use_quadrature, terms @ nodes / total, means)
        return logs, means * off.sign()

    def _axis_log_density_from_tails(self, distance: Tensor) -> tuple[Tensor, Tensor]:
        h, s = self.half_width, self.noise_std
        if not h:
            return distance, distance
        a, b = -(h + distance) / s, (h - distance) / s
        left, right = torch.special.log_ndtr(a), torch.special.log_ndtr(b)
        logs = right + torch.log1p(-(left - right).exp())
        tail_ratio = math.sqrt(2 / math.pi) / torch.special.erfcx(-b.clamp_max(0) / math.sqrt(2))
        upper = torch.where(b < 0, tail_ratio, (-0.5 * (b.square() + math.log(2 * math.pi)) - right).exp())
        upper = upper / -torch.expm1(left - right)
        lower = (-2 * h * distance / s**2).exp() * upper
        return logs - math.log(2 * h), ((distance + s * (lower - upper)) / h).clamp(-1, 1)


def checkerboard(*, cells: int = 4, side: float = 1.0, dtype: torch.dtype = torch.float64) -> UniformBoxes:
    r"""Returns the uniform density on the squares of one color of a checkerboard around 0.

    $$H = \log \tfrac12 (\text{cells} \cdot \text{side})^2$$

    Args:
        cells: Even number of squares along each edge.
        side: Side of a square.
        dtype: Data type.

    Examples:
        >>> checkerboard().entropy == math.log(8)
        True
    """
    if cells < 2 or cells % 2:
        raise ValueError(f"expected an even number of cells >= 2, got {cells}")
    positions = torch.arange(cells, dtype=dtype) * side - side * (cells - 1) / 2
    centers = torch.cartesian_prod(positions, positions)
    colored = (torch.arange(cells)[:, None] + torch.arange(cells)).reshape(-1) % 2 == 0
    return UniformBoxes(centers[colored], half_width=side / 2)


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    r"""Mixture of Gaussians.

    $$p(x) = \sum_k w_k \, N(x; \mu_k, \Sigma_k), \qquad
    \nabla \log p(x) = -\sum_k r_k(x) \, \Sigma_k^{-1} (x - \mu_k), \quad r_k \propto w_k \, N(x; \mu_k, \Sigma_k)$$

    $\alpha x + \sigma \varepsilon$ is a mixture with means $\alpha \mu_k$ and covariances
    $\alpha^2 \Sigma_k + \sigma^2$. Covariances are stored as eigenvectors and eigenvalues, so that adding noise
    needs no decomposition.

    Args:
        weights: Weights $w$, normalized to sum to 1.
        means: Means $\mu$.
        variances: Eigenvalues of $\Sigma_k$.
        axes: Eigenvectors of $\Sigma_k$, as columns. Defaults to the coordinate axes.

    Examples:
        >>> two = GaussianMixture.from_moments(means=torch.tensor([[-1.0], [1.0]]), scale=0.1)
        >>> two.with_noise(0.0, 2.0).log_prob(torch.zeros(1)), two.denoise(torch.tensor([[0.5]]), 1.0, 0.1)
        (tensor(-1.6121), tensor([[0.7500]]))
    """

    weights: Float[Tensor, " k"]
    means: Float[Tensor, "k d"]
    variances: Float[Tensor, "k d"]
    axes: Float[Tensor, "k d d"] | None = None

    def __post_init__(self) -> None:
        if not (bool((self.weights >= 0).all()) and 0 < float(self.weights.sum()) < math.inf):
            raise ValueError(f"expected non-negative weights with a positive sum, got {self.weights.tolist()}")
        if not (bool(self.means.isfinite().all()) and bool(self.variances.isfinite().all())):
            raise ValueError("expected finite means and covariances, got NaN or infinity")
        if not bool((self.variances > 0).all()):
            raise ValueError(f"expected positive definite covariances, got eigenvalue {float(self.variances.min()):g}")

    @classmethod
    def from_moments(
        cls,
        *,
        means: Float[Tensor, "k d"],
        covariances: Float[Tensor, "k d d"] | None = None,
        scale: float = 1.0,
        weights: Float[Tensor, " k"] | None = None,
    ) -> GaussianMixture:
        """Builds a mixture with given covariances, or isotropic ones of standard deviation `scale`."""
        weights = means.new_ones(len(means)) if weights is None else weights
        if covariances is None:
            return cls(weights, means, torch.full_like(means, scale**2))
        return cls(weights, means, *torch.linalg.eigh(covariances))

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return self.means.shape[1]

    @cached_property
    def p(self) -> Float[Tensor, " k"]:
        """Probability of each component."""
        return self.weights / self.weights.sum()

    @property
    def mean(self) -> Float[Tensor, " d"]:
        """Mean of the mixture."""
        return self.p @ self.means

    @cached_property
    def covariance(self) -> Float[Tensor, "d d"]:
        """Covariance of the mixture."""
        off = self.means - self.mean
        return torch.einsum("k,kij->ij", self.p, self.covariances) + (self.p[:, None] * off).mT @ off

    @property
    def covariances(self) -> Float[Tensor, "k d d"]:
        r"""$\Sigma$."""
        if self.axes is None:
            return torch.diag_embed(self.variances)
        return (self.axes * self.variances[:, None]) @ self.axes.mT

    def sample(self, n: int, seed: int | None = None, *, first: int = 0) -> Float[Tensor, "n d"]:
        """Draws samples; with a seed, sample i does not depend on n."""
        seed = resolve_seed(seed)
        z = normal_noise(n, self.dim, seed=seed, first=first, dtype=self.means.dtype, device=self.means.device)
        which = self.sample_components(n, seed, first=first)
        return self.means[which] + self._from_axes(z * self.variances[which].sqrt(), which)

    def sample_components(self, n: int, seed: int, *, first: int = 0) -> Tensor:
        """Returns the component of each sample."""
        if len(self.weights) == 1:
            return torch.zeros(n, dtype=torch.long, device=self.means.device)
        return categorical_noise(n, self.weights, seed=seed, stream=1, first=first)

    def log_prob(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
        r"""Returns $\log p(x)$."""
        return self._component_log_probs(self._along_axes(x)).logsumexp(-1)

    def score(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        r"""Returns the score $\nabla \log p(x)$."""
        off = self._along_axes(x)
        return -self._mix_components(off, off / self.variances)

    def responsibilities(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch k"]:
        """Returns the posterior probability of each component."""
        return self._component_log_probs(self._along_axes(x)).softmax(-1)

    def with_noise(self, alpha: float, sigma: float) -> GaussianMixture:
        r"""Returns the density of $\alpha x + \sigma \varepsilon$."""
        _check_noise(alpha, sigma)
        return replace(self, means=alpha * self.means, variances=alpha**2 * self.variances + sigma**2)

    def denoise(self, y: Float[Tensor, "*batch d"], alpha: float, sigma: float) -> Float[Tensor, "*batch d"]:
        r"""Returns the posterior mean $\mathbb{E}[x \mid \alpha x + \sigma \varepsilon = y]
        = \sum_k r_k(y) \bigl(\mu_k + \alpha \Sigma_k (\alpha^2 \Sigma_k + \sigma^2)^{-1} (y - \alpha \mu_k)\bigr)$.
        """
        noisy = self.with_noise(alpha, sigma)
        off = noisy._along_axes(y)
        return noisy._mix_components(off, off * (alpha * self.variances / noisy.variances), self.means)

    @cached_property
    def entropy(self) -> float:
        r"""Entropy in nats: exact for one component, else through the posterior of the component $k$.

        $$H(x) = H(x \mid k) + H(k) - \mathbb{E} \, H(k \mid x)$$

        The last term is computed by Gauss-Hermite quadrature in up to 3 dimensions (about six digits), else estimated
        from $2^{16}$ samples (error below $\log K / 500$).
        """
        double = self.to(torch.float64, "cpu")
        p = double.p
        inside = 0.5 * self.dim * (math.log(2 * math.pi) + 1) + float(p @ double.variances.log().sum(-1)) / 2
        if len(p) == 1:
            return inside
        if self.dim > 3:
            ambiguity = _entropies(double.responsibilities(double.sample(2**16, seed=0))).mean()
        else:
            nodes, weights = (
                torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss((200, 60, 24)[self.dim - 1])
            )
            z = torch.cartesian_prod(*(nodes,) * self.dim).reshape(-1, self.dim)
            w = torch.cartesian_prod(*(weights / weights.sum(),) * self.dim).reshape(-1, self.dim).prod(-1)
            z, w = z[w > 1e-18], w[w > 1e-18]
            every = double.means[:, None] + double._from_axes(z * double.variances.sqrt()[:, None], slice(None))
            ambiguity = sum(q * (_entropies(double.responsibilities(x)) @ w) for q, x in zip(p, every, strict=True))
        return inside + float(_entropies(p)) - float(ambiguity)

    def to(self, dtype: torch.dtype, device: torch.device | str | None = None) -> GaussianMixture:
        """Converts the data type and device."""
        weights, means, variances = (x.to(device, dtype) for x in (self.weights, self.means, self.variances))
        return GaussianMixture(weights, means, variances, None if self.axes is None else self.axes.to(device, dtype))

    def _along_axes(self, x: Tensor) -> Tensor:
        """Returns the deviation from each mean, in the axes of its component: (..., k, d)."""
        off = x[..., None, :] - self.means
        return off if self.axes is None else torch.einsum("...ki,kij->...kj", off, self.axes)

    def _from_axes(self, z: Tensor, which: Tensor | slice) -> Tensor:
        return z if self.axes is None else torch.einsum("n...j,nij->n...i", z, self.axes[which])

    @cached_property
    def _log_scales(self) -> Tensor:
        return self.p.log() - 0.5 * (self.variances.log().sum(-1) + self.dim * math.log(2 * math.pi))

    def _component_log_probs(self, off: Tensor) -> Tensor:
        return self._log_scales - 0.5 * (off.square() / self.variances).sum(-1)

    def _mix_components(self, off: Tensor, values: Tensor, means: Tensor | None = None) -> Tensor:
        """Averages vectors in the axes of the components, plus the means, weighted by responsibilities."""
        r = self._component_log_probs(off).softmax(-1)
        weighed = r[..., None] * values
        mixed = weighed.sum(-2) if self.axes is None else torch.einsum("...kj,kij->...i", weighed, self.axes)
        return mixed if means is None else mixed + r @ means


def _entropies(p: Tensor) -> Tensor:
    return torch.special.entr(p).sum(-1)


def gaussian_density(mean: Float[Tensor, " d"], covariance: Float[Tensor, "d d"]) -> GaussianMixture:
    r"""Returns a Gaussian density, a mixture of one component.

    $$p(x) = \frac{1}{\sqrt{|2 \pi \Sigma|}} \exp\bigl(-\tfrac12 (x - \mu)^\mathsf{T} \Sigma^{-1} (x - \mu)\bigr),
    \qquad H = \tfrac12 \log |2 \pi e \Sigma|$$

    Args:
        mean: Mean $\mu$.
        covariance: Positive definite covariance $\Sigma$.

    Examples:
        >>> round(gaussian_density(torch.zeros(2), torch.eye(2)).entropy, 4)
        2.8379
    """
    return GaussianMixture.from_moments(means=mean[None], covariances=covariance[None])


def ring(
    *, modes: int = 8, radius: float = 2.0, scale: float = 0.2, dtype: torch.dtype = torch.float64
) -> GaussianMixture:
    r"""Returns a mixture of Gaussians equally spaced on a circle.

    $$\mu_k = r \, (\cos \tfrac{2 \pi k}{K}, \sin \tfrac{2 \pi k}{K}), \qquad \Sigma_k = s^2$$

    Args:
        modes: Number of modes $K$.
        radius: Radius $r$.
        scale: Standard deviation $s$ of a mode.
        dtype: Data type.

    Examples:
        >>> ring().means.shape, round(ring().entropy, 3)
        (torch.Size([8, 2]), 1.698)
    """
    if modes < 1:
        raise ValueError(f"expected modes >= 1, got {modes}")
    angles = 2 * math.pi * torch.arange(modes, dtype=dtype) / modes
    return GaussianMixture.from_moments(means=radius * torch.stack([angles.cos(), angles.sin()], dim=1), scale=scale)


def grid(
    *, side: int = 5, spacing: float = 1.0, scale: float = 0.1, dtype: torch.dtype = torch.float64
) -> GaussianMixture:
    """Returns a mixture of Gaussians on a square grid around 0.

    Args:
        side: Number of modes along each edge.
        spacing: Distance of neighboring modes.
        scale: Standard deviation of a mode.
        dtype: Data type.

    Examples:
        >>> len(grid().weights)
        25
    """
    if side < 1:
        raise ValueError(f"expected side >= 1, got {side}")
    positions = spacing * (torch.arange(side, dtype=dtype) - (side - 1) / 2)
    return GaussianMixture.from_moments(means=torch.cartesian_prod(positions, positions), scale=scale)


def two_moons(*, modes: int = 32, scale: float = 0.1, dtype: torch.dtype = torch.float64) -> GaussianMixture:
    r"""Returns a mixture of Gaussians along two interleaving half circles.

    $$\mu = (\cos t, \sin t) \quad \text{and} \quad \mu = (1 - \cos t, \tfrac12 - \sin t), \qquad t \in [0, \pi]$$

    Args:
        modes: Number of modes of each moon.
        scale: Standard deviation of a mode.
        dtype: Data type.

    Examples:
        >>> two_moons().sample(3).shape
        torch.Size([3, 2])
    """
    if modes < 1:
        raise ValueError(f"expected modes >= 1, got {modes}")
    t = math.pi * (torch.arange(modes, dtype=dtype) + 0.5) / modes
    upper = torch.stack([t.cos(), t.sin()], dim=1)
    return GaussianMixture.from_moments(means=torch.cat([upper, upper.new_tensor([1.0, 0.5]) - upper]), scale=scale)


def claims() -> Iterator[Claim]:
    """Scores are gradients, samples follow the density, and denoising satisfies Tweedie's formula."""
    density = two_moons(modes=3)

    def log_prob(x: Tensor) -> Tensor:
        return density.to(x.dtype).log_prob(x)

    def denoised(y: Tensor) -> Tensor:
        return density.to(y.dtype).denoise(y, 0.6, 0.7)

    def tweedie(y: Tensor) -> Tensor:
        return (y + 0.7**2 * density.to(y.dtype).with_noise(0.6, 0.7).score(y)) / 0.6

    inputs = shape("b 2")
    gradient = derivative(formula=lambda x: density.to(x.dtype).score(x))
    yield Claim(gradient, log_prob, inputs, name="GaussianMixture.score")
    follows = replace(samples_follow_density(sample=lambda n: density.sample(n), log_prob=log_prob), cases=2)
    yield Claim(follows, log_prob, inputs, name="GaussianMixture.sample")
    yield Claim(agreement(other=tweedie), denoised, inputs, name="GaussianMixture.denoise")
