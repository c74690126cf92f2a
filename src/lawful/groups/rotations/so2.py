"""SO(2): the rotations of the plane, as matrices."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from lawful.groups.distances import distances
from lawful.groups.group import LieGroup, axioms, sized, smooth_axioms
from lawful.groups.rotations.circle import complex_to_matrix
from lawful.groups.rotations.series import length, within
from lawful.laws import Claim, agreement, commutativity, homomorphism, made, orthonormality, shape


class SO2(LieGroup):
    r"""Turns vectors of the plane, against the clock.

    $$R_\theta = \begin{bmatrix} \cos\theta & -\sin\theta \\ \sin\theta & \cos\theta \end{bmatrix}, \qquad
    R_\theta R_\beta = R_{\theta + \beta} = R_\beta R_\theta$$

    The algebra is the angles, an axis of size 1. `log` returns the angle in $(-\pi, \pi]$, of matrices that are not
    quite rotations that of the nearest one; derivatives of `exp` and `log` are right everywhere, those at half turns
    being of the branch that ends in $\pi$.

    Examples:
        >>> SO2().exp(torch.tensor([torch.pi / 2])).round(decimals=3) + 0.0
        tensor([[ 0., -1.],
                [ 1.,  0.]])
    """

    @property
    def dim(self) -> int:
        """1, the angle."""
        return 1

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Float[Tensor, "*batch 2 2"]:
        """Returns the unit matrix, a batch of copies of it if sizes are given."""
        return torch.eye(2, dtype=dtype, device=device).repeat(*batch, 1, 1)

    def compose(self, g: Float[Tensor, "*#batch 2 2"], h: Float[Tensor, "*#batch 2 2"]) -> Float[Tensor, "*batch 2 2"]:
        """Returns $gh$: first $h$, then $g$, or the other way round."""
        return sized(g, 2, 2) @ sized(h, 2, 2)

    def inverse(self, g: Float[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch 2 2"]:
        r"""Returns $g^{-1} = g^\top$."""
        return sized(g, 2, 2).mT

    def act(self, g: Float[Tensor, "*#batch 2 2"], x: Float[Tensor, "*#batch 2"]) -> Float[Tensor, "*batch 2"]:
        """Turns the vectors in the last axis of $x$."""
        return (sized(g, 2, 2) @ sized(x, 2)[..., None])[..., 0]

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Float[Tensor, "*batch 2 2"]:
        """Draws uniformly (Haar): an angle between 0 and a full turn."""
        return self.exp(2 * torch.pi * torch.rand(*batch, 1, generator=generator, dtype=dtype, device=device))

    def distance(self, g: Float[Tensor, "*#batch 2 2"], h: Float[Tensor, "*#batch 2 2"]) -> Float[Tensor, "*batch"]:
        r"""Returns the angle between two rotations, 0 to $\pi$; its derivative is 0 at equal rotations."""
        return self.log(self.compose(self.inverse(g), h))[..., 0].abs()

    def hat(self, v: Float[Tensor, "*batch 1"]) -> Float[Tensor, "*batch 2 2"]:
        r"""Writes the angle $\theta$ as $\theta \begin{bmatrix} 0 & -1 \\ 1 & 0 \end{bmatrix}$."""
        theta = sized(v, 1)[..., 0]
        zero = torch.zeros_like(theta)
        return torch.stack([zero, -theta, theta, zero], dim=-1).unflatten(-1, (2, 2))

    def vee(self, a: Float[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch 1"]:
        """Reads the angle off the skew-symmetric part of a matrix."""
        return (sized(a, 2, 2)[..., 1, :1] - a[..., 0, 1:]) / 2

    def exp(self, v: Float[Tensor, "*batch 1"]) -> Float[Tensor, "*batch 2 2"]:
        """Turns by the angle $v$."""
        theta = sized(v, 1)[..., 0]
        cosine, sine = theta.cos(), theta.sin()
        return torch.stack([cosine, -sine, sine, cosine], dim=-1).unflatten(-1, (2, 2))

    def log(self, g: Float[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch 1"]:
        r"""Returns the angle, in $(-\pi, \pi]$."""
        cosine = (sized(g, 2, 2)[..., 0, :1] + g[..., 1, 1:]) / 2
        return torch.atan2(self.vee(g) + 0.0, cosine)  # a sine of -0 would give -π

    def adjoint(self, g: Float[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch 1 1"]:
        """Returns 1: the group is commutative."""
        return torch.ones_like(sized(g, 2, 2)[..., :1, :1])

    def left_jacobian(self, v: Float[Tensor, "*batch 1"]) -> Float[Tensor, "*batch 1 1"]:
        r"""Returns 1: $\exp(v + \delta) = \exp(\delta) \exp(v)$."""
        return torch.ones_like(sized(v, 1)[..., None])


def claims() -> Iterator[Claim]:
    """The laws that SO(2) obeys."""
    group = SO2()
    element, vector, angle = made(group.exp, "b 1"), shape("b 2"), shape("b 1")
    yield from axioms(group, element, vector)
    yield from smooth_axioms(group, made(within, "b 1"))
    yield from distances(group, element)

    def unit_number(v: Tensor) -> Tensor:
        return complex_to_matrix(torch.polar(torch.ones_like(v), v)[..., 0])

    def complex_product(g: Tensor, x: Tensor) -> Tensor:
        z = torch.view_as_complex(g[..., 0].contiguous()) * torch.view_as_complex(x.contiguous())
        return torch.view_as_real(z)

    def way(v: Tensor) -> Tensor:
        return group.distance(group.exp(v), group.identity().to(v))

    yield Claim(homomorphism(operation=torch.add, into=torch.matmul), group.exp, angle, name="SO2.exp")
    yield Claim(agreement(other=unit_number), group.exp, angle, name="SO2.exp")
    yield Claim(orthonormality(), group.exp, angle, name="SO2.exp")
    yield Claim(commutativity(), group.compose, (element, element), name="SO2.compose")
    yield Claim(agreement(other=complex_product), group.act, (element, vector), name="SO2.act")
    yield Claim(agreement(other=length), way, made(within, "b 1"), name="SO2.distance")

    def drawn(x: Tensor) -> Tensor:
        many = group.sample(80, 50, generator=torch.Generator().manual_seed(0)).flatten(0, 1).to(x)
        return torch.cat([many.mean(0), many.square().mean(0)])

    uniform = agreement(other=lambda x: torch.cat([x.new_zeros(2, 2), x.new_full((2, 2), 0.5)]), within=0.1)
    yield Claim(uniform, drawn, shape("1"), name="SO2.sample")
