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


def samples_figure(x: Tensor, seen: Observations, *, log_prob: Callable[[Tensor], Tensor] | None = None) -> Figure:
    """Samples beside data: points of the plane, or of the two columns that vary most; else a grid."""
    if len(seen.shape) != 1 or seen.shape[0] < 2:
        return figures.samples_grid(x[:PICTURES], between=(float(seen.train.min()), float(seen.train.max())))
    two = seen.train.var(0).topk(2).indices.sort().values
    clouds = [part[:, two] for part in (seen.test, x)]
    return figures.point_clouds(*clouds, names=("data", "samples"), log_prob=log_prob)


def codes_figure(z: Tensor, seen: Observations, *, names: tuple[str, str]) -> Figure:
    """The codes of the test, coloured by label where there are labels."""
    labelled = seen.test_labels is not None
    return figures.latent_map(z, labels=seen.test_labels, names=seen.classes if labelled else None, axes_names=names)
