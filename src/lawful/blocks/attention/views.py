"""Heads as matrices: what a head asks for, and what it moves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, shape

if TYPE_CHECKING:
    from lawful.blocks.attention.multi_head import MultiHeadAttention


def qk_factors(layer: MultiHeadAttention, head: int) -> tuple[Float[Tensor, "d k"], Float[Tensor, "k e"]]:
    r"""Returns the low-rank factors of what a head asks for, $(W^Q_h)^\top$ and $W^K_h$.

    $$s_{ij} = \frac{1}{\sqrt{k}} \, x_i^\top (W^Q_h)^\top W^K_h \, x_j$$

    Their product is the bilinear form `layer.qk(head)`, of rank $k$ at most. Biases, norms and rotary positions are
    left out.

    Reference:
        Elhage et al., *A Mathematical Framework for Transformer Circuits*, 2021.

    Args:
        layer: The layer.
        head: The number of the head, counted over all sets.
    """
    n, i = _found(layer, head)
    sets = layer.sets[n]
    query, key = (
        linear.weight.split(layer.sizes[name])[n].unflatten(0, (-1, sets.key))
        for name, linear in (("query", layer.query), ("key", layer.key))
    )
    return query[i].mT, key[i * sets.groups // sets.count]


def ov_factors(layer: MultiHeadAttention, head: int) -> tuple[Float[Tensor, "d v"], Float[Tensor, "v e"]]:
    r"""Returns the low-rank factors of what a head moves, $W^O_h$ and $W^V_h$.

    $$y_i = \sum_h \sum_j w^h_{ij} \, W^O_h W^V_h \, x_j$$

    Their product is the linear map `layer.ov(head)`, of rank $v$ at most. Biases are left out.

    Reference:
        Elhage et al., *A Mathematical Framework for Transformer Circuits*, 2021.

    Args:
        layer: The layer.
        head: The number of the head, counted over all sets.
    """
    n, i = _found(layer, head)
    sets = layer.sets[n]
    value = layer.value.weight.split(layer.sizes["value"])[n].unflatten(0, (-1, sets.value))
    out = layer.out.weight.split(layer.sizes["out"], dim=1)[n].unflatten(1, (-1, sets.value))
    return out[:, i], value[i * sets.groups // sets.count]


def _found(layer: MultiHeadAttention, head: int) -> tuple[int, int]:
    """The number of the set of a head, and its number there."""
    left = head
    for n, one in enumerate(layer.sets):
        if 0 <= left < one.count:
            return n, left
        left -= one.count
    raise IndexError(f"heads from 0 to {sum(one.count for one in layer.sets) - 1} were wanted: got {head}")


def claims() -> Iterator[Claim]:
    """The laws that the matrices of heads obey."""
    from lawful.blocks.attention.heads import Heads
    from lawful.blocks.attention.multi_head import MultiHeadAttention

    sets = [Heads(count=4, groups=2, key=2, value=1), Heads(key=3)]
    layer, crossed = (MultiHeadAttention(4, heads=sets, context=e, bias=False) for e in (None, 3))

    def by_matrices(x: Tensor, y: Tensor, layer: MultiHeadAttention = crossed) -> Tensor:
        total = torch.zeros_like(x)
        for head, k in enumerate((2, 2, 2, 2, 3)):
            (asks, looked_at), (puts, takes) = qk_factors(layer, head), ov_factors(layer, head)
            pattern = (x @ asks @ looked_at @ y.mT / k**0.5).softmax(-1)
            total = total + pattern @ y @ takes.mT @ puts.mT
        return total

    def to_itself(x: Tensor) -> Tensor:
        return by_matrices(x, x, layer)

    yield Claim(agreement(other=to_itself), layer, shape("b t 4"), name="heads as matrices")
    yield Claim(
        agreement(other=by_matrices), crossed, (shape("b t 4"), shape("b s 3")), name="heads as matrices, cross"
    )
