"""Halving and doubling the space axes of images and series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.laws import Claim, agreement, linearity, shape


class Halve(nn.Module):
    r"""Averages pairs along every space axis; a last odd place stands alone.

    $$y_n = \tfrac12 (x_{2n} + x_{2n + 1})$$

    Examples:
        >>> Halve()(torch.tensor([[[1.0, 3.0, 5.0]]]))
        tensor([[[2., 5.]]])
    """

    def forward(self, x: Float[Tensor, "n c *space"]) -> Float[Tensor, "n c *less"]:
        """Halves the space axes."""
        pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[x.dim() - 3]
        return pool(x, 2, ceil_mode=True, count_include_pad=False)


def doubled(x: Float[Tensor, "n c *space"], size: Sequence[int]) -> Float[Tensor, "n c *more"]:
    r"""Repeats every place along the space axes, up to a size: $y_{2n} = y_{2n + 1} = x_n$.

    Args:
        x: Images or series.
        size: The space axes that are wanted, each twice as large, or one less than that.

    Examples:
        >>> doubled(torch.tensor([[[1.0, 2.0]]]), (3,))
        tensor([[[1., 1., 2.]]])
    """
    if len(size) != x.dim() - 2 or any((n + 1) // 2 != m for n, m in zip(size, x.shape[2:], strict=True)):
        raise ValueError(f"sizes whose halves are {tuple(x.shape[2:])} were wanted: got {tuple(size)}")
    for axis, n in enumerate(size, start=2):
        x = x.repeat_interleave(2, axis).narrow(axis, 0, n)
    return x


def claims() -> Iterator[Claim]:
    """The laws that halving and doubling obey."""
    halve = Halve()
    yield Claim(linearity(), halve, shape("n 1 3 4"))
    yield Claim(agreement(other=lambda x: (x[..., ::2] + x[..., 1::2]) / 2), halve, shape("n 2 6"))
    yield Claim(
        agreement(other=lambda x: 1 * x), lambda x: halve(doubled(x, (5, 2))), shape("n 1 3 1"), name="doubled, halved"
    )
    yield Claim(
        agreement(other=lambda x: torch.stack([x, x], -1).flatten(-2)),
        lambda x: doubled(x, (6,)),
        shape("n 1 3"),
        name="doubled",
    )
