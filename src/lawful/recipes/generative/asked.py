"""What a trained generative model is asked for: samples, scores, the missing part of an image."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lawful.functions import Estimate
from lawful.models.generative import Bounds, Decoded, Generates, ScoreModel, Scores
from lawful.recipes.generative.form import Form
from lawful.recipes.generative.scoring import scored
from lawful.training import Run

AT_ONCE = 256
"""How many samples are drawn at once; sample i of a seed is the same however many there are."""
SURPRISING = 5
"""How many of the most surprising rows are named."""


class Trained(NamedTuple):
    """The model of a run, and the form of its data."""

    model: Any
    form: Form


def trained(run: Run, load: Callable[[Run], Any]) -> Trained:
    """The generative model of a run.

    Raises:
        ValueError: where the run is none of a generative model.
    """
    facts = run.config.get("model")
    if not isinstance(facts, dict) or "form" not in facts:
        named = run.config.get("recipe") or "a model of your own"
        raise ValueError(f"a run of a generative model was wanted: {run.path} is of {named}")
    return Trained(load(run), Form.described(facts))


@runtime_checkable
class Completes(Protocol):
    """Fills in what is missing of an example."""

    def complete(
        self, x: Float[Tensor, "n *shape"], mask: Bool[Tensor, "..."], seed: int = 0
    ) -> Float[Tensor, "n *shape"]:
        """Returns the examples with new values where the mask is false."""
        ...


@torch.no_grad()
def drawn(
    of: Trained,
    *,
    n: int,
    seed: int = 0,
    label: str | None = None,
    guidance: float | None = None,
    steps: int | None = None,
) -> Tensor:
    """Draws samples, of a label if one is asked for; where the data have levels, so have the samples.

    Args:
        of: The model and the form of its data.
        n: How many.
        seed: What they depend on.
        label: The name of the label.
        guidance: How strongly a model of diffusion is led to the label; as it was trained to be unless given.
        steps: In how many steps it draws; as it was trained to unless given.
    """
    if n < 1:
        raise ValueError(f"n is at least 1: got {n}")
    if guidance is not None and label is None:
        raise ValueError("guidance leads to a label: give one")
    if guidance is not None or steps is not None:
        if not isinstance(of.model, ScoreModel):
            came = type(of.model).__name__
            raise ValueError(f"guidance and steps are for a model of diffusion: the run has a {came}")
        usual = of.model.drawing
        scale = usual.guidance if guidance is None else guidance
        of.model.drawing = replace(usual, guidance=scale, steps=usual.steps if steps is None else steps)
    if not isinstance(of.model, Generates):
        raise ValueError(f"a {type(of.model).__name__} draws no samples")
    parts = []
    number = None if label is None else of.form.label(label)
    for first in range(0, n, AT_ONCE):
        size = min(AT_ONCE, n - first)
        labels = None if number is None else torch.full((size,), number)
        parts.append(of.model.sample(size, seed, first=first, labels=labels).cpu())
    x, levels = torch.cat(parts), of.form.dequantizer
    return x if levels is None else levels.quantized(x)


@dataclass(frozen=True)
class Scored:
    """The score of each row: how probable it is, or how far off what is rebuilt of it is."""

    nats: Estimate | None
    """The log-likelihood, or a lower bound on it."""
    bits: Tensor | None
    """Bits per dimension, where the data have levels."""
    errors: Tensor | None
    """The squared error of what is rebuilt, for a model that has no likelihood."""
    bound: bool
    """Whether the nats are a lower bound."""
    rows: tuple[str, ...]
    """What each row is called: its number, or its file."""
    files: bool = False

    @property
    def surprise(self) -> Tensor:
        """What is larger the less a row is like the data: minus the nats, or the squared error."""
        if self.errors is not None:
            return self.errors
        return -self.nats.value if self.nats is not None else torch.zeros(0)

    def surprising(self, most: int = SURPRISING) -> list[str]:
        """The rows that are least like the data, the strangest first."""
        return [self.rows[int(i)] for i in self.surprise.argsort(descending=True, stable=True)[:most]]

    def csv(self) -> str:
        """A line for each row, with a header."""
        columns: dict[str, list[str]] = {"file" if self.files else "row": list(self.rows)}
        if self.errors is not None:
            columns["squared error"] = [f"{v:.6g}" for v in self.errors.tolist()]
        if self.nats is not None:
            columns["lower bound" if self.bound else "nats"] = [f"{v:.6g}" for v in self.nats.value.tolist()]
            columns["standard error"] = [f"{v:.3g}" for v in self.nats.error.tolist()]
        if self.bits is not None:
            columns["bits per dimension"] = [f"{v:.6g}" for v in self.bits.tolist()]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        return text.getvalue()

    @property
    def summary(self) -> str:
        """The mean score in a line, and the most surprising rows."""
        kind = "squared error" if self.errors is not None else "lower bound" if self.bound else "log-likelihood"
        sign, unit = (1, "") if self.errors is not None else (-1, " nats")
        bits = "" if self.bits is None else f", {float(self.bits.mean()):.4g} bits per dimension"
        worst = self.surprise.sort(descending=True, stable=True).values.tolist()
        named = ", ".join(f"{row} ({sign * v:.4g})" for row, v in zip(self.surprising(), worst, strict=False))
        what, mean = "files" if self.files else "rows", sign * float(self.surprise.mean())
        return f"mean {kind} {mean:.4g}{unit}{bits} on {len(self.rows)} {what}; most surprising: {named}"


@torch.no_grad()
def scores(of: Trained, data: str | Path, *, seed: int = 0, draws: int = 1) -> Scored:
    """Scores new data row by row.

    Args:
        of: The model and the form of its data.
        data: New data of the kind that the model was trained on.
        seed: What noise depends on.
        draws: Over how many draws of the noise within levels, and of the model's own, a score is averaged.
    """
    if draws < 1:
        raise ValueError(f"draws are at least 1: got {draws}")
    model, form = of
    new = form.read(data)
    rows = tuple(map(str, new.files or range(len(new.x))))
    if isinstance(model, Decoded):
        return Scored(None, None, model.autoencoder.errors(new.x).double(), False, rows, new.files is not None)
    found = [scored(model, new.x, dequantizer=form.dequantizer, seed=seed + 2**32 * i) for i in range(draws)]
    nats = found[0]
    if draws > 1:
        values = torch.stack([one.value for one in found])
        nats = Estimate(values.mean(0), values.std(0) / math.sqrt(draws), sum(one.evaluations for one in found))
    d = math.prod(form.shape)
    bits = None if form.dequantizer is None else form.dequantizer.bits_per_dimension(nats.value, d)
    bound = isinstance(model, Bounds) and not isinstance(model, Scores)
    return Scored(nats, bits, None, bound, rows, new.files is not None)


def save_samples(x: Tensor, path: Path, form: Form) -> None:
    """Writes samples to a file, as its ending says: `.png` for images and series, `.npy`, or `.csv`, a row for each."""
    match path.suffix.lower():
        case ".png" if form.picture:
            write_grid(x, path, form)
        case ".png" if len(form.shape) > 1:
            from lawful.probe import figures

            figures.save(figures.samples_grid(x), path)
        case ".npy":
            np.save(path, x.numpy(), allow_pickle=False)
        case ".csv":
            path.write_text(as_csv(x, form), encoding="utf-8")
        case ending:
            wanted = ".png, .npy or .csv" if len(form.shape) > 1 else ".npy or .csv"
            raise ValueError(f"samples of shape {form.shape} are written as {wanted}: got {ending or 'no ending'!r}")


def as_csv(x: Tensor, form: Form) -> str:
    """Samples as CSV, with a header: a column for each number."""
    names = form.names or [f"x{i}" for i in range(1, 1 + math.prod(form.shape))]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([f"{v:.6g}" for v in row] for row in x.flatten(1).tolist())
    return text.getvalue()


def write_grid(x: Tensor, path: Path, form: Form, *, least: int = 512) -> None:
    """Writes images side by side as one PNG, small ones enlarged without smoothing, with a gap between them."""
    from PIL import Image

    pixels = as_bytes(x, form)
    n, h, w, c = pixels.shape
    columns = math.ceil(math.sqrt(n))
    sheet = np.full((math.ceil(n / columns) * (h + 1) - 1, columns * (w + 1) - 1, c), 255, dtype=np.uint8)
    for i, one in enumerate(pixels):
        top, left = i // columns * (h + 1), i % columns * (w + 1)
        sheet[top : top + h, left : left + w] = one
    times = max(1, least // max(sheet.shape[:2]))
    sheet = sheet.repeat(times, 0).repeat(times, 1)
    Image.fromarray(sheet[:, :, 0] if c == 1 else sheet).save(path)


def as_bytes(x: Tensor, form: Form) -> np.ndarray:
    """Images as bytes, `n h w c`, from the lowest level to the highest, or in their own range."""
    levels = form.dequantizer
    low, high = (float(x.min()), float(x.max())) if levels is None else (levels.low, levels.high)
    scaled = (x - low) / max(high - low, 1e-12)
    return (scaled * 255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()
