"""The converse: a linear map that is shift-equivariant is a convolution, and here is its kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.convolution.convolution import Convolution
from lawful.blocks.convolution.linear import linear_matrix, tolerated
from lawful.blocks.convolution.matrix import as_matrix
from lawful.blocks.convolution.padding import CIRCULAR, FULL, NONE, SAME, Padding
from lawful.blocks.convolution.sizes import output_size, per_axis
from lawful.laws import Claim, agreement, shape


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


def claims() -> Iterator[Claim]:
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
        return torch.stack([_refuses(wrong, CIRCULAR, 3), _refuses(wrong, SAME, 3), _refuses(far, CIRCULAR, 1)])

    yield Claim(
        agreement(other=lambda x: x.new_ones(3)), refused, shape("4 4"), name="what is no convolution is refused"
    )


def _circulant(x: Tensor) -> Tensor:
    return torch.stack([x.roll(s) for s in range(len(x))])


def _refuses(matrix: Tensor, padding: Padding, taps: int) -> Tensor:
    """1 where there is no such convolution."""
    try:
        as_convolution(matrix, (1, len(matrix)), kernel=(taps,), padding=padding)
    except ValueError:
        return matrix.new_ones(())
    return matrix.new_zeros(())


def _recovered(x: Tensor) -> Tensor:
    return as_matrix(as_convolution(_circulant(x), (1, len(x)), tolerance=1e-6), (len(x),))
