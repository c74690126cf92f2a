"""Sets of heads: how many, and how large."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lawful.laws import Claim, Draw, Map, Same, Statement, agreement, law, shape


@dataclass(frozen=True, kw_only=True)
class Heads:
    """Describes a set of alike heads; several sets make a layer whose heads differ in size.

    Examples:
        >>> Heads(count=8, groups=2, key=32)
        Heads(count=8, groups=2, key=32, value=None)
    """

    count: int = 1
    """The number of heads."""
    groups: int | None = None
    """The number of heads of keys and values, each for as many heads of queries; as many as heads unless given."""
    key: int | None = None
    """The size of queries and keys; the width by the number of all heads unless given."""
    value: int | None = None
    """The size of values; that of the keys unless given."""


@dataclass(frozen=True, kw_only=True)
class HeadSet:
    """A set of alike heads with every size known."""

    count: int
    groups: int
    key: int
    value: int


def head_sets(d: int, heads: int | Sequence[Heads]) -> tuple[HeadSet, ...]:
    """Returns the sets of heads of a layer of width d, those that are alike as one, in order of first appearance.

    Args:
        d: The width of the layer.
        heads: The number of heads, or sets of them.

    Examples:
        >>> head_sets(8, [Heads(count=2), Heads(key=1), Heads()])
        (HeadSet(count=3, groups=3, key=2, value=2), HeadSet(count=1, groups=1, key=1, value=1))
    """
    given = [Heads(count=heads)] if isinstance(heads, int) else list(heads)
    total = sum(one.count for one in given)
    if total < 1 or any(one.count < 1 for one in given):
        raise ValueError(f"at least one head is wanted: got heads={heads}")
    found: dict[tuple[int, int, int], HeadSet] = {}
    for one in given:
        made = _sized(one, d, total)
        alike = made.key, made.value, made.count // made.groups
        if alike in found:
            before = found[alike]
            count, groups = before.count + made.count, before.groups + made.groups
            made = HeadSet(count=count, groups=groups, key=made.key, value=made.value)
        found[alike] = made
    return tuple(found.values())


def _sized(heads: Heads, d: int, total: int) -> HeadSet:
    if heads.key is None and d % total:
        raise ValueError(f"heads must divide d: got d={d}, heads={total}")
    groups = heads.count if heads.groups is None else heads.groups
    if groups < 1 or heads.count % groups:
        raise ValueError(f"groups must divide the number of heads: got count={heads.count}, groups={groups}")
    key = d // total if heads.key is None else heads.key
    value = key if heads.value is None else heads.value
    if min(key, value) < 1:
        raise ValueError(f"the sizes of heads are at least 1: got key={key}, value={value}")
    return HeadSet(count=heads.count, groups=groups, key=key, value=value)


@law("f(x; Q_π, K_π, V_π, O_π) = f(x; Q, K, V, O)", tries=None)
def head_permutation(f: Map, *xs: Tensor, heads: int, draw: Draw) -> Statement:
    """Renumbering the heads of a layer changes nothing.

    Kept by: heads of one size, each with keys of its own.
    Broken by: an output map that was not renumbered; heads that share keys, unless groups are kept together.
    """
    order, moved = draw.permutation(heads), {}
    for name, p in f.parameters.items():
        axis = 1 if name == "out.weight" else 0
        if name != "out.bias":
            moved[name] = p.detach().unflatten(axis, (heads, -1)).index_select(axis, order).flatten(axis, axis + 1)
    return Same(f.with_parameters(moved)(*xs), f(*xs))


def claims() -> Iterator[Claim]:
    """The laws that sets of heads obey."""
    from lawful.blocks.attention.multi_head import MultiHeadAttention

    sets = [Heads(count=2, groups=1, key=2, value=3), Heads(key=3, value=1), Heads(count=2, groups=1, key=2, value=3)]

    def made(d: int, heads: int | list[Heads]) -> MultiHeadAttention:
        return MultiHeadAttention(d, heads=[Heads(**vars(one)) for one in head_sets(d, heads)])

    layer, grouped = (made(4, one) for one in (sets, [Heads(count=4, groups=2, key=2)]))

    def one_by_one(x: Tensor) -> Tensor:
        total, (q, k, v, z) = layer.out.bias, (0, 0, 0, 0)
        for head, (key, value) in enumerate([(2, 3)] * 4 + [(3, 1)]):
            if head in (2, 4):
                k, v = k + 2, v + 3
            rows = (layer.query, q, key), (layer.key, k, key), (layer.value, v, value)
            asked, keys, values = (x @ m.weight[i : i + n].T + m.bias[i : i + n] for m, i, n in rows)
            weights = torch.softmax(asked @ keys.mT / key**0.5, dim=-1)
            total = total + weights @ values @ layer.out.weight[:, z : z + value].T
            q, z = q + key, z + value
        return total

    def repeated(x: Tensor) -> Tensor:
        own, rows = made(4, [Heads(count=4, key=2)]), torch.tensor([0, 1, 0, 1, 2, 3, 2, 3])
        weights = {n: p[rows] if n.startswith(("key", "value")) else p for n, p in grouped.named_parameters()}
        return torch.func.functional_call(own, weights, (x,))

    yield Claim(agreement(other=one_by_one), layer, shape("b t 4"), name="heads of two sizes, with groups")
    yield Claim(agreement(other=repeated), grouped, shape("b t 4"), name="groups, with their weights repeated")
    yield Claim(head_permutation(heads=3), made(3, 3), shape("b t 3"))
