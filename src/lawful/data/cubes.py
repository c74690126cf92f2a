"""Rendered cubes: small color images of a cube at random rotations."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.data.batches import make_generator
from lawful.data.dataset import SupervisedDataset
from lawful.groups import SO3

_COLORS = (
    (0.90, 0.20, 0.20),
    (0.95, 0.55, 0.10),
    (0.20, 0.70, 0.30),
    (0.20, 0.40, 0.90),
    (0.95, 0.95, 0.95),
    (0.95, 0.85, 0.20),
)
"""Colors of the faces x, -x, y, -y, z and -z."""
_SAMPLES_PER_PIXEL = 3
"""Rays per pixel along each axis."""
_CHUNK = 16
"""Cubes that are rendered together: their rays fit the cache."""


def render_cubes(rotations: Float[Tensor, "n 3 3"], *, size: int = 24) -> Float[Tensor, "n 3 size size"]:
    r"""Renders a cube with six colors in orthographic projection, on black.

    A ray $o + t d$ enters a cube with half the side length $a$ at the latest time at which it enters one of the three
    slabs $\lvert x_k \rvert \le a$. A face is darker the more it is turned away from the viewer, and darker toward one
    of its edges. So every rotation has its own image: without the second shade, a square has four orientations.

    Args:
        rotations: Rotation of each cube. The viewer looks along the third axis, from its positive end.
        size: Height and width in pixels.

    Examples:
        >>> images = render_cubes(torch.eye(3)[None])
        >>> images.shape
        torch.Size([1, 3, 24, 24])
        >>> red, green, blue = images[0, :, 12, 12]
        >>> bool(red == green == blue)  # the white face
        True
    """
    if rotations.dim() != 3 or rotations.shape[1:] != (3, 3) or not rotations.isfinite().all():
        raise ValueError(f"expected finite rotations of shape (n, 3, 3), got shape {tuple(rotations.shape)}")
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size}")
    parts = [_render(part, size) for part in rotations.float().split(_CHUNK)]
    return torch.cat(parts) if parts else rotations.new_zeros(0, 3, size, size)


def _render(rotations: Tensor, size: int) -> Tensor:
    rays, half = size * _SAMPLES_PER_PIXEL, 1 / math.sqrt(3)  # the corners touch the unit sphere
    axis = (torch.arange(rays) + 0.5) * (2.1 / rays) - 1.05
    y, x = torch.meshgrid(-axis, axis, indexing="ij")
    origin = torch.stack([x, y, torch.full_like(x, 2.0)], -1).reshape(-1, 3)
    origin, direction = origin @ rotations, -rotations[:, 2, None]  # in the axes of the cube
    direction = torch.where(direction.abs() < 1e-6, 1e-6, direction)
    first, second = ((side * half - origin) / direction for side in (1, -1))
    enter, axis_of_face = torch.minimum(first, second).max(-1)
    hit = enter <= torch.maximum(first, second).amin(-1)
    positive = (direction < 0)[:, 0]  # a ray enters through the faces that look at the viewer
    faces = 2 * torch.arange(3) + (~positive).long()
    shade = 0.4 + 0.6 * direction.abs()
    colors = torch.tensor(_COLORS)[faces] * shade.mT
    point = (origin + enter[..., None] * direction) / half
    along = point.gather(-1, (axis_of_face[..., None] + 1) % 3).clamp(-1, 1)
    colors = colors.gather(1, axis_of_face[..., None].expand(-1, -1, 3)) * (0.75 + 0.25 * along)
    pixels = torch.where(hit[..., None], colors, 0.0)
    pixels = pixels.reshape(-1, size, _SAMPLES_PER_PIXEL, size, _SAMPLES_PER_PIXEL, 3).mean((2, 4))
    return pixels.movedim(-1, 1)


def cubes(*, samples: int = 5000, size: int = 24, seed: int = 0) -> SupervisedDataset:
    """Renders a cube at uniformly distributed rotations: images of 8 bits, and their rotation matrices as targets.

    Args:
        samples: Number of images.
        size: Height and width in pixels.
        seed: Random seed.

    Examples:
        >>> data = cubes(samples=10)
        >>> data.inputs.shape, data.targets.shape
        (torch.Size([10, 3, 24, 24]), torch.Size([10, 9]))
    """
    if samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")
    rotations = SO3().sample(samples, generator=make_generator(seed))
    images = (render_cubes(rotations, size=size) * 255).round() / 255
    return SupervisedDataset(inputs=images, targets=rotations.flatten(1), name="cubes")
