"""The Fréchet distance: how far two sets of samples are apart, if both are taken for Gaussian.

The maximum mean discrepancy: how far two sets of samples are apart in the eyes of a kernel.
Coverage: whether a model makes all kinds of samples, and how many of them are good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lawful.laws import Claim, Draw, Equal, Map, Statement, agreement, law, permutation_invariance, tokens, transformed


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


@law("d(x R, y R) = d(x, y), R orthogonal", every_input=True, discover_with=None)
def turned_together(f: Map, x: Tensor, y: Tensor, *, draw: Draw) -> Statement:
    """Turning the features of both sides by one rotation changes nothing.

    Satisfied by: distances of means and covariances; kernels of distances or of inner products.
    Broken by: variances feature by feature.
    """
    turn = torch.linalg.qr(draw.normal(x.shape[1], x.shape[1])).Q
    return Equal(f(x @ turn, y @ turn), f(x, y))


def _frechet_claims() -> Iterator[Claim]:
    """The laws that the Fréchet distance obeys."""

    def distance(x: Tensor, y: Tensor) -> Tensor:
        return x.new_tensor(frechet_distance(x, y))

    def wide(x: Tensor) -> Tensor:
        return x.tanh() + torch.cat([torch.eye(2), -torch.eye(2)]).to(x)

    data = (transformed(wide, "4 2"), transformed(wide, "4 2"))
    yield Claim(turned_together(), distance, data, name="frechet_distance")
    yield Claim(agreement(other=lambda x, y: distance(y, x)), distance, data, name="frechet_distance(y, x)")

    def commuting(x: Tensor) -> Tensor:
        means, scales = x[0].tanh(), x[1:].tanh() + 2
        pair = [torch.diag(s.square()) for s in scales]
        return gaussian_frechet(means, pair[0], torch.zeros_like(means), pair[1])

    def along_axes(x: Tensor) -> Tensor:
        return x[0].tanh().square().sum() + (x[1].tanh() - x[2].tanh()).square().sum()

    yield Claim(
        agreement(other=along_axes),
        commuting,
        transformed(torch.clone, "3 3"),
        name="gaussian_frechet, one set of axes",
    )

    def by_eigenvalues(x: Tensor, y: Tensor) -> Tensor:
        a, b = (z.double().mT.cov() for z in (x, y))
        overlap = torch.linalg.eigvals(a @ b).real.clamp_min(0).sqrt().sum()
        return ((x.double().mean(0) - y.double().mean(0)).square().sum() + (a + b).trace() - 2 * overlap).to(x)

    yield Claim(agreement(other=by_eigenvalues), distance, data, name="frechet_distance, by eigenvalues of a product")


Kernel = Callable[[Tensor, Tensor], Tensor]
"""From n and m rows to the n x m values of a kernel."""


def cubic_kernel(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    r"""Returns $k(x, y) = (x \cdot y / d + 1)^3$, which sees the first three moments.

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
    r"""Returns $k(x, y) = \exp(-\lVert x - y \rVert^2 / 2 w^2)$, which sees every difference.

    Args:
        x: Rows $x$.
        y: Rows $y$.
        width: $w$.

    Examples:
        >>> gaussian_kernel(torch.zeros(1, 2), torch.zeros(1, 2))
        tensor([[1.]])
    """
    if not width > 0:
        raise ValueError(f"width is above 0: got {width}")
    return (-torch.cdist(x, y).square() / (2 * width**2)).exp()


def median_width(x: Float[Tensor, "n d"], *, most: int = 1000) -> float:
    """Finds a width for a Gaussian kernel: the median distance between (the first `most`) samples.

    Args:
        x: The samples.
        most: How many are looked at.

    Examples:
        >>> median_width(torch.tensor([[0.0], [1.0], [3.0]]))
        2.0
    """
    width = float(torch.pdist(x[:most].double()).median())
    if not width > 0:
        raise ValueError("samples that differ were wanted: the median distance of those given is 0")
    return width


