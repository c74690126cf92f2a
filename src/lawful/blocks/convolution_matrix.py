"""The convolution of mathematics: two signals, either of which slides over the other reversed.

The matrix of a linear function, or where it is not linear.
Padding: how far an input is continued past its border, and with what.
The size of what a convolution gives.
Convolution: one small kernel, slid along every position.
The convolution as a dense layer: its structured matrix, and how many parameters it saves.
The converse: a linear map that is shift-equivariant is a convolution, and here is its kernel.
Pooling: one number for a patch, or for everything.
Transposed convolution: the transpose of a convolution's matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from operator import lt
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.linear import name_of
from lawful.blocks.modes import eval_mode
from lawful.laws import (
    Claim,
    Draw,
    agreement,
    boundedness,
    commutativity,
    distributivity,
    equivariance,
    homogeneity,
    invariance,
    linearity,
    lipschitz,
    locality,
    monotonicity,
    permutation_invariance,
    shape,
    translation_equivariance,
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


def _convolve_claims() -> Iterator[Claim]:
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


_FACTORS = (-1.0, 100.0, 0.01)


def linear_matrix(
    f: Callable[[Tensor], Tensor], size: tuple[int, ...], *, tolerance: float | None = None
) -> Float[Tensor, "*output_input"]:
    r"""Writes down a linear function, by what it makes of the unit vectors.

    $$A_{i, j} = f(e_j)_i$$

    That it is linear is tried on random inputs of several sizes. A module is asked in evaluation mode and in the
    precision of its parameters, another function in the default precision.

    Args:
        f: A function of a batch (b, *size).
        size: The size of one sample.
        tolerance: By how much two numbers may differ, as a part of the largest; by default what `tolerated` says.

    Returns:
        The matrix as a tensor: the axes of an output, then those of an input.

    Raises:
        ValueError: The function is not linear; it says where.

    Examples:
        >>> linear_matrix(lambda x: x.cumsum(-1), (3,))
        tensor([[1., 0., 0.],
                [1., 1., 0.],
                [1., 1., 1.]])
    """
    parameter = next(f.parameters(), None) if isinstance(f, nn.Module) else None
    like = torch.zeros(()) if parameter is None else parameter.detach()
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 1, *size, generator=generator, dtype=torch.float64).to(like)
    with torch.no_grad(), eval_mode(f) if isinstance(f, nn.Module) else nullcontext():
        fx, fy = f(x), f(y)
        tolerance = tolerated(fx.dtype) if tolerance is None else tolerance
        scale = tolerance * float(torch.maximum(fx.abs(), fy.abs()).amax())
        _refuse("f(0) = 0", f(0 * x), torch.zeros_like(fx), scale)
        for a in _FACTORS:
            _refuse(f"f({a:g} x) = {a:g} f(x)", f(a * x), a * fx, abs(a) * scale)
        _refuse("f(x + y) = f(x) + f(y)", f(x + y), fx + fy, scale)
        columns = f(torch.eye(math.prod(size)).to(like).reshape(-1, *size))
        _refuse("f(x) = Σ x_j f(e_j)", fx, torch.tensordot(x.reshape(1, -1), columns, dims=1), scale)
    return columns.movedim(0, -1).unflatten(-1, size)


def tolerated(dtype: torch.dtype) -> float:
    """Returns the part of the largest number by which two may differ: more in half precision.

    Examples:
        >>> tolerated(torch.float32), tolerated(torch.bfloat16)
        (0.0001, 0.0625)
    """
    if not (dtype.is_floating_point or dtype.is_complex):
        raise TypeError(f"floating point numbers were wanted: got {dtype}")
    return max(1e-4, 8 * torch.finfo(dtype).eps)


def _refuse(equation: str, left: Tensor, right: Tensor, limit: float) -> None:
    """Raises where an equation fails by more than the limit."""
    apart = (left - right).abs().nan_to_num(math.inf)
    if not (math.isfinite(limit) and bool((apart <= limit).all())):
        at = torch.unravel_index(apart.argmax(), apart.shape)
        where = tuple(int(n) for n in at[1:])
        raise ValueError(f"not linear: {equation} fails at output {where}: {float(left[at]):g}, {float(right[at]):g}")


def _linear_claims() -> Iterator[Claim]:
    """The law that the matrix obeys: it is the one that the function multiplies by."""
    yield Claim(agreement(other=lambda a: a.mT), _of_product, shape("n m"), name="linear_matrix")
    dense = nn.Linear(3, 2, bias=False)
    written = agreement(other=lambda x: x @ dense.weight.T)
    yield Claim(written, lambda x: x @ linear_matrix(dense, (3,)).T, shape("b 3"), name="linear_matrix of a module")

    def refused(c: Tensor) -> Tensor:
        c = 1 + c.abs()
        curves = (lambda x: x + c, lambda x: c * x.abs(), lambda x: c * x.clamp(-20, 20), lambda x: c * x**3)
        return torch.stack([_refuses(curve, None).to(c) for curve in (*curves, lambda x: x + 1e-2)])

    def tolerant(c: Tensor) -> Tensor:
        return torch.stack([_refuses(lambda x: x + 0.1, tolerance) for tolerance in (0.01, 50.0)]).to(c)

    yield Claim(agreement(other=lambda c: torch.ones(5).to(c)), refused, shape("1"), name="what bends is refused")
    yield Claim(agreement(other=lambda c: c.new_tensor([1, 0])), tolerant, shape("1"), name="up to the tolerance")
    known = {torch.float32: 1e-4, torch.float64: 1e-4, torch.bfloat16: 2**-4, torch.float16: 2**-7}
    told = agreement(other=lambda x: x.new_tensor([*known.values()]))
    yield Claim(told, lambda x: x.new_tensor([*map(tolerated, known)]), shape("1"), name="tolerated")


def _refuses(f: Callable[[Tensor], Tensor], tolerance: float | None) -> Tensor:
    """1 where a function is taken not to be linear."""
    try:
        linear_matrix(f, (4,), tolerance=tolerance)
    except ValueError:
        return torch.ones(())
    return torch.zeros(())


def _of_product(a: Tensor) -> Tensor:
    return linear_matrix(lambda x: x.to(a) @ a, a.shape[:1])


FILLS = ("constant", "circular", "reflect")


@dataclass(frozen=True)
class Padding:
    r"""Says how many positions are added to an axis, and what stands there.

    A kernel of $k$ taps at a dilation of $\delta$ spans $s = \delta (k - 1)$ positions besides the one it is at.
    The padding adds $p = m s + 2 e$ positions, $\lfloor p / 2 \rfloor$ of them before and the others after.

    Args:
        fill: What is added: `"constant"` for zeros, `"circular"` for the other end, `"reflect"` for the mirror image.
        spans: $m$: 0 for none, 1 for an output as large as the input, 2 for every position the kernel can reach.
        extra: $e$, a fixed number on both sides.

    Examples:
        >>> SAME.sides(2), FULL.sides(2), Padding(extra=3).sides(2)
        ((1, 1), (2, 2), (3, 3))
    """

    fill: str = "constant"
    spans: int = 0
    extra: int = 0

    def __post_init__(self) -> None:
        if self.fill not in FILLS:
            raise ValueError(f"fill is one of {', '.join(FILLS)}: got {self.fill!r}")
        if self.spans < 0 or self.extra < 0:
            raise ValueError(f"spans and extra are at least 0: got spans={self.spans}, extra={self.extra}")

    def sides(self, span: int) -> tuple[int, int]:
        """Returns how many positions are added before and after an axis, for a kernel of that span."""
        total = self.spans * span + 2 * self.extra
        return total // 2, total - total // 2


def as_padding(padding: Padding | int) -> Padding:
    """Takes a number for as many zeros on both sides.

    Examples:
        >>> as_padding(2).sides(4)
        (2, 2)
    """
    if isinstance(padding, int):
        return Padding(extra=padding)
    if not isinstance(padding, Padding):
        raise TypeError(f"padding is a Padding, or an int of zeros on both sides: got {padding!r}")
    return padding


NONE = Padding()
"""Nothing is added: the kernel stays inside, and the output is smaller by its span."""
SAME = Padding(spans=1)
"""Zeros, so that at stride 1 the output is as large as the input."""
FULL = Padding(spans=2)
"""Zeros, so that the kernel meets the input wherever it can, and the output is larger by its span."""
CIRCULAR = Padding("circular", spans=1)
"""The other end of the axis, which becomes a circle; as large as the input."""
REFLECT = Padding("reflect", spans=1)
"""The mirror image, without the border itself; as large as the input."""


def _padding_claims() -> Iterator[Claim]:
    """The laws that padding obeys: which entry stands at which position."""
    n, span, small = 4, 5, ((2, 3), (5, 5), (2, 2), (0, 0))
    rows = zip((SAME, FULL, Padding(extra=2), NONE, CIRCULAR, REFLECT), (*small, small[0], small[0]), strict=True)
    for padding, (before, after) in rows:
        position = torch.arange(-before, n + after)
        mirrored = position.abs() - 2 * (position - (n - 1)).clamp(min=0)
        inside = position.where(position == position % n, n)
        read = {"circular": position % n, "reflect": mirrored, "constant": inside}[padding.fill]

        def padded(x: Tensor, padding: Padding = padding) -> Tensor:
            return F.pad(x, padding.sides(span), mode=padding.fill)

        def equation(x: Tensor, read: Tensor = read) -> Tensor:
            return torch.cat([x, torch.zeros_like(x[..., :1])], -1)[..., read]

        name = f"{padding.fill}, spans={padding.spans}, extra={padding.extra}"
        yield Claim(agreement(other=equation), padded, shape(f"b 2 {n}"), name=name)
    number = agreement(other=lambda x: F.pad(x, (2, 2)))
    yield Claim(number, lambda x: F.pad(x, as_padding(2).sides(span)), shape("b n"), name="as_padding(2)")


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


def _sizes_claims() -> Iterator[Claim]:
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


_CONV_CONVOLUTION = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


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
        return _CONV_CONVOLUTION[w.dim() - 2](x, w, self.bias, self.stride, self._even, self.dilation, self.groups)

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


def _convolution_claims() -> Iterator[Claim]:
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


def _matrix_claims() -> Iterator[Claim]:
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


def as_convolution(
    linear_map: Callable[[Tensor], Tensor] | Float[Tensor, "rows columns"],
    size: tuple[int, ...],
    *,
    kernel: tuple[int, ...] | None = None,
    padding: Padding = CIRCULAR,
    tolerance: float | None = None,
) -> Convolution:
    r"""Recovers the kernel of a linear map that commutes with shifts, or says why it has none.

    $$A \, T_s = T_s \, A \text{ for all } s \quad\Longrightarrow\quad A x = w \star x$$

    Under circular padding the shifts are those of a circle. Under zeros what leaves at one end is lost: the matrix
    has to be constant along its diagonals. That a function is linear is tried on random inputs, that of a module in
    evaluation mode; all else is exact, up to the tolerance.

    Args:
        linear_map: A function from a batch (b, c, *space) to (b, out, *space), or the matrix of one sample, flattened.
        size: (c, *space), the channels and the size of an input.
        kernel: The taps along each space axis. By default as few as suffice.
        padding: How the convolution treats the border; not by reflection, which does not commute with shifts.
        tolerance: By how much two numbers may differ, as a part of the largest. By default 1e-4, and more in half
            precision, where no tap of more than 1e-4 is dropped for it.

    Raises:
        ValueError: The map is not linear, not shift-equivariant, or reaches further than the kernel; it says where.

    Examples:
        >>> second_difference = lambda x: x.roll(1, -1) - 2 * x + x.roll(-1, -1)
        >>> as_convolution(second_difference, (1, 6)).weight.data
        tensor([[[ 1., -2.,  1.]]])
    """
    per_axis(size, len(size), "size")
    space, axes, circular = size[1:], len(size) - 1, padding.fill == "circular"
    if kernel is not None:
        per_axis(kernel, axes, "kernel")
    if padding.fill == "reflect":
        raise ValueError("a convolution that reflects at the border does not commute with shifts: got padding=REFLECT")
    if isinstance(linear_map, Tensor):
        m = _shaped(linear_map.detach(), size, kernel, padding)
    else:
        m = linear_matrix(linear_map, size, tolerance=tolerance)
    outputs = tuple(m.shape[1 : -axes - 1])
    if len(outputs) != axes or (circular and outputs != space):
        wanted = f"size {space}" if circular else f"{axes} space axes"
        raise ValueError(f"an output with channels and {wanted} was wanted: got {tuple(m.shape[: -axes - 1])}")
    if kernel is not None and output_size(space, kernel=kernel, padding=padding) != outputs:
        raise ValueError(f"a kernel of {kernel} does not lead from size {space} to {outputs} with {padding}")
    most = float(m.abs().amax())
    limit = most * (tolerated(m.dtype) if tolerance is None else tolerance)
    negligible = limit if kernel is not None or tolerance is not None else most * 1e-4
    w, offsets = m, []
    for axis, (rows, n) in enumerate(zip(outputs, space, strict=True)):
        _refuse_variance(m, axis, limit, circular)
        offset, row, column = _diagonals(rows, n, circular)
        w = w.movedim((1, 2 + axes - axis), (0, 1))[row, column].movedim(0, -1)
        offsets.append(offset)
    taps, pads = [], []
    for axis, offset in enumerate(offsets):
        used = offset[w.movedim(axis + 2, 0).flatten(1).abs().amax(1) > negligible]
        k = kernel[axis] if kernel is not None else _taps_needed(outputs[axis], space[axis], used, padding)
        before = padding.sides(k - 1)[0]
        if outside := [int(d) for d in used if not -before <= d < k - before]:
            raise ValueError(
                f"not local: on space axis {axis} outputs read the input at {outside[-1]:+d}: got {k} taps"
            )
        taps.append(k)
        pads = [before + int(offset[0]), k - before - 1 - int(offset[-1]), *pads]
    layer = Convolution(size[0], len(m), kernel=tuple(taps), padding=padding, bias=False)
    layer.weight = nn.Parameter(F.pad(w, pads))
    return layer


def _shaped(matrix: Tensor, size: tuple[int, ...], kernel: tuple[int, ...] | None, padding: Padding) -> Tensor:
    """The matrix with axes (out, *outputs, c, *inputs)."""
    if kernel is None and padding not in (CIRCULAR, SAME):
        raise ValueError("of a matrix that changes the size the kernel is to be given: got None")
    if matrix.dim() != 2:
        raise ValueError(f"a matrix was wanted: got shape {tuple(matrix.shape)}")
    if not matrix.is_floating_point():
        raise TypeError(f"a matrix of floating point numbers was wanted: got {matrix.dtype}")
    if not bool(matrix.isfinite().all()):
        raise ValueError(
            f"a matrix of finite numbers was wanted: got {int((~matrix.isfinite()).sum())} NaN or infinite"
        )
    outputs = output_size(size[1:], kernel=kernel, padding=padding) if kernel else size[1:]
    rows, columns = matrix.shape
    if columns != math.prod(size) or rows % math.prod(outputs):
        wanted = f"{math.prod(size)} columns and a multiple of {math.prod(outputs)} rows"
        raise ValueError(f"a matrix of {wanted} was wanted: got shape {(rows, columns)}")
    return matrix.reshape(-1, *outputs, *size)


def _refuse_variance(m: Tensor, axis: int, limit: float, circular: bool) -> None:
    """Raises where a weight changes as input and output move on by one along a space axis."""
    pair = (axis + 1, axis + m.dim() // 2 + 1)
    if circular:
        here, there = m, m.roll((-1, -1), pair)
    else:
        here, there = m, m
        for dim in pair:
            here, there = here.narrow(dim, 0, m.shape[dim] - 1), there.narrow(dim, 1, m.shape[dim] - 1)
    apart = (here - there).abs().nan_to_num(math.inf)
    if not bool((apart <= limit).all()):
        at = torch.unravel_index(apart.argmax(), apart.shape)
        place = tuple(int(n) for n in at)
        output, source = place[: m.dim() // 2], place[m.dim() // 2 :]
        raise ValueError(
            f"not shift-equivariant: shifted by 1 along space axis {axis}, the weight of input {source} in output "
            f"{output} goes from {float(here[at]):g} to {float(there[at]):g}"
        )


def _diagonals(rows: int, n: int, circular: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The offsets from an output to the inputs that it may read; of each a row and a column where it stands."""
    if circular:
        offset = torch.arange(n) - (n - 1) // 2
        return offset, torch.zeros_like(offset), offset % n
    offset = torch.arange(1 - rows, n)
    return offset, (-offset).clamp(min=0), offset.clamp(min=0)


