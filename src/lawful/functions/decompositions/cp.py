"""CP: a tensor as a sum of pure tensors, found by alternating least squares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn import functional as F

from lawful.functions.decompositions.rank import unfolding
from lawful.functions.products.tensors import pure_tensor
from lawful.laws import AtMost, Claim, Map, Statement, agreement, law, made, shape


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


@law("e_{s+1} ≤ e_s; 0 ≤ e_1 ≤ 1", cases=20, tries=None)
def errors_shrink(f: Map, *xs: Tensor) -> Statement:
    """The errors, in the order of the sweeps, only ever shrink, from at most 1."""
    e = f(*xs)
    return AtMost((e[1:], e[:1], -e), (e[:-1], torch.ones_like(e[:1]), torch.zeros_like(e)))


def claims() -> Iterator[Claim]:
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

    spread = made(lambda x: x.tanh() / 2 + torch.arange(12.0).reshape(3, 2, 2).cos().to(x), "3 2 2")
    yield Claim(agreement(other=measured), reported, spread, name="cp, what it reports")
    vectors = (shape("3"), shape("2"), shape("4"))
    yield Claim(agreement(other=pure_tensor), recovered, vectors, name="cp of a pure tensor, one sweep")
    yield Claim(errors_shrink(), errors, shape("3 2 4"), name="cp of rank 2")

    def apart(t: Tensor) -> Tensor:
        return (t - fitted(t, 2, 1).tensor()).norm() / t.norm()

    above = made(lambda x: x.tanh() + 2, "3 2 4")
    few = replace(agreement(other=apart), cases=10)
    yield Claim(few, lambda t: t.new_tensor(fitted(t, 2, 1).error), above, name="cp, error")
