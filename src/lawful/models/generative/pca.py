"""Probabilistic principal component analysis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.functions.pca import PrincipalComponents, incremental_pca_axes, pca_axes, randomized_pca_axes
from lawful.functions.random import normal_noise, resolve_seed
from lawful.laws import Claim, idempotence, samples_follow_density, shape, transformed
from lawful.models.generative.protocols import _check_finite, _check_unlabeled, _sample_shape


class PCA(nn.Module):
    r"""Probabilistic principal component analysis, with the methods of scikit-learn's `PCA`.

    $$z = V^\mathsf{T} (x - \mu), \qquad \hat x = V z + \mu, \qquad
    p(x) = N\bigl(x; \; \mu, \; V \Lambda V^\mathsf{T} + \sigma^2 (1 - V V^\mathsf{T})\bigr)$$

    The noise variance $\sigma^2$ is the mean variance of the discarded directions, its maximum-likelihood value. No
    variance is below `min_variance_ratio` times the mean variance of the features, so that the density of
    rank-deficient data is finite. Examples of any shape are flattened. Features with different units need a scale,
    such as their standard deviations: `fit(x, scale=x.std(0))` analyzes $(x - \mu) / s$.

    Reference:
        Tipping and Bishop, *Probabilistic Principal Component Analysis*, 1999.

    Args:
        n_components: Number of components. Defaults to all directions with variance.
        svd_solver: `"full"`, or `"randomized"` for a few components of many features.
        min_variance_ratio: Minimum variance of a direction, relative to the mean variance.
        seed: Random seed of the randomized solver.
        shape: Shape of an example. Initializes an unfitted model as a standard normal density, for `load_state_dict`.

    Examples:
        >>> x = torch.tensor([[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]])
        >>> pca = PCA(n_components=1).fit(x)
        >>> pca.transform(x).shape, pca(torch.tensor([[5.0, 3.0]])).round(decimals=4)
        (torch.Size([3, 1]), tensor([[4., 4.]]))
        >>> bool(pca.log_prob(torch.tensor([[5.0, 3.0]])).isfinite())
        True
    """

    mean: Tensor
    scale: Tensor
    components: Tensor
    explained_variance: Tensor
    noise_variance: Tensor
    total_variance: Tensor
    whitener: Tensor

    def __init__(
        self,
        n_components: int | None = None,
        *,
        svd_solver: Literal["full", "randomized"] = "full",
        min_variance_ratio: float = 1e-6,
        seed: int = 0,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        if svd_solver not in ("full", "randomized"):
            raise ValueError(f"expected svd_solver 'full' or 'randomized', got {svd_solver!r}")
        if svd_solver == "randomized" and n_components is None:
            raise ValueError("svd_solver='randomized' requires n_components")
        if not 0 < min_variance_ratio < 1:
            raise ValueError(f"expected 0 < min_variance_ratio < 1, got {min_variance_ratio}")
        self.n_components, self.svd_solver, self.min_variance_ratio, self.seed = (
            n_components,
            svd_solver,
            min_variance_ratio,
            seed,
        )
        self.shape: tuple[int, ...] = ()
        for name in _BUFFERS:
            self.register_buffer(name, None)
        if shape is not None:
            d = math.prod(shape)
            axes = torch.eye(d, d if n_components is None else n_components)
            ones = torch.ones(axes.shape[1])
            self._set(PrincipalComponents(d, torch.zeros(d), axes.mT, ones, float(d), axes.clone()), shape)

    @classmethod
    def from_components(cls, pca: PrincipalComponents, *, shape: tuple[int, ...] | None = None) -> PCA:
        """Builds a fitted model from principal components."""
        model = cls(n_components=len(pca.components))
        model._set(pca, (len(pca.mean),) if shape is None else shape)
        return model

    def fit(self, x: Float[Tensor, "n *shape"], *, scale: Float[Tensor, "*shape"] | None = None) -> PCA:
        """Fits the components to data of any shape.

        Args:
            x: Data.
            scale: Positive scale of each feature. Defaults to 1.
        """
        rows = x.reshape(len(x), math.prod(x.shape[1:]))
        rows = rows if scale is None else rows / scale.flatten()
        if self.svd_solver == "randomized" and self.n_components is not None:
            pca = randomized_pca_axes(rows, n_components=self.n_components, seed=self.seed)
        else:
            pca = pca_axes(rows, n_components=self.n_components)
        self._set(pca, tuple(x.shape[1:]), scale=scale)
        return self.to(x.dtype)

    def fit_batches(
        self, batches: Iterable[Float[Tensor, "_ *shape"]], *, scale: Float[Tensor, "*shape"] | None = None
    ) -> PCA:
        """Fits the components to a stream of batches, without storing it (incremental PCA).

        Args:
            batches: Batches of data.
            scale: Positive scale of each feature. Defaults to 1.
        """
        if self.n_components is None:
            raise ValueError("fit_batches requires n_components")
        empty: list[Tensor] = []

        def rows() -> Iterator[Tensor]:
            for batch in batches:
                empty[:] = empty or [batch[:0]]
                rows = batch.reshape(len(batch), -1)
                yield rows if scale is None else rows / scale.flatten()

        pca = incremental_pca_axes(rows(), n_components=self.n_components)
        self._set(pca, tuple(empty[0].shape[1:]), scale=scale)
        return self.to(empty[0].dtype)

    @property
    def explained_variance_ratio(self) -> Float[Tensor, " k"]:
        """Share of the total variance along each component."""
        return self._require_fitted().explained_variance / self.total_variance

    def transform(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*rows k"]:
        """Returns the coordinates $z$ along the components."""
        return self._center(x) @ self.components.mT

    def inverse_transform(self, z: Float[Tensor, "*rows k"]) -> Float[Tensor, "*batch"]:
        r"""Returns the reconstruction $\hat x$ from coordinates."""
        return self._require_fitted()._unflatten(z @ self.components * self.scale + self.mean)

    def forward(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        r"""Returns the reconstruction $\hat x$, the projection onto the affine span of the components."""
        return self.inverse_transform(self.transform(x))

    def whiten(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*rows k"]:
        r"""Returns uncorrelated coordinates of variance 1, $\Lambda^{-1/2} V^\mathsf{T} (x - \mu)$."""
        return self._center(x) @ self.whitener

    def unwhiten(self, z: Float[Tensor, "*rows k"]) -> Float[Tensor, "*batch"]:
        """Returns the reconstruction from whitened coordinates."""
        return self.inverse_transform(z * self._require_fitted().explained_variance.sqrt())

    def zca(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        r"""Returns ZCA-whitened examples, $V \Lambda^{-1/2} V^\mathsf{T} (x - \mu)$.

        Their covariance is the identity on the span of the components and 0 elsewhere. Of all whitenings, ZCA changes
        the data least.
        """
        return self._unflatten(self.whiten(x) @ self.components)

    def inverse_zca(self, y: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Inverts `zca` on the span of the components."""
        return self.unwhiten(self._rows(y) @ self.components.mT)

    def interpolate(
        self, a: Float[Tensor, "*batch"], b: Float[Tensor, "*batch"], *, steps: int = 8
    ) -> Float[Tensor, "steps *batch"]:
        """Interpolates linearly between the reconstructions of two batches, ends included."""
        if steps < 2:
            raise ValueError(f"expected steps >= 2, got {steps}")
        z, w = self.transform(a), self.transform(b)
        return torch.stack([self.inverse_transform(z + (w - z) * (i / (steps - 1))) for i in range(steps)])

    def sample(
        self,
        n: int | Sequence[int],
        seed: int | None = None,
        *,
        first: int = 0,
        labels: Int[Tensor, "*n"] | None = None,
    ) -> Float[Tensor, "*n *shape"]:
        """Draws samples: `sample(100)` or `sample((100,))`."""
        _check_unlabeled(labels)
        mean, sample_shape = self._require_fitted().mean, _sample_shape(n)
        noise = normal_noise(
            math.prod(sample_shape),
            len(mean),
            seed=resolve_seed(seed),
            first=first,
            dtype=mean.dtype,
            device=mean.device,
        )
        noise_std = self.noise_variance.sqrt()
        along = noise @ self.components.mT * (self._variances.sqrt() - noise_std)
        rows = mean + self.scale * (noise_std * noise + along @ self.components)
        return self._unflatten(rows).reshape(*sample_shape, *self.shape)

    def log_prob(self, x: Float[Tensor, "n *shape"], *, labels: Int[Tensor, " n"] | None = None) -> Float[Tensor, " n"]:
        """Returns the log-density of each example, in nats."""
        _check_unlabeled(labels)
        _check_finite(x)
        centered = self._center(x)
        z = centered @ self.components.mT
        residual = (centered - z @ self.components).square().sum(-1) / self.noise_variance
        k, d = self.components.shape
        log_det = self._variances.log().sum() + (d - k) * self.noise_variance.log() + 2 * self.scale.log().sum()
        return -0.5 * ((z.square() / self._variances).sum(-1) + residual + log_det + d * math.log(2 * math.pi))

    @property
    def _variances(self) -> Tensor:
        """Variances along the components, at least the noise variance."""
        return self.explained_variance.maximum(self.noise_variance)

    def _set(self, pca: PrincipalComponents, shape: tuple[int, ...], *, scale: Tensor | None = None) -> None:
        k, d = pca.components.shape
        if math.prod(shape) != d:
            raise ValueError(f"shape must have {d} entries (the number of features), got {shape}")
        noise = pca.residual_variance / (d - k) if k < d else 0.0
        self.shape = tuple(shape)
        self.scale = torch.ones_like(pca.mean) if scale is None else scale.detach().flatten().to(pca.mean)
        self.mean, self.components = pca.mean * self.scale, pca.components.contiguous()
        self.explained_variance, self.whitener = pca.explained_variance, pca.whitener
        self.noise_variance = pca.mean.new_tensor(max(noise, self.min_variance_ratio * pca.total_variance / d))
        self.total_variance = pca.mean.new_tensor(pca.total_variance)

    def _require_fitted(self) -> PCA:
        if self.mean is None:
            raise RuntimeError("PCA is not fitted: call fit(x)")
        return self

    def _center(self, x: Tensor) -> Tensor:
        """Returns rows relative to the mean, in units of the scale."""
        return (self._rows(x) - self.mean) / self.scale

    def _rows(self, x: Tensor) -> Tensor:
        shape = self._require_fitted().shape
        if x.shape[x.dim() - len(shape) :] != shape:
            sizes = ", ".join(map(str, shape))
            raise ValueError(f"expected x of shape (*batch, {sizes}), got {tuple(x.shape)}")
        return x.flatten(x.dim() - len(shape)) if len(shape) != 1 else x

    def _unflatten(self, rows: Tensor) -> Tensor:
        return rows.unflatten(-1, self.shape) if len(self.shape) != 1 else rows


_BUFFERS = ("mean", "scale", "components", "explained_variance", "noise_variance", "total_variance", "whitener")


def claims() -> Iterator[Claim]:
    """The reconstruction is a projection; samples follow the density."""
    x = torch.tensor([[4.0, 0, 0], [-4, 1, 0], [0, 3, 1], [1, -3, 0], [0, 0, -1.5], [2, 1, 2]], dtype=torch.float64)
    model = PCA(n_components=2).fit(x)

    def log_prob(y: Tensor) -> Tensor:
        return deepcopy(model).to(y.dtype).log_prob(y)

    follows = samples_follow_density(sample=lambda n: model.sample(n), log_prob=log_prob)
    yield Claim(idempotence(), lambda y: deepcopy(model).to(y.dtype)(y), shape("n 3"), name="PCA")
    yield Claim(follows, log_prob, transformed(torch.tanh, "n 3"), name="PCA")
