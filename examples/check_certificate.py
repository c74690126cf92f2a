"""Checks a certificate of `lawful approximate` without lawful: python check_certificate.py FOLDER.

Each layer of the network computes signals: sums of functions of one variable, up to an error. The certificate names the
functions. This script bounds how far the weights are from each function, adds up the errors and the rounding, and
compares the superposition of the functions with the expression. Numbers are fractions. Values of functions are
intervals: SymPy differentiates, and mpmath rounds outward.

It refuses callables, `sign`, and sums of exponentials, whose many cells `ApproximationCertificate.check` checks.
"""

import hashlib
import json
import math
import re
import sys
from collections import namedtuple
from fractions import Fraction
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import sympy
from mpmath import iv, mp
from safetensors.numpy import load
from sympy import cos, erf, exp, log, sin, tanh

# The range of the exact value, the error of the computed one, the units that read the signal as (index, sign, knot),
# the rounding of each unit, and the expression that the signal computes. The sign of an input is 0.
Signal = namedtuple("Signal", "low high error units rounding expression")
ROUNDOFF, TINY = {"float32": Fraction(1, 2**24), "float64": Fraction(1, 2**53)}, Fraction(1, 2**126)


def check(folder):
    """Returns the certificate, and the bound of the error that follows from the weights, or raises an error."""
    certificate = json.loads(Path(folder, "certificate.json").read_text())
    data = Path(folder, "network.safetensors").read_bytes()
    require(hashlib.sha256(data).hexdigest() == certificate["network_sha256"], "the network is not the certified one")
    require(certificate["expression"] is not None, "the certificate is about a callable, which it does not contain")
    require(certificate["surrogate"] is None, "check a sum of exponentials with ApproximationCertificate.check")
    arrays = load(data)
    require({str(array.dtype) for array in arrays.values()} == {certificate["dtype"]}, "the network has another dtype")
    arrays = {name: np.vectorize(Fraction, [object])(array.astype(float)).tolist() for name, array in arrays.items()}
    layers = [(arrays[f"{2 * i}.weight"], arrays[f"{2 * i}.bias"]) for i in range(len(arrays) // 2)]
    require(len(layers) == len(certificate["hidden_dims"]) + 1, "the network has another depth")
    symbols, roundoff = [sympy.Symbol(name) for name in certificate["box"]], ROUNDOFF[certificate["dtype"]]
    require(all(re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) for name in certificate["box"]), "a name is not a word")
    expression = parse(certificate["expression"], symbols)
    signals = [
        Signal(Fraction(low), Fraction(high), 0, [(i, 0, 0)], [0], symbols[i])
        for i, (low, high) in enumerate(certificate["box"].values())
    ]
    if certificate["activation"] == "relu":
        bound = check_layers(certificate, layers, signals, expression, roundoff)
    else:
        bound = check_fitted(certificate, layers, *signals, expression, roundoff)
    require(bound <= certificate["error"], f"the error is bounded by {float(bound):.6g} only")
    require(bound <= certificate["bound"] * 1.001 + 1e-25, f"the bound is not {certificate['bound']:.6g}")
    return certificate, math.nextafter(float(bound), math.inf)


def check_layers(certificate, layers, signals, expression, roundoff):
    """Bounds the error of a ReLU network."""
    require(len(layers) == len(certificate["layers"]), "the certificate describes another depth")
    for (weight, bias), described in zip(layers, certificate["layers"], strict=True):
        units = [signal["units"] or [k] for k, signal in enumerate(described)]
        require(sorted(chain(*units)) == list(range(len(bias))), "each unit must read one signal")
        pairs = zip(described, units, strict=True)
        signals = [check_signal(signals, signal, read, weight, bias, roundoff) for signal, read in pairs]
    ((_, _, error, ((_, sign, shift),), (rounding,), computed),) = signals
    require(sign == 1, "the output must be the signal, not its negative")
    require(sympy.cancel(sympy.expand(computed - expression)) == 0, "the network computes another expression")
    return error + abs(shift) + rounding


def check_signal(sources, signal, units, weight, bias, roundoff):
    """Bounds the difference between a sum of functions and what the weights compute."""
    signs = signal.get("signs") or [1]
    row = [signs[0] * w for w in weight[units[0]]]
    for i, sign in zip(units, signs, strict=True):
        require(abs(sign) == 1 and weight[i] == [sign * w for w in row], "units of a signal must have equal rows")
    used = [i for term in signal["terms"] for i, _, _ in sources[term["source"]].units]
    require(len(set(used)) == len(used), "two terms read the same signal")
    require(not any(w for i, w in enumerate(row) if i not in used), "a weight belongs to no term")
    low = high = error = size = offset = expression = 0
    for term in signal["terms"]:
        source, function, constant = sources[term["source"]], parse(term["function"], [U]), Fraction(term["constant"])
        weighted = [(row[i], sign, knot) for i, sign, knot in source.units]

        def products(u, weighted=weighted):
            return [w * (max(sign * (u - knot), 0) if sign else u) for w, sign, knot in weighted]

        knots = [knot for _, sign, knot in weighted if sign]
        x = between(source.low, source.high, [*term["points"], *knots])
        line = [constant + sum(products(u)) for u in x]
        distance, least, most = compare(function, x, line, Fraction(term["error"]))
        reach = between(source.low - source.error, source.high + source.error, knots)
        slope = max(abs(sum(products(b)) - sum(products(a))) / (b - a) for a, b in pairwise(reach))
        rounded = sum(abs(w) * r for (w, _, _), r in zip(weighted, source.rounding, strict=True))
        error += distance + slope * source.error + rounded
        size += max(sum(map(abs, products(u))) for u in (reach[0], reach[-1])) + rounded
        low, high, offset = low + least, high + most, offset + constant
        expression += function.subs(U, source.expression)
    count = sum(map(bool, row)) + 2
    rounding = [gamma(count, roundoff) * (size + abs(bias[i])) + 4 * count * TINY for i in units]
    knots = [(i, sign, offset - sign * bias[i]) for i, sign in zip(units, signs, strict=True)]
    return Signal(low, high, error, knots, rounding, expression)


def check_fitted(certificate, layers, source, expression, roundoff):
    """Bounds the error of a network with one hidden layer and another activation."""
    (weight, bias), ((output,), (offset,)) = layers
    activation = parse(ACTIVATIONS[certificate["activation"]], [U])
    computed, total, rounding = offset, abs(offset), 0
    for (a,), b, c in zip(weight, bias, output, strict=True):
        computed += c * activation.subs(U, a * source.expression + b)
        reach = abs(a) * max(abs(source.low), abs(source.high)) + abs(b)
        total += abs(c) * (1 + reach)
        # All activations are 1.2-Lipschitz. PyTorch's are assumed to be within 16 unit roundoffs of 1 + |u|.
        rounding += abs(c) * (Fraction(6, 5) * gamma(3, roundoff) * reach + 16 * roundoff * (1 + reach))
    rounding += gamma(len(output) + 2, roundoff) * Fraction(101, 100) * total
    x = between(source.low, source.high, certificate["layers"][0][0]["terms"][0]["points"])
    claim = Fraction(certificate["bound"]) - rounding
    return rounding + compare(expression - computed, x, [0] * len(x), claim)[0]


def compare(f, x, line, claim):
    """Bounds the difference between f and a line between each two points, and the range of f.

    It halves a cell if the second derivative is too large for the claim there, or there is a kink, a jump or a pole.
    """
    curvature = f.diff(*f.free_symbols, 2) if f.free_symbols else f * 0
    parts = [part for part in sympy.preorder_traversal(f) if may_be_singular(part)]
    at = lru_cache(None)(lambda u: enclose(f, u, u))
    cells, distance, ranges = list(zip(pairwise(x), pairwise(line), strict=True)), 0, []
    while cells:
        (a, b), (start, stop) = cells.pop()
        (low, high), ends = enclose(f, a, b), at(a) + at(b)
        is_smooth = not any(is_singular(part, a, b) for part in parts)
        bend = (b - a) ** 2 / 8 * max(map(abs, enclose(curvature, a, b))) if is_smooth else Fraction(10**300)
        gap = max(abs(value - y) for value, y in zip(ends, (start, start, stop, stop), strict=True))
        bound = min(gap + bend, max(high - min(start, stop), max(start, stop) - low))
        if gap <= claim < bound and b - a > (x[-1] - x[0]) / 2**40:
            middle, value = (a + b) / 2, (start + stop) / 2
            cells += [((a, middle), (start, value)), ((middle, b), (value, stop))]
        else:
            distance = max(distance, bound)
            ranges.append((max(low, min(ends) - bend), min(high, max(ends) + bend)))
    return distance, min(low for low, _ in ranges), max(high for _, high in ranges)


def require(condition, message):
    if not condition:
        raise ValueError(message)


def between(low, high, points):
    return sorted({low, high, *(t for t in map(Fraction, points) if low < t < high)})


def gamma(operations, roundoff):
    """The relative error of that many roundings."""
    return operations * roundoff / (1 - operations * roundoff)


def parse(text, symbols):
    """Reads an expression. Only numbers, operators and known names reach SymPy's parser."""
    names = {**FUNCTIONS, **{symbol.name: symbol for symbol in symbols}}
    rest = re.sub(r"(\b\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", "0", text, flags=re.ASCII)  # a dot is part of a number
    unknown = set(re.findall(r"[A-Za-z_]\w*", rest)) - set(names)
    is_valid = not unknown and re.fullmatch(r"[\w +\-*/^(),]*", rest, re.ASCII)
    require(is_valid, f"cannot check {', '.join(unknown) or repr(text)}")
    return sympy.sympify(text, locals=names, rational=True)


def may_be_singular(part):
    """Whether a function is not smooth where its argument is 0. SymPy's derivative of sqrt(u^2) does not show that."""
    return part.func in (Absolute, log) or (part.is_Pow and not (part.exp.is_Integer and part.exp > 0))


def is_singular(part, a, b):
    """Whether the argument of a function may be 0 from a to b. The ends of a cell may be kinks."""
    v = evaluate(part.args[0], interval(a, b))
    return v.a < 0 < v.b if part.func is Absolute else v.a <= 0 <= v.b


def interval(a, b):
    """Returns the interval from a to b, rounded outward."""
    low, high = (iv.mpf(end.numerator) / end.denominator for end in (a, b))
    return iv.mpf([low.a, high.b])


def enclose(f, a, b):
    """Returns fractions below and above the values of an expression from a to b."""
    values = evaluate(f, interval(a, b))
    slack = Fraction(1, 2**100)  # for numbers that are too small for a float; a range of 1e300 passes nowhere
    return Fraction(max(-1e300, float(values.a))) - slack, Fraction(min(1e300, float(values.b))) + slack


def evaluate(f, u):
    """Evaluates an expression in interval arithmetic."""
    if f.is_Symbol or f.is_Rational:
        return u if f.is_Symbol else iv.mpf(f.p) / f.q
    args = [evaluate(arg, u) for arg in f.args]
    if f.is_Pow and f.exp.is_Rational and f.exp.q <= 2:
        return (args[0] if f.exp.q == 1 else iv.sqrt(domain(args[0]))) ** f.exp.p
    require(f.func in INTERVALS, f"no interval arithmetic for {f.func}")
    return INTERVALS[f.func](*args)


def domain(v):
    """Arguments of sqrt and log: values down to -1e-12 are rounded zeros."""
    return iv.mpf([max(v.a, 0), max(v.b, 0)]) if v.a >= -1e-12 else v


def rising(function):
    """Encloses a rising function that mpmath has for numbers only."""
    return lambda v: iv.mpf([function(mp.mpf(v.a)), function(mp.mpf(v.b))]) * iv.mpf([1 - 2**-50, 1 + 2**-50])


class Sign(sympy.Function):
    def fdiff(self, argindex=1):
        return sympy.Integer(0)


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
        return Sign(self.args[0])


U = sympy.Symbol("u")
FUNCTIONS = {
    **{"sin": sin, "cos": cos, "exp": exp, "log": log, "sqrt": sympy.sqrt, "tanh": tanh, "erf": erf, "abs": Absolute},
    **{"pi": sympy.pi, "e": sympy.E, "tan": lambda u: sin(u) / cos(u)},
    **{"sigmoid": lambda u: (1 + tanh(u / 2)) / 2, "softplus": lambda u: log(1 + exp(u))},
    "max": lambda a, b: (a + b + Absolute(a - b)) / 2,
    "min": lambda a, b: (a + b - Absolute(a - b)) / 2,
}
ACTIVATIONS = {name: f"{name}(u)" for name in ("tanh", "sigmoid", "softplus")}
ACTIVATIONS |= {"silu": "u * sigmoid(u)", "gelu": "u * (1 + erf(u / sqrt(2))) / 2"}
INTERVALS = {
    **{sympy.Add: lambda *args: sum(args), sympy.Mul: lambda *args: math.prod(args)},
    sympy.Pow: lambda a, b: iv.exp(b * iv.log(domain(a))),
    **{sin: iv.sin, cos: iv.cos, exp: iv.exp, log: lambda v: iv.log(domain(v)), Absolute: abs},
    **{tanh: rising(mp.tanh), erf: rising(mp.erf), type(sympy.pi): lambda: iv.pi, type(sympy.E): lambda: iv.e},
    Sign: lambda v: iv.mpf([-1 if v.a < 0 else 1, -1 if v.b <= 0 and v.a < 0 else 1]),
}


def main(folder):
    try:
        certificate, bound = check(folder)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as problem:
        return f"The certificate does not hold: {problem}."
    box = ", ".join(f"{name} from {low:g} to {high:g}" for name, (low, high) in certificate["box"].items())
    print(f"{certificate['expression']} for {box}: the largest error is at most {bound:.6g}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
