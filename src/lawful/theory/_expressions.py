r"""Expressions such as `sin(x) * exp(-x^2 / 2)`: read from text, traced from a function, evaluated with intervals.

The text is read by a small grammar. It is never evaluated as Python:

    sum      = product (("+" | "-") product)*
    product  = sign (("*" | "/") sign)*
    sign     = ("+" | "-") sign | power
    power    = atom (("^" | "**") sign)?
    atom     = number | constant | variable | function "(" sum ("," sum)* ")" | "(" sum ")"

Numbers are decimal fractions and exact: `0.1` is one tenth. The variables are `x`, `y`, `z` or `x1`, `x2`, ....
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lawful._suggest import did_you_mean
from lawful.theory._intervals import Interval, Jet

_TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|([A-Za-z_]\w*)|(\*\*|[-+*/^(),]))")
_MAX_LENGTH, _MAX_DEPTH, _MAX_EXPONENT = 10_000, 100, 1000
_CONSTANTS = {"pi": math.pi, "e": math.e}
_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "abs": torch.abs,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": torch.nn.functional.softplus,
    "erf": torch.erf,
    "sign": torch.sign,
}
_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "+": torch.add,
    "-": torch.sub,
    "*": torch.mul,
    "/": torch.div,
    "max": torch.maximum,
    "min": torch.minimum,
}
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "neg": 3, "^": 4}
FUNCTIONS = (*_UNARY, "max", "min", "relu", "clip", "step")
"""Functions of the grammar."""


@dataclass(frozen=True)
class Expression:
    """A function of real variables, as a tree.

    Examples:
        >>> f = parse_expression("2 * sin(x) - y^2")
        >>> f.variables, f(x=torch.tensor(0.0), y=torch.tensor(3.0)).item()
        (('x', 'y'), -9.0)
        >>> print(f)
        2 * sin(x) - y^2
    """

    op: str
    """`number`, `constant`, `variable`, `neg`, `^`, or a name of the grammar."""
    args: tuple[Expression, ...] = ()
    """Arguments of the operation."""
    value: Fraction | str = ""
    """Number, or name of a constant or variable; exponent of a power."""

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the variables, sorted."""
        if self.op == "variable":
            return (str(self.value),)
        return tuple(sorted({name for arg in self.args for name in arg.variables}))

    @property
    def number(self) -> Fraction | None:
        """The number that this is; None for other expressions."""
        return self.value if isinstance(self.value, Fraction) and self.op == "number" else None

    def __call__(self, **variables: Tensor) -> Tensor:
        """Evaluates the expression on tensors."""
        if self.op == "variable":
            return variables[str(self.value)]
        if self.op in ("number", "constant"):
            like = next(iter(variables.values()))
            return torch.full_like(like, self._float)
        args = [arg(**variables) for arg in self.args]
        if self.op == "neg":
            return -args[0]
        if self.op == "^":
            return args[0] ** float(self.value)
        return _UNARY[self.op](args[0]) if self.op in _UNARY else _BINARY[self.op](args[0], args[1])

    def jet(self, variables: Mapping[str, Jet]) -> Jet:
        """Encloses the value, the derivative and the second derivative."""
        with np.errstate(all="ignore"):
            return self._jet(variables)

    def _jet(self, variables: Mapping[str, Jet]) -> Jet:
        if self.op == "variable":
            return variables[str(self.value)]
        if self.op == "number":
            return Jet.constant(Fraction(self.value))
        if self.op == "constant":
            near = Fraction(self._float)
            low, high = (Interval.from_fraction(near + d) for d in (-Fraction(1, 2**51), Fraction(1, 2**51)))
            zero = Jet.constant(Fraction(0))
            return Jet(Interval(low.low, high.high), zero.first, zero.second)
        if self.op == "*" and self.args[0] == self.args[1]:
            return self.args[0]._jet(variables).power(Fraction(2))
        args = [arg._jet(variables) for arg in self.args]
        match self.op:
            case "+":
                return args[0] + args[1]
            case "-":
                return args[0] - args[1]
            case "*":
                return args[0] * args[1]
            case "/":
                return args[0] / args[1]
            case "neg":
                return -args[0]
            case "^":
                return args[0].power(Fraction(self.value))
            case "max":
                return args[0].maximum(args[1])
            case "min":
                return args[0].minimum(args[1])
        return getattr(args[0], self.op)()

    def substitute(self, **expressions: Expression) -> Expression:
        """Replaces variables with expressions."""
        if self.op == "variable":
            return expressions.get(str(self.value), self)
        return Expression(self.op, tuple(arg.substitute(**expressions) for arg in self.args), self.value)

    @property
    def _float(self) -> float:
        return _CONSTANTS[str(self.value)] if self.op == "constant" else float(Fraction(self.value))

    def __str__(self) -> str:
        return self._text()[0]

    def _text(self) -> tuple[str, int]:
        """Returns the text and the precedence of its last operation."""
        if self.op == "number":
            value = Fraction(self.value)
            text = _decimal(abs(value))
            return (text, 2 if "/" in text else 5) if value >= 0 else (f"-{text}", 2 if "/" in text else 3)
        if not self.args:
            return str(self.value), 5
        texts = [arg._text() for arg in self.args]
        if self.op not in _PRECEDENCE:
            return f"{self.op}({', '.join(text for text, _ in texts)})", 5
        rank = _PRECEDENCE[self.op]
        left = texts[0][0] if texts[0][1] >= rank + (self.op == "^") else f"({texts[0][0]})"
        if self.op == "neg":
            return f"-{left}", rank
        if self.op == "^":
            exponent = _decimal(Fraction(self.value))
            return (f"{left}^{exponent if re.fullmatch('[0-9.]+', exponent) else f'({exponent})'}", rank)
        right = texts[1][0] if texts[1][1] > rank else f"({texts[1][0]})"
        return f"{left} {self.op} {right}", rank

    def __add__(self, other: Any) -> Expression:
        return _operation("+", self, other)

    def __radd__(self, other: Any) -> Expression:
        return _operation("+", other, self)

    def __sub__(self, other: Any) -> Expression:
        return _operation("-", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return _operation("-", other, self)

    def __mul__(self, other: Any) -> Expression:
        return _operation("*", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return _operation("*", other, self)

    def __truediv__(self, other: Any) -> Expression:
        return _operation("/", self, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return _operation("/", other, self)

    def __pow__(self, exponent: Any) -> Expression:
        return _operation("^", self, exponent)

    def __rpow__(self, base: Any) -> Expression:
        return _operation("^", base, self)

    def __neg__(self) -> Expression:
        return Expression("neg", (self,)) if self.number is None else number(-self.number)

    def __pos__(self) -> Expression:
        return self

    def __abs__(self) -> Expression:
        return call("abs", self)

    def __bool__(self) -> bool:
        raise TypeError("the function branches on its input: write it with max, min, abs or clip")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Expression:
        """Traces a function of PyTorch."""
        names = {f: name for name, f in (*_UNARY.items(), *_BINARY.items())}
        names |= {torch.pow: "^", torch.square: "square", torch.relu: "relu", torch.clamp: "clip", torch.neg: "neg"}
        names |= {
            torch.nn.functional.relu: "relu",
            torch.nn.functional.tanh: "tanh",
            torch.nn.functional.sigmoid: "sigmoid",
        }
        name = names.get(function)
        if name is None or (kwargs and name != "clip"):
            raise TypeError(
                f"{getattr(function, '__name__', function)} is not a function of expressions: use one of "
                f"{', '.join(FUNCTIONS)}, or pass lipschitz= or modulus="
            )
        if name == "neg":
            return -args[0]
        if name == "square":
            return args[0] ** 2
        if name in ("+", "-", "*", "/", "^"):
            return _operation(name, args[0], args[1])
        return call(name, *args, *(kwargs or {}).values())


def number(value: Any) -> Expression:
    """Returns a constant expression. A float stands for the decimal fraction that Python prints."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"a constant of the function must be finite: got {value}")
    exact = Fraction(repr(float(value))) if isinstance(value, float | np.floating) else Fraction(value)
    return Expression("number", (), exact)


def variable(name: str) -> Expression:
    """Returns a variable."""
    return Expression("variable", (), name)


def call(name: str, *args: Any) -> Expression:
    """Calls a function of the grammar."""
    exprs = [_expression(arg) for arg in args]
    counts = {"clip": (3,), "max": (2, 3, 4), "min": (2, 3, 4)}.get(name, (1,))
    if len(exprs) not in counts:
        raise ValueError(f"{name} takes {' or '.join(map(str, counts))} arguments: got {len(exprs)}")
    if name == "relu":
        return Expression("max", (exprs[0], number(0)))
    if name == "clip":
        return Expression("min", (Expression("max", (exprs[0], exprs[1])), exprs[2]))
    if name == "step":
        return (1 + Expression("sign", (exprs[0],))) / 2
    if name in ("max", "min"):
        found = exprs[0]
        for other in exprs[1:]:
            found = Expression(name, (found, other))
        return found
    return Expression(name, tuple(exprs))


def _expression(value: Any) -> Expression:
    if isinstance(value, Expression):
        return value
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Real | np.number):
        raise TypeError(f"expected a number or an expression: got {type(value).__name__}")
    return number(value)


def _operation(op: str, a: Any, b: Any) -> Expression:
    left, right = _expression(a), _expression(b)
    x, y = left.number, right.number
    if op == "^":
        return _power(left, right)
    if x is not None and y is not None and not (op == "/" and y == 0):
        return number({"+": x + y, "-": x - y, "*": x * y}[op] if op != "/" else x / y)
    if op == "/" and y == 0:
        raise ValueError(f"the expression divides by zero: {left} / 0")
    return Expression(op, (left, right))


def _power(base: Expression, exponent: Expression) -> Expression:
    p = exponent.number
    if p is None:
        if base.op == "constant" and base.value == "e":
            return call("exp", exponent)
        return call("exp", exponent * call("log", base))
    if abs(p) > _MAX_EXPONENT:
        raise ValueError(f"an exponent must be between -{_MAX_EXPONENT} and {_MAX_EXPONENT}: got {float(p):g}")
    if base.number is not None and p.denominator == 1 and (base.number or p > 0) and abs(p) <= 64:
        return number(base.number ** int(p))
    return Expression("^", (base,), p)


def _decimal(value: Fraction) -> str:
    """Writes a rational number as a decimal fraction if that is short, and otherwise as a quotient."""
    shifted = value.denominator
    for prime in (2, 5):
        while shifted % prime == 0:
            shifted //= prime
    if shifted == 1:
        for digits in range(40):
            scaled = value * 10**digits
            if scaled.denominator == 1:
                text = f"{abs(scaled.numerator):0{digits + 1}d}"
                whole = f"{text[:-digits]}.{text[-digits:]}" if digits else text
                return f"-{whole}" if value < 0 else whole
    return f"{value.numerator}/{value.denominator}"


class _Parser:
    """Recursive descent over the tokens of a text."""

    def __init__(self, text: str, variables: Sequence[str] | None) -> None:
        self.text, self.variables, self.depth, self.place = text, variables, 0, 0
        self.tokens: list[tuple[str, str, int]] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                start = position + len(text[position:]) - len(text[position:].lstrip())
                raise self.error(f"unexpected {text[start]!r}", start)
            kind = ("number", "name", "symbol")[match.lastindex - 1] if match.lastindex else ""
            self.tokens.append((kind, match.group(match.lastindex or 0), match.start(match.lastindex or 0)))
            position = match.end()

    def error(self, message: str, position: int | None = None) -> ValueError:
        at = (
            position
            if position is not None
            else (self.tokens[self.place][2] if self.place < len(self.tokens) else len(self.text))
        )
        where = f"at character {at + 1}" if at < len(self.text) else "at the end"
        shown = self.text if len(self.text) <= 80 else f"{self.text[:77]}..."
        return ValueError(f"cannot read {shown!r}: {message} {where}")

    def peek(self) -> str:
        return self.tokens[self.place][1] if self.place < len(self.tokens) else ""

    def take(self, *symbols: str) -> str:
        """Takes the next token if it is one of some symbols."""
        if self.place < len(self.tokens) and self.tokens[self.place][0] == "symbol" and self.peek() in symbols:
            self.place += 1
            return self.tokens[self.place - 1][1]
        return ""

    def expect(self, symbol: str) -> None:
        if not self.take(symbol):
            found = repr(self.peek()) if self.peek() else "nothing"
            raise self.error(f"expected {symbol!r}, got {found}")

    def parse(self) -> Expression:
        if not self.tokens:
            raise self.error("the expression is empty")
        found = self.sum()
        if self.place < len(self.tokens):
            raise self.error(f"expected an operator, got {self.peek()!r}")
        return found

    def sum(self) -> Expression:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.error(f"more than {_MAX_DEPTH} nested parentheses")
        found = self.product()
        while symbol := self.take("+", "-"):
            found = _operation(symbol, found, self.product())
        self.depth -= 1
        return found

    def product(self) -> Expression:
        found = self.sign()
        while symbol := self.take("*", "/"):
            found = _operation(symbol, found, self.sign())
        return found

    def sign(self) -> Expression:
        negative = False
        while symbol := self.take("+", "-"):
            negative ^= symbol == "-"
        found = self.power()
        return -found if negative else found

    def power(self) -> Expression:
        base = self.atom()
        if not self.take("^", "**"):
            return base
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.error(f"more than {_MAX_DEPTH} nested powers")
        found = _power(base, self.sign())
        self.depth -= 1
        return found

    def atom(self) -> Expression:
        if self.take("("):
            found = self.sum()
            self.expect(")")
            return found
        if self.place >= len(self.tokens) or self.tokens[self.place][0] == "symbol":
            found = repr(self.peek()) if self.peek() else "nothing"
            raise self.error(f"expected a number, a variable or a function, got {found}")
        kind, text, _ = self.tokens[self.place]
        self.place += 1
        if kind == "number":
            if len(text) > 60 or abs(int(re.split("[eE]", text)[1] if re.search("[eE]", text) else 0)) > 300:
                raise self.error(f"the number {text[:60]} is too long or too large", self.tokens[self.place - 1][2])
            return number(Fraction(text))
        return self.name(text)

    def name(self, text: str) -> Expression:
        if text in FUNCTIONS:
            self.expect("(")
            args = [self.sum()]
            while self.take(","):
                args.append(self.sum())
            self.expect(")")
            return call(text, *args)
        if text in _CONSTANTS and text not in (self.variables or ()):
            return Expression("constant", (), text)
        known = self.variables is not None and text in self.variables
        if known or (self.variables is None and re.fullmatch(r"[xyzu]|x[1-9]\d?", text)):
            return variable(text)
        names = [*(self.variables or ("x", "y", "z", "x1")), *_CONSTANTS, *FUNCTIONS]
        self.place -= 1
        known_names = ", ".join(self.variables or ("x", "y", "z", "x1", "x2", "..."))
        hint = did_you_mean(text, names).rstrip(".")
        raise self.error(f"unknown name {text!r}{hint} (variables: {known_names})")


def parse_expression(text: str, variables: Sequence[str] | None = None) -> Expression:
    """Reads an expression. The text is never evaluated as Python.

    It has numbers, variables, `+ - * / ^`, parentheses, `pi`, `e` and the functions sin, cos, tan, exp, log, sqrt, abs,
    tanh, sigmoid, softplus, erf, relu, max, min, clip(x, low, high), sign and step.

    Args:
        text: The expression.
        variables: Names of the variables. None for any of x, y, z, x1, x2, ....

    Examples:
        >>> f = parse_expression("-x^2 / 2 + max(x, 0.1)")
        >>> print(f, f(x=torch.tensor(2.0)).item())
        -x^2 / 2 + max(x, 0.1) 0.0
        >>> parse_expression("sin(t)")
        Traceback (most recent call last):
        ...
        ValueError: cannot read 'sin(t)': unknown name 't' (variables: x, y, z, x1, x2, ...) at character 5
    """
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"an expression has at most {_MAX_LENGTH} characters: got {len(text)}")
    return _Parser(text, variables).parse()


def trace_expression(function: Callable[..., Any], variables: Sequence[str]) -> Expression:
    """Traces a function of numbers: it is called with variables, and its operations are recorded.

    Args:
        function: Function that uses operators, `abs`, and functions of PyTorch such as `torch.sin`.
        variables: Names of the arguments.

    Examples:
        >>> print(trace_expression(lambda x, y: torch.exp(-(x**2) - y**2), ["x", "y"]))
        exp(-x^2 - y^2)
    """
    return _expression(function(*map(variable, variables)))
