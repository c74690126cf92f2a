"""Generation with a trained run: text, samples, scores and inpainting."""

from __future__ import annotations

import io
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lawful._files import check_memory, write_file
from lawful._names import csv_text
from lawful.data.text.tokenizers import Tokenizer, tokenizer_from_json
from lawful.functions.estimate import LogProbEstimate
from lawful.models.generation import DEFAULT_SAMPLING, SamplingConfig
from lawful.training.loggers import track
from lawful.training.registry import load, recipe_of
from lawful.training.run import Run

_COMMANDS = {
    "text": "lawful generate",
    "translate": "lawful generate or lawful predict",
    **dict.fromkeys(("classify", "regress", "classify-text", "forecast"), "lawful predict"),
    **dict.fromkeys(("pca", "autoencode", "vae", "flow", "diffusion"), "lawful sample or lawful score"),
    "gan": "lawful sample",
}
"""Commands that use a run of each recipe."""


def _wrong_recipe(expected: str, run: Run) -> ValueError:
    """An error that names the command for the run."""
    recipe = run.config.get("recipe") or "no recipe"
    hint = f": use {_COMMANDS[recipe]}" if recipe in _COMMANDS else ""
    return ValueError(f"expected a run of {expected}, got {run.path} of {recipe}{hint}")


# ---------------------------------------------------------------- text


def load_tokenizer(run: Run | Path | str) -> Tokenizer:
    """Loads the tokenizer of a run.

    Raises:
        ValueError: If the run has no tokenizer.
    """
    run = run if isinstance(run, Run) else Run(run)
    model_config = run.config.get("model")
    if not isinstance(model_config, dict) or "tokenizer" not in model_config:
        raise _wrong_recipe("a text recipe", run)
    return tokenizer_from_json(model_config["tokenizer"])


def generate_from_run(
    run: Run | Path | str,
    prompt: str = "",
    *,
    max_new_tokens: int | None = None,
    sampling: SamplingConfig = DEFAULT_SAMPLING,
    stop: str | Collection[str] = (),
    seed: int = 0,
    num_beams: int = 1,
) -> Iterator[str]:
    """Generates text with a trained run, piece by piece.

    A language model continues the prompt, a translation model translates it.
    Unknown characters of the prompt are read as one unknown token: `load_tokenizer(run).unknown_characters(prompt)`
    lists them.

    Args:
        run: The run or its folder.
        prompt: Text to start from; it is not repeated.
        max_new_tokens: Maximum number of new tokens. Defaults to 256, or for a translation to the limit of the run.
        sampling: How tokens are sampled.
        stop: String or strings that end the text; they are not returned.
        seed: Random seed.
        num_beams: Number of beams; 1 disables beam search. With a temperature, `top_k`, `top_p` or `min_p`, beams are
            sampled.

    Raises:
        ValueError: If the run does not generate text, or an option is invalid.
    """
    from lawful.recipes.text import GenerationRequest, TextGenerator

    run = run if isinstance(run, Run) else Run(run)
    request = GenerationRequest(
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        seed=seed,
        num_beams=num_beams,
    )
    recipe = recipe_of(run)
    if not isinstance(recipe, TextGenerator):
        raise _wrong_recipe("text or translate", run)
    return recipe.generate(load(run), load_tokenizer(run), prompt, request)


# ---------------------------------------------------------------- samples

_BATCH_SIZE = 256
"""Samples drawn at a time; sample i of a seed does not depend on it."""
_SLOW_BATCH_SIZE = 8
"""Images or series that a diffusion model draws or scores at a time: the progress is shown after each batch."""
_NUM_ANOMALIES = 5
_BYTES_PER_VALUE = 64
"""Memory that drawing and writing samples takes per value; a number of CSV text is the largest."""
_MAX_STEPS = 10**5
"""Maximum number of sampling steps, as in the training of a diffusion model."""


class LoadedModel(NamedTuple):
    """A generative model and the format of its data."""

    model: Any
    spec: Any
    """The `DataSpec` of the training data."""


