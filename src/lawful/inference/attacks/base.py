"""The parts that all attacks share: bounds of inputs, goals, losses, gradients and projection."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lawful.blocks.modes import eval_mode
from lawful.inference.attacks.norms import L1, L2, LInf, Norm
from lawful.laws import AtMost, Claim, Draw, Map, Statement, boundedness, law, shape, shift_invariance, tokens

Classifier = Callable[[Tensor], Tensor]
"""Maps a batch of inputs to logits of shape (n, num_classes)."""
AttackLoss = Callable[[Float[Tensor, "n c"], Int[Tensor, " n"]], Float[Tensor, " n"]]
"""Maps logits and labels to a loss per example, which rises as the label becomes less likely."""


@dataclass(frozen=True)
class InputBounds:
    r"""Bounds of every entry of an input, $\text{low} \le x_i \le \text{high}$.

    Args:
        low: Lower bound. $-\infty$ for none.
        high: Upper bound. $\infty$ for none.

    Examples:
        >>> import torch
        >>> InputBounds(0.0, 255.0).clamp(torch.tensor([-3.0, 300.0]))
        tensor([  0., 255.])
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"low must be less than high: got low={self.low}, high={self.high}")

    @property
    def span(self) -> float:
        """The width high - low; 1 if it is infinite."""
        return self.high - self.low if math.isfinite(self.high - self.low) else 1.0

    def clamp(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Clamps x to the bounds."""
        return x.clamp(self.low, self.high)

    def perturbation_bounds(self, x: Float[Tensor, "n ..."]) -> tuple[Float[Tensor, "n ..."], Float[Tensor, "n ..."]]:
        """Returns the smallest and the largest perturbation of each entry that keeps x within the bounds."""
        return self.low - x, self.high - x

    def mask_outward(self, g: Float[Tensor, "n ..."], x: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        """Sets the entries of a direction to 0 where they lead out of the bounds."""
        return g.masked_fill(((x >= self.high) & (g > 0)) | ((x <= self.low) & (g < 0)), 0.0)


UNIT = InputBounds(0.0, 1.0)
"""Bounds of images: 0 to 1."""
FREE = InputBounds(-math.inf, math.inf)
"""No bounds, for tables and time series."""


def log_odds(logits: Float[Tensor, "n c"], labels: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    r"""Log odds against the label.

    $$m(z, y) = \log \frac{1 - p_y}{p_y} = \log \sum_{k \ne y} e^{z_k} - z_y$$

    The cross-entropy is $\log(1 + e^m)$, so its gradient has the direction of $\nabla m$. The gradient of the
    cross-entropy vanishes where $p_y$ rounds to 1; the gradient of the log odds does not.

    Args:
        logits: The logits $z$.
        labels: The label $y$ of each example.

    Examples:
        >>> log_odds(torch.tensor([[0.0, 0.0, 200.0]]), torch.tensor([2]))
        tensor([-199.3069])
    """
    index = labels[:, None]
    return logits.scatter(1, index, -torch.inf).logsumexp(1) - logits.gather(1, index)[:, 0]


def margin(logits: Float[Tensor, "n c"], labels: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    r"""Misclassification margin $\max_{k \ne y} z_k - z_y$: positive if the example is misclassified.

    Args:
        logits: The logits $z$.
        labels: The label $y$ of each example.

    Examples:
        >>> margin(torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([2]))
        tensor([1.])
    """
    index = labels[:, None]
    return logits.scatter(1, index, -torch.inf).amax(1) - logits.gather(1, index)[:, 0]


@dataclass(frozen=True)
class Goal:
    """Goal of an attack: untargeted (away from the labels) or targeted (toward the labels).

    Args:
        sign: 1 for untargeted, -1 for targeted.

    Examples:
        >>> logits, labels = torch.tensor([[1.0, 2.0]]), torch.tensor([0])
        >>> UNTARGETED.success(logits, labels), TARGETED.success(logits, labels)
        (tensor([True]), tensor([False]))
    """

    sign: int

    def __post_init__(self) -> None:
        if self.sign not in (1, -1):
            raise ValueError(f"sign must be 1 or -1, got {self.sign}")

    def margin(self, logits: Float[Tensor, "n c"], labels: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Returns the margin of each example: positive if the goal is reached."""
        return self.sign * margin(logits, labels)

    def success(self, logits: Float[Tensor, "n c"], labels: Int[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Returns whether the goal is reached for each example."""
        return (logits.argmax(1) == labels) == (self.sign < 0)


UNTARGETED = Goal(1)
"""Untargeted: any class other than the label."""
TARGETED = Goal(-1)
"""Targeted: the label is the class to reach."""


@runtime_checkable
class Attack(Protocol):
    """Interface of an attack: a frozen dataclass of options, called with a model and a batch.

    If an attack fails on an example, it returns its best attempt or the input itself. Random numbers depend on the
    seed and on the index of an example, not on the batch.
    """

    def __call__(
        self,
        model: Classifier,
        x: Float[Tensor, "n ..."],
        y: Int[Tensor, " n"],
        *,
        indices: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n ..."]:
        """Returns adversarial examples.

        Args:
            model: Classifier that returns logits.
            x: Inputs, of any shape.
            y: Labels. For a targeted attack, the target classes.
            indices: Index of each example, which selects its random numbers. Defaults to 0, 1, ...
        """
        ...


def _check_inputs(x: Float[Tensor, "n ..."], y: Int[Tensor, " n"], bounds: InputBounds) -> None:
    """Checks types, shapes and values of a batch.

    Raises:
        TypeError: If x is not floating point or y is not integer.
        ValueError: If x is empty, not finite or out of bounds, or if the shapes do not match.
    """
    if not x.is_floating_point():
        raise TypeError(f"expected floating-point x, got {x.dtype}: convert bytes by x.float() / 255")
    if y.is_floating_point() or y.is_complex():
        raise TypeError(f"expected integer y, got {y.dtype}")
    if x.dim() < 2 or not x.numel():
        raise ValueError(f"expected non-empty x of shape (n, ...), got {tuple(x.shape)}")
    if tuple(y.shape) != (len(x),):
        raise ValueError(f"expected y of shape ({len(x)},), got {tuple(y.shape)}")
    if not bool(x.isfinite().all()):
        bad = int((~x.isfinite()).flatten(1).any(1).nonzero()[0])
        raise ValueError(f"x must be finite, example {bad} is not")
    low, high = float(x.min()), float(x.max())
    if bool((x < bounds.low).any() or (x > bounds.high).any()):
        upper = 255 if low >= 0 and 128 <= high <= 255 else max(high, 1)  # values above 127 suggest bytes
        remedy = f"scale x, or set bounds=InputBounds({min(low, 0):g}, {upper:g})"
        raise ValueError(f"x must be between {bounds.low:g} and {bounds.high:g}, got {low:g} to {high:g}: {remedy}")


@contextmanager
def _eval_with_grad(model: Classifier) -> Iterator[None]:
    """Sets the model to eval mode and enables gradients; restores both on exit."""
    with ExitStack() as stack:
        if isinstance(model, nn.Module):
            stack.enter_context(eval_mode(model))
        stack.enter_context(torch.enable_grad())
        yield


def _logits(model: Classifier, x: Float[Tensor, "n ..."], labels: Tensor | None = None) -> Float[Tensor, "n c"]:
    """Returns the logits of a model.

    Raises:
        ValueError: If the logits do not have shape (n, c) with c >= 2 or are not finite, or if a label is out of range.
    """
    z = model(x)
    if z.dim() != 2 or len(z) != len(x) or z.shape[1] < 2:
        raise ValueError(f"expected logits of shape ({len(x)}, c) with at least 2 classes, got {tuple(z.shape)}")
    if not bool(z.isfinite().all()):
        raise ValueError(f"the logits of the model must be finite, got {z[~z.isfinite()][0]}")
    if labels is not None and not (int(labels.min()) >= 0 and int(labels.max()) < z.shape[1]):
        low, high = int(labels.min()), int(labels.max())
        raise ValueError(f"y must be between 0 and {z.shape[1] - 1}, got {low} to {high}")
    return z


def _gradient(
    loss: Float[Tensor, " n"], x: Float[Tensor, "n ..."], *, retain_graph: bool = False
) -> Float[Tensor, "n ..."]:
    """Returns the gradient of each loss with respect to its example.

    Raises:
        ValueError: If the loss does not depend on x, or if the gradient is not finite.
    """
    if not loss.requires_grad:
        raise ValueError("the logits of the model do not depend on x: an attack needs gradients")
    (g,) = torch.autograd.grad(loss.sum(), x, retain_graph=retain_graph)
    if not bool(g.isfinite().all()):
        bad = int((~g.isfinite()).flatten(1).any(1).nonzero()[0])
        raise ValueError(f"the gradient of the model is not finite at example {bad}")
    return g


def _round_down(value: float, dtype: torch.dtype) -> float:
    """Rounds down to a number of a dtype.

    Examples:
        >>> _round_down(0.1, torch.float32) <= 0.1 < torch.tensor(0.1).item()
        True
    """
    rounded = torch.tensor(value, dtype=dtype)
    if rounded.item() > value:
        rounded = rounded.nextafter(torch.tensor(-math.inf, dtype=dtype))
    return rounded.item()


def _safe_radius(radius: float, norm: Norm, dtype: torch.dtype) -> float:
    """Returns a slightly smaller radius, so that rounding in `norm.length` cannot exceed the given one."""
    return _round_down(radius, dtype) * (1 - norm.rounding_ulps * torch.finfo(dtype).eps)


def _project(
    x: Float[Tensor, "n ..."], delta: Float[Tensor, "n ..."], *, norm: Norm, radius: float, bounds: InputBounds
) -> Float[Tensor, "n ..."]:
    r"""Projects $x + \delta$ onto the ball around x within bounds, exactly in floating point.

    $x + \delta$ rounds to nearest, which may be farther from $x$ than $\|\delta\|$; such entries move one number toward
    $x$. For norms that are sums the ball is smaller by a few units in the last place, and a perturbation that is still
    too long is shortened. So $\|x' - x\| \le r$ holds without a tolerance.

    Args:
        x: Inputs within the bounds.
        delta: Perturbations.
        norm: Norm of the ball.
        radius: Radius $r$ of the ball.
        bounds: Bounds of the result.

    Examples:
        >>> x, delta = torch.tensor([[0.02]]), torch.tensor([[0.1]])
        >>> projected = _project(x, delta, norm=LInf(), radius=0.1, bounds=UNIT)
        >>> bool(x + delta - x > 0.1), bool(projected - x > 0.1)
        (True, False)
    """
    inside = norm.project(delta, _safe_radius(radius, norm, x.dtype), *bounds.perturbation_bounds(x))
    result, radius, shrink = _add_toward(x, inside, bounds), _round_down(radius, x.dtype), torch.finfo(x.dtype).eps
    while bool((outside := norm.length(result - x) > radius).any()):
        factor = torch.where(outside, max(0.0, 1 - shrink), 1.0).to(x).reshape(-1, *[1] * (x.dim() - 1))
        result, shrink = _add_toward(x, factor * (result - x), bounds), 2 * shrink
    return result


def _add_toward(x: Tensor, delta: Tensor, bounds: InputBounds) -> Tensor:
    """Returns x + delta, rounded toward x."""
    result = bounds.clamp(x + delta)
    return torch.where((result - x).abs() > delta.abs(), result.nextafter(x), result)


@law("‖f(x) - x‖ ≤ r, low ≤ f(x) ≤ high, without a tolerance")
def _stays_in_ball(f: Map, x: Tensor, *, norm: Norm, radius: float, bounds: InputBounds, draw: Draw) -> Statement:
    """The map stays in the ball around its input and within bounds, to the last bit.

    Satisfied by: attacks that round toward their input.
    Broken by: a projection followed by an addition that rounds to nearest; no clamp after a random start.
    """
    x = bounds.clamp(x)
    y = f(x)
    outside = (norm.length(y - x) > radius).any() | (y < bounds.low).any() | (y > bounds.high).any()
    length = norm.length(y - x).amax()
    draw.observe("‖f(x) - x‖", float(length))
    return AtMost(outside.to(x), torch.zeros_like(length))


def claims() -> Iterator[Claim]:
    """Yields the claims of bounds, losses and the exact projection."""
    bounds = InputBounds(-0.7, 1.3)
    yield Claim(boundedness(low=-0.7, high=1.3), bounds.clamp, shape("n 3"), name="InputBounds.clamp")
    for loss in (margin, log_odds):
        yield Claim(shift_invariance(axis=1), loss, (shape("b 4"), tokens("b", vocab_size=4)))
    for norm, radius in ((LInf(), 0.1), (L2(), 0.3), (L1(), 0.7), (LInf(), 1e-9)):

        def project(x: Tensor, norm: Norm = norm, radius: float = radius) -> Tensor:
            delta = (9 * x).sin() + torch.linspace(-1, 1, x.shape[1]).to(x)
            return _project(x, delta, norm=norm, radius=radius, bounds=bounds)

        name = f"projection onto the {norm} ball of radius {radius:g}"
        yield Claim(_stays_in_ball(norm=norm, radius=radius, bounds=bounds), project, shape("n 5"), name=name)
