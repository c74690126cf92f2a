"""Checks a certificate of `lawful approximate` without lawful: python check_certificate.py FOLDER.

The network computes signals, layer by layer: sums of functions of one variable. This script compares the superposition
of these functions with the expression, as polynomials in the inputs and in function values. It bounds how far the
weights are from each function, on its whole range, with interval arithmetic. Then it adds up these errors and the
rounding.
"""

import ast
import hashlib
import json
import math
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
from safetensors.numpy import load

INF = math.inf


def require(condition, message):
    if not condition:
        raise ValueError(message)


def wide(low, high, ulps=1):
    """An interval, rounded outward by a few units in the last place."""
    low, high = low - (ulps - 1) * 2.0**-52 * abs(low), high + (ulps - 1) * 2.0**-52 * abs(high)
    low, high = np.nextafter(low, -INF), np.nextafter(high, INF)
    return np.array([np.where(np.isnan(low), -INF, low), np.where(np.isnan(high), INF, high)])


def mul(a, b):
    products = [np.where(np.isnan(p), 0.0, p) for p in (a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1])]
    return wide(np.min(products, 0), np.max(products, 0))


def square(a):
    least = np.where((a[0] <= 0) & (a[1] >= 0), 0.0, np.minimum(abs(a[0]), abs(a[1])))
    return np.maximum(wide(least**2, np.maximum(abs(a[0]), abs(a[1])) ** 2), 0.0)


def inverse(a):
    return np.where((a[0] <= 0) & (a[1] >= 0), [[-INF], [INF]], wide(1 / a[1], 1 / a[0]))


def rising(function, a, low=-INF, high=INF):
    return np.clip(wide(function(a[0]), function(a[1]), 9), low, high)


def cos(a):
    def hits(phase):
        return np.floor((a[1] - phase) / math.tau + 1e-12) >= np.ceil((a[0] - phase) / math.tau - 1e-12)

    ends, ok = np.cos(a), abs(a).max(0) < 1e3
    low, high = np.where(hits(math.pi), -1, ends.min(0) - 2e-15), np.where(hits(0), 1, ends.max(0) + 2e-15)
    return np.array([np.where(ok, low, -1.0), np.where(ok, high, 1.0)])


def positive_inverse(a):
    return np.array([np.nextafter(1 / a[1], 0), np.where(a[0] > 0, np.nextafter(1 / a[0], INF), INF)])


def function_jet(name, v):
    """A function and its first two derivatives on an interval."""
    one, zero = np.ones_like(v), np.zeros_like(v)
    if name in ("sin", "cos"):
        s, c = cos(wide(v[0] - math.pi / 2, v[1] - math.pi / 2)), cos(v)
        return (s, c, -s[::-1]) if name == "sin" else (c, -s[::-1], -c[::-1])
    if name == "exp":
        return (rising(np.exp, v),) * 3
    if name == "log":
        i = positive_inverse(v)
        return rising(np.log, v), i, -square(i)[::-1]
    if name == "sqrt":
        v = np.where((v[0] < 0) & (v[0] > -1e-12), [0 * v[0], v[1]], v)
        root = np.maximum(rising(np.sqrt, v), 0.0)
        root = np.where(v[0] < 0, [[-INF], [INF]], root)
        i = np.where(v[0] < 0, [[-INF], [INF]], positive_inverse(root) / 2)
        return root, i, np.where(v[0] < 0, [[-INF], [INF]], -mul(i, positive_inverse(v))[::-1] / 2)
    if name == "abs":
        sign = np.array([np.where(v[0] >= 0, 1.0, -1.0), np.where((v[1] <= 0) & (v[0] < 0), -1.0, 1.0)])
        kink = np.where((v[0] < 0) & (v[1] > 0), INF, 0.0)
        size = np.array([np.where((v[0] < 0) & (v[1] > 0), 0.0, abs(v).min(0)), abs(v).max(0)])
        return size, sign, np.array([-kink, kink])
    if name == "tanh":
        t = rising(np.tanh, v, -1, 1)
        d = wide(*(one - square(t)[::-1]))
        return t, d, mul(-2 * t[::-1], d)
    if name in ("sigmoid", "softplus"):
        s = rising(lambda x: np.exp(np.minimum(x, 0)) / (1 + np.exp(-abs(x))), v, 0, 1)
        d = mul(s, one - s[::-1])
        if name == "sigmoid":
            return s, d, mul(d, one - 2 * s[::-1])
        return rising(lambda x: np.maximum(x, 0) + np.log1p(np.exp(-abs(x))), v), s, d
    if name == "erf":
        d = wide(*mul(one * 2 / math.sqrt(math.pi), rising(np.exp, -square(v)[::-1])), 9)
        return rising(np.vectorize(math.erf, otypes=[float]), v, -1, 1), d, mul(-2 * v[::-1], d)
    require(name == "inverse", f"unknown function {name}")
    i = inverse(v)
    return i, -square(i)[::-1], 2 * mul(i, square(i)) + zero


