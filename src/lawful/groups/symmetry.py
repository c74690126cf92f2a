"""Groups in laws: what `equivariance` and `invariance` need to know of a group, in one word."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypedDict

import torch
from torch import Tensor

from lawful.groups.euclidean import Euclidean
from lawful.groups.finite import SymmetricGroup
from lawful.groups.group import Group, LieGroup
from lawful.groups.orthogonal import Orthogonal
from lawful.groups.product import DirectProduct
from lawful.laws import Claim, Draw, agreement, equivariance, invariance, shape


class Symmetry(TypedDict):
    """The arguments `sample` and `act` of the laws about groups."""

    sample: Callable[[Draw], Any]
    act: Callable[[Any, Tensor], Tensor]


def under(group: Group, *, axis: int = -1) -> Symmetry:
    """Says of a group what laws need to know: how to draw an element, and how it acts along an axis.

    One element acts on a whole input, on all samples and points alike. It is drawn in float64, whatever the
    precision of the case, so that both precisions see the same one.

    Args:
        group: The group. A product, which acts on tuples, is refused: take its factors one by one.
        axis: The axis of the input that holds the vectors that the group acts on.

    Examples:
        >>> import lawful
        >>> from lawful.laws import equivariance, invariance
        >>> law = invariance(**under(Orthogonal(3)))
        >>> lawful.check(lambda x: x @ x.mT, law, inputs=lawful.shape("b n 3")).verdicts[0].status
        'held'
        >>> law = equivariance(**under(Orthogonal(3)))
        >>> lawful.check(torch.relu, law, inputs=lawful.shape("b n 3")).verdicts[0].status
        'refuted'
    """
    if isinstance(group, DirectProduct):
        raise TypeError("a product acts on tuples and is to be taken factor by factor: got a DirectProduct")

    def sample(draw: Draw) -> Tensor:
        generator = torch.Generator().manual_seed(draw.integer(0, 2**31 - 1))
        return group.sample(generator=generator, dtype=torch.float64 if isinstance(group, LieGroup) else None)

    def act(g: Tensor, x: Tensor) -> Tensor:
        kind = x.dtype.to_complex() if g.is_complex() else x.dtype if g.is_floating_point() else g.dtype
        return group.act(g.to(x.device, kind), x.movedim(axis, -1)).movedim(-1, axis)

    return {"sample": sample, "act": act}


def claims() -> Iterator[Claim]:
    """The first fundamental theorem of invariants: which maps of points O(d), E(d) and the permutations keep."""

    def gram(x: Tensor) -> Tensor:
        return x @ x.mT

    def centred(x: Tensor) -> Tensor:
        return x - x.mean(-2, keepdim=True)

    def weighted(x: Tensor) -> Tensor:
        """A sum of the points with weights that the Gram matrix decides: what every equivariant map is."""
        return gram(x).tanh() @ x

    turn = torch.linalg.qr(torch.arange(9.0, dtype=torch.float64).reshape(3, 3).cos()).Q

    def turned(x: Tensor) -> Tensor:
        return under(Orthogonal(3), axis=-2)["act"](turn, x)

    yield Claim(agreement(other=lambda x: turn.to(x) @ x), turned, shape("b 3 4"), name="under(Orthogonal(3), axis=-2)")
    points = shape("b 4 3")
    yield Claim(invariance(**under(Orthogonal(3))), gram, points, name="Gram matrix")
    yield Claim(equivariance(**under(Orthogonal(3))), weighted, points, name="sum weighted by the Gram matrix")
    yield Claim(invariance(**under(Euclidean(3))), lambda x: gram(centred(x)), points, name="centred Gram matrix")
    yield Claim(
        equivariance(**under(SymmetricGroup(4), axis=-2)), weighted, points, name="sum weighted by the Gram matrix"
    )
