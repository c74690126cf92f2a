"""Scores: what a generative model says of data, in nats and, where these have levels, in bits per dimension.

What a generative model has to beat: a Gaussian, features apart from each other, the mean.
Pictures of what a generative model draws, whatever its data look like.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from lawful.data import Dequantizer
from lawful.functions import LogProbEstimate
from lawful.inference.metrics.intervals import bootstrap
from lawful.models.generative import PCA, SupportsELBO, SupportsLogProb, SupportsSample
from lawful.probe import figures
from lawful.recipes.data import GenerativeSplits
from lawful.training import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


ROWS = 256
"""How many observations go through a model at once."""
NATS, BOUND, BITS = "log-likelihood", "lower bound", "bits per dimension"


def log_likelihood(
    model: nn.Module | SupportsLogProb | SupportsELBO,
    x: Tensor,
    *,
    dequantizer: Dequantizer | None = None,
    labels: Tensor | None = None,
    seed: int = 0,
    rows: int = ROWS,
) -> LogProbEstimate:
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
        >>> log_likelihood(PCA.standard((2,), components=2), torch.zeros(3, 2)).value.shape
        torch.Size([3])
    """
    if not isinstance(model, SupportsLogProb | SupportsELBO):
        raise ValueError(f"a {type(model).__name__} draws samples and has no likelihood: it cannot score")
    y = x if dequantizer is None else dequantizer.dequantized(x, seed=seed)
    score = model.log_prob if isinstance(model, SupportsLogProb) else model.elbo
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
    return LogProbEstimate(value, error, max(part.evaluations for part in found))


def figures_of(nats: LogProbEstimate, *, dims: int, dequantizer: Dequantizer | None, bound: bool) -> dict[str, Any]:
    """The mean score with its interval, in nats and, where there are levels, in bits per dimension."""
    found = {BOUND if bound else NATS: bootstrap(torch.mean, nats.value).json()}
    if dequantizer is not None:
        found[BITS] = bootstrap(torch.mean, dequantizer.bits_per_dimension(nats.value, dims)).json()
    return found


