import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from lawful.solvers.ode import DORMAND_PRINCE, EULER, HEUN, RK4, TABLEAUS, Solution, adaptive, integrate


def pendulum(x, t):
    return torch.stack([x[..., 1], -x[..., 0].sin() - 0.1 * t.to(x) * x[..., 1]], -1)


def truth(x, end):
    def slope(t, y):
        return [y[1], -math.sin(y[0]) - 0.1 * t * y[1]]

    return solve_ivp(slope, (0, end), x.tolist(), rtol=1e-12, atol=1e-13, method="DOP853").y[:, -1]


@pytest.mark.parametrize("tableau", TABLEAUS, ids=lambda tableau: tableau.name)
def test_the_measured_order_is_the_claimed_one(tableau):
    x = torch.tensor([1.0, 0.5], dtype=torch.float64)
    errors = [
        float((integrate(pendulum, x, 0.0, 2.0, steps=n, tableau=tableau).x - torch.tensor(truth(x, 2))).norm())
        for n in (16, 32)
    ]
    assert abs(math.log2(errors[0] / errors[1]) - tableau.order) < 0.35


def test_evaluations_are_counted_and_the_last_stage_is_used_again():
    calls = []

    def field(x, t):
        calls.append(float(t))
        return -x

    assert integrate(field, torch.ones(1), 0.0, 1.0, steps=3, tableau=DORMAND_PRINCE).evaluations == len(calls) == 19
    calls.clear()
    assert adaptive(field, torch.ones(1, 1), 0.0, 1.0).evaluations == len(calls)


def test_several_tensors_move_together_and_gradients_pass():
    x = torch.tensor([[0.5, 0.2]], dtype=torch.float64, requires_grad=True)
    found = integrate(lambda s, t: (s[1], -s[0]), (x, 2 * x), 0.0, 1.0, steps=20)
    assert isinstance(found, Solution)
    torch.testing.assert_close(found.x[0], x * (math.cos(1) + 2 * math.sin(1)), atol=1e-6, rtol=0)
    found.x[0].sum().backward()
    assert x.grad.shape == x.shape
    tuples = adaptive(lambda s, t: (s[1], -s[0]), (x.detach(), 2 * x.detach()), 1.0, 0.0, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(tuples.x[0], x.detach() * (math.cos(1) - 2 * math.sin(1)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("tableau", [t for t in TABLEAUS if t.lower], ids=lambda tableau: tableau.name)
def test_adaptive_steps_agree_with_scipy(tableau):
    x = torch.tensor([[1.0, 0.5], [0.1, 3.0]], dtype=torch.float64)

    def field(x, t):
        return torch.stack([x[:, 1], -x[:, 0].sin() - 0.1 * t * x[:, 1]], -1)

    tolerance = 10.0 ** -(2 + tableau.order)
    found = adaptive(field, x, 0.0, 2.0, rtol=tolerance, atol=tolerance, tableau=tableau).x
    np.testing.assert_allclose(found, [truth(row, 2) for row in x], atol=30 * tolerance)
    alone = adaptive(field, x[1:], 0.0, 2.0, rtol=tolerance, atol=tolerance, tableau=tableau).x
    torch.testing.assert_close(alone, found[1:], rtol=1e-13, atol=1e-13)


def test_precision_and_edges():
    assert integrate(lambda x, t: -x, torch.ones(2), 0.0, 1.0, steps=1, tableau=EULER).x.dtype == torch.float32
    assert adaptive(lambda x, t: -x, torch.ones(2, 1), 0.0, 1.0).x.dtype == torch.float32
    assert adaptive(lambda x, t: -x, torch.ones(2, 1), 1.0, 1.0).evaluations == 0
    assert adaptive(lambda x, t: -x, torch.ones(0, 1), 0.0, 1.0).x.shape == (0, 1)


def test_errors_say_what_is_wrong():
    x = torch.ones(1, 1, dtype=torch.float64)
    with pytest.raises(ValueError, match="at least 1 step is wanted: got steps=0"):
        integrate(lambda x, t: x, x, 0.0, 1.0, steps=0)
    with pytest.raises(ValueError, match="state at the start is to be finite"):
        integrate(lambda x, t: x, x * math.nan, 0.0, 1.0, steps=1)
    with pytest.raises(ValueError, match=r"after 2 of 3 steps, at t=.* is to be finite"):
        integrate(lambda x, t: x**40 * 1e200, 2 * x, 0.0, 3.0, steps=3, tableau=EULER)
    with pytest.raises(ValueError, match=r"estimates its error is wanted.*got RK4"):
        adaptive(lambda x, t: x, x, 0.0, 1.0, tableau=RK4)
    with pytest.raises(ValueError, match="tolerances above 0"):
        adaptive(lambda x, t: x, x, 0.0, 1.0, rtol=0.0, atol=0.0)
    with pytest.raises(ValueError, match="field at the start is to be finite"):
        adaptive(lambda x, t: x / 0, x, 0.0, 1.0)


@pytest.mark.parametrize("most", [50, 500])
def test_what_diverges_does_not_hang(most):
    x = torch.ones(2, 1, dtype=torch.float64)
    with pytest.raises((RuntimeError, ValueError), match=r"evaluations do not do|no step is short enough"):
        adaptive(lambda x, t: x.square(), x, 0.0, 2.0, most=most, tableau=HEUN)
    with pytest.raises((RuntimeError, ValueError), match=r"evaluations do not do|no step is short enough"):
        adaptive(lambda x, t: torch.where(t[:, None] > 0.5, math.nan, 1.0) * x, x, 0.0, 2.0, most=most)
