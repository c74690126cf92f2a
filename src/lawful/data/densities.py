"""What a density known by a formula can say.

Uniform densities on boxes, blurred or not; a checkerboard is one.
Gaussians and mixtures of them, with what becomes of them under noise.
Densities in the plane, made of Gaussians: a ring, a grid, two moons.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.random import categorical_noise, integer_noise, normal_noise, uniform_noise
from lawful.laws import Claim, agreement, derivative, samples_follow_density, shape, transformed


@runtime_checkable
class Density(Protocol):
    r"""Knows its samples, its log-density and score, its entropy, and all of these under Gaussian noise."""

    @property
    def d(self) -> int:
        """The dimension."""
        ...

    @property
    def entropy(self) -> float:
        r"""$-\int p \log p$ in nats: by a formula, or by quadrature where there is none."""
        ...

    def sample(self, n: int, seed: int = 0, *, first: int = 0) -> Float[Tensor, "n d"]:
        """Draws the samples `first` to `first + n - 1` of a seed."""
        ...

    def log_prob(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
        r"""$\log p(x)$."""
        ...

    def score(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        r"""$\nabla \log p(x)$."""
        ...

    def noised(self, alpha: float, sigma: float) -> Density:
        r"""Returns the density of $\alpha x + \sigma \varepsilon$, $\varepsilon \sim N(0, 1)$."""
        ...

    def denoised(self, y: Float[Tensor, "*batch d"], alpha: float, sigma: float) -> Float[Tensor, "*batch d"]:
        r"""$\mathbb{E}[x \mid \alpha x + \sigma \varepsilon = y]$, at $\alpha = 0$ and at $\sigma = 0$ too."""
        ...


def check_noise(alpha: float, sigma: float) -> None:
    """Refuses what is no scale of a signal and of noise."""
    if not (0 <= alpha < float("inf") and 0 <= sigma < float("inf")) or alpha == sigma == 0:
        raise ValueError(f"alpha and sigma are not negative, finite, and not both 0: got {alpha} and {sigma}")


@dataclass(frozen=True, eq=False)
class Boxes:
    r"""Chooses one of some disjoint boxes of one size, then a point inside evenly, and blurs it by Gaussian noise.

    $$p(x) = \frac{1}{K} \sum_k \prod_j \frac{\Phi\bigl((x_j - c_{kj} + h) / s\bigr)
    - \Phi\bigl((x_j - c_{kj} - h) / s\bigr)}{2 h}$$

    Without blur the fractions are 1 inside and 0 outside, the density is flat and its score 0 inside. With it both are
    smooth, and finite as far out as numbers go.

    Args:
        centres: $c$.
        half: $h$, half the side of a box.
        blur: $s$.

    Examples:
        >>> one = Boxes(torch.zeros(1, 2), half=0.5)
        >>> one.log_prob(torch.tensor([[0.2, 0.4], [0.2, 0.6]])), one.entropy
        (tensor([0., -inf]), 0.0)
    """

    centres: Float[Tensor, "k d"]
    half: float
    blur: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.half < math.inf and 0 <= self.blur < math.inf and self.half + self.blur > 0):
            raise ValueError(f"half and blur are not negative, and not both 0: got {self.half} and {self.blur}")

    @property
    def d(self) -> int:
        """The dimension."""
        return self.centres.shape[1]

    def sample(self, n: int, seed: int = 0, *, first: int = 0) -> Float[Tensor, "n d"]:
        """Draws the samples `first` to `first + n - 1` of a seed."""
        like = {"seed": seed, "first": first, "dtype": self.centres.dtype, "device": self.centres.device}
        which = integer_noise(n, high=len(self.centres), seed=seed, first=first, stream=1)
        x = self.centres[which] + self.half * (2 * uniform_noise(n, self.d, stream=2, **like) - 1)
        return x + self.blur * normal_noise(n, self.d, **like) if self.blur else x

    def log_prob(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
        r"""$\log p(x)$."""
        off = x[..., None, :] - self.centres
        return self._along(off)[0].sum(-1).logsumexp(-1) - math.log(len(self.centres))

    def score(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        r"""$\nabla \log p(x)$."""
        if not self.blur:
            return torch.where(x.isnan(), x, 0.0)
        off = x[..., None, :] - self.centres
        logs, inside = self._along(off)
        slopes = (self.half * inside - off) / self.blur**2
        return (logs.sum(-1).softmax(-1)[..., None] * slopes).sum(-2)

    def noised(self, alpha: float, sigma: float) -> Boxes:
        r"""Returns the density of $\alpha x + \sigma \varepsilon$."""
        check_noise(alpha, sigma)
        return replace(
            self, centres=alpha * self.centres, half=alpha * self.half, blur=math.hypot(alpha * self.blur, sigma)
        )

    def denoised(self, y: Float[Tensor, "*batch d"], alpha: float, sigma: float) -> Float[Tensor, "*batch d"]:
        r"""$\mathbb{E}[x \mid \alpha x + \sigma \varepsilon = y]$."""
        there = self.noised(alpha, sigma)
        off = y[..., None, :] - there.centres
        logs, inside = there._along(off)
        back = alpha * self.blur**2 / there.blur**2 if there.blur else 0.0
        found = self.centres + self.half * inside + back * (off - there.half * inside)
        return (logs.sum(-1).softmax(-1)[..., None] * found).sum(-2) if there.blur else y / alpha

    @cached_property
    def entropy(self) -> float:
        r"""In nats: without blur by the formula; with it, by the trapezoidal rule in 1 and 2 dimensions.

        Beyond, it is $H(x \mid k) + H(k) - \mathbb{E} \, H(k \mid x)$, $k$ the box that $x$ came from; the last is that
        of $2^{16}$ samples (error below $\log K / 500$).
        """
        if not self.blur:
            return math.log(len(self.centres)) + self.d * math.log(2 * self.half)
        centres = self.centres.double().cpu()
        if self.d < 3:
            return self._over_a_grid(centres)
        double = replace(self, centres=centres)
        boxes = double._along(double.sample(2**16)[:, None] - centres)[0].sum(-1).softmax(-1)
        doubt = float(torch.special.entr(boxes).sum(-1).mean())
        return self.d * self._over_a_grid(centres[:1, :1] * 0) + math.log(len(centres)) - doubt

    def _over_a_grid(self, centres: Tensor) -> float:
        factors, whole = [], 1.0
        for c in centres.mT:
            low, high, reach = float(c.min()) - self.half, float(c.max()) + self.half, 9 * self.blur
            n = min(4000, max(200, math.ceil(4 * (high - low + 2 * reach) / self.blur)))
            x = torch.linspace(low - reach, high + reach, n, dtype=torch.float64)
            factors.append(self._along(x - c[:, None])[0].exp())
            whole *= float(x[1] - x[0])
        p = (torch.einsum("ka,kb->ab", *factors) if len(factors) == 2 else factors[0].sum(0)) / len(centres)
        return float(torch.special.entr(p).sum()) * whole

    def to(self, dtype: torch.dtype) -> Boxes:
        """Returns it in another precision."""
        return replace(self, centres=self.centres.to(dtype))

    def _along(self, off: Tensor) -> tuple[Tensor, Tensor]:
        r"""Along each coordinate, the log-density of $h u + s \varepsilon$, and $\mathbb{E}[u]$ given what it is.

        $u$ is uniform on [-1, 1]. Where the box is small against the blur, differences of $\Phi$ cancel, and a sum over
        nodes of Gauss and Legendre is exact instead.
        """
        h, s, near = self.half, self.blur, off.abs()
        if not s:
            inside = torch.where(near > h, -math.inf, 0 * near) - math.log(2 * h)
            return inside, off / h
        tilt, bend = near * (h / s**2), h**2 / (2 * s**2)
        few = tilt < 8 if bend < 0.5 else torch.zeros_like(tilt, dtype=torch.bool)
        logs, means = self._by_tails(torch.where(few, 9 * s**2 / h + h, near) if h else near)
        if bend < 0.5:
            nodes, weights = (torch.from_numpy(a).to(off) for a in np.polynomial.legendre.leggauss(20))
            terms = (tilt.clamp_max(8)[..., None] * nodes - bend * nodes.square()).exp() * weights / 2
            whole = terms.sum(-1)
            normal = -0.5 * (near / s).square() - math.log(s * math.sqrt(2 * math.pi))
            logs, means = torch.where(few, normal + whole.log(), logs), torch.where(few, terms @ nodes / whole, means)
        return logs, means * off.sign()

    def _by_tails(self, near: Tensor) -> tuple[Tensor, Tensor]:
        h, s = self.half, self.blur
        if not h:
            return near, near
        a, b = -(h + near) / s, (h - near) / s
        left, right = torch.special.log_ndtr(a), torch.special.log_ndtr(b)
        logs = right + torch.log1p(-(left - right).exp())
        behind = math.sqrt(2 / math.pi) / torch.special.erfcx(-b.clamp_max(0) / math.sqrt(2))
        upper = torch.where(b < 0, behind, (-0.5 * (b.square() + math.log(2 * math.pi)) - right).exp())
        upper = upper / -torch.expm1(left - right)
        lower = (-2 * h * near / s**2).exp() * upper
        return logs - math.log(2 * h), ((near + s * (lower - upper)) / h).clamp(-1, 1)


def checkerboard(*, cells: int = 4, side: float = 1.0, dtype: torch.dtype = torch.float64) -> Boxes:
    r"""Makes the uniform density on the squares of one colour of a checkerboard around 0.

    $$H = \log \tfrac12 (\text{cells} \cdot \text{side})^2$$

    Args:
        cells: The squares along each edge, an even number.
        side: The side of a square.
        dtype: The precision.

    Examples:
        >>> checkerboard().entropy == math.log(8)
        True
    """
    if cells < 2 or cells % 2:
        raise ValueError(f"cells are an even number, at least 2: got {cells}")
    places = torch.arange(cells, dtype=dtype) * side - side * (cells - 1) / 2
    centres = torch.cartesian_prod(places, places)
    coloured = (torch.arange(cells)[:, None] + torch.arange(cells)).reshape(-1) % 2 == 0
    return Boxes(centres[coloured], half=side / 2)


def _boxes_claims() -> Iterator[Claim]:
    """The laws that boxes obey, blurred a little and a lot."""
    board, few = checkerboard(cells=2, side=2.0), partial(replace, cases=20)

    def under(alpha: float, sigma: float) -> Iterator[Claim]:
        def noised(x: Tensor) -> Boxes:
            return board.to(x.dtype).noised(alpha, sigma)

        def log_prob(x: Tensor) -> Tensor:
            return noised(x).log_prob(x)

        def equation(x: Tensor) -> Tensor:
            """Of the squares around (-1, -1) and (1, 1), by differences of the complement of the error function."""
            off = (x[..., None, :] - alpha * x.new_tensor([[-1.0, -1.0], [1.0, 1.0]])).abs()
            near, far = (torch.special.erfc((off + end) / (sigma * 2**0.5)) for end in (-alpha, alpha))
            return (((near - far) / (4 * alpha)).prod(-1).sum(-1) / 2).log()

        def by_tweedie(y: Tensor) -> Tensor:
            return (y + sigma**2 * noised(y).score(y)) / alpha

        def denoised(y: Tensor) -> Tensor:
            return board.to(y.dtype).denoised(y, alpha, sigma)

        name, near = f"checkerboard.noised({alpha}, {sigma})", transformed(lambda x: 2 * x.tanh(), "b 2")
        yield Claim(few(agreement(other=equation)), log_prob, near, name=name)
        yield Claim(few(derivative(formula=lambda x: noised(x).score(x))), log_prob, near, name=f"{name}.score")
        yield Claim(few(agreement(other=by_tweedie)), denoised, near, name=f"{name}, denoised")

    yield from under(1.0, 0.3)
    yield from under(0.5, 0.8)

    def small(x: Tensor) -> Tensor:
        return Boxes(x.new_zeros(1, 2), half=1e-5).noised(1.0, 1.0).log_prob(x)

    def point(x: Tensor) -> Tensor:
        return -x.square().sum(-1) / 2 - math.log(2 * math.pi)

    almost = replace(agreement(other=point), rtol=1e-8)
    yield Claim(almost, small, transformed(torch.tanh, "b 2"), name="a tiny box is a point")


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


def _mixture_claims() -> Iterator[Claim]:
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


def ring(*, modes: int = 8, radius: float = 2.0, scale: float = 0.2, dtype: torch.dtype = torch.float64) -> Mixture:
    r"""Puts Gaussians of one scale on a circle, evenly.

    $$\mu_k = r \, (\cos \tfrac{2 \pi k}{K}, \sin \tfrac{2 \pi k}{K}), \qquad \Sigma_k = s^2$$

    Args:
        modes: $K$.
        radius: $r$.
        scale: $s$.
        dtype: The precision.

    Examples:
        >>> ring().means.shape, round(ring().entropy, 3)
        (torch.Size([8, 2]), 1.698)
    """
    if modes < 1:
        raise ValueError(f"modes are at least 1: got {modes}")
    angles = 2 * math.pi * torch.arange(modes, dtype=dtype) / modes
    return Mixture.of(means=radius * torch.stack([angles.cos(), angles.sin()], dim=1), scale=scale)


def grid(*, side: int = 5, gap: float = 1.0, scale: float = 0.1, dtype: torch.dtype = torch.float64) -> Mixture:
    """Puts Gaussians of one scale on the points of a square grid around 0.

    Args:
        side: How many there are along each edge.
        gap: How far they are apart.
        scale: Their standard deviation.
        dtype: The precision.

    Examples:
        >>> len(grid().weights)
        25
    """
    if side < 1:
        raise ValueError(f"side is at least 1: got {side}")
    places = gap * (torch.arange(side, dtype=dtype) - (side - 1) / 2)
    return Mixture.of(means=torch.cartesian_prod(places, places), scale=scale)


def two_moons(*, modes: int = 32, scale: float = 0.1, dtype: torch.dtype = torch.float64) -> Mixture:
    r"""Puts Gaussians of one scale along two half circles that reach into each other, as near as makes them smooth.

    $$\mu = (\cos t, \sin t) \quad \text{and} \quad \mu = (1 - \cos t, \tfrac12 - \sin t), \qquad t \in [0, \pi]$$

    Args:
        modes: How many there are in each moon.
        scale: Their standard deviation; what is added to a point of `moons`.
        dtype: The precision.

    Examples:
        >>> two_moons().sample(3).shape
        torch.Size([3, 2])
    """
    if modes < 1:
        raise ValueError(f"modes are at least 1: got {modes}")
    t = math.pi * (torch.arange(modes, dtype=dtype) + 0.5) / modes
    upper = torch.stack([t.cos(), t.sin()], dim=1)
    return Mixture.of(means=torch.cat([upper, upper.new_tensor([1.0, 0.5]) - upper]), scale=scale)


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _boxes_claims()
    yield from _mixture_claims()