class Jet:
    """Intervals of a function of u and of its first two derivatives."""

    def __init__(self, *parts):
        self.parts = parts

    def constant(self, low, high):
        zero, (a, b) = np.zeros_like(self.parts[0]), (float(low), float(high))
        a, b = math.nextafter(a, -INF) if a > low else a, math.nextafter(b, INF) if b < high else b
        return Jet(zero + np.array([[a], [b]]), zero, zero)

    def add(self, other):
        return Jet(*(wide(*(a + b)) for a, b in zip(self.parts, other.parts, strict=True)))

    def mul(self, other):
        (a, b, c), (x, y, z) = self.parts, other.parts
        cross = mul(b, y)
        return Jet(mul(a, x), wide(*(mul(b, x) + mul(a, y))), wide(*(mul(c, x) + 2 * cross + mul(a, z)), 3))

    def neg(self):
        return Jet(*(-part[::-1] for part in self.parts))

    def power(self, n):
        def whole(m):
            return np.ones_like(v) if m == 0 else square(whole(m // 2)) if m % 2 == 0 else wide(*v**m, m + 1)

        v = self.parts[0]
        return self.chain(whole(n), n * whole(max(n - 1, 0)), n * (n - 1) * whole(max(n - 2, 0)))

    def maximum(self, other):
        (a, b, c), (x, y, z) = self.parts, other.parts
        left, right = a[0] >= x[1], x[0] >= a[1]
        hull, unknown = [np.minimum(b[0], y[0]), np.maximum(b[1], y[1])], [[-INF], [INF]]
        both = (np.where(left, p, np.where(right, q, else_)) for p, q, else_ in ((b, y, hull), (c, z, unknown)))
        return Jet(np.maximum(a, x), *both)

    def call(self, name):
        return self.chain(*function_jet(name, self.parts[0]))

    def chain(self, g, first, second):
        _, b, c = self.parts
        return Jet(g, mul(first, b), wide(*(mul(second, square(b)) + mul(first, c))))


class Polynomial(dict):
    """A polynomial in inputs and function values: monomials (sorted names with powers) and rational coefficients."""

    def constant(self, low, high):
        return Polynomial({(): low} if low == high else {((f"{low}..{high}", 1),): Fraction(1)})

    def add(self, other):
        total = {m: self.get(m, 0) + other.get(m, 0) for m in {**self, **other}}
        return Polynomial({m: c for m, c in total.items() if c})

    def mul(self, other):
        total = Polynomial()
        for (m, a), (n, b) in ((x, y) for x in self.items() for y in other.items()):
            powers = dict(m)
            for atom, power in n:
                powers[atom] = powers.get(atom, 0) + power
            squares = [atom for atom, power in powers.items() if atom[0] == "abs" and power > 1]  # |p|^2 = p^2
            rest = {atom: power % 2 if atom in squares else power for atom, power in powers.items()}
            term = Polynomial({tuple(sorted(((k, v) for k, v in rest.items() if v), key=str)): a * b})
            for atom in squares:
                term = term.mul(Polynomial(atom[1])).mul(Polynomial(atom[1]))
            total = total.add(term)
        return total

    def maximum(self, other):  # max(p, q) = (p + q + |p - q|) / 2
        return self.add(other).add(self.add(other.neg()).call("abs")).mul(Polynomial({(): Fraction(1, 2)}))

    def call(self, name):
        if name == "inverse" and set(self) == {()}:
            return Polynomial({(): 1 / self[()]})
        items = tuple(sorted(self.items(), key=str))
        if name == "abs" and items and items[0][1] < 0:
            items = tuple((m, -c) for m, c in items)
        return Polynomial({(((name, items), 1),): Fraction(1)})

    def neg(self):
        return Polynomial({m: -c for m, c in self.items()})

    def power(self, n):
        return self.constant(Fraction(1), Fraction(1)) if n == 0 else self.mul(self.power(n - 1))


def evaluate(text, variables):
    """Evaluates an expression on jets or polynomials; the syntax tree is only read."""
    like = next(iter(variables.values()))

    def number(value):
        return like.constant(value, value)

    def visit(node):
        match node:
            case ast.Constant():
                return number(Fraction(ast.get_source_segment(source, node)))
            case ast.Name(id="pi" | "e" as name) if name not in variables:
                near = Fraction(getattr(math, name))
                return like.constant(near - Fraction(1, 2**51), near + Fraction(1, 2**51))
            case ast.Name(id=name):
                return variables[name]
            case ast.UnaryOp(op=ast.USub()):
                return visit(node.operand).neg()
            case ast.BinOp(op=ast.Add()):
                return visit(node.left).add(visit(node.right))
            case ast.BinOp(op=ast.Sub()):
                return visit(node.left).add(visit(node.right).neg())
            case ast.BinOp(op=ast.Mult()) if ast.dump(node.left) != ast.dump(node.right):
                return visit(node.left).mul(visit(node.right))
            case ast.BinOp(op=ast.Mult()):
                return visit(node.left).power(2)
            case ast.BinOp(op=ast.Div()):
                return visit(node.left).mul(visit(node.right).call("inverse"))
            case ast.BinOp(op=ast.Pow()):
                exponent = evaluate(ast.unparse(node.right), {"": Polynomial()})[()]
                base = visit(node.left)
                if exponent == Fraction(1, 2):
                    return base.call("sqrt")
                if exponent.denominator == 1:
                    found = base.power(abs(int(exponent)))
                    return found if exponent >= 0 else found.call("inverse")
                return number(exponent).mul(base.call("log")).call("exp")
            case ast.Call(func=ast.Name(id="max"), args=[a, b]):
                return visit(a).maximum(visit(b))
            case ast.Call(func=ast.Name(id="min"), args=[a, b]):
                return visit(a).neg().maximum(visit(b).neg()).neg()
            case ast.Call(func=ast.Name(id="tan"), args=[a]):
                return visit(a).call("sin").mul(visit(a).call("cos").call("inverse"))
            case ast.Call(func=ast.Name(id=name), args=[a]):
                return visit(a).call(name)
        raise ValueError(f"cannot read {ast.dump(node)}")

    source = text.replace("^", "**")
    return visit(ast.parse(source, mode="eval").body)


def deviation(text, x, line):
    """Bounds |f - line| between points, and the range of f."""

    def jet(v):
        return np.broadcast_arrays(*evaluate(text, {"u": Jet(v, np.ones_like(v), np.zeros_like(v))}).parts)

    (ends, *_), (value, first, second) = jet(np.array([x, x])), jet(np.array([x[:-1], x[1:]]))
    width, slope = np.nextafter(np.diff(x), INF) * (1 + 1e-14), np.diff(line) / np.diff(x)

    def enclose(error, bottom, top):
        low, high = np.minimum(error[0][:-1], error[0][1:]), np.maximum(error[1][:-1], error[1][1:])
        steep = width / 2 * abs(first - slope * bool(len(bottom))).max(0)
        curved = width**2 / 8
        bounds = [value[0] - top, low - steep, low - curved * np.maximum(second[1], 0)]
        others = [value[1] - bottom, high + steep, high + curved * np.maximum(-second[0], 0)]
        return np.max(np.nan_to_num(bounds, nan=-INF, neginf=-INF, posinf=INF), 0), np.min(
            np.nan_to_num(others, nan=INF, neginf=-INF, posinf=INF), 0
        )

    low, high = enclose(wide(*(ends - line)), np.minimum(line[:-1], line[1:]), np.maximum(line[:-1], line[1:]))
    middle = ends.mean(0)
    slope = np.diff(middle) / np.diff(x)
    bottom, top = np.minimum(middle[:-1], middle[1:]), np.maximum(middle[:-1], middle[1:])
    least, most = enclose(wide(*(ends - middle)), bottom, top)
    lowest, highest = np.maximum(bottom + least, value[0]).min(), np.minimum(top + most, value[1]).max()
    return np.maximum(-low, high).max(), np.nextafter(lowest, -INF), np.nextafter(highest, INF)


ACTIVATIONS = {
    "tanh": "tanh(u)",
    "sigmoid": "sigmoid(u)",
    "softplus": "softplus(u)",
    "silu": "u * sigmoid(u)",
    "gelu": "u * (1 + erf(u / sqrt(2))) / 2",
}


def fitted_bound(certificate, hidden, output, unit):
    """Bounds the error of a network of one variable with one hidden layer and another activation than ReLU."""
    a, b, c, offset = hidden[0][:, 0], hidden[1], output[0][0], output[1][0]
    ((name, (low, high)),) = certificate["box"].items()
    x = np.array(certificate["layers"][0][0]["terms"][0]["points"])
    require(x[0] == low and x[-1] == high and (np.diff(x) > 0).all(), "the points do not cover the box")

    def difference(v):
        z = wide(*(mul(v[:, :, None], np.array([a, a])[:, None]) + b)).reshape(2, -1)
        slopes = np.broadcast_to(a, (2, v.shape[1], len(a))).reshape(2, -1)
        units = evaluate(ACTIVATIONS[certificate["activation"]], {"u": Jet(z, slopes, np.zeros_like(z))})
        exact = evaluate(certificate["expression"], {name: Jet(v, np.ones_like(v), np.zeros_like(v))})
        for part, whole, constant in zip(units.parts, exact.parts, (offset, 0.0, 0.0), strict=True):
            terms = mul(part.reshape(2, v.shape[1], -1), np.array([c, c])[:, None])
            total = wide(*terms.sum(2)) + len(a) * 2.0**-52 * abs(terms).max(0).sum(1) * np.array([[-1], [1]])
            yield wide(*(whole - wide(*(total + constant))[::-1]))

    worst = 0.0
    for i in range(0, len(x) - 1, 500):
        left, right = x[i : i + 501][:-1], x[i : i + 501][1:]
        ends = np.max([abs(next(difference(np.array([v, v])))).max(0) for v in (left, right)], 0)
        value, first, second = (abs(part).max(0) for part in difference(np.array([left, right])))
        width = np.nextafter(right - left, INF) * (1 + 1e-14)
        bounds = np.array([value, ends + width / 2 * first, ends + width**2 / 8 * second])
        worst = max(worst, np.where(np.isnan(bounds), INF, bounds).min(0).max())
    reach = abs(a) * max(abs(low), abs(high)) + abs(b)
    size = 1 + reach * (certificate["activation"] not in ("tanh", "sigmoid"))
    each = 1.2 * 3 * unit / (1 - 3 * unit) * reach + 16 * unit * size  # all activations are 1.2-Lipschitz
    count = len(c) + 2
    total = abs(c) @ each + count * unit / (1 - count * unit) * 1.01 * (abs(c) @ size + abs(offset))
    return worst + total * (1 + 1e-12)


def distance(certificate):
    """Bounds the difference between the expression and the sum of exponentials that the network computes instead."""
    if certificate["surrogate"] is None:
        return 0.0
    box, cells = certificate["box"], certificate["surrogate"]["cells"]
    text = f"{certificate['expression']} - ({certificate['surrogate']['expression']})"
    worst = 0.0
    for start in range(0, math.prod(cells), 20_000):
        place = np.unravel_index(np.arange(start, min(start + 20_000, math.prod(cells))), cells)
        ends = {name: np.linspace(*box[name], n + 1) for name, n in zip(box, cells, strict=True)}
        whole = {name: np.array([ends[name][i], ends[name][i + 1]]) for name, i in zip(box, place, strict=True)}
        middle = {name: np.array([v.mean(0)] * 2) for name, v in whole.items()}
        zero = np.zeros((2, len(place[0])))
        total = abs(evaluate(text, {name: Jet(v, zero, zero) for name, v in middle.items()}).parts[0]).max(0)
        for name in box:
            jets = {other: Jet(v, zero + (other == name), zero) for other, v in whole.items()}
            radius = np.nextafter(abs(whole[name] - middle[name]).max(0), INF) * (1 + 1e-14)
            total = total + radius * abs(evaluate(text, jets).parts[1]).max(0)
        worst = max(worst, np.where(np.isnan(total), INF, total).max() * (1 + 1e-14))
    return worst


@np.errstate(all="ignore")
def check(folder):
    """Returns the certificate, and the bound that follows from the weights."""
    folder = Path(folder)
    certificate = json.loads((folder / "certificate.json").read_text())
    data = (folder / "network.safetensors").read_bytes()
    require(hashlib.sha256(data).hexdigest() == certificate["network_sha256"], "the network is not the certified one")
    weights = load(data)
    names = sorted({name.split(".")[0] for name in weights}, key=int)
    layers = [(weights[f"{n}.weight"].astype(np.float64), weights[f"{n}.bias"].astype(np.float64)) for n in names]
    require(str(weights["0.weight"].dtype) == certificate["dtype"], "the network has another dtype")
    unit = 2.0**-24 if certificate["dtype"] == "float32" else 2.0**-53
    tiny = 2.0**-126 if certificate["dtype"] == "float32" else 2.0**-1022
    if certificate["activation"] != "relu":
        return certificate, fitted_bound(certificate, *layers, unit)
    # A signal: range, error, units, their signs, knots and rounding, whether it is an input, and its polynomial.
    one, zero = np.ones(1), np.zeros(1)
    signals = [
        (low, high, 0.0, np.array([i]), one, zero, zero, True, Polynomial({((("input", name), 1),): Fraction(1)}))
        for i, (name, (low, high)) in enumerate(certificate["box"].items())
    ]
    inputs = {name: s[-1] for name, s in zip(certificate["box"], signals, strict=True)}
    require(len(layers) == len(certificate["layers"]), "the network has another depth")
    for depth, ((weight, bias), described) in enumerate(zip(layers, certificate["layers"], strict=True)):
        last, found = depth == len(layers) - 1, []
        for k, signal in enumerate(described):
            index = np.array([k] if last else signal["units"])
            signs = one if last else np.array(signal["signs"], dtype=np.float64)
            row = signs[0] * weight[index[0]]
            require((weight[index] == signs[:, None] * row).all(), "units of a signal have different rows")
            low = high = error = size = offset = 0.0
            total, used = Polynomial(), np.zeros(len(row), dtype=bool)
            for term in signal["terms"]:
                start, stop, before, units, sign, knot, rounding, is_input, polynomial = signals[term["source"]]
                w, constant = row[units], term["constant"]
                used[units] = True

                def active(u):
                    distance = sign * (np.asarray(u)[:, None] - knot)
                    return distance if is_input else np.maximum(distance, 0.0)

                x = np.concatenate([term["points"], knot])
                x = np.unique([*x[(x > start) & (x < stop)], start, stop])
                reach = np.array([start - before, stop + before])
                large = (abs(active(reach)) @ abs(w)).max() + abs(w) @ rounding
                error_here, least, most = deviation(term["function"], x, active(x) @ w + constant)
                places = np.unique([*reach, *knot[(knot > reach[0]) & (knot < reach[1])]])
                slopes = (sign * ((places[:-1] + places[1:])[:, None] / 2 - knot) > 0) @ (w * sign)
                slope = abs(w).max() if is_input else abs(slopes).max() * (1 + 1e-12) + 2.0**-50 * abs(w).sum()
                error += (
                    error_here + 2.0**-52 * (len(w) + 8) * (large + abs(constant)) + slope * before + abs(w) @ rounding
                )
                offset, size, low, high = offset + constant, size + large, low + least, high + most
                total = total.add(evaluate(term["function"], {"u": polynomial}))
            require(not row[~used].any(), "a weight belongs to no term")
            count = (row != 0).sum() + 2
            rounding = unit * count / (1 - unit * count) * (size + abs(bias[index])) * (1 + 1e-12)
            rounding = rounding + 4 * tiny * count + 2.0**-50 * (abs(bias[index]) + abs(offset))
            error = error * (1 + 1e-12) + last * (abs(bias[k] - offset) + rounding[0])
            found.append((low, high, error, index, signs, offset - signs * bias[index], rounding, False, total))
        covered = np.sort(np.concatenate([s[3] for s in found]))
        require(np.array_equal(covered, np.arange(len(bias))), "a unit belongs to no signal")
        signals = found
    surrogate = certificate["surrogate"] or {"expression": certificate["expression"]}
    require(signals[0][-1] == evaluate(surrogate["expression"], inputs), "the network computes another expression")
    return certificate, signals[0][2] + distance(certificate)


def holds(certificate, bound):
    """Whether the bound of the weights is the claimed one, and small enough."""
    return bound <= certificate["bound"] * 1.001 and max(bound, certificate["bound"]) <= certificate["error"]


def main(folder):
    certificate, bound = check(folder)
    box = ", ".join(f"{name} from {low:g} to {high:g}" for name, (low, high) in certificate["box"].items())
    print(f"{certificate['expression']} for {box}: the largest error is at most {bound:.6g}")
    print(f"claimed: {certificate['bound']:.6g}; asked for: {certificate['error']:g}")
    return 0 if holds(certificate, bound) else "the certificate does not hold"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
