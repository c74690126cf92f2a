"""The fast gradient sign method: one step along the gradient, to the border of the ball."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.inference.attacks.box import FREE, UNIT, Box, checked
from lawful.inference.attacks.goals import AWAY, Gain, Goal, log_odds
from lawful.inference.attacks.looking import Classifier, gradient_of, looking, scores_of
from lawful.inference.attacks.norms import L2, LInf, Norm
from lawful.inference.attacks.placing import placed, stays_near
from lawful.laws import Claim, agreement, shape


@dataclass(frozen=True, kw_only=True)
class FGSM:
    r"""Goes in one step from the input to the border of the ball: the fast gradient sign method.

    $$x' = x + \text{eps} \, \operatorname{sign} \nabla L(x)$$

    It asks the model once, and does not look whether the step has helped: `PGD` does.

    Reference:
        Goodfellow, Shlens and Szegedy, *Explaining and Harnessing Adversarial Examples*, 2015.

    Args:
        eps: The radius of the ball, in the units of the inputs.
        norm: What it is measured in; of the largest entry, `LInf()`, the steepest direction is the sign.
        goal: `AWAY` from the classes given, or `TOWARD` them.
        gain: The loss $L$, from scores and classes: `log_odds` or `margin`.
        box: Where inputs lie.

    Examples:
        >>> model, x = nn.Linear(4, 3), torch.full((2, 4), 0.5)
        >>> (FGSM(eps=0.1)(model, x, torch.tensor([0, 1])) - x).abs().amin()
        tensor(0.1000)
    """

    eps: float
    norm: Norm = field(default_factory=LInf)
    goal: Goal = AWAY
    gain: Gain = log_odds
    box: Box = UNIT

    def __post_init__(self) -> None:
        if not (0 <= self.eps < math.inf):
            raise ValueError(f"eps is finite and not negative: got {self.eps}")

    def __call__(
        self,
        model: Classifier,
        x: Float[Tensor, "n ..."],
        y: Int[Tensor, " n"],
        *,
        numbers: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n ..."]:
        """Returns the inputs after the step; nothing is left to chance."""
        checked(x, y, self.box)
        x, y = x.detach(), y.long()
        with looking(model):
            leaf = x.clone().requires_grad_()
            g = gradient_of(self.goal.sign * self.gain(scores_of(model, leaf, y), y), leaf)
        way = self.eps * self.norm.steepest(self.box.inward(g, x))
        return placed(x, way, norm=self.norm, radius=self.eps, box=self.box)


def claims() -> Iterator[Claim]:
    """The laws that the fast gradient sign method obeys."""
    plane, box = nn.Linear(4, 2), Box(-1.0, 2.0)

    def first(x: Tensor) -> Tensor:
        return torch.ones(len(x), dtype=torch.long)

    def one(x: Tensor) -> Tensor:
        return FGSM(eps=0.25, box=FREE)(plane, x, first(x))

    def equation(x: Tensor) -> Tensor:
        return x + 0.25 * (plane.weight[0] - plane.weight[1]).sign()

    yield Claim(agreement(other=equation), one, shape("n 4"), name="FGSM of a linear classifier")

    def near(x: Tensor) -> Tensor:
        return FGSM(eps=0.3, norm=L2(), box=box)(plane, x, first(x))

    yield Claim(stays_near(norm=L2(), radius=0.3, box=box), near, shape("n 4"), name="FGSM(L2)")
