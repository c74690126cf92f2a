"""The Fréchet distance: how far two sets of samples are apart, if both are taken for Gaussian."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, Draw, Map, Same, Statement, agreement, law, made


def frechet_distance(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"]) -> float:
    r"""Measures how far two sets of features are apart by their means and covariances, squared.

    $$d^2 = \lVert \mu_x - \mu_y \rVert^2 + \operatorname{tr}\bigl(\Sigma_x + \Sigma_y
    - 2 (\Sigma_x^{1/2} \Sigma_y \Sigma_x^{1/2})^{1/2}\bigr)$$

    Features may be those of any network, or the data themselves. It is computed in float64 from singular values, so
    that no root is complex. It is biased upwards, the more the fewer samples there are: compare at equal numbers, and
    print that of two parts of the data beside it as the floor. Covariances (over $n - 1$) of fewer samples than
    features say little, and are refused.

    Reference:
        Dowson and Landau, *The Fréchet distance between multivariate normal distributions*, 1982.
        Heusel, Ramsauer, Unterthiner, Nessler and Hochreiter, *GANs Trained by a Two Time-Scale Update Rule*, 2017.

    Args:
        x: Features of some samples, a row each.
        y: Features of others.

    Examples:
        >>> x = torch.tensor([[0.0], [1.0], [2.0]])
        >>> round(frechet_distance(x, 2 * x + 3), 4)
        17.0
    """
    x, y = features(x, y)
    for rows in (x, y):
        if len(rows) <= rows.shape[1]:
            raise ValueError(
                f"more samples than features were wanted: got {len(rows)} samples of {rows.shape[1]} features"
            )
    return float(gaussian_frechet(x.mean(0), x.mT.cov(), y.mean(0), y.mT.cov()))


def gaussian_frechet(
    mean: Float[Tensor, " d"],
    covariance: Float[Tensor, "d d"],
    other_mean: Float[Tensor, " d"],
    other_covariance: Float[Tensor, "d d"],
) -> Float[Tensor, ""]:
    r"""Measures the squared Fréchet distance, which is Wasserstein's, of two Gaussians.

    $$\operatorname{tr} (\Sigma_x^{1/2} \Sigma_y \Sigma_x^{1/2})^{1/2} = \sum_i s_i,
    \qquad s \text{ the singular values of } \Sigma_x^{1/2} \Sigma_y^{1/2}$$

    Args:
        mean: $\mu_x$.
        covariance: $\Sigma_x$; it may have directions without variance.
        other_mean: $\mu_y$.
        other_covariance: $\Sigma_y$.

    Examples:
        >>> one = torch.eye(2)
        >>> gaussian_frechet(torch.zeros(2), one, torch.ones(2), 4 * one)
        tensor(4.)
    """
    covariance, other_covariance = (torch.atleast_2d(c) for c in (covariance, other_covariance))
    overlap = torch.linalg.svdvals(_root(covariance) @ _root(other_covariance)).sum()
    apart = (mean - other_mean).square().sum()
    return apart + (covariance.trace() + other_covariance.trace() - 2 * overlap).clamp_min(0)


def _root(covariance: Tensor) -> Tensor:
    values, axes = torch.linalg.eigh(covariance)
    return axes * values.clamp_min(0).sqrt() @ axes.mT


def features(x: Tensor, y: Tensor, *, least: int = 2) -> tuple[Tensor, Tensor]:
    """Both sets of features in float64 on the CPU, or a word on why they cannot be compared."""
    if x.dim() != 2 or y.dim() != 2 or x.shape[1:] != y.shape[1:]:
        raise ValueError(
            f"rows of as many features on both sides were wanted: got shapes {tuple(x.shape)} and {tuple(y.shape)}"
        )
    if min(len(x), len(y)) < least or not x.shape[1]:
        sizes = f"{len(x)} and {len(y)} of {x.shape[1]}"
        raise ValueError(f"at least {least} samples of 1 feature on both sides were wanted: got {sizes}")
    if not (bool(x.isfinite().all()) and bool(y.isfinite().all())):
        raise ValueError("finite features were wanted: got NaN or infinite ones")
    return x.detach().double().cpu(), y.detach().double().cpu()


@law("d(x R, y R) = d(x, y), R orthogonal", every_input=True, tries=None)
def turned_together(f: Map, x: Tensor, y: Tensor, *, draw: Draw) -> Statement:
    """Turning the features of both sides by one rotation changes nothing.

    Kept by: distances of means and covariances; kernels of distances or of inner products.
    Broken by: variances feature by feature.
    """
    turn = torch.linalg.qr(draw.normal(x.shape[1], x.shape[1])).Q
    return Same(f(x @ turn, y @ turn), f(x, y))


def claims() -> Iterator[Claim]:
    """The laws that the Fréchet distance obeys."""

    def distance(x: Tensor, y: Tensor) -> Tensor:
        return x.new_tensor(frechet_distance(x, y))

    def wide(x: Tensor) -> Tensor:
        return x.tanh() + torch.cat([torch.eye(2), -torch.eye(2)]).to(x)

    data = (made(wide, "4 2"), made(wide, "4 2"))
    yield Claim(turned_together(), distance, data, name="frechet_distance")
    yield Claim(agreement(other=lambda x, y: distance(y, x)), distance, data, name="frechet_distance(y, x)")

    def commuting(x: Tensor) -> Tensor:
        means, scales = x[0].tanh(), x[1:].tanh() + 2
        pair = [torch.diag(s.square()) for s in scales]
        return gaussian_frechet(means, pair[0], torch.zeros_like(means), pair[1])

    def along_axes(x: Tensor) -> Tensor:
        return x[0].tanh().square().sum() + (x[1].tanh() - x[2].tanh()).square().sum()

    yield Claim(
        agreement(other=along_axes), commuting, made(torch.clone, "3 3"), name="gaussian_frechet, one set of axes"
    )

    def by_eigenvalues(x: Tensor, y: Tensor) -> Tensor:
        a, b = (z.double().mT.cov() for z in (x, y))
        overlap = torch.linalg.eigvals(a @ b).real.clamp_min(0).sqrt().sum()
        return ((x.double().mean(0) - y.double().mean(0)).square().sum() + (a + b).trace() - 2 * overlap).to(x)

    yield Claim(agreement(other=by_eigenvalues), distance, data, name="frechet_distance, by eigenvalues of a product")
