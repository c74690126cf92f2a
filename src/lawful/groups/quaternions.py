"""Unit quaternions, real part first: the rotations of space, each of them twice.

SU(2): unit quaternions written as complex matrices.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Complex, Float
from torch import Generator, Tensor

from lawful.groups import group as matrices
from lawful.groups.group import LieGroup, axioms, distances, sized, smooth_axioms
from lawful.groups.so3 import (
    axis_angle_to_quaternion,
    canonical,
    length,
    quaternion_to_axis_angle,
    quaternion_to_matrix,
    skew,
    turn_mean,
    turn_mean_inverse,
    within,
)
from lawful.laws import (
    Claim,
    agreement,
    associativity,
    homomorphism,
    invertibility,
    linearity,
    second_order_gradient,
    shape,
    transformed,
)


def quaternion_product(p: Float[Tensor, "*#batch 4"], q: Float[Tensor, "*#batch 4"]) -> Float[Tensor, "*batch 4"]:
    r"""Multiplies quaternions, real part first.

    $$(a, u)(b, v) = (ab - u \cdot v,\; a v + b u + u \times v), \qquad i^2 = j^2 = k^2 = ijk = -1$$

    Args:
        p: The quaternion $(a, u)$.
        q: The quaternion $(b, v)$.

    Examples:
        >>> quaternion_product(torch.tensor([0.0, 1.0, 0.0, 0.0]), torch.tensor([0.0, 0.0, 1.0, 0.0]))
        tensor([0., 0., 0., 1.])
    """
    a, b, c, d = sized(p, 4).unbind(-1)
    e, f, g, h = sized(q, 4).unbind(-1)
    parts = [
        a * e - b * f - c * g - d * h,
        a * f + b * e + c * h - d * g,
        a * g - b * h + c * e + d * f,
        a * h + b * g - c * f + d * e,
    ]
    return torch.stack(parts, dim=-1)


class UnitQuaternions(LieGroup):
    r"""Multiplies quaternions of length 1, and turns vectors by $x \mapsto q x q^{-1}$.

    The algebra is the rotation vectors of SO(3): `exp` takes half the angle, $\exp(v) = e^{v / 2}$, so that the
    rotation of $\exp(v)$ is that of `SO3().exp(v)`. As $q$ and $-q$ turn alike but are two elements, `log` returns the
    $v$, $\lVert v \rVert \le 2\pi$, that leads to $q$ itself: along $x$ for $q = -1$, which all directions lead to.
    Where only the rotation matters, `quaternion_to_axis_angle` gives the shorter one, and `canonical` the sign.

    Examples:
        >>> group = UnitQuaternions()
        >>> half = group.exp(torch.tensor([0.0, 0.0, torch.pi]))
        >>> group.compose(half, half).round(decimals=3) + 0.0
        tensor([-1., 0., 0., 0.])
    """

    @property
    def dim(self) -> int:
        """3, as of SO(3)."""
        return 3

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Float[Tensor, "*batch 4"]:
        """Returns $1$, a batch of copies of it if sizes are given."""
        return torch.eye(4, dtype=dtype, device=device)[0].repeat(*batch, 1)

    def compose(self, g: Float[Tensor, "*#batch 4"], h: Float[Tensor, "*#batch 4"]) -> Float[Tensor, "*batch 4"]:
        """Returns $gh$: first $h$, then $g$."""
        return quaternion_product(g, h)

    def inverse(self, g: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 4"]:
        """Returns the conjugate."""
        return torch.cat([sized(g, 4)[..., :1], -g[..., 1:]], dim=-1)

    def act(self, g: Float[Tensor, "*#batch 4"], x: Float[Tensor, "*#batch 3"]) -> Float[Tensor, "*batch 3"]:
        r"""Turns the vectors in the last axis of $x$: $g x g^{-1} = x + 2 u \times (u \times x + w x)$."""
        w, u, x = torch.broadcast_tensors(sized(g, 4)[..., :1], g[..., 1:], sized(x, 3))
        return x + 2 * torch.linalg.cross(u, torch.linalg.cross(u, x) + w * x)

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Float[Tensor, "*batch 4"]:
        """Draws uniformly (Haar): the directions of normally distributed quaternions."""
        normal = torch.randn(*batch, 4, generator=generator, dtype=dtype, device=device)
        return normal / torch.linalg.vector_norm(normal, dim=-1, keepdim=True)

    def distance(self, g: Float[Tensor, "*#batch 4"], h: Float[Tensor, "*#batch 4"]) -> Float[Tensor, "*batch"]:
        r"""Returns twice the arc between them on the sphere, 0 to $2\pi$: the angle that leads from one to the other.

        Composing from either side does not change it.
        """
        return 4 * torch.atan2(length(g - h), length(g + h))

    def hat(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 4"]:
        """Writes $v$ as the quaternion $v / 2$ without real part."""
        return torch.cat([torch.zeros_like(sized(v, 3)[..., :1]), v / 2], dim=-1)

    def vee(self, a: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 3"]:
        """Reads $v$ off a quaternion: twice what is not its real part."""
        return 2 * sized(a, 4)[..., 1:]

    def exp(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 4"]:
        r"""Turns about $v$ by the angle $\lVert v \rVert$: $e^{v / 2}$."""
        return axis_angle_to_quaternion(v)

    def log(self, g: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 3"]:
        r"""Returns the rotation vector that leads to $g$, $\lVert v \rVert \le 2\pi$."""
        v = quaternion_to_axis_angle(g)
        angle = length(v)[..., None]
        first = torch.eye(3, dtype=v.dtype, device=v.device)[0]
        axis = torch.where(angle > 0, v / torch.where(angle > 0, angle, 1.0), -first)
        opposite = (canonical(g) * g).sum(-1, keepdim=True) < 0
        return torch.where(opposite, v - 2 * torch.pi * axis, v)

    def adjoint(self, g: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 3 3"]:
        """Returns the rotation matrix."""
        return quaternion_to_matrix(g)

    def left_jacobian(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $J$ with $\exp(v + \delta) \approx \exp(J \delta) \exp(v)$, as of SO(3)."""
        return turn_mean(skew(v), square=v.square().sum(-1))

    def left_jacobian_inverse(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $J^{-1}$ with $\log(\exp(\delta) \exp(v)) \approx v + J^{-1} \delta$, as of SO(3)."""
        return turn_mean_inverse(skew(v), square=v.square().sum(-1))


def _quaternions_claims() -> Iterator[Claim]:
    """The laws that unit quaternions obey."""
    group = UnitQuaternions()
    element, vector, near = transformed(group.exp, "b 3"), shape("b 3"), transformed(lambda v: 2 * within(v), "b 3")
    yield from axioms(group, element, vector)
    yield from distances(group, element)

    def modulus(q: Tensor) -> Tensor:
        return q.square().sum(-1)

    def conjugation(g: Tensor, x: Tensor) -> Tensor:
        turned = group.compose(group.compose(g, group.hat(x)), group.inverse(g))
        return group.vee(turned)

    def way(v: Tensor) -> Tensor:
        return group.distance(group.exp(v), group.identity().to(v))

    yield Claim(agreement(other=length), way, near, name="UnitQuaternions.distance")
    yield Claim(associativity(), quaternion_product, (shape("b 4"), shape("b 4")))
    yield Claim(homomorphism(operation=quaternion_product, into=torch.mul), modulus, shape("b 4"), name="|q|²")
    yield Claim(homomorphism(operation=quaternion_product, into=torch.matmul), quaternion_to_matrix, element)
    yield Claim(agreement(other=conjugation), group.act, (element, vector), name="UnitQuaternions.act")
    yield Claim(invertibility(inverse=group.log), group.exp, near, name="UnitQuaternions.exp")

    def product_with(g: Tensor) -> Tensor:
        """The adjoint, a column for each direction of the algebra."""
        basis = group.hat(torch.eye(3, dtype=g.dtype, device=g.device))
        g = g[..., None, :]
        return group.vee(quaternion_product(quaternion_product(g, basis), group.inverse(g))).mT

    def mean(v: Tensor) -> Tensor:
        return matrices.exp_mean(skew(v))

    def there_and_back(v: Tensor) -> Tensor:
        return (group.left_jacobian_inverse(v) @ mean(v) @ v[..., None])[..., 0]

    yield Claim(agreement(other=product_with), group.adjoint, element, name="UnitQuaternions.adjoint")
    yield Claim(agreement(other=mean), group.left_jacobian, near, name="UnitQuaternions.left_jacobian")
    yield Claim(agreement(other=torch.clone), there_and_back, near, name="UnitQuaternions.left_jacobian_inverse")
    yield Claim(second_order_gradient(), group.exp, vector, name="UnitQuaternions.exp")


UNIT = UnitQuaternions()


def quaternion_to_complex_matrix(q: Float[Tensor, "*batch 4"]) -> Complex[Tensor, "*batch 2 2"]:
    r"""Writes quaternions as complex matrices, which add and multiply as they do.

    $$a + b\mathbf{i} + c\mathbf{j} + d\mathbf{k} \;\mapsto\;
    \begin{bmatrix} a + id & -b - ic \\ b - ic & a - id \end{bmatrix}, \qquad
    \mathbf{i} = \begin{bmatrix} 0 & -1 \\ 1 & 0 \end{bmatrix}, \;
    \mathbf{j} = \begin{bmatrix} 0 & -i \\ -i & 0 \end{bmatrix}, \;
    \mathbf{k} = \begin{bmatrix} i & 0 \\ 0 & -i \end{bmatrix}$$

    The determinant is $a^2 + b^2 + c^2 + d^2$.

    Args:
        q: The quaternion $(a, b, c, d)$.

    Examples:
        >>> quaternion_to_complex_matrix(torch.tensor([0.0, 0.0, 0.0, 1.0])) + 0.0
        tensor([[0.+1.j, 0.+0.j],
                [0.+0.j, 0.-1.j]])
    """
    a, b, c, d = sized(q, 4).unbind(-1)
    real, imaginary = torch.stack([a, -b, b, a], dim=-1), torch.stack([d, -c, -c, -d], dim=-1)
    return torch.complex(real, imaginary).unflatten(-1, (2, 2))


def complex_matrix_to_quaternion(m: Complex[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch 4"]:
    """Reads the quaternion off such a matrix: the inverse of `quaternion_to_complex_matrix`.

    Args:
        m: The matrix; of others the nearest one of that form is taken.

    Examples:
        >>> complex_matrix_to_quaternion(torch.eye(2, dtype=torch.complex64)) + 0.0
        tensor([1., 0., 0., 0.])
    """
    w, x, y, z = sized(m, 2, 2).flatten(-2).unbind(-1)
    return torch.stack([(w + z).real, (y - x).real, -(x + y).imag, (w - z).imag], dim=-1) / 2


class SU2(LieGroup):
    r"""Turns complex vectors of two entries: $\mathrm{SU}(2) = \{ U : U^* U = 1, \det U = 1 \}$.

    The matrices of `quaternion_to_complex_matrix`, with the algebra of `UnitQuaternions`: rotation vectors, with
    $\hat v = \tfrac12 (v_1 \mathbf{i} + v_2 \mathbf{j} + v_3 \mathbf{k})$. So $\exp(v)$ turns space as `SO3().exp(v)`
    does, and `log`, `distance` and the Jacobians are those of the quaternion.

    Examples:
        >>> SU2().exp(torch.tensor([0.0, 0.0, 2 * torch.pi])).real.round(decimals=3) + 0.0
        tensor([[-1., 0.],
                [ 0., -1.]])
    """

    @property
    def dim(self) -> int:
        """3, as of SO(3)."""
        return 3

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Complex[Tensor, "*batch 2 2"]:
        """Returns the unit matrix, a batch of copies of it if sizes are given; of a real type, as `sample`."""
        return torch.eye(2, dtype=(dtype or torch.get_default_dtype()).to_complex(), device=device).repeat(*batch, 1, 1)

    def compose(
        self, g: Complex[Tensor, "*#batch 2 2"], h: Complex[Tensor, "*#batch 2 2"]
    ) -> Complex[Tensor, "*batch 2 2"]:
        """Returns $gh$: first $h$, then $g$."""
        return sized(g, 2, 2) @ sized(h, 2, 2)

    def inverse(self, g: Complex[Tensor, "*batch 2 2"]) -> Complex[Tensor, "*batch 2 2"]:
        r"""Returns $g^{-1} = g^*$."""
        return sized(g, 2, 2).mH

    def act(self, g: Complex[Tensor, "*#batch 2 2"], x: Complex[Tensor, "*#batch 2"]) -> Complex[Tensor, "*batch 2"]:
        """Multiplies the complex vectors in the last axis of $x$."""
        return (sized(g, 2, 2) @ sized(x, 2)[..., None])[..., 0]

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Complex[Tensor, "*batch 2 2"]:
        """Draws uniformly (Haar), as unit quaternions are drawn; of a real type, complex numbers of its precision."""
        real = None if dtype is None else dtype.to_real()
        return quaternion_to_complex_matrix(UNIT.sample(*batch, generator=generator, dtype=real, device=device))

    def distance(self, g: Complex[Tensor, "*#batch 2 2"], h: Complex[Tensor, "*#batch 2 2"]) -> Float[Tensor, "*batch"]:
        r"""Returns the angle of the rotation from one to the other, 0 to $2\pi$."""
        return UNIT.distance(complex_matrix_to_quaternion(g), complex_matrix_to_quaternion(h))

    def hat(self, v: Float[Tensor, "*batch 3"]) -> Complex[Tensor, "*batch 2 2"]:
        r"""Writes $v$ as $\tfrac12 (v_1 \mathbf{i} + v_2 \mathbf{j} + v_3 \mathbf{k})$."""
        return quaternion_to_complex_matrix(UNIT.hat(v))

    def vee(self, a: Complex[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch 3"]:
        """Reads $v$ off a matrix of the algebra."""
        return UNIT.vee(complex_matrix_to_quaternion(a))

    def exp(self, v: Float[Tensor, "*batch 3"]) -> Complex[Tensor, "*batch 2 2"]:
        r"""Follows the direction $v$: $e^{\hat v}$."""
        return quaternion_to_complex_matrix(UNIT.exp(v))

    def log(self, g: Complex[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch 3"]:
        r"""Returns the rotation vector that leads to $g$, $\lVert v \rVert \le 2\pi$."""
        return UNIT.log(complex_matrix_to_quaternion(g))

    def adjoint(self, g: Complex[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns the rotation matrix of $v \mapsto (g \hat v g^{-1})^\vee$."""
        return UNIT.adjoint(complex_matrix_to_quaternion(g))

    def left_jacobian(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $J$ with $\exp(v + \delta) \approx \exp(J \delta) \exp(v)$, as of SO(3)."""
        return UNIT.left_jacobian(v)

    def left_jacobian_inverse(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $J^{-1}$ with $\log(\exp(\delta) \exp(v)) \approx v + J^{-1} \delta$, as of SO(3)."""
        return UNIT.left_jacobian_inverse(v)


def _su2_claims() -> Iterator[Claim]:
    """The laws that SU(2) obeys, and quaternions as complex matrices."""
    group = SU2()

    def squared_length(q: Tensor) -> Tensor:
        return q.square().sum(-1).to(q.dtype.to_complex())

    def determinant(q: Tensor) -> Tensor:
        m = quaternion_to_complex_matrix(q)
        return m[..., 0, 0] * m[..., 1, 1] - m[..., 0, 1] * m[..., 1, 0]

    for law in (linearity(), homomorphism(operation=quaternion_product, into=torch.matmul)):
        yield Claim(law, quaternion_to_complex_matrix, shape("b 4"))
    yield Claim(agreement(other=squared_length), determinant, shape("b 4"), name="det of quaternion_to_complex_matrix")
    element, vectors = transformed(group.exp, "b 3"), transformed(torch.view_as_complex, "b 2 2")

    def written_out(g: Tensor, x: Tensor) -> Tensor:
        return g[..., 0] * x[..., :1] + g[..., 1] * x[..., 1:]

    yield Claim(agreement(other=written_out), group.act, (element, vectors), name="SU2.act")
    yield from axioms(group, element, vectors)
    yield from distances(group, element)
    yield from smooth_axioms(group, transformed(lambda v: 2 * within(v), "b 3"))


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _quaternions_claims()
    yield from _su2_claims()
