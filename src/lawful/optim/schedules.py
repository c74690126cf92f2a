"""Learning rate schedules: from a step, counted from 0, to a factor of the learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from lawful.laws import Claim, boundedness, monotonicity, transformed

Schedule = Callable[[int], float]


def constant_schedule() -> Schedule:
    """Returns the schedule that is 1 at every step.

    Examples:
        >>> constant_schedule()(10)
        1.0
    """
    return lambda step: 1.0


def with_warmup(schedule: Schedule, *, warmup_steps: int) -> Schedule:
    r"""Adds a linear warmup before a schedule.

    $$f(t) = \frac{t + 1}{n + 1} f_0(0) \ \text{ for } t < n, \qquad f(t) = f_0(t - n) \ \text{ for } t \ge n$$

    Args:
        schedule: Schedule $f_0$ after the warmup.
        warmup_steps: Number of warmup steps $n$.

    Examples:
        >>> [with_warmup(constant_schedule(), warmup_steps=3)(t) for t in range(5)]
        [0.25, 0.5, 0.75, 1.0, 1.0]
    """
    _check_at_least("warmup_steps", warmup_steps, 0)
    n = warmup_steps
    return lambda t: (t + 1) / (n + 1) * schedule(0) if t < n else schedule(t - n)


def linear_schedule(*, steps: int, warmup_steps: int = 0, min_lr_ratio: float = 0.0) -> Schedule:
    r"""Returns linear decay after a warmup: $f(t) = 1 - (1 - r) \, t / n$.

    Args:
        steps: Total number of steps; $n$ of them follow the warmup.
        warmup_steps: Number of warmup steps.
        min_lr_ratio: Final value $r$, kept after the last step.

    Examples:
        >>> [linear_schedule(steps=4)(t) for t in range(5)]
        [1.0, 0.75, 0.5, 0.25, 0.0]
    """
    return _decay(lambda s: 1 - s, steps=steps, warmup_steps=warmup_steps, min_lr_ratio=min_lr_ratio)


def cosine_schedule(*, steps: int, warmup_steps: int = 0, min_lr_ratio: float = 0.0) -> Schedule:
    r"""Returns cosine decay after a warmup: $f(t) = r + (1 - r) \, (1 + \cos(\pi t / n)) / 2$.

    Reference:
        Loshchilov and Hutter, *SGDR: Stochastic Gradient Descent with Warm Restarts*, 2017.

    Args:
        steps: Total number of steps; $n$ of them follow the warmup.
        warmup_steps: Number of warmup steps.
        min_lr_ratio: Final value $r$, kept after the last step.

    Examples:
        >>> [round(cosine_schedule(steps=4)(t), 3) for t in range(5)]
        [1.0, 0.854, 0.5, 0.146, 0.0]
    """
    return _decay(_half_cosine, steps=steps, warmup_steps=warmup_steps, min_lr_ratio=min_lr_ratio)


def warmup_stable_decay_schedule(
    *, steps: int, decay_steps: int, warmup_steps: int = 0, min_lr_ratio: float = 0.0
) -> Schedule:
    """Returns 1 between a linear warmup and a linear decay.

    Reference:
        Hu et al., *MiniCPM: Unveiling the Potential of Small Language Models*, 2024.

    Args:
        steps: Total number of steps.
        decay_steps: Number of decay steps at the end.
        warmup_steps: Number of warmup steps at the start.
        min_lr_ratio: Final value, kept after the last step.

    Examples:
        >>> [warmup_stable_decay_schedule(steps=6, warmup_steps=1, decay_steps=2)(t) for t in range(7)]
        [0.5, 1.0, 1.0, 1.0, 1.0, 0.5, 0.0]
    """
    if not 0 <= decay_steps <= steps - warmup_steps:
        raise ValueError(
            f"decay_steps must be in [0, steps - warmup_steps], got {decay_steps} with steps={steps} and "
            f"warmup_steps={warmup_steps}"
        )
    if not decay_steps:
        return with_warmup(constant_schedule(), warmup_steps=warmup_steps)
    decay, stable = linear_schedule(steps=decay_steps, min_lr_ratio=min_lr_ratio), steps - warmup_steps - decay_steps
    return with_warmup(lambda t: decay(max(t - stable, 0)), warmup_steps=warmup_steps)


def one_cycle_schedule(
    *, steps: int, pct_start: float = 0.3, div_factor: float = 25.0, final_div_factor: float = 1e4
) -> Schedule:
    """Returns the 1cycle schedule, as `torch.optim.lr_scheduler.OneCycleLR`: half a cosine up to 1, and one down.

    Reference:
        Smith and Topin, *Super-Convergence: Very Fast Training of Neural Networks Using Large Learning Rates*, 2018.

    Args:
        steps: Total number of steps.
        pct_start: Fraction of the steps that raise the learning rate.
        div_factor: The schedule starts at `1 / div_factor`.
        final_div_factor: The schedule ends at `1 / (div_factor * final_div_factor)`.

    Examples:
        >>> [round(one_cycle_schedule(steps=5, pct_start=0.6)(t), 2) for t in range(5)]
        [0.04, 0.52, 1.0, 0.5, 0.0]
    """
    _check_at_least("steps", steps, 2)
    _check_fraction("pct_start", pct_start)
    _check_at_least("div_factor", div_factor, 1)
    _check_at_least("final_div_factor", final_div_factor, 1)
    peak, last = max(pct_start * steps - 1, 0.0), steps - 1
    initial, final = 1 / div_factor, 1 / (div_factor * final_div_factor)

    def interpolate(start: float, end: float, s: float) -> float:
        return end + (start - end) * _half_cosine(s)

    def factor(t: int) -> float:
        if t <= peak:
            return interpolate(initial, 1.0, t / peak) if peak else 1.0
        return interpolate(1.0, final, (min(t, last) - peak) / (last - peak))

    return factor


def _half_cosine(s: float) -> float:
    """Falls from 1 at 0 to 0 at 1."""
    return (1 + math.cos(math.pi * s)) / 2


def _decay(curve: Callable[[float], float], *, steps: int, warmup_steps: int, min_lr_ratio: float) -> Schedule:
    """Decays from 1 to `min_lr_ratio` along a curve from 1 at 0 to 0 at 1, after a warmup."""
    _check_fraction("min_lr_ratio", min_lr_ratio)
    n = steps - warmup_steps
    if n < 1:
        raise ValueError(f"steps must be greater than warmup_steps, got steps={steps}, warmup_steps={warmup_steps}")
    return with_warmup(lambda t: min_lr_ratio + (1 - min_lr_ratio) * curve(min(t / n, 1.0)), warmup_steps=warmup_steps)


def _check_at_least(name: str, value: float, low: float) -> None:
    if not value >= low:
        raise ValueError(f"{name} must be at least {low}, got {value}")


def _check_fraction(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be in [0, 1], got {value}")


def claims() -> Iterator[Claim]:
    """Laws of the schedules."""

    def over_steps(schedule: Schedule) -> Callable[[Tensor], Tensor]:
        return lambda t: torch.tensor([schedule(int(step)) for step in t]).to(t)

    steps = transformed(lambda x: (10 * x.abs()).clamp(max=1e6).floor(), "n")
    schedules = {
        "linear_schedule": linear_schedule(steps=20, warmup_steps=5, min_lr_ratio=0.1),
        "cosine_schedule": cosine_schedule(steps=20, warmup_steps=5),
        "warmup_stable_decay_schedule": warmup_stable_decay_schedule(steps=20, warmup_steps=5, decay_steps=5),
        "one_cycle_schedule": one_cycle_schedule(steps=20),
    }
    for name, schedule in schedules.items():
        yield Claim(boundedness(low=0.0, high=1.0), over_steps(schedule), steps, name=name)
    no_warmup = over_steps(cosine_schedule(steps=20))
    yield Claim(monotonicity(decreasing=True), no_warmup, steps, name="cosine_schedule without a warmup")
