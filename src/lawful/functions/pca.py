"""Principal axes: the directions along which data vary most, of all the data, by chance, or batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.random import normal_noise
from lawful.laws import Claim, agreement, orthonormality, transformed

LEAST = 1e-6
"""The standard deviation, as a part of the largest, below which a direction counts as one without variance."""


@dataclass(frozen=True, eq=False)
class Principal:
    r"""Holds the principal axes of data, in float64, the direction of most variance first.

    $$\Sigma = \tfrac{1}{N} (X - \mu)^\mathsf{T} (X - \mu) \approx V \Lambda V^\mathsf{T}, \qquad
    V^\mathsf{T} V = 1, \quad \lambda_1 \ge \lambda_2 \ge \dots > 0$$

    Directions without variance, up to rounding, are not among them. An axis has no sign of its own: its largest entry
    is positive.

    Args:
        n: $N$.
        mean: $\mu$.
        axes: $V$.
        variances: $\lambda$; they divide by $N$ (scikit-learn's by $N - 1$).
        total: The trace of $\Sigma$: the variance along all directions, kept or not.
        whitener: $W = V \Lambda^{-1/2}$, corrected for rounding where all data were at hand.
    """

    n: int
    mean: Float[Tensor, " d"]
    axes: Float[Tensor, "d k"]
    variances: Float[Tensor, " k"]
    total: float
    whitener: Float[Tensor, "d k"]

    @property
    def left(self) -> float:
        """The variance along all directions that are not kept."""
        return max(0.0, self.total - float(self.variances.sum()))


def _rows(x: Tensor, least: int) -> Tensor:
    """The data in float64, or a word on why they have no principal axes."""
    if x.dim() != 2 or not x.is_floating_point():
        raise TypeError(f"a row of real numbers for each sample was wanted: got {x.dtype} of shape {tuple(x.shape)}")
    if len(x) < least or not x.numel():
        wanted = f"at least {least} {'row' if least == 1 else 'rows'} and 1 feature"
        raise ValueError(f"{wanted} were wanted: got shape {tuple(x.shape)}")
    if not bool(x.isfinite().all()):
        raise ValueError("finite numbers were wanted: got NaN or infinite ones")
    return x.detach().double()


def _centred(x: Tensor) -> tuple[Tensor, Tensor]:
    off = x - x[0]
    shift = off.mean(0)
    return x[0] + shift, off - shift


def _check(components: int | None, d: int) -> int:
    if components is not None and not 1 <= components <= d:
        raise ValueError(f"components are from 1 to the {d} features: got {components}")
    return d if components is None else components


def _principal(n: int, mean: Tensor, s: Tensor, vt: Tensor, total: float, components: int, least: float) -> Principal:
    """Cuts singular values and axes of centred data, some of them, where the variance ends."""
    if not total > 0:
        raise ValueError(f"data that vary were wanted: got {n} equal rows")
    kept = min(components, int((s > least * s[0]).sum()))
    axes, s = vt[:kept].mT, s[:kept]
    axes = axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
    return Principal(n, mean, axes, s.square() / n, total, axes * (n**0.5 / s))


def _least(x: Tensor) -> float:
    return max(LEAST, x.shape[1] * torch.finfo(x.dtype).eps)


def pca_axes(x: Float[Tensor, "n d"], *, components: int | None = None) -> Principal:
    r"""Finds the principal axes from the singular values of the centred data.

    $$X - \mu = U S V^\mathsf{T}, \qquad \Lambda = S^2 / N$$

    The covariance is never formed: its rounding would hide all below $10^{-8}$ of the largest standard deviation. What
    is below $10^{-6}$ of it, or below the rounding of the data, counts as no variance. The whitener takes a second look
    at the data, by which their whitened covariance is 1 to the tenth digit.

    Args:
        x: The data $X$, a row for each sample.
        components: The most axes that are kept; all that have variance unless given.

    Examples:
        >>> found = pca_axes(torch.tensor([[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]]))
        >>> found.axes.mT.round(decimals=4), found.variances.round(decimals=4)
        (tensor([[0.7071, 0.7071]], dtype=torch.float64), tensor([5.3333], dtype=torch.float64))
    """
    rows = _rows(x, 2)
    components = _check(components, rows.shape[1])
    mean, off = _centred(rows)
    tall = torch.linalg.qr(off, mode="r").R if off.shape[0] > off.shape[1] else off
    _, s, vt = torch.linalg.svd(tall, full_matrices=False)
    found = _principal(len(off), mean, s, vt, float(off.square().sum()) / len(off), components, _least(x))
    z = off @ found.whitener
    lower = torch.linalg.cholesky(z.mT @ z / len(z))
    found.whitener.copy_(torch.linalg.solve_triangular(lower, found.whitener.mT, upper=False).mT)
    return found


def randomized_pca_axes(
    x: Float[Tensor, "n d"], *, components: int, extra: int = 10, passes: int = 4, seed: int = 0
) -> Principal:
    r"""Finds the first principal axes within a random subspace that the data have been through a few times.

    $$Q = \operatorname{orth}\bigl((X X^\mathsf{T})^q X \Omega\bigr), \qquad Q^\mathsf{T} X = U S V^\mathsf{T}$$

    For a few axes of many features it is faster than `pca_axes`; the error falls with the $(2 q + 1)$-th power
    of how the variances fall.

    Reference:
        Halko, Martinsson and Tropp, *Finding structure with randomness*, 2011.

    Args:
        x: The data $X$, a row for each sample.
        components: The most axes that are kept.
        extra: How many more directions the random subspace has.
        passes: $q$.
        seed: What the subspace depends on.

    Examples:
        >>> randomized_pca_axes(torch.eye(5), components=2).axes.shape
        torch.Size([5, 2])
    """
    rows = _rows(x, 2)
    components = _check(components, rows.shape[1])
    if extra < 0 or passes < 0:
        raise ValueError(f"extra and passes are not negative: got {extra} and {passes}")
    mean, off = _centred(rows)
    q = normal_noise(off.shape[1], min(components + extra, *off.shape), seed=seed, dtype=off.dtype, device=off.device)
    q = torch.linalg.qr(off @ q).Q
    for _ in range(passes):
        q = torch.linalg.qr(off @ torch.linalg.qr(off.mT @ q).Q).Q
    _, s, vt = torch.linalg.svd(q.mT @ off, full_matrices=False)
    return _principal(len(off), mean, s, vt, float(off.square().sum()) / len(off), components, _least(x))


def incremental_pca_axes(batches: Iterable[Float[Tensor, "_ d"]], *, components: int, extra: int = 10) -> Principal:
    r"""Finds the first principal axes of data that come batch by batch and are not kept.

    $$U S V^\mathsf{T} = \begin{pmatrix} S_a V_a^\mathsf{T} \\ X_b - \mu_b \\
    \sqrt{\tfrac{n_a n_b}{n_a + n_b}} \, (\mu_b - \mu_a)^\mathsf{T} \end{pmatrix}$$

    What was seen so far, $a$, is its mean and its first axes; a batch $b$ is added to them. It is exact while no more
    than `components + extra` directions have variance. A batch may be a single row.

    Reference:
        Ross, Lim, Lin and Yang, *Incremental Learning for Robust Visual Tracking*, 2008.

    Args:
        batches: The data, some rows at a time.
        components: The most axes that are kept.
        extra: How many more are carried along.

    Examples:
        >>> rows = torch.tensor([[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]])
        >>> incremental_pca_axes(rows.split(1), components=1).variances
        tensor([5.3333], dtype=torch.float64)
    """
    n, total, least = 0, 0.0, LEAST
    mean = s = vt = torch.zeros(0, dtype=torch.float64)
    for batch in batches:
        rows = _rows(batch, 1)
        if n and rows.shape[1:] != mean.shape:
            raise ValueError(f"{len(mean)} features in every batch were wanted: got shape {tuple(batch.shape)}")
        components = _check(components, rows.shape[1])
        fresh, off = _centred(rows)
        parts, m, delta = [off], len(rows), fresh - mean if n else torch.zeros_like(fresh)
        if n:
            parts += [s[:, None] * vt, (n * m / (n + m)) ** 0.5 * delta[None]]
        mean = mean + delta * (m / (n + m)) if n else fresh
        total += sum(float(part.square().sum()) for part in parts[::2])
        n, least = n + m, max(least, _least(batch))
        _, s, vt = torch.linalg.svd(torch.cat(parts), full_matrices=False)
        s, vt = s[: components + extra], vt[: components + extra]
    if n < 2:
        raise ValueError(f"at least 2 rows were wanted: got {n}")
    return _principal(n, mean, s, vt, total / n, components, least)


def claims() -> Iterator[Claim]:
    """The laws that principal axes obey."""

    def spread(x: Tensor) -> Tensor:
        """Data of 4 features that vary as 8, 4, 2 and 1, about."""
        q = torch.linalg.qr(x[:, :4].tanh() + 2 * torch.eye(len(x), 4).to(x)).Q
        return (q - q.mean(0)) * x.new_tensor([8, 4, 2, 1]) + x.new_tensor([1.0, 2.0, 3.0, 4.0])

    def covariance(x: Tensor) -> Tensor:
        return (x - x.mean(0)).mT @ (x - x.mean(0)) / len(x)

    def rebuilt(found: Principal) -> Tensor:
        return found.axes * found.variances @ found.axes.mT

    data, few = transformed(spread, "n:7..9 4"), partial(replace, cases=20)
    ways = {
        "principal_axes": pca_axes,
        "randomised_axes": lambda x: randomized_pca_axes(x, components=4, seed=1),
        "streamed_axes": lambda x: incremental_pca_axes(x.split(2), components=4),
    }

    def said(name: str) -> Iterator[Claim]:
        way = ways[name]
        yield Claim(few(agreement(other=covariance)), lambda x: rebuilt(way(x)).to(x), data, name=f"{name}: V Λ Vᵀ = Σ")
        yield Claim(few(orthonormality()), lambda x: way(x).axes.to(x), data, name=name)

        def white(x: Tensor) -> Tensor:
            found = way(x)
            return covariance((x.double() - found.mean) @ found.whitener).to(x)

        yield Claim(few(agreement(other=lambda x: torch.eye(4).to(x))), white, data, name=f"{name}: Wᵀ Σ W = 1")

        def figures(x: Tensor) -> Tensor:
            found = way(x)
            return torch.cat([found.mean, found.variances, x.new_tensor([found.total, found.n]).double()]).to(x)

        def expected(x: Tensor) -> Tensor:
            values = torch.linalg.eigvalsh(covariance(x)).flip(0)
            return torch.cat([x.mean(0), values, covariance(x).trace()[None], x.new_tensor([len(x)])])

        yield Claim(few(agreement(other=expected)), figures, data, name=f"{name}: mean, variances, total")

    for name in ways:
        yield from said(name)

    def first_two(x: Tensor) -> Tensor:
        return torch.stack(
            [
                rebuilt(way(x))
                for way in (
                    lambda x: pca_axes(x, components=2),
                    lambda x: randomized_pca_axes(x, components=2, extra=1, passes=30),
                    lambda x: incremental_pca_axes([x], components=2),
                )
            ]
        ).to(x)

    def truncated(x: Tensor) -> Tensor:
        _, s, vt = torch.linalg.svd(x - x.mean(0), full_matrices=False)
        return ((vt.mT[:, :2] * s[:2].square() / len(x)) @ vt[:2]).expand(3, -1, -1)

    yield Claim(few(agreement(other=truncated)), first_two, data, name="the first two axes, three ways")
