"""Minimum-norm attacks: DeepFool and the attack of Carlini and Wagner."""

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
    Classifier,
    Goal,
    InputBounds,
    _check_inputs,
    _eval_with_grad,
    _gradient,
    _logits,
    _safe_radius,
    _stays_in_ball,
)
from lawful.inference.attacks.norms import L2, LInf, Norm
from lawful.laws import Claim, shape


@dataclass(frozen=True, kw_only=True)
class DeepFool:
    r"""DeepFool: steps over the nearest decision boundary of the linearized model.

    $$\delta = \frac{z_y - z_k}{\|w_k\|_*} \, v(w_k), \qquad w_k = \nabla (z_k - z_y), \qquad
    k = \arg\min_{j \ne y} \frac{z_y - z_j}{\|w_j\|_*}$$

    $v$ is the steepest direction of the norm and $\|\cdot\|_*$ the dual norm. For a linear model one step is the
    minimum-norm perturbation. Entries that lead out of the bounds are masked. An example stops once it is
    misclassified; a binary search then moves it back toward the input. The perturbation is short, not always the
    shortest.

    Reference:
        Moosavi-Dezfooli, Fawzi and Frossard, *DeepFool: A Simple and Accurate Method to Fool Deep Neural Networks*,
        2016.

    Args:
        eps: Maximum norm of a perturbation. An example that needs a larger one is returned unchanged.
        norm: Norm to minimize: `L2()` or `LInf()`.
        steps: Maximum number of linearizations.
        overshoot: Fraction by which a perturbation goes past the boundary.
        binary_search_steps: Number of binary search steps back toward the input.
        candidates: Number of most likely other classes to consider.
        bounds: Bounds of the inputs.

    Examples:
        >>> from lawful.inference.attacks import FREE
        >>> model = nn.Linear(2, 2, bias=False)
        >>> with torch.no_grad():
        ...     _ = model.weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        >>> DeepFool(bounds=FREE)(model, torch.tensor([[0.5, 0.3]]), torch.tensor([0]))
        tensor([[-0.0020,  0.3000]])
    """

    eps: float = math.inf
    norm: Norm = field(default_factory=L2)
    steps: int = 50
    overshoot: float = 0.02
    binary_search_steps: int = 6
    candidates: int = 9
    bounds: InputBounds = UNIT

    def __post_init__(self) -> None:
        if min(self.steps, self.candidates) < 1:
            raise ValueError(f"steps and candidates must be at least 1, got {self.steps} and {self.candidates}")
        if not (self.eps >= 0 and self.overshoot >= 0 and self.binary_search_steps >= 0):
            raise ValueError(f"eps, overshoot and binary_search_steps must be non-negative, got {self}")

    def __call__(
        self,
        model: Classifier,
        x: Float[Tensor, "n ..."],
        y: Int[Tensor, " n"],
        *,
        indices: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n ..."]:
        """Returns inputs just past the decision boundary. Deterministic: `indices` has no effect."""
        _check_inputs(x, y, self.bounds)
        x, y = x.detach(), y.long()
        best, active, delta = x.clone(), torch.arange(len(x), device=x.device), torch.zeros_like(x)
        inputs, labels = x, y
        with _eval_with_grad(model):
            for step in range(self.steps + 1):
                current = self.bounds.clamp(inputs + (1 + self.overshoot) * delta).requires_grad_(step < self.steps)
                logits = _logits(model, current, labels)
                running = logits.argmax(1) == labels
                best[active[~running]] = current[~running].detach()
                if step == self.steps or not bool(running.any()):
                    break
                delta = self.bounds.clamp(inputs + delta + self._linear_step(logits, current, labels)) - inputs
                active, inputs, labels, delta = (part[running] for part in (active, inputs, labels, delta))
            best = self._binary_search(model, x, y, best)
        too_long = self.norm.length(best - x) > _safe_radius(self.eps, self.norm, x.dtype)
        best[too_long] = x[too_long]
        return best

    @torch.no_grad()
    def _binary_search(self, model: Classifier, x: Tensor, y: Tensor, adversarial: Tensor) -> Tensor:
        """Moves adversarial examples toward x as long as they stay misclassified."""
        low, high = (x.new_full((len(x), *[1] * (x.dim() - 1)), end) for end in (0.0, 1.0))
        best = adversarial
        for _ in range(self.binary_search_steps):
            middle = (low + high) / 2
            current = self.bounds.clamp(x + middle * (adversarial - x))
            fooled = (_logits(model, current, y).argmax(1) != y).reshape(high.shape)
            low, high = torch.where(fooled, low, middle), torch.where(fooled, middle, high)
            best = torch.where(fooled, current, best)
        return best

    def _linear_step(self, logits: Tensor, current: Tensor, y: Tensor) -> Tensor:
        """Returns the shortest perturbation to a decision boundary of the linearized model."""
        others = logits.detach().scatter(1, y[:, None], -math.inf)
        count, ones = min(self.candidates, logits.shape[1] - 1), [1] * (current.dim() - 1)
        best, shortest = torch.zeros_like(current), current.new_full((len(current),), math.inf)
        for i, k in enumerate(others.topk(count, dim=1).indices.unbind(1)):
            gap = logits.gather(1, torch.stack([y, k], 1)) @ logits.new_tensor([1.0, -1.0])
            gradient = _gradient(-gap, current, retain_graph=i < count - 1)
            direction = self.norm.steepest_direction(self.bounds.mask_outward(gradient, current))
            length = gap.detach() / (gradient * direction).flatten(1).sum(1)
            shorter = (length < shortest).reshape(-1, *ones)
            best = torch.where(shorter, length.reshape(-1, *ones) * direction, best)
            shortest = shortest.minimum(length)
        return best


_INTERIOR = 1 - 1e-6
"""Factor that moves inputs off the bounds, where the derivative of tanh is 0."""


@dataclass(frozen=True, kw_only=True)
class CarliniWagner:
    r"""Carlini and Wagner's attack: the smallest perturbation in the L2 norm that fools a model.

    $$\min_\delta \ \|\delta\|_2^2 + c \, \max\bigl(\kappa - m(x + \delta), \, 0\bigr), \qquad
    x + \delta = \tfrac{\text{high} + \text{low}}{2} + \tfrac{\text{high} - \text{low}}{2} \tanh w$$

    $m$ is the misclassification margin. The change of variables enforces the bounds. Each example has its own constant
    $c$, found by binary search: times ten until the attack succeeds, then halving the interval. Adam minimizes over
    $w$; the shortest successful perturbation of all steps is returned. Lengths are relative to the width of the bounds,
    so that $c$ does not depend on the units of the inputs.

    Reference:
        Carlini and Wagner, *Towards Evaluating the Robustness of Neural Networks*, 2017.

    Args:
        eps: Maximum L2 norm of a perturbation. An example that needs a larger one is returned unchanged.
        steps: Adam steps per constant.
        binary_search_steps: Number of constants $c$ to try.
        initial_const: Initial constant $c$.
        lr: Learning rate of Adam.
        confidence: Required margin $\kappa$.
        goal: `UNTARGETED` or `TARGETED`.
        bounds: Bounds of the inputs. Without bounds $w$ is the input itself.

    Examples:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> with torch.no_grad():
        ...     _ = model.weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        >>> attack = CarliniWagner(steps=200, binary_search_steps=3, bounds=InputBounds(-1.0, 1.0))
        >>> attack(model, torch.tensor([[0.3, 0.5]]), torch.tensor([0])).round(decimals=1).abs()
        tensor([[0.0000, 0.5000]])
    """

    eps: float = math.inf
    steps: int = 100
    binary_search_steps: int = 9
    initial_const: float = 1.0
    lr: float = 0.05
    confidence: float = 0.0
    goal: Goal = UNTARGETED
    bounds: InputBounds = UNIT

    def __post_init__(self) -> None:
        if min(self.steps, self.binary_search_steps) < 1:
            numbers = f"{self.steps} and {self.binary_search_steps}"
            raise ValueError(f"steps and binary_search_steps must be at least 1, got {numbers}")
        if not (self.initial_const > 0 and self.lr > 0):
            raise ValueError(f"initial_const and lr must be positive, got {self.initial_const} and {self.lr}")
        if not (self.eps >= 0 and self.confidence >= 0):
            raise ValueError(f"eps and confidence must be non-negative, got {self.eps} and {self.confidence}")

    def __call__(
        self,
        model: Classifier,
        x: Float[Tensor, "n ..."],
        y: Int[Tensor, " n"],
        *,
        indices: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n ..."]:
        """Returns the nearest adversarial examples found. Deterministic: `indices` has no effect."""
        _check_inputs(x, y, self.bounds)
        x, y = x.detach(), y.long()
        best, shortest = x.clone(), x.new_full((len(x),), _safe_radius(self.eps, L2(), x.dtype))
        c, low, high = x.new_full((len(x),), self.initial_const), x.new_zeros(len(x)), x.new_full((len(x),), math.inf)
        with _eval_with_grad(model):
            for _ in range(self.binary_search_steps):
                fooled = self._minimize(model, x, y, c, best, shortest)
                low, high = torch.where(fooled, low, c), torch.where(fooled, c, high)
                c = torch.where(high.isfinite(), (low + high) / 2, 10 * c)
        return best

    def _minimize(self, model: Classifier, x: Tensor, y: Tensor, c: Tensor, best: Tensor, shortest: Tensor) -> Tensor:
        """Minimizes the objective with constants c, updates best and shortest in place, returns which were fooled."""
        w, fooled = self._to_variable(x).clone().requires_grad_(), torch.zeros_like(y, dtype=torch.bool)
        optimizer = torch.optim.Adam([w], lr=self.lr)
        for _ in range(self.steps):
            current = self._from_variable(w)
            margin = self.goal.margin(_logits(model, current, y), y)
            delta = current - x
            with torch.no_grad():
                length, success = L2().length(delta), margin > self.confidence
                fooled, shorter = fooled | success, success & (length <= shortest)
                best[shorter], shortest[shorter] = current[shorter], length[shorter]
            loss = (delta / self.bounds.span).square().flatten(1).sum(1) + c * (self.confidence - margin).clamp_min(0)
            w.grad = _gradient(loss, w)
            optimizer.step()
        return fooled

    def _to_variable(self, x: Tensor) -> Tensor:
        """Returns the variable w of inputs."""
        if not math.isfinite(self.bounds.high - self.bounds.low):
            return x
        return ((2 * (x - self.bounds.low) / self.bounds.span - 1) * _INTERIOR).atanh()

    def _from_variable(self, w: Tensor) -> Tensor:
        """Returns the inputs of a variable w."""
        if not math.isfinite(self.bounds.high - self.bounds.low):
            return self.bounds.clamp(w)
        return self.bounds.clamp(self.bounds.low + self.bounds.span * (w.tanh() + 1) / 2)


def claims() -> Iterator[Claim]:
    """Yields the claims of the minimum-norm attacks: they respect eps and the bounds."""
    model, bounds = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), InputBounds(-1.0, 1.0)

    def deep_fool(x: Tensor) -> Tensor:
        return DeepFool(eps=0.4, norm=LInf(), steps=8, bounds=bounds)(model, x, model(x).argmax(1))

    stays = _stays_in_ball(norm=LInf(), radius=0.4, bounds=bounds)
    yield Claim(stays, deep_fool, shape("n 3"), name="DeepFool(LInf(), eps=0.4)")

    def carlini_wagner(x: Tensor) -> Tensor:
        attack = CarliniWagner(eps=0.4, steps=4, binary_search_steps=2, lr=0.2, bounds=bounds)
        return attack(model, x, torch.arange(len(x)) % 2)

    stays = _stays_in_ball(norm=L2(), radius=0.4, bounds=bounds)
    yield Claim(stays, carlini_wagner, shape("n 3"), name="CarliniWagner(eps=0.4)")
