"""Images in folders: a folder for each class."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lawful._json import entry, fields, whole
from lawful.data.dataset import SupervisedDataset, classes_from_json

PIXELS = 50_000_000
"""The most pixels of an image; one with more is refused before it is decoded."""
NUMBERS = 2**30
"""The most numbers that all images together may have."""
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF")
"""Which files are images, and how they are read."""
PARTS = {"train", "training", "test", "testing", "val", "valid", "validation"}
"""Names of folders that are parts of a data set rather than classes."""


@dataclass(frozen=True)
class Images:
    """Says which size and how many channels images have, and what the classes are called.

    Examples:
        >>> images = Images(8, 8, 1, ("cat", "dog"))
        >>> Images.from_json(images.to_json()) == images
        True
    """

    height: int
    """The pixels of a column."""
    width: int
    """The pixels of a row."""
    channels: int
    """1 for grey, 3 for colours."""
    classes: tuple[str, ...]
    """The names of the classes: those of the folders; none where images are not told apart."""
    resized: bool = False
    """Whether images of another size are resized; otherwise they are refused."""

    def inputs(self, paths: list[Path]) -> Float[Tensor, "n c h w"]:
        """The pixels of images, from 0 to 1."""
        if (total := len(paths) * self.channels * self.height * self.width) > NUMBERS:
            raise ValueError(f"{len(paths)} images have {total} numbers, more than {NUMBERS}: give a smaller size")
        pixels = np.empty((len(paths), self.channels, self.height, self.width), dtype=np.float32)
        for i, path in enumerate(paths):
            pixels[i] = self._pixels(path)
        return torch.from_numpy(pixels)

    def _pixels(self, path: Path) -> np.ndarray:
        from PIL import Image

        size = (self.width, self.height)
        image = _opened(path)
        if image.size != size and not self.resized:
            came = "{} x {}".format(*image.size)
            raise ValueError(f"{path} is {came}, others are {self.width} x {self.height}: give a size for all")
        if image.mode.startswith("I;16"):
            bands = [Image.fromarray(np.asarray(image, dtype=np.float32) / 65535)] * self.channels
        else:
            bands = image.convert("L" if self.channels == 1 else "RGB").split()
        if image.size != size:
            bands = [band.resize(size, Image.Resampling.BILINEAR) for band in bands]
        arrays = [np.asarray(band) for band in bands]
        return np.stack([array / np.float32(255) if array.dtype == np.uint8 else array for array in arrays])

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        size = {"height": self.height, "width": self.width, "channels": self.channels}
        return {"kind": "images", **size, "classes": list(self.classes), "resized": self.resized}

    @classmethod
    def from_json(cls, value: object) -> Images:
        """Reads what `to_json` gave, from a file that nobody vouches for: anything else is refused."""
        held = fields(value, ("kind", "height", "width", "channels", "classes", "resized"), where="encoding")
        entry(held["kind"], ("images",), where="encoding.kind")
        height, width, channels = (
            whole(held[name], 1, most, where=f"encoding.{name}")
            for name, most in (("height", 2**16), ("width", 2**16), ("channels", 3))
        )
        if channels == 2 or height * width > PIXELS:
            raise ValueError(f"encoding is to have 1 or 3 channels and at most {PIXELS} pixels")
        if not isinstance(held["resized"], bool):
            raise ValueError(f"encoding.resized is to be true or false: got {str(held['resized'])[:100]}")
        classes = () if held["classes"] == [] else classes_from_json(held["classes"])
        if classes is None:
            raise ValueError("encoding.classes is to be a list of names: got none")
        return cls(height, width, channels, classes, held["resized"])


def read_images(
    root: str | Path, *, size: tuple[int, int] | None = None, channels: int | None = None
) -> tuple[SupervisedDataset, Images]:
    """Reads images of which each class has a folder, `root/cat/1.png`; folders inside those count too.

    Args:
        root: The folder of the folders.
        size: The height and the width that images are resized to; by default all have one size already.
        channels: 1 for grey, 3 for colours; by default grey if all are grey.
    """
    root = Path(root)
    folders = sorted(f for f in root.iterdir() if f.is_dir() and not f.name.startswith("."))
    found = {folder.name: pictures(folder) for folder in folders}
    found = {name: paths for name, paths in found.items() if paths}
    if not found:
        raise ValueError(f"{root} is to have a folder of images for each class, as in cat/1.png: no folder has any")
    if {name.lower() for name in found} <= PARTS:
        raise ValueError(f"the folders of {root} are parts, not classes: give one of {', '.join(found)}")
    if len(found) < 2:
        raise ValueError(f"images of at least 2 classes were wanted: {root} has the one folder {next(iter(found))!r}")
    paths = [path for files in found.values() for path in files]
    encoding = _encoding(paths, classes=tuple(found), size=size, channels=channels)
    targets = torch.tensor([i for i, files in enumerate(found.values()) for _ in files])
    return SupervisedDataset(
        inputs=encoding.inputs(paths), targets=targets, classes=tuple(found), name=root.name
    ), encoding


def read_pictures(root: str | Path, *, size: tuple[int, int] | None = None) -> tuple[Float[Tensor, "n c h w"], Images]:
    """Reads all images of a folder and of those inside it, without classes.

    Args:
        root: The folder, or one image.
        size: The height and the width that images are resized to; by default all have one size already.
    """
    paths = pictures(root)
    if not paths:
        raise ValueError(f"{root} has no images")
    encoding = _encoding(paths, classes=(), size=size, channels=None)
    return encoding.inputs(paths), encoding


def _encoding(
    paths: list[Path], *, classes: tuple[str, ...], size: tuple[int, int] | None, channels: int | None
) -> Images:
    """The size and the channels of images."""
    if size is not None and (min(size) < 1 or size[0] * size[1] > PIXELS):
        raise ValueError(f"size is a height and a width, at least 1 and at most {PIXELS} pixels: got {size}")
    if channels not in (None, 1, 3):
        raise ValueError(f"channels is 1 for grey or 3 for colours: got {channels}")
    if channels is None:
        channels = 1 if all(_is_grey(path) for path in paths) else 3
    width, height = _opened(paths[0], decode=False).size if size is None else size[::-1]
    return Images(height, width, channels, classes, size is not None)


def pictures(path: str | Path) -> list[Path]:
    """Lists the images of a folder and of those inside it, in order; or the one that is named.

    Args:
        path: A folder or a file.
    """
    path = Path(path)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    seen = [file for file in files if not file.name.startswith(".")]
    return [file for file in seen if file.suffix.lower() in ENDINGS and file.is_file()]


def _is_grey(path: Path) -> bool:
    mode = _opened(path, decode=False).mode
    return mode in ("1", "L", "LA") or mode.startswith("I;16")


def _opened(path: Path, *, decode: bool = True) -> Any:
    """An image, upright; one that is broken or too large is refused with its name."""
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as image:
                if image.width * image.height > PIXELS:
                    raise ValueError(f"it has {image.width} x {image.height} pixels: at most {PIXELS} were wanted")
                if image.mode in ("I", "F"):
                    raise ValueError(f"its pixels are of the kind {image.mode}: 8 or 16 bits were wanted")
                upright = ImageOps.exif_transpose(image) if decode or image.getexif().get(274, 1) != 1 else image
                if decode:
                    upright.load()
                return upright
    except Exception as error:
        raise ValueError(f"the image {path} cannot be read: {error}") from None
