"""Base densities of flows: what the data are turned into, with a formula and a sampler each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.functions.noise import normal_noise, uniform_noise
from lawful.laws import Claim, density_integrates_to_one, samples_follow_density, shape

Noise = Callable[..., Tensor]


class Base(NamedTuple):
    """Holds a density of vectors with independent entries.

    Examples:
        >>> NORMAL.log_density(torch.zeros(1, 2)).exp(), 1 / (2 * math.pi)
        (tensor([0.1592]), 0.15915494309189535)
    """

    log_density: Callable[[Float[Tensor, "n d"]], Float[Tensor, " n"]]
    """The log-density of each row."""
    noise: Noise
    """Draws rows, as `normal_noise` does: `noise(n, d, seed=..., first=..., dtype=..., device=...)`."""


def _normal(z: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    return -0.5 * z.square().sum(-1) - 0.5 * math.log(2 * math.pi) * z.shape[-1]


def _uniform(z: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    inside = (z.abs() <= 1).all(-1)
    return torch.where(inside, -math.log(2) * z.shape[-1], -math.inf).to(z.dtype)


def _logistic(z: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    return -(z + 2 * F.softplus(-z)).sum(-1)


def _uniform_noise(n: int, d: int, **kept: object) -> Tensor:
    return 2 * uniform_noise(n, d, **kept) - 1  # pyrefly: ignore [bad-argument-type]


def _logistic_noise(n: int, d: int, **kept: object) -> Tensor:
    return torch.logit(uniform_noise(n, d, **kept))  # pyrefly: ignore [bad-argument-type]


NORMAL = Base(_normal, normal_noise)
r"""$N(0, 1)$ in each entry."""
LOGISTIC = Base(_logistic, _logistic_noise)
r"""$e^{-z} / (1 + e^{-z})^2$ in each entry; its tails are heavier, and its gradients bounded."""
UNIFORM = Base(_uniform, _uniform_noise)
"""Even on the box from -1 to 1, and 0 outside."""


def claims() -> Iterator[Claim]:
    """The laws that base densities obey."""

    def of(base: Base) -> Callable[[int], Tensor]:
        return lambda n: base.noise(n, 2, seed=int(torch.randint(2**31, ())))

    for name, base in (("NORMAL", NORMAL), ("LOGISTIC", LOGISTIC), ("UNIFORM", UNIFORM)):
        support = (-1.0, 1.0) if base is UNIFORM else None
        for law in (samples_follow_density, density_integrates_to_one):
            kept = law(sample=of(base), log_prob=base.log_density, support=support)
            yield Claim(kept, base.log_density, shape("n 2"), name=name)
