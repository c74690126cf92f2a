"""The symmetric group: permutations of n things.

The cyclic group: shifts that come round, and turns of a regular polygon.
The dihedral group: turns and reflections of a regular polygon.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float, Int, Shaped
from torch import Generator, Tensor

from lawful.functions._validation import any_true
from lawful.groups.group import Group, axioms, distances, rigidity, sized
from lawful.laws import Claim, agreement, commutativity, homomorphism, shape, tokens, transformed


def taken(x: Shaped[Tensor, "*#batch n"], index: Int[Tensor, "*#batch n"]) -> Shaped[Tensor, "*batch n"]:
    """Returns the entries of the last axis in the order of `index`, row by row.

    Args:
        x: The entries.
        index: Where each of them comes from.

    Examples:
        >>> taken(torch.tensor([[10, 20], [30, 40]]), torch.tensor([1, 0]))
        tensor([[20, 10],
                [40, 30]])
    """
    x, index = torch.broadcast_tensors(x, index)
    return x.gather(-1, index)


class SymmetricGroup(Group):
    r"""Reorders $n$ things: place $i$ goes to place $g_i$.

    $$(gh)_i = g_{h_i}, \qquad (g \cdot x)_{g_i} = x_i$$

    An element is a vector of the indices $0$ to $n - 1$. Indexing `x[g]` is the action of the inverse: it would
    compose the wrong way round.

    Args:
        n: How many things there are, $n$.

    Examples:
        >>> SymmetricGroup(3).act(torch.tensor([2, 0, 1]), torch.tensor([10, 20, 30]))
        tensor([20, 30, 10])
    """

    def __init__(self, n: int) -> None:
        if n < 1:
            raise ValueError(f"n is at least 1: got {n}")
        self.n = n

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """Returns the order as it is, a batch of it if sizes are given."""
        return torch.arange(self.n, dtype=dtype or torch.int64, device=device).repeat(*batch, 1)

    def compose(self, g: Int[Tensor, "*#batch n"], h: Int[Tensor, "*#batch n"]) -> Int[Tensor, "*batch n"]:
        """Returns $gh$: first $h$, then $g$."""
        return taken(sized(g, self.n), sized(h, self.n))

    def inverse(self, g: Int[Tensor, "*batch n"]) -> Int[Tensor, "*batch n"]:
        """Returns the order that puts everything back."""
        order = sized(g, self.n).argsort(-1)
        if any_true(g.gather(-1, order) != torch.arange(self.n, device=g.device)):
            raise ValueError(f"each of 0 to {self.n - 1} once was wanted: got another order of {self.n} things")
        return order

    def act(self, g: Int[Tensor, "*#batch n"], x: Shaped[Tensor, "*#batch n"]) -> Shaped[Tensor, "*batch n"]:
        """Moves the entry at $i$ of the last axis of $x$ to $g_i$."""
        return taken(sized(x, self.n), self.inverse(g))

    def matrix(self, g: Int[Tensor, "*batch n"], *, dtype: torch.dtype | None = None) -> Float[Tensor, "*batch n n"]:
        """Writes $g$ as the matrix that multiplies as $g$ acts: column $i$ has its 1 in row $g_i$."""
        return torch.nn.functional.one_hot(sized(g, self.n), self.n).mT.to(dtype or torch.get_default_dtype())

    def cycles(self, g: Int[Tensor, "*batch n"]) -> Int[Tensor, "*batch"]:
        """Counts the cycles, those of length 1 included.

        Each place learns the smallest index on its cycle, twice as far along it at every step.
        """
        start = torch.arange(self.n, device=g.device).expand_as(sized(g, self.n))
        least, reach = start, g
        for _ in range((self.n - 1).bit_length()):
            least = torch.minimum(least, least.gather(-1, reach))
            reach = reach.gather(-1, reach)
        return (least == start).sum(-1)

    def sign(self, g: Int[Tensor, "*batch n"]) -> Int[Tensor, "*batch"]:
        """Returns 1 for an even number of transpositions, -1 for an odd one: the determinant of the matrix."""
        return 1 - 2 * ((self.n - self.cycles(g)) % 2)

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Draws uniformly: the order of random numbers."""
        keys = torch.rand(*batch, self.n, generator=generator, dtype=torch.float64, device=device)
        return keys.argsort(-1).to(dtype or torch.int64)

    def distance(self, g: Int[Tensor, "*#batch n"], h: Int[Tensor, "*#batch n"]) -> Int[Tensor, "*batch"]:
        """Returns how many transpositions lead from one to the other (Cayley): $n$ minus the cycles of $g^{-1} h$."""
        return self.n - self.cycles(self.compose(self.inverse(g), h))


def _permutation_claims() -> Iterator[Claim]:
    """The laws that permutations obey."""
    group, element = SymmetricGroup(5), transformed(lambda x: x.argsort(-1), "b 5")
    yield from axioms(group, element, shape("b 5"))
    yield from distances(group, element)
    yield Claim(rigidity(), group.act, (element, shape("b 5")), name="Permutation.act")
    yield Claim(homomorphism(operation=group.compose), group.sign, element, name="Permutation.sign")

    def matrix(g: Tensor) -> Tensor:
        return group.matrix(g, dtype=torch.float64)

    yield Claim(homomorphism(operation=group.compose, into=torch.matmul), matrix, element, name="Permutation.matrix")
    determinant = agreement(other=lambda g: torch.linalg.det(matrix(g)))
    yield Claim(determinant, lambda g: group.sign(g).double(), element, name="Permutation.sign = det")

    def multiplied(g: Tensor, x: Tensor) -> Tensor:
        return (matrix(g).to(x) @ x[..., None])[..., 0]

    yield Claim(agreement(other=multiplied), group.act, (element, shape("b 5")), name="Permutation.act = matrix")

    def drawn(x: Tensor) -> Tensor:
        many = SymmetricGroup(3).sample(40, 100, generator=torch.Generator().manual_seed(0)).flatten(0, 1)
        return (torch.bincount(many @ torch.tensor([9, 3, 1]), minlength=27) / 4000).to(x)

    def uniform(x: Tensor) -> Tensor:
        orders = torch.tensor([[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])
        return torch.zeros(27).index_fill(0, orders @ torch.tensor([9, 3, 1]), 1 / 6).to(x)

    yield Claim(agreement(other=uniform, rtol=0.2), drawn, shape("1"), name="Permutation.sample")


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


def _cyclic_claims() -> Iterator[Claim]:
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

    uniform = agreement(other=lambda g: torch.full((5,), 0.2), rtol=0.2)
    yield Claim(uniform, drawn, tokens("1", 5), name="Cyclic.sample")


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
    if any_true((f != 0) & (f != 1)):
        raise ValueError("the second of the pair is to be 0 or 1, for a reflection: got another number")
    return k, f


def _dihedral_claims() -> Iterator[Claim]:
    """The laws that the dihedral group obeys."""
    group = Dihedral(5)

    def ranked(x: Tensor) -> Tensor:
        """Makes any of the ten elements of five numbers: a corner by the first, a reflection by the second."""
        return torch.stack([(x[..., 0] * 7).long() % 5, (x[..., 1] > 0).long()], -1)

    element = transformed(ranked, "b 2")
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

    uniform = agreement(other=lambda x: torch.full((10,), 0.1).to(x), rtol=0.2)
    yield Claim(uniform, drawn, shape("1"), name="Dihedral.sample")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _permutation_claims()
    yield from _cyclic_claims()
    yield from _dihedral_claims()
