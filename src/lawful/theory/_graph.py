"""A network as a graph of affine maps, activations and sums, recorded from one forward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lawful.theory import _relaxations as relaxations

Function = Callable[[Tensor], Tensor]

SUPPORTED = (
    "Linear, Conv1d, Conv2d, Conv3d, BatchNorm, AvgPool, AdaptiveAvgPool to size 1, Flatten, view, Dropout, ReLU, "
    "LeakyReLU, Tanh, Sigmoid, GELU, SiLU, Softplus, sums, and products with constants"
)


@dataclass
class Affine:
    """An affine map in float64."""

    linear: Function
    """The map without its bias."""
    absolute: Function
    """The linear map whose coefficients are the absolute values."""
    terms: int
    """Number of terms that are added for one output."""
    bias: Tensor | None = None
    """Bias, which broadcasts to the output."""
    transpose: Function | None = None
    """Transpose of the linear map. None leaves it to autograd."""
    magnitude: Tensor | None = None
    """Sum of the absolute values of the terms of the bias, for its rounding error. Defaults to the absolute bias."""
    weight: Tensor | None = None
    """Weight of the layer, in its dtype."""
    with_weight: Callable[[Tensor, Tensor], Tensor] | None = None
    """Linear map with another weight."""

    def value(self, x: Tensor) -> Tensor:
        """Returns the map of a batch."""
        y = self.linear(x)
        return y if self.bias is None else y + self.bias

    def bound(self, x: Tensor) -> Tensor:
        """Returns the sum of the absolute values of all terms, for inputs of absolute value at most x."""
        y = self.absolute(x)
        magnitude = self.bias if self.magnitude is None else self.magnitude
        return y if magnitude is None else y + magnitude.abs()


@dataclass(eq=False)
class Node:
    """A tensor of the network."""

    operation: Affine | relaxations.Activation | None
    """None for the input and for a sum of two nodes."""
    parents: tuple[Node, ...]
    shape: torch.Size
    """Shape without the batch axis."""


@dataclass
class ComputationGraph:
    """Nodes from the input to the output."""

    nodes: list[Node]
    dtype: torch.dtype
    device: torch.device
    children: dict[Node, list[Node]] = field(init=False)

    def __post_init__(self) -> None:
        self.children = {node: [] for node in self.nodes}
        for node in self.nodes:
            for parent in node.parents:
                self.children[parent].append(node)

    @property
    def output(self) -> Node:
        """The last node."""
        return self.nodes[-1]

    def values(self, x: Tensor) -> Tensor:
        """Evaluates the network in float64."""
        found = {self.nodes[0]: x.double()}
        for node in self.nodes[1:]:
            inputs = [found[parent] for parent in node.parents]
            found[node] = inputs[0] + inputs[1] if node.operation is None else node.operation.value(inputs[0])
        return found[self.output]


class _Recorded(Tensor):
    """A tensor that records what is computed from it."""

    _node: Node
    _nodes: list[Node]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", str(func))
        with torch._C.DisableTorchFunctionSubclass():
            if name in _QUERIES or (name == "__get__" and getattr(func, "__self__", None) in _ATTRIBUTES):
                return func(*args, **kwargs)
            if name not in _HANDLERS:
                raise ValueError(f"{name.strip('_')} is not supported: expected a network of {SUPPORTED}")
            recorded = [a for a in (*args, *kwargs.values()) if isinstance(a, _Recorded)]
            nodes = recorded[0]._nodes
            operation = _HANDLERS[name](*args, **kwargs)
            value = func(*args, **kwargs).as_subclass(Tensor)
            parents = tuple(dict.fromkeys(a._node for a in recorded)) if operation is None else (recorded[0]._node,)
            if isinstance(operation, _Identity):
                node = recorded[0]._node
            else:
                if operation is None and len(parents) < 2:
                    operation = _scale(torch.tensor(2.0))  # x + x
                node = Node(operation, parents, value.shape[1:])
                nodes.append(node)
            in_place = (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")
            if in_place or kwargs.get("inplace"):
                recorded[0]._node = node
                return recorded[0]
            return _record(value, node, nodes)


def _record(value: Tensor, node: Node, nodes: list[Node]) -> _Recorded:
    recorded = value.as_subclass(_Recorded)
    recorded._node, recorded._nodes = node, nodes
    return recorded


class _Identity:
    """Marks an operation that returns its input."""


def _to_float64(x: Tensor) -> Tensor:
    return x.detach().as_subclass(Tensor).double()


def _check_constant(*tensors: Any) -> None:
    if any(isinstance(x, _Recorded) for x in tensors):
        raise ValueError(f"weights that depend on the input are not supported: expected a network of {SUPPORTED}")


def _per_channel(x: Tensor, ndim: int) -> Tensor:
    return x.reshape(-1, *(1,) * (ndim - 2))


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Affine:
    _check_constant(weight, bias)
    w, absolute = _to_float64(weight), weight.abs().double().detach()
    return Affine(
        lambda x: F.linear(x, w),
        lambda x: F.linear(x, absolute),
        w.shape[1],
        None if bias is None else _to_float64(bias),
        lambda a: a @ w,
        weight=weight,
        with_weight=lambda w, x: F.linear(x, w),
    )


def _convolution(x: Tensor, weight: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any) -> Affine:
    _check_constant(weight, bias)
    if x.ndim != weight.ndim:
        raise ValueError(f"expected a batch of inputs for a convolution: got shape {tuple(x.shape)}")
    w, absolute = _to_float64(weight), weight.abs().double().detach()
    convolution = (F.conv1d, F.conv2d, F.conv3d)[weight.ndim - 3]
    return Affine(
        lambda x: convolution(x, w, None, *args, **kwargs),
        lambda x: convolution(x, absolute, None, *args, **kwargs),
        w[0].numel(),
        None if bias is None else _per_channel(_to_float64(bias), weight.ndim),
        weight=weight,
        with_weight=lambda w, x: convolution(x, w, None, *args, **kwargs),
    )


def _batch_norm(
    x: Tensor,
    mean: Tensor | None,
    var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Affine:
    if training or mean is None or var is None:
        raise ValueError("batch norm must use its running statistics: call network.eval()")
    scale = (_to_float64(var) + eps).rsqrt()
    scale = scale if weight is None else scale * _to_float64(weight)
    shift = torch.zeros_like(scale) if bias is None else _to_float64(bias)
    column, center = _per_channel(scale, x.ndim), _to_float64(mean) * scale
    return Affine(
        lambda x: x * column,
        lambda x: x * column.abs(),
        8,
        _per_channel(shift - center, x.ndim),
        magnitude=_per_channel(shift.abs() + center.abs(), x.ndim),
    )


def _dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> _Identity:
    if training and p > 0:
        raise ValueError("dropout must be off: call network.eval()")
    return _Identity()


def _reshape(function: Callable[..., Tensor]) -> Callable[..., Affine]:
    def handle(x: Tensor, *args: Any, **kwargs: Any) -> Affine:
        shape = function(x, *args, **kwargs).shape
        if shape[:1] != x.shape[:1]:
            raise ValueError(f"a reshape must keep the batch axis: got {tuple(x.shape)} and {tuple(shape)}")
        return Affine(*(lambda x: x.reshape(len(x), *shape[1:]),) * 2, 0)

    return handle


def _pool(dims: int) -> Callable[..., Affine]:
    pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[dims - 1]

    def handle(x: Tensor, *args: Any, **kwargs: Any) -> Affine:
        if x.ndim != dims + 2:
            raise ValueError(f"expected a batch of inputs for average pooling: got shape {tuple(x.shape)}")
        return Affine(*(lambda x: pool(x, *args, **kwargs),) * 2, x[0, 0].numel())

    return handle


def _adaptive_pool(x: Tensor, output_size: Any) -> Affine:
    sizes = output_size if isinstance(output_size, tuple | list) else (output_size,)
    if any(size != 1 for size in sizes) or x.ndim < 3:
        raise ValueError(f"adaptive average pooling is supported to size 1: got {output_size}")
    axes = tuple(range(2, x.ndim))
    return Affine(*(lambda x: x.mean(axes, keepdim=True),) * 2, x[0, 0].numel())


def _scale(factor: Tensor) -> Affine:
    return Affine(lambda x: x * factor, lambda x: x * factor.abs(), 1)


def _constant(x: Any, value: Any) -> Tensor:
    """Returns a constant operand, which must not change the shape of the other."""
    constant = _to_float64(value) if isinstance(value, Tensor) else torch.tensor(float(value), dtype=torch.float64)
    if torch.broadcast_shapes(constant.shape, x.shape) != x.shape or (constant.ndim == x.ndim and len(constant) != 1):
        raise ValueError(
            f"a constant of shape {tuple(constant.shape)} must broadcast to one sample of {tuple(x.shape)}"
        )
    return constant[0] if constant.ndim == x.ndim and constant.ndim else constant


def _add(x: Any, other: Any, *, alpha: float = 1) -> Affine | None:
    if alpha != 1:
        raise ValueError(f"add is supported with alpha=1: got {alpha}")
    if isinstance(x, _Recorded) and isinstance(other, _Recorded):
        if x.shape != other.shape:
            raise ValueError(f"sums must be of equal shapes: got {tuple(x.shape)} and {tuple(other.shape)}")
        return None
    constant = _constant(x, other) if isinstance(x, _Recorded) else _constant(other, x)
    return Affine(lambda y: y, lambda y: y, 2, constant)


def _subtract(x: Any, other: Any) -> Affine:
    if isinstance(x, _Recorded) and isinstance(other, _Recorded):
        raise ValueError("a difference of two tensors of the network is not supported: expected a sum")
    if isinstance(x, _Recorded):
        return Affine(lambda y: y, lambda y: y, 2, -_constant(x, other))
    return Affine(lambda y: -y, lambda y: y, 2, _constant(other, x))


def _multiply(x: Any, other: Any) -> Affine:
    if isinstance(x, _Recorded) and isinstance(other, _Recorded):
        raise ValueError("a product of two tensors of the network is not supported")
    return _scale(_constant(x, other) if isinstance(x, _Recorded) else _constant(other, x))


def _leaky_relu(x: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> relaxations.Activation:
    return relaxations.LeakyReLU(negative_slope)


def _activation(build: Callable[..., relaxations.Activation]) -> Callable[..., relaxations.Activation]:
    def handle(x: Tensor, **kwargs: Any) -> relaxations.Activation:
        kwargs.pop("inplace", None)
        return build(**kwargs)

    return handle


def _softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> relaxations.Activation:
    if not (beta > 0 and threshold >= 8):
        raise ValueError(f"softplus is supported with beta > 0 and threshold >= 8: got {beta} and {threshold}")
    return relaxations.softplus(beta, threshold)


_HANDLERS: dict[str, Callable[..., Any]] = {
    "linear": _linear,
    "batch_norm": _batch_norm,
    **{name: _reshape(getattr(Tensor, name)) for name in ("flatten", "view", "reshape", "squeeze", "unsqueeze")},
    "leaky_relu": _leaky_relu,
    "softplus": _softplus,
    "gelu": _activation(relaxations.gelu),
    "silu": _activation(relaxations.silu),
    **dict.fromkeys(("relu", "relu_"), _activation(relaxations.LeakyReLU)),
    **dict.fromkeys(("tanh", "tanh_"), _activation(relaxations.tanh)),
    **dict.fromkeys(("sigmoid", "sigmoid_"), _activation(relaxations.sigmoid)),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **{f"avg_pool{dims}d": _pool(dims) for dims in (1, 2, 3)},
    **{f"adaptive_avg_pool{dims}d": _adaptive_pool for dims in (1, 2, 3)},
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"), _dropout),
    **dict.fromkeys(("contiguous", "detach", "clone", "requires_grad_"), lambda x, *args, **kwargs: _Identity()),
    **dict.fromkeys(("add", "add_", "__add__", "__radd__", "__iadd__"), _add),
    **dict.fromkeys(("sub", "__sub__", "__isub__"), _subtract),
    "__rsub__": lambda x, other: _subtract(other, x),
    **dict.fromkeys(("mul", "__mul__", "__rmul__", "__imul__"), _multiply),
    **dict.fromkeys(("div", "__truediv__", "__div__"), lambda x, other: _multiply(x, 1 / _constant(x, other))),
}
_QUERIES = (
    "size",
    "dim",
    "ndimension",
    "numel",
    "is_floating_point",
    "__len__",
    "is_complex",
    "stride",
    "is_contiguous",
)
_ATTRIBUTES = tuple(
    getattr(Tensor, name)
    for name in ("shape", "ndim", "dtype", "device", "requires_grad", "is_cuda", "layout", "is_nested", "is_sparse")
)


@torch.no_grad()
def record(network: nn.Module, x: Tensor) -> ComputationGraph:
    """Records a network on a batch.

    Args:
        network: Network that consists of supported operations.
        x: Batch of inputs, of shape (n, ...).
    """
    parameters = [p for p in (*network.parameters(), *network.buffers()) if p.is_floating_point()]
    for p in parameters:
        if not bool(p.isfinite().all()):
            raise ValueError("weights of network must be finite: got NaN or infinity")
    dtype = parameters[0].dtype if parameters else x.dtype
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"expected a network in float32 or float64: got {dtype}")
    device = parameters[0].device if parameters else x.device
    # two samples: with one, a network that drops the batch axis would go unnoticed
    x = torch.cat([x[:1], x[:1]]).to(device=device, dtype=dtype)
    root = Node(None, (), x.shape[1:])
    nodes = [root]
    output = network(_record(x.clone(), root, nodes))
    if not isinstance(output, _Recorded):
        raise ValueError(f"expected a network that returns one tensor: got {type(output).__name__}")
    needed = {output._node}
    for node in reversed(nodes):
        if node in needed:
            needed.update(node.parents)
    if root not in needed:
        raise ValueError("the output of network does not depend on its input")
    last = output._node
    graph = ComputationGraph([node for node in nodes if node in needed and node is not last] + [last], dtype, device)
    value = output.as_subclass(Tensor).double()
    if not torch.allclose(graph.values(x), value, rtol=1e-3, atol=1e-3 * (1 + float(value.abs().max()))):
        raise ValueError("network could not be recorded: avoid in-place operations on views")
    return graph
