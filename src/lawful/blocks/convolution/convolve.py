"""The convolution of mathematics: two signals, either of which slides over the other reversed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.laws import (
    Claim,
    Draw,
    agreement,
    commutativity,
    distributivity,
    equivariance,
    homogeneity,
    shape,
)

_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def convolve(f: Float[Tensor, "*_f"], g: Float[Tensor, "*_g"], *, axes: int = 1) -> Float[Tensor, "*_out"]:
    r"""Convolves two signals over their last axes, at every shift at which they meet.

    $$(f * g)_n = \sum_k f_k \, g_{n - k}$$

    An axis of sizes $n$ and $m$ comes out with $n + m - 1$. The operation is commutative, associative and linear in
    each signal, and the unit impulse changes nothing. The *cross-correlation* $\sum_k f_{n + k} g_k$, which the layer
    `Convolution` computes, is the convolution with $g$ reversed, and is not commutative. Axes before the last ones
    are a batch, and broadcast.

    Args:
        f: A signal $f$.
        g: The other one $g$, the filter.
        axes: How many of the last axes are convolved over, from one to three.

    Examples:
        >>> convolve(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0, 3.0]))
        tensor([1., 2., 3., 6.])
    """
    if axes not in _CONV or min(f.dim(), g.dim()) < axes:
        shapes = f"{tuple(f.shape)} and {tuple(g.shape)}"
        raise ValueError(f"signals with the axes convolved over, one to three, were wanted: got {axes=}, {shapes}")
    n, m = f.shape[-axes:], g.shape[-axes:]
    if 0 in (*n, *m):
        raise ValueError(f"signals of at least one entry were wanted: got sizes {tuple(n)} and {tuple(m)}")
    batch = torch.broadcast_shapes(f.shape[:-axes], g.shape[:-axes])
    count, last = math.prod(batch), tuple(range(-axes, 0))
    if count == 0:
        empty = f.sum(last, keepdim=True) * g.sum(last, keepdim=True)
        return empty.expand(*batch, *(a + b - 1 for a, b in zip(n, m, strict=True)))
    signal = f.expand(*batch, *n).reshape(1, count, *n)
    kernel = g.flip(last).expand(*batch, *m).reshape(count, 1, *m)
    y = _CONV[axes](signal, kernel, padding=[k - 1 for k in m], groups=count)
    return y.reshape(*batch, *y.shape[2:])


def claims() -> Iterator[Claim]:
    """The laws that convolution obeys."""

    def step(draw: Draw) -> int:
        return draw.integer(1, 3, "s")

    def delayed(s: int, x: Tensor) -> Tensor:
        return F.pad(x, (s, 0))

    def from_the_left(f: Tensor, g: Tensor, h: Tensor) -> Tensor:
        return convolve(convolve(f, g), h)

    def from_the_right(f: Tensor, g: Tensor, h: Tensor) -> Tensor:
        return convolve(f, convolve(g, h))

    two, uneven = (shape("b n"), shape("b n")), (shape("b n"), shape("m"))
    yield Claim(commutativity(), convolve, two)
    yield Claim(distributivity(), convolve, uneven)
    yield Claim(homogeneity(input=1), convolve, uneven)
    yield Claim(equivariance(sample=step, act=delayed), convolve, uneven, name="convolve, shifted")

    def spectral(f: Tensor, g: Tensor) -> Tensor:
        sizes = [a + b - 1 for a, b in zip(f.shape[-2:], g.shape[-2:], strict=True)]
        return torch.fft.ifft2(torch.fft.fft2(f, sizes) * torch.fft.fft2(g, sizes)).real

    images = (shape("b 3 2"), shape("b 2 m:1..3"))
    yield Claim(agreement(other=spectral), partial(convolve, axes=2), images, name="convolution theorem")
    yield Claim(commutativity(), partial(convolve, axes=3), (shape("2 1 3"), shape("2 1 3")), name="convolve(axes=3)")

    def sizes(f: Tensor, g: Tensor) -> Tensor:
        return f.new_tensor(convolve(f[:, :0], g, axes=2).shape)

    empty = agreement(other=lambda f, g: f.new_tensor([len(f), 0, f.shape[2] + g.shape[0] - 1, 2 + g.shape[1]]))
    yield Claim(empty, sizes, (shape("b 2 n 3"), shape("n:2..3 m:1..3")), name="convolve, an empty batch")
    triple = (shape("b n"), shape("b m"), shape("3"))
    yield Claim(agreement(other=from_the_right), from_the_left, triple, name="associativity")