def load_generative_model(run: Run | Path | str) -> LoadedModel:
    """Loads the generative model of a run.

    Raises:
        ValueError: If the run is not of a generative recipe.
    """
    from lawful.recipes.data import DataSpec

    run = run if isinstance(run, Run) else Run(run)
    model_config = run.config.get("model")
    if not isinstance(model_config, dict) or "data_spec" not in model_config:
        raise _wrong_recipe("a generative recipe", run)
    return LoadedModel(load(run), DataSpec.from_config(model_config))


def sample_from_run(
    run: Run | Path | str,
    n: int = 16,
    *,
    seed: int = 0,
    label: str | None = None,
    guidance_scale: float | None = None,
    steps: int | None = None,
    noise: bool = True,
) -> Tensor:
    """Draws samples from the model of a run, in the units of its data.

    Args:
        run: The run or its folder.
        n: Number of samples.
        seed: Random seed; sample i does not depend on n.
        label: Class to sample from, for conditional models.
        guidance_scale: Guidance scale of a diffusion model. Defaults to the value of the run.
        steps: Number of sampling steps of a diffusion model. Defaults to the value of the run.
        noise: Whether the samples of a VAE include the noise of its likelihood. Otherwise they are decoder means.

    Raises:
        ValueError: If the run has no samples, no such label, or does not support guidance and steps.
    """
    loaded = load_generative_model(run)
    return draw_samples(loaded, n, seed=seed, label=label, guidance_scale=guidance_scale, steps=steps, noise=noise)


@torch.no_grad()
def draw_samples(
    loaded: LoadedModel,
    n: int,
    *,
    seed: int = 0,
    label: str | None = None,
    guidance_scale: float | None = None,
    steps: int | None = None,
    noise: bool = True,
) -> Tensor:
    """Draws samples from a loaded model, quantized to the levels of discrete training data.

    Args:
        loaded: A loaded generative model.
        n: Number of samples.
        seed: Random seed; sample i does not depend on n.
        label: Class to sample from, for conditional models.
        guidance_scale: Guidance scale of a diffusion model. Defaults to the value of the run.
        steps: Number of sampling steps of a diffusion model. Defaults to the value of the run.
        noise: Whether the samples of a VAE include the noise of its likelihood. Otherwise they are decoder means.
    """
    from lawful.models.generative import GAN, VAE, DiffusionModel, Flow, SupportsSample

    model, spec = loaded
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    what = f"n={n}, samples of {math.prod(spec.shape):,} values each,"
    check_memory(_BYTES_PER_VALUE * n * math.prod(spec.shape), what=what, remedy="lower n")
    if steps is not None and not 1 <= steps <= _MAX_STEPS:
        raise ValueError(f"steps must be from 1 to {_MAX_STEPS:,}, got {steps}")
    if guidance_scale is not None and label is None:
        raise ValueError("guidance_scale needs a label")
    options: dict[str, Any] = {"guidance_scale": guidance_scale, "steps": steps}
    options = {name: value for name, value in options.items() if value is not None}
    if options and not isinstance(model, DiffusionModel):
        raise ValueError(f"{' and '.join(options)} need a diffusion model, the run has a {type(model).__name__}")
    if not noise and not isinstance(model, VAE):
        raise ValueError(f"noise=False needs a VAE, the run has a {type(model).__name__}")
    options |= {} if noise else {"noise": False}
    if not isinstance(model, SupportsSample):
        raise ValueError(f"{type(model).__name__} does not draw samples")
    parts = []
    index = None if label is None else spec.label_index(label)
    conditional = getattr(model, "num_classes", 0) or getattr(model, "classifier", None) is not None
    if index is not None and not conditional:
        remedy = ": train with --conditional" if isinstance(model, VAE | Flow | GAN | DiffusionModel) else ""
        raise ValueError(f"the {type(model).__name__} of the run does not sample by label{remedy}")
    batch_size = _SLOW_BATCH_SIZE if isinstance(model, DiffusionModel) and len(spec.shape) > 1 else _BATCH_SIZE
    for first in track(range(0, n, batch_size), f"drawing {n:,} samples"):
        size = min(batch_size, n - first)
        labels = None if index is None else torch.full((size,), index)
        parts.append(model.sample(size, seed, first=first, labels=labels, **options).cpu())
    x, levels = torch.cat(parts), spec.dequantizer
    return x if levels is None else levels.quantize(x)


