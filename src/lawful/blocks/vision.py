"""Blocks for images and series: conditional residual blocks, spatial attention, patches, down- and upsampling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd, prod
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.attention import MultiHeadAttention
from lawful.laws import Claim, agreement, batch_independence, equivariance, invertibility, linearity, shape

_Module = TypeVar("_Module", bound=nn.Module)
_CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def zero_init(module: _Module) -> _Module:
    """Sets all parameters of a module to zero, and returns it."""
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    return module


class AdaptiveNorm(nn.Module):
    r"""Scales and shifts each channel depending on a condition (FiLM), to be used after a norm.

    $$y = (1 + \gamma(e)) \odot x + \beta(e)$$

    $\gamma$ and $\beta$ are linear in $e$ and initialized to 0: the layer starts as the identity.

    Reference:
        Perez et al., *FiLM: Visual Reasoning with a General Conditioning Layer*, 2018.

    Args:
        channels: Number of channels.
        condition_dim: Size of $e$.

    Examples:
        >>> AdaptiveNorm(3, condition_dim=2)(torch.ones(1, 3, 4), torch.ones(1, 2)).shape
        torch.Size([1, 3, 4])
    """

    def __init__(self, channels: int, *, condition_dim: int) -> None:
        super().__init__()
        self.linear = zero_init(nn.Linear(condition_dim, 2 * channels))

    def forward(self, x: Float[Tensor, "n c *space"], e: Float[Tensor, "n d"]) -> Float[Tensor, "n c *space"]:
        """Scales and shifts axis 1."""
        scale, shift = self.linear(e).reshape(x.shape[0], -1, *(1,) * (x.dim() - 2)).chunk(2, 1)
        return torch.addcmul(x + shift, x, scale)


class ConditionalResBlock(nn.Module):
    r"""Residual block of two convolutions with a condition, as in the U-Net of diffusion models.

    $$y = P x + W_2 * \operatorname{silu}\bigl(\operatorname{ada}(\operatorname{norm}(h), e)\bigr), \qquad
    h = W_1 * \operatorname{silu}(\operatorname{norm}(x))$$

    The second convolution is initialized to 0: the block starts as $P$, the identity or a 1x1 convolution.

    Reference:
        Dhariwal and Nichol, *Diffusion Models Beat GANs on Image Synthesis*, 2021.

    Args:
        in_channels: Channels of $x$.
        out_channels: Channels of $y$.
        condition_dim: Size of $e$.
        num_dims: Number of spatial axes.

    Examples:
        >>> block = ConditionalResBlock(4, 8, condition_dim=2)
        >>> block(torch.zeros(1, 4, 5, 5), torch.zeros(1, 2)).shape
        torch.Size([1, 8, 5, 5])
    """

    def __init__(self, in_channels: int, out_channels: int, *, condition_dim: int, num_dims: int = 2) -> None:
        super().__init__()
        conv, i, o = _CONV[num_dims], in_channels, out_channels
        self.norm1, self.conv1 = nn.GroupNorm(gcd(8, i), i), conv(i, o, 3, padding=1)
        self.norm2 = nn.GroupNorm(gcd(8, o), o, affine=False)
        self.adaptive = AdaptiveNorm(o, condition_dim=condition_dim)
        self.conv2 = zero_init(conv(o, o, 3, padding=1))
        self.skip = nn.Identity() if i == o else conv(i, o, 1)

    def forward(self, x: Float[Tensor, "n c *space"], e: Float[Tensor, "n d"]) -> Float[Tensor, "n o *space"]:
        """Maps images or series, given the condition."""
        h = self.conv1(F.silu(self.norm1(x)))
        return self.skip(x) + self.conv2(F.silu(self.adaptive(self.norm2(h), e)))


class SpatialAttention(nn.Module):
    r"""Residual self-attention between the positions of an image or a series.

    $$y = x + \operatorname{attention}(\operatorname{norm}(x))$$

    Positions are tokens, channels are features. The output projection is initialized to 0.

    Args:
        channels: Number of channels.
        num_heads: Number of heads.

    Examples:
        >>> SpatialAttention(8)(torch.ones(1, 8, 4, 4)).shape
        torch.Size([1, 8, 4, 4])
    """

    def __init__(self, channels: int, *, num_heads: int = 1) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(gcd(8, channels), channels)
        self.attention = MultiHeadAttention(channels, num_heads=num_heads)
        zero_init(self.attention.out)

    def forward(self, x: Float[Tensor, "n c *space"]) -> Float[Tensor, "n c *space"]:
        """Maps images or series."""
        tokens = self.norm(x).flatten(2).mT
        return x + self.attention(tokens).mT.reshape(x.shape)


class Patches(nn.Module):
    r"""Splits images or series into non-overlapping patches, each flattened into a vector.

    $$y_{n, \, (c, k)} = x_{c, \, p n + k}$$

    Reference:
        Dosovitskiy et al., *An Image is Worth 16x16 Words*, 2021.

    Args:
        shape: Shape of an example, (c, t) or (c, h, w).
        patch_size: Side of a patch $p$; divides all spatial axes.

    Examples:
        >>> patches = Patches((1, 4, 4), patch_size=2)
        >>> patches(torch.arange(16.0).reshape(1, 1, 4, 4))[0, 1], patches.num_patches, patches.dim
        (tensor([2., 3., 6., 7.]), 4, 4)
    """

    def __init__(self, shape: tuple[int, ...], *, patch_size: int) -> None:
        if len(shape) < 2 or min(shape) < 1 or patch_size < 1 or any(n % patch_size for n in shape[1:]):
            raise ValueError(f"patch_size must divide the spatial axes: got shape={tuple(shape)}, {patch_size=}")
        super().__init__()
        self.shape, self.patch_size = tuple(shape), patch_size
        self.grid = tuple(n // patch_size for n in shape[1:])
        self.num_patches, self.dim = prod(self.grid), shape[0] * patch_size ** len(self.grid)

    def forward(self, x: Float[Tensor, "n c *space"]) -> Float[Tensor, "n t d"]:
        """Splits examples into patches."""
        dims = len(self.grid)
        split = x.reshape(x.shape[0], self.shape[0], *(size for n in self.grid for size in (n, self.patch_size)))
        order = [0, *range(2, 2 + 2 * dims, 2), 1, *range(3, 3 + 2 * dims, 2)]
        return split.permute(order).reshape(x.shape[0], self.num_patches, self.dim)

    def inverse(self, y: Float[Tensor, "n t d"]) -> Float[Tensor, "n c *space"]:
        """Joins patches."""
        dims = len(self.grid)
        split = y.reshape(len(y), *self.grid, self.shape[0], *(self.patch_size,) * dims)
        order = [0, 1 + dims, *(axis for i in range(dims) for axis in (1 + i, 2 + dims + i))]
        return split.permute(order).reshape(len(y), *self.shape)

    def extra_repr(self) -> str:
        return f"{self.shape}, patch_size={self.patch_size}"


class Downsample(nn.Module):
    r"""Halves the spatial axes by averaging pairs. A last odd position is copied.

    $$y_n = \tfrac12 (x_{2n} + x_{2n + 1})$$

    Examples:
        >>> Downsample()(torch.tensor([[[1.0, 3.0, 5.0]]]))
        tensor([[[2., 5.]]])
    """

    def forward(self, x: Float[Tensor, "n c *space"]) -> Float[Tensor, "n c *less"]:
        """Halves the spatial axes."""
        pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[x.dim() - 3]
        return pool(x, 2, ceil_mode=True, count_include_pad=False)


def upsample(x: Float[Tensor, "n c *space"], size: Sequence[int]) -> Float[Tensor, "n c *more"]:
    r"""Doubles the spatial axes by repeating each position: $y_{2n} = y_{2n + 1} = x_n$.

    Args:
        x: Images or series.
        size: Target sizes of the spatial axes, each twice as large, or one less.

    Examples:
        >>> upsample(torch.tensor([[[1.0, 2.0]]]), (3,))
        tensor([[[1., 1., 2.]]])
    """
    if len(size) != x.dim() - 2 or any((n + 1) // 2 != m for n, m in zip(size, x.shape[2:], strict=True)):
        raise ValueError(f"expected sizes whose halves are {tuple(x.shape[2:])}, got {tuple(size)}")
    for axis, n in enumerate(size, start=2):
        x = x.repeat_interleave(2, axis).narrow(axis, 0, n)
    return x


def claims() -> Iterator[Claim]:
    """Laws of blocks for images and series."""
    block, attention = ConditionalResBlock(2, 4, condition_dim=3, num_dims=1), SpatialAttention(2)
    yield Claim(batch_independence(), block, (shape("n 2 4"), shape("n 3")), name="ConditionalResBlock")
    quarter_turns = equivariance(sample=lambda draw: draw.integer(0, 3, "turns"), act=lambda k, x: x.rot90(k, (-2, -1)))
    yield Claim(quarter_turns, attention, shape("n 2 3 3"), name="SpatialAttention, quarter turns")
    yield Claim(invertibility(), Patches((2, 4, 6), patch_size=2), shape("n 2 4 6"))
    yield Claim(invertibility(), Patches((3, 4), patch_size=2), shape("n 3 4"))
    down = Downsample()
    yield Claim(linearity(), down, shape("n 1 3 4"))
    identity = agreement(other=lambda x: 1 * x)
    yield Claim(identity, lambda x: down(upsample(x, (5, 2))), shape("n 1 3 1"), name="upsample, downsample")
