"""Residual blocks whose norms are scaled and shifted by a condition."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.convolution import SAME, Convolution
from lawful.blocks.dense import Dense
from lawful.blocks.normalization import GroupNorm
from lawful.laws import Claim, agreement, batch_independence, shape

M = TypeVar("M", bound=nn.Module)


class Modulated(nn.Module):
    r"""Scales and shifts each channel, or each feature, as a condition says.

    $$y = (1 + \gamma(e)) \odot x + \beta(e)$$

    $\gamma$ and $\beta$ are linear in $e$ and begin at 0, where this is the identity.

    Reference:
        Perez et al., *FiLM: Visual Reasoning with a General Conditioning Layer*, 2018.

    Args:
        c: The number of channels.
        condition: The size of $e$.

    Examples:
        >>> Modulated(3, condition=2)(torch.ones(1, 3, 4), torch.ones(1, 2)).shape
        torch.Size([1, 3, 4])
    """

    def __init__(self, c: int, *, condition: int) -> None:
        super().__init__()
        self.linear = zeroed(Dense(condition, 2 * c))

    def forward(self, x: Float[Tensor, "n c *space"], e: Float[Tensor, "n d"]) -> Float[Tensor, "n c *space"]:
        """Modulates axis 1."""
        scale, shift = self.linear(e).reshape(len(x), -1, *(1,) * (x.dim() - 2)).chunk(2, 1)
        return torch.addcmul(x + shift, x, scale)


class ConditionedConvolutions(nn.Module):
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
        >>> block = ConditionedConvolutions(4, 8, condition=2)
        >>> block(torch.zeros(1, 4, 5, 5), torch.zeros(1, 2)).shape
        torch.Size([1, 8, 5, 5])
    """

    def __init__(self, c: int, out: int, *, condition: int, dims: int = 2) -> None:
        super().__init__()
        kernel = (3,) * dims
        self.before, self.first = GroupNorm(gcd(8, c), c), Convolution(c, out, kernel=kernel, padding=SAME)
        self.between, self.modulated = GroupNorm(gcd(8, out), out, affine=False), Modulated(out, condition=condition)
        self.second = zeroed(Convolution(out, out, kernel=kernel, padding=SAME))
        self.skip = nn.Identity() if c == out else Convolution(c, out, kernel=(1,) * dims)

    def forward(self, x: Float[Tensor, "n c *space"], e: Float[Tensor, "n d"]) -> Float[Tensor, "n out *space"]:
        """Maps images, in view of the condition."""
        h = self.first(F.silu(self.before(x)))
        return self.skip(x) + self.second(F.silu(self.modulated(self.between(h), e)))


def zeroed(module: M) -> M:
    """Returns a module whose parameters are 0."""
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    return module


def claims() -> Iterator[Claim]:
    """The laws that conditioned blocks obey."""
    block = ConditionedConvolutions(2, 4, condition=3, dims=1)
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
        return ConditionedConvolutions(2, 2, condition=3).to(x)(x, e)

    nothing = agreement(other=lambda x, e: 1 * x)
    yield Claim(nothing, begun, (shape("n 2 3 3"), shape("n 3")), name="begins as the identity")
