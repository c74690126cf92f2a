"""Layers of a ReLU network as integer matrices, and floating-point values with a bound of their error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import torch
from torch import nn

EPSILON = float(np.finfo(np.float64).eps)
AffineMap = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Stage:
    """Affine maps one after the other, and the activation that follows them."""

    maps: tuple[AffineMap, ...]
    """Weight and bias of each map, in float64."""
    slope: float | None
    """Slope of the activation for negative inputs. None after the last stage, which has no activation."""
    dim: int
    """Number of outputs."""

    @cached_property
    def integer_maps(self) -> list[tuple[np.ndarray, np.ndarray, int]]:
        """Weight and bias of each map in integers, and the exponent of the power of two that divides them."""
        found = []
        for weight, bias in self.maps:
            integers, shift = _to_integers(np.column_stack([weight, bias]))
            found.append((integers[:, :-1], integers[:, -1], shift))
        return found

    @cached_property
    def same_kink(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Units whose sign follows from another one: their index, the index of the other unit and the factor.

        The factor is 0 for units that are constant: their sign is that of the bias.
        """
        rows: list[tuple[int, int, int]] = []
        if self.maps:
            weight, bias = self.maps[-1]
            table = np.column_stack([weight, bias])
            leading = weight[np.arange(len(weight)), (weight != 0).argmax(1)]
            with np.errstate(all="ignore"):  # of constant units and huge weights
                directions = table / leading[:, None] + 0.0
            seen: dict[bytes, list[int]] = {}
            if leading.all() and len({row.tobytes() for row in directions}) == len(directions):
                return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp), np.empty(0, dtype=np.int8)
            signs = np.sign(leading).astype(int).tolist()
            for i, sign in enumerate(signs):
                if not sign:
                    rows.append((i, i, 0))
                    continue
                others = seen.setdefault(directions[i].tobytes(), [])
                same = next((j for j in others if _proportional(table[i], table[j])), None)
                if same is None:
                    others.append(i)
                else:
                    rows.append((i, same, sign * signs[same]))
        found = np.array(rows, dtype=np.intp).reshape(-1, 3)
        return found[:, 0], found[:, 1], found[:, 2].astype(np.int8)


def _proportional(row: np.ndarray, other: np.ndarray) -> bool:
    a, b = ([Fraction(value) for value in values.tolist()] for values in (row, other))
    pivot = next(i for i, value in enumerate(b) if value)
    return all(x * b[pivot] == y * a[pivot] for x, y in zip(a, b, strict=True))


def _to_integers(array: np.ndarray) -> tuple[np.ndarray, int]:
    """Writes floats as integers over a common power of two."""
    mantissas, exponents = np.frexp(array)
    integers = (mantissas * 2.0**53).astype(np.int64)
    trailing = np.frexp((integers & -integers).astype(np.float64))[1] - 1
    lowest = int(min(0, np.where(integers != 0, exponents - 53 + trailing, 0).min(initial=0)))
    shifts = (exponents - 53 - lowest).ravel().tolist()
    values = [v << s if s >= 0 else v >> -s for v, s in zip(integers.ravel().tolist(), shifts, strict=True)]
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found.reshape(array.shape), -lowest


def read_stages(network: nn.Module) -> list[Stage]:
    """Reads a network of affine layers and ReLUs.

    Args:
        network: `Sequential` of `Linear`, `ReLU`, `LeakyReLU`, `Identity`, `Flatten` and `Dropout` in eval mode.
    """
    stages: list[Stage] = []
    maps: list[AffineMap] = []
    dim: int | None = None
    dtype, inputs = torch.float64, 0
    for name, module in _leaves(network, "network"):
        if isinstance(module, nn.Linear):
            if module.weight.dtype.is_complex or not module.weight.dtype.is_floating_point:
                raise ValueError(f"{name} must have real floating-point weights: got {module.weight.dtype}")
            weight = module.weight.detach().cpu().double().numpy()
            bias = np.zeros(len(weight)) if module.bias is None else module.bias.detach().cpu().double().numpy()
            if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
                raise ValueError(f"weights must be finite: {name} has a weight or bias that is not")
            if dim not in (None, weight.shape[1]):
                raise ValueError(f"{name} must have in_features={dim}, as the layer before it: got {weight.shape[1]}")
            inputs = weight.shape[1] if dim is None else inputs
            if not weight.shape[1]:  # a layer without units makes the network constant
                stages, maps, weight = [], [], np.zeros((len(weight), inputs))
            maps.append((weight, bias))
            dim, dtype = len(weight), module.weight.dtype
        elif isinstance(module, nn.ReLU | nn.LeakyReLU):
            if dim is None:
                raise ValueError(f"the first layer must be Linear: {name} is {type(module).__name__}")
            slope = 0.0 if isinstance(module, nn.ReLU) else float(torch.tensor(module.negative_slope, dtype=dtype))
            if not np.isfinite(slope):
                raise ValueError(f"negative_slope must be finite: {name} has {slope}")
            stages.append(Stage(tuple(maps), slope, dim))
            maps = []
    if dim is None:
        raise ValueError("network must have a Linear layer: got none")
    if not (dim and inputs):
        raise ValueError(f"network must have inputs and outputs: got {inputs} inputs and {dim} outputs")
    return [*stages, Stage(tuple(maps), None, dim)]


