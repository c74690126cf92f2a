"""Metrics of generated samples: Fréchet distance, maximum mean discrepancy and coverage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lawful.laws import Claim, commutativity, permutation_invariance, transformed


def frechet_distance(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"]) -> float:
    r"""Computes the squared Fréchet distance between Gaussians fitted to two sets of features.

    $$d^2 = \lVert \mu_x - \mu_y \rVert^2 + \operatorname{tr}\bigl(\Sigma_x + \Sigma_y
    - 2 (\Sigma_x^{1/2} \Sigma_y \Sigma_x^{1/2})^{1/2}\bigr)$$

    Features come from any network, or are the data. The computation is in float64 by singular values, so that no root
    is complex. The estimate is biased upward, more so with few samples: compare at equal sample sizes, next to the
    distance between two halves of the data. Needs more samples than features.

    Reference:
        Dowson and Landau, *The Fréchet distance between multivariate normal distributions*, 1982.
        Heusel, Ramsauer, Unterthiner, Nessler and Hochreiter, *GANs Trained by a Two Time-Scale Update Rule*, 2017.

    Args:
        x: Features of the first samples.
        y: Features of the second samples.

    Examples:
        >>> x = torch.tensor([[0.0], [1.0], [2.0]])
        >>> round(frechet_distance(x, 2 * x + 3), 4)
        17.0
    """
    x, y = _check_features(x, y)
    for rows in (x, y):
        if len(rows) <= rows.shape[1]:
            raise ValueError(
                f"expected more samples than features, got {len(rows)} samples of {rows.shape[1]} features"
            )
    return float(gaussian_frechet(x.mean(0), x.mT.cov(), y.mean(0), y.mT.cov()))


def gaussian_frechet(
    mean: Float[Tensor, " d"],
    covariance: Float[Tensor, "d d"],
    other_mean: Float[Tensor, " d"],
    other_covariance: Float[Tensor, "d d"],
) -> Float[Tensor, ""]:
    r"""Computes the squared Fréchet (2-Wasserstein) distance between two Gaussians.

    $$\operatorname{tr} (\Sigma_x^{1/2} \Sigma_y \Sigma_x^{1/2})^{1/2} = \sum_i s_i,
    \qquad s \text{ the singular values of } \Sigma_x^{1/2} \Sigma_y^{1/2}$$

    Args:
        mean: $\mu_x$.
        covariance: $\Sigma_x$; may be singular.
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


def _check_features(x: Tensor, y: Tensor, *, min_samples: int = 2) -> tuple[Tensor, Tensor]:
    """Returns both sets of features in float64 on the CPU."""
    if x.dim() != 2 or y.dim() != 2 or x.shape[1:] != y.shape[1:]:
        raise ValueError(f"expected features of shapes (n, d) and (m, d), got {tuple(x.shape)} and {tuple(y.shape)}")
    if min(len(x), len(y)) < min_samples or not x.shape[1]:
        sizes = f"{len(x)} and {len(y)} of {x.shape[1]}"
        raise ValueError(f"expected at least {min_samples} samples of at least 1 feature, got {sizes}")
    if not (bool(x.isfinite().all()) and bool(y.isfinite().all())):
        raise ValueError("features must be finite")
    return x.detach().double().cpu(), y.detach().double().cpu()


_Kernel = Callable[[Tensor, Tensor], Tensor]
"""Function from (n, d) and (m, d) to the (n, m) kernel matrix."""


