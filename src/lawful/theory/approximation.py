r"""Networks that approximate a function, with a certified bound of the error on a whole box.

The universal approximation theorem says that for every continuous function and every error there is a network with one
hidden layer. `approximate` returns one, and a certificate: a bound of the largest error on the box, rounding included,
with the data that another program needs to check it. Nothing is sampled: all bounds come from interval arithmetic.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from lawful import _json
from lawful._files import write_file
from lawful.theory._budget import divide_error
from lawful.theory._decomposition import Decomposition
from lawful.theory._exponentials import certify_difference, fit_exponentials
from lawful.theory._expressions import Expression, parse_expression, trace_expression, variable
from lawful.theory._fitted import ULPS, certify_network, check_activation, fit_network
from lawful.theory._rounding import round_up
from lawful.theory._superposition import Signal, Term, build_network, certify
from lawful.theory._univariate import Enclosed, ExpressionFunction, SampledFunction, TooLargeError

_Box = Sequence[float] | Sequence[Sequence[float]] | Mapping[str, Sequence[float]]
_DTYPES = {"float32": torch.float32, "float64": torch.float64}
_FORMAT = "lawful-approximation"
_MAX_LEVELS, _MAX_CHOSEN_LEVELS, _MAX_UNITS = 16, 100, 10**6
"""Maximum number of levels that are tried, of levels that may be chosen, and of hidden units that may be allowed."""


@dataclass(frozen=True)
class ApproximationCertificate:
    """A bound of the largest error of a network on a box, and the data that is needed to check it.

    The bound holds for every input of the dtype in the box and any order of the sums, in IEEE arithmetic, as PyTorch
    has by default: no TF32 and no bfloat16 products of float32 matrices.
    """

    expression: str | None
    """The function. None for a callable, which the certificate does not contain."""
    box: Mapping[str, tuple[float, float]]
    """Interval of each variable, in the order of the inputs of the network."""
    error: float
    """Error that was asked for."""
    bound: float
    """Certified bound of the largest error: at most `error`."""
    dtype: str
    """Dtype of the network."""
    hidden_dims: tuple[int, ...]
    """Sizes of the hidden layers."""
    layers: tuple[tuple[Mapping[str, Any], ...], ...]
    """For each affine map of the network the signals that it computes: their units, range and error, and the functions
    of one variable that they are sums of, with the points where these are checked."""
    assumption: str = ""
    """Assumption of the bound about a callable."""
    network_sha256: str = ""
    """SHA-256 of the network as a safetensors file."""
    activation: str = "relu"
    """Name of the activation. A network with another one than ReLU has one signal, the network itself."""
    surrogate: Mapping[str, Any] | None = None
    """A sum of exponentials that the layers compute instead of the expression, its error on the box, and the numbers of
    equal cells on which that is certified."""

    @property
    def num_units(self) -> int:
        """Number of hidden units."""
        return sum(self.hidden_dims)

    @property
    def num_points(self) -> int:
        """Number of points between which the bound is checked."""
        return sum(len(term["points"]) for layer in self.layers for signal in layer for term in signal["terms"])

    def check(self, network: nn.Sequential) -> float:
        """Computes the bound of a network again, from its weights and the functions in `layers`.

        It does not check that these functions compose to the expression: `examples/check_certificate.py` does.

        Args:
            network: The network.

        Raises:
            ValueError: If the network does not have the structure that the certificate describes, or if the certificate
                is about a callable.
        """
        if self.expression is None:
            raise ValueError("the certificate is about a callable, which it does not contain")
        if self.activation != "relu":
            ((name, (low, high)),) = self.box.items()
            target = parse_expression(self.expression).substitute(**{name: variable("u")})
            found = certify_network(network, target, low, high, self.error, self.activation)
            return math.inf if found is None else found[0]
        functions: list[list[list[Enclosed]]] = [
            [[ExpressionFunction(parse_expression(term["function"], ["u"])) for term in s["terms"]] for s in layer]
            for layer in self.layers
        ]
        records = [[dict(signal) for signal in layer] for layer in self.layers]
        bound = certify(_weights(network), records, functions, list(self.box.values()), _DTYPES[self.dtype])[0]
        if self.surrogate is None:
            return bound
        names = list(self.box)
        target, total = (parse_expression(text, names) for text in (self.expression, self.surrogate["expression"]))
        distance = certify_difference(target - total, self.box, self.surrogate["cells"])
        return round_up(Fraction(bound) + Fraction(distance))

    def to_json(self) -> dict[str, Any]:
        """Returns the certificate as JSON data."""
        return {"format": _FORMAT, "version": 1, **_json.to_json(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ApproximationCertificate:
        """Reads a certificate from JSON data."""
        if data.get("format") != _FORMAT or data.get("version") != 1:
            raise ValueError(f"expected a certificate with format {_FORMAT!r} and version 1")
        fields = {key: value for key, value in data.items() if key not in ("format", "version")}
        fields["box"] = {name: (low, high) for name, (low, high) in fields["box"].items()}
        fields["hidden_dims"] = tuple(fields["hidden_dims"])
        fields["layers"] = tuple(tuple(layer) for layer in fields["layers"])
        return cls(**fields)

    def save(self, folder: str | Path, network: nn.Sequential) -> None:
        """Writes `network.safetensors` and `certificate.json`.

        Args:
            folder: Folder, which is created.
            network: The network of the certificate.
        """
        path, data = Path(folder), _serialize(network)
        if hashlib.sha256(data).hexdigest() != self.network_sha256:
            raise ValueError("network must be the one of the certificate: its weights differ")
        path.mkdir(parents=True, exist_ok=True)
        write_file(path / "network.safetensors", data)
        write_file(path / "certificate.json", _json.dump(self.to_json()))

    def __str__(self) -> str:
        where = ", ".join(f"{name} from {low:g} to {high:g}" for name, (low, high) in self.box.items())
        name = "the function" if self.expression is None else self.expression
        layers = f"{len(self.hidden_dims)} hidden layer{'s' * (len(self.hidden_dims) != 1)}"
        name_of_units = "ReLU" if self.activation == "relu" else f"{self.activation} unit"
        units = f"{self.num_units} {name_of_units}{'s' * (self.num_units != 1)}"
        text = (
            f"For all {where}, the {self.dtype} network differs from {name} by at most {self.bound:.3g}.\n"
            f"It has {units} in {layers}. The bound includes rounding, and is checked on {self.num_points:,} points."
        )
        return text + (f"\nIt assumes that {self.assumption}." if self.assumption else "")


def approximate(
    function: str | Expression | Callable[..., Any],
    box: _Box,
    error: float,
    *,
    lipschitz: float | None = None,
    modulus: Callable[[float], float] | None = None,
    activation: str = "relu",
    method: Literal["squares", "exponentials"] = "squares",
    levels: int | None = None,
    dtype: torch.dtype | None = None,
    max_units: int = 10_000,
) -> tuple[nn.Sequential, ApproximationCertificate]:
    r"""Builds a ReLU network whose error is certified to be at most `error` on a whole box.

    In one dimension the network has one hidden layer. It is piecewise linear with few pieces in the tube
    $|f - \hat f| \le \epsilon$. The points between which this is certified are chosen such that $f$ is close to a line
    between two of them, by the remainder $h^2 / 8 \sup |f''|$, the mean value theorem or the range of $f$.

    Reference: Leshno, Lin, Pinkus and Schocken, Multilayer Feedforward Networks With a Nonpolynomial Activation
        Function Can Approximate Any Function, 1993.

    Args:
        function: Expression such as `"sin(x)"`, or a function of numbers that uses operators and functions of PyTorch.
            With `lipschitz` or `modulus`, any function of a tensor. Arguments of `sqrt` and `log` from -1e-12 to 0
            count as 0, because rounding produces them.
        box: `(low, high)`, or one such pair for each variable.
        error: Largest error.
        lipschitz: Lipschitz constant of a callable of one variable.
        modulus: Modulus of continuity of a callable of one variable: $|f(x) - f(y)| \le \omega(|x - y|)$.
        activation: Name of the activation: relu, or for an expression of one variable tanh, sigmoid, softplus, silu or
            gelu, which is fitted by least squares and certified afterwards.
        method: For several variables: products as squares, or as in the proof of the universal approximation theorem
            one hidden layer for a sum of exponentials, which is larger, and suits two variables and moderate errors.
        levels: Number of layers that refine the approximation of each square. None for the number that needs the fewest
            units; 0 for squares in one layer.
        dtype: Dtype of the network, float32 or float64. None for PyTorch's default dtype.
        max_units: Maximum number of hidden units.

    Returns:
        The network, of inputs of shape (*batch, d) and outputs of shape (*batch, 1), and its certificate.

    Raises:
        ValueError: If the function is not continuous on the box, or the error is too small for `dtype` or `max_units`.

    Examples:
        >>> network, certificate = approximate("sin(x)", (-3, 3), 0.01)
        >>> certificate.bound <= 0.01, certificate.hidden_dims
        (True, (13,))
        >>> network(torch.tensor([[0.5]])).shape
        torch.Size([1, 1])
    """
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if dtype not in _DTYPES.values():
        raise ValueError(f"dtype must be torch.float32 or torch.float64: got {dtype}")
    if isinstance(error, bool) or not isinstance(error, int | float) or not 0 < error < math.inf:
        reason = ". Only piecewise-linear functions have error 0: use compile_piecewise_linear" if error == 0 else ""
        raise ValueError(f"error must be a positive number: got {error}{reason}")
    if levels is not None and not 0 <= levels <= _MAX_CHOSEN_LEVELS:
        raise ValueError(f"levels must be from 0 to {_MAX_CHOSEN_LEVELS}: got {levels}")
    if not 1 <= max_units <= _MAX_UNITS:
        raise ValueError(f"max_units must be from 1 to {_MAX_UNITS:,}: got {max_units}")
    target, intervals, assumption = _read(function, box, lipschitz, modulus)
    check_activation(activation)
    if method not in ("squares", "exponentials"):
        raise ValueError(f"method must be squares or exponentials: got {method!r}")
    if method == "exponentials" and (isinstance(target, SampledFunction) or activation != "relu" or levels):
        raise ValueError("method='exponentials' needs an expression, activation='relu' and no levels")
    if activation != "relu":
        if isinstance(target, SampledFunction) or len(intervals) > 1:
            raise ValueError(f"activation={activation!r} needs an expression of one variable: use activation='relu'")
        if levels is not None:
            raise ValueError(f"levels is for activation='relu': got activation={activation!r}")
        return _fit(target, intervals, float(error), activation, dtype, max_units)
    if isinstance(target, SampledFunction):
        layers = [[Signal([Term(0, variable("u"))])], [Signal([Term(0, target)])]]
        return _build(layers, intervals, float(error), dtype, max_units, target, assumption)
    if method == "exponentials":
        total, distance, cells = fit_exponentials(target, intervals, 0.5 * float(error))
        layers = Decomposition(total, intervals).layers()
        network, certificate = _build(layers, intervals, error - distance, dtype, max_units, total, assumption)
        return network, replace(
            certificate,
            expression=str(target),
            error=float(error),
            bound=round_up(Fraction(certificate.bound) + Fraction(distance)),
            surrogate={"expression": str(total), "error": distance, "cells": cells},
        )
    best: tuple[nn.Sequential, ApproximationCertificate] | None = None
    failure: ValueError | None = None
    depth = 0
    for count in range(_MAX_LEVELS) if levels is None else [levels]:
        try:
            layers = Decomposition(target, intervals, levels=count).layers()
            if levels is None and len(layers) == depth:  # there are no squares
                break
            depth = len(layers)
            found = _build(layers, intervals, float(error), dtype, max_units, target, assumption)
        except TooLargeError as too_large:
            failure = too_large
            continue
        except ValueError:
            if depth and best is not None:  # with deep squares, the ranges are larger, and may contain a pole
                break
            raise
        if best is not None and found[1].num_units >= best[1].num_units:
            break
        best = found
    if best is None:
        raise failure or TooLargeError(f"error={error:g} is too small")
    return best


def _fit(
    target: Expression,
    box: Mapping[str, tuple[float, float]],
    error: float,
    activation: str,
    dtype: torch.dtype,
    max_units: int,
) -> tuple[nn.Sequential, ApproximationCertificate]:
    """Fits a network with another activation."""
    ((name, (low, high)),) = box.items()
    function = target.substitute(**{name: variable("u")})
    network, bound, points = fit_network(
        function, low, high, error, activation=activation, dtype=dtype, max_units=max_units
    )
    term = {"source": 0, "function": str(function), "constant": 0.0, "points": points, "error": bound}
    return network, ApproximationCertificate(
        str(target),
        box,
        error,
        bound,
        str(dtype).removeprefix("torch."),
        tuple(m.out_features for m in network if isinstance(m, nn.Linear))[:-1],
        (({"units": [], "range": [], "error": bound, "terms": [term]},),),
        f"PyTorch's {activation} of u is within {ULPS} unit roundoffs of 1 + |u|",
        hashlib.sha256(_serialize(network)).hexdigest(),
        activation,
    )


def _build(
    layers: list[list[Signal]],
    box: Mapping[str, tuple[float, float]],
    error: float,
    dtype: torch.dtype,
    max_units: int,
    target: Expression | SampledFunction,
    assumption: str,
) -> tuple[nn.Sequential, ApproximationCertificate]:
    """Builds and certifies a superposition, with other tolerances until the bound is just small enough."""
    functions = [[[term.enclosed for term in signal.terms] for signal in layer] for layer in layers]
    intervals = list(box.values())
    scale, found, smallest = 1.0, None, math.inf
    best: tuple[nn.Sequential, ApproximationCertificate] | None = None
    for _ in range(12):
        divide_error(layers, intervals, 0.998 * error * scale, found)
        network, records = build_network(layers, intervals, dtype=dtype, max_units=max_units)
        bound, found = certify(_weights(network), records, functions, intervals, dtype)
        if bound <= error:
            certificate = ApproximationCertificate(
                str(target) if isinstance(target, Expression) else None,
                box,
                error,
                bound,
                str(dtype).removeprefix("torch."),
                tuple(m.out_features for m in network if isinstance(m, nn.Linear))[:-1],
                tuple(tuple(layer) for layer in found),
                assumption,
                hashlib.sha256(_serialize(network)).hexdigest(),
            )
            if best is None or certificate.num_units < best[1].num_units:
                best = network, certificate
            if bound > 0.96 * error or certificate.num_units > best[1].num_units or len(layers) == 2:
                break
        elif best is not None or not math.isfinite(bound) or (bound > smallest and bound > 2 * error):
            break
        smallest = min(smallest, bound)
        scale *= min(max(0.985 * error / bound, 0.2), 3.0)
    if best is None:
        remedy = "" if dtype == torch.float64 else ": pass dtype=torch.float64"
        raise ValueError(f"error={error:g} is too close to the rounding of {dtype}{remedy}. The bound was {bound:.2g}")
    return best


def _weights(network: nn.Sequential) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns the weight and the bias of each affine map, in float64."""
    maps = [layer for layer in network if isinstance(layer, nn.Linear)]
    return [(_to_array(layer.weight), _to_array(layer.bias)) for layer in maps]


