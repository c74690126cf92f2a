r"""Networks with other activations: fitted by least squares, and certified afterwards.

A network with one hidden layer and any activation that is not a polynomial can approximate every continuous function.
The output weights are a least-squares fit. The certificate encloses the difference between the function and the
network, and its second derivative, on each of many small cells.

Reference: Leshno, Lin, Pinkus and Schocken, Multilayer Feedforward Networks With a Nonpolynomial Activation Function
    Can Approximate Any Function, 1993.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor, nn

from lawful._suggest import did_you_mean
from lawful.theory._expressions import Expression, parse_expression
from lawful.theory._intervals import Interval, Jet
from lawful.theory._rounding import rounding_factor
from lawful.theory._univariate import TooLargeError

ACTIVATIONS: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "tanh": ("tanh(u)", nn.Tanh),
    "sigmoid": ("sigmoid(u)", nn.Sigmoid),
    "softplus": ("softplus(u)", nn.Softplus),
    "silu": ("u * sigmoid(u)", nn.SiLU),
    "gelu": ("u * (1 + erf(u / sqrt(2))) / 2", nn.GELU),
}
"""Each activation as an expression, and its module."""
BOUNDED = ("tanh", "sigmoid")
LIPSCHITZ, ULPS = 1.2, 16
"""All activations have this Lipschitz constant. PyTorch's are assumed to be within ULPS unit roundoffs of 1 + |u|."""
_POLYNOMIALS = {"identity": "x", "linear": "x", "square": "x^2", "cube": "x^3"}
_MAX_CELLS = 200_000


def check_activation(name: str) -> None:
    """Raises an error for an activation that is a polynomial or unknown."""
    if name in (*ACTIVATIONS, "relu"):
        return
    try:
        degree = _degree(parse_expression(_POLYNOMIALS.get(name, name), ["x"]))
    except ValueError:
        degree = None
    if degree is not None:
        raise ValueError(
            f"activation must not be a polynomial: got {name}. With a polynomial of degree {degree}, every network "
            f"with one hidden layer is a polynomial of degree at most {degree}, and these are not dense "
            "(Leshno et al., 1993)"
        )
    known = ("relu", *ACTIVATIONS)
    raise ValueError(f"activation must be one of {', '.join(known)}: got {name!r}{did_you_mean(name, known)}")


def _degree(f: Expression) -> int | None:
    """Returns the degree of a polynomial, and None for other expressions."""
    if not f.variables:
        return 0
    if f.op == "variable":
        return 1
    degrees = [_degree(arg) for arg in f.args]
    if None in degrees or f.op not in ("+", "-", "*", "/", "neg", "^"):
        return None
    numbers = [degree or 0 for degree in degrees]
    if f.op == "^":
        exponent = Fraction(f.value)
        return numbers[0] * int(exponent) if exponent.denominator == 1 and exponent > 0 else None
    if f.op == "/":
        return numbers[0] if not f.args[1].variables else None
    return sum(numbers) if f.op == "*" else max(numbers)


