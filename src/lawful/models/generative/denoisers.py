"""Denoising networks with noise-level and class conditioning: an MLP, a U-Net and a diffusion transformer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
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
from lawful.laws import Claim, batch_independence, shape
from lawful.models.generative.protocols import _check_shape, _check_sizes

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@runtime_checkable
class ConditionalNetwork(Protocol):
    """Network with a noise level and optional class labels as conditions."""

    def __call__(
        self, x: Float[Tensor, "n *shape"], noise_level: Float[Tensor, " n"], labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n *out"]:
        """Maps a batch; a conditional network uses the null label if `labels` is None."""
        ...


class _MLPBlock(nn.Module):
    """Residual block of two linear layers with a modulated activation between them."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm, self.up, self.modulated = (
            nn.LayerNorm(dim),
            nn.Linear(dim, dim),
            AdaptiveNorm(dim, condition_dim=dim),
        )
        self.down = zero_init(nn.Linear(dim, dim))

    def forward(self, x: Float[Tensor, "n d"], e: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return x + self.down(F.silu(self.modulated(self.up(self.norm(x)), e)))


class TimeMLP(nn.Module):
    r"""Residual MLP with noise-level conditioning, for examples of any shape.

    $$h \leftarrow h + B \operatorname{silu}\bigl((1 + \gamma(e)) \odot A \operatorname{norm}(h) + \beta(e)\bigr),
    \qquad y = V \operatorname{silu}(\operatorname{norm}(h))$$

    starting from $h = W x$, where $e$ embeds the noise level and the label. The output is initialized to 0.

    Args:
        shape: Shape of an example.
        dim: Width of the residual stream.
        num_layers: Number of residual blocks.
        num_classes: Number of classes; 0 for an unconditional network.
        out_dim: Size of the output vector. Defaults to an output of the shape of the input.

    Examples:
        >>> network = TimeMLP((2,), dim=8, num_layers=1, num_classes=3)
        >>> network(torch.zeros(4, 2), torch.zeros(4), torch.tensor([0, 1, 2, 3])).shape
        torch.Size([4, 2])
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        dim: int = 128,
        num_layers: int = 3,
        num_classes: int = 0,
        out_dim: int | None = None,
    ) -> None:
        _check_sizes(shape, num_classes)
        if dim < 1 or num_layers < 0:
            raise ValueError(f"expected dim >= 1 and num_layers >= 0, got dim={dim}, num_layers={num_layers}")
        super().__init__()
        self.shape, self.out_dim, entries = tuple(shape), out_dim, math.prod(shape)
        self.embedding = TimeEmbedding(dim, num_classes=num_classes)
        self.stem = nn.Linear(entries, dim)
        self.layers = nn.ModuleList(_MLPBlock(dim) for _ in range(num_layers))
        self.norm = nn.LayerNorm(dim)
        self.head = zero_init(nn.Linear(dim, entries if out_dim is None else out_dim))

    def forward(
        self, x: Float[Tensor, "n *shape"], noise_level: Float[Tensor, " n"], labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n *out"]:
        """Maps noisy examples with their noise levels and labels."""
        e = F.silu(self.embedding(noise_level, labels))
        h = self.stem(x.flatten(1))
        for layer in self.layers:
            h = layer(h, e)
        y = self.head(F.silu(self.norm(h)))
        return y.reshape(x.shape) if self.out_dim is None else y


class UNet(nn.Module):
    r"""U-Net with noise-level conditioning for series and images.

    Every block is a `ConditionalResBlock`; self-attention acts at the lowest resolution. Any size works, odd ones
    included. The output is initialized to 0.

    Reference:
        Ronneberger, Fischer and Brox, *U-Net*, 2015; Ho, Jain and Abbeel, *Denoising Diffusion Probabilistic Models*,
        2020.

    Args:
        shape: Shape of an example: (c, t) or (c, h, w).
        channels: Channels at full resolution.
        channel_multipliers: Channels at each resolution, as multiples of `channels`; each halves the resolution.
        num_blocks: Residual blocks at each resolution.
        num_heads: Number of attention heads at the lowest resolution; 0 for no attention.
        num_classes: Number of classes; 0 for an unconditional network.

    Examples:
        >>> UNet((1, 8, 8), channels=8)(torch.zeros(2, 1, 8, 8), torch.zeros(2)).shape
        torch.Size([2, 1, 8, 8])
        >>> UNet((3, 7), channels=8)(torch.zeros(2, 3, 7), torch.zeros(2)).shape
        torch.Size([2, 3, 7])
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        channels: int = 32,
        channel_multipliers: Sequence[int] = (1, 2),
        num_blocks: int = 1,
        num_heads: int = 2,
        num_classes: int = 0,
    ) -> None:
        dims = len(shape) - 1
        if dims not in (1, 2, 3) or min(shape) < 1:
            raise ValueError(f"expected a shape (c, t), (c, h, w) or (c, d, h, w), got {shape}")
        if not channel_multipliers or min(channels, num_blocks, *channel_multipliers) < 1 or num_heads < 0:
            raise ValueError(
                f"expected channels, channel_multipliers, num_blocks >= 1 and num_heads >= 0, got channels={channels},"
                f" channel_multipliers={tuple(channel_multipliers)}, num_blocks={num_blocks}, num_heads={num_heads}"
            )
        super().__init__()
        self.shape, condition_dim = tuple(shape), 4 * channels
        convolution, widths = _CONVOLUTIONS[dims - 1], [channels * m for m in channel_multipliers]

        def block(c: int, out: int) -> ConditionalResBlock:
            return ConditionalResBlock(c, out, condition_dim=condition_dim, num_dims=dims)

        self.embedding, self.downsample = TimeEmbedding(condition_dim, num_classes=num_classes), Downsample()
        self.stem = convolution(shape[0], channels, 3, padding=1)
        self.down, self.up, skips, c = nn.ModuleList(), nn.ModuleList(), [channels], channels
        for width in widths:
            level = nn.ModuleList()
            for _ in range(num_blocks):
                level.append(block(c, width))
                c = width
                skips.append(c)
            self.down.append(level)
        self.middle = nn.ModuleList([block(c, c), block(c, c)])
        self.attention = SpatialAttention(c, num_heads=num_heads) if num_heads else nn.Identity()
        for i, width in reversed([*enumerate(widths)]):
            level = nn.ModuleList()
            for _ in range(num_blocks + (i == 0)):
                level.append(block(c + skips.pop(), width))
                c = width
            self.up.append(level)
        self.norm = nn.GroupNorm(math.gcd(8, c), c)
        self.head = zero_init(convolution(c, shape[0], 3, padding=1))

    def forward(
        self, x: Float[Tensor, "n c *space"], noise_level: Float[Tensor, " n"], labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n c *space"]:
        """Maps noisy examples with their noise levels and labels."""
        e = F.silu(self.embedding(noise_level, labels))
        h = self.stem(x)
        skips, sizes = [h], []
        for i, level in enumerate(self.down):
            if i:
                sizes.append(h.shape[2:])
                h = self.downsample(h)
            for block in level:  # pyrefly: ignore [not-iterable]
                h = block(h, e)
                skips.append(h)
        first, second = self.middle
        h = second(self.attention(first(h, e)), e)
        for i, level in enumerate(self.up):
            if i:
                h = upsample(h, sizes.pop())
            for block in level:  # pyrefly: ignore [not-iterable]
                h = block(torch.cat([h, skips.pop()], 1), e)
        return self.head(F.silu(self.norm(h)))


class _TransformerBlock(nn.Module):
    """Attention and feed-forward with adaptive layer norms and gates (adaLN-Zero)."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.attention, self.feed_forward = (
            MultiHeadAttention(dim, num_heads=num_heads),
            FeedForward(dim, activation=F.gelu),
        )
        self.modulation = zero_init(nn.Linear(dim, 6 * dim))

    def forward(self, x: Float[Tensor, "n t d"], e: Float[Tensor, "n d"]) -> Float[Tensor, "n t d"]:
        scale, shift, gate, scale_2, shift_2, gate_2 = self.modulation(e)[:, None].chunk(6, -1)
        dim = x.shape[-1:]
        x = x + gate * self.attention(F.layer_norm(x, dim) * (1 + scale) + shift)
        return x + gate_2 * self.feed_forward(F.layer_norm(x, dim) * (1 + scale_2) + shift_2)


class PatchTransformer(nn.Module):
    r"""Diffusion transformer (DiT) on the patches of series and images.

    $$h \leftarrow h + \gamma(e) \odot f\bigl((1 + a(e)) \odot \operatorname{norm}(h) + b(e)\bigr)$$

    where $f$ is attention, then a feed-forward block. The gates and the output are initialized to 0. Positions are
    learned embeddings.

    Reference:
        Peebles and Xie, *Scalable Diffusion Models with Transformers*, 2023.

    Args:
        shape: Shape of an example: (c, t) or (c, h, w).
        patch_size: Side of a patch; must divide the spatial axes.
        dim: Width of the residual stream.
        num_layers: Number of layers.
        num_heads: Number of attention heads.
        num_classes: Number of classes; 0 for an unconditional network.

    Examples:
        >>> network = PatchTransformer((1, 4, 4), dim=8, num_heads=2, num_layers=1)
        >>> network(torch.zeros(2, 1, 4, 4), torch.zeros(2)).shape
        torch.Size([2, 1, 4, 4])
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        patch_size: int = 2,
        dim: int = 64,
        num_layers: int = 4,
        num_heads: int = 4,
        num_classes: int = 0,
    ) -> None:
        if dim < 1 or num_layers < 0:
            raise ValueError(f"expected dim >= 1 and num_layers >= 0, got dim={dim}, num_layers={num_layers}")
        super().__init__()
        self.shape = tuple(shape)
        self.patches = Patches(shape, patch_size=patch_size)
        self.embedding = TimeEmbedding(dim, num_classes=num_classes)
        self.stem = nn.Linear(self.patches.dim, dim)
        self.positions = nn.Parameter(0.1 * torch.randn(self.patches.num_patches, dim))
        self.layers = nn.ModuleList(_TransformerBlock(dim, num_heads) for _ in range(num_layers))
        self.modulation = zero_init(nn.Linear(dim, 2 * dim))
        self.head = zero_init(nn.Linear(dim, self.patches.dim))

    def forward(
        self, x: Float[Tensor, "n c *space"], noise_level: Float[Tensor, " n"], labels: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n c *space"]:
        """Maps noisy examples with their noise levels and labels."""
        _check_shape(x, self.shape)
        e = F.silu(self.embedding(noise_level, labels))
        h = self.stem(self.patches(x)) + self.positions
        for layer in self.layers:
            h = layer(h, e)
        scale, shift = self.modulation(e)[:, None].chunk(2, -1)
        return self.patches.inverse(self.head(F.layer_norm(h, h.shape[-1:]) * (1 + scale) + shift))


def claims() -> Iterator[Claim]:
    """Examples do not mix."""
    mlp, unet, transformer = (
        TimeMLP((2,), dim=4, num_layers=1),
        UNet((1, 3, 4), channels=2, num_heads=1, num_classes=2),
        PatchTransformer((1, 4), dim=2, num_heads=1, num_layers=1),
    )
    with torch.no_grad():  # outputs are initialized to 0
        for network in (mlp, unet, transformer):
            for i, p in enumerate(network.parameters()):
                p.copy_(0.5 * torch.sin(torch.arange(p.numel()).reshape(p.shape) + i))
    few = replace(batch_independence(), cases=20)
    yield Claim(few, mlp, (shape("n 2"), shape("n")), name="TimeMLP")
    yield Claim(few, unet, (shape("n:2..3 1 3 4"), shape("n:2..3")), name="UNet")
    yield Claim(few, transformer, (shape("n 1 4"), shape("n")), name="PatchTransformer")