def save_samples(x: Tensor, path: Path, spec: Any, *, escape: bool = True, root: Path | None = None) -> None:
    """Writes samples as `.png` (images and series), `.npy` or `.csv` (one row per sample).

    Args:
        x: Samples.
        path: The file.
        spec: The `DataSpec` of the training data.
        escape: Whether column names that a spreadsheet would run as formulas get a leading apostrophe.
        root: Folder below which symbolic links are not followed.
    """
    check_samples_path(path, spec)
    match path.suffix.lower():
        case ".png" if spec.is_image:
            write_file(path, _image_grid(x, spec), root=root)
        case ".png":
            from lawful.probe import figures

            figures.save(figures.sample_grid(x), path, root=root)
        case ".npy":
            data = io.BytesIO()
            np.save(data, x.numpy(), allow_pickle=False)
            write_file(path, data.getvalue(), root=root)
        case _:
            write_file(path, samples_csv(x, spec, escape=escape), root=root)


def check_samples_path(path: Path, spec: Any) -> None:
    """Raises a ValueError if samples cannot be written to a file of this name."""
    kinds = (".png", ".npy", ".csv") if len(spec.shape) > 1 else (".npy", ".csv")
    if (suffix := path.suffix.lower()) not in kinds:
        expected = f"{', '.join(kinds[:-1])} or {kinds[-1]}"
        raise ValueError(f"expected a file name with {expected}, got {suffix or 'no suffix'!r}")


def samples_csv(x: Tensor, spec: Any, *, escape: bool = True) -> str:
    """Returns samples as CSV with a header, whose names are safe to open in a spreadsheet unless `escape` is False."""
    names = spec.columns or [f"x{i}" for i in range(1, 1 + math.prod(spec.shape))]
    return csv_text([names, *([f"{v:.6g}" for v in row] for row in x.flatten(1).tolist())], escape=escape)


