"""Conversions between rotation matrices, quaternions (real part first), rotation vectors and Euler angles."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial, reduce

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.groups._helpers import arctan_ratio, check_last_axes, check_rotation, safe_norm, shorten, stumpff
from lawful.laws import (
    Claim,
    associativity,
    evenness,
    homomorphism,
    idempotence,
    invertibility,
    orthonormality,
    scale_invariance,
    shape,
    transformed,
)


def skew(v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
    r"""Returns the matrix of the cross product, $[v]_\times x = v \times x$.

    Args:
        v: Vector $v$.

    Examples:
        >>> skew(torch.tensor([1.0, 2.0, 3.0]))
        tensor([[ 0., -3.,  2.],
                [ 3.,  0., -1.],
                [-2.,  1.,  0.]])
    """
    x, y, z = check_last_axes(v, 3).unbind(-1)
    o = torch.zeros_like(x)
    return torch.stack([o, -z, y, z, o, -x, -y, x, o], dim=-1).unflatten(-1, (3, 3))


def quaternion_product(p: Float[Tensor, "*#batch 4"], q: Float[Tensor, "*#batch 4"]) -> Float[Tensor, "*batch 4"]:
    r"""Hamilton product of quaternions.

    $$(a, u)(b, v) = (ab - u \cdot v,\; a v + b u + u \times v), \qquad i^2 = j^2 = k^2 = ijk = -1$$

    Args:
        p: Quaternion $(a, u)$, real part first.
        q: Quaternion $(b, v)$, real part first.

    Examples:
        >>> quaternion_product(torch.tensor([0.0, 1.0, 0.0, 0.0]), torch.tensor([0.0, 0.0, 1.0, 0.0]))
        tensor([0., 0., 0., 1.])
    """
    a, b, c, d = check_last_axes(p, 4).unbind(-1)
    e, f, g, h = check_last_axes(q, 4).unbind(-1)
    parts = [
        a * e - b * f - c * g - d * h,
        a * f + b * e + c * h - d * g,
        a * g - b * h + c * e + d * f,
        a * h + b * g - c * f + d * e,
    ]
    return torch.stack(parts, dim=-1)


def axis_angle_to_matrix(v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
    r"""Converts a rotation vector to a rotation matrix (Rodrigues' formula).

    $$R = \cos\theta \, 1 + \frac{\sin\theta}{\theta} [v]_\times + \frac{1 - \cos\theta}{\theta^2} v v^\top,
    \qquad \theta = \lVert v \rVert$$

    Numerics: the coefficients are smooth functions of $\theta^2$, so derivatives of all orders are finite and
    accurate, also at $v = 0$.

    Args:
        v: Rotation vector: its direction is the axis, its norm the angle.

    Examples:
        >>> axis_angle_to_matrix(torch.tensor([0.0, 0.0, torch.pi / 2])).round(decimals=3) + 0.0
        tensor([[ 0., -1.,  0.],
                [ 1.,  0.,  0.],
                [ 0.,  0.,  1.]])
    """
    x, y, z = check_last_axes(v, 3).unbind(-1)
    c0, c1, c2 = stumpff(x * x + y * y + z * z, max_order=2)
    sx, sy, sz, tx, ty, tz = c1 * x, c1 * y, c1 * z, c2 * x, c2 * y, c2 * z
    xy, xz, yz = tx * y, tx * z, ty * z
    rows = [c0 + tx * x, xy - sz, xz + sy, xy + sz, c0 + ty * y, yz - sx, xz - sy, yz + sx, c0 + tz * z]
    return torch.stack(rows, dim=-1).unflatten(-1, (3, 3))


def axis_angle_to_quaternion(v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 4"]:
    r"""Converts a rotation vector to a unit quaternion.

    $$q = \Bigl( \cos\frac\theta2, \; \frac{\sin(\theta / 2)}{\theta} v \Bigr), \qquad \theta = \lVert v \rVert$$

    The real part is negative for angles between $\pi$ and $3\pi$: angles are not wrapped.

    Args:
        v: Rotation vector.

    Examples:
        >>> axis_angle_to_quaternion(torch.zeros(3))
        tensor([1., 0., 0., 0.])
    """
    half = check_last_axes(v, 3) / 2
    c0, c1 = (c[..., None] for c in stumpff(half.square().sum(-1), max_order=1))
    return torch.cat([c0, c1 * half], dim=-1)


def canonical_quaternion(q: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 4"]:
    """Returns $q$ or $-q$, which are the same rotation: the one whose first nonzero component is positive.

    Args:
        q: Quaternion, real part first.

    Examples:
        >>> canonical_quaternion(torch.tensor([0.0, 0.0, -1.0, 0.0])) + 0.0
        tensor([0., 0., 1., 0.])
    """
    w, x, y, z = check_last_axes(q, 4).unbind(-1)
    first = torch.where(w != 0, w, torch.where(x != 0, x, torch.where(y != 0, y, z)))
    return torch.where(first[..., None] < 0, -q, q)


def quaternion_to_axis_angle(q: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 3"]:
    r"""Converts a quaternion to its rotation vector, $\lVert v \rVert \le \pi$.

    $$v = \frac{2 u}{\lVert u \rVert} \operatorname{atan2}(\lVert u \rVert, w)
    = \frac{4 u}{h} \, \frac{\arctan r}{r}, \quad r = \frac{\lVert u \rVert}{h}, \quad h = w + \lVert q \rVert,
    \quad (w, u) = q$$

    The norm and sign of $q$ do not matter. At an angle of $\pi$, where $v$ and $-v$ are the same rotation, the sign
    follows `canonical_quaternion`, and the derivative is taken on this branch.

    Numerics: for $r^2 = \tan^2 \frac\theta4 < 0.04$ the second form is summed as a series, so that nothing is divided
    by a small angle; $v$ and its derivatives are accurate from 0 to $\pi$.

    Args:
        q: Quaternion $(w, u)$, real part first.

    Examples:
        >>> quaternion_to_axis_angle(torch.tensor([0.0, 0.0, -1.0, 0.0])) + 0.0
        tensor([0.0000, 3.1416, 0.0000])
    """
    return _to_axis_angle(_rescale(q))


def _to_axis_angle(q: Tensor) -> Tensor:
    """Rotation vector of a quaternion whose squares neither overflow nor underflow."""
    q = canonical_quaternion(q)
    w, u = q[..., :1], q[..., 1:]
    square = u.square().sum(-1, keepdim=True)
    h = w + (w.square() + square).sqrt()
    x = square / h.square()
    small = x < 0.04
    n = torch.where(small, 1.0, square).sqrt()
    return torch.where(small, 4 / h * arctan_ratio(torch.where(small, x, 0.0)), 2 * torch.atan2(n, w) / n) * u


def quaternion_to_matrix(q: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 3 3"]:
    r"""Converts a quaternion to the matrix of $x \mapsto q x q^{-1}$.

    $$R = 1 + \frac{2}{\lVert q \rVert^2} (w [u]_\times + [u]_\times^2)$$

    The norm and sign of $q$ do not matter.

    Args:
        q: Nonzero quaternion $(w, u)$, real part first.

    Examples:
        >>> quaternion_to_matrix(torch.tensor([0.0, 1.0, 0.0, 0.0]))
        tensor([[ 1.,  0.,  0.],
                [ 0., -1.,  0.],
                [ 0.,  0., -1.]])
    """
    q = _rescale(q)
    w, x, y, z = q.unbind(-1)
    a = 2 / q.square().sum(-1)
    ax, ay, az = a * x, a * y, a * z
    wx, wy, wz, xx, xy, xz, yy, yz, zz = w * ax, w * ay, w * az, x * ax, x * ay, x * az, y * ay, y * az, z * az
    rows = [1 - yy - zz, xy - wz, xz + wy, xy + wz, 1 - xx - zz, yz - wx, xz - wy, yz + wx, 1 - xx - yy]
    return torch.stack(rows, dim=-1).unflatten(-1, (3, 3))


def _rescale(q: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 4"]:
    """Divides quaternions by their largest component, detached, so that squares do not overflow."""
    return check_last_axes(q, 4) / q.detach().abs().amax(-1, keepdim=True)


def matrix_to_quaternion(r: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 4"]:
    r"""Converts a rotation matrix to its unit quaternion, with the sign of `canonical_quaternion`.

    Numerics: the matrix $4 q q^\top$ is linear in $R$. Its row with the largest diagonal entry, at least 1, is
    normalized, so that nothing cancels at any angle. Derivatives along the group are exact.

    Args:
        r: Rotation matrix $R$.

    Raises:
        ValueError: If a matrix is not a rotation.

    Examples:
        >>> matrix_to_quaternion(torch.eye(3))
        tensor([1., 0., 0., 0.])
    """
    row = _pivot_row(r)
    return canonical_quaternion(row / row.square().sum(-1, keepdim=True).sqrt())


def _pivot_row(r: Tensor) -> Tensor:
    r"""Returns the row of $4 q q^\top$ with the largest diagonal entry: the quaternion, with a norm of 2 to 4."""
    a, b, c, d, e, f, g, h, i = entries = check_last_axes(r, 3, 3).flatten(-2).unbind(-1)
    check_rotation(r, _rotation_error(entries))
    wx, wy, wz, xy, xz, yz = h - f, c - g, d - b, b + d, c + g, f + h
    ww, xx, yy, zz = 1 + a + e + i, 1 + a - e - i, 1 - a + e - i, 1 - a - e + i
    low = [torch.where(xx > ww, one, other) for one, other in ((wx, ww), (xx, wx), (xy, wy), (xz, wz))]
    high = [torch.where(zz > yy, one, other) for one, other in ((wz, wy), (xz, xy), (yz, yy), (zz, yz))]
    higher = torch.maximum(yy, zz) > torch.maximum(ww, xx)
    return torch.stack([torch.where(higher, one, other) for one, other in zip(high, low, strict=True)], dim=-1)


@torch.no_grad()
def _rotation_error(entries: tuple[Tensor, ...]) -> Float[Tensor, "*batch"]:
    r"""Error of $|r_1| = |r_2| = 1$, $r_1 \cdot r_2 = 0$ and $r_3 = r_1 \times r_2$ for the rows of a matrix."""
    a, b, c, d, e, f, g, h, i = entries
    errors = [torch.addcmul(torch.addcmul(x * x - 1, y, y), z, z) for x, y, z in ((a, b, c), (d, e, f))]
    errors.append(torch.addcmul(torch.addcmul(a * d, b, e), c, f))
    for third, x, y, z, w in ((g, b, f, c, e), (h, c, d, a, f), (i, a, e, b, d)):
        errors.append(torch.addcmul(torch.addcmul(third, x, y, value=-1), z, w))
    total = errors[0] * errors[0]
    for error in errors[1:]:
        total = torch.addcmul(total, error, error)
    return total.sqrt()


def matrix_to_axis_angle(r: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3"]:
    r"""Converts a rotation matrix to its rotation vector, $\lVert v \rVert \le \pi$.

    At an angle of $\pi$ it behaves like `quaternion_to_axis_angle`.

    Args:
        r: Rotation matrix.

    Raises:
        ValueError: If a matrix is not a rotation.

    Examples:
        >>> matrix_to_axis_angle(torch.tensor([[-1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 1.0]]))
        tensor([0.0000, 0.0000, 3.1416])
    """
    return _to_axis_angle(_pivot_row(r))


def euler_to_quaternion(angles: Float[Tensor, "*batch 3"], *, order: str) -> Float[Tensor, "*batch 4"]:
    r"""Converts Euler angles to a unit quaternion.

    Uppercase letters are intrinsic rotations, about the axes of the body: $q = q_1 q_2 q_3$. Lowercase letters are
    extrinsic rotations, about the fixed axes: $q = q_3 q_2 q_1$. This is SciPy's convention.

    Args:
        angles: Angles, in the order of the letters.
        order: Axes, such as `"ZYX"` (yaw, pitch, roll) or `"zxz"`. Consecutive axes must differ.

    Examples:
        >>> euler_to_quaternion(torch.tensor([torch.pi, 0.0, 0.0]), order="ZYX").round(decimals=3) + 0.0
        tensor([0., 0., 0., 1.])
    """
    axes, intrinsic = _parse_order(order)
    half = check_last_axes(angles, 3) / 2
    basis = torch.eye(4, dtype=angles.dtype, device=angles.device)
    factors = [half[..., n, None].cos() * basis[0] + half[..., n, None].sin() * basis[1 + axes[n]] for n in range(3)]
    return reduce(quaternion_product, factors if intrinsic else factors[::-1])


def euler_to_matrix(angles: Float[Tensor, "*batch 3"], *, order: str) -> Float[Tensor, "*batch 3 3"]:
    """Converts Euler angles to a rotation matrix.

    Args:
        angles: Angles, in the order of the letters.
        order: Axes, uppercase for intrinsic and lowercase for extrinsic rotations, as in `euler_to_quaternion`.

    Examples:
        >>> euler_to_matrix(torch.tensor([torch.pi / 2, 0.0, 0.0]), order="zyx").round(decimals=3) + 0.0
        tensor([[ 0., -1.,  0.],
                [ 1.,  0.,  0.],
                [ 0.,  0.,  1.]])
    """
    return quaternion_to_matrix(euler_to_quaternion(angles, order=order))


def quaternion_to_euler(q: Float[Tensor, "*batch 4"], *, order: str) -> Float[Tensor, "*batch 3"]:
    r"""Converts a quaternion to Euler angles.

    The first and last angle are in $[-\pi, \pi]$. The middle one is in $[-\frac\pi2, \frac\pi2]$, or in $[0, \pi]$ if
    the first and last axis are equal. At the ends of its range (gimbal lock) only the sum or difference of the other
    two is determined: the last one is set to 0, and gradients are finite. Converting back gives the same rotation
    everywhere, gimbal lock included.

    Reference:
        Bernardes and Viollet, *Quaternion to Euler angles conversion: A direct, general and computationally
        efficient method*, 2022.

    Args:
        q: Quaternion, real part first.
        order: Axes, uppercase for intrinsic and lowercase for extrinsic rotations.

    Examples:
        >>> quaternion_to_euler(torch.tensor([0.0, 0.0, 0.0, 1.0]), order="ZYX")
        tensor([3.1416, 0.0000, 0.0000])
    """
    axes, intrinsic = _parse_order(order)
    i, j, k = axes[::-1] if intrinsic else axes
    proper = i == k
    k = 3 - i - j if proper else k
    sign = (i - j) * (j - k) * (k - i) // 2
    w, *u = torch.nn.functional.normalize(_rescale(q), dim=-1).unbind(-1)
    a, b, c, d = w, u[i], u[j], sign * u[k]
    if not proper:
        a, b, c, d = a - c, b + d, c + a, d - b
    plus, minus = torch.stack([a, b], dim=-1), torch.stack([c, d], dim=-1)
    middle = 2 * torch.atan2(safe_norm(minus), safe_norm(plus))
    total, difference = _polar_angle(plus), _polar_angle(minus)
    outer = (total - difference, total + difference)
    first, last = outer[::-1] if intrinsic else outer
    lock = torch.where(_is_zero(minus), 1.0, torch.where(_is_zero(plus), -1.0, 0.0)).to(w)
    first, last = first + lock * last, torch.where(lock == 0, last, 0.0)
    if not proper:
        middle = middle - torch.pi / 2
        first, last = (sign * first, last) if intrinsic else (first, sign * last)
    return torch.stack([_wrap_angle(first), middle, _wrap_angle(last)], dim=-1)


def matrix_to_euler(r: Float[Tensor, "*batch 3 3"], *, order: str) -> Float[Tensor, "*batch 3"]:
    """Converts a rotation matrix to Euler angles, in the ranges of `quaternion_to_euler`.

    Args:
        r: Rotation matrix.
        order: Axes, uppercase for intrinsic and lowercase for extrinsic rotations.

    Examples:
        >>> matrix_to_euler(torch.eye(3), order="xyz")
        tensor([0., 0., 0.])
    """
    return quaternion_to_euler(matrix_to_quaternion(r), order=order)


def _parse_order(order: str) -> tuple[tuple[int, ...], bool]:
    """Returns the indices of the axes, and whether the rotations are intrinsic."""
    axes = tuple("xyz".find(letter) for letter in order.lower())
    known = len(axes) == 3 and -1 not in axes and axes[1] not in (axes[0], axes[2])
    if not known or not (order.islower() or order.isupper()):
        raise ValueError(
            "order must be three of x, y, z, all uppercase or all lowercase, without equal neighbors, "
            f"such as 'ZYX': got {order!r}"
        )
    return axes, order.isupper()


def _is_zero(x: Tensor) -> Tensor:
    """Whether a vector is 0 up to rounding."""
    return x.square().sum(-1) < (4 * torch.finfo(x.dtype).eps) ** 2


def _polar_angle(x: Tensor) -> Tensor:
    """Returns the polar angle of 2-d vectors, and 0 for the zero vector."""
    zero = _is_zero(x)
    return torch.atan2(torch.where(zero, 0.0, x[..., 1]), torch.where(zero, 1.0, x[..., 0]))


def _wrap_angle(x: Tensor) -> Tensor:
    r"""Wraps an angle to $[-\pi, \pi]$."""
    return x - 2 * torch.pi * torch.round(x / (2 * torch.pi))


def claims() -> Iterator[Claim]:
    """Laws of quaternions and of the conversions."""
    quaternion, vector = shape("b 4"), transformed(shorten, "b 3")
    rotation = transformed(lambda v: axis_angle_to_matrix(shorten(v)), "b 3")
    yield Claim(associativity(), quaternion_product, (quaternion, quaternion))
    for law in (idempotence(), evenness()):
        yield Claim(law, canonical_quaternion, quaternion)
    nonzero = transformed(lambda q: torch.where((q == 0).all(-1, keepdim=True), 1.0, q), "b 4")
    for law in (orthonormality(), scale_invariance(axis=-1)):
        yield Claim(law, quaternion_to_matrix, nonzero)
    unit = transformed(axis_angle_to_quaternion, "b 3")
    yield Claim(homomorphism(operation=quaternion_product, into=torch.matmul), quaternion_to_matrix, unit)
    yield Claim(invertibility(inverse=quaternion_to_matrix), matrix_to_quaternion, rotation)
    yield Claim(invertibility(inverse=quaternion_to_axis_angle), axis_angle_to_quaternion, vector)
    for order in ("XYZ", "zyx", "yxy"):
        to_euler, to_matrix = partial(matrix_to_euler, order=order), partial(euler_to_matrix, order=order)
        yield Claim(invertibility(inverse=to_matrix), to_euler, rotation, name=f"matrix_to_euler({order})")
