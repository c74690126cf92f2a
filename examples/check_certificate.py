"""Checks a certificate of `lawful approximate` without lawful: python check_certificate.py FOLDER.

Each layer of the network computes signals: sums of functions of one variable, up to an error. The certificate names the
functions. This script bounds how far the weights are from each function, adds up the errors and the rounding, and
compares the superposition of the functions with the expression. All numbers are exact fractions. Values of functions
are intervals, at the end of the file: SymPy differentiates, and mpmath rounds outward.

Not checked: callables, and sums of exponentials, whose many cells `ApproximationCertificate.check` checks.
"""

import hashlib
import json
import math
import re
import sys
from collections import namedtuple
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import sympy
from mpmath import iv, mp
from safetensors.numpy import load
from sympy import cos, erf, exp, log, sin, sqrt, tanh

# The range of the exact value, the error of the computed one, the units that read the signal as (index, sign, knot),
# the rounding of each unit, and the expression that the signal computes. The sign of an input is 0.
Signal = namedtuple("Signal", "low high error units rounding expression")


def check(folder):
    """Returns the certificate, and the bound of the error that follows from the weights."""
    certificate = json.loads(Path(folder, "certificate.json").read_text())
    data = Path(folder, "network.safetensors").read_bytes()
    require(hashlib.sha256(data).hexdigest() == certificate["network_sha256"], "the network is not the certified one")
    require(certificate["expression"] is not None, "the certificate is about a callable, which it does not contain")
    require(certificate["surrogate"] is None, "check a sum of exponentials with ApproximationCertificate.check")
    layers, signals = read_layers(load(data), certificate["dtype"]), []
    for index, (name, (low, high)) in enumerate(certificate["box"].items()):
        signals.append(Signal(Fraction(low), Fraction(high), 0, [(index, 0, 0)], [0], sympy.Symbol(name)))
    expression = parse(certificate["expression"], *(signal.expression for signal in signals))
    if certificate["activation"] != "relu":
        return certificate, check_fitted(certificate, layers, signals[0], expression)
    require(len(layers) == len(certificate["layers"]), "the network has another depth")
    for (weight, bias), described in zip(layers, certificate["layers"], strict=True):
        units = [signal["units"] or [k] for k, signal in enumerate(described)]
        require(sorted(i for index in units for i in index) == list(range(len(bias))), "each unit must read one signal")
        signals = [
            check_signal(
                signals, signal["terms"], index, signal.get("signs") or [1], weight, bias, certificate["dtype"]
            )
            for signal, index in zip(described, units, strict=True)
        ]
    (output,) = signals
    ((_, _, knot),) = output.units
    difference = (output.expression - expression).replace(Relu, lambda v: (v + Absolute(v)) / 2)
    require(sympy.cancel(sympy.expand(difference)) == 0, "the network computes another expression")
    return certificate, float(output.error + abs(knot) + output.rounding[0])


def check_signal(sources, terms, units, signs, weight, bias, dtype):
    """Bounds the difference between a sum of functions and what the weights compute."""
    row = [signs[0] * w for w in weight[units[0]]]
    for i, sign in zip(units, signs, strict=True):
        require(abs(sign) == 1 and weight[i] == [sign * w for w in row], "units of a signal must have equal rows")
    low = high = error = size = offset = expression = 0
    used = {i for term in terms for i, _, _ in sources[term["source"]].units}
    require(not any(w for i, w in enumerate(row) if i not in used), "a weight belongs to no term")
    for term in terms:
        source, function, constant = sources[term["source"]], parse(term["function"], U), Fraction(term["constant"])
        weights = [(row[i], sign, knot) for i, sign, knot in source.units]

        def products(u, weights=weights):
            return [w * (max(sign * (u - knot), 0) if sign else u) for w, sign, knot in weights]

        knots = [knot for _, sign, knot in weights if sign]
        x = between(source.low, source.high, [*term["points"], *knots])
        line = [constant + sum(products(u)) for u in x]
        distance, least, most = compare(function, x, line, Fraction(term["error"]))
        reach = between(source.low - source.error, source.high + source.error, knots)
        slope = max(abs(sum(products(b)) - sum(products(a))) / (b - a) for a, b in pairwise(reach))
        rounded = sum(abs(w) * r for (w, _, _), r in zip(weights, source.rounding, strict=True))
        error += distance + slope * source.error + rounded
        size += max(sum(map(abs, products(u))) for u in (reach[0], reach[-1])) + rounded
        low, high, offset = low + least, high + most, offset + constant
        expression += function.subs(U, source.expression)
    count, (_, tiny) = sum(map(bool, row)) + 2, LIMITS[dtype]
    rounding = [gamma(count, dtype) * (size + abs(bias[i])) + 4 * count * tiny for i in units]
    knots = [(i, sign, offset - sign * bias[i]) for i, sign in zip(units, signs, strict=True)]
    return Signal(low, high, error, knots, rounding, expression)