def _taps_needed(rows: int, n: int, used: Tensor, padding: Padding) -> int:
    """The number of taps: where the sizes do not say it, as few as reach the offsets that are used."""
    more = rows - n - 2 * padding.extra
    if padding.spans == 1 and not more:
        return 2 * int(used.abs().max()) + 1 if used.numel() else 1
    if padding.spans == 1 or more % (padding.spans - 1) or more // (padding.spans - 1) < 0:
        raise ValueError(f"no kernel leads from size {n} to {rows} with {padding}")
    return more // (padding.spans - 1) + 1


def _recovery_claims() -> Iterator[Claim]:
    """The law of the converse: what is recovered from a convolution is that convolution."""
    for padding, kernel in ((CIRCULAR, (3, 3)), (SAME, (3, 1)), (NONE, (2, 3)), (FULL, (3, 2))):
        layer = Convolution(2, 3, kernel=kernel, padding=padding, bias=False)

        def found(x: Tensor, layer: Convolution = layer) -> Tensor:
            return as_convolution(layer, (2, 4, 3), padding=layer.padding)(x)

        name = f"Convolution({padding.fill}, spans={padding.spans})"
        yield Claim(agreement(other=found), layer, shape("b 2 4 3"), name=name)
    yield Claim(agreement(other=_circulant), _recovered, shape("5"), name="a circulant matrix")
    for padding, taps in ((CIRCULAR, 3), (SAME, 2), (NONE, 3), (FULL, 2), (Padding(extra=1), 2)):

        def kernel(w: Tensor, padding: Padding = padding) -> Tensor:
            layer = Convolution(1, 2, kernel=w.shape[2:], padding=padding, bias=False)
            layer.weight = nn.Parameter(w)
            matrix = as_matrix(layer, (4,))
            return as_convolution(matrix, (1, 4), kernel=tuple(w.shape[2:]), padding=padding).weight

        name = f"the kernel of a matrix ({padding.fill}, spans={padding.spans}, extra={padding.extra})"
        yield Claim(agreement(other=torch.clone), kernel, shape(f"2 1 {taps}"), name=name)

    def refused(x: Tensor) -> Tensor:
        a = x.tanh() + 3 * torch.eye(4).to(x)
        wrong = _circulant(a[0]) + torch.diag(a[1, :3], -1).abs() + 1e-3 * torch.eye(4).to(x)[2]
        far = _circulant(a[0]).roll(2, 1)
        return torch.stack(
            [
                _refuses_recovery(wrong, CIRCULAR, 3),
                _refuses_recovery(wrong, SAME, 3),
                _refuses_recovery(far, CIRCULAR, 1),
            ]
        )

    yield Claim(
        agreement(other=lambda x: x.new_ones(3)), refused, shape("4 4"), name="what is no convolution is refused"
    )


