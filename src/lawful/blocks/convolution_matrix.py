r"""Convolution as a matrix: full convolution, conversion of a convolution layer to a matrix, and back.

A convolution layer is a linear layer whose matrix is sparse and shares weights: a Toeplitz matrix, with circular
padding a circulant one. Conversely, a linear map that commutes with shifts is a convolution, and its kernel can be
read off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.modes import eval_mode
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

Conv = nn.Conv1d | nn.Conv2d | nn.Conv3d

_FUNCTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_LAYERS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_FACTORS = (-1.0, 100.0, 0.01)


def convolve(f: Float[Tensor, "*_f"], g: Float[Tensor, "*_g"], *, num_dims: int = 1) -> Float[Tensor, "*_out"]:
    r"""Computes the full convolution of two signals over their last axes.

    $$(f * g)_n = \sum_k f_k \, g_{n - k}$$

    Sizes $n$ and $m$ give $n + m - 1$. The operation is commutative, associative and linear in each signal. Convolution
    layers compute the cross-correlation $\sum_k f_{n + k} g_k$, the convolution with $g$ reversed, which is not
    commutative. Leading axes are batch axes and broadcast.

    Args:
        f: A signal.
        g: The other signal.
        num_dims: Number of axes to convolve over, from 1 to 3.

    Examples:
        >>> convolve(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0, 3.0]))
        tensor([1., 2., 3., 6.])
    """
    if num_dims not in _FUNCTIONS or min(f.dim(), g.dim()) < num_dims:
        shapes = f"{tuple(f.shape)} and {tuple(g.shape)}"
        raise ValueError(f"expected signals with num_dims axes, 1 to 3: got {num_dims=}, shapes {shapes}")
    n, m = f.shape[-num_dims:], g.shape[-num_dims:]
    if 0 in (*n, *m):
        raise ValueError(f"expected non-empty signals, got sizes {tuple(n)} and {tuple(m)}")
    batch = torch.broadcast_shapes(f.shape[:-num_dims], g.shape[:-num_dims])
    count, last = math.prod(batch), tuple(range(-num_dims, 0))
    if count == 0:
        empty = f.sum(last, keepdim=True) * g.sum(last, keepdim=True)
        return empty.expand(*batch, *(a + b - 1 for a, b in zip(n, m, strict=True)))
    signal = f.expand(*batch, *n).reshape(1, count, *n)
    kernel = g.flip(last).expand(*batch, *m).reshape(count, 1, *m)
    y = _FUNCTIONS[num_dims](signal, kernel, padding=[k - 1 for k in m], groups=count)
    return y.reshape(*batch, *y.shape[2:])


def linear_matrix(
    f: Callable[[Tensor], Tensor], size: tuple[int, ...], *, rtol: float | None = None
) -> Float[Tensor, "*output_input"]:
    r"""Returns the matrix of a linear function, from its values at the unit vectors.

    $$A_{i, j} = f(e_j)_i$$

    Linearity is checked on random inputs of several scales. A module is evaluated in eval mode and in the dtype of its
    parameters, another function in the default dtype.

    Args:
        f: Function of a batch (b, *size).
        size: Shape of one sample.
        rtol: Tolerance relative to the largest entry. Defaults to 1e-4, or 8 eps of the dtype if that is larger.

    Returns:
        The matrix as a tensor: the axes of an output, then the axes of an input.

    Raises:
        ValueError: If the function is not linear; the message names the equation and the output.

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
    with torch.no_grad(), eval_mode(f):
        fx, fy = f(x), f(y)
        rtol = _default_rtol(fx.dtype) if rtol is None else rtol
        atol = rtol * float(torch.maximum(fx.abs(), fy.abs()).amax())
        _check_equation("f(0) = 0", f(0 * x), torch.zeros_like(fx), atol)
        for a in _FACTORS:
            _check_equation(f"f({a:g} x) = {a:g} f(x)", f(a * x), a * fx, abs(a) * atol)
        _check_equation("f(x + y) = f(x) + f(y)", f(x + y), fx + fy, atol)
        columns = f(torch.eye(math.prod(size)).to(like).reshape(-1, *size))
        _check_equation("f(x) = Σ x_j f(e_j)", fx, torch.tensordot(x.reshape(1, -1), columns, dims=1), atol)
    return columns.movedim(0, -1).unflatten(-1, size)


