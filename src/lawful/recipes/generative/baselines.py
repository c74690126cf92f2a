"""What a generative model has to beat: a Gaussian, features apart from each other, the mean."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lawful.data import Dequantizer
from lawful.models.generative import PCA
from lawful.recipes.generative.given import Observations
from lawful.recipes.generative.scoring import BITS, scored

FEATURES = 4096
"""The most features of which a covariance is taken."""


def of_densities(seen: Observations) -> dict[str, float]:
    """The mean log-likelihood of the test, in nats, and its bits per dimension where there are levels.

    Beside a Gaussian, and one for each feature by itself, stands the truth where it is known; and where there are
    levels, counting them pixel by pixel, which beats every Gaussian where most pixels are blank.
    """
    d, levels = math.prod(seen.shape), seen.dequantizer
    train = seen.train if levels is None else levels.dequantized(seen.train, seed=1)
    nats = {"a Gaussian for each feature": apart(train, seen)}
    if d <= FEATURES:
        nats["a Gaussian"] = float(scored(PCA.fit(train), seen.test, dequantizer=levels).value.mean())
    if seen.density is not None:
        nats["the density itself"] = float(seen.density.log_prob(seen.test.double()).mean())
    if levels is None:
        return nats
    bits = {f"{name}, {BITS}": levels.bits_per_dimension(value, d) for name, value in nats.items()}
    return {**bits, f"levels counted for each feature, {BITS}": counted(seen, levels)}


def apart(train: Tensor, seen: Observations) -> float:
    """The mean log-likelihood of the test under a Gaussian for each feature."""
    rows = train.flatten(1).double()
    variance = rows.var(0, correction=0)
    variance = variance.clamp_min(1e-6 * float(variance.mean()))
    test = seen.test if seen.dequantizer is None else seen.dequantizer.dequantized(seen.test)
    off = (test.flatten(1).double() - rows.mean(0)).square() / variance
    return float(-0.5 * (off + (2 * math.pi * variance).log()).sum(1).mean())


def counted(seen: Observations, levels: Dequantizer) -> float:
    """The bits of a feature where each level has the share of the training data that it had, with 1 added to each."""
    k = levels.levels
    places = [((x.flatten(1) - levels.low) / levels.width).round().long() for x in (seen.train, seen.test)]
    bits = 0.0
    for train, test in zip(places[0].T, places[1].T, strict=True):
        share = (train.bincount(minlength=k) + 1.0) / (len(train) + k)
        bits -= float(share.log2()[test].mean())
    return bits / places[0].shape[1]


def mean_error(seen: Observations) -> float:
    """The squared error of an observation of the test, on average, where each is said to be the mean."""
    return float((seen.test - seen.train.mean(0)).square().flatten(1).sum(1).double().mean())


@torch.no_grad()
def by_units(seen: Observations, units: list[int]) -> dict[str, float]:
    """The squared error of the best flat space with so many coordinates."""
    whole = PCA.fit(seen.train)
    off = (seen.test.flatten(1) - whole.mean).double()
    along = (off @ whole.axes.double()).square().mean(0).cumsum(0)
    total = float(off.square().sum(1).mean())
    return {str(k): max(0.0, total - float(along[min(k, len(along)) - 1])) for k in units}