def _circulant(x: Tensor) -> Tensor:
    return torch.stack([x.roll(s) for s in range(len(x))])


def _refuses_recovery(matrix: Tensor, padding: Padding, taps: int) -> Tensor:
    """1 where there is no such convolution."""
    try:
        as_convolution(matrix, (1, len(matrix)), kernel=(taps,), padding=padding)
    except ValueError:
        return matrix.new_ones(())
    return matrix.new_zeros(())


def _recovered(x: Tensor) -> Tensor:
    return as_matrix(as_convolution(_circulant(x), (1, len(x)), tolerance=1e-6), (len(x),))


_MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_GLOBAL_MAX = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
_AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


class MaxPool(nn.Module):
    r"""Keeps the largest number of every patch.

    $$y_n = \max_{0 \le k < s} x_{\sigma n + k}$$

    One peak, be it noise, decides for its patch. What does not fill a patch at the end is dropped.

    Args:
        patch: $s$, the size of a patch along each space axis; as many numbers as there are space axes.
        stride: $\sigma$, the step from one patch to the next. By default patches lie side by side.

    Examples:
        >>> MaxPool((2,))(torch.tensor([[[1.0, 4.0, 3.0, 2.0]]]))
        tensor([[[4., 3.]]])
    """

    def __init__(self, patch: tuple[int, ...], *, stride: Sizes | None = None) -> None:
        super().__init__()
        self.patch, self.stride = _patches(patch, stride)

    def forward(self, x: Float[Tensor, "b c *space"]) -> Float[Tensor, "b c *less"]:
        """Takes the maximum over each patch."""
        return _MAX[len(self.patch)](_fits(x, self.patch), self.patch, self.stride)

    def extra_repr(self) -> str:
        return f"{self.patch}, stride={self.stride}"


