"""Rotary positions: queries and keys turned by angles that grow with the position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.laws import Claim, agreement, isometry, relative_position_only, shape, tokens

Table = tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Layout:
    """Says which entries of a vector turn together: how the table is made of the angles, and how it turns vectors."""

    table: Callable[[Tensor, torch.dtype], Table]
    turn: Callable[..., Tensor]


def _halves(angles: Tensor, dtype: torch.dtype) -> Table:
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    return torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)


def _turn_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def _pairs(angles: Tensor, dtype: torch.dtype) -> Table:
    return (torch.complex(angles.cos().to(dtype), angles.sin().to(dtype)),)


def _turn_pairs(x: Tensor, phase: Tensor) -> Tensor:
    x = x.clone(memory_format=torch.contiguous_format) if x.storage_offset() % 2 else x.contiguous()
    return torch.view_as_real(torch.view_as_complex(x.view(*x.shape[:-1], x.shape[-1] // 2, 2)) * phase).flatten(-2)


HALVES = Layout(_halves, _turn_halves)
"""Entry $i$ turns with entry $i + n/2$, as in GPT-NeoX and Llama."""
PAIRS = Layout(_pairs, _turn_pairs)
"""Entry $2i$ turns with entry $2i + 1$, as in GPT-J; it takes half the time, in single and double precision."""


class Rotary(nn.Module):
    r"""Turns pairs of entries of a query or a key by angles that grow with its position.

    $$\begin{bmatrix} y_a \\ y_b \end{bmatrix} =
    \begin{bmatrix} \cos p \theta_i & -\sin p \theta_i \\ \sin p \theta_i & \cos p \theta_i \end{bmatrix}
    \begin{bmatrix} x_a \\ x_b \end{bmatrix}, \qquad \theta_i = \frac{1}{f} \, \beta^{-2i/n}$$

    Each turn is orthogonal, so that lengths are kept, and the dot product of a turned query and a turned key depends on
    the difference of their positions alone. The angles are computed in double precision and kept in a table that grows
    with the positions asked for; it is no part of the state dict.

    Reference:
        Su et al., *RoFormer: Enhanced Transformer with Rotary Position Embedding*, 2021; the factor $f$: Chen et al.,
        *Extending Context Window of Large Language Models via Positional Interpolation*, 2023.

    Args:
        k: The size of a query or a key.
        base: $\beta$; `stretched_base` gives one for longer texts than were trained on.
        part: The share of the entries, the first $n$ of them, that are turned.
        factor: $f$, which divides the positions.
        layout: Which entries are $a$ and $b$: `HALVES` or `PAIRS`.

    Examples:
        >>> rotary = Rotary(2)
        >>> rotary(torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]), torch.tensor([0, 1]))
        tensor([[[1.0000, 0.0000],
                 [0.5403, 0.8415]]])
    """

    def __init__(
        self, k: int, *, base: float = 10000.0, part: float = 1.0, factor: float = 1.0, layout: Layout = HALVES
    ) -> None:
        n = round(part * k)
        if not 0 < n <= k or n % 2:
            raise ValueError(f"an even number of entries, at most k, is to be turned: got k={k}, part={part}")
        if not (base > 0 and factor > 0):
            raise ValueError(f"base and factor are to be above 0: got base={base}, factor={factor}")
        super().__init__()
        self.k, self.turned, self.base, self.factor, self.layout = k, n, base, factor, layout
        self._table: Table = ()
        self._found: Table = ()
        self._asked: tuple[object, ...] = ()

    def forward(
        self, x: Float[Tensor, "*batch h t k"], positions: Int[Tensor, "*#rows t"] | int = 0
    ) -> Float[Tensor, "*batch h t k"]:
        """Turns vectors that stand at the positions, or at those that follow a first one."""
        if x.shape[-1] != self.k:
            raise ValueError(f"the last axis is to have size {self.k}: got shape {tuple(x.shape)}")
        if isinstance(positions, Tensor):
            rows = self._rows(positions, x)
        else:
            rows = self._consecutive(positions, positions + x.shape[-2], x)
        if x.shape[-2] == 1:
            return self._turned(x, rows)
        return self._turned(x.transpose(-3, -2), rows).transpose(-3, -2)

    def _turned(self, x: Tensor, rows: Table) -> Tensor:
        """The vectors, whose heads come after their positions, turned by the rows of the table."""
        if self.turned == self.k:
            return self.layout.turn(x, *rows)
        return torch.cat([self.layout.turn(x[..., : self.turned], *rows), x[..., self.turned :]], dim=-1)

    def _rows(self, positions: Tensor, like: Tensor) -> Table:
        """The rows of the table, each for all heads, at any positions."""
        powers = torch.arange(0, self.turned, 2, device=like.device, dtype=torch.float64) / self.turned
        angles = positions.to(powers)[..., None] * (self.base**-powers / self.factor)
        return tuple(part.unsqueeze(-2) for part in self.layout.table(angles, like.dtype))

    def _consecutive(self, start: int, end: int, like: Tensor) -> Table:
        """The rows of the table from one position to another; queries, keys and layers often ask for the same."""
        asked = start, end, like.dtype, like.device
        if asked == self._asked:
            return self._found
        if start < 0:
            raise ValueError(f"the first position is at least 0: got {start}")
        if torch.compiler.is_compiling():
            return self._rows(torch.arange(start, end, device=like.device), like)
        table = self._table
        if not table or len(table[0]) < end or asked[2:] != self._asked[2:]:
            with torch.inference_mode(False), torch.no_grad():
                size = max(64, 1 << (end - 1).bit_length())
                table = self._rows(torch.arange(size, device=like.device), like)
        found = tuple([part[start:end] for part in table])
        if _lasting(*found):
            self._table, self._asked, self._found = table, asked, found
        return found

    def extra_repr(self) -> str:
        return f"{self.k}, base={self.base:g}, part={self.turned / self.k:g}, factor={self.factor:g}"


def _lasting(*parts: Tensor) -> bool:
    """Whether tensors can be kept: those that live within a transform of `torch.func` or a fake mode cannot."""
    try:
        return all(type(part) is Tensor and part.untyped_storage() is not None for part in parts)
    except NotImplementedError:
        return False


def stretched_base(k: int, factor: float, *, base: float = 10000.0) -> float:
    r"""Returns the base with which the slowest turn is so many times slower, and the fastest stays as it is.

    $$\beta' = \beta \, f^{k / (k - 2)}$$

    Positions up to $f$ times those that were trained on then have angles that were seen, near ones keep their
    resolution: the "NTK-aware" scaling.

    Reference:
        Peng, Quesnelle, Fan and Shippole, *YaRN: Efficient Context Window Extension of Large Language Models*, 2023.

    Args:
        k: The number of entries that are turned.
        factor: $f$, how much longer the texts are.
        base: $\beta$.

    Examples:
        >>> stretched_base(4, 3.0, base=10.0)
        90.0
    """
    if k < 4 or not factor > 0:
        raise ValueError(f"k of at least 4 and a factor above 0 were wanted: got k={k}, factor={factor}")
    return base * factor ** (k / (k - 2))


def claims() -> Iterator[Claim]:
    """The laws that rotary positions obey."""
    inputs = shape("b 2 t 6"), tokens("t", vocab=100)
    whole, part, pairs = Rotary(6, base=50.0), Rotary(6, base=50.0, part=2 / 3, factor=3.0), Rotary(6, layout=PAIRS)
    chosen = [(0, 3), (1, 4), (2, 5)], [(0, 2), (1, 3)], [(0, 1), (2, 3), (4, 5)]
    for layer, turned, base in zip((whole, part, pairs), chosen, (50.0, 50.0, 10000.0), strict=True):

        def equation(x: Tensor, p: Tensor, layer: Rotary = layer, turned: list = turned, base: float = base) -> Tensor:
            y, p = list(x.unbind(-1)), p.double() / (3.0 if layer is part else 1.0)
            for i, (a, b) in enumerate(turned):
                angle = p * base ** (-i / len(turned))
                cos, sin = angle.cos().to(x), angle.sin().to(x)
                y[a], y[b] = x[..., a] * cos - x[..., b] * sin, x[..., a] * sin + x[..., b] * cos
            return torch.stack(y, dim=-1)

        def scores(q: Tensor, k: Tensor, p: Tensor, layer: Rotary = layer) -> Tensor:
            return layer(q, p) @ layer(k, p).mT

        name = f"Rotary({layer.turned} of 6)" if layer is not pairs else "Rotary(PAIRS)"
        yield Claim(agreement(other=equation), layer, inputs, name=name)
        yield Claim(isometry(input=0), layer, inputs, name=name)
        asked = shape("2 t 6"), shape("2 t 6"), tokens("t", vocab=100)
        yield Claim(relative_position_only(), scores, asked, name=f"{name}, scores")

    def consecutive(x: Tensor) -> Tensor:
        return torch.stack([part(x, start) for start in (0, 7)])

    def one_by_one(x: Tensor) -> Tensor:
        return torch.stack([part(x, torch.arange(start, start + x.shape[-2])) for start in (0, 7)])

    yield Claim(agreement(other=one_by_one), consecutive, shape("b 2 t 6"), name="positions that follow a first")

    def slowest(x: Tensor) -> Tensor:
        stretched = stretched_base(6, 4.0, base=50.0)
        return Rotary(6, base=stretched)(x, torch.tensor([8]))[..., [0, 2, 3, 5]]

    def slower(x: Tensor) -> Tensor:
        same, quarter = whole(x, torch.tensor([8])), whole(x, torch.tensor([2]))
        return torch.stack([same[..., 0], quarter[..., 2], same[..., 3], quarter[..., 5]], dim=-1)

    yield Claim(agreement(other=slower), slowest, shape("b 2 1 6"), name="stretched_base")
