"""SO(3): rotations of space, as matrices."""

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
)
from lawful.groups.group import LieGroup
from lawful.groups.rotation_conversions import axis_angle_to_matrix, matrix_to_axis_angle, quaternion_to_matrix, skew
from lawful.laws import (
    Claim,
    isometric_action,
    left_invariance,
    orthonormality,
    second_order_gradient,
    shape,
    transformed,
)


class SO3(LieGroup):
    r"""Rotation matrices: $\mathrm{SO}(3) = \{ R \in \mathbb{R}^{3 \times 3} : R^\top R = 1, \det R = 1 \}$.

    Coordinates of the algebra are rotation vectors $v$, with $\hat v x = v \times x$.

    Numerics: `exp` and `log` invert each other to a few units in the last place for all angles from 0 to $\pi$.
    Derivatives of `exp` of all orders are accurate everywhere, derivatives of `log` below $\pi$. At $\pi$, where $v$
    and $-v$ are the same rotation, `log` returns the one whose first nonzero component is positive, with the derivative
    of this branch. The derivative of `log` at $R$ in the direction of $R \exp(t w)$ is `right_jacobian_inverse(v) @ w`.

    Examples:
        >>> quarter = SO3().exp(torch.tensor([0.0, 0.0, torch.pi / 2]))
        >>> SO3().act(quarter, torch.tensor([1.0, 0.0, 0.0])).round(decimals=3) + 0.0
        tensor([0., 1., 0.])
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
        r"""Returns $g^{-1} = g^\top$."""
        return check_last_axes(g, 3, 3).mT

    def act(self, g: Float[Tensor, "*#batch 3 3"], x: Float[Tensor, "*#batch 3"]) -> Float[Tensor, "*batch 3"]:
        """Rotates the vectors in the last axis of $x$."""
        return (check_last_axes(g, 3, 3) @ check_last_axes(x, 3)[..., None])[..., 0]

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Float[Tensor, "*batch 3 3"]:
        """Samples uniformly (Haar measure), from normally distributed quaternions."""
        return quaternion_to_matrix(torch.randn(*batch, 4, generator=generator, dtype=dtype, device=device))

    def distance(self, g: Float[Tensor, "*#batch 3 3"], h: Float[Tensor, "*#batch 3 3"]) -> Float[Tensor, "*batch"]:
        r"""Returns the angle between rotations, in $[0, \pi]$. The metric is bi-invariant.

        The gradient is set to 0 at equal rotations, where the distance is not differentiable.
        """
        between = self.compose(self.inverse(g), h)
        cosine = (between.diagonal(dim1=-2, dim2=-1).sum(-1) - 1) / 2
        return torch.atan2(safe_norm(self.vee(between)), cosine)

    def hat(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns the matrix of $x \mapsto v \times x$."""
        return skew(v)

    def vee(self, a: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3"]:
        """Returns $v$ of the skew-symmetric part of a matrix."""
        b = check_last_axes(a, 3, 3) - a.mT
        return torch.stack([b[..., 2, 1], b[..., 0, 2], b[..., 1, 0]], dim=-1) / 2

    def exp(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns the rotation about $v$ by the angle $\lVert v \rVert$: $e^{\hat v}$."""
        return axis_angle_to_matrix(v)

    def log(self, g: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3"]:
        r"""Returns the rotation vector, $\lVert v \rVert \le \pi$. Raises a ValueError for what is no rotation."""
        return matrix_to_axis_angle(g)

    def adjoint(self, g: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $g$ itself, as $g \hat v g^\top = \widehat{g v}$."""
        return check_last_axes(g, 3, 3)

    def left_jacobian(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $J$ with $\exp(v + \delta) \approx \exp(J \delta) \exp(v)$."""
        return rotation_left_jacobian(skew(v), angle_squared=v.square().sum(-1))

    def left_jacobian_inverse(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $J^{-1}$ with $\log(\exp(\delta) \exp(v)) \approx v + J^{-1} \delta$."""
        return rotation_left_jacobian_inverse(skew(v), angle_squared=v.square().sum(-1))


def claims() -> Iterator[Claim]:
    """Laws of SO(3)."""
    group = SO3()
    element, vector = transformed(group.exp, "b 3"), shape("b 3")
    yield from group_claims(group, element, vector)
    yield from exp_claims(group, transformed(shorten, "b 3"))
    yield Claim(orthonormality(), group.exp, vector, name="SO3.exp")
    yield Claim(second_order_gradient(), group.exp, vector, name="SO3.exp")
    yield Claim(isometric_action(), group.act, (element, vector), name="SO3.act")
    right_invariance = left_invariance(compose=lambda g, h: group.compose(h, g))
    yield Claim(right_invariance, group.distance, (element, element), name="SO3.distance, from the right")
