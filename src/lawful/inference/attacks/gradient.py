"""The fast gradient sign method: one step along the gradient, to the border of the ball.

Projected gradient: steps that raise the loss, each put back into the ball.
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
    Gain,
    Goal,
    InputBounds,
    checked,
    frozen,
    gradient_of,
    log_odds,
    project_exactly,
    scores_of,
    stays_near,
)
from lawful.inference.attacks.norms import L1, L2, LInf, Norm
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
        goal: `UNTARGETED` from the classes given, or `TOWARD` them.
        gain: The loss $L$, from scores and classes: `log_odds` or `margin`.
        box: Where inputs lie.

    Examples:
        >>> model, x = nn.Linear(4, 3), torch.full((2, 4), 0.5)
        >>> (FGSM(eps=0.1)(model, x, torch.tensor([0, 1])) - x).abs().amin()
        tensor(0.1000)
    """

    eps: float
    norm: Norm = field(default_factory=LInf)
    goal: Goal = UNTARGETED
    gain: Gain = log_odds
    box: InputBounds = UNIT

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
        with frozen(model):
            leaf = x.clone().requires_grad_()
            g = gradient_of(self.goal.sign * self.gain(scores_of(model, leaf, y), y), leaf)
        way = self.eps * self.norm.steepest(self.box.inward(g, x))
        return project_exactly(x, way, norm=self.norm, radius=self.eps, box=self.box)


def _fgsm_claims() -> Iterator[Claim]:
    """The laws that the fast gradient sign method obeys."""
    plane, box = nn.Linear(4, 2), InputBounds(-1.0, 2.0)

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


