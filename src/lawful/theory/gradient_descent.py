r"""Gradient descent beside the bounds of its theorems, and the exact spectra of momentum and Adam on quadratics.

**Theorem.** Let $f$ be convex and differentiable with a minimizer $x^*$, let its gradient be Lipschitz continuous with
constant $L$, and let $0 < \eta \le 1 / L$. Then gradient descent $x_{t+1} = x_t - \eta \nabla f(x_t)$ satisfies

$$f(x_t) - f(x^*) \le \frac{\|x_0 - x^*\|^2}{2 \eta t} .$$

If $f$ is $\mu$-strongly convex, then also $f(x_t) - f(x^*) \le (1 - \eta \mu)^t \, (f(x_0) - f(x^*))$.

*Proof.* By the descent lemma, $f(x_{t+1}) \le f(x_t) - \eta (1 - \eta L / 2) \|g_t\|^2 \le f(x_t) - \tfrac \eta 2
\|g_t\|^2$ with $g_t = \nabla f(x_t)$. By convexity, $f(x_t) \le f(x^*) + g_t^\top (x_t - x^*)$. Together,
$f(x_{t+1}) - f(x^*) \le g_t^\top (x_t - x^*) - \tfrac \eta 2 \|g_t\|^2 = \tfrac{1}{2 \eta} (\|x_t - x^*\|^2 -
\|x_{t+1} - x^*\|^2)$. The sum over $t$ telescopes, and $f(x_t)$ decreases. Strong convexity gives
$\|g_t\|^2 \ge 2 \mu (f(x_t) - f(x^*))$, and the descent lemma gives the factor $1 - \eta \mu$. $\square$

The accelerated method of Nesterov has the bounds $2 \|x_0 - x^*\|^2 / (\eta (t + 1)^2)$ and, with strong convexity and
$q = \eta \mu$, $(1 - \sqrt q)^t \, (f(x_0) - f(x^*) + \tfrac \mu 2 \|x_0 - x^*\|^2)$.

Reference: Garrigos and Gower, Handbook of Convergence Theorems for (Stochastic) Gradient Methods, 2023, theorems 3.4
    and 3.6; Nesterov, Introductory Lectures on Convex Optimization, 2004, section 2.2; d'Aspremont, Scieur and Taylor,
    Acceleration Methods, 2021, theorems 4.10 and 4.14.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

_TOLERANCE = 1e-9  # of rounding in float64


@dataclass(frozen=True)
class ConvergenceRun:
    """A run of gradient descent beside its bound, and a check of the assumptions along the run."""

    values: Float[Tensor, " t"]
    """Values of the function, from step 0."""
    bound: Float[Tensor, " t"]
    """Bound of the theorem on the difference between each value and the minimum."""
    minimum: float
    """Value at the minimizer, or a lower bound if no minimizer was given."""
    learning_rate: float
    """Learning rate."""
    final: Float[Tensor, "..."]
    """Last iterate."""
    lipschitz: float
    """Lipschitz constant of the gradient that was stated."""
    observed_lipschitz: float
    """Largest change of the gradient over the distance of two points of the run: a lower bound of the constant."""
    strong_convexity: float
    """Constant of strong convexity that was stated."""
    convexity_violation: int | None
    """First step at which two points of the run contradict convexity, or the stated strong convexity."""
    bound_violation: int | None
    """First step at which the gap is larger than the bound."""

    @property
    def gap(self) -> Float[Tensor, " t"]:
        """Differences between the values and the minimum."""
        return self.values - self.minimum

    @property
    def assumptions_hold(self) -> bool:
        """Whether the run contradicts neither convexity nor the Lipschitz constant."""
        smooth = self.observed_lipschitz <= self.lipschitz * (1 + 1e-6)
        return smooth and self.convexity_violation is None

    @property
    def holds(self) -> bool:
        """Whether every gap is at most its bound."""
        return self.bound_violation is None

    def __str__(self) -> str:
        last = len(self.values) - 1
        if self.bound_violation is None:
            end = f"{self.gap[-1]:.3g} ≤ {self.bound[-1]:.3g} at the end"
            text = f"The gap is at most the bound at all {last} steps: {end}."
        else:
            i = self.bound_violation
            text = f"The gap is larger than the bound at step {i}: {self.gap[i]:.3g} > {self.bound[i]:.3g}."
        if self.observed_lipschitz > self.lipschitz * (1 + 1e-6):
            text += f" lipschitz is too small: it is at least {self.observed_lipschitz:.4g}, got {self.lipschitz:.4g}."
        if self.convexity_violation is not None:
            kind = f"strongly convex with constant {self.strong_convexity:.4g}" if self.strong_convexity else "convex"
            text += f" The function is not {kind}: see step {self.convexity_violation}."
        return text


def gradient_descent(
    function: Callable[[Tensor], Tensor],
    start: Float[Tensor, "..."],
    *,
    lipschitz: float,
    strong_convexity: float = 0.0,
    minimizer: Float[Tensor, "..."] | None = None,
    learning_rate: float | None = None,
    steps: int = 100,
    method: Literal["gradient", "nesterov"] = "gradient",
) -> ConvergenceRun:
    """Runs gradient descent in float64 and returns the bound of its convergence theorem beside it.

    The run is also a test of the assumptions: a stated Lipschitz constant that is too small, or a function that is not
    convex, is reported if two points of the run show it.

    Args:
        function: Convex function of a tensor, with a scalar value.
        start: Start of the run.
        lipschitz: Lipschitz constant of the gradient.
        strong_convexity: Constant of strong convexity. 0 for none.
        minimizer: Minimizer. None bounds the minimum and its distance by strong convexity.
        learning_rate: Learning rate, at most 1 / lipschitz. None for 1 / lipschitz.
        steps: Number of steps.
        method: `"gradient"`, or `"nesterov"` for the accelerated method.

    Examples:
        >>> run = gradient_descent(lambda x: x.square().sum(), torch.ones(3), lipschitz=2, minimizer=torch.zeros(3))
        >>> run.holds and run.assumptions_hold
        True
        >>> wrong = gradient_descent(lambda x: x.square().sum(), torch.ones(3), lipschitz=0.5, minimizer=torch.zeros(3))
        >>> print(wrong.observed_lipschitz, wrong.holds)
        2.0 False
    """
    if not 0 < lipschitz < math.inf:
        raise ValueError(f"lipschitz must be positive and finite: got {lipschitz}")
    if not 0 <= strong_convexity <= lipschitz:
        raise ValueError(f"strong_convexity must be between 0 and lipschitz={lipschitz}: got {strong_convexity}")
    rate = 1 / lipschitz if learning_rate is None else learning_rate
    if not 0 < rate <= 1 / lipschitz * (1 + 1e-12):
        raise ValueError(f"learning_rate must be positive and at most 1 / lipschitz = {1 / lipschitz:.6g}: got {rate}")
    if method not in ("gradient", "nesterov"):
        raise ValueError(f"method must be 'gradient' or 'nesterov': got {method!r}")
    if steps < 1:
        raise ValueError(f"steps must be at least 1: got {steps}")
    if minimizer is None and not strong_convexity:
        raise ValueError("minimizer is required: without it, strong_convexity must be positive")
    if not bool(start.isfinite().all()):
        raise ValueError("start must be finite: got NaN or infinity")
    if minimizer is not None and (minimizer.shape != start.shape or not bool(minimizer.isfinite().all())):
        raise ValueError(f"minimizer must be finite and of shape {tuple(start.shape)}: got {tuple(minimizer.shape)}")

    def evaluate(x: Tensor) -> tuple[float, Tensor]:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            value = function(x)
            if value.numel() != 1:
                raise ValueError(f"function must return one number: got shape {tuple(value.shape)}")
            (gradient,) = torch.autograd.grad(value.sum(), x)
        return value.item(), gradient.detach()

    x = y = start.detach().double()
    momentum = (1 - math.sqrt(rate * strong_convexity)) / (1 + math.sqrt(rate * strong_convexity))
    first, weight = evaluate(x), 1.0
    values, points = [first[0]], []
    for _ in range(steps):
        value, gradient = evaluate(y)
        points.append((y, value, gradient))
        previous, x = x, y - rate * gradient
        if method == "nesterov":
            following = (1 + math.sqrt(1 + 4 * weight**2)) / 2
            beta = momentum if strong_convexity else (weight - 1) / following
            y, weight = x + beta * (x - previous), following
        else:
            y = x
        values.append(evaluate(x)[0])
    points.append((x, *evaluate(x)))
    if minimizer is not None:
        x_star = minimizer.detach().double()
        minimum, gradient = evaluate(x_star)
        points.append((x_star, minimum, gradient))
        distance = float((start.detach().double() - x_star).square().sum())
        gap = values[0] - minimum
    else:
        # Strong convexity: the minimum is at least f(x) - |g|² / (2 mu), and its distance at most |g| / mu.
        minimum = max(value - float(g.square().sum()) / (2 * strong_convexity) for _, value, g in points)
        gap, distance = values[0] - minimum, float(first[1].square().sum()) / strong_convexity**2
    t = torch.arange(steps + 1, dtype=torch.float64)
    q = rate * strong_convexity
    if method == "gradient":
        bound = distance / (2 * rate * t)
        bound[0] = distance * lipschitz / 2
        if q:
            bound = torch.minimum(bound, (1 - q) ** t * gap)
    else:
        bound = 2 * distance / (rate * (t + 1) ** 2)
        bound[0] = distance * lipschitz / 2
        if q:
            bound = (1 - math.sqrt(q)) ** t * (gap + strong_convexity / 2 * distance)
    found = torch.tensor(values, dtype=torch.float64)
    scale = _TOLERANCE * (found.abs() + abs(values[0]) + abs(minimum))
    lowest = minimum if minimizer is not None else min(values)  # without a minimizer, the minimum is only bounded
    wrong = ~(found - lowest <= bound + scale)
    return ConvergenceRun(
        values=found,
        bound=bound,
        minimum=minimum,
        learning_rate=rate,
        final=x,
        lipschitz=float(lipschitz),
        observed_lipschitz=_observed_lipschitz(points),
        strong_convexity=float(strong_convexity),
        convexity_violation=_convexity_violation(points, strong_convexity, abs(values[0])),
        bound_violation=int(wrong.int().argmax()) if bool(wrong.any()) else None,
    )


_Point = tuple[Tensor, float, Tensor]


def _pairs(points: list[_Point]) -> list[tuple[_Point, _Point]]:
    """Consecutive points, and each point with the last: the minimizer or the end of the run."""
    return [*pairwise(points), *((point, points[-1]) for point in points[:-2])]


def _observed_lipschitz(points: list[_Point]) -> float:
    ratios = [0.0]
    for (x, _, g), (y, _, h) in _pairs(points):
        distance, scale = float((x - y).norm()), float(x.norm() + y.norm())
        if distance > 1e-6 * scale and math.isfinite(distance):
            ratios.append(float((g - h).norm()) / distance)
    return max(ratio for ratio in ratios if not math.isnan(ratio))


def _convexity_violation(points: list[_Point], strong_convexity: float, size: float) -> int | None:
    """Returns the first point whose tangent is above another point of the run."""
    for i, ((x, a, g), (y, b, h)) in enumerate(_pairs(points)):
        step = y - x
        curve = strong_convexity / 2 * float(step.square().sum())
        scale = _TOLERANCE * (size + abs(a) + abs(b) + float(g.norm() + h.norm()) * float(step.norm()))
        if a + float((g * step).sum()) + curve > b + scale or b - float((h * step).sum()) + curve > a + scale:
            return i if i < len(points) - 1 else i - len(points) + 1
    return None
