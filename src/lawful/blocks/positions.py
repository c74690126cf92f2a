"""Learned positions: a vector for each position.

Relative positions: a learned bias of the scores for each distance, or for each range of distances.
Attention with linear biases: the farther a key, the lower its score.
Rotary positions: queries and keys turned by angles that grow with the position.
Sinusoidal positions: waves of many lengths, read off at each position.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.laws import Claim, agreement, isometry, positions_matter, relative_position_only, shape, tokens


class LearnedPositions(nn.Module):
    r"""Looks up a vector for each position, to be added to that of the token.

    $$y = W_{p, :}$$

    There are as many vectors as positions that it was made for, and none for those beyond. The parameter `weight` is
    $W$, of shape (n, d), as in GPT-2.

    Args:
        n: The number of positions.
        d: The size of a vector.

    Examples:
        >>> LearnedPositions(64, 8)(torch.arange(5)).shape
        torch.Size([5, 8])
    """

    def __init__(self, n: int, d: int) -> None:
        if min(n, d) < 1:
            raise ValueError(f"n and d are at least 1: got n={n}, d={d}")
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(n, d))

    def forward(self, positions: Int[Tensor, "*batch t"]) -> Float[Tensor, "*batch t d"]:
        """Looks up positions from 0 to n - 1."""
        try:
            return F.embedding(positions, self.weight)
        except IndexError:
            low, high = int(positions.min()), int(positions.max())
            raise IndexError(f"positions from 0 to {len(self.weight) - 1} were wanted: got {low} to {high}") from None

    def extra_repr(self) -> str:
        return "{}, {}".format(*self.weight.shape)


def _learned_claims() -> Iterator[Claim]:
    """The laws that learned positions obey."""
    layer = LearnedPositions(5, 3)

    def one_hot(p: Tensor) -> Tensor:
        return (p[..., None] == torch.arange(5)).to(layer.weight) @ layer.weight

    yield Claim(agreement(other=one_hot), layer, tokens("b t", vocab=5))
    place = shape("t:2 3"), tokens("t:2", vocab=5)
    yield Claim(positions_matter(), lambda x, p: x + layer(p), place, name="Learned, added")


def differences(queries: Int[Tensor, "*rows t"], keys: Int[Tensor, "*rows s"]) -> Int[Tensor, "*rows t s"]:
    """Returns how far each key is after each query.

    Examples:
        >>> differences(torch.tensor([2]), torch.tensor([0, 1, 2, 3]))
        tensor([[-2, -1,  0,  1]])
    """
    return keys[..., None, :] - queries[..., :, None]


class ClippedRelativeBias(nn.Module):
    r"""Biases the scores of each head by a learned number for each distance, all the far ones alike.

    $$b^h_{ij} = W_{c,\,h}, \qquad c = r + \max(-r, \min(r, \, p_j - p_i))$$

    The parameter `weight` is $W$, of shape (2r + 1, h), from the farthest before to the farthest after; it begins at 0.

    Reference:
        Shaw, Uszkoreit and Vaswani, *Self-Attention with Relative Position Representations*, 2018; as a bias.

    Args:
        heads: The number of heads $h$.
        reach: $r$, the distance from which on all are alike.

    Examples:
        >>> ClippedRelativeBias(4, reach=8)(torch.arange(3), torch.arange(5)).shape
        torch.Size([4, 3, 5])
    """

    def __init__(self, heads: int, *, reach: int = 16) -> None:
        if heads < 1 or reach < 0:
            raise ValueError(f"heads of at least 1 and reach of at least 0 were wanted: got {heads} and {reach}")
        super().__init__()
        self.reach = reach
        self.weight = nn.Parameter(torch.zeros(2 * reach + 1, heads))

    def forward(self, queries: Int[Tensor, "*rows t"], keys: Int[Tensor, "*rows s"]) -> Float[Tensor, "*rows h t s"]:
        """Returns the bias between positions of queries and of keys."""
        index = differences(queries, keys).clamp(-self.reach, self.reach) + self.reach
        return F.embedding(index, self.weight).movedim(-1, -3)

    @property
    def heads(self) -> int:
        """The number of heads."""
        return self.weight.shape[1]

    def extra_repr(self) -> str:
        return f"{self.heads}, reach={self.reach}"


class T5RelativeBias(nn.Module):
    r"""Biases the scores of each head by a learned number for each range of distances, which widen with the distance.

    $$b^h_{ij} = W_{c,\,h}, \qquad c = \begin{cases} n & n < m \\
    \min \bigl( 2m - 1, \, m + \lfloor m \, \tfrac{\log(n/m)}{\log(r/m)} \rfloor \bigr) & \text{else} \end{cases},
    \qquad n = |p_j - p_i|$$

    With two sides, keys after the query have buckets of their own, and there are $4 m$ in all; with one, they count as
    distance 0, and there are $2 m$. Where a bucket begins is found in whole numbers, without rounding. The parameter
    `weight` is $W$, of shape (buckets, h), as in T5's `relative_attention_bias`; it begins at 0.

    Reference:
        Raffel et al., *Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer*, 2019.

    Args:
        heads: The number of heads $h$.
        buckets: The number of buckets in all.
        reach: $r$, the distance from which on all share the last bucket.
        sides: 2 where queries look both ways, 1 where only back.

    Examples:
        >>> layer = T5RelativeBias(4, sides=1)
        >>> layer(torch.arange(3), torch.arange(5)).shape
        torch.Size([4, 3, 5])
    """

    begins: Tensor

    def __init__(self, heads: int, *, buckets: int = 32, reach: int = 128, sides: int = 2) -> None:
        if sides not in (1, 2):
            raise ValueError(f"sides is to be 1 or 2: got {sides}")
        m, rest = divmod(buckets, 2 * sides)
        if m < 1 or rest or not reach > m:
            wanted = f"buckets must be a multiple of {2 * sides}, and reach above {max(m, 1)}"
            raise ValueError(f"{wanted}: got buckets={buckets}, reach={reach}")
        if heads < 1:
            raise ValueError(f"heads is at least 1: got {heads}")
        super().__init__()
        self.reach, self.sides = reach, sides
        self.weight = nn.Parameter(torch.zeros(buckets, heads))
        self.register_buffer("begins", torch.tensor([*range(1, m + 1), *_logarithmic(m, reach)]), persistent=False)

    def forward(self, queries: Int[Tensor, "*rows t"], keys: Int[Tensor, "*rows s"]) -> Float[Tensor, "*rows h t s"]:
        """Returns the bias between positions of queries and of keys."""
        after = differences(queries, keys)
        if self.sides == 1:
            index = torch.bucketize(-after, self.begins, right=True)
        else:
            index = torch.bucketize(after.abs(), self.begins, right=True) + (after > 0) * (len(self.weight) // 2)
        return F.embedding(index, self.weight).movedim(-1, -3)

    @property
    def heads(self) -> int:
        """The number of heads."""
        return self.weight.shape[1]

    def extra_repr(self) -> str:
        return f"{self.heads}, buckets={len(self.weight)}, reach={self.reach}, sides={self.sides}"


def _logarithmic(m: int, reach: int) -> Iterator[int]:
    """Where the last m - 1 buckets begin: the least n with n >= m (reach / m)^(j / m)."""
    for j in range(1, m):
        low, high = m, reach
        while low < high:
            n = (low + high) // 2
            low, high = (low, n) if n**m >= m ** (m - j) * reach**j else (n + 1, high)
        yield low


def _relative_claims() -> Iterator[Claim]:
    """The laws that relative positions obey."""
    clipped, both, past = (
        ClippedRelativeBias(2, reach=2),
        T5RelativeBias(2, buckets=16, reach=20),
        T5RelativeBias(2, buckets=8, reach=20, sides=1),
    )

    def by_distance(q: Tensor, k: Tensor) -> Tensor:
        rows = [[clipped.weight[min(4, max(0, int(j - i) + 2))] for j in k] for i in q]
        return torch.stack([torch.stack(row) for row in rows]).permute(2, 0, 1)

    first = [0, 1, 2, 3, 4, 4, 5, 5, 5, 6, 6, 6, 6, 6, 7]

    def by_bucket(q: Tensor, k: Tensor) -> Tensor:
        rows = [[both.weight[first[min(14, abs(int(j - i)))] + 8 * (j > i)] for j in k] for i in q]
        return torch.stack([torch.stack(row) for row in rows]).permute(2, 0, 1)

    def looking_back(q: Tensor, k: Tensor) -> Tensor:
        rows = [[past.weight[first[min(14, max(0, int(i - j)))]] for j in k] for i in q]
        return torch.stack([torch.stack(row) for row in rows]).permute(2, 0, 1)

    inputs = tokens("t", vocab=24), tokens("s", vocab=24)
    for layer, equation in ((clipped, by_distance), (both, by_bucket), (past, looking_back)):
        yield Claim(agreement(other=equation), layer, inputs, name=str(layer))

        def scores(x: Tensor, p: Tensor, layer: nn.Module = layer) -> Tensor:
            return x + layer(p, p)

        yield Claim(relative_position_only(), scores, (shape("2 t t"), tokens("t", vocab=24)), name=str(layer))


class ALiBi(nn.Module):
    r"""Lowers the scores in proportion to the distance, each head by a slope of its own.

    $$b^h_{ij} = -m_h \, |p_j - p_i|, \qquad m_h = 2^{-8 h / H}, \quad h = 1, \dots, H$$

    Nothing is learned, and no position is too far. Where $H$ is no power of two, the slopes are those of the power
    below, and then every other one of the power above.

    Reference:
        Press, Smith and Lewis, *Train Short, Test Long: Attention with Linear Biases Enables Input Length
        Extrapolation*, 2021.

    Args:
        heads: The number of heads $H$.

    Examples:
        >>> ALiBi(8)(torch.tensor([2]), torch.arange(3))[0]
        tensor([[-1.0000, -0.5000, -0.0000]])
    """

    like: Tensor

    def __init__(self, heads: int) -> None:
        if heads < 1:
            raise ValueError(f"heads is at least 1: got {heads}")
        super().__init__()
        power = 2 ** int(math.log2(heads))
        self.slopes = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
        self.slopes += [2.0 ** (-4 * h / power) for h in range(1, 2 * (heads - power), 2)]
        self.register_buffer("like", torch.empty(0), persistent=False)

    def forward(self, queries: Int[Tensor, "*rows t"], keys: Int[Tensor, "*rows s"]) -> Float[Tensor, "*rows h t s"]:
        """Returns the bias between positions of queries and of keys."""
        slopes = torch.tensor(self.slopes, dtype=self.like.dtype, device=queries.device)
        return differences(queries, keys).abs().unsqueeze(-3) * -slopes[:, None, None]

    @property
    def heads(self) -> int:
        """The number of heads."""
        return len(self.slopes)

    def extra_repr(self) -> str:
        return str(self.heads)


def _alibi_claims() -> Iterator[Claim]:
    """The laws that linear biases obey."""
    for heads, powers in ((2, (4, 8)), (3, (4, 8, 2)), (6, (2, 4, 6, 8, 1, 3))):
        layer = ALiBi(heads)

        def equation(q: Tensor, k: Tensor, layer: ALiBi = layer, powers: tuple[int, ...] = powers) -> Tensor:
            distances = [[abs(int(i) - int(j)) for j in k] for i in q]
            return torch.stack([torch.tensor(distances, dtype=layer.like.dtype) * -(0.5**n) for n in powers])

        yield Claim(agreement(other=equation), layer, (tokens("t", vocab=50), tokens("s", vocab=50)), name=str(layer))

    def scores(x: Tensor, p: Tensor) -> Tensor:
        return x + layer(p, p)

    yield Claim(relative_position_only(), scores, (shape("6 t t"), tokens("t", vocab=50)), name=str(layer))


Table = tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class RotaryLayout:
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


HALVES = RotaryLayout(_halves, _turn_halves)
"""Entry $i$ turns with entry $i + n/2$, as in GPT-NeoX and Llama."""
PAIRS = RotaryLayout(_pairs, _turn_pairs)
"""Entry $2i$ turns with entry $2i + 1$, as in GPT-J; it takes half the time, in single and double precision."""


class RotaryEmbedding(nn.Module):
    r"""Turns pairs of entries of a query or a key by angles that grow with its position.

    $$\begin{bmatrix} y_a \\ y_b \end{bmatrix} =
    \begin{bmatrix} \cos p \theta_i & -\sin p \theta_i \\ \sin p \theta_i & \cos p \theta_i \end{bmatrix}
    \begin{bmatrix} x_a \\ x_b \end{bmatrix}, \qquad \theta_i = \frac{1}{f} \, \beta^{-2i/n}$$

    Each turn is orthogonal, so that lengths are kept, and the dot product of a turned query and a turned key depends on
    the difference of their positions alone. The angles are computed in double precision and kept in a table that grows
    with the positions asked for; it is no part of the state dict.

    Reference:
        Su et al., *RoFormer: Enhanced Transformer with RotaryEmbedding Position Embedding*, 2021; the factor $f$: Chen et al.,
        *Extending Context Window of Large Language Models via Positional Interpolation*, 2023.

    Args:
        k: The size of a query or a key.
        base: $\beta$; `stretched_base` gives one for longer texts than were trained on.
        part: The share of the entries, the first $n$ of them, that are turned.
        factor: $f$, which divides the positions.
        layout: Which entries are $a$ and $b$: `HALVES` or `PAIRS`.

    Examples:
        >>> rotary = RotaryEmbedding(2)
        >>> rotary(torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]), torch.tensor([0, 1]))
        tensor([[[1.0000, 0.0000],
                 [0.5403, 0.8415]]])
    """

    def __init__(
        self, k: int, *, base: float = 10000.0, part: float = 1.0, factor: float = 1.0, layout: RotaryLayout = HALVES
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


def _rotary_claims() -> Iterator[Claim]:
    """The laws that rotary positions obey."""
    inputs = shape("b 2 t 6"), tokens("t", vocab=100)
    whole, part, pairs = (
        RotaryEmbedding(6, base=50.0),
        RotaryEmbedding(6, base=50.0, part=2 / 3, factor=3.0),
        RotaryEmbedding(6, layout=PAIRS),
    )
    chosen = [(0, 3), (1, 4), (2, 5)], [(0, 2), (1, 3)], [(0, 1), (2, 3), (4, 5)]
    for layer, turned, base in zip((whole, part, pairs), chosen, (50.0, 50.0, 10000.0), strict=True):

        def equation(
            x: Tensor, p: Tensor, layer: RotaryEmbedding = layer, turned: list = turned, base: float = base
        ) -> Tensor:
            y, p = list(x.unbind(-1)), p.double() / (3.0 if layer is part else 1.0)
            for i, (a, b) in enumerate(turned):
                angle = p * base ** (-i / len(turned))
                cos, sin = angle.cos().to(x), angle.sin().to(x)
                y[a], y[b] = x[..., a] * cos - x[..., b] * sin, x[..., a] * sin + x[..., b] * cos
            return torch.stack(y, dim=-1)

        def scores(q: Tensor, k: Tensor, p: Tensor, layer: RotaryEmbedding = layer) -> Tensor:
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
        return RotaryEmbedding(6, base=stretched)(x, torch.tensor([8]))[..., [0, 2, 3, 5]]

    def slower(x: Tensor) -> Tensor:
        same, quarter = whole(x, torch.tensor([8])), whole(x, torch.tensor([2]))
        return torch.stack([same[..., 0], quarter[..., 2], same[..., 3], quarter[..., 5]], dim=-1)

    yield Claim(agreement(other=slower), slowest, shape("b 2 1 6"), name="stretched_base")


class SinusoidalPositions(nn.Module):
    r"""Reads off waves of many lengths at each position, to be added to the vector of the token.

    $$y_{2i} = \sin(p \, \beta^{-2i/d}), \qquad y_{2i + 1} = \cos(p \, \beta^{-2i/d})$$

    A step along the positions turns every pair of entries by an angle of its own, whatever the position is, so that dot
    products depend on differences alone. Nothing is learned. The angles are computed in double precision.

    Reference:
        Vaswani et al., *Attention Is All You Need*, 2017.

    Args:
        d: The size of a vector, an even number.
        base: $\beta$.

    Examples:
        >>> SinusoidalPositions(2)(torch.tensor([0, 1]))
        tensor([[0.0000, 1.0000],
                [0.8415, 0.5403]])
    """

    like: Tensor

    def __init__(self, d: int, *, base: float = 10000.0) -> None:
        if d < 2 or d % 2:
            raise ValueError(f"d is to be even, and at least 2: got {d}")
        if not base > 0:
            raise ValueError(f"base is to be above 0: got {base}")
        super().__init__()
        self.d, self.base = d, base
        self.register_buffer("like", torch.empty(0), persistent=False)

    def forward(self, positions: Int[Tensor, "*batch t"]) -> Float[Tensor, "*batch t d"]:
        """Reads off the waves at any positions."""
        powers = torch.arange(0, self.d, 2, device=positions.device, dtype=torch.float64) / self.d
        angles = positions[..., None] * self.base**-powers
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).to(self.like.dtype)

    def extra_repr(self) -> str:
        return f"{self.d}, base={self.base:g}"


def _sinusoidal_claims() -> Iterator[Claim]:
    """The laws that sinusoidal positions obey."""
    layer = SinusoidalPositions(6)

    def equation(p: Tensor) -> Tensor:
        rows = [
            [(math.cos if i % 2 else math.sin)(int(one) / 1e4 ** (i // 2 / 3)) for i in range(6)] for one in p.flatten()
        ]
        return torch.tensor(rows, dtype=torch.float64).to(layer.like.dtype).reshape(*p.shape, 6)

    def similarities(x: Tensor, p: Tensor) -> Tensor:
        return x * (layer(p) @ layer(p).mT)

    yield Claim(agreement(other=equation), layer, tokens("b t", vocab=100))
    yield Claim(relative_position_only(), similarities, (shape("t t"), tokens("t", vocab=100)), name="dot products")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _learned_claims()
    yield from _relative_claims()
    yield from _alibi_claims()
    yield from _rotary_claims()
    yield from _sinusoidal_claims()
