"""A small convolutional network for series: strided convolutions, then one affine layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, agreement, batch_independence, shape


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


def claims() -> Iterator[Claim]:
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
