"""The limit on the length of weights that goes with dropout."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, idempotence, lipschitz, shape


def max_norm(weight: Float[Tensor, "*shape"], *, limit: float) -> Float[Tensor, "*shape"]:
    r"""Shrinks each row that is longer than a limit to that length.

    $$w_i \leftarrow w_i \, \min\Bigl(1, \frac{c}{\lVert w_i \rVert_2}\Bigr)$$

    A row holds what leads into a unit. The paper does this after each step of learning with dropout, which allows
    for large steps. It is the projection onto the ball of radius $c$: rows within it stay as they are.

    Reference:
        Hinton, Srivastava, Krizhevsky, Sutskever and Salakhutdinov, *Improving neural networks by preventing
        co-adaptation of feature detectors*, 2012.

    Args:
        weight: The rows $w_i$, along the first axis.
        limit: $c$, above 0; at infinity nothing changes.

    Examples:
        >>> max_norm(torch.tensor([[3.0, 4.0], [0.5, 0.0]]), limit=1.0)
        tensor([[0.6000, 0.8000],
                [0.5000, 0.0000]])
    """
    if not limit > 0:
        raise ValueError(f"limit is to be above 0: got {limit}")
    if weight.dim() < 2:
        raise ValueError(f"a weight with rows was wanted: got shape {tuple(weight.shape)}")
    if math.isinf(limit):
        return weight.clone()
    length = torch.linalg.vector_norm(weight, dim=tuple(range(1, weight.dim())), keepdim=True)
    return weight * (limit / length.clamp_min(limit))


def claims() -> Iterator[Claim]:
    """The laws that the limit on lengths obeys: those of a projection onto a convex set."""

    def projection(weight: Tensor) -> Tensor:
        rows = [w / w.norm() * 1.5 if w.norm() > 1.5 else w for w in weight]
        return torch.stack(rows)

    for law in (agreement(other=projection), idempotence(), lipschitz()):
        yield Claim(law, partial(max_norm, limit=1.5), shape("b 4"), name="max_norm")
    yield Claim(agreement(other=projection), partial(max_norm, limit=1.5), shape("b 2 2"), name="max_norm of kernels")
    unchanged = agreement(other=torch.clone)
    yield Claim(unchanged, partial(max_norm, limit=math.inf), shape("b 4"), name="max_norm without a limit")
