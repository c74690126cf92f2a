"""Finite groups: permutations, cyclic shifts, and the symmetries of a regular polygon."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import partial

import torch
from jaxtyping import Float, Int, Shaped
from torch import Generator, Tensor

from lawful.functions._validation import any_true
from lawful.groups._helpers import check_last_axes, group_claims
from lawful.groups.group import Group
from lawful.laws import Claim, commutativity, homomorphism, isometric_action, shape, tokens, transformed


def _gather_last(x: Shaped[Tensor, "*#batch n"], index: Int[Tensor, "*#batch n"]) -> Shaped[Tensor, "*batch n"]:
    """Gathers along the last axis, with broadcasting of the batch axes."""
    x, index = torch.broadcast_tensors(x, index)
    return x.gather(-1, index)


class SymmetricGroup(Group):
    r"""Permutations of $n$ entries, which move entry $i$ to position $g_i$.

    $$(gh)_i = g_{h_i}, \qquad (g \cdot x)_{g_i} = x_i$$

    An element is a vector of the indices $0$ to $n - 1$. Note that `x[g]` is the action of the inverse of $g$.

    Args:
        n: Number of entries.

    Examples:
        >>> SymmetricGroup(3).act(torch.tensor([2, 0, 1]), torch.tensor([10, 20, 30]))
        tensor([20, 30, 10])
    """

    def __init__(self, n: int) -> None:
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        self.n = n

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """Returns the identity permutation, repeated to the batch shape."""
        return torch.arange(self.n, dtype=dtype or torch.int64, device=device).repeat(*batch, 1)

    def compose(self, g: Int[Tensor, "*#batch n"], h: Int[Tensor, "*#batch n"]) -> Int[Tensor, "*batch n"]:
        """Returns $gh$: $h$ acts first, then $g$."""
        return _gather_last(check_last_axes(g, self.n), check_last_axes(h, self.n))

    def inverse(self, g: Int[Tensor, "*batch n"]) -> Int[Tensor, "*batch n"]:
        """Returns the inverse permutation."""
        order = check_last_axes(g, self.n).argsort(-1)
        if any_true(g.gather(-1, order) != torch.arange(self.n, device=g.device)):
            raise ValueError(f"expected a permutation of 0 to {self.n - 1}, got repeated or missing indices")
        return order

    def act(self, g: Int[Tensor, "*#batch n"], x: Shaped[Tensor, "*#batch n"]) -> Shaped[Tensor, "*batch n"]:
        """Moves the entry at $i$ of the last axis of $x$ to $g_i$."""
        return _gather_last(check_last_axes(x, self.n), self.inverse(g))

    def elements(self) -> Int[Tensor, "k n"]:
        """Returns all $n!$ permutations, for $n$ up to 8."""
        if self.n > 8:
            raise ValueError(f"SymmetricGroup({self.n}) has {math.factorial(self.n)} elements, expected n up to 8")
        return torch.tensor(list(itertools.permutations(range(self.n))))

    def matrix(self, g: Int[Tensor, "*batch n"], *, dtype: torch.dtype | None = None) -> Float[Tensor, "*batch n n"]:
        r"""Returns the permutation matrix $P$ with $P x = g \cdot x$."""
        return torch.nn.functional.one_hot(check_last_axes(g, self.n), self.n).mT.to(dtype or torch.get_default_dtype())

    def cycles(self, g: Int[Tensor, "*batch n"]) -> Int[Tensor, "*batch"]:
        """Returns the number of cycles, fixed points included.

        Pointer doubling finds the smallest index on each cycle in a logarithmic number of steps.
        """
        start = torch.arange(self.n, device=g.device).expand_as(check_last_axes(g, self.n))
        smallest, reach = start, g
        for _ in range((self.n - 1).bit_length()):
            smallest = torch.minimum(smallest, smallest.gather(-1, reach))
            reach = reach.gather(-1, reach)
        return (smallest == start).sum(-1)

    def sign(self, g: Int[Tensor, "*batch n"]) -> Int[Tensor, "*batch"]:
        """Returns the sign: 1 for even permutations, -1 for odd ones."""
        return 1 - 2 * ((self.n - self.cycles(g)) % 2)

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Samples uniformly."""
        keys = torch.rand(*batch, self.n, generator=generator, dtype=torch.float64, device=device)
        return keys.argsort(-1).to(dtype or torch.int64)

    def distance(self, g: Int[Tensor, "*#batch n"], h: Int[Tensor, "*#batch n"]) -> Int[Tensor, "*batch"]:
        """Returns the Cayley distance, the number of transpositions: $n$ minus the number of cycles of $g^{-1} h$."""
        return self.n - self.cycles(self.compose(self.inverse(g), h))


