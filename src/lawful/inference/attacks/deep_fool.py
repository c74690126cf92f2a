"""DeepFool: the nearest border of a model that is taken to be linear, again and again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.inference.attacks.box import FREE, UNIT, Box, checked
from lawful.inference.attacks.looking import Classifier, gradient_of, looking, scores_of
from lawful.inference.attacks.norms import L2, LInf, Norm
from lawful.inference.attacks.placing import stays_near, surely_within
from lawful.laws import Claim, agreement, made, shape


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
    box: Box = UNIT

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
        with looking(model):
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


def claims() -> Iterator[Claim]:
    """The laws that DeepFool obeys."""
    plane, box = nn.Linear(3, 4), Box(-1.0, 1.0)

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

    yield Claim(agreement(other=equation), over, made(small, "n 3"), name="DeepFool of a linear classifier")
