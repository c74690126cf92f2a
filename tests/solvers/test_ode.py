import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from lawful.laws import Claim, agreement, gradient, linearity, shape, transformed
from lawful.solvers import Tableau
from lawful.solvers.ode import (
    DORMAND_PRINCE,
    EULER,
    HEUN,
    RK4,
    TABLEAUS,
    ODESolution,
    odeint,
    odeint_adaptive,
    odeint_fixed,
)


def pendulum(t, x):
    return torch.stack([x[..., 1], -x[..., 0].sin() - 0.1 * t.to(x) * x[..., 1]], -1)


def truth(x, end):
    def slope(t, y):
        return [y[1], -math.sin(y[0]) - 0.1 * t * y[1]]

    return solve_ivp(slope, (0, end), x.tolist(), rtol=1e-12, atol=1e-13, method="DOP853").y[:, -1]


@pytest.mark.parametrize("tableau", TABLEAUS, ids=lambda tableau: tableau.name)
def test_measured_order(tableau):
    x = torch.tensor([1.0, 0.5], dtype=torch.float64)
    errors = [
        float((odeint_fixed(pendulum, x, 0.0, 2.0, steps=n, tableau=tableau).y - torch.tensor(truth(x, 2))).norm())
        for n in (16, 32)
    ]
    assert abs(math.log2(errors[0] / errors[1]) - tableau.order) < 0.35


def test_evaluations_are_counted_and_fsal_is_used():
    calls = []

    def field(t, x):
        calls.append(float(t))
        return -x

    assert odeint_fixed(field, torch.ones(1), 0.0, 1.0, steps=3, tableau=DORMAND_PRINCE).evaluations == len(calls) == 19
    calls.clear()
    assert odeint_adaptive(field, torch.ones(1, 1), 0.0, 1.0).evaluations == len(calls)


