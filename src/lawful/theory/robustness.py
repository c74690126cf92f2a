r"""Certified robustness of classifiers.

A label is certified in a region if $f_y - f_j$ has a positive lower bound there for every other class $j$. The
difference is bounded as one linear function of the outputs, which is tighter than bounds of both.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.theory._graph import ComputationGraph, record
from lawful.theory._propagation import Inputs, Method, evaluation_error, linear_lower_bound, propagate

_Norm = Literal["inf", "2"]


def robustness_radius(
    network: nn.Module,
    x: Float[Tensor, "n ..."],
    label: Int[Tensor, " n"],
    *,
    norm: _Norm = "inf",
    input_range: tuple[float, float] | None = None,
    max_radius: float = 1.0,
    method: Method = "crown",
    steps: int = 12,
) -> Float[Tensor, " n"]:
    r"""Returns radii within which a classifier is proven to predict the label.

    $$\arg\max_j f_j(x') = y \quad \text{for all } x' \text{ with } \|x' - x\| \le r$$

    The radius is found by bisection. It is 0 if the prediction at $x$ is wrong. The proof covers the rounding of
    `network(x)`.

    Reference: Zhang, Weng, Chen, Hsieh and Daniel, Efficient Neural Network Robustness Certification with General
        Activation Functions, 2018.

    Args:
        network: Classifier that returns logits. `output_bounds` lists the layers that it may have.
        x: Batch of inputs.
        label: Classes.
        norm: `"inf"` or `"2"`.
        input_range: Smallest and largest value of an input. None for all real numbers.
        max_radius: Largest radius that is tried.
        method: `"ibp"`, `"crown"` or `"alpha-crown"`.
        steps: Steps of the bisection. Each halves the gap to the largest radius that the method proves.

    Examples:
        >>> linear = nn.Linear(2, 2, bias=False)
        >>> linear.weight.data = torch.eye(2)
        >>> radius = robustness_radius(linear, torch.tensor([[0.7, 0.1]]), torch.tensor([0]), steps=20)
        >>> round(radius.item(), 4)
        0.3
    """
    if norm not in ("inf", "2"):
        raise ValueError(f"norm must be 'inf' or '2': got {norm!r}")
    if method not in ("ibp", "crown", "alpha-crown"):
        raise ValueError(f"method must be 'ibp', 'crown' or 'alpha-crown': got {method!r}")
    if not 0 < max_radius < float("inf"):
        raise ValueError(f"max_radius must be positive and finite: got {max_radius}")
    if x.ndim < 2 or not bool(x.isfinite().all()):
        raise ValueError(f"x must be a batch of finite inputs, of shape (n, ...): got shape {tuple(x.shape)}")
    if label.shape != x.shape[:1] or label.is_floating_point():
        raise ValueError(f"label must be one class for each input: got {tuple(label.shape)} for {tuple(x.shape)}")
    if input_range is not None and not bool(((x >= input_range[0]) & (x <= input_range[1])).all()):
        raise ValueError(f"x must be within input_range={input_range}: got {x.min():.4g} to {x.max():.4g}")
    graph = record(network, x)
    if len(graph.output.shape) != 1 or graph.output.shape[0] < 2:
        raise ValueError(f"network must return logits of at least two classes: got shape {tuple(graph.output.shape)}")
    classes = graph.output.shape[0]
    if not bool(((label >= 0) & (label < classes)).all()):
        raise ValueError(f"label must be in 0 to {classes - 1}: got {label.min()} to {label.max()}")
    x, label = x.detach().to(graph.device).double(), label.to(graph.device)
    certified = torch.zeros(len(x), dtype=torch.float64, device=graph.device)
    low, high = certified.clone(), certified + max_radius
    radius = high.clone()
    possible = _certify(graph, x, label, certified, norm, input_range, method)
    for _ in range(steps + 1):
        proven = _certify(graph, x, label, radius, norm, input_range, method) & possible
        low, high = torch.where(proven, radius, low), torch.where(proven, high, radius)
        radius = (low + high) / 2
    return low


def _certify(
    graph: ComputationGraph,
    x: Tensor,
    label: Tensor,
    radius: Tensor,
    norm: _Norm,
    input_range: tuple[float, float] | None,
    method: Method,
) -> Tensor:
    """Returns for each input whether all predictions within its radius are proven to be the label."""
    size = radius.reshape(-1, *(1,) * (x.ndim - 1)) * (1 + 2**-50)
    lower, upper = x - size, x + size
    if input_range is not None:
        lower, upper = lower.clamp(min=input_range[0]), upper.clamp(max=input_range[1])
    region = Inputs.from_corners(lower, upper, ball=(x, radius) if norm == "2" else None)
    bounds = propagate(graph, region, method=method)
    classes = graph.output.shape[0]
    identity = torch.eye(classes, dtype=torch.float64, device=x.device)
    others = torch.stack([torch.cat([identity[:y], identity[y + 1 :]]) for y in label.tolist()])
    rows = identity[label][:, None] - others
    error = evaluation_error(graph, bounds)
    error = (rows.abs() @ error[..., None])[..., 0] * (1 + 1e-9)
    low, high = bounds[graph.output]
    margin = low.gather(1, label[:, None]) - (others @ high[..., None])[..., 0]
    margin = margin - 2**-50 * margin.abs()
    if method != "ibp":
        steps = 30 if method == "alpha-crown" else 0
        margin = torch.fmax(margin, linear_lower_bound(graph, graph.output, rows, region, bounds, steps=steps))
    return (margin > error).all(1)