def mmd(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], *, kernel: Kernel = cubic_kernel, rows: int = 1024) -> float:
    r"""Estimates the squared maximum mean discrepancy without bias.

    $$\frac{1}{n (n - 1)} \sum_{i \ne j} k(x_i, x_j) + \frac{1}{m (m - 1)} \sum_{i \ne j} k(y_i, y_j)
    - \frac{2}{n m} \sum_{i, j} k(x_i, y_j)$$

    Its mean is the true value whatever the number of samples, unlike the Fréchet distance; so between samples of one
    distribution it may come out below 0.

    Reference:
        Gretton, Borgwardt, Rasch, Schölkopf and Smola, *A Kernel Two-Sample Test*, 2012.

    Args:
        x: Features of some samples, a row each.
        y: Features of others.
        kernel: $k$: `cubic_kernel`, `gaussian_kernel` of some width or another.
        rows: How many rows are compared at a time.

    Examples:
        >>> mmd(torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [1.0]]), kernel=lambda x, y: x @ y.mT)
        -0.5
    """
    x, y = features(x, y)

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
    kernel: Kernel = cubic_kernel,
    permutations: int = 999,
    seed: int = 0,
) -> float:
    r"""Asks how often samples of one distribution are as far apart as these, by chance: the value $p$ of a test.

    All samples are dealt out anew to the two sides, again and again:
    $p = (1 + \#\{\text{deals with as large an mmd}\}) / (1 + \#\text{deals})$, which is exact at any size.

    Args:
        x: Features of some samples, a row each; up to some thousands.
        y: Features of others.
        kernel: The kernel.
        permutations: How often they are dealt out.
        seed: What the deals depend on.

    Examples:
        >>> rows = torch.arange(40.0)[:, None]
        >>> mmd_test(rows, rows + 30, permutations=99)
        0.01
    """
    if permutations < 1:
        raise ValueError(f"permutations are at least 1: got {permutations}")
    x, y = features(x, y)
    both, n, m = torch.cat([x, y]), len(x), len(y)
    k = kernel(both, both)
    k = k - torch.diag(k.diagonal())
    generator = torch.Generator().manual_seed(seed)
    deals = [torch.arange(n + m)] + [torch.randperm(n + m, generator=generator) for _ in range(permutations)]
    side = torch.zeros(permutations + 1, n + m, dtype=k.dtype)
    for row, deal in zip(side, deals, strict=True):
        row[deal[:n]] = 1.0
    mine = side @ k
    within = (mine * side).sum(1)
    across = (mine * (1 - side)).sum(1)
    beyond = k.sum() - within - 2 * across
    found = within / (n * (n - 1)) + beyond / (m * (m - 1)) - 2 * across / (n * m)
    slack = 1e-9 * found.abs().max()
    return float((found >= found[0] - slack).double().mean())


