"""O(d): rotations and reflections in any dimension, as orthogonal matrices."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from lawful.groups._helpers import check_last_axes, check_rotation, exp_claims, group_claims
from lawful.groups.group import Group, LieGroup, adjoint_matrix, bracket_matrix, phi1
from lawful.groups.so2 import SO2
from lawful.groups.so3 import SO3
from lawful.laws import Claim, homomorphism, isometric_action, orthonormality, shape, transformed


class Orthogonal(LieGroup):
    r"""The orthogonal group: matrices whose inverse is their transpose.

    $$\mathrm{O}(d) = \{ g \in \mathbb{R}^{d \times d} : g^\top g = 1 \}$$

    `exp` reaches the component with determinant $+1$; `log` raises a ValueError for determinant $-1$. The algebra is
    the skew-symmetric matrices. Its $d (d - 1) / 2$ coordinates are ordered and signed such that $d = 2$ has the angle
    and $d = 3$ has $\hat v x = v \times x$.

    Numerics: `log` rotates by at most $\pi$ in each plane, with accurate derivatives below $\pi$. If several angles are
    within $\epsilon$ of $\pi$, the condition number is $1 / \epsilon$. At $\pi$ the logarithm is not unique, and one of
    the shortest is returned.

    Args:
        d: Dimension of the vectors.

    Examples:
        >>> group = Orthogonal(3)
        >>> quarter = group.exp(torch.tensor([0.0, 0.0, torch.pi / 2]))
        >>> group.act(quarter, torch.tensor([1.0, 0.0, 0.0])).round(decimals=3) + 0.0
        tensor([0., 1., 0.])
    """

    def __init__(self, d: int) -> None:
        if d < 1:
            raise ValueError(f"d must be at least 1, got {d}")
        self.d = d

    def subgroups(self) -> tuple[Group, ...]:
        """Returns the rotations, in two and three dimensions."""
        return (SO2(),) if self.d == 2 else (SO3(),) if self.d == 3 else ()

    @property
    def dim(self) -> int:
        """$d (d - 1) / 2$."""
        return self.d * (self.d - 1) // 2

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """Returns the identity matrix, repeated to the batch shape."""
        return torch.eye(self.d, dtype=dtype, device=device).repeat(*batch, 1, 1)

    def compose(self, g: Float[Tensor, "*#batch d d"], h: Float[Tensor, "*#batch d d"]) -> Float[Tensor, "*batch d d"]:
        """Returns $gh$: $h$ acts first, then $g$."""
        return check_last_axes(g, self.d, self.d) @ check_last_axes(h, self.d, self.d)

    def inverse(self, g: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
        r"""Returns $g^{-1} = g^\top$."""
        return check_last_axes(g, self.d, self.d).mT

    def act(self, g: Float[Tensor, "*#batch d d"], x: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch d"]:
        """Multiplies the vectors in the last axis of $x$ by $g$."""
        return torch.einsum("...ij,...j->...i", check_last_axes(g, self.d, self.d), check_last_axes(x, self.d))

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Samples uniformly (Haar measure): Q of the QR decomposition of a normal matrix, with positive diagonal of R.

        Reference:
            Mezzadri, *How to generate random matrices from the classical compact groups*, 2007.
        """
        normal = torch.randn(*batch, self.d, self.d, generator=generator, dtype=dtype, device=device)
        q, r = torch.linalg.qr(normal)
        return q * torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(q)[..., None, :]

    def distance(self, g: Float[Tensor, "*#batch d d"], h: Float[Tensor, "*#batch d d"]) -> Float[Tensor, "*batch"]:
        r"""Returns $\lVert g - h \rVert_F$, which is finite between the two components too."""
        return torch.linalg.vector_norm(
            check_last_axes(g, self.d, self.d) - check_last_axes(h, self.d, self.d), dim=(-2, -1)
        )

    def _entries(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the indices of the coordinates in the flattened lower triangle, and their signs."""
        rows, columns = torch.tril_indices(self.d, self.d, -1, device=like.device).flip(1)
        return rows * self.d + columns, (2 * ((rows + columns) % 2) - 1).to(like)

    def hat(self, v: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch d d"]:
        """Returns the skew-symmetric matrix of the coordinates."""
        entries, signs = self._entries(check_last_axes(v, self.dim))
        empty = v.new_zeros(*v.shape[:-1], self.d**2)
        lower = empty.index_copy(-1, entries, signs * v).unflatten(-1, (self.d, self.d))
        return lower - lower.mT

    def vee(self, a: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch n"]:
        """Returns the coordinates of the skew-symmetric part of a matrix."""
        entries, signs = self._entries(check_last_axes(a, self.d, self.d))
        return signs * ((a - a.mT) / 2).flatten(-2)[..., entries]

    def exp(self, v: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch d d"]:
        r"""Returns the rotation $e^{\hat v}$."""
        return _skew_exp(self.hat(v))

    def log(self, g: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch n"]:
        """Returns the shortest logarithm of a rotation.

        Numerics: the value comes from the eigenvectors. Two Newton steps from there give derivatives that are accurate
        up to third order.

        Raises:
            ValueError: If a matrix is not a rotation.
        """
        matrix = check_last_axes(g, self.d, self.d).detach()
        error = (matrix.mT @ matrix - torch.eye(self.d, dtype=g.dtype, device=g.device)).abs().amax((-2, -1))
        check_rotation(g, error + (torch.linalg.det(matrix) < 0))
        v = self.vee(_log_from_eigenvectors(g.detach().nan_to_num()))
        for _ in range(2):
            jacobian, residual = self.left_jacobian(v), self.vee(g @ self.exp(-v))
            singular = torch.linalg.inv_ex(jacobian.detach()).info != 0  # possible if two angles are π
            one = torch.eye(self.dim, dtype=g.dtype, device=g.device)
            solvable = torch.where(singular[..., None, None], one, jacobian)
            step = torch.linalg.solve_ex(solvable, residual[..., None]).result[..., 0]
            v = v + (step - step.detach())
        return v

    def adjoint(self, g: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch n n"]:
        r"""Returns the matrix of $v \mapsto (g \hat v g^\top)^\vee$."""
        return adjoint_matrix(
            check_last_axes(g, self.d, self.d), inverse=g.mT, hat=self.hat, vee=self.vee, dim=self.dim
        )

    def left_jacobian(self, v: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n n"]:
        r"""Returns $J$ with $\exp(v + \delta) \approx \exp(J \delta) \exp(v)$."""
        return phi1(bracket_matrix(v, hat=self.hat, vee=self.vee))


def _skew_exp(a: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    r"""Returns $e^A$ of a skew-symmetric matrix, accurate to a few units in the last place for angles up to $\pi$.

    Numerics: scaling and squaring of $E = e^B - 1$, by $e^{2 B} - 1 = 2 E + E^2$, which keeps the digits of small
    angles. A Newton step to the nearest orthogonal matrix follows.
    """
    one, scaled = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device), a / 8
    expm1 = scaled @ phi1(scaled)
    for _ in range(3):
        expm1 = 2 * expm1 + expm1 @ expm1
    g = one + expm1
    return g + g @ (one - g.mT @ g) / 2


def _log_from_eigenvectors(g: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    """Returns the logarithm of a rotation from the planes and angles of its eigenvectors.

    An angle of π has two real eigenvalues -1; sorted to the front, any two of their eigenvectors span a plane. Two
    correction steps remove rounding errors. They undo half of the rotation from either side, which is stable for all
    angles.
    """
    values, vectors = torch.linalg.eig(g)
    real = torch.where((values.imag < 0)[..., None, :], vectors.imag, vectors.real)
    kind = torch.where(values.imag != 0, 1, torch.where(values.real < 0, 0, 2))
    order = kind.argsort(dim=-1, stable=True)
    frame = torch.linalg.qr(torch.take_along_dim(real, order[..., None, :], -1))[0]
    planes = g.shape[-1] // 2
    x, y = frame[..., 0 : 2 * planes : 2], frame[..., 1 : 2 * planes : 2]
    sine, cosine = (y * (g @ x) - x * (g @ y)).sum(-2), (x * (g @ x) + y * (g @ y)).sum(-2)
    half = (y * torch.atan2(sine, cosine)[..., None, :]) @ x.mT
    a = half - half.mT
    for _ in range(2):
        undo = _skew_exp(-a / 2)
        remainder = undo @ g @ undo
        a = a + (remainder - remainder.mT) / 2
    return a


def claims() -> Iterator[Claim]:
    """Laws of O(4)."""
    group, element = Orthogonal(4), transformed(lambda x: torch.linalg.qr(x)[0], "b 4 4")
    yield from group_claims(group, element, shape("b 4"))
    yield from exp_claims(group, transformed(torch.tanh, "b:1..3 6"))
    yield Claim(orthonormality(), lambda v: group.exp(v.tanh()), shape("b 6"), name="Orthogonal.exp")
    yield Claim(homomorphism(operation=group.compose), torch.linalg.det, element, name="det of Orthogonal.compose")
    yield Claim(isometric_action(), group.act, (element, shape("b 4")), name="Orthogonal.act")
