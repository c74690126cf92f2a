"""The functions of $s = t^2$ that exponentials of rotations are made of, smooth at 0 and everywhere.

Conversions between rotation matrices, quaternions and rotation vectors (axis times angle).
Generators that turn in one plane, $A^3 = -s A$: their exponentials and averages in closed form.
SO(3): the rotations of space, as matrices.
Euler angles, in any order of axes, from and to matrices and quaternions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, reduce
from math import factorial

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from lawful.groups import group as matrices
from lawful.groups.group import LieGroup, axioms, distances, left_invariance, rigidity, sized, smooth_axioms
from lawful.laws import (
    Claim,
    agreement,
    derivative,
    evenness,
    idempotence,
    invertibility,
    orthonormality,
    scale_invariance,
    second_order_gradient,
    shape,
    transformed,
)


def stumpff(s: Float[Tensor, "*batch"], *, last: int) -> tuple[Float[Tensor, "*batch"], ...]:
    r"""Computes the Stumpff functions $c_0, \dots, c_n$ of $s \ge 0$.

    $$c_k(s) = \sum_{m \ge 0} \frac{(-s)^m}{(2m + k)!}, \qquad c_0(t^2) = \cos t, \quad c_1(t^2) = \frac{\sin t}{t},
    \quad c_2(t^2) = \frac{1 - \cos t}{t^2}, \quad c_3(t^2) = \frac{t - \sin t}{t^3}$$

    All follow from two of them by $c_k = 1/k! - s\,c_{k+2}$. Below $s = 4$ the last two are summed and the others
    follow downwards; above, the first two come from sine and cosine and the others follow upwards. Either way errors
    do not grow: values and derivatives are off by less than the last place of 1. No root is taken at 0.

    Args:
        s: The square $s$ of the angle $t$.
        last: $n$, at least 1.

    Examples:
        >>> stumpff(torch.zeros(()), last=3)
        (tensor(1.), tensor(1.), tensor(0.5000), tensor(0.1667))
    """
    if last < 1:
        raise ValueError(f"last is at least 1: got {last}")
    if not s.is_floating_point():
        raise TypeError(f"real numbers are wanted: got {s.dtype}")
    small = s < 4
    near, far = torch.where(small, s, 0.0), torch.where(small, 4.0, s)
    sums = [_sum(near, last), _sum(near, last - 1)]
    for k in range(last - 2, -1, -1):
        sums.append(1 / factorial(k) - near * sums[-2])
    t = far.sqrt()
    closed = [t.cos(), t.sin() / t]
    for k in range(2, last + 1):
        closed.append((1 / factorial(k - 2) - closed[-2]) / far)
    return tuple(torch.where(small, a, b) for a, b in zip(reversed(sums), closed, strict=True))


def _sum(s: Tensor, k: int) -> Tensor:
    """Sums the series of $c_k$ below $s = 4$: enough terms for the third derivative to be right."""
    terms = 14 if s.dtype == torch.float64 else 9
    total = torch.full_like(s, 1 / factorial(2 * terms + k))
    for m in range(terms - 1, -1, -1):
        total = 1 / factorial(2 * m + k) - s * total
    return total


def arctangent_ratio(x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    r"""Sums $\arctan(\sqrt x) / \sqrt x = \sum_m (-x)^m / (2m + 1)$, for $0 \le x \le 0.04$.

    Args:
        x: The square $x$ of the tangent.

    Examples:
        >>> arctangent_ratio(torch.zeros(()))
        tensor(1.)
    """
    terms = 14 if x.dtype == torch.float64 else 8
    total = torch.full_like(x, 1 / (2 * terms + 1))
    for m in range(terms - 1, -1, -1):
        total = 1 / (2 * m + 1) - x * total
    return total


def length(v: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
    """Returns the Euclidean length of the vectors in the last axis, with derivatives of 0 at $v = 0$, where none exist.

    Examples:
        >>> length(torch.tensor([3.0, 4.0]))
        tensor(5.)
    """
    s = v.square().sum(-1)
    there = s > 0
    return torch.where(there, torch.where(there, s, 1.0).sqrt(), s)


def within(v: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    """Brings vectors below a length of 3, so that the rotations that they stand for are less than half a turn.

    Examples:
        >>> within(torch.tensor([0.0, 0.75, 1.0]))
        tensor([0.0000, 1.4056, 1.8741])
    """
    return 3 * v / (1 + v.square().sum(-1, keepdim=True)).sqrt()


def _series_claims() -> Iterator[Claim]:
    """The laws that the series obey."""
    squares = transformed(torch.square, "n")

    def waves(s: Tensor) -> Tensor:
        return torch.stack([s.sqrt().cos(), torch.sinc(s.sqrt() / torch.pi)])

    def arctangent(x: Tensor) -> Tensor:
        return torch.where(x > 0, x.sqrt().atan() / torch.where(x > 0, x, 1.0).sqrt(), 1.0)

    yield Claim(agreement(other=waves), lambda s: torch.stack(stumpff(s, last=1)), squares, name="c_0, c_1")
    for k in range(4):

        def slope(s: Tensor, k: int = k) -> Tensor:
            c = stumpff(s, last=k + 2)
            return (k * c[k + 2] - c[k + 1]) / 2

        function = partial(lambda s, k: stumpff(s, last=k + 1)[k], k=k)
        yield Claim(derivative(formula=slope), function, squares, name=f"c_{k}")
    tangents = transformed(lambda x: 0.04 * torch.sigmoid(x), "n")
    yield Claim(agreement(other=arctangent), arctangent_ratio, tangents)


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


def _conversions_claims() -> Iterator[Claim]:
    """The laws that the conversions obey."""
    quaternion, vector = shape("b 4"), transformed(within, "b 3")
    rotation = transformed(lambda v: axis_angle_to_matrix(within(v)), "b 3")
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

    unit = transformed(lambda v: axis_angle_to_quaternion(within(v)), "b 3")
    lengths = agreement(other=lambda q: quaternion_to_axis_angle(q).repeat(2, 1))
    yield Claim(lengths, far_from_one, unit, name="quaternion_to_axis_angle of any length")


def turn_mean(a: Float[Tensor, "*batch n n"], *, square: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch n n"]:
    r"""Averages the exponential along the way from 0 to a generator $A$ with $A^3 = -s A$.

    $$\int_0^1 e^{\tau A} d\tau = 1 + c_2(s) A + c_3(s) A^2$$

    Of the cross product with $v$ it is the left Jacobian of SO(3), and what turns velocities into translations.

    Args:
        a: The generator $A$.
        square: $s$, the square of the angle.

    Examples:
        >>> turn_mean(torch.zeros(2, 2), square=torch.zeros(()))
        tensor([[1., 0.],
                [0., 1.]])
    """
    c2, c3 = (c[..., None, None] for c in stumpff(square, last=3)[2:])
    return _one(a) + c2 * a + c3 * (a @ a)


def turn_mean_inverse(
    a: Float[Tensor, "*batch n n"], *, square: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch n n"]:
    r"""Inverts `turn_mean`, without solving.

    $$\Bigl( \int_0^1 e^{\tau A} d\tau \Bigr)^{-1} = 1 - \frac A2
    + \frac1s \Bigl( 1 - \frac\theta2 \cot\frac\theta2 \Bigr) A^2, \qquad \theta^2 = s$$

    The last factor is $(c_2 - c_3) / 4 c_1$ at $s / 4$, which is smooth at 0. At full turns, $\theta = 2\pi$, there is
    no inverse.

    Args:
        a: The generator $A$.
        square: $s$, the square of the angle.

    Examples:
        >>> turn_mean_inverse(torch.zeros(2, 2), square=torch.zeros(()))
        tensor([[1., 0.],
                [0., 1.]])
    """
    _, c1, c2, c3 = stumpff(square / 4, last=3)
    return _one(a) - a / 2 + ((c2 - c3) / (4 * c1))[..., None, None] * (a @ a)


def _one(a: Tensor) -> Tensor:
    return torch.eye(sized(a, a.shape[-1], a.shape[-1]).shape[-1], dtype=a.dtype, device=a.device)


def _turns_claims() -> Iterator[Claim]:
    """The laws that the averages obey."""

    def mean(v: Tensor) -> Tensor:
        return turn_mean(skew(v), square=v.square().sum(-1))

    def inverse(v: Tensor) -> Tensor:
        return turn_mean_inverse(skew(v), square=v.square().sum(-1))

    def identity(v: Tensor) -> Tensor:
        return _one(skew(v)).expand(*v.shape, 3)

    near = transformed(within, "b 3")
    yield Claim(agreement(other=lambda v: matrices.exp_mean(skew(v))), mean, near, name="turn_mean")
    yield Claim(agreement(other=identity), lambda v: mean(v) @ inverse(v), near, name="turn_mean_inverse")
    yield Claim(second_order_gradient(), inverse, near, name="turn_mean_inverse")


class SO3(LieGroup):
    r"""Turns vectors of space: $\mathrm{SO}(3) = \{ R \in \mathbb{R}^{3 \times 3} : R^\top R = 1, \det R = 1 \}$.

    The algebra is the rotation vectors $v$, along the axis and as long as the angle, with $\hat v x = v \times x$.

    `exp` and `log` undo each other to a few units in the last place at every angle from 0 to $\pi$, and their
    derivatives are right: those of `exp` everywhere, of any order; those of `log` below $\pi$. At $\pi$, where
    $v$ and $-v$ are the same rotation, `log` returns that whose first component other than 0 is positive, and its
    derivative is that of this branch. Off the group, `log` extends as `matrix_to_quaternion` does; along it, the
    derivative in the direction of $R \exp(t w)$ is `right_jacobian_inverse(v)` times $w$.

    Examples:
        >>> quarter = SO3().exp(torch.tensor([0.0, 0.0, torch.pi / 2]))
        >>> SO3().act(quarter, torch.tensor([1.0, 0.0, 0.0])).round(decimals=3) + 0.0
        tensor([0., 1., 0.])
    """

    @property
    def dim(self) -> int:
        """3, a coordinate for each axis."""
        return 3

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Float[Tensor, "*batch 3 3"]:
        """Returns the unit matrix, a batch of copies of it if sizes are given."""
        return torch.eye(3, dtype=dtype, device=device).repeat(*batch, 1, 1)

    def compose(self, g: Float[Tensor, "*#batch 3 3"], h: Float[Tensor, "*#batch 3 3"]) -> Float[Tensor, "*batch 3 3"]:
        """Returns $gh$: first $h$, then $g$."""
        return sized(g, 3, 3) @ sized(h, 3, 3)

    def inverse(self, g: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $g^{-1} = g^\top$."""
        return sized(g, 3, 3).mT

    def act(self, g: Float[Tensor, "*#batch 3 3"], x: Float[Tensor, "*#batch 3"]) -> Float[Tensor, "*batch 3"]:
        """Turns the vectors in the last axis of $x$."""
        return (sized(g, 3, 3) @ sized(x, 3)[..., None])[..., 0]

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Float[Tensor, "*batch 3 3"]:
        """Draws uniformly (Haar): the rotations of normally distributed quaternions."""
        return quaternion_to_matrix(torch.randn(*batch, 4, generator=generator, dtype=dtype, device=device))

    def distance(self, g: Float[Tensor, "*#batch 3 3"], h: Float[Tensor, "*#batch 3 3"]) -> Float[Tensor, "*batch"]:
        r"""Returns the angle between two rotations, 0 to $\pi$; composing from either side does not change it.

        Its derivative is 0 at equal rotations, where there is none.
        """
        between = self.compose(self.inverse(g), h)
        cosine = (between.diagonal(dim1=-2, dim2=-1).sum(-1) - 1) / 2
        return torch.atan2(length(self.vee(between)), cosine)

    def hat(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Writes $v$ as the matrix of $x \mapsto v \times x$."""
        return skew(v)

    def vee(self, a: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3"]:
        """Reads $v$ off the skew-symmetric part of a matrix."""
        b = sized(a, 3, 3) - a.mT
        return torch.stack([b[..., 2, 1], b[..., 0, 2], b[..., 1, 0]], dim=-1) / 2

    def exp(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Turns about $v$ by the angle $\lVert v \rVert$: $e^{\hat v}$."""
        return axis_angle_to_matrix(v)

    def log(self, g: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3"]:
        r"""Returns the rotation vector, $\lVert v \rVert \le \pi$."""
        return matrix_to_axis_angle(g)

    def adjoint(self, g: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $g$ itself, as $g \hat v g^\top = \widehat{g v}$."""
        return sized(g, 3, 3)

    def left_jacobian(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $J$ with $\exp(v + \delta) \approx \exp(J \delta) \exp(v)$."""
        return turn_mean(skew(v), square=v.square().sum(-1))

    def left_jacobian_inverse(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $J^{-1}$ with $\log(\exp(\delta) \exp(v)) \approx v + J^{-1} \delta$."""
        return turn_mean_inverse(skew(v), square=v.square().sum(-1))


def _so3_claims() -> Iterator[Claim]:
    """The laws that SO(3) obeys."""
    group = SO3()
    element, vector, near = transformed(group.exp, "b 3"), shape("b 3"), transformed(within, "b 3")
    yield from axioms(group, element, vector)
    yield from smooth_axioms(group, near)
    yield Claim(second_order_gradient(), group.exp, vector, name="SO3.exp")
    yield from distances(group, element)
    yield Claim(
        left_invariance(compose=lambda g, h: group.compose(h, g)),
        group.distance,
        (element, element),
        name="SO3.distance",
    )

    def way(v: Tensor) -> Tensor:
        return group.distance(group.exp(v), group.identity().to(v))

    yield Claim(agreement(other=length), way, near, name="SO3.distance")
    yield Claim(orthonormality(), group.exp, vector, name="SO3.exp")
    yield Claim(rigidity(), group.act, (element, vector), name="SO3.act")


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
    from lawful.groups.quaternions import quaternion_product

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


def _euler_claims() -> Iterator[Claim]:
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
        yield Claim(
            invertibility(inverse=back), there, transformed(often_locked, "b 3"), name=f"matrix_to_euler({order})"
        )


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _series_claims()
    yield from _conversions_claims()
    yield from _turns_claims()
    yield from _so3_claims()
    yield from _euler_claims()