def _mmd_claims() -> Iterator[Claim]:
    """The laws that the maximum mean discrepancy obeys."""
    data = (transformed(torch.tanh, "n:2..4 2"), transformed(torch.tanh, "m:2..4 2"))

    def distance(x: Tensor, y: Tensor) -> Tensor:
        return x.new_tensor([mmd(x, y, rows=2), mmd(x, y, kernel=partial(gaussian_kernel, width=0.7), rows=3)])

    def written_out(x: Tensor, y: Tensor) -> Tensor:
        def mean(k: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor) -> Tensor:
            return torch.stack(
                [k(u, v) for i, u in enumerate(a) for j, v in enumerate(b) if a is not b or i != j]
            ).mean()

        def pair(k: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
            return mean(k, x, x) + mean(k, y, y) - 2 * mean(k, x, y)

        cubic, gaussian = lambda a, b: (a @ b / 2 + 1) ** 3, lambda a, b: (-(a - b).square().sum() / 0.98).exp()
        return torch.stack([pair(cubic), pair(gaussian)])

    yield Claim(replace(agreement(other=written_out), cases=10), distance, data, name="mmd")
    yield Claim(turned_together(), distance, data, name="mmd")
    yield Claim(permutation_invariance(axis=0), distance, data, name="mmd")


@dataclass(frozen=True)
class ModeCoverage:
    """Says which modes samples came to.

    Examples:
        >>> print(ModeCoverage(counts=(5, 0, 3), samples=10))
        2 of 3 modes, 80.0 % of the samples in one
    """

    counts: tuple[int, ...]
    """How many good samples each mode has."""
    samples: int
    """How many samples there were, good or not."""

    @property
    def covered(self) -> float:
        """The part of the modes that have a sample."""
        return sum(count > 0 for count in self.counts) / len(self.counts)

    @property
    def good(self) -> float:
        """The part of the samples that are in a mode."""
        return sum(self.counts) / self.samples

    def divergence(self, p: Float[Tensor, " k"] | None = None) -> float:
        r"""Measures the Kullback-Leibler divergence, in nats, of how the good samples spread from how they should.

        Args:
            p: How probable each mode is; all alike unless given.
        """
        counts = torch.tensor(self.counts, dtype=torch.float64)
        if not counts.sum() > 0:
            return float("inf")
        wanted = torch.ones_like(counts) if p is None else p.double()
        found, wanted = counts / counts.sum(), wanted / wanted.sum()
        return float((torch.xlogy(found, found) - torch.xlogy(found, wanted)).sum())

    def __str__(self) -> str:
        there = f"{sum(count > 0 for count in self.counts)} of {len(self.counts)} modes"
        return f"{there}, {100 * self.good:.1f} % of the samples in one"


def mode_coverage(
    x: Float[Tensor, "n d"], modes: Float[Tensor, "k d"], *, scale: float, within: float = 3.0
) -> ModeCoverage:
    r"""Counts the samples of each mode of a known mixture: those within three standard deviations of the nearest one.

    $$\lVert x - \mu_k \rVert \le 3 s$$

    Reference:
        Srivastava, Valkov, Russell, Gutmann and Sutton, *VEEGAN: Reducing Mode Collapse in GANs using Implicit
        Variational Learning*, 2017.

    Args:
        x: The samples; those that are not finite are in no mode.
        modes: $\mu$, the middle of each mode.
        scale: $s$, the standard deviation of a mode in each coordinate.
        within: How many of them count as in it.

    Examples:
        >>> mode_coverage(torch.tensor([[0.1], [5.0], [9.9]]), torch.tensor([[0.0], [10.0]]), scale=0.1).counts
        (1, 1)
    """
    if x.dim() != 2 or modes.dim() != 2 or x.shape[1] != modes.shape[1] or not len(modes) or not len(x):
        raise ValueError(
            f"samples and modes of one dimension were wanted: got shapes {tuple(x.shape)} and {tuple(modes.shape)}"
        )
    if not (scale > 0 and within > 0):
        raise ValueError(f"scale and within are above 0: got {scale} and {within}")
    x, modes = x.detach().double(), modes.detach().double().to(x.device)
    finite = x.isfinite().all(1)
    distance, nearest = _distances(torch.where(finite[:, None], x, 0.0), modes).min(1)
    inside = finite & (distance <= within * scale)
    return ModeCoverage(tuple(torch.bincount(nearest[inside], minlength=len(modes)).tolist()), len(x))


def class_coverage(labels: Int[Tensor, " n"], *, classes: int) -> ModeCoverage:
    """Counts the samples of each class, as a classifier sees them.

    Args:
        labels: The class of each sample.
        classes: How many classes there are.

    Examples:
        >>> class_coverage(torch.tensor([0, 0, 2]), classes=4).covered
        0.5
    """
    if not labels.numel() or not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ValueError(f"at least one label, from 0 to {classes - 1}, was wanted: got {labels.unique().tolist()}")
    return ModeCoverage(tuple(torch.bincount(labels.long(), minlength=classes).tolist()), len(labels))


@dataclass(frozen=True)
class NeighbourCoverage:
    """Says how two sets of samples lie among each other."""

    precision: float
    """The part of the model's samples that lie in the ball of some example."""
    density: float
    """In how many of these balls they lie, divided by how many of the data do."""
    recall: float
    """The part of the examples that lie in the ball of some sample."""
    coverage: float
    """The part of the examples whose ball holds a sample."""


def neighbor_coverage(data: Float[Tensor, "n d"], samples: Float[Tensor, "m d"], *, k: int = 5) -> NeighbourCoverage:
    r"""Compares samples with data where no modes are known, by balls that reach to the $k$-th nearest neighbour.

    $$\text{coverage} = \frac1n \sum_i \bigl[\exists j : \lVert x_i - y_j \rVert \le r_i \bigr], \qquad
    \text{density} = \frac{1}{k m} \sum_{ij} \bigl[\lVert x_i - y_j \rVert \le r_i \bigr]$$

    $r_i$ is how far the $k$-th nearest other example is from $x_i$. Precision and density say whether samples look like
    data, recall and coverage whether all data are met with. Of equally many samples of one distribution, density is 1
    and coverage $1 - 2^{-k}$, about.

    Reference:
        Kynkäänniemi, Karras, Laine, Lehtinen and Aila, *Improved Precision and Recall Metric for Assessing Generative
        Models*, 2019.
        Naeem, Oh, Uh, Choi and Yoo, *Reliable Fidelity and Diversity Metrics for Generative Models*, 2020.

    Args:
        data: Features of the data $x$, a row each.
        samples: Features of the samples $y$.
        k: $k$.

    Examples:
        >>> x = torch.arange(10.0)[:, None]
        >>> neighbor_coverage(x, x[:5] + 0.1, k=1)
        NeighbourCoverage(precision=1.0, density=2.0, recall=0.6, coverage=0.6)
    """
    if k < 1:
        raise ValueError(f"k is at least 1: got {k}")
    x, y = features(data, samples, least=k + 1)
    apart = _distances(x, y)
    near_data, near_samples = (_distances(z, z).kthvalue(k + 1).values for z in (x, y))
    in_data, in_samples = apart <= near_data[:, None], apart <= near_samples[None]
    return NeighbourCoverage(
        precision=float(in_data.any(0).double().mean()),
        density=float(in_data.double().sum()) / (k * len(y)),
        recall=float(in_samples.any(1).double().mean()),
        coverage=float(in_data.any(1).double().mean()),
    )


def _distances(x: Tensor, y: Tensor) -> Tensor:
    """Distances of rows, not by way of their products, whose rounding would move near ones."""
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


def _coverage_claims() -> Iterator[Claim]:
    """The laws that coverage obeys."""
    modes = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])

    def counted(x: Tensor) -> Tensor:
        found = mode_coverage(x, modes, scale=0.25, within=2.0)
        return x.new_tensor([*found.counts, found.covered, found.good])

    def written_out(x: Tensor) -> Tensor:
        apart = (x[:, None].double() - modes).square().sum(-1)
        counts = ((apart <= 0.25) & (apart == apart.amin(1, keepdim=True))).sum(0)
        return torch.cat([counts, (counts > 0).double().mean()[None], (counts.sum() / len(x))[None]]).to(x)

    places = transformed(lambda x: (4 * x.tanh()).round() / 3 + 0.1, "n 2")
    yield Claim(agreement(other=written_out), counted, places, name="mode_coverage")

    def spread(labels: Tensor) -> Tensor:
        return torch.tensor(class_coverage(labels, classes=3).divergence(torch.tensor([2.0, 1.0, 1.0])))

    def from_entropy(labels: Tensor) -> Tensor:
        p = torch.nn.functional.one_hot(labels.long(), 3).double().mean(0)
        return torch.nn.functional.kl_div(torch.tensor([0.5, 0.25, 0.25]).log(), p, reduction="sum").float()

    yield Claim(
        agreement(other=from_entropy), spread, tokens("n:1..9", vocab_size=3), name="class_coverage, divergence"
    )

    def among(x: Tensor, y: Tensor) -> Tensor:
        found = neighbor_coverage(x, y, k=2)
        return x.new_tensor([found.precision, found.density, found.recall, found.coverage])

    def balls(x: Tensor, y: Tensor) -> Tensor:
        def reach(z: Tensor) -> Tensor:
            return (z[:, None] - z).norm(dim=-1).sort(dim=1).values[:, 2]

        x, y = x.double(), y.double()
        apart = (x[:, None] - y).norm(dim=-1)
        real, fake = apart <= reach(x)[:, None], apart <= reach(y)
        figures = [real.any(0).double().mean(), real.double().mean() * len(x) / 2, fake.any(1).double().mean()]
        return torch.stack([*figures, real.any(1).double().mean()])

    sides = (
        transformed(lambda x: x.tanh() + torch.arange(5.0)[:, None].to(x).square() / 7, "5 2"),
        transformed(torch.tanh, "4 2"),
    )
    same = agreement(other=lambda x, y: balls(x, y).to(x))
    yield Claim(same, among, sides, name="neighbour_coverage")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _frechet_claims()
    yield from _mmd_claims()
    yield from _coverage_claims()
