"""Outer and tensor products: every entry times every entry.

Einstein summation, with axes that have names.
The dot product as one of many: any map of the pairs, then any reduction.
CP: a tensor as a sum of pure tensors, found by alternating least squares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn import functional as F

from lawful.functions.decompositions import unfolding
from lawful.functions.linalg import check_vectors, dot
from lawful.laws import (
    AtMost,
    Claim,
    Draw,
    Equal,
    Map,
    Statement,
    agreement,
    commutativity,
    convexity,
    homogeneity,
    law,
    linearity,
    non_negativity,
    permutation_invariance,
    shape,
    transformed,
)


def outer(x: Float[Tensor, "*#batch m"], y: Float[Tensor, "*#batch n"]) -> Float[Tensor, "*batch m n"]:
    r"""Multiplies each entry of one vector with each entry of another.

    $$(x y^\mathsf{T})_{ij} = x_i y_j$$

    Args:
        x: The vectors $x$, along the last axis.
        y: The vectors $y$.

    Examples:
        >>> outer(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
        tensor([[3., 4.],
                [6., 8.]])
    """
    return x.unsqueeze(-1) * y.unsqueeze(-2)


def tensor_product(s: Float[Tensor, "*m"], t: Float[Tensor, "*n"]) -> Float[Tensor, ...]:
    r"""Multiplies each entry of one tensor with each entry of another; the axes of the first come first.

    $$(S \otimes T)_{i_1 \dots i_m j_1 \dots j_n} = S_{i_1 \dots i_m} \, T_{j_1 \dots j_n}$$

    It is associative, but not commutative.

    Args:
        s: The tensor $S$.
        t: The tensor $T$.

    Examples:
        >>> tensor_product(torch.ones(2, 3), torch.ones(4)).shape
        torch.Size([2, 3, 4])
    """
    return torch.tensordot(s, t, dims=0)


def pure_tensor(*vectors: Float[Tensor, " _"]) -> Float[Tensor, ...]:
    r"""Makes the tensor of rank one that is the product of vectors.

    $$T = v_1 \otimes v_2 \otimes \dots \otimes v_n$$

    Args:
        vectors: The vectors $v_1$ to $v_n$, at least one.

    Examples:
        >>> pure_tensor(torch.ones(2), torch.ones(3), torch.ones(4)).shape
        torch.Size([2, 3, 4])
    """
    if not vectors:
        raise ValueError("a pure tensor is made of at least one vector: got none")
    return reduce(tensor_product, vectors)


@law("(S ⊗ T) ⊗ U = S ⊗ (T ⊗ U)", discover_with=None)
def tensor_associativity(f: Callable[..., Tensor], s: Tensor, t: Tensor, *, draw: Draw) -> Statement:
    """Brackets make no difference, though each product has more axes than its factors.

    Satisfied by: tensor products; the Kronecker product.
    Broken by: a cross product; a product that adds the axes of the second factor in front.
    """
    u = draw.values(2)
    return Equal(f(f(s, t), u), f(s, f(t, u)))


@law("T_{i a} T_{j b} = T_{i b} T_{j a}, along every axis", every_input=True, discover_with=None)
def rank_one(f: Callable[..., Tensor], *xs: Tensor, draw: Draw) -> Statement:
    """Every minor of two rows and two columns is zero, whichever axis makes the rows.

    Satisfied by: pure tensors; an outer product.
    Broken by: a sum of two pure tensors; the identity matrix.
    """
    t = f(*xs)
    left, right = list[Tensor](), list[Tensor]()
    for axis in range(t.dim()):
        rows = t.movedim(axis, 0).reshape(t.shape[axis], -1)
        i, j = (draw.integer(0, rows.shape[0] - 1) for _ in range(2))
        left.append(outer(rows[i], rows[j]))
        right.append(outer(rows[j], rows[i]))
    return Equal(left, right, exercised=True)


def _tensors_claims() -> Iterator[Claim]:
    """The laws that outer and tensor products obey."""
    pair = (shape("b m"), shape("b n"))
    yield Claim(agreement(other=lambda x, y: torch.einsum("bi,bj->bij", x, y)), outer, pair)
    yield Claim(linearity(input=0), outer, pair)
    yield Claim(linearity(input=1), outer, pair)
    tensors = (shape("2 3"), shape("3 2"))
    yield Claim(tensor_associativity(), tensor_product, tensors)
    yield Claim(agreement(other=lambda s, t: torch.einsum("ij,kl->ijkl", s, t)), tensor_product, tensors)
    swapped = agreement(other=lambda s, t: tensor_product(t, s).permute(2, 3, 0, 1))
    yield Claim(swapped, tensor_product, tensors, "S ⊗ T is T ⊗ S with its axes swapped")
    vectors = (shape("2"), shape("3"), shape("4"))
    yield Claim(rank_one(), pure_tensor, vectors)
    yield Claim(agreement(other=lambda u, v, w: torch.einsum("i,j,k->ijk", u, v, w)), pure_tensor, vectors)


def einsum(pattern: str, *tensors: Float[Tensor, ...]) -> Float[Tensor, ...]:
    r"""Multiplies tensors along axes that share a name, and adds up over the names that the result lacks.

    $$\texttt{"i k, k j -> i j"}: \quad C_{ij} = \sum_k A_{ik} B_{kj}$$

    Names are words, apart by spaces. Without `->` the convention is Einstein's own: every name that occurs twice is
    summed over, and the others stay, in order.

    Args:
        pattern: The names of the axes of each tensor, with commas between, then `->` and those of the result.
        tensors: As many tensors as the pattern names.

    Examples:
        >>> einsum("row inner, inner column -> row column", torch.ones(2, 3), torch.ones(3, 2))
        tensor([[3., 3.],
                [3., 3.]])
        >>> einsum("i i", torch.eye(3))
        tensor(3.)
    """
    before, arrow, after = pattern.partition("->")
    axes = [part.split() for part in before.split(",")]
    if len(axes) != len(tensors):
        raise ValueError(f"{pattern!r} names {len(axes)} tensors: got {len(tensors)}")
    sizes: dict[str, int] = {}
    for names, tensor in zip(axes, tensors, strict=True):
        if len(names) != tensor.dim():
            raise ValueError(f"{' '.join(names)!r} in {pattern!r} names {len(names)} axes: got {tuple(tensor.shape)}")
        for name, size in zip(names, tensor.shape, strict=True):
            if sizes.setdefault(name, size) != size:
                raise ValueError(f"{name!r} in {pattern!r} is one size: got {sizes[name]} and {size}")
    times = Counter(name for names in axes for name in names)
    kept = after.split() if arrow else [name for name, count in times.items() if count == 1]
    if missing := [name for name in kept if name not in sizes]:
        raise ValueError(f"{missing[0]!r} in the result of {pattern!r} is an axis of no tensor: got {[*sizes]}")
    if twice := [name for name, count in Counter(kept).items() if count > 1]:
        raise ValueError(f"{twice[0]!r} stands twice in the result of {pattern!r}")
    number = {name: n for n, name in enumerate(sizes)}
    operands = [part for t, names in zip(tensors, axes, strict=True) for part in (t, [number[n] for n in names])]
    return torch.einsum(*operands, [number[name] for name in kept])


def _einstein_claims() -> Iterator[Claim]:
    """The laws that Einstein summation obeys."""
    rows = [
        ("i j, j", lambda a, v: (a @ v.unsqueeze(-1)).squeeze(-1), (shape("3 n"), shape("n"))),
        ("i k, k j", torch.matmul, (shape("m k"), shape("k n"))),
        ("i k, j k", lambda a, b: a @ b.mT, (shape("m k"), shape("n k"))),
        ("i k l, k l j", lambda a, b: torch.tensordot(a, b, 2), (shape("2 k l"), shape("k l 3"))),
        ("batch row row -> batch", lambda a: a.diagonal(0, -2, -1).sum(-1), (shape("b 3 3"),)),
        ("row column -> column row", lambda a: a.mT, (shape("m n"),)),
    ]
    for pattern, other, inputs in rows:

        def by_name(*tensors: Tensor, pattern: str = pattern) -> Tensor:
            return einsum(pattern, *tensors)

        yield Claim(agreement(other=other), by_name, inputs, f"einsum({pattern!r})")
    yield Claim(linearity(input=1), lambda a, b: einsum("i k, k j", a, b), (shape("m k"), shape("k n")), "einsum")


def generalised_product(
    x: Float[Tensor, "*#batch d"],
    y: Float[Tensor, "*#batch d"],
    *,
    map: Callable[[Tensor, Tensor], Tensor] = torch.mul,
    reduce: Callable[..., Tensor] = torch.sum,
) -> Float[Tensor, "*batch"]:
    r"""Maps the pairs of entries of two vectors, and reduces what comes out.

    $$x \star y = \operatorname*{reduce}_i \, \operatorname{map}(x_i, y_i)$$

    Why is the dot product, (`mul`, `sum`), the special one? Of the four pairs of sums and products it alone is
    linear in each vector. (`add`, `sum`) and (`mul`, `prod`) come apart into a number for $x$ and a number for $y$:
    they never see which entries met. (`add`, `prod`) sees it, and is linear in each entry but not in the vector.

    Args:
        x: The vectors $x$, along the last axis.
        y: The vectors $y$.
        map: From two tensors to one, entry by entry.
        reduce: From a tensor and `dim`, the axis that it takes away.

    Examples:
        >>> generalised_product(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
        tensor(11.)
        >>> generalised_product(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]), map=torch.add, reduce=torch.prod)
        tensor(24.)
    """
    check_vectors(x, y)
    return reduce(map(x, y), dim=-1)


def rectified_dot(x: Float[Tensor, "*#batch d"], y: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch"]:
    r"""Adds up the products of the entries that agree in sign: a dot product that forgives what disagrees.

    $$\sum_i \max(0, x_i y_i)$$

    Args:
        x: The vectors $x$, along the last axis.
        y: The vectors $y$.

    Examples:
        >>> rectified_dot(torch.tensor([1.0, -2.0, 3.0]), torch.tensor([1.0, 1.0, 1.0]))
        tensor(4.)
    """
    return generalised_product(x, y, map=lambda a, b: torch.relu(a * b))


def amount_of_similarity(x: Float[Tensor, "*batch d"], features: Float[Tensor, "n d"]) -> Float[Tensor, "*batch"]:
    r"""Adds up how much a vector is like each of some features; those at more than a right angle count for nothing.

    $$\sum_j \max\big(0, (A x)_j\big)$$

    Args:
        x: The vectors $x$, along the last axis.
        features: The matrix $A$, a feature a row.

    Examples:
        >>> amount_of_similarity(torch.tensor([1.0, -2.0]), torch.eye(2))
        tensor(1.)
    """
    return torch.relu(x @ features.mT).sum(-1)


def _generalised_claims() -> Iterator[Claim]:
    """The laws that tell the products apart."""
    pair = (shape("b 4"), shape("b 4"))
    yield Claim(agreement(other=dot), generalised_product, pair)
    yield Claim(linearity(input=1), generalised_product, pair, "(mul, sum)")
    sums = partial(generalised_product, map=torch.add)
    products = partial(generalised_product, reduce=torch.prod)
    mixed = partial(generalised_product, map=torch.add, reduce=torch.prod)
    yield Claim(agreement(other=lambda x, y: x.sum(-1) + y.sum(-1)), sums, pair, "(add, sum)")
    yield Claim(permutation_invariance(axis=-1, input=1), sums, pair, "(add, sum)")
    yield Claim(agreement(other=lambda x, y: x.prod(-1) * y.prod(-1)), products, pair, "(mul, prod)")
    yield Claim(permutation_invariance(axis=-1, input=1), products, pair, "(mul, prod)")
    yield Claim(homogeneity(degree=4.0), products, pair, "(mul, prod)")
    yield Claim(commutativity(), mixed, pair, "(add, prod)")
    yield Claim(homogeneity(degree=4.0), lambda z: mixed(z[..., 0], z[..., 1]), shape("b 4 2"), "(add, prod)")
    for law in (non_negativity(), commutativity(), homogeneity(), convexity()):
        yield Claim(law, rectified_dot, pair)
    difference = agreement(other=lambda x, y: rectified_dot(x, y) - rectified_dot(x, -y))
    yield Claim(difference, dot, pair, "dot = what agrees - what disagrees")
    features = (shape("b 4"), shape("n 4"))
    for law in (non_negativity(), homogeneity(), convexity()):
        yield Claim(law, amount_of_similarity, features)
    rows = agreement(other=lambda x, a: torch.stack([dot(x, row).clamp(min=0) for row in a], -1).sum(-1))
    yield Claim(rows, amount_of_similarity, features)


@dataclass(frozen=True, eq=False)
class CP:
    """A sum of pure tensors, as `cp` finds it."""

    weights: Tensor
    """The size of each term, the largest first; shape (r,)."""
    factors: tuple[Tensor, ...]
    """A matrix for each axis of the tensor, with a column of length 1 for each term; shape (d, r)."""
    errors: tuple[float, ...]
    """The distance to the tensor after each sweep, as a part of the tensor's size."""
    converged: bool
    """Whether a sweep changed the error by no more than the tolerance."""

    @property
    def error(self) -> float:
        """The distance to the tensor, as a part of the tensor's size."""
        return self.errors[-1]

    def tensor(self) -> Tensor:
        """Adds the terms up."""
        return torch.tensordot(self.weights, _terms(self.factors), dims=1)


