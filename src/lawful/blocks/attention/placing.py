"""Positions in a layer of attention: whether they fit its heads, what they count for, and the biases between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Int
from torch import Tensor, nn

from lawful.blocks.attention.heads import HeadSet
from lawful.blocks.attention.steps import Kernel
from lawful.blocks.positions import ALiBi, Rotary
from lawful.functions.attention.plain import Bias
from lawful.laws import Claim, agreement, tokens


def check_positions(sets: Sequence[HeadSet], rotary: nn.Module | None, bias_by: nn.Module | None) -> None:
    """Refuses positions that were made for other heads.

    Args:
        sets: The sets of heads.
        rotary: What turns queries and keys: one for all sets, or a list with one for each.
        bias_by: What gives the biases of all heads.

    Examples:
        >>> check_positions([HeadSet(count=2, groups=2, key=4, value=4)], Rotary(4), ALiBi(2))
    """
    for one, module in zip(sets, _each(rotary, len(sets)), strict=True):
        if isinstance(module, Rotary) and module.k != one.key:
            each = "" if isinstance(rotary, nn.ModuleList) or len(sets) == 1 else ", one for each set of heads"
            raise ValueError(f"rotary positions for heads of size {one.key} were wanted{each}: got {module.k}")
    total = sum(one.count for one in sets)
    made = getattr(bias_by, "heads", total)
    if isinstance(made, int) and made != total:
        raise ValueError(f"biases for {total} heads were wanted: got {type(bias_by).__name__} for {made}")


def counts_from_the_start(rotary: nn.Module | None, kernel: Kernel) -> bool:
    """Says whether positions themselves matter, and not their differences alone.

    Turned queries and keys know only differences in a dot product; where features of them are taken first, as in linear
    attention, this is lost. What turns them otherwise than `Rotary` may have lost it as well.

    Examples:
        >>> from lawful.functions.attention import Linear, fused_attention
        >>> counts_from_the_start(Rotary(4), fused_attention), counts_from_the_start(Rotary(4), Linear())
        (False, True)
    """
    if rotary is None:
        return False
    return hasattr(kernel, "weights") or any(not isinstance(module, Rotary) for module in _each(rotary, 1))


def _each(module: nn.Module | None, count: int) -> list[nn.Module | None]:
    """The module of each set of heads."""
    return list(module) if isinstance(module, nn.ModuleList) else [module] * count


def biases(
    bias_by: nn.Module,
    heads: slice | None,
    queries: Int[Tensor, "*#rows t"] | None,
    keys: Int[Tensor, "*#rows s"] | int,
) -> Tensor | Bias:
    """Returns the biases of some heads: between positions that are given, or a function of any.

    Args:
        bias_by: What gives the biases of all heads.
        heads: Which of them are wanted; all unless given.
        queries: The positions of the queries, where they are not those of the last of the keys.
        keys: The positions of the keys; a number for the first so many.
    """

    def between(queries: Tensor, keys: Tensor) -> Tensor:
        found = bias_by(queries, keys)
        return found if heads is None else found[..., heads, :, :]

    if queries is None:
        return bias_by if heads is None else between
    if isinstance(keys, int):
        keys = torch.arange(keys, device=queries.device)
    return between(queries, keys.expand(*queries.shape[:-1], -1))


def claims() -> Iterator[Claim]:
    """The laws that biases between positions obey."""
    slopes = ALiBi(2)

    def crossed(p: Tensor) -> Tensor:
        found = biases(slopes, slice(1, 2), p, 3)
        return found if isinstance(found, Tensor) else found(p, p)

    def written(p: Tensor) -> Tensor:
        apart = [[[abs(int(i) - j) for j in range(3)] for i in row] for row in p]
        return torch.tensor(apart, dtype=slopes.like.dtype).unsqueeze(1) * -(2.0**-8)

    yield Claim(agreement(other=written), crossed, tokens("b t", vocab=9), name="biases, to the first three keys")
