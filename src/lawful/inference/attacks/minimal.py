"""DeepFool: the nearest border of a model that is taken to be linear, again and again.

Carlini and Wagner's attack: the shortest change that fools a model, by a penalty whose weight is searched for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.inference.attacks.base import (
    FREE,
    UNIT,
    UNTARGETED,
    Classifier,
    Goal,
    InputBounds,
    checked,
    frozen,
    gradient_of,
    scores_of,
    stays_near,
    surely_within,
)
from lawful.inference.attacks.norms import L2, LInf, Norm
from lawful.laws import Claim, agreement, shape, transformed


@dataclass(frozen=True, kw_only=True)
class DeepFool:
    r"""Steps over the nearest border between classes, as the gradients of the scores show it.

    $$\delta = \frac{z_y - z_k}{\|w_k\|_*} \, v(w_k), \qquad w_k = \nabla (z_k - z_y), \qquad
    k = \arg\min_{j \ne y} \frac{z_y - z_j}{\|w_j\|_*}$$

    $v$ is the steepest direction of the norm and $\|\cdot\|_*$ what it gains, the dual norm: of a linear model, one
    step is the shortest change. Entries that lead out of the box are left out. An example rests once it is past the
    border, and then goes back along its line as far as it stays past: that is a short change, not the shortest.

    Reference:
        Moosavi-Dezfooli, Fawzi and Frossard, *DeepFool: A Simple and Accurate Method to Fool Deep Neural Networks*,
        2016.

    Args:
        eps: How long a change may be at most; an example that needs a longer one comes back as it was.
        norm: What is to be short.
        steps: How often the model is taken to be linear.
        overshoot: By which share of its length a change goes on past the border.
        halvings: How often the way back to the border is halved.
        candidates: How many classes, the likeliest others, are looked at.
        box: Where inputs lie.

    Examples:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> with torch.no_grad():
        ...     _ = model.weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        >>> DeepFool(box=FREE)(model, torch.tensor([[0.5, 0.3]]), torch.tensor([0]))
        tensor([[-0.0020,  0.3000]])
    """

    eps: float = math.inf
    norm: Norm = field(default_factory=L2)
    steps: int = 50
    overshoot: float = 0.02
    halvings: int = 6
    candidates: int = 9
    box: InputBounds = UNIT

    def __post_init__(self) -> None:
        if min(self.steps, self.candidates) < 1:
            raise ValueError(f"steps and candidates are at least 1: got {self.steps} and {self.candidates}")
        if not (self.eps >= 0 and self.overshoot >= 0 and self.halvings >= 0):
            raise ValueError(f"eps, overshoot and halvings are not negative: got {self}")

    def __call__(
        self,
        model: Classifier,
        x: Float[Tensor, "n ..."],
        y: Int[Tensor, " n"],
        *,
        numbers: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n ..."]:
        """Returns inputs just past the nearest border, and those that need more than eps as they were."""
        checked(x, y, self.box)
        x, y = x.detach(), y.long()
        best, here, delta = x.clone(), torch.arange(len(x), device=x.device), torch.zeros_like(x)
        own, of = x, y
        with frozen(model):
            for step in range(self.steps + 1):
                near = self.box.clamp(own + (1 + self.overshoot) * delta).requires_grad_(step < self.steps)
                scores = scores_of(model, near, of)
                going = scores.argmax(1) == of
                best[here[~going]] = near[~going].detach()
                if step == self.steps or not bool(going.any()):
                    break
                delta = self.box.clamp(own + delta + self._crossing(scores, near, of)) - own
                here, own, of, delta = (part[going] for part in (here, own, of, delta))
            best = self._back(model, x, y, best)
        far = self.norm.length(best - x) > surely_within(self.eps, self.norm, x.dtype)
        best[far] = x[far]
        return best

    @torch.no_grad()
    def _back(self, model: Classifier, x: Tensor, y: Tensor, best: Tensor) -> Tensor:
        """The point nearest to x, of those that halving the line from there tries, that fools too."""
        low, high = (x.new_full((len(x), *[1] * (x.dim() - 1)), end) for end in (0.0, 1.0))
        found = best
        for _ in range(self.halvings):
            middle = (low + high) / 2
            near = self.box.clamp(x + middle * (best - x))
            past = (scores_of(model, near, y).argmax(1) != y).reshape(high.shape)
            low, high = torch.where(past, low, middle), torch.where(past, middle, high)
            found = torch.where(past, near, found)
        return found

    def _crossing(self, scores: Tensor, near: Tensor, y: Tensor) -> Tensor:
        """The shortest change to a border of the linear model."""
        others = scores.detach().scatter(1, y[:, None], -math.inf)
        count, across = min(self.candidates, scores.shape[1] - 1), [1] * (near.dim() - 1)
        best, shortest = torch.zeros_like(near), near.new_full((len(near),), math.inf)
        for place, k in enumerate(others.topk(count, dim=1).indices.unbind(1)):
            behind = scores.gather(1, torch.stack([y, k], 1)) @ scores.new_tensor([1.0, -1.0])
            slope = gradient_of(-behind, near, keep=place < count - 1)
            way = self.norm.steepest(self.box.inward(slope, near))
            length = behind.detach() / (slope * way).flatten(1).sum(1)
            nearer = (length < shortest).reshape(-1, *across)
            best = torch.where(nearer, length.reshape(-1, *across) * way, best)
            shortest = shortest.minimum(length)
        return best


def _deep_fool_claims() -> Iterator[Claim]:
    """The laws that DeepFool obeys."""
    plane, box = nn.Linear(3, 4), InputBounds(-1.0, 1.0)

    def found(x: Tensor) -> Tensor:
        return DeepFool(eps=0.4, norm=LInf(), box=box)(plane, x, plane(x).argmax(1))

    yield Claim(stays_near(norm=LInf(), radius=0.4, box=box), found, shape("n 3"), name="DeepFool(LInf(), eps=0.4)")

    def over(x: Tensor) -> Tensor:
        return DeepFool(overshoot=0.5, halvings=0, box=FREE)(plane, x, plane(x).argmax(1))

    def equation(x: Tensor) -> Tensor:
        rows = []
        for point in x:
            z = plane(point).detach()
            y = int(z.argmax())
            ways = [(z[y] - z[k], plane.weight[k] - plane.weight[y]) for k in range(4) if k != y]
            gap, way = min(ways, key=lambda pair: float((pair[0] / pair[1].norm()).detach()))
            rows.append(point + 1.5 * gap * way / way.square().sum())
        return torch.stack(rows)

    def small(x: Tensor) -> Tensor:
        return x.tanh()

    yield Claim(agreement(other=equation), over, transformed(small, "n 3"), name="DeepFool of a linear classifier")


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
        >>> attack = CarliniWagner(steps=200, rounds=3, box=InputBounds(-1.0, 1.0))
        >>> attack(model, torch.tensor([[0.3, 0.5]]), torch.tensor([0])).round(decimals=1).abs()
        tensor([[0.0000, 0.5000]])
    """

    eps: float = math.inf
    steps: int = 100
    rounds: int = 9
    weight: float = 1.0
    rate: float = 0.05
    confidence: float = 0.0
    goal: Goal = UNTARGETED
    box: InputBounds = UNIT

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
        with frozen(model):
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


def _carlini_wagner_claims() -> Iterator[Claim]:
    """The laws that Carlini and Wagner's attack obeys."""
    box = InputBounds(-1.0, 1.0)
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


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _deep_fool_claims()
    yield from _carlini_wagner_claims()
