"""Confidence intervals: Wilson's for proportions, and the bootstrap."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import NormalDist

import torch
from torch import Tensor


@dataclass(frozen=True)
class ConfidenceInterval:
    """A value with its confidence interval.

    Examples:
        >>> print(ConfidenceInterval(0.9, 0.85, 0.94))
        0.9 [0.85, 0.94]
        >>> ConfidenceInterval(0.9, 0.85, 0.94).json()
        {'value': 0.9, 'low': 0.85, 'high': 0.94}
    """

    value: float
    low: float
    high: float

    def json(self) -> dict[str, float]:
        """Returns a JSON-compatible dictionary."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def wilson(hits: int, n: int, *, level: float = 0.95) -> ConfidenceInterval:
    r"""Estimates a probability from a count, with the Wilson score interval.

    $$\frac{1}{1 + z^2 / n} \left( \hat p + \frac{z^2}{2 n} \pm
    z \sqrt{\frac{\hat p (1 - \hat p)}{n} + \frac{z^2}{4 n^2}} \right)$$

    Unlike $\hat p \pm z \sqrt{\hat p (1 - \hat p) / n}$ it stays between 0 and 1, and has a positive width for
    $\hat p = 0$ and $\hat p = 1$. For n = 0 the value is 0 and the interval is [0, 1].

    Reference:
        Wilson, *Probable Inference, the Law of Succession, and Statistical Inference*, 1927.

    Args:
        hits: Number of successes, $n \hat p$.
        n: Number of trials.
        level: Confidence level.

    Examples:
        >>> print(wilson(9, 10))
        0.9 [0.5958, 0.9821]
        >>> print(wilson(0, 0))
        0 [0, 1]
    """
    if not 0 <= hits <= n:
        raise ValueError(f"hits must be between 0 and n: got hits={hits}, n={n}")
    _check_level(level)
    if n == 0:
        return ConfidenceInterval(0.0, 0.0, 1.0)
    p, z = hits / n, NormalDist().inv_cdf((1 + level) / 2)
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low, high = (middle - half) / scale, (middle + half) / scale
    return ConfidenceInterval(p, max(0.0, low) if hits else 0.0, min(1.0, high) if hits < n else 1.0)


_MAX_DRAWS = 5 * 10**7
"""Maximum number of examples drawn by default, in all bootstrap samples together."""


def bootstrap(
    statistic: Callable[..., Tensor], *data: Tensor, samples: int | None = None, seed: int = 0, level: float = 0.95
) -> ConfidenceInterval:
    r"""Estimates a statistic with its percentile bootstrap interval.

    The interval lies between the quantiles at $(1 \mp \text{level}) / 2$ of the statistic over resampled data. It is
    widened to contain the value if the statistic is biased. The global random state is not used.

    Reference:
        Efron, *Bootstrap Methods: Another Look at the Jackknife*, 1979.

    Args:
        statistic: Function from the data to a scalar tensor.
        *data: Tensors with the examples along dim 0.
        samples: Number of bootstrap samples. Defaults to 1000, for more than 50,000 examples to fewer, at least 100.
        seed: Random seed.
        level: Confidence level.

    Examples:
        >>> print(bootstrap(torch.mean, torch.arange(5.0)))
        2 [0.8, 3.2]
    """
    sizes = {len(x) if x.dim() else 0 for x in data}
    if len(sizes) != 1 or min(sizes) < 1:
        raise ValueError(f"expected equal, non-zero lengths along dim 0, got {sorted(sizes)}")
    if samples is None:
        samples = max(100, min(1000, _MAX_DRAWS // min(sizes)))
    if samples < 2:
        raise ValueError(f"samples must be at least 2, got {samples}")
    _check_level(level)
    n, generator = sizes.pop(), torch.Generator().manual_seed(seed)
    draws = (torch.randint(n, (n,), generator=generator).to(data[0].device) for _ in range(samples))
    values = torch.stack([statistic(*(x[i] for x in data)).double() for i in draws])
    low, high = torch.quantile(values, values.new_tensor([(1 - level) / 2, (1 + level) / 2])).tolist()
    value = float(statistic(*data))
    return ConfidenceInterval(value, min(low, value), max(high, value))


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}")