class Cyclic(Group):
    r"""Integers modulo $n$, which act on sequences of length $n$ by circular shifts.

    $$gh = g + h \bmod n, \qquad (g \cdot x)_i = x_{i - g \bmod n}$$

    Args:
        n: Order of the group.

    Examples:
        >>> Cyclic(4).act(torch.tensor(1), torch.tensor([10, 20, 30, 40]))
        tensor([40, 10, 20, 30])
    """

    def __init__(self, n: int) -> None:
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        self.n = n

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """Returns 0, repeated to the batch shape."""
        return torch.zeros(batch, dtype=dtype or torch.int64, device=device)

    def compose(self, g: Int[Tensor, "*#batch"], h: Int[Tensor, "*#batch"]) -> Int[Tensor, "*batch"]:
        r"""Returns $g + h \bmod n$."""
        return (g + h) % self.n

    def inverse(self, g: Int[Tensor, "*batch"]) -> Int[Tensor, "*batch"]:
        r"""Returns $-g \bmod n$."""
        return -g % self.n

    def act(self, g: Int[Tensor, "*#batch"], x: Shaped[Tensor, "*#batch n"]) -> Shaped[Tensor, "*batch n"]:
        """Shifts the last axis of $x$ circularly by $g$ positions."""
        return _gather_last(check_last_axes(x, self.n), (torch.arange(self.n, device=g.device) - g[..., None]) % self.n)

    def elements(self) -> Int[Tensor, " n"]:
        """Returns all elements, 0 to $n - 1$."""
        return torch.arange(self.n)

    def rotation(self, g: Int[Tensor, "*batch"], *, dtype: torch.dtype | None = None) -> Float[Tensor, "*batch 2 2"]:
        r"""Returns the rotation of the plane by $2 \pi g / n$."""
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
        """Samples uniformly."""
        return torch.randint(self.n, batch, generator=generator, dtype=dtype or torch.int64, device=device)

    def distance(self, g: Int[Tensor, "*#batch"], h: Int[Tensor, "*#batch"]) -> Int[Tensor, "*batch"]:
        """Returns the circular distance."""
        steps = (g - h) % self.n
        return torch.minimum(steps, self.n - steps)


