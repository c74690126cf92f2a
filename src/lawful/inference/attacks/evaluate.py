"""Robust accuracy, and combinations of attacks: the worst case of several, and one attack per target class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.inference.attacks.base import FREE, UNTARGETED, Attack, Classifier, Goal, _eval_with_grad, _logits
from lawful.inference.attacks.gradient import PGD
from lawful.inference.metrics.intervals import ConfidenceInterval, wilson
from lawful.laws import AtMost, Claim, Map, Statement, law, shape


@dataclass(frozen=True)
class WorstCaseAttack:
    """Runs several attacks in turn, each on the examples that resisted the previous ones.

    An example is robust only if it resists all attacks. Returns the result of the first successful attack, or of the
    last one.

    Args:
        attacks: Attacks, for example with different seeds, losses or random starts.
        goal: Common goal of the attacks.

    Examples:
        >>> model, x = nn.Linear(4, 3), torch.full((2, 4), 0.5)
        >>> from lawful.inference.attacks import FGSM
        >>> attack = WorstCaseAttack((FGSM(eps=0.1), PGD(eps=0.1, steps=5)))
        >>> bool((attack(model, x, torch.tensor([0, 1])) - x).abs().max() <= 0.1)
        True
    """

    attacks: tuple[Attack, ...]
    goal: Goal = UNTARGETED

    def __post_init__(self) -> None:
        if not self.attacks:
            raise ValueError("attacks must not be empty")

    def __call__(
        self,
        model: Classifier,
        x: Float[Tensor, "n ..."],
        y: Int[Tensor, " n"],
        *,
        indices: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n ..."]:
        """Returns the result of the first successful attack for each example."""
        indices = torch.arange(len(x)) if indices is None else indices
        result, robust = x.clone(), torch.arange(len(x), device=x.device)
        for attack in self.attacks:
            result[robust] = attempt = attack(model, x[robust], y[robust], indices=indices[robust.cpu()])
            with _eval_with_grad(model), torch.no_grad():
                robust = robust[~self.goal.success(_logits(model, attempt), y[robust])]
            if not len(robust):
                break
        return result


@dataclass(frozen=True)
class MultiTargetedAttack:
    """Runs a targeted attack toward each of the most likely wrong classes in turn, until it succeeds.

    Reference:
        Croce and Hein, *Reliable Evaluation of Adversarial Robustness with an Ensemble of Diverse Parameter-Free
        Attacks*, 2020 (targeted APGD).

    Args:
        attack: Attack with goal `TARGETED`.
        num_targets: Number of wrong classes to try.

    Examples:
        >>> model, x = nn.Linear(4, 3), torch.full((2, 4), 0.5)
        >>> from lawful.inference.attacks import TARGETED
        >>> attack = MultiTargetedAttack(PGD(eps=0.1, steps=5, goal=TARGETED), num_targets=2)
        >>> attack(model, x, torch.tensor([0, 1])).shape
        torch.Size([2, 4])
    """

    attack: Attack
    num_targets: int = 3

    def __post_init__(self) -> None:
        if self.num_targets < 1:
            raise ValueError(f"num_targets must be at least 1, got {self.num_targets}")

    def __call__(
        self,
        model: Classifier,
        x: Float[Tensor, "n ..."],
        y: Int[Tensor, " n"],
        *,
        indices: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n ..."]:
        """Returns the result of the first successful attack for each example."""
        with _eval_with_grad(model), torch.no_grad():
            others = _logits(model, x, y).scatter(1, y.long()[:, None], -torch.inf)
        targets = others.topk(min(self.num_targets, others.shape[1] - 1), dim=1).indices
        indices = torch.arange(len(x)) if indices is None else indices
        result, robust = x.clone(), torch.arange(len(x), device=x.device)
        for target in targets.unbind(1):
            result[robust] = attempt = self.attack(model, x[robust], target[robust], indices=indices[robust.cpu()])
            with _eval_with_grad(model), torch.no_grad():
                robust = robust[~UNTARGETED.success(_logits(model, attempt), y[robust])]
            if not len(robust):
                break
        return result


def robust_accuracy(
    model: Classifier, x: Float[Tensor, "n ..."], y: Int[Tensor, " n"], *, attack: Attack, batch_size: int = 500
) -> ConfidenceInterval:
    """Accuracy under an attack, with Wilson's confidence interval.

    It is an upper bound of the true robust accuracy: a stronger attack may succeed more often. Examples that are
    misclassified without an attack count as wrong and are not attacked.

    Args:
        model: Classifier that returns logits.
        x: Inputs, of any shape.
        y: Labels.
        attack: The attack.
        batch_size: Number of examples to attack at once. The result does not depend on it.

    Examples:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> with torch.no_grad():
        ...     _ = model.weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        >>> x = torch.tensor([[0.02, 0.0], [0.5, 0.0]])
        >>> robust_accuracy(model, x, torch.tensor([0, 0]), attack=PGD(eps=0.1, bounds=FREE)).value
        0.5
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    correct = 0
    for indices in torch.arange(len(x)).split(batch_size):
        inputs, labels = x[indices], y[indices]
        with _eval_with_grad(model), torch.no_grad():
            right = ~UNTARGETED.success(_logits(model, inputs, labels), labels)
        if not bool(right.any()):
            continue
        adversarial = attack(model, inputs[right], labels[right], indices=indices[right.cpu()])
        with _eval_with_grad(model), torch.no_grad():
            correct += int((~UNTARGETED.success(_logits(model, adversarial), labels[right])).sum())
    return wilson(correct, len(x))


@law("an example that resists the worst case resists each attack")
def _worst_case(f: Map, x: Tensor, *, model: Classifier, attacks: tuple[Attack, ...]) -> Statement:
    """The worst case succeeds on every example on which a single attack succeeds.

    Satisfied by: trying each attack on the examples that resisted the previous ones, with the same random numbers.
    Broken by: random starts that depend on the batch.
    """
    y = torch.arange(len(x)) % 3
    together = UNTARGETED.success(model(f(x)), y)
    each = torch.stack([UNTARGETED.success(model(attack(model, x, y)), y) for attack in attacks])
    return AtMost(each.any(0).to(x), together.to(x))


def claims() -> Iterator[Claim]:
    """Yields the claims of the worst case: no single attack is stronger."""
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))
    attacks: tuple[Attack, ...] = tuple(PGD(eps=0.2, steps=n, seed=n, bounds=FREE) for n in (0, 1, 2))

    def perturb(x: Tensor) -> Tensor:
        return WorstCaseAttack(attacks)(model, x, torch.arange(len(x)) % 3)

    yield Claim(_worst_case(model=model, attacks=attacks), perturb, shape("n:1..6 3"), name="WorstCaseAttack")
