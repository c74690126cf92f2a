"""Energies and scores: the score of an energy, the density along a line, and the curl of a score."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, derivative, transformed

Score = Callable[[Tensor], Tensor]
"""Function from points (n, *shape) to scores of the same shape."""


def score_of_energy(energy: Callable[[Tensor], Float[Tensor, " n"]]) -> Score:
    r"""Returns the score of the density of an energy.

    $$p(x) = \frac{e^{-E(x)}}{Z}, \qquad \nabla \log p(x) = -\nabla E(x)$$

    The normalizing constant $Z$ cancels.

    Reference:
        LeCun, Chopra, Hadsell, Ranzato and Huang, *A Tutorial on Energy-Based Learning*, 2006.

    Args:
        energy: Energy $E$, from (n, *shape) to (n,).

    Examples:
        >>> score_of_energy(lambda x: x.square().sum(-1) / 2)(torch.tensor([[1.0, 2.0]]))
        tensor([[-1., -2.]])
    """

    def score(x: Tensor) -> Tensor:
        with torch.enable_grad():
            leaf = x if x.requires_grad else x.detach().requires_grad_()
            return -torch.autograd.grad(energy(leaf).sum(), leaf, create_graph=x.requires_grad)[0]

    return score


def log_prob_along(
    score: Score, x: Float[Tensor, "n *shape"], origin: Float[Tensor, "*shape"], *, num_nodes: int = 32
) -> Float[Tensor, " n"]:
    r"""Returns log-density differences to an origin, by integrating the score along lines.

    $$\log p(x) - \log p(a) = \int_0^1 \nabla \log p(a + u (x - a)) \cdot (x - a) \, du$$

    This is minus the energy, up to a constant. For a field that is not a gradient the result depends on the path: see
    `curl`. The integral uses Gauss-Legendre quadrature.

    Args:
        score: Score $\nabla \log p$.
        x: Points.
        origin: Origin $a$.
        num_nodes: Number of quadrature nodes on each line.

    Examples:
        >>> log_prob_along(lambda x: -x, torch.tensor([[1.0, 1.0]]), torch.zeros(2)).round(decimals=4)
        tensor([-1.])
    """
    if num_nodes < 1:
        raise ValueError(f"expected num_nodes >= 1, got {num_nodes}")
    nodes, weights = np.polynomial.legendre.leggauss(num_nodes)
    line, total = x - origin, x.new_zeros(len(x))
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        gradient = score(origin + (1 + node) / 2 * line)
        total = total + weight / 2 * (gradient * line).reshape(len(x), x.shape[1:].numel()).sum(1)
    return total


def curl(score: Score, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    r"""Returns the relative antisymmetry of the Jacobian of a field, which is 0 for the score of a density.

    $$\frac{\lVert J - J^\top \rVert_F}{\lVert J + J^\top \rVert_F}, \qquad J = \frac{\partial s}{\partial x}$$

    Args:
        score: Field $s$.
        x: Points.

    Examples:
        >>> curl(lambda x: -x, torch.ones(1, 3))
        tensor([0.])
    """
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        sums = score(leaf).sum(0)
        rows = [torch.autograd.grad(total, leaf, retain_graph=True)[0] for total in sums]
    j = torch.stack(rows, 1)
    antisymmetric = (j - j.mT).flatten(1).norm(dim=1)
    return antisymmetric / (j + j.mT).flatten(1).norm(dim=1).clamp_min(torch.finfo(x.dtype).tiny)


def claims() -> Iterator[Claim]:
    """The score is minus the gradient of the energy, and has no curl."""

    def energy(x: Tensor) -> Tensor:
        return (x.square() + x.roll(1, -1) * x.sin()).sum(-1)

    inputs = transformed(torch.tanh, "n 3")
    yield Claim(derivative(formula=lambda x: -score_of_energy(energy)(x)), energy, inputs, name="score_of_energy")

    def integrated(x: Tensor) -> Tensor:
        return log_prob_along(score_of_energy(energy), x, x.new_ones(3), num_nodes=8)

    difference = agreement(other=lambda x: energy(x.new_ones(1, 3)) - energy(x))
    yield Claim(difference, integrated, inputs, name="log_prob_along")
    yield Claim(
        agreement(other=lambda x: torch.full_like(x[:, 0], 3.0)),
        lambda x: 3 + curl(score_of_energy(energy), x.detach().requires_grad_()),
        inputs,
        name="curl of a score is 0",
    )
