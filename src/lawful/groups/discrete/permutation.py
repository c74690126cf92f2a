"""The symmetric group: permutations of n things."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int, Shaped
from torch import Generator, Tensor

from lawful.functions.checks import seen
from lawful.groups.distances import distances, rigidity
from lawful.groups.group import Group, axioms, sized
from lawful.laws import Claim, agreement, homomorphism, made, shape


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


class Permutation(Group):
    r"""Reorders $n$ things: place $i$ goes to place $g_i$.

    $$(gh)_i = g_{h_i}, \qquad (g \cdot x)_{g_i} = x_i$$

    An element is a vector of the indices $0$ to $n - 1$. Indexing `x[g]` is the action of the inverse: it would
    compose the wrong way round.

    Args:
        n: How many things there are, $n$.

    Examples:
        >>> Permutation(3).act(torch.tensor([2, 0, 1]), torch.tensor([10, 20, 30]))
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
        if seen(g.gather(-1, order) != torch.arange(self.n, device=g.device)):
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


def claims() -> Iterator[Claim]:
    """The laws that permutations obey."""
    group, element = Permutation(5), made(lambda x: x.argsort(-1), "b 5")
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
        many = Permutation(3).sample(40, 100, generator=torch.Generator().manual_seed(0)).flatten(0, 1)
        return (torch.bincount(many @ torch.tensor([9, 3, 1]), minlength=27) / 4000).to(x)

    def uniform(x: Tensor) -> Tensor:
        orders = torch.tensor([[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])
        return torch.zeros(27).index_fill(0, orders @ torch.tensor([9, 3, 1]), 1 / 6).to(x)

    yield Claim(agreement(other=uniform, within=0.2), drawn, shape("1"), name="Permutation.sample")
