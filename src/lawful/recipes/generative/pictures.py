"""Pictures of what a generative model draws, whatever its data look like."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lawful.models.generative import Generates, Scores
from lawful.probe import figures
from lawful.recipes.generative.given import Observations
from lawful.training import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS, PICTURES = 2000, 32
"""How many samples are drawn of points, and of images or series."""


@torch.no_grad()
def draw_samples(run: Run, model: Generates, seen: Observations, *, seed: int = 0) -> Tensor:
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
    if seen.shape == (2,) and isinstance(model, Scores):
        density = lambda x: model.log_prob(x).value  # noqa: E731
    figures.save(samples_figure(x, seen, log_prob=density), run.figures / "samples.png")
    return x


@torch.no_grad()
def draw_labels(run: Run, model: Generates, seen: Observations, *, seed: int = 0) -> None:
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


def samples_figure(x: Tensor, seen: Observations, *, log_prob: Callable[[Tensor], Tensor] | None = None) -> Figure:
    """Samples beside data: points of the plane, or of the two columns that vary most; else a grid, of their levels."""
    if len(seen.shape) != 1 or seen.shape[0] < 2:
        return pictures_figure(x[:PICTURES], seen)
    two = seen.train.var(0).topk(2).indices.sort().values
    clouds = [part[:, two] for part in (seen.test, x)]
    return figures.point_clouds(*clouds, names=("data", "samples"), log_prob=log_prob)


def pictures_figure(x: Tensor, seen: Observations, *, labels: Tensor | None = None) -> Figure:
    """Samples as a grid, with the levels and the range of the data, and the names of their labels."""
    shown = x if seen.dequantizer is None else seen.dequantizer.quantized(x)
    titles = [] if labels is None else [seen.classes[i] for i in labels]
    return figures.samples_grid(shown, titles=titles, between=(float(seen.train.min()), float(seen.train.max())))


def codes_figure(z: Tensor, seen: Observations, *, names: tuple[str, str]) -> Figure:
    """The codes of the test, coloured by label where there are labels."""
    labelled = seen.test_labels is not None
    return figures.latent_map(z, labels=seen.test_labels, names=seen.classes if labelled else None, axes_names=names)
