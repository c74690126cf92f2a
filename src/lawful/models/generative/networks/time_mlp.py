"""A residual perceptron that is told of a noise level."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.dense import Dense
from lawful.blocks.images.conditioned import Modulated, zeroed
from lawful.blocks.normalization import LayerNorm
from lawful.blocks.time_embedding import TimeEmbedding
from lawful.laws import Claim, agreement, batch_independence, shape


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
        self.norm, self.up, self.modulated = LayerNorm(d), Dense(d, d), Modulated(d, condition=d)
        self.down = zeroed(Dense(d, d))

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
        self.embedding = TimeEmbedding(d, classes=config.classes)
        self.stem = Dense(entries, d)
        self.layers = nn.ModuleList(_Block(d) for _ in range(config.depth))
        self.norm, self.head = LayerNorm(d), zeroed(Dense(d, config.outputs or entries))

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


def claims() -> Iterator[Claim]:
    """The laws that the perceptron with a noise level obeys."""
    network = TimeMLP(TimeMLPConfig(shape=(2,), width=4, depth=1))
    with torch.no_grad():
        for i, p in enumerate(network.parameters()):
            p.copy_(0.6 * torch.sin(torch.arange(p.numel()).reshape(p.shape) + i))
    inputs = (shape("n 2"), shape("n"))

    def equation(x: Tensor, c: Tensor) -> Tensor:
        def dense(layer: Dense, x: Tensor) -> Tensor:
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