def cubic_kernel(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    r"""Returns $k(x, y) = (x \cdot y / d + 1)^3$, which compares the first three moments.

    Reference:
        Bińkowski, Sutherland, Arbel and Gretton, *Demystifying MMD GANs*, 2018.

    Args:
        x: Rows $x$.
        y: Rows $y$.

    Examples:
        >>> cubic_kernel(torch.ones(1, 4), torch.zeros(2, 4))
        tensor([[1., 1.]])
    """
    return (x @ y.mT / x.shape[1] + 1) ** 3


def gaussian_kernel(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], *, width: float = 1.0) -> Float[Tensor, "n m"]:
    r"""Returns $k(x, y) = \exp(-\lVert x - y \rVert^2 / 2 w^2)$, which distinguishes all distributions.

    Args:
        x: Rows $x$.
        y: Rows $y$.
        width: Kernel width $w$.

    Examples:
        >>> gaussian_kernel(torch.zeros(1, 2), torch.zeros(1, 2))
        tensor([[1.]])
    """
    if not width > 0:
        raise ValueError(f"width must be positive, got {width}")
    return (-torch.cdist(x, y).square() / (2 * width**2)).exp()


def median_width(x: Float[Tensor, "n d"], *, max_samples: int = 1000) -> float:
    """Returns the median pairwise distance, a kernel width by the median heuristic.

    If half of the pairs are equal, as with binary data, it is the median of the positive distances.

    Args:
        x: Samples.
        max_samples: Number of leading samples to use.

    Examples:
        >>> median_width(torch.tensor([[0.0], [1.0], [3.0]]))
        2.0
    """
    distances = torch.pdist(x[:max_samples].double())
    width = float(distances.median())
    if width == 0 and bool((distances > 0).any()):
        width = float(distances[distances > 0].median())
    if not width > 0:
        raise ValueError("the median distance of the samples is 0: they must differ")
    return width


def mmd(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], *, kernel: _Kernel = cubic_kernel, rows: int = 1024) -> float:
    r"""Estimates the squared maximum mean discrepancy without bias.

    $$\frac{1}{n (n - 1)} \sum_{i \ne j} k(x_i, x_j) + \frac{1}{m (m - 1)} \sum_{i \ne j} k(y_i, y_j)
    - \frac{2}{n m} \sum_{i, j} k(x_i, y_j)$$

    The estimate is unbiased at any sample size, unlike the Fréchet distance. It may be negative for equal
    distributions.

    Reference:
        Gretton, Borgwardt, Rasch, Schölkopf and Smola, *A Kernel Two-Sample Test*, 2012.

    Args:
        x: Features of the first samples.
        y: Features of the second samples.
        kernel: Kernel $k$, such as `cubic_kernel` or `gaussian_kernel`.
        rows: Number of rows per block of the kernel matrix.

    Examples:
        >>> mmd(torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [1.0]]), kernel=lambda x, y: x @ y.mT)
        -0.5
    """
    x, y = _check_features(x, y)

    def total(a: Tensor, b: Tensor) -> float:
        return sum(float(kernel(part, b).sum()) for part in a.split(rows))

    def own(a: Tensor) -> float:
        same = sum(float(kernel(part, part).diagonal().sum()) for part in a.split(rows))
        return (total(a, a) - same) / (len(a) * (len(a) - 1))

    return own(x) + own(y) - 2 * total(x, y) / (len(x) * len(y))


def mmd_test(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, "m d"],
    *,
    kernel: _Kernel = cubic_kernel,
    permutations: int = 999,
    seed: int = 0,
) -> float:
    r"""Returns the p-value of a permutation test for equal distributions.

    $p = (1 + \#\{\text{permutations with at least the observed MMD}\}) / (1 + \#\text{permutations})$, exact at
    any sample size.

    Args:
        x: Features of the first samples, up to some thousands.
        y: Features of the second samples.
        kernel: Kernel.
        permutations: Number of permutations.
        seed: Random seed.

    Examples:
        >>> rows = torch.arange(40.0)[:, None]
        >>> mmd_test(rows, rows + 30, permutations=99)
        0.01
    """
    if permutations < 1:
        raise ValueError(f"permutations must be at least 1, got {permutations}")
    x, y = _check_features(x, y)
    both, n, m = torch.cat([x, y]), len(x), len(y)
    k = kernel(both, both)
    k = k - torch.diag(k.diagonal())
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.arange(n + m)] + [torch.randperm(n + m, generator=generator) for _ in range(permutations)]
    side = torch.zeros(permutations + 1, n + m, dtype=k.dtype)
    for row, order in zip(side, orders, strict=True):
        row[order[:n]] = 1.0
    mine = side @ k
    within = (mine * side).sum(1)
    across = (mine * (1 - side)).sum(1)
    beyond = k.sum() - within - 2 * across
    values = within / (n * (n - 1)) + beyond / (m * (m - 1)) - 2 * across / (n * m)
    slack = 1e-9 * values.abs().max()
    return float((values >= values[0] - slack).double().mean())


