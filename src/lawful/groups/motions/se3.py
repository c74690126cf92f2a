"""SE(3): rotations and translations of space, as homogeneous matrices."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from lawful.groups.distances import distances, rigidity
from lawful.groups.group import LieGroup, axioms, sized, smooth_axioms
from lawful.groups.motions.rigid import parts, rigid, rigid_act, rigid_inverse
from lawful.groups.rotations.conversions import skew
from lawful.groups.rotations.series import length, stumpff, within
from lawful.groups.rotations.so3 import SO3
from lawful.laws import Claim, homomorphism, made, second_order_gradient, shape

TURN = SO3()


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
        r = TURN.sample(*batch, generator=generator, dtype=dtype, device=device)
        return rigid(r, torch.randn(*batch, 3, generator=generator, dtype=dtype, device=device))

    def distance(self, g: Float[Tensor, "*#batch 4 4"], h: Float[Tensor, "*#batch 4 4"]) -> Float[Tensor, "*batch"]:
        r"""Returns $\sqrt{\theta^2 + \lVert t_g - t_h \rVert^2}$, $\theta$ the angle between the rotations.

        Composing from the left does not change it; from the right it does: no Riemannian metric is kept by both.
        """
        (r, t), (s, u) = parts(g), parts(h)
        return length(torch.cat([TURN.distance(r, s)[..., None], t - u], dim=-1))

    def hat(self, v: Float[Tensor, "*batch 6"]) -> Float[Tensor, "*batch 4 4"]:
        r"""Writes $v$ as $\begin{bmatrix} \hat\phi & \rho \\ 0 & 0 \end{bmatrix}$."""
        top = torch.cat([skew(sized(v, 6)[..., 3:]), v[..., :3, None]], dim=-1)
        return torch.cat([top, torch.zeros_like(top[..., :1, :])], dim=-2)

    def vee(self, a: Float[Tensor, "*batch 4 4"]) -> Float[Tensor, "*batch 6"]:
        r"""Reads $(\rho, \phi)$ off a matrix of the algebra."""
        return torch.cat([sized(a, 4, 4)[..., :3, 3], TURN.vee(a[..., :3, :3])], dim=-1)

    def exp(self, v: Float[Tensor, "*batch 6"]) -> Float[Tensor, "*batch 4 4"]:
        r"""Follows the direction $v$ along a screw: $e^{\hat v}$."""
        rho, phi = sized(v, 6)[..., :3, None], v[..., 3:]
        return rigid(TURN.exp(phi), (TURN.left_jacobian(phi) @ rho)[..., 0])

    def log(self, g: Float[Tensor, "*batch 4 4"]) -> Float[Tensor, "*batch 6"]:
        r"""Returns $(\rho, \phi)$ with the shortest $\phi$."""
        r, t = parts(sized(g, 4, 4))
        phi = TURN.log(r)
        return torch.cat([(TURN.left_jacobian_inverse(phi) @ t[..., None])[..., 0], phi], dim=-1)

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
        return _blocks(TURN.left_jacobian(v[..., 3:]), _coupling(sized(v, 6)))

    def left_jacobian_inverse(self, v: Float[Tensor, "*batch 6"]) -> Float[Tensor, "*batch 6 6"]:
        r"""Returns $J^{-1}$ with $\log(\exp(\delta) \exp(v)) \approx v + J^{-1} \delta$."""
        back = TURN.left_jacobian_inverse(sized(v, 6)[..., 3:])
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


def claims() -> Iterator[Claim]:
    """The laws that SE(3) obeys."""
    group = SE3()
    element, vector = made(group.exp, "b 6"), shape("b 3")
    yield from axioms(group, element, vector)
    yield from smooth_axioms(group, made(within, "b 6"))
    yield from distances(group, element)
    yield Claim(homomorphism(operation=group.compose, into=torch.matmul), group.adjoint, element, name="SE3.adjoint")
    yield Claim(second_order_gradient(), group.exp, shape("b 6"), name="SE3.exp")
    yield Claim(rigidity(), group.act, (element, vector), name="SE3.act")
