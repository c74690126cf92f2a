"""Bilinear forms: similarities of two vectors, any, symmetric or positive semidefinite ones."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.laws import Claim, agreement, cauchy_schwarz, linearity, non_negativity, shape, symmetry

Pair = tuple[Float[Tensor, "*batch h t k"], Float[Tensor, "*batch h s k"]]


class BilinearForm(nn.Module):
    r"""Scores two vectors by any bilinear form, one for each head.

    $$s_h(x, y) = x^\top W_h \, y$$

    This is what queries and keys are for: with $W_h = (W^Q_h)^\top W^K_h$ a head of attention has a form of low rank. A
    form need not be symmetric (whom I ask need not ask me), nor positive (I need not ask myself).

    Args:
        d: The size of $x$.
        heads: The number of forms.
        context: The size of $y$; $d$ unless given.

    Examples:
        >>> BilinearForm(8, heads=2)(torch.zeros(3, 5, 8), torch.zeros(3, 7, 8)).shape
        torch.Size([3, 2, 5, 7])
    """

    def __init__(self, d: int, *, heads: int = 1, context: int | None = None) -> None:
        super().__init__()
        self.weight = _initial(heads, d, d if context is None else context)

    def pair(self, x: Float[Tensor, "*batch t d"], y: Float[Tensor, "*batch s e"]) -> Pair:
        """Returns vectors of which the scores are the dot products: queries and keys."""
        return _asked(x, self.weight, y)

    def forward(self, x: Float[Tensor, "*batch t d"], y: Float[Tensor, "*batch s e"]) -> Float[Tensor, "*batch h t s"]:
        """Scores each of some vectors with each of others."""
        return _dot(*self.pair(x, y))


class SymmetricForm(nn.Module):
    r"""Scores two vectors by a symmetric bilinear form: $x$ is to $y$ what $y$ is to $x$.

    $$s_h(x, y) = x^\top \tfrac{1}{2} (W_h + W_h^\top) \, y = s_h(y, x)$$

    Args:
        d: The size of the vectors.
        heads: The number of forms.

    Examples:
        >>> form, x = SymmetricForm(8), torch.randn(5, 8)
        >>> torch.allclose(form(x, x), form(x, x).mT, atol=1e-5)
        True
    """

    def __init__(self, d: int, *, heads: int = 1) -> None:
        super().__init__()
        self.weight = _initial(heads, d, d)

    def pair(self, x: Float[Tensor, "*batch t d"], y: Float[Tensor, "*batch s d"]) -> Pair:
        """Returns vectors of which the scores are the dot products."""
        return _asked(x, (self.weight + self.weight.mT) / 2, y)

    def forward(self, x: Float[Tensor, "*batch t d"], y: Float[Tensor, "*batch s d"]) -> Float[Tensor, "*batch h t s"]:
        """Scores each of some vectors with each of others."""
        return _dot(*self.pair(x, y))


class SemidefiniteForm(nn.Module):
    r"""Scores two vectors by a positive semidefinite form: both are mapped alike, and meet in the middle.

    $$s_h(x, y) = (A_h x) \cdot (A_h y) = x^\top A_h^\top A_h \, y, \qquad s_h(x, x) = \| A_h x \|^2 \ge 0$$

    It is an inner product but for the vectors that $A_h$ maps to 0, so that all scores among vectors are a Gram matrix,
    and $|s(x, y)|^2 \le s(x, x) \, s(y, y)$. It is attention whose queries are its keys.

    Args:
        d: The size of the vectors.
        heads: The number of forms.
        rank: The number of rows of $A_h$; $d$ unless given.

    Examples:
        >>> form, x = SemidefiniteForm(8, rank=2), torch.randn(5, 8)
        >>> bool((form(x, x).diagonal(dim1=-2, dim2=-1) >= 0).all())
        True
    """

    def __init__(self, d: int, *, heads: int = 1, rank: int | None = None) -> None:
        super().__init__()
        self.weight = _initial(heads, d if rank is None else rank, d)

    def pair(self, x: Float[Tensor, "*batch t d"], y: Float[Tensor, "*batch s d"]) -> Pair:
        """Returns vectors of which the scores are the dot products."""
        return x.unsqueeze(-3) @ self.weight.mT, y.unsqueeze(-3) @ self.weight.mT

    def forward(self, x: Float[Tensor, "*batch t d"], y: Float[Tensor, "*batch s d"]) -> Float[Tensor, "*batch h t s"]:
        """Scores each of some vectors with each of others."""
        return _dot(*self.pair(x, y))


def _initial(heads: int, rows: int, columns: int) -> nn.Parameter:
    if min(heads, rows, columns) < 1:
        raise ValueError(f"every size is at least 1: got heads={heads} of {rows} x {columns}")
    return nn.Parameter(torch.randn(heads, rows, columns) * columns**-0.5)


def _asked(x: Tensor, weight: Tensor, y: Tensor) -> Pair:
    q = x.unsqueeze(-3) @ weight
    return q, y.unsqueeze(-3).expand(*q.shape[:-2], *y.shape[-2:])


def _dot(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT


def claims() -> Iterator[Claim]:
    """The laws that bilinear forms obey."""
    form, symmetric, positive = BilinearForm(3, heads=2, context=4), SymmetricForm(3), SemidefiniteForm(3, rank=2)

    def by_entries(x: Tensor, y: Tensor) -> Tensor:
        return torch.einsum("bti,hij,bsj->bhts", x, form.weight, y)

    def by_halves(x: Tensor, y: Tensor) -> Tensor:
        one, other = (torch.einsum(f"bti,h{w},bsj->bhts", x, symmetric.weight, y) for w in ("ij", "ji"))
        return (one + other) / 2

    def by_map(x: Tensor, y: Tensor) -> Tensor:
        return torch.einsum("bti,hri,hrj,bsj->bhts", x, positive.weight, positive.weight, y)

    two, alike = (shape("b t 3"), shape("b s 4")), (shape("b t 3"), shape("b s 3"))
    for n in (0, 1):
        yield Claim(linearity(input=n), form, two, name=f"BilinearForm, in input {n}")
    for subject, equation, inputs in (
        (form, by_entries, two),
        (symmetric, by_halves, alike),
        (positive, by_map, alike),
    ):
        yield Claim(agreement(other=equation), subject, inputs)

    def among(x: Tensor) -> Tensor:
        return symmetric(x, x)

    def quadratic(x: Tensor, c: Tensor) -> Tensor:
        return (positive(x, x).squeeze(-3) @ c[..., None] * c[..., None]).sum((-2, -1))

    def of_two(x: Tensor, y: Tensor) -> Tensor:
        return positive(x[:, None], y[:, None]).flatten()

    yield Claim(symmetry(), among, shape("b t 3"), name="SymmetricForm, among vectors")
    yield Claim(non_negativity(), quadratic, (shape("b t 3"), shape("b t")), name="SemidefiniteForm, as a Gram matrix")
    yield Claim(cauchy_schwarz(), of_two, (shape("b 3"), shape("b 3")), name="SemidefiniteForm")
