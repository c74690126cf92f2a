"""Counter-based random numbers: the noise of sample i depends on the seed and i, not on the batch."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lawful.laws import Claim, agreement, probabilities, samples_follow_density, shape

_WORDS_PER_COUNT = 4  # 64-bit words that Philox returns for one value of its counter


def resolve_seed(seed: int | None) -> int:
    """Returns `seed`, or draws one from torch's global generator if it is None.

    Examples:
        >>> resolve_seed(3)
        3
    """
    return int(torch.randint(2**62, ())) if seed is None else seed


def uniform_noise(
    n: int,
    *sizes: int,
    seed: int,
    stream: int = 0,
    first: int = 0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "n ..."]:
    r"""Draws uniform numbers in the open interval (0, 1).

    $$u_{ij} = \bigl(\lfloor w_{ij} / 2^{12} \rfloor + \tfrac12\bigr) / 2^{52}, \qquad
    w_{i} = \mathrm{Philox}(\text{key} = (\text{seed}, \text{stream}), \; \text{counter} = i)$$

    Sample $i$ has its own range of the counter: its numbers are bitwise the same for every $n$, and a batch that starts
    at `first` continues an earlier one. Different streams of a seed are independent. Lower precisions round these
    numbers.

    Reference:
        Salmon, Moraes, Dror and Shaw, *Parallel random numbers: as easy as 1, 2, 3*, 2011.

    Args:
        n: Number of samples.
        *sizes: Shape of a sample.
        seed: Random seed.
        stream: Index of an independent stream of the seed, such as the step of a sampler.
        first: Index of the first sample.
        dtype: Data type. Defaults to torch's default.
        device: Device of the result.

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
    r"""Draws standard normal numbers, the quantiles $z = \Phi^{-1}(u)$ of `uniform_noise`.

    There is no rejection: every number uses the same count of random bits.

    Args:
        n: Number of samples.
        *sizes: Shape of a sample.
        seed: Random seed.
        stream: Index of an independent stream of the seed.
        first: Index of the first sample.
        dtype: Data type. Defaults to torch's default.
        device: Device of the result.

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
    r"""Draws uniform integers from 0 to `high - 1`: $\lfloor u \cdot \text{high} \rfloor$.

    Args:
        n: Number of samples.
        *sizes: Shape of a sample.
        high: Exclusive upper bound, at most $2^{31}$.
        seed: Random seed.
        stream: Index of an independent stream of the seed.
        first: Index of the first sample.
        device: Device of the result.

    Examples:
        >>> int(integer_noise(1000, high=3, seed=0).max())
        2
    """
    if not 0 < high <= 2**31:
        raise ValueError(f"expected high from 1 to 2^31, got {high}")
    return (_uniform(n, sizes, seed, stream, first) * high).long().to(device)


def categorical_noise(
    n: int, p: Float[Tensor, " k"], *, seed: int, stream: int = 0, first: int = 0
) -> Int[Tensor, " n"]:
    r"""Draws a class per sample: the smallest $k$ with $p_0 + \dots + p_k > u$.

    Args:
        n: Number of samples.
        p: Class probabilities; they need not sum to 1.
        seed: Random seed.
        stream: Index of an independent stream of the seed.
        first: Index of the first sample.

    Examples:
        >>> categorical_noise(4, torch.tensor([0.0, 1.0, 0.0]), seed=0)
        tensor([1, 1, 1, 1])
    """
    if not (bool((p >= 0).all()) and 0 < float(p.sum()) < float("inf")):
        raise ValueError(f"expected non-negative probabilities with a positive sum, got {p.tolist()}")
    edges = p.detach().double().cumsum(0).cpu()
    return torch.searchsorted(edges, _uniform(n, (), seed, stream, first) * edges[-1], right=True).to(p.device)


def _words(n: int, values: int, seed: int, stream: int, first: int) -> np.ndarray:
    """Random 64-bit words, (n, values); row i depends only on the seed, the stream and `first + i`."""
    for name, number in (("n", n), ("seed", seed), ("stream", stream), ("first", first)):
        if not 0 <= number < 2**64:
            raise ValueError(f"expected {name} from 0 to 2^64 - 1, got {number}")
    blocks = -(-values // _WORDS_PER_COUNT)
    counter = np.random.Philox(key=seed | stream << 64, counter=first * blocks)
    return counter.random_raw(n * blocks * _WORDS_PER_COUNT).reshape(n, blocks * _WORDS_PER_COUNT)[:, :values]


def _uniform(n: int, sizes: tuple[int, ...], seed: int, stream: int, first: int) -> Tensor:
    """Float64 midpoints of $2^{52}$ equal pieces of (0, 1)."""
    words = _words(n, prod(sizes), seed, stream, first)
    return torch.from_numpy(((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52).reshape(n, *sizes)


def _cast(x: Tensor, dtype: torch.dtype | None, device: torch.device | str | None) -> Tensor:
    return x.to(device=device, dtype=torch.get_default_dtype() if dtype is None else dtype)


def claims() -> Iterator[Claim]:
    """Samples do not depend on their batch, and follow their densities."""

    def batched(x: Tensor) -> Tensor:
        n, first = x.shape
        return torch.cat([draw(n, 5, seed=5, stream=n, first=first) for draw in (uniform_noise, normal_noise)]).to(x)

    def one_by_one(x: Tensor) -> Tensor:
        n, first = x.shape
        draws = (uniform_noise, normal_noise)
        return torch.cat([draw(1, 5, seed=5, stream=n, first=first + i) for draw in draws for i in range(n)]).to(x)

    yield Claim(agreement(other=one_by_one), batched, shape("n:1..9 m:1..9"), name="noise does not depend on the batch")

    def normal(x: Tensor) -> Tensor:
        return -(x.square() + torch.log(torch.tensor(2 * torch.pi))).sum(-1) / 2

    follows_normal = samples_follow_density(
        sample=lambda n: normal_noise(n, 2, seed=resolve_seed(None)), log_prob=normal
    )
    follows_uniform = samples_follow_density(
        sample=lambda n: uniform_noise(n, 2, seed=resolve_seed(None)),
        log_prob=lambda x: 0 * x[:, 0],
        support=(0.0, 1.0),
    )
    follows_probabilities = samples_follow_density(
        sample=lambda n, p: categorical_noise(n, p[0], seed=resolve_seed(None)),
        log_prob=lambda x, p: p[0].log()[x.long().clamp(0, 3)],
        support=(0.0, 3.0),
    )
    yield Claim(follows_normal, normal, shape("2"), name="normal_noise")
    yield Claim(follows_uniform, normal, shape("2"), name="uniform_noise")
    yield Claim(follows_probabilities, normal, probabilities("1 4"), name="categorical_noise")
    follows_even = samples_follow_density(
        sample=lambda n: integer_noise(n, high=3, seed=resolve_seed(None)),
        log_prob=lambda x: 0.0 * x.double(),
        support=(0.0, 2.0),
    )
    yield Claim(follows_even, normal, shape("2"), name="integer_noise")
