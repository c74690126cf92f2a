"""Helpers that the groups share: shape checks, functions that are smooth at zero angle, and common claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import factorial
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.functions._validation import any_true
from lawful.laws import (
    Claim,
    action,
    all_of,
    associativity,
    commutativity,
    identity_element,
    inverse_element,
    invertibility,
    left_invariance,
    separation,
    triangle_inequality,
)

if TYPE_CHECKING:
    from lawful.groups.group import Group, LieGroup


def check_last_axes(x: Tensor, *sizes: int) -> Tensor:
    """Returns `x` if its last axes have these sizes, and raises a ValueError otherwise."""
    if x.shape[max(x.dim() - len(sizes), 0) :] != sizes:
        raise ValueError(f"expected a tensor of shape (*batch, {', '.join(map(str, sizes))}), got {tuple(x.shape)}")
    return x


def check_rotation(g: Tensor, error: Float[Tensor, "*batch"]) -> None:
    """Raises a ValueError if a matrix is not a rotation; not under `torch.compile` and `torch.vmap`.

    Args:
        g: Matrices.
        error: Error of the equations that a rotation satisfies, for each matrix. NaN passes.
    """
    wrong = error > max(0.01, 8 * torch.finfo(error.dtype).eps)  # above rounded and accumulated errors
    if not any_true(wrong):
        return
    index = tuple(wrong.nonzero()[0].tolist())
    matrix = g[index].detach().double()
    identity_error = (matrix.mT @ matrix - torch.eye(len(matrix), device=g.device)).abs().max().item()
    where = f" at index {index}" if index else ""
    raise ValueError(
        f"expected rotation matrices (R.T @ R = 1, det R = 1), got determinant {torch.linalg.det(matrix).item():.3g} "
        f"and max |R.T @ R - 1| = {identity_error:.3g}{where}"
    )


def safe_norm(v: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
    """Returns the Euclidean norm along the last axis, with gradient 0 at 0.

    Examples:
        >>> safe_norm(torch.tensor([3.0, 4.0]))
        tensor(5.)
    """
    s = v.square().sum(-1)
    nonzero = s > 0
    return torch.where(nonzero, torch.where(nonzero, s, 1.0).sqrt(), s)


def stumpff(s: Float[Tensor, "*batch"], *, max_order: int) -> tuple[Float[Tensor, "*batch"], ...]:
    r"""Returns the Stumpff functions $c_0, \dots, c_n$ of $s \ge 0$.

    $$c_k(s) = \sum_{m \ge 0} \frac{(-s)^m}{(2m + k)!}, \qquad c_0(t^2) = \cos t, \quad c_1(t^2) = \frac{\sin t}{t},
    \quad c_2(t^2) = \frac{1 - \cos t}{t^2}, \quad c_3(t^2) = \frac{t - \sin t}{t^3}$$

    Numerics: the functions satisfy $c_k = 1/k! - s\,c_{k+2}$. For $s < 4$ the series of the last two is summed and
    the recurrence runs downwards; for $s \ge 4$ it runs upwards from cosine and sine. Both directions are stable:
    values and three derivatives are accurate to the last place of 1. There is no square root at 0.

    Args:
        s: Square of the angle $t$.
        max_order: Largest order $n$, at least 1.

    Examples:
        >>> stumpff(torch.zeros(()), max_order=3)
        (tensor(1.), tensor(1.), tensor(0.5000), tensor(0.1667))
    """
    if max_order < 1:
        raise ValueError(f"max_order must be at least 1, got {max_order}")
    if not s.is_floating_point():
        raise TypeError(f"expected a floating-point tensor, got {s.dtype}")
    small = s < 4
    near, far = torch.where(small, s, 0.0), torch.where(small, 4.0, s)
    sums = [_stumpff_series(near, max_order), _stumpff_series(near, max_order - 1)]
    for k in range(max_order - 2, -1, -1):
        sums.append(1 / factorial(k) - near * sums[-2])
    t = far.sqrt()
    closed = [t.cos(), t.sin() / t]
    for k in range(2, max_order + 1):
        closed.append((1 / factorial(k - 2) - closed[-2]) / far)
    return tuple(torch.where(small, a, b) for a, b in zip(reversed(sums), closed, strict=True))


def _stumpff_series(s: Tensor, k: int) -> Tensor:
    """Sums the series of $c_k$ for $s < 4$, with enough terms for an accurate third derivative."""
    terms = 14 if s.dtype == torch.float64 else 9
    coefficients = [1 / factorial(2 * m + k) for m in range(terms + 1)]
    return _alternating_series(s, coefficients)


def _alternating_series(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    r"""Returns $\sum_m a_m (-x)^m$ by Horner's method."""
    total, minus_x = torch.full_like(x, coefficients[-1]), -x
    for a in reversed(coefficients[:-1]):
        total = (total * minus_x).add(a)
    return total


