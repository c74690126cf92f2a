"""What a group is: the one interface that all of them have, over plain tensors.

What all groups of matrices share: the adjoint and the derivative of exp, from `hat` and `vee` alone.
What a distance on a group promises, and an action that keeps distances: laws that the groups share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from lawful.laws import (
    Claim,
    Draw,
    Equal,
    Statement,
    action,
    agreement,
    all_of,
    associativity,
    commutativity,
    gradient,
    identity_element,
    inverse_element,
    invertibility,
    law,
    shape,
    triangle_inequality,
)


class Group(ABC):
    """Composes, inverts and acts. Elements are plain tensors: a batch in front, one element behind.

    A group has no state but its size: `SO3()`, `Orthogonal(5)`, `Cyclic(4)`.
    """

    @abstractmethod
    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """Returns the element that changes nothing, a batch of copies of it if sizes are given."""

    @abstractmethod
    def compose(self, g: Tensor, h: Tensor) -> Tensor:
        """Returns $gh$: first $h$, then $g$."""

    @abstractmethod
    def inverse(self, g: Tensor) -> Tensor:
        """Returns $g^{-1}$."""

    @abstractmethod
    def act(self, g: Tensor, x: Tensor) -> Tensor:
        """Applies $g$ to the vectors, or whatever the group acts on, in the last axis of $x$."""

    @abstractmethod
    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Draws elements: uniformly (Haar) where the group is compact."""

    @abstractmethod
    def distance(self, g: Tensor, h: Tensor) -> Tensor:
        """Returns how far two elements are apart: a metric that composing from the left does not change."""


