"""The convolution as a dense layer: its structured matrix, and how many parameters it saves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.blocks.convolution.convolution import Convolution
from lawful.blocks.convolution.padding import CIRCULAR, FULL, NONE, REFLECT, SAME, Padding
from lawful.blocks.convolution.sizes import output_size
from lawful.laws import Claim, agreement, shape


def taps(
    n: int, k: int, *, stride: int = 1, dilation: int = 1, padding: Padding = NONE
) -> Float[Tensor, "rows n taps"]:
    r"""Says which input each output of a one-dimensional convolution reads with which tap.

    $$S_{m, i, k} = [\text{output } m \text{ reads input } i \text{ with tap } k] \in \{0, 1\}$$

    Each $S_{\cdot, \cdot, k}$ is a shifted identity, so that $\sum_k w_k S_{\cdot, \cdot, k}$ is constant along its
    diagonals: a Toeplitz matrix, and with circular padding a circulant one.

    Args:
        n: The size of the input.
        k: The number of taps.
        stride: The step from one output to the next.
        dilation: The step from one tap to the next.
        padding: How the input is continued past its border.

    Examples:
        >>> (taps(3, 2) @ torch.tensor([5.0, 7.0]))
        tensor([[5., 7., 0.],
                [0., 5., 7.]])
    """
    (rows,) = output_size((n,), kernel=(k,), stride=stride, dilation=dilation, padding=padding)
    numbered = torch.arange(1.0, n + 1).reshape(1, 1, n)
    read = F.pad(numbered, padding.sides(dilation * (k - 1)), mode=padding.fill).flatten().long()
    position = stride * torch.arange(rows)[:, None] + dilation * torch.arange(k)
    return F.one_hot(read[position], n + 1)[..., 1:].mT.to(torch.get_default_dtype())


def as_matrix(convolution: Convolution, size: tuple[int, ...]) -> Float[Tensor, "rows columns"]:
    r"""Writes a convolution as the matrix of a dense layer, from its kernel.

    $$A_{(o, m), (c, i)} = \sum_k w_{o, c, k} \prod_a S^{(a)}_{m_a, i_a, k_a}$$

    One block for each pair of channels, in it one for each pair of rows of an image, and so on down to Toeplitz
    matrices (circulant ones under circular padding). On flattened inputs $A x$ is the convolution without its bias.

    Args:
        convolution: The layer.
        size: The size of its input along each space axis.

    Examples:
        >>> layer = Convolution(1, 1, kernel=(3,), bias=False)
        >>> layer.weight.data = torch.tensor([[[1.0, 2.0, 3.0]]])
        >>> as_matrix(layer, (4,)).detach()
        tensor([[1., 2., 3., 0.],
                [0., 1., 2., 3.]])
    """
    w = _weight(convolution)
    kernel = tuple(w.shape[2:])
    if len(size) != len(kernel):
        raise ValueError(f"a size along {len(kernel)} space axes was wanted: got {size}")
    blocks = w.unflatten(0, (convolution.groups, -1))
    a = torch.stack([torch.block_diag(*tap.unbind()) for tap in blocks.flatten(3).unbind(-1)], -1)
    a = a.unflatten(-1, kernel)
    steps = zip(size, kernel, convolution.stride, convolution.dilation, strict=True)
    reads = [taps(n, k, stride=s, dilation=d, padding=convolution.padding).to(w) for n, k, s, d in steps]
    return spread(a, reads).flatten(len(size) + 1).flatten(0, len(size))


def _weight(convolution: Convolution) -> Tensor:
    if not isinstance(convolution, Convolution):
        raise TypeError(f"a Convolution was wanted: got {type(convolution).__name__}")
    return convolution.weight


def spread(weight: Float[Tensor, "out c *kernel"], reads: list[Tensor]) -> Float[Tensor, "*rows_columns"]:
    """Puts each tap of a kernel wherever an output reads an input with it.

    Args:
        weight: The kernel.
        reads: For each space axis what `taps` says.

    Returns the tensor with axes (output channel, *output positions, input channel, *input positions).

    Examples:
        >>> spread(torch.tensor([[[5.0, 7.0]]]), [taps(2, 2)]).shape
        torch.Size([1, 1, 1, 2])
    """
    sizes = tuple(read.shape[2] for read in reads)
    if weight.shape[2:] != sizes:
        raise ValueError(f"reads of {tuple(weight.shape[2:])} taps were wanted: got {sizes}")
    for read in reads:
        weight = torch.tensordot(weight, read, dims=([2], [2]))
    pairs = range(2, 2 + 2 * len(reads), 2)
    return weight.permute(0, *pairs, 1, *(n + 1 for n in pairs))


class Count(NamedTuple):
    """How many parameters a convolution has, and the dense layer in its place."""

    convolution: int
    dense: int


def parameter_count(convolution: Convolution, size: tuple[int, ...]) -> Count:
    """Counts the parameters of a convolution, and those of a dense layer between the same sizes.

    The first does not depend on the size of the input. Both have a bias or neither has: a dense layer has one for
    each output.

    Args:
        convolution: The layer.
        size: The size of its input along each space axis.

    Examples:
        >>> parameter_count(Convolution(1, 1, kernel=(3,), padding=SAME, bias=False), (5,))
        Count(convolution=3, dense=25)
    """
    w = _weight(convolution)
    settings = {"stride": convolution.stride, "dilation": convolution.dilation, "padding": convolution.padding}
    outputs = w.shape[0] * math.prod(output_size(size, kernel=tuple(w.shape[2:]), **settings))
    inputs = w.shape[1] * convolution.groups * math.prod(size)
    bias = convolution.bias is not None
    return Count(sum(p.numel() for p in convolution.parameters()), outputs * (inputs + bias))


def claims() -> Iterator[Claim]:
    """The laws that the matrix of a convolution obeys."""
    rows: tuple[tuple[tuple[int, ...], dict[str, Any], tuple[int, ...]], ...] = (
        ((3,), {}, (5,)),
        ((2,), {"padding": SAME, "dilation": 3}, (5,)),
        ((3, 2), {"padding": CIRCULAR, "groups": 2}, (3, 4)),
        ((3, 3), {"padding": REFLECT, "stride": (2, 1)}, (4, 3)),
        ((1, 2, 2), {"padding": FULL, "stride": 2}, (2, 3, 2)),
    )
    for kernel, settings, size in rows:
        layer = Convolution(2, 4, kernel=kernel, **settings)

        def dense(x: Tensor, layer: Convolution = layer, size: tuple[int, ...] = size) -> Tensor:
            _, bias = layer.parameters()
            y = (x.flatten(1) @ as_matrix(layer, size).mT).unflatten(1, (4, -1)) + bias[:, None]
            return y.reshape_as(layer(x))

        inputs = shape(f"b 2 {' '.join(map(str, size))}")
        yield Claim(agreement(other=dense), layer, inputs, name=f"Convolution({kernel}, {', '.join(settings)})")

    layer = Convolution(2, 4, kernel=(2, 3), stride=2, groups=2, padding=1)

    def counted(x: Tensor) -> Tensor:
        return x.new_tensor(parameter_count(layer, (5, 4)))

    def measured(x: Tensor) -> Tensor:
        a = as_matrix(layer, (5, 4))
        return x.new_tensor([4 * 2 * 3 + 4, a.numel() + len(a)])

    yield Claim(agreement(other=measured), counted, shape("1"), name="parameter_count")

    def written_out(w: Tensor) -> Tensor:
        (a, b, c), o = w, w.new_zeros(())
        return torch.stack([torch.stack(row) for row in ((a, b, c, o, o), (o, a, b, c, o), (o, o, a, b, c))])

    def toeplitz(w: Tensor) -> Tensor:
        return taps(5, 3).to(w) @ w

    yield Claim(agreement(other=written_out), toeplitz, shape("3"), name="three taps")
    shared = agreement(other=lambda w: toeplitz(w)[:-1, :-1])
    yield Claim(shared, lambda w: toeplitz(w)[1:, 1:], shape("3"), name="weight sharing")
