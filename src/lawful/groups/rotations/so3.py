"""SO(3): the rotations of space, as matrices."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from lawful.groups.distances import distances, left_invariance, rigidity
from lawful.groups.group import LieGroup, axioms, sized, smooth_axioms
from lawful.groups.rotations.conversions import axis_angle_to_matrix, matrix_to_axis_angle, quaternion_to_matrix, skew
from lawful.groups.rotations.series import length, within
from lawful.groups.rotations.turns import turn_mean, turn_mean_inverse
from lawful.laws import Claim, agreement, made, orthonormality, second_order_gradient, shape


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


def claims() -> Iterator[Claim]:
    """The laws that SO(3) obeys."""
    group = SO3()
    element, vector, near = made(group.exp, "b 3"), shape("b 3"), made(within, "b 3")
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