def held_out(
    model: nn.Module | SupportsLogProb | SupportsELBO,
    seen: GenerativeSplits,
    *,
    labels: Tensor | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """What a model says of the test, for the results of a run.

    Args:
        model: What scores, or bounds the score.
        seen: The observations.
        labels: Those of the test, for a model that is conditional.
        seed: What the noise depends on.
    """
    nats = log_likelihood(model, seen.test, dequantizer=seen.dequantizer, labels=labels, seed=seed)
    return figures_of(
        nats, dims=math.prod(seen.shape), dequantizer=seen.dequantizer, bound=not isinstance(model, SupportsLogProb)
    )


FEATURES = 4096
"""The most features of which a covariance is taken."""


def density_baselines(seen: GenerativeSplits) -> dict[str, float]:
    """The mean log-likelihood of the test, in nats, and its bits per dimension where there are levels.

    Beside a Gaussian, and one for each feature by itself, stands the truth where it is known; and where there are
    levels, counting them pixel by pixel, which beats every Gaussian where most pixels are blank.
    """
    d, levels = math.prod(seen.shape), seen.dequantizer
    train = seen.train if levels is None else levels.dequantized(seen.train, seed=1)
    nats = {"a Gaussian for each feature": apart(train, seen)}
    if d <= FEATURES:
        nats["a Gaussian"] = float(log_likelihood(PCA.fit(train), seen.test, dequantizer=levels).value.mean())
    if seen.density is not None:
        nats["the density itself"] = float(seen.density.log_prob(seen.test.double()).mean())
    if levels is None:
        return nats
    bits = {f"{name}, {BITS}": levels.bits_per_dimension(value, d) for name, value in nats.items()}
    return {**bits, f"levels counted for each feature, {BITS}": histogram_baseline(seen, levels)}


def apart(train: Tensor, seen: GenerativeSplits) -> float:
    """The mean log-likelihood of the test under a Gaussian for each feature."""
    rows = train.flatten(1).double()
    variance = rows.var(0, correction=0)
    variance = variance.clamp_min(1e-6 * float(variance.mean()))
    test = seen.test if seen.dequantizer is None else seen.dequantizer.dequantized(seen.test)
    off = (test.flatten(1).double() - rows.mean(0)).square() / variance
    return float(-0.5 * (off + (2 * math.pi * variance).log()).sum(1).mean())


def histogram_baseline(seen: GenerativeSplits, levels: Dequantizer) -> float:
    """The bits of a feature where each level has the share of the training data that it had, with 1 added to each."""
    k = levels.levels
    places = [((x.flatten(1) - levels.low) / levels.width).round().long() for x in (seen.train, seen.test)]
    bits = 0.0
    for train, test in zip(places[0].T, places[1].T, strict=True):
        share = (train.bincount(minlength=k) + 1.0) / (len(train) + k)
        bits -= float(share.log2()[test].mean())
    return bits / places[0].shape[1]


def mean_error(seen: GenerativeSplits) -> float:
    """The squared error of an observation of the test, on average, where each is said to be the mean."""
    return float((seen.test - seen.train.mean(0)).square().flatten(1).sum(1).double().mean())


@torch.no_grad()
def by_units(seen: GenerativeSplits, units: list[int]) -> dict[str, float]:
    """The squared error of the best flat space with so many coordinates."""
    whole = PCA.fit(seen.train)
    off = (seen.test.flatten(1) - whole.mean).double()
    along = (off @ whole.axes.double()).square().mean(0).cumsum(0)
    total = float(off.square().sum(1).mean())
    return {str(k): max(0.0, total - float(along[min(k, len(along)) - 1])) for k in units}


POINTS, PICTURES = 2000, 32
"""How many samples are drawn of points, and of images or series."""


@torch.no_grad()
def draw_samples(run: Run, model: SupportsSample, seen: GenerativeSplits, *, seed: int = 0) -> Tensor:
    """Draws samples, keeps them as `samples/samples.npy` and in a figure, and returns them.

    Args:
        run: Where they are kept.
        model: What draws them.
        seen: The data, drawn beside points of the plane.
        seed: What they depend on.
    """
    flat = len(seen.shape) == 1
    x = model.sample(POINTS if flat else PICTURES, seed)
    np.save(run.samples / "samples.npy", x.cpu().numpy(), allow_pickle=False)
    density = None
    if seen.shape == (2,) and isinstance(model, SupportsLogProb):
        density = lambda x: model.log_prob(x).value  # noqa: E731
    figures.save(samples_figure(x, seen, log_prob=density), run.figures / "samples.png")
    return x


@torch.no_grad()
def draw_labels(run: Run, model: SupportsSample, seen: GenerativeSplits, *, seed: int = 0) -> None:
    """Draws four samples of each of the first ten labels, of a model that knows labels.

    Args:
        run: Where the figure is kept.
        model: What draws them.
        seen: The data, which name the labels.
        seed: What samples depend on.
    """
    labels = torch.arange(min(10, len(seen.classes))).repeat_interleave(4)
    x = model.sample(len(labels), seed, labels=labels)
    figure = figures.samples_grid(x, titles=[seen.classes[i] for i in labels])
    figures.save(figure, run.figures / "samples of labels.png")


def samples_figure(x: Tensor, seen: GenerativeSplits, *, log_prob: Callable[[Tensor], Tensor] | None = None) -> Figure:
    """Samples beside data: points of the plane, or of the two columns that vary most; else a grid, of their levels."""
    if len(seen.shape) != 1 or seen.shape[0] < 2:
        return pictures_figure(x[:PICTURES], seen)
    two = seen.train.var(0).topk(2).indices.sort().values
    clouds = [part[:, two] for part in (seen.test, x)]
    return figures.point_clouds(*clouds, names=("data", "samples"), log_prob=log_prob)


def pictures_figure(x: Tensor, seen: GenerativeSplits, *, labels: Tensor | None = None) -> Figure:
    """Samples as a grid, with the levels and the range of the data, and the names of their labels."""
    shown = x if seen.dequantizer is None else seen.dequantizer.quantized(x)
    titles = [] if labels is None else [seen.classes[i] for i in labels]
    return figures.samples_grid(shown, titles=titles, between=(float(seen.train.min()), float(seen.train.max())))


def codes_figure(z: Tensor, seen: GenerativeSplits, *, names: tuple[str, str]) -> Figure:
    """The codes of the test, coloured by label where there are labels."""
    labelled = seen.test_labels is not None
    return figures.latent_map(z, labels=seen.test_labels, names=seen.classes if labelled else None, axes_names=names)
