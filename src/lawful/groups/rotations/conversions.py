r"""Conversions between rotation matrices, quaternions and rotation vectors (axis times angle)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.groups.group import sized
from lawful.groups.rotations.series import arctangent_ratio, stumpff, within
from lawful.laws import (
    Claim,
    agreement,
    evenness,
    idempotence,
    invertibility,
    made,
    orthonormality,
    scale_invariance,
    second_order_gradient,
    shape,
)


def skew(v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
    r"""Writes a vector as the matrix of its cross product, $[v]_\times x = v \times x$.

    Args:
        v: The vector $v$.

    Examples:
        >>> skew(torch.tensor([1.0, 2.0, 3.0]))
        tensor([[ 0., -3.,  2.],
                [ 3.,  0., -1.],
                [-2.,  1.,  0.]])
    """
    x, y, z = sized(v, 3).unbind(-1)
    o = torch.zeros_like(x)
    return torch.stack([o, -z, y, z, o, -x, -y, x, o], dim=-1).unflatten(-1, (3, 3))


def axis_angle_to_matrix(v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
    r"""Turns a rotation vector into a matrix, by the formula of Rodrigues.

    $$R = \cos\theta \, 1 + \frac{\sin\theta}{\theta} [v]_\times + \frac{1 - \cos\theta}{\theta^2} v v^\top,
    \qquad \theta = \lVert v \rVert$$

    The coefficients are smooth functions of $\theta^2$: derivatives of all orders are right, at $v = 0$ too.

    Args:
        v: The rotation vector: along the axis, as long as the angle.

    Examples:
        >>> axis_angle_to_matrix(torch.tensor([0.0, 0.0, torch.pi / 2])).round(decimals=3) + 0.0
        tensor([[ 0., -1.,  0.],
                [ 1.,  0.,  0.],
                [ 0.,  0.,  1.]])
    """
    x, y, z = sized(v, 3).unbind(-1)
    c0, c1, c2 = stumpff(x * x + y * y + z * z, last=2)
    sx, sy, sz, tx, ty, tz = c1 * x, c1 * y, c1 * z, c2 * x, c2 * y, c2 * z
    xy, xz, yz = tx * y, tx * z, ty * z
    rows = [c0 + tx * x, xy - sz, xz + sy, xy + sz, c0 + ty * y, yz - sx, xz - sy, yz + sx, c0 + tz * z]
    return torch.stack(rows, dim=-1).unflatten(-1, (3, 3))


def axis_angle_to_quaternion(v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 4"]:
    r"""Turns a rotation vector into a unit quaternion, real part first.

    $$q = \Bigl( \cos\frac\theta2, \; \frac{\sin(\theta / 2)}{\theta} v \Bigr), \qquad \theta = \lVert v \rVert$$

    Angles beyond $\pi$ give a negative real part: nothing is wrapped.

    Args:
        v: The rotation vector.

    Examples:
        >>> axis_angle_to_quaternion(torch.zeros(3))
        tensor([1., 0., 0., 0.])
    """
    half = sized(v, 3) / 2
    c0, c1 = (c[..., None] for c in stumpff(half.square().sum(-1), last=1))
    return torch.cat([c0, c1 * half], dim=-1)


def canonical(q: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 4"]:
    """Chooses one of the two quaternions of a rotation: that whose first component other than 0 is positive.

    So the real part is not negative; of half turns, where it is 0, the first other component decides.

    Args:
        q: The quaternion, real part first.

    Examples:
        >>> canonical(torch.tensor([0.0, 0.0, -1.0, 0.0])) + 0.0
        tensor([0., 0., 1., 0.])
    """
    w, x, y, z = sized(q, 4).unbind(-1)
    first = torch.where(w != 0, w, torch.where(x != 0, x, torch.where(y != 0, y, z)))
    return torch.where(first[..., None] < 0, -q, q)


def quaternion_to_axis_angle(q: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 3"]:
    r"""Turns a quaternion into the rotation vector of its rotation, $\lVert v \rVert \le \pi$.

    $$v = \frac{2 u}{\lVert u \rVert} \operatorname{atan2}(\lVert u \rVert, w)
    = \frac{4 u}{h} \, \frac{\arctan r}{r}, \quad r = \frac{\lVert u \rVert}{h}, \quad h = w + \lVert q \rVert,
    \quad (w, u) = q$$

    The second form, a series in $r^2 = \tan^2 \frac\theta4$, is taken up to 0.04: nothing is divided by a small angle,
    and $v$ and its derivatives are right from 0 to $\pi$. The sign of $q$ does not matter, nor does its length. At half
    turns, where two vectors are right, `canonical` chooses, and the derivative is that of the branch chosen.

    Args:
        q: The quaternion $(w, u)$, real part first.

    Examples:
        >>> quaternion_to_axis_angle(torch.tensor([0.0, 0.0, -1.0, 0.0])) + 0.0
        tensor([0.0000, 3.1416, 0.0000])
    """
    return _axis_angle(of_size_one(q))


def _axis_angle(q: Tensor) -> Tensor:
    """Of a quaternion whose squares neither over- nor underflow."""
    q = canonical(q)
    w, u = q[..., :1], q[..., 1:]
    square = u.square().sum(-1, keepdim=True)
    h = w + (w.square() + square).sqrt()
    x = square / h.square()
    small = x < 0.04
    n = torch.where(small, 1.0, square).sqrt()
    return torch.where(small, 4 / h * arctangent_ratio(torch.where(small, x, 0.0)), 2 * torch.atan2(n, w) / n) * u


def quaternion_to_matrix(q: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 3 3"]:
    r"""Turns a quaternion into the matrix of $x \mapsto q x q^{-1}$.

    $$R = 1 + \frac{2}{\lVert q \rVert^2} (w [u]_\times + [u]_\times^2)$$

    The length of $q$ does not matter, nor does its sign.

    Args:
        q: The quaternion $(w, u)$, real part first, other than 0.

    Examples:
        >>> quaternion_to_matrix(torch.tensor([0.0, 1.0, 0.0, 0.0]))
        tensor([[ 1.,  0.,  0.],
                [ 0., -1.,  0.],
                [ 0.,  0., -1.]])
    """
    q = of_size_one(q)
    w, x, y, z = q.unbind(-1)
    a = 2 / q.square().sum(-1)
    ax, ay, az = a * x, a * y, a * z
    wx, wy, wz, xx, xy, xz, yy, yz, zz = w * ax, w * ay, w * az, x * ax, x * ay, x * az, y * ay, y * az, z * az
    rows = [1 - yy - zz, xy - wz, xz + wy, xy + wz, 1 - xx - zz, yz - wx, xz - wy, yz + wx, 1 - xx - yy]
    return torch.stack(rows, dim=-1).unflatten(-1, (3, 3))


def of_size_one(q: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 4"]:
    """Divides quaternions by their largest component, a constant to the gradient, so that squares do not overflow."""
    return sized(q, 4) / q.detach().abs().amax(-1, keepdim=True)


def matrix_to_quaternion(r: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 4"]:
    r"""Turns a rotation matrix into its unit quaternion, real part first, in the sign of `canonical`.

    The matrix $4 q q^\top$ is linear in $R$. Its row with the largest diagonal entry, which is at least 1, is divided
    by its length: nothing cancels at any angle. Off the rotations this is the extension that derivatives see; along
    them it is exact, so that the derivative in the direction of any rotation is right.

    Args:
        r: The rotation matrix $R$.

    Examples:
        >>> matrix_to_quaternion(torch.eye(3))
        tensor([1., 0., 0., 0.])
    """
    row = _pivot(r)
    return canonical(row / row.square().sum(-1, keepdim=True).sqrt())


def _pivot(r: Tensor) -> Tensor:
    r"""Returns the row of $4 q q^\top$ with the largest diagonal entry: the quaternion, with a length of 2 to 4."""
    a, b, c, d, e, f, g, h, i = sized(r, 3, 3).flatten(-2).unbind(-1)
    wx, wy, wz, xy, xz, yz = h - f, c - g, d - b, b + d, c + g, f + h
    ww, xx, yy, zz = 1 + a + e + i, 1 + a - e - i, 1 - a + e - i, 1 - a - e + i
    low = [torch.where(xx > ww, one, other) for one, other in ((wx, ww), (xx, wx), (xy, wy), (xz, wz))]
    high = [torch.where(zz > yy, one, other) for one, other in ((wz, wy), (xz, xy), (yz, yy), (zz, yz))]
    higher = torch.maximum(yy, zz) > torch.maximum(ww, xx)
    return torch.stack([torch.where(higher, one, other) for one, other in zip(high, low, strict=True)], dim=-1)


def matrix_to_axis_angle(r: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3"]:
    r"""Turns a rotation matrix into its rotation vector, $\lVert v \rVert \le \pi$, by way of a quaternion.

    What `matrix_to_quaternion` and `quaternion_to_axis_angle` say of half turns and of derivatives holds here.

    Args:
        r: The rotation matrix.

    Examples:
        >>> matrix_to_axis_angle(torch.tensor([[-1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 1.0]]))
        tensor([0.0000, 0.0000, 3.1416])
    """
    return _axis_angle(_pivot(r))


def claims() -> Iterator[Claim]:
    """The laws that the conversions obey."""
    quaternion, vector = shape("b 4"), made(within, "b 3")
    rotation = made(lambda v: axis_angle_to_matrix(within(v)), "b 3")
    for law in (idempotence(), evenness()):
        yield Claim(law, canonical, quaternion)

    def first_left(q: Tensor) -> Tensor:
        return torch.stack([canonical(q * (torch.arange(4) >= k))[..., k] for k in range(4)], -1)

    yield Claim(agreement(other=torch.abs), first_left, quaternion, name="canonical, the first other than 0")
    for law in (orthonormality(), scale_invariance(axis=-1)):
        yield Claim(law, quaternion_to_matrix, quaternion)
    yield Claim(invertibility(inverse=quaternion_to_matrix), matrix_to_quaternion, rotation)
    yield Claim(invertibility(inverse=quaternion_to_axis_angle), axis_angle_to_quaternion, vector)

    def through_quaternion(v: Tensor) -> Tensor:
        return quaternion_to_matrix(axis_angle_to_quaternion(v))

    yield Claim(agreement(other=through_quaternion), axis_angle_to_matrix, shape("b 3"))
    yield Claim(second_order_gradient(), matrix_to_axis_angle, rotation)
    yield Claim(invertibility(inverse=axis_angle_to_matrix), matrix_to_axis_angle, rotation)
    series = agreement(other=lambda v: torch.linalg.matrix_exp(skew(v)))
    yield Claim(series, axis_angle_to_matrix, vector, name="axis_angle_to_matrix and the exponential")
    cross = agreement(other=lambda v, x: torch.linalg.cross(v, x))
    yield Claim(cross, lambda v, x: (skew(v) @ x[..., None])[..., 0], (shape("b 3"), shape("b 3")), name="skew")

    def far_from_one(q: Tensor) -> Tensor:
        return torch.cat([quaternion_to_axis_angle(s * q / q.norm(dim=-1, keepdim=True)) for s in (1e30, 1e-30)])

    unit = made(lambda v: axis_angle_to_quaternion(within(v)), "b 3")
    lengths = agreement(other=lambda q: quaternion_to_axis_angle(q).repeat(2, 1))
    yield Claim(lengths, far_from_one, unit, name="quaternion_to_axis_angle of any length")
