"""The dihedral group: turns and reflections of a regular polygon."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int, Shaped
from torch import Generator, Tensor

from lawful.functions.checks import seen
from lawful.groups.discrete.cyclic import Cyclic
from lawful.groups.discrete.permutation import taken
from lawful.groups.distances import distances, rigidity
from lawful.groups.group import Group, axioms, sized
from lawful.laws import Claim, agreement, homomorphism, made, shape


class Dihedral(Group):
    r"""Turns a regular polygon of $n$ corners by $k$ of them, after a reflection where $f = 1$.

    $$(k, f) (m, e) = (k + (-1)^f m \bmod n, \; f + e \bmod 2)$$

    An element is a pair of integers $(k, f)$. It sends corner $i$ to corner $k + (-1)^f i$, and a sequence of length
    $n$ is values at the corners.

    Args:
        n: The number of corners $n$; the group has $2 n$ elements.

    Examples:
        >>> Dihedral(4).act(torch.tensor([0, 1]), torch.tensor([10, 20, 30, 40]))
        tensor([10, 40, 30, 20])
    """

    def __init__(self, n: int) -> None:
        if n < 1:
            raise ValueError(f"n is at least 1: got {n}")
        self.n = n

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """Returns (0, 0), a batch of it if sizes are given."""
        return torch.zeros(*batch, 2, dtype=dtype or torch.int64, device=device)

    def compose(self, g: Int[Tensor, "*#batch 2"], h: Int[Tensor, "*#batch 2"]) -> Int[Tensor, "*batch 2"]:
        """Returns $gh$: first $h$, then $g$."""
        (k, f), (m, e) = _pair(g), _pair(h)
        return torch.stack([(k + (1 - 2 * f) * m) % self.n, (f + e) % 2], -1)

    def inverse(self, g: Int[Tensor, "*batch 2"]) -> Int[Tensor, "*batch 2"]:
        r"""Returns $(-(-1)^f k, f)$: a reflection undoes itself."""
        k, f = _pair(g)
        return torch.stack([((2 * f - 1) * k) % self.n, f], -1)

    def act(self, g: Int[Tensor, "*#batch 2"], x: Shaped[Tensor, "*#batch n"]) -> Shaped[Tensor, "*batch n"]:
        """Moves the values at the corners, in the last axis of $x$, along with the corners."""
        k, f = self.inverse(g)[..., None].unbind(-2)
        return taken(sized(x, self.n), (k + (1 - 2 * f) * torch.arange(self.n, device=g.device)) % self.n)

    def matrix(self, g: Int[Tensor, "*batch 2"], *, dtype: torch.dtype | None = None) -> Float[Tensor, "*batch 2 2"]:
        r"""Writes $g$ as a turn of the plane by $2 \pi k / n$, after a reflection in the first axis where $f = 1$."""
        k, f = _pair(g)
        turn = Cyclic(self.n).rotation(k, dtype=dtype)
        return turn * torch.stack([torch.ones_like(f), 1 - 2 * f], -1).to(turn)[..., None, :]

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Draws uniformly."""
        drawn = torch.randint(2 * self.n, batch, generator=generator, dtype=dtype or torch.int64, device=device)
        return torch.stack([drawn % self.n, drawn // self.n], -1)

    def distance(self, g: Int[Tensor, "*#batch 2"], h: Int[Tensor, "*#batch 2"]) -> Int[Tensor, "*batch"]:
        """Returns how many turns by one corner, and reflections, lead from one element to the other."""
        k, f = self.compose(self.inverse(g), h).unbind(-1)
        return torch.minimum(k, self.n - k) + f


def _pair(g: Tensor) -> tuple[Tensor, ...]:
    k, f = sized(g, 2).unbind(-1)
    if seen((f != 0) & (f != 1)):
        raise ValueError("the second of the pair is to be 0 or 1, for a reflection: got another number")
    return k, f


def claims() -> Iterator[Claim]:
    """The laws that the dihedral group obeys."""
    group = Dihedral(5)

    def ranked(x: Tensor) -> Tensor:
        """Makes any of the ten elements of five numbers: a corner by the first, a reflection by the second."""
        return torch.stack([(x[..., 0] * 7).long() % 5, (x[..., 1] > 0).long()], -1)

    element = made(ranked, "b 2")
    yield from axioms(group, element, shape("b 5"))
    yield from distances(group, element)
    yield Claim(rigidity(), group.act, (element, shape("b 5")), name="Dihedral.act")

    def matrix(g: Tensor) -> Tensor:
        return group.matrix(g, dtype=torch.float64)

    yield Claim(homomorphism(operation=group.compose, into=torch.matmul), matrix, element, name="Dihedral.matrix")

    def moved(g: Tensor, x: Tensor) -> Tensor:
        corners = matrix(torch.stack([torch.arange(5), torch.zeros(5, dtype=torch.int64)], -1).to(g.device))[:, :, 0]
        goes = (matrix(g) @ corners.mT).mT if g.dim() == 1 else torch.einsum("bij,cj->bci", matrix(g), corners)
        where = (goes[..., None, :] - corners).norm(dim=-1).argmin(-1)
        return torch.zeros_like(x).scatter(-1, where, x)

    yield Claim(agreement(other=moved), group.act, (element, shape("b 5")), name="Dihedral.act on a polygon")

    def drawn(x: Tensor) -> Tensor:
        k, f = group.sample(4000, generator=torch.Generator().manual_seed(0)).unbind(-1)
        return (torch.bincount(k + 5 * f) / 4000).to(x)

    uniform = agreement(other=lambda x: torch.full((10,), 0.1).to(x), within=0.2)
    yield Claim(uniform, drawn, shape("1"), name="Dihedral.sample")
