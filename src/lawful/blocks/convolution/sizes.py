"""The size of what a convolution gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from lawful.blocks.convolution.padding import FULL, NONE, Padding, as_padding
from lawful.laws import Claim, agreement, shape

Sizes = int | tuple[int, ...]
"""One number for all space axes, or one for each."""


def per_axis(value: Sizes, axes: int, name: str) -> tuple[int, ...]:
    """Returns a positive number for each of the space axes.

    Examples:
        >>> per_axis(2, 3, "stride")
        (2, 2, 2)
    """
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes
    if len(values) != axes or not all(isinstance(n, int) and n >= 1 for n in values):
        raise ValueError(f"{name} is an int of at least 1, on each of {axes} space axes: got {value!r}")
    return values


def one_to_three(sizes: tuple[int, ...], name: str) -> tuple[int, ...]:
    """Returns the sizes along one to three space axes, each at least 1.

    Examples:
        >>> one_to_three((3, 3), "kernel")
        (3, 3)
    """
    if not isinstance(sizes, (tuple, list)) or not 1 <= len(sizes) <= 3:
        raise ValueError(f"a {name} is a tuple of one to three axes: got {sizes!r}")
    return per_axis(tuple(sizes), len(sizes), name)


def output_size(
    size: tuple[int, ...],
    *,
    kernel: tuple[int, ...],
    stride: Sizes = 1,
    dilation: Sizes = 1,
    padding: Padding | int = NONE,
) -> tuple[int, ...]:
    r"""Counts the positions that a convolution's output has along each space axis.

    $$n' = \left\lfloor \frac{n + p - \delta (k - 1) - 1}{\sigma} \right\rfloor + 1$$

    Without padding, stride and dilation that is $n - k + 1$; with full padding $n + k - 1$.

    Args:
        size: $n$, along each space axis.
        kernel: $k$, the taps along each axis.
        stride: $\sigma$, the step from one output to the next.
        dilation: $\delta$, the step from one tap to the next.
        padding: What adds $p$ positions; a number stands for as many zeros on both sides.

    Examples:
        >>> output_size((28, 28), kernel=(5, 3))
        (24, 26)
        >>> output_size((28,), kernel=(3,), stride=2, padding=1)
        (14,)
    """
    padding = as_padding(padding)
    axes = len(per_axis(kernel, len(size), "kernel"))
    steps, apart = per_axis(stride, axes, "stride"), per_axis(dilation, axes, "dilation")
    found = []
    for n, k, step, d in zip(size, kernel, steps, apart, strict=True):
        span = d * (k - 1)
        room = n + sum(padding.sides(span)) - span
        if room < 1:
            raise ValueError(f"a kernel that spans {span + 1} does not fit: got size {n}, padding {padding}")
        found.append((room - 1) // step + 1)
    return tuple(found)


def claims() -> Iterator[Claim]:
    """The law that the sizes obey: they are those of PyTorch's outputs."""
    rows: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
        ({}, {}),
        ({"stride": 2, "padding": 2}, {"stride": 2, "padding": 2}),
        ({"stride": (3, 1), "dilation": 2, "padding": FULL}, {"stride": (3, 1), "dilation": 2, "padding": (4, 2)}),
    )
    for settings, theirs in rows:

        def counted(x: Tensor, settings: dict[str, Any] = settings) -> Tensor:
            return x.new_tensor(output_size(tuple(x.shape[2:]), kernel=(3, 2), **settings))

        def measured(x: Tensor, theirs: dict[str, Any] = theirs) -> Tensor:
            return x.new_tensor(F.conv2d(x, x.new_ones(1, 1, 3, 2), **theirs).shape[2:])

        inputs = shape("1 1 h:3..9 w:3..9")
        yield Claim(agreement(other=measured), counted, inputs, name=f"output_size({', '.join(settings)})")

    def repeated(x: Tensor) -> Tensor:
        return x.new_tensor([*one_to_three((2, 3), "kernel"), *per_axis(len(x), 2, "stride")])

    same = agreement(other=lambda x: x.new_tensor([2, 3, len(x), len(x)]))
    yield Claim(same, repeated, shape("n"), name="a number for each axis")
