"""Rotations of the plane: SO(2) as matrices, U(1) as complex numbers, and complex numbers as matrices."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Complex, Float
from torch import Generator, Tensor

from lawful.groups._helpers import check_last_axes, check_rotation, exp_claims, group_claims, shorten
from lawful.groups.group import LieGroup
from lawful.laws import (
    Claim,
    commutativity,
    homomorphism,
    invertibility,
    isometric_action,
    linearity,
    orthonormality,
    shape,
    transformed,
)


def complex_to_matrix(z: Complex[Tensor, "*batch"]) -> Float[Tensor, "*batch 2 2"]:
    r"""Converts complex numbers to real 2 x 2 matrices, which add and multiply in the same way.

    $$a + b i \;\mapsto\; \begin{bmatrix} a & -b \\ b & a \end{bmatrix}, \qquad
    \det = a^2 + b^2 = \lvert z \rvert^2$$

    A unit number $e^{i \theta}$ becomes the rotation by $\theta$.

    Args:
        z: Complex numbers $z = a + b i$.

    Examples:
        >>> complex_to_matrix(torch.tensor(1 + 2j))
        tensor([[ 1., -2.],
                [ 2.,  1.]])
    """
    return torch.stack([z.real, -z.imag, z.imag, z.real], -1).unflatten(-1, (2, 2))


def matrix_to_complex(m: Float[Tensor, "*batch 2 2"]) -> Complex[Tensor, "*batch"]:
    """Converts matrices to complex numbers, read from the first column. Inverse of `complex_to_matrix`.

    Args:
        m: Matrices.
    """
    return torch.complex(m[..., 0, 0], m[..., 1, 0])


class Circle(LieGroup):
    r"""The circle group U(1): complex numbers of absolute value 1.

    $$\mathrm{U}(1) = \{ z \in \mathbb{C} : \lvert z \rvert = 1 \}, \qquad \exp(\theta) = e^{i \theta}$$

    `complex_to_matrix` maps an element to a rotation of the plane. `log` returns the angle in $[-\pi, \pi]$.

    Examples:
        >>> group = Circle()
        >>> group.act(group.exp(torch.tensor([torch.pi])), torch.tensor([1.0 + 0j])).real
        tensor([-1.])
    """

    @property
    def dim(self) -> int:
        """1."""
        return 1

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """Returns 1, repeated to the batch shape. A real `dtype` selects the complex one of the same precision."""
        return torch.ones(batch, dtype=_complex(dtype), device=device)

    def compose(self, g: Complex[Tensor, "*#batch"], h: Complex[Tensor, "*#batch"]) -> Complex[Tensor, "*batch"]:
        """Returns the product $gh$."""
        return g * h

    def inverse(self, g: Complex[Tensor, "*batch"]) -> Complex[Tensor, "*batch"]:
        r"""Returns $g^{-1} = \bar g$."""
        return g.conj().resolve_conj()

    def act(self, g: Complex[Tensor, "*#batch"], x: Complex[Tensor, "*#batch d"]) -> Complex[Tensor, "*batch d"]:
        """Multiplies the complex vectors in the last axis of $x$ by $g$."""
        return g[..., None] * x

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Samples uniformly on the circle."""
        turns = torch.rand(*batch, 1, generator=generator, dtype=_complex(dtype).to_real(), device=device)
        return self.exp(2 * torch.pi * turns)

    def distance(self, g: Complex[Tensor, "*#batch"], h: Complex[Tensor, "*#batch"]) -> Float[Tensor, "*batch"]:
        r"""Returns the angle between elements, in $[0, \pi]$."""
        sine, cosine = g.real * h.imag - g.imag * h.real, g.real * h.real + g.imag * h.imag
        return torch.atan2(sine, cosine).abs()

    def hat(self, v: Float[Tensor, "*batch 1"]) -> Complex[Tensor, "*batch 1 1"]:
        r"""Returns the 1 x 1 matrix $i \theta$."""
        return torch.complex(torch.zeros_like(check_last_axes(v, 1)), v)[..., None]

    def vee(self, a: Complex[Tensor, "*batch 1 1"]) -> Float[Tensor, "*batch 1"]:
        """Returns the angle."""
        return check_last_axes(a, 1, 1)[..., 0].imag

    def exp(self, v: Float[Tensor, "*batch 1"]) -> Complex[Tensor, "*batch"]:
        r"""Returns $\cos \theta + i \sin \theta$."""
        angle = check_last_axes(v, 1)[..., 0]
        return torch.complex(angle.cos(), angle.sin())

    def log(self, g: Complex[Tensor, "*batch"]) -> Float[Tensor, "*batch 1"]:
        """Returns the angle."""
        return g.angle()[..., None]

    def adjoint(self, g: Complex[Tensor, "*batch"]) -> Float[Tensor, "*batch 1 1"]:
        """Returns 1: the group is commutative."""
        return torch.ones_like(g.real)[..., None, None]

    def left_jacobian(self, v: Float[Tensor, "*batch 1"]) -> Float[Tensor, "*batch 1 1"]:
        """Returns the identity matrix."""
        return torch.ones_like(check_last_axes(v, 1))[..., None]


def _complex(dtype: torch.dtype | None) -> torch.dtype:
    return (dtype or torch.get_default_dtype()).to_complex()


