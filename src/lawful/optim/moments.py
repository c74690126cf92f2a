"""The moments of Adam: averages of the gradient and of its square."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lawful.optim.part import Point
from lawful.optim.parts import within


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

    def __call__(self, updates: list[Tensor], at: Point) -> list[Tensor]:
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

    def __call__(self, updates: list[Tensor], at: Point) -> list[Tensor]:
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


def _averaged(updates: list[Tensor], at: Point) -> tuple[list[Tensor], list[Tensor]]:
    """Both averages, brought up to date."""
    v, s, beta2 = at.kept("exp_avg"), at.kept("exp_avg_sq"), at.options["beta2"]
    torch._foreach_lerp_(v, updates, 1 - at.options["beta1"])
    torch._foreach_mul_(s, beta2)
    torch._foreach_addcmul_(s, updates, updates, value=1 - beta2)
    return v, s