def fit_network(
    target: Expression, low: float, high: float, error: float, *, activation: str, dtype: torch.dtype, max_units: int
) -> tuple[nn.Sequential, float, list[float]]:
    """Fits networks with more and more units until one has a certificate.

    Args:
        target: Function of `u`.
        low: Start of the interval.
        high: End of the interval.
        error: Largest error.
        activation: Name of the activation.
        dtype: Dtype of the network.
        max_units: Maximum number of hidden units.

    Returns:
        The network, the bound of its error, and the points between which it is certified.
    """
    grid = low + (high - low) * (1 - np.cos(np.linspace(0, np.pi, 1001))) / 2
    with np.errstate(all="ignore"):
        values = target.jet({"u": Jet.variable(Interval(grid, grid))}).value
    exact = (values.low + values.high) / 2
    if not np.isfinite(exact).all():
        place = grid[int(np.argmin(np.isfinite(exact)))]
        raise ValueError(f"the function has no finite bound near {place:.6g}: choose a box without that point")
    units, smallest = 3, np.inf
    while units <= min(max_units, 500):
        for sharpness in (1.0, 0.5, 2.0, 0.25, 4.0):
            network = _fit(grid, exact, units, sharpness, activation, dtype)
            with torch.no_grad():
                found = network(torch.from_numpy(grid).to(dtype)[:, None])[:, 0].double().numpy()
            worst = float(np.abs(found - exact).max())
            smallest = min(smallest, worst)
            if worst < 0.97 * error:
                certified = certify_network(network, target, low, high, error, activation)
                if certified is not None:
                    return network, *certified
        units += max(1, units // 4)
    raise TooLargeError(
        f"error={error:g} is too small for activation={activation!r}: no fit with up to {min(max_units, 500)} units "
        f"has a certificate. The best fit had {smallest:.2g} on a grid: use dtype=torch.float64 or activation='relu'"
    )


def _fit(
    x: np.ndarray, y: np.ndarray, units: int, sharpness: float, activation: str, dtype: torch.dtype
) -> nn.Sequential:
    """Fits the output weights by least squares, with more weight where the error is large."""
    low, high = x[0], x[-1]
    centers = low + (high - low) * (np.arange(units) + 0.5) / units
    slope = 4 * sharpness * units / (high - low) / 2
    signs = np.where(np.arange(units) % 2, -1.0, 1.0)
    hidden, output = nn.Linear(1, units, dtype=dtype), nn.Linear(units, 1, dtype=dtype)
    module = ACTIVATIONS[activation][1]()
    with torch.no_grad():
        hidden.weight.copy_(torch.from_numpy(slope * signs)[:, None])
        hidden.bias.copy_(torch.from_numpy(-slope * signs * centers))
        a, b = hidden.weight.double(), hidden.bias.double()
        features = module(torch.from_numpy(x)[:, None] * a[:, 0] + b).numpy()
        features = np.concatenate([features, np.ones((len(x), 1))], 1)
        weight = np.ones(len(x))
        best = np.inf
        for _ in range(12):  # Lawson's algorithm
            root = np.sqrt(weight / weight.sum())
            solution = np.linalg.lstsq(
                features * root[:, None], y * root, rcond=1e-6 if dtype == torch.float32 else 1e-12
            )[0]
            residual = np.abs(features @ solution - y)
            if residual.max() < best:
                best = residual.max()
                output.weight.copy_(torch.from_numpy(solution[:-1])[None])
                output.bias.copy_(torch.from_numpy(solution[-1:]))
            weight = weight * (residual / max(residual.max(), 1e-300) + 1e-3)
    return nn.Sequential(hidden, module, output)


def certify_network(
    network: nn.Sequential, target: Expression, low: float, high: float, error: float, activation: str
) -> tuple[float, list[float]] | None:
    """Bounds the error of a network with one hidden layer on an interval.

    Returns:
        The bound and the points, or None if the bound is not below `error`.
    """
    first, last = (layer for layer in network if isinstance(layer, nn.Linear))
    a, b, c = (_to_array(x) for x in (first.weight[:, 0], first.bias, last.weight[0]))
    offset = float(last.bias.detach()[0])
    rounding = _rounding(a, b, c, offset, max(abs(low), abs(high)), activation, first.weight.dtype)
    shape = parse_expression(ACTIVATIONS[activation][0], ["u"])
    weights, slopes, shifts = (Interval(v[None], v[None]) for v in (c, a, b))

    def difference(x: Interval) -> Jet:
        """Encloses the function minus the network."""
        column = Interval(x.low[:, None], x.high[:, None])
        zero = Interval(np.zeros((1, 1)), np.zeros((1, 1)))
        units = shape.jet({"u": Jet(column * slopes + shifts, slopes, zero)})
        with np.errstate(all="ignore"):
            sums = [_sum(part * weights) for part in (units.value, units.first, units.second)]
        total = Jet(sums[0] + Interval(np.array(offset), np.array(offset)), sums[1], sums[2])
        return target.jet({"u": Jet.variable(x)}) - total

    start = np.linspace(low, high, 65)
    left, right = start[:-1], start[1:]
    points, bound = [low, high], 0.0
    while len(left):
        if len(points) + len(left) > _MAX_CELLS:
            return None
        ends = [difference(Interval(left[i : i + 500], left[i : i + 500])).value for i in range(0, len(left), 500)]
        if max(float(np.maximum(end.low, -end.high).max()) for end in ends) > error:
            return None
        bounds = np.concatenate(
            [_cell_bound(difference, left[i : i + 500], right[i : i + 500]) for i in range(0, len(left), 500)]
        )
        done = bounds + rounding <= error
        bound = max(bound, float(bounds[done].max(initial=0.0)))
        points += [*left[done].tolist(), *right[done].tolist()]
        left, right = left[~done], right[~done]
        middle = (left + right) / 2
        if ((middle <= left) | (middle >= right)).any() or (len(left) and (right - left).min() < 1e-9 * (high - low)):
            return None
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
    total = (bound + rounding) * (1 + 1e-12)
    return (total, np.unique(points).tolist()) if total <= error else None


def _to_array(x: Tensor) -> np.ndarray:
    return x.detach().cpu().double().numpy()


def _cell_bound(difference: Callable[[Interval], Jet], left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Bounds the absolute value of a function on cells."""
    with np.errstate(all="ignore"):
        ends = np.maximum(
            difference(Interval(left, left)).value.magnitude, difference(Interval(right, right)).value.magnitude
        )
        whole = difference(Interval(left, right))
        width = np.nextafter(right - left, np.inf) * (1 + 1e-14)
        bounds = [
            whole.value.magnitude,
            ends + width / 2 * whole.first.magnitude,
            ends + width**2 / 8 * whole.second.magnitude,
        ]
        return np.min([np.where(np.isnan(bound), np.inf, bound) for bound in bounds], 0)


def _sum(x: Interval) -> Interval:
    """Adds the columns."""
    slack = x.low.shape[-1] * 2.0**-52 * x.magnitude.sum(-1)
    return Interval(x.low.sum(-1) - slack, x.high.sum(-1) + slack)


def _rounding(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, offset: float, largest: float, activation: str, dtype: torch.dtype
) -> float:
    """Bounds the rounding of a network with one hidden layer."""
    reach = np.abs(a) * largest + np.abs(b)
    size = np.ones_like(reach) if activation in BOUNDED else 1 + reach
    unit = torch.finfo(dtype).eps / 2
    each = LIPSCHITZ * rounding_factor(3, dtype) * reach + ULPS * unit * size
    total = float(np.abs(c) @ size) + abs(offset)
    return (float(np.abs(c) @ each) + rounding_factor(len(c) + 2, dtype) * 1.01 * total) * (1 + 1e-12)
