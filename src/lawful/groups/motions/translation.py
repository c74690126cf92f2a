"""Translations: vectors under addition."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from lawful.groups.distances import distances, rigidity
from lawful.groups.group import LieGroup, axioms, sized
from lawful.laws import Claim, agreement, commutativity, invertibility, shape


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


def claims() -> Iterator[Claim]:
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
    yield Claim(agreement(other=standard, within=0.1), drawn, shape("1"), name="Translation.sample")
