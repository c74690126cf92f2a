"""The parts that most chains are made of: the rate, the decay, the velocity, the sign."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lawful.laws import Claim, agreement, boundedness, idempotence, scale_invariance, shape
from lawful.optim.part import Point


class Stateless:
    """A part that keeps nothing."""

    def start(self, p: Tensor) -> dict[str, Tensor]:
        """Nothing."""
        return {}


class Velocity:
    """A part that keeps one tensor, 0 at first."""

    def start(self, p: Tensor) -> dict[str, Tensor]:
        """The velocity."""
        return {"momentum_buffer": torch.zeros_like(p)}


def within(name: str, value: float, *, low: float = 0.0, below: float = float("inf")) -> None:
    """Refuses a number that is not in [low, below)."""
    if not low <= value < below:
        raise ValueError(f"{name} is at least {low:g} and below {below:g}: got {value}")


@dataclass(frozen=True)
class Descend(Stateless):
    r"""Multiplies by the learning rate, downhill: $u' = -\eta \, u$.

    Args:
        lr: $\eta$, which a schedule changes.
    """

    lr: float

    def __post_init__(self) -> None:
        within("lr", self.lr)

    def __call__(self, updates: list[Tensor], at: Point) -> list[Tensor]:
        return list(torch._foreach_mul(updates, -at.options["lr"]))


@dataclass(frozen=True)
class Decay(Stateless):
    r"""Pulls the parameters to 0: $u' = u + \lambda \, \theta$.

    In front of the moments the decay is coupled: it is the gradient of $\frac{\lambda}{2} \|\theta\|^2$ and goes
    through all that the gradient goes through. Behind them it is decoupled: every parameter shrinks by the same factor
    $1 - \eta \lambda$. For plain gradient descent there is no difference.

    Reference:
        Loshchilov and Hutter, *Decoupled Weight Decay Regularization*, 2019.

    Args:
        decay: $\lambda$.
    """

    decay: float

    def __post_init__(self) -> None:
        within("decay", self.decay)

    def __call__(self, updates: list[Tensor], at: Point) -> list[Tensor]:
        decay = at.options["decay"]
        return list(torch._foreach_add(updates, at.params, alpha=decay)) if decay else updates


@dataclass(frozen=True)
class Trace(Velocity):
    r"""Sums updates, older ones counting less: $u' = v' = m \, v + u$.

    Args:
        momentum: $m$.
    """

    momentum: float

    def __post_init__(self) -> None:
        within("momentum", self.momentum, below=1.0)

    def __call__(self, updates: list[Tensor], at: Point) -> list[Tensor]:
        v = at.kept("momentum_buffer")
        torch._foreach_mul_(v, at.options["momentum"])
        torch._foreach_add_(v, updates)
        return v


@dataclass(frozen=True)
class NesterovTrace(Velocity):
    r"""Sums updates and looks one step ahead: $v' = m \, v + u$ and $u' = m \, v' + u$.

    Args:
        momentum: $m$.
    """

    momentum: float

    def __post_init__(self) -> None:
        within("momentum", self.momentum, below=1.0)

    def __call__(self, updates: list[Tensor], at: Point) -> list[Tensor]:
        v, m = at.kept("momentum_buffer"), at.options["momentum"]
        torch._foreach_mul_(v, m)
        torch._foreach_add_(v, updates)
        return list(torch._foreach_add(updates, v, alpha=m))


@dataclass(frozen=True)
class Average(Velocity):
    r"""Averages updates, older ones counting less: $u' = v' = \beta \, v + (1 - \beta) \, u$.

    Args:
        beta: $\beta$.
    """

    beta: float

    def __post_init__(self) -> None:
        within("beta", self.beta, below=1.0)

    def __call__(self, updates: list[Tensor], at: Point) -> list[Tensor]:
        v = at.kept("momentum_buffer")
        torch._foreach_lerp_(v, updates, 1 - at.options["beta"])
        return v


@dataclass(frozen=True)
class NesterovAverage(Velocity):
    r"""Averages updates and looks one step ahead.

    $$v' = \beta \, v + (1 - \beta) \, u, \qquad u' = \beta \, v' + (1 - \beta) \, u$$

    Args:
        beta: $\beta$.
    """

    beta: float

    def __post_init__(self) -> None:
        within("beta", self.beta, below=1.0)

    def __call__(self, updates: list[Tensor], at: Point) -> list[Tensor]:
        v, beta = at.kept("momentum_buffer"), at.options["beta"]
        torch._foreach_lerp_(v, updates, 1 - beta)
        return list(torch._foreach_lerp(updates, v, beta))


@dataclass(frozen=True)
class Sign(Stateless):
    r"""Keeps the sign of each entry: $u' = \operatorname{sign}(u)$, which is 0 at 0."""

    def __call__(self, updates: list[Tensor], at: Point) -> list[Tensor]:
        return list(torch._foreach_sign(updates))


def claims() -> Iterator[Claim]:
    """The laws that parts obey."""

    def signs(x: Tensor) -> Tensor:
        return Sign()([x], Point([x], [{}], {}))[0]

    yield Claim(scale_invariance(), signs, shape("n 3"), name="Sign")
    yield Claim(boundedness(low=-1.0, high=1.0), signs, shape("n 3"), name="Sign")
    yield Claim(idempotence(), signs, shape("n 3"), name="Sign")

    def second(
        part: Callable[[list[Tensor], Point], list[Tensor]], **options: float
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """What a part makes of the second of two updates."""

        def of(u: Tensor, v: Tensor) -> Tensor:
            kept = [{"momentum_buffer": torch.zeros_like(u)}]
            part([u.clone()], Point([u], kept, options))
            return part([v.clone()], Point([u], kept, options))[0].clone()

        return of

    pair = (shape("n 3"), shape("n 3"))
    yield Claim(agreement(other=lambda u, v: -0.5 * v), second(Descend(0.5), lr=0.5), pair, name="Descend(0.5)")
    yield Claim(agreement(other=lambda u, v: v + 0.5 * u), second(Decay(0.5), decay=0.5), pair, name="Decay(0.5)")
    for part, equation in (
        (Trace(0.75), lambda u, v: 0.75 * u + v),
        (NesterovTrace(0.75), lambda u, v: 0.75 * (0.75 * u + v) + v),
    ):
        yield Claim(agreement(other=equation), second(part, momentum=0.75), pair, name=type(part).__name__)
    for part, equation in (
        (Average(0.75), lambda u, v: 0.75 * 0.25 * u + 0.25 * v),
        (NesterovAverage(0.75), lambda u, v: 0.75 * (0.75 * 0.25 * u + 0.25 * v) + 0.25 * v),
    ):
        yield Claim(agreement(other=equation), second(part, beta=0.75), pair, name=type(part).__name__)
