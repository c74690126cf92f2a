"""Convolution: one small kernel, slid along every position."""

from __future__ import annotations

import math
from collections.abc import Iterator
from operator import lt

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.convolution.convolve import convolve
from lawful.blocks.convolution.padding import CIRCULAR, FULL, NONE, SAME, Padding, as_padding
from lawful.blocks.convolution.sizes import Sizes, one_to_three, per_axis
from lawful.laws import Claim, agreement, boundedness, linearity, locality, shape, translation_equivariance

_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class Convolution(nn.Module):
    r"""Multiplies every patch of the input by one kernel and adds up.

    $$y_{o, n} = b_o + \sum_c \sum_k w_{o, c, k} \, x_{c, \, \sigma n + \delta k - p}$$

    As everywhere in machine learning this is a cross-correlation: `convolve` with the kernel reversed. The number
    of taps says how many space axes there are, from one to three. The parameters are named and laid out as those of
    `nn.Conv1d` to `nn.Conv3d`, so that weights move over.

    Reference:
        LeCun et al., *Gradient-Based Learning Applied to Document Recognition*, 1998.

    Args:
        c: The channels $c$ of the input.
        out: The channels $o$ of the output.
        kernel: The taps $k$ along each space axis: `(3,)` for series, `(3, 3)` for images.
        stride: $\sigma$, the step from one output to the next.
        dilation: $\delta$, the step from one tap to the next.
        groups: Into how many parts, which do not see each other, the channels are split.
        padding: How the input is continued past its border, a row of data; a number is as many zeros on both sides.
        bias: Whether there is a $b$.

    Examples:
        >>> edges = Convolution(1, 1, kernel=(2,), bias=False)
        >>> edges.weight.data = torch.tensor([[[-1.0, 1.0]]])
        >>> edges(torch.tensor([[[0.0, 0.0, 5.0, 5.0]]])).detach()
        tensor([[[0., 5., 0.]]])
    """

    def __init__(
        self,
        c: int,
        out: int,
        *,
        kernel: tuple[int, ...],
        stride: Sizes = 1,
        dilation: Sizes = 1,
        groups: int = 1,
        padding: Padding | int = NONE,
        bias: bool = True,
    ) -> None:
        super().__init__()
        kernel = one_to_three(kernel, "kernel")
        self.stride, self.dilation = (
            per_axis(stride, len(kernel), "stride"),
            per_axis(dilation, len(kernel), "dilation"),
        )
        self.groups, self.padding = groups, as_padding(padding)
        self.weight, self.bias = initialised(out, c, kernel, out, groups=groups, bias=bias)
        spans = [d * (k - 1) for d, k in zip(self.dilation, kernel, strict=True)]
        sides = [self.padding.sides(span) for span in spans]
        zeros, mirror = self.padding.fill == "constant", self.padding.fill == "reflect"
        least = [
            (1, span + 1 - sum(side), 0 if zeros else max(side) + mirror)
            for span, side in zip(spans, sides, strict=True)
        ]
        self._least = tuple(map(max, least))
        self._even = tuple(min(side) if zeros else 0 for side in sides)
        rest = [(a - n, b - n) for (a, b), n in zip(sides, self._even, strict=True)]
        self._rest = [n for side in reversed(rest) for n in side] if any(map(any, rest)) else None

    def forward(self, x: Float[Tensor, "b c *space"]) -> Float[Tensor, "b out *less"]:
        """Slides the kernel over the space axes."""
        w = self.weight
        if x.dim() != w.dim() or x.shape[1] != w.shape[1] * self.groups:
            wanted = f"{w.shape[1] * self.groups} channels and {w.dim() - 2} space axes"
            raise ValueError(f"an input of {wanted} was wanted: got shape {tuple(x.shape)}")
        if any(map(lt, x.shape[2:], self._least)):
            raise ValueError(f"space axes of at least {self._least} were wanted: got shape {tuple(x.shape)}")
        if self._rest is not None:
            x = F.pad(x, self._rest, mode=self.padding.fill)
        return _CONV[w.dim() - 2](x, w, self.bias, self.stride, self._even, self.dilation, self.groups)

    def extra_repr(self) -> str:
        out, c = self.weight.shape[:2]
        return described(self, c * self.groups, out, {"padding": NONE})


