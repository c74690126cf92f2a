"""What an attack wants: to get away from a class or to one, and the gain that says how close it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from lawful.laws import Claim, agreement, derivative, shape, shift_invariance, tokens

Gain = Callable[[Float[Tensor, "n c"], Int[Tensor, " n"]], Float[Tensor, " n"]]
"""From scores and a class of each example to a number that rises as the class becomes less likely."""


def log_odds(scores: Float[Tensor, "n c"], y: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    r"""Measures the odds against a class.

    $$m(z, y) = \log \frac{1 - p_y}{p_y} = \log \sum_{k \ne y} e^{z_k} - z_y$$

    The cross-entropy is $\log(1 + e^m)$: by the inputs its gradient has the direction of $\nabla m$, and an attack
    that looks at the direction only is the same. But where $p_y$ rounds to 1 that gradient is 0, and this one is not.

    Args:
        scores: $z$, the logits.
        y: The class $y$ of each example.

    Examples:
        >>> log_odds(torch.tensor([[0.0, 0.0, 200.0]]), torch.tensor([2]))
        tensor([-199.3069])
    """
    own = y[:, None]
    return scores.scatter(1, own, -torch.inf).logsumexp(1) - scores.gather(1, own)[:, 0]


def margin(scores: Float[Tensor, "n c"], y: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    r"""Measures by how much the best other class is ahead: $\max_{k \ne y} z_k - z_y$, above 0 where y loses.

    Args:
        scores: $z$, the logits.
        y: The class $y$ of each example.

    Examples:
        >>> margin(torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([2]))
        tensor([1.])
    """
    own = y[:, None]
    return scores.scatter(1, own, -torch.inf).amax(1) - scores.gather(1, own)[:, 0]


@dataclass(frozen=True)
class Goal:
    """Says which way an attack goes: away from the classes that it is given, or toward them.

    Args:
        sign: 1 for away, -1 for toward.

    Examples:
        >>> scores, y = torch.tensor([[1.0, 2.0]]), torch.tensor([0])
        >>> AWAY.reached(scores, y), TOWARD.reached(scores, y)
        (tensor([True]), tensor([False]))
    """

    sign: int

    def __post_init__(self) -> None:
        if self.sign not in (1, -1):
            raise ValueError(f"sign is 1 or -1: got {self.sign}")

    def ahead(self, scores: Float[Tensor, "n c"], y: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """By how much of the scores each example is where it should be: its margin, of the sign of the goal."""
        return self.sign * margin(scores, y)

    def reached(self, scores: Float[Tensor, "n c"], y: Int[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Whether each example has the class that it should have, or has not that which it should not."""
        return (scores.argmax(1) == y) == (self.sign < 0)


AWAY = Goal(1)
"""From the right class to any other."""
TOWARD = Goal(-1)
"""To the class that is given: a targeted attack."""


def claims() -> Iterator[Claim]:
    """The laws that goals obey."""
    given = (shape("b 4"), tokens("b", vocab=4))

    def odds(z: Tensor, y: Tensor) -> Tensor:
        p = z.softmax(1).gather(1, y[:, None])[:, 0]
        return ((1 - p) / p).log()

    def inside(gain: Gain) -> Gain:
        return lambda z, y: gain(4 * z.tanh(), y)

    yield Claim(agreement(other=inside(odds)), inside(log_odds), given, name="log_odds")

    def others(z: Tensor, y: Tensor) -> Tensor:
        own = F.one_hot(y, 4).to(z)
        return torch.where(own > 0, 0.0, z.masked_fill(own > 0, -torch.inf).softmax(1)) - own

    yield Claim(derivative(formula=others), log_odds, given, name="log_odds, never flat")

    def alone(z: Tensor, y: Tensor) -> Tensor:
        return torch.stack([max(row[k] for k in range(4) if k != i) - row[i] for row, i in zip(z, y, strict=True)])

    yield Claim(agreement(other=alone), margin, given)
    yield Claim(shift_invariance(axis=1), margin, given)

    def asked(z: Tensor, y: Tensor) -> Tensor:
        return torch.stack([goal.reached(z, y).to(z) for goal in (AWAY, TOWARD)])

    def ahead(z: Tensor, y: Tensor) -> Tensor:
        return torch.stack([(goal.ahead(z, y) > 0).to(z) for goal in (AWAY, TOWARD)])

    def apart(x: Tensor) -> Tensor:
        return x + torch.arange(4.0).to(x) * 1e-3

    yield Claim(agreement(other=lambda z, y: ahead(apart(z), y)), lambda z, y: asked(apart(z), y), given, name="Goal")