class SO2(LieGroup):
    r"""Rotation matrices of the plane, counterclockwise.

    $$R_\theta = \begin{bmatrix} \cos\theta & -\sin\theta \\ \sin\theta & \cos\theta \end{bmatrix}, \qquad
    R_\theta R_\beta = R_{\theta + \beta} = R_\beta R_\theta$$

    The coordinate of the algebra is the angle. `log` returns it in $(-\pi, \pi]$; for a matrix that is not exactly a
    rotation, it is the angle of the nearest one. Derivatives of `exp` and `log` are accurate everywhere; at $\pi$
    they are one-sided.

    Examples:
        >>> SO2().exp(torch.tensor([torch.pi / 2])).round(decimals=3) + 0.0
        tensor([[ 0., -1.],
                [ 1.,  0.]])
    """

    @property
    def dim(self) -> int:
        """1."""
        return 1

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Float[Tensor, "*batch 2 2"]:
        """Returns the identity matrix, repeated to the batch shape."""
        return torch.eye(2, dtype=dtype, device=device).repeat(*batch, 1, 1)

    def compose(self, g: Float[Tensor, "*#batch 2 2"], h: Float[Tensor, "*#batch 2 2"]) -> Float[Tensor, "*batch 2 2"]:
        """Returns $gh = hg$."""
        return check_last_axes(g, 2, 2) @ check_last_axes(h, 2, 2)

    def inverse(self, g: Float[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch 2 2"]:
        r"""Returns $g^{-1} = g^\top$."""
        return check_last_axes(g, 2, 2).mT

    def act(self, g: Float[Tensor, "*#batch 2 2"], x: Float[Tensor, "*#batch 2"]) -> Float[Tensor, "*batch 2"]:
        """Rotates the vectors in the last axis of $x$."""
        return (check_last_axes(g, 2, 2) @ check_last_axes(x, 2)[..., None])[..., 0]

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Float[Tensor, "*batch 2 2"]:
        """Samples uniformly (Haar measure)."""
        return self.exp(2 * torch.pi * torch.rand(*batch, 1, generator=generator, dtype=dtype, device=device))

    def distance(self, g: Float[Tensor, "*#batch 2 2"], h: Float[Tensor, "*#batch 2 2"]) -> Float[Tensor, "*batch"]:
        r"""Returns the angle between rotations, in $[0, \pi]$. The gradient is set to 0 at equal rotations."""
        return self.log(self.compose(self.inverse(g), h))[..., 0].abs()

    def hat(self, v: Float[Tensor, "*batch 1"]) -> Float[Tensor, "*batch 2 2"]:
        r"""Returns $\theta \begin{bmatrix} 0 & -1 \\ 1 & 0 \end{bmatrix}$."""
        theta = check_last_axes(v, 1)[..., 0]
        zero = torch.zeros_like(theta)
        return torch.stack([zero, -theta, theta, zero], dim=-1).unflatten(-1, (2, 2))

    def vee(self, a: Float[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch 1"]:
        """Returns the angle of the skew-symmetric part of a matrix."""
        return (check_last_axes(a, 2, 2)[..., 1, :1] - a[..., 0, 1:]) / 2

    def exp(self, v: Float[Tensor, "*batch 1"]) -> Float[Tensor, "*batch 2 2"]:
        """Returns the rotation by the angle $v$."""
        theta = check_last_axes(v, 1)[..., 0]
        cosine, sine = theta.cos(), theta.sin()
        return torch.stack([cosine, -sine, sine, cosine], dim=-1).unflatten(-1, (2, 2))

    def log(self, g: Float[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch 1"]:
        r"""Returns the angle, in $(-\pi, \pi]$. Raises a ValueError for what is no rotation."""
        a, b, c, d = check_last_axes(g, 2, 2).detach().flatten(-2).unbind(-1)
        check_rotation(g, (a * a + c * c - 1).abs() + (a - d).abs() + (b + c).abs())
        cosine = (g[..., 0, :1] + g[..., 1, 1:]) / 2
        return torch.atan2(self.vee(g) + 0.0, cosine)  # atan2(-0.0, -1) is -π

    def adjoint(self, g: Float[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch 1 1"]:
        """Returns 1: the group is commutative."""
        return torch.ones_like(check_last_axes(g, 2, 2)[..., :1, :1])

    def left_jacobian(self, v: Float[Tensor, "*batch 1"]) -> Float[Tensor, "*batch 1 1"]:
        r"""Returns 1: $\exp(v + \delta) = \exp(\delta) \exp(v)$."""
        return torch.ones_like(check_last_axes(v, 1)[..., None])


def claims() -> Iterator[Claim]:
    """Laws of U(1), SO(2) and complex numbers as matrices."""

    def to_complex(x: Tensor) -> Tensor:
        return torch.complex(x[..., 0], x[..., 1])

    number, vector, angle = transformed(to_complex, "b 2"), transformed(to_complex, "b 3 2"), shape("b 1")
    circle, rotations = Circle(), SO2()
    for group, x in ((circle, vector), (rotations, shape("b 2"))):
        name, element = type(group).__name__, transformed(group.exp, "b 1")
        yield from group_claims(group, element, x)
        yield from exp_claims(group, transformed(shorten, "b 1"))
        yield Claim(commutativity(), group.compose, (element, element), name=f"{name}.compose")
        yield Claim(homomorphism(operation=torch.add, into=group.compose), group.exp, angle, name=f"{name}.exp")
        yield Claim(isometric_action(), group.act, (element, x), name=f"{name}.act")
    yield Claim(orthonormality(), rotations.exp, angle, name="SO2.exp")
    yield Claim(homomorphism(operation=torch.mul, into=torch.matmul), complex_to_matrix, number)
    yield Claim(linearity(), lambda x: complex_to_matrix(to_complex(x)), shape("b 2"), name="complex_to_matrix")
    yield Claim(invertibility(inverse=matrix_to_complex), complex_to_matrix, number)
