"""The double cover of SO(3): unit quaternions (real part first), and SU(2), the same group as complex matrices."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Complex, Float
from torch import Generator, Tensor

from lawful.groups._helpers import (
    check_last_axes,
    exp_claims,
    group_claims,
    rotation_left_jacobian,
    rotation_left_jacobian_inverse,
    safe_norm,
    shorten,
)
from lawful.groups.group import LieGroup
from lawful.groups.rotation_conversions import (
    axis_angle_to_quaternion,
    canonical_quaternion,
    quaternion_product,
    quaternion_to_axis_angle,
    quaternion_to_matrix,
    skew,
)
from lawful.laws import Claim, homomorphism, linearity, second_order_gradient, shape, transformed


class UnitQuaternions(LieGroup):
    r"""Unit quaternions, which rotate vectors by $x \mapsto q x q^{-1}$.

    Coordinates of the algebra are rotation vectors: $\exp(v) = e^{v / 2}$ is the same rotation as `SO3().exp(v)`. $q$
    and $-q$ are the same rotation but different elements. `log` returns the $v$, $\lVert v \rVert \le 2\pi$, with
    $\exp(v) = q$; at $q = -1$, where every direction has this property, it returns $2 \pi$ along the first axis. For
    the shortest rotation vector, use `quaternion_to_axis_angle`.

    Examples:
        >>> group = UnitQuaternions()
        >>> half = group.exp(torch.tensor([0.0, 0.0, torch.pi]))
        >>> group.compose(half, half).round(decimals=3) + 0.0
        tensor([-1., 0., 0., 0.])
    """

    @property
    def dim(self) -> int:
        """3, as for SO(3)."""
        return 3

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Float[Tensor, "*batch 4"]:
        """Returns $1$, repeated to the batch shape."""
        return torch.eye(4, dtype=dtype, device=device)[0].repeat(*batch, 1)

    def compose(self, g: Float[Tensor, "*#batch 4"], h: Float[Tensor, "*#batch 4"]) -> Float[Tensor, "*batch 4"]:
        """Returns $gh$: $h$ acts first, then $g$."""
        return quaternion_product(g, h)

    def inverse(self, g: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 4"]:
        """Returns the conjugate."""
        return torch.cat([check_last_axes(g, 4)[..., :1], -g[..., 1:]], dim=-1)

    def act(self, g: Float[Tensor, "*#batch 4"], x: Float[Tensor, "*#batch 3"]) -> Float[Tensor, "*batch 3"]:
        r"""Rotates the vectors in the last axis of $x$: $g x g^{-1} = x + 2 u \times (u \times x + w x)$."""
        w, u, x = torch.broadcast_tensors(check_last_axes(g, 4)[..., :1], g[..., 1:], check_last_axes(x, 3))
        return x + 2 * torch.linalg.cross(u, torch.linalg.cross(u, x) + w * x)

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Float[Tensor, "*batch 4"]:
        """Samples uniformly (Haar measure): normalized normal vectors."""
        normal = torch.randn(*batch, 4, generator=generator, dtype=dtype, device=device)
        return normal / torch.linalg.vector_norm(normal, dim=-1, keepdim=True)

    def distance(self, g: Float[Tensor, "*#batch 4"], h: Float[Tensor, "*#batch 4"]) -> Float[Tensor, "*batch"]:
        r"""Returns the angle of the rotation from $g$ to $h$, in $[0, 2\pi]$: twice the arc on the sphere.

        The metric is bi-invariant.
        """
        return 4 * torch.atan2(safe_norm(g - h), safe_norm(g + h))

    def hat(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 4"]:
        """Returns the quaternion $(0, v / 2)$."""
        return torch.cat([torch.zeros_like(check_last_axes(v, 3)[..., :1]), v / 2], dim=-1)

    def vee(self, a: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 3"]:
        """Returns twice the imaginary part."""
        return 2 * check_last_axes(a, 4)[..., 1:]

    def exp(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 4"]:
        r"""Returns the rotation about $v$ by the angle $\lVert v \rVert$: $e^{v / 2}$."""
        return axis_angle_to_quaternion(v)

    def log(self, g: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 3"]:
        r"""Returns the rotation vector $v$ with $\exp(v) = g$, $\lVert v \rVert \le 2\pi$."""
        v = quaternion_to_axis_angle(g)
        angle = safe_norm(v)[..., None]
        first = torch.eye(3, dtype=v.dtype, device=v.device)[0]
        axis = torch.where(angle > 0, v / torch.where(angle > 0, angle, 1.0), -first)
        opposite = (canonical_quaternion(g) * g).sum(-1, keepdim=True) < 0
        return torch.where(opposite, v - 2 * torch.pi * axis, v)

    def adjoint(self, g: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 3 3"]:
        """Returns the rotation matrix."""
        return quaternion_to_matrix(g)

    def left_jacobian(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $J$ with $\exp(v + \delta) \approx \exp(J \delta) \exp(v)$, as for SO(3)."""
        return rotation_left_jacobian(skew(v), angle_squared=v.square().sum(-1))

    def left_jacobian_inverse(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $J^{-1}$ with $\log(\exp(\delta) \exp(v)) \approx v + J^{-1} \delta$, as for SO(3)."""
        return rotation_left_jacobian_inverse(skew(v), angle_squared=v.square().sum(-1))


_QUATERNIONS = UnitQuaternions()


def quaternion_to_complex_matrix(q: Float[Tensor, "*batch 4"]) -> Complex[Tensor, "*batch 2 2"]:
    r"""Converts quaternions to complex 2 x 2 matrices, which add and multiply in the same way.

    $$a + b\mathbf{i} + c\mathbf{j} + d\mathbf{k} \;\mapsto\;
    \begin{bmatrix} a + id & -b - ic \\ b - ic & a - id \end{bmatrix}, \qquad
    \mathbf{i} = \begin{bmatrix} 0 & -1 \\ 1 & 0 \end{bmatrix}, \;
    \mathbf{j} = \begin{bmatrix} 0 & -i \\ -i & 0 \end{bmatrix}, \;
    \mathbf{k} = \begin{bmatrix} i & 0 \\ 0 & -i \end{bmatrix}$$

    The determinant is $a^2 + b^2 + c^2 + d^2$.

    Args:
        q: Quaternion $(a, b, c, d)$.

    Examples:
        >>> quaternion_to_complex_matrix(torch.tensor([0.0, 0.0, 0.0, 1.0])) + 0.0
        tensor([[0.+1.j, 0.+0.j],
                [0.+0.j, 0.-1.j]])
    """
    a, b, c, d = check_last_axes(q, 4).unbind(-1)
    real, imaginary = torch.stack([a, -b, b, a], dim=-1), torch.stack([d, -c, -c, -d], dim=-1)
    return torch.complex(real, imaginary).unflatten(-1, (2, 2))


def complex_matrix_to_quaternion(m: Complex[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch 4"]:
    """Converts complex 2 x 2 matrices to quaternions. Inverse of `quaternion_to_complex_matrix`.

    Args:
        m: Matrix. It is projected to the nearest one that represents a quaternion.

    Examples:
        >>> complex_matrix_to_quaternion(torch.eye(2, dtype=torch.complex64)) + 0.0
        tensor([1., 0., 0., 0.])
    """
    w, x, y, z = check_last_axes(m, 2, 2).flatten(-2).unbind(-1)
    return torch.stack([(w + z).real, (y - x).real, -(x + y).imag, (w - z).imag], dim=-1) / 2


class SU2(LieGroup):
    r"""The special unitary group: $\mathrm{SU}(2) = \{ U \in \mathbb{C}^{2 \times 2} : U^* U = 1, \det U = 1 \}$.

    It is isomorphic to `UnitQuaternions` by `quaternion_to_complex_matrix`, with the same algebra of rotation vectors:
    $\hat v = \tfrac12 (v_1 \mathbf{i} + v_2 \mathbf{j} + v_3 \mathbf{k})$.

    Examples:
        >>> SU2().exp(torch.tensor([0.0, 0.0, 2 * torch.pi])).real.round(decimals=3) + 0.0
        tensor([[-1., 0.],
                [ 0., -1.]])
    """

    @property
    def dim(self) -> int:
        """3, as for SO(3)."""
        return 3

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Complex[Tensor, "*batch 2 2"]:
        """Returns the identity matrix, repeated to the batch shape. A real `dtype` selects the complex one."""
        return torch.eye(2, dtype=(dtype or torch.get_default_dtype()).to_complex(), device=device).repeat(*batch, 1, 1)

    def compose(
        self, g: Complex[Tensor, "*#batch 2 2"], h: Complex[Tensor, "*#batch 2 2"]
    ) -> Complex[Tensor, "*batch 2 2"]:
        """Returns $gh$: $h$ acts first, then $g$."""
        return check_last_axes(g, 2, 2) @ check_last_axes(h, 2, 2)

    def inverse(self, g: Complex[Tensor, "*batch 2 2"]) -> Complex[Tensor, "*batch 2 2"]:
        r"""Returns $g^{-1} = g^*$."""
        return check_last_axes(g, 2, 2).mH

    def act(self, g: Complex[Tensor, "*#batch 2 2"], x: Complex[Tensor, "*#batch 2"]) -> Complex[Tensor, "*batch 2"]:
        """Multiplies the complex vectors in the last axis of $x$ by $g$."""
        return (check_last_axes(g, 2, 2) @ check_last_axes(x, 2)[..., None])[..., 0]

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Complex[Tensor, "*batch 2 2"]:
        """Samples uniformly (Haar measure). A real `dtype` selects the complex one of the same precision."""
        real = None if dtype is None else dtype.to_real()
        return quaternion_to_complex_matrix(_QUATERNIONS.sample(*batch, generator=generator, dtype=real, device=device))

    def distance(self, g: Complex[Tensor, "*#batch 2 2"], h: Complex[Tensor, "*#batch 2 2"]) -> Float[Tensor, "*batch"]:
        r"""Returns the angle of the rotation from $g$ to $h$, in $[0, 2\pi]$."""
        return _QUATERNIONS.distance(complex_matrix_to_quaternion(g), complex_matrix_to_quaternion(h))

    def hat(self, v: Float[Tensor, "*batch 3"]) -> Complex[Tensor, "*batch 2 2"]:
        r"""Returns $\tfrac12 (v_1 \mathbf{i} + v_2 \mathbf{j} + v_3 \mathbf{k})$."""
        return quaternion_to_complex_matrix(_QUATERNIONS.hat(v))

    def vee(self, a: Complex[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch 3"]:
        """Returns the coordinates of a matrix of the algebra."""
        return _QUATERNIONS.vee(complex_matrix_to_quaternion(a))

    def exp(self, v: Float[Tensor, "*batch 3"]) -> Complex[Tensor, "*batch 2 2"]:
        r"""Returns $e^{\hat v}$."""
        return quaternion_to_complex_matrix(_QUATERNIONS.exp(v))

    def log(self, g: Complex[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch 3"]:
        r"""Returns the rotation vector $v$ with $\exp(v) = g$, $\lVert v \rVert \le 2\pi$."""
        return _QUATERNIONS.log(complex_matrix_to_quaternion(g))

    def adjoint(self, g: Complex[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns the rotation matrix of $v \mapsto (g \hat v g^{-1})^\vee$."""
        return _QUATERNIONS.adjoint(complex_matrix_to_quaternion(g))

    def left_jacobian(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $J$ with $\exp(v + \delta) \approx \exp(J \delta) \exp(v)$, as for SO(3)."""
        return _QUATERNIONS.left_jacobian(v)

    def left_jacobian_inverse(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $J^{-1}$ with $\log(\exp(\delta) \exp(v)) \approx v + J^{-1} \delta$, as for SO(3)."""
        return _QUATERNIONS.left_jacobian_inverse(v)


def claims() -> Iterator[Claim]:
    """Laws of unit quaternions, SU(2), and quaternions as complex matrices."""
    quaternions, unitary = UnitQuaternions(), SU2()
    for group, vector in ((quaternions, shape("b 3")), (unitary, transformed(torch.view_as_complex, "b 2 2"))):
        yield from group_claims(group, transformed(group.exp, "b 3"), vector)
        yield from exp_claims(group, transformed(lambda v: 2 * shorten(v), "b 3"))
    yield Claim(second_order_gradient(), quaternions.exp, shape("b 3"), name="UnitQuaternions.exp")
    for law in (linearity(), homomorphism(operation=quaternion_product, into=torch.matmul)):
        yield Claim(law, quaternion_to_complex_matrix, shape("b 4"))
