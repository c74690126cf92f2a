"""SE(2): rotations and translations of the plane, as homogeneous matrices."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from lawful.groups.distances import distances, rigidity
from lawful.groups.group import LieGroup, axioms, sized, smooth_axioms
from lawful.groups.motions.rigid import parts, rigid, rigid_act, rigid_inverse
from lawful.groups.rotations.series import length, within
from lawful.groups.rotations.so2 import SO2
from lawful.groups.rotations.turns import turn_mean, turn_mean_inverse
from lawful.laws import Claim, agreement, made, shape

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


def claims() -> Iterator[Claim]:
    """The laws that SE(2) obeys."""
    group = SE2()
    element, vector = made(group.exp, "b 3"), shape("b 2")
    yield from axioms(group, element, vector)
    yield from smooth_axioms(group, made(within, "b 3"))
    yield from distances(group, element)
    yield Claim(rigidity(), group.act, (element, vector), name="SE2.act")

    def drawn(x: Tensor) -> Tensor:
        many = group.sample(80, 50, generator=torch.Generator().manual_seed(0)).flatten(0, 1).to(x)
        return torch.cat([many.mean(0), many.square().mean(0)])

    def uniform(x: Tensor) -> Tensor:
        squares = [[0.5, 0.5, 1.0], [0.5, 0.5, 1.0], [0.0, 0.0, 1.0]]
        return torch.cat([x.new_tensor([[0, 0, 0], [0, 0, 0], [0, 0, 1]]), x.new_tensor(squares)])

    yield Claim(agreement(other=uniform, within=0.1), drawn, shape("1"), name="SE2.sample")
