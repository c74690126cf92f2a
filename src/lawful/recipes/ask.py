"""Asking a run of a generative model: for samples, for scores, for what is missing."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from lawful.recipes.catalogue import load
from lawful.recipes.generative.asked import Scored, Trained, drawn, scores, trained
from lawful.recipes.generative.completing import by_model, by_patches
from lawful.training import Run


def opened(run: Run | Path | str) -> Trained:
    """The generative model of a run, and the form of its data.

    Args:
        run: The run, or its folder.

    Raises:
        ValueError: where the run is none of a generative model.
    """
    return trained(run if isinstance(run, Run) else Run(run), load)


def draw(
    run: Run | Path | str,
    n: int = 16,
    *,
    seed: int = 0,
    label: str | None = None,
    guidance: float | None = None,
    steps: int | None = None,
) -> Tensor:
    """Draws samples from the model of a run, in the units of its data; sample i of a seed is always the same.

    Args:
        run: The run, or its folder.
        n: How many samples.
        seed: What they depend on.
        label: The name of the label that they are to have, for a conditional model.
        guidance: How strongly diffusion is led to the label, 1 for as it was learnt; the run's own by default.
        steps: In how many steps a model of diffusion draws; the run's own by default.

    Raises:
        ValueError: where the run draws none, knows no such label, or takes no guidance and steps.
    """
    return drawn(opened(run), n=n, seed=seed, label=label, guidance=guidance, steps=steps)


def score(run: Run | Path | str, data: str | Path, *, seed: int = 0, draws: int = 1) -> Scored:
    """Says how probable the model of a run finds new data, row by row: those that it finds least so are anomalies.

    Args:
        run: The run, or its folder.
        data: New data of the kind that it was trained on.
        seed: What noise depends on.
        draws: Over how many draws of noise a score is averaged.

    Raises:
        ValueError: where the model has no likelihood, or the data are of another kind.
    """
    return scores(opened(run), data, seed=seed, draws=draws)


def complete(run: Run | Path | str | None, image: str | Path, *, mask: str | Path, seed: int = 0) -> Tensor:
    """Fills in what is missing of an image: by the model of a run, or, without one, by the image's own patches.

    Args:
        run: The run, or its folder; None for patches.
        image: The image.
        mask: An image of the same size, white where it is missing.
        seed: What is drawn depends on it.

    Raises:
        ValueError: where the run completes nothing, or the sizes are not one.
    """
    if run is None:
        return by_patches(image, mask, seed=seed)
    return by_model(opened(run), image, mask, seed=seed)
