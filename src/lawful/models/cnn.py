"""Convolutional networks: a small residual network for images and series, and a strided one for series."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.residual import Residual
from lawful.laws import Claim, batch_independence, invariance, shape

_CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_BATCH_NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


class CNN(nn.Module):
    r"""Residual convolutional network with global average pooling.

    $$x_0 = W * x, \qquad x_{\ell + 1} = x_\ell + f_\ell(x_\ell), \qquad y = V \operatorname{mean}(x_L) + b$$

    Each $f_\ell$ is two times batch norm, ReLU and convolution. With circular padding the output is invariant to
    shifts of the image.

    Reference:
        He, Zhang, Ren and Sun, *Identity Mappings in Deep Residual Networks*, 2016.

    Args:
        in_channels: Channels of the input.
        num_classes: Number of outputs.
        channels: Channels of the hidden layers.
        num_blocks: Number of residual blocks, of two convolutions each.
        kernel_size: Size of the kernels along each axis.
        padding_mode: Padding of the borders, as in `nn.Conv2d`: "circular", "zeros", "reflect" or "replicate".
        spatial_dims: Number of spatial axes: 1 for series, 2 for images, 3 for volumes.
        dropout: Dropout probability before the output layer.

    Examples:
        >>> CNN(channels=4)(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
        >>> CNN(channels=4, kernel_size=5, spatial_dims=1)(torch.zeros(2, 1, 40)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        in_channels: int = 1,
        num_classes: int = 10,
        *,
        channels: int = 16,
        num_blocks: int = 2,
        kernel_size: int = 3,
        padding_mode: Literal["circular", "zeros", "reflect", "replicate"] = "circular",
        spatial_dims: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if min(in_channels, num_classes, channels, kernel_size) < 1 or num_blocks < 0:
            sizes = f"{in_channels=}, {num_classes=}, {channels=}, {kernel_size=}, {num_blocks=}"
            raise ValueError(f"sizes must be at least 1, and num_blocks at least 0: got {sizes}")
        if spatial_dims not in _CONVOLUTIONS:
            raise ValueError(f"spatial_dims must be 1, 2 or 3, got {spatial_dims}")
        norm = _BATCH_NORMS[spatial_dims]

        def convolution(c: int) -> nn.Module:
            convolve = _CONVOLUTIONS[spatial_dims]
            return convolve(c, channels, kernel_size, padding="same", padding_mode=padding_mode, bias=False)

        def half() -> list[nn.Module]:
            return [norm(channels), nn.ReLU(), convolution(channels)]

        self.in_channels, self.spatial_dims = in_channels, spatial_dims
        self.stem = convolution(in_channels)
        self.blocks = nn.Sequential(*(Residual(nn.Sequential(*half(), *half())) for _ in range(num_blocks)))
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(channels, num_classes)

    def forward(self, x: Float[Tensor, "b c *space"]) -> Float[Tensor, "b classes"]:
        """Returns the logits of the classes."""
        c, axes = self.in_channels, self.spatial_dims
        if x.dim() != axes + 2 or x.shape[1] != c:
            raise ValueError(f"expected x of shape (b, {c}, ...) with {axes} spatial axes, got {tuple(x.shape)}")
        return self.head(self.dropout(self.blocks(self.stem(x)).flatten(2).mean(-1)))


class StridedCNN(nn.Module):
    """Convolutional network for series: three convolutions of stride 2, then a linear layer.

    Reference:
        Greydanus and Kobak, *Scaling Down Deep Learning with MNIST-1D*, 2020.

    Args:
        channels: Channels of every hidden layer.
        in_channels: Channels of the input.
        length: Length of the input.
        num_classes: Number of classes.

    Examples:
        >>> StridedCNN(4)(torch.zeros(3, 1, 40)).shape
        torch.Size([3, 10])
    """

    def __init__(self, channels: int, *, in_channels: int = 1, length: int = 40, num_classes: int = 10) -> None:
        super().__init__()
        if length < 3:
            raise ValueError(f"length must be at least 3, got {length}")
        sizes = (in_channels, 5), (channels, 3), (channels, 3)
        self.convolutions = nn.ModuleList(nn.Conv1d(c, channels, size, stride=2, padding=1) for c, size in sizes)
        for _, size in sizes:
            length = (length + 2 - size) // 2 + 1
        self.head = nn.Linear(channels * length, num_classes)

    def forward(self, x: Float[Tensor, "b c t"]) -> Float[Tensor, "b classes"]:
        """Returns the logits of the classes."""
        for convolution in self.convolutions:
            x = convolution(x).relu()
        return self.head(x.flatten(1))


def claims() -> Iterator[Claim]:
    """The laws of convolutional networks."""
    images, series = CNN(1, 3, channels=2).eval(), CNN(1, 3, channels=2, spatial_dims=1, dropout=0.5).eval()
    shifts = invariance(
        sample=lambda draw: (draw.integer(0, 3, "down"), draw.integer(0, 4, "right")),
        act=lambda by, x: torch.roll(x, by, dims=(-2, -1)),
    )
    later = invariance(sample=lambda draw: draw.integer(1, 4, "later"), act=lambda by, x: x.roll(by, -1))
    yield Claim(batch_independence(), images, shape("b 1 4 5"), name="CNN")
    yield Claim(shifts, images, shape("b 1 4 5"), name="CNN")
    yield Claim(later, series, shape("b 1 5"), name="CNN(spatial_dims=1)")
    yield Claim(batch_independence(), StridedCNN(2, in_channels=2, length=9), shape("b 2 9"), name="StridedCNN")