def arctan_ratio(x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    r"""Returns $\arctan(\sqrt x) / \sqrt x = \sum_m (-x)^m / (2m + 1)$ for $0 \le x \le 0.04$.

    Examples:
        >>> arctan_ratio(torch.zeros(()))
        tensor(1.)
    """
    terms = 14 if x.dtype == torch.float64 else 8
    return _alternating_series(x, [1 / (2 * m + 1) for m in range(terms + 1)])


def rotation_left_jacobian(
    a: Float[Tensor, "*batch n n"], *, angle_squared: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch n n"]:
    r"""Returns $\int_0^1 e^{\tau A} d\tau = 1 + c_2(s) A + c_3(s) A^2$ for a generator with $A^3 = -s A$.

    For $A = [v]_\times$ this is the left Jacobian of SO(3), which also maps velocities to translations in SE(3).

    Args:
        a: Generator $A$.
        angle_squared: Square $s$ of the angle.

    Examples:
        >>> rotation_left_jacobian(torch.zeros(2, 2), angle_squared=torch.zeros(()))
        tensor([[1., 0.],
                [0., 1.]])
    """
    c2, c3 = (c[..., None, None] for c in stumpff(angle_squared, max_order=3)[2:])
    return _identity_like(a) + c2 * a + c3 * (a @ a)


def rotation_left_jacobian_inverse(
    a: Float[Tensor, "*batch n n"], *, angle_squared: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch n n"]:
    r"""Returns the inverse of `rotation_left_jacobian` in closed form.

    $$\Bigl( \int_0^1 e^{\tau A} d\tau \Bigr)^{-1} = 1 - \frac A2
    + \frac1s \Bigl( 1 - \frac\theta2 \cot\frac\theta2 \Bigr) A^2, \qquad \theta^2 = s$$

    Numerics: the last factor is computed as $(c_2 - c_3) / 4 c_1$ at $s / 4$, which is smooth at 0. The inverse does
    not exist at $\theta = 2\pi$.

    Args:
        a: Generator $A$.
        angle_squared: Square $s$ of the angle.

    Examples:
        >>> rotation_left_jacobian_inverse(torch.zeros(2, 2), angle_squared=torch.zeros(()))
        tensor([[1., 0.],
                [0., 1.]])
    """
    _, c1, c2, c3 = stumpff(angle_squared / 4, max_order=3)
    return _identity_like(a) - a / 2 + ((c2 - c3) / (4 * c1))[..., None, None] * (a @ a)


def _identity_like(a: Tensor) -> Tensor:
    return torch.eye(check_last_axes(a, a.shape[-1], a.shape[-1]).shape[-1], dtype=a.dtype, device=a.device)


def shorten(v: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    r"""Scales vectors to a norm below 3, so that rotation vectors stay below $\pi$. Claims draw their inputs with it.

    Examples:
        >>> shorten(torch.tensor([0.0, 0.75, 1.0]))
        tensor([0.0000, 1.4056, 1.8741])
    """
    return 3 * v / (1 + v.square().sum(-1, keepdim=True)).sqrt()


def group_claims(group: Group, element: Any, vector: Any) -> Iterator[Claim]:
    """Yields the group axioms, the laws of the action, and the laws of a left-invariant metric.

    Args:
        group: The group.
        element: Inputs that are elements, such as `transformed(group.exp, "b 3")`.
        vector: Inputs that the group acts on, such as `shape("b 3")`.
    """
    name = type(group).__name__

    def identity(g: Tensor) -> Tensor:
        return torch.broadcast_to(group.identity(dtype=g.dtype, device=g.device), g.shape)

    for law in (
        associativity(),
        identity_element(identity=identity),
        inverse_element(inverse=group.inverse, identity=identity),
    ):
        yield Claim(law, group.compose, (element, element), name=f"{name}.compose")
    yield Claim(action(compose=group.compose), group.act, (element, vector), name=f"{name}.act")
    left_invariant_metric = all_of(
        separation(),
        commutativity(),
        triangle_inequality(),
        left_invariance(compose=group.compose),
        name="left_invariant_metric",
        doc="The map is a metric that composition from the left preserves.",
    )
    yield Claim(left_invariant_metric(), group.distance, (element, element), name=f"{name}.distance")


def exp_claims(group: LieGroup, v: Any) -> Iterator[Claim]:
    """Yields the claim that `log` inverts `exp`.

    Args:
        group: The group.
        v: Inputs that are coordinates of the algebra, short enough for `log` to return them.
    """
    yield Claim(invertibility(inverse=group.log), group.exp, v, name=f"{type(group).__name__}.exp")