def _terms(factors: Sequence[Tensor]) -> Tensor:
    """The product of the first columns, of the second columns, and so on."""
    return torch.func.vmap(pure_tensor, in_dims=-1)(*factors)


@torch.no_grad()
def cp(
    tensor: Float[Tensor, "*shape"],
    rank: int,
    *,
    sweeps: int = 500,
    tolerance: float = 1e-8,
    generator: Generator | None = None,
) -> CP:
    r"""Approximates a tensor by a sum of pure tensors (CANDECOMP, PARAFAC), by alternating least squares.

    $$T \approx \sum_{i=1}^r w_i \, u_i^{(1)} \otimes \dots \otimes u_i^{(n)}, \qquad
    U^{(k)} \leftarrow \arg\min_U \lVert T_{(k)} - U K^\top \rVert_F = T_{(k)} (K^\top)^+$$

    where the columns of $K$ are the products of the other factors. No sweep makes the error larger. The limit depends
    on the start, need not be the best, and can be slow; where no best one exists, weights grow without bound. Whether
    it settled is said in `converged`, how good it is in `error`. NaN is refused.

    Reference:
        Carroll and Chang, *Analysis of individual differences in multidimensional scaling via an n-way generalization
        of "Eckart-Young" decomposition*, 1970.

    Args:
        tensor: The tensor $T$, with at least two axes.
        rank: $r$, how many terms.
        sweeps: The largest number of rounds over all factors.
        tolerance: The change of the error, in a round, at which to stop; at least ten times the machine epsilon.
        generator: Where the start, normal numbers, comes from.

    Examples:
        >>> found = cp(torch.ones(2, 3, 4), 1, generator=torch.Generator().manual_seed(0))
        >>> found.tensor().shape, found.converged
        (torch.Size([2, 3, 4]), True)
    """
    if tensor.dim() < 2:
        raise ValueError(f"a tensor with at least two axes is wanted: got shape {tuple(tensor.shape)}")
    if rank < 1 or sweeps < 1:
        raise ValueError(f"rank and sweeps are at least 1: got rank={rank}, sweeps={sweeps}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance is at least 0: got {tolerance}")
    if not tensor.numel() or not bool(tensor.isfinite().all()):
        raise ValueError("finite entries are wanted: got NaN, infinity, or none at all")
    unit = tensor.abs().amax() if bool(tensor.any()) else tensor.new_ones(())
    tensor = tensor / unit
    size = torch.linalg.vector_norm(tensor)
    tolerance = max(tolerance, 10 * torch.finfo(tensor.dtype).eps)
    factors = [F.normalize(torch.randn(d, rank, generator=generator).to(tensor), dim=0) for d in tensor.shape]
    weights, errors, converged = tensor.new_zeros(rank), [1.0], False
    for _ in range(sweeps):
        for k in range(tensor.dim()):
            others = _terms(factors[:k] + factors[k + 1 :]).flatten(1)
            found = unfolding(tensor, axis=k) @ torch.linalg.pinv(others)
            weights = torch.linalg.vector_norm(found, dim=0)
            factors[k] = torch.where(weights > 0, found / weights, factors[k])
        apart = torch.linalg.vector_norm(tensor - torch.tensordot(weights, _terms(factors), dims=1))
        errors.append(float(apart / size) if size > 0 else 0.0)
        converged = abs(errors[-1] - errors[-2]) <= tolerance
        if converged:
            break
    order = weights.argsort(descending=True)
    return CP(unit * weights[order], tuple(u[:, order] for u in factors), tuple(errors[1:]), converged)


