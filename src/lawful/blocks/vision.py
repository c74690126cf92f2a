"""Residual blocks whose norms are scaled and shifted by a condition.

Attention between the places of an image or a series.
Patches: an image or a series cut into tokens, and put together again.
Halving and doubling the space axes of images and series.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd, prod
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.attention import MultiHeadAttention
from lawful.blocks.convolution_matrix import SAME, Convolution
from lawful.blocks.linear import Dense
from lawful.blocks.normalization import GroupNorm
from lawful.laws import Claim, agreement, batch_independence, equivariance, invertibility, linearity, shape

M = TypeVar("M", bound=nn.Module)


class AdaptiveNorm(nn.Module):
    r"""Scales and shifts each channel, or each feature, as a condition says.

    $$y = (1 + \gamma(e)) \odot x + \beta(e)$$

    $\gamma$ and $\beta$ are linear in $e$ and begin at 0, where this is the identity.

    Reference:
        Perez et al., *FiLM: Visual Reasoning with a General Conditioning Layer*, 2018.

    Args:
        c: The number of channels.
        condition: The size of $e$.

    Examples:
        >>> AdaptiveNorm(3, condition=2)(torch.ones(1, 3, 4), torch.ones(1, 2)).shape
        torch.Size([1, 3, 4])
    """

    def __init__(self, c: int, *, condition: int) -> None:
        super().__init__()
        self.linear = zero_init(Dense(condition, 2 * c))

    def forward(self, x: Float[Tensor, "n c *space"], e: Float[Tensor, "n d"]) -> Float[Tensor, "n c *space"]:
        """Modulates axis 1."""
        scale, shift = self.linear(e).reshape(len(x), -1, *(1,) * (x.dim() - 2)).chunk(2, 1)
        return torch.addcmul(x + shift, x, scale)


class ConditionalResBlock(nn.Module):
    r"""Adds what two convolutions find, in view of a condition.

    $$y = P x + W_2 * \operatorname{silu}\bigl(\operatorname{mod}(\operatorname{norm}(h), e)\bigr), \qquad
    h = W_1 * \operatorname{silu}(\operatorname{norm}(x))$$

    The second convolution begins at 0, so that the block begins as $P$: the identity, or a map to the other number of
    channels. Images and series both: the number of space axes is said.

    Reference:
        Dhariwal and Nichol, *Diffusion Models Beat GANs on Image Synthesis*, 2021.

    Args:
        c: The channels of $x$.
        out: Those of $y$.
        condition: The size of $e$.
        dims: The number of space axes.

    Examples:
        >>> block = ConditionalResBlock(4, 8, condition=2)
        >>> block(torch.zeros(1, 4, 5, 5), torch.zeros(1, 2)).shape
        torch.Size([1, 8, 5, 5])
    """

    def __init__(self, c: int, out: int, *, condition: int, dims: int = 2) -> None:
        super().__init__()
        kernel = (3,) * dims
        self.before, self.first = GroupNorm(gcd(8, c), c), Convolution(c, out, kernel=kernel, padding=SAME)
        self.between, self.modulated = GroupNorm(gcd(8, out), out, affine=False), AdaptiveNorm(out, condition=condition)
        self.second = zero_init(Convolution(out, out, kernel=kernel, padding=SAME))
        self.skip = nn.Identity() if c == out else Convolution(c, out, kernel=(1,) * dims)

    def forward(self, x: Float[Tensor, "n c *space"], e: Float[Tensor, "n d"]) -> Float[Tensor, "n out *space"]:
        """Maps images, in view of the condition."""
        h = self.first(F.silu(self.before(x)))
        return self.skip(x) + self.second(F.silu(self.modulated(self.between(h), e)))


def zero_init(module: M) -> M:
    """Returns a module whose parameters are 0."""
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    return module


def _conditioned_claims() -> Iterator[Claim]:
    """The laws that conditioned blocks obey."""
    block = ConditionalResBlock(2, 4, condition=3, dims=1)
    with torch.no_grad():
        for i, p in enumerate(block.parameters()):
            p.copy_(0.5 * torch.sin(torch.arange(p.numel()).reshape(p.shape) + i))
    inputs = (shape("n 2 4"), shape("n 3"))

    def equation(x: Tensor, e: Tensor) -> Tensor:
        norm = F.group_norm(x, 2, block.before.weight, block.before.bias)
        h = F.conv1d(norm * norm.sigmoid(), block.first.weight, block.first.bias, padding=1)
        said = e @ block.modulated.linear.weight.T + block.modulated.linear.bias
        h = F.group_norm(h, 4) * (1 + said[:, :4, None]) + said[:, 4:, None]
        h = F.conv1d(h * h.sigmoid(), block.second.weight, block.second.bias, padding=1)
        skip = block.skip
        return (
            h
            + torch.einsum("oc,nct->not", skip.get_parameter("weight")[..., 0], x)
            + skip.get_parameter("bias")[:, None]
        )

    yield Claim(agreement(other=equation), block, inputs, name="ConditionedConvolutions")
    yield Claim(batch_independence(), block, inputs, name="ConditionedConvolutions")

    def begun(x: Tensor, e: Tensor) -> Tensor:
        return ConditionalResBlock(2, 2, condition=3).to(x)(x, e)

    nothing = agreement(other=lambda x, e: 1 * x)
    yield Claim(nothing, begun, (shape("n 2 3 3"), shape("n 3")), name="begins as the identity")


class SpatialAttention(nn.Module):
    r"""Lets every place of an image look at all others, and adds what it finds.

    $$y = x + \operatorname{attention}(\operatorname{norm}(x))$$

    The places are tokens, their channels the features. What attention finds begins at 0.

    Args:
        c: The number of channels.
        heads: The number of heads.

    Examples:
        >>> SpatialAttention(8)(torch.ones(1, 8, 4, 4)).shape
        torch.Size([1, 8, 4, 4])
    """

    def __init__(self, c: int, *, heads: int = 1) -> None:
        super().__init__()
        self.norm, self.attention = GroupNorm(gcd(8, c), c), MultiHeadAttention(c, heads=heads)
        zero_init(self.attention.out)

    def forward(self, x: Float[Tensor, "n c *space"]) -> Float[Tensor, "n c *space"]:
        """Maps images or series."""
        tokens = self.norm(x).flatten(2).mT
        return x + self.attention(tokens).mT.reshape(x.shape)


def _attention_claims() -> Iterator[Claim]:
    """The laws that attention between places obeys."""
    block = SpatialAttention(2)
    with torch.no_grad():
        block.attention.out.weight.copy_(torch.tensor([[0.5, -1.0], [2.0, 0.3]]))
    turns = equivariance(sample=lambda draw: draw.integer(0, 3, "turns"), act=lambda k, x: x.rot90(k, (-2, -1)))
    yield Claim(turns, block, shape("n 2 3 3"), name="SpaceAttention, of a turned image")

    def equation(x: Tensor) -> Tensor:
        z = nn.functional.group_norm(x, 2, block.norm.weight, block.norm.bias).flatten(2).mT
        a = block.attention
        q, k, v = (one.weight for one in (a.query, a.key, a.value))
        q, k, v = z @ q.T + a.query.bias, z @ k.T + a.key.bias, z @ v.T + a.value.bias
        found = torch.softmax(q @ k.mT / 2**0.5, -1) @ v @ a.out.weight.T + a.out.bias
        return x + found.mT.reshape(x.shape)

    yield Claim(agreement(other=equation), block, shape("n 2 2 3"))


class Patches(nn.Module):
    r"""Cuts images into squares, or series into pieces, each the vector of a token.

    $$y_{n, \, (c, k)} = x_{c, \, p n + k}$$

    Nothing overlaps and nothing is lost: `inverse` puts them together.

    Reference:
        Dosovitskiy et al., *An Image is Worth 16x16 Words*, 2021.

    Args:
        sizes: The shape of an example, (c, t) or (c, h, w).
        patch: $p$, the side of a patch, which divides all space axes.

    Examples:
        >>> cut = Patches((1, 4, 4), patch=2)
        >>> cut(torch.arange(16.0).reshape(1, 1, 4, 4))[0, 1], cut.count, cut.d
        (tensor([2., 3., 6., 7.]), 4, 4)
    """

    def __init__(self, sizes: tuple[int, ...], *, patch: int) -> None:
        if len(sizes) < 2 or min(sizes) < 1 or patch < 1 or any(n % patch for n in sizes[1:]):
            raise ValueError(f"space axes that patches of {patch} fill were wanted: got shape {tuple(sizes)}")
        super().__init__()
        self.sizes, self.patch = tuple(sizes), patch
        self.grid = tuple(n // patch for n in sizes[1:])
        self.count, self.d = prod(self.grid), sizes[0] * patch ** len(self.grid)

    def forward(self, x: Float[Tensor, "n c *space"]) -> Float[Tensor, "n t d"]:
        """Cuts."""
        dims = len(self.grid)
        split = x.reshape(len(x), self.sizes[0], *(size for n in self.grid for size in (n, self.patch)))
        order = [0, *range(2, 2 + 2 * dims, 2), 1, *range(3, 3 + 2 * dims, 2)]
        return split.permute(order).reshape(len(x), self.count, self.d)

    def inverse(self, y: Float[Tensor, "n t d"]) -> Float[Tensor, "n c *space"]:
        """Puts patches together."""
        dims = len(self.grid)
        split = y.reshape(len(y), *self.grid, self.sizes[0], *(self.patch,) * dims)
        order = [0, 1 + dims, *(axis for i in range(dims) for axis in (1 + i, 2 + dims + i))]
        return split.permute(order).reshape(len(y), *self.sizes)

    def extra_repr(self) -> str:
        return f"{self.sizes}, patch={self.patch}"


def _patches_claims() -> Iterator[Claim]:
    """The laws that patches obey."""
    images, series = Patches((2, 4, 6), patch=2), Patches((3, 4), patch=2)

    def by_hand(x: Tensor) -> Tensor:
        rows = [x[:, :, i : i + 2, j : j + 2].flatten(1) for i in (0, 2) for j in (0, 2, 4)]
        return torch.stack(rows, 1)

    yield Claim(agreement(other=by_hand), images, shape("n 2 4 6"))
    yield Claim(invertibility(), images, shape("n 2 4 6"))
    yield Claim(invertibility(), series, shape("n 3 4"))
    yield Claim(
        agreement(other=lambda x: torch.stack([x[:, :, :2].flatten(1), x[:, :, 2:].flatten(1)], 1)),
        series,
        shape("n 3 4"),
    )


class Downsample(nn.Module):
    r"""Averages pairs along every space axis; a last odd place stands alone.

    $$y_n = \tfrac12 (x_{2n} + x_{2n + 1})$$

    Examples:
        >>> Downsample()(torch.tensor([[[1.0, 3.0, 5.0]]]))
        tensor([[[2., 5.]]])
    """

    def forward(self, x: Float[Tensor, "n c *space"]) -> Float[Tensor, "n c *less"]:
        """Halves the space axes."""
        pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[x.dim() - 3]
        return pool(x, 2, ceil_mode=True, count_include_pad=False)


def upsample(x: Float[Tensor, "n c *space"], size: Sequence[int]) -> Float[Tensor, "n c *more"]:
    r"""Repeats every place along the space axes, up to a size: $y_{2n} = y_{2n + 1} = x_n$.

    Args:
        x: Images or series.
        size: The space axes that are wanted, each twice as large, or one less than that.

    Examples:
        >>> upsample(torch.tensor([[[1.0, 2.0]]]), (3,))
        tensor([[[1., 1., 2.]]])
    """
    if len(size) != x.dim() - 2 or any((n + 1) // 2 != m for n, m in zip(size, x.shape[2:], strict=True)):
        raise ValueError(f"sizes whose halves are {tuple(x.shape[2:])} were wanted: got {tuple(size)}")
    for axis, n in enumerate(size, start=2):
        x = x.repeat_interleave(2, axis).narrow(axis, 0, n)
    return x


def _resize_claims() -> Iterator[Claim]:
    """The laws that halving and doubling obey."""
    halve = Downsample()
    yield Claim(linearity(), halve, shape("n 1 3 4"))
    yield Claim(agreement(other=lambda x: (x[..., ::2] + x[..., 1::2]) / 2), halve, shape("n 2 6"))
    yield Claim(
        agreement(other=lambda x: 1 * x), lambda x: halve(upsample(x, (5, 2))), shape("n 1 3 1"), name="doubled, halved"
    )
    yield Claim(
        agreement(other=lambda x: torch.stack([x, x], -1).flatten(-2)),
        lambda x: upsample(x, (6,)),
        shape("n 1 3"),
        name="doubled",
    )


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _conditioned_claims()
    yield from _attention_claims()
    yield from _patches_claims()
    yield from _resize_claims()
