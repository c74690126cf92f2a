"""SU(2): unit quaternions written as complex matrices."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Complex, Float
from torch import Generator, Tensor

from lawful.groups.distances import distances
from lawful.groups.group import LieGroup, axioms, sized, smooth_axioms
from lawful.groups.rotations.quaternions import UnitQuaternions, quaternion_product
from lawful.groups.rotations.series import within
from lawful.laws import Claim, agreement, homomorphism, linearity, made, shape

UNIT = UnitQuaternions()


def quaternion_to_complex_matrix(q: Float[Tensor, "*batch 4"]) -> Complex[Tensor, "*batch 2 2"]:
    r"""Writes quaternions as complex matrices, which add and multiply as they do.

    $$a + b\mathbf{i} + c\mathbf{j} + d\mathbf{k} \;\mapsto\;
    \begin{bmatrix} a + id & -b - ic \\ b - ic & a - id \end{bmatrix}, \qquad
    \mathbf{i} = \begin{bmatrix} 0 & -1 \\ 1 & 0 \end{bmatrix}, \;
    \mathbf{j} = \begin{bmatrix} 0 & -i \\ -i & 0 \end{bmatrix}, \;
    \mathbf{k} = \begin{bmatrix} i & 0 \\ 0 & -i \end{bmatrix}$$

    The determinant is $a^2 + b^2 + c^2 + d^2$.

    Args:
        q: The quaternion $(a, b, c, d)$.

    Examples:
        >>> quaternion_to_complex_matrix(torch.tensor([0.0, 0.0, 0.0, 1.0])) + 0.0
        tensor([[0.+1.j, 0.+0.j],
                [0.+0.j, 0.-1.j]])
    """
    a, b, c, d = sized(q, 4).unbind(-1)
    real, imaginary = torch.stack([a, -b, b, a], dim=-1), torch.stack([d, -c, -c, -d], dim=-1)
    return torch.complex(real, imaginary).unflatten(-1, (2, 2))


def complex_matrix_to_quaternion(m: Complex[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch 4"]:
    """Reads the quaternion off such a matrix: the inverse of `quaternion_to_complex_matrix`.

    Args:
        m: The matrix; of others the nearest one of that form is taken.

    Examples:
        >>> complex_matrix_to_quaternion(torch.eye(2, dtype=torch.complex64)) + 0.0
        tensor([1., 0., 0., 0.])
    """
    w, x, y, z = sized(m, 2, 2).flatten(-2).unbind(-1)
    return torch.stack([(w + z).real, (y - x).real, -(x + y).imag, (w - z).imag], dim=-1) / 2


class SU2(LieGroup):
    r"""Turns complex vectors of two entries: $\mathrm{SU}(2) = \{ U : U^* U = 1, \det U = 1 \}$.

    The matrices of `quaternion_to_complex_matrix`, with the algebra of `UnitQuaternions`: rotation vectors, with
    $\hat v = \tfrac12 (v_1 \mathbf{i} + v_2 \mathbf{j} + v_3 \mathbf{k})$. So $\exp(v)$ turns space as `SO3().exp(v)`
    does, and `log`, `distance` and the Jacobians are those of the quaternion.

    Examples:
        >>> SU2().exp(torch.tensor([0.0, 0.0, 2 * torch.pi])).real.round(decimals=3) + 0.0
        tensor([[-1., 0.],
                [ 0., -1.]])
    """

    @property
    def dim(self) -> int:
        """3, as of SO(3)."""
        return 3

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Complex[Tensor, "*batch 2 2"]:
        """Returns the unit matrix, a batch of copies of it if sizes are given; of a real type, as `sample`."""
        return torch.eye(2, dtype=(dtype or torch.get_default_dtype()).to_complex(), device=device).repeat(*batch, 1, 1)

    def compose(
        self, g: Complex[Tensor, "*#batch 2 2"], h: Complex[Tensor, "*#batch 2 2"]
    ) -> Complex[Tensor, "*batch 2 2"]:
        """Returns $gh$: first $h$, then $g$."""
        return sized(g, 2, 2) @ sized(h, 2, 2)

    def inverse(self, g: Complex[Tensor, "*batch 2 2"]) -> Complex[Tensor, "*batch 2 2"]:
        r"""Returns $g^{-1} = g^*$."""
        return sized(g, 2, 2).mH

    def act(self, g: Complex[Tensor, "*#batch 2 2"], x: Complex[Tensor, "*#batch 2"]) -> Complex[Tensor, "*batch 2"]:
        """Multiplies the complex vectors in the last axis of $x$."""
        return (sized(g, 2, 2) @ sized(x, 2)[..., None])[..., 0]

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Complex[Tensor, "*batch 2 2"]:
        """Draws uniformly (Haar), as unit quaternions are drawn; of a real type, complex numbers of its precision."""
        real = None if dtype is None else dtype.to_real()
        return quaternion_to_complex_matrix(UNIT.sample(*batch, generator=generator, dtype=real, device=device))

    def distance(self, g: Complex[Tensor, "*#batch 2 2"], h: Complex[Tensor, "*#batch 2 2"]) -> Float[Tensor, "*batch"]:
        r"""Returns the angle of the rotation from one to the other, 0 to $2\pi$."""
        return UNIT.distance(complex_matrix_to_quaternion(g), complex_matrix_to_quaternion(h))

    def hat(self, v: Float[Tensor, "*batch 3"]) -> Complex[Tensor, "*batch 2 2"]:
        r"""Writes $v$ as $\tfrac12 (v_1 \mathbf{i} + v_2 \mathbf{j} + v_3 \mathbf{k})$."""
        return quaternion_to_complex_matrix(UNIT.hat(v))

    def vee(self, a: Complex[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch 3"]:
        """Reads $v$ off a matrix of the algebra."""
        return UNIT.vee(complex_matrix_to_quaternion(a))

    def exp(self, v: Float[Tensor, "*batch 3"]) -> Complex[Tensor, "*batch 2 2"]:
        r"""Follows the direction $v$: $e^{\hat v}$."""
        return quaternion_to_complex_matrix(UNIT.exp(v))

    def log(self, g: Complex[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch 3"]:
        r"""Returns the rotation vector that leads to $g$, $\lVert v \rVert \le 2\pi$."""
        return UNIT.log(complex_matrix_to_quaternion(g))

    def adjoint(self, g: Complex[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns the rotation matrix of $v \mapsto (g \hat v g^{-1})^\vee$."""
        return UNIT.adjoint(complex_matrix_to_quaternion(g))

    def left_jacobian(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $J$ with $\exp(v + \delta) \approx \exp(J \delta) \exp(v)$, as of SO(3)."""
        return UNIT.left_jacobian(v)

    def left_jacobian_inverse(self, v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        r"""Returns $J^{-1}$ with $\log(\exp(\delta) \exp(v)) \approx v + J^{-1} \delta$, as of SO(3)."""
        return UNIT.left_jacobian_inverse(v)


def claims() -> Iterator[Claim]:
    """The laws that SU(2) obeys, and quaternions as complex matrices."""
    group = SU2()

    def squared_length(q: Tensor) -> Tensor:
        return q.square().sum(-1).to(q.dtype.to_complex())

    def determinant(q: Tensor) -> Tensor:
        m = quaternion_to_complex_matrix(q)
        return m[..., 0, 0] * m[..., 1, 1] - m[..., 0, 1] * m[..., 1, 0]

    for law in (linearity(), homomorphism(operation=quaternion_product, into=torch.matmul)):
        yield Claim(law, quaternion_to_complex_matrix, shape("b 4"))
    yield Claim(agreement(other=squared_length), determinant, shape("b 4"), name="det of quaternion_to_complex_matrix")
    element, vectors = made(group.exp, "b 3"), made(torch.view_as_complex, "b 2 2")

    def written_out(g: Tensor, x: Tensor) -> Tensor:
        return g[..., 0] * x[..., :1] + g[..., 1] * x[..., 1:]

    yield Claim(agreement(other=written_out), group.act, (element, vectors), name="SU2.act")
    yield from axioms(group, element, vectors)
    yield from distances(group, element)
    yield from smooth_axioms(group, made(lambda v: 2 * within(v), "b 3"))
