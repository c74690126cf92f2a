r"""What a normalised layer does not notice: the table of the layer-normalisation paper.

A layer without a bias, $f(x, W) = \operatorname{norm}(x W^\top)$, is a map of the data and of the weight. Scaling and
shifting either of them is an invariance of that map, or it is not.

Reference:
    Ba, Kiros and Hinton, *Layer Normalization*, 2016, table 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from lawful.blocks.normalization.batch_norm import BatchNorm
from lawful.blocks.normalization.layer_norm import LayerNorm
from lawful.blocks.normalization.weight_norm import WeightNorm
from lawful.laws import Claim, agreement, homogeneity, made, scale_invariance, shift_invariance

LAWS = {
    "weight matrix re-scaled": homogeneity(degree=0.0, input=1),
    "weight matrix re-centred": shift_invariance(axis=0, input=1),
    "weight vector re-scaled": scale_invariance(axis=1, input=1),
    "data set re-scaled": homogeneity(degree=0.0, input=0),
    "data set re-centred": shift_invariance(axis=0, input=0),
    "single case re-scaled": scale_invariance(axis=1, input=0),
}
"""The columns of the table."""

TABLE = {
    "batch norm": (True, False, True, True, True, False),
    "weight norm": (True, False, True, False, False, False),
    "layer norm": (True, True, False, True, False, True),
}
"""Its rows: whether the layer is invariant."""


def normalised(kind: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns the layer of a row: a map of the data (b, c) and the weight (d, c), with no eps to speak of.

    Examples:
        >>> layer = normalised("layer norm")
        >>> layer(torch.eye(2), torch.tensor([[3.0, 0.0], [0.0, 2.0]]))
        tensor([[ 1., -1.],
                [-1.,  1.]])
    """

    def layer(x: Tensor, w: Tensor) -> Tensor:
        if kind == "weight norm":
            return x @ WeightNorm()(w.new_ones(len(w), 1), w).mT
        d = len(w)
        norm = BatchNorm(d, eps=1e-30, affine=False) if kind == "batch norm" else LayerNorm(d, eps=0.0, affine=False)
        return norm.to(x)(x @ w.mT)

    if kind not in TABLE:
        raise ValueError(f"a row of the table is one of {', '.join(TABLE)}: got {kind!r}")
    return layer


def _apart(x: Tensor) -> Tensor:
    """Rows that are never all the same, where eps = 0 gives no number."""
    rows, columns = x.shape
    return x.tanh() + 3 * torch.eye(rows, columns).to(x) + torch.arange(columns).to(x)


INPUTS = (made(_apart, "b:3..5 3"), made(_apart, "d:3..5 3"))
"""Data and weights for which every entry of the table has a value."""


def claims() -> Iterator[Claim]:
    """Every yes of the table, and all that is seen of one shift and one scale."""
    for kind, row in TABLE.items():
        layer = normalised(kind)
        for (column, law), holds in zip(LAWS.items(), row, strict=True):
            if holds:
                yield Claim(law, layer, INPUTS, name=f"{kind}, {column}")

        def unseen(x: Tensor, w: Tensor, f: Callable[[Tensor, Tensor], Tensor] = layer) -> Tensor:
            shift, rows, cases = (
                x.new_tensor([1.0, -2.0, 4.0]),
                *(1 + torch.arange(len(a)).to(a)[:, None] for a in (w, x)),
            )
            weights = [(x, 3 * w), (x, w + shift), (x, rows * w)]
            changed = [*weights, (3 * x, w), (x + shift, w), (cases * x, w)]
            return x.new_tensor([torch.allclose(f(x, w), f(*pair), atol=1e-3) for pair in changed])

        told = agreement(other=lambda x, w, row=row: x.new_tensor(row))
        yield Claim(told, unseen, INPUTS, name=f"{kind}, the row of the table")