def compare(f, x, line, claim):
    """Bounds the difference between f and a line between each two points, and the range of f.

    It halves a cell if the second derivative is too large for the claim there.
    """
    cells, distance, ranges = list(zip(pairwise(x), pairwise(line), strict=True)), 0, []
    while cells:
        (a, b), (start, stop) = cells.pop()
        (_, *left), (_, *right), (bend, low, high) = enclose_cell(f, a, a), enclose_cell(f, b, b), enclose_cell(f, a, b)
        gap = max(abs(value - y) for value, y in zip(left + right, (start, start, stop, stop), strict=True))
        bound = min(gap + bend, max(high - min(start, stop), max(start, stop) - low))
        if gap <= claim < bound and b - a > (x[-1] - x[0]) / 2**20:
            middle, value = (a + b) / 2, (start + stop) / 2
            cells += [((a, middle), (start, value)), ((middle, b), (value, stop))]
        else:
            distance = max(distance, bound)
            ranges += [(max(low, min(left + right) - bend), min(high, max(left + right) + bend))]
    return distance, min(low for low, _ in ranges), max(high for _, high in ranges)


@lru_cache(None)
def enclose_cell(f, a, b):
    """Bounds the difference between f and its interpolation from a to b, and the values of f."""
    u = iv.mpf([to_interval(a).a, to_interval(b).b])
    value, curved = enclose(f, u), to_interval(b - a) ** 2 / 8 * abs(enclose(second_derivative(f), u))
    low, high = Fraction(float(value.a)) - SLACK, Fraction(float(value.b)) + SLACK
    return min(high - low, Fraction(float(curved.b)) + SLACK) if curved.b < mp.inf else high - low, low, high


def check_fitted(certificate, layers, source, expression):
    """Bounds the error of a network with one hidden layer and another activation."""
    ((weight, bias), ((output,), (offset,))) = layers
    activation, dtype = ACTIVATIONS[certificate["activation"]], certificate["dtype"]
    units = list(zip([a for (a,) in weight], bias, output, strict=True))
    terms = [rational(c) * activation(rational(a) * source.expression + rational(b)) for a, b, c in units]
    # All activations are 1.2-Lipschitz. The certificate assumes that PyTorch's are within 16 unit roundoffs of 1 + |u|.
    sizes = [(abs(c), abs(a) * max(abs(source.low), abs(source.high)) + abs(b)) for a, b, c in units]
    rounding = sum(c * (Fraction(6, 5) * gamma(3, dtype) * r + 16 * LIMITS[dtype][0] * (1 + r)) for c, r in sizes)
    total = abs(offset) + sum(c * (1 + r) for c, r in sizes)
    rounding += gamma(len(units) + 2, dtype) * Fraction(101, 100) * total
    x = between(source.low, source.high, certificate["layers"][0][0]["terms"][0]["points"])
    difference = expression - sum(terms) - rational(offset)
    return float(rounding + compare(difference, x, [0] * len(x), Fraction(certificate["bound"]) - rounding)[0])


def between(low, high, points):
    return sorted({low, high, *(t for t in map(Fraction, points) if low < t < high)})


def gamma(operations, dtype):
    """The relative error of that many roundings."""
    unit, _ = LIMITS[dtype]
    return operations * unit / (1 - operations * unit)


def require(condition, message):
    if not condition:
        raise ValueError(message)


def read_layers(arrays, dtype):
    require({str(array.dtype) for array in arrays.values()} == {dtype}, "the network has another dtype")
    names = sorted({name.split(".")[0] for name in arrays}, key=int)
    maps = [(arrays[f"{name}.weight"].tolist(), arrays[f"{name}.bias"].tolist()) for name in names]
    return [([list(map(Fraction, row)) for row in weight], list(map(Fraction, bias))) for weight, bias in maps]


def rational(number):
    return sympy.Rational(number.numerator, number.denominator)


def parse(text, *symbols):
    """Reads an expression. Only numbers, operators and known names reach SymPy's parser."""
    names = {**FUNCTIONS, **{s.name: s for s in symbols}}
    require(set(re.findall(r"[A-Za-z_]\w*", NUMBER.sub("0", text))) <= set(names), "the expression has an unknown name")
    require(re.fullmatch(r"[\w\s.+\-*/^(),]*", text), "the expression has an unknown character")
    return sympy.sympify(text, locals=names, rational=True)


def sigmoid(u):
    return (1 + tanh(u / 2)) / 2


class Softplus(sympy.Function):
    def fdiff(self, argindex=1):
        return sigmoid(self.args[0])


