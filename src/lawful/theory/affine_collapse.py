r"""Collapses the affine layers of a network that no nonlinearity separates, with a proof in exact arithmetic.

$$W_2 (W_1 x + b_1) + b_2 = (W_2 W_1) \, x + (W_2 b_1 + b_2)$$

Without an activation between them, depth adds nothing. Batch norm in eval mode is affine as well, and a convolution of
size 1 is a matrix for each pixel. Weights are floats, which are rational numbers: products and sums are computed
exactly, as integers over a power of two, and rounded once. The scale of batch norm, $\gamma / \sqrt{\sigma^2 +
\epsilon}$, is enclosed to $2^{-87}$ of its size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, agreement, shape
from lawful.theory._graph import Affine, record
from lawful.theory._propagation import Inputs, check_box, evaluation_error, propagate
from lawful.theory._relaxations import Activation
from lawful.theory._rounding import round_up, rounding_factor

_CONVOLUTIONS = nn.Conv1d, nn.Conv2d, nn.Conv3d
_BATCH_NORMS = nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d
_DROPOUTS = nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout
_LARGEST = 2 * 10**7  # products of integers of one merge


class CollapsedLayer(NamedTuple):
    """A layer that replaces several."""

    name: str
    """Name in the collapsed network."""
    sources: tuple[str, ...]
    """Names of the layers that it replaces."""
    weight_error: Float[Tensor, "..."]
    """Bound of the difference between each weight and the exact product. It is the rounding of the weight."""
    bias_error: Float[Tensor, " o"]
    """The same for the bias."""


@dataclass(frozen=True)
class CollapseProof:
    """What changed between a network and its collapsed form."""

    original: nn.Sequential
    """Network."""
    collapsed: nn.Sequential
    """Collapsed network."""
    layers: tuple[CollapsedLayer, ...]
    """Layers that replace several."""
    dropped: tuple[str, ...]
    """Names of the layers that do nothing in eval mode: identities and dropout."""

    @property
    def weight_error(self) -> float:
        """Largest difference between a weight or bias of the collapsed network and its exact value."""
        errors = [float(e.max()) for layer in self.layers for e in layer[2:] if e.numel()]
        return max(errors, default=0.0)

    def error_bound(
        self, lower: Float[Tensor, "n ..."], upper: Float[Tensor, "n ..."], *, rounding: bool = True
    ) -> Float[Tensor, "n ..."]:
        """Bounds the difference between the outputs of both networks for all inputs in a box.

        The layers between must be supported by `output_bounds`.

        Args:
            lower: Lower corners of a batch of boxes.
            upper: Upper corners.
            rounding: Whether to cover the rounding of the evaluation of both networks in their dtype. Otherwise the
                bound is for both networks in exact arithmetic.
        """
        lower, upper = check_box(lower, upper)
        graph = record(self.collapsed, lower)
        region = Inputs.from_corners(lower.to(graph.device), upper.to(graph.device))
        bounds = propagate(graph, region, method="ibp")
        changes = {id(self.collapsed.get_submodule(layer.name).weight): layer for layer in self.layers}
        errors = {graph.nodes[0]: torch.zeros_like(bounds[graph.nodes[0]].lower)}
        for node in graph.nodes[1:]:
            inputs = [errors[parent] for parent in node.parents]
            if isinstance(node.operation, Affine):
                error = node.operation.absolute(inputs[0])
                layer = changes.get(id(node.operation.weight))
                if layer is not None and node.operation.with_weight is not None:
                    largest = bounds[node.parents[0]].magnitude + inputs[0]
                    change = node.operation.with_weight(layer.weight_error.to(largest), largest)
                    bias = layer.bias_error.to(largest)
                    like = bias if node.operation.bias is None else node.operation.bias
                    error = error + change + bias.reshape(like.shape)
            elif isinstance(node.operation, Activation):
                error = node.operation.lipschitz * inputs[0]
            else:
                error = inputs[0] + inputs[1]
            errors[node] = error * (1 + 1e-9)
        total = errors[graph.output]
        if rounding:
            before = record(self.original, lower)
            total = total + evaluation_error(graph, bounds)
            total = total + evaluation_error(before, propagate(before, region, method="ibp"))
        return total * (1 + 1e-15)

    def __str__(self) -> str:
        before = sum(1 for _ in _flatten(self.original))
        lines = [f"{before} layers became {len(self.collapsed)}."]
        lines += [f"{layer.name} replaces {', '.join(layer.sources)}." for layer in self.layers]
        if self.dropped:
            lines.append(f"Dropped, without effect: {', '.join(self.dropped)}.")
        lines.append(
            f"Weights and biases differ from the exact ones by at most {self.weight_error:.1e}, from rounding."
        )
        return "\n".join(lines)


class Collapsed(NamedTuple):
    """A collapsed network and its proof."""

    model: nn.Sequential
    """Collapsed network."""
    proof: CollapseProof
    """Proof that it is equal up to rounding."""


def collapse(model: nn.Sequential) -> Collapsed:
    """Merges affine layers that no nonlinearity separates, and drops layers that do nothing.

    Consecutive `Linear` layers are merged, batch norm with the `Linear` or convolution beside it, and a convolution
    with one of size 1. Batch norm before a convolution, and a convolution of size 1 with bias before one, are merged
    only without padding: zeros at the border make the maps different. `Identity`, and dropout in eval mode, are
    dropped. Other layers are copied. A merge of more than 2e7 products is computed in float64, with a bound.
    `BatchNorm1d` beside a `Linear` is taken to receive inputs of shape (n, features).

    Args:
        model: Sequential in eval mode, with nested Sequentials.

    Examples:
        >>> model = nn.Sequential(nn.Linear(2, 9), nn.BatchNorm1d(9), nn.Linear(9, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> collapsed, proof = collapse(model.eval())
        >>> collapsed
        Sequential(
          (0): Linear(in_features=2, out_features=3, bias=True)
          (1): ReLU()
          (2): Linear(in_features=3, out_features=1, bias=True)
        )
        >>> x = torch.rand(100, 2)
        >>> bound = proof.error_bound(torch.zeros(1, 2), torch.ones(1, 2))
        >>> bool(((collapsed(x) - model(x)).abs() <= bound).all()), bool(bound < 1e-4)
        (True, True)
    """
    if not isinstance(model, nn.Sequential):
        raise ValueError(f"expected a Sequential: got {type(model).__name__}")
    stack: list[_Layer | nn.Module] = []
    dropped = []
    for name, layer in _flatten(model):
        kind = _kind(layer)
        if kind is nn.Identity:
            dropped.append(name)
            continue
        if isinstance(layer, _DROPOUTS) and kind is not None:
            if layer.training and layer.p > 0:
                raise ValueError(f"dropout {name!r} is in training mode: call model.eval()")
            dropped.append(name)
            continue
        item = _read(name, layer)
        while isinstance(item, _Layer) and stack and isinstance(stack[-1], _Layer):
            merged = _merge(stack[-1], item)
            if merged is None:
                break
            stack.pop()
            item = merged
        stack.append(item)
    modules, layers, names = [], [], count()
    for item in stack:
        name = str(next(names))
        if isinstance(item, _Layer) and len(item.sources) > 1:
            module, weight_error, bias_error = item.round()
            layers.append(CollapsedLayer(name, item.sources, weight_error, bias_error))
            modules.append(module.train(model.training))
        else:
            modules.append(deepcopy(item.module if isinstance(item, _Layer) else item))
    collapsed = nn.Sequential(*modules).train(model.training) if modules else nn.Sequential()
    return Collapsed(collapsed, CollapseProof(model, collapsed, tuple(layers), tuple(dropped)))


def _flatten(model: nn.Sequential, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    for name, child in model.named_children():
        if type(child) is nn.Sequential:
            yield from _flatten(child, f"{prefix}{name}.")
        else:
            yield prefix + name, child


@dataclass
class _Layer:
    """An affine layer with exact weights, integers over a power of two."""

    module: Any
    """Layer whose options the result has."""
    sources: tuple[str, ...]
    weight: np.ndarray
    """Python integers, of shape (out, in, *kernel), or (out,) for batch norm."""
    bias: np.ndarray
    """Python integers, of shape (out,)."""
    shift: int
    """A weight or bias is its integer times 2**-shift."""
    size: np.ndarray
    """Bounds of the sums of the absolute values of the terms of each weight."""
    bias_size: np.ndarray
    """The same for the bias."""
    slack: float = 0.0
    """Relative error of the integers, as a share of the sizes. 0 if they are exact."""

    @property
    def kind(self) -> str:
        if isinstance(self.module, nn.Linear):
            return "linear"
        return "convolution" if isinstance(self.module, _CONVOLUTIONS) else "norm"

    @property
    def dtype(self) -> torch.dtype:
        return (self.module.running_mean if self.kind == "norm" else self.module.weight).dtype

    def round(self) -> tuple[nn.Module, Tensor, Tensor]:
        """Returns the layer with rounded weights, and bounds of the rounding."""
        found, errors = [], []
        for integers, size in ((self.weight, self.size), (self.bias, self.bias_size)):
            exact = [Fraction(n, 1 << self.shift) for n in integers.flat]
            rounded = torch.tensor([float(value) for value in exact], dtype=torch.float64).to(self.dtype)
            if not bool(rounded.isfinite().all()):
                raise ValueError(f"a weight of {', '.join(self.sources)} overflows {self.dtype} when they are merged")
            gaps = [round_up(abs(Fraction(a) - b)) for a, b in zip(rounded.tolist(), exact, strict=True)]
            bounds = (np.array(gaps) + self.slack * size.ravel()) * (1 + 1e-15)
            found.append(rounded.reshape(integers.shape))
            errors.append(torch.from_numpy(bounds).reshape(integers.shape))
        module, device = deepcopy(self.module).to("meta"), self.module.weight.device
        module.weight, module.bias = (nn.Parameter(x.to(device)) for x in found)
        if isinstance(module, nn.Linear):
            module.out_features, module.in_features = self.weight.shape
        else:
            module.out_channels, module.in_channels = self.weight.shape[0], self.weight.shape[1] * module.groups
        return module, errors[0], errors[1]


def _integers(*arrays: np.ndarray) -> tuple[list[np.ndarray], int]:
    """Writes floats exactly as integers over a common power of two."""
    parts = [np.frexp(a) for a in arrays]
    lowest = min([0, *(int(e[m != 0].min()) - 53 for m, e in parts if (m != 0).any())])
    found = []
    for mantissa, exponent in parts:
        flat = zip(mantissa.ravel().tolist(), exponent.ravel().tolist(), strict=True)
        values = [int(m * 2**53) << (e - 53 - lowest) if m else 0 for m, e in flat]
        found.append(np.array(values, dtype=object).reshape(mantissa.shape))
    return found, -lowest


def _kind(layer: nn.Module) -> type[nn.Module] | None:
    """Returns the class of a layer that does only what its class does: no subclass, no hooks."""
    hooks = layer._forward_hooks or layer._forward_pre_hooks
    known = (nn.Linear, nn.Identity, *_CONVOLUTIONS, *_BATCH_NORMS, *_DROPOUTS)
    return type(layer) if type(layer) in known and not hooks else None


def _read(name: str, layer: nn.Module) -> _Layer | nn.Module:
    """Returns an affine layer with exact weights; other layers as they are."""
    options = {"module": layer, "sources": (name,)}
    if _kind(layer) is None:
        return layer
    if isinstance(layer, nn.Linear) or (isinstance(layer, _CONVOLUTIONS) and layer.padding_mode == "zeros"):
        weight = _to_numpy(layer.weight, name)
        bias = np.zeros(len(weight)) if layer.bias is None else _to_numpy(layer.bias, name)
        (weights, biases), shift = _integers(weight, bias)
        return _Layer(weight=weights, bias=biases, shift=shift, size=abs(weight), bias_size=abs(bias), **options)
    if isinstance(layer, _BATCH_NORMS) and layer.running_mean is not None:
        if layer.training:
            raise ValueError(f"batch norm {name!r} is in training mode: call model.eval()")
        mean, var = _to_numpy(layer.running_mean, name), _to_numpy(layer.running_var, name)
        gain = np.ones_like(mean) if layer.weight is None else _to_numpy(layer.weight, name)
        shift = np.zeros_like(mean) if layer.bias is None else _to_numpy(layer.bias, name)
        # 1 / sqrt(v) as an integer over 2**n, accurate to 2**-87 of its size.
        scales = [_inverse_root(Fraction(v) + Fraction(layer.eps)) for v in var.tolist()]
        weights = [Fraction(g) * s for g, s in zip(gain.tolist(), scales, strict=True)]
        biases = [Fraction(b) - Fraction(m) * w for b, m, w in zip(shift.tolist(), mean.tolist(), weights, strict=True)]
        size = np.array([round_up(abs(w)) for w in weights])
        power = max(w.denominator.bit_length() - 1 for w in (*weights, *biases))
        both = [np.array([int(w * (1 << power)) for w in row], dtype=object) for row in (weights, biases)]
        bias_size = (abs(shift) + abs(mean) * size) * (1 + 1e-15)
        return _Layer(
            weight=both[0], bias=both[1], shift=power, size=size, bias_size=bias_size, slack=2.0**-87, **options
        )
    return layer


def _inverse_root(value: Fraction) -> Fraction:
    """Returns 1 / sqrt(value) to 2**-87 of its size, as a fraction whose denominator is a power of two."""
    if value <= 0:
        raise ValueError("running_var + eps of batch norm must be positive")
    digits = 100 + max(0, value.numerator.bit_length() - value.denominator.bit_length())
    return Fraction(math.isqrt((value.denominator << (2 * digits)) // value.numerator), 1 << digits)


def _to_numpy(x: Tensor | None, name: str) -> np.ndarray:
    if x is None or not bool(x.isfinite().all()):
        raise ValueError(f"weights must be finite: {name!r} has a weight that is not")
    return x.detach().cpu().double().numpy()


def _merge(first: _Layer, second: _Layer) -> _Layer | None:
    """Returns both layers as one, or None."""
    kinds = first.kind, second.kind
    if first.dtype != second.dtype:
        return None
    if kinds == ("linear", "linear"):
        if first.weight.shape[0] != second.weight.shape[1]:
            sizes = f"out_features={first.weight.shape[0]}, in_features={second.weight.shape[1]}"
            raise ValueError(f"out_features of {first.sources[-1]!r} must equal in_features of the next: got {sizes}")
        return _compose(first, second, second.module, np.matmul)
    if "norm" in kinds:
        if kinds == ("norm", "norm") or first.weight.shape[0] != second.weight.shape[0 if kinds[1] == "norm" else 1]:
            return None
        if second.kind == "norm":
            return _compose(first, second, first.module, lambda scale, w: (scale * w.T).T)
        if second.kind == "convolution" and (second.module.groups != 1 or not _unpadded(second.module)):
            return None
        axes = (1,) * (second.weight.ndim - 2)
        return _compose(first, second, second.module, lambda w, scale: w * scale.reshape(-1, *axes))
    if kinds != ("convolution", "convolution") or first.weight.ndim != second.weight.ndim:
        return None
    if first.module.groups != 1 or second.module.groups != 1 or first.weight.shape[0] != second.weight.shape[1]:
        return None
    small = [set(layer.module.kernel_size) == {1} and _unpadded(layer.module) for layer in (first, second)]
    if small[1] and (not isinstance(first.module.padding, str) or set(second.module.stride) == {1}):
        module = deepcopy(first.module)
        module.stride = tuple(a * b for a, b in zip(module.stride, second.module.stride, strict=True))
        return _compose(first, second, module, lambda w, v: np.tensordot(w.reshape(w.shape[:2]), v, axes=1))
    if small[0] and set(first.module.stride) == {1} and (_unpadded(second.module) or not first.bias.any()):
        return _compose(first, second, second.module, _after_small)
    return None


def _after_small(w: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Composes a kernel with the matrix of a convolution of size 1 that comes before it."""
    return np.moveaxis(np.tensordot(np.moveaxis(w, 1, -1), v.reshape(v.shape[:2]), axes=1), -1, 1)


def _unpadded(module: Any) -> bool:
    if module.padding == "same":
        return set(module.kernel_size) == {1}
    return module.padding == "valid" or set(module.padding) == {0}


def _constant(w: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Applies the linear part of a layer to a constant."""
    return w * v if w.ndim == 1 else w.reshape(*w.shape[:2], -1).sum(-1) @ v


def _compose(
    first: _Layer, second: _Layer, module: Any, product: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> _Layer:
    """Composes two affine layers: in integers, or in float64 with a bound of its rounding if they are large."""
    grow = 1 + 1e-12 * (first.weight.size + second.weight.size)
    size = product(second.size, first.size) * grow
    bias_size = (_constant(second.size, first.bias_size) + second.bias_size) * grow
    slack = (first.slack + second.slack) * (1 + 1e-6)
    terms = first.weight.shape[0] if second.weight.ndim > 1 and first.weight.ndim > 1 else 1
    if size.size * terms <= _LARGEST:
        weight, shift = product(second.weight, first.weight), first.shift + second.shift
        bias = _constant(second.weight, first.bias) + second.bias * (1 << first.shift)
    else:
        w1, b1, w2, b2 = (
            np.array([n / (1 << layer.shift) for n in values.flat]).reshape(values.shape)
            for layer in (first, second)
            for values in (layer.weight, layer.bias)
        )
        (weight, bias), shift = _integers(product(w2, w1), _constant(w2, b1) + b2)
        slack += rounding_factor(second.weight[0].size + 4, torch.float64)
    return _Layer(module, (*first.sources, *second.sources), weight, bias, shift, size, bias_size, slack)


def claims() -> Iterator[Claim]:
    """Laws of collapsed networks."""
    layers = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3))
    images = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Identity(), nn.Conv2d(3, 2, 1))
    yield Claim(agreement(other=lambda x: collapse(layers).model(x)), layers, shape("b 4"), name="linear layers")
    yield Claim(agreement(other=lambda x: collapse(images).model(x)), images, shape("b 2 4 4"), name="convolutions")
