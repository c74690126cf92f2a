r"""Lipschitz constants of networks on a box: lower and upper bounds, and the exact constant of small ReLU networks.

On a box, the Lipschitz constant is the largest norm of the Jacobian where the network is differentiable:

$$L = \sup_x \|J(x)\|, \qquad \|f(x) - f(y)\| \le L \|x - y\|, \qquad J(x) = W_k D_{k-1}(x) W_{k-1} \cdots D_1(x) W_1$$

The norm of any Jacobian is a lower bound. The product of the norms of the layers is an upper bound, and so is the norm
of an interval matrix that contains all Jacobians: certified bounds of the neurons limit each derivative in $D_\ell$.
With piecewise-linear activations the Jacobian is constant on each region, and branch and bound over activation patterns
finds the largest.

Reference: Weng and others, Towards Fast Computation of Certified Robustness for ReLU Networks, 2018 (Fast-Lip); Zhang,
    Zhang and Hsieh, RecurJac, 2019; Jordan and Dimakis, Exactly Computing the Local Lipschitz Constant of ReLU
    Networks, 2020.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.theory._graph import Affine, ComputationGraph, Node, record
from lawful.theory._propagation import Bounds, Inputs, check_box, propagate, transpose
from lawful.theory._relaxations import Activation, LeakyReLU
from lawful.theory._rounding import rounding_factor

_Method = Literal["product", "local", "exact"]
_SLACK = 1 + 1e-10  # of singular values in float64
_LARGEST = 2**22  # entries of a matrix whose singular values are computed
_TOLERANCE = 1e-8  # of linear programs: regions that are thinner are skipped


class LipschitzBounds(NamedTuple):
    """Bounds of the Lipschitz constant on each box."""

    lower: Float[Tensor, " n"]
    """Norm of the Jacobian at `point`."""
    upper: Float[Tensor, " n"]
    """Upper bound."""
    point: Float[Tensor, "n ..."]
    """Points where the Jacobian has the norm `lower`."""


def lipschitz_bounds(
    network: nn.Module,
    lower: Float[Tensor, "n ..."],
    upper: Float[Tensor, "n ..."],
    *,
    norm: Literal["2", "inf"] = "2",
    method: _Method = "local",
    splits: int = 0,
    max_patterns: int = 10_000,
    samples: int = 200,
    seed: int = 0,
) -> LipschitzBounds:
    """Bounds the Lipschitz constant of a network on each of a batch of boxes.

    `"product"` multiplies the norms of the layers. It holds everywhere, and is loose for deep networks. `"local"`
    bounds all Jacobians in the box, with neurons bounded by CROWN. `"exact"` is for networks with ReLU and LeakyReLU.
    By linear programs of SciPy, it visits the activation patterns that can have a larger Jacobian than the best one.
    Lower and upper bound agree unless there are more than `max_patterns`. Regions thinner than 1e-8 are not seen.

    Args:
        network: Network in eval mode. `output_bounds` lists the layers that it may have.
        lower: Lower corners of a batch of boxes.
        upper: Upper corners.
        norm: Norm of inputs and outputs, `"2"` or `"inf"`.
        method: `"product"`, `"local"` or `"exact"`.
        splits: Number of times that `"local"` halves the part of the box with the largest bound.
        max_patterns: Number of activation patterns, also partial ones, after which `"exact"` stops.
        samples: Number of points of the search for a large Jacobian.
        seed: Seed of the search.

    Examples:
        >>> absolute = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
        >>> _ = absolute[0].weight.data.copy_(torch.tensor([[1.0], [-1.0]])), absolute[2].weight.data.fill_(1.0)
        >>> for method in ("product", "local", "exact"):
        ...     found = lipschitz_bounds(absolute, -torch.ones(1, 1), torch.ones(1, 1), method=method)
        ...     print(method, round(found.lower.item(), 3), round(found.upper.item(), 3))
        product 1.0 2.0
        local 1.0 1.0
        exact 1.0 1.0
    """
    if norm not in ("2", "inf"):
        raise ValueError(f"norm must be '2' or 'inf': got {norm!r}")
    if method not in ("product", "local", "exact"):
        raise ValueError(f"method must be 'product', 'local' or 'exact': got {method!r}")
    if splits < 0 or max_patterns < 1 or samples < 1:
        raise ValueError(f"expected splits >= 0, max_patterns, samples >= 1: got {splits}, {max_patterns}, {samples}")
    lower, upper = check_box(lower, upper)
    graph = record(network, lower)
    if method == "exact":
        for node in graph.nodes:
            if isinstance(node.operation, Activation) and not isinstance(node.operation, LeakyReLU):
                raise ValueError(f"method='exact' needs piecewise-linear activations: got {node.operation.name}")
    lowest, highest, points = [], [], []
    for low, high in zip(lower.to(graph.device), upper.to(graph.device), strict=True):
        value, point = _search(graph, low, high, norm, samples, seed)
        if method == "product":
            bound = _product(graph, norm)
        elif method == "local":
            bound = min(_split(graph, low, high, norm, splits, value), _product(graph, norm))
        else:
            tree = _PatternTree(graph, low, high, norm, value, point)
            bound = tree.run(max_patterns)
            value, point = tree.best, tree.point
        lowest.append(value)
        highest.append(max(bound, value))
        points.append(point)
    return LipschitzBounds(
        torch.tensor(lowest, dtype=torch.float64), torch.tensor(highest, dtype=torch.float64), torch.stack(points)
    )


def _norm(jacobians: Tensor, norm: str) -> Tensor:
    """Returns the norms of matrices of shape (b, out, in)."""
    return torch.linalg.matrix_norm(jacobians, 2) if norm == "2" else jacobians.abs().sum(-1).amax(-1)


def _jacobians(graph: ComputationGraph, x: Tensor) -> Tensor:
    """Returns Jacobians of shape (b, out, in), with the slopes of one side at the kinks."""
    nodes, rows = graph.nodes, graph.output.shape.numel()
    values = {nodes[0]: x}
    for node in nodes[1:]:
        inputs = [values[parent] for parent in node.parents]
        values[node] = inputs[0] + inputs[1] if node.operation is None else node.operation.value(inputs[0])
    slopes = {
        node: node.operation.derivatives(*(values[node.parents[0]],) * 2)[0]
        for node in nodes
        if isinstance(node.operation, Activation)
    }
    identity = torch.eye(rows, dtype=torch.float64, device=x.device).reshape(1, rows, *graph.output.shape)
    found: dict[Node, Tensor] = {graph.output: identity.expand(len(x), *identity.shape[1:])}
    for node in reversed(nodes[1:]):
        a = found.pop(node)
        if isinstance(node.operation, Affine):
            a = transpose(node.operation, a, node.parents[0].shape)
        elif node.operation is not None:
            a = a * slopes[node][:, None]
        for parent in node.parents:
            found[parent] = found[parent] + a if parent in found else a
    return found[nodes[0]].flatten(2)


@torch.no_grad()
def _search(
    graph: ComputationGraph, low: Tensor, high: Tensor, norm: str, samples: int, seed: int
) -> tuple[float, Tensor]:
    """Searches for a point with a large Jacobian: random points, then random steps and gradient ascent from the best.

    Between kinks, the Jacobian of a piecewise-linear network has no gradient, and only the random steps are left.
    """
    generator = torch.Generator(device=low.device).manual_seed(seed)

    def uniform(n: int) -> Tensor:
        return torch.rand(n, *low.shape, generator=generator, dtype=torch.float64, device=low.device)

    chunk = max(1, _LARGEST // (graph.output.shape.numel() * max(node.shape.numel() for node in graph.nodes)))

    def evaluate(x: Tensor) -> Tensor:
        return torch.cat([_norm(_jacobians(graph, part), norm) for part in x.split(chunk)])

    def gradient(x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.clone().requires_grad_()
            total = evaluate(x).sum()
            return torch.autograd.grad(total, x)[0].nan_to_num() if total.requires_grad else torch.zeros_like(x)

    x = low + uniform(samples) * (high - low)
    values = evaluate(x)
    for scale in (0.3, 0.1, 0.1, 0.03, 0.03, 0.01, 0.01, 0.003):
        best = values.topk(min(8, samples)).indices
        x, values = x[best], values[best]
        near = x.repeat_interleave(4, 0)
        steps = torch.cat([2 * uniform(len(near)) - 1, gradient(x).sign()])
        near = torch.cat([near, x]) + scale * steps * (high - low)
        near = torch.minimum(torch.maximum(near, low), high)
        x, values = torch.cat([x, near]), torch.cat([values, evaluate(near)])
    best = int(values.argmax())
    return float(values[best]) / _SLACK, x[best]


@torch.no_grad()
def _product(graph: ComputationGraph, norm: str) -> float:
    """Multiplies the norms of layers, and adds those of sums."""
    found = {graph.nodes[0]: 1.0}
    for node in graph.nodes[1:]:
        inputs = [found[parent] for parent in node.parents]
        if node.operation is None:
            found[node] = sum(inputs) * _SLACK
        elif isinstance(node.operation, Affine):
            found[node] = _operator_norm(node.operation, node.parents[0].shape, node.shape, norm) * inputs[0] * _SLACK
        else:
            found[node] = node.operation.lipschitz * inputs[0] * _SLACK
    return found[graph.output]


def _operator_norm(operation: Affine, before: torch.Size, after: torch.Size, norm: str) -> float:
    device = None if operation.bias is None else operation.bias.device
    rows = float(operation.absolute(torch.ones(1, *before, dtype=torch.float64, device=device)).max()) * _SLACK
    if norm == "inf":
        return rows
    n, m = before.numel(), after.numel()
    if n * m <= _LARGEST:
        matrix = operation.linear(torch.eye(n, dtype=torch.float64, device=device).reshape(n, *before)).flatten(1)
        return float(torch.linalg.matrix_norm(matrix, 2)) * _SLACK
    absolute = Affine(operation.absolute, operation.absolute, operation.terms)
    columns = float(transpose(absolute, torch.ones(1, 1, *after, dtype=torch.float64, device=device), before).max())
    return math.sqrt(rows * columns) * _SLACK


def _jacobian_norm_bound(
    graph: ComputationGraph,
    bounds: dict[Node, Bounds],
    norm: str,
    fixed: dict[Node, tuple[Tensor, Tensor]] | None = None,
) -> Tensor:
    """Bounds the norms of all Jacobians in boxes by an interval matrix, with the range of each derivative."""
    batch = len(bounds[graph.nodes[0]].lower)
    identity = torch.eye(graph.output.shape.numel(), dtype=torch.float64, device=graph.device)
    center = identity.reshape(1, -1, *graph.output.shape).expand(batch, -1, *(-1,) * len(graph.output.shape))
    found = {graph.output: (center, torch.zeros_like(center))}
    for node in reversed(graph.nodes[1:]):
        center, radius = found.pop(node)
        if isinstance(node.operation, Affine):
            operation, shape = node.operation, node.parents[0].shape
            absolute = Affine(operation.absolute, operation.absolute, operation.terms)
            gamma = rounding_factor(node.shape.numel() + 32, torch.float64)
            total = transpose(absolute, center.abs() + radius, shape)
            radius = transpose(absolute, radius, shape) + gamma * total
            center = transpose(operation, center, shape)
        elif node.operation is not None:
            low, high = node.operation.derivatives(*bounds[node.parents[0]])
            if fixed is not None and node in fixed:
                low, high = torch.maximum(low, fixed[node][0]), torch.minimum(high, fixed[node][1])
            middle, spread = ((low + high) / 2)[:, None], ((high - low) / 2)[:, None]
            radius = center.abs() * spread + radius * (middle.abs() + spread) + 1e-15 * (center.abs() + radius)
            center = center * middle
        for parent in node.parents:
            if parent in found:
                found[parent] = (found[parent][0] + center, (found[parent][1] + radius) * (1 + 1e-15))
            else:
                found[parent] = (center, radius)
    center, radius = (part.flatten(2) for part in found[graph.nodes[0]])
    if norm == "inf":
        return _norm(center.abs() + radius, norm) * _SLACK
    return torch.minimum(_norm(center, norm) + _norm(radius, norm), _norm(center.abs() + radius, norm)) * _SLACK


@torch.no_grad()
def _split(graph: ComputationGraph, low: Tensor, high: Tensor, norm: str, splits: int, enough: float) -> float:
    """Bounds the constant on a box by the largest bound on its parts."""

    def bound(lows: Tensor, highs: Tensor) -> list[float]:
        bounds = propagate(graph, Inputs.from_corners(lows, highs), method="crown")
        return _jacobian_norm_bound(graph, bounds, norm).tolist()

    parts = [(bound(low[None], high[None])[0], low, high)]
    for _ in range(splits):
        worst = max(range(len(parts)), key=lambda i: parts[i][0])
        value, a, b = parts[worst]
        if value <= enough * (1 + 1e-9):
            break
        axis = int((b - a).argmax())
        middle_low, middle_high = a.clone(), b.clone()
        middle_low.view(-1)[axis] = middle_high.view(-1)[axis] = (a.view(-1)[axis] + b.view(-1)[axis]) / 2
        lows, highs = torch.stack([a, middle_low]), torch.stack([middle_high, b])
        found = bound(lows, highs)
        parts[worst] = (min(found[0], value), lows[0], highs[0])
        parts.append((min(found[1], value), lows[1], highs[1]))
    return max(value for value, _, _ in parts)


@dataclass
class _PatternTree:
    """Branch and bound over the signs of neurons."""

    graph: ComputationGraph
    low: Tensor
    high: Tensor
    norm: str
    best: float
    """Largest norm of the Jacobian of a region that is known to be there."""
    point: Tensor
    bounds: dict[Node, Bounds] = field(init=False)

    def __post_init__(self) -> None:
        self.bounds = propagate(self.graph, Inputs.from_corners(self.low[None], self.high[None]), method="crown")

    @torch.no_grad()
    def run(self, max_patterns: int) -> float:
        """Returns an upper bound, and updates the best region."""
        start: dict[Node, Tensor] = {}
        for node in self.graph.nodes:
            if isinstance(node.operation, Activation):
                low, high = (x[0].flatten() for x in self.bounds[node.parents[0]])
                start[node] = (low >= 0).double() - (high <= 0).double()
        empty = np.zeros((0, self.low.numel())), np.zeros(0)
        stack = [(self._bound(start), start, *empty)]
        closed = 0.0
        for _ in range(max_patterns):
            if not stack:
                return max(closed, self.best)
            bound, signs, rows, shifts = stack.pop()
            if bound <= self.best * (1 + 1e-12):
                closed = max(closed, min(bound, self.best * _SLACK))
                continue
            signs = dict(signs)
            branch = self._next(signs, rows, shifts)
            if branch is None:
                value = float(self._region_norm(signs))
                closed = max(closed, value * _SLACK)
                inside = self._interior(signs, rows, shifts)
                if inside is not None and value / _SLACK > self.best:
                    self.best, self.point = value / _SLACK, inside
                continue
            node, i, row, shift = branch
            children = []
            for sign in (1.0, -1.0):
                child = signs | {node: signs[node].clone()}
                child[node][i] = sign
                # sign * (row x + shift) >= 0
                more = np.vstack([rows, sign * row]), np.append(shifts, sign * shift)
                children.append((min(bound, self._bound(child)), child, *more))
            stack += sorted(children, key=lambda item: item[0])
        return max([closed, self.best, *(item[0] for item in stack)])

    def _bound(self, signs: dict[Node, Tensor]) -> float:
        """Bounds the norm of the Jacobian for signs, of which some are open."""
        fixed = {}
        for node, sign in signs.items():
            slope = node.operation.negative_slope if isinstance(node.operation, LeakyReLU) else 0.0
            low, high = min(slope, 1.0), max(slope, 1.0)
            a = torch.where(sign > 0, 1.0, torch.where(sign < 0, slope, low)).double()
            b = torch.where(sign > 0, 1.0, torch.where(sign < 0, slope, high)).double()
            fixed[node] = a.reshape(1, *node.shape), b.reshape(1, *node.shape)
        return float(_jacobian_norm_bound(self.graph, self.bounds, self.norm, fixed))

    def _maps(self, signs: dict[Node, Tensor], stop: Node) -> tuple[Tensor, Tensor]:
        """Returns the affine map from the input to a node for signs, as a matrix (in, out) and a shift (out,)."""
        size = self.low.numel()
        inputs = torch.cat([torch.zeros(1, size, dtype=torch.float64), torch.eye(size, dtype=torch.float64)])
        values = {self.graph.nodes[0]: inputs.to(self.low).reshape(-1, *self.low.shape)}
        for node in self.graph.nodes[1:]:
            parents = [values[parent] for parent in node.parents]
            if node.operation is None:
                found = parents[0] + parents[1]
            elif isinstance(node.operation, LeakyReLU):
                slope = torch.where(signs[node] > 0, 1.0, node.operation.negative_slope).double()
                found = parents[0] * slope.reshape(node.shape)
            else:
                found = node.operation.value(parents[0])
            values[node] = found
            if node is stop:
                break
        flat = values[stop].flatten(1)
        return flat[1:] - flat[0], flat[0]

    def _region_norm(self, signs: dict[Node, Tensor]) -> Tensor:
        return _norm(self._maps(signs, self.graph.output)[0].T[None], self.norm)[0]

    def _next(
        self, signs: dict[Node, Tensor], rows: np.ndarray, shifts: np.ndarray
    ) -> tuple[Node, int, np.ndarray, float] | None:
        """Returns the first neuron that has both signs in the region. Settles the others."""
        for node, sign in signs.items():
            unknown = (sign == 0).nonzero().flatten().tolist()
            if not unknown:
                continue
            matrix, shift = (x.cpu().numpy() for x in self._maps(signs, node.parents[0]))
            settled = sign.clone()
            signs[node] = settled
            for i in unknown:
                row, constant = matrix[:, i], float(shift[i])
                size = float(np.abs(row).sum() * self.high.abs().max()) + abs(constant) + 1e-300
                smallest, largest = (s * self._optimum(s * row, rows, shifts) + constant for s in (1, -1))
                if smallest >= -_TOLERANCE * size:
                    settled[i] = 1.0
                elif largest <= _TOLERANCE * size:
                    settled[i] = -1.0
                else:
                    return node, i, row, constant
        return None

    def _optimum(self, cost: np.ndarray, rows: np.ndarray, shifts: np.ndarray) -> float:
        """Minimizes a linear function over the region."""
        from scipy.optimize import linprog

        low, high = (x.flatten().cpu().numpy() for x in (self.low, self.high))
        if not len(rows):
            return float(np.minimum(cost * low, cost * high).sum())
        result = linprog(cost, A_ub=-rows, b_ub=shifts, bounds=np.stack([low, high], 1), method="highs")
        return float(result.fun) if result.status == 0 else math.inf

    def _interior(self, signs: dict[Node, Tensor], rows: np.ndarray, shifts: np.ndarray) -> Tensor | None:
        """Returns a point that has the signs, or None if none is found."""
        from scipy.optimize import linprog

        low, high = (x.flatten().cpu().numpy() for x in (self.low, self.high))
        if not len(rows):
            return (self.low + self.high) / 2
        lengths = np.linalg.norm(rows, axis=1)
        table = np.hstack([-rows, lengths[:, None]])
        box = [*np.stack([low, high], 1).tolist(), (0, None)]
        cost = np.append(np.zeros(len(low)), -1.0)
        result = linprog(cost, A_ub=table, b_ub=shifts, bounds=box, method="highs")
        if result.status != 0 or result.x[-1] <= 0:
            return None
        x = torch.from_numpy(result.x[:-1]).to(self.low).reshape(self.low.shape)
        for node, sign in signs.items():
            matrix, shift = self._maps(signs, node.parents[0])
            if bool(((x.flatten() @ matrix + shift) * sign < 0).any()):
                return None
        return x
