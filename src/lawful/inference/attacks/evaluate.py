"""The worst of several attacks, and what is left of a classifier's accuracy under one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.inference.attacks.base import FREE, UNTARGETED, Attack, Classifier, Goal, frozen, scores_of
from lawful.inference.attacks.gradient import PGD
from lawful.inference.metrics.intervals import ConfidenceInterval, wilson
from lawful.laws import AtMost, Claim, Map, Statement, agreement, law, shape


@dataclass(frozen=True)
class WorstCaseAttack:
    """Tries attacks one after the other, each on the examples that withstood those before.

    An example counts as robust only if it withstands all. It comes back as the first attack that fooled left it, or as
    the last one did.

    Args:
        attacks: What is tried; with other seeds, losses, norms or starts they find different weaknesses.
        goal: What they want.

    Examples:
        >>> model, x = nn.Linear(4, 3), torch.full((2, 4), 0.5)
        >>> from lawful.inference.attacks import FGSM
        >>> both = WorstCaseAttack((FGSM(eps=0.1), PGD(eps=0.1, steps=5)))
        >>> bool((both(model, x, torch.tensor([0, 1])) - x).abs().max() <= 0.1)
        True
    """

    attacks: tuple[Attack, ...]
    goal: Goal = UNTARGETED

    def __post_init__(self) -> None:
        if not self.attacks:
            raise ValueError("at least one attack was wanted: got none")

    def __call__(
        self,
        model: Classifier,
        x: Float[Tensor, "n ..."],
        y: Int[Tensor, " n"],
        *,
        numbers: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n ..."]:
        """Returns what the first attack that fooled made of each example."""
        numbers = torch.arange(len(x)) if numbers is None else numbers
        found, left = x.clone(), torch.arange(len(x), device=x.device)
        for attack in self.attacks:
            near = attack(model, x[left], y[left], numbers=numbers[left.cpu()])
            found[left] = near
            with frozen(model), torch.no_grad():
                left = left[~self.goal.reached(scores_of(model, near), y[left])]
            if not len(left):
                break
        return found


@dataclass(frozen=True)
class TowardEach:
    """Attacks toward each of the likeliest wrong classes in turn, until the example has one of them.

    Toward one class the loss climbs straight; away from one it may stop between several.

    Reference:
        Croce and Hein, *Reliable Evaluation of Adversarial Robustness with an Ensemble of Diverse Parameter-Free
        Attacks*, 2020 (the targeted attack).

    Args:
        attack: What goes toward a class; its goal is `TOWARD`.
        classes: How many of the wrong classes are tried.

    Examples:
        >>> model, x = nn.Linear(4, 3), torch.full((2, 4), 0.5)
        >>> from lawful.inference.attacks import TOWARD
        >>> each = TowardEach(PGD(eps=0.1, steps=5, goal=TOWARD), classes=2)
        >>> each(model, x, torch.tensor([0, 1])).shape
        torch.Size([2, 4])
    """

    attack: Attack
    classes: int = 3

    def __post_init__(self) -> None:
        if self.classes < 1:
            raise ValueError(f"classes are at least 1: got {self.classes}")

    def __call__(
        self,
        model: Classifier,
        x: Float[Tensor, "n ..."],
        y: Int[Tensor, " n"],
        *,
        numbers: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n ..."]:
        """Returns what the first attack that fooled made of each example."""
        with frozen(model), torch.no_grad():
            others = scores_of(model, x, y).scatter(1, y.long()[:, None], -torch.inf)
        wanted = others.topk(min(self.classes, others.shape[1] - 1), dim=1).indices
        numbers = torch.arange(len(x)) if numbers is None else numbers
        found, left = x.clone(), torch.arange(len(x), device=x.device)
        for k in wanted.unbind(1):
            found[left] = near = self.attack(model, x[left], k[left], numbers=numbers[left.cpu()])
            with frozen(model), torch.no_grad():
                left = left[~UNTARGETED.reached(scores_of(model, near), y[left])]
            if not len(left):
                break
        return found


def robust_accuracy(
    model: Classifier, x: Float[Tensor, "n ..."], y: Int[Tensor, " n"], *, attack: Attack, batch: int = 500
) -> ConfidenceInterval:
    """Measures how many examples are classified rightly still after an attack, with Wilson's interval.

    It bounds the true robustness from above: a stronger attack may find more. Examples that are wrong before it count
    as wrong, and are not attacked.

    Args:
        model: From inputs to scores (logits).
        x: The inputs, of any shape.
        y: The right classes.
        attack: What is tried.
        batch: How many examples are attacked at once; the figure does not depend on it.

    Examples:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> with torch.no_grad():
        ...     _ = model.weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        >>> x = torch.tensor([[0.02, 0.0], [0.5, 0.0]])
        >>> robust_accuracy(model, x, torch.tensor([0, 0]), attack=PGD(eps=0.1, box=FREE)).value
        0.5
    """
    if batch < 1:
        raise ValueError(f"batch is at least 1: got {batch}")
    right = 0
    for numbers in torch.arange(len(x)).split(batch):
        inputs, classes = x[numbers], y[numbers]
        with frozen(model), torch.no_grad():
            safe = ~UNTARGETED.reached(scores_of(model, inputs, classes), classes)
        if not bool(safe.any()):
            continue
        near = attack(model, inputs[safe], classes[safe], numbers=numbers[safe.cpu()])
        with frozen(model), torch.no_grad():
            right += int((~UNTARGETED.reached(scores_of(model, near), classes[safe])).sum())
    return wilson(right, len(x))


@law("no attack of several fools what withstands the worst of them")
def no_single_is_worse(f: Map, x: Tensor, *, model: Classifier, attacks: tuple[Attack, ...]) -> Statement:
    """Examples that withstand the worst attack withstand each.

    Satisfied by: trying each attack on those that withstood the ones before, with the same random numbers.
    Broken by: random starts that depend on which others are in the batch.
    """
    y = torch.arange(len(x)) % 3
    together = UNTARGETED.reached(model(f(x)), y)
    each = torch.stack([UNTARGETED.reached(model(attack(model, x, y)), y) for attack in attacks])
    return AtMost(each.any(0).to(x), together.to(x))


def claims() -> Iterator[Claim]:
    """The laws that the worst attack obeys."""
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))
    attacks: tuple[Attack, ...] = tuple(PGD(eps=0.2, steps=n, seed=n, box=FREE) for n in (0, 1, 2))

    def worst(x: Tensor) -> Tensor:
        return WorstCaseAttack(attacks)(model, x, torch.arange(len(x)) % 3)

    yield Claim(no_single_is_worse(model=model, attacks=attacks), worst, shape("n:1..6 3"), name="Worst")
    line = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        line.weight.copy_(torch.tensor([[1.0], [-1.0]]))

    def counted(x: Tensor) -> Tensor:
        attacked = PGD(eps=0.3, steps=2, start=0.0, box=FREE)
        right = torch.zeros(len(x), dtype=torch.long)
        return x.new_tensor(robust_accuracy(line.to(x), x, right, attack=attacked, batch=2).value)

    def beyond(x: Tensor) -> Tensor:
        return (x > 0.3).double().mean().to(x)

    yield Claim(agreement(other=beyond), counted, shape("n:1..5 1"), name="robust_accuracy on a line")
