"""`lawful generate`, `lawful sample`, `lawful score` and `lawful inpaint`."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from lawful._names import quote
from lawful.cli.console import OPTIONAL, OPTIONAL_FILE, USAGE, check_output, note, say, write_output

_Run = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
_File = Annotated[str, tyro.conf.arg(metavar="FILE")]


@dataclass(frozen=True, kw_only=True)
class DecodingFlags:
    """How tokens are sampled."""

    temperature: float = 1.0
    """Softmax temperature; 0 is greedy."""
    top_k: int = 0
    """Sample from the k most probable tokens; 0 means all."""
    top_p: float = 1.0
    """Sample from the most probable tokens with this total probability."""
    min_p: float = 0.0
    """Minimum probability of a token, relative to the most probable token."""
    repetition_penalty: float = 1.0
    """Divide the logits of repeated tokens by this; 1 disables."""


_DEFAULT_DECODING = DecodingFlags()


def generate(
    run: _Run,
    prompt: str = "",
    max_new_tokens: Annotated[int | None, OPTIONAL] = None,
    decoding: tyro.conf.OmitArgPrefixes[DecodingFlags] = _DEFAULT_DECODING,
    num_beams: int = 1,
    stop: Annotated[
        tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="[STR [STR ...]]")
    ] = (),
    seed: int = 0,
) -> int:
    """Generate text with a trained run: continue a prompt, or translate it.

    Args:
        run: Folder of the run.
        prompt: Text to start from.
        max_new_tokens: Maximum number of new tokens. Defaults to 256, or for translations to the limit set in training.
        decoding: How tokens are sampled.
        num_beams: Number of beams; 1 disables beam search. With temperature, top-k, top-p or min-p, beams are sampled.
        stop: Stop strings; they are not printed.
        seed: Random seed.
    """
    from lawful.models.generation import SamplingConfig
    from lawful.recipes.generate import generate_from_run, load_tokenizer
    from lawful.training.errors import user_message
    from lawful.training.loggers import strip_control_characters

    try:
        pieces = generate_from_run(
            run,
            prompt,
            max_new_tokens=max_new_tokens,
            sampling=SamplingConfig(**{**asdict(decoding), "top_k": decoding.top_k or None}),
            stop=sum(stop, ()),
            seed=seed,
            num_beams=num_beams,
        )
        tokenizer = load_tokenizer(run)
        if unknown := tokenizer.unknown_characters(prompt):
            say(f"warning: unknown characters in the prompt: {', '.join(map(repr, unknown[:10]))}")
        if decoding.top_k > tokenizer.vocab_size:
            say(f"warning: --top-k {decoding.top_k} exceeds the vocabulary of {tokenizer.vocab_size} tokens")
        for piece in pieces:
            write_output(strip_control_characters(piece) if sys.stdout.isatty() else piece)
        write_output("\n")
    except (ValueError, OSError) as error:
        say(f"error: {user_message(error) or error}")
        return USAGE
    return 0


def sample(
    run: _Run,
    n: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 16,
    output: Annotated[str | None, OPTIONAL_FILE] = None,
    label: Annotated[str | None, OPTIONAL] = None,
    guidance_scale: Annotated[float | None, OPTIONAL] = None,
    steps: Annotated[int | None, OPTIONAL] = None,
    noise: bool = True,
    seed: int = 0,
    escape: bool = True,
) -> int:
    """Draw samples from a trained generative model.

    Args:
        run: Folder of the run.
        n: Number of samples.
        output: File to write: .png, .npy or .csv. Defaults to CSV on standard output, or a PNG in the run for images.
        label: Class to sample from, for conditional models.
        guidance_scale: Guidance scale of a diffusion model. Defaults to the value of the run.
        steps: Number of sampling steps of a diffusion model. Defaults to the value of the run.
        noise: Whether the samples of a VAE include the noise of its likelihood. Otherwise they are decoder means.
        seed: Random seed.
        escape: Whether names in a CSV file are made safe for spreadsheets and terminals.
    """
    from lawful._files import create_folder
    from lawful.recipes.generate import (
        check_samples_path,
        draw_samples,
        load_generative_model,
        samples_csv,
        save_samples,
    )
    from lawful.training.errors import user_message
    from lawful.training.loggers import _evaluation_console
    from lawful.training.run import Run

    try:
        opened = Run(run)
        loaded = load_generative_model(opened)
        to_stdout = output is None and len(loaded.spec.shape) == 1
        name = f"samples, seed {seed}" + ("" if label is None else f", {Path(label).name}")
        path, root = (Path(output), None) if output else (opened.samples / f"{name}.png", opened.root)
        if not to_stdout:
            check_samples_path(path, loaded.spec)
            create_folder(path.parent, root=root)
        with _evaluation_console():
            x = draw_samples(loaded, n, seed=seed, label=label, guidance_scale=guidance_scale, steps=steps, noise=noise)
        if to_stdout:
            write_output(samples_csv(x, loaded.spec, escape=escape))
            return 0
        save_samples(x, path, loaded.spec, escape=escape, root=root)
        note(f"{n} samples: {quote(path)}")
    except (ValueError, OSError) as error:
        say(f"error: {user_message(error) or error}")
        return USAGE
    return 0


def score(
    run: _Run,
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    output: _File = "-",
    num_samples: int = 1,
    seed: int = 0,
    escape: bool = True,
) -> int:
    """Score data with a trained generative model: the log-likelihood of each row, as CSV.

    The most unusual rows are printed to standard error.

    Args:
        run: Folder of the run.
        data: Data in the format of the training data: a file, a folder of images, or built-in data.
        output: CSV file to write; `-` for standard output.
        num_samples: Number of noise samples to average each score over.
        seed: Random seed of the noise.
        escape: Whether file names in the table are made safe for spreadsheets and terminals.
    """
    from lawful.recipes.generate import score as score_data
    from lawful.training.errors import user_message
    from lawful.training.loggers import _evaluation_console

    try:
        check_output(output)
        with _evaluation_console():
            table = score_data(run, data, seed=seed, num_samples=num_samples)
        write_output(table.csv(escape=escape), output)
    except (ValueError, OSError) as error:
        say(f"error: {user_message(error) or error}")
        return USAGE
    note(table.summary)
    return 0


def inpaint(
    inputs: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[RUN] IMAGE", help_behavior_hint="(required)")
    ],
    mask: Annotated[str, tyro.conf.arg(metavar="MASK")],
    output: _File = "inpainted.png",
    seed: int = 0,
) -> int:
    """Fill in the missing part of an image: with a trained diffusion model, or with patches of the image.

    Args:
        inputs: Image to fill in. Put the folder of a diffusion run before it to use its model.
        mask: Image of the same size, white where the image is missing.
        output: PNG file to write.
        seed: Random seed.
    """
    from lawful.recipes.generate import inpaint as inpaint_image
    from lawful.recipes.generate import inpaint_with_model, load_generative_model, save_image
    from lawful.training.errors import user_message

    try:
        if len(inputs) not in (1, 2):
            raise ValueError(f"expected an image, or a run and an image, got {' '.join(inputs) or 'nothing'}")
        if Path(output).suffix.lower() != ".png":
            raise ValueError(f"--output must be a .png file, got {output}")
        check_output(output)
        if len(inputs) == 2:
            loaded = load_generative_model(inputs[0])
            image = inpaint_with_model(loaded, inputs[1], mask=mask, seed=seed)
            save_image(image, Path(output), loaded.spec)
        else:
            image = inpaint_image(None, inputs[0], mask=mask, seed=seed)
            save_image(image, Path(output))
    except (ValueError, OSError) as error:
        say(f"error: {user_message(error) or error}")
        return USAGE
    note(f"inpainted: {quote(output)} ({image.shape[2]} x {image.shape[1]})")
    return 0
