"""E(d): rotations, reflections and translations, whatever keeps distances."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from lawful.groups import matrices
from lawful.groups.distances import distances, rigidity
from lawful.groups.group import LieGroup, axioms, sized
from lawful.groups.motions.rigid import parts, rigid, rigid_act, rigid_inverse
from lawful.groups.rotations.orthogonal import Orthogonal
from lawful.laws import Claim, agreement, made, shape


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


def claims() -> Iterator[Claim]:
    """The laws that E(d) obeys."""
    group = Euclidean(3)

    def placed(x: Tensor) -> Tensor:
        return rigid(torch.linalg.qr(x[..., :3])[0], x[..., 3])

    element = made(placed, "b 3 4")
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

    within = made(lambda x: placed(x.tanh()), "b 3 4")
    yield Claim(agreement(other=conjugated), carried, (within, shape("b 6")), name="Euclidean.adjoint")

    def moved(v: Tensor, w: Tensor) -> Tensor:
        """The derivative of exp along w, a corner of an exponential of twice the size, moved back to the identity."""
        a, b = group.hat(v.tanh()), group.hat(w.tanh())
        both = torch.cat([torch.cat([a, b], -1), torch.cat([torch.zeros_like(a), a], -1)], -2)
        return group.vee(torch.linalg.matrix_exp(both)[..., :4, 4:] @ group.inverse(step(v)))

    def jacobian(v: Tensor, w: Tensor) -> Tensor:
        return (group.left_jacobian(v.tanh()) @ w.tanh()[..., None])[..., 0]

    yield Claim(agreement(other=moved), jacobian, (shape("b 6"), shape("b 6")), name="Euclidean.left_jacobian")
