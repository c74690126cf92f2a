"""Drawing examples again, for an ensemble; giving some of them wrong labels."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from lawful.data.generators import generator_of


def resampled(n: int, *, seed: int) -> Int[Tensor, "n"]:
    r"""Draws `n` of `n` examples with replacement: the bootstrap, on which bagging trains each of its models.

    About $1 - 1/e \approx 63\,\%$ of the examples are drawn at least once.

    Reference:
        Breiman, *Bagging Predictors*, 1996.

    Args:
        n: The number of examples.
        seed: What the draw depends on.

    Examples:
        >>> resampled(5, seed=0).shape
        torch.Size([5])
    """
    if n < 1:
        raise ValueError(f"at least 1 example was wanted: got {n}")
    return torch.randint(n, (n,), generator=generator_of(seed))


def noisy_labels(labels: Int[Tensor, "n"], *, classes: int, fraction: float, seed: int) -> Int[Tensor, "n"]:
    """Gives a fraction of the examples a wrong label, each other class being equally likely.

    Reference:
        Nakkiran et al., *Deep Double Descent*, 2019.

    Args:
        labels: The right labels, from 0 to `classes` - 1.
        classes: The number of classes.
        fraction: How many labels become wrong, from 0 to 1.
        seed: What the draw depends on.

    Examples:
        >>> labels = torch.zeros(100, dtype=torch.int64)
        >>> int((noisy_labels(labels, classes=10, fraction=0.15, seed=0) != labels).sum())
        15
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction is from 0 to 1: got {fraction}")
    if classes < 2:
        raise ValueError(f"a wrong label needs at least 2 classes: got {classes}")
    generator = generator_of(seed)
    chosen = torch.randperm(len(labels), generator=generator)[: round(fraction * len(labels))]
    step = torch.randint(1, classes, chosen.shape, generator=generator).to(labels.device)
    noisy, chosen = labels.clone(), chosen.to(labels.device)
    noisy[chosen] = (labels[chosen] + step) % classes
    return noisy
