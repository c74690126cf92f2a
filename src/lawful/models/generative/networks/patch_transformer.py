"""A transformer of patches that is told of a noise level."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.attention import MultiHeadAttention
from lawful.blocks.dense import Dense
from lawful.blocks.feed_forward import FeedForward
from lawful.blocks.images.conditioned import zeroed
from lawful.blocks.images.patches import Patches
from lawful.blocks.time_embedding import TimeEmbedding
from lawful.laws import Claim, agreement, batch_independence, shape


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
        self.attention, self.feed_forward = MultiHeadAttention(d, heads=heads), FeedForward(d, activation=F.gelu)
        self.modulation = zeroed(Dense(d, 6 * d))

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
        self.patches = Patches(config.shape, patch=config.patch)
        self.embedding = TimeEmbedding(d, classes=config.classes)
        self.stem, self.places = Dense(self.patches.d, d), nn.Parameter(0.1 * torch.randn(self.patches.count, d))
        self.layers = nn.ModuleList(_Layer(d, config.heads) for _ in range(config.depth))
        self.modulation, self.head = zeroed(Dense(d, 2 * d)), zeroed(Dense(d, self.patches.d))

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


def claims() -> Iterator[Claim]:
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
