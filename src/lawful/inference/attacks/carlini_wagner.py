"""Carlini and Wagner's attack: the shortest change that fools a model, by a penalty whose weight is searched for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.inference.attacks.box import UNIT, Box, checked
from lawful.inference.attacks.goals import AWAY, Goal
from lawful.inference.attacks.looking import Classifier, gradient_of, looking, scores_of
from lawful.inference.attacks.norms import L2
from lawful.inference.attacks.placing import stays_near, surely_within
from lawful.laws import Claim, agreement, shape

_INSIDE = 1 - 1e-6
"""How close to its bounds an entry may begin: at the bounds themselves tanh is flat."""


@dataclass(frozen=True, kw_only=True)
class CarliniWagner:
    r"""Looks for the shortest change, in the Euclidean norm, that fools a model.

    $$\min_\delta \ \|\delta\|_2^2 + c \, \max\bigl(\kappa - m(x + \delta), \, 0\bigr), \qquad
    x + \delta = \tfrac{\text{high} + \text{low}}{2} + \tfrac{\text{high} - \text{low}}{2} \tanh w$$

    $m$ is how far the example is past the border: the margin between scores. The box holds by the change of variables,
    and each example has a $c$ of its own: ten times as large where none fooled, else halved between the bounds found.
    Adam takes the steps; the shortest change that fooled is kept over all of them. Lengths are those of inputs whose
    box is 1 wide, so that $c$ means the same for any.

    Reference:
        Carlini and Wagner, *Towards Evaluating the Robustness of Neural Networks*, 2017.

    Args:
        eps: How long a change may be at most; an example that needs a longer one comes back as it was.
        steps: The gradients of a round.
        rounds: How many $c$ are tried.
        weight: The first $c$.
        rate: The learning rate of Adam, of $w$.
        confidence: $\kappa$, by how much the example is to be past the border.
        goal: Away from the classes given, or toward them.
        box: Where inputs lie; without bounds $w$ is the input itself.

    Examples:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> with torch.no_grad():
        ...     _ = model.weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        >>> attack = CarliniWagner(steps=200, rounds=3, box=Box(-1.0, 1.0))
        >>> attack(model, torch.tensor([[0.3, 0.5]]), torch.tensor([0])).round(decimals=1).abs()
        tensor([[0.0000, 0.5000]])
    """

    eps: float = math.inf
    steps: int = 100
    rounds: int = 9
    weight: float = 1.0
    rate: float = 0.05
    confidence: float = 0.0
    goal: Goal = AWAY
    box: Box = UNIT

    def __post_init__(self) -> None:
        if min(self.steps, self.rounds) < 1:
            raise ValueError(f"steps and rounds are at least 1: got {self.steps} and {self.rounds}")
        if not (self.eps >= 0 and self.weight > 0 and self.rate > 0 and self.confidence >= 0):
            got = f"eps={self.eps}, weight={self.weight}, rate={self.rate}, confidence={self.confidence}"
            raise ValueError(f"weight and rate above 0, eps and confidence not negative, were wanted: got {got}")

    def __call__(
        self,
        model: Classifier,
        x: Float[Tensor, "n ..."],
        y: Int[Tensor, " n"],
        *,
        numbers: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n ..."]:
        """Returns the nearest inputs found that fool the model, and those that need more than eps as they were."""
        checked(x, y, self.box)
        x, y = x.detach(), y.long()
        best, shortest = x.clone(), x.new_full((len(x),), surely_within(self.eps, L2(), x.dtype))
        c, least, most = x.new_full((len(x),), self.weight), x.new_zeros(len(x)), x.new_full((len(x),), math.inf)
        with looking(model):
            for _ in range(self.rounds):
                fooled = self._descended(model, x, y, c, best, shortest)
                least, most = torch.where(fooled, least, c), torch.where(fooled, c, most)
                c = torch.where(most.isfinite(), (least + most) / 2, 10 * c)
        return best

    def _descended(self, model: Classifier, x: Tensor, y: Tensor, c: Tensor, best: Tensor, shortest: Tensor) -> Tensor:
        """Goes down from the inputs with weights c, keeps the nearest that fool, and says which did."""
        w, fooled = self._free(x), torch.zeros_like(y, dtype=torch.bool)
        mean, square = torch.zeros_like(w), torch.zeros_like(w)
        for step in range(1, self.steps + 1):
            w = w.detach().requires_grad_()
            near = self._bounded(w)
            ahead = self.goal.ahead(scores_of(model, near, y), y)
            away = near - x
            with torch.no_grad():
                length, past = L2().length(away), ahead > self.confidence
                fooled, shorter = fooled | past, past & (length <= shortest)
                best[shorter], shortest[shorter] = near[shorter], length[shorter]
            loss = (away / self.box.span).square().flatten(1).sum(1) + c * (self.confidence - ahead).clamp_min(0)
            g = gradient_of(loss, w)
            mean, square = mean.lerp(g, 0.1), square.lerp(g.square(), 0.001)
            slope = (square / (1 - 0.999**step)).sqrt() + 1e-8
            w = w.detach() - self.rate / (1 - 0.9**step) * mean / slope
        return fooled

    def _free(self, x: Tensor) -> Tensor:
        """The variable w of inputs; what lies at a bound is moved a little inside."""
        if not math.isfinite(self.box.high - self.box.low):
            return x
        return ((2 * (x - self.box.low) / self.box.span - 1) * _INSIDE).atanh()

    def _bounded(self, w: Tensor) -> Tensor:
        """The inputs of a variable w."""
        if not math.isfinite(self.box.high - self.box.low):
            return self.box.clamp(w)
        return self.box.clamp(self.box.low + self.box.span * (w.tanh() + 1) / 2)


def claims() -> Iterator[Claim]:
    """The laws that Carlini and Wagner's attack obeys."""
    box = Box(-1.0, 1.0)
    wide = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

    def found(x: Tensor) -> Tensor:
        attack = CarliniWagner(eps=0.4, steps=4, rounds=2, rate=0.2, box=box)
        return attack(wide, x, torch.arange(len(x)) % 2)

    yield Claim(stays_near(norm=L2(), radius=0.4, box=box), found, shape("n 3"), name="CarliniWagner(eps=0.4)")

    def there_and_back(x: Tensor) -> Tensor:
        attack = CarliniWagner(box=box)
        return attack._bounded(attack._free(x.tanh()))

    def inside(x: Tensor) -> Tensor:
        return _INSIDE * x.tanh()

    yield Claim(agreement(other=inside), there_and_back, shape("n 3"), name="CarliniWagner, the variable w")
