"""A small U-Net with attention, for images and series."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.convolution import SAME, Convolution
from lawful.blocks.images.attention import SpaceAttention
from lawful.blocks.images.conditioned import ConditionedConvolutions, zeroed
from lawful.blocks.images.resize import Halve, doubled
from lawful.blocks.normalization import GroupNorm
from lawful.blocks.time_embedding import TimeEmbedding
from lawful.laws import Claim, agreement, batch_independence, shape


@dataclass(frozen=True, kw_only=True)
class UNetConfig:
    """The sizes of a U-Net."""

    shape: tuple[int, ...]
    """The shape of an example: (c, t) of a series, (c, h, w) of an image."""
    width: int = 32
    """The channels at full size."""
    multiples: tuple[int, ...] = (1, 2)
    """The channels at each size, as multiples of these; every further one is half as large."""
    depth: int = 1
    """The residual blocks at each size, on the way down; one more on the way up."""
    heads: int = 2
    """The heads of the attention at the smallest size; 0 for no attention."""
    classes: int = 0
    """The number of labels; 0 for none."""


class UNet(nn.Module):
    r"""Goes down to a small image and up again, with what was found on the way down put beside on the way up.

    Every block is a `ConditionedConvolutions`, told of the noise level and the label; at the smallest size all places
    look at each other. Any size of image will do, odd ones too. The output begins at 0.

    Reference:
        Ronneberger, Fischer and Brox, *U-Net*, 2015; Ho, Jain and Abbeel, *Denoising Diffusion Probabilistic Models*,
        2020.

    Args:
        config: The sizes.

    Examples:
        >>> UNet(UNetConfig(shape=(1, 8, 8), width=8))(torch.zeros(2, 1, 8, 8), torch.zeros(2)).shape
        torch.Size([2, 1, 8, 8])
        >>> UNet(UNetConfig(shape=(3, 7), width=8))(torch.zeros(2, 3, 7), torch.zeros(2)).shape
        torch.Size([2, 3, 7])
    """

    def __init__(self, config: UNetConfig) -> None:
        dims = len(config.shape) - 1
        if dims not in (1, 2, 3) or min(config.shape) < 1:
            raise ValueError(f"a series (c, t) or an image (c, h, w) was wanted: got shape {config.shape}")
        if not config.multiples or min(config.width, config.depth, *config.multiples) < 1 or config.heads < 0:
            raise ValueError(f"sizes of at least 1 were wanted: got {config}")
        super().__init__()
        self.config, d = config, 4 * config.width
        sizes = [config.width * m for m in config.multiples]

        def block(c: int, out: int) -> ConditionedConvolutions:
            return ConditionedConvolutions(c, out, condition=d, dims=dims)

        self.embedding, self.halve = TimeEmbedding(d, classes=config.classes), Halve()
        self.stem = Convolution(config.shape[0], config.width, kernel=(3,) * dims, padding=SAME)
        self.down, self.up, kept, c = nn.ModuleList(), nn.ModuleList(), [config.width], config.width
        for size in sizes:
            level = nn.ModuleList()
            for _ in range(config.depth):
                level.append(block(c, size))
                c = size
                kept.append(c)
            self.down.append(level)
        self.middle = nn.ModuleList([block(c, c), block(c, c)])
        self.attention = SpaceAttention(c, heads=config.heads) if config.heads else nn.Identity()
        for number, size in reversed([*enumerate(sizes)]):
            level = nn.ModuleList()
            for _ in range(config.depth + (number == 0)):
                level.append(block(c + kept.pop(), size))
                c = size
            self.up.append(level)
        self.norm = GroupNorm(gcd(8, c), c)
        self.head = zeroed(Convolution(c, config.shape[0], kernel=(3,) * dims, padding=SAME))

    def forward(
        self, x: Float[Tensor, "n c *space"], c: Float[Tensor, " n"], labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n c *space"]:
        """Maps images or series in view of their noise levels, and labels."""
        e = F.silu(self.embedding(c, labels))
        h = self.stem(x)
        kept, sizes = [h], []
        for number, level in enumerate(self.down):
            if number:
                sizes.append(h.shape[2:])
                h = self.halve(h)
            for block in level:  # pyrefly: ignore [not-iterable]
                h = block(h, e)
                kept.append(h)
        first, second = self.middle
        h = second(self.attention(first(h, e)), e)
        for number, level in enumerate(self.up):
            if number:
                h = doubled(h, sizes.pop())
            for block in level:  # pyrefly: ignore [not-iterable]
                h = block(torch.cat([h, kept.pop()], 1), e)
        return self.head(F.silu(self.norm(h)))


def claims() -> Iterator[Claim]:
    """The laws that the U-Net obeys."""
    image = UNet(UNetConfig(shape=(1, 3, 4), width=2, heads=1, classes=2))
    series = UNet(UNetConfig(shape=(2, 5), width=2, heads=0))
    with torch.no_grad():
        for network in (image, series):
            for i, p in enumerate(network.parameters()):
                p.copy_(0.5 * torch.sin(torch.arange(p.numel()).reshape(p.shape) + i))
    yield Claim(replace(batch_independence(), cases=20), image, (shape("n:2..3 1 3 4"), shape("n:2..3")))

    def written(x: Tensor, c: Tensor) -> Tensor:
        """Without loops: two sizes, a block each."""
        e = F.silu(series.embedding(c))
        (down_1,), (down_2,) = series.down  # pyrefly: ignore [not-iterable]
        (up_2,), (up_1, up_0) = series.up  # pyrefly: ignore [not-iterable]
        a = series.stem(x)
        b = down_1(a, e)
        small = down_2(torch.cat([(b[..., [0, 2]] + b[..., [1, 3]]) / 2, b[..., 4:]], -1), e)
        h = series.middle[1](series.middle[0](small, e), e)
        h = up_2(torch.cat([h, small], 1), e)[..., [0, 0, 1, 1, 2]]
        h = up_0(torch.cat([up_1(torch.cat([h, b], 1), e), a], 1), e)
        return series.head(F.silu(series.norm(h)))

    yield Claim(
        replace(agreement(other=written), cases=20), series, (shape("n 2 5"), shape("n")), name="UNet of series"
    )
