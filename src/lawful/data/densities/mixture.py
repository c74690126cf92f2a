"""Gaussians and mixtures of them, with what becomes of them under noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lawful.data.densities.density import check_noise
from lawful.functions.noise import categorical_noise, normal_noise
from lawful.laws import Claim, agreement, derivative, samples_follow_density, shape


@dataclass(frozen=True, eq=False)
class Mixture:
    r"""Mixes Gaussians.

    $$p(x) = \sum_k w_k \, N(x; \mu_k, \Sigma_k), \qquad
    \nabla \log p(x) = -\sum_k r_k(x) \, \Sigma_k^{-1} (x - \mu_k), \quad r_k \propto w_k \, N(x; \mu_k, \Sigma_k)$$

    Under noise it stays one: $\alpha x + \sigma \varepsilon$ has the means $\alpha \mu_k$ and the covariances
    $\alpha^2 \Sigma_k + \sigma^2$. These are kept as axes and variances along them, so that noise costs no
    decomposition.

    Args:
        weights: $w$, which are made to add up to 1.
        means: $\mu$.
        variances: The variances along the axes of each component, the eigenvalues of $\Sigma_k$.
        axes: The axes, columns of an orthogonal matrix for each component; those of the coordinates unless given.

    Examples:
        >>> two = Mixture.of(means=torch.tensor([[-1.0], [1.0]]), scale=0.1)
        >>> two.noised(0.0, 2.0).log_prob(torch.zeros(1)), two.denoised(torch.tensor([[0.5]]), 1.0, 0.1)
        (tensor(-1.6121), tensor([[0.7500]]))
    """

    weights: Float[Tensor, " k"]
    means: Float[Tensor, "k d"]
    variances: Float[Tensor, "k d"]
    axes: Float[Tensor, "k d d"] | None = None

    def __post_init__(self) -> None:
        if not (bool((self.weights >= 0).all()) and 0 < float(self.weights.sum()) < math.inf):
            raise ValueError(
                f"weights that are not negative, and one above 0, were wanted: got {self.weights.tolist()}"
            )
        if not (bool(self.means.isfinite().all()) and bool(self.variances.isfinite().all())):
            raise ValueError("finite means and covariances were wanted: got NaN or infinite ones")
        if not bool((self.variances > 0).all()):
            least = float(self.variances.min())
            raise ValueError(f"positive definite covariances were wanted: got one with the eigenvalue {least:g}")

    @classmethod
    def of(
        cls,
        *,
        means: Float[Tensor, "k d"],
        covariances: Float[Tensor, "k d d"] | None = None,
        scale: float = 1.0,
        weights: Float[Tensor, " k"] | None = None,
    ) -> Mixture:
        """Mixes Gaussians of any covariances, or of one `scale` in every direction; evenly, or by weight."""
        weights = means.new_ones(len(means)) if weights is None else weights
        if covariances is None:
            return cls(weights, means, torch.full_like(means, scale**2))
        return cls(weights, means, *torch.linalg.eigh(covariances))

    @property
    def d(self) -> int:
        """The dimension."""
        return self.means.shape[1]

    @cached_property
    def p(self) -> Float[Tensor, " k"]:
        """How probable each component is."""
        return self.weights / self.weights.sum()

    @property
    def mean(self) -> Float[Tensor, " d"]:
        """The mean of all."""
        return self.p @ self.means

    @cached_property
    def covariance(self) -> Float[Tensor, "d d"]:
        """The covariance of all: that within the components, and that of their means."""
        off = self.means - self.mean
        return torch.einsum("k,kij->ij", self.p, self.covariances) + (self.p[:, None] * off).mT @ off

    @property
    def covariances(self) -> Float[Tensor, "k d d"]:
        r"""$\Sigma$."""
        if self.axes is None:
            return torch.diag_embed(self.variances)
        return (self.axes * self.variances[:, None]) @ self.axes.mT

    def sample(self, n: int, seed: int = 0, *, first: int = 0) -> Float[Tensor, "n d"]:
        """Draws the samples `first` to `first + n - 1` of a seed."""
        z = normal_noise(n, self.d, seed=seed, first=first, dtype=self.means.dtype, device=self.means.device)
        which = self.components(n, seed, first=first)
        return self.means[which] + self._out_of_axes(z * self.variances[which].sqrt(), which)

    def components(self, n: int, seed: int = 0, *, first: int = 0) -> Tensor:
        """Says which components samples come from."""
        if len(self.weights) == 1:
            return torch.zeros(n, dtype=torch.long, device=self.means.device)
        return categorical_noise(n, self.weights, seed=seed, stream=1, first=first)

    def log_prob(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
        r"""$\log p(x)$."""
        return self._logs(self._along_axes(x)).logsumexp(-1)

    def score(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        r"""$\nabla \log p(x)$."""
        off = self._along_axes(x)
        return -self._mixed(off, off / self.variances)

    def responsibilities(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch k"]:
        """How probable it is that a point came from each component."""
        return self._logs(self._along_axes(x)).softmax(-1)

    def noised(self, alpha: float, sigma: float) -> Mixture:
        r"""Returns the density of $\alpha x + \sigma \varepsilon$."""
        check_noise(alpha, sigma)
        return replace(self, means=alpha * self.means, variances=alpha**2 * self.variances + sigma**2)

    def denoised(self, y: Float[Tensor, "*batch d"], alpha: float, sigma: float) -> Float[Tensor, "*batch d"]:
        r"""$\mathbb{E}[x \mid \alpha x + \sigma \varepsilon = y]
        = \sum_k r_k(y) \bigl(\mu_k + \alpha \Sigma_k (\alpha^2 \Sigma_k + \sigma^2)^{-1} (y - \alpha \mu_k)\bigr)$.
        """
        there = self.noised(alpha, sigma)
        off = there._along_axes(y)
        return there._mixed(off, off * (alpha * self.variances / there.variances), self.means)

    @cached_property
    def entropy(self) -> float:
        r"""In nats: of one Gaussian by the formula, of several by what a point says about its component $k$.

        $$H(x) = H(x \mid k) + H(k) - \mathbb{E} \, H(k \mid x)$$

        The last is an integral of a bounded function: by Gauss and Hermite around each component in up to 3 dimensions
        (about six digits), beyond by $2^{16}$ samples (error below $\log K / 500$).
        """
        double = self.to(torch.float64, "cpu")
        p = double.p
        inside = 0.5 * self.d * (math.log(2 * math.pi) + 1) + float(p @ double.variances.log().sum(-1)) / 2
        if len(p) == 1:
            return inside
        if self.d > 3:
            doubt = _entropies(double.responsibilities(double.sample(2**16))).mean()
        else:
            nodes, weights = (
                torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss((200, 60, 24)[self.d - 1])
            )
            z = torch.cartesian_prod(*(nodes,) * self.d).reshape(-1, self.d)
            w = torch.cartesian_prod(*(weights / weights.sum(),) * self.d).reshape(-1, self.d).prod(-1)
            z, w = z[w > 1e-18], w[w > 1e-18]
            every = double.means[:, None] + double._out_of_axes(z * double.variances.sqrt()[:, None], slice(None))
            doubt = sum(q * (_entropies(double.responsibilities(x)) @ w) for q, x in zip(p, every, strict=True))
        return inside + float(_entropies(p)) - float(doubt)

    def to(self, dtype: torch.dtype, device: torch.device | str | None = None) -> Mixture:
        """Returns it in another precision, or elsewhere."""
        weights, means, variances = (x.to(device, dtype) for x in (self.weights, self.means, self.variances))
        return Mixture(weights, means, variances, None if self.axes is None else self.axes.to(device, dtype))

    def _along_axes(self, x: Tensor) -> Tensor:
        """What is off each mean, along its axes: (..., k, d)."""
        off = x[..., None, :] - self.means
        return off if self.axes is None else torch.einsum("...ki,kij->...kj", off, self.axes)

    def _out_of_axes(self, z: Tensor, which: Tensor | slice) -> Tensor:
        return z if self.axes is None else torch.einsum("n...j,nij->n...i", z, self.axes[which])

    @cached_property
    def _log_scales(self) -> Tensor:
        return self.p.log() - 0.5 * (self.variances.log().sum(-1) + self.d * math.log(2 * math.pi))

    def _logs(self, off: Tensor) -> Tensor:
        return self._log_scales - 0.5 * (off.square() / self.variances).sum(-1)

    def _mixed(self, off: Tensor, values: Tensor, means: Tensor | None = None) -> Tensor:
        """The mean, by responsibility, of a vector of each component, given along its axes, and of its mean."""
        r = self._logs(off).softmax(-1)
        weighed = r[..., None] * values
        mixed = weighed.sum(-2) if self.axes is None else torch.einsum("...kj,kij->...i", weighed, self.axes)
        return mixed if means is None else mixed + r @ means


def _entropies(p: Tensor) -> Tensor:
    return torch.special.entr(p).sum(-1)


def Gaussian(mean: Float[Tensor, " d"], covariance: Float[Tensor, "d d"]) -> Mixture:  # noqa: N802
    r"""Makes a Gaussian, a mixture of one component.

    $$p(x) = \frac{1}{\sqrt{|2 \pi \Sigma|}} \exp\bigl(-\tfrac12 (x - \mu)^\mathsf{T} \Sigma^{-1} (x - \mu)\bigr),
    \qquad H = \tfrac12 \log |2 \pi e \Sigma|$$

    Args:
        mean: $\mu$.
        covariance: $\Sigma$, positive definite.

    Examples:
        >>> round(Gaussian(torch.zeros(2), torch.eye(2)).entropy, 4)
        2.8379
    """
    return Mixture.of(means=mean[None], covariances=covariance[None])


def claims() -> Iterator[Claim]:
    """The laws that mixtures obey."""
    factors = torch.tensor([[[1.0, 0.0], [0.5, 0.8]], [[0.6, 0.3], [0.0, 0.4]], [[0.9, -0.2], [0.1, 0.7]]])
    covariances, means = factors @ factors.mT, torch.tensor([[-1.0, 0.0], [1.0, 0.5], [0.0, -1.5]])
    weights = torch.tensor([0.5, 0.25, 0.25])

    def like(x: Tensor) -> Mixture:
        given = (means.to(x), covariances.to(x), weights.to(x))
        return Mixture.of(means=given[0], covariances=given[1], weights=given[2])

    def log_prob(x: Tensor) -> Tensor:
        return like(x).log_prob(x)

    def written_out(x: Tensor) -> Tensor:
        parts = zip(weights.to(x), means.to(x), covariances.to(x), strict=True)
        normal = torch.distributions.MultivariateNormal
        return torch.stack([normal(m, c).log_prob(x) + w.log() for w, m, c in parts]).logsumexp(0)

    near = shape("b 2")
    yield Claim(agreement(other=written_out), log_prob, near, name="Mixture.log_prob")
    yield Claim(derivative(formula=lambda x: like(x).score(x)), log_prob, near, name="Mixture.score")

    def sampled(n: int) -> Tensor:
        return like(torch.zeros(1)).sample(n, seed=int(torch.randint(2**31, ())))

    yield Claim(samples_follow_density(sample=sampled, log_prob=log_prob), log_prob, near, name="Mixture.sample")

    def by_tweedie(x: Tensor) -> Tensor:
        return (x + 0.7**2 * like(x).noised(0.6, 0.7).score(x)) / 0.6

    def denoised(x: Tensor) -> Tensor:
        return like(x).denoised(x, 0.6, 0.7)

    yield Claim(agreement(other=by_tweedie), denoised, near, name="Mixture.denoised = (y + σ² score) / α")

    def under_noise(x: Tensor) -> Tensor:
        given = 0.6 * means.to(x), 0.36 * covariances.to(x) + 0.49 * torch.eye(2).to(x)
        return Mixture.of(means=given[0], covariances=given[1], weights=weights.to(x)).log_prob(x)

    def noised(x: Tensor) -> Tensor:
        return like(x).noised(0.6, 0.7).log_prob(x)

    yield Claim(agreement(other=under_noise), noised, near, name="Mixture.noised")
    isotropic = Mixture.of(means=means, scale=0.5)
    full = Mixture.of(means=means, covariances=0.25 * torch.eye(2).expand(3, 2, 2))
    for method in ("log_prob", "score", "responsibilities"):

        def of_one_scale(x: Tensor, method: str = method) -> Tensor:
            return getattr(isotropic.to(x.dtype), method)(x)

        def of_matrices(x: Tensor, method: str = method) -> Tensor:
            return getattr(full.to(x.dtype), method)(x)

        yield Claim(agreement(other=of_matrices), of_one_scale, near, name=f"Mixture.{method}, one scale")
