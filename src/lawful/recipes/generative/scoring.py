"""Scores: what a generative model says of data, in nats and, where these have levels, in bits per dimension."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from lawful.data import Dequantizer
from lawful.functions import Estimate
from lawful.inference.metrics.estimate import bootstrap
from lawful.models.generative import Bounds, Scores
from lawful.recipes.generative.given import Observations

ROWS = 256
"""How many observations go through a model at once."""
NATS, BOUND, BITS = "log-likelihood", "lower bound", "bits per dimension"


def scored(
    model: nn.Module | Scores | Bounds,
    x: Tensor,
    *,
    dequantizer: Dequantizer | None = None,
    labels: Tensor | None = None,
    seed: int = 0,
    rows: int = ROWS,
) -> Estimate:
    """Returns the log-likelihood of each observation, or a lower bound on it, in nats and in the units of the data.

    Levels are spread over their cells first: the noise of row i depends on the seed and i alone.

    Args:
        model: What scores, or bounds the score.
        x: The observations, `n *shape`.
        dequantizer: The levels of the data, if they have some.
        labels: The labels, for a model that is conditional.
        seed: What the noise depends on.
        rows: How many observations are scored at once.

    Examples:
        >>> from lawful.models.generative import PCA
        >>> scored(PCA.standard((2,), components=2), torch.zeros(3, 2)).value.shape
        torch.Size([3])
    """
    if not isinstance(model, Scores | Bounds):
        raise ValueError(f"a {type(model).__name__} draws samples and has no likelihood: it cannot score")
    y = x if dequantizer is None else dequantizer.dequantized(x, seed=seed)
    score = model.log_prob if isinstance(model, Scores) else model.elbo
    found = [
        score(y[i : i + rows], labels=None if labels is None else labels[i : i + rows], seed=seed + i)
        for i in range(0, len(y), rows)
    ]
    value, error = (
        torch.cat([part.detach().double() for part in parts]) for parts in list(zip(*found, strict=True))[:2]
    )
    if not bool(value.isfinite().all()):
        row = int(value.isfinite().logical_not().nonzero()[0])
        raise ValueError(f"the model gives row {row} the score {float(value[row])}: a finite one was wanted")
    return Estimate(value, error, max(part.evaluations for part in found))


def figures_of(nats: Estimate, *, dims: int, dequantizer: Dequantizer | None, bound: bool) -> dict[str, Any]:
    """The mean score with its interval, in nats and, where there are levels, in bits per dimension."""
    found = {BOUND if bound else NATS: bootstrap(torch.mean, nats.value).json()}
    if dequantizer is not None:
        found[BITS] = bootstrap(torch.mean, dequantizer.bits_per_dimension(nats.value, dims)).json()
    return found


def held_out(
    model: nn.Module | Scores | Bounds, seen: Observations, *, labels: Tensor | None = None, seed: int = 0
) -> dict[str, Any]:
    """What a model says of the test, for the results of a run.

    Args:
        model: What scores, or bounds the score.
        seen: The observations.
        labels: Those of the test, for a model that is conditional.
        seed: What the noise depends on.
    """
    nats = scored(model, seen.test, dequantizer=seen.dequantizer, labels=labels, seed=seed)
    return figures_of(
        nats, dims=math.prod(seen.shape), dequantizer=seen.dequantizer, bound=not isinstance(model, Scores)
    )
