"""Standardization and whitening, on tensors and on streams of batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lawful.laws import (
    Claim,
    agreement,
    gradient,
    permutation_equivariance,
    scale_invariance,
    shape,
    shift_invariance,
    symmetry,
    transformed,
    whiteness,
)


class _Lyapunov(torch.autograd.Function):
    """Solves S X + X S = B for S = V diag(roots) Vᵀ; 0 where two roots sum to 0."""

    generate_vmap_rule = True

    @staticmethod
    def forward(s: Tensor, b: Tensor, roots: Tensor, vectors: Tensor) -> Tensor:
        sums = roots[..., :, None] + roots[..., None, :]
        return vectors @ (vectors.mT @ b @ vectors / sums.masked_fill(sums == 0, torch.inf)) @ vectors.mT

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        s, _, roots, vectors = inputs
        ctx.save_for_backward(s, roots, vectors, output)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        (g,), (s, roots, vectors, x) = cotangents, ctx.saved_tensors
        y = _Lyapunov.apply(s, g, roots, vectors)
        return -(y @ x.mT + x.mT @ y), y, None, None


class _InverseRoot(torch.autograd.Function):
    """R = A^{-1/2}, with the derivative dR = -R X R, where S X + X S = dA and S = A R.

    It divides by no difference of eigenvalues. The null space of A is preserved to first order.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values, vectors = torch.linalg.eigh(a)
        zero = values <= a.shape[-1] * torch.finfo(a.dtype).eps * values[..., -1:]
        inverse = values.masked_fill(zero, torch.inf).rsqrt()
        return (vectors * inverse[..., None, :]) @ vectors.mT, values.masked_fill(zero, 0.0).sqrt(), vectors

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Tensor:
        g, (a, r, roots, vectors) = cotangents[0], ctx.saved_tensors
        null = vectors * (roots == 0)[..., None, :]
        mixed = r @ r @ r @ g @ null @ null.mT + null @ null.mT @ g @ r @ r @ r
        return mixed - _Lyapunov.apply(a @ r, r @ g @ r, roots, vectors)


