"""Schedules: what factor of the learning rate a step has. Pure functions of the number of the step, from 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from lawful.laws import Claim, agreement, boundedness, monotonicity, transformed

Schedule = Callable[[int], float]


def constant(step: int) -> float:
    """Returns 1 at every step.

    Examples:
        >>> constant(10)
        1.0
    """
    return 1.0


def with_warmup(schedule: Schedule, *, steps: int) -> Schedule:
    r"""Lets a schedule begin after a rise in equal steps.

    $$f(t) = \frac{t + 1}{n + 1} f_0 \ \text{ for } t < n, \qquad f(t) = f_0(t - n) \ \text{ from there on}$$

    Args:
        schedule: What comes after the rise; it ends at its first value $f_0$.
        steps: $n$; with 0 there is no rise.

    Examples:
        >>> [with_warmup(constant, steps=3)(t) for t in range(5)]
        [0.25, 0.5, 0.75, 1.0, 1.0]
    """
    _at_least("steps of the warm-up", steps, 0)
    return lambda t: (t + 1) / (steps + 1) * schedule(0) if t < steps else schedule(t - steps)


def linear(*, steps: int, warmup: int = 0, floor: float = 0.0) -> Schedule:
    r"""Falls in equal steps, after a warm-up.

    $$f(t) = 1 - (1 - f_\infty) \, \frac{t}{n}$$

    Args:
        steps: How many there are in all; $n$ of them after the warm-up. From there on it stays where it is.
        warmup: How many of them are the warm-up.
        floor: $f_\infty$, where it ends.

    Examples:
        >>> [linear(steps=4)(t) for t in range(5)]
        [1.0, 0.75, 0.5, 0.25, 0.0]
    """
    return _falling(lambda s: 1 - s, steps=steps, warmup=warmup, floor=floor)


def cosine_schedule(*, steps: int, warmup: int = 0, floor: float = 0.0) -> Schedule:
    r"""Falls along half a cosine, after a warm-up.

    $$f(t) = f_\infty + (1 - f_\infty) \, \frac{1 + \cos(\pi t / n)}{2}$$

    Reference:
        Loshchilov and Hutter, *SGDR: Stochastic Gradient Descent with Warm Restarts*, 2017.

    Args:
        steps: How many there are in all; $n$ of them after the warm-up. From there on it stays where it is.
        warmup: How many of them are the warm-up.
        floor: $f_\infty$, where it ends.

    Examples:
        >>> [round(cosine_schedule(steps=4)(t), 3) for t in range(5)]
        [1.0, 0.854, 0.5, 0.146, 0.0]
    """
    return _falling(lambda s: (1 + math.cos(math.pi * s)) / 2, steps=steps, warmup=warmup, floor=floor)


def warmup_stable_decay(*, steps: int, cooldown: int, warmup: int = 0, floor: float = 0.0) -> Schedule:
    """Stays at 1 between a warm-up and a cool-down in equal steps.

    Reference:
        Hu and others, *MiniCPM: Unveiling the Potential of Small Language Models*, 2024.

    Args:
        steps: How many there are in all.
        cooldown: How many of them, at the end, are the cool-down.
        warmup: How many of them, at the start, are the warm-up.
        floor: Where it ends.

    Examples:
        >>> [warmup_stable_decay(steps=6, warmup=1, cooldown=2)(t) for t in range(7)]
        [0.5, 1.0, 1.0, 1.0, 1.0, 0.5, 0.0]
    """
    if not 0 <= cooldown <= steps - warmup:
        raise ValueError(f"cooldown is from 0 to steps - warmup: got {cooldown} of {steps} - {warmup}")
    if not cooldown:
        return with_warmup(constant, steps=warmup)
    fall, flat = linear(steps=cooldown, floor=floor), steps - warmup - cooldown
    return with_warmup(lambda t: fall(max(t - flat, 0)), steps=warmup)


def one_cycle(*, steps: int, rise: float = 0.3, start: float = 1 / 25, floor: float = 1 / 25e4) -> Schedule:
    """Rises along half a cosine to 1, and falls along another.

    Reference:
        Smith and Topin, *Super-Convergence: Very Fast Training of Neural Networks Using Large Learning Rates*, 2018.

    Args:
        steps: How many there are in all; from there on it stays where it is.
        rise: The part of them in which it rises.
        start: Where it starts.
        floor: Where it ends, at the last step.

    Examples:
        >>> [round(one_cycle(steps=5, rise=0.6)(t), 2) for t in range(5)]
        [0.04, 0.52, 1.0, 0.5, 0.0]
    """
    _at_least("steps", steps, 2)
    _fraction("rise", rise)
    _fraction("start", start)
    _fraction("floor", floor)
    peak, last = max(rise * steps - 1, 0.0), steps - 1

    def between(low: float, high: float, s: float) -> float:
        return high + (low - high) * (1 + math.cos(math.pi * s)) / 2

    def factor(t: int) -> float:
        if t <= peak:
            return between(start, 1.0, t / peak) if peak else 1.0
        return between(1.0, floor, (min(t, last) - peak) / (last - peak))

    return factor


def _falling(shape: Callable[[float], float], *, steps: int, warmup: int, floor: float) -> Schedule:
    """From 1 to the floor, along a shape from 1 at 0 to 0 at 1."""
    _at_least("steps after the warm-up", steps - warmup, 1)
    _fraction("floor", floor)
    n = steps - warmup
    return with_warmup(lambda t: floor + (1 - floor) * shape(min(t / n, 1.0)), steps=warmup)


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name}: at least {least} wanted, got {value}")


def _fraction(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is from 0 to 1: got {value}")


def claims() -> Iterator[Claim]:
    """The laws that schedules obey."""

    def on(schedule: Schedule) -> Callable[[Tensor], Tensor]:
        return lambda t: torch.tensor([schedule(int(step)) for step in t]).to(t)

    steps = transformed(lambda x: (10 * x.abs()).clamp(max=1e6).floor(), "n")
    schedules = {
        "linear": linear(steps=20, warmup=5, floor=0.1),
        "cosine": cosine_schedule(steps=20, warmup=5),
        "warmup_stable_decay": warmup_stable_decay(steps=20, warmup=5, cooldown=5),
        "one_cycle": one_cycle(steps=20),
    }
    for name, schedule in schedules.items():
        yield Claim(boundedness(low=0.0, high=1.0), on(schedule), steps, name=name)

    def half(s: Tensor) -> Tensor:
        return (1 + (math.pi * s).cos()) / 2

    written = {
        "constant": (constant, lambda t: torch.ones_like(t)),
        "warmup_stable_decay": (
            warmup_stable_decay(steps=20, warmup=5, cooldown=5, floor=0.2),
            lambda t: torch.minimum((t + 1) / 6, 1 - 0.8 * ((t - 15) / 5).clamp(0, 1)).clamp(max=1),
        ),
        "one_cycle": (
            one_cycle(steps=21, rise=11 / 21, start=0.2, floor=0.0),
            lambda t: torch.where(
                t <= 10,
                1 - 0.8 * (1 + (math.pi * t / 10).cos()) / 2,
                (1 + (math.pi * (t.clamp(max=20) - 10) / 10).cos()) / 2,
            ),
        ),
    }
    for name, (schedule, equation) in written.items():
        yield Claim(agreement(other=equation), on(schedule), steps, name=f"{name}, written out")
    yield Claim(monotonicity(decreasing=True), on(cosine_schedule(steps=20)), steps, name="cosine without a warm-up")
