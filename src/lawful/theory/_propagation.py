"""Bounds of all nodes of a network: intervals, linear relaxation backward, and the rounding of each step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.theory._graph import Affine, ComputationGraph, Node
from lawful.theory._relaxations import Activation
from lawful.theory._rounding import rounding_factor

Method = Literal["ibp", "crown", "alpha-crown"]
METHODS = ("ibp", "crown", "alpha-crown")
_CHUNK = 2**24  # numbers in the coefficients of one backward pass
_TINY = 1e-250  # underflow
_LEARNING_RATE, _DECAY, _BETAS = 0.5, 0.05, (0.7, 0.99)  # of Adam; tuned on networks that are in no benchmark


class Bounds(NamedTuple):
    """Bounds of a tensor."""

    lower: Float[Tensor, "*shape"]
    """Lower bounds."""
    upper: Float[Tensor, "*shape"]
    """Upper bounds."""

    @property
    def magnitude(self) -> Tensor:
        """Largest absolute values."""
        return torch.maximum(self.lower.abs(), self.upper.abs())


@dataclass(frozen=True)
class Inputs:
    """Boxes of inputs, each optionally intersected with a Euclidean ball."""

    center: Tensor
    radius: Tensor
    ball: tuple[Tensor, Tensor] | None = None
    """Centers of the balls and their radii, of shape (b,)."""

    @classmethod
    def from_corners(cls, lower: Tensor, upper: Tensor, *, ball: tuple[Tensor, Tensor] | None = None) -> Inputs:
        """Returns the boxes between two corners, in float64."""
        center = lower / 2 + upper / 2
        return cls(center, torch.maximum(upper - center, center - lower) * (1 + 2**-50), ball)

    @property
    def bounds(self) -> Bounds:
        """Corners of the boxes."""
        slack = (self.center.abs() + self.radius) * 2**-51
        return Bounds(self.center - self.radius - slack, self.center + self.radius + slack)

    def minimum(self, a: Tensor) -> Tensor:
        """Returns a lower bound of a·x for coefficients of shape (b, s, ...)."""
        gamma = _gamma(a[0, 0].numel())
        a, center, radius = a.flatten(2), self.center.flatten(1)[:, None], self.radius.flatten(1)[:, None]
        spread = (a.abs() * radius).sum(-1)
        found = (a * center).sum(-1) - spread - gamma * ((a * center).detach().abs().sum(-1) + spread.detach())
        if self.ball is not None:
            middle, size = self.ball[0].flatten(1)[:, None], self.ball[1][:, None]
            spread = size * a.norm(dim=-1)
            other = (a * middle).sum(-1) - spread - gamma * ((a * middle).detach().abs().sum(-1) + spread.detach())
            found = torch.maximum(found, other)
        return found - _TINY


def _gamma(terms: int) -> float:
    return rounding_factor(terms + 32, torch.float64)


def check_box(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the corners of a batch of boxes in float64, or raises."""
    if lower.shape != upper.shape:
        raise ValueError(f"lower and upper must have the same shape: got {tuple(lower.shape)}, {tuple(upper.shape)}")
    if lower.ndim < 2 or not len(lower):
        raise ValueError(f"lower must be a batch of corners, of shape (n, ...): got {tuple(lower.shape)}")
    lower, upper = lower.detach().double(), upper.detach().double()
    if not bool(lower.isfinite().all() and upper.isfinite().all()):
        raise ValueError("lower and upper must be finite: got NaN or an unbounded box")
    if bool((lower > upper).any()):
        worst = int((lower - upper).flatten().argmax())
        a, b = (x.flatten()[worst].item() for x in (lower, upper))
        raise ValueError(f"lower must not exceed upper: got {a:.6g} > {b:.6g}, an empty box")
    return lower, upper


@torch.no_grad()
def propagate(graph: ComputationGraph, region: Inputs, *, method: Method, steps: int = 30) -> dict[Node, Bounds]:
    """Bounds every node of a network.

    Args:
        graph: Network.
        region: Inputs.
        method: `"ibp"`, `"crown"` or `"alpha-crown"`.
        steps: Steps of Adam.
    """
    bounds = {graph.nodes[0]: region.bounds}
    known = propagate(graph, region, method="crown") if method == "alpha-crown" else {}
    for node in graph.nodes[1:]:
        found = _interval(node, [bounds[parent] for parent in node.parents])
        nonlinear = any(isinstance(child.operation, Activation) for child in graph.children[node])
        if method != "ibp" and (nonlinear or node is graph.output):
            bounds[node] = _intersect(found, known[node]) if known else found
            found = _backward(graph, node, region, bounds, steps if method == "alpha-crown" else 0)
        bounds[node] = found
    return bounds


