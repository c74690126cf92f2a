r"""SE(2) and SE(3): rigid motions as homogeneous matrices $\begin{bmatrix} R & t \\ 0 & 1 \end{bmatrix}$."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from lawful.groups._helpers import (
    check_last_axes,
    exp_claims,
    group_claims,
    rotation_left_jacobian,
    rotation_left_jacobian_inverse,
    safe_norm,
    shorten,
    stumpff,
)
from lawful.groups.group import LieGroup
from lawful.groups.rotation_conversions import skew
from lawful.groups.so2 import SO2
from lawful.groups.so3 import SO3
from lawful.laws import Claim, homomorphism, isometric_action, second_order_gradient, shape, transformed


def homogeneous_matrix(r: Float[Tensor, "*#batch d d"], t: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch e e"]:
    r"""Returns the matrix of $x \mapsto R x + t$ in homogeneous coordinates $(x, 1)$.

    Args:
        r: Rotation $R$.
        t: Translation $t$.

    Examples:
        >>> homogeneous_matrix(torch.eye(2), torch.tensor([3.0, 4.0]))
        tensor([[1., 0., 3.],
                [0., 1., 4.],
                [0., 0., 1.]])
    """
    d = t.shape[-1]
    r, t = torch.broadcast_tensors(check_last_axes(r, d, d), t[..., None])
    top = torch.cat([r, t[..., :1]], dim=-1)
    bottom = torch.eye(d + 1, dtype=t.dtype, device=t.device)[-1:].expand(*t.shape[:-2], 1, d + 1)
    return torch.cat([top, bottom], dim=-2)


def rotation_and_translation(
    g: Float[Tensor, "*batch e e"],
) -> tuple[Float[Tensor, "*batch d d"], Float[Tensor, "*batch d"]]:
    """Splits a homogeneous matrix into rotation and translation. Inverse of `homogeneous_matrix`.

    Args:
        g: Homogeneous matrix.
    """
    check_last_axes(g, g.shape[-1], g.shape[-1])
    return g[..., :-1, :-1], g[..., :-1, -1]


def rigid_inverse(g: Float[Tensor, "*batch e e"]) -> Float[Tensor, "*batch e e"]:
    r"""Returns the inverse of a rigid motion: $R^\top$, $-R^\top t$.

    Args:
        g: Homogeneous matrix.
    """
    r, t = rotation_and_translation(g)
    return homogeneous_matrix(r.mT, -(r.mT @ t[..., None])[..., 0])


def rigid_act(g: Float[Tensor, "*#batch e e"], x: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch d"]:
    """Returns $R x + t$ for the points in the last axis of $x$.

    Args:
        g: Homogeneous matrix.
        x: Points.
    """
    r, t = rotation_and_translation(g)
    return (r @ check_last_axes(x, t.shape[-1])[..., None])[..., 0] + t


_SO2 = SO2()


class SE2(LieGroup):
    r"""Rigid motions of the plane, $x \mapsto R x + t$, as matrices $\begin{bmatrix} R & t \\ 0 & 1 \end{bmatrix}$.

    Coordinates of the algebra are the velocity, then the angle: $v = (\rho_1, \rho_2, \theta)$, with $R = R_\theta$ and
    $t = V \rho$, where $V = \int_0^1 R_{\tau\theta} d\tau$. `log` returns $\theta$ in $(-\pi, \pi]$. Derivatives of
    `exp` are accurate everywhere, derivatives of `log` below $\pi$; at $\pi$ they are one-sided.

    Examples:
        >>> SE2().exp(torch.tensor([3.0, 4.0, 0.0]))
        tensor([[1., -0., 3.],
                [0.,  1., 4.],
                [0.,  0., 1.]])
    """

    @property
    def dim(self) -> int:
        """3."""
        return 3

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Float[Tensor, "*batch 3 3"]:
        """Returns the identity matrix, repeated to the batch shape."""
        return torch.eye(3, dtype=dtype, device=device).repeat(*batch, 1, 1)

    def compose(self, g: Float[Tensor, "*#batch 3 3"], h: Float[Tensor, "*#batch 3 3"]) -> Float[Tensor, "*batch 3 3"]:
        """Returns $gh$: $h$ acts first, then $g$."""
        return check_last_axes(g, 3, 3) @ check_last_axes(h, 3, 3)

    def inverse(self, g: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $g^{-1}$: $R^\top$ and $-R^\top t$."""
        return rigid_inverse(check_last_axes(g, 3, 3))

    def act(self, g: Float[Tensor, "*#batch 3 3"], x: Float[Tensor, "*#batch 2"]) -> Float[Tensor, "*batch 2"]:
        """Returns $R x + t$ for the points in the last axis of $x$."""
        return rigid_act(check_last_axes(g, 3, 3), check_last_axes(x, 2))

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Float[Tensor, "*batch 3 3"]:
        """Samples rotations uniformly (Haar measure) and translations from a standard normal distribution."""
        r = _SO2.sample(*batch, generator=generator, dtype=dtype, device=device)
        return homogeneous_matrix(r, torch.randn(*batch, 2, generator=generator, dtype=dtype, device=device))

    def distance(self, g: Float[Tensor, "*#batch 3 3"], h: Float[Tensor, "*#batch 3 3"]) -> Float[Tensor, "*batch"]:
        r"""Returns $\sqrt{\theta^2 + \lVert t_g - t_h \rVert^2}$, with the angle $\theta$ between the rotations.

        The metric is left-invariant. It is not right-invariant: the group has no bi-invariant Riemannian metric.
        """
        (r, t), (s, u) = rotation_and_translation(g), rotation_and_translation(h)
        return safe_norm(torch.cat([_SO2.distance(r, s)[..., None], t - u], dim=-1))

    def hat(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $\begin{bmatrix} \hat\theta & \rho \\ 0 & 0 \end{bmatrix}$."""
        top = torch.cat([_SO2.hat(check_last_axes(v, 3)[..., 2:]), v[..., :2, None]], dim=-1)
        return torch.cat([top, torch.zeros_like(top[..., :1, :])], dim=-2)

    def vee(self, a: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3"]:
        r"""Returns $(\rho, \theta)$ of a matrix of the algebra."""
        return torch.cat([check_last_axes(a, 3, 3)[..., :2, 2], _SO2.vee(a[..., :2, :2])], dim=-1)

    def exp(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $e^{\hat v}$."""
        rho, theta = check_last_axes(v, 3)[..., :2, None], v[..., 2:]
        jacobian = rotation_left_jacobian(_SO2.hat(theta), angle_squared=theta[..., 0].square())
        return homogeneous_matrix(_SO2.exp(theta), (jacobian @ rho)[..., 0])

    def log(self, g: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3"]:
        r"""Returns $(\rho, \theta)$ with the smallest $|\theta|$."""
        r, t = rotation_and_translation(check_last_axes(g, 3, 3))
        theta = _SO2.log(r)
        inverse = rotation_left_jacobian_inverse(_SO2.hat(theta), angle_squared=theta[..., 0].square())
        return torch.cat([(inverse @ t[..., None])[..., 0], theta], dim=-1)

    def adjoint(self, g: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $\begin{bmatrix} R & (t_2, -t_1)^\top \\ 0 & 1 \end{bmatrix}$."""
        r, t = rotation_and_translation(check_last_axes(g, 3, 3))
        return homogeneous_matrix(r, torch.stack([t[..., 1], -t[..., 0]], dim=-1))

    def left_jacobian(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $J$ with $\exp(v + \delta) \approx \exp(J \delta) \exp(v)$."""
        return rotation_left_jacobian(_se2_bracket(check_last_axes(v, 3)), angle_squared=v[..., 2].square())

    def left_jacobian_inverse(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $J^{-1}$ with $\log(\exp(\delta) \exp(v)) \approx v + J^{-1} \delta$."""
        return rotation_left_jacobian_inverse(_se2_bracket(check_last_axes(v, 3)), angle_squared=v[..., 2].square())


def _se2_bracket(v: Tensor) -> Tensor:
    r"""Returns the matrix $B$ of $w \mapsto [\hat v, \hat w]^\vee$; $B^3 = -\theta^2 B$."""
    a, b, theta = v.unbind(-1)
    o = torch.zeros_like(a)
    return torch.stack([o, -theta, b, theta, o, -a, o, o, o], dim=-1).unflatten(-1, (3, 3))


_SO3 = SO3()


class SE3(LieGroup):
    r"""Rigid motions of space, $x \mapsto R x + t$, as matrices $\begin{bmatrix} R & t \\ 0 & 1 \end{bmatrix}$.

    Coordinates of the algebra are the velocity, then the rotation vector: $v = (\rho, \phi)$, with $R = \exp(\phi)$ and
    $t = J(\phi) \rho$, where $J$ is the left Jacobian of SO(3). Accuracy and branches are the same as for `SO3`.

    Examples:
        >>> SE3().log(SE3().exp(torch.tensor([1.0, 2.0, 3.0, 0.0, 0.0, 0.0])))
        tensor([1., 2., 3., 0., 0., 0.])
    """

    @property
    def dim(self) -> int:
        """6."""
        return 6

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Float[Tensor, "*batch 4 4"]:
        """Returns the identity matrix, repeated to the batch shape."""
        return torch.eye(4, dtype=dtype, device=device).repeat(*batch, 1, 1)

    def compose(self, g: Float[Tensor, "*#batch 4 4"], h: Float[Tensor, "*#batch 4 4"]) -> Float[Tensor, "*batch 4 4"]:
        """Returns $gh$: $h$ acts first, then $g$."""
        return check_last_axes(g, 4, 4) @ check_last_axes(h, 4, 4)

    def inverse(self, g: Float[Tensor, "*batch 4 4"]) -> Float[Tensor, "*batch 4 4"]:
        r"""Returns $g^{-1}$: $R^\top$ and $-R^\top t$."""
        return rigid_inverse(check_last_axes(g, 4, 4))

    def act(self, g: Float[Tensor, "*#batch 4 4"], x: Float[Tensor, "*#batch 3"]) -> Float[Tensor, "*batch 3"]:
        """Returns $R x + t$ for the points in the last axis of $x$."""
        return rigid_act(check_last_axes(g, 4, 4), check_last_axes(x, 3))

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Float[Tensor, "*batch 4 4"]:
        """Samples rotations uniformly (Haar measure) and translations from a standard normal distribution."""
        r = _SO3.sample(*batch, generator=generator, dtype=dtype, device=device)
        return homogeneous_matrix(r, torch.randn(*batch, 3, generator=generator, dtype=dtype, device=device))

    def distance(self, g: Float[Tensor, "*#batch 4 4"], h: Float[Tensor, "*#batch 4 4"]) -> Float[Tensor, "*batch"]:
        r"""Returns $\sqrt{\theta^2 + \lVert t_g - t_h \rVert^2}$, with the angle $\theta$ between the rotations.

        The metric is left-invariant. It is not right-invariant: the group has no bi-invariant Riemannian metric.
        """
        (r, t), (s, u) = rotation_and_translation(g), rotation_and_translation(h)
        return safe_norm(torch.cat([_SO3.distance(r, s)[..., None], t - u], dim=-1))

    def hat(self, v: Float[Tensor, "*batch 6"]) -> Float[Tensor, "*batch 4 4"]:
        r"""Returns $\begin{bmatrix} \hat\phi & \rho \\ 0 & 0 \end{bmatrix}$."""
        top = torch.cat([skew(check_last_axes(v, 6)[..., 3:]), v[..., :3, None]], dim=-1)
        return torch.cat([top, torch.zeros_like(top[..., :1, :])], dim=-2)

    def vee(self, a: Float[Tensor, "*batch 4 4"]) -> Float[Tensor, "*batch 6"]:
        r"""Returns $(\rho, \phi)$ of a matrix of the algebra."""
        return torch.cat([check_last_axes(a, 4, 4)[..., :3, 3], _SO3.vee(a[..., :3, :3])], dim=-1)

    def exp(self, v: Float[Tensor, "*batch 6"]) -> Float[Tensor, "*batch 4 4"]:
        r"""Returns $e^{\hat v}$."""
        rho, phi = check_last_axes(v, 6)[..., :3, None], v[..., 3:]
        return homogeneous_matrix(_SO3.exp(phi), (_SO3.left_jacobian(phi) @ rho)[..., 0])

    def log(self, g: Float[Tensor, "*batch 4 4"]) -> Float[Tensor, "*batch 6"]:
        r"""Returns $(\rho, \phi)$ with the shortest $\phi$."""
        r, t = rotation_and_translation(check_last_axes(g, 4, 4))
        phi = _SO3.log(r)
        return torch.cat([(_SO3.left_jacobian_inverse(phi) @ t[..., None])[..., 0], phi], dim=-1)

    def adjoint(self, g: Float[Tensor, "*batch 4 4"]) -> Float[Tensor, "*batch 6 6"]:
        r"""Returns $\begin{bmatrix} R & \hat t R \\ 0 & R \end{bmatrix}$."""
        r, t = rotation_and_translation(check_last_axes(g, 4, 4))
        return _blocks(r, skew(t) @ r)

    def left_jacobian(self, v: Float[Tensor, "*batch 6"]) -> Float[Tensor, "*batch 6 6"]:
        r"""Returns $J$ with $\exp(v + \delta) \approx \exp(J \delta) \exp(v)$.

        $$J = \begin{bmatrix} J(\phi) & Q \\ 0 & J(\phi) \end{bmatrix}, \qquad Q = c_2 \hat\rho
        + c_3 (\hat\phi \hat\rho + \hat\rho \hat\phi)
        + (\phi \cdot \rho) \bigl( (2 c_4 - c_3) \hat\phi + (3 c_5 - c_4) \hat\phi^2 \bigr)$$

        $Q$ is the derivative of $J(\phi) = 1 + c_2 \hat\phi + c_3 \hat\phi^2$ in the direction $\rho$; the Stumpff
        functions $c_k$ are evaluated at $\lVert \phi \rVert^2$.
        """
        return _blocks(_SO3.left_jacobian(v[..., 3:]), _jacobian_coupling(check_last_axes(v, 6)))

    def left_jacobian_inverse(self, v: Float[Tensor, "*batch 6"]) -> Float[Tensor, "*batch 6 6"]:
        r"""Returns $J^{-1}$ with $\log(\exp(\delta) \exp(v)) \approx v + J^{-1} \delta$."""
        inverse = _SO3.left_jacobian_inverse(check_last_axes(v, 6)[..., 3:])
        return _blocks(inverse, -inverse @ _jacobian_coupling(v) @ inverse)


def _blocks(a: Tensor, b: Tensor) -> Tensor:
    r"""Returns $\begin{bmatrix} a & b \\ 0 & a \end{bmatrix}$."""
    return torch.cat([torch.cat([a, b], dim=-1), torch.cat([torch.zeros_like(a), a], dim=-1)], dim=-2)


def _jacobian_coupling(v: Tensor) -> Tensor:
    """Returns the block $Q$ of the left Jacobian of SE(3)."""
    rho, phi = v[..., :3], v[..., 3:]
    p, k = skew(rho), skew(phi)
    _, _, c2, c3, c4, c5 = (c[..., None, None] for c in stumpff(phi.square().sum(-1), max_order=5))
    along = (phi * rho).sum(-1)[..., None, None]
    return c2 * p + c3 * (p @ k + k @ p) + along * ((2 * c4 - c3) * k + (3 * c5 - c4) * (k @ k))


def claims() -> Iterator[Claim]:
    """Laws of SE(2) and SE(3)."""
    for group, point in ((SE2(), shape("b 2")), (SE3(), shape("b 3"))):
        name, coordinates = type(group).__name__, f"b {group.dim}"
        element = transformed(group.exp, coordinates)
        yield from group_claims(group, element, point)
        yield from exp_claims(group, transformed(shorten, coordinates))
        yield Claim(isometric_action(), group.act, (element, point), name=f"{name}.act")
        adjoint = homomorphism(operation=group.compose, into=torch.matmul)
        yield Claim(adjoint, group.adjoint, element, name=f"{name}.adjoint")
    yield Claim(second_order_gradient(), SE3().exp, shape("b 6"), name="SE3.exp")
