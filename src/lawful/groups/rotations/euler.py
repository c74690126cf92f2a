"""Euler angles, in any order of axes, from and to matrices and quaternions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, reduce

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.groups.group import sized
from lawful.groups.rotations.conversions import matrix_to_quaternion, of_size_one, quaternion_to_matrix, skew
from lawful.groups.rotations.quaternions import quaternion_product
from lawful.groups.rotations.series import length
from lawful.laws import Claim, agreement, invertibility, made, shape


def euler_to_quaternion(angles: Float[Tensor, "*batch 3"], *, order: str) -> Float[Tensor, "*batch 4"]:
    r"""Composes three rotations about axes into a unit quaternion, real part first.

    Capital letters are intrinsic: each turn is about an axis of the body, which the turns before have moved, and
    $q = q_1 q_2 q_3$. Small letters are extrinsic: all are about the axes of space, and $q = q_3 q_2 q_1$. SciPy has
    the same rule.

    Args:
        angles: The angles, in the order of the letters.
        order: The axes, such as `"ZYX"` (yaw, pitch, roll) or `"zxz"`; neighbours differ.

    Examples:
        >>> euler_to_quaternion(torch.tensor([torch.pi, 0.0, 0.0]), order="ZYX").round(decimals=3) + 0.0
        tensor([0., 0., 0., 1.])
    """
    axes, intrinsic = _axes(order)
    half = sized(angles, 3) / 2
    basis = torch.eye(4, dtype=angles.dtype, device=angles.device)
    turns = [half[..., n, None].cos() * basis[0] + half[..., n, None].sin() * basis[1 + axes[n]] for n in range(3)]
    return reduce(quaternion_product, turns if intrinsic else turns[::-1])


def euler_to_matrix(angles: Float[Tensor, "*batch 3"], *, order: str) -> Float[Tensor, "*batch 3 3"]:
    """Composes three rotations about axes into a matrix; see `euler_to_quaternion`.

    Args:
        angles: The angles, in the order of the letters.
        order: The axes: capital letters intrinsic, small ones extrinsic.

    Examples:
        >>> euler_to_matrix(torch.tensor([torch.pi / 2, 0.0, 0.0]), order="zyx").round(decimals=3) + 0.0
        tensor([[ 0., -1.,  0.],
                [ 1.,  0.,  0.],
                [ 0.,  0.,  1.]])
    """
    return quaternion_to_matrix(euler_to_quaternion(angles, order=order))


def quaternion_to_euler(q: Float[Tensor, "*batch 4"], *, order: str) -> Float[Tensor, "*batch 3"]:
    r"""Finds the three angles about axes of which a rotation is composed.

    The first and the last lie in $[-\pi, \pi]$, the middle one in $[-\frac\pi2, \frac\pi2]$, or in $[0, \pi]$ where the
    first axis is the last. At the ends of its range, the gimbal lock, only the sum or the difference of the others is
    determined: the last one (in the order of the letters) is then 0, and derivatives, which do not exist there, are
    finite. Composing the angles gives the rotation back, in the lock and near it.

    Reference:
        Bernardes and Viollet, *Quaternion to Euler angles conversion: A direct, general and computationally
        efficient method*, 2022.

    Args:
        q: The quaternion, real part first, of either sign.
        order: The axes: capital letters intrinsic, small ones extrinsic.

    Examples:
        >>> quaternion_to_euler(torch.tensor([0.0, 0.0, 0.0, 1.0]), order="ZYX")
        tensor([3.1416, 0.0000, 0.0000])
    """
    axes, intrinsic = _axes(order)
    i, j, k = axes[::-1] if intrinsic else axes
    proper = i == k
    k = 3 - i - j if proper else k
    sign = (i - j) * (j - k) * (k - i) // 2
    w, *u = torch.nn.functional.normalize(of_size_one(q), dim=-1).unbind(-1)
    a, b, c, d = w, u[i], u[j], sign * u[k]
    if not proper:
        a, b, c, d = a - c, b + d, c + a, d - b
    plus, minus = torch.stack([a, b], dim=-1), torch.stack([c, d], dim=-1)
    middle = 2 * torch.atan2(length(minus), length(plus))
    total, difference = _angle(plus), _angle(minus)
    outer = (total - difference, total + difference)
    first, last = outer[::-1] if intrinsic else outer
    lock = torch.where(_zero(minus), 1.0, torch.where(_zero(plus), -1.0, 0.0)).to(w)
    first, last = first + lock * last, torch.where(lock == 0, last, 0.0)
    if not proper:
        middle = middle - torch.pi / 2
        first, last = (sign * first, last) if intrinsic else (first, sign * last)
    return torch.stack([_wrapped(first), middle, _wrapped(last)], dim=-1)


def matrix_to_euler(r: Float[Tensor, "*batch 3 3"], *, order: str) -> Float[Tensor, "*batch 3"]:
    """Finds the three angles about axes of which a rotation matrix is composed; see `quaternion_to_euler`.

    Args:
        r: The rotation matrix.
        order: The axes: capital letters intrinsic, small ones extrinsic.

    Examples:
        >>> matrix_to_euler(torch.eye(3), order="xyz")
        tensor([0., 0., 0.])
    """
    return quaternion_to_euler(matrix_to_quaternion(r), order=order)


def _axes(order: str) -> tuple[tuple[int, ...], bool]:
    """Reads the numbers of the axes, and whether they are those of the body."""
    axes = tuple("xyz".find(letter) for letter in order.lower())
    known = len(axes) == 3 and -1 not in axes and axes[1] not in (axes[0], axes[2])
    if not known or not (order.islower() or order.isupper()):
        raise ValueError(f"order is three of x, y, z, all small or all capital, neighbours different: got {order!r}")
    return axes, order.isupper()


def _zero(x: Tensor) -> Tensor:
    """Says whether a vector is 0 but for rounding."""
    return x.square().sum(-1) < (4 * torch.finfo(x.dtype).eps) ** 2


def _angle(x: Tensor) -> Tensor:
    """Returns the angle of a vector of the plane, and 0 for the vector 0."""
    zero = _zero(x)
    return torch.atan2(torch.where(zero, 0.0, x[..., 1]), torch.where(zero, 1.0, x[..., 0]))


def _wrapped(x: Tensor) -> Tensor:
    r"""Brings an angle to $[-\pi, \pi]$."""
    return x - 2 * torch.pi * torch.round(x / (2 * torch.pi))


def claims() -> Iterator[Claim]:
    """The laws that Euler angles obey."""

    def product(angles: Tensor, *, order: str) -> Tensor:
        axes = torch.eye(3, dtype=angles.dtype, device=angles.device)[["xyz".index(a) for a in order.lower()]]
        turns = list(torch.linalg.matrix_exp(skew(angles[..., None] * axes)).unbind(-3))
        return reduce(torch.matmul, turns if order.isupper() else turns[::-1])

    for order, end in (("XYZ", torch.pi / 2), ("zyx", -torch.pi / 2), ("yxy", 0.0)):
        there, back = partial(matrix_to_euler, order=order), partial(euler_to_matrix, order=order)

        def often_locked(angles: Tensor, back: Callable[..., Tensor] = back, end: float = end) -> Tensor:
            first, middle, last = angles.unbind(-1)
            return back(torch.stack([first, torch.where(middle > 0, end, middle), last], dim=-1))

        written = partial(product, order=order)
        yield Claim(agreement(other=written), back, shape("b 3"), name=f"euler_to_matrix({order})")
        yield Claim(invertibility(inverse=back), there, made(often_locked, "b 3"), name=f"matrix_to_euler({order})")