@dataclass(frozen=True)
class ModeCoverage:
    """Number of samples in each mode.

    Examples:
        >>> print(ModeCoverage(counts=(5, 0, 3), samples=10))
        2 of 3 modes covered, 80.0 % of the samples in a mode
    """

    counts: tuple[int, ...]
    """Number of samples in each mode."""
    samples: int
    """Total number of samples."""

    @property
    def coverage(self) -> float:
        """Fraction of the modes that have a sample."""
        return sum(count > 0 for count in self.counts) / len(self.counts)

    @property
    def quality(self) -> float:
        """Fraction of the samples that are in a mode."""
        return sum(self.counts) / self.samples

    def divergence(self, p: Float[Tensor, " k"] | None = None) -> float:
        r"""Computes the KL divergence, in nats, from the mode probabilities to the sample frequencies.

        Args:
            p: Mode probabilities. Defaults to uniform.
        """
        counts = torch.tensor(self.counts, dtype=torch.float64)
        if not counts.sum() > 0:
            return float("inf")
        expected = torch.ones_like(counts) if p is None else p.double()
        observed, expected = counts / counts.sum(), expected / expected.sum()
        return float((torch.xlogy(observed, observed) - torch.xlogy(observed, expected)).sum())

    def __str__(self) -> str:
        modes = f"{sum(count > 0 for count in self.counts)} of {len(self.counts)} modes covered"
        return f"{modes}, {100 * self.quality:.1f} % of the samples in a mode"


def mode_coverage(
    x: Float[Tensor, "n d"], modes: Float[Tensor, "k d"], *, scale: float, num_stds: float = 3.0
) -> ModeCoverage:
    r"""Counts the samples within three standard deviations of the nearest mode of a known mixture.

    $$\lVert x - \mu_k \rVert \le 3 s$$

    Reference:
        Srivastava, Valkov, Russell, Gutmann and Sutton, *VEEGAN: Reducing Mode Collapse in GANs using Implicit
        Variational Learning*, 2017.

    Args:
        x: Samples. Non-finite samples belong to no mode.
        modes: Centers $\mu$ of the modes.
        scale: Standard deviation $s$ of a mode in each coordinate.
        num_stds: Radius of a mode in standard deviations.

    Examples:
        >>> mode_coverage(torch.tensor([[0.1], [5.0], [9.9]]), torch.tensor([[0.0], [10.0]]), scale=0.1).counts
        (1, 1)
    """
    if x.dim() != 2 or modes.dim() != 2 or x.shape[1] != modes.shape[1] or not len(modes) or not len(x):
        raise ValueError(
            f"expected samples of shape (n, d) and modes of shape (k, d), got {tuple(x.shape)} and {tuple(modes.shape)}"
        )
    if not (scale > 0 and num_stds > 0):
        raise ValueError(f"scale and num_stds must be positive, got {scale} and {num_stds}")
    x, modes = x.detach().double(), modes.detach().double().to(x.device)
    finite = x.isfinite().all(1)
    distance, nearest = _distances(torch.where(finite[:, None], x, 0.0), modes).min(1)
    inside = finite & (distance <= num_stds * scale)
    return ModeCoverage(tuple(torch.bincount(nearest[inside], minlength=len(modes)).tolist()), len(x))


