"""Image folders: one subfolder per class."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lawful._files import check_memory, open_file
from lawful._json import require_choice, require_fields, require_int
from lawful.data._inputs import list_files
from lawful.data.dataset import SupervisedDataset, _classes_from_json

_MAX_PIXELS = 50_000_000
"""Maximum number of pixels of an image, checked before decoding."""
_MAX_VALUES = 2**30
"""Maximum number of values of all images."""
_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF")
"""Supported file suffixes and image formats."""
_SPLIT_NAMES = {"train", "training", "test", "testing", "val", "valid", "validation"}
"""Folder names that are splits of a dataset rather than classes."""


@dataclass(frozen=True)
class ImageEncoding:
    """Encoding of images: size, channels and class names.

    Examples:
        >>> encoding = ImageEncoding(8, 8, 1, ("cat", "dog"))
        >>> ImageEncoding.from_json(encoding.to_json()) == encoding
        True
    """

    height: int
    """Height in pixels."""
    width: int
    """Width in pixels."""
    channels: int
    """1 for grayscale, 3 for RGB."""
    classes: tuple[str, ...]
    """Class names, from the folders. Empty for unlabeled images."""
    resized: bool = False
    """Whether to resize images of another size. Otherwise they raise an error."""

    def inputs(self, paths: list[Path]) -> Float[Tensor, "n c h w"]:
        """Reads images as float32 pixels between 0 and 1."""
        if (total := len(paths) * self.channels * self.height * self.width) > _MAX_VALUES:
            raise ValueError(f"{len(paths)} images have {total} values, at most {_MAX_VALUES} are allowed: reduce size")
        check_memory(3 * 4 * total, what=f"reading {len(paths)} images", remedy="resize the images, or use fewer")
        pixels = np.empty((len(paths), self.channels, self.height, self.width), dtype=np.float32)
        for i, path in enumerate(paths):
            pixels[i] = self._read(path)
        return torch.from_numpy(pixels)

    def _read(self, path: Path) -> np.ndarray:
        from PIL import Image

        size = (self.width, self.height)
        image = _open_image(path)
        if image.size != size and not self.resized:
            raise ValueError(
                f"{path} is {image.width} x {image.height}, expected {self.width} x {self.height} as in training: "
                f"resize it, or train with --resize {self.height} {self.width}"
            )
        if image.mode.startswith("I;16"):
            bands = [Image.fromarray(np.asarray(image, dtype=np.float32) / 65535)] * self.channels
        else:
            bands = _over_white(image).convert("L" if self.channels == 1 else "RGB").split()
        if image.size != size:
            bands = [band.resize(size, Image.Resampling.BILINEAR) for band in bands]
        arrays = [np.asarray(band) for band in bands]
        return np.stack([array / np.float32(255) if array.dtype == np.uint8 else array for array in arrays])

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-compatible dictionary."""
        size = {"height": self.height, "width": self.width, "channels": self.channels}
        return {"kind": "images", **size, "classes": list(self.classes), "resized": self.resized}

    @classmethod
    def from_json(cls, value: object) -> ImageEncoding:
        """Rebuilds the encoding from untrusted JSON. Raises ValueError if it is malformed."""
        loaded = require_fields(value, ("kind", "height", "width", "channels", "classes", "resized"), where="encoding")
        require_choice(loaded["kind"], ("images",), where="encoding.kind")
        height, width, channels = (
            require_int(loaded[name], 1, most, where=f"encoding.{name}")
            for name, most in (("height", 2**16), ("width", 2**16), ("channels", 3))
        )
        if channels == 2 or height * width > _MAX_PIXELS:
            raise ValueError(f"encoding must have 1 or 3 channels and at most {_MAX_PIXELS} pixels")
        if not isinstance(loaded["resized"], bool):
            raise ValueError(f"encoding.resized must be true or false, got {str(loaded['resized'])[:100]}")
        classes = () if loaded["classes"] == [] else _classes_from_json(loaded["classes"])
        if classes is None:
            raise ValueError("encoding.classes must be a list of names")
        return cls(height, width, channels, classes, loaded["resized"])