class Step(sympy.Function):
    def fdiff(self, argindex=1):
        return Jump(self.args[0])


class Relu(sympy.Function):
    def fdiff(self, argindex=1):
        return Step(self.args[0])


class Absolute(sympy.Function):
    """The absolute value of a real number: |-2 u| is 2 |u|, and |u|^2 is u^2."""

    @classmethod
    def eval(cls, u):
        factor, rest = u.as_content_primitive()
        rest = -rest if rest.could_extract_minus_sign() else rest
        return abs(u) if u.is_Rational else None if rest == u else factor * cls(rest)

    def _eval_power(self, exponent):
        return self.args[0] ** exponent if exponent.is_even else None

    def fdiff(self, argindex=1):
        return 2 * Step(self.args[0]) - 1


def enclose(f, u):
    """Encloses the values of an expression on an interval."""
    if f.is_Symbol:
        return u
    if f.is_Rational:
        return iv.mpf(f.p) / f.q
    args = [enclose(arg, u) for arg in f.args]
    if f.is_Pow and f.exp.is_Rational and f.exp.q <= 2:
        return (args[0] if f.exp.q == 1 else iv.sqrt(domain(args[0]))) ** f.exp.p
    require(f.func in ENCLOSURES, f"cannot enclose {f.func}")
    return ENCLOSURES[f.func](*args)


@lru_cache(None)
def second_derivative(f):
    return f.diff(*f.free_symbols, 2) if f.free_symbols else sympy.Integer(0)


def to_interval(number):
    return iv.mpf(number.numerator) / number.denominator


def domain(v):
    """Arguments of sqrt and log: values down to -1e-12 are rounded zeros."""
    return iv.mpf([max(v.a, 0), max(v.b, 0)]) if v.a >= -1e-12 else v


def rising(function):
    """Encloses a rising function that mpmath has for numbers only."""
    return lambda v: iv.mpf([function(mp.mpf(v.a)), function(mp.mpf(v.b))]) * iv.mpf([1 - 2**-50, 1 + 2**-50])


U = sympy.Symbol("u")
NUMBER = re.compile(r"\b\d+\.?\d*([eE][+-]?\d+)?")
SLACK = Fraction(1, 2**100)  # for numbers that are too small for a float
LIMITS = {"float32": (Fraction(1, 2**24), Fraction(1, 2**126)), "float64": (Fraction(1, 2**53), Fraction(1, 2**1022))}
FUNCTIONS = {
    **{"sin": sin, "cos": cos, "exp": exp, "log": log, "sqrt": sqrt, "tanh": tanh, "erf": erf, "abs": Absolute},
    **{"pi": sympy.pi, "e": sympy.E, "sigmoid": sigmoid, "softplus": Softplus, "tan": lambda u: sin(u) / cos(u)},
    **{"max": lambda a, b: b + Relu(a - b), "min": lambda a, b: b - Relu(b - a)},
}
ACTIVATIONS = {
    **{"tanh": tanh, "sigmoid": sigmoid, "softplus": Softplus, "silu": lambda u: u * sigmoid(u)},
    "gelu": lambda u: u * (1 + erf(u / sqrt(2))) / 2,
}
Jump = sympy.Function("Jump")
ENCLOSURES = {
    **{sympy.Add: lambda *args: sum(args), sympy.Mul: lambda *args: math.prod(args)},
    sympy.Pow: lambda a, b: iv.exp(b * iv.log(domain(a))),
    **{sin: iv.sin, cos: iv.cos, exp: iv.exp, log: lambda v: iv.log(domain(v)), Absolute: abs},
    **{tanh: rising(mp.tanh), erf: rising(mp.erf), Softplus: rising(lambda u: mp.log1p(mp.exp(u)))},
    Relu: lambda v: iv.mpf([max(v.a, 0), max(v.b, 0)]),
    Step: lambda v: iv.mpf([int(v.a >= 0), int(v.b > 0 or v.a >= 0)]),
    Jump: lambda v: iv.mpf(["-inf", "inf"] if v.a < 0 < v.b else 0),
    **{type(sympy.pi): lambda: iv.pi, type(sympy.E): lambda: iv.e},
}


def holds(certificate, bound):
    """Whether the bound of the weights is the claimed one, and small enough."""
    return bound <= certificate["bound"] * 1.001 + 1e-25 and max(bound, certificate["bound"]) <= certificate["error"]


def main(folder):
    certificate, bound = check(folder)
    box = ", ".join(f"{name} from {low:g} to {high:g}" for name, (low, high) in certificate["box"].items())
    print(f"{certificate['expression']} for {box}: the largest error is at most {bound:.6g}")
    print(f"claimed: {certificate['bound']:.6g}; asked for: {certificate['error']:g}")
    return 0 if holds(certificate, bound) else "the certificate does not hold"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
