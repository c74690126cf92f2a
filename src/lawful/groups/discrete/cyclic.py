"""The cyclic group: shifts that come round, and turns of a regular polygon."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float, Int, Shaped
from torch import Generator, Tensor

from lawful.groups.discrete.permutation import taken
from lawful.groups.distances import distances, rigidity
from lawful.groups.group import Group, axioms, sized
from lawful.laws import Claim, agreement, commutativity, homomorphism, shape, tokens


class Cyclic(Group):
    r"""Adds integers modulo $n$, and shifts sequences of length $n$ in a circle.

    $$gh = g + h \bmod n, \qquad (g \cdot x)_i = x_{i - g \bmod n}$$

    Args:
        n: The order $n$.

    Examples:
        >>> Cyclic(4).act(torch.tensor(1), torch.tensor([10, 20, 30, 40]))
        tensor([40, 10, 20, 30])
    """

    def __init__(self, n: int) -> None:
        if n < 1:
            raise ValueError(f"n is at least 1: got {n}")
        self.n = n

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """Returns 0, a batch of it if sizes are given."""
        return torch.zeros(batch, dtype=dtype or torch.int64, device=device)

    def compose(self, g: Int[Tensor, "*#batch"], h: Int[Tensor, "*#batch"]) -> Int[Tensor, "*batch"]:
        r"""Returns $g + h \bmod n$."""
        return (g + h) % self.n

    def inverse(self, g: Int[Tensor, "*batch"]) -> Int[Tensor, "*batch"]:
        r"""Returns $-g \bmod n$."""
        return -g % self.n

    def act(self, g: Int[Tensor, "*#batch"], x: Shaped[Tensor, "*#batch n"]) -> Shaped[Tensor, "*batch n"]:
        """Shifts the last axis of $x$ by $g$ places, in a circle."""
        return taken(sized(x, self.n), (torch.arange(self.n, device=g.device) - g[..., None]) % self.n)

    def rotation(self, g: Int[Tensor, "*batch"], *, dtype: torch.dtype | None = None) -> Float[Tensor, "*batch 2 2"]:
        r"""Writes $g$ as the rotation of the plane by $2 \pi g / n$."""
        angle = (g % self.n).to(dtype or torch.get_default_dtype()) * (2 * math.pi / self.n)
        c, s = angle.cos(), angle.sin()
        return torch.stack([c, -s, s, c], -1).unflatten(-1, (2, 2))

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Draws uniformly."""
        return torch.randint(self.n, batch, generator=generator, dtype=dtype or torch.int64, device=device)

    def distance(self, g: Int[Tensor, "*#batch"], h: Int[Tensor, "*#batch"]) -> Int[Tensor, "*batch"]:
        """Returns how many steps lie between two elements, the shorter way round."""
        steps = (g - h) % self.n
        return torch.minimum(steps, self.n - steps)


def claims() -> Iterator[Claim]:
    """The laws that the cyclic group obeys."""
    group, element = Cyclic(5), tokens("b", 5)
    yield from axioms(group, element, shape("b 5"))
    yield from distances(group, element)
    yield Claim(commutativity(), group.compose, (element, element), name="Cyclic.compose")
    yield Claim(rigidity(), group.act, (element, shape("b 5")), name="Cyclic.act")
    turned = homomorphism(operation=group.compose, into=torch.matmul)
    yield Claim(turned, lambda g: group.rotation(g, dtype=torch.float64), element, name="Cyclic.rotation")

    def rolled(g: Tensor, x: Tensor) -> Tensor:
        return torch.stack([row.roll(int(k), 0) for k, row in zip(g, x, strict=True)])

    yield Claim(agreement(other=rolled), group.act, (element, shape("b 5")), name="Cyclic.act = roll")

    def turn(g: Tensor) -> Tensor:
        return torch.view_as_complex(group.rotation(g, dtype=torch.float64)[..., 0].contiguous())

    fifth = agreement(other=lambda g: torch.polar(torch.ones(len(g)).double(), 2 * torch.pi * g.double() / 5))
    yield Claim(fifth, turn, element, name="Cyclic.rotation by fifths")

    def drawn(g: Tensor) -> Tensor:
        return torch.bincount(group.sample(4000, generator=torch.Generator().manual_seed(0))) / 4000

    uniform = agreement(other=lambda g: torch.full((5,), 0.2), within=0.2)
    yield Claim(uniform, drawn, tokens("1", 5), name="Cyclic.sample")
