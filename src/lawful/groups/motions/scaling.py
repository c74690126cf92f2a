"""Scalings: positive factors under multiplication."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from lawful.groups.distances import distances
from lawful.groups.group import LieGroup, axioms, sized
from lawful.laws import Claim, agreement, commutativity, homomorphism, invertibility, made, shape


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


def claims() -> Iterator[Claim]:
    """The laws that scalings obey."""
    group = Scaling()

    def factor(x: Tensor) -> Tensor:
        return x.tanh().exp()

    element = made(factor, "b")
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

    yield Claim(agreement(other=lambda x: x.new_tensor([0, 1]), within=0.1), drawn, shape("1"), name="Scaling.sample")
