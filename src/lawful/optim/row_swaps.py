"""Row swaps: reorder the units of a layer so that their connections get shorter, without changing the function."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lawful.laws import Claim, boundedness, shape


def greedy_row_swaps(
    weights: Float[Tensor, "n m"], lengths: Float[Tensor, "n m"], *, max_swaps: int
) -> Int[Tensor, "n"]:
    r"""Swaps the units with the largest weights, one after the other, with the unit that lowers the cost most.

    $$\Delta = A_{uq} + A_{vp} - A_{up} - A_{vq}, \qquad A_{up} = \sum_j |w_{uj}| \, d_{pj}$$

    is the change of the cost when unit $u$ at position $p$ and unit $v$ at position $q$ swap. Gradient descent cannot
    find such swaps: the loss is higher on the way.

    Reference:
        Liu, Gan and Tegmark, *Seeing is Believing: Brain-Inspired Modular Training for Mechanistic
        Interpretability*, 2023.

    Args:
        weights: Connections $w$ of each unit.
        lengths: Lengths $d$ of these connections from each position.
        max_swaps: Number of units that may swap.

    Returns:
        The unit at each position after the swaps.

    Examples:
        >>> weights, lengths = torch.tensor([[0.0, 2.0], [1.0, 0.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> greedy_row_swaps(weights, lengths, max_swaps=1)
        tensor([1, 0])
    """
    if weights.shape != lengths.shape:
        raise ValueError(f"expected lengths of shape {tuple(weights.shape)}, got {tuple(lengths.shape)}")
    sizes = weights.detach().abs().double()
    cost = sizes @ lengths.detach().double().T
    positions = torch.arange(len(cost), device=cost.device)
    order = positions.clone()
    for unit in sizes.sum(1).argsort(descending=True, stable=True)[:max_swaps]:
        position = int((order == unit).nonzero()[0, 0])
        current = cost[order, positions]
        change = cost[unit] + cost[order, position] - current - current[position]
        best = int(change.argmin())
        if change[best] < 0:
            order[position], order[best] = order[best].clone(), unit
    return order


@torch.no_grad()
def permute_units(
    tensor: Tensor, order: Int[Tensor, "n"], *, dim: int = 0, optimizer: torch.optim.Optimizer | None = None
) -> None:
    """Permutes a tensor along a dimension in place, together with its optimizer state.

    Args:
        tensor: Parameter or buffer.
        order: Index of the entry that moves to each position.
        dim: 0 for the weights into units, 1 for the weights out of them.
        optimizer: Optimizer of the parameter.

    Examples:
        >>> x = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
        >>> permute_units(x, torch.tensor([1, 0]))
        >>> x.tolist()
        [2.0, 1.0]
    """
    state = {} if optimizer is None else optimizer.state.get(tensor, {})
    for value in (tensor, *state.values()):
        if isinstance(value, Tensor) and value.shape == tensor.shape:
            value.copy_(value.index_select(dim, order))


def claims() -> Iterator[Claim]:
    """Laws of row swaps."""

    def relative_cost(x: Tensor) -> Tensor:
        weights, lengths = x[:, :4].abs(), x[:, 4:].abs()
        before, order = (weights * lengths).sum(), greedy_row_swaps(weights, lengths, max_swaps=3)
        return (weights[order] * lengths).sum() / before.clamp_min(torch.finfo(x.dtype).tiny)

    name = "greedy_row_swaps, cost after the swaps relative to before"
    yield Claim(boundedness(low=0.0, high=1.0), relative_cost, shape("n:1..5 8"), name=name)