def _image_grid(x: Tensor, spec: Any, *, min_size: int = 512) -> bytes:
    """Returns a grid of images as PNG; small images are enlarged without smoothing."""
    from PIL import Image

    pixels = _to_bytes(x, spec)
    n, h, w, c = pixels.shape
    columns = math.ceil(math.sqrt(n))
    sheet = np.full((math.ceil(n / columns) * (h + 1) - 1, columns * (w + 1) - 1, c), 255, dtype=np.uint8)
    for i, image in enumerate(pixels):
        top, left = i // columns * (h + 1), i % columns * (w + 1)
        sheet[top : top + h, left : left + w] = image
    factor = max(1, min_size // max(sheet.shape[:2]))
    sheet = sheet.repeat(factor, 0).repeat(factor, 1)
    data = io.BytesIO()
    Image.fromarray(sheet[:, :, 0] if c == 1 else sheet).save(data, format="png")
    return data.getvalue()


def _to_bytes(x: Tensor, spec: Any) -> np.ndarray:
    """Images as bytes, `n h w c`, scaled from the range of the levels, or from their own range."""
    levels = spec.dequantizer
    low, high = (float(x.min()), float(x.max())) if levels is None else (levels.low, levels.high)
    scaled = (x - low) / max(high - low, 1e-12)
    return (scaled * 255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()


# ---------------------------------------------------------------- scores


@dataclass(frozen=True)
class ScoreTable:
    """Scores of new data: log-likelihoods, or reconstruction errors."""

    nats: LogProbEstimate | None
    """Log-likelihoods or lower bounds."""
    bits: Tensor | None
    """Bits per dimension of discrete data."""
    errors: Tensor | None
    """Squared reconstruction errors of a model without a likelihood."""
    is_bound: bool
    """Whether the nats are a lower bound."""
    rows: tuple[str, ...]
    """Row numbers or file names."""
    has_files: bool = False
    """Whether the rows are files."""

    @property
    def anomaly_scores(self) -> Tensor:
        """Negative log-likelihoods, or reconstruction errors: larger for more unusual rows."""
        if self.errors is not None:
            return self.errors
        return -self.nats.value if self.nats is not None else torch.zeros(0)

    def anomalies(self, count: int = _NUM_ANOMALIES) -> list[str]:
        """Returns the most unusual rows."""
        return [self.rows[int(i)] for i in self.anomaly_scores.argsort(descending=True, stable=True)[:count]]

    def csv(self, *, escape: bool = True) -> str:
        """Returns the table as CSV with a header.

        Args:
            escape: Whether cells that a spreadsheet would run as formulas get a leading apostrophe, and cells with
                control characters are quoted.
        """
        columns: dict[str, list[str]] = {"file" if self.has_files else "row": list(self.rows)}
        if self.errors is not None:
            columns["squared error"] = [f"{v:.6g}" for v in self.errors.tolist()]
        if self.nats is not None:
            columns["lower bound" if self.is_bound else "nats"] = [f"{v:.6g}" for v in self.nats.value.tolist()]
            columns["standard error"] = [f"{v:.3g}" for v in self.nats.error.tolist()]
        if self.bits is not None:
            columns["bits per dimension"] = [f"{v:.6g}" for v in self.bits.tolist()]
        return csv_text([list(columns), *zip(*columns.values(), strict=True)], escape=escape)

    @property
    def summary(self) -> str:
        """The mean score and the most unusual rows."""
        kind = "squared error" if self.errors is not None else "lower bound" if self.is_bound else "log-likelihood"
        sign, unit = (1, "") if self.errors is not None else (-1, " nats")
        bits = "" if self.bits is None else f", {float(self.bits.mean()):.4g} bits per dimension"
        worst = self.anomaly_scores.sort(descending=True, stable=True).values.tolist()
        named = ", ".join(f"{row} ({sign * v:.4g})" for row, v in zip(self.anomalies(), worst, strict=False))
        rows, mean = "files" if self.has_files else "rows", sign * float(self.anomaly_scores.mean())
        return f"mean {kind} {mean:.4g}{unit}{bits} on {len(self.rows)} {rows}; most unusual: {named}"


@torch.no_grad()
def score(run: Run | Path | str, data: str | Path, *, seed: int = 0, num_samples: int = 1) -> ScoreTable:
    """Scores new data with the model of a run: the log-likelihood of each row. Low values are anomalies.

    Args:
        run: The run or its folder.
        data: New data in the format of the training data.
        seed: Random seed of the noise.
        num_samples: Number of noise samples to average each score over.

    Raises:
        ValueError: If the model has no likelihood, or the data have another format.
    """
    from lawful.models.generative import AutoencoderSampler, DiffusionModel
    from lawful.recipes.generative import _has_density, _log_likelihood

    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, got {num_samples}")
    model, spec = load_generative_model(run)
    new = spec.read(data)
    check_memory(24 * num_samples * len(new.x), what=f"num_samples={num_samples}", remedy="lower num_samples")
    rows, has_files = tuple(map(str, new.files or range(len(new.x)))), new.files is not None
    if isinstance(model, AutoencoderSampler):
        x, y = new.x, model.autoencoder(new.x)
        if x.dim() == 2:  # columns have different units
            x, y = model.autoencoder.normalizer(x), model.autoencoder.normalizer(y)
        errors = (y - x).square().flatten(1).sum(1).double()
        return ScoreTable(None, None, errors, False, rows, has_files)
    batch_size = _SLOW_BATCH_SIZE if isinstance(model, DiffusionModel) and len(spec.shape) > 1 else None
    estimates = [
        _log_likelihood(model, new.x, dequantizer=spec.dequantizer, seed=seed + 2**32 * i, batch_size=batch_size)
        for i in range(num_samples)
    ]
    nats = estimates[0]
    if num_samples > 1:
        values = torch.stack([estimate.value for estimate in estimates])
        evaluations = sum(estimate.evaluations for estimate in estimates)
        nats = LogProbEstimate(values.mean(0), values.std(0) / math.sqrt(num_samples), evaluations)
    levels = spec.dequantizer
    bits = None if levels is None else levels.bits_per_dim(nats.value, math.prod(spec.shape))
    return ScoreTable(nats, bits, None, not _has_density(model), rows, has_files)


# ---------------------------------------------------------------- inpainting

_MASK_THRESHOLD = 0.5
"""Brightness above which a pixel of the mask is missing."""


@runtime_checkable
class SupportsInpaint(Protocol):
    """A model that fills in missing entries."""

    def inpaint(
        self, x: Float[Tensor, "n *shape"], mask: Bool[Tensor, "..."], seed: int | None = None
    ) -> Float[Tensor, "n *shape"]:
        """Fills in examples where the mask is False."""
        ...


@torch.no_grad()
def inpaint(run: Run | Path | str | None, image: str | Path, *, mask: str | Path, seed: int = 0) -> Tensor:
    """Fills in the missing part of an image, with the model of a run or with patches of the image.

    Args:
        run: The run or its folder; None uses patches.
        image: The image.
        mask: Image of the same size, white where the image is missing.
        seed: Random seed.

    Returns:
        The image, `c h w`: in the size and units of the run's data, or in its own size and from 0 to 1.

    Raises:
        ValueError: If the model does not inpaint, or the sizes differ.
    """
    if run is None:
        from lawful.inference.patch_match import PatchCompletion

        x = _read_image(image)
        return PatchCompletion(seed=seed)(x, _read_mask(mask, size=(x.shape[1], x.shape[2])))
    return inpaint_with_model(load_generative_model(run), image, mask=mask, seed=seed)


@torch.no_grad()
def inpaint_with_model(loaded: LoadedModel, image: str | Path, *, mask: str | Path, seed: int = 0) -> Tensor:
    """Fills in the missing part of an image with a loaded model; see `inpaint`."""
    model, spec = loaded
    if not isinstance(model, SupportsInpaint):
        raise ValueError(f"{type(model).__name__} does not inpaint: use a run of diffusion, or none")
    if not spec.is_image:
        raise ValueError(f"inpainting needs a run on images, got data of shape {spec.shape}")
    new, resize = spec.read(image), (spec.shape[1], spec.shape[2])
    if len(new.x) != 1:
        raise ValueError(f"expected one image, {image} has {len(new.x)}")
    original = new.x[0] if new.files is None else _read_image(new.files[0])
    missing = _read_mask(mask, size=(original.shape[1], original.shape[2]), resize=resize)
    return model.inpaint(new.x, ~missing.expand(new.x.shape), seed)[0]


def save_image(x: Tensor, path: Path, spec: Any | None = None) -> None:
    """Writes an image as PNG: from the levels of a run, or from 0 to 1."""
    from PIL import Image

    if spec is None:
        pixels = (x * 255).round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).numpy()
    else:
        pixels = _to_bytes(x[None].cpu(), spec)[0]
    data = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)).save(data, format="png")
    write_file(path, data.getvalue())