@law("e_{s+1} ≤ e_s; 0 ≤ e_1 ≤ 1", cases=20, discover_with=None)
def errors_shrink(f: Map, *xs: Tensor) -> Statement:
    """The errors, in the order of the sweeps, only ever shrink, from at most 1."""
    e = f(*xs)
    return AtMost((e[1:], e[:1], -e), (e[:-1], torch.ones_like(e[:1]), torch.zeros_like(e)))


def _cp_claims() -> Iterator[Claim]:
    """The laws that the fit obeys."""

    def fitted(t: Tensor, rank: int, sweeps: int) -> CP:
        return cp(t, rank, sweeps=sweeps, tolerance=0.0, generator=torch.Generator().manual_seed(0))

    def recovered(u: Tensor, v: Tensor, w: Tensor) -> Tensor:
        return fitted(pure_tensor(u, v, w), 1, 1).tensor()

    def errors(t: Tensor) -> Tensor:
        found = fitted(t, 2, 3).errors
        return t.new_tensor(found + found[-1:] * (3 - len(found)))

    def reported(t: Tensor) -> Tensor:
        found = cp(t, 1, sweeps=4, generator=torch.Generator().manual_seed(0))
        return t.new_tensor([found.errors[-1], found.converged, found.converged or len(found.errors) == 4])

    def measured(t: Tensor) -> Tensor:
        found = cp(t, 1, sweeps=4, generator=torch.Generator().manual_seed(0))
        last = [1.0, *found.errors][-2:]
        apart = (t - found.tensor()).square().sum().sqrt() / t.square().sum().sqrt()
        return torch.stack([apart, *apart.new_tensor([abs(last[1] - last[0]) <= 1e-8, 1])])

    spread = transformed(lambda x: x.tanh() / 2 + torch.arange(12.0).reshape(3, 2, 2).cos().to(x), "3 2 2")
    yield Claim(agreement(other=measured), reported, spread, name="cp, what it reports")
    vectors = (shape("3"), shape("2"), shape("4"))
    yield Claim(agreement(other=pure_tensor), recovered, vectors, name="cp of a pure tensor, one sweep")
    yield Claim(errors_shrink(), errors, shape("3 2 4"), name="cp of rank 2")

    def apart(t: Tensor) -> Tensor:
        return (t - fitted(t, 2, 1).tensor()).norm() / t.norm()

    above = transformed(lambda x: x.tanh() + 2, "3 2 4")
    few = replace(agreement(other=apart), cases=10)
    yield Claim(few, lambda t: t.new_tensor(fitted(t, 2, 1).error), above, name="cp, error")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _tensors_claims()
    yield from _einstein_claims()
    yield from _generalised_claims()
    yield from _cp_claims()
