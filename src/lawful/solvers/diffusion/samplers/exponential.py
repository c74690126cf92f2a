"""The exponential multistep sampler: the noise by formula, the data by a polynomial through what was denoised."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, log

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, batch_independence, shape
from lawful.solvers.diffusion.gaussian_path import Level
from lawful.solvers.diffusion.paths import variance_preserving
from lawful.solvers.diffusion.sampling import Walk, Walker, towards

NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)


def _polynomials(nodes: Sequence[float], at: np.ndarray) -> np.ndarray:
    """Lagrange's polynomials, one for each node, at some places."""
    ones = [np.ones_like(at)] * len(nodes)
    for j, own in enumerate(nodes):
        for k, other in enumerate(nodes):
            if k != j:
                ones[j] = ones[j] * (at - other) / (own - other)
    return np.stack(ones)


def step_weights(ratios: Sequence[float], begin: float, end: float) -> list[float]:
    r"""Returns what each denoised value counts in a step from one noise ratio to another.

    $$w_j = \int_{\rho_\text{end}}^{\rho_\text{begin}} \frac{\rho_\text{end}}{\rho} \, \ell_j(\log \rho) \,
    \frac{d\rho}{\rho}, \qquad \sum_j w_j = 1 - \frac{\rho_\text{end}}{\rho_\text{begin}}$$

    $\ell_j$ are Lagrange's polynomials through the logarithms of the ratios. Where the step begins at noise alone there
    is one ratio, and it counts 1. Where it ends at the data, the value there counts and no other: the polynomial is one
    in $\rho^2$, through two values at most, since $D = x_0 + O(\rho^2)$.

    Args:
        ratios: The noise ratios of the denoised values, the latest first.
        begin: $\rho_\text{begin}$.
        end: $\rho_\text{end}$.

    Examples:
        >>> step_weights([2.0], 2.0, 0.5)
        [0.75]
    """
    if end == 0:
        pair = [ratio**2 for ratio in ratios[:2] if ratio < inf] or [1.0]
        found = _polynomials(pair, np.zeros(())).tolist()
    elif begin == inf or len(ratios) == 1:
        found = [1 - end / begin]
    else:
        half = log(begin / end) / 2
        at = log(begin * end) / 2 + half * NODES
        found = (_polynomials([log(r) for r in ratios], at) * (half * WEIGHTS * end * np.exp(-at))).sum(1).tolist()
    return found + [0.0] * (len(ratios) - len(found))


