"""U(1): the unit circle in the complex plane, and complex numbers as matrices."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Complex, Float
from torch import Generator, Tensor

from lawful.groups.distances import distances, rigidity
from lawful.groups.group import LieGroup, axioms, sized
from lawful.laws import (
    Claim,
    agreement,
    commutativity,
    homomorphism,
    invertibility,
    linearity,
    made,
    shape,
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


def claims() -> Iterator[Claim]:
    """The laws that the circle and the matrices of complex numbers obey."""
    group = Circle()

    def paired(x: Tensor) -> Tensor:
        return torch.complex(x[..., 0], x[..., 1])

    number, vector = made(paired, "b 2"), made(paired, "b 3 2")
    element = made(group.exp, "b 1")
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
