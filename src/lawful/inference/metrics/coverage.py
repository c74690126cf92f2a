"""Coverage: whether a model makes all kinds of samples, and how many of them are good."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lawful.inference.metrics.frechet import features
from lawful.laws import Claim, agreement, made, tokens


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


def neighbour_coverage(data: Float[Tensor, "n d"], samples: Float[Tensor, "m d"], *, k: int = 5) -> NeighbourCoverage:
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
        >>> neighbour_coverage(x, x[:5] + 0.1, k=1)
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


def claims() -> Iterator[Claim]:
    """The laws that coverage obeys."""
    modes = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])

    def counted(x: Tensor) -> Tensor:
        found = mode_coverage(x, modes, scale=0.25, within=2.0)
        return x.new_tensor([*found.counts, found.covered, found.good])

    def written_out(x: Tensor) -> Tensor:
        apart = (x[:, None].double() - modes).square().sum(-1)
        counts = ((apart <= 0.25) & (apart == apart.amin(1, keepdim=True))).sum(0)
        return torch.cat([counts, (counts > 0).double().mean()[None], (counts.sum() / len(x))[None]]).to(x)

    places = made(lambda x: (4 * x.tanh()).round() / 3 + 0.1, "n 2")
    yield Claim(agreement(other=written_out), counted, places, name="mode_coverage")

    def spread(labels: Tensor) -> Tensor:
        return torch.tensor(class_coverage(labels, classes=3).divergence(torch.tensor([2.0, 1.0, 1.0])))

    def from_entropy(labels: Tensor) -> Tensor:
        p = torch.nn.functional.one_hot(labels.long(), 3).double().mean(0)
        return torch.nn.functional.kl_div(torch.tensor([0.5, 0.25, 0.25]).log(), p, reduction="sum").float()

    yield Claim(agreement(other=from_entropy), spread, tokens("n:1..9", vocab=3), name="class_coverage, divergence")

    def among(x: Tensor, y: Tensor) -> Tensor:
        found = neighbour_coverage(x, y, k=2)
        return x.new_tensor([found.precision, found.density, found.recall, found.coverage])

    def balls(x: Tensor, y: Tensor) -> Tensor:
        def reach(z: Tensor) -> Tensor:
            return (z[:, None] - z).norm(dim=-1).sort(dim=1).values[:, 2]

        x, y = x.double(), y.double()
        apart = (x[:, None] - y).norm(dim=-1)
        real, fake = apart <= reach(x)[:, None], apart <= reach(y)
        figures = [real.any(0).double().mean(), real.double().mean() * len(x) / 2, fake.any(1).double().mean()]
        return torch.stack([*figures, real.any(1).double().mean()])

    sides = (made(lambda x: x.tanh() + torch.arange(5.0)[:, None].to(x).square() / 7, "5 2"), made(torch.tanh, "4 2"))
    same = agreement(other=lambda x, y: balls(x, y).to(x))
    yield Claim(same, among, sides, name="neighbour_coverage")
