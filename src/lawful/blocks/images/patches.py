"""Patches: an image or a series cut into tokens, and put together again."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, agreement, invertibility, shape


class Patches(nn.Module):
    r"""Cuts images into squares, or series into pieces, each the vector of a token.

    $$y_{n, \, (c, k)} = x_{c, \, p n + k}$$

    Nothing overlaps and nothing is lost: `inverse` puts them together.

    Reference:
        Dosovitskiy et al., *An Image is Worth 16x16 Words*, 2021.

    Args:
        sizes: The shape of an example, (c, t) or (c, h, w).
        patch: $p$, the side of a patch, which divides all space axes.

    Examples:
        >>> cut = Patches((1, 4, 4), patch=2)
        >>> cut(torch.arange(16.0).reshape(1, 1, 4, 4))[0, 1], cut.count, cut.d
        (tensor([2., 3., 6., 7.]), 4, 4)
    """

    def __init__(self, sizes: tuple[int, ...], *, patch: int) -> None:
        if len(sizes) < 2 or min(sizes) < 1 or patch < 1 or any(n % patch for n in sizes[1:]):
            raise ValueError(f"space axes that patches of {patch} fill were wanted: got shape {tuple(sizes)}")
        super().__init__()
        self.sizes, self.patch = tuple(sizes), patch
        self.grid = tuple(n // patch for n in sizes[1:])
        self.count, self.d = prod(self.grid), sizes[0] * patch ** len(self.grid)

    def forward(self, x: Float[Tensor, "n c *space"]) -> Float[Tensor, "n t d"]:
        """Cuts."""
        dims = len(self.grid)
        split = x.reshape(len(x), self.sizes[0], *(size for n in self.grid for size in (n, self.patch)))
        order = [0, *range(2, 2 + 2 * dims, 2), 1, *range(3, 3 + 2 * dims, 2)]
        return split.permute(order).reshape(len(x), self.count, self.d)

    def inverse(self, y: Float[Tensor, "n t d"]) -> Float[Tensor, "n c *space"]:
        """Puts patches together."""
        dims = len(self.grid)
        split = y.reshape(len(y), *self.grid, self.sizes[0], *(self.patch,) * dims)
        order = [0, 1 + dims, *(axis for i in range(dims) for axis in (1 + i, 2 + dims + i))]
        return split.permute(order).reshape(len(y), *self.sizes)

    def extra_repr(self) -> str:
        return f"{self.sizes}, patch={self.patch}"


def claims() -> Iterator[Claim]:
    """The laws that patches obey."""
    images, series = Patches((2, 4, 6), patch=2), Patches((3, 4), patch=2)

    def by_hand(x: Tensor) -> Tensor:
        rows = [x[:, :, i : i + 2, j : j + 2].flatten(1) for i in (0, 2) for j in (0, 2, 4)]
        return torch.stack(rows, 1)

    yield Claim(agreement(other=by_hand), images, shape("n 2 4 6"))
    yield Claim(invertibility(), images, shape("n 2 4 6"))
    yield Claim(invertibility(), series, shape("n 3 4"))
    yield Claim(
        agreement(other=lambda x: torch.stack([x[:, :, :2].flatten(1), x[:, :, 2:].flatten(1)], 1)),
        series,
        shape("n 3 4"),
    )
