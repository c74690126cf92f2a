"""Attacks within an epsilon ball: the fast gradient sign method and projected gradient descent."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.inference.attacks.base import (
    UNIT,
    UNTARGETED,
    AttackLoss,
    Classifier,
    Goal,
    InputBounds,
    _check_inputs,
    _eval_with_grad,
    _gradient,
    _logits,
    _project,
    _stays_in_ball,
    log_odds,
)
from lawful.inference.attacks.norms import L1, L2, LInf, Norm
from lawful.laws import Claim, shape


@dataclass(frozen=True, kw_only=True)
class FGSM:
    r"""Fast gradient sign method: a single gradient step to the boundary of the epsilon ball.

    $$x' = x + \text{eps} \, \operatorname{sign} \nabla L(x)$$

    It does not check whether the step raised the loss; `PGD` does.

    Reference:
        Goodfellow, Shlens and Szegedy, *Explaining and Harnessing Adversarial Examples*, 2015.

    Args:
        eps: Radius of the ball, in the units of the inputs.
        norm: Norm of the ball. The steepest direction of `LInf()` is the sign.
        goal: `UNTARGETED` or `TARGETED`.
        loss: Loss $L$ of logits and labels: `log_odds` or `margin`.
        bounds: Bounds of the inputs.

    Examples:
        >>> model, x = nn.Linear(4, 3), torch.full((2, 4), 0.5)
        >>> (FGSM(eps=0.1)(model, x, torch.tensor([0, 1])) - x).abs().amin()
        tensor(0.1000)
    """

    eps: float
    norm: Norm = field(default_factory=LInf)
    goal: Goal = UNTARGETED
    loss: AttackLoss = log_odds
    bounds: InputBounds = UNIT

    def __post_init__(self) -> None:
        if not (0 <= self.eps < math.inf):
            raise ValueError(f"eps must be finite and non-negative, got {self.eps}")

    def __call__(
        self,
        model: Classifier,
        x: Float[Tensor, "n ..."],
        y: Int[Tensor, " n"],
        *,
        indices: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n ..."]:
        """Returns the inputs after the step. Deterministic: `indices` has no effect."""
        _check_inputs(x, y, self.bounds)
        x, y = x.detach(), y.long()
        with _eval_with_grad(model):
            leaf = x.clone().requires_grad_()
            g = _gradient(self.goal.sign * self.loss(_logits(model, leaf, y), y), leaf)
        delta = self.eps * self.norm.steepest_direction(self.bounds.mask_outward(g, x))
        return _project(x, delta, norm=self.norm, radius=self.eps, bounds=self.bounds)


@dataclass(frozen=True, kw_only=True)
class PGD:
    r"""Projected gradient descent: maximizes the loss within an epsilon ball around each input.

    $$\delta_{t + 1} = P\bigl(\delta_t + a_t \, v(g_t)\bigr), \qquad
    g_t = \mu \, g_{t - 1} + \frac{\nabla L(x + \delta_t)}{\|\nabla L(x + \delta_t)\|_1}, \qquad
    a_t = a \cos^2 \frac{\pi t}{2 T}$$

    $v$ is the steepest direction of the norm and $P$ the projection onto the ball within bounds. Entries of the
    gradient that lead out of the bounds are masked. Returns the iterate of the largest loss, preferring those that fool
    the model. The result is in the ball and within bounds exactly, in the dtype of the inputs.

    Reference:
        Madry, Makelov, Schmidt, Tsipras and Vladu, *Towards Deep Learning Models Resistant to Adversarial Attacks*,
        2018; Dong and others, *Boosting Adversarial Attacks with Momentum*, 2018.

    Args:
        eps: Radius of the ball, in the units of the inputs.
        norm: Norm of the ball: `LInf()`, `L2()` or `L1()`.
        steps: Number of gradient steps. 0 returns the random start.
        step_size: Initial step size $a$. Defaults to eps.
        random_start: Radius of the uniform random start, as a fraction of eps. 0 starts at the input.
        momentum: Momentum $\mu$.
        goal: `UNTARGETED` or `TARGETED`.
        loss: Loss $L$ of logits and labels: `log_odds` or `margin`.
        stop_margin: Stops early for an example once its margin reaches this value. Never by default; 0 measures robust
            accuracy in a fraction of the time.
        bounds: Bounds of the inputs.
        seed: Seed of the random starts.

    Examples:
        >>> model, x = nn.Linear(4, 3), torch.full((2, 4), 0.5)
        >>> adversarial = PGD(eps=0.1, steps=5)(model, x, torch.tensor([0, 1]))
        >>> bool((adversarial - x).abs().max() <= 0.1)
        True
    """

    eps: float
    norm: Norm = field(default_factory=LInf)
    steps: int = 40
    step_size: float | None = None
    random_start: float = 1.0
    momentum: float = 0.0
    goal: Goal = UNTARGETED
    loss: AttackLoss = log_odds
    stop_margin: float = math.inf
    bounds: InputBounds = UNIT
    seed: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.eps < math.inf):
            raise ValueError(f"eps must be finite and non-negative, got {self.eps}")
        if self.steps < 0:
            raise ValueError(f"steps must be at least 0, got {self.steps}")
        if self.step_size is not None and not 0 < self.step_size < math.inf:
            raise ValueError(f"step_size must be positive, got {self.step_size}")
        if not 0 <= self.random_start <= 1:
            raise ValueError(f"random_start must be between 0 and 1, got {self.random_start}")
        if not 0 <= self.momentum < math.inf:
            raise ValueError(f"momentum must be non-negative, got {self.momentum}")

    def __call__(
        self,
        model: Classifier,
        x: Float[Tensor, "n ..."],
        y: Int[Tensor, " n"],
        *,
        indices: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n ..."]:
        """Returns the iterate of the largest loss for each input."""
        _check_inputs(x, y, self.bounds)
        x, y = x.detach(), y.long()
        with _eval_with_grad(model):
            return self._maximize(model, x, y, self._project(x, self._random_start(x, indices)))

    def _project(self, x: Tensor, delta: Tensor) -> Tensor:
        return _project(x, delta, norm=self.norm, radius=self.eps, bounds=self.bounds)

    def _random_start(self, x: Tensor, indices: Tensor | None) -> Tensor:
        """Returns the initial perturbations, which depend on the seed and on the index of each example."""
        if not self.random_start:
            return torch.zeros_like(x)
        indices = torch.arange(len(x)) if indices is None else indices.cpu()
        first = int(indices.min())
        samples = self.norm.sample_ball(int(indices.max()) - first + 1, *x.shape[1:], seed=self.seed, first=first)
        return self.random_start * self.eps * samples[indices - first].to(x)

    def _maximize(self, model: Classifier, x: Tensor, y: Tensor, start: Tensor) -> Tensor:
        """Returns the best iterate from a start. Examples that reach `stop_margin` leave the batch."""
        step_size = self.eps if self.step_size is None else self.step_size
        result, active, current = start.clone(), torch.arange(len(x), device=x.device), start
        best, best_rank, velocity = start, x.new_full((2, len(x)), -math.inf), torch.zeros_like(x)
        for step in range(self.steps + 1):
            current = current.detach().requires_grad_(step < self.steps)
            logits = _logits(model, current, y)
            loss = self.goal.sign * self.loss(logits, y)
            rank = torch.stack([self.goal.success(logits, y).to(x), loss.detach()])
            better = _greater(rank, best_rank)
            best = torch.where(better.reshape(-1, *[1] * (x.dim() - 1)), current.detach(), best)
            best_rank = torch.where(better, rank, best_rank)
            if step == self.steps:
                break
            running = None if self.stop_margin == math.inf else self.goal.margin(logits, y) < self.stop_margin
            if running is not None and not bool(running.any()):
                break
            g = _gradient(loss, current)
            if running is not None and not bool(running.all()):
                result[active[~running]] = best[~running]
                parts = (active, x, y, current, g, velocity, best)
                active, x, y, current, g, velocity, best = (part[running] for part in parts)
                best_rank = best_rank[:, running]
            g = self.bounds.mask_outward(g, current.detach())
            if self.momentum:
                g = velocity = self.momentum * velocity + _l1_normalize(g)
            size = step_size * math.cos(math.pi * step / self.steps / 2) ** 2
            current = self._project(x, current.detach() - x + size * self.norm.steepest_direction(g))
        result[active] = best
        return result


def _greater(rank: Tensor, other: Tensor) -> Tensor:
    """Compares pairs, stacked along dim 0, in lexicographic order."""
    first, second = rank > other
    return first | ((rank[0] == other[0]) & second)


def _l1_normalize(g: Tensor) -> Tensor:
    """Divides the gradient of each example by its L1 norm. A zero gradient stays zero."""
    dims = tuple(range(1, g.dim()))
    g = torch.where(g.abs().amax(dims, keepdim=True) > 0, g / g.abs().amax(dims, keepdim=True), 0.0)
    return g / g.abs().sum(dims, keepdim=True).clamp_min(1)


def claims() -> Iterator[Claim]:
    """Yields the claims of FGSM and PGD: they never leave the ball or the bounds."""
    model, bounds = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), InputBounds(-1.0, 2.0)
    for norm in (LInf(), L2(), L1()):
        for attack in (FGSM(eps=0.3, norm=norm, bounds=bounds), PGD(eps=0.3, norm=norm, steps=3, bounds=bounds)):

            def perturb(x: Tensor, attack: FGSM | PGD = attack) -> Tensor:
                return attack(model, x, torch.arange(len(x), device=x.device) % 3)

            stays = _stays_in_ball(norm=norm, radius=0.3, bounds=bounds)
            yield Claim(stays, perturb, shape("n 4"), name=f"{type(attack).__name__}({norm})")
