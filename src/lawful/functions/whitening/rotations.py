"""The whitening matrices of a covariance: by principal axes, closest to the data, triangular."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.whitening.inverse_root import inverse_root
from lawful.laws import Claim, agreement, boundedness, made


def pca(covariance: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    r"""Whitens along the principal axes, the direction of most variance first.

    $$W = V \Lambda^{-1/2}, \qquad \Sigma = V \Lambda V^\mathsf{T}$$

    Eigenvalues below rounding, $d$ times the precision times the largest, count as 0, and their columns are 0. An
    eigenvector has no sign of its own: its largest entry is positive, but for the last one, by which $\det V = 1$.

    Args:
        covariance: $\Sigma$, symmetric and positive semidefinite.

    Examples:
        >>> pca(torch.tensor([[4.0, 0.0], [0.0, 1.0]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 1.0000]])
    """
    axes, stretch = _axes(covariance)
    fixed = axes.detach()
    largest = fixed.gather(-2, fixed.abs().argmax(-2, keepdim=True)).sign()
    turned = torch.linalg.det(fixed * largest).sign()[..., None, None]
    last = torch.arange(axes.shape[-1], device=axes.device) == axes.shape[-1] - 1
    return axes * largest * torch.where(last, turned, 1.0) * stretch


def zca(covariance: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    r"""Whitens with the symmetric matrix, which of all whitening matrices moves the data least.

    $$W = \Sigma^{-1/2} = V \Lambda^{-1/2} V^\mathsf{T}, \qquad \Sigma = V \Lambda V^\mathsf{T}$$

    It is `inverse_root`, whose derivatives are right where variances are equal.

    Args:
        covariance: $\Sigma$, symmetric and positive semidefinite.

    Examples:
        >>> zca(torch.tensor([[1.0, 0.0], [0.0, 4.0]]))
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


def claims() -> Iterator[Claim]:
    """The laws that whitening matrices obey."""

    def covariances(x: Tensor) -> Tensor:
        return x @ x.mT / (1 + x.square().sum((-1, -2), keepdim=True)) + torch.diag(torch.tensor([0.5, 1.0, 2.0])).to(x)

    def flat_covariances(x: Tensor) -> Tensor:
        factor = x.tanh() + torch.tensor([[3.0, 0.0], [0.0, 3.0], [3.0, -3.0]]).to(x)
        return factor @ factor.mT

    inputs, flat = made(covariances, "b 3 3"), made(flat_covariances, "b 3 2")
    for rotation in (pca, zca, cholesky):

        def whitened(covariance: Tensor, rotation: Callable[[Tensor], Tensor] = rotation) -> Tensor:
            return rotation(covariance).mT @ covariance @ rotation(covariance)

        def restored(covariance: Tensor, rotation: Callable[[Tensor], Tensor] = rotation) -> Tensor:
            return covariance @ rotation(covariance) @ rotation(covariance).mT @ covariance

        name = rotation.__name__
        yield Claim(agreement(other=_ones), whitened, inputs, name=f"{name}: Wᵀ Σ W = 1")
        yield Claim(agreement(other=torch.clone), restored, flat, name=f"{name}: Σ W Wᵀ Σ = Σ at rank 2 of 3")

    def volume(covariance: Tensor) -> Tensor:
        return torch.linalg.det(pca(covariance))

    def from_variances(covariance: Tensor) -> Tensor:
        return torch.linalg.det(covariance).rsqrt()

    yield Claim(agreement(other=from_variances), volume, inputs, name="pca: det W > 0")

    def lengths(covariance: Tensor) -> Tensor:
        return pca(covariance).mT @ pca(covariance)

    def inverse_variances(covariance: Tensor) -> Tensor:
        return torch.diag_embed(1 / torch.linalg.svdvals(covariance))

    yield Claim(agreement(other=inverse_variances), lengths, inputs, name="pca: Wᵀ W = 1 / Λ")
    yield Claim(agreement(other=_by_svd), zca, inputs)

    def beyond_opposite(covariance: Tensor) -> Tensor:
        columns = pca(covariance)[..., :-1]
        return columns.amax(-2) + columns.amin(-2)

    yield Claim(boundedness(low=0.0), beyond_opposite, inputs, name="pca: the largest entry of a column is positive")

    def triangular(covariance: Tensor) -> Tensor:
        return torch.linalg.inv(torch.linalg.cholesky(covariance)).mT.triu()

    yield Claim(agreement(other=triangular), cholesky, inputs, name="cholesky: W is triangular")

    def turn(covariance: Tensor) -> Tensor:
        between = torch.linalg.solve(zca(covariance), pca(covariance))
        return between.mT @ between

    yield Claim(agreement(other=_ones), turn, inputs, name="pca is zca, turned")


def _by_svd(covariance: Tensor) -> Tensor:
    axes, variances, _ = torch.linalg.svd(covariance)
    return axes * variances.rsqrt()[..., None, :] @ axes.mT


def _ones(covariance: Tensor) -> Tensor:
    return torch.eye(covariance.shape[-1]).to(covariance).expand_as(covariance)
