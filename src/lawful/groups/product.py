"""Direct products of groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from lawful.groups._helpers import check_last_axes
from lawful.groups.finite import SymmetricGroup
from lawful.groups.group import Group, LieGroup
from lawful.groups.orthogonal import Orthogonal
from lawful.laws import (
    Claim,
    action,
    associativity,
    identity_element,
    inverse_element,
    left_invariance,
    separation,
    shape,
    transformed,
    triangle_inequality,
)


class DirectProduct(LieGroup):
    r"""Direct product of groups.

    $$(g_1, g_2)(h_1, h_2) = (g_1 h_1, g_2 h_2), \qquad (g_1, g_2) \cdot (x_1, x_2) = (g_1 \cdot x_1, g_2 \cdot x_2)$$

    An element is a tuple with an element of each factor. It acts on a tuple of vectors, one per factor. Coordinates of
    the algebra are the concatenated coordinates of the Lie group factors. A finite factor has none: `exp` returns its
    identity, and `log` raises a ValueError for its other elements. Without a Lie group factor, `log`, `adjoint` and the
    Jacobians raise a ValueError.

    Args:
        factors: Groups.

    Examples:
        >>> from lawful.groups.finite import Cyclic
        >>> from lawful.groups.euclidean import Scaling
        >>> group = DirectProduct(Scaling(), Cyclic(2))
        >>> g = torch.tensor(2.0), torch.tensor(1)
        >>> group.act(g, (torch.tensor([1.0]), torch.tensor([10, 20])))
        (tensor([2.]), tensor([20, 10]))
    """

    def __init__(self, *factors: Group) -> None:
        if not factors:
            raise ValueError("DirectProduct needs at least one factor, got none")
        self.factors = factors

    def __repr__(self) -> str:
        return f"DirectProduct({', '.join(map(repr, self.factors))})"

    @property
    def dim(self) -> int:
        """Sum of the dimensions of the Lie group factors."""
        return sum(self._dims())

    def _dims(self) -> list[int]:
        return [f.dim if isinstance(f, LieGroup) else 0 for f in self.factors]

    def _zip_factors(self, *tuples: Any) -> Iterator[tuple[Any, ...]]:
        """Yields each factor with its entries of the tuples."""
        for entries in tuples:
            if len(entries) != len(self.factors):
                raise ValueError(f"expected a tuple of {len(self.factors)}, one entry per factor, got {len(entries)}")
        return zip(self.factors, *tuples, strict=True)

    def _dtypes(self, dtype: torch.dtype | None) -> list[torch.dtype | None]:
        return [dtype if isinstance(f, LieGroup) else None for f in self.factors]

    def identity(self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Any:
        """Returns the tuple of identities. `dtype` is the dtype of the Lie group factors."""
        return tuple(
            f.identity(*batch, dtype=factor_dtype, device=device)
            for f, factor_dtype in self._zip_factors(self._dtypes(dtype))
        )

    def compose(self, g: Any, h: Any) -> Any:
        """Returns the tuple of compositions."""
        return tuple(f.compose(a, b) for f, a, b in self._zip_factors(g, h))

    def inverse(self, g: Any) -> Any:
        """Returns the tuple of inverses."""
        return tuple(f.inverse(a) for f, a in self._zip_factors(g))

    def act(self, g: Any, x: Any) -> Any:
        """Applies each entry of $g$ to the same entry of $x$."""
        return tuple(f.act(a, y) for f, a, y in self._zip_factors(g, x))

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Any:
        """Samples each factor independently. `dtype` is the dtype of the Lie group factors."""
        dtypes = self._dtypes(dtype)
        return tuple(
            f.sample(*batch, generator=generator, dtype=factor_dtype, device=device)
            for f, factor_dtype in self._zip_factors(dtypes)
        )

    def distance(self, g: Any, h: Any) -> Tensor:
        """Returns the sum of the distances of the factors."""
        return sum((f.distance(a, b) for f, a, b in self._zip_factors(g, h)), torch.zeros(()))

    def hat(self, v: Float[Tensor, "*batch n"]) -> Any:
        """Returns a tuple of matrices, one per factor, of size 0 for a finite one."""
        coordinates = self._zip_factors(check_last_axes(v, self.dim).split(self._dims(), -1))
        return tuple(f.hat(p) if isinstance(f, LieGroup) else p[..., None] for f, p in coordinates)

    def vee(self, a: Any) -> Float[Tensor, "*batch n"]:
        """Returns the coordinates of a tuple of matrices."""
        return torch.cat([f.vee(b) if isinstance(f, LieGroup) else b[..., 0] for f, b in self._zip_factors(a)], -1)

    def exp(self, v: Float[Tensor, "*batch n"]) -> Any:
        """Returns the tuple of exponentials, the identity for a finite factor."""
        coordinates, batch = self._zip_factors(check_last_axes(v, self.dim).split(self._dims(), -1)), v.shape[:-1]
        return tuple(
            f.exp(p) if isinstance(f, LieGroup) else f.identity(*batch, device=v.device) for f, p in coordinates
        )

    def log(self, g: Any) -> Float[Tensor, "*batch n"]:
        """Returns the concatenated logarithms. Raises a ValueError unless finite factors are at their identity."""
        for f, a in self._zip_factors(g):
            if not isinstance(f, LieGroup) and not bool((a == f.identity(dtype=a.dtype, device=a.device)).all()):
                raise ValueError(f"log needs the identity of the finite factor {f}, got another element")
        self._check_lie_factors()
        return torch.cat([f.log(a) for f, a in self._zip_factors(g) if isinstance(f, LieGroup)], -1)

    def adjoint(self, g: Any) -> Float[Tensor, "*batch n n"]:
        """Returns the block-diagonal matrix of the Lie group factors."""
        self._check_lie_factors()
        return _block_diagonal([f.adjoint(a) for f, a in self._zip_factors(g) if isinstance(f, LieGroup)])

    def left_jacobian(self, v: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n n"]:
        """Returns the block-diagonal matrix of the Lie group factors."""
        return _block_diagonal([f.left_jacobian(p) for f, p in self._lie_factors(v)])

    def left_jacobian_inverse(self, v: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n n"]:
        """Returns the block-diagonal matrix of the Lie group factors."""
        return _block_diagonal([f.left_jacobian_inverse(p) for f, p in self._lie_factors(v)])

    def _lie_factors(self, v: Tensor) -> list[tuple[LieGroup, Tensor]]:
        """Returns each Lie group factor with its coordinates."""
        self._check_lie_factors()
        coordinates = self._zip_factors(check_last_axes(v, self.dim).split(self._dims(), -1))
        return [(f, p) for f, p in coordinates if isinstance(f, LieGroup)]

    def _check_lie_factors(self) -> None:
        if not any(isinstance(f, LieGroup) for f in self.factors):
            raise ValueError(f"expected a Lie group among the factors, got {', '.join(map(str, self.factors))}")


def _block_diagonal(blocks: list[Tensor]) -> Tensor:
    """Batched `torch.block_diag`, with broadcasting of the batch axes."""
    sizes = [b.shape[-1] for b in blocks]
    batch = torch.broadcast_shapes(*(b.shape[:-2] for b in blocks))
    blocks = [b.expand(*batch, *b.shape[-2:]) for b in blocks]
    return torch.cat(
        [torch.nn.functional.pad(block, (sum(sizes[:i]), sum(sizes[i + 1 :]))) for i, block in enumerate(blocks)],
        -2,
    )


def claims() -> Iterator[Claim]:
    """Laws of O(2) x S(3), with elements flattened to seven numbers."""
    group = DirectProduct(Orthogonal(2), SymmetricGroup(3))

    def flatten(g: Any) -> Tensor:
        return torch.cat([g[0].flatten(-2), g[1].to(g[0])], -1)

    def unflatten(row: Tensor) -> Any:
        return row[..., :4].unflatten(-1, (2, 2)), row[..., 4:].round().long()

    def to_element(x: Tensor) -> Tensor:
        return flatten((torch.linalg.qr(x[..., :4].unflatten(-1, (2, 2)))[0], x[..., 4:].argsort(-1)))

    def compose(g: Tensor, h: Tensor) -> Tensor:
        return flatten(group.compose(unflatten(g), unflatten(h)))

    def inverse(g: Tensor) -> Tensor:
        return flatten(group.inverse(unflatten(g)))

    def identity(g: Tensor) -> Tensor:
        return flatten(group.identity(*g.shape[:-1], dtype=g.dtype, device=g.device))

    def distance(g: Tensor, h: Tensor) -> Tensor:
        return group.distance(unflatten(g), unflatten(h))

    def act(g: Tensor, x: Tensor) -> Tensor:
        return torch.cat(group.act(unflatten(g), x.split([2, 3], -1)), -1)

    element = transformed(to_element, "b 7")
    for law in (
        associativity(),
        identity_element(identity=identity),
        inverse_element(inverse=inverse, identity=identity),
    ):
        yield Claim(law, compose, (element, element), name="DirectProduct.compose")
    yield Claim(action(compose=compose), act, (element, shape("b 5")), name="DirectProduct.act")
    for law in (separation(), triangle_inequality(), left_invariance(compose=compose)):
        yield Claim(law, distance, (element, element), name="DirectProduct.distance")