def _leaves(module: nn.Module, name: str) -> list[tuple[str, nn.Module]]:
    if isinstance(module, nn.Sequential):
        return [leaf for i, child in enumerate(module) for leaf in _leaves(child, f"{name}[{i}]")]
    if isinstance(module, nn.Dropout) and module.training and module.p:
        raise ValueError(f"{name} is Dropout in training mode, which is random: call network.eval() first")
    if not isinstance(module, nn.Linear | nn.ReLU | nn.LeakyReLU | nn.Identity | nn.Flatten | nn.Dropout):
        raise ValueError(
            "expected a Sequential of Linear, ReLU, LeakyReLU, Identity, Flatten and Dropout: "
            f"{name} is {type(module).__name__}{_remedy(module)}"
        )
    return [(name, module)]


def _remedy(module: nn.Module) -> str:
    """Returns how a layer that is not supported can be replaced, if it can."""
    if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
        return "; lawful.theory.collapse(network.eval()).model merges it with the layer beside it"
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return "; for inputs of one size, it is a Linear with the weight lawful.blocks.conv_to_matrix(layer, size)"
    return ""


def exact_values(
    stages: Sequence[Stage],
    columns: np.ndarray,
    ones: np.ndarray,
    *,
    patterns: Sequence[np.ndarray] | None = None,
) -> tuple[np.ndarray, int]:
    """Returns the values before the activation of the last stage, times an integer, and this integer.

    Points are columns of homogeneous coordinates, and an affine map is its matrix.

    Args:
        stages: Stages, from the input on.
        columns: Integers, one row per input.
        ones: The integer that stands for 1 in each column.
        patterns: Active units of each stage but the last one. None decides by the sign of the values.
    """
    values, scale = columns, 1
    for i, stage in enumerate(stages):
        for weight, bias, shift in stage.integer_maps:
            values = weight.dot(values) + bias[:, None] * (ones * scale)[None, :]
            scale <<= shift
        if i == len(stages) - 1:
            break
        active = values > 0 if patterns is None else np.broadcast_to(patterns[i][:, None], values.shape)
        if stage.slope:
            numerator, denominator = stage.slope.as_integer_ratio()
            values = np.where(active, values * denominator, values * numerator)
            scale *= denominator
        else:
            values = np.where(active, values, 0).astype(object)
    return values, scale


def two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rounded sum and its rounding error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rounded product and its rounding error (Dekker); NaN where the error is not known."""
    with np.errstate(all="ignore"):
        product = a * b
        a_high, b_high = a * 134217729.0, b * 134217729.0
        a_high, b_high = a_high - (a_high - a), b_high - (b_high - b)
        a_low, b_low = a - a_high, b - b_high
        error = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
        small = (np.abs(product) < 1e-280) & (a != 0) & (b != 0)
    return product, np.where(small, np.nan, error)


def affine_values(
    maps: Sequence[AffineMap], values: np.ndarray, error: np.ndarray, *, ones: slice = slice(None)
) -> tuple[np.ndarray, np.ndarray]:
    """Applies affine maps to columns, and bounds the error of each column.

    In narrow layers, the rounding errors of columns without error so far are measured: exact values are known to be
    exact. The result has the memory layout of `values`.

    Args:
        maps: Weight and bias of each map.
        values: One column per point.
        error: Bound of the error of each column.
        ones: Columns to which the bias is added.
    """
    for weight, bias in maps:
        norm = float(np.abs(weight).sum(1).max())
        size = norm * largest_entries(values)
        size[ones] += float(np.abs(bias).max())
        if not size.max() < 1e300:
            raise ValueError("the values of the network overflow float64: scale its weights")
        result = np.empty((len(weight), values.shape[1]), order="F" if values.flags.fnc else "C")
        np.matmul(weight, values, out=result)
        result[:, ones] += bias[:, None]
        bound = (1 + 1e-9) * (norm * error + (weight.shape[1] + 4) * EPSILON * size) + 1e-300
        exact = np.flatnonzero(error == 0)
        if len(exact) and weight.shape[1] <= 8:  # constructions are narrow; in others little is exact
            has_bias = np.zeros(len(error))
            has_bias[ones] = 1.0
            known, total = _measure(weight, bias, values[:, exact], has_bias[exact])
            bound[exact[known]] = 0.0
            result[:, exact[known]] = total[:, known]
        values, error = result, bound
    return values, error


def largest_entries(columns: np.ndarray) -> np.ndarray:
    """Returns an upper bound of the absolute values in each column: its Euclidean norm, which is fast."""
    with np.errstate(over="ignore"):
        bound = np.sqrt(np.einsum("ij,ij->j", columns, columns))
    if not bound.max(initial=0.0) < 1e150:
        return np.abs(columns).max(0)
    return (1 + 1e-9) * bound + 1e-150  # squares of smaller numbers underflow


def _measure(weight: np.ndarray, bias: np.ndarray, values: np.ndarray, ones: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns which columns of an affine map have no rounding error, and the columns."""
    total = bias[:, None] * ones
    worst = np.zeros_like(total)
    for column, row in zip(weight.T, values, strict=True):
        product, product_error = two_product(column[:, None], row[None, :])
        total, sum_error = two_sum(total, product)
        worst += np.abs(product_error) + np.abs(sum_error)
    return worst.max(0) == 0, total
