"""The energy view: a score as the slope of a landscape, and the landscape from its slopes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, derivative, shape, transformed

Score = Callable[[Tensor], Tensor]


def score_of_energy(energy: Callable[[Tensor], Float[Tensor, " n"]]) -> Score:
    r"""Returns the score of the density that an energy defines.

    $$p(x) = \frac{e^{-E(x)}}{Z}, \qquad \nabla \log p(x) = -\nabla E(x)$$

    The constant $Z$, which nobody can compute, is gone.

    Reference:
        LeCun, Chopra, Hadsell, Ranzato and Huang, *A Tutorial on Energy-Based Learning*, 2006.

    Args:
        energy: $E$, from (n, *shape) to a number for each.

    Examples:
        >>> score_of_energy(lambda x: x.square().sum(-1) / 2)(torch.tensor([[1.0, 2.0]]))
        tensor([[-1., -2.]])
    """

    def score(x: Tensor) -> Tensor:
        with torch.enable_grad():
            leaf = x if x.requires_grad else x.detach().requires_grad_()
            return -torch.autograd.grad(energy(leaf).sum(), leaf, create_graph=x.requires_grad)[0]

    return score


def log_density_along(
    score: Score, x: Float[Tensor, "n *shape"], origin: Float[Tensor, "*shape"], *, nodes: int = 32
) -> Float[Tensor, " n"]:
    r"""Returns how much more probable points are than another, by integrating the score along the line between.

    $$\log p(x) - \log p(a) = \int_0^1 \nabla \log p(a + u (x - a)) \cdot (x - a) \, du$$

    It is minus the energy, up to a constant. Of a score that is no gradient, the line matters: see `curl`. The integral
    is Gauss and Legendre's.

    Args:
        score: $\nabla \log p$.
        x: The points.
        origin: $a$.
        nodes: The number of places on each line.

    Examples:
        >>> log_density_along(lambda x: -x, torch.tensor([[1.0, 1.0]]), torch.zeros(2)).round(decimals=4)
        tensor([-1.])
    """
    if nodes < 1:
        raise ValueError(f"at least 1 node is wanted: got {nodes}")
    places, weights = np.polynomial.legendre.leggauss(nodes)
    way, total = x - origin, x.new_zeros(len(x))
    for place, weight in zip(places.tolist(), weights.tolist(), strict=True):
        slope = score(origin + (1 + place) / 2 * way)
        total = total + weight / 2 * (slope * way).reshape(len(x), x.shape[1:].numel()).sum(1)
    return total


def curl(score: Score, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    r"""Returns how far a field is from being a gradient, at some points: 0 where it is the score of a density.

    $$\frac{\lVert J - J^\top \rVert_F}{\lVert J + J^\top \rVert_F}, \qquad J = \frac{\partial s}{\partial x}$$

    Args:
        score: $s$.
        x: The points.

    Examples:
        >>> curl(lambda x: -x, torch.ones(1, 3))
        tensor([0.])
    """
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        slopes = score(leaf).sum(0)
        rows = [torch.autograd.grad(slope, leaf, retain_graph=True)[0] for slope in slopes]
    j = torch.stack(rows, 1)
    turned = (j - j.mT).flatten(1).norm(dim=1)
    return turned / (j + j.mT).flatten(1).norm(dim=1).clamp_min(torch.finfo(x.dtype).tiny)


def claims() -> Iterator[Claim]:
    """The laws that energies obey."""

    def energy(x: Tensor) -> Tensor:
        return (x.square() + x.roll(1, -1) * x.sin()).sum(-1)

    near = transformed(torch.tanh, "n 3")
    yield Claim(derivative(formula=lambda x: -score_of_energy(energy)(x)), energy, near, name="score_of_energy")

    def along(x: Tensor) -> Tensor:
        return log_density_along(score_of_energy(energy), x, x.new_ones(3), nodes=8)

    yield Claim(agreement(other=lambda x: energy(x.new_ones(1, 3)) - energy(x)), along, near, name="log_density_along")
    yield Claim(
        agreement(other=lambda x: torch.full_like(x[:, 0], 3.0)),
        lambda x: 3 + curl(score_of_energy(energy), x.detach().requires_grad_()),
        near,
        name="curl of a score",
    )

    def turned(x: Tensor) -> Tensor:
        return curl(lambda x: torch.stack([-x[:, 0] - 2 * x[:, 1], 2 * x[:, 0] - x[:, 1]], 1), x)

    yield Claim(agreement(other=lambda x: torch.full_like(x[:, 0], 2.0)), turned, shape("n 2"), name="curl of a turn")
