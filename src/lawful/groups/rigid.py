r"""Rotation and translation in one matrix, $\begin{bmatrix} R & t \\ 0 & 1 \end{bmatrix}$, for any dimension.

SE(2): rotations and translations of the plane, as homogeneous matrices.
SE(3): rotations and translations of space, as homogeneous matrices.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from lawful.groups.group import LieGroup, axioms, distances, rigidity, sized, smooth_axioms
from lawful.groups.so2 import SO2
from lawful.groups.so3 import SO3, axis_angle_to_matrix, length, skew, stumpff, turn_mean, turn_mean_inverse, within
from lawful.laws import Claim, agreement, homomorphism, second_order_gradient, shape, transformed


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


def _rigid_claims() -> Iterator[Claim]:
    """The laws that such matrices obey."""

    def motion(v: Tensor) -> Tensor:
        return rigid(axis_angle_to_matrix(v[..., :3]), v[..., 3:])

    element = transformed(motion, "b 6")
    yield Claim(agreement(other=torch.linalg.inv), rigid_inverse, element)

    def homogeneous(g: Tensor, x: Tensor) -> Tensor:
        return (g @ torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)[..., None])[..., :-1, 0]

    yield Claim(agreement(other=homogeneous), rigid_act, (element, shape("b 3")))


TURN = SO2()


class SE2(LieGroup):
    r"""Turns and moves the plane: $x \mapsto R x + t$, as $\begin{bmatrix} R & t \\ 0 & 1 \end{bmatrix}$.

    The algebra has the translation first: $v = (\rho_1, \rho_2, \theta)$, with $R = R_\theta$ and $t = V \rho$, where
    $V = \int_0^1 R_{\tau\theta} d\tau$. `log` returns $\theta$ in $(-\pi, \pi]$. Derivatives of `exp` are right
    everywhere, those of `log` below half a turn, and at half a turn those of the branch that ends in $\pi$.

    Examples:
        >>> SE2().exp(torch.tensor([3.0, 4.0, 0.0]))
        tensor([[1., -0., 3.],
                [0.,  1., 4.],
                [0.,  0., 1.]])
    """

    @property
    def dim(self) -> int:
        """3: two of the translation, then the angle."""
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
        r"""Returns $g^{-1}$: $R^\top$ and $-R^\top t$."""
        return rigid_inverse(sized(g, 3, 3))

    def act(self, g: Float[Tensor, "*#batch 3 3"], x: Float[Tensor, "*#batch 2"]) -> Float[Tensor, "*batch 2"]:
        """Turns and moves the points in the last axis of $x$: $R x + t$."""
        return rigid_act(sized(g, 3, 3), sized(x, 2))

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Float[Tensor, "*batch 3 3"]:
        """Draws rotations uniformly (Haar) and translations from the standard normal distribution."""
        r = TURN.sample(*batch, generator=generator, dtype=dtype, device=device)
        return rigid(r, torch.randn(*batch, 2, generator=generator, dtype=dtype, device=device))

    def distance(self, g: Float[Tensor, "*#batch 3 3"], h: Float[Tensor, "*#batch 3 3"]) -> Float[Tensor, "*batch"]:
        r"""Returns $\sqrt{\theta^2 + \lVert t_g - t_h \rVert^2}$, $\theta$ the angle between the rotations.

        Composing from the left does not change it; from the right it does: no Riemannian metric is kept by both.
        """
        (r, t), (s, u) = parts(g), parts(h)
        return length(torch.cat([TURN.distance(r, s)[..., None], t - u], dim=-1))

    def hat(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Writes $v$ as $\begin{bmatrix} \hat\theta & \rho \\ 0 & 0 \end{bmatrix}$."""
        top = torch.cat([TURN.hat(sized(v, 3)[..., 2:]), v[..., :2, None]], dim=-1)
        return torch.cat([top, torch.zeros_like(top[..., :1, :])], dim=-2)

    def vee(self, a: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3"]:
        r"""Reads $(\rho, \theta)$ off a matrix of the algebra."""
        return torch.cat([sized(a, 3, 3)[..., :2, 2], TURN.vee(a[..., :2, :2])], dim=-1)

    def exp(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Follows the direction $v$ along a circle: $e^{\hat v}$."""
        rho, theta = sized(v, 3)[..., :2, None], v[..., 2:]
        mean = turn_mean(TURN.hat(theta), square=theta[..., 0].square())
        return rigid(TURN.exp(theta), (mean @ rho)[..., 0])

    def log(self, g: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3"]:
        r"""Returns $(\rho, \theta)$ with the shortest $\theta$."""
        r, t = parts(sized(g, 3, 3))
        theta = TURN.log(r)
        back = turn_mean_inverse(TURN.hat(theta), square=theta[..., 0].square())
        return torch.cat([(back @ t[..., None])[..., 0], theta], dim=-1)

    def adjoint(self, g: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $\begin{bmatrix} R & (t_2, -t_1)^\top \\ 0 & 1 \end{bmatrix}$."""
        r, t = parts(sized(g, 3, 3))
        return rigid(r, torch.stack([t[..., 1], -t[..., 0]], dim=-1))

    def left_jacobian(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $J$ with $\exp(v + \delta) \approx \exp(J \delta) \exp(v)$."""
        return turn_mean(_bracket(sized(v, 3)), square=v[..., 2].square())

    def left_jacobian_inverse(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $J^{-1}$ with $\log(\exp(\delta) \exp(v)) \approx v + J^{-1} \delta$."""
        return turn_mean_inverse(_bracket(sized(v, 3)), square=v[..., 2].square())


def _bracket(v: Tensor) -> Tensor:
    r"""Writes $w \mapsto [\hat v, \hat w]^\vee$ as a matrix, which turns in one plane as $\hat v$ does."""
    a, b, theta = v.unbind(-1)
    o = torch.zeros_like(a)
    return torch.stack([o, -theta, b, theta, o, -a, o, o, o], dim=-1).unflatten(-1, (3, 3))


def _se2_claims() -> Iterator[Claim]:
    """The laws that SE(2) obeys."""
    group = SE2()
    element, vector = transformed(group.exp, "b 3"), shape("b 2")
    yield from axioms(group, element, vector)
    yield from smooth_axioms(group, transformed(within, "b 3"))
    yield from distances(group, element)
    yield Claim(rigidity(), group.act, (element, vector), name="SE2.act")

    def drawn(x: Tensor) -> Tensor:
        many = group.sample(80, 50, generator=torch.Generator().manual_seed(0)).flatten(0, 1).to(x)
        return torch.cat([many.mean(0), many.square().mean(0)])

    def uniform(x: Tensor) -> Tensor:
        squares = [[0.5, 0.5, 1.0], [0.5, 0.5, 1.0], [0.0, 0.0, 1.0]]
        return torch.cat([x.new_tensor([[0, 0, 0], [0, 0, 0], [0, 0, 1]]), x.new_tensor(squares)])

    yield Claim(agreement(other=uniform, rtol=0.1), drawn, shape("1"), name="SE2.sample")


TURN_SE3 = SO3()


class SE3(LieGroup):
    r"""Turns and moves space: $x \mapsto R x + t$, as $\begin{bmatrix} R & t \\ 0 & 1 \end{bmatrix}$.

    The algebra has the translation first: $v = (\rho, \phi)$, with $R = \exp(\phi)$ and $t = J(\phi) \rho$, where $J$
    is the left Jacobian of SO(3). What `SO3` says of `exp` and `log`, of half turns and of derivatives, holds here.

    Examples:
        >>> SE3().log(SE3().exp(torch.tensor([1.0, 2.0, 3.0, 0.0, 0.0, 0.0])))
        tensor([1., 2., 3., 0., 0., 0.])
    """

    @property
    def dim(self) -> int:
        """6: three of the translation, then the rotation vector."""
        return 6

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Float[Tensor, "*batch 4 4"]:
        """Returns the unit matrix, a batch of copies of it if sizes are given."""
        return torch.eye(4, dtype=dtype, device=device).repeat(*batch, 1, 1)

    def compose(self, g: Float[Tensor, "*#batch 4 4"], h: Float[Tensor, "*#batch 4 4"]) -> Float[Tensor, "*batch 4 4"]:
        """Returns $gh$: first $h$, then $g$."""
        return sized(g, 4, 4) @ sized(h, 4, 4)

    def inverse(self, g: Float[Tensor, "*batch 4 4"]) -> Float[Tensor, "*batch 4 4"]:
        r"""Returns $g^{-1}$: $R^\top$ and $-R^\top t$."""
        return rigid_inverse(sized(g, 4, 4))

    def act(self, g: Float[Tensor, "*#batch 4 4"], x: Float[Tensor, "*#batch 3"]) -> Float[Tensor, "*batch 3"]:
        """Turns and moves the points in the last axis of $x$: $R x + t$."""
        return rigid_act(sized(g, 4, 4), sized(x, 3))

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Float[Tensor, "*batch 4 4"]:
        """Draws rotations uniformly (Haar) and translations from the standard normal distribution."""
        r = TURN_SE3.sample(*batch, generator=generator, dtype=dtype, device=device)
        return rigid(r, torch.randn(*batch, 3, generator=generator, dtype=dtype, device=device))

    def distance(self, g: Float[Tensor, "*#batch 4 4"], h: Float[Tensor, "*#batch 4 4"]) -> Float[Tensor, "*batch"]:
        r"""Returns $\sqrt{\theta^2 + \lVert t_g - t_h \rVert^2}$, $\theta$ the angle between the rotations.

        Composing from the left does not change it; from the right it does: no Riemannian metric is kept by both.
        """
        (r, t), (s, u) = parts(g), parts(h)
        return length(torch.cat([TURN_SE3.distance(r, s)[..., None], t - u], dim=-1))

    def hat(self, v: Float[Tensor, "*batch 6"]) -> Float[Tensor, "*batch 4 4"]:
        r"""Writes $v$ as $\begin{bmatrix} \hat\phi & \rho \\ 0 & 0 \end{bmatrix}$."""
        top = torch.cat([skew(sized(v, 6)[..., 3:]), v[..., :3, None]], dim=-1)
        return torch.cat([top, torch.zeros_like(top[..., :1, :])], dim=-2)

    def vee(self, a: Float[Tensor, "*batch 4 4"]) -> Float[Tensor, "*batch 6"]:
        r"""Reads $(\rho, \phi)$ off a matrix of the algebra."""
        return torch.cat([sized(a, 4, 4)[..., :3, 3], TURN_SE3.vee(a[..., :3, :3])], dim=-1)

    def exp(self, v: Float[Tensor, "*batch 6"]) -> Float[Tensor, "*batch 4 4"]:
        r"""Follows the direction $v$ along a screw: $e^{\hat v}$."""
        rho, phi = sized(v, 6)[..., :3, None], v[..., 3:]
        return rigid(TURN_SE3.exp(phi), (TURN_SE3.left_jacobian(phi) @ rho)[..., 0])

    def log(self, g: Float[Tensor, "*batch 4 4"]) -> Float[Tensor, "*batch 6"]:
        r"""Returns $(\rho, \phi)$ with the shortest $\phi$."""
        r, t = parts(sized(g, 4, 4))
        phi = TURN_SE3.log(r)
        return torch.cat([(TURN_SE3.left_jacobian_inverse(phi) @ t[..., None])[..., 0], phi], dim=-1)

    def adjoint(self, g: Float[Tensor, "*batch 4 4"]) -> Float[Tensor, "*batch 6 6"]:
        r"""Returns $\begin{bmatrix} R & \hat t R \\ 0 & R \end{bmatrix}$."""
        r, t = parts(sized(g, 4, 4))
        return _blocks(r, skew(t) @ r)

    def left_jacobian(self, v: Float[Tensor, "*batch 6"]) -> Float[Tensor, "*batch 6 6"]:
        r"""Returns $J$ with $\exp(v + \delta) \approx \exp(J \delta) \exp(v)$.

        $$J = \begin{bmatrix} J(\phi) & Q \\ 0 & J(\phi) \end{bmatrix}, \qquad Q = c_2 \hat\rho
        + c_3 (\hat\phi \hat\rho + \hat\rho \hat\phi)
        + (\phi \cdot \rho) \bigl( (2 c_4 - c_3) \hat\phi + (3 c_5 - c_4) \hat\phi^2 \bigr)$$

        $Q$ is the derivative of $J(\phi) = 1 + c_2 \hat\phi + c_3 \hat\phi^2$ in the direction $\rho$; the Stumpff
        functions $c_k$ are those of $\lVert \phi \rVert^2$.
        """
        return _blocks(TURN_SE3.left_jacobian(v[..., 3:]), _coupling(sized(v, 6)))

    def left_jacobian_inverse(self, v: Float[Tensor, "*batch 6"]) -> Float[Tensor, "*batch 6 6"]:
        r"""Returns $J^{-1}$ with $\log(\exp(\delta) \exp(v)) \approx v + J^{-1} \delta$."""
        back = TURN_SE3.left_jacobian_inverse(sized(v, 6)[..., 3:])
        return _blocks(back, -back @ _coupling(v) @ back)


def _blocks(a: Tensor, b: Tensor) -> Tensor:
    r"""Returns $\begin{bmatrix} a & b \\ 0 & a \end{bmatrix}$."""
    return torch.cat([torch.cat([a, b], dim=-1), torch.cat([torch.zeros_like(a), a], dim=-1)], dim=-2)


def _coupling(v: Tensor) -> Tensor:
    """Returns $Q$: how turning changes the translation."""
    rho, phi = v[..., :3], v[..., 3:]
    p, k = skew(rho), skew(phi)
    _, _, c2, c3, c4, c5 = (c[..., None, None] for c in stumpff(phi.square().sum(-1), last=5))
    along = (phi * rho).sum(-1)[..., None, None]
    return c2 * p + c3 * (p @ k + k @ p) + along * ((2 * c4 - c3) * k + (3 * c5 - c4) * (k @ k))


def _se3_claims() -> Iterator[Claim]:
    """The laws that SE(3) obeys."""
    group = SE3()
    element, vector = transformed(group.exp, "b 6"), shape("b 3")
    yield from axioms(group, element, vector)
    yield from smooth_axioms(group, transformed(within, "b 6"))
    yield from distances(group, element)
    yield Claim(homomorphism(operation=group.compose, into=torch.matmul), group.adjoint, element, name="SE3.adjoint")
    yield Claim(second_order_gradient(), group.exp, shape("b 6"), name="SE3.exp")
    yield Claim(rigidity(), group.act, (element, vector), name="SE3.act")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _rigid_claims()
    yield from _se2_claims()
    yield from _se3_claims()
