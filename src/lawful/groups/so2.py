"""U(1): the unit circle in the complex plane, and complex numbers as matrices.

SO(2): the rotations of the plane, as matrices.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Complex, Float
from torch import Generator, Tensor

from lawful.groups.group import LieGroup, axioms, distances, rigidity, sized, smooth_axioms
from lawful.groups.so3 import length, within
from lawful.laws import (
    Claim,
    agreement,
    commutativity,
    homomorphism,
    invertibility,
    linearity,
    orthonormality,
    shape,
    transformed,
)


def complex_to_matrix(z: Complex[Tensor, "*batch"]) -> Float[Tensor, "*batch 2 2"]:
    r"""Writes complex numbers as real matrices, which add and multiply as they do.

    $$a + b i \;\mapsto\; \begin{bmatrix} a & -b \\ b & a \end{bmatrix}, \qquad
    \det = a^2 + b^2 = \lvert z \rvert^2$$

    Of a unit number $e^{i \theta}$ it is the rotation of the plane by $\theta$.

    Args:
        z: The numbers $z = a + b i$.

    Examples:
        >>> complex_to_matrix(torch.tensor(1 + 2j))
        tensor([[ 1., -2.],
                [ 2.,  1.]])
    """
    return torch.stack([z.real, -z.imag, z.imag, z.real], -1).unflatten(-1, (2, 2))


def matrix_to_complex(m: Float[Tensor, "*batch 2 2"]) -> Complex[Tensor, "*batch"]:
    """Reads the complex numbers off such matrices, from their first column: the inverse of `complex_to_matrix`.

    Args:
        m: The matrices.
    """
    return torch.complex(m[..., 0, 0], m[..., 1, 0])


class Circle(LieGroup):
    r"""Multiplies unit complex numbers, and turns complex vectors by them.

    $$\mathrm{U}(1) = \{ z \in \mathbb{C} : \lvert z \rvert = 1 \}, \qquad \exp(\theta) = e^{i \theta}$$

    An element is a complex number; `complex_to_matrix` makes it a rotation of the plane. `log` gives the angle, from
    $-\pi$ to $\pi$.

    Examples:
        >>> group = Circle()
        >>> group.act(group.exp(torch.tensor([torch.pi])), torch.tensor([1.0 + 0j])).real
        tensor([-1.])
    """

    @property
    def dim(self) -> int:
        """1: the angle."""
        return 1

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """Returns 1, a batch of it if sizes are given; of a real type, the complex numbers of its precision."""
        return torch.ones(batch, dtype=_complex(dtype), device=device)

    def compose(self, g: Complex[Tensor, "*#batch"], h: Complex[Tensor, "*#batch"]) -> Complex[Tensor, "*batch"]:
        """Returns the product: the angles add."""
        return g * h

    def inverse(self, g: Complex[Tensor, "*batch"]) -> Complex[Tensor, "*batch"]:
        r"""Returns $g^{-1} = \bar g$."""
        return g.conj().resolve_conj()

    def act(self, g: Complex[Tensor, "*#batch"], x: Complex[Tensor, "*#batch d"]) -> Complex[Tensor, "*batch d"]:
        """Multiplies the complex vectors in the last axis of $x$."""
        return g[..., None] * x

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Draws uniformly on the circle."""
        turns = torch.rand(*batch, 1, generator=generator, dtype=_complex(dtype).to_real(), device=device)
        return self.exp(2 * torch.pi * turns)

    def distance(self, g: Complex[Tensor, "*#batch"], h: Complex[Tensor, "*#batch"]) -> Float[Tensor, "*batch"]:
        """Returns the angle between two elements, the shorter way round."""
        sine, cosine = g.real * h.imag - g.imag * h.real, g.real * h.real + g.imag * h.imag
        return torch.atan2(sine, cosine).abs()

    def hat(self, v: Float[Tensor, "*batch 1"]) -> Complex[Tensor, "*batch 1 1"]:
        r"""Writes the angle as a matrix of one imaginary entry, $i \theta$."""
        return torch.complex(torch.zeros_like(sized(v, 1)), v)[..., None]

    def vee(self, a: Complex[Tensor, "*batch 1 1"]) -> Float[Tensor, "*batch 1"]:
        """Reads the angle off."""
        return sized(a, 1, 1)[..., 0].imag

    def exp(self, v: Float[Tensor, "*batch 1"]) -> Complex[Tensor, "*batch"]:
        r"""Returns $\cos \theta + i \sin \theta$."""
        angle = sized(v, 1)[..., 0]
        return torch.complex(angle.cos(), angle.sin())

    def log(self, g: Complex[Tensor, "*batch"]) -> Float[Tensor, "*batch 1"]:
        """Returns the angle."""
        return g.angle()[..., None]

    def adjoint(self, g: Complex[Tensor, "*batch"]) -> Float[Tensor, "*batch 1 1"]:
        """Returns the unit matrix: the order of turns makes no difference."""
        return torch.ones_like(g.real)[..., None, None]

    def left_jacobian(self, v: Float[Tensor, "*batch 1"]) -> Float[Tensor, "*batch 1 1"]:
        """Returns the unit matrix."""
        return torch.ones_like(sized(v, 1))[..., None]


