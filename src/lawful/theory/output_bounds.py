r"""Certified bounds of the outputs of a network on a box of inputs.

Interval arithmetic bounds each layer by the one before. CROWN bounds each activation by two lines and passes the
coefficients of the output back to the input, so that dependences between neurons are kept:

$$c^\top f(x) \ge a^\top x + d \quad \text{for all } x \text{ in the box}, \qquad
\min_{|x - x_0| \le r} a^\top x + d = a^\top x_0 - |a|^\top r + d .$$

The bounds hold in exact arithmetic and for what PyTorch computes. Everything here is computed in float64, and every
step adds a bound of its own rounding: a sum of $n$ products is wrong by at most
$\gamma_n |A| |x|$, where $|x|$ is bounded by the bounds of the layer. A last term covers the rounding of `network(x)`
in its own dtype, for any order of the sums. It assumes IEEE arithmetic, as PyTorch has by default: no TF32 and no
bfloat16 products of float32 matrices, and elementary functions that are accurate to eight units in the last place.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from lawful.theory._graph import record
from lawful.theory._propagation import METHODS, Bounds, Inputs, Method, check_box, evaluation_error, propagate


def output_bounds(
    network: nn.Module,
    lower: Float[Tensor, "n ..."],
    upper: Float[Tensor, "n ..."],
    *,
    method: Method = "crown",
    steps: int = 30,
    rounding: bool = True,
) -> Bounds:
    """Bounds the outputs of a network for all inputs in a box.

    `"ibp"` takes one forward pass and is loose for deep networks. `"crown"` bounds every layer by a backward pass.
    `"alpha-crown"` also optimizes the slopes of the lines that bound the activations, for each neuron and output.

    Reference: Gowal and others, On the Effectiveness of Interval Bound Propagation for Training Verifiably Robust
        Models, 2018; Zhang, Weng, Chen, Hsieh and Daniel, Efficient Neural Network Robustness Certification with
        General Activation Functions, 2018 (CROWN); Xu and others, Fast and Complete, 2021 (alpha-CROWN).

    Args:
        network: Network in eval mode of affine layers, convolutions, elementwise activations, batch norm, average
            pooling, flatten and sums. Its forward pass must not depend on the values of the input.
        lower: Lower corners of a batch of boxes.
        upper: Upper corners.
        method: `"ibp"`, `"crown"` or `"alpha-crown"`.
        steps: Steps of Adam of `"alpha-crown"`.
        rounding: Whether to cover the rounding of `network(x)` as well. Otherwise the bounds hold for the network in
            exact arithmetic.

    Returns:
        Lower and upper bounds in float64, of the shape of `network(lower)`.

    Examples:
        >>> import torch
        >>> difference = nn.Linear(2, 1, bias=False)
        >>> _ = nn.init.constant_(difference.weight, 1.0).data[0, 1].neg_()
        >>> network = nn.Sequential(nn.Linear(1, 2), difference)
        >>> _ = nn.init.ones_(network[0].weight), nn.init.zeros_(network[0].bias)
        >>> zero, one = torch.zeros(1, 1), torch.ones(1, 1)
        >>> for method in ("ibp", "crown"):  # x - x
        ...     bounds = output_bounds(network, zero, one, method=method)
        ...     print(round(bounds.lower.item(), 3), round(bounds.upper.item(), 3))
        -1.0 1.0
        -0.0 0.0
    """
    if method not in METHODS:
        raise ValueError(f"method must be 'ibp', 'crown' or 'alpha-crown': got {method!r}")
    if steps < 0:
        raise ValueError(f"steps must not be negative: got {steps}")
    lower, upper = check_box(lower, upper)
    graph = record(network, lower)
    inputs = Inputs.from_corners(lower.to(graph.device), upper.to(graph.device))
    bounds = propagate(graph, inputs, method=method, steps=steps)
    low, high = bounds[graph.output]
    if rounding:
        error = evaluation_error(graph, bounds)
        low, high = low - error, high + error
    return Bounds(low, high)
