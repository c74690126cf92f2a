"""Algebra on expressions: sums without zeros, and quadratic polynomials."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from lawful.theory._expressions import Expression, number

ZERO = number(0)


def simplify(expression: Expression) -> Expression:
    """Drops zeros and factors of one."""
    if expression.op not in ("+", "-", "*"):
        return expression
    a, b = expression.args
    if expression.op == "+" and ZERO in (a, b):
        return b if a == ZERO else a
    if expression.op == "-" and b == ZERO:
        return a
    if expression.op == "*" and ZERO in (a, b):
        return ZERO
    if expression.op == "*" and number(1) in (a, b):
        return b if a == number(1) else a
    return expression


def fold_constants(expression: Expression) -> Expression:
    """Replaces differences of equal expressions, and polynomials whose variable cancels, with numbers."""
    if not expression.variables:
        return expression
    args = tuple(fold_constants(arg) for arg in expression.args)
    if expression.op == "-" and args[0] == args[1]:
        return ZERO
    found = simplify(Expression(expression.op, args, expression.value))
    if len(found.variables) == 1:
        coefficients = quadratic(found)
        if coefficients is not None and not any(coefficients[:2]):
            return number(coefficients[2])
    return found


def affine(factor: Fraction, u: Expression, constant: Expression = ZERO) -> Expression:
    """Returns factor * u + constant."""
    product = -u if factor == -1 else simplify(number(factor) * u)
    if constant.number is not None and constant.number < 0:
        return simplify(product - number(-constant.number))
    return simplify(product + constant)


def quadratic(f: Expression) -> tuple[Fraction, Fraction, Fraction] | None:
    """Returns a, b and c if an expression is $a u^2 + b u + c$ with rational coefficients."""
    found = _polynomial(f)
    return None if found is None or len(found) > 3 else tuple((found + [Fraction(0)] * 3)[2::-1])  # type: ignore


def _polynomial(f: Expression) -> list[Fraction] | None:
    """Returns the coefficients, from the constant on, of a polynomial in u of degree at most 2."""
    if f.op == "number":
        return [Fraction(f.value)]
    if f.op == "variable":
        return [Fraction(0), Fraction(1)]
    parts = [_polynomial(arg) for arg in f.args]
    if not parts or None in parts or f.op not in ("+", "-", "*", "/", "neg", "^"):
        return None
    a = np.array(parts[0], dtype=object)
    if f.op == "neg":
        return list(-a)
    if f.op == "^":
        return {1: list(a), 2: _short(np.convolve(a, a))}.get(Fraction(f.value))  # type: ignore
    b = np.array(parts[1], dtype=object)
    if f.op == "*":
        return _short(np.convolve(a, b))
    if f.op == "/":
        return list(a / b[0]) if len(b) == 1 and b[0] else None
    size = max(len(a), len(b))
    a, b = (np.append(p, np.full(size - len(p), Fraction(0))) for p in (a, b))
    return _short(a + b if f.op == "+" else a - b)


def _short(coefficients: np.ndarray) -> list[Fraction] | None:
    found = [Fraction(c) for c in coefficients]
    while len(found) > 1 and not found[-1]:
        found.pop()
    return found if len(found) <= 3 else None