class LieGroup(Group):
    """A group that is smooth, with its tangent space at the identity: the algebra, of `dim` coordinates."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """How many coordinates the algebra has."""

    @abstractmethod
    def hat(self, v: Tensor) -> Tensor:
        """Writes coordinates $v$ of the algebra as a matrix."""

    @abstractmethod
    def vee(self, a: Tensor) -> Tensor:
        """Reads the coordinates off a matrix of the algebra: the inverse of `hat`."""

    @abstractmethod
    def exp(self, v: Tensor) -> Tensor:
        """Follows the direction $v$ from the identity for a time of 1."""

    @abstractmethod
    def log(self, g: Tensor) -> Tensor:
        """Returns the shortest direction that leads to $g$: the inverse of `exp`."""

    @abstractmethod
    def adjoint(self, g: Tensor) -> Tensor:
        r"""Returns the matrix of $v \mapsto (g \hat v g^{-1})^\vee$."""

    @abstractmethod
    def left_jacobian(self, v: Tensor) -> Tensor:
        r"""Returns $J$ with $\exp(v + \delta) \approx \exp(J \delta) \exp(v)$."""

    def right_jacobian(self, v: Tensor) -> Tensor:
        r"""Returns $J$ with $\exp(v + \delta) \approx \exp(v) \exp(J \delta)$."""
        return self.left_jacobian(-v)

    def left_jacobian_inverse(self, v: Tensor) -> Tensor:
        r"""Returns $J^{-1}$ with $\log(\exp(\delta) \exp(v)) \approx v + J^{-1} \delta$."""
        return torch.linalg.inv(self.left_jacobian(v))

    def right_jacobian_inverse(self, v: Tensor) -> Tensor:
        r"""Returns $J^{-1}$ with $\log(\exp(v) \exp(\delta)) \approx v + J^{-1} \delta$."""
        return self.left_jacobian_inverse(-v)


def sized(x: Tensor, *sizes: int) -> Tensor:
    """Returns the tensor if its last axes have these sizes, or says that they have not."""
    if x.shape[max(x.dim() - len(sizes), 0) :] != sizes:
        wanted = "the last axis is" if len(sizes) == 1 else "the last axes are"
        raise ValueError(f"{wanted} to have size {' x '.join(map(str, sizes))}: got shape {tuple(x.shape)}")
    return x


def axioms(group: Group, element: Any, vector: Any, *, name: str = "") -> Iterator[Claim]:
    """The laws that make a group a group, and its action an action.

    Args:
        element: Describes an element, e.g. `made(group.exp, "b 3")`.
        vector: Describes what the group acts on, e.g. `shape("b 3")`.
    """
    said = name or type(group).__name__

    def identity(g: Tensor) -> Tensor:
        return torch.broadcast_to(group.identity(dtype=g.dtype, device=g.device), g.shape)

    for law in (
        associativity(),
        identity_element(identity=identity),
        inverse_element(inverse=group.inverse, identity=identity),
    ):
        yield Claim(law, group.compose, (element, element), name=f"{said}.compose")
    yield Claim(action(compose=group.compose), group.act, (element, vector), name=f"{said}.act")


def smooth_axioms(group: LieGroup, near: Any) -> Iterator[Claim]:
    """The laws that tie a group of matrices to its algebra: exp, log, the adjoint, and the derivative of exp.

    Args:
        near: Describes coordinates of the algebra, so short that `log` gives them back.
    """
    said = type(group).__name__

    def exponential(v: Tensor) -> Tensor:
        return torch.linalg.matrix_exp(group.hat(v))

    def conjugation(v: Tensor) -> Tensor:
        basis = group.hat(torch.eye(group.dim, dtype=v.dtype, device=v.device))
        g, back = (exponential(w)[..., None, :, :] for w in (v, -v))
        return group.vee(g @ basis @ back).mT

    def mean(v: Tensor) -> Tensor:
        return exp_mean(bracket(v, hat=group.hat, vee=group.vee))

    def round_trip(v: Tensor) -> Tensor:
        """From and to the inverse of the Jacobian, and from and to the algebra."""
        there = group.left_jacobian(v) @ group.vee(group.hat(v))[..., None]
        return (group.left_jacobian_inverse(v) @ there)[..., 0]

    yield Claim(agreement(other=exponential), group.exp, near, name=f"{said}.exp")
    yield Claim(invertibility(inverse=group.log), group.exp, near, name=f"{said}.exp")
    yield Claim(agreement(other=conjugation), lambda v: group.adjoint(group.exp(v)), near, name=f"{said}.adjoint")
    yield Claim(agreement(other=mean), group.left_jacobian, near, name=f"{said}.left_jacobian")
    yield Claim(agreement(other=lambda v: v), round_trip, near, name=f"{said}.left_jacobian_inverse")


Linear = Callable[[Tensor], Tensor]


def adjoint(
    g: Float[Tensor, "*batch d d"], *, inverse: Float[Tensor, "*batch d d"], hat: Linear, vee: Linear, dim: int
) -> Float[Tensor, "*batch n n"]:
    r"""Writes $v \mapsto (g \hat v g^{-1})^\vee$ as a matrix, a column for each coordinate.

    Args:
        g: The element $g$.
        inverse: $g^{-1}$.
        hat: From coordinates to the algebra.
        vee: From the algebra to coordinates.
        dim: How many coordinates there are.
    """
    basis = hat(torch.eye(dim, dtype=g.dtype, device=g.device))
    return vee(g[..., None, :, :] @ basis @ inverse[..., None, :, :]).mT


def bracket(v: Float[Tensor, "*batch n"], *, hat: Linear, vee: Linear) -> Float[Tensor, "*batch n n"]:
    r"""Writes $w \mapsto [\hat v, \hat w]^\vee$ as a matrix: the adjoint of the algebra on itself.

    Args:
        v: The coordinates $v$.
        hat: From coordinates to the algebra.
        vee: From the algebra to coordinates.
    """
    basis, a = hat(torch.eye(v.shape[-1], dtype=v.dtype, device=v.device)), hat(v)[..., None, :, :]
    return vee(a @ basis - basis @ a).mT


def exp_mean(a: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    r"""Averages the exponential along the way from 0 to a matrix.

    $$\int_0^1 e^{s A} \, ds = \sum_{k \ge 0} \frac{A^k}{(k + 1)!}$$

    It is $A^{-1} (e^A - 1)$, without the division: the corner of the exponential of a matrix twice the size. Of the
    bracket it is the left Jacobian of a group; of a rotation's generator, what turns velocities into translations.

    Args:
        a: The matrix $A$.

    Examples:
        >>> exp_mean(torch.zeros(2, 2))
        tensor([[1., 0.],
                [0., 1.]])
    """
    n = a.shape[-1]
    one, zero = torch.eye(n, dtype=a.dtype, device=a.device).expand_as(a), torch.zeros_like(a)
    doubled = torch.cat([torch.cat([a, one], -1), torch.cat([zero, zero], -1)], -2)
    return torch.linalg.matrix_exp(doubled)[..., :n, n:]


def claims() -> Iterator[Claim]:
    """The laws that the adjoint, the bracket and the average of the exponential obey."""

    def times(a: Tensor) -> Tensor:
        return a @ exp_mean(a) + torch.eye(3, dtype=a.dtype, device=a.device)

    def small(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda a: function(torch.tanh(a))

    yield Claim(agreement(other=small(torch.linalg.matrix_exp)), small(times), shape("b 3 3"), name="A exp_mean(A) + 1")
    yield Claim(gradient(), small(exp_mean), shape("b 3 3"), name="exp_mean")

    def turn(v: Tensor) -> Tensor:
        return torch.linalg.matrix_exp(_cross(v.tanh()))

    def of_turn(v: Tensor) -> Tensor:
        return adjoint(turn(v), inverse=turn(-v), hat=_cross, vee=_uncross, dim=3)

    yield Claim(agreement(other=turn), of_turn, shape("b 3"), name="adjoint, of a rotation")
    brackets = agreement(other=_cross)
    yield Claim(brackets, lambda v: bracket(v, hat=_cross, vee=_uncross), shape("b 3"), name="bracket, of so(3)")


def _cross(v: Tensor) -> Tensor:
    """The matrix of the cross product with a vector: its columns are those with the unit vectors."""
    return torch.linalg.cross(v[..., None, :], torch.eye(3).to(v).expand(*v.shape, 3)).mT


def _uncross(a: Tensor) -> Tensor:
    return torch.stack([a[..., 2, 1], a[..., 0, 2], a[..., 1, 0]], -1)


@law("d(g, g) = 0, and d(g, h) > 0 for g ≠ h")
def separation(f: Callable[..., Tensor], g: Tensor, h: Tensor) -> Statement:
    """The distance is zero between equal elements, and only between them.

    Elements that are closer than 1e-3 are outside the domain.

    Satisfied by: the chord between rotations; the angle; the number of transpositions.
    Broken by: a distance that does not see reflections.
    """
    same, apart = f(g, g), f(g, h)
    gap = (g - h).abs() > 1e-3
    far = gap.flatten(apart.dim()).any(-1) if gap.dim() > apart.dim() else gap
    return Equal((same, (apart > 0) | ~far), (torch.zeros_like(same), torch.ones_like(far)), exercised=True)


@law("d(gh, gk) = d(h, k)", discover_with=None)
def left_invariance(
    f: Callable[..., Tensor], h: Tensor, k: Tensor, *, compose: Callable[[Tensor, Tensor], Tensor], draw: Draw
) -> Statement:
    """Composing both elements with a third from the left leaves them as far apart.

    Satisfied by: the angle between rotations; a word length of $h^{-1} k$.
    Broken by: the difference of Euler angles; a word length of $h k^{-1}$, which is kept from the right.
    """
    g = draw.like(h)
    return Equal(f(compose(g, h), compose(g, k)), f(h, k))


@law("‖g·x - g·y‖ = ‖x - y‖", discover_with=None)
def rigidity(f: Callable[..., Tensor], g: Tensor, x: Tensor, *, draw: Draw) -> Statement:
    """Every element moves vectors such that they are as far apart as they were.

    Satisfied by: rotations, reflections, translations, permutations.
    Broken by: a scaling; a shear.
    """
    y = draw.like(x)
    moved, plain = f(g, x) - f(g, y), x - y
    return Equal(torch.linalg.vector_norm(moved, dim=-1), torch.linalg.vector_norm(plain, dim=-1), exercised=True)


def distances(group: Group, element: Any, *, name: str = "") -> Iterator[Claim]:
    """The laws of the distance on a group: a metric that composing from the left does not change.

    Args:
        element: Describes an element, as for `axioms`.
    """
    invariant_metric = all_of(
        separation(),
        commutativity(),
        triangle_inequality(),
        left_invariance(compose=group.compose),
        name="left_invariant_metric",
        doc="The map is a distance between elements that composing from the left does not change.",
    )
    said = name or type(group).__name__
    yield Claim(invariant_metric(), group.distance, (element, element), name=f"{said}.distance")
