"""Row swaps: units change places so that their connections get shorter, and the function stays the same."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.laws import Claim, agreement, boundedness, shape


def better_order(weights: Float[Tensor, "n m"], lengths: Float[Tensor, "n m"], *, most: int) -> Int[Tensor, "n"]:
    r"""Lets the units with the largest weights, one after the other, swap with whom it helps most.

    $$\Delta = A_{uq} + A_{vp} - A_{up} - A_{vq}, \qquad A_{up} = \sum_j |w_{uj}| \, d_{pj}$$

    is what a swap of unit $u$ at place $p$ with $v$ at $q$ adds to the cost; the lowest is taken if it is below 0.
    Gradient descent cannot do this: on the way there the loss is higher.

    Reference:
        Liu, Gan and Tegmark, *Seeing is Believing: Brain-Inspired Modular Training for Mechanistic
        Interpretability*, 2023.

    Args:
        weights: $w$, a row for each unit: its connections to both sides.
        lengths: $d$, a row for each place: how far it is to their other ends.
        most: How many units look for another place.

    Returns:
        Which unit is at each place then.

    Examples:
        >>> weights, lengths = torch.tensor([[0.0, 2.0], [1.0, 0.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> better_order(weights, lengths, most=1)
        tensor([1, 0])
    """
    if weights.shape != lengths.shape:
        raise ValueError(f"a length for each weight was wanted: got {tuple(lengths.shape)}, {tuple(weights.shape)}")
    sizes = weights.detach().abs().double()
    cost = sizes @ lengths.detach().double().T
    places = torch.arange(len(cost), device=cost.device)
    order = places.clone()
    for unit in sizes.sum(1).argsort(descending=True, stable=True)[:most]:
        place = int((order == unit).nonzero()[0, 0])
        now = cost[order, places]
        change = cost[unit] + cost[order, place] - now - now[place]
        best = int(change.argmin())
        if change[best] < 0:
            order[place], order[best] = order[best].clone(), unit
    return order


@torch.no_grad()
def rearrange(
    tensor: Tensor, order: Int[Tensor, "n"], *, axis: int = 0, optimizer: torch.optim.Optimizer | None = None
) -> None:
    """Puts the entries along an axis in another order, in place, with all that an optimizer remembers of them.

    Momentum that stayed behind would push the newcomer where the unit before it was going.

    Args:
        tensor: A parameter, or a buffer.
        order: Which entry comes to each place.
        axis: 0 for what leads into units, 1 for what leads out of them.
        optimizer: The optimizer of the parameter.

    Examples:
        >>> x = nn.Parameter(torch.tensor([1.0, 2.0]))
        >>> rearrange(x, torch.tensor([1, 0]))
        >>> x.tolist()
        [2.0, 1.0]
    """
    kept = {} if optimizer is None else optimizer.state.get(tensor, {})
    for found in (tensor, *kept.values()):
        if isinstance(found, Tensor) and found.shape == tensor.shape:
            found.copy_(found.index_select(axis, order))


def claims() -> Iterator[Claim]:
    """The laws that row swaps obey."""

    def dearer(x: Tensor) -> Tensor:
        weights, lengths = x[:, :4].abs(), x[:, 4:].abs()
        before, order = (weights * lengths).sum(), better_order(weights, lengths, most=3)
        return (weights[order] * lengths).sum() / before.clamp_min(torch.finfo(x.dtype).tiny)

    def remembered(x: Tensor) -> Tensor:
        order, p = torch.arange(len(x)).flip(0), nn.Parameter(x.clone())
        optimizer = torch.optim.SGD([p], lr=1.0)
        optimizer.state[p]["momentum_buffer"] = x.clone()
        rearrange(p, order, axis=0, optimizer=optimizer)
        return torch.stack([p.detach(), optimizer.state[p]["momentum_buffer"]])

    yield Claim(boundedness(low=0.0, high=1.0), dearer, shape("n:1..5 8"), name="better_order, cost after to before")
    both = agreement(other=lambda x: torch.stack([x.flip(0)] * 2))
    yield Claim(both, remembered, shape("n 3"), name="rearrange, with an optimizer")
