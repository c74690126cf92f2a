"""Einstein summation, with axes that have names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, linearity, shape


def einsum(pattern: str, *tensors: Float[Tensor, ...]) -> Float[Tensor, ...]:
    r"""Multiplies tensors along axes that share a name, and adds up over the names that the result lacks.

    $$\texttt{"i k, k j -> i j"}: \quad C_{ij} = \sum_k A_{ik} B_{kj}$$

    Names are words, apart by spaces. Without `->` the convention is Einstein's own: every name that occurs twice is
    summed over, and the others stay, in order.

    Args:
        pattern: The names of the axes of each tensor, with commas between, then `->` and those of the result.
        tensors: As many tensors as the pattern names.

    Examples:
        >>> einsum("row inner, inner column -> row column", torch.ones(2, 3), torch.ones(3, 2))
        tensor([[3., 3.],
                [3., 3.]])
        >>> einsum("i i", torch.eye(3))
        tensor(3.)
    """
    before, arrow, after = pattern.partition("->")
    axes = [part.split() for part in before.split(",")]
    if len(axes) != len(tensors):
        raise ValueError(f"{pattern!r} names {len(axes)} tensors: got {len(tensors)}")
    sizes: dict[str, int] = {}
    for names, tensor in zip(axes, tensors, strict=True):
        if len(names) != tensor.dim():
            raise ValueError(f"{' '.join(names)!r} in {pattern!r} names {len(names)} axes: got {tuple(tensor.shape)}")
        for name, size in zip(names, tensor.shape, strict=True):
            if sizes.setdefault(name, size) != size:
                raise ValueError(f"{name!r} in {pattern!r} is one size: got {sizes[name]} and {size}")
    times = Counter(name for names in axes for name in names)
    kept = after.split() if arrow else [name for name, count in times.items() if count == 1]
    if missing := [name for name in kept if name not in sizes]:
        raise ValueError(f"{missing[0]!r} in the result of {pattern!r} is an axis of no tensor: got {[*sizes]}")
    if twice := [name for name, count in Counter(kept).items() if count > 1]:
        raise ValueError(f"{twice[0]!r} stands twice in the result of {pattern!r}")
    number = {name: n for n, name in enumerate(sizes)}
    operands = [part for t, names in zip(tensors, axes, strict=True) for part in (t, [number[n] for n in names])]
    return torch.einsum(*operands, [number[name] for name in kept])


def claims() -> Iterator[Claim]:
    """The laws that Einstein summation obeys."""
    rows = [
        ("i j, j", lambda a, v: (a @ v.unsqueeze(-1)).squeeze(-1), (shape("3 n"), shape("n"))),
        ("i k, k j", torch.matmul, (shape("m k"), shape("k n"))),
        ("i k, j k", lambda a, b: a @ b.mT, (shape("m k"), shape("n k"))),
        ("i k l, k l j", lambda a, b: torch.tensordot(a, b, 2), (shape("2 k l"), shape("k l 3"))),
        ("batch row row -> batch", lambda a: a.diagonal(0, -2, -1).sum(-1), (shape("b 3 3"),)),
        ("row column -> column row", lambda a: a.mT, (shape("m n"),)),
    ]
    for pattern, other, inputs in rows:

        def by_name(*tensors: Tensor, pattern: str = pattern) -> Tensor:
            return einsum(pattern, *tensors)

        yield Claim(agreement(other=other), by_name, inputs, f"einsum({pattern!r})")
    yield Claim(linearity(input=1), lambda a, b: einsum("i k, k j", a, b), (shape("m k"), shape("k n")), "einsum")