def test_tuples_of_tensors_and_gradients():
    x = torch.tensor([[0.5, 0.2]], dtype=torch.float64, requires_grad=True)
    found = odeint_fixed(lambda t, s: (s[1], -s[0]), (x, 2 * x), 0.0, 1.0, steps=20)
    assert isinstance(found, ODESolution)
    torch.testing.assert_close(found.y[0], x * (math.cos(1) + 2 * math.sin(1)), atol=1e-6, rtol=0)
    found.y[0].sum().backward()
    assert x.grad.shape == x.shape
    tuples = odeint_adaptive(lambda t, s: (s[1], -s[0]), (x.detach(), 2 * x.detach()), 1.0, 0.0, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(tuples.y[0], x.detach() * (math.cos(1) - 2 * math.sin(1)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("tableau", [t for t in TABLEAUS if t.error_weights], ids=lambda tableau: tableau.name)
def test_adaptive_steps_equal_scipy(tableau):
    x = torch.tensor([[1.0, 0.5], [0.1, 3.0]], dtype=torch.float64)

    def field(t, x):
        return torch.stack([x[:, 1], -x[:, 0].sin() - 0.1 * t * x[:, 1]], -1)

    tolerance = 10.0 ** -(2 + tableau.order)
    found = odeint_adaptive(field, x, 0.0, 2.0, rtol=tolerance, atol=tolerance, tableau=tableau).y
    np.testing.assert_allclose(found, [truth(row, 2) for row in x], atol=30 * tolerance)
    alone = odeint_adaptive(field, x[1:], 0.0, 2.0, rtol=tolerance, atol=tolerance, tableau=tableau).y
    torch.testing.assert_close(alone, found[1:], rtol=1e-13, atol=1e-13)


def test_dtype_and_empty_inputs():
    assert odeint_fixed(lambda t, x: -x, torch.ones(2), 0.0, 1.0, steps=1, tableau=EULER).y.dtype == torch.float32
    assert odeint_adaptive(lambda t, x: -x, torch.ones(2, 1), 0.0, 1.0).y.dtype == torch.float32
    assert odeint_adaptive(lambda t, x: -x, torch.ones(2, 1), 1.0, 1.0).evaluations == 0
    assert odeint_adaptive(lambda t, x: -x, torch.ones(0, 1), 0.0, 1.0).y.shape == (0, 1)


def test_invalid_arguments():
    x = torch.ones(1, 1, dtype=torch.float64)
    with pytest.raises(ValueError, match="expected steps >= 1, got 0"):
        odeint_fixed(lambda t, x: x, x, 0.0, 1.0, steps=0)
    with pytest.raises(ValueError, match="initial state is not finite"):
        odeint_fixed(lambda t, x: x, x * math.nan, 0.0, 1.0, steps=1)
    with pytest.raises(ValueError, match=r"after 2 of 3 steps, at t=.* is not finite"):
        odeint_fixed(lambda t, x: x**40 * 1e200, 2 * x, 0.0, 3.0, steps=3, tableau=EULER)
    with pytest.raises(ValueError, match="which RK4 lacks"):
        odeint_adaptive(lambda t, x: x, x, 0.0, 1.0, tableau=RK4)
    with pytest.raises(ValueError, match="expected tolerances >= 0"):
        odeint_adaptive(lambda t, x: x, x, 0.0, 1.0, rtol=0.0, atol=0.0)
    with pytest.raises(ValueError, match="right-hand side at the start is not finite"):
        odeint_adaptive(lambda t, x: x / 0, x, 0.0, 1.0)


@pytest.mark.parametrize("max_evaluations", [50, 500])
def test_divergence_does_not_hang(max_evaluations):
    x = torch.ones(2, 1, dtype=torch.float64)
    with pytest.raises((RuntimeError, ValueError), match=r"max_evaluations=|step size vanishes"):
        odeint_adaptive(lambda t, x: x.square(), x, 0.0, 2.0, max_evaluations=max_evaluations, tableau=HEUN)
    with pytest.raises((RuntimeError, ValueError), match=r"max_evaluations=|step size vanishes"):
        odeint_adaptive(
            lambda t, x: torch.where(t[:, None] > 0.5, math.nan, 1.0) * x, x, 0.0, 2.0, max_evaluations=max_evaluations
        )


def test_odeint_has_the_interface_of_torchdiffeq():
    y0, t = torch.tensor([1.0, 0.5], dtype=torch.float64), torch.tensor([0.0, 0.7, 2.0])
    y = odeint(pendulum, y0, t, rtol=1e-9, atol=1e-9)
    assert y.shape == (3, 2)
    assert torch.equal(y[0], y0)
    np.testing.assert_allclose(y[1:], [truth(y0, float(end)) for end in t[1:]], atol=1e-7)
    fixed = odeint(pendulum, y0, t, method=RK4, steps=200)
    torch.testing.assert_close(fixed, y, atol=1e-8, rtol=0)
    backwards = odeint(pendulum, y[-1], t.flip(0), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(backwards, y.flip(0), atol=1e-7, rtol=0)
    assert odeint(lambda t, y: t * y, torch.tensor(1.0), [0.0, 1.0])[-1] == pytest.approx(math.exp(0.5), rel=1e-5)
    with pytest.raises(ValueError, match="strictly monotonic"):
        odeint(pendulum, y0, [0.0, 1.0, 0.5])
    with pytest.raises(ValueError, match="at least 1 time"):
        odeint(pendulum, y0, [])


def _tableaus_claims() -> Iterator[Claim]:
    """Laws of tableaus: a method of order p integrates polynomials up to degree p - 1 exactly."""

    def moments(x: Tensor, weights: tuple[float, ...], nodes: tuple[float, ...], order: int) -> Tensor:
        b, c = x.new_tensor(weights), x.new_tensor(nodes)
        powers = torch.stack([(b * c**k).sum() for k in range(order)])
        return (x[..., None] * powers).sum(-1)

    def integrals(x: Tensor, order: int) -> Tensor:
        return x * sum(1 / (k + 1) for k in range(order))

    for tableau in TABLEAUS:
        rows = [(tableau.weights, tableau.order)]
        rows += [(tableau.error_weights, tableau.order - 1)] if tableau.error_weights else []
        for weights, order in rows:
            yield Claim(
                agreement(other=lambda x, order=order: integrals(x, order)),
                lambda x, w=weights, t=tableau, p=order: moments(x, w, t.nodes, p),
                shape("b"),
                name=f"{tableau.name}, order {order}, polynomials",
            )


def _fixed_claims() -> Iterator[Claim]:
    """Laws of equal steps."""

    def field(t: Tensor, x: Tensor) -> Tensor:
        return (x.roll(1, -1) - x) * t.to(x) + t.to(x).sin()

    def series(x: Tensor, order: int) -> Tensor:
        """The exponential series of a step up to the order of the method."""
        return x * sum((-0.5) ** k / torch.lgamma(torch.tensor(k + 1.0)).exp().item() for k in range(order + 1))

    for tableau in TABLEAUS[:-1]:
        if len(tableau.weights) - tableau.first_same_as_last == tableau.order:

            def step(x: Tensor, tableau: Tableau = tableau) -> Tensor:
                return odeint_fixed(lambda t, x: -x, x, 1.0, 1.5, steps=1, tableau=tableau).y

            other = agreement(other=lambda x, order=tableau.order: series(x, order))
            yield Claim(other, step, shape("b 2"), name=f"{tableau.name}, one step of decay")

    def there(x: Tensor) -> Tensor:
        return odeint_fixed(field, x, 0.0, 1.0, steps=3).y

    def by_hand(x: Tensor) -> Tensor:
        h = 1 / 3
        for i in range(3):
            t, half = (torch.tensor(i * h + part, dtype=torch.float64) for part in (0.0, h / 2))
            k1 = field(t, x)
            k2 = field(half, x + h / 2 * k1)
            k3 = field(half, x + h / 2 * k2)
            k4 = field(t + h, x + h * k3)
            x = x + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6
        return x

    yield Claim(agreement(other=by_hand), there, shape("b 3"), name="RK4, three steps")
    yield Claim(gradient(), there, transformed(torch.tanh, "b 3"), name="RK4")
    yield Claim(
        linearity(),
        lambda x: odeint_fixed(lambda t, x: x * t.to(x), x, 0.0, 1.0, steps=2).y,
        shape("b 3"),
        name="RK4 of a linear field",
    )


def claims() -> Iterator[Claim]:
    """Second derivations of Runge-Kutta methods."""
    yield from _tableaus_claims()
    yield from _fixed_claims()
