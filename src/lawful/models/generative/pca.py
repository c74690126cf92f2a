"""PCA: data as points near a flat space, and the density of what varies so."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.functions.estimate import LogProbEstimate
from lawful.functions.pca import Principal, incremental_pca_axes, pca_axes
from lawful.functions.random import normal_noise
from lawful.laws import (
    Claim,
    agreement,
    density_integrates_to_one,
    idempotence,
    samples_follow_density,
    shape,
    transformed,
)
from lawful.models.generative.protocols import finite, unconditional

Axes = Callable[[Tensor], Principal]
"""From data to their principal axes: `principal_axes`, `randomised_axes` or another, with what they are to be given."""


class PCA(nn.Module):
    r"""Describes data by their coordinates along principal axes, and what is left by noise.

    $$z = V^\mathsf{T} (x - \mu), \qquad \hat x = V z + \mu, \qquad
    p(x) = N\bigl(x; \; \mu, \; V \Lambda V^\mathsf{T} + \sigma^2 (1 - V V^\mathsf{T})\bigr)$$

    The noise $\sigma^2$ is the mean variance of the directions that were left out: the most probable one. Where these
    have none, as in data that do not fill their space, the likelihood would be infinite; so no variance is taken below
    `floor` times the mean one of all features, and every score is finite.

    Reference:
        Tipping and Bishop, *Probabilistic Principal Component Analysis*, 1999.

    Args:
        found: The principal axes.
        shape: The shape of an example; that of a vector unless given.
        floor: The least variance of a direction, as a part of the mean variance.

    Examples:
        >>> x = torch.tensor([[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]])
        >>> model = PCA.fit(x)
        >>> model.components, model(torch.tensor([[5.0, 3.0]])).round(decimals=4)
        (1, tensor([[4., 4.]]))
        >>> bool(model.log_prob(torch.tensor([[5.0, 3.0]])).value.isfinite())
        True
    """

    mean: Tensor
    axes: Tensor
    variances: Tensor
    noise: Tensor
    whitener: Tensor
    total: Tensor

    def __init__(self, found: Principal, *, shape: tuple[int, ...] | None = None, floor: float = 1e-6) -> None:
        super().__init__()
        d, k = found.axes.shape
        self.shape = (d,) if shape is None else shape
        if math.prod(self.shape) != d:
            raise ValueError(f"a shape of {d} numbers was wanted: got {self.shape}")
        if not 0 < floor < 1:
            raise ValueError(f"floor is between 0 and 1: got {floor}")
        noise = max(found.left / (d - k) if k < d else 0.0, floor * found.total / d)
        for name in ("mean", "axes", "variances", "whitener"):
            self.register_buffer(name, getattr(found, name))
        self.register_buffer("noise", found.mean.new_tensor(noise))
        self.register_buffer("total", found.mean.new_tensor(found.total))

    @classmethod
    def fit(cls, x: Float[Tensor, "n *shape"], *, axes: Axes = pca_axes, floor: float = 1e-6) -> PCA:
        """Reads data of any shape; `partial(principal_axes, components=2)` keeps two axes."""
        found = axes(x.reshape(len(x), -1) if len(x) else x.reshape(0, math.prod(x.shape[1:])))
        return cls(found, shape=tuple(x.shape[1:]), floor=floor).to(x.dtype)

    @classmethod
    def over(cls, batches: Iterable[Float[Tensor, "_ *shape"]], *, components: int, floor: float = 1e-6) -> PCA:
        """Reads data batch by batch, and keeps none."""
        first: list[Tensor] = []

        def rows() -> Iterator[Tensor]:
            for batch in batches:
                first[:] = first or [batch[:0]]
                yield batch.reshape(len(batch), -1)

        found = incremental_pca_axes(rows(), components=components)
        return cls(found, shape=tuple(first[0].shape[1:]), floor=floor).to(first[0].dtype)

    @classmethod
    def standard(cls, shape: tuple[int, ...], *, components: int) -> PCA:
        """Makes a standard normal density of so many axes, for the state of another to be loaded into."""
        d = math.prod(shape)
        one = torch.eye(d, components)
        return cls(Principal(d, torch.zeros(d), one, torch.ones(components), float(d), one.clone()), shape=shape)

    @property
    def components(self) -> int:
        """How many axes are kept."""
        return self.axes.shape[1]

    @property
    def explained(self) -> Float[Tensor, " k"]:
        """The part of all variance that is along each axis."""
        return self.variances / self.total

    def project(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*rows k"]:
        """Returns the coordinates $z$ of examples."""
        return (self._rows(x) - self.mean) @ self.axes

    def reconstruct(self, z: Float[Tensor, "*rows k"]) -> Float[Tensor, "*batch"]:
        r"""Returns the examples $\hat x$ of coordinates."""
        return self._shaped(z @ self.axes.mT + self.mean)

    def forward(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        r"""Returns the nearest points $\hat x$ of the flat space."""
        return self.reconstruct(self.project(x))

    def whitened(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*rows k"]:
        r"""Returns coordinates with variance 1 and no correlation, $\Lambda^{-1/2} V^\mathsf{T} (x - \mu)$."""
        return (self._rows(x) - self.mean) @ self.whitener

    def unwhitened(self, z: Float[Tensor, "*rows k"]) -> Float[Tensor, "*batch"]:
        """Returns the examples of whitened coordinates."""
        return self.reconstruct(z * self.variances.sqrt())

    def zca(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        r"""Returns whitened examples that look like examples, $V \Lambda^{-1/2} V^\mathsf{T} (x - \mu)$.

        Their covariance is 1 in the space that the axes span, and 0 across. Of all whitenings it moves the data least.
        """
        return self._shaped(self.whitened(x) @ self.axes.mT)

    def unzca(self, y: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Undoes `zca`, for what lies in the flat space."""
        return self.unwhitened(self._rows(y) @ self.axes)

    def interpolate(
        self, a: Float[Tensor, "*batch"], b: Float[Tensor, "*batch"], *, steps: int = 8
    ) -> Float[Tensor, "steps *batch"]:
        """Goes straight from the projection of one example to that of another, ends included."""
        if steps < 2:
            raise ValueError(f"steps are at least 2, the two ends: got {steps}")
        z, w = self.project(a), self.project(b)
        return torch.stack([self.reconstruct(z + (w - z) * (i / (steps - 1))) for i in range(steps)])

    def sample(
        self, n: int, seed: int = 0, *, first: int = 0, labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n *shape"]:
        """Draws examples: along each axis by its variance, across by that of the noise."""
        unconditional(labels)
        e = normal_noise(n, len(self.mean), seed=seed, first=first, dtype=self.mean.dtype, device=self.mean.device)
        beyond = self._kept.sqrt() - self.noise.sqrt()
        return self._shaped(self.mean + self.noise.sqrt() * e + (e @ self.axes * beyond) @ self.axes.mT)

    def log_density(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, " n"]:
        r"""$\log p(x)$, which lets gradients pass."""
        off = self._rows(x) - self.mean
        z = off @ self.axes
        across = (off - z @ self.axes.mT).square().sum(-1) / self.noise
        d, k = self.axes.shape
        size = self._kept.log().sum() + (d - k) * self.noise.log() + d * math.log(2 * math.pi)
        return -0.5 * ((z.square() / self._kept).sum(-1) + across + size)

    @torch.no_grad()
    def log_prob(
        self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None, seed: int = 0
    ) -> LogProbEstimate:
        """Returns the log-density of each example, in nats; exact."""
        unconditional(labels)
        finite(x)
        return LogProbEstimate.exact(self.log_density(x))

    @property
    def _kept(self) -> Tensor:
        """The variances along the axes, none below the noise."""
        return self.variances.maximum(self.noise)

    def _rows(self, x: Tensor) -> Tensor:
        if x.shape[x.dim() - len(self.shape) :] != self.shape:
            raise ValueError(f"examples of shape {self.shape} were wanted: got shape {tuple(x.shape)}")
        return x.flatten(x.dim() - len(self.shape)) if len(self.shape) != 1 else x

    def _shaped(self, rows: Tensor) -> Tensor:
        return rows.unflatten(-1, self.shape) if len(self.shape) != 1 else rows


def claims() -> Iterator[Claim]:
    """The laws that PCA obeys."""
    x = torch.tensor([[4.0, 0, 0], [-4, 1, 0], [0, 3, 1], [1, -3, 0], [0, 0, -1.5], [2, 1, 2]], dtype=torch.float64)
    model = PCA.fit(x, axes=partial(pca_axes, components=2))
    flat = PCA.fit(torch.cat([x[:, :2], x[:, :2] @ x.new_tensor([[1.0], [2.0]])], -1), floor=0.1)
    near = transformed(torch.tanh, "n 3")

    def in_precision(model: PCA, x: Tensor) -> PCA:
        return deepcopy(model).to(x.dtype)

    def projected(y: Tensor) -> Tensor:
        return in_precision(model, y)(y)

    def nearest(y: Tensor) -> Tensor:
        _, _, vt = torch.linalg.svd(x - x.mean(0))
        off = y - x.mean(0).to(y)
        return y - (off @ vt[2].to(y))[:, None] * vt[2].to(y)

    yield Claim(idempotence(), projected, shape("n 3"), name="PCA")
    yield Claim(agreement(other=nearest), projected, shape("n 3"), name="PCA: the nearest point of the plane")

    def with_density(model: PCA, name: str, covariance: Tensor) -> Iterator[Claim]:
        def log_prob(y: Tensor) -> Tensor:
            return in_precision(model, y).log_prob(y).value

        def written_out(y: Tensor) -> Tensor:
            return torch.distributions.MultivariateNormal(model.mean.to(y), covariance.to(y)).log_prob(y)

        def sampled(n: int) -> Tensor:
            return model.sample(n, seed=int(torch.randint(2**31, ())))

        yield Claim(agreement(other=written_out), log_prob, near, name=name)
        law = density_integrates_to_one if model is flat else samples_follow_density
        yield Claim(law(sample=sampled, log_prob=log_prob), log_prob, near, name=name)

    yield from with_density(model, "PCA of 2 axes", x.mT.cov(correction=0))
    thin = torch.cat([x[:, :2], x[:, :2] @ x.new_tensor([[1.0], [2.0]])], -1).mT.cov(correction=0)
    across = torch.linalg.cross(flat.axes[:, 0], flat.axes[:, 1])
    thick = thin + thin.trace() / 3 * 0.1 * across[:, None] * across
    yield from with_density(flat, "PCA of flat data", thick)

    def there_and_back(y: Tensor) -> Tensor:
        m = in_precision(model, y)
        return torch.stack([m.unwhitened(m.whitened(y)), m.unzca(m.zca(y)), *m.interpolate(y, y.flip(0), steps=3)])

    def straight(y: Tensor) -> Tensor:
        a, b = nearest(y), nearest(y.flip(0))
        return torch.stack([a, a, a, (a + b) / 2, b])

    yield Claim(agreement(other=straight), there_and_back, near, name="PCA: whitened and back, interpolated")

    def root(y: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(x.mT.cov(correction=0))
        half = vectors[:, 1:] * values[1:].rsqrt() @ vectors[:, 1:].mT
        return (y - x.mean(0).to(y)) @ half.to(y)

    yield Claim(agreement(other=root), lambda y: in_precision(model, y).zca(y), near, name="PCA.zca")
