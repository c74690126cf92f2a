"""What a network of a score model is.

A residual perceptron that is told of a noise level.
A small U-Net with attention, for images and series.
A transformer of patches that is told of a noise level.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.attention import MultiHeadAttention
from lawful.blocks.embedding import TimeEmbedding
from lawful.blocks.feed_forward import FeedForward
from lawful.blocks.vision import (
    AdaptiveNorm,
    ConditionalResBlock,
    Downsample,
    Patches,
    SpatialAttention,
    upsample,
    zero_init,
)
from lawful.laws import Claim, agreement, batch_independence, shape


@runtime_checkable
class Conditioned(Protocol):
    """Maps examples in view of a noise level, and of labels where it knows any."""

    def __call__(
        self, x: Float[Tensor, "n *shape"], c: Float[Tensor, " n"], labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n *out"]:
        """Maps a batch; without labels a network that knows some takes the null label."""
        ...


@dataclass(frozen=True, kw_only=True)
class TimeMLPConfig:
    """The sizes of a residual perceptron that is told of a noise level."""

    shape: tuple[int, ...]
    """The shape of an example."""
    width: int = 128
    """The width of the residual stream."""
    depth: int = 3
    """The number of residual blocks."""
    classes: int = 0
    """The number of labels; 0 for none."""
    outputs: int = 0
    """The number of outputs; 0 for as many as inputs, in their shape."""


class _Block(nn.Module):
    """What a block adds: two dense layers with a modulated activation between."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.norm, self.up, self.modulated = nn.LayerNorm(d), nn.Linear(d, d), AdaptiveNorm(d, condition_dim=d)
        self.down = zero_init(nn.Linear(d, d))

    def forward(self, x: Float[Tensor, "n d"], e: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return x + self.down(F.silu(self.modulated(self.up(self.norm(x)), e)))


class TimeMLP(nn.Module):
    r"""Adds up what dense blocks find, each modulated by the noise level, in data of any shape.

    $$h \leftarrow h + B \operatorname{silu}\bigl((1 + \gamma(e)) \odot A \operatorname{norm}(h) + \beta(e)\bigr),
    \qquad y = V \operatorname{silu}(\operatorname{norm}(h))$$

    from $h = W x$ on. $e$ is the embedding of the noise level and the label. The output begins at 0.

    Args:
        config: The sizes.

    Examples:
        >>> network = TimeMLP(TimeMLPConfig(shape=(2,), width=8, depth=1, classes=3))
        >>> network(torch.zeros(4, 2), torch.zeros(4), torch.tensor([0, 1, 2, 3])).shape
        torch.Size([4, 2])
    """

    def __init__(self, config: TimeMLPConfig) -> None:
        if not config.shape or min(config.shape) < 1 or config.width < 1 or config.depth < 0:
            raise ValueError(f"sizes of at least 1 were wanted: got {config}")
        super().__init__()
        self.config, d = config, config.width
        entries = math.prod(config.shape)
        self.embedding = TimeEmbedding(d, num_classes=config.classes)
        self.stem = nn.Linear(entries, d)
        self.layers = nn.ModuleList(_Block(d) for _ in range(config.depth))
        self.norm, self.head = nn.LayerNorm(d), zero_init(nn.Linear(d, config.outputs or entries))

    def forward(
        self, x: Float[Tensor, "n *shape"], c: Float[Tensor, " n"], labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n *out"]:
        """Maps examples in view of their noise levels, and labels."""
        e = F.silu(self.embedding(c, labels))
        h = self.stem(x.flatten(1))
        for layer in self.layers:
            h = layer(h, e)
        y = self.head(F.silu(self.norm(h)))
        return y if self.config.outputs else y.reshape(x.shape)


def _time_mlp_claims() -> Iterator[Claim]:
    """The laws that the perceptron with a noise level obeys."""
    network = TimeMLP(TimeMLPConfig(shape=(2,), width=4, depth=1))
    with torch.no_grad():
        for i, p in enumerate(network.parameters()):
            p.copy_(0.6 * torch.sin(torch.arange(p.numel()).reshape(p.shape) + i))
    inputs = (shape("n 2"), shape("n"))

    def equation(x: Tensor, c: Tensor) -> Tensor:
        def dense(layer: nn.Linear, x: Tensor) -> Tensor:
            return torch.einsum("oi,ni->no", layer.weight, x) + layer.bias

        def norm(layer: nn.Module, x: Tensor) -> Tensor:
            z = (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
            return z * layer.get_parameter("weight") + layer.get_parameter("bias")

        def silu(x: Tensor) -> Tensor:
            return x / (1 + (-x).exp())

        (block,) = (layer for layer in network.layers if isinstance(layer, _Block))
        e = silu(network.embedding(c))
        h = dense(network.stem, x)
        scale, shift = dense(block.modulated.linear, e).chunk(2, 1)
        h = h + dense(block.down, silu((1 + scale) * dense(block.up, norm(block.norm, h)) + shift))
        return dense(network.head, silu(norm(network.norm, h)))

    yield Claim(agreement(other=equation), network, inputs)
    yield Claim(batch_independence(), network, inputs)


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

    Every block is a `ConditionalResBlock`, told of the noise level and the label; at the smallest size all places
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

        def block(c: int, out: int) -> ConditionalResBlock:
            return ConditionalResBlock(c, out, condition_dim=d, num_dims=dims)

        self.embedding, self.halve = TimeEmbedding(d, num_classes=config.classes), Downsample()
        conv = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[dims]
        self.stem = conv(config.shape[0], config.width, 3, padding=1)
        self.down, self.up, kept, c = nn.ModuleList(), nn.ModuleList(), [config.width], config.width
        for size in sizes:
            level = nn.ModuleList()
            for _ in range(config.depth):
                level.append(block(c, size))
                c = size
                kept.append(c)
            self.down.append(level)
        self.middle = nn.ModuleList([block(c, c), block(c, c)])
        self.attention = SpatialAttention(c, num_heads=config.heads) if config.heads else nn.Identity()
        for number, size in reversed([*enumerate(sizes)]):
            level = nn.ModuleList()
            for _ in range(config.depth + (number == 0)):
                level.append(block(c + kept.pop(), size))
                c = size
            self.up.append(level)
        self.norm = nn.GroupNorm(gcd(8, c), c)
        self.head = zero_init(conv(c, config.shape[0], 3, padding=1))

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
                h = upsample(h, sizes.pop())
            for block in level:  # pyrefly: ignore [not-iterable]
                h = block(torch.cat([h, kept.pop()], 1), e)
        return self.head(F.silu(self.norm(h)))


def _unet_claims() -> Iterator[Claim]:
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


@dataclass(frozen=True, kw_only=True)
class PatchTransformerConfig:
    """The sizes of a transformer of patches."""

    shape: tuple[int, ...]
    """The shape of an example: (c, t) of a series, (c, h, w) of an image."""
    patch: int = 2
    """The side of a patch, which divides the space axes."""
    width: int = 64
    """The width of the residual stream."""
    depth: int = 4
    """The number of layers."""
    heads: int = 4
    """The heads of each layer."""
    classes: int = 0
    """The number of labels; 0 for none."""


class _Layer(nn.Module):
    """Attention and a feed-forward block, whose norms and whose share in the stream the condition sets."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.attention, self.feed_forward = MultiHeadAttention(d, num_heads=heads), FeedForward(d, activation=F.gelu)
        self.modulation = zero_init(nn.Linear(d, 6 * d))

    def forward(self, x: Float[Tensor, "n t d"], e: Float[Tensor, "n d"]) -> Float[Tensor, "n t d"]:
        scale, shift, gate, scale_2, shift_2, gate_2 = self.modulation(e)[:, None].chunk(6, -1)
        d = x.shape[-1:]
        x = x + gate * self.attention(F.layer_norm(x, d) * (1 + scale) + shift)
        return x + gate_2 * self.feed_forward(F.layer_norm(x, d) * (1 + scale_2) + shift_2)


class PatchTransformer(nn.Module):
    r"""Lets the patches of an image look at each other, in view of a noise level.

    $$h \leftarrow h + \gamma(e) \odot f\bigl((1 + a(e)) \odot \operatorname{norm}(h) + b(e)\bigr)$$

    where $f$ is attention, then a feed-forward block. Each begins with a share of 0, and so does the output. Where
    patches stand is told by a learned vector each.

    Reference:
        Peebles and Xie, *Scalable Diffusion Models with Transformers*, 2023.

    Args:
        config: The sizes.

    Examples:
        >>> network = PatchTransformer(PatchTransformerConfig(shape=(1, 4, 4), width=8, heads=2, depth=1))
        >>> network(torch.zeros(2, 1, 4, 4), torch.zeros(2)).shape
        torch.Size([2, 1, 4, 4])
    """

    def __init__(self, config: PatchTransformerConfig) -> None:
        if config.width < 1 or config.depth < 0:
            raise ValueError(f"sizes of at least 1 were wanted: got {config}")
        super().__init__()
        self.config, d = config, config.width
        self.patches = Patches(config.shape, patch_size=config.patch)
        self.embedding = TimeEmbedding(d, num_classes=config.classes)
        self.stem, self.places = nn.Linear(self.patches.dim, d), nn.Parameter(0.1 * torch.randn(self.patches.num_patches, d))
        self.layers = nn.ModuleList(_Layer(d, config.heads) for _ in range(config.depth))
        self.modulation, self.head = zero_init(nn.Linear(d, 2 * d)), zero_init(nn.Linear(d, self.patches.dim))

    def forward(
        self, x: Float[Tensor, "n c *space"], c: Float[Tensor, " n"], labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n c *space"]:
        """Maps images or series in view of their noise levels, and labels."""
        if x.shape[1:] != self.config.shape:
            raise ValueError(f"examples of shape {self.config.shape} were wanted: got shape {tuple(x.shape)}")
        e = F.silu(self.embedding(c, labels))
        h = self.stem(self.patches(x)) + self.places
        for layer in self.layers:
            h = layer(h, e)
        scale, shift = self.modulation(e)[:, None].chunk(2, -1)
        return self.patches.inverse(self.head(F.layer_norm(h, h.shape[-1:]) * (1 + scale) + shift))


def _patch_transformer_claims() -> Iterator[Claim]:
    """The laws that the transformer of patches obeys."""
    network = PatchTransformer(PatchTransformerConfig(shape=(1, 4), width=2, heads=1, depth=1))
    with torch.no_grad():
        for i, p in enumerate(network.parameters()):
            p.copy_(0.5 * torch.sin(torch.arange(p.numel()).reshape(p.shape) + i))
    inputs = (shape("n 1 4"), shape("n"))
    yield Claim(replace(batch_independence(), cases=20), network, inputs)

    def written(x: Tensor, c: Tensor) -> Tensor:
        e = F.silu(network.embedding(c))
        (layer,) = (one for one in network.layers if isinstance(one, _Layer))
        a, b, g, a_2, b_2, g_2 = layer.modulation(e)[:, None].unflatten(-1, (6, 2)).unbind(-2)
        h = x.reshape(-1, 2, 2) @ network.stem.weight.T + network.stem.bias + network.places

        def norm(h: Tensor) -> Tensor:
            return (h - h.mean(-1, keepdim=True)) / (h.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()

        h = h + g * layer.attention(norm(h) * (1 + a) + b)
        h = h + g_2 * layer.feed_forward(norm(h) * (1 + a_2) + b_2)
        scale, shift = network.modulation(e)[:, None].chunk(2, -1)
        return network.head(norm(h) * (1 + scale) + shift).reshape(x.shape)

    yield Claim(replace(agreement(other=written), cases=20), network, inputs)


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _time_mlp_claims()
    yield from _unet_claims()
    yield from _patch_transformer_claims()