def _interval(node: Node, inputs: list[Bounds]) -> Bounds:
    """Bounds a node by the bounds of its parents."""
    operation = node.operation
    if operation is None:
        low, high = inputs[0].lower + inputs[1].lower, inputs[0].upper + inputs[1].upper
        slack = 2**-51 * (inputs[0].magnitude + inputs[1].magnitude) + _TINY
    elif isinstance(operation, Affine):
        center, radius = inputs[0].lower / 2 + inputs[0].upper / 2, inputs[0].upper / 2 - inputs[0].lower / 2
        middle, spread = operation.value(center), operation.absolute(radius)
        slack = _gamma(operation.terms) * operation.bound(center.abs() + radius) + _TINY
        low, high = middle - spread, middle + spread
    else:
        low, high = operation.interval(*inputs[0])
        slack = torch.zeros_like(low)
    return Bounds(_fill(low - slack, -math.inf), _fill(high + slack, math.inf))


def _backward(graph: ComputationGraph, node: Node, region: Inputs, bounds: dict[Node, Bounds], steps: int) -> Bounds:
    """Bounds all entries of a node by linear relaxation, within the bounds that it has."""
    batch, size = len(region.center), node.shape.numel()
    widest = max(n.shape.numel() for n in graph.nodes)
    count = max(1, _CHUNK // (2 * batch * widest))
    chosen = torch.ones(size, dtype=torch.bool, device=graph.device)
    if steps and node is not graph.output:
        chosen = _unsettled(graph, node, bounds[node])
        if not bool(chosen.any()):
            return bounds[node]
    parts = []
    for rows in torch.eye(size, dtype=torch.float64, device=graph.device)[chosen].split(count):
        signed = torch.cat([rows, -rows]).reshape(1, -1, *node.shape).expand(batch, *(-1,) * (len(node.shape) + 1))
        low, high = linear_lower_bound(graph, node, signed, region, bounds, steps=steps).chunk(2, dim=1)
        parts.append((low, -high))
    lower, upper = (x.flatten(1).clone() for x in bounds[node])
    lower[:, chosen], upper[:, chosen] = (torch.cat(p, dim=1) for p in zip(*parts, strict=True))
    return _intersect(Bounds(lower.reshape(batch, *node.shape), upper.reshape(batch, *node.shape)), bounds[node])


def _unsettled(graph: ComputationGraph, node: Node, bounds: Bounds) -> Tensor:
    """Returns which entries of a node have an activation whose lines depend on the bounds, in any of the boxes."""
    found = torch.zeros_like(bounds.lower[0], dtype=torch.bool)
    for child in graph.children[node]:
        if isinstance(child.operation, Activation):
            found |= ~child.operation.is_affine(*bounds).all(0)
    return found.flatten()


def _intersect(a: Bounds, b: Bounds) -> Bounds:
    return Bounds(torch.fmax(a.lower, b.lower), torch.fmin(a.upper, b.upper))


@torch.no_grad()
def linear_lower_bound(
    graph: ComputationGraph,
    target: Node,
    rows: Float[Tensor, "b s ..."],
    region: Inputs,
    bounds: dict[Node, Bounds],
    *,
    steps: int = 0,
) -> Float[Tensor, "b s"]:
    """Bounds linear functions of a node from below.

    Args:
        graph: Network.
        target: Node.
        rows: Coefficients of the linear functions.
        region: Inputs.
        bounds: Bounds of all nodes before the target.
        steps: Steps of Adam that optimize the slopes.
    """
    nodes = graph.nodes[: graph.nodes.index(target) + 1]
    activations = {node: node.operation for node in nodes if isinstance(node.operation, Activation)}
    slopes: dict[Node, tuple[Tensor, ...]] = {
        node: tuple(s[:, None] for s in activation.slopes(*bounds[node.parents[0]]))
        for node, activation in activations.items()
    }
    best = _pass_back(nodes, rows, region, bounds, slopes)
    if not slopes or not steps:
        return best
    # A slope is optimized by its position between the smallest and the largest that are useful.
    ranges: dict[Node, list[tuple[Tensor, Tensor, Tensor]]] = {}
    for node, pair in slopes.items():
        ranges[node] = []
        for sign, slope in zip((-1, 1), pair, strict=True):
            low, high = (x[:, None] for x in activations[node].slope_range(*bounds[node.parents[0]], sign=sign))
            position = ((slope - low) / (high - low).clamp(min=_TINY)).nan_to_num(0.5).clamp(0, 1)
            ranges[node].append((low, high - low, position.expand(-1, rows.shape[1], *node.shape).clone()))
    free = [position for pair in ranges.values() for _, width, position in pair if bool((width > 0).any())]
    if not free:
        return best
    for position in free:
        position.requires_grad_()
    optimizer = torch.optim.Adam(free, lr=_LEARNING_RATE, betas=_BETAS)
    for step in range(steps + 1):
        with torch.enable_grad():
            for node, pair in ranges.items():
                slopes[node] = tuple(low + width * position for low, width, position in pair)
            found = _pass_back(nodes, rows, region, bounds, slopes)
        best = torch.fmax(best, found.detach())
        if step == steps:
            break
        with torch.enable_grad():
            gradients = torch.autograd.grad(-found.sum(), free, allow_unused=True)
        for position, gradient in zip(free, gradients, strict=True):
            position.grad = None if gradient is None else gradient.nan_to_num(nan=0, posinf=0, neginf=0)
        for group in optimizer.param_groups:
            group["lr"] = _LEARNING_RATE * _DECAY ** (step / steps)
        optimizer.step()
        for position in free:
            position.clamp_(0, 1)
    return best


def _pass_back(
    nodes: list[Node],
    rows: Tensor,
    region: Inputs,
    bounds: dict[Node, Bounds],
    slopes: dict[Node, tuple[Tensor, ...]],
) -> Tensor:
    """Returns lower bounds of linear functions of the last node."""
    coefficients = {nodes[-1]: rows}
    constant = torch.zeros(rows.shape[:2], dtype=torch.float64, device=rows.device)
    slack = torch.zeros_like(constant)

    def total(x: Tensor) -> Tensor:
        return x.flatten(2).sum(-1)

    def send(parent: Node, a: Tensor) -> None:
        nonlocal slack
        if parent in coefficients:
            a = a + coefficients[parent]
            slack = slack + 2**-51 * total(a.detach().abs() * bounds[parent].magnitude[:, None])
        coefficients[parent] = a

    for node in reversed(nodes[1:]):
        if node not in coefficients:
            continue
        a, operation = coefficients.pop(node), node.operation
        inputs = [bounds[parent] for parent in node.parents]
        if operation is None:
            for parent in node.parents:
                send(parent, a)
            continue
        largest = inputs[0].magnitude
        if isinstance(operation, Affine):
            gamma = _gamma(node.shape.numel() + node.parents[0].shape.numel())
            slack = slack + gamma * total(a.detach().abs() * operation.bound(largest)[:, None])
            if operation.bias is not None:
                constant = constant + total(a * operation.bias)
            send(node.parents[0], transpose(operation, a, node.parents[0].shape))
        else:
            low, high = (x[:, None] for x in inputs[0])
            below, above = slopes[node]
            b_below = operation.intercept(below, low, high, sign=-1)
            b_above = operation.intercept(above, low, high, sign=1)
            positive, negative = a.clamp(min=0), a.clamp(max=0)
            constant = constant + total(positive * b_below + negative * b_above)
            with torch.no_grad():
                size = torch.maximum(below.abs(), above.abs()) * largest[:, None]
                size = size + torch.maximum(b_below.abs(), b_above.abs())
                slack = slack + _gamma(node.shape.numel()) * total(a.abs() * size)
            send(node.parents[0], positive * below + negative * above)
    found = constant - slack * (1 + 1e-9) - _TINY
    if nodes[0] in coefficients:
        found = found + region.minimum(coefficients[nodes[0]])
    return _fill(found - found.abs() * 2**-50, -math.inf)


def _fill(x: Tensor, value: float) -> Tensor:
    """Replaces NaN, which overflow leads to."""
    return torch.where(x.isnan(), value, x)


def transpose(operation: Affine, a: Tensor, shape: torch.Size) -> Tensor:
    """Applies the transpose of the linear map of an operation."""
    if operation.transpose is not None:
        return operation.transpose(a)
    zeros = torch.zeros(a.shape[0] * a.shape[1], *shape, dtype=a.dtype, device=a.device)
    pull: Callable[[Tensor], tuple[Tensor]] = torch.func.vjp(operation.linear, zeros)[1]
    return pull(a.flatten(0, 1))[0].unflatten(0, a.shape[:2])


@torch.no_grad()
def evaluation_error(graph: ComputationGraph, bounds: dict[Node, Bounds]) -> Tensor:
    """Bounds the difference between the network in its dtype and in exact arithmetic, for each output.

    Args:
        graph: Network.
        bounds: Bounds of its nodes.
    """
    unit, tiny = torch.finfo(graph.dtype).eps / 2, torch.finfo(graph.dtype).tiny
    errors = {graph.nodes[0]: torch.zeros_like(bounds[graph.nodes[0]].lower)}
    for node in graph.nodes[1:]:
        operation, inputs = node.operation, [errors[parent] for parent in node.parents]
        largest = [bounds[parent].magnitude + errors[parent] for parent in node.parents]
        if operation is None:
            error = inputs[0] + inputs[1] + unit * (largest[0] + largest[1])
        elif isinstance(operation, Affine):
            gamma = rounding_factor(operation.terms + 4, graph.dtype)
            error = operation.absolute(inputs[0]) + gamma * operation.bound(largest[0]) + tiny * (operation.terms + 4)
        else:
            error = operation.lipschitz * inputs[0] + 8 * unit * (bounds[node].magnitude + largest[0]) + tiny
            low, high = bounds[node.parents[0]]
            error = error + operation.deviation(low - inputs[0], high + inputs[0])
        overflow = bounds[node].magnitude + error > torch.finfo(graph.dtype).max
        errors[node] = _fill(torch.where(overflow, math.inf, error * (1 + 1e-9)), math.inf)
    return errors[graph.output]
