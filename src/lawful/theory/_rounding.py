"""Networks from arrays, and floating-point rounding."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import torch
from torch import nn

Number = int | float | Fraction


def build_sequential(
    layers: Iterable[tuple[np.ndarray, np.ndarray]], *, dtype: torch.dtype | None = None
) -> nn.Sequential:
    """Builds a network of `Linear` layers with `ReLU` between them from weights and biases.

    Args:
        layers: Weight and bias of each layer.
        dtype: Dtype of the network. None for PyTorch's default dtype.

    Examples:
        >>> network = build_sequential([(np.ones((2, 1)), np.zeros(2)), (np.ones((1, 2)), np.zeros(1))])
        >>> network(torch.tensor([[3.0], [-1.0]])).tolist()
        [[6.0], [0.0]]
    """
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not dtype.is_floating_point:
        raise ValueError(f"dtype must be a floating-point dtype: got {dtype}")
    modules: list[nn.Module] = []
    for weight, bias in layers:
        with warnings.catch_warnings():  # a network without hidden units is the right one for a constant
            warnings.filterwarnings("ignore", message="Initializing zero-element tensors")
            layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=dtype, device="meta")  # draws no random numbers
        for name, values in (("weight", weight), ("bias", bias)):
            rounded = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64)).to(dtype)
            if not bool(rounded.isfinite().all()):
                raise ValueError(f"a weight of {np.abs(values).max():.3g} overflows {dtype}: use a wider dtype")
            setattr(layer, name, nn.Parameter(rounded))
        modules += [layer, nn.ReLU()]
    return nn.Sequential(*modules[:-1])


def round_up(value: Fraction | float) -> float:
    """Returns a float that is not less than a rational number; infinity if it is larger than all floats.

    Examples:
        >>> round_up(Fraction(1, 3)) > Fraction(1, 3), round_up(Fraction(1, 4))
        (True, 0.25)
    """
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf if value > 0 else -float(np.finfo(np.float64).max)
    return math.nextafter(nearest, math.inf) if nearest < value else nearest


def rounding_factor(operations: int, dtype: torch.dtype) -> float:
    r"""Returns $\gamma_n = n u / (1 - n u)$, the relative error of $n$ roundings with unit roundoff $u$.

    Reference: Higham, Accuracy and Stability of Numerical Algorithms, 2002, chapter 3.

    Examples:
        >>> rounding_factor(1, torch.float32) > 2**-24
        True
    """
    product = operations * torch.finfo(dtype).eps / 2
    return product / (1 - product) * (1 + 2**-50) if product < 1 else math.inf
