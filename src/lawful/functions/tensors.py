"""Tensors: pure tensors, rank, the CP decomposition, and generalizations of the dot product."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import prod

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn import functional as F

from lawful.functions._validation import check_same_size
from lawful.laws import (
    Claim,
    commutativity,
    convexity,
    homogeneity,
    linearity,
    non_negativity,
    permutation_invariance,
    shape,
)


def pure_tensor(*vectors: Float[Tensor, " _"]) -> Float[Tensor, ...]:
    r"""Tensor product of vectors, a tensor of rank one.

    $$T = v_1 \otimes v_2 \otimes \dots \otimes v_n$$

    Args:
        vectors: Vectors $v_1$ to $v_n$, at least one.

    Examples:
        >>> pure_tensor(torch.ones(2), torch.ones(3), torch.ones(4)).shape
        torch.Size([2, 3, 4])
    """
    if not vectors:
        raise ValueError("expected at least one vector, got none")
    return reduce(partial(torch.tensordot, dims=0), vectors)


def unfolding(tensor: Float[Tensor, "*shape"], *, dim: int) -> Float[Tensor, "d _"]:
    r"""Unfolds a tensor to a matrix: one dimension becomes the rows, all others the columns.

    Args:
        tensor: Tensor $T$.
        dim: Dimension of the rows.

    Examples:
        >>> unfolding(torch.zeros(2, 3, 4), dim=1).shape
        torch.Size([3, 8])
    """
    return tensor.movedim(dim, 0).flatten(1) if tensor.dim() > 1 else tensor[:, None]


def rank_bounds(tensor: Float[Tensor, "*shape"], *, rtol: float | None = None) -> tuple[int, int]:
    r"""Lower and upper bound of the rank of a tensor, the least number of pure tensors that sum to it.

    $$\max_k r_k \le \operatorname{rank} T \le \prod_k r_k \, / \, \max_k r_k,
    \qquad r_k = \operatorname{rank} T_{(k)}$$

    A sum of $r$ pure tensors unfolds to matrices of rank at most $r$. Conversely, the tensor lies in a product of
    spaces of dimensions $r_k$, and slicing along all but the largest leaves pure tensors. For a matrix both bounds are
    its rank; in general the rank is NP-hard to compute.

    Reference:
        Kolda and Bader, *Tensor Decompositions and Applications*, 2009.

    Args:
        tensor: Tensor $T$, with at least one dimension.
        rtol: Singular values of an unfolding $T_{(k)}$ at most `rtol` times the largest count as 0. Defaults to the
            larger side times the machine epsilon.

    Examples:
        >>> rank_bounds(torch.eye(3))
        (3, 3)
        >>> rank_bounds(torch.eye(4).reshape(2, 2, 2, 2))
        (2, 8)
    """
    if not tensor.dim():
        raise ValueError("expected a tensor with at least one dimension, got a scalar")
    ranks = [int(torch.linalg.matrix_rank(unfolding(tensor, dim=k), rtol=rtol)) for k in range(tensor.dim())]
    largest = max(ranks)
    return largest, prod(ranks) // max(largest, 1)


def is_pure(tensor: Float[Tensor, "*shape"], *, rtol: float | None = None) -> bool:
    r"""Returns whether a tensor is a tensor product of vectors, that is, of rank at most 1.

    Args:
        tensor: Tensor $T$.
        rtol: As in `rank_bounds`.

    Examples:
        >>> is_pure(torch.ones(2, 3, 4))
        True
        >>> is_pure(torch.eye(2))
        False
    """
    return rank_bounds(tensor, rtol=rtol)[0] <= 1


@dataclass(frozen=True, eq=False)
class CP:
    """CP decomposition: a weighted sum of pure tensors."""

    weights: Tensor
    """Weight of each term, largest first; shape (r,)."""
    factors: tuple[Tensor, ...]
    """One matrix for each dimension of the tensor, with a unit column for each term; shape (d, r)."""
    errors: tuple[float, ...]
    """Relative error after each sweep."""
    converged: bool
    """Whether the last sweep changed the error by at most the tolerance."""

    @property
    def error(self) -> float:
        """Relative error, in the Frobenius norm."""
        return self.errors[-1]

    def tensor(self) -> Tensor:
        """Returns the sum of the terms."""
        return torch.tensordot(self.weights, _terms(self.factors), dims=1)


def _terms(factors: Sequence[Tensor]) -> Tensor:
    """Returns the pure tensors of the first columns, of the second columns, and so on."""
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
    r"""CP decomposition (CANDECOMP, PARAFAC) by alternating least squares.

    $$T \approx \sum_{i=1}^r w_i \, u_i^{(1)} \otimes \dots \otimes u_i^{(n)}, \qquad
    U^{(k)} \leftarrow \arg\min_U \lVert T_{(k)} - U K^\top \rVert_F = T_{(k)} (K^\top)^+$$

    The columns of $K$ are the tensor products of the other factors. No sweep increases the error. The limit depends on
    the initialization and need not be optimal; if no best approximation exists, weights grow without bound.

    Reference:
        Carroll and Chang, *Analysis of individual differences in multidimensional scaling via an n-way generalization
        of "Eckart-Young" decomposition*, 1970.

    Args:
        tensor: Tensor $T$, with at least two dimensions and finite entries.
        rank: Number of terms $r$.
        sweeps: Maximum number of sweeps over all factors.
        tolerance: Change of the error, per sweep, at which to stop; at least ten times the machine epsilon.
        generator: Generator of the normal initialization.

    Examples:
        >>> found = cp(torch.ones(2, 3, 4), 1, generator=torch.Generator().manual_seed(0))
        >>> found.tensor().shape, found.converged
        (torch.Size([2, 3, 4]), True)
    """
    if tensor.dim() < 2:
        raise ValueError(f"expected a tensor with at least two dimensions, got shape {tuple(tensor.shape)}")
    if rank < 1 or sweeps < 1:
        raise ValueError(f"rank and sweeps must be at least 1, got rank={rank}, sweeps={sweeps}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance must not be negative, got {tolerance}")
    if not tensor.numel() or not bool(tensor.isfinite().all()):
        raise ValueError("expected finite entries, got NaN, infinity or an empty tensor")
    unit = tensor.abs().amax() if bool(tensor.any()) else tensor.new_ones(())
    tensor = tensor / unit
    size = torch.linalg.vector_norm(tensor)
    tolerance = max(tolerance, 10 * torch.finfo(tensor.dtype).eps)
    factors = [F.normalize(torch.randn(d, rank, generator=generator).to(tensor), dim=0) for d in tensor.shape]
    weights, errors, converged = tensor.new_zeros(rank), [1.0], False
    for _ in range(sweeps):
        for k in range(tensor.dim()):
            others = _terms(factors[:k] + factors[k + 1 :]).flatten(1)
            solution = unfolding(tensor, dim=k) @ torch.linalg.pinv(others)
            weights = torch.linalg.vector_norm(solution, dim=0)
            factors[k] = torch.where(weights > 0, solution / weights, factors[k])
        residual = torch.linalg.vector_norm(tensor - torch.tensordot(weights, _terms(factors), dims=1))
        errors.append(float(residual / size) if size > 0 else 0.0)
        converged = abs(errors[-1] - errors[-2]) <= tolerance
        if converged:
            break
    order = weights.argsort(descending=True)
    return CP(unit * weights[order], tuple(u[:, order] for u in factors), tuple(errors[1:]), converged)


def generalized_product(
    x: Float[Tensor, "*#batch d"],
    y: Float[Tensor, "*#batch d"],
    *,
    map: Callable[[Tensor, Tensor], Tensor] = torch.mul,
    reduce: Callable[..., Tensor] = torch.sum,
) -> Float[Tensor, "*batch"]:
    r"""Product of two vectors by any map and any reduction; the dot product is (`mul`, `sum`).

    $$x \star y = \operatorname*{reduce}_i \, \operatorname{map}(x_i, y_i)$$

    Among the four combinations of sum and product, only the dot product is linear in each vector. (`add`, `sum`) and
    (`mul`, `prod`) are a function of $x$ and a function of $y$ combined, and do not depend on which entries are paired.
    (`add`, `prod`) depends on the pairing, but is not linear in a vector.

    Args:
        x: Vectors $x$.
        y: Vectors $y$.
        map: Elementwise function of two tensors.
        reduce: Reduction, called with a tensor and `dim`.

    Examples:
        >>> generalized_product(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
        tensor(11.)
        >>> generalized_product(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]), map=torch.add, reduce=torch.prod)
        tensor(24.)
    """
    check_same_size(x, y)
    return reduce(map(x, y), dim=-1)


def rectified_dot(x: Float[Tensor, "*#batch d"], y: Float[Tensor, "*#batch d"]) -> Float[Tensor, "*batch"]:
    r"""Dot product restricted to the entries with equal signs.

    $$\sum_i \max(0, x_i y_i)$$

    Args:
        x: Vectors $x$.
        y: Vectors $y$.

    Examples:
        >>> rectified_dot(torch.tensor([1.0, -2.0, 3.0]), torch.tensor([1.0, 1.0, 1.0]))
        tensor(4.)
    """
    return generalized_product(x, y, map=lambda a, b: torch.relu(a * b))


def total_similarity(x: Float[Tensor, "*batch d"], features: Float[Tensor, "n d"]) -> Float[Tensor, "*batch"]:
    r"""Sum of the positive dot products of a vector with features.

    $$\sum_j \max\big(0, (A x)_j\big)$$

    Args:
        x: Vectors $x$.
        features: Matrix $A$, one feature per row.

    Examples:
        >>> total_similarity(torch.tensor([1.0, -2.0]), torch.eye(2))
        tensor(1.)
    """
    return torch.relu(x @ features.mT).sum(-1)


def claims() -> Iterator[Claim]:
    """Laws of pure tensors and generalized products."""
    pair, features = (shape("b 4"), shape("b 4")), (shape("b 4"), shape("n 4"))
    for n in range(3):
        yield Claim(linearity(input=n), pure_tensor, (shape("2"), shape("3"), shape("4")))
    yield Claim(linearity(input=1), generalized_product, pair, "(mul, sum)")
    for name, map_, reduce_ in (("(add, sum)", torch.add, torch.sum), ("(mul, prod)", torch.mul, torch.prod)):
        product = partial(generalized_product, map=map_, reduce=reduce_)
        yield Claim(permutation_invariance(axis=-1, input=1), product, pair, name)
    for law in (non_negativity(), commutativity(), homogeneity(), convexity()):
        yield Claim(law, rectified_dot, pair)
    for law in (non_negativity(), homogeneity(), convexity()):
        yield Claim(law, total_similarity, features)
