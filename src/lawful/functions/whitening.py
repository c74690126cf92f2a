"""The inverse root of a covariance, with a gradient that equal variances do not spoil.

Tall matrices in pieces that stay in the cache.
Mean and spread of data, gathered batch by batch.
The whitening matrices of a covariance: by principal axes, closest to the data, triangular.
Standardising: every feature brought to mean 0 and variance 1.
Whitening: data turned and stretched until no two features are correlated.
"""

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
    AtMost,
    Claim,
    Draw,
    Equal,
    Map,
    Statement,
    agreement,
    boundedness,
    gradient,
    law,
    permutation_equivariance,
    scale_invariance,
    second_order_gradient,
    shape,
    shift_invariance,
    transformed,
)


class _Lyapunov(torch.autograd.Function):
    """X with S X + X S = B, for S = V diag(roots) Vᵀ; where two roots add up to 0, nothing."""

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
    """R = A^{-1/2}: with S = A R its derivative is dR = -R X R, S X + X S = dA, in which no difference is divided by.

    Where A has no variance, R keeps it so to first order.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values, vectors = torch.linalg.eigh(a)
        none = values <= a.shape[-1] * torch.finfo(a.dtype).eps * values[..., -1:]
        inverse = values.masked_fill(none, torch.inf).rsqrt()
        return (vectors * inverse[..., None, :]) @ vectors.mT, values.masked_fill(none, 0.0).sqrt(), vectors

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Tensor:
        g, (a, r, roots, vectors) = cotangents[0], ctx.saved_tensors
        flat = vectors * (roots == 0)[..., None, :]
        mixed = r @ r @ r @ g @ flat @ flat.mT + flat @ flat.mT @ g @ r @ r @ r
        return mixed - _Lyapunov.apply(a @ r, r @ g @ r, roots, vectors)


def inverse_root(a: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    r"""Returns the symmetric $R$ with $R A R = 1$, of a symmetric positive definite $A$.

    $$A^{-1/2} = V \Lambda^{-1/2} V^\mathsf{T}, \qquad A = V \Lambda V^\mathsf{T}$$

    Eigenvalues below rounding, $d$ times the precision times the largest, count as 0, and so do their inverses.
    Derivatives are right where eigenvalues coincide too, unlike those of the decomposition. Of a matrix without full
    rank the first one is right, along matrices of the same rank.

    Args:
        a: The matrix $A$.

    Examples:
        >>> inverse_root(torch.tensor([[4.0, 0.0], [0.0, 0.25]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 2.0000]])
    """
    return _InverseRoot.apply(a)[0]


def _inverse_root_claims() -> Iterator[Claim]:
    """The laws that the inverse root obeys."""

    def definite(x: Tensor) -> Tensor:
        x = x.tanh()
        return x @ x.mT + torch.eye(x.shape[-1]).to(x)

    def both_sides(a: Tensor) -> Tensor:
        return inverse_root(a) @ a @ inverse_root(a)

    def one(a: Tensor) -> Tensor:
        return torch.eye(a.shape[-1]).to(a).expand_as(a)

    def by_svd(a: Tensor) -> Tensor:
        axes, values, _ = torch.linalg.svd(a)
        return axes * values.rsqrt()[..., None, :] @ axes.mT

    yield Claim(agreement(other=one), both_sides, transformed(definite, "b 3 3"), name="R A R = 1")
    yield Claim(agreement(other=by_svd), inverse_root, transformed(definite, "b 3 3"))
    yield Claim(gradient(), lambda x: inverse_root(definite(x)), transformed(torch.tanh, "b 3 3"), name="inverse_root")

    def flat(x: Tensor) -> Tensor:
        factor = x.tanh() + torch.tensor([[3.0, 0.0], [0.0, 3.0], [3.0, -3.0]]).to(x)
        return factor @ factor.mT

    def pseudo_inverse(a: Tensor) -> Tensor:
        return inverse_root(a) @ inverse_root(a)

    rank_two = transformed(flat, "b 3 2")
    inverted = agreement(other=lambda a: torch.linalg.pinv(a, rtol=1e-4, hermitian=True))
    yield Claim(inverted, pseudo_inverse, rank_two, name="R R = A⁺ at rank 2 of 3")
    yield Claim(
        gradient(), lambda x: inverse_root(flat(x)), transformed(torch.tanh, "b 3 2"), name="inverse_root at rank 2"
    )

    def nearly_one(x: Tensor) -> Tensor:
        return inverse_root(one(x) + (x + x.mT) / 9)

    for law in (gradient(), second_order_gradient()):
        yield Claim(law, nearly_one, transformed(torch.zeros_like, "b 2 2"), name="inverse_root at 1")


ENTRIES = 2**18
"""How many entries a piece has: two megabytes of float64."""


def pieces(x: Tensor) -> tuple[Tensor, ...]:
    """Splits a tensor along its first axis into views of at most `ENTRIES` entries, or one row each."""
    return x.split(max(1, ENTRIES // max(1, x[:1].numel())))


def for_numpy(*tensors: Tensor) -> bool:
    """Says whether NumPy may work on the memory of tensors: of one type that it has, with no gradient asked for."""
    kinds = {(x.dtype, x.device.type, x.requires_grad) for x in tensors}
    return len(kinds) == 1 and kinds <= {(dtype, "cpu", False) for dtype in (torch.float32, torch.float64)}


def row_by_row(function: Callable[..., Any], x: Tensor, mean: Tensor, factor: Tensor) -> Tensor:
    """Returns `function(x, mean, factor)`, of the shape of `x`, computed by NumPy in pieces where that can be.

    NumPy allocates large arrays in huge pages, and PyTorch does not: that is half of the time.
    """
    if x.dim() == mean.dim() or not for_numpy(x, mean, factor):
        return function(x, mean, factor)
    y = torch.from_numpy(np.empty(x.shape, dtype=x.numpy().dtype))
    with np.errstate(over="ignore", invalid="ignore"):
        for rows, out in zip(pieces(x), pieces(y), strict=True):
            out.numpy()[...] = function(rows.numpy(), mean.numpy(), factor.numpy())
    return y


def centred(x: Tensor, axes: Sequence[int]) -> Tensor:
    """Takes the mean over the axes away; where nothing varies, exactly 0 is left.

    The first entry is taken away before the mean is formed, so that the mean of equal numbers does not round.
    """
    first = x.detach()
    for axis in axes:
        first = first.narrow(axis, 0, 1)
    off = x - first
    return off - off.mean(tuple(axes), keepdim=True)


def squares(x: Float[Tensor, "n ..."]) -> Float[Tensor, ...]:
    r"""Sums the squares of each feature, $\sum_n x_{nd}^2$."""
    return x.square().sum(0)


def products(x: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    r"""Sums the products of all pairs of features, $X^\mathsf{T} X$.

    NumPy knows that a matrix times itself is symmetric, and computes half of it.
    """
    if not for_numpy(x):
        return x.mT @ x
    rows = x.numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        return torch.from_numpy(rows.T @ rows)


@dataclass(frozen=True, eq=False)
class RunningMoments:
    r"""Counts data, and keeps their mean $\mu$ and their scatter $S$, squares or products of what is off the mean.

    Two parts of the data become one without a second look at either, and without cancellation:

    $$\mu = \mu_a + \tfrac{n_b}{n} \delta, \qquad S = S_a + S_b + \tfrac{n_a n_b}{n} \, \delta \delta^\mathsf{T},
    \qquad \delta = \mu_b - \mu_a$$

    No gradient passes. A feature that never varies has a scatter of exactly 0.

    Reference:
        Chan, Golub and LeVeque, *Updating formulae and a pairwise algorithm for computing sample variances*, 1979.

    Args:
        n: How many rows there were.
        mean: $\mu$.
        scatter: $S$.
        scatters: What $S$ sums: `squares`, for each feature, or `products`, for each pair.

    Examples:
        >>> found = RunningMoments.of(torch.tensor([[0.0], [2.0]]), scatters=squares)
        >>> found.merge(RunningMoments.of(torch.tensor([[4.0]]), scatters=squares)).mean
        tensor([2.])
    """

    n: int
    mean: Tensor
    scatter: Tensor
    scatters: Callable[[Tensor], Tensor]

    @classmethod
    def of(cls, x: Float[Tensor, "n ..."], *, scatters: Callable[[Tensor], Tensor]) -> RunningMoments:
        """Reads a batch, one row for each sample; refuses numbers that are not finite.

        One pass measures from a guess of the mean, which is that of some rows; the rest of the way is made up for.
        """
        if not x.is_floating_point():
            raise TypeError(f"real numbers were wanted: got {x.dtype}")
        if x.dim() == 0 or x.numel() == 0:
            raise ValueError(f"at least one row and one feature were wanted: got shape {tuple(x.shape)}")
        x, first = x.detach(), x[0].detach()
        guess = first + (x[:: max(1, len(x) // 256)] - first).mean(0)
        sums, scatter = torch.zeros_like(first), torch.zeros_like(scatters(first[None]))
        parts = pieces(x)
        room = torch.empty_like(parts[0])
        for part in parts:
            off = torch.sub(part, guess, out=room[: len(part)])
            sums, scatter = sums + off.sum(0), scatter + scatters(off)
        shift = sums / len(x)
        found = cls(len(x), guess + shift, scatter - scatters(shift[None]) * len(x), scatters)
        if not (found.mean.isfinite().all() and found.scatter.isfinite().all()):
            raise ValueError("finite numbers, with finite squares, were wanted: got NaN, infinite or huge ones")
        spread = found.scatter if found.scatter.shape == first.shape else found.scatter.diagonal()
        none = spread == 0
        if bool(none.any()) and bool((x[:, none] != first[none]).any()):
            raise ValueError("numbers with squares above 0 were wanted: got differences whose squares vanish")
        return found

    @classmethod
    def over(cls, batches: Iterable[Tensor], *, scatters: Callable[[Tensor], Tensor]) -> RunningMoments:
        """Reads batch after batch, of any sizes, and keeps none."""
        parts = (cls.of(batch, scatters=scatters) for batch in batches)
        first = next(parts, None)
        if first is None:
            raise ValueError("at least one batch was wanted: got none")
        return reduce(RunningMoments.merge, parts, first)

    def merge(self, other: RunningMoments) -> RunningMoments:
        """Returns the moments of both parts of the data."""
        if self.scatters is not other.scatters:
            kinds = f"{self.scatters.__name__} and {other.scatters.__name__}"
            raise ValueError(f"moments of one kind were wanted: got {kinds}")
        if self.mean.shape != other.mean.shape:
            raise ValueError(f"features of shape {tuple(self.mean.shape)} were wanted: got {tuple(other.mean.shape)}")
        n, delta = self.n + other.n, other.mean - self.mean
        between = self.scatters(delta[None]) * (self.n * other.n / n)
        return RunningMoments(
            n, self.mean + delta * (other.n / n), self.scatter + other.scatter + between, self.scatters
        )


def _moments_claims() -> Iterator[Claim]:
    """The laws that moments obey: a stream gives what the whole gives."""

    def streamed(x: Tensor) -> tuple[Tensor, Tensor]:
        found = RunningMoments.over(x.split(3), scatters=products)
        return found.mean, found.scatter / found.n

    def equation(x: Tensor) -> tuple[Tensor, Tensor]:
        mean = x.mean(0)
        return mean, (x - mean).mT @ (x - mean) / len(x)

    yield Claim(agreement(other=lambda x: x - x.mean(0)), lambda x: centred(x, (0,)), shape("n 3"), name="centred")
    both = agreement(other=lambda x: x - x.mean((0, 2), keepdim=True))
    yield Claim(both, lambda x: centred(x, (0, 2)), shape("n 3 2"), name="centred, two axes")

    def squared(x: Tensor) -> Tensor:
        found = RunningMoments.over(x.split(2), scatters=squares)
        return torch.stack([found.mean, found.scatter, torch.full_like(found.mean, found.n)])

    def one_by_one(x: Tensor) -> Tensor:
        mean = x.mean(0)
        return torch.stack([mean, (x - mean).square().sum(0), torch.full_like(mean, len(x))])

    def many(x: Tensor) -> Tensor:
        return x[torch.arange(600) % 6]

    def all_at_once(x: Tensor) -> Tensor:
        found = RunningMoments.of(many(x), scatters=products)
        return torch.cat([found.mean[None], found.scatter / found.n])

    def repeated(x: Tensor) -> Tensor:
        return torch.cat([part[None] if part.dim() == 1 else part for part in equation(x)])

    def varying(x: Tensor) -> Tensor:
        return (centred(x.expand(7, 3), (0,)) != 0).any().to(x)

    yield Claim(agreement(other=one_by_one), squared, shape("n:1..5 3"), name="Moments.over: squares")
    yield Claim(agreement(other=repeated), all_at_once, shape("6 2"), name="Moments.of 600 rows")
    yield Claim(
        agreement(other=lambda x: x.new_zeros(())), varying, shape("3"), name="centred: constants give exactly 0"
    )
    for i, part in enumerate(("mean", "covariance")):

        def one(x: Tensor, i: int = i) -> Tensor:
            return streamed(x)[i]

        def other(x: Tensor, i: int = i) -> Tensor:
            return equation(x)[i]

        yield Claim(agreement(other=other), one, shape("n:1..8 3"), name=f"Moments.over: {part}")


def pca_whitening(covariance: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    r"""Whitens along the principal axes, the direction of most variance first.

    $$W = V \Lambda^{-1/2}, \qquad \Sigma = V \Lambda V^\mathsf{T}$$

    Eigenvalues below rounding, $d$ times the precision times the largest, count as 0, and their columns are 0. An
    eigenvector has no sign of its own: its largest entry is positive, but for the last one, by which $\det V = 1$.

    Args:
        covariance: $\Sigma$, symmetric and positive semidefinite.

    Examples:
        >>> pca_whitening(torch.tensor([[4.0, 0.0], [0.0, 1.0]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 1.0000]])
    """
    axes, stretch = _axes(covariance)
    fixed = axes.detach()
    largest = fixed.gather(-2, fixed.abs().argmax(-2, keepdim=True)).sign()
    turned = torch.linalg.det(fixed * largest).sign()[..., None, None]
    last = torch.arange(axes.shape[-1], device=axes.device) == axes.shape[-1] - 1
    return axes * largest * torch.where(last, turned, 1.0) * stretch


def zca_whitening(covariance: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    r"""Whitens with the symmetric matrix, which of all whitening matrices moves the data least.

    $$W = \Sigma^{-1/2} = V \Lambda^{-1/2} V^\mathsf{T}, \qquad \Sigma = V \Lambda V^\mathsf{T}$$

    It is `inverse_root`, whose derivatives are right where variances are equal.

    Args:
        covariance: $\Sigma$, symmetric and positive semidefinite.

    Examples:
        >>> zca_whitening(torch.tensor([[1.0, 0.0], [0.0, 4.0]]))
        tensor([[1.0000, 0.0000],
                [0.0000, 0.5000]])
    """
    return inverse_root(_finite(covariance))


def cholesky(covariance: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    r"""Whitens feature after feature: each by itself and those before it, as Gram and Schmidt do.

    $$W = L^{-\mathsf{T}}, \qquad \Sigma = L L^\mathsf{T}$$

    $L$ is lower triangular, $W$ upper triangular. A feature that those before it determine, up to rounding, gets a
    column of 0. How large the features are makes no difference to this.

    Args:
        covariance: $\Sigma$, symmetric and positive semidefinite.

    Examples:
        >>> cholesky(torch.tensor([[4.0, 2.0], [2.0, 2.0]]))
        tensor([[ 0.5000, -0.5000],
                [ 0.0000,  1.0000]])
    """
    lower = _lower(_finite(covariance))
    kept = lower.diagonal(dim1=-2, dim2=-1) > 0
    full = lower + torch.diag_embed((~kept).to(lower))
    one = torch.eye(lower.shape[-1]).to(lower).expand_as(lower)
    return torch.linalg.solve_triangular(full, one, upper=False).mT * kept[..., None, :]


def _finite(covariance: Tensor) -> Tensor:
    if not covariance.isfinite().all():
        raise ValueError("a finite covariance was wanted: got NaN or infinite entries")
    return covariance


def _rounding(covariance: Tensor) -> float:
    return covariance.shape[-1] * torch.finfo(covariance.dtype).eps


def _axes(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """The principal axes, of the largest variance first, and what makes each variance 1: 0 where there is none."""
    values, axes = torch.linalg.eigh(_finite(covariance))
    none = values <= _rounding(covariance) * values[..., -1:]
    return axes.flip(-1), values.masked_fill(none, torch.inf).rsqrt().flip(-1)[..., None, :]


def _lower(covariance: Tensor) -> Tensor:
    """The Cholesky factor; the column of a feature that those before it determine is 0."""
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


def _rotations_claims() -> Iterator[Claim]:
    """The laws that whitening matrices obey."""

    def covariances(x: Tensor) -> Tensor:
        return x @ x.mT / (1 + x.square().sum((-1, -2), keepdim=True)) + torch.diag(torch.tensor([0.5, 1.0, 2.0])).to(x)

    def flat_covariances(x: Tensor) -> Tensor:
        factor = x.tanh() + torch.tensor([[3.0, 0.0], [0.0, 3.0], [3.0, -3.0]]).to(x)
        return factor @ factor.mT

    inputs, flat = transformed(covariances, "b 3 3"), transformed(flat_covariances, "b 3 2")
    for rotation in (pca_whitening, zca_whitening, cholesky):

        def whitened(covariance: Tensor, rotation: Callable[[Tensor], Tensor] = rotation) -> Tensor:
            return rotation(covariance).mT @ covariance @ rotation(covariance)

        def restored(covariance: Tensor, rotation: Callable[[Tensor], Tensor] = rotation) -> Tensor:
            return covariance @ rotation(covariance) @ rotation(covariance).mT @ covariance

        name = rotation.__name__
        yield Claim(agreement(other=_ones), whitened, inputs, name=f"{name}: Wᵀ Σ W = 1")
        yield Claim(agreement(other=torch.clone), restored, flat, name=f"{name}: Σ W Wᵀ Σ = Σ at rank 2 of 3")

    def volume(covariance: Tensor) -> Tensor:
        return torch.linalg.det(pca_whitening(covariance))

    def from_variances(covariance: Tensor) -> Tensor:
        return torch.linalg.det(covariance).rsqrt()

    yield Claim(agreement(other=from_variances), volume, inputs, name="pca: det W > 0")

    def lengths(covariance: Tensor) -> Tensor:
        return pca_whitening(covariance).mT @ pca_whitening(covariance)

    def inverse_variances(covariance: Tensor) -> Tensor:
        return torch.diag_embed(1 / torch.linalg.svdvals(covariance))

    yield Claim(agreement(other=inverse_variances), lengths, inputs, name="pca: Wᵀ W = 1 / Λ")
    yield Claim(agreement(other=_by_svd), zca_whitening, inputs)

    def beyond_opposite(covariance: Tensor) -> Tensor:
        columns = pca_whitening(covariance)[..., :-1]
        return columns.amax(-2) + columns.amin(-2)

    yield Claim(boundedness(low=0.0), beyond_opposite, inputs, name="pca: the largest entry of a column is positive")

    def triangular(covariance: Tensor) -> Tensor:
        return torch.linalg.inv(torch.linalg.cholesky(covariance)).mT.triu()

    yield Claim(agreement(other=triangular), cholesky, inputs, name="cholesky: W is triangular")

    def turn(covariance: Tensor) -> Tensor:
        between = torch.linalg.solve(zca_whitening(covariance), pca_whitening(covariance))
        return between.mT @ between

    yield Claim(agreement(other=_ones), turn, inputs, name="pca is zca, turned")


def _by_svd(covariance: Tensor) -> Tensor:
    axes, variances, _ = torch.linalg.svd(covariance)
    return axes * variances.rsqrt()[..., None, :] @ axes.mT


def _ones(covariance: Tensor) -> Tensor:
    return torch.eye(covariance.shape[-1]).to(covariance).expand_as(covariance)


def standardize(x: Float[Tensor, "*shape"], *, axes: Sequence[int] = (0,), eps: float = 0.0) -> Float[Tensor, "*shape"]:
    r"""Takes the mean away and divides by the standard deviation (the z-score).

    $$z_{nd} = \frac{x_{nd} - \mu_d}{\sqrt{\sigma_d^2 + \epsilon}}, \qquad
    \mu_d = \tfrac{1}{N} \sum_n x_{nd}, \quad \sigma_d^2 = \tfrac{1}{N} \sum_n (x_{nd} - \mu_d)^2$$

    Where nothing varies there is no unit to measure in: the result is exactly 0, and so is its gradient. How large
    the numbers are makes no difference: squares are those of parts of the largest one.

    Args:
        x: The data, with samples along the axes and any features along the others.
        axes: The axes that $n$ runs over.
        eps: $\epsilon$, not negative.

    Examples:
        >>> standardize(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
        tensor([[-1.,  0.],
                [ 1.,  0.]])
    """
    if x.numel() == 0 or not axes:
        raise ValueError(f"entries, and an axis to run over, were wanted: got shape {tuple(x.shape)}, axes {axes}")
    _check_eps(eps)
    off, axes = centred(x, axes), tuple(axes)
    size = off.detach().abs().amax(axes, keepdim=True)
    none = size == 0
    size = size.clamp_min(eps**0.5).masked_fill(none, 1.0)
    off = off / size
    variance = off.square().mean(axes, keepdim=True) + eps / size / size
    return off * variance.masked_fill(none, torch.inf).rsqrt()


def _check_eps(eps: float) -> None:
    if not eps >= 0:
        raise ValueError(f"eps is not negative: got {eps}")


def _unit(variance: Tensor, eps: float) -> Tensor:
    """What makes the variance 1: 0 where nothing varies."""
    _check_eps(eps)
    return (variance + eps).masked_fill(variance == 0, torch.inf).rsqrt()


@dataclass(frozen=True, eq=False)
class Standardizer:
    r"""Standardises new data as the data that it was fitted to, and back.

    $$z = (x - \mu) / \sqrt{\sigma^2 + \epsilon}, \qquad x = z \sqrt{\sigma^2 + \epsilon} + \mu$$

    Samples lie along the first axis. A constant feature comes out as exactly 0, whatever it is in new data, and the
    inverse gives the constant. Data so small that their squares vanish are refused, as are huge ones. `fit` and
    `update` let no gradient pass, `transform` and `inverse` do.

    Args:
        moments: Count, mean and squares of the data, from `fit`, or from `RunningMoments.over` a stream.
        eps: $\epsilon$, not negative.

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
            raise ValueError(f"moments with squares were wanted: got {self.moments.scatters.__name__}")
        if self.moments.n < 2:
            raise ValueError(f"a spread wants at least 2 rows: got {self.moments.n}")
        _unit(self.variance, self.eps)

    @classmethod
    def fit(cls, x: Float[Tensor, "n ..."], *, eps: float = 0.0) -> Standardizer:
        """Reads the data, which are to be finite."""
        return cls(RunningMoments.of(x, scatters=squares), eps)

    def update(self, batch: Float[Tensor, "n ..."]) -> Standardizer:
        """Returns the one that has read a further batch too."""
        return replace(self, moments=self.moments.merge(RunningMoments.of(batch, scatters=squares)))

    @property
    def mean(self) -> Float[Tensor, ...]:
        r"""$\mu$."""
        return self.moments.mean

    @property
    def variance(self) -> Float[Tensor, ...]:
        r"""$\sigma^2$."""
        return self.moments.scatter / self.moments.n

    @property
    def constant(self) -> Bool[Tensor, ...]:
        """Which features never varied."""
        return self.moments.scatter == 0

    def transform(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Standardises rows, or a single one."""
        self._check(x)
        return row_by_row(lambda x, mean, unit: (x - mean) * unit, x, self.mean, _unit(self.variance, self.eps))

    def inverse(self, z: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Undoes `transform`."""
        self._check(z)
        root = (self.variance + self.eps).sqrt().masked_fill(self.constant, 0.0)
        return row_by_row(lambda z, mean, root: z * root + mean, z, self.mean, root)

    def _check(self, x: Tensor) -> None:
        if x.shape[max(0, x.dim() - self.mean.dim()) :] != self.mean.shape:
            raise ValueError(f"features of shape {tuple(self.mean.shape)} were wanted: got shape {tuple(x.shape)}")


def _standardize_claims() -> Iterator[Claim]:
    """The laws that standardising obeys."""
    data = shape("n:2..6 3")
    yield Claim(shift_invariance(axis=0), standardize, data)
    yield Claim(scale_invariance(axis=0), standardize, data)
    yield Claim(permutation_equivariance(axis=0), standardize, data)

    def equation(x: Tensor) -> Tensor:
        z = (x - x.mean(0)) / x.var(0, correction=0).sqrt()
        return torch.where((x == x[0]).all(0), 0.0, z)

    def over_both(x: Tensor) -> Tensor:
        return standardize(x, axes=(0, 1), eps=0.1)

    def lifted_equation(x: Tensor) -> Tensor:
        return (x - x.mean()) / (x.var(correction=0) + 0.1).sqrt()

    yield Claim(agreement(other=equation), standardize, data)
    yield Claim(agreement(other=lifted_equation), over_both, data, name="standardize(axes=(0, 1), eps=0.1)")

    def streamed(x: Tensor) -> Tensor:
        return Standardizer.fit(x[:2], eps=0.1).update(x[2:]).transform(x)

    def and_back(x: Tensor) -> Tensor:
        fitted = Standardizer.fit(x)
        return fitted.inverse(fitted.transform(x))

    yield Claim(agreement(other=partial(standardize, eps=0.1)), streamed, shape("n:3..8 3"), name="Standardizer.update")
    yield Claim(agreement(other=torch.clone), and_back, data, name="Standardizer.inverse")

    def beside_five(x: Tensor) -> Tensor:
        steps = torch.arange(len(x)).to(x)[:, None]
        return torch.cat([x.tanh() + 3 * steps, 5 + 0 * steps], -1)

    def of_new(x: Tensor) -> Tensor:
        fitted, new = Standardizer.fit(x, eps=0.1), x + 1
        return torch.cat(
            [fitted.transform(new), fitted.inverse(new), fitted.constant.to(x)[None], fitted.variance[None]]
        )

    def written_out(x: Tensor) -> Tensor:
        variance, varies, new = x.var(0, correction=0), x.new_tensor([1, 1, 0]), x + 1
        z, y = (new - x.mean(0)) / (variance + 0.1).sqrt(), new * (variance + 0.1).sqrt()
        return torch.cat([varies * z, varies * y + x.mean(0), 1 - varies[None], variance[None]])

    constant = transformed(beside_five, "n:2..6 2")
    yield Claim(agreement(other=written_out), of_new, constant, name="Standardizer(eps=0.1), a constant feature")


Rotation = Callable[[Tensor], Tensor]
r"""From a covariance $\Sigma$ to a $W$ with $W^\mathsf{T} \Sigma W = 1$: `pca`, `zca`, `cholesky` or another."""


def _lifted(covariance: Tensor, eps: float) -> Tensor:
    if not eps >= 0:
        raise ValueError(f"eps is not negative: got {eps}")
    return covariance + eps * torch.eye(covariance.shape[-1]).to(covariance)


def whiten(
    x: Float[Tensor, "*batch n d"], *, rotation: Rotation = zca_whitening, eps: float = 0.0
) -> Float[Tensor, "*batch n d"]:
    r"""Makes the covariance of the data the identity.

    $$Z = (X - \mu) \, W, \qquad W^\mathsf{T} (\Sigma + \epsilon) \, W = 1, \qquad
    \Sigma = \tfrac{1}{N} (X - \mu)^\mathsf{T} (X - \mu)$$

    Any $W$ times an orthogonal matrix is another: `rotation` says which one is meant. Directions without variance
    come out as 0. The gradient of `pca_whitening` is that of an eigendecomposition, with no value where eigenvalues coincide;
    `zca_whitening` has one there too, and `cholesky` wherever the data have full rank.

    Reference:
        Kessy, Lewin and Strimmer, *Optimal Whitening and Decorrelation*, 2018.

    Args:
        x: The data $X$, a row for each sample.
        rotation: From the covariance to $W$: `pca_whitening`, `zca_whitening` or `cholesky`.
        eps: $\epsilon$, not negative: small directions are stretched less.

    Examples:
        >>> x = torch.tensor([[0.0, 0.0], [2.0, 2.0], [4.0, 0.0], [2.0, -2.0]])
        >>> z = whiten(x)
        >>> (z.mT @ z / 4).round(decimals=4)
        tensor([[1., 0.],
                [0., 1.]])
    """
    if x.dim() < 2 or x.shape[-2] < 2 or x.numel() == 0:
        raise ValueError(f"at least 2 rows and 1 feature were wanted: got shape {tuple(x.shape)}")
    if not x.isfinite().all():
        raise ValueError("finite numbers were wanted: got NaN or infinite ones")
    off = centred(x, (-2,))
    return off @ rotation(_lifted(off.mT @ off / x.shape[-2], eps))


@dataclass(frozen=True, eq=False)
class Whitening:
    r"""Whitens new data as the data that it was fitted to, and back.

    $$z = (x - \mu) \, W, \qquad x = z \, W^\mathsf{T} (\Sigma + \epsilon) + \mu$$

    The second is the inverse since $W^\mathsf{T} (\Sigma + \epsilon) \, W = 1$. Where the data have no variance,
    `transform` gives 0 and `inverse` gives the mean, so that the data come back all the same; `rank` says how many
    directions there are besides. An $\epsilon$ above 0 keeps every direction. $\Sigma$ divides by $N$ (scikit-learn's
    PCA by $N - 1$). `fit` and `update` let no gradient pass, `transform` and `inverse` do.

    Args:
        moments: Count, mean and products of the data, from `fit`, or from `RunningMoments.over` a stream.
        rotation: From the covariance to $W$: `pca_whitening`, `zca_whitening` or `cholesky`.
        eps: $\epsilon$, not negative.

    Examples:
        >>> fitted = Whitening.fit(torch.tensor([[0.0, 0.0], [2.0, 2.0]]))
        >>> fitted.rank, fitted.inverse(fitted.transform(torch.tensor([[4.0, 4.0]]))).round(decimals=4)
        (1, tensor([[4., 4.]]))
        >>> fitted.update(torch.tensor([[0.0, 1.0]])).rank
        2
    """

    moments: RunningMoments
    rotation: Rotation = zca_whitening
    eps: float = 0.0

    def __post_init__(self) -> None:
        if self.moments.scatter.shape != (*self.moments.mean.shape, *self.moments.mean.shape):
            raise ValueError(f"moments with products were wanted: got {self.moments.scatters.__name__}")
        if self.moments.n < 2:
            raise ValueError(f"a covariance wants at least 2 rows: got {self.moments.n}")
        _lifted(self.covariance, self.eps)

    @classmethod
    def fit(cls, x: Float[Tensor, "n d"], *, rotation: Rotation = zca_whitening, eps: float = 0.0) -> Whitening:
        """Reads the data, which are to be finite."""
        if x.dim() != 2:
            raise ValueError(f"a row for each sample was wanted: got shape {tuple(x.shape)}")
        return cls(RunningMoments.of(x, scatters=products), rotation, eps)

    def update(self, batch: Float[Tensor, "n d"]) -> Whitening:
        """Returns the one that has read a further batch too."""
        return replace(self, moments=self.moments.merge(RunningMoments.of(batch, scatters=products)))

    @property
    def mean(self) -> Float[Tensor, " d"]:
        r"""$\mu$."""
        return self.moments.mean

    @property
    def covariance(self) -> Float[Tensor, "d d"]:
        r"""$\Sigma$."""
        return self.moments.scatter / self.moments.n

    @cached_property
    def weight(self) -> Float[Tensor, "d d"]:
        r"""$W$."""
        return self.rotation(_lifted(self.covariance, self.eps))

    @cached_property
    def weight_back(self) -> Float[Tensor, "d d"]:
        r"""$W^\mathsf{T} (\Sigma + \epsilon)$, the inverse of $W$ on what it keeps."""
        return self.weight.mT @ _lifted(self.covariance, self.eps)

    @cached_property
    def rank(self) -> int:
        """How many directions are kept: the trace of the projection onto them."""
        return round(float((self.weight @ self.weight_back).trace()))

    def transform(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Whitens rows, or a single one."""
        self._check(x)
        return row_by_row(lambda x, mean, weight: (x - mean) @ weight, x, self.mean, self.weight)

    def inverse(self, z: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Undoes `transform`."""
        self._check(z)
        return row_by_row(lambda z, mean, weight: z @ weight + mean, z, self.mean, self.weight_back)

    def _check(self, x: Tensor) -> None:
        if x.shape[-1:] != self.mean.shape:
            raise ValueError(f"{self.mean.numel()} features were wanted: got shape {tuple(x.shape)}")


def _flatness(x: Tensor) -> Tensor:
    """The least standard deviation along a principal axis, as a part of the largest: 0 for data of lower rank."""
    spread = torch.linalg.svdvals(x - x.mean(-2, keepdim=True))
    return spread[-1:] / spread[:1].clamp_min(torch.finfo(x.dtype).tiny)


@law("[1 f(x)]ᵀ [1 f(x)] / n = 1", discover_with=None)
def whiteness(f: Map, x: Tensor, *, draw: Draw) -> Statement:
    """The columns of the output have mean 0, variance 1 and no correlation.

    The domain leaves out data that are, or almost are, of lower rank.

    Satisfied by: whitening.
    Broken by: standardising; whitening with an eps.
    """
    draw.assume(_flatness(x) > 0.1)
    y = f(x)
    beside = torch.cat([torch.ones_like(y[:, :1]), y], -1)
    moments = beside.mT @ beside / len(y)
    return Equal(moments, torch.eye(len(moments)).to(y), exercised=True)


@law("‖f(x) - x‖ ≤ ‖f(x) R - x‖, R orthogonal", discover_with=None)
def least_change(f: Map, x: Tensor, *, draw: Draw) -> Statement:
    """No rotation or reflection of the output is closer to the input, taken from its mean.

    Satisfied by: ZCA-whitening; the orthogonal factor of a polar decomposition.
    Broken by: PCA- and Cholesky-whitening.
    """
    y, off = f(x), x - x.mean(-2, keepdim=True)
    turn = torch.linalg.qr(draw.normal(y.shape[-1], y.shape[-1])).Q
    return AtMost((y - off).square().sum(), (y @ turn - off).square().sum())


def _whiten_claims() -> Iterator[Claim]:
    """The laws that whitening obeys."""

    def flattened(x: Tensor) -> Tensor:
        return torch.cat([x, 2 * x[..., :1] - x[..., 1:] + 1], -1)

    data, flat = shape("n:4..7 3"), transformed(flattened, "n:4..7 2")
    for rotation in (pca_whitening, zca_whitening, cholesky):
        subject = partial(whiten, rotation=rotation)
        yield Claim(whiteness(), subject, data, name=f"whiten(rotation={rotation.__name__})")

        def and_back(x: Tensor, rotation: Rotation = rotation) -> Tensor:
            fitted = Whitening.fit(x, rotation=rotation)
            return fitted.inverse(fitted.transform(x))

        name = f"Whitening.inverse, rotation={rotation.__name__}"
        yield Claim(agreement(other=torch.clone), and_back, flat, name=f"{name}, rank 2 of 3")
    yield Claim(least_change(), whiten, data, name="whiten(rotation=zca)")

    def orthonormal(x: Tensor) -> Tensor:
        q, r = torch.linalg.qr(x - x.mean(0))
        return q * r.diagonal().sign() * len(x) ** 0.5

    def gram_schmidt(x: Tensor) -> Tensor:
        return whiten(x, rotation=cholesky)

    far = agreement(other=orthonormal).excluding(_flatness, radius=0.1)
    yield Claim(far, gram_schmidt, data, name="whiten(rotation=cholesky)")

    def lifted(x: Tensor) -> Tensor:
        return whiten(x, eps=0.5)

    def streamed(x: Tensor) -> Tensor:
        return Whitening.fit(x[:2], eps=0.5).update(x[2:]).transform(x)

    def equation(x: Tensor) -> Tensor:
        u, s, v = torch.linalg.svd(x - x.mean(0), full_matrices=False)
        return u * (s / (s.square() / len(x) + 0.5).sqrt()) @ v

    yield Claim(agreement(other=equation), lifted, data, name="whiten(eps=0.5)")
    yield Claim(agreement(other=equation), streamed, data, name="Whitening.update(eps=0.5)")

    def known(x: Tensor) -> Tensor:
        fitted, lifted = Whitening.fit(x), Whitening.fit(x, eps=0.5)
        ranks = x.new_tensor([[fitted.rank, lifted.rank, 0]])
        return torch.cat([ranks, fitted.covariance, fitted.transform(x), lifted.inverse(lifted.transform(x + 1))])

    def expected(x: Tensor) -> Tensor:
        return torch.cat([x.new_tensor([[2, 3, 0]]), x.mT.cov(correction=0), whiten(x), x + 1])

    def plane(x: Tensor) -> Tensor:
        return flattened(x.tanh() + x.new_tensor([[3.0, 0.0], [0.0, 3.0], [-3.0, 0.0], [0.0, -3.0]]))

    yield Claim(agreement(other=expected), known, transformed(plane, "4 2"), name="Whitening, rank 2 of 3")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _inverse_root_claims()
    yield from _moments_claims()
    yield from _rotations_claims()
    yield from _standardize_claims()
    yield from _whiten_claims()
