"""Transposed convolution: the transpose of a convolution's matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.convolution.convolution import Convolution, described, initialised
from lawful.blocks.convolution.matrix import as_matrix
from lawful.blocks.convolution.sizes import Sizes, one_to_three, output_size, per_axis
from lawful.laws import Claim, agreement, shape

_CONV = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


class TransposedConvolution(nn.Module):
    r"""Adds a copy of the kernel, multiplied by the entry, at the place of every entry.

    $$y_{o, \, \sigma n + \delta k - p} \mathrel{+}= w_{c, o, k} \, x_{c, n}$$

    Where $A$ is the matrix of a `Convolution` from $o$ to $c$ channels with the same weight and settings, this
    multiplies by $A^\top$ (and adds a bias): it goes back from the size of the output to that of the input, and
    undoes nothing but the shape. The weight, laid out as that of `nn.ConvTranspose1d` to `3d`, is the very tensor of
    the convolution.

    Reference:
        Dumoulin and Visin, *A Guide to Convolution Arithmetic for Deep Learning*, 2016.

    Args:
        c: The channels $c$ of the input.
        out: The channels $o$ of the output.
        kernel: The taps $k$ along each space axis.
        stride: $\sigma$, the step from one input to the next.
        dilation: $\delta$, the step from one tap to the next.
        groups: Into how many parts, which do not see each other, the channels are split.
        padding: $p$, how many zeros the convolution adds on both sides: as many positions are cut off here.
        bias: Whether a bias is added.

    Examples:
        >>> spread = TransposedConvolution(1, 1, kernel=(2,), stride=2, bias=False)
        >>> spread.weight.data = torch.tensor([[[1.0, 10.0]]])
        >>> spread(torch.tensor([[[1.0, 2.0]]])).detach()
        tensor([[[ 1., 10.,  2., 20.]]])
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
        padding: int = 0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        kernel = one_to_three(kernel, "kernel")
        if not isinstance(padding, int) or padding < 0:
            raise ValueError(f"padding is an int of at least 0: got {padding!r}")
        self.stride, self.dilation = (
            per_axis(stride, len(kernel), "stride"),
            per_axis(dilation, len(kernel), "dilation"),
        )
        self.groups, self.padding = groups, padding
        self.weight, self.bias = initialised(c, out, kernel, out, groups=groups, bias=bias)

    def forward(
        self, x: Float[Tensor, "b c *space"], *, size: tuple[int, ...] | None = None
    ) -> Float[Tensor, "b out *more"]:
        """Spreads the kernel over the space axes.

        Args:
            x: The input.
            size: The size of the output, which at a stride above 1 could be one of several; the smallest by default.
        """
        w = self.weight
        if x.dim() != w.dim() or x.shape[1] != w.shape[0]:
            wanted = f"{w.shape[0]} channels and {w.dim() - 2} space axes"
            raise ValueError(f"an input of {wanted} was wanted: got shape {tuple(x.shape)}")
        more = self._more(x.shape[2:], size) if size is not None else 0
        conv = _CONV[w.dim() - 2]
        return conv(x, w, self.bias, self.stride, self.padding, more, self.groups, self.dilation)

    def extra_repr(self) -> str:
        c, out = self.weight.shape[:2]
        return described(self, c, out * self.groups, {"padding": 0})

    def _more(self, space: tuple[int, ...], size: tuple[int, ...]) -> list[int]:
        """How far the wanted size is above the smallest."""
        taps = self.weight.shape[2:]
        settings = {"kernel": tuple(taps), "stride": self.stride, "dilation": self.dilation, "padding": self.padding}
        if len(size) != len(taps) or output_size(size, **settings) != tuple(space):
            raise ValueError(f"a convolution does not take size {tuple(size)} to {tuple(space)}")
        spans = [d * (k - 1) for d, k in zip(self.dilation, taps, strict=True)]
        axes = zip(size, space, self.stride, spans, strict=True)
        return [n - ((m - 1) * step + span + 1 - 2 * self.padding) for n, m, step, span in axes]


def claims() -> Iterator[Claim]:
    """The laws that a transposed convolution obeys."""
    for kernel, settings, size in (((2,), {"stride": 3, "padding": 1}, (7,)), ((2, 3), {"dilation": 2}, (4, 6))):
        conv = Convolution(2, 4, kernel=kernel, groups=2, bias=False, **settings)
        back = TransposedConvolution(4, 2, kernel=kernel, groups=2, bias=False, **settings)
        conv.weight = back.weight

        def returned(y: Tensor, back: nn.Module = back, size: tuple[int, ...] = size) -> Tensor:
            return back(y, size=size)

        def matrix(y: Tensor, conv: Convolution = conv, size: tuple[int, ...] = size) -> Tensor:
            return (y.flatten(1) @ as_matrix(conv, size)).unflatten(1, (2, *size))

        def left(x: Tensor, y: Tensor, conv: nn.Module = conv) -> Tensor:
            return (conv(x) * y).flatten(1).sum(1)

        def right(x: Tensor, y: Tensor, returned: Callable[[Tensor], Tensor] = returned) -> Tensor:
            return (x * returned(y)).flatten(1).sum(1)

        sizes = (size, output_size(size, kernel=kernel, **settings))
        x, y = (shape(f"b {c} {' '.join(map(str, n))}") for c, n in zip((2, 4), sizes, strict=True))
        yield Claim(agreement(other=right), left, (x, y), name="⟨A x, y⟩ = ⟨x, Aᵀ y⟩")
        yield Claim(agreement(other=matrix), returned, y, name=f"TransposedConvolution{kernel}")
    plain = TransposedConvolution(2, 3, kernel=(2,), stride=2)

    def side_by_side(x: Tensor) -> Tensor:
        weight, bias = plain.parameters()
        return torch.einsum("bcn,cok->bonk", x, weight).flatten(2) + bias[:, None]

    yield Claim(agreement(other=side_by_side), plain, shape("b 2 n"))
