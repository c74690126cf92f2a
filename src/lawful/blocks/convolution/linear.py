"""The matrix of a linear function, or where it is not linear."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.blocks.modes import in_training
from lawful.laws import Claim, agreement, shape

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
    with torch.no_grad(), in_training(f) if isinstance(f, nn.Module) else nullcontext():
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


def claims() -> Iterator[Claim]:
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
