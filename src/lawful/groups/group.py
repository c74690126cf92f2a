"""What a group is: the one interface that all of them have, over plain tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Generator, Tensor

from lawful.groups import matrices
from lawful.laws import (
    Claim,
    action,
    agreement,
    associativity,
    identity_element,
    inverse_element,
    invertibility,
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
        return matrices.exp_mean(matrices.bracket(v, hat=group.hat, vee=group.vee))

    def round_trip(v: Tensor) -> Tensor:
        """From and to the inverse of the Jacobian, and from and to the algebra."""
        there = group.left_jacobian(v) @ group.vee(group.hat(v))[..., None]
        return (group.left_jacobian_inverse(v) @ there)[..., 0]

    yield Claim(agreement(other=exponential), group.exp, near, name=f"{said}.exp")
    yield Claim(invertibility(inverse=group.log), group.exp, near, name=f"{said}.exp")
    yield Claim(agreement(other=conjugation), lambda v: group.adjoint(group.exp(v)), near, name=f"{said}.adjoint")
    yield Claim(agreement(other=mean), group.left_jacobian, near, name=f"{said}.left_jacobian")
    yield Claim(agreement(other=lambda v: v), round_trip, near, name=f"{said}.left_jacobian_inverse")
