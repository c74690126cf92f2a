"""Lion: the sign of a momentum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lawful.laws import Claim, agreement, boundedness, scale_invariance, shape
from lawful.optim.chain import Chain
from lawful.optim.transforms import AddDecayedWeights, ScaleByLearningRate, Sign, StepContext, within


@dataclass(frozen=True)
class Blend:
    r"""Mixes the update into an average, more of it into the result than into what is kept.

    $$u' = \beta_1 v + (1 - \beta_1) \, u, \qquad v' = \beta_2 v + (1 - \beta_2) \, u$$

    Args:
        beta1: $\beta_1$.
        beta2: $\beta_2$.
    """

    beta1: float = 0.9
    beta2: float = 0.99

    def __post_init__(self) -> None:
        within("beta1", self.beta1, below=1.0)
        within("beta2", self.beta2, below=1.0)

    def start(self, p: Tensor) -> dict[str, Tensor]:
        """The average."""
        return {"exp_avg": torch.zeros_like(p)}

    def __call__(self, updates: list[Tensor], at: StepContext) -> list[Tensor]:
        v = at.kept("exp_avg")
        blended = torch._foreach_lerp(v, updates, 1 - at.options["beta1"])
        torch._foreach_lerp_(v, updates, 1 - at.options["beta2"])
        return list(blended)


def lion(
    params: Iterable[Any], *, lr: float = 1e-4, beta1: float = 0.9, beta2: float = 0.99, decay: float = 0.0
) -> Chain:
    r"""Builds Lion: every entry moves by the learning rate, up or down.

    $$\theta_{t + 1} = \theta_t - \eta \, \bigl(\operatorname{sign}(\beta_1 v_t + (1 - \beta_1) \, g_t)
    + \lambda \, \theta_t\bigr), \qquad v_{t + 1} = \beta_2 v_t + (1 - \beta_2) \, g_t$$

    It keeps half of what Adam keeps, and the size of the gradient makes no difference. As its steps are longer, the
    learning rate is to be 3 to 10 times smaller than Adam's, and the decay as much larger.

    Reference:
        Chen and others, *Symbolic Discovery of Optimization Algorithms*, 2023.

    Args:
        params: The parameters $\theta$, or groups of them.
        lr: The learning rate $\eta$.
        beta1: $\beta_1$, of the direction.
        beta2: $\beta_2$, of the average $v$ that is kept.
        decay: $\lambda$, decoupled.

    Examples:
        >>> x = nn.Parameter(torch.tensor([3.0, -4.0]))
        >>> optimizer = lion([x], lr=0.5)
        >>> x.square().sum().backward()
        >>> optimizer.step()
        >>> x.tolist()
        [2.5, -3.5]
    """
    return Chain(params, [Blend(beta1, beta2), Sign(), AddDecayedWeights(decay), ScaleByLearningRate(lr)])


def claims() -> Iterator[Claim]:
    """The laws that Lion obeys."""

    def moved(gradients: Tensor) -> Tensor:
        p = nn.Parameter(gradients.new_zeros(3))
        optimizer = lion([p], lr=1.0)
        for gradient in gradients.chunk(2):
            p.grad = gradient
            optimizer.step()
        return p.detach() / 2

    def equation(gradients: Tensor) -> Tensor:
        first, second = gradients.chunk(2)
        velocity = (1 - 0.99) * first
        return -(first.sign() + (0.9 * velocity + (1 - 0.9) * second).sign()) / 2

    yield Claim(agreement(other=equation), moved, shape("6"), name="lion, two steps")
    yield Claim(scale_invariance(), moved, shape("6"), name="lion, of the gradients of two steps")
    yield Claim(boundedness(low=-1.0, high=1.0), moved, shape("6"), name="lion, mean step in rates")
