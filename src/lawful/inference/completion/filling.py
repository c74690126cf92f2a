"""Filling a hole without looking elsewhere: with the mean colour, or smoothly from its border."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from lawful.laws import Claim, agreement, boundedness, made, shape


def checked_hole(image: Float[Tensor, "c h w"], hole: Bool[Tensor, "h w"]) -> None:
    """Refuses what cannot be filled, and says why.

    Raises:
        TypeError: where the mask is not one of truth values.
        ValueError: where it is not that of the image, where nothing is left, or where what is left is not finite.
    """
    if hole.dtype is not torch.bool:
        raise TypeError(f"a mask is True where pixels are missing: got {hole.dtype}")
    if image.dim() != 3 or tuple(hole.shape) != tuple(image.shape[1:]):
        raise ValueError(
            f"an image, channels first, and a mask of its size were wanted: got {tuple(image.shape)} and "
            f"{tuple(hole.shape)}"
        )
    if bool(hole.all()):
        raise ValueError("the mask leaves no pixel of the image to go by")
    if not bool(image[:, ~hole].isfinite().all()):
        raise ValueError("the pixels outside the mask are finite: some are not")


def mean_fill(image: Float[Tensor, "c h w"], hole: Bool[Tensor, "h w"]) -> Float[Tensor, "c h w"]:
    """Fills a hole with the mean colour of the rest: the simplest that can be done.

    Args:
        image: The image, channels first.
        hole: True where pixels are missing.

    Examples:
        >>> mean_fill(torch.tensor([[[1.0, 3.0, 9.0]]]), torch.tensor([[False, False, True]]))
        tensor([[[1., 3., 2.]]])
    """
    checked_hole(image, hole)
    return torch.where(hole, image[:, ~hole].mean(1)[:, None, None], image)


def smooth_fill(
    image: Float[Tensor, "c h w"], hole: Bool[Tensor, "h w"], *, tolerance: float = 1e-4
) -> Float[Tensor, "c h w"]:
    r"""Fills a hole as heat spreads into it from its border: each pixel is the mean of its neighbours.

    $$\Delta u = 0 \text{ in the hole}, \qquad u = \text{image at its border}$$

    Solved by conjugate gradients on the pixels of the hole; at the edge of the image there is no flow.

    Args:
        image: The image, channels first.
        hole: True where pixels are missing.
        tolerance: How small the residual is to become, relative to the first.

    Examples:
        >>> smooth_fill(torch.tensor([[[0.0, 7.0, 7.0, 3.0]]]), torch.tensor([[False, True, True, False]]))
        tensor([[[0., 1., 2., 3.]]])
    """
    u = mean_fill(image, hole)
    inside = hole.to(u)
    r = -inside * _laplacian(u)
    p, square = r, r.square().sum((1, 2), keepdim=True)
    goal, tiny = tolerance**2 * square, torch.finfo(u.dtype).tiny
    for _ in range(int(hole.sum())):
        if bool((square <= goal).all()):
            break
        pressed = inside * _laplacian(p)
        along = square / (p * pressed).sum((1, 2), keepdim=True).clamp_min(tiny)
        u, r = u + along * p, r - along * pressed
        before, square = square, r.square().sum((1, 2), keepdim=True)
        p = r + square / before.clamp_min(tiny) * p
    return torch.where(hole, u, image)


def _laplacian(u: Tensor) -> Tensor:
    """The sum of the differences from the neighbours of each pixel; those outside the image are like it."""
    down, right = (F.pad(u.diff(dim=dim), edges) for dim, edges in ((1, (0, 0, 1, 1)), (2, (1, 1))))
    return -down.diff(dim=1) - right.diff(dim=2)


def claims() -> Iterator[Claim]:
    """The laws that filling obeys."""
    hole = torch.zeros(5, 6, dtype=torch.bool)
    hole[1:4, 2:5] = hole[2, 5] = True

    inner = [(i, j) for i in (1, 2, 3) for j in (2, 3, 4)]

    def filled(x: Tensor) -> Tensor:
        u = smooth_fill(x, hole, tolerance=1e-12)
        return torch.stack([u[:, i, j] for i, j in [*inner, (2, 5)]])

    def means(x: Tensor) -> Tensor:
        u = smooth_fill(x, hole, tolerance=1e-12)
        around = [(u[:, i - 1, j] + u[:, i + 1, j] + u[:, i, j - 1] + u[:, i, j + 1]) / 4 for i, j in inner]
        return torch.stack([*around, (u[:, 1, 5] + u[:, 3, 5] + u[:, 2, 4]) / 3])

    mean = replace(agreement(other=means, within=1e-6), cases=20)
    yield Claim(mean, filled, made(torch.tanh, "2 5 6"), name="smooth_fill, each the mean")
    yield Claim(
        boundedness(low=-1.0, high=1.0), lambda x: smooth_fill(x.tanh(), hole), shape("1 5 6"), name="smooth_fill"
    )

    def simple(x: Tensor) -> Tensor:
        return mean_fill(x, hole)

    def equation(x: Tensor) -> Tensor:
        return torch.where(hole, (x * ~hole).sum((1, 2), keepdim=True) / 20, x)

    yield Claim(agreement(other=equation), simple, shape("2 5 6"), name="mean_fill")