class AveragePool(nn.Module):
    r"""Averages every patch.

    $$y_n = \frac{1}{s} \sum_{0 \le k < s} x_{\sigma n + k}$$

    What does not fill a patch at the end is dropped.

    Args:
        patch: $s$, the size of a patch along each space axis; as many numbers as there are space axes.
        stride: $\sigma$, the step from one patch to the next. By default patches lie side by side.

    Examples:
        >>> AveragePool((2,))(torch.tensor([[[1.0, 4.0, 3.0, 2.0]]]))
        tensor([[[2.5000, 2.5000]]])
    """

    def __init__(self, patch: tuple[int, ...], *, stride: Sizes | None = None) -> None:
        super().__init__()
        self.patch, self.stride = _patches(patch, stride)

    def forward(self, x: Float[Tensor, "b c *space"]) -> Float[Tensor, "b c *less"]:
        """Takes the mean over each patch."""
        if not x.is_floating_point():
            raise TypeError(f"floating point numbers were wanted: got {x.dtype}")
        return _AVERAGE[len(self.patch)](_fits(x, self.patch), self.patch, self.stride)

    def extra_repr(self) -> str:
        return f"{self.patch}, stride={self.stride}"


def global_average(x: Float[Tensor, "b c *space"]) -> Float[Tensor, "b c"]:
    r"""Averages every channel over all positions; there are one to three space axes.

    $$y_c = \frac{1}{N} \sum_n x_{c, n}$$

    Examples:
        >>> global_average(torch.tensor([[[1.0, 4.0], [0.0, -1.0]]]))
        tensor([[ 2.5000, -0.5000]])
    """
    return _in_space(x).mean(tuple(range(2, x.dim())))


