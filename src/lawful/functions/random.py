"""Noise that belongs to a sample, not to a batch: the same numbers for it however many others are drawn beside it."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lawful.laws import Claim, agreement, probabilities, samples_follow_density, shape

WORDS = 4
"""How many random words of 64 bits one value of the counter gives."""


def _words(n: int, values: int, seed: int, stream: int, first: int) -> np.ndarray:
    """Random words, `values` in each of n rows; row i depends on the seed, the stream and `first + i` only."""
    for name, number in (("n", n), ("seed", seed), ("stream", stream), ("first", first)):
        if not 0 <= number < 2**64:
            raise ValueError(f"{name} is a whole number from 0 to 2^64 - 1: got {number}")
    blocks = -(-values // WORDS)
    counter = np.random.Philox(key=seed | stream << 64, counter=first * blocks)
    return counter.random_raw(n * blocks * WORDS).reshape(n, blocks * WORDS)[:, :values]


def _uniform(n: int, sizes: tuple[int, ...], seed: int, stream: int, first: int) -> Tensor:
    """Doubles in the middle of 2^52 equal pieces of (0, 1): neither end is reached."""
    words = _words(n, prod(sizes), seed, stream, first)
    return torch.from_numpy(((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52).reshape(n, *sizes)


def _cast(x: Tensor, dtype: torch.dtype | None, device: torch.device | str | None) -> Tensor:
    return x.to(device=device, dtype=torch.get_default_dtype() if dtype is None else dtype)


def uniform_noise(
    n: int,
    *sizes: int,
    seed: int,
    stream: int = 0,
    first: int = 0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "n ..."]:
    r"""Draws numbers between 0 and 1, both left out.

    $$u_{ij} = \bigl(\lfloor w_{ij} / 2^{12} \rfloor + \tfrac12\bigr) / 2^{52}, \qquad
    w_{i} = \mathrm{Philox}(\text{key} = (\text{seed}, \text{stream}), \; \text{counter} = i)$$

    The generator counts: sample $i$ has its own values of the counter, so that its numbers are bitwise the same
    whatever $n$ is, and a batch that begins at `first` goes on where another ended. Other streams of a seed, one for
    each step of a chain say, are independent. In lower precision the numbers are these, rounded.

    Reference:
        Salmon, Moraes, Dror and Shaw, *Parallel random numbers: as easy as 1, 2, 3*, 2011.

    Args:
        n: The number of samples.
        *sizes: The shape of a sample.
        seed: What all depends on.
        stream: Which of the independent streams of the seed is meant.
        first: The number of the first sample.
        dtype: The precision; PyTorch's default unless given.
        device: Where the numbers go.

    Examples:
        >>> few, many = uniform_noise(2, 3, seed=0), uniform_noise(5, 3, seed=0)
        >>> torch.equal(few, many[:2]), torch.equal(uniform_noise(1, 3, seed=0, first=4), many[4:])
        (True, True)
    """
    u = _cast(_uniform(n, sizes, seed, stream, first), dtype, device)
    return u.clamp(torch.finfo(u.dtype).tiny, 1 - torch.finfo(u.dtype).eps / 2)


def normal_noise(
    n: int,
    *sizes: int,
    seed: int,
    stream: int = 0,
    first: int = 0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "n ..."]:
    r"""Draws standard normal numbers: the quantiles of those of `uniform_noise`, $z = \Phi^{-1}(u)$.

    None is rejected, so that every number takes as many random bits as any other.

    Args:
        n: The number of samples.
        *sizes: The shape of a sample.
        seed: What all depends on.
        stream: Which of the independent streams of the seed is meant.
        first: The number of the first sample.
        dtype: The precision; PyTorch's default unless given.
        device: Where the numbers go.

    Examples:
        >>> torch.equal(normal_noise(2, 3, seed=1), normal_noise(7, 3, seed=1)[:2])
        True
    """
    return _cast(torch.special.ndtri(_uniform(n, sizes, seed, stream, first)), dtype, device)


def integer_noise(
    n: int,
    *sizes: int,
    high: int,
    seed: int,
    stream: int = 0,
    first: int = 0,
    device: torch.device | str | None = None,
) -> Int[Tensor, "n ..."]:
    r"""Draws whole numbers from 0 to `high - 1`, all alike: $\lfloor u \cdot \text{high} \rfloor$.

    Args:
        n: The number of samples.
        *sizes: The shape of a sample.
        high: How many numbers there are, up to $2^{31}$.
        seed: What all depends on.
        stream: Which of the independent streams of the seed is meant.
        first: The number of the first sample.
        device: Where the numbers go.

    Examples:
        >>> int(integer_noise(1000, high=3, seed=0).max())
        2
    """
    if not 0 < high <= 2**31:
        raise ValueError(f"high is from 1 to 2^31: got {high}")
    return (_uniform(n, sizes, seed, stream, first) * high).long().to(device)


def categorical_noise(
    n: int, p: Float[Tensor, " k"], *, seed: int, stream: int = 0, first: int = 0
) -> Int[Tensor, " n"]:
    r"""Draws a class for each sample: the first $k$ with $p_0 + \dots + p_k > u$.

    Args:
        n: The number of samples.
        p: How probable each class is; the sum need not be 1.
        seed: What all depends on.
        stream: Which of the independent streams of the seed is meant.
        first: The number of the first sample.

    Examples:
        >>> categorical_noise(4, torch.tensor([0.0, 1.0, 0.0]), seed=0)
        tensor([1, 1, 1, 1])
    """
    if not (bool((p >= 0).all()) and 0 < float(p.sum()) < float("inf")):
        raise ValueError(f"probabilities that are not negative, and one above 0, were wanted: got {p.tolist()}")
    edges = p.detach().double().cumsum(0).cpu()
    return torch.searchsorted(edges, _uniform(n, (), seed, stream, first) * edges[-1], right=True).to(p.device)


def claims() -> Iterator[Claim]:
    """The laws that the noise of a sample obeys."""

    def beside(x: Tensor) -> Tensor:
        n, first = x.shape
        return torch.cat([draw(n, 5, seed=5, stream=n, first=first) for draw in (uniform_noise, normal_noise)]).to(x)

    def alone(x: Tensor) -> Tensor:
        n, first = x.shape
        draws = (uniform_noise, normal_noise)
        return torch.cat([draw(1, 5, seed=5, stream=n, first=first + i) for draw in draws for i in range(n)]).to(x)

    yield Claim(
        agreement(other=alone), beside, shape("n:1..9 m:1..9"), name="noise of a sample, beside others and alone"
    )

    def seeded() -> int:
        return int(torch.randint(2**31, ()))

    def normal(x: Tensor) -> Tensor:
        return -(x.square() + torch.log(torch.tensor(2 * torch.pi))).sum(-1) / 2

    follows = samples_follow_density(sample=lambda n: normal_noise(n, 2, seed=seeded()), log_prob=normal)
    yield Claim(follows, normal, shape("2"), name="normal_noise")
    inside = samples_follow_density(
        sample=lambda n: uniform_noise(n, 2, seed=seeded()), log_prob=lambda x: 0 * x[:, 0], support=(0.0, 1.0)
    )
    yield Claim(inside, normal, shape("2"), name="uniform_noise")
    for name, draw in (
        ("integer_noise", lambda n: integer_noise(n, high=3, seed=seeded())),
        ("categorical_noise", lambda n: categorical_noise(n, torch.ones(3), seed=seeded())),
    ):
        evenly = samples_follow_density(sample=draw, log_prob=lambda x: 0.0 * x.double(), support=(0.0, 2.0))
        yield Claim(evenly, normal, shape("2"), name=name)
    chosen = samples_follow_density(
        sample=lambda n, p: categorical_noise(n, p[0], seed=seeded()),
        log_prob=lambda x, p: p[0].log()[x.long().clamp(0, 3)],
        support=(0.0, 3.0),
    )
    yield Claim(chosen, normal, probabilities("1 4"), name="categorical_noise")
