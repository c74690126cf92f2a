r"""Expressions of several variables as superpositions of functions of one variable.

Sums are free, and a product is two squares:

$$u v = \tfrac14 (\alpha u + v / \alpha)^2 - \tfrac14 (\alpha u - v / \alpha)^2 .$$

Everything else is a function of one variable already: quotients, powers, $\max(u, v) = (u + v + |u - v|) / 2$. What
depends on one variable only becomes one function. A square can be deep: with $a_0 = |u|$ and
$a_{i+1} = |a_i - h / 2^{i+1}|$ for $|u| \le h$,

$$u^2 = \sum_{i < m} \Bigl( \frac{h}{2^i} a_i - \frac{h^2}{4^{i+1}} \Bigr) + a_m^2,
\qquad 0 \le a_m \le \frac{h}{2^m},$$

which takes $O(\log 1 / \epsilon)$ units for an error $\epsilon$.

Reference: Yarotsky, Error Bounds for Approximations With Deep ReLU Networks, 2017.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from lawful.theory._algebra import ZERO, affine, fold_constants, quadratic, simplify
from lawful.theory._expressions import Expression, call, number, variable
from lawful.theory._superposition import Signal, Term
from lawful.theory._univariate import ExpressionFunction, partition

_U = variable("u")


@dataclass
class _Sum:
    """A linear combination of values, and a constant expression."""

    weights: dict[int, Fraction] = field(default_factory=dict)
    constant: Expression = ZERO

    def plus(self, other: _Sum, factor: Fraction = Fraction(1)) -> _Sum:
        weights = dict(self.weights)
        for value, weight in other.weights.items():
            weights[value] = weights.get(value, Fraction(0)) + factor * weight
        constant = other.constant if factor == 1 else simplify(number(factor) * other.constant)
        return _Sum({v: w for v, w in weights.items() if w}, simplify(self.constant + constant))


@dataclass(frozen=True)
class _Value:
    """A function of one variable, applied to a sum of earlier values; or an input."""

    depth: int
    function: Expression
    argument: _Sum
    low: float
    high: float


class Decomposition:
    """Turns an expression into values and a sum of them.

    Args:
        expression: Function of several variables.
        box: Interval of each variable.
        levels: Number of layers that a square is refined by; 0 for a square in one layer.
    """

    def __init__(self, expression: Expression, box: Mapping[str, tuple[float, float]], *, levels: int = 0) -> None:
        self.names, self.levels = list(box), levels
        self.values = [_Value(0, _U, _Sum(), low, high) for low, high in box.values()]
        self.known: dict[tuple[object, str], int] = {}
        self.output = self.read(fold_constants(expression))

    def read(self, f: Expression) -> _Sum:
        """Decomposes an expression."""
        if not f.variables:
            return _Sum({}, f)
        if f.op == "variable":
            return _Sum({self.names.index(str(f.value)): Fraction(1)})
        factors = f.args if f.op == "*" else f.args[1:] if f.op == "/" else ()
        if f.op in ("+", "-", "neg") or any(arg.number is not None for arg in factors):
            return self.read_sum(f)
        if len(f.variables) == 1:
            name = f.variables[0]
            return self.apply(f.substitute(**{name: _U}), _Sum({self.names.index(name): Fraction(1)}))
        if f.op in ("*", "/"):
            return self.read_product(f)
        if f.op in ("max", "min"):
            a, b = map(self.read, f.args)
            sign = Fraction(1 if f.op == "max" else -1, 2)
            distance = self.apply(call("abs", _U), a.plus(b, Fraction(-1)))
            return _Sum().plus(a, Fraction(1, 2)).plus(b, Fraction(1, 2)).plus(distance, sign)
        return self.apply(Expression(f.op, (_U,), f.value), self.read(f.args[0]))

    def read_sum(self, f: Expression) -> _Sum:
        """Decomposes a sum: the terms that depend on one variable only become one function."""
        groups: dict[str, list[tuple[Fraction, Expression]]] = {}
        found = _Sum()
        for factor, term in _terms(f, Fraction(1)):
            if len(term.variables) == 1:
                groups.setdefault(term.variables[0], []).append((factor, term))
            else:
                found = found.plus(self.read(term), factor)
        for name, terms in groups.items():
            index = self.names.index(name)
            if all(term.op == "variable" for _, term in terms):
                found = found.plus(_Sum({index: sum((factor for factor, _ in terms), Fraction(0))}))
                continue
            total = ZERO
            for factor, term in terms:
                total = (
                    affine(factor, term.substitute(**{name: _U}), total)
                    if factor > 0
                    else simplify(total - affine(-factor, term.substitute(**{name: _U})))
                )
            found = found.plus(self.apply(total, _Sum({index: Fraction(1)})))
        return found

    def read_product(self, f: Expression) -> _Sum:
        """Decomposes a product: the factors that depend on one variable only become one function."""
        groups: dict[tuple[str, ...], Expression] = {}
        others = []
        for inverse, factor in _factors(f, False):
            if len(factor.variables) > 1:
                part = self.read(factor)
                others.append(self.apply(1 / _U, part) if inverse else part)
            else:
                before = groups.get(factor.variables)
                one = 1 / factor if inverse else factor
                groups[factor.variables] = one if before is None else (before / factor if inverse else before * factor)
        constant = groups.pop((), None)
        parts = sorted([*map(self.read, groups.values()), *others], key=lambda part: self.width(part))
        found = parts[0]
        for part in parts[1:]:
            found = self.multiply(found, part)
        return found if constant is None else self.scale(found, constant)

    def scale(self, part: _Sum, factor: Expression) -> _Sum:
        """Multiplies with a constant expression."""
        if factor.number is not None:
            return _Sum().plus(part, factor.number)
        found = _Sum({}, simplify(part.constant * factor))
        for value, weight in part.weights.items():
            found = found.plus(self.apply(factor * _U, _Sum({value: weight})))
        return found

    def multiply(self, a: _Sum, b: _Sum) -> _Sum:
        """Writes a product as two squares."""
        if a.weights == b.weights and a.constant == b.constant:
            return self.apply(_U**2, a)
        for part, other in ((a, b), (b, a)):
            if not part.weights:
                return self.scale(other, part.constant)
            low, high = self.range(part)
            if high - low < abs(low + high) / 128:  # squares of large numbers would cancel
                middle = _round_up((low + high) / 2, (high - low) or abs(low))
                return _Sum().plus(other, middle).plus(self.multiply(part.plus(_Sum({}, number(-middle))), other))
        widths = [min(max(self.width(part), 1e-30), 1e30) for part in (a, b)]
        alpha = Fraction(2) ** round(math.log2(widths[1] / widths[0]) / 2)
        wide, other = _Sum().plus(a, alpha), _Sum().plus(b, 1 / alpha)
        plus, minus = (self.apply(_U**2 / 4, wide.plus(other, sign)) for sign in (Fraction(1), Fraction(-1)))
        return plus.plus(minus, Fraction(-1))

    def apply(self, function: Expression, argument: _Sum, *, merge: bool = True) -> _Sum:
        """Applies a function of `u` to a sum."""
        if not argument.weights:
            return _Sum({}, function.substitute(u=argument.constant))
        (first, lead), *rest = sorted(argument.weights.items())
        function = function.substitute(u=affine(lead, _U, argument.constant))
        value = self.values[first]
        if merge and not rest and value.depth:
            return self.apply(function.substitute(u=value.function), value.argument)
        argument = _Sum({v: w / lead for v, w in argument.weights.items()})
        low, high = self.range(argument)
        found = quadratic(function)
        if found is not None and found[0] == 0:
            return _Sum({}, number(found[2])).plus(argument, found[1])
        if found is not None and self.levels and low < high:
            return self.square(argument, *found)
        return _Sum({self.add(function, argument, low, high): Fraction(1)})

    def add(self, function: Expression, argument: _Sum, low: float, high: float) -> int:
        """Adds a value, or finds it."""
        key = (tuple(sorted(argument.weights.items())), str(function))
        if key not in self.known:
            enclosed = ExpressionFunction(function)
            coarse = np.linspace(low, high, 65) if low < high else np.array([low, np.nextafter(low, np.inf)])
            points = partition(enclosed, low, high, math.inf)[0] if low < high else coarse
            ends = enclosed.range(np.union1d(points, coarse))
            depth = 1 + max(self.values[v].depth for v in argument.weights)
            self.known[key] = len(self.values)
            self.values.append(_Value(depth, function, argument, *ends))
        return self.known[key]

    def square(self, argument: _Sum, a: Fraction, b: Fraction, c: Fraction) -> _Sum:
        """Decomposes $a u^2 + b u + c$ into absolute values and a small square."""
        low, high = self.range(argument)
        center = _round_up(low + (high - low) / 2, (high - low) / 64)
        half = max(high - float(center), float(center) - low)
        h = _round_up(half * (1 - 1e-9), 2.0 ** math.floor(math.log2(half)) / 64)
        found = _Sum({}, number(c - a * center**2)).plus(argument, b + 2 * a * center)
        current, offset = argument, center
        for i in range(self.levels):
            step = h / 2**i
            inner = affine(Fraction(1), _U, number(-offset)) if offset else _U
            value = self.add(call("abs", inner), current, *self.range(current))
            current, offset = _Sum({value: Fraction(1)}), step / 2
            found = found.plus(current, a * step).plus(_Sum({}, number(-a * step**2 / 4)))
        value = self.add(affine(Fraction(1), _U, number(-offset)) ** 2, current, *self.range(current))
        return found.plus(_Sum({value: Fraction(1)}), a)

    def range(self, part: _Sum) -> tuple[float, float]:
        """Returns approximate bounds of a sum."""
        constant = float(ExpressionFunction(part.constant).values(np.zeros(1)).low[0])
        low = high = constant
        for value, weight in part.weights.items():
            ends = sorted((float(weight) * self.values[value].low, float(weight) * self.values[value].high))
            low, high = low + ends[0], high + ends[1]
        return low, high

    def width(self, part: _Sum) -> float:
        low, high = self.range(part)
        return high - low

    def layers(self) -> list[list[Signal]]:
        """Arranges the values in layers: the signals that each affine map computes."""
        if not self.output.weights:
            return [[Signal([Term(0, _U)])], [Signal([Term(0, self.output.constant)])]]
        depth = max(1, *(self.values[v].depth for v in self.output.weights))
        consumers: list[tuple[_Sum, int]] = []
        needed, queue = set(), list(self.output.weights)
        while queue:
            value = queue.pop()
            if value in needed or not self.values[value].depth:
                continue
            needed.add(value)
            consumers.append((self.values[value].argument, self.values[value].depth - 1))
            queue += self.values[value].argument.weights
        # The partial sums of each consumer that its layer and the layers before compute, up to a factor.
        plans: list[dict[tuple[tuple[int, Fraction], ...], int]] = [{} for _ in range(depth)]
        for argument, layer in [*consumers, (self.output, depth - 1)]:
            for level in range(layer + 1):
                if (known := self.partial(argument, level)).weights:
                    plans[level].setdefault(_normalize(known)[0], len(plans[level]))
        found = []
        for level in range(depth + 1):
            if level == depth:
                found.append([Signal(self.terms(self.output, level, plans[level - 1], final=True))])
                continue
            before = plans[level - 1] if level else {}
            found.append([Signal(self.terms(_Sum(dict(key)), level, before)) for key in plans[level]])
        return found

    def partial(self, argument: _Sum, level: int) -> _Sum:
        """Returns the part of a sum whose values are known in a layer."""
        return _Sum({v: w for v, w in argument.weights.items() if self.values[v].depth <= level})

    def terms(
        self, total: _Sum, level: int, before: Mapping[tuple[tuple[int, Fraction], ...], int], *, final: bool = False
    ) -> list[Term]:
        """Writes a sum as functions of the signals of the layer before."""
        functions: dict[int, Expression] = {}
        if level == 0:
            functions = {v: affine(w, _U) for v, w in total.weights.items()}
        else:
            carried = self.partial(total, level - 1)
            if carried.weights:
                key, factor = _normalize(carried)
                functions[before[key]] = affine(factor, _U)
            for v, w in total.weights.items():
                if self.values[v].depth == level:
                    source = before[_normalize(self.values[v].argument)[0]]
                    function = affine(w, self.values[v].function)
                    functions[source] = simplify(functions[source] + function) if source in functions else function
        if final and functions:
            first = next(iter(functions))
            functions[first] = simplify(functions[first] + total.constant)
        return [Term(source, function) for source, function in functions.items()]


def _round_up(value: float, unit: float) -> Fraction:
    """Rounds up to a multiple of a power of two."""
    step = Fraction(2) ** math.floor(math.log2(unit))
    return math.ceil(Fraction(value) / step) * step


def _normalize(part: _Sum) -> tuple[tuple[tuple[int, Fraction], ...], Fraction]:
    """Divides a sum by its first weight."""
    items = sorted(part.weights.items())
    lead = items[0][1]
    return tuple((v, w / lead) for v, w in items), lead


def _terms(f: Expression, factor: Fraction) -> Sequence[tuple[Fraction, Expression]]:
    """Flattens a sum into terms with rational factors."""
    if f.op == "neg":
        return _terms(f.args[0], -factor)
    if f.op in ("+", "-"):
        return [*_terms(f.args[0], factor), *_terms(f.args[1], factor if f.op == "+" else -factor)]
    if f.op == "*":
        for a, b in (f.args, f.args[::-1]):
            if a.number is not None:
                return _terms(b, factor * a.number)
    if f.op == "/" and f.args[1].number:
        return _terms(f.args[0], factor / f.args[1].number)
    return [(factor, f)]


def _factors(f: Expression, inverse: bool) -> list[tuple[bool, Expression]]:
    """Flattens a product into factors, some of them inverted."""
    if f.op not in ("*", "/"):
        return [(inverse, f)]
    a, b = f.args
    return [*_factors(a, inverse), *_factors(b, inverse if f.op == "*" else not inverse)]