def global_max(x: Float[Tensor, "b c *space"]) -> Float[Tensor, "b c"]:
    r"""Keeps the largest number of every channel, wherever it is; there are one to three space axes.

    $$y_c = \max_n x_{c, n}$$

    Examples:
        >>> global_max(torch.tensor([[[1.0, 4.0], [0.0, -1.0]]]))
        tensor([[4., 0.]])
    """
    return _GLOBAL_MAX[_in_space(x).dim() - 2](x, 1).flatten(1)


class GlobalPool(nn.Module):
    """Makes one number of all positions of a channel.

    After layers that shift with their input this makes a network that does not notice shifts at all.

    Args:
        reduce: What makes (b, c) of (b, c, *space): `global_average` or `global_max`.

    Examples:
        >>> GlobalPool()(torch.tensor([[[1.0, 4.0], [0.0, -1.0]]]))
        tensor([[ 2.5000, -0.5000]])
    """

    def __init__(self, reduce: Callable[[Tensor], Tensor] = global_average) -> None:
        super().__init__()
        self.reduce = reduce

    def forward(self, x: Float[Tensor, "b c *space"]) -> Float[Tensor, "b c"]:
        """Reduces the space axes."""
        return self.reduce(x)

    def extra_repr(self) -> str:
        return name_of(self.reduce)


