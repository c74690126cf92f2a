"""Lion: sign descent along a momentum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn

from lawful.laws import Claim, boundedness, scale_invariance, shape
from lawful.optim.chain import Chain
from lawful.optim.transforms import AddDecayedWeights, ScaleByLearningRate, ScaleByLion


class Lion(Chain):
    r"""Lion: every entry moves by the learning rate, up or down.

    $$\theta_{t + 1} = \theta_t - \eta \, \bigl(\operatorname{sign}(\beta_1 v_t + (1 - \beta_1) \, g_t)
    + \lambda \, \theta_t\bigr), \qquad v_{t + 1} = \beta_2 v_t + (1 - \beta_2) \, g_t$$

    Lion needs half of Adam's state and does not depend on the scale of the gradient. Its learning rate is usually 3 to
    10 times smaller than Adam's, and its weight decay as much larger.

    Reference:
        Chen et al., *Symbolic Discovery of Optimization Algorithms*, 2023.

    Args:
        params: Parameters or parameter groups.
        lr: Learning rate $\eta$.
        betas: $\beta_1$ of the direction and $\beta_2$ of the average $v$.
        weight_decay: Decoupled weight decay $\lambda$.

    Examples:
        >>> import torch
        >>> x = nn.Parameter(torch.tensor([3.0, -4.0]))
        >>> optimizer = Lion([x], lr=0.5)
        >>> x.square().sum().backward()
        >>> optimizer.step()
        >>> x.tolist()
        [2.5, -3.5]
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        *,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, [ScaleByLion(betas), AddDecayedWeights(weight_decay), ScaleByLearningRate(lr)])


def claims() -> Iterator[Claim]:
    """Laws of Lion."""

    def mean_step(gradients: Tensor) -> Tensor:
        p = nn.Parameter(gradients.new_zeros(3))
        optimizer = Lion([p], lr=1.0)
        for gradient in gradients.chunk(2):
            p.grad = gradient
            optimizer.step()
        return p.detach() / 2

    yield Claim(scale_invariance(), mean_step, shape("6"), name="Lion, from two gradients to the mean step")
    yield Claim(boundedness(low=-1.0, high=1.0), mean_step, shape("6"), name="Lion, mean step in learning rates")
