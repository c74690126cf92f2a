"""The box of an attack: where inputs may lie, and what is asked of them before the first step.

What an attack wants: to get away from a class or to one, and the gain that says how close it is.
How an attack looks at a model: scores and their gradient by the inputs, and nothing of the model is changed.
An attack: from a classifier, inputs and classes to inputs that are close by and classified otherwise.
Placing a change: added in floating point so that neither the ball nor the box is left by a single bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.blocks.modes import eval_mode
from lawful.inference.attacks.norms import L1, L2, LInf, Norm
from lawful.laws import (
    AtMost,
    Claim,
    Draw,
    Map,
    Statement,
    agreement,
    boundedness,
    derivative,
    law,
    shape,
    shift_invariance,
    tokens,
)


@dataclass(frozen=True)
class InputBounds:
    r"""Says where every entry of an input lies, before an attack and after it.

    $$\text{low} \le x_i \le \text{high}$$

    Args:
        low: The least value that an entry may have; $-\infty$ for no bound.
        high: The greatest.

    Examples:
        >>> import torch
        >>> InputBounds(0.0, 255.0).clamp(torch.tensor([-3.0, 300.0]))
        tensor([  0., 255.])
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"low is below high: got low={self.low}, high={self.high}")

    @property
    def span(self) -> float:
        """How wide it is; 1 without bounds."""
        return self.high - self.low if math.isfinite(self.high - self.low) else 1.0

    def clamp(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Moves what lies outside to the nearest bound."""
        return x.clamp(self.low, self.high)

    def room(self, x: Float[Tensor, "n ..."]) -> tuple[Float[Tensor, "n ..."], Float[Tensor, "n ..."]]:
        """How far each entry may be lowered, a number that is not positive, and raised."""
        return self.low - x, self.high - x

    def inward(self, g: Float[Tensor, "n ..."], x: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        """Leaves out the entries of a direction that lead out of the box."""
        return g.masked_fill(((x >= self.high) & (g > 0)) | ((x <= self.low) & (g < 0)), 0.0)


UNIT = InputBounds(0.0, 1.0)
"""Images from 0 to 1."""
FREE = InputBounds(-math.inf, math.inf)
"""Tables, series: no bounds."""


def checked(x: Float[Tensor, "n ..."], y: Int[Tensor, " n"], box: InputBounds) -> None:
    """Refuses inputs that no attack can start from, and says why.

    Raises:
        TypeError: where inputs are not real numbers or classes not integers.
        ValueError: where there are none, where some are not finite, or where some lie outside the box.
    """
    if not x.is_floating_point():
        raise TypeError(f"inputs are real numbers: got {x.dtype}; x.float() / 255 makes such of bytes")
    if y.is_floating_point() or y.is_complex():
        raise TypeError(f"classes are integers: got {y.dtype}")
    if x.dim() < 2 or not x.numel():
        raise ValueError(f"at least one example, along the first axis, was wanted: got shape {tuple(x.shape)}")
    if tuple(y.shape) != (len(x),):
        raise ValueError(f"a class for each of {len(x)} examples was wanted: got shape {tuple(y.shape)}")
    if not bool(x.isfinite().all()):
        bad = int((~x.isfinite()).flatten(1).any(1).nonzero()[0])
        raise ValueError(f"inputs are finite: example {bad} is not")
    least, most = float(x.min()), float(x.max())
    if bool((x < box.low).any() or (x > box.high).any()):
        inside = f"{box.low:g} to {box.high:g}"
        high = 255 if least >= 0 and 128 <= most <= 255 else max(most, 1)  # it takes all 8 bits of a byte
        wide = f"box=Box({min(least, 0):g}, {high:g})"
        raise ValueError(f"inputs from {inside} were wanted: got {least:g} to {most:g}; scale them, or say {wide}")


def _box_claims() -> Iterator[Claim]:
    """The laws that a box obeys."""
    box = InputBounds(-0.5, 2.0)
    yield Claim(boundedness(low=-0.5, high=2.0), box.clamp, shape("n 3"), name="Box.clamp")

    def moved(x: Tensor) -> Tensor:
        low, high = box.room(x)
        return (x + high - x - low) / box.span

    yield Claim(agreement(other=lambda x: 0 * x + 1), moved, shape("n 3"), name="Box.room is as wide as the box")


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
        >>> UNTARGETED.reached(scores, y), TARGETED.reached(scores, y)
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


UNTARGETED = Goal(1)
"""From the right class to any other."""
TARGETED = Goal(-1)
"""To the class that is given: a targeted attack."""


def _goals_claims() -> Iterator[Claim]:
    """The laws that goals obey."""
    given = (shape("b 4"), tokens("b", vocab_size=4))

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
        return torch.stack([goal.reached(z, y).to(z) for goal in (UNTARGETED, TARGETED)])

    def ahead(z: Tensor, y: Tensor) -> Tensor:
        return torch.stack([(goal.ahead(z, y) > 0).to(z) for goal in (UNTARGETED, TARGETED)])

    def apart(x: Tensor) -> Tensor:
        return x + torch.arange(4.0).to(x) * 1e-3

    yield Claim(agreement(other=lambda z, y: ahead(apart(z), y)), lambda z, y: asked(apart(z), y), given, name="Goal")


Classifier = Callable[[Tensor], Tensor]
"""From inputs, along the first axis, to the scores (logits) of each class."""


@contextmanager
def frozen(model: Classifier) -> Iterator[None]:
    """Within it a model is in evaluation mode and gradients are on; afterwards both are as they were."""
    with ExitStack() as stack:
        if isinstance(model, nn.Module):
            stack.enter_context(eval_mode(model))
        stack.enter_context(torch.enable_grad())
        yield


def scores_of(model: Classifier, x: Float[Tensor, "n ..."], classes: Tensor | None = None) -> Float[Tensor, "n c"]:
    """Returns the scores of a model.

    Raises:
        ValueError: where they are not those of two classes or more, not finite, or of fewer classes than are named.
    """
    z = model(x)
    if z.dim() != 2 or len(z) != len(x) or z.shape[1] < 2:
        raise ValueError(
            f"scores of two classes or more, ({len(x)}, c), were wanted of the model: got {tuple(z.shape)}"
        )
    if not bool(z.isfinite().all()):
        raise ValueError(f"the scores of the model are not finite: {z[~z.isfinite()][0]}")
    if classes is not None and not (int(classes.min()) >= 0 and int(classes.max()) < z.shape[1]):
        least, most = int(classes.min()), int(classes.max())
        raise ValueError(f"classes from 0 to {z.shape[1] - 1} were wanted: got {least} to {most}")
    return z


def gradient_of(gain: Float[Tensor, " n"], x: Float[Tensor, "n ..."], *, keep: bool = False) -> Float[Tensor, "n ..."]:
    """Returns the gradient of each example's gain by that example.

    Raises:
        ValueError: where the gain does not depend on the inputs, or its gradient is not finite.
    """
    if not gain.requires_grad:
        raise ValueError("the scores of the model do not depend on its inputs: there is no gradient to follow")
    (g,) = torch.autograd.grad(gain.sum(), x, retain_graph=keep)
    if not bool(g.isfinite().all()):
        bad = int((~g.isfinite()).flatten(1).any(1).nonzero()[0])
        raise ValueError(f"the gradient of the model is not finite at example {bad}")
    return g


def _looking_claims() -> Iterator[Claim]:
    """The laws that looking obeys."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(), nn.Linear(4, 2))

    def slope(x: Tensor) -> Tensor:
        with frozen(model):
            leaf = x.detach().requires_grad_()
            return gradient_of(scores_of(model, leaf)[:, 1], leaf)

    def product(x: Tensor) -> Tensor:
        first, _, last, _ = model.parameters()
        return (last[1] @ first).expand(len(x), 3)

    yield Claim(agreement(other=product), slope, shape("n 3"), name="gradient_of, with dropout off")


@runtime_checkable
class Attack(Protocol):
    """What every attack is: a frozen dataclass with its options, called with a model and examples.

    An example that is not fooled comes back too: as the closest call, or as it was. What is random of an example
    depends on the seed and on its number, not on the others of the batch.
    """

    def __call__(
        self,
        model: Classifier,
        x: Float[Tensor, "n ..."],
        y: Int[Tensor, " n"],
        *,
        numbers: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n ..."]:
        """Returns inputs that are to fool the model.

        Args:
            model: From inputs to scores (logits).
            x: The inputs, an example along the first axis each, of any shape.
            y: The right classes; of an attack with the goal `TOWARD`, those wanted.
            numbers: The number of each example, which its random numbers belong to; 0, 1, ... unless given.
        """
        ...


def downward(value: float, dtype: torch.dtype) -> float:
    """Returns the largest number of a precision that is not above a value: in float32, 0.1 is just below 0.1.

    Examples:
        >>> downward(0.1, torch.float32) <= 0.1 < torch.tensor(0.1).item()
        True
    """
    rounded = torch.tensor(value, dtype=dtype)
    if rounded.item() > value:
        rounded = rounded.nextafter(torch.tensor(-math.inf, dtype=dtype))
    return rounded.item()


def surely_within(radius: float, norm: Norm, dtype: torch.dtype) -> float:
    """The length up to which a change is in the ball however its terms are added up."""
    return downward(radius, dtype) * (1 - norm.rounding * torch.finfo(dtype).eps)


def project_exactly(
    x: Float[Tensor, "n ..."], delta: Float[Tensor, "n ..."], *, norm: Norm, radius: float, box: InputBounds
) -> Float[Tensor, "n ..."]:
    r"""Adds a change to inputs, rounding toward them, so that $\|x' - x\| \le r$ as it is measured in their precision.

    $x + \delta$ is rounded to the nearest number, which may be farther from $x$ than $\delta$ is long. Such entries go
    one number back. A sum of many entries may be rounded up too, more in one order than in another: the ball is taken
    some units in the last place smaller where the norm is a sum, and a change that is still too long is shortened.

    Args:
        x: The inputs $x$, in the box.
        delta: The change $\delta$, in the ball up to rounding.
        norm: What measures it.
        radius: $r$.
        box: Where the result lies.

    Examples:
        >>> x, delta = torch.tensor([[0.02]]), torch.tensor([[0.1]])
        >>> bool(x + delta - x > 0.1), bool(project_exactly(x, delta, norm=LInf(), radius=0.1, box=InputBounds()) - x > 0.1)
        (True, False)
    """
    inside = norm.project(delta, surely_within(radius, norm, x.dtype), *box.room(x))
    near, radius, shorter = _toward(x, inside, box), downward(radius, x.dtype), torch.finfo(x.dtype).eps
    while bool((far := norm.length(near - x) > radius).any()):
        factor = torch.where(far, max(0.0, 1 - shorter), 1.0).to(x).reshape(-1, *[1] * (x.dim() - 1))
        near, shorter = _toward(x, factor * (near - x), box), 2 * shorter
    return near


def _toward(x: Tensor, delta: Tensor, box: InputBounds) -> Tensor:
    near = box.clamp(x + delta)
    return torch.where((near - x).abs() > delta.abs(), near.nextafter(x), near)


@law("‖f(x) - x‖ ≤ r, low ≤ f(x) ≤ high: to the last bit")
def stays_near(f: Map, x: Tensor, *, norm: Norm, radius: float, box: InputBounds, draw: Draw) -> Statement:
    """No input is moved farther than r, nor out of the box, as measured in its own precision, without a tolerance.

    Satisfied by: attacks that round toward their input.
    Broken by: a projection followed by an addition that rounds to nearest; no clamp after a random start.
    """
    x = box.clamp(x)
    y = f(x)
    over = (norm.length(y - x) > radius).any() | (y < box.low).any() | (y > box.high).any()
    moved = norm.length(y - x).amax()
    draw.observe("‖f(x) - x‖", float(moved))
    return AtMost(over.to(x), torch.zeros_like(moved))


def _placing_claims() -> Iterator[Claim]:
    """The laws that placing obeys."""
    box = InputBounds(-0.7, 1.3)
    for norm, radius in ((LInf(), 0.1), (L2(), 0.3), (L1(), 0.7), (LInf(), 1e-9)):

        def far(x: Tensor, norm: Norm = norm, radius: float = radius) -> Tensor:
            delta = (9 * x).sin() + torch.linspace(-1, 1, x.shape[1]).to(x)
            return project_exactly(x, delta, norm=norm, radius=radius, box=box)

        name = f"placed in {norm} of radius {radius:g}"
        yield Claim(stays_near(norm=norm, radius=radius, box=box), far, shape("n 5"), name=name)


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _box_claims()
    yield from _goals_claims()
    yield from _looking_claims()
    yield from _placing_claims()