def _complex(dtype: torch.dtype | None) -> torch.dtype:
    return (dtype or torch.get_default_dtype()).to_complex()


def _circle_claims() -> Iterator[Claim]:
    """The laws that the circle and the matrices of complex numbers obey."""
    group = Circle()

    def paired(x: Tensor) -> Tensor:
        return torch.complex(x[..., 0], x[..., 1])

    number, vector = transformed(paired, "b 2"), transformed(paired, "b 3 2")
    element = transformed(group.exp, "b 1")
    yield from axioms(group, element, vector)
    yield from distances(group, element)
    yield Claim(commutativity(), group.compose, (element, element), name="Circle.compose")
    yield Claim(rigidity(), group.act, (element, vector), name="Circle.act")
    yield Claim(homomorphism(operation=torch.add, into=group.compose), group.exp, shape("b 1"), name="Circle.exp")
    yield Claim(invertibility(inverse=group.exp), group.log, element, name="Circle.log")
    yield Claim(homomorphism(operation=torch.mul), torch.abs, number, name="|z w|")

    def exponential(v: Tensor) -> Tensor:
        return torch.linalg.matrix_exp(group.hat(v))[..., 0, 0]

    def further(v: Tensor, w: Tensor) -> Tensor:
        return group.compose(group.exp((group.left_jacobian(v) @ w[..., None])[..., 0]), group.exp(v))

    def conjugation(g: Tensor, v: Tensor) -> Tensor:
        return group.vee(g[..., None, None] * group.hat(v) * group.inverse(g)[..., None, None])

    def adjoint(g: Tensor, v: Tensor) -> Tensor:
        return (group.adjoint(g) @ v[..., None])[..., 0]

    angle = shape("b 1")
    yield Claim(agreement(other=exponential), group.exp, angle, name="Circle.exp")
    yield Claim(agreement(other=further), lambda v, w: group.exp(v + w), (angle, angle), name="Circle.left_jacobian")
    yield Claim(agreement(other=conjugation), adjoint, (element, angle), name="Circle.adjoint")

    yield Claim(homomorphism(operation=torch.mul, into=torch.matmul), complex_to_matrix, number)
    yield Claim(linearity(), lambda x: complex_to_matrix(paired(x)), shape("b 2"), name="complex_to_matrix")
    yield Claim(invertibility(inverse=matrix_to_complex), complex_to_matrix, number)

    def determinant(z: Tensor) -> Tensor:
        return torch.linalg.det(complex_to_matrix(z))

    yield Claim(agreement(other=lambda z: z.abs().square()), determinant, number, name="det of complex_to_matrix")

    def turned(v: Tensor, x: Tensor) -> Tensor:
        return (complex_to_matrix(group.exp(v)) @ x[..., None])[..., 0]

    def written_out(v: Tensor, x: Tensor) -> Tensor:
        c, s = v.cos()[..., 0], v.sin()[..., 0]
        return torch.stack([c * x[..., 0] - s * x[..., 1], s * x[..., 0] + c * x[..., 1]], -1)

    yield Claim(agreement(other=written_out), turned, (shape("b 1"), shape("b 2")), name="complex_to_matrix of a turn")


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


def _so2_claims() -> Iterator[Claim]:
    """The laws that SO(2) obeys."""
    group = SO2()
    element, vector, angle = transformed(group.exp, "b 1"), shape("b 2"), shape("b 1")
    yield from axioms(group, element, vector)
    yield from smooth_axioms(group, transformed(within, "b 1"))
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
    yield Claim(agreement(other=length), way, transformed(within, "b 1"), name="SO2.distance")

    def drawn(x: Tensor) -> Tensor:
        many = group.sample(80, 50, generator=torch.Generator().manual_seed(0)).flatten(0, 1).to(x)
        return torch.cat([many.mean(0), many.square().mean(0)])

    uniform = agreement(other=lambda x: torch.cat([x.new_zeros(2, 2), x.new_full((2, 2), 0.5)]), rtol=0.1)
    yield Claim(uniform, drawn, shape("1"), name="SO2.sample")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _circle_claims()
    yield from _so2_claims()