class Dihedral(Group):
    r"""Symmetries of a regular polygon with $n$ vertices: a reflection if $f = 1$, then a rotation by $k$ vertices.

    $$(k, f) (m, e) = (k + (-1)^f m \bmod n, \; f + e \bmod 2)$$

    An element is a pair of integers $(k, f)$. It maps vertex $i$ to vertex $k + (-1)^f i$, and acts on sequences of
    length $n$, one value per vertex.

    Args:
        n: Number of vertices. The group has $2 n$ elements.

    Examples:
        >>> Dihedral(4).act(torch.tensor([0, 1]), torch.tensor([10, 20, 30, 40]))
        tensor([10, 40, 30, 20])
    """

    def __init__(self, n: int) -> None:
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        self.n = n

    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """Returns (0, 0), repeated to the batch shape."""
        return torch.zeros(*batch, 2, dtype=dtype or torch.int64, device=device)

    def compose(self, g: Int[Tensor, "*#batch 2"], h: Int[Tensor, "*#batch 2"]) -> Int[Tensor, "*batch 2"]:
        """Returns $gh$: $h$ acts first, then $g$."""
        (k, f), (m, e) = _split_pair(g), _split_pair(h)
        return torch.stack([(k + (1 - 2 * f) * m) % self.n, (f + e) % 2], -1)

    def inverse(self, g: Int[Tensor, "*batch 2"]) -> Int[Tensor, "*batch 2"]:
        r"""Returns $(-(-1)^f k, f)$."""
        k, f = _split_pair(g)
        return torch.stack([((2 * f - 1) * k) % self.n, f], -1)

    def act(self, g: Int[Tensor, "*#batch 2"], x: Shaped[Tensor, "*#batch n"]) -> Shaped[Tensor, "*batch n"]:
        """Moves the values at the vertices, in the last axis of $x$."""
        k, f = self.inverse(g)[..., None].unbind(-2)
        return _gather_last(
            check_last_axes(x, self.n), (k + (1 - 2 * f) * torch.arange(self.n, device=g.device)) % self.n
        )

    def elements(self) -> Int[Tensor, "k 2"]:
        """Returns all $2 n$ elements, rotations first."""
        index = torch.arange(2 * self.n)
        return torch.stack([index % self.n, index // self.n], -1)

    def matrix(self, g: Int[Tensor, "*batch 2"], *, dtype: torch.dtype | None = None) -> Float[Tensor, "*batch 2 2"]:
        r"""Returns the matrix: a reflection in the first axis if $f = 1$, then a rotation by $2 \pi k / n$."""
        k, f = _split_pair(g)
        rotation = Cyclic(self.n).rotation(k, dtype=dtype)
        return rotation * torch.stack([torch.ones_like(f), 1 - 2 * f], -1).to(rotation)[..., None, :]

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Samples uniformly."""
        index = torch.randint(2 * self.n, batch, generator=generator, dtype=dtype or torch.int64, device=device)
        return torch.stack([index % self.n, index // self.n], -1)

    def distance(self, g: Int[Tensor, "*#batch 2"], h: Int[Tensor, "*#batch 2"]) -> Int[Tensor, "*batch"]:
        """Returns the word distance: the number of rotations by one vertex, and reflections, from $g$ to $h$."""
        k, f = self.compose(self.inverse(g), h).unbind(-1)
        return torch.minimum(k, self.n - k) + f


def _split_pair(g: Tensor) -> tuple[Tensor, ...]:
    k, f = check_last_axes(g, 2).unbind(-1)
    if any_true((f != 0) & (f != 1)):
        raise ValueError("expected pairs (k, f) with f = 0 or 1 (reflection), got another f")
    return k, f


def claims() -> Iterator[Claim]:
    """Laws of S(5), the cyclic group of order 5 and the symmetries of a pentagon."""
    permutations, cyclic, dihedral = SymmetricGroup(5), Cyclic(5), Dihedral(5)

    def to_dihedral(x: Tensor) -> Tensor:
        return torch.stack([(x[..., 0] * 7).long() % 5, (x[..., 1] > 0).long()], -1)

    elements = {
        permutations: transformed(lambda x: x.argsort(-1), "b 5"),
        cyclic: tokens("b", 5),
        dihedral: transformed(to_dihedral, "b 2"),
    }
    for group, element in elements.items():
        yield from group_claims(group, element, shape("b 5"))
        yield Claim(isometric_action(), group.act, (element, shape("b 5")), name=f"{type(group).__name__}.act")
    yield Claim(commutativity(), cyclic.compose, (elements[cyclic], elements[cyclic]), name="Cyclic.compose")
    sign = homomorphism(operation=permutations.compose)
    yield Claim(sign, permutations.sign, elements[permutations], name="SymmetricGroup.sign")
    for group, matrix in (
        (permutations, permutations.matrix),
        (cyclic, cyclic.rotation),
        (dihedral, dihedral.matrix),
    ):
        representation = homomorphism(operation=group.compose, into=torch.matmul)
        name = f"{type(group).__name__}.{matrix.__name__}"
        yield Claim(representation, partial(matrix, dtype=torch.float64), elements[group], name=name)
