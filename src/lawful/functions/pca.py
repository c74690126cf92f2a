"""Principal component analysis: exact, randomized and incremental solvers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.random import normal_noise
from lawful.laws import Claim, agreement, orthonormality, transformed

_MIN_STD_RATIO = 1e-6  # a direction with a smaller standard deviation, relative to the largest, has no variance


@dataclass(frozen=True, eq=False)
class PrincipalComponents:
    r"""Principal components of data, in float64, sorted by decreasing variance.

    $$\Sigma = \tfrac{1}{N} (X - \mu)^\mathsf{T} (X - \mu) \approx V \Lambda V^\mathsf{T}, \qquad
    V^\mathsf{T} V = 1, \quad \lambda_1 \ge \lambda_2 \ge \dots > 0$$

    Directions without variance, up to rounding, are left out. The largest entry of a component is positive.

    Args:
        n_samples: $N$.
        mean: $\mu$.
        components: $V^\mathsf{T}$, one component per row.
        explained_variance: $\lambda$; it divides by $N$ (scikit-learn's by $N - 1$).
        total_variance: Trace of $\Sigma$, the variance along all directions.
        whitener: $W = V \Lambda^{-1/2}$; the exact solver corrects it for rounding.
    """

    n_samples: int
    mean: Float[Tensor, " d"]
    components: Float[Tensor, "k d"]
    explained_variance: Float[Tensor, " k"]
    total_variance: float
    whitener: Float[Tensor, "d k"]

    @property
    def residual_variance(self) -> float:
        """Variance along all directions that are left out."""
        return max(0.0, self.total_variance - float(self.explained_variance.sum()))


def pca_axes(x: Float[Tensor, "n d"], *, n_components: int | None = None) -> PrincipalComponents:
    r"""Computes the principal components by a singular value decomposition of the centered data.

    $$X - \mu = U S V^\mathsf{T}, \qquad \Lambda = S^2 / N$$

    The covariance is never formed: its rounding would hide standard deviations below $10^{-8}$ of the largest. A
    standard deviation below $10^{-6}$ of the largest, or below the rounding of the data, counts as 0. The whitener is
    refined on the data: the whitened covariance is the identity to ten digits.

    Args:
        x: Data $X$, one sample per row.
        n_components: Maximum number of components. Defaults to all with variance.

    Examples:
        >>> pca = pca_axes(torch.tensor([[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]]))
        >>> pca.components.round(decimals=4), pca.explained_variance.round(decimals=4)
        (tensor([[0.7071, 0.7071]], dtype=torch.float64), tensor([5.3333], dtype=torch.float64))
    """
    rows = _check_data(x, 2)
    n_components = _check_n_components(n_components, rows.shape[1])
    mean, centered = _center(rows)
    tall = torch.linalg.qr(centered, mode="r").R if centered.shape[0] > centered.shape[1] else centered
    _, s, vt = torch.linalg.svd(tall, full_matrices=False)
    variance = float(centered.square().sum()) / len(centered)
    pca = _truncate(len(centered), mean, s, vt, variance, n_components, _min_std_ratio(x))
    z = centered @ pca.whitener
    lower = torch.linalg.cholesky(z.mT @ z / len(z))
    pca.whitener.copy_(torch.linalg.solve_triangular(lower, pca.whitener.mT, upper=False).mT)
    return pca


def randomized_pca_axes(
    x: Float[Tensor, "n d"], *, n_components: int, n_oversamples: int = 10, n_iter: int = 4, seed: int = 0
) -> PrincipalComponents:
    r"""Computes the leading principal components in a random subspace, refined by power iterations.

    $$Q = \operatorname{orth}\bigl((X X^\mathsf{T})^q X \Omega\bigr), \qquad Q^\mathsf{T} X = U S V^\mathsf{T}$$

    Faster than `pca_axes` for a few components of many features. The error decreases with the $(2 q + 1)$-th power of
    the decay of the singular values.

    Reference:
        Halko, Martinsson and Tropp, *Finding structure with randomness*, 2011.

    Args:
        x: Data $X$, one sample per row.
        n_components: Maximum number of components.
        n_oversamples: Additional dimensions of the random subspace.
        n_iter: Number of power iterations $q$.
        seed: Random seed of the subspace.

    Examples:
        >>> randomized_pca_axes(torch.eye(5), n_components=2).components.shape
        torch.Size([2, 5])
    """
    rows = _check_data(x, 2)
    n_components = _check_n_components(n_components, rows.shape[1])
    if n_oversamples < 0 or n_iter < 0:
        raise ValueError(f"expected n_oversamples >= 0 and n_iter >= 0, got {n_oversamples} and {n_iter}")
    mean, centered = _center(rows)
    size = min(n_components + n_oversamples, *centered.shape)
    q = normal_noise(centered.shape[1], size, seed=seed, dtype=centered.dtype, device=centered.device)
    q = torch.linalg.qr(centered @ q).Q
    for _ in range(n_iter):
        q = torch.linalg.qr(centered @ torch.linalg.qr(centered.mT @ q).Q).Q
    _, s, vt = torch.linalg.svd(q.mT @ centered, full_matrices=False)
    variance = float(centered.square().sum()) / len(centered)
    return _truncate(len(centered), mean, s, vt, variance, n_components, _min_std_ratio(x))


def incremental_pca_axes(
    batches: Iterable[Float[Tensor, "_ d"]], *, n_components: int, n_oversamples: int = 10
) -> PrincipalComponents:
    r"""Computes the leading principal components of a stream of batches, without storing it.

    $$U S V^\mathsf{T} = \begin{pmatrix} S_a V_a^\mathsf{T} \\ X_b - \mu_b \\
    \sqrt{\tfrac{n_a n_b}{n_a + n_b}} \, (\mu_b - \mu_a)^\mathsf{T} \end{pmatrix}$$

    merges batch $b$ into the mean and leading components $a$ of the earlier batches. It is exact while at most
    `n_components + n_oversamples` directions have variance. A batch may have a single row.

    Reference:
        Ross, Lim, Lin and Yang, *Incremental Learning for Robust Visual Tracking*, 2008.

    Args:
        batches: Batches of data, one sample per row.
        n_components: Maximum number of components.
        n_oversamples: Additional components that are tracked.

    Examples:
        >>> rows = torch.tensor([[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]])
        >>> incremental_pca_axes(rows.split(1), n_components=1).explained_variance.round(decimals=4)
        tensor([5.3333], dtype=torch.float64)
    """
    n, total, min_ratio = 0, 0.0, _MIN_STD_RATIO
    mean = s = vt = torch.zeros(0, dtype=torch.float64)
    for batch in batches:
        rows = _check_data(batch, 1)
        if n and rows.shape[1:] != mean.shape:
            raise ValueError(f"expected {len(mean)} features in every batch, got shape {tuple(batch.shape)}")
        n_components = _check_n_components(n_components, rows.shape[1])
        batch_mean, centered = _center(rows)
        parts, m, delta = [centered], len(rows), batch_mean - mean if n else torch.zeros_like(batch_mean)
        if n:
            parts += [s[:, None] * vt, (n * m / (n + m)) ** 0.5 * delta[None]]
        mean = mean + delta * (m / (n + m)) if n else batch_mean
        total += sum(float(part.square().sum()) for part in parts[::2])
        n, min_ratio = n + m, max(min_ratio, _min_std_ratio(batch))
        _, s, vt = torch.linalg.svd(torch.cat(parts), full_matrices=False)
        s, vt = s[: n_components + n_oversamples], vt[: n_components + n_oversamples]
    if n < 2:
        raise ValueError(f"expected at least 2 rows, got {n}")
    return _truncate(n, mean, s, vt, total / n, n_components, min_ratio)


def _check_data(x: Tensor, min_rows: int) -> Tensor:
    """The data in float64."""
    if x.dim() != 2 or not x.is_floating_point():
        raise TypeError(f"expected a floating-point x of shape (n, d), got {x.dtype} of shape {tuple(x.shape)}")
    if len(x) < min_rows or not x.numel():
        rows = "row" if min_rows == 1 else "rows"
        raise ValueError(f"expected at least {min_rows} {rows} and 1 feature, got shape {tuple(x.shape)}")
    if not bool(x.isfinite().all()):
        raise ValueError("expected finite data, got NaN or infinity")
    return x.detach().double()


def _check_n_components(n_components: int | None, d: int) -> int:
    if n_components is not None and not 1 <= n_components <= d:
        raise ValueError(f"expected n_components from 1 to {d} (the number of features), got {n_components}")
    return d if n_components is None else n_components


def _center(x: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the centered data; subtracting the first row before limits the rounding of the mean."""
    offset = x - x[0]
    shift = offset.mean(0)
    return x[0] + shift, offset - shift


def _min_std_ratio(x: Tensor) -> float:
    return max(_MIN_STD_RATIO, x.shape[1] * torch.finfo(x.dtype).eps)


def _truncate(
    n: int, mean: Tensor, s: Tensor, vt: Tensor, total: float, n_components: int, min_ratio: float
) -> PrincipalComponents:
    """Keeps the leading singular vectors with variance, with a fixed sign."""
    if not total > 0:
        raise ValueError(f"expected data with variance, got {n} equal rows")
    k = min(n_components, int((s > min_ratio * s[0]).sum()))
    axes, s = vt[:k].mT, s[:k]
    axes = axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
    return PrincipalComponents(n, mean, axes.mT, s.square() / n, total, axes * (n**0.5 / s))


def claims() -> Iterator[Claim]:
    """Components are orthonormal and reproduce the covariance, with every solver."""

    def spread(x: Tensor) -> Tensor:
        q = torch.linalg.qr(x[:, :4].tanh() + 2 * torch.eye(len(x), 4).to(x)).Q
        return (q - q.mean(0)) * x.new_tensor([8, 4, 2, 1]) + x.new_tensor([1.0, 2.0, 3.0, 4.0])

    def covariance(x: Tensor) -> Tensor:
        return (x - x.mean(0)).mT @ (x - x.mean(0)) / len(x)

    solvers: dict[str, Callable[[Tensor], PrincipalComponents]] = {
        "pca_axes": pca_axes,
        "randomized_pca_axes": lambda x: randomized_pca_axes(x, n_components=4, seed=1),
        "incremental_pca_axes": lambda x: incremental_pca_axes(x.split(2), n_components=4),
    }
    data = transformed(spread, "n:7..9 4")
    for name, solver in solvers.items():

        def reconstructed(x: Tensor, solver: Callable[[Tensor], PrincipalComponents] = solver) -> Tensor:
            pca = solver(x)
            return (pca.components.mT * pca.explained_variance @ pca.components).to(x)

        def axes(x: Tensor, solver: Callable[[Tensor], PrincipalComponents] = solver) -> Tensor:
            return solver(x).components.mT.to(x)

        yield Claim(replace(agreement(other=covariance), cases=20), reconstructed, data, name=f"{name}: V Λ Vᵀ = Σ")
        yield Claim(replace(orthonormality(), cases=20), axes, data, name=name)
