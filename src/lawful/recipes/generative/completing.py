"""Completing an image: by a trained model, or by the patches of the image itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lawful.data.images import read_pictures
from lawful.inference.completion import PatchCompletion
from lawful.recipes.generative.asked import Completes, Trained, as_bytes

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
def by_model(of: Trained, image: str | Path, mask: str | Path, *, seed: int = 0) -> Tensor:
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


def read_for(of: Trained, image: str | Path) -> Tensor:
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


def write_image(x: Tensor, path: Path, of: Trained | None) -> None:
    """Writes an image as PNG, with the levels of a run if it is of one."""
    from PIL import Image

    if of is None:
        pixels = (x * 255).round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).numpy()
    else:
        pixels = as_bytes(x[None].cpu(), of.form)[0]
    Image.fromarray(np.ascontiguousarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)).save(path)