def _in_space(x: Tensor) -> Tensor:
    if x.dim() - 2 not in _GLOBAL_MAX:
        raise ValueError(f"one to three space axes were wanted: got shape {tuple(x.shape)}")
    return x


def _patches(patch: tuple[int, ...], stride: Sizes | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    patch = one_to_three(patch, "patch")
    return patch, patch if stride is None else per_axis(stride, len(patch), "stride")


def _fits(x: Tensor, patch: tuple[int, ...]) -> Tensor:
    if x.dim() != len(patch) + 2 or any(n < s for n, s in zip(x.shape[2:], patch, strict=True)):
        raise ValueError(f"space axes of at least {patch} were wanted: got shape {tuple(x.shape)}")
    return x


def _pooling_claims() -> Iterator[Claim]:
    """The laws that pooling obeys."""

    def turn(draw: Draw) -> int:
        return draw.integer(1, 3, "s")

    def turned(step: int) -> Callable[[int, Tensor], Tensor]:
        return lambda s, x: x.roll(s * step, -1)

    def largest(x: Tensor) -> Tensor:
        return x.amax(tuple(range(2, x.dim())))

    def average(x: Tensor) -> Tensor:
        return x.flatten(2).sum(2) / x[0, 0].numel()

    for pool, reduce in ((MaxPool, torch.amax), (AveragePool, torch.mean)):

        def equation(x: Tensor, reduce: Callable[..., Tensor] = reduce) -> Tensor:
            return reduce(x.unfold(2, 2, 2).unfold(3, 3, 3), dim=(-1, -2))

        yield Claim(agreement(other=equation), pool((2, 3)), shape("b 2 h:2..5 w:3..7"))
        yield Claim(equivariance(sample=turn, act=turned(2), act_out=turned(1)), pool((2,)), shape("b 2 8"))
        cube = agreement(other=lambda x, reduce=reduce: reduce(x.unflatten(2, (2, 2)), dim=(3, 4, 5))[..., None, None])
        yield Claim(cube, pool((2, 2, 3)), shape("b 2 4 2 3"))
    yield Claim(monotonicity(), MaxPool((2,)), shape("b 2 n:2..5"))
    yield Claim(homogeneity(), MaxPool((3,), stride=1), shape("b 2 n:3..6"))
    yield Claim(lipschitz(constant=1.0), MaxPool((2,)), shape("b 2 n:2..5"))
    yield Claim(linearity(), AveragePool((3,), stride=2), shape("b 2 n:3..6"))
    for reduce, equation in ((global_max, largest), (global_average, average)):
        pool = GlobalPool(reduce)
        for space in ("n", "h 2", "h 2 2"):
            yield Claim(agreement(other=equation), pool, shape(f"b 2 {space}"), name=f"{reduce.__name__}, {space}")
        yield Claim(permutation_invariance(axis=2), pool, shape("b 2 h w"), name=reduce.__name__)
        first, second = (Convolution(2, 2, kernel=(k,), padding=CIRCULAR) for k in (3, 2))
        network = nn.Sequential(first, nn.ReLU(), second, pool)
        yield Claim(invariance(sample=turn, act=turned(1)), network, shape("b 2 n:2..6"), name="CNN")


_CONV_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


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
        conv = _CONV_TRANSPOSED[w.dim() - 2]
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


def _transposed_claims() -> Iterator[Claim]:
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


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _convolve_claims()
    yield from _linear_claims()
    yield from _padding_claims()
    yield from _sizes_claims()
    yield from _convolution_claims()
    yield from _matrix_claims()
    yield from _recovery_claims()
    yield from _pooling_claims()
    yield from _transposed_claims()