@dataclass(frozen=True, kw_only=True)
class Exponential(Walker):
    r"""Integrates the noise exactly, and the denoised data as a polynomial in the logarithm of the noise ratio.

    $$x_s = \frac{\sigma_s}{\sigma_t} \, x_t + \alpha_s \sum_{j < p} w_j \, D_j$$

    with the weights of `step_weights`, over the latest $p$ values of $D$: the first step takes one, the second two, up
    to the order. When $D$ is known at the end of a step, the step is done once more with it, which costs no evaluation
    and makes few steps safe. The last step, to the data, is their denoised value, extrapolated. One evaluation a step;
    the default for every number of steps, best with the grid `saturated`. Order 1 without correction is DDIM; order 2
    without it, DPM-Solver++(2M), nearly.

    Reference:
        Zhang and Chen, *Fast Sampling of Diffusion Models with Exponential Integrator*, 2023; Lu et al.,
        *DPM-Solver++*, 2022; Zhao et al., *UniPC*, 2023.

    Args:
        order: $p$, from 1 to 4; unless given, 3 for fewer than 20 steps, 4 from there on.
        correction: The number of values with which a step is done once more, from 0 (it is not) to 4; the order unless
            given.

    Examples:
        >>> from lawful.solvers.diffusion import begin, edm, saturated
        >>> path, grid = edm(), saturated(edm(), 9)
        >>> noise = begin(path, grid, 2, 3)
        >>> Exponential()(lambda x, t: x / (1 + t**2), noise, path, grid).std() < 3
        tensor(True)
    """

    order: int | None = None
    correction: int | None = None

    def __post_init__(self) -> None:
        if self.order not in (None, 1, 2, 3, 4) or self.correction not in (None, 0, 1, 2, 3, 4):
            raise ValueError(f"an order from 1 to 4, a correction from 0 to 4, is wanted: got {self}")

    def lead(self, walk: Walk, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """Leads x through the times of a walk."""
        levels = walk.path.at(walk.grid)
        ratios = (levels.sigma / levels.alpha).tolist()
        order = self.order or (3 if len(ratios) <= 20 else 4)
        correction = order if self.correction is None else self.correction
        before, known = x, []
        for i, t, _ in walk.steps():
            known = [(ratios[i], walk.denoised(x, t)), *known[: max(order, correction) - 1]]
            if i and correction:
                x = _stepped(before, levels, i - 1, known[:correction])
            before, x = x, _stepped(x, levels, i, known[:order])
        return x


def _stepped(x: Tensor, levels: Level, i: int, known: list[tuple[float, Tensor]]) -> Tensor:
    """The step from the time i of the grid to the next, by what is known of the data at some noise ratios."""
    known = [(ratio, value) for ratio, value in known if ratio < inf] or known[:1]
    alphas, sigmas = levels.alpha[[i, i + 1]].tolist(), levels.sigma[[i, i + 1]].tolist()
    begin, end = (s / a if a else inf for a, s in zip(alphas, sigmas, strict=True))
    x = x * (sigmas[1] / sigmas[0])
    for weight, (_, value) in zip(step_weights([ratio for ratio, _ in known], begin, end), known, strict=True):
        x = x + (alphas[1] * weight) * value
    return x


def claims() -> Iterator[Claim]:
    """The laws that the exponential sampler obeys."""
    path = variance_preserving()
    ratios = [3.0, 5.0, 6.0, 20.0]

    def weighed(x: Tensor) -> Tensor:
        return x @ x.new_tensor(step_weights(ratios, 3.0, 0.5))

    def integral(x: Tensor) -> Tensor:
        """The integral of a cubic through the values, by a fine midpoint rule."""
        edges = torch.linspace(log(0.5), log(3.0), 5001, dtype=torch.float64)
        at = (edges[1:] + edges[:-1]) / 2
        nodes = torch.tensor(ratios, dtype=torch.float64).log()
        powers = torch.linalg.solve(torch.stack([nodes**k for k in range(4)], 1), x.double().T)
        values = powers.T @ torch.stack([at**k for k in range(4)])
        return (values * (0.5 * (-at).exp()) * (edges[1] - edges[0])).sum(-1).to(x)

    yield Claim(replace(agreement(other=integral), within=1e-5, cases=10), weighed, shape("n 4"), name="step_weights")

    def extrapolated(x: Tensor) -> Tensor:
        return x @ x.new_tensor(step_weights([0.1, 0.2], 0.1, 0.0))

    even = agreement(other=lambda x: (4 * x[:, 0] - x[:, 1]) / 3)
    yield Claim(even, extrapolated, shape("n 2"), name="step_weights to the data")
    grid = torch.tensor([0.9, 0.5, 0.2, 0.0], dtype=torch.float64)

    def ddim(x: Tensor) -> Tensor:
        return Exponential(order=1, correction=0)(lambda x, t: x.sin(), x, path, grid).to(x)

    def by_hand(x: Tensor) -> Tensor:
        for t, s in itertools.pairwise(grid):
            x = towards(x, x.sin(), path, t, s)
        return x

    yield Claim(replace(agreement(other=by_hand), cases=20), ddim, shape("n 2"), name="Exponential of order 1")
    for order in (2, 4):

        def known(x: Tensor, order: int = order) -> Tensor:
            return Exponential(order=order)(lambda x, t: 0 * x + 2, x, path, grid[:3]).to(x)

        exactly = agreement(other=lambda x: towards(x, 0 * x + 2, path, grid[0], grid[2]))
        yield Claim(replace(exactly, cases=20), known, shape("n 2"), name=f"Exponential({order}), known data")
    yield Claim(
        replace(batch_independence(), cases=10),
        lambda x: Exponential()(lambda x, t: x.sin(), x, path, grid).to(x),
        shape("n 2"),
        name="Exponential",
    )