def class_coverage(labels: Int[Tensor, " n"], *, num_classes: int) -> ModeCoverage:
    """Counts the samples of each class, as predicted by a classifier.

    Args:
        labels: Predicted class of each sample.
        num_classes: Number of classes.

    Examples:
        >>> class_coverage(torch.tensor([0, 0, 2]), num_classes=4).coverage
        0.5
    """
    if not labels.numel() or not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
        raise ValueError(f"labels must be non-empty, between 0 and {num_classes - 1}, got {labels.unique().tolist()}")
    return ModeCoverage(tuple(torch.bincount(labels.long(), minlength=num_classes).tolist()), len(labels))


@dataclass(frozen=True)
class NeighborCoverage:
    """Precision, recall, density and coverage of samples by nearest neighbors."""

    precision: float
    """Fraction of the samples inside the ball of some example."""
    density: float
    """Mean number of balls that contain a sample, divided by k."""
    recall: float
    """Fraction of the examples inside the ball of some sample."""
    coverage: float
    """Fraction of the examples whose ball contains a sample."""


def neighbor_coverage(data: Float[Tensor, "n d"], samples: Float[Tensor, "m d"], *, k: int = 5) -> NeighborCoverage:
    r"""Compares samples with data by balls that reach to the $k$-th nearest neighbor.

    $$\text{coverage} = \frac1n \sum_i \bigl[\exists j : \lVert x_i - y_j \rVert \le r_i \bigr], \qquad
    \text{density} = \frac{1}{k m} \sum_{ij} \bigl[\lVert x_i - y_j \rVert \le r_i \bigr]$$

    $r_i$ is the distance from $x_i$ to its $k$-th nearest neighbor in the data. Precision and density measure fidelity,
    recall and coverage measure diversity. For equally many samples of the same distribution, the density is about 1 and
    the coverage about $1 - 2^{-k}$.

    Reference:
        Kynkäänniemi, Karras, Laine, Lehtinen and Aila, *Improved Precision and Recall Metric for Assessing Generative
        Models*, 2019.
        Naeem, Oh, Uh, Choi and Yoo, *Reliable Fidelity and Diversity Metrics for Generative Models*, 2020.

    Args:
        data: Features of the data $x$.
        samples: Features of the samples $y$.
        k: Number of neighbors.

    Examples:
        >>> x = torch.arange(10.0)[:, None]
        >>> neighbor_coverage(x, x[:5] + 0.1, k=1)
        NeighborCoverage(precision=1.0, density=2.0, recall=0.6, coverage=0.6)
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    x, y = _check_features(data, samples, min_samples=k + 1)
    apart = _distances(x, y)
    near_data, near_samples = (_distances(z, z).kthvalue(k + 1).values for z in (x, y))
    in_data, in_samples = apart <= near_data[:, None], apart <= near_samples[None]
    return NeighborCoverage(
        precision=float(in_data.any(0).double().mean()),
        density=float(in_data.double().sum()) / (k * len(y)),
        recall=float(in_samples.any(1).double().mean()),
        coverage=float(in_data.any(1).double().mean()),
    )


def _distances(x: Tensor, y: Tensor) -> Tensor:
    """Pairwise distances without the matrix-product shortcut, whose rounding errors move close rows."""
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


def claims() -> Iterator[Claim]:
    """Distances are symmetric and do not depend on the order of the samples."""

    def spread(x: Tensor) -> Tensor:
        return x.tanh() + torch.cat([torch.eye(2), -torch.eye(2)]).to(x)

    data = (transformed(spread, "4 2"), transformed(spread, "4 2"))
    for distance in (frechet_distance, mmd):

        def value(x: Tensor, y: Tensor, distance: Callable[[Tensor, Tensor], float] = distance) -> Tensor:
            return x.new_tensor(distance(x, y))

        yield Claim(commutativity(), value, data, name=distance.__name__)
        yield Claim(permutation_invariance(axis=0, input=0), value, data, name=distance.__name__)