def read_images(
    root: str | Path, *, size: tuple[int, int] | None = None, channels: int | None = None
) -> tuple[SupervisedDataset, ImageEncoding]:
    """Reads labeled images from `root/class/image.png`, including nested folders.

    Args:
        root: Folder with one subfolder per class.
        size: Height and width to resize to. By default all images must have the same size.
        channels: 1 for grayscale, 3 for RGB. By default grayscale if all images are.
    """
    root = Path(root)
    folders = sorted(f for f in root.iterdir() if f.is_dir() and not f.name.startswith("."))
    by_class = {folder.name: list_images(folder) for folder in folders}
    by_class = {name: paths for name, paths in by_class.items() if paths}
    if not by_class:
        raise ValueError(f"{root} must have one folder of images per class, such as cat/1.png: no folder has images")
    if {name.lower() for name in by_class} <= _SPLIT_NAMES:
        raise ValueError(f"the folders of {root} are splits, not classes: pass one of {', '.join(by_class)}")
    if len(by_class) < 2:
        raise ValueError(f"{root} must have at least 2 classes, got only {next(iter(by_class))!r}")
    paths = [path for files in by_class.values() for path in files]
    encoding = _fit_encoding(paths, classes=tuple(by_class), size=size, channels=channels)
    targets = torch.tensor([i for i, files in enumerate(by_class.values()) for _ in files])
    return SupervisedDataset(
        inputs=encoding.inputs(paths), targets=targets, classes=tuple(by_class), name=root.name
    ), encoding


def read_unlabeled_images(
    root: str | Path, *, size: tuple[int, int] | None = None
) -> tuple[Float[Tensor, "n c h w"], ImageEncoding]:
    """Reads all images below a folder, without classes.

    Args:
        root: Folder, or one image.
        size: Height and width to resize to. By default all images must have the same size.
    """
    if not Path(root).exists():
        raise ValueError(f"there is no file or folder {root}")
    paths = list_images(root)
    if not paths:
        raise ValueError(f"{root} has no images: expected {', '.join(_SUFFIXES)}")
    encoding = _fit_encoding(paths, classes=(), size=size, channels=None)
    return encoding.inputs(paths), encoding


def _fit_encoding(
    paths: list[Path], *, classes: tuple[str, ...], size: tuple[int, int] | None, channels: int | None
) -> ImageEncoding:
    if size is not None and (min(size) < 1 or size[0] * size[1] > _MAX_PIXELS):
        raise ValueError(f"size must be (height, width) with at most {_MAX_PIXELS} pixels, got {size}")
    if channels not in (None, 1, 3):
        raise ValueError(f"channels must be 1 or 3, got {channels}")
    if channels is None:
        channels = 1 if all(_is_grayscale(path) for path in paths) else 3
    width, height = _common_size(paths) if size is None else size[::-1]
    return ImageEncoding(height, width, channels, classes, size is not None)


def _common_size(paths: list[Path]) -> tuple[int, int]:
    """Returns the width and height of all images. Raises if they differ."""
    width, height = _open_image(paths[0], decode=False).size
    for path in paths:
        other = _open_image(path, decode=False).size
        if other != (width, height):
            raise ValueError(
                f"{paths[0]} is {width} x {height} and {path} is {other[0]} x {other[1]}: "
                f"resize all images, for example with --resize {height} {width}"
            )
    return width, height


def list_images(path: str | Path) -> list[Path]:
    """Returns the sorted image files below a folder, or the file itself.

    Args:
        path: Folder or file.
    """
    path = Path(path)
    if path.is_dir():
        return list_files(path, suffixes=_SUFFIXES)
    return [path] if path.suffix.lower() in _SUFFIXES else []


def _is_grayscale(path: Path) -> bool:
    mode = _open_image(path, decode=False).mode
    return mode in ("1", "L", "LA") or mode.startswith("I;16")


def _over_white(image: Any) -> Any:
    """Draws a transparent image over white. The colors of transparent pixels are arbitrary."""
    from PIL import Image

    if "A" not in image.getbands() and "transparency" not in image.info:
        return image
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))


def _open_image(path: Path, *, decode: bool = True) -> Any:
    """Opens an image and applies its EXIF orientation. Raises if it is broken or too large."""
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with open_file(path) as file, Image.open(file, formats=_FORMATS) as image:
                if image.width * image.height > _MAX_PIXELS:
                    raise ValueError(f"it has {image.width} x {image.height} pixels, at most {_MAX_PIXELS} are allowed")
                if image.mode in ("I", "F"):
                    raise ValueError(f"its pixel mode is {image.mode}, expected 8 or 16 bits")
                upright = ImageOps.exif_transpose(image) if decode or image.getexif().get(274, 1) != 1 else image
                if decode:
                    upright.load()
                return upright
    except Exception as error:
        raise ValueError(f"cannot read image {path}: {error}") from None
