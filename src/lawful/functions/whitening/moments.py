"""Mean and spread of data, gathered batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions.whitening.pieces import for_numpy, pieces
from lawful.laws import Claim, agreement, shape


def centred(x: Tensor, axes: Sequence[int]) -> Tensor:
    """Takes the mean over the axes away; where nothing varies, exactly 0 is left.

    The first entry is taken away before the mean is formed, so that the mean of equal numbers does not round.
    """
    first = x.detach()
    for axis in axes:
        first = first.narrow(axis, 0, 1)
    off = x - first
    return off - off.mean(tuple(axes), keepdim=True)


def squares(x: Float[Tensor, "n ..."]) -> Float[Tensor, ...]:
    r"""Sums the squares of each feature, $\sum_n x_{nd}^2$."""
    return x.square().sum(0)


def products(x: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    r"""Sums the products of all pairs of features, $X^\mathsf{T} X$.

    NumPy knows that a matrix times itself is symmetric, and computes half of it.
    """
    if not for_numpy(x):
        return x.mT @ x
    rows = x.numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        return torch.from_numpy(rows.T @ rows)


@dataclass(frozen=True, eq=False)
class Moments:
    r"""Counts data, and keeps their mean $\mu$ and their scatter $S$, squares or products of what is off the mean.

    Two parts of the data become one without a second look at either, and without cancellation:

    $$\mu = \mu_a + \tfrac{n_b}{n} \delta, \qquad S = S_a + S_b + \tfrac{n_a n_b}{n} \, \delta \delta^\mathsf{T},
    \qquad \delta = \mu_b - \mu_a$$

    No gradient passes. A feature that never varies has a scatter of exactly 0.

    Reference:
        Chan, Golub and LeVeque, *Updating formulae and a pairwise algorithm for computing sample variances*, 1979.

    Args:
        n: How many rows there were.
        mean: $\mu$.
        scatter: $S$.
        scatters: What $S$ sums: `squares`, for each feature, or `products`, for each pair.

    Examples:
        >>> found = Moments.of(torch.tensor([[0.0], [2.0]]), scatters=squares)
        >>> found.merge(Moments.of(torch.tensor([[4.0]]), scatters=squares)).mean
        tensor([2.])
    """

    n: int
    mean: Tensor
    scatter: Tensor
    scatters: Callable[[Tensor], Tensor]

    @classmethod
    def of(cls, x: Float[Tensor, "n ..."], *, scatters: Callable[[Tensor], Tensor]) -> Moments:
        """Reads a batch, one row for each sample; refuses numbers that are not finite.

        One pass measures from a guess of the mean, which is that of some rows; the rest of the way is made up for.
        """
        if not x.is_floating_point():
            raise TypeError(f"real numbers were wanted: got {x.dtype}")
        if x.dim() == 0 or x.numel() == 0:
            raise ValueError(f"at least one row and one feature were wanted: got shape {tuple(x.shape)}")
        x, first = x.detach(), x[0].detach()
        guess = first + (x[:: max(1, len(x) // 256)] - first).mean(0)
        sums, scatter = torch.zeros_like(first), torch.zeros_like(scatters(first[None]))
        parts = pieces(x)
        room = torch.empty_like(parts[0])
        for part in parts:
            off = torch.sub(part, guess, out=room[: len(part)])
            sums, scatter = sums + off.sum(0), scatter + scatters(off)
        shift = sums / len(x)
        found = cls(len(x), guess + shift, scatter - scatters(shift[None]) * len(x), scatters)
        if not (found.mean.isfinite().all() and found.scatter.isfinite().all()):
            raise ValueError("finite numbers, with finite squares, were wanted: got NaN, infinite or huge ones")
        spread = found.scatter if found.scatter.shape == first.shape else found.scatter.diagonal()
        none = spread == 0
        if bool(none.any()) and bool((x[:, none] != first[none]).any()):
            raise ValueError("numbers with squares above 0 were wanted: got differences whose squares vanish")
        return found

    @classmethod
    def over(cls, batches: Iterable[Tensor], *, scatters: Callable[[Tensor], Tensor]) -> Moments:
        """Reads batch after batch, of any sizes, and keeps none."""
        parts = (cls.of(batch, scatters=scatters) for batch in batches)
        first = next(parts, None)
        if first is None:
            raise ValueError("at least one batch was wanted: got none")
        return reduce(Moments.merge, parts, first)

    def merge(self, other: Moments) -> Moments:
        """Returns the moments of both parts of the data."""
        if self.scatters is not other.scatters:
            kinds = f"{self.scatters.__name__} and {other.scatters.__name__}"
            raise ValueError(f"moments of one kind were wanted: got {kinds}")
        if self.mean.shape != other.mean.shape:
            raise ValueError(f"features of shape {tuple(self.mean.shape)} were wanted: got {tuple(other.mean.shape)}")
        n, delta = self.n + other.n, other.mean - self.mean
        between = self.scatters(delta[None]) * (self.n * other.n / n)
        return Moments(n, self.mean + delta * (other.n / n), self.scatter + other.scatter + between, self.scatters)


def claims() -> Iterator[Claim]:
    """The laws that moments obey: a stream gives what the whole gives."""

    def streamed(x: Tensor) -> tuple[Tensor, Tensor]:
        found = Moments.over(x.split(3), scatters=products)
        return found.mean, found.scatter / found.n

    def equation(x: Tensor) -> tuple[Tensor, Tensor]:
        mean = x.mean(0)
        return mean, (x - mean).mT @ (x - mean) / len(x)

    yield Claim(agreement(other=lambda x: x - x.mean(0)), lambda x: centred(x, (0,)), shape("n 3"), name="centred")
    both = agreement(other=lambda x: x - x.mean((0, 2), keepdim=True))
    yield Claim(both, lambda x: centred(x, (0, 2)), shape("n 3 2"), name="centred, two axes")

    def squared(x: Tensor) -> Tensor:
        found = Moments.over(x.split(2), scatters=squares)
        return torch.stack([found.mean, found.scatter, torch.full_like(found.mean, found.n)])

    def one_by_one(x: Tensor) -> Tensor:
        mean = x.mean(0)
        return torch.stack([mean, (x - mean).square().sum(0), torch.full_like(mean, len(x))])

    def many(x: Tensor) -> Tensor:
        return x[torch.arange(600) % 6]

    def all_at_once(x: Tensor) -> Tensor:
        found = Moments.of(many(x), scatters=products)
        return torch.cat([found.mean[None], found.scatter / found.n])

    def repeated(x: Tensor) -> Tensor:
        return torch.cat([part[None] if part.dim() == 1 else part for part in equation(x)])

    def varying(x: Tensor) -> Tensor:
        return (centred(x.expand(7, 3), (0,)) != 0).any().to(x)

    yield Claim(agreement(other=one_by_one), squared, shape("n:1..5 3"), name="Moments.over: squares")
    yield Claim(agreement(other=repeated), all_at_once, shape("6 2"), name="Moments.of 600 rows")
    yield Claim(
        agreement(other=lambda x: x.new_zeros(())), varying, shape("3"), name="centred: constants give exactly 0"
    )
    for i, part in enumerate(("mean", "covariance")):

        def one(x: Tensor, i: int = i) -> Tensor:
            return streamed(x)[i]

        def other(x: Tensor, i: int = i) -> Tensor:
            return equation(x)[i]

        yield Claim(agreement(other=other), one, shape("n:1..8 3"), name=f"Moments.over: {part}")