def inverse_root(a: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    r"""Inverse square root of a symmetric positive semidefinite matrix.

    $$A^{-1/2} = V \Lambda^{-1/2} V^\mathsf{T}, \qquad A = V \Lambda V^\mathsf{T}$$

    It is a pseudo-inverse: eigenvalues of at most $d$ times the machine epsilon, relative to the largest eigenvalue,
    are treated as 0 and have the inverse 0. First and second derivatives are correct at repeated eigenvalues, unlike
    those of `torch.linalg.eigh`. For a singular matrix, the first derivative is correct for perturbations that preserve
    its rank.

    Args:
        a: Matrix $A$.

    Examples:
        >>> inverse_root(torch.tensor([[4.0, 0.0], [0.0, 0.25]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 2.0000]])
    """
    return _InverseRoot.apply(a)[0]


_CHUNK_ENTRIES = 2**18  # two megabytes of float64


def _chunks(x: Tensor) -> tuple[Tensor, ...]:
    """Splits a tensor along its first dimension into views that fit the cache."""
    return x.split(max(1, _CHUNK_ENTRIES // max(1, x[:1].numel())))


def _numpy_compatible(*tensors: Tensor) -> bool:
    """Returns whether NumPy can work on the memory of the tensors: one real dtype, on the CPU, without gradient."""
    kinds = {(x.dtype, x.device.type, x.requires_grad) for x in tensors}
    return len(kinds) == 1 and kinds <= {(dtype, "cpu", False) for dtype in (torch.float32, torch.float64)}


def _apply_rowwise(function: Callable[..., Any], x: Tensor, mean: Tensor, factor: Tensor) -> Tensor:
    """Returns `function(x, mean, factor)`, of the shape of `x`, computed in chunks, with NumPy where possible.

    NumPy takes about half of PyTorch's time, because it allocates large arrays in huge pages.
    """
    if x.dim() == mean.dim() or not _numpy_compatible(x, mean, factor):
        return function(x, mean, factor)
    y = torch.from_numpy(np.empty(x.shape, dtype=x.numpy().dtype))
    with np.errstate(over="ignore", invalid="ignore"):
        for rows, out in zip(_chunks(x), _chunks(y), strict=True):
            out.numpy()[...] = function(rows.numpy(), mean.numpy(), factor.numpy())
    return y


def _center(x: Tensor, axes: Sequence[int]) -> Tensor:
    """Subtracts the mean over the dimensions; constants give exactly 0.

    The first entry is subtracted before the mean is computed, so that the mean of equal numbers does not round.
    """
    first = x.detach()
    for axis in axes:
        first = first.narrow(axis, 0, 1)
    shifted = x - first
    return shifted - shifted.mean(tuple(axes), keepdim=True)


def sum_of_squares(x: Float[Tensor, "n ..."]) -> Float[Tensor, ...]:
    r"""Sum of squares of each feature, $\sum_n x_{nd}^2$.

    Args:
        x: Centered data.
    """
    return x.square().sum(0)


def sum_of_products(x: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    r"""Sum of products of all pairs of features, $X^\mathsf{T} X$.

    NumPy computes only half of the symmetric product.

    Args:
        x: Centered data.
    """
    if not _numpy_compatible(x):
        return x.mT @ x
    rows = x.numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        return torch.from_numpy(rows.T @ rows)


@dataclass(frozen=True, eq=False)
class RunningMoments:
    r"""Count, mean $\mu$ and scatter $S$ of data, merged over batches without cancellation.

    $$\mu = \mu_a + \tfrac{n_b}{n} \delta, \qquad S = S_a + S_b + \tfrac{n_a n_b}{n} \, \delta \delta^\mathsf{T},
    \qquad \delta = \mu_b - \mu_a$$

    Moments carry no gradient. A constant feature has a scatter of exactly 0.

    Reference:
        Chan, Golub and LeVeque, *Updating formulae and a pairwise algorithm for computing sample variances*, 1979.

    Args:
        count: Number of rows.
        mean: Mean $\mu$.
        scatter: Scatter $S$.
        scatter_fn: `sum_of_squares` (per feature) or `sum_of_products` (per pair of features).

    Examples:
        >>> moments = RunningMoments.from_data(torch.tensor([[0.0], [2.0]]), sum_of_squares)
        >>> moments.merge(RunningMoments.from_data(torch.tensor([[4.0]]), sum_of_squares)).mean
        tensor([2.])
    """

    count: int
    mean: Tensor
    scatter: Tensor
    scatter_fn: Callable[[Tensor], Tensor]

    @classmethod
    def from_data(cls, x: Float[Tensor, "n ..."], scatter_fn: Callable[[Tensor], Tensor]) -> RunningMoments:
        """Computes the moments of data, one row per sample, in one pass around an estimate of the mean.

        Raises:
            ValueError: If an entry or its square is not finite, or if squares underflow.
        """
        if not x.is_floating_point():
            raise TypeError(f"expected a floating-point dtype, got {x.dtype}")
        if x.dim() == 0 or x.numel() == 0:
            raise ValueError(f"expected at least one row and one feature, got shape {tuple(x.shape)}")
        x, first = x.detach(), x[0].detach()
        guess = first + (x[:: max(1, len(x) // 256)] - first).mean(0)
        sums, scatter = torch.zeros_like(first), torch.zeros_like(scatter_fn(first[None]))
        chunks = _chunks(x)
        buffer = torch.empty_like(chunks[0])
        for chunk in chunks:
            shifted = torch.sub(chunk, guess, out=buffer[: len(chunk)])
            sums, scatter = sums + shifted.sum(0), scatter + scatter_fn(shifted)
        shift = sums / len(x)
        moments = cls(len(x), guess + shift, scatter - scatter_fn(shift[None]) * len(x), scatter_fn)
        if not (moments.mean.isfinite().all() and moments.scatter.isfinite().all()):
            raise ValueError("expected finite data with finite squares, got NaN, infinite or too large entries")
        variances = moments.scatter if moments.scatter.shape == first.shape else moments.scatter.diagonal()
        constant = variances == 0
        if bool(constant.any()) and bool((x[:, constant] != first[constant]).any()):
            raise ValueError("expected data whose squares do not underflow, got differences too small to square")
        return moments

    @classmethod
    def from_batches(cls, batches: Iterable[Tensor], scatter_fn: Callable[[Tensor], Tensor]) -> RunningMoments:
        """Computes the moments of a stream of batches of any sizes."""
        parts = (cls.from_data(batch, scatter_fn) for batch in batches)
        first = next(parts, None)
        if first is None:
            raise ValueError("expected at least one batch, got none")
        return reduce(RunningMoments.merge, parts, first)

    def merge(self, other: RunningMoments) -> RunningMoments:
        """Returns the moments of the union of the data."""
        if self.scatter_fn is not other.scatter_fn:
            names = f"{self.scatter_fn.__name__} and {other.scatter_fn.__name__}"
            raise ValueError(f"expected moments with the same scatter_fn, got {names}")
        if self.mean.shape != other.mean.shape:
            raise ValueError(f"expected features of shape {tuple(self.mean.shape)}, got {tuple(other.mean.shape)}")
        count, delta = self.count + other.count, other.mean - self.mean
        between = self.scatter_fn(delta[None]) * (self.count * other.count / count)
        return RunningMoments(
            count, self.mean + delta * (other.count / count), self.scatter + other.scatter + between, self.scatter_fn
        )


def pca_whitening(covariance: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    r"""PCA whitening matrix: columns along the principal axes, largest variance first.

    $$W = V \Lambda^{-1/2}, \qquad \Sigma = V \Lambda V^\mathsf{T}$$

    Use it as `whiten(x, method=pca_whitening)`. Eigenvalues of at most $d$ times the machine epsilon, relative to the
    largest eigenvalue, are treated as 0, and their columns are 0. Signs: the largest entry of every eigenvector is
    positive, except for the last one, whose sign makes $\det V = 1$.

    Args:
        covariance: Covariance $\Sigma$.

    Examples:
        >>> pca_whitening(torch.tensor([[4.0, 0.0], [0.0, 1.0]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 1.0000]])
    """
    axes, inverse_std = _axes(covariance)
    fixed = axes.detach()
    largest = fixed.gather(-2, fixed.abs().argmax(-2, keepdim=True)).sign()
    last_sign = torch.linalg.det(fixed * largest).sign()[..., None, None]
    last = torch.arange(axes.shape[-1], device=axes.device) == axes.shape[-1] - 1
    return axes * largest * torch.where(last, last_sign, 1.0) * inverse_std


def zca_whitening(covariance: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    r"""ZCA whitening matrix: the symmetric one, which changes the data least.

    $$W = \Sigma^{-1/2} = V \Lambda^{-1/2} V^\mathsf{T}, \qquad \Sigma = V \Lambda V^\mathsf{T}$$

    Use it as `whiten(x, method=zca_whitening)`. Derivatives are correct at equal variances (`inverse_root`).

    Args:
        covariance: Covariance $\Sigma$.

    Examples:
        >>> zca_whitening(torch.tensor([[1.0, 0.0], [0.0, 4.0]]))
        tensor([[1.0000, 0.0000],
                [0.0000, 0.5000]])
    """
    return inverse_root(_check_covariance(covariance))


def cholesky_whitening(covariance: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    r"""Cholesky whitening matrix: upper triangular, so that each output depends on its feature and the previous ones.

    $$W = L^{-\mathsf{T}}, \qquad \Sigma = L L^\mathsf{T}$$

    Use it as `whiten(x, method=cholesky_whitening)`. A feature that is a linear combination of the previous ones, up to
    rounding and regardless of its scale, gets a column of 0.

    Args:
        covariance: Covariance $\Sigma$.

    Examples:
        >>> cholesky_whitening(torch.tensor([[4.0, 2.0], [2.0, 2.0]]))
        tensor([[ 0.5000, -0.5000],
                [ 0.0000,  1.0000]])
    """
    lower = _lower(_check_covariance(covariance))
    kept = lower.diagonal(dim1=-2, dim2=-1) > 0
    full = lower + torch.diag_embed((~kept).to(lower))
    one = torch.eye(lower.shape[-1]).to(lower).expand_as(lower)
    return torch.linalg.solve_triangular(full, one, upper=False).mT * kept[..., None, :]


def _check_covariance(covariance: Tensor) -> Tensor:
    if covariance.dim() < 2 or covariance.shape[-1] != covariance.shape[-2]:
        raise ValueError(
            f"expected a covariance of shape (*batch, d, d), got {tuple(covariance.shape)}: "
            "to whiten data use whiten(x)"
        )
    if not covariance.isfinite().all():
        raise ValueError("expected a finite covariance, got NaN or infinite entries")
    return covariance


def _rounding(covariance: Tensor) -> float:
    return covariance.shape[-1] * torch.finfo(covariance.dtype).eps


def _axes(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the principal axes, largest variance first, and the inverse standard deviations; 0 for variance 0."""
    values, axes = torch.linalg.eigh(_check_covariance(covariance))
    zero = values <= _rounding(covariance) * values[..., -1:]
    return axes.flip(-1), values.masked_fill(zero, torch.inf).rsqrt().flip(-1)[..., None, :]


def _lower(covariance: Tensor) -> Tensor:
    """Returns the Cholesky factor; the column of a linearly dependent feature is 0."""
    floor = _rounding(covariance) * covariance.diagonal(dim1=-2, dim2=-1)
    lower, failed = torch.linalg.cholesky_ex(covariance)
    if bool((failed == 0).all() & (lower.diagonal(dim1=-2, dim2=-1).square() > floor).all()):
        return lower
    rest, columns = covariance, list[Tensor]()
    for j in range(covariance.shape[-1]):
        pivot = rest[..., j, j]
        column = rest[..., j] * pivot.masked_fill(pivot <= floor[..., j], torch.inf).rsqrt()[..., None]
        rest = rest - column[..., :, None] * column[..., None, :]
        columns.append(column)
    return torch.stack(columns, -1).tril()


def standardize(
    x: Float[Tensor, "*shape"], *, dim: int | Sequence[int] = 0, eps: float = 0.0
) -> Float[Tensor, "*shape"]:
    r"""Standardizes data to mean 0 and variance 1 (z-score).

    $$z_{nd} = \frac{x_{nd} - \mu_d}{\sqrt{\sigma_d^2 + \epsilon}}, \qquad
    \mu_d = \tfrac{1}{N} \sum_n x_{nd}, \quad \sigma_d^2 = \tfrac{1}{N} \sum_n (x_{nd} - \mu_d)^2$$

    Constants give exactly 0, with gradient 0. Data of any magnitude are accurate: squares are taken relative to the
    largest entry.

    Args:
        x: Data.
        dim: Dimension or dimensions that the mean and the variance are computed over.
        eps: Constant $\epsilon$ added to the variance.

    Examples:
        >>> standardize(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
        tensor([[-1.,  0.],
                [ 1.,  0.]])
    """
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if x.numel() == 0 or not dims:
        raise ValueError(f"expected a non-empty tensor and at least one dim, got shape {tuple(x.shape)}, dim={dim}")
    _check_eps(eps)
    centered = _center(x, dims)
    scale = centered.detach().abs().amax(dims, keepdim=True)
    constant = scale == 0
    scale = scale.clamp_min(eps**0.5).masked_fill(constant, 1.0)
    centered = centered / scale
    variance = centered.square().mean(dims, keepdim=True) + eps / scale / scale
    return centered * variance.masked_fill(constant, torch.inf).rsqrt()


def _check_eps(eps: float) -> None:
    if not eps >= 0:
        raise ValueError(f"eps must not be negative, got {eps}")


def _inverse_std(variance: Tensor, eps: float) -> Tensor:
    """Returns the inverse standard deviation; 0 for constants."""
    _check_eps(eps)
    return (variance + eps).masked_fill(variance == 0, torch.inf).rsqrt()


@dataclass(frozen=True, eq=False)
class Standardizer:
    r"""Standardizer: fitted to data or to a stream of batches, applied to new data.

    $$z = (x - \mu) / \sqrt{\sigma^2 + \epsilon}, \qquad x = z \sqrt{\sigma^2 + \epsilon} + \mu$$

    Samples are along the first dimension. A constant feature is transformed to exactly 0, and back to the constant.
    Gradients flow through `transform` and `inverse_transform`, not through `fit` and `update`.

    Args:
        moments: Moments with `sum_of_squares`, from `fit` or from `RunningMoments.from_batches`.
        eps: Constant $\epsilon$ added to the variance.

    Examples:
        >>> fitted = Standardizer.fit(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
        >>> fitted.transform(torch.tensor([[4.0, 5.0]])), fitted.constant
        (tensor([[2., 0.]]), tensor([False,  True]))
        >>> fitted.update(torch.tensor([[5.0, 6.0]])).mean
        tensor([3.0000, 5.3333])
    """

    moments: RunningMoments
    eps: float = 0.0

    def __post_init__(self) -> None:
        if self.moments.scatter.shape != self.mean.shape:
            raise ValueError(f"expected moments with sum_of_squares, got {self.moments.scatter_fn.__name__}")
        if self.moments.count < 2:
            raise ValueError(f"expected at least 2 rows, got {self.moments.count}")
        _inverse_std(self.variance, self.eps)

    @classmethod
    def fit(cls, x: Float[Tensor, "n ..."], *, eps: float = 0.0) -> Standardizer:
        """Fits mean and variance to data."""
        return cls(RunningMoments.from_data(x, sum_of_squares), eps)

    def update(self, batch: Float[Tensor, "n ..."]) -> Standardizer:
        """Returns a new standardizer, fitted to a further batch as well."""
        return replace(self, moments=self.moments.merge(RunningMoments.from_data(batch, sum_of_squares)))

    @property
    def mean(self) -> Float[Tensor, ...]:
        r"""Mean $\mu$."""
        return self.moments.mean

    @property
    def variance(self) -> Float[Tensor, ...]:
        r"""Variance $\sigma^2$."""
        return self.moments.scatter / self.moments.count

    @property
    def constant(self) -> Bool[Tensor, ...]:
        """Boolean mask of the constant features."""
        return self.moments.scatter == 0

    def transform(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Standardizes rows, or a single row."""
        self._check(x)
        return _apply_rowwise(
            lambda x, mean, unit: (x - mean) * unit, x, self.mean, _inverse_std(self.variance, self.eps)
        )

    def inverse_transform(self, z: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Inverts `transform`."""
        self._check(z)
        root = (self.variance + self.eps).sqrt().masked_fill(self.constant, 0.0)
        return _apply_rowwise(lambda z, mean, root: z * root + mean, z, self.mean, root)

    def _check(self, x: Tensor) -> None:
        if x.shape[max(0, x.dim() - self.mean.dim()) :] != self.mean.shape:
            raise ValueError(f"expected features of shape {tuple(self.mean.shape)}, got x of shape {tuple(x.shape)}")


_Method = Callable[[Tensor], Tensor]


def _regularize(covariance: Tensor, eps: float) -> Tensor:
    if not eps >= 0:
        raise ValueError(f"eps must not be negative, got {eps}")
    return covariance + eps * torch.eye(covariance.shape[-1]).to(covariance)


def whiten(
    x: Float[Tensor, "*batch n d"], *, method: _Method = zca_whitening, eps: float = 0.0
) -> Float[Tensor, "*batch n d"]:
    r"""Whitens data: mean 0 and identity covariance.

    $$Z = (X - \mu) \, W, \qquad W^\mathsf{T} (\Sigma + \epsilon) \, W = 1, \qquad
    \Sigma = \tfrac{1}{N} (X - \mu)^\mathsf{T} (X - \mu)$$

    $W$ is unique up to an orthogonal factor, which `method` chooses. Directions without variance give 0. The gradient
    of `pca_whitening` is undefined at repeated eigenvalues; `zca_whitening` has one there, and `cholesky_whitening`
    has one if the covariance has full rank.

    Reference:
        Kessy, Lewin and Strimmer, *Optimal Whitening and Decorrelation*, 2018.

    Args:
        x: Data $X$, one row per sample.
        method: Function from the covariance to $W$: `pca_whitening`, `zca_whitening` or `cholesky_whitening`.
        eps: Constant $\epsilon$ added to the variances.

    Examples:
        >>> x = torch.tensor([[0.0, 0.0], [2.0, 2.0], [4.0, 0.0], [2.0, -2.0]])
        >>> z = whiten(x)
        >>> (z.mT @ z / 4).round(decimals=4)
        tensor([[1., 0.],
                [0., 1.]])
    """
    if x.dim() < 2 or x.shape[-2] < 2 or x.numel() == 0:
        raise ValueError(f"expected at least 2 rows and 1 feature, got shape {tuple(x.shape)}")
    if not x.isfinite().all():
        raise ValueError("expected finite data, got NaN or infinite entries")
    centered = _center(x, (-2,))
    return centered @ method(_regularize(centered.mT @ centered / x.shape[-2], eps))


@dataclass(frozen=True, eq=False)
class Whitening:
    r"""Whitening transform: fitted to data or to a stream of batches, applied to new data.

    $$z = (x - \mu) \, W, \qquad x = z \, W^\mathsf{T} (\Sigma + \epsilon) + \mu$$

    Directions without variance give 0 and are restored to the mean; `rank` counts the others. With $\epsilon > 0$
    every direction is kept. $\Sigma$ divides by $N$ (scikit-learn's PCA by $N - 1$). Gradients flow through `transform`
    and `inverse_transform`, not through `fit` and `update`.

    Args:
        moments: Moments with `sum_of_products`, from `fit` or from `RunningMoments.from_batches`.
        method: Function from the covariance to $W$: `pca_whitening`, `zca_whitening` or `cholesky_whitening`.
        eps: Constant $\epsilon$ added to the variances.

    Examples:
        >>> fitted = Whitening.fit(torch.tensor([[0.0, 0.0], [2.0, 2.0]]))
        >>> fitted.rank, fitted.inverse_transform(fitted.transform(torch.tensor([[4.0, 4.0]]))).round(decimals=4)
        (1, tensor([[4., 4.]]))
        >>> fitted.update(torch.tensor([[0.0, 1.0]])).rank
        2
    """

    moments: RunningMoments
    method: _Method = zca_whitening
    eps: float = 0.0

    def __post_init__(self) -> None:
        if self.moments.scatter.shape != (*self.moments.mean.shape, *self.moments.mean.shape):
            raise ValueError(f"expected moments with sum_of_products, got {self.moments.scatter_fn.__name__}")
        if self.moments.count < 2:
            raise ValueError(f"expected at least 2 rows, got {self.moments.count}")
        _regularize(self.covariance, self.eps)

    @classmethod
    def fit(cls, x: Float[Tensor, "n d"], *, method: _Method = zca_whitening, eps: float = 0.0) -> Whitening:
        """Fits mean and covariance to data."""
        if x.dim() != 2:
            raise ValueError(f"expected x of shape (n, d), got {tuple(x.shape)}")
        return cls(RunningMoments.from_data(x, sum_of_products), method, eps)

    def update(self, batch: Float[Tensor, "n d"]) -> Whitening:
        """Returns a new transform, fitted to a further batch as well."""
        return replace(self, moments=self.moments.merge(RunningMoments.from_data(batch, sum_of_products)))

    @property
    def mean(self) -> Float[Tensor, " d"]:
        r"""Mean $\mu$."""
        return self.moments.mean

    @property
    def covariance(self) -> Float[Tensor, "d d"]:
        r"""Covariance $\Sigma$."""
        return self.moments.scatter / self.moments.count

    @cached_property
    def weight(self) -> Float[Tensor, "d d"]:
        r"""Whitening matrix $W$."""
        return self.method(_regularize(self.covariance, self.eps))

    @cached_property
    def inverse_weight(self) -> Float[Tensor, "d d"]:
        r"""Inverse $W^\mathsf{T} (\Sigma + \epsilon)$ of $W$, on the directions with variance."""
        return self.weight.mT @ _regularize(self.covariance, self.eps)

    @cached_property
    def rank(self) -> int:
        """Number of directions with variance: the trace of the projection onto them."""
        return round(float((self.weight @ self.inverse_weight).trace()))

    def transform(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Whitens rows, or a single row."""
        self._check(x)
        return _apply_rowwise(lambda x, mean, weight: (x - mean) @ weight, x, self.mean, self.weight)

    def inverse_transform(self, z: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Inverts `transform`."""
        self._check(z)
        return _apply_rowwise(lambda z, mean, weight: z @ weight + mean, z, self.mean, self.inverse_weight)

    def _check(self, x: Tensor) -> None:
        if x.shape[-1:] != self.mean.shape:
            raise ValueError(f"expected {self.mean.numel()} features, got x of shape {tuple(x.shape)}")


def claims() -> Iterator[Claim]:
    """Laws of standardization and whitening."""
    data = shape("n:4..7 3")
    for law in (shift_invariance(axis=0), scale_invariance(axis=0), permutation_equivariance(axis=0)):
        yield Claim(law, standardize, shape("n:2..6 3"))
    for method in (pca_whitening, zca_whitening, cholesky_whitening):
        yield Claim(whiteness(), partial(whiten, method=method), data, name=f"whiten(method={method.__name__})")

        def round_trip(x: Tensor, method: _Method = method) -> Tensor:
            fitted = Whitening.fit(x, method=method)
            return fitted.inverse_transform(fitted.transform(x))

        name = f"inverse_transform(transform(x)), method={method.__name__}"
        yield Claim(agreement(other=torch.clone), round_trip, data, name=name)

    def root_of_definite(x: Tensor) -> Tensor:
        return inverse_root(x @ x.mT + torch.eye(3).to(x))

    bounded = transformed(torch.tanh, "b 3 3")
    yield Claim(symmetry(), root_of_definite, bounded, name="inverse_root")
    yield Claim(gradient(), root_of_definite, bounded, name="inverse_root")
