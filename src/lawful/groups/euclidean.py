"""E(d): rotations, reflections and translations, whatever keeps distances.

Translations: vectors under addition.
Scalings: positive factors under multiplication.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from lawful.groups import group as matrices
from lawful.groups.group import LieGroup, axioms, distances, rigidity, sized
from lawful.groups.orthogonal import Orthogonal
from lawful.groups.rigid import parts, rigid, rigid_act, rigid_inverse
from lawful.laws import Claim, agreement, commutativity, homomorphism, invertibility, shape, transformed


class Euclidean(LieGroup):
    r"""Turns or reflects points, and then moves them: the maps of space that keep distances.

    $$g = \begin{bmatrix} R & t \\ 0 & 1 \end{bmatrix}, \qquad R \in \mathrm{O}(d), \qquad g \cdot x = R x + t$$

    The coordinates of the algebra are the $d$ of the velocity $\rho$, then those of the turn $\phi$ in
    `Orthogonal`. Of these, `exp` makes $R = e^{\hat \phi}$ and $t = V \rho$ with $V$ the mean of $e^{s \hat \phi}$ over
    $0 \le s \le 1$. Reflections are out of its reach, and `log` refuses them. What it does at half turns is as in
    `Orthogonal`.

    Args:
        d: The dimension $d$.

    Examples:
        >>> group = Euclidean(2)
        >>> g = group.exp(torch.tensor([0.0, 3.0, 0.0]))
        >>> group.act(g, torch.tensor([1.0, 0.0]))
        tensor([1., 3.])
    """

    def __init__(self, d: int) -> None:
        self.d = d
        self.orthogonal = Orthogonal(d)

    @property
    def dim(self) -> int:
        """$d (d + 1) / 2$."""
        return self.d + self.orthogonal.dim

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """Returns the unit matrix, a batch of copies of it if sizes are given."""
        return torch.eye(self.d + 1, dtype=dtype, device=device).repeat(*batch, 1, 1)

    def _sized(self, g: Float[Tensor, "*batch e e"]) -> Float[Tensor, "*batch e e"]:
        return sized(g, self.d + 1, self.d + 1)

    def compose(self, g: Float[Tensor, "*#batch e e"], h: Float[Tensor, "*#batch e e"]) -> Float[Tensor, "*batch e e"]:
        """Returns $gh$: first $h$, then $g$."""
        return self._sized(g) @ self._sized(h)

    def inverse(self, g: Float[Tensor, "*batch e e"]) -> Float[Tensor, "*batch e e"]:
        r"""Returns the matrix of $x \mapsto R^\top (x - t)$."""
        return rigid_inverse(self._sized(g))

    def act(self, g: Float[Tensor, "*#batch e e"], x: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch d"]:
        """Moves the points in the last axis of $x$."""
        return rigid_act(self._sized(g), sized(x, self.d))

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Draws the rotation or reflection uniformly, and the translation, which cannot be, standard normal."""
        r = self.orthogonal.sample(*batch, generator=generator, dtype=dtype, device=device)
        return rigid(r, torch.randn(*batch, self.d, generator=generator, dtype=dtype, device=device))

    def distance(self, g: Float[Tensor, "*#batch e e"], h: Float[Tensor, "*#batch e e"]) -> Float[Tensor, "*batch"]:
        r"""Returns $\sqrt{\lVert R_g - R_h \rVert_F^2 + \lVert t_g - t_h \rVert^2}$."""
        return torch.linalg.vector_norm(self._sized(g) - self._sized(h), dim=(-2, -1))

    def hat(self, v: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch e e"]:
        r"""Writes $(\rho, \phi)$ as the matrix of $\hat \phi$ and $\rho$, with a last row of zeros."""
        rho, phi = sized(v, self.dim).split([self.d, self.orthogonal.dim], -1)
        return torch.nn.functional.pad(torch.cat([self.orthogonal.hat(phi), rho[..., None]], -1), (0, 0, 0, 1))

    def vee(self, a: Float[Tensor, "*batch e e"]) -> Float[Tensor, "*batch n"]:
        r"""Reads $(\rho, \phi)$ off such a matrix."""
        turn, rho = parts(self._sized(a))
        return torch.cat([rho, self.orthogonal.vee(turn)], -1)

    def exp(self, v: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch e e"]:
        r"""Follows the direction $v$: $e^{\hat v}$, a rotation and a translation."""
        return torch.linalg.matrix_exp(self.hat(v))

    def log(self, g: Float[Tensor, "*batch e e"]) -> Float[Tensor, "*batch n"]:
        """Returns the direction that leads to a rotation and translation; a reflection is refused."""
        r, t = parts(self._sized(g))
        phi = self.orthogonal.log(r)
        mean = matrices.exp_mean(self.orthogonal.hat(phi))
        return torch.cat([torch.linalg.solve_ex(mean, t[..., None]).result[..., 0], phi], -1)

    def adjoint(self, g: Float[Tensor, "*batch e e"]) -> Float[Tensor, "*batch n n"]:
        r"""Returns the matrix of $v \mapsto (g \hat v g^{-1})^\vee$."""
        return matrices.adjoint(g, inverse=self.inverse(g), hat=self.hat, vee=self.vee, dim=self.dim)

    def left_jacobian(self, v: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n n"]:
        r"""Returns $J$ with $\exp(v + \delta) \approx \exp(J \delta) \exp(v)$."""
        return matrices.exp_mean(matrices.bracket(v, hat=self.hat, vee=self.vee))


def _euclidean_claims() -> Iterator[Claim]:
    """The laws that E(d) obeys."""
    group = Euclidean(3)

    def placed(x: Tensor) -> Tensor:
        return rigid(torch.linalg.qr(x[..., :3])[0], x[..., 3])

    element = transformed(placed, "b 3 4")
    yield from axioms(group, element, shape("b 3"))
    yield from distances(group, element)
    yield Claim(rigidity(), group.act, (element, shape("b 3")), name="Euclidean.act")

    def step(v: Tensor) -> Tensor:
        return group.exp(v.tanh())

    yield Claim(agreement(other=torch.tanh), lambda v: group.log(step(v)), shape("b 6"), name="Euclidean.log of exp")

    def carried(g: Tensor, v: Tensor) -> Tensor:
        return group.exp((group.adjoint(g) @ v.tanh()[..., None])[..., 0])

    def conjugated(g: Tensor, v: Tensor) -> Tensor:
        return g @ step(v) @ torch.linalg.inv(g)

    within = transformed(lambda x: placed(x.tanh()), "b 3 4")
    yield Claim(agreement(other=conjugated), carried, (within, shape("b 6")), name="Euclidean.adjoint")

    def moved(v: Tensor, w: Tensor) -> Tensor:
        """The derivative of exp along w, a corner of an exponential of twice the size, moved back to the identity."""
        a, b = group.hat(v.tanh()), group.hat(w.tanh())
        both = torch.cat([torch.cat([a, b], -1), torch.cat([torch.zeros_like(a), a], -1)], -2)
        return group.vee(torch.linalg.matrix_exp(both)[..., :4, 4:] @ group.inverse(step(v)))

    def jacobian(v: Tensor, w: Tensor) -> Tensor:
        return (group.left_jacobian(v.tanh()) @ w.tanh()[..., None])[..., 0]

    yield Claim(agreement(other=moved), jacobian, (shape("b 6"), shape("b 6")), name="Euclidean.left_jacobian")


class Translation(LieGroup):
    r"""Moves points by a vector.

    $$gh = g + h, \qquad g \cdot x = x + g$$

    The group is flat: `exp` and `log` change nothing, and the Jacobians are the unit matrix. It is not compact, so
    that no draw is uniform: `sample` draws from the standard normal distribution.

    Args:
        d: The dimension $d$.

    Examples:
        >>> Translation(2).act(torch.tensor([1.0, 0.0]), torch.tensor([[0.0, 0.0], [2.0, 3.0]]))
        tensor([[1., 0.],
                [3., 3.]])
    """

    def __init__(self, d: int) -> None:
        if d < 1:
            raise ValueError(f"d is at least 1: got {d}")
        self.d = d

    @property
    def dim(self) -> int:
        """$d$."""
        return self.d

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """Returns the zero vector, a batch of it if sizes are given."""
        return torch.zeros(*batch, self.d, dtype=dtype, device=device)

    def compose(self, g: Float[Tensor, "*#batch d"], h: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch d"]:
        """Returns $g + h$."""
        return sized(g, self.d) + sized(h, self.d)

    def inverse(self, g: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Returns $-g$."""
        return -sized(g, self.d)

    def act(self, g: Float[Tensor, "*#batch d"], x: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch d"]:
        """Adds $g$ to the points in the last axis of $x$."""
        return sized(x, self.d) + sized(g, self.d)

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Draws standard normal vectors."""
        return torch.randn(*batch, self.d, generator=generator, dtype=dtype, device=device)

    def distance(self, g: Float[Tensor, "*#batch d"], h: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch"]:
        r"""Returns $\lVert g - h \rVert_2$."""
        return torch.linalg.vector_norm(sized(g, self.d) - sized(h, self.d), dim=-1)

    def hat(self, v: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch e e"]:
        """Writes $v$ as the last column of a matrix of size $d + 1$, zero elsewhere."""
        return torch.nn.functional.pad(sized(v, self.d)[..., None], (self.d, 0, 0, 1))

    def vee(self, a: Float[Tensor, "*batch e e"]) -> Float[Tensor, "*batch d"]:
        """Reads $v$ off the last column."""
        return sized(a, self.d + 1, self.d + 1)[..., :-1, -1]

    def exp(self, v: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Returns $v$."""
        return sized(v, self.d)

    def log(self, g: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Returns $g$."""
        return sized(g, self.d)

    def adjoint(self, g: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d d"]:
        """Returns the unit matrix: the order of translations makes no difference."""
        return torch.eye(self.d, dtype=g.dtype, device=g.device).repeat(*sized(g, self.d).shape[:-1], 1, 1)

    def left_jacobian(self, v: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d d"]:
        """Returns the unit matrix."""
        return self.adjoint(v)


def _translation_claims() -> Iterator[Claim]:
    """The laws that translations obey."""
    group, element = Translation(3), shape("b 3")
    yield from axioms(group, element, shape("b 3"))
    yield from distances(group, element)
    yield Claim(commutativity(), group.compose, (element, element), name="Translation.compose")
    yield Claim(rigidity(), group.act, (element, shape("b 3")), name="Translation.act")
    yield Claim(invertibility(inverse=group.vee), group.hat, shape("b 3"), name="Translation.hat")

    def homogeneous(g: Tensor, x: Tensor) -> Tensor:
        return (torch.linalg.matrix_exp(group.hat(g)) @ torch.nn.functional.pad(x, (0, 1), value=1.0)[..., None])[
            ..., :3, 0
        ]

    yield Claim(agreement(other=homogeneous), group.act, (element, shape("b 3")), name="Translation.act = exp(hat)")

    def found(g: Tensor, h: Tensor) -> Tensor:
        frames = group.adjoint(g) + 2 * group.left_jacobian(h) + group.dim
        numbers = torch.stack([group.exp(g), group.log(h), group.distance(g, h)[..., None].expand_as(g)], -2)
        return torch.cat([frames, numbers], -2)

    def expected(g: Tensor, h: Tensor) -> Tensor:
        frames = (3 * torch.eye(3).to(g) + 3).expand(*g.shape, 3)
        apart = (g - h).square().sum(-1, keepdim=True).sqrt().expand_as(g)
        return torch.cat([frames, torch.stack([g, h, apart], -2)], -2)

    def drawn(x: Tensor) -> Tensor:
        many = group.sample(50, 40, generator=torch.Generator().manual_seed(0)).flatten(0, 1).to(x)
        return torch.cat([many.mean(0)[None], many.T.cov()])

    def standard(x: Tensor) -> Tensor:
        return torch.cat([x.new_zeros(1, 3), torch.eye(3).to(x)])

    yield Claim(agreement(other=expected), found, (element, element), name="Translation and its algebra")
    yield Claim(agreement(other=standard, rtol=0.1), drawn, shape("1"), name="Translation.sample")


class Scaling(LieGroup):
    r"""Makes vectors longer or shorter by a positive factor.

    $$gh = g \, h, \qquad g \cdot x = g \, x, \qquad g > 0$$

    The logarithm turns products into sums, so that the distance is $\lvert \log g - \log h \rvert$. The group is not
    compact, so that no draw is uniform: `sample` draws factors whose logarithms are standard normal.

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
        """Returns 1, a batch of it if sizes are given."""
        return torch.ones(batch, dtype=dtype, device=device)

    def compose(self, g: Float[Tensor, "*#batch"], h: Float[Tensor, "*#batch"]) -> Float[Tensor, "*batch"]:
        """Returns the product."""
        return g * h

    def inverse(self, g: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Returns $1 / g$."""
        return 1 / g

    def act(self, g: Float[Tensor, "*#batch"], x: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch d"]:
        """Multiplies the vectors in the last axis of $x$."""
        return g[..., None] * x

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Draws factors whose logarithms are standard normal."""
        return torch.randn(batch, generator=generator, dtype=dtype, device=device).exp()

    def distance(self, g: Float[Tensor, "*#batch"], h: Float[Tensor, "*#batch"]) -> Float[Tensor, "*batch"]:
        r"""Returns $\lvert \log g - \log h \rvert$."""
        return (g.log() - h.log()).abs()

    def hat(self, v: Float[Tensor, "*batch 1"]) -> Float[Tensor, "*batch 1 1"]:
        """Writes $v$ as a matrix of one entry."""
        return sized(v, 1)[..., None]

    def vee(self, a: Float[Tensor, "*batch 1 1"]) -> Float[Tensor, "*batch 1"]:
        """Reads that entry off."""
        return sized(a, 1, 1)[..., 0]

    def exp(self, v: Float[Tensor, "*batch 1"]) -> Float[Tensor, "*batch"]:
        """Returns $e^v$."""
        return sized(v, 1)[..., 0].exp()

    def log(self, g: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch 1"]:
        r"""Returns $\log g$; of a factor that is not positive it is not a number."""
        return g.log()[..., None]

    def adjoint(self, g: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch 1 1"]:
        """Returns the unit matrix: the order of factors makes no difference."""
        return torch.ones_like(g)[..., None, None]

    def left_jacobian(self, v: Float[Tensor, "*batch 1"]) -> Float[Tensor, "*batch 1 1"]:
        """Returns the unit matrix."""
        return torch.ones_like(sized(v, 1))[..., None]


def _scaling_claims() -> Iterator[Claim]:
    """The laws that scalings obey."""
    group = Scaling()

    def factor(x: Tensor) -> Tensor:
        return x.tanh().exp()

    element = transformed(factor, "b")
    yield from axioms(group, element, shape("b 3"))
    yield from distances(group, element)
    yield Claim(commutativity(), group.compose, (element, element), name="Scaling.compose")
    yield Claim(homomorphism(operation=group.compose, into=torch.add), group.log, element, name="Scaling.log")
    yield Claim(invertibility(inverse=group.exp), group.log, element, name="Scaling.exp")

    def longer(g: Tensor, x: Tensor) -> Tensor:
        return g * torch.linalg.vector_norm(x, dim=-1)

    def length(g: Tensor, x: Tensor) -> Tensor:
        return torch.linalg.vector_norm(group.act(g, x), dim=-1)

    yield Claim(agreement(other=longer), length, (element, shape("b 3")), name="‖Scaling.act‖")

    def found(v: Tensor) -> Tensor:
        v, g, one = v.tanh(), group.exp(v.tanh()), group.identity(len(v)).to(v)
        numbers = (group.vee(group.hat(v)), group.log(g), group.adjoint(g)[..., 0], group.left_jacobian(v)[..., 0])
        return torch.cat([*numbers, group.distance(g, one)[..., None], torch.full_like(v, group.dim)], -1)

    def expected(v: Tensor) -> Tensor:
        v, one = v.tanh(), torch.ones_like(v)
        return torch.cat([v, v, one, one, v.abs(), one], -1)

    yield Claim(agreement(other=expected), found, shape("b 1"), name="Scaling and its algebra")

    def drawn(x: Tensor) -> Tensor:
        logs = group.sample(50, 40, generator=torch.Generator().manual_seed(0)).log().to(x)
        return torch.stack([logs.mean(), logs.std()])

    yield Claim(agreement(other=lambda x: x.new_tensor([0, 1]), rtol=0.1), drawn, shape("1"), name="Scaling.sample")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _euclidean_claims()
    yield from _translation_claims()
    yield from _scaling_claims()
