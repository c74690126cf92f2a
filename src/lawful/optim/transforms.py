"""What a part of an optimizer is: something that turns updates into updates.

The parts that most chains are made of: the rate, the decay, the velocity, the sign.
The moments of Adam: averages of the gradient and of its square.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from lawful.laws import Claim, agreement, boundedness, idempotence, scale_invariance, shape


class StepContext(NamedTuple):
    """Where a step stands: parameters of one device and type, what is kept of each, and the options of their group."""

    params: list[Tensor]
    states: list[dict[str, Tensor]]
    options: Mapping[str, Any]

    def kept(self, name: str) -> list[Tensor]:
        """What is kept under a name, of each parameter."""
        return [state[name] for state in self.states]


class GradientTransform(Protocol):
    """A frozen dataclass that turns updates into updates.

    Its fields that are numbers are options, which a group of parameters may set for itself: a part reads them from
    `at.options`, not from itself. It may change what is kept, but not the updates that it is given.
    """

    def start(self, p: Tensor) -> dict[str, Tensor]:
        """What is kept of a parameter, before the first step."""
        ...

    def __call__(self, updates: list[Tensor], at: StepContext) -> list[Tensor]:
        """The next updates, one for each parameter."""
        ...


def options_of(part: Any) -> dict[str, float]:
    """The fields of a part that are numbers."""
    found = {field.name: getattr(part, field.name) for field in fields(part)}
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


class Stateless:
    """A part that keeps nothing."""

    def start(self, p: Tensor) -> dict[str, Tensor]:
        """Nothing."""
        return {}


class MomentumBuffer:
    """A part that keeps one tensor, 0 at first."""

    def start(self, p: Tensor) -> dict[str, Tensor]:
        """The velocity."""
        return {"momentum_buffer": torch.zeros_like(p)}


def within(name: str, value: float, *, low: float = 0.0, below: float = float("inf")) -> None:
    """Refuses a number that is not in [low, below)."""
    if not low <= value < below:
        raise ValueError(f"{name} is at least {low:g} and below {below:g}: got {value}")


@dataclass(frozen=True)
class ScaleByLearningRate(Stateless):
    r"""Multiplies by the learning rate, downhill: $u' = -\eta \, u$.

    Args:
        lr: $\eta$, which a schedule changes.
    """

    lr: float

    def __post_init__(self) -> None:
        within("lr", self.lr)

    def __call__(self, updates: list[Tensor], at: StepContext) -> list[Tensor]:
        return list(torch._foreach_mul(updates, -at.options["lr"]))


@dataclass(frozen=True)
class AddDecayedWeights(Stateless):
    r"""Pulls the parameters to 0: $u' = u + \lambda \, \theta$.

    In front of the moments the decay is coupled: it is the gradient of $\frac{\lambda}{2} \|\theta\|^2$ and goes
    through all that the gradient goes through. Behind them it is decoupled: every parameter shrinks by the same factor
    $1 - \eta \lambda$. For plain gradient descent there is no difference.

    Reference:
        Loshchilov and Hutter, *Decoupled Weight AddDecayedWeights Regularization*, 2019.

    Args:
        decay: $\lambda$.
    """

    decay: float

    def __post_init__(self) -> None:
        within("decay", self.decay)

    def __call__(self, updates: list[Tensor], at: StepContext) -> list[Tensor]:
        decay = at.options["decay"]
        return list(torch._foreach_add(updates, at.params, alpha=decay)) if decay else updates


@dataclass(frozen=True)
class Momentum(MomentumBuffer):
    r"""Sums updates, older ones counting less: $u' = v' = m \, v + u$.

    Args:
        momentum: $m$.
    """

    momentum: float

    def __post_init__(self) -> None:
        within("momentum", self.momentum, below=1.0)

    def __call__(self, updates: list[Tensor], at: StepContext) -> list[Tensor]:
        v = at.kept("momentum_buffer")
        torch._foreach_mul_(v, at.options["momentum"])
        torch._foreach_add_(v, updates)
        return v


@dataclass(frozen=True)
class NesterovTrace(MomentumBuffer):
    r"""Sums updates and looks one step ahead: $v' = m \, v + u$ and $u' = m \, v' + u$.

    Args:
        momentum: $m$.
    """

    momentum: float

    def __post_init__(self) -> None:
        within("momentum", self.momentum, below=1.0)

    def __call__(self, updates: list[Tensor], at: StepContext) -> list[Tensor]:
        v, m = at.kept("momentum_buffer"), at.options["momentum"]
        torch._foreach_mul_(v, m)
        torch._foreach_add_(v, updates)
        return list(torch._foreach_add(updates, v, alpha=m))


@dataclass(frozen=True)
class EmaMomentum(MomentumBuffer):
    r"""Averages updates, older ones counting less: $u' = v' = \beta \, v + (1 - \beta) \, u$.

    Args:
        beta: $\beta$.
    """

    beta: float

    def __post_init__(self) -> None:
        within("beta", self.beta, below=1.0)

    def __call__(self, updates: list[Tensor], at: StepContext) -> list[Tensor]:
        v = at.kept("momentum_buffer")
        torch._foreach_lerp_(v, updates, 1 - at.options["beta"])
        return v


@dataclass(frozen=True)
class NesterovAverage(MomentumBuffer):
    r"""Averages updates and looks one step ahead.

    $$v' = \beta \, v + (1 - \beta) \, u, \qquad u' = \beta \, v' + (1 - \beta) \, u$$

    Args:
        beta: $\beta$.
    """

    beta: float

    def __post_init__(self) -> None:
        within("beta", self.beta, below=1.0)

    def __call__(self, updates: list[Tensor], at: StepContext) -> list[Tensor]:
        v, beta = at.kept("momentum_buffer"), at.options["beta"]
        torch._foreach_lerp_(v, updates, 1 - beta)
        return list(torch._foreach_lerp(updates, v, beta))


@dataclass(frozen=True)
class Sign(Stateless):
    r"""Keeps the sign of each entry: $u' = \operatorname{sign}(u)$, which is 0 at 0."""

    def __call__(self, updates: list[Tensor], at: StepContext) -> list[Tensor]:
        return list(torch._foreach_sign(updates))