def _default_rtol(dtype: torch.dtype) -> float:
    if not (dtype.is_floating_point or dtype.is_complex):
        raise TypeError(f"expected floating-point outputs, got {dtype}")
    return max(1e-4, 8 * torch.finfo(dtype).eps)


def _check_equation(equation: str, left: Tensor, right: Tensor, atol: float) -> None:
    error = (left - right).abs().nan_to_num(math.inf)
    if not (math.isfinite(atol) and bool((error <= atol).all())):
        index = torch.unravel_index(error.argmax(), error.shape)
        where = tuple(int(n) for n in index[1:])
        values = f"{float(left[index]):g}, {float(right[index]):g}"
        raise ValueError(f"not linear: {equation} fails at output {where}: {values}")


def conv_output_size(conv: Conv, size: tuple[int, ...]) -> tuple[int, ...]:
    r"""Returns the size of the spatial axes of a convolution layer's output.

    $$n' = \left\lfloor \frac{n + p - \delta (k - 1) - 1}{\sigma} \right\rfloor + 1$$

    with padding $p$ (both sides), kernel size $k$, dilation $\delta$ and stride $\sigma$.

    Args:
        conv: The layer.
        size: Size of the spatial axes of the input.

    Examples:
        >>> conv_output_size(nn.Conv2d(1, 1, (5, 3)), (28, 28))
        (24, 26)
        >>> conv_output_size(nn.Conv1d(1, 1, 3, stride=2, padding=1), (28,))
        (14,)
    """
    kernel_size, stride, dilation = _geometry(conv)
    if len(size) != len(kernel_size):
        raise ValueError(f"expected size with {len(kernel_size)} axes, got {size}")
    outputs = []
    for n, k, step, d, sides in zip(size, kernel_size, stride, dilation, _padding_sides(conv), strict=True):
        positions = n + sum(sides) - d * (k - 1)
        if positions < 1:
            raise ValueError(f"a kernel that spans {d * (k - 1) + 1} does not fit into {n + sum(sides)} entries")
        outputs.append((positions - 1) // step + 1)
    return tuple(outputs)


def _geometry(conv: Conv) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    if not isinstance(conv, Conv):
        raise TypeError(f"expected nn.Conv1d, nn.Conv2d or nn.Conv3d, got {type(conv).__name__}")
    return tuple(conv.kernel_size), tuple(conv.stride), tuple(conv.dilation)


def _padding_sides(conv: Conv) -> list[tuple[int, int]]:
    """Padding before and after each spatial axis."""
    if conv.padding == "valid":
        return [(0, 0)] * len(conv.kernel_size)
    if conv.padding == "same":
        spans = [d * (k - 1) for d, k in zip(conv.dilation, conv.kernel_size, strict=True)]
        return [(span // 2, span - span // 2) for span in spans]
    return [(int(p), int(p)) for p in conv.padding]


def tap_matrix(
    n: int,
    k: int,
    *,
    stride: int = 1,
    dilation: int = 1,
    padding: tuple[int, int] = (0, 0),
    padding_mode: str = "zeros",
) -> Float[Tensor, "rows n taps"]:
    r"""Returns the tensor that maps the taps of a one-dimensional kernel to the matrix of its convolution.

    $$S_{m, i, k} = [\text{output } m \text{ reads input } i \text{ with tap } k] \in \{0, 1\}$$

    Each $S_{\cdot, \cdot, k}$ is a shifted identity, so that $\sum_k w_k S_{\cdot, \cdot, k}$ is constant along its
    diagonals: a Toeplitz matrix, with circular padding a circulant matrix.

    Args:
        n: Size of the input.
        k: Number of taps.
        stride: Step between outputs.
        dilation: Step between taps.
        padding: Padding before and after the input.
        padding_mode: `"zeros"`, `"circular"`, `"reflect"` or `"replicate"`.

    Examples:
        >>> tap_matrix(3, 2) @ torch.tensor([5.0, 7.0])
        tensor([[5., 7., 0.],
                [0., 5., 7.]])
    """
    span = dilation * (k - 1)
    if n + sum(padding) - span < 1:
        raise ValueError(f"a kernel that spans {span + 1} does not fit into {n + sum(padding)} entries")
    rows = (n + sum(padding) - span - 1) // stride + 1
    index = torch.arange(1.0, n + 1).reshape(1, 1, n)  # 0 is padding
    index = F.pad(index, padding, mode="constant" if padding_mode == "zeros" else padding_mode).flatten().long()
    position = stride * torch.arange(rows)[:, None] + dilation * torch.arange(k)
    return F.one_hot(index[position], n + 1)[..., 1:].mT.to(torch.get_default_dtype())


def conv_to_matrix(conv: Conv, size: tuple[int, ...]) -> Float[Tensor, "rows columns"]:
    r"""Returns the matrix of the linear layer that equals a convolution layer, without the bias.

    $$A_{(o, m), (c, i)} = \sum_k w_{o, c, k} \prod_a S^{(a)}_{m_a, i_a, k_a}$$

    The matrix has one block per pair of channels, in each one block per pair of image rows, and so on down to Toeplitz
    matrices (circulant with circular padding). It is differentiable in the kernel.

    Args:
        conv: The layer.
        size: Size of the spatial axes of the input.

    Examples:
        >>> conv = nn.Conv1d(1, 1, 3, bias=False)
        >>> conv.weight.data = torch.tensor([[[1.0, 2.0, 3.0]]])
        >>> conv_to_matrix(conv, (4,)).detach()
        tensor([[1., 2., 3., 0.],
                [0., 1., 2., 3.]])
    """
    kernel_size, stride, dilation = _geometry(conv)
    conv_output_size(conv, size)
    w, mode = conv.weight, conv.padding_mode
    blocks = w.unflatten(0, (conv.groups, -1))
    a = torch.stack([torch.block_diag(*tap.unbind()) for tap in blocks.flatten(3).unbind(-1)], -1)
    a = a.unflatten(-1, kernel_size)
    for n, k, step, d, sides in zip(size, kernel_size, stride, dilation, _padding_sides(conv), strict=True):
        taps = tap_matrix(n, k, stride=step, dilation=d, padding=sides, padding_mode=mode).to(w)
        a = torch.tensordot(a, taps, dims=([2], [2]))  # the axes of this dimension move to the end
    pairs = range(2, 2 + 2 * len(size), 2)
    return a.permute(0, *pairs, 1, *(n + 1 for n in pairs)).flatten(len(size) + 1).flatten(0, len(size))


class ParameterCount(NamedTuple):
    """Number of parameters of a convolution layer, and of the linear layer between the same sizes."""

    conv: int
    linear: int


def conv_parameter_count(conv: Conv, size: tuple[int, ...]) -> ParameterCount:
    """Counts the parameters of a convolution layer and of a linear layer between the same sizes.

    Args:
        conv: The layer.
        size: Size of the spatial axes of the input.

    Examples:
        >>> conv_parameter_count(nn.Conv1d(1, 1, 3, padding="same", bias=False), (5,))
        ParameterCount(conv=3, linear=25)
    """
    outputs = conv.out_channels * math.prod(conv_output_size(conv, size))
    inputs = conv.in_channels * math.prod(size)
    return ParameterCount(sum(p.numel() for p in conv.parameters()), outputs * (inputs + (conv.bias is not None)))


def conv_from_linear_map(
    linear_map: Callable[[Tensor], Tensor] | Float[Tensor, "rows columns"],
    size: tuple[int, ...],
    *,
    kernel_size: tuple[int, ...] | None = None,
    padding: int | str = "same",
    padding_mode: str = "circular",
    rtol: float | None = None,
) -> Conv:
    r"""Recovers the convolution layer of a linear map that commutes with shifts.

    $$A \, T_s = T_s \, A \text{ for all } s \quad\Longrightarrow\quad A x = w \star x$$

    With circular padding the shifts are cyclic. With zero padding the matrix must be constant along its diagonals.

    Args:
        linear_map: Function from a batch (b, c, *space) to (b, out, *space), or the matrix of one flattened sample.
        size: Shape (c, *space) of an input.
        kernel_size: Kernel size. Defaults to the smallest that suffices.
        padding: `"same"`, `"valid"`, `"full"`, or the padding of both sides.
        padding_mode: `"circular"` or `"zeros"`.
        rtol: Tolerance relative to the largest entry. Defaults to 1e-4, more in half precision.

    Raises:
        ValueError: If the map is not linear, not shift-equivariant, or not local enough; the message says where.

    Examples:
        >>> second_difference = lambda x: x.roll(1, -1) - 2 * x + x.roll(-1, -1)
        >>> conv_from_linear_map(second_difference, (1, 6)).weight.data
        tensor([[[ 1., -2.,  1.]]])
    """
    if padding_mode not in ("circular", "zeros"):
        raise ValueError(f"padding_mode must be 'circular' or 'zeros', which commute with shifts: got {padding_mode!r}")
    space, dims, circular = size[1:], len(size) - 1, padding_mode == "circular"
    if dims not in _LAYERS or min(size) < 1:
        raise ValueError(f"expected size (c, *space) with 1 to 3 spatial axes, got {size}")
    if kernel_size is not None and (len(kernel_size) != dims or min(kernel_size) < 1):
        raise ValueError(f"expected kernel_size with {dims} positive entries, got {kernel_size}")
    spans, extra = _parse_padding(padding)

    def pad_sides(k: int) -> tuple[int, int]:
        total = spans * (k - 1) + 2 * extra
        return total // 2, total - total // 2

    def outputs_of(kernel: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(n + sum(pad_sides(k)) - k + 1 for n, k in zip(space, kernel, strict=True))

    if isinstance(linear_map, Tensor):
        if kernel_size is None and spans != 1:
            raise ValueError("a matrix that changes the size needs a kernel_size, got None")
        m = _matrix_with_axes(linear_map.detach(), size, space if kernel_size is None else outputs_of(kernel_size))
    else:
        m = linear_matrix(linear_map, size, rtol=rtol)
    outputs = tuple(m.shape[1 : -dims - 1])
    if len(outputs) != dims or (circular and outputs != space):
        expected = f"spatial axes {space}" if circular else f"{dims} spatial axes"
        raise ValueError(f"expected an output with channels and {expected}, got {tuple(m.shape[: -dims - 1])}")
    if kernel_size is not None and outputs_of(kernel_size) != outputs:
        raise ValueError(f"{kernel_size=} with {padding=} does not map size {space} to {outputs}")
    largest = float(m.abs().amax())
    atol = largest * (_default_rtol(m.dtype) if rtol is None else rtol)
    negligible = atol if kernel_size is not None or rtol is not None else largest * 1e-4
    w, offsets = m, []
    for axis, (rows, n) in enumerate(zip(outputs, space, strict=True)):
        _check_shift_equivariance(m, axis, atol, circular)
        offset, row, column = _diagonals(rows, n, circular)
        w = w.movedim((1, 2 + dims - axis), (0, 1))[row, column].movedim(0, -1)
        offsets.append(offset)
    kernel, pads = [], []
    for axis, offset in enumerate(offsets):
        used = offset[w.movedim(axis + 2, 0).flatten(1).abs().amax(1) > negligible]
        if kernel_size is not None:
            k = kernel_size[axis]
        else:
            k = _smallest_kernel(outputs[axis], space[axis], used, spans, extra)
        before = pad_sides(k)[0]
        if outside := [int(d) for d in used if not -before <= d < k - before]:
            raise ValueError(
                f"not local: outputs read offset {outside[-1]:+d} on spatial axis {axis}, got kernel size {k}"
            )
        kernel.append(k)
        pads = [before + int(offset[0]), k - before - 1 - int(offset[-1]), *pads]
    amount: Any = padding if padding in ("same", "valid") else tuple(pad_sides(k)[0] for k in kernel)
    with torch.device("meta"):  # no random numbers are drawn
        conv = _LAYERS[dims](
            size[0],
            len(m),
            tuple(kernel),
            padding=amount,
            padding_mode=padding_mode,
            bias=False,
        )
    conv.weight = nn.Parameter(F.pad(w, pads))
    return conv


def _parse_padding(padding: int | str) -> tuple[int, int]:
    """Padding as a multiple of the kernel's span over both sides, and a fixed amount per side."""
    named = {"valid": (0, 0), "same": (1, 0), "full": (2, 0)}
    if isinstance(padding, int) and padding >= 0:
        return 0, padding
    if padding not in named:
        raise ValueError(f"padding must be 'same', 'valid', 'full' or a non-negative int, got {padding!r}")
    return named[str(padding)]


def _matrix_with_axes(matrix: Tensor, size: tuple[int, ...], outputs: tuple[int, ...]) -> Tensor:
    """The matrix with axes (out, *outputs, c, *inputs)."""
    if matrix.dim() != 2:
        raise ValueError(f"expected a matrix, got shape {tuple(matrix.shape)}")
    if not matrix.is_floating_point():
        raise TypeError(f"expected a floating-point matrix, got {matrix.dtype}")
    if not bool(matrix.isfinite().all()):
        raise ValueError(f"expected a finite matrix, got {int((~matrix.isfinite()).sum())} NaN or infinite entries")
    rows, columns = matrix.shape
    if columns != math.prod(size) or rows % math.prod(outputs):
        expected = f"{math.prod(size)} columns and a multiple of {math.prod(outputs)} rows"
        raise ValueError(f"expected a matrix with {expected}, got shape {(rows, columns)}")
    return matrix.reshape(-1, *outputs, *size)


def _check_shift_equivariance(m: Tensor, axis: int, atol: float, circular: bool) -> None:
    """Raises if a weight changes when input and output move by one along a spatial axis."""
    pair = (axis + 1, axis + m.dim() // 2 + 1)
    before, after = m, m
    if circular:
        after = m.roll((-1, -1), pair)
    else:
        for dim in pair:
            before, after = before.narrow(dim, 0, m.shape[dim] - 1), after.narrow(dim, 1, m.shape[dim] - 1)
    error = (before - after).abs().nan_to_num(math.inf)
    if not bool((error <= atol).all()):
        index = torch.unravel_index(error.argmax(), error.shape)
        where = tuple(int(n) for n in index)
        output, source = where[: m.dim() // 2], where[m.dim() // 2 :]
        raise ValueError(
            f"not shift-equivariant: shifted by 1 along spatial axis {axis}, the weight of input {source} in output "
            f"{output} changes from {float(before[index]):g} to {float(after[index]):g}"
        )


def _diagonals(rows: int, n: int, circular: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the offsets between outputs and inputs, and a row and a column of the matrix for each offset."""
    if circular:
        offset = torch.arange(n) - (n - 1) // 2
        return offset, torch.zeros_like(offset), offset % n
    offset = torch.arange(1 - rows, n)
    return offset, (-offset).clamp(min=0), offset.clamp(min=0)


def _smallest_kernel(rows: int, n: int, used: Tensor, spans: int, extra: int) -> int:
    """Returns the kernel size implied by the sizes, or the smallest that covers all used offsets."""
    more = rows - n - 2 * extra
    if spans == 1 and not more:
        return 2 * int(used.abs().max()) + 1 if used.numel() else 1
    if spans == 1 or more % (spans - 1) or more // (spans - 1) < 0:
        raise ValueError(f"no kernel with this padding maps size {n} to {rows}")
    return more // (spans - 1) + 1


def claims() -> Iterator[Claim]:
    """Laws of convolution and its matrix."""
    two, uneven = (shape("b n"), shape("b n")), (shape("b n"), shape("m"))
    yield Claim(commutativity(), convolve, two)
    yield Claim(distributivity(), convolve, uneven)
    yield Claim(homogeneity(input=1), convolve, uneven)

    def delay(draw: Draw) -> int:
        return draw.integer(1, 3, "s")

    shifted = equivariance(sample=delay, act=lambda s, x: F.pad(x, (s, 0)))
    yield Claim(shifted, convolve, uneven, name="convolve, shifted")
    conv = nn.Conv2d(2, 4, (3, 2), groups=2, padding="same", padding_mode="circular", bias=False)

    def dense(x: Tensor) -> Tensor:
        return (x.flatten(1) @ conv_to_matrix(conv, (3, 4)).mT).unflatten(1, (4, 3, 4))

    yield Claim(agreement(other=dense), conv, shape("b 2 3 4"), name="conv_to_matrix")

    def from_linear_map(x: Tensor) -> Tensor:
        return conv_from_linear_map(conv, (2, 3, 4), kernel_size=(3, 2))(x)

    yield Claim(agreement(other=from_linear_map), conv, shape("b 2 3 4"), name="conv_from_linear_map")
