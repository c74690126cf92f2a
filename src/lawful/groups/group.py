"""The interface of all groups, and matrix functions that matrix Lie groups share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from lawful.laws import Claim, gradient, shape


class Group(ABC):
    """A group whose elements are plain tensors, with batch axes first.

    Groups have no state apart from their size: `SO3()`, `Orthogonal(5)`, `Cyclic(4)`.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(str(size) for size in vars(self).values() if isinstance(size, int))})"

    @abstractmethod
    def identity(
        self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """Returns the identity element, repeated to the batch shape."""

    @abstractmethod
    def compose(self, g: Tensor, h: Tensor) -> Tensor:
        """Returns $gh$: $h$ acts first, then $g$."""

    @abstractmethod
    def inverse(self, g: Tensor) -> Tensor:
        """Returns $g^{-1}$."""

    @abstractmethod
    def act(self, g: Tensor, x: Tensor) -> Tensor:
        """Applies $g$ to the vectors in the last axis of $x$."""

    @abstractmethod
    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Samples elements, uniformly (Haar measure) if the group is compact."""

    @abstractmethod
    def distance(self, g: Tensor, h: Tensor) -> Tensor:
        """Returns a left-invariant metric between elements."""


class LieGroup(Group):
    """A Lie group with an algebra of dimension `dim`, in coordinates $v$."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Dimension of the algebra."""

    @abstractmethod
    def hat(self, v: Tensor) -> Tensor:
        """Maps coordinates $v$ to a matrix of the algebra."""

    @abstractmethod
    def vee(self, a: Tensor) -> Tensor:
        """Maps a matrix of the algebra to its coordinates. Inverse of `hat`."""

    @abstractmethod
    def exp(self, v: Tensor) -> Tensor:
        r"""Exponential map, $e^{\hat v}$."""

    @abstractmethod
    def log(self, g: Tensor) -> Tensor:
        r"""Logarithm: the shortest $v$ with $\exp(v) = g$."""

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


_LinearMap = Callable[[Tensor], Tensor]


def adjoint_matrix(
    g: Float[Tensor, "*batch d d"],
    *,
    inverse: Float[Tensor, "*batch d d"],
    hat: _LinearMap,
    vee: _LinearMap,
    dim: int,
) -> Float[Tensor, "*batch n n"]:
    r"""Returns the matrix of $v \mapsto (g \hat v g^{-1})^\vee$ of a matrix group.

    Args:
        g: Element $g$.
        inverse: $g^{-1}$.
        hat: Maps coordinates to the algebra.
        vee: Maps the algebra to coordinates.
        dim: Dimension of the algebra.
    """
    basis = hat(torch.eye(dim, dtype=g.dtype, device=g.device))
    return vee(g[..., None, :, :] @ basis @ inverse[..., None, :, :]).mT


def bracket_matrix(v: Float[Tensor, "*batch n"], *, hat: _LinearMap, vee: _LinearMap) -> Float[Tensor, "*batch n n"]:
    r"""Returns the matrix of the Lie bracket $w \mapsto [\hat v, \hat w]^\vee$.

    Args:
        v: Coordinates $v$.
        hat: Maps coordinates to the algebra.
        vee: Maps the algebra to coordinates.
    """
    basis, a = hat(torch.eye(v.shape[-1], dtype=v.dtype, device=v.device)), hat(v)[..., None, :, :]
    return vee(a @ basis - basis @ a).mT


def phi1(a: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    r"""The function $\varphi_1$ of exponential integrators: the integral of the exponential from 0 to $A$.

    $$\varphi_1(A) = \int_0^1 e^{s A} \, ds = \sum_{k \ge 0} \frac{A^k}{(k + 1)!} = A^{-1} (e^A - 1)$$

    Applied to `bracket_matrix(v)` it is the left Jacobian of a matrix group.

    Numerics: it is read from a corner of the exponential of a matrix of twice the size, so that $A$ may be singular.

    Args:
        a: Matrix $A$.

    Examples:
        >>> phi1(torch.zeros(2, 2))
        tensor([[1., 0.],
                [0., 1.]])
    """
    n = a.shape[-1]
    one, zero = torch.eye(n, dtype=a.dtype, device=a.device).expand_as(a), torch.zeros_like(a)
    augmented = torch.cat([torch.cat([a, one], -1), torch.cat([zero, zero], -1)], -2)
    return torch.linalg.matrix_exp(augmented)[..., :n, n:]


def claims() -> Iterator[Claim]:
    """Laws of `phi1`."""
    yield Claim(gradient(), lambda a: phi1(a.tanh()), shape("b 3 3"), name="phi1")
