"""Sampling from a run: a prompt in, text out piece by piece.

What a trained generative model is asked for: samples, scores, the missing part of an image.
Completing an image: by a trained model, or by the patches of the image itself.
Asking a run of a generative model: for samples, for scores, for what is missing.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lawful.data.images import read_pictures
from lawful.data.text import Tokenizer, tokenizer_from_json
from lawful.functions import LogProbEstimate
from lawful.inference.patch_match import PatchCompletion
from lawful.inference.text import as_tuple
from lawful.models.generation import SamplingConfig
from lawful.models.generative import AutoencoderSampler, DiffusionModel, SupportsELBO, SupportsLogProb, SupportsSample
from lawful.recipes.data import DataSpec
from lawful.recipes.generative_eval import log_likelihood
from lawful.recipes.registry import load, recipe_of
from lawful.recipes.text import AS_IT_SAYS, GenerationRequest, TextGenerator
from lawful.training import Run


def tokenizer_of(run: Run | Path | str) -> Tokenizer:
    """Reads the tokenizer of a run of text.

    Raises:
        ValueError: where it has none.
    """
    run = run if isinstance(run, Run) else Run(run)
    facts = run.config.get("model")
    if not isinstance(facts, dict) or "tokenizer" not in facts:
        raise ValueError(f"{run.path} has no tokenizer: it is a run of {run.config.get('recipe') or 'your own model'}")
    return tokenizer_from_json(facts["tokenizer"])


def sample(
    run: Run | Path | str,
    prompt: str = "",
    *,
    tokens: int = 256,
    sampling: SamplingConfig = AS_IT_SAYS,
    stop: str | Collection[str] = (),
    seed: int = 0,
    beams: int = 1,
) -> Iterator[str]:
    """Lets the model of a run write on where a prompt ends, and gives the text piece by piece.

    A model of pairs writes what the prompt becomes. Characters of the prompt that the model does not know are read as
    one token for them all: `tokenizer_of(run).unknown(prompt)` says which.

    Args:
        run: A run of text, or its folder.
        prompt: The text to begin with; it is not repeated.
        tokens: How many tokens are written, at most.
        sampling: How each is drawn.
        stop: A text that ends it, and is not shown, or several.
        seed: What the draws depend on.
        beams: How many continuations are searched for a probable one; 1 draws instead.

    Raises:
        ValueError: where the run does not write, or what is asked for cannot be.
    """
    run = run if isinstance(run, Run) else Run(run)
    asked = GenerationRequest(tokens=tokens, sampling=sampling, stop=as_tuple(stop), seed=seed, beams=beams)
    recipe = recipe_of(run)
    if not isinstance(recipe, TextGenerator):
        raise ValueError(f"lawful sample takes a run that writes text or draws samples: {run.path} is of {recipe.name}")
    return recipe.write(load(run), tokenizer_of(run), prompt, asked)


AT_ONCE = 256
"""How many samples are drawn at once; sample i of a seed is the same however many there are."""
SURPRISING = 5
"""How many of the most surprising rows are named."""


class LoadedModel(NamedTuple):
    """The model of a run, and the form of its data."""

    model: Any
    form: DataSpec


def load_generative_model(run: Run, load: Callable[[Run], Any]) -> LoadedModel:
    """The generative model of a run.

    Raises:
        ValueError: where the run is none of a generative model.
    """
    facts = run.config.get("model")
    if not isinstance(facts, dict) or "form" not in facts:
        named = run.config.get("recipe") or "a model of your own"
        raise ValueError(f"a run of a generative model was wanted: {run.path} is of {named}")
    return LoadedModel(load(run), DataSpec.described(facts))


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
    of: LoadedModel,
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
        if not isinstance(of.model, DiffusionModel):
            came = type(of.model).__name__
            raise ValueError(f"guidance and steps are for a model of diffusion: the run has a {came}")
        usual = of.model.drawing
        scale = usual.guidance if guidance is None else guidance
        of.model.drawing = replace(usual, guidance=scale, steps=usual.steps if steps is None else steps)
    if not isinstance(of.model, SupportsSample):
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
class ScoreTable:
    """The score of each row: how probable it is, or how far off what is rebuilt of it is."""

    nats: LogProbEstimate | None
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
def score_dataset(of: LoadedModel, data: str | Path, *, seed: int = 0, draws: int = 1) -> ScoreTable:
    """SupportsLogProb new data row by row.

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
    if isinstance(model, AutoencoderSampler):
        return ScoreTable(None, None, model.autoencoder.errors(new.x).double(), False, rows, new.files is not None)
    found = [log_likelihood(model, new.x, dequantizer=form.dequantizer, seed=seed + 2**32 * i) for i in range(draws)]
    nats = found[0]
    if draws > 1:
        values = torch.stack([one.value for one in found])
        nats = LogProbEstimate(values.mean(0), values.std(0) / math.sqrt(draws), sum(one.evaluations for one in found))
    d = math.prod(form.shape)
    bits = None if form.dequantizer is None else form.dequantizer.bits_per_dimension(nats.value, d)
    bound = isinstance(model, SupportsELBO) and not isinstance(model, SupportsLogProb)
    return ScoreTable(nats, bits, None, bound, rows, new.files is not None)


