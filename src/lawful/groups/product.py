"""Direct products of groups: several at once, none of which knows the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from lawful.groups.euclidean import Translation
from lawful.groups.finite import SymmetricGroup
from lawful.groups.group import Group, LieGroup, left_invariance, separation, sized
from lawful.groups.orthogonal import Orthogonal
from lawful.laws import (
    Claim,
    action,
    agreement,
    associativity,
    identity_element,
    inverse_element,
    shape,
    transformed,
    triangle_inequality,
)


class DirectProduct(LieGroup):
    r"""Composes several groups side by side.

    $$(g_1, g_2)(h_1, h_2) = (g_1 h_1, g_2 h_2), \qquad (g_1, g_2) \cdot (x_1, x_2) = (g_1 \cdot x_1, g_2 \cdot x_2)$$

    An element is a tuple, one of each factor, and acts on a tuple of vectors, each factor on its own. The coordinates
    of the algebra are those of the factors, one after another. A factor that is not smooth, such as a permutation, has
    none: `exp` leaves it at the identity, and `log` refuses it elsewhere. Where no factor is smooth, there is no
    algebra, and `log`, `adjoint` and the Jacobians are refused.

    Args:
        factors: The groups.

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
            raise ValueError("a product has at least one factor: got none")
        self.factors = factors

    @property
    def dim(self) -> int:
        """The sum of those of the smooth factors."""
        return sum(self._dims())

    def _dims(self) -> list[int]:
        return [f.dim if isinstance(f, LieGroup) else 0 for f in self.factors]

    def _parts(self, *tuples: Any) -> Iterator[tuple[Any, ...]]:
        """Each factor with its parts of the tuples."""
        for parts in tuples:
            if len(parts) != len(self.factors):
                raise ValueError(f"as many parts as factors were wanted: got {len(parts)} for {len(self.factors)}")
        return zip(self.factors, *tuples, strict=True)

    def _kinds(self, dtype: torch.dtype | None) -> list[torch.dtype | None]:
        return [dtype if isinstance(f, LieGroup) else None for f in self.factors]

    def identity(self, *batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Any:
        """Returns the tuple of identities; the type is that of the smooth factors."""
        return tuple(f.identity(*batch, dtype=kind, device=device) for f, kind in self._parts(self._kinds(dtype)))

    def compose(self, g: Any, h: Any) -> Any:
        """Returns the tuple of compositions."""
        return tuple(f.compose(a, b) for f, a, b in self._parts(g, h))

    def inverse(self, g: Any) -> Any:
        """Returns the tuple of inverses."""
        return tuple(f.inverse(a) for f, a in self._parts(g))

    def act(self, g: Any, x: Any) -> Any:
        """Applies each part of $g$ to its part of $x$."""
        return tuple(f.act(a, y) for f, a, y in self._parts(g, x))

    def sample(
        self,
        *batch: int,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Any:
        """Draws each part on its own; the type is that of the smooth factors."""
        kinds = self._kinds(dtype)
        return tuple(f.sample(*batch, generator=generator, dtype=kind, device=device) for f, kind in self._parts(kinds))

    def distance(self, g: Any, h: Any) -> Tensor:
        """Returns the sum of the distances of the parts."""
        return sum((f.distance(a, b) for f, a, b in self._parts(g, h)), torch.zeros(()))

    def hat(self, v: Float[Tensor, "*batch n"]) -> Any:
        """Writes coordinates as a tuple of matrices, one for each factor; of one that is not smooth, of size 0."""
        parts = self._parts(sized(v, self.dim).split(self._dims(), -1))
        return tuple(f.hat(p) if isinstance(f, LieGroup) else p[..., None] for f, p in parts)

    def vee(self, a: Any) -> Float[Tensor, "*batch n"]:
        """Reads the coordinates off such a tuple."""
        return torch.cat([f.vee(b) if isinstance(f, LieGroup) else b[..., 0] for f, b in self._parts(a)], -1)

    def exp(self, v: Float[Tensor, "*batch n"]) -> Any:
        """Follows the direction of each part; a factor that is not smooth stays at the identity."""
        parts, batch = self._parts(sized(v, self.dim).split(self._dims(), -1)), v.shape[:-1]
        return tuple(f.exp(p) if isinstance(f, LieGroup) else f.identity(*batch, device=v.device) for f, p in parts)

    def log(self, g: Any) -> Float[Tensor, "*batch n"]:
        """Returns the direction of each part; parts that no direction leads to are refused."""
        for f, a in self._parts(g):
            if not isinstance(f, LieGroup) and not bool((a == f.identity(dtype=a.dtype, device=a.device)).all()):
                raise ValueError(f"no direction leads from the identity of {type(f).__name__} to another element")
        self._check_smooth()
        return torch.cat([f.log(a) for f, a in self._parts(g) if isinstance(f, LieGroup)], -1)

    def adjoint(self, g: Any) -> Float[Tensor, "*batch n n"]:
        """Returns those of the smooth factors, along the diagonal."""
        self._check_smooth()
        return _diagonal([f.adjoint(a) for f, a in self._parts(g) if isinstance(f, LieGroup)])

    def left_jacobian(self, v: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n n"]:
        """Returns those of the smooth factors, along the diagonal."""
        return _diagonal([f.left_jacobian(p) for f, p in self._smooth_parts(v)])

    def left_jacobian_inverse(self, v: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n n"]:
        """Returns those of the smooth factors, along the diagonal."""
        return _diagonal([f.left_jacobian_inverse(p) for f, p in self._smooth_parts(v)])

    def _smooth_parts(self, v: Tensor) -> list[tuple[LieGroup, Tensor]]:
        """Each smooth factor with its coordinates."""
        self._check_smooth()
        parts = self._parts(sized(v, self.dim).split(self._dims(), -1))
        return [(f, p) for f, p in parts if isinstance(f, LieGroup)]

    def _check_smooth(self) -> None:
        if not any(isinstance(f, LieGroup) for f in self.factors):
            raise ValueError(f"a smooth factor was wanted: got {', '.join(type(f).__name__ for f in self.factors)}")


def _diagonal(blocks: list[Tensor]) -> Tensor:
    """Puts matrices along the diagonal of a large one, batch by batch."""
    sizes = [b.shape[-1] for b in blocks]
    batch = torch.broadcast_shapes(*(b.shape[:-2] for b in blocks))
    blocks = [b.expand(*batch, *b.shape[-2:]) for b in blocks]
    return torch.cat(
        [torch.nn.functional.pad(block, (sum(sizes[:i]), sum(sizes[i + 1 :]))) for i, block in enumerate(blocks)],
        -2,
    )


def claims() -> Iterator[Claim]:
    """The laws that a product obeys: of a rotation of the plane and a permutation, seven numbers in a row."""
    group = DirectProduct(Orthogonal(2), SymmetricGroup(3))

    def read(row: Tensor) -> Any:
        return row[..., :4].unflatten(-1, (2, 2)), row[..., 4:].round().long()

    def row(g: Any) -> Tensor:
        return torch.cat([g[0].flatten(-2), g[1].to(g[0])], -1)

    def drawn(x: Tensor) -> Tensor:
        return row((torch.linalg.qr(x[..., :4].unflatten(-1, (2, 2)))[0], x[..., 4:].argsort(-1)))

    def compose(g: Tensor, h: Tensor) -> Tensor:
        return row(group.compose(read(g), read(h)))

    def inverse(g: Tensor) -> Tensor:
        return row(group.inverse(read(g)))

    def identity(g: Tensor) -> Tensor:
        return row(group.identity(*g.shape[:-1], dtype=g.dtype, device=g.device))

    def distance(g: Tensor, h: Tensor) -> Tensor:
        return group.distance(read(g), read(h))

    def act(g: Tensor, x: Tensor) -> Tensor:
        return torch.cat(group.act(read(g), x.split([2, 3], -1)), -1)

    element = transformed(drawn, "b 7")
    for law in (
        associativity(),
        identity_element(identity=identity),
        inverse_element(inverse=inverse, identity=identity),
    ):
        yield Claim(law, compose, (element, element), name="DirectProduct.compose")
    yield Claim(action(compose=compose), act, (element, shape("b 5")), name="DirectProduct.act")
    for law in (separation(), triangle_inequality(), left_invariance(compose=compose)):
        yield Claim(law, distance, (element, element), name="DirectProduct.distance")

    smooth = DirectProduct(Orthogonal(3), Translation(2))

    def there_and_back(v: Tensor) -> Tensor:
        return smooth.log(smooth.exp(smooth.vee(smooth.hat(v.tanh()))))

    yield Claim(agreement(other=torch.tanh), there_and_back, shape("b 5"), name="DirectProduct.log of exp")
