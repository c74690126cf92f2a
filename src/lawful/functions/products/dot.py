"""The dot product, and the angle that it measures."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.products.norms import check_vectors, norm, of_size_one
from lawful.laws import (
    Claim,
    agreement,
    boundedness,
    cauchy_schwarz,
    commutativity,
    finiteness,
    invariance,
    linearity,
    scale_invariance,
    shape,
    triangle_inequality,
)


def dot(x: Float[Tensor, "*#batch d"], y: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch"]:
    r"""Multiplies entry by entry and adds up: a similarity.

    $$x \cdot y = \sum_i x_i y_i = \lVert x \rVert \, \lVert y \rVert \cos \theta$$

    Args:
        x: The vectors $x$, along the last axis.
        y: The vectors $y$.

    Examples:
        >>> dot(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
        tensor(11.)
    """
    check_vectors(x, y)
    return torch.linalg.vecdot(x, y)


def cosine(x: Float[Tensor, "*#batch d"], y: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch"]:
    r"""Measures the similarity of two directions: the cosine of the angle between them.

    $$\cos \theta = \frac{x \cdot y}{\lVert x \rVert \, \lVert y \rVert}$$

    There is no $\epsilon$, so that vectors of any length have a direction; only 0 has none, and the cosine is then 0.

    Args:
        x: The vectors $x$, along the last axis.
        y: The vectors $y$.

    Examples:
        >>> cosine(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 5.0]))
        tensor(0.)
    """
    x, y = of_size_one(x), of_size_one(y)
    squares = dot(x, x) * dot(y, y)
    return dot(x, y) / squares.masked_fill(squares == 0, 1.0).sqrt()


def angle(x: Float[Tensor, "*#batch d"], y: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch"]:
    r"""Measures the angle between two directions, from 0 to $\pi$.

    $$\theta = 2 \operatorname{atan2}\big( \lVert u - v \rVert, \lVert u + v \rVert \big),
    \qquad u = \frac{x}{\lVert x \rVert}, \quad v = \frac{y}{\lVert y \rVert}$$

    The arc cosine would lose half of the digits near 0 and $\pi$, and has no derivative there. The angle with 0 is
    taken to be a right one.

    Args:
        x: The vectors $x$, along the last axis.
        y: The vectors $y$.

    Examples:
        >>> angle(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 5.0]))
        tensor(1.5708)
    """
    check_vectors(x, y)
    u, v = _direction(x), _direction(y)
    apart, together = norm(u - v), norm(u + v)
    none = (apart == 0) & (together == 0)
    return 2 * torch.atan2(apart.masked_fill(none, 1.0), together.masked_fill(none, 1.0))


def _direction(x: Tensor) -> Tensor:
    x = of_size_one(x)
    length = norm(x).unsqueeze(-1)
    return x / length.masked_fill(length == 0, 1.0)


def _on_circle(angle: Tensor) -> Tensor:
    return torch.stack([angle.cos(), angle.sin()], -1)


def claims() -> Iterator[Claim]:
    """The laws that the dot product, the cosine and the angle obey."""
    pair = (shape("b 4"), shape("b 4"))
    turned = invariance(sample=lambda draw: torch.linalg.qr(draw.normal(4, 4)).Q, act=lambda q, x: x @ q, input=(0, 1))
    for law in (linearity(input=0), commutativity(), cauchy_schwarz(), turned):
        yield Claim(law, dot, pair)
    yield Claim(agreement(other=lambda x, y: (x * y).sum(-1)), dot, (shape("b n"), shape("b n")))
    lengths = agreement(other=lambda x, y: (x * x).sum(-1).sqrt() * (y * y).sum(-1).sqrt() * cosine(x, y))
    yield Claim(lengths, dot, pair)
    yield Claim(
        agreement(other=lambda a, b: dot(_on_circle(a), _on_circle(b))),
        lambda a, b: (a - b).cos(),
        (shape("b"), shape("b")),
        "cos(a - b) = cos a cos b + sin a sin b",
    )
    for similarity in (cosine, angle):
        yield Claim(scale_invariance(input=0), similarity, pair)
        yield Claim(finiteness(), similarity, pair)
    yield Claim(boundedness(low=-1.0, high=1.0), cosine, pair)
    yield Claim(triangle_inequality(), angle, pair)
    yield Claim(agreement(other=cosine), lambda x, y: angle(x, y).cos(), pair, "cos(angle)")

    def corners(x: Tensor) -> Tensor:
        return torch.stack(
            [angle(0 * x, x), angle(0 * x, 0 * x), angle(1 + x.abs(), 2 + 2 * x.abs()), cosine(0 * x, x)], -1
        )

    right = agreement(other=lambda x: (x.new_tensor([1, 1, 0, 0]) * torch.pi / 2).expand(len(x), 4))
    yield Claim(right, corners, shape("b 4"), name="angle with 0, and with a multiple")
