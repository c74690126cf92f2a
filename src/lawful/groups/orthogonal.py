"""O(d): rotations and reflections in any dimension."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from lawful.functions._validation import any_true
from lawful.groups import group as matrices
from lawful.groups.group import LieGroup, axioms, distances, rigidity, sized
from lawful.laws import Claim, agreement, homomorphism, orthonormality, shape, transformed


class Orthogonal(LieGroup):
    r"""Turns and reflects vectors: the matrices whose inverse is their transpose.

    $$\mathrm{O}(d) = \{ g \in \mathbb{R}^{d \times d} : g^\top g = 1 \}$$

    The group has two parts, of determinant $+1$, which `exp` reaches, and $-1$, which it does not: there `log` is
    refused. The algebra is the skew-symmetric matrices, of $d (d - 1) / 2$ coordinates, numbered and signed such that
    $d = 2$ has the angle and $d = 3$ has $\hat v x = v \times x$.

    `log` turns by at most $\pi$ in each plane. Its derivatives are right up to there; where several planes are within
    $\epsilon$ of it, to the digits that a condition number of $1 / \epsilon$ leaves. At $\pi$ itself either direction
    is as short, so that one of them is chosen, and where several planes are turned by $\pi$ one choice of
    planes.

    Args:
        d: The dimension $d$.

    Examples:
        >>> group = Orthogonal(3)
        >>> quarter = group.exp(torch.tensor([0.0, 0.0, torch.pi / 2]))
        >>> group.act(quarter, torch.tensor([1.0, 0.0, 0.0])).round(decimals=3) + 0.0
        tensor([0., 1., 0.])
    """

    def __init__(self, d: int) -> None:
        if d < 1:
            raise ValueError(f"d is at least 1: got {d}")
        self.d = d

    @property
    def dim(self) -> int:
        """$d (d - 1) / 2$, a coordinate for each plane of two axes."""
        return self.d * (self.d - 1) // 2

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """Returns the unit matrix, a batch of copies of it if sizes are given."""
        return torch.eye(self.d, dtype=dtype, device=device).repeat(*batch, 1, 1)

    def compose(self, g: Float[Tensor, "*#batch d d"], h: Float[Tensor, "*#batch d d"]) -> Float[Tensor, "*batch d d"]:
        """Returns $gh$: first $h$, then $g$."""
        return sized(g, self.d, self.d) @ sized(h, self.d, self.d)

    def inverse(self, g: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
        r"""Returns $g^{-1} = g^\top$."""
        return sized(g, self.d, self.d).mT

    def act(self, g: Float[Tensor, "*#batch d d"], x: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch d"]:
        """Multiplies the vectors in the last axis of $x$."""
        return torch.einsum("...ij,...j->...i", sized(g, self.d, self.d), sized(x, self.d))

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Draws uniformly: the Q of a normal matrix, with the signs that make the diagonal of R positive.

        Reference:
            Mezzadri, *How to generate random matrices from the classical compact groups*, 2007.
        """
        normal = torch.randn(*batch, self.d, self.d, generator=generator, dtype=dtype, device=device)
        q, r = torch.linalg.qr(normal)
        return q * torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(q)[..., None, :]

    def distance(self, g: Float[Tensor, "*#batch d d"], h: Float[Tensor, "*#batch d d"]) -> Float[Tensor, "*batch"]:
        r"""Returns the chord $\lVert g - h \rVert_F$, finite between the two parts of the group as well."""
        return torch.linalg.vector_norm(sized(g, self.d, self.d) - sized(h, self.d, self.d), dim=(-2, -1))

    def _entries(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Where the coordinates stand in the flattened matrix, below the diagonal, and with which signs."""
        rows, columns = torch.tril_indices(self.d, self.d, -1, device=like.device).flip(1)
        return rows * self.d + columns, (2 * ((rows + columns) % 2) - 1).to(like)

    def hat(self, v: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch d d"]:
        """Writes coordinates as a skew-symmetric matrix."""
        entries, signs = self._entries(sized(v, self.dim))
        empty = v.new_zeros(*v.shape[:-1], self.d**2)
        lower = empty.index_copy(-1, entries, signs * v).unflatten(-1, (self.d, self.d))
        return lower - lower.mT

    def vee(self, a: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch n"]:
        """Reads the coordinates off the skew-symmetric part of a matrix."""
        entries, signs = self._entries(sized(a, self.d, self.d))
        return signs * ((a - a.mT) / 2).flatten(-2)[..., entries]

    def exp(self, v: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch d d"]:
        r"""Follows the direction $v$: $e^{\hat v}$, a rotation."""
        return _turn(self.hat(v))

    def log(self, g: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch n"]:
        """Returns the shortest direction that leads to a rotation; a reflection is refused.

        The value comes from the planes that are turned. The derivatives are those of two Newton steps from there,
        which have them right up to the third.
        """
        if any_true((determinant := torch.linalg.det(sized(g, self.d, self.d).detach())) < 0):
            raise ValueError(f"log is of rotations, whose determinant is 1: got {determinant.min().item():.3g}")
        v = self.vee(_generator(g.detach().nan_to_num()))
        for _ in range(2):
            jacobian, rest = self.left_jacobian(v), self.vee(g @ self.exp(-v))
            singular = torch.linalg.inv_ex(jacobian.detach()).info != 0  # half turns of two planes may have it so
            one = torch.eye(self.dim, dtype=g.dtype, device=g.device)
            solvable = torch.where(singular[..., None, None], one, jacobian)
            step = torch.linalg.solve_ex(solvable, rest[..., None]).result[..., 0]
            v = v + (step - step.detach())
        return v

    def adjoint(self, g: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch n n"]:
        r"""Returns the matrix of $v \mapsto (g \hat v g^\top)^\vee$."""
        return matrices.adjoint(sized(g, self.d, self.d), inverse=g.mT, hat=self.hat, vee=self.vee, dim=self.dim)

    def left_jacobian(self, v: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n n"]:
        r"""Returns $J$ with $\exp(v + \delta) \approx \exp(J \delta) \exp(v)$."""
        return matrices.exp_mean(matrices.bracket(v, hat=self.hat, vee=self.vee))


def _turn(a: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    r"""Returns $e^A$ of a skew-symmetric matrix, for turns up to $\pi$ to a few units in the last place.

    What is squared is not $e^{A / 8}$, whose ones leave few digits to a small angle, but what it has beyond 1:
    $e^{2 B} - 1 = 2 E + E^2$ with $E = e^B - 1$. A Newton step to the nearest orthogonal matrix follows.
    """
    one, small = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device), a / 8
    beyond = small @ matrices.exp_mean(small)
    for _ in range(3):
        beyond = 2 * beyond + beyond @ beyond
    g = one + beyond
    return g + g @ (one - g.mT @ g) / 2


def _generator(g: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    """Finds the planes that a rotation turns, as the eigenvectors give them, and by how much.

    Half turns have real eigenvalues, -1, an even number of them: sorted to the front, any two of them are a plane.
    Two last steps make up for what rounding left. Half of the turn is undone from either side, so that what remains
    is never more than what is wanting, whatever the angles.
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
        back = _turn(-a / 2)
        rest = back @ g @ back
        a = a + (rest - rest.mT) / 2
    return a


def claims() -> Iterator[Claim]:
    """The laws that O(d) obeys."""
    group, spatial = Orthogonal(4), Orthogonal(3)
    element = transformed(lambda x: torch.linalg.qr(x)[0], "b 4 4")
    yield from axioms(group, element, shape("b 4"))
    yield from distances(group, element)
    yield Claim(rigidity(), group.act, (element, shape("b 4")), name="Orthogonal.act")
    yield Claim(homomorphism(operation=group.compose), torch.linalg.det, element, name="det of Orthogonal.compose")

    def turn(v: Tensor) -> Tensor:
        return group.exp(v.tanh())

    yield Claim(orthonormality(), turn, shape("b 6"), name="Orthogonal.exp")

    def there_and_back(v: Tensor, c: Tensor) -> Tensor:
        """The log of exp, and what backpropagation makes of c."""
        with torch.enable_grad():
            v = v.tanh().detach().requires_grad_()
            w = group.log(group.exp(v))
            return torch.stack([w.detach(), *torch.autograd.grad(w, v, c.tanh())])

    def unchanged(v: Tensor, c: Tensor) -> Tensor:
        return torch.stack([v.tanh(), c.tanh()])

    few = shape("b:1..3 6")
    yield Claim(agreement(other=unchanged), there_and_back, (few, few), name="Orthogonal.log of exp and its gradient")

    def carried(g: Tensor, v: Tensor) -> Tensor:
        return group.exp((group.adjoint(g) @ v.tanh()[..., None])[..., 0])

    def conjugated(g: Tensor, v: Tensor) -> Tensor:
        return g @ turn(v) @ g.mT

    yield Claim(agreement(other=conjugated), carried, (element, shape("b 6")), name="Orthogonal.adjoint")

    def crossed(v: Tensor, x: Tensor) -> Tensor:
        return torch.linalg.cross(v, x, dim=-1)

    def hatted(v: Tensor, x: Tensor) -> Tensor:
        return spatial.act(spatial.hat(v), x)

    yield Claim(agreement(other=crossed), hatted, (shape("b 3"), shape("b 3")), name="Orthogonal(3).hat")

    def moved(v: Tensor, w: Tensor) -> Tensor:
        """The derivative of exp along w, a corner of an exponential of twice the size, turned back to the identity."""
        a, b = group.hat(v.tanh()), group.hat(w.tanh())
        both = torch.cat([torch.cat([a, b], -1), torch.cat([torch.zeros_like(a), a], -1)], -2)
        return group.vee(torch.linalg.matrix_exp(both)[..., :4, 4:] @ turn(v).mT)

    def jacobian(v: Tensor, w: Tensor) -> Tensor:
        return (group.left_jacobian(v.tanh()) @ w.tanh()[..., None])[..., 0]

    yield Claim(agreement(other=moved), jacobian, (shape("b 6"), shape("b 6")), name="Orthogonal.left_jacobian")
