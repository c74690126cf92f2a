"""The Euclidean group E(d), translations and scalings."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from lawful.groups._helpers import check_last_axes, exp_claims, group_claims
from lawful.groups.group import Group, LieGroup, adjoint_matrix, bracket_matrix, phi1
from lawful.groups.orthogonal import Orthogonal
from lawful.groups.rigid import homogeneous_matrix, rigid_act, rigid_inverse, rotation_and_translation
from lawful.laws import Claim, commutativity, homomorphism, isometric_action, shape, transformed


class Euclidean(LieGroup):
    r"""The Euclidean group: all isometries of $\mathbb{R}^d$, as homogeneous matrices.

    $$g = \begin{bmatrix} R & t \\ 0 & 1 \end{bmatrix}, \qquad R \in \mathrm{O}(d), \qquad g \cdot x = R x + t$$

    Coordinates of the algebra are the velocity $\rho$ of size $d$, then the coordinates $\phi$ of `Orthogonal`:
    $R = e^{\hat \phi}$ and $t = V \rho$ with $V = \int_0^1 e^{s \hat \phi} ds$. `log` raises a ValueError
    for reflections; at angles of $\pi$ it behaves like `Orthogonal.log`.

    Args:
        d: Dimension of the points.

    Examples:
        >>> group = Euclidean(2)
        >>> g = group.exp(torch.tensor([0.0, 3.0, 0.0]))
        >>> group.act(g, torch.tensor([1.0, 0.0]))
        tensor([1., 3.])
    """

    def __init__(self, d: int) -> None:
        self.d = d
        self.orthogonal = Orthogonal(d)

    def subgroups(self) -> tuple[Group, ...]:
        """Returns O(d) and the translations, which generate the group."""
        return self.orthogonal, Translation(self.d)

    @property
    def dim(self) -> int:
        """$d (d + 1) / 2$."""
        return self.d + self.orthogonal.dim

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """Returns the identity matrix, repeated to the batch shape."""
        return torch.eye(self.d + 1, dtype=dtype, device=device).repeat(*batch, 1, 1)

    def _check(self, g: Float[Tensor, "*batch e e"]) -> Float[Tensor, "*batch e e"]:
        return check_last_axes(g, self.d + 1, self.d + 1)

    def compose(self, g: Float[Tensor, "*#batch e e"], h: Float[Tensor, "*#batch e e"]) -> Float[Tensor, "*batch e e"]:
        """Returns $gh$: $h$ acts first, then $g$."""
        return self._check(g) @ self._check(h)

    def inverse(self, g: Float[Tensor, "*batch e e"]) -> Float[Tensor, "*batch e e"]:
        r"""Returns the matrix of $x \mapsto R^\top (x - t)$."""
        return rigid_inverse(self._check(g))

    def act(self, g: Float[Tensor, "*#batch e e"], x: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch d"]:
        """Returns $R x + t$ for the points in the last axis of $x$."""
        return rigid_act(self._check(g), check_last_axes(x, self.d))

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Samples rotations and reflections uniformly, and translations from a standard normal distribution."""
        r = self.orthogonal.sample(*batch, generator=generator, dtype=dtype, device=device)
        return homogeneous_matrix(r, torch.randn(*batch, self.d, generator=generator, dtype=dtype, device=device))

    def distance(self, g: Float[Tensor, "*#batch e e"], h: Float[Tensor, "*#batch e e"]) -> Float[Tensor, "*batch"]:
        r"""Returns $\sqrt{\lVert R_g - R_h \rVert_F^2 + \lVert t_g - t_h \rVert^2}$."""
        return torch.linalg.vector_norm(self._check(g) - self._check(h), dim=(-2, -1))

    def hat(self, v: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch e e"]:
        r"""Returns $\begin{bmatrix} \hat\phi & \rho \\ 0 & 0 \end{bmatrix}$."""
        rho, phi = check_last_axes(v, self.dim).split([self.d, self.orthogonal.dim], -1)
        return torch.nn.functional.pad(torch.cat([self.orthogonal.hat(phi), rho[..., None]], -1), (0, 0, 0, 1))

    def vee(self, a: Float[Tensor, "*batch e e"]) -> Float[Tensor, "*batch n"]:
        r"""Returns $(\rho, \phi)$ of a matrix of the algebra."""
        rotation, rho = rotation_and_translation(self._check(a))
        return torch.cat([rho, self.orthogonal.vee(rotation)], -1)

    def exp(self, v: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch e e"]:
        r"""Returns $e^{\hat v}$."""
        return torch.linalg.matrix_exp(self.hat(v))

    def log(self, g: Float[Tensor, "*batch e e"]) -> Float[Tensor, "*batch n"]:
        """Returns the logarithm of a rotation and translation. Raises a ValueError for reflections."""
        r, t = rotation_and_translation(self._check(g))
        phi = self.orthogonal.log(r)
        left_jacobian = phi1(self.orthogonal.hat(phi))
        return torch.cat([torch.linalg.solve_ex(left_jacobian, t[..., None]).result[..., 0], phi], -1)

    def adjoint(self, g: Float[Tensor, "*batch e e"]) -> Float[Tensor, "*batch n n"]:
        r"""Returns the matrix of $v \mapsto (g \hat v g^{-1})^\vee$."""
        return adjoint_matrix(g, inverse=self.inverse(g), hat=self.hat, vee=self.vee, dim=self.dim)

    def left_jacobian(self, v: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n n"]:
        r"""Returns $J$ with $\exp(v + \delta) \approx \exp(J \delta) \exp(v)$."""
        return phi1(bracket_matrix(v, hat=self.hat, vee=self.vee))


class Translation(LieGroup):
    r"""Translations: vectors under addition.

    $$gh = g + h, \qquad g \cdot x = x + g$$

    `exp` and `log` are the identity, and so are the Jacobians. The group is not compact: `sample` draws from a standard
    normal distribution.

    Args:
        d: Dimension of the points.

    Examples:
        >>> Translation(2).act(torch.tensor([1.0, 0.0]), torch.tensor([[0.0, 0.0], [2.0, 3.0]]))
        tensor([[1., 0.],
                [3., 3.]])
    """

    def __init__(self, d: int) -> None:
        if d < 1:
            raise ValueError(f"d must be at least 1, got {d}")
        self.d = d

    @property
    def dim(self) -> int:
        """$d$."""
        return self.d

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """Returns the zero vector, repeated to the batch shape."""
        return torch.zeros(*batch, self.d, dtype=dtype, device=device)

    def compose(self, g: Float[Tensor, "*#batch d"], h: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch d"]:
        """Returns $g + h$."""
        return check_last_axes(g, self.d) + check_last_axes(h, self.d)

    def inverse(self, g: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Returns $-g$."""
        return -check_last_axes(g, self.d)

    def act(self, g: Float[Tensor, "*#batch d"], x: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch d"]:
        """Adds $g$ to the points in the last axis of $x$."""
        return check_last_axes(x, self.d) + check_last_axes(g, self.d)

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Samples standard normal vectors."""
        return torch.randn(*batch, self.d, generator=generator, dtype=dtype, device=device)

    def distance(self, g: Float[Tensor, "*#batch d"], h: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch"]:
        r"""Returns $\lVert g - h \rVert_2$."""
        return torch.linalg.vector_norm(check_last_axes(g, self.d) - check_last_axes(h, self.d), dim=-1)

    def hat(self, v: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch e e"]:
        """Returns the matrix of size $d + 1$ with last column $(v, 0)$, zero elsewhere."""
        return torch.nn.functional.pad(check_last_axes(v, self.d)[..., None], (self.d, 0, 0, 1))

    def vee(self, a: Float[Tensor, "*batch e e"]) -> Float[Tensor, "*batch d"]:
        """Returns $v$, read from the last column."""
        return check_last_axes(a, self.d + 1, self.d + 1)[..., :-1, -1]

    def exp(self, v: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Returns $v$."""
        return check_last_axes(v, self.d)

    def log(self, g: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Returns $g$."""
        return check_last_axes(g, self.d)

    def adjoint(self, g: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d d"]:
        """Returns the identity matrix: the group is commutative."""
        return torch.eye(self.d, dtype=g.dtype, device=g.device).repeat(*check_last_axes(g, self.d).shape[:-1], 1, 1)

    def left_jacobian(self, v: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d d"]:
        """Returns the identity matrix."""
        return self.adjoint(v)


class Scaling(LieGroup):
    r"""Scalings: positive factors under multiplication.

    $$gh = g \, h, \qquad g \cdot x = g \, x, \qquad g > 0$$

    The group is not compact: `sample` draws from a standard log-normal distribution.

    Examples:
        >>> Scaling().act(torch.tensor(2.0), torch.tensor([1.0, 3.0]))
        tensor([2., 6.])
    """

    @property
    def dim(self) -> int:
        """1."""
        return 1

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """Returns 1, repeated to the batch shape."""
        return torch.ones(batch, dtype=dtype, device=device)

    def compose(self, g: Float[Tensor, "*#batch"], h: Float[Tensor, "*#batch"]) -> Float[Tensor, "*batch"]:
        """Returns the product."""
        return g * h

    def inverse(self, g: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Returns $1 / g$."""
        return 1 / g

    def act(self, g: Float[Tensor, "*#batch"], x: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch d"]:
        """Multiplies the vectors in the last axis of $x$ by $g$."""
        return g[..., None] * x

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Samples from a standard log-normal distribution."""
        return torch.randn(batch, generator=generator, dtype=dtype, device=device).exp()

    def distance(self, g: Float[Tensor, "*#batch"], h: Float[Tensor, "*#batch"]) -> Float[Tensor, "*batch"]:
        r"""Returns $\lvert \log g - \log h \rvert$."""
        return (g.log() - h.log()).abs()

    def hat(self, v: Float[Tensor, "*batch 1"]) -> Float[Tensor, "*batch 1 1"]:
        """Returns the 1 x 1 matrix of $v$."""
        return check_last_axes(v, 1)[..., None]

    def vee(self, a: Float[Tensor, "*batch 1 1"]) -> Float[Tensor, "*batch 1"]:
        """Returns the entry of a 1 x 1 matrix."""
        return check_last_axes(a, 1, 1)[..., 0]

    def exp(self, v: Float[Tensor, "*batch 1"]) -> Float[Tensor, "*batch"]:
        """Returns $e^v$."""
        return check_last_axes(v, 1)[..., 0].exp()

    def log(self, g: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch 1"]:
        r"""Returns $\log g$, NaN for negative factors."""
        return g.log()[..., None]

    def adjoint(self, g: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch 1 1"]:
        """Returns 1: the group is commutative."""
        return torch.ones_like(g)[..., None, None]

    def left_jacobian(self, v: Float[Tensor, "*batch 1"]) -> Float[Tensor, "*batch 1 1"]:
        """Returns the identity matrix."""
        return torch.ones_like(check_last_axes(v, 1))[..., None]


def claims() -> Iterator[Claim]:
    """Laws of E(3), translations and scalings."""
    euclidean, translation, scaling = Euclidean(3), Translation(3), Scaling()

    def to_isometry(x: Tensor) -> Tensor:
        return homogeneous_matrix(torch.linalg.qr(x[..., :3])[0], x[..., 3])

    isometry, factor, vector = (
        transformed(to_isometry, "b 3 4"),
        transformed(lambda x: x.tanh().exp(), "b"),
        shape("b 3"),
    )
    for group, element in ((euclidean, isometry), (translation, vector), (scaling, factor)):
        yield from group_claims(group, element, vector)
    for group, element in ((euclidean, isometry), (translation, vector)):
        yield Claim(isometric_action(), group.act, (element, vector), name=f"{type(group).__name__}.act")
    for group, element in ((translation, vector), (scaling, factor)):
        yield Claim(commutativity(), group.compose, (element, element), name=f"{type(group).__name__}.compose")
    yield from exp_claims(euclidean, transformed(torch.tanh, "b 6"))
    yield from exp_claims(scaling, transformed(torch.tanh, "b 1"))
    yield Claim(homomorphism(operation=scaling.compose, into=torch.add), scaling.log, factor, name="Scaling.log")
