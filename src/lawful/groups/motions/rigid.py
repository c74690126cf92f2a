r"""Rotation and translation in one matrix, $\begin{bmatrix} R & t \\ 0 & 1 \end{bmatrix}$, for any dimension."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.groups.group import sized
from lawful.groups.rotations.conversions import axis_angle_to_matrix
from lawful.laws import Claim, agreement, made, shape


def rigid(r: Float[Tensor, "*#batch d d"], t: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch e e"]:
    r"""Writes $x \mapsto R x + t$ as a matrix that acts on $(x, 1)$.

    Args:
        r: The rotation $R$.
        t: The translation $t$.

    Examples:
        >>> rigid(torch.eye(2), torch.tensor([3.0, 4.0]))
        tensor([[1., 0., 3.],
                [0., 1., 4.],
                [0., 0., 1.]])
    """
    batch = torch.broadcast_shapes(r.shape[:-2], t.shape[:-1])
    d = t.shape[-1]
    top = torch.cat([sized(r, d, d).expand(*batch, d, d), t.expand(*batch, d)[..., None]], dim=-1)
    bottom = torch.eye(d + 1, dtype=t.dtype, device=t.device)[-1:].expand(*batch, 1, d + 1)
    return torch.cat([top, bottom], dim=-2)


def parts(g: Float[Tensor, "*batch e e"]) -> tuple[Float[Tensor, "*batch d d"], Float[Tensor, "*batch d"]]:
    """Reads the rotation and the translation off such a matrix: the inverse of `rigid`.

    Args:
        g: The matrix.
    """
    return g[..., :-1, :-1], g[..., :-1, -1]


def rigid_inverse(g: Float[Tensor, "*batch e e"]) -> Float[Tensor, "*batch e e"]:
    r"""Inverts a rotation and translation without solving: $R^\top$, $-R^\top t$.

    Args:
        g: The matrix.
    """
    r, t = parts(g)
    return rigid(r.mT, -(r.mT @ t[..., None])[..., 0])


def rigid_act(g: Float[Tensor, "*#batch e e"], x: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch d"]:
    """Turns and moves the vectors in the last axis of $x$: $R x + t$.

    Args:
        g: The matrix.
        x: The vectors $x$.
    """
    r, t = parts(g)
    return (r @ sized(x, t.shape[-1])[..., None])[..., 0] + t


def claims() -> Iterator[Claim]:
    """The laws that such matrices obey."""

    def motion(v: Tensor) -> Tensor:
        return rigid(axis_angle_to_matrix(v[..., :3]), v[..., 3:])

    element = made(motion, "b 6")
    yield Claim(agreement(other=torch.linalg.inv), rigid_inverse, element)

    def homogeneous(g: Tensor, x: Tensor) -> Tensor:
        return (g @ torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)[..., None])[..., :-1, 0]

    yield Claim(agreement(other=homogeneous), rigid_act, (element, shape("b 3")))