def initialised(
    rows: int, columns: int, kernel: tuple[int, ...], out: int, *, groups: int, bias: bool
) -> tuple[nn.Parameter, nn.Parameter | None]:
    r"""Draws a weight and a bias as PyTorch does: uniform within $1 / \sqrt{\text{what one output reads}}$.

    Args:
        rows: The size of the weight's first axis.
        columns: That of its second axis, over all groups.
        kernel: The taps along each axis.
        out: The channels of the output, one bias each.
        groups: Into how many parts the channels are split.
        bias: Whether there is a bias.

    Examples:
        >>> weight, bias = initialised(4, 6, (3,), 4, groups=2, bias=True)
        >>> weight.shape, bias.shape
        (torch.Size([4, 3, 3]), torch.Size([4]))
    """
    per_axis(kernel, len(kernel), "kernel")
    if min(rows, columns, groups) < 1:
        raise ValueError(f"channels and groups are at least 1: got channels {rows} and {columns}, groups={groups}")
    if rows % groups or columns % groups:
        raise ValueError(f"groups must divide both numbers of channels: got {rows} and {columns}, groups={groups}")
    weight = nn.Parameter(torch.empty(rows, columns // groups, *kernel))
    nn.init.kaiming_uniform_(weight, a=math.sqrt(5))
    bound = 1 / math.sqrt(weight[0].numel())
    return weight, nn.Parameter(torch.empty(out).uniform_(-bound, bound)) if bias else None


def described(layer: nn.Module, c: int, out: int, usual: dict[str, object]) -> str:
    """Names the sizes of a layer, and the settings that are not as usual.

    Examples:
        >>> Convolution(1, 4, kernel=(3, 3), groups=1, bias=False)
        Convolution(1, 4, kernel=(3, 3), bias=False)
    """
    kernel = tuple(layer.get_parameter("weight").shape[2:])
    ones = (1,) * len(kernel)
    usual = {"stride": ones, "dilation": ones, "groups": 1, **usual}
    parts = [f"{name}={value}" for name, default in usual.items() if (value := getattr(layer, name)) != default]
    return ", ".join([f"{c}, {out}, kernel={kernel}", *parts, *(["bias=False"] if layer.bias is None else [])])


def claims() -> Iterator[Claim]:
    """The laws that a convolution obeys; `matrix` and `transposed` claim more."""
    circle = Convolution(2, 3, kernel=(3, 2), dilation=2, padding=CIRCULAR)
    for axis in (2, 3):
        yield Claim(translation_equivariance(axis=axis), circle, shape("b 2 h:4..6 w:4..6"), name="circular")
    same = Convolution(2, 3, kernel=(3,), padding=1)
    yield Claim(translation_equivariance(axis=2, border=1), same, shape("b 2 n:4..8"), name="zero padding")
    yield Claim(locality(radius=1, axis=2), same, shape("b 2 n"), name="three taps")
    yield Claim(linearity(), Convolution(2, 4, kernel=(2, 2, 2), groups=2, bias=False), shape("b 2 2 3 2"))
    full = Convolution(1, 1, kernel=(3,), padding=FULL, bias=False)
    reversed_kernel = agreement(other=lambda x: convolve(x, full.weight[0, 0].flip(-1)))
    yield Claim(reversed_kernel, full, shape("b 1 n"), name="Convolution, full")
    plain, uneven = Convolution(2, 3, kernel=(3,)), Convolution(2, 4, kernel=(4,), stride=2, groups=2, padding=SAME)

    def patches(x: Tensor) -> Tensor:
        weight, bias = plain.parameters()
        return torch.einsum("bcnk,ock->bon", x.unfold(2, 3, 1), weight) + bias[:, None]

    def halves(x: Tensor) -> Tensor:
        weight, bias = uneven.parameters()
        cut = F.pad(x, (1, 2)).unfold(2, 4, 2).unflatten(1, (2, 1))
        y = torch.einsum("bgcnk,gock->bgon", cut, weight.unflatten(0, (2, 2)))
        return y.flatten(1, 2) + bias[:, None]

    yield Claim(agreement(other=patches), plain, shape("b 2 n:3..6"), name="patches")
    yield Claim(agreement(other=halves), uneven, shape("b 2 n:2..6"), name="patches, in groups")

    def drawn(x: Tensor) -> Tensor:
        weight, bias = initialised(4, 6, (3,), 4, groups=2, bias=True)
        return torch.cat([p.flatten() for p in (weight, bias) if p is not None]).to(x)

    yield Claim(boundedness(low=-1 / 3, high=1 / 3), drawn, shape("1"), name="initialised")
