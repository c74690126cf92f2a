"""Unit quaternions, real part first: the rotations of space, each of them twice."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from lawful.groups import matrices
from lawful.groups.distances import distances
from lawful.groups.group import LieGroup, axioms, sized
from lawful.groups.rotations.conversions import (
    axis_angle_to_quaternion,
    canonical,
    quaternion_to_axis_angle,
    quaternion_to_matrix,
    skew,
)
from lawful.groups.rotations.series import length, within
from lawful.groups.rotations.turns import turn_mean, turn_mean_inverse
from lawful.laws import (
    Claim,
    agreement,
    associativity,
    homomorphism,
    invertibility,
    made,
    second_order_gradient,
    shape,
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


def claims() -> Iterator[Claim]:
    """The laws that unit quaternions obey."""
    group = UnitQuaternions()
    element, vector, near = made(group.exp, "b 3"), shape("b 3"), made(lambda v: 2 * within(v), "b 3")
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
