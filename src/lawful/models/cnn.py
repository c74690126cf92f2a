"""A small residual network for images and series.

A small convolutional network for series: strided convolutions, then one affine layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks import CIRCULAR, BatchNorm, Convolution, Dense, Dropout, GlobalPool, Padding, Residual, residual_contributions
from lawful.laws import Claim, agreement, batch_independence, invariance, shape


@dataclass(frozen=True, kw_only=True)
class ResidualCNNConfig:
    """The sizes of a small residual network for images or series."""

    channels: int = 1
    """The channels of an image, or of a series."""
    classes: int = 10
    """The number of outputs."""
    width: int = 16
    """The channels of the residual stream."""
    depth: int = 2
    """The number of residual blocks, of two convolutions each."""
    kernel: int = 3
    """The taps of a convolution along each axis."""
    padding: Padding = CIRCULAR
    """How an image is continued past its border, so that its size is kept."""
    dims: int = 2
    """The space axes: 1 for series, 2 for images, 3 for volumes."""
    dropout: float = 0.0
    """The probability that a channel's mean is dropped in training, before the scores."""


class ResidualCNN(nn.Module):
    r"""Adds what convolutions find to a stream, and averages it over all positions.

    $$x_0 = W * x, \qquad x_{\ell + 1} = x_\ell + f_\ell(x_\ell), \qquad y = V \operatorname{mean}(x_L) + b$$

    Each $f_\ell$ is twice a batch norm, a ReLU and a convolution. With circular padding, and no strides, every layer
    commutes with shifts and the mean at the end makes the output invariant to them.

    Reference:
        He, Zhang, Ren and Sun, *Identity Mappings in Deep Residual Networks*, 2016.

    Args:
        config: The sizes.

    Examples:
        >>> ResidualCNN(ResidualCNNConfig(width=4))(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
        >>> ResidualCNN(ResidualCNNConfig(width=4, kernel=5, dims=1))(torch.zeros(2, 1, 40)).shape
        torch.Size([2, 10])
    """

    def __init__(self, config: ResidualCNNConfig) -> None:
        super().__init__()
        self.config, span, kernel = config, config.kernel - 1, (config.kernel,) * config.dims
        if config.depth < 0:
            raise ValueError(f"depth is at least 0: got {config.depth}")
        if sum(config.padding.sides(span)) != span:
            raise ValueError(f"a padding that keeps the size was wanted: got {config.padding}")

        def convolution(c: int) -> Convolution:
            return Convolution(c, config.width, kernel=kernel, padding=config.padding, bias=False)

        def half() -> list[nn.Module]:
            return [BatchNorm(config.width), nn.ReLU(), convolution(config.width)]

        self.stem = convolution(config.channels)
        self.blocks = nn.Sequential(*(Residual(nn.Sequential(*half(), *half())) for _ in range(config.depth)))
        self.pool = GlobalPool()
        self.dropout = Dropout(config.dropout)
        self.head = Dense(config.width, config.classes)

    def forward(self, x: Float[Tensor, "b c *space"]) -> Float[Tensor, "b classes"]:
        """Returns the scores of the classes."""
        return self.head(self.dropout(self.pool(self.blocks(self.stem(x)))))


def _residual_cnn_claims() -> Iterator[Claim]:
    """The laws that the residual network obeys."""
    model = ResidualCNN(ResidualCNNConfig(classes=3, width=2)).eval()

    def summed(x: Tensor) -> Tensor:
        blocks = [block.block for block in model.blocks if isinstance(block, Residual)]
        return model.head(residual_contributions(blocks, model.stem(x)).mean((-2, -1)).sum(0))

    yield Claim(batch_independence(), model, shape("b 1 4 5"))
    yield Claim(
        invariance(
            sample=lambda draw: (draw.integer(0, 3, "down"), draw.integer(0, 4, "right")),
            act=lambda by, x: torch.roll(x, by, dims=(-2, -1)),
        ),
        model,
        shape("b 1 4 5"),
    )
    yield Claim(agreement(other=summed), model, shape("b 1 4 5"), name="ResidualCNN, residual_contributions")
    series = ResidualCNN(ResidualCNNConfig(classes=3, width=2, dims=1, dropout=0.5)).eval()
    turns = invariance(sample=lambda draw: draw.integer(1, 4, "later"), act=lambda by, x: x.roll(by, -1))
    yield Claim(turns, series, shape("b 1 5"), name="ResidualCNN(dims=1)")

    def sizes(x: Tensor) -> Tensor:
        usual = ResidualCNN(ResidualCNNConfig())
        return x.new_tensor([*usual.head.weight.shape, *usual.stem.weight.shape, len(usual.blocks), usual.dropout.p])

    counted = agreement(other=lambda x: x.new_tensor([10, 16, 16, 1, 3, 3, 2, 0]))
    yield Claim(counted, sizes, shape("1"), name="ResidualCNNConfig, sizes")


@dataclass(frozen=True, kw_only=True)
class StridedCNNConfig:
    """The sizes of a strided convolutional network."""

    width: int
    """The channels of every hidden layer."""
    channels: int = 1
    """The channels of the input."""
    length: int = 40
    """The length of the input."""
    classes: int = 10
    """The number of classes."""

    @property
    def ends(self) -> tuple[int, int, int]:
        """The lengths after each convolution."""
        first = (self.length - 3) // 2 + 1
        second = (first - 1) // 2 + 1
        return first, second, (second - 1) // 2 + 1


class StridedCNN(nn.Module):
    """Halves a series three times, by convolutions of 5, 3 and 3 taps, and scores the classes of what is left.

    Reference:
        Greydanus and Kobak, *Scaling Down Deep Learning with MNIST-1D*, 2020.

    Args:
        config: The sizes.

    Examples:
        >>> StridedCNN(StridedCNNConfig(width=4))(torch.zeros(3, 1, 40)).shape
        torch.Size([3, 10])
    """

    def __init__(self, config: StridedCNNConfig) -> None:
        super().__init__()
        if config.length < 3:
            raise ValueError(f"length is at least 3: got {config.length}")
        self.config = config
        w = config.width
        self.convolutions = nn.ModuleList(
            nn.Conv1d(c, w, taps, stride=2, padding=1) for c, taps in ((config.channels, 5), (w, 3), (w, 3))
        )
        self.head = nn.Linear(w * config.ends[-1], config.classes)

    def forward(self, x: Float[Tensor, "b c t"]) -> Float[Tensor, "b classes"]:
        """Scores each class."""
        for convolution in self.convolutions:
            x = convolution(x).relu()
        return self.head(x.flatten(1))


def _strided_cnn_claims() -> Iterator[Claim]:
    """The laws that the network obeys."""
    model = StridedCNN(StridedCNNConfig(width=2, channels=2, length=9, classes=3))
    yield Claim(batch_independence(), model, shape("b 2 9"), name="StridedCNN")

    def sizes(x: Tensor) -> Tensor:
        return x.new_tensor(StridedCNNConfig(width=1, length=2 + len(x)).ends)

    def lengths(x: Tensor) -> Tensor:
        ends = [torch.zeros(1, 1, 2 + len(x))]
        for taps in (5, 3, 3):
            ends.append(nn.functional.conv1d(ends[-1], torch.zeros(1, 1, taps), stride=2, padding=1))
        return x.new_tensor([end.shape[-1] for end in ends[1:]])

    yield Claim(agreement(other=lengths), sizes, shape("n:1..20"), name="StridedCNNConfig, lengths")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _residual_cnn_claims()
    yield from _strided_cnn_claims()
