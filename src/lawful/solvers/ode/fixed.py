"""Ordinary differential equations by equal steps."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from lawful.laws import Claim, agreement, gradient, linearity, made, shape
from lawful.solvers.ode.states import Field, Solution, State, finite, moved
from lawful.solvers.ode.tableaus import RK4, TABLEAUS, Tableau


def integrate(
    f: Field[State], x: State, t0: float, t1: float, *, steps: int, tableau: Tableau = RK4
) -> Solution[State]:
    r"""Follows a field from one time to another in equal steps.

    $$\dot x = f(x, t), \qquad x(t_0) \to x(t_1)$$

    The time may run backwards. Gradients pass, and the state keeps its precision; the times are in double precision. A
    state that is not finite is refused, at the start and after each step.

    Reference:
        Hairer, Nørsett and Wanner, *Solving Ordinary Differential Equations I*, 1993.

    Args:
        f: $f$, called with the state and a time, a scalar tensor.
        x: The state at the start: a tensor, or several.
        t0: $t_0$.
        t1: $t_1$.
        steps: The number of steps.
        tableau: The method.

    Examples:
        >>> solution = integrate(lambda x, t: -x, torch.ones(1), 0.0, 1.0, steps=10)
        >>> solution.x, solution.evaluations
        (tensor([0.3679]), 40)
    """
    if steps < 1:
        raise ValueError(f"at least 1 step is wanted: got steps={steps}")
    finite(x, "the state at the start")
    h, evaluations = (t1 - t0) / steps, 0
    rates: list[State] = []
    for step in range(steps):
        t = t0 + step * h
        rates = rates[-1:] if rates and tableau.last_is_first else []
        for i, node in enumerate(tableau.nodes):
            if i < len(rates):
                continue
            inner = tableau.inner[i - 1] if i else ()
            rates.append(f(moved(x, h, rates, inner), torch.tensor(t + node * h, dtype=torch.float64)))
            evaluations += 1
        x = finite(moved(x, h, rates, tableau.weights), f"the state after {step + 1} of {steps} steps, at t={t + h:g},")
    return Solution(x, evaluations)


def claims() -> Iterator[Claim]:
    """The laws that equal steps obey."""

    def field(x: Tensor, t: Tensor) -> Tensor:
        return (x.roll(1, -1) - x) * t.to(x) + t.to(x).sin()

    def series(x: Tensor, order: int) -> Tensor:
        """The exponential of a step as far as the method has it: its terms of h^k / k! up to the order."""
        return x * sum((-0.5) ** k / torch.lgamma(torch.tensor(k + 1.0)).exp().item() for k in range(order + 1))

    for tableau in TABLEAUS[:-1]:
        if len(tableau.weights) - tableau.last_is_first == tableau.order:

            def step(x: Tensor, tableau: Tableau = tableau) -> Tensor:
                return integrate(lambda x, t: -x, x, 1.0, 1.5, steps=1, tableau=tableau).x

            other = agreement(other=lambda x, order=tableau.order: series(x, order))
            yield Claim(other, step, shape("b 2"), name=f"{tableau.name}, one step of decay")

    def there(x: Tensor) -> Tensor:
        return integrate(field, x, 0.0, 1.0, steps=3).x

    def by_hand(x: Tensor) -> Tensor:
        h = 1 / 3
        for i in range(3):
            t, half = (torch.tensor(i * h + part, dtype=torch.float64) for part in (0.0, h / 2))
            k1 = field(x, t)
            k2 = field(x + h / 2 * k1, half)
            k3 = field(x + h / 2 * k2, half)
            k4 = field(x + h * k3, t + h)
            x = x + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6
        return x

    yield Claim(agreement(other=by_hand), there, shape("b 3"), name="RK4, three steps")
    yield Claim(gradient(), there, made(torch.tanh, "b 3"), name="RK4")
    yield Claim(
        linearity(),
        lambda x: integrate(lambda x, t: x * t.to(x), x, 0.0, 1.0, steps=2).x,
        shape("b 3"),
        name="RK4 of a linear field",
    )
