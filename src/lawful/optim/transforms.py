"""Gradient transforms: the pieces that `Chain` composes into an optimizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from lawful.laws import Claim, boundedness, idempotence, scale_invariance, shape


class StepContext(NamedTuple):
    """Context of a step: parameters of one device and dtype, their states, and the options of their group."""

    params: list[Tensor]
    states: list[dict[str, Tensor]]
    options: Mapping[str, Any]

    def state(self, name: str) -> list[Tensor]:
        """Returns the state tensor `name` of each parameter."""
        return [state[name] for state in self.states]


class GradientTransform(Protocol):
    """A frozen dataclass that maps updates to updates.

    Its numeric fields (and tuples of numbers, such as `betas`) are options that a parameter group may override.
    A transform therefore reads them from `context.options`, not from itself. It may change the state in place, but not
    the updates.
    """

    def init(self, p: Tensor) -> dict[str, Tensor]:
        """Returns the initial state of a parameter."""
        ...

    def __call__(self, updates: list[Tensor], context: StepContext) -> list[Tensor]:
        """Returns the transformed updates, one per parameter."""
        ...


def _options(transform: Any) -> dict[str, Any]:
    """Returns the fields of a transform that a parameter group may override."""

    def is_option(value: Any) -> bool:
        return isinstance(value, int | float) or (isinstance(value, tuple) and all(map(is_option, value)))

    values = {field.name: getattr(transform, field.name) for field in fields(transform)}
    return {name: value for name, value in values.items() if is_option(value)}


def _check_range(name: str, value: float, *, low: float = 0.0, below: float = float("inf")) -> None:
    if not low <= value < below:
        raise ValueError(f"{name} must be in [{low:g}, {below:g}), got {value}")


def _check_betas(betas: tuple[float, float]) -> None:
    for index, beta in enumerate(betas):
        _check_range(f"betas[{index}]", beta, below=1.0)


class _Stateless:
    def init(self, p: Tensor) -> dict[str, Tensor]:
        return {}


class _MomentumBuffer:
    def init(self, p: Tensor) -> dict[str, Tensor]:
        return {"momentum_buffer": torch.zeros_like(p)}


@dataclass(frozen=True)
class ScaleByLearningRate(_Stateless):
    r"""Multiplies by the negative learning rate: $u' = -\eta \, u$.

    Args:
        lr: Learning rate $\eta$.
    """

    lr: float

    def __post_init__(self) -> None:
        _check_range("lr", self.lr)

    def __call__(self, updates: list[Tensor], context: StepContext) -> list[Tensor]:
        return list(torch._foreach_mul(updates, -context.options["lr"]))


@dataclass(frozen=True)
class AddDecayedWeights(_Stateless):
    r"""Adds weight decay: $u' = u + \lambda \, \theta$.

    Before the moments, the decay is coupled: it is the gradient of $\frac{\lambda}{2} \|\theta\|^2$. After them, it is
    decoupled: every parameter shrinks by the factor $1 - \eta \lambda$.

    Reference:
        Loshchilov and Hutter, *Decoupled Weight Decay Regularization*, 2019.

    Args:
        weight_decay: Weight decay $\lambda$.
    """

    weight_decay: float

    def __post_init__(self) -> None:
        _check_range("weight_decay", self.weight_decay)

    def __call__(self, updates: list[Tensor], context: StepContext) -> list[Tensor]:
        decay = context.options["weight_decay"]
        return list(torch._foreach_add(updates, context.params, alpha=decay)) if decay else updates


@dataclass(frozen=True)
class Momentum(_MomentumBuffer):
    r"""Accumulates updates: $v' = m \, v + u$ and $u' = v'$, or $u' = m \, v' + u$ with Nesterov momentum.

    Args:
        momentum: Momentum $m$.
        nesterov: Whether to use Nesterov momentum.
    """

    momentum: float
    nesterov: bool = False

    def __post_init__(self) -> None:
        _check_range("momentum", self.momentum, below=1.0)

    def __call__(self, updates: list[Tensor], context: StepContext) -> list[Tensor]:
        v, m = context.state("momentum_buffer"), context.options["momentum"]
        torch._foreach_mul_(v, m)
        torch._foreach_add_(v, updates)
        return list(torch._foreach_add(updates, v, alpha=m)) if context.options["nesterov"] else v


@dataclass(frozen=True)
class EmaMomentum(_MomentumBuffer):
    r"""Averages updates exponentially: $v' = m \, v + (1 - m) \, u$ and $u' = v'$, or $u' = m \, v' + (1 - m) \, u$.

    Args:
        momentum: Decay $m$ of the average.
        nesterov: Whether to use Nesterov momentum, the second form of $u'$.
    """

    momentum: float
    nesterov: bool = False

    def __post_init__(self) -> None:
        _check_range("momentum", self.momentum, below=1.0)

    def __call__(self, updates: list[Tensor], context: StepContext) -> list[Tensor]:
        v, m = context.state("momentum_buffer"), context.options["momentum"]
        torch._foreach_lerp_(v, updates, 1 - m)
        return list(torch._foreach_lerp(updates, v, m)) if context.options["nesterov"] else v


@dataclass(frozen=True)
class WarmupMomentum:
    r"""Averages updates exponentially with Nesterov momentum and a warmup of the momentum.

    $$m_t = m + (m_0 - m) \max\bigl(0, 1 - \tfrac{t}{n}\bigr), \qquad
    v' = m_t v + (1 - m_t) \, u, \qquad u' = m_t v' + (1 - m_t) \, u$$

    at step $t = 0, 1, \dots$ of a parameter.

    Reference:
        Jordan et al., *modded-nanogpt: Speedrunning the NanoGPT baseline*, 2024.

    Args:
        momentum: Momentum $m$ after the warmup.
        initial_momentum: Momentum $m_0$ of the first step.
        warmup_steps: Number of warmup steps $n$.
    """

    momentum: float = 0.95
    initial_momentum: float = 0.85
    warmup_steps: int = 300

    def __post_init__(self) -> None:
        _check_range("momentum", self.momentum, below=1.0)
        _check_range("initial_momentum", self.initial_momentum, below=1.0)
        _check_range("warmup_steps", self.warmup_steps)

    def init(self, p: Tensor) -> dict[str, Tensor]:
        step = torch.zeros((), dtype=torch.float32, device=p.device)
        return {"step": step, "momentum_buffer": torch.zeros_like(p)}

    def __call__(self, updates: list[Tensor], context: StepContext) -> list[Tensor]:
        final, initial, warmup_steps = (
            context.options[name] for name in ("momentum", "initial_momentum", "warmup_steps")
        )
        steps = context.state("step")
        remaining = [max(0.0, 1 - step.item() / warmup_steps) if warmup_steps else 0.0 for step in steps]
        torch._foreach_add_(steps, 1)
        momenta = [final + (initial - final) * fraction for fraction in remaining]
        v, new = context.state("momentum_buffer"), torch._foreach_mul(updates, [1 - m for m in momenta])
        torch._foreach_mul_(v, momenta)
        torch._foreach_add_(v, new)
        result = torch._foreach_mul(v, momenta)
        torch._foreach_add_(result, new)
        return list(result)


@dataclass(frozen=True)
class ScaleByAdam:
    r"""Divides the average update by the root of the average square, both with bias correction.

    $$v' = \beta_1 v + (1 - \beta_1) \, u, \quad s' = \beta_2 s + (1 - \beta_2) \, u^2, \quad
    u' = \frac{v' / (1 - \beta_1^t)}{\sqrt{s' / (1 - \beta_2^t)} + \epsilon}$$

    at step $t = 1, 2, \dots$ of a parameter. Without bias correction, both averages are too small for the first
    $1 / (1 - \beta)$ steps.

    Reference:
        Kingma and Ba, *Adam: A Method for Stochastic Optimization*, 2015.

    Args:
        betas: Decays $\beta_1$ and $\beta_2$ of the averages.
        eps: $\epsilon$, added to the denominator.
        bias_correction: Whether to divide by $1 - \beta^t$.
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    bias_correction: bool = True

    def __post_init__(self) -> None:
        _check_betas(self.betas)
        _check_range("eps", self.eps)

    def init(self, p: Tensor) -> dict[str, Tensor]:
        step = torch.zeros((), dtype=torch.float32, device=p.device)
        return {"step": step, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}

    def __call__(self, updates: list[Tensor], context: StepContext) -> list[Tensor]:
        (beta1, beta2), corrected = context.options["betas"], context.options["bias_correction"]
        torch._foreach_add_(context.state("step"), 1)
        steps = [step.item() for step in context.state("step")]
        v, s = context.state("exp_avg"), context.state("exp_avg_sq")
        torch._foreach_lerp_(v, updates, 1 - beta1)
        torch._foreach_mul_(s, beta2)
        torch._foreach_addcmul_(s, updates, updates, value=1 - beta2)
        roots = torch._foreach_sqrt(s)
        if corrected:
            torch._foreach_div_(roots, [(1 - beta2**t) ** 0.5 for t in steps])
        torch._foreach_add_(roots, context.options["eps"])
        directions = torch._foreach_div(v, roots)
        if corrected:
            torch._foreach_div_(directions, [1 - beta1**t for t in steps])
        return list(directions)


@dataclass(frozen=True)
class ScaleByLion:
    r"""Takes the sign of an interpolation between the update and its average.

    $$u' = \operatorname{sign}(\beta_1 v + (1 - \beta_1) \, u), \qquad v' = \beta_2 v + (1 - \beta_2) \, u$$

    Args:
        betas: $\beta_1$ of the interpolation and $\beta_2$ of the average.
    """

    betas: tuple[float, float] = (0.9, 0.99)

    def __post_init__(self) -> None:
        _check_betas(self.betas)

    def init(self, p: Tensor) -> dict[str, Tensor]:
        return {"exp_avg": torch.zeros_like(p)}

    def __call__(self, updates: list[Tensor], context: StepContext) -> list[Tensor]:
        v, (beta1, beta2) = context.state("exp_avg"), context.options["betas"]
        directions = torch._foreach_lerp(v, updates, 1 - beta1)
        torch._foreach_lerp_(v, updates, 1 - beta2)
        torch._foreach_sign_(directions)
        return list(directions)


@dataclass(frozen=True)
class Sign(_Stateless):
    r"""Takes the sign of each entry: $u' = \operatorname{sign}(u)$."""

    def __call__(self, updates: list[Tensor], context: StepContext) -> list[Tensor]:
        return list(torch._foreach_sign(updates))


def claims() -> Iterator[Claim]:
    """Laws of gradient transforms."""

    def sign(x: Tensor) -> Tensor:
        return Sign()([x], StepContext([x], [{}], {}))[0]

    yield Claim(scale_invariance(), sign, shape("n 3"), name="Sign")
    yield Claim(boundedness(low=-1.0, high=1.0), sign, shape("n 3"), name="Sign")
    yield Claim(idempotence(), sign, shape("n 3"), name="Sign")
