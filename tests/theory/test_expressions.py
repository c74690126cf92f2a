import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from lawful.theory import parse_expression, trace_expression
from lawful.theory._intervals import Interval, Jet

PYTHON = {
    "-x^2 / 2 + max(x, 0.1)": lambda x, y: -(x**2) / 2 + max(x, 0.1),
    "x - (y - x) - y": lambda x, y: x - (y - x) - y,
    "x / y / (x / y^2)": lambda x, y: x / y / (x / y**2),
    "2^-x * -y": lambda x, y: 2**-x * -y,
    "-(x + y)^2 ^0.5": lambda x, y: -((x + y) ** (2**0.5)),
    "e^x - exp(x) + 1.5e-1*pi": lambda x, y: 0.15 * math.pi,
    "clip(3*x, 0, y) + relu(-x)": lambda x, y: min(max(3 * x, 0), y) + max(-x, 0),
    "min(x, y, 1/3) * abs(-y)": lambda x, y: min(x, y, 1 / 3) * abs(-y),
    "sigmoid(x) + softplus(y)": lambda x, y: 1 / (1 + math.exp(-x)) + math.log(1 + math.exp(y)),
    "step(x) - sign(y)": lambda x, y: 0.0,
    "x**3": lambda x, y: x**3,
}


@pytest.mark.parametrize("text", PYTHON)
def test_text_means_what_python_computes(text):
    function = parse_expression(text)
    for x, y in ((0.3, 0.7), (1.25, 2.5)):
        inputs = {"x": torch.tensor(x, dtype=torch.float64), "y": torch.tensor(y, dtype=torch.float64)}
        assert function(**inputs).item() == pytest.approx(PYTHON[text](x, y), abs=1e-14)
    again = parse_expression(str(function))
    assert str(again) == str(function)
    assert again(**inputs).item() == pytest.approx(PYTHON[text](x, y), abs=1e-14)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the expression is empty"),
        ("sin(x", r"expected '\)', got nothing at the end"),
        ("2 x", "expected an operator, got 'x' at character 3"),
        ("x +", "expected a number, a variable or a function, got nothing"),
        ("sinn(x)", "unknown name 'sinn': did you mean sin"),
        ("__import__('os')", 'unexpected "\'" at character 12'),
        ("x.real", "unexpected '.' at character 2"),
        ("sin(x, y)", "sin takes 1 arguments: got 2"),
        ("x^5000", "an exponent must be between -1000 and 1000"),
        ("1/(2-2)", "divides by zero"),
        ("1e999*x", "too long or too large"),
        ("(" * 200 + "x" + ")" * 200, "nested parentheses"),
        ("x" + "+x" * 6000, "at most 10000 characters"),
        ("x^" * 200 + "x", "nested powers"),
    ],
)
def test_unreadable_text_is_an_error(text, message):
    with pytest.raises(ValueError, match=message):
        parse_expression(text)


def test_functions_are_traced():
    function = trace_expression(lambda x, y: torch.sin(2 * x) * abs(y) - torch.clamp(x, -1, 1) ** 2 / 0.1, ["x", "y"])
    assert str(function) == "sin(2 * x) * abs(y) - min(max(x, -1), 1)^2 / 0.1"
    assert parse_expression("0.1").number == Fraction(1, 10)
    with pytest.raises(TypeError, match="branches on its input"):
        trace_expression(lambda x: x if x == 1 or x else 0 * x, ["x"])
    with pytest.raises(TypeError, match="lgamma is not a function of expressions"):
        trace_expression(torch.lgamma, ["x"])


SMOOTH = ["sin(x)*exp(x)", "sqrt(x+0.5)", "tan(x/2)", "log(x+2)/x", "abs(x-0.3)", "tanh(3*x)", "x^3-x", "sigmoid(x)^2"]
SMOOTH += ["erf(x)", "softplus(5*x)", "max(x, x^2)", "min(x, 0.5)", "1/(1+x^2)", "x^1.5", "cos(9*x)^-2", "x^-3", "x*x"]


@pytest.mark.parametrize("text", SMOOTH)
def test_jets_contain_the_derivatives(text):
    """Oracle: automatic differentiation at points inside random intervals."""
    function, rng = parse_expression(text), np.random.default_rng(0)
    low = rng.uniform(0.01, 1, 50)
    high = low + rng.uniform(0, 0.3, 50) * rng.integers(0, 2, 50)
    jet = function.jet({"x": Jet.variable(Interval(low, high))})
    x = torch.tensor(np.linspace(low, high, 41)).requires_grad_()
    value = function(x=x)
    (first,) = torch.autograd.grad(value.sum(), x, create_graph=True)
    second = torch.autograd.grad(first.sum(), x, materialize_grads=True)[0] if first.requires_grad else 0 * x
    for found, interval in ((value, jet.value), (first, jet.first), (second, jet.second)):
        found = (found + 0.0).detach().numpy()
        slack = 1e-12 * (1 + np.abs(found))
        assert (found >= interval.low - slack).all()
        assert (found <= interval.high + slack).all()
    points = function.jet({"x": Jet.variable(Interval(low, low))}).value
    assert (points.high - points.low < 1e-11 * (1 + np.abs(points.high))).all()


def test_intervals_round_outward():
    """Oracle: rational arithmetic."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 200)) * 10.0 ** rng.integers(-5, 5, (2, 200))
    x, y = Interval(a, a), Interval(b, b)
    for i in range(200):
        p, q = Fraction(a[i]), Fraction(b[i])
        for interval, exact in (
            (x + y, p + q),
            (x * y, p * q),
            (x - y, p - q),
            (x.power(5), p**5),
            (y.inverse(), 1 / q),
        ):
            assert Fraction(interval.low[i]) <= exact <= Fraction(interval.high[i])