def _to_array(x: Tensor) -> np.ndarray:
    return x.detach().cpu().double().numpy()


def _serialize(network: nn.Sequential) -> bytes:
    return save({name: x.detach().cpu().contiguous() for name, x in network.state_dict().items()})


def _read(
    function: str | Expression | Callable[..., Any],
    box: _Box,
    lipschitz: float | None,
    modulus: Callable[[float], float] | None,
) -> tuple[Expression | SampledFunction, dict[str, tuple[float, float]], str]:
    """Reads the function and the box."""
    names = list(box) if isinstance(box, Mapping) else None
    pairs: list[Any] = list(box.values()) if isinstance(box, Mapping) else list(box)
    if len(pairs) == 2 and not any(isinstance(pair, Sequence | np.ndarray | Tensor) for pair in pairs):
        pairs = [pairs]
    if names is None:
        indexed = isinstance(function, str | Expression) and "x1" in str(function)
        names = [f"x{i + 1}" for i in range(len(pairs))] if indexed or len(pairs) > 3 else list("xyz")[: len(pairs)]
    intervals = {}
    for name, pair in zip(names, pairs, strict=True):
        if len(pair) != 2 or not all(math.isfinite(end) for end in pair):
            raise ValueError(
                f"box must be bounded: got {tuple(map(float, pair))} for {name}. On an unbounded box a ReLU network is "
                "affine far away, so no error is possible in general"
            )
        low, high = map(float, pair)
        if not low < high:
            raise ValueError(f"box must have low < high: got ({low:g}, {high:g}) for {name}")
        intervals[name] = (low, high)
    if not intervals:
        raise ValueError("box must have an interval for each variable: got none")
    if lipschitz is None and modulus is None:
        if isinstance(function, str):
            expression = parse_expression(function, names)
        else:
            expression = function if isinstance(function, Expression) else trace_expression(function, names)
        if unknown := [name for name in expression.variables if name not in intervals]:
            raise ValueError(f"box must have an interval for each variable: {', '.join(unknown)} has none")
        return expression, intervals, ""
    if lipschitz is not None and modulus is not None:
        raise ValueError("expected lipschitz or modulus: got both")
    if isinstance(function, str | Expression) or len(intervals) != 1:
        raise ValueError("lipschitz and modulus are for callables of one variable: write the function as an expression")
    callable_: Callable[..., Any] = function

    def values(x: np.ndarray) -> np.ndarray:
        found = callable_(torch.from_numpy(np.ascontiguousarray(x)))
        y = found.detach().cpu().double().numpy() if isinstance(found, Tensor) else np.asarray(found, dtype=np.float64)
        if y.shape != x.shape or not np.isfinite(y).all():
            raise ValueError(f"function must return finite values of shape {x.shape}: got shape {y.shape}")
        return y

    if modulus is None:
        if lipschitz is None or not 0 < lipschitz < math.inf:
            raise ValueError(
                f"lipschitz must be positive and finite: got {lipschitz}; use modulus for an infinite slope"
            )
        constant = float(lipschitz)
        return (
            SampledFunction(values, lambda h: constant * h / 2),
            intervals,
            f"it has the Lipschitz constant {constant:g}",
        )
    return (SampledFunction(values, modulus), intervals, "it has the given modulus of continuity")
