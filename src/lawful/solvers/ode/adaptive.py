"""Ordinary differential equations by steps as long as the error allows, for each sample its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from lawful.laws import Claim, agreement, batch_independence, made
from lawful.solvers.ode.states import Field, Solution, State, alike, finite, moved, parts
from lawful.solvers.ode.tableaus import DORMAND_PRINCE, Tableau

SHORTEST = 1e-12
"""The shortest step, as a part of the whole way, before the method gives up."""


def adaptive(
    f: Field[State],
    x: State,
    t0: float,
    t1: float,
    *,
    rtol: float = 1e-6,
    atol: float = 1e-8,
    most: int = 5000,
    tableau: Tableau = DORMAND_PRINCE,
) -> Solution[State]:
    r"""Follows a field from one time to another in steps that keep the estimated error below a tolerance.

    $$h \leftarrow h \, \min\bigl(5, \max(0.2, \; 0.9 \, e^{-1/p})\bigr), \qquad
    e = \operatorname{rms}_i \frac{\lvert x'_i - \hat x_i \rvert}{\text{atol} + \text{rtol} \max(|x_i|, |x'_i|)}$$

    where $\hat x$ is of the lower order. Each sample, along the first axis, takes its own steps, so that no solution
    depends on its batch; those that have arrived wait. There is no hanging: a field that is not finite, a step that
    vanishes and more than `most` evaluations are errors.

    Reference:
        Hairer, Nørsett and Wanner, *Solving Ordinary Differential Equations I*, 1993.

    Args:
        f: $f$, called with the state and the times, one for each sample.
        x: The state at the start, (n, ...), or several of these.
        t0: $t_0$.
        t1: $t_1$.
        rtol: The tolerance relative to the state.
        atol: The tolerance that is added to it.
        most: The largest number of evaluations.
        tableau: The method, with weights of a lower order.

    Examples:
        >>> solution = adaptive(lambda x, t: -x, torch.ones(1, 1), 0.0, 1.0)
        >>> solution.x
        tensor([[0.3679]])
    """
    if not tableau.lower:
        raise ValueError(f"a method that estimates its error is wanted, such as Dormand-Prince: got {tableau.name}")
    if not (rtol >= 0 and atol >= 0 and rtol + atol > 0):
        raise ValueError(f"tolerances above 0 are wanted: got rtol={rtol}, atol={atol}")
    finite(x, "the state at the start")
    t = torch.full(parts(x)[0].shape[:1], t0, dtype=torch.float64, device=parts(x)[0].device)
    if t0 == t1 or not len(t):
        return Solution(x, 0)
    way = t1 - t0
    first, evaluations = f(x, t), 1
    finite(first, "the field at the start")
    h = _first_step(x, first, way, rtol, atol)
    while bool((t != t1).any()):
        if evaluations + len(tableau.weights) > most:
            raise RuntimeError(
                f"{most} evaluations do not do: the slowest sample has come to t={_slowest(t, way):g} on its way from"
                f" {t0:g} to {t1:g}. The field may diverge, or the tolerances be too small"
            )
        left = t1 - t
        last = h.abs() >= left.abs()
        step = torch.where(last, left, h)
        rates = [first]
        for node, inner in zip(tableau.nodes[1:], tableau.inner, strict=True):
            rates.append(f(moved(x, step, rates, inner), t + node * step))
        evaluations += len(tableau.inner)
        after = moved(x, step, rates, tableau.weights)
        error = _error(x, after, moved(x, step, rates, tableau.lower), rtol, atol)
        taken = error <= 1
        shrink = torch.where(error.isfinite(), 0.9 * error.clamp_min(1e-10) ** (-1 / tableau.order), 0.2)
        h = step * shrink.clamp(0.2, 5.0)
        stuck = ~taken & (h.abs() < SHORTEST * abs(way))
        if bool(stuck.any()):
            raise ValueError(
                f"the field is not finite, or not smooth, at t={float(t[stuck][0]):g}: no step is short enough there"
            )
        x = _chosen(taken, after, x)
        t = torch.where(taken, torch.where(last, torch.full_like(t, t1), t + step), t)
        h = torch.where(t == t1, torch.zeros_like(h), h)
        if tableau.last_is_first:
            first = _chosen(taken, rates[-1], first)
        else:
            first, evaluations = f(x, t), evaluations + 1
    return Solution(x, evaluations)


def _slowest(t: Tensor, way: float) -> float:
    return float(t.min() if way > 0 else t.max())


def _rows(x: Tensor) -> Tensor:
    return x.reshape(len(x), -1).double()


def _error(x: State, after: State, lower: State, rtol: float, atol: float) -> Tensor:
    """How far the two solutions of each sample are apart, in units of what is allowed."""
    columns = [
        (_rows(b) - _rows(c)) / (atol + rtol * torch.maximum(_rows(a).abs(), _rows(b).abs()))
        for a, b, c in zip(parts(x), parts(after), parts(lower), strict=True)
    ]
    return torch.cat(columns, 1).detach().square().mean(1).sqrt()


def _chosen(taken: Tensor, new: State, old: State) -> State:
    pairs = zip(parts(new), parts(old), strict=True)
    return alike(new, (torch.where(taken.reshape(-1, *(1,) * (a.dim() - 1)), a, b) for a, b in pairs))


def _first_step(x: State, rate: State, way: float, rtol: float, atol: float) -> Tensor:
    """A hundredth of the time in which the state would change by its own size, at most the whole way."""
    sizes, speeds = (torch.cat([_rows(part).abs() for part in parts(all_)], 1).detach() for all_ in (x, rate))
    scale = atol + rtol * sizes
    far, fast = ((part / scale).square().mean(1).sqrt() for part in (sizes, speeds))
    guess = torch.where((far > 1e-5) & (fast > 1e-5), 0.01 * far / fast, 1e-3 * abs(way))
    return guess.clamp(1e-6 * abs(way), abs(way)) * (1 if way > 0 else -1)


def claims() -> Iterator[Claim]:
    """The laws that adaptive steps obey."""

    def turned(x: Tensor) -> Tensor:
        def field(x: Tensor, t: Tensor) -> Tensor:
            return torch.stack([-x[:, 1], x[:, 0]], 1) * t.to(x)[:, None]

        return adaptive(field, x.double(), 0.0, 1.0, rtol=1e-6, atol=1e-7).x.to(x)

    def exactly(x: Tensor) -> Tensor:
        c, s = torch.tensor(0.5).double().cos().to(x), torch.tensor(0.5).double().sin().to(x)
        return torch.stack([c * x[:, 0] - s * x[:, 1], s * x[:, 0] + c * x[:, 1]], 1)

    near = replace(agreement(other=exactly), within=1e-5, cases=6)
    yield Claim(near, turned, made(torch.tanh, "n 2"), name="adaptive, a rotation")
    yield Claim(replace(batch_independence(), cases=4), turned, made(torch.tanh, "n 2"), name="adaptive")