def save_samples(x: Tensor, path: Path, form: DataSpec) -> None:
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


def as_csv(x: Tensor, form: DataSpec) -> str:
    """Samples as CSV, with a header: a column for each number."""
    names = form.names or [f"x{i}" for i in range(1, 1 + math.prod(form.shape))]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([f"{v:.6g}" for v in row] for row in x.flatten(1).tolist())
    return text.getvalue()


def write_grid(x: Tensor, path: Path, form: DataSpec, *, least: int = 512) -> None:
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


def as_bytes(x: Tensor, form: DataSpec) -> np.ndarray:
    """Images as bytes, `n h w c`, from the lowest level to the highest, or in their own range."""
    levels = form.dequantizer
    low, high = (float(x.min()), float(x.max())) if levels is None else (levels.low, levels.high)
    scaled = (x - low) / max(high - low, 1e-12)
    return (scaled * 255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()


HOLE = 0.5
"""What is brighter in the image of a mask is missing."""


def hole_of(path: str | Path, *, size: tuple[int, int]) -> Tensor:
    """Reads a mask: a grey image of which white is missing and black is known."""
    x, form = read_pictures(path)
    if len(x) != 1:
        raise ValueError(f"a mask is one image: {path} has {len(x)}")
    if (form.height, form.width) != size:
        raise ValueError(
            f"the mask {path} is {form.width} x {form.height}, the image {size[1]} x {size[0]}: one size was wanted"
        )
    hole = x[0].mean(0) > HOLE
    if not bool(hole.any()):
        raise ValueError(f"the mask {path} is black all over: white is what is missing")
    if bool(hole.all()):
        raise ValueError(f"the mask {path} is white all over: nothing of the image is known")
    return hole


def by_patches(image: str | Path, mask: str | Path, *, seed: int = 0) -> Tensor:
    """Fills the hole of an image with patches of the rest of it; nothing is learnt.

    Args:
        image: The image.
        mask: An image of the same size, white where it is missing.
        seed: What guesses are drawn from.
    """
    x = one_image(image)
    hole = hole_of(mask, size=(x.shape[1], x.shape[2]))
    return PatchCompletion(seed=seed)(x, hole)


@torch.no_grad()
def by_model(of: LoadedModel, image: str | Path, mask: str | Path, *, seed: int = 0) -> Tensor:
    """Fills the hole of an image as a trained model thinks probable.

    Args:
        of: The model and the form of its data.
        image: An image, or a `.npy` file, of the form that the model was trained on.
        mask: An image of the same size, white where it is missing.
        seed: What is drawn depends on it.
    """
    model, form = of
    if not isinstance(model, Completes):
        raise ValueError(f"a {type(model).__name__} completes nothing: a run of diffusion was wanted, or none")
    if not form.picture:
        raise ValueError(f"images were wanted: the data of this run have shape {form.shape}")
    x = read_for(of, image)
    hole = hole_of(mask, size=(form.shape[1], form.shape[2]))
    return model.complete(x, ~hole.expand(x.shape), seed)[0]


def read_for(of: LoadedModel, image: str | Path) -> Tensor:
    """One image in the form of a run: a picture is brought to its levels, whatever file the run was trained on."""
    form, path = of.form, Path(image)
    if path.suffix.lower() in (".npy", ".npz"):
        x = form.read(path).x
    else:
        x = one_image(path)[None]
        levels = form.dequantizer
        if x.shape[1] != form.shape[0]:
            x = x.mean(1, keepdim=True).expand(1, form.shape[0], -1, -1)
        x = x if levels is None else levels.quantized(levels.low + (levels.high - levels.low) * x)
    if x.shape[1:] != form.shape or len(x) != 1:
        raise ValueError(f"one image of shape {form.shape} was wanted: {image} has shape {tuple(x.shape)}")
    return x


def one_image(path: str | Path) -> Tensor:
    """Reads one image, `c h w`, from 0 to 1."""
    x, _ = read_pictures(path)
    if len(x) != 1:
        raise ValueError(f"one image was wanted: {path} has {len(x)}")
    return x[0]


def write_image(x: Tensor, path: Path, of: LoadedModel | None) -> None:
    """Writes an image as PNG, with the levels of a run if it is of one."""
    from PIL import Image

    if of is None:
        pixels = (x * 255).round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).numpy()
    else:
        pixels = as_bytes(x[None].cpu(), of.form)[0]
    Image.fromarray(np.ascontiguousarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)).save(path)


def opened(run: Run | Path | str) -> LoadedModel:
    """The generative model of a run, and the form of its data.

    Args:
        run: The run, or its folder.

    Raises:
        ValueError: where the run is none of a generative model.
    """
    return load_generative_model(run if isinstance(run, Run) else Run(run), load)


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


def score(run: Run | Path | str, data: str | Path, *, seed: int = 0, draws: int = 1) -> ScoreTable:
    """Says how probable the model of a run finds new data, row by row: those that it finds least so are anomalies.

    Args:
        run: The run, or its folder.
        data: New data of the kind that it was trained on.
        seed: What noise depends on.
        draws: Over how many draws of noise a score is averaged.

    Raises:
        ValueError: where the model has no likelihood, or the data are of another kind.
    """
    return score_dataset(opened(run), data, seed=seed, draws=draws)


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