def claims() -> Iterator[Claim]:
    """The laws that parts obey."""

    def signs(x: Tensor) -> Tensor:
        return Sign()([x], StepContext([x], [{}], {}))[0]

    yield Claim(scale_invariance(), signs, shape("n 3"), name="Sign")
    yield Claim(boundedness(low=-1.0, high=1.0), signs, shape("n 3"), name="Sign")
    yield Claim(idempotence(), signs, shape("n 3"), name="Sign")

    def second(
        part: Callable[[list[Tensor], StepContext], list[Tensor]], **options: float
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """What a part makes of the second of two updates."""

        def of(u: Tensor, v: Tensor) -> Tensor:
            kept = [{"momentum_buffer": torch.zeros_like(u)}]
            part([u.clone()], StepContext([u], kept, options))
            return part([v.clone()], StepContext([u], kept, options))[0].clone()

        return of

    pair = (shape("n 3"), shape("n 3"))
    yield Claim(
        agreement(other=lambda u, v: -0.5 * v), second(ScaleByLearningRate(0.5), lr=0.5), pair, name="Descend(0.5)"
    )
    yield Claim(
        agreement(other=lambda u, v: v + 0.5 * u), second(AddDecayedWeights(0.5), decay=0.5), pair, name="Decay(0.5)"
    )
    for part, equation in (
        (Momentum(0.75), lambda u, v: 0.75 * u + v),
        (NesterovTrace(0.75), lambda u, v: 0.75 * (0.75 * u + v) + v),
    ):
        yield Claim(agreement(other=equation), second(part, momentum=0.75), pair, name=type(part).__name__)
    for part, equation in (
        (EmaMomentum(0.75), lambda u, v: 0.75 * 0.25 * u + 0.25 * v),
        (NesterovAverage(0.75), lambda u, v: 0.75 * (0.75 * 0.25 * u + 0.25 * v) + 0.25 * v),
    ):
        yield Claim(agreement(other=equation), second(part, beta=0.75), pair, name=type(part).__name__)


@dataclass(frozen=True)
class UncorrectedMoments:
    r"""Divides the average update by the root of the average square.

    $$v' = \beta_1 v + (1 - \beta_1) \, u, \quad s' = \beta_2 s + (1 - \beta_2) \, u^2, \quad
    u' = \frac{v'}{\sqrt{s'} + \epsilon}$$

    Both averages start at 0, and stay too close to it for the first $1 / (1 - \beta)$ steps.

    Args:
        beta1: $\beta_1$.
        beta2: $\beta_2$.
        eps: $\epsilon$.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        _check(self.beta1, self.beta2, self.eps)

    def start(self, p: Tensor) -> dict[str, Tensor]:
        """Both averages."""
        return {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}

    def __call__(self, updates: list[Tensor], at: StepContext) -> list[Tensor]:
        v, s = _averaged(updates, at)
        roots = torch._foreach_sqrt(s)
        torch._foreach_add_(roots, at.options["eps"])
        return list(torch._foreach_div(v, roots))


@dataclass(frozen=True)
class AdamMoments:
    r"""Divides the average update by the root of the average square, both corrected for their start at 0.

    $$\hat v = \frac{v'}{1 - \beta_1^t}, \quad \hat s = \frac{s'}{1 - \beta_2^t}, \quad
    u' = \frac{\hat v}{\sqrt{\hat s} + \epsilon}$$

    with $v'$ and $s'$ of `UncorrectedMoments`, at step $t = 1, 2, \dots$ of a parameter. Of updates that are all the
    same, $\hat v$ and $\hat s$ are that update and its square, from the first step on.

    Args:
        beta1: $\beta_1$.
        beta2: $\beta_2$.
        eps: $\epsilon$.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        _check(self.beta1, self.beta2, self.eps)

    def start(self, p: Tensor) -> dict[str, Tensor]:
        """The number of steps, and both averages."""
        step = torch.zeros((), dtype=torch.float32, device=p.device)
        return {"step": step, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}

    def __call__(self, updates: list[Tensor], at: StepContext) -> list[Tensor]:
        torch._foreach_add_(at.kept("step"), 1)
        steps = [step.item() for step in at.kept("step")]
        v, s = _averaged(updates, at)
        roots = torch._foreach_sqrt(s)
        torch._foreach_div_(roots, [(1 - at.options["beta2"] ** t) ** 0.5 for t in steps])
        torch._foreach_add_(roots, at.options["eps"])
        directions = torch._foreach_div(v, roots)
        torch._foreach_div_(directions, [1 - at.options["beta1"] ** t for t in steps])
        return list(directions)


def _check(beta1: float, beta2: float, eps: float) -> None:
    within("beta1", beta1, below=1.0)
    within("beta2", beta2, below=1.0)
    within("eps", eps)


def _averaged(updates: list[Tensor], at: StepContext) -> tuple[list[Tensor], list[Tensor]]:
    """Both averages, brought up to date."""
    v, s, beta2 = at.kept("exp_avg"), at.kept("exp_avg_sq"), at.options["beta2"]
    torch._foreach_lerp_(v, updates, 1 - at.options["beta1"])
    torch._foreach_mul_(s, beta2)
    torch._foreach_addcmul_(s, updates, updates, value=1 - beta2)
    return v, s