@dataclass(frozen=True, kw_only=True)
class PGD:
    r"""Climbs the loss within a ball around each input: projected gradient ascent.

    $$\delta_{t + 1} = P\bigl(\delta_t + a_t \, v(g_t)\bigr), \qquad
    g_t = \mu \, g_{t - 1} + \frac{\nabla L(x + \delta_t)}{\|\nabla L(x + \delta_t)\|_1}, \qquad
    a_t = a \cos^2 \frac{\pi t}{2 T}$$

    $v$ is the steepest direction of the norm and $P$ the nearest point of the ball and the box; the gradient's entries
    that lead out of the box are left out. Of all points on the way, the one comes back that fools the model, and of
    several the one of the largest loss. It is exactly in the ball and in the box, in the precision of the inputs.

    Reference:
        Madry, Makelov, Schmidt, Tsipras and Vladu, *Towards Deep Learning Models Resistant to Adversarial Attacks*,
        2018; Dong and others, *Boosting Adversarial Attacks with Momentum*, 2018.

    Args:
        eps: The radius of the ball, in the units of the inputs.
        norm: What the ball is measured in: `LInf()`, `L2()`, `L1()`.
        steps: How many gradients are taken; with 0 this is noise.
        step: The length $a$ of the first step; eps unless given.
        start: How far from the input the first point is drawn at random, as a share of eps; 0 to begin at the input.
        momentum: $\mu$, how much of earlier gradients is kept.
        goal: `UNTARGETED` from the classes given, or `TOWARD` them.
        gain: The loss $L$, from scores and classes: `log_odds` or `margin`.
        enough: How far, in scores, an example must be past the border to be left alone; by default none ever is. With
            0 robust accuracy is measured in a fraction of the time.
        box: Where inputs lie.
        seed: What the first points are drawn from.

    Examples:
        >>> model, x = nn.Linear(4, 3), torch.full((2, 4), 0.5)
        >>> near = PGD(eps=0.1, steps=5)(model, x, torch.tensor([0, 1]))
        >>> bool((near - x).abs().max() <= 0.1)
        True
    """

    eps: float
    norm: Norm = field(default_factory=LInf)
    steps: int = 40
    step: float | None = None
    start: float = 1.0
    momentum: float = 0.0
    goal: Goal = UNTARGETED
    gain: Gain = log_odds
    enough: float = math.inf
    box: InputBounds = UNIT
    seed: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.eps < math.inf):
            raise ValueError(f"eps is finite and not negative: got {self.eps}")
        if self.steps < 0:
            raise ValueError(f"steps are at least 0: got {self.steps}")
        if self.step is not None and not 0 < self.step < math.inf:
            raise ValueError(f"step is above 0: got {self.step}")
        if not 0 <= self.start <= 1:
            raise ValueError(f"start is from 0 to 1: got {self.start}")
        if not 0 <= self.momentum < math.inf:
            raise ValueError(f"momentum is not negative: got {self.momentum}")

    def __call__(
        self,
        model: Classifier,
        x: Float[Tensor, "n ..."],
        y: Int[Tensor, " n"],
        *,
        numbers: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n ..."]:
        """Returns the inputs of the largest loss that was met in the ball."""
        checked(x, y, self.box)
        x, y = x.detach(), y.long()
        with frozen(model):
            return self._climbed(model, x, y, self._placed(x, self._first(x, numbers)))

    def _placed(self, x: Tensor, delta: Tensor) -> Tensor:
        return project_exactly(x, delta, norm=self.norm, radius=self.eps, box=self.box)

    def _first(self, x: Tensor, numbers: Tensor | None) -> Tensor:
        """The first change of each example, which belongs to its number."""
        if not self.start:
            return torch.zeros_like(x)
        numbers = torch.arange(len(x)) if numbers is None else numbers.cpu()
        first = int(numbers.min())
        drawn = self.norm.ball(int(numbers.max()) - first + 1, *x.shape[1:], seed=self.seed, first=first)
        return self.start * self.eps * drawn[numbers - first].to(x)

    def _climbed(self, model: Classifier, x: Tensor, y: Tensor, near: Tensor) -> Tensor:
        """The best point that was met on the way from a first one."""
        length = self.eps if self.step is None else self.step
        found, here = near.clone(), torch.arange(len(x), device=x.device)
        best, most, past = near, x.new_full((2, len(x)), -math.inf), torch.zeros_like(x)
        for step in range(self.steps + 1):
            near = near.detach().requires_grad_(step < self.steps)
            scores = scores_of(model, near, y)
            gain = self.goal.sign * self.gain(scores, y)
            rank = torch.stack([self.goal.reached(scores, y).to(x), gain.detach()])
            better = _above(rank, most)
            best = torch.where(better.reshape(-1, *[1] * (x.dim() - 1)), near.detach(), best)
            most = torch.where(better, rank, most)
            if step == self.steps:
                break
            going = None if self.enough == math.inf else self.goal.ahead(scores, y) < self.enough
            if going is not None and not bool(going.any()):
                break
            g = gradient_of(gain, near)
            if going is not None and not bool(going.all()):
                found[here[~going]] = best[~going]
                here, x, y, near, g, past, best = (part[going] for part in (here, x, y, near, g, past, best))
                most = most[:, going]
            g = self.box.inward(g, near.detach())
            if self.momentum:
                g = past = self.momentum * past + _unit(g)
            now = length * math.cos(math.pi * step / self.steps / 2) ** 2
            near = self._placed(x, near.detach() - x + now * self.norm.steepest(g))
        found[here] = best
        return found


def _above(rank: Tensor, other: Tensor) -> Tensor:
    """Whether pairs come after others: by their first numbers, and where these are equal by their second."""
    first, second = rank > other
    return first | ((rank[0] == other[0]) & second)


def _unit(g: Tensor) -> Tensor:
    """The gradient of each example, divided by the sum of its absolute entries; 0 where it is."""
    across = tuple(range(1, g.dim()))
    g = torch.where(g.abs().amax(across, keepdim=True) > 0, g / g.abs().amax(across, keepdim=True), 0.0)
    return g / g.abs().sum(across, keepdim=True).clamp_min(1)


def _pgd_claims() -> Iterator[Claim]:
    """The laws that the projected gradient obeys."""
    model, box = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), InputBounds(-1.0, 2.0)

    def y(x: Tensor) -> Tensor:
        return torch.arange(len(x), device=x.device) % 3

    for norm in (LInf(), L2(), L1()):

        def climbed(x: Tensor, norm: Norm = norm) -> Tensor:
            return PGD(eps=0.3, norm=norm, steps=3, box=box)(model, x, y(x))

        near = stays_near(norm=norm, radius=0.3, box=box)
        yield Claim(near, climbed, shape("n 4"), name=f"PGD({norm})")
    plane = nn.Linear(4, 2)

    def two(x: Tensor) -> Tensor:
        long = PGD(eps=0.5, norm=L2(), steps=2, step=0.4, start=0.0, box=FREE, momentum=0.5)
        return long(plane, x, torch.zeros_like(y(x)))

    def along(x: Tensor) -> Tensor:
        way = plane.weight[1] - plane.weight[0]
        return x + 0.5 * way / way.norm()

    yield Claim(agreement(other=along), two, shape("n 4"), name="PGD(L2) of a linear classifier")

    def alone(x: Tensor) -> Tensor:
        attack, classes = PGD(eps=0.3, steps=2, box=FREE), y(x)
        each = range(len(x))
        return torch.cat([attack(model, x[i : i + 1], classes[i : i + 1], numbers=torch.tensor([i])) for i in each])

    def beside(x: Tensor) -> Tensor:
        return PGD(eps=0.3, steps=2, box=FREE)(model, x, y(x))

    yield Claim(agreement(other=alone), beside, shape("n:1..4 4"), name="PGD, beside others and alone")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _fgsm_claims()
    yield from _pgd_claims()