def _read_mask(path: str | Path, *, size: tuple[int, int], resize: tuple[int, int] | None = None) -> Tensor:
    """Reads a mask; white pixels are True (missing).

    Args:
        path: Image file.
        size: Expected height and width.
        resize: Height and width to resize to. Every pixel that a missing pixel contributes to is missing.
    """
    from PIL import Image

    image = _read_image(path)
    if tuple(image.shape[1:]) != size:
        got = f"{image.shape[2]} x {image.shape[1]}"
        raise ValueError(f"mask {path} must have the size of the image, {size[1]} x {size[0]}, got {got}")
    missing = image.mean(0) > _MASK_THRESHOLD
    if resize is not None and resize != size:
        weights = Image.fromarray(missing.float().numpy()).resize(resize[::-1], Image.Resampling.BILINEAR)
        missing = torch.from_numpy(np.array(weights)) > 0
    if not bool(missing.any()):
        raise ValueError(f"mask {path} is all black: white marks the missing part")
    if bool(missing.all()):
        raise ValueError(f"mask {path} is all white: nothing of the image is known")
    return missing


def _read_image(path: str | Path) -> Tensor:
    """Reads one image, `c h w`, from 0 to 1."""
    from lawful.data.images import read_unlabeled_images

    x, _ = read_unlabeled_images(path)
    if len(x) != 1:
        raise ValueError(f"expected one image, {path} has {len(x)}")
    return x[0]
