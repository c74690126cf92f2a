"""Position schemes: learned and sinusoidal embeddings, rotary embedding, ALiBi and relative position biases."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.laws import Claim, isometry, positions_matter, relative_position_only, shape, tokens

_Table = tuple[Tensor, ...]


class LearnedPositions(nn.Module):
    r"""Learned position embeddings, to be added to the token embeddings.

    $$y = W_{p, :}$$

    The parameter `weight` is $W$, of shape (context_length, dim), as in GPT-2.

    Args:
        context_length: Number of positions.
        dim: Width of an embedding.

    Examples:
        >>> LearnedPositions(64, 8)(torch.arange(5)).shape
        torch.Size([5, 8])
    """

    def __init__(self, context_length: int, dim: int) -> None:
        if min(context_length, dim) < 1:
            raise ValueError(f"context_length and dim must be at least 1: got {context_length=}, {dim=}")
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(context_length, dim))

    def forward(self, positions: Int[Tensor, "*batch t"]) -> Float[Tensor, "*batch t d"]:
        """Looks up the embeddings of positions below `context_length`."""
        try:
            return F.embedding(positions, self.weight)
        except IndexError:
            low, high = int(positions.min()), int(positions.max())
            expected = f"positions must be in [0, {len(self.weight)})"
            raise IndexError(f"{expected}: got {low} to {high}; use a larger context_length") from None

    def extra_repr(self) -> str:
        return "{}, {}".format(*self.weight.shape)


class SinusoidalPositions(nn.Module):
    r"""Sinusoidal position embeddings, to be added to the token embeddings.

    $$y_{2i} = \sin(p \, \beta^{-2i/d}), \qquad y_{2i + 1} = \cos(p \, \beta^{-2i/d})$$

    Dot products of two embeddings depend only on the difference of the positions. Nothing is learned. Angles are
    computed in float64.

    Reference:
        Vaswani et al., *Attention Is All You Need*, 2017.

    Args:
        dim: Width of an embedding; even.
        base: $\beta$.

    Examples:
        >>> SinusoidalPositions(2)(torch.tensor([0, 1]))
        tensor([[0.0000, 1.0000],
                [0.8415, 0.5403]])
    """

    dtype_reference: Tensor

    def __init__(self, dim: int, *, base: float = 10000.0) -> None:
        if dim < 2 or dim % 2:
            raise ValueError(f"dim must be even and at least 2, got {dim}")
        if not base > 0:
            raise ValueError(f"base must be positive, got {base}")
        super().__init__()
        self.dim, self.base = dim, base
        self.register_buffer("dtype_reference", torch.empty(0), persistent=False)

    def forward(self, positions: Int[Tensor, "*batch t"]) -> Float[Tensor, "*batch t d"]:
        """Computes the embeddings of any positions."""
        powers = torch.arange(0, self.dim, 2, device=positions.device, dtype=torch.float64) / self.dim
        angles = positions[..., None] * self.base**-powers
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).to(self.dtype_reference.dtype)

    def extra_repr(self) -> str:
        return f"{self.dim}, base={self.base:g}"


@dataclass(frozen=True, eq=False)
class RotaryLayout:
    """Which entries of a vector rotate together: how to build the table of rotations, and how to apply it."""

    table: Callable[[Tensor, torch.dtype], _Table]
    rotate: Callable[..., Tensor]


def _table_of_halves(angles: Tensor, dtype: torch.dtype) -> _Table:
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    return torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)


def _rotate_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def _table_of_pairs(angles: Tensor, dtype: torch.dtype) -> _Table:
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    # compilers, ONNX and half precision lack complex numbers
    real = torch.compiler.is_compiling() or dtype not in (torch.float32, torch.float64)
    return (cos, sin) if real else (torch.complex(cos, sin),)


def _rotate_pairs(x: Tensor, phase: Tensor, sin: Tensor | None = None) -> Tensor:
    if sin is not None:
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack([a * phase - b * sin, a * sin + b * phase], -1).flatten(-2)
    x = x.clone(memory_format=torch.contiguous_format) if x.storage_offset() % 2 else x.contiguous()
    return torch.view_as_real(torch.view_as_complex(x.view(*x.shape[:-1], x.shape[-1] // 2, 2)) * phase).flatten(-2)


HALVES = RotaryLayout(_table_of_halves, _rotate_halves)
"""Entry $i$ rotates with entry $i + n/2$, as in GPT-NeoX and Llama."""
PAIRS = RotaryLayout(_table_of_pairs, _rotate_pairs)
"""Entry $2i$ rotates with entry $2i + 1$, as in GPT-J. Twice as fast, in float32 and float64."""


class RotaryEmbedding(nn.Module):
    r"""Rotary position embedding (RoPE): rotates pairs of entries of queries and keys in proportion to the position.

    $$\begin{bmatrix} y_a \\ y_b \end{bmatrix} =
    \begin{bmatrix} \cos p \theta_i & -\sin p \theta_i \\ \sin p \theta_i & \cos p \theta_i \end{bmatrix}
    \begin{bmatrix} x_a \\ x_b \end{bmatrix}, \qquad \theta_i = \frac{1}{f} \, \beta^{-2i/n}$$

    Norms do not change, and the dot product of a rotated query and a rotated key depends only on the difference of
    their positions. Angles are computed in float64 and cached in a table, which is not part of the state dict.

    Reference:
        Su et al., *RoFormer: Enhanced Transformer with Rotary Position Embedding*, 2021; position interpolation: Chen
        et al., *Extending Context Window of Large Language Models via Positional Interpolation*, 2023.

    Args:
        head_dim: Size of a query or key.
        base: $\beta$; `ntk_base` returns one for longer contexts.
        fraction: Fraction of the entries to rotate, the first $n$.
        scaling_factor: $f$, which divides the positions (position interpolation).
        layout: Which entries are $a$ and $b$: `HALVES` or `PAIRS`.

    Examples:
        >>> rotary = RotaryEmbedding(2)
        >>> rotary(torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]), torch.tensor([0, 1]))
        tensor([[[1.0000, 0.0000],
                 [0.5403, 0.8415]]])
    """

    def __init__(
        self,
        head_dim: int,
        *,
        base: float = 10000.0,
        fraction: float = 1.0,
        scaling_factor: float = 1.0,
        layout: RotaryLayout = HALVES,
    ) -> None:
        n = round(fraction * head_dim)
        if not 0 < n <= head_dim or n % 2:
            raise ValueError(f"fraction * head_dim must be even and in [2, head_dim]: got {head_dim=}, {fraction=}")
        if not (base > 0 and scaling_factor > 0):
            raise ValueError(f"base and scaling_factor must be positive: got {base=}, {scaling_factor=}")
        super().__init__()
        self.head_dim, self.rotary_dim, self.base = head_dim, n, base
        self.scaling_factor, self.layout = scaling_factor, layout
        self._table: _Table = ()
        self._last_rows: _Table = ()
        self._last_key: tuple[object, ...] = ()

    def forward(
        self, x: Float[Tensor, "*batch h t k"], positions: Int[Tensor, "*#rows t"] | int = 0
    ) -> Float[Tensor, "*batch h t k"]:
        """Rotates queries or keys.

        Args:
            x: Queries or keys.
            positions: Their positions, or the first of consecutive positions.
        """
        if x.shape[-1] != self.head_dim:
            raise ValueError(f"expected x of shape (*batch, h, t, {self.head_dim}), got {tuple(x.shape)}")
        if isinstance(positions, Tensor):
            rows = self._rows(positions, x)
        else:
            rows = self._consecutive_rows(positions, positions + x.shape[-2], x)
        if x.shape[-2] == 1:
            return self._rotate(x, rows)
        return self._rotate(x.transpose(-3, -2), rows).transpose(-3, -2)

    def _rotate(self, x: Float[Tensor, "*batch t h k"], rows: _Table) -> Float[Tensor, "*batch t h k"]:
        if self.rotary_dim == self.head_dim:
            return self.layout.rotate(x, *rows)
        n = self.rotary_dim
        return torch.cat([self.layout.rotate(x[..., :n], *rows), x[..., n:]], dim=-1)

    def _rows(self, positions: Tensor, like: Tensor) -> _Table:
        """Rows of the table for any positions, with an axis for the heads."""
        powers = torch.arange(0, self.rotary_dim, 2, device=like.device, dtype=torch.float64) / self.rotary_dim
        angles = positions.to(powers)[..., None] * (self.base**-powers / self.scaling_factor)
        return tuple(part.unsqueeze(-2) for part in self.layout.table(angles, like.dtype))

    def _consecutive_rows(self, start: int, end: int, like: Tensor) -> _Table:
        """Rows of the table from `start` to `end`. Queries, keys and layers share the last result."""
        if torch.compiler.is_compiling():  # a table would fix the length
            return self._rows(torch.arange(start, end, device=like.device), like)
        key = start, end, like.dtype, like.device
        if key == self._last_key:
            return self._last_rows
        if start < 0:
            raise ValueError(f"positions must be non-negative, got {start}")
        table = self._table
        if not table or len(table[0]) < end or key[2:] != self._last_key[2:]:
            with torch.inference_mode(False), torch.no_grad():
                size = max(64, 1 << (end - 1).bit_length())
                table = self._rows(torch.arange(size, device=like.device), like)
        rows = tuple([part[start:end] for part in table])
        if _is_storable(*rows):
            self._table, self._last_key, self._last_rows = table, key, rows
        return rows

    def extra_repr(self) -> str:
        fraction = self.rotary_dim / self.head_dim
        return f"{self.head_dim}, base={self.base:g}, fraction={fraction:g}, scaling_factor={self.scaling_factor:g}"


def _is_storable(*tensors: Tensor) -> bool:
    """Whether tensors outlive the call: those inside a `torch.func` transform or a fake mode do not."""
    try:
        return all(type(x) is Tensor and x.untyped_storage() is not None for x in tensors)
    except NotImplementedError:
        return False


def ntk_base(dim: int, factor: float, *, base: float = 10000.0) -> float:
    r"""Returns the rotary base for a context that is `factor` times longer ("NTK-aware" scaling).

    $$\beta' = \beta \, f^{d / (d - 2)}$$

    The slowest rotation becomes $f$ times slower; the fastest does not change.

    Reference:
        Peng, Quesnelle, Fan and Shippole, *YaRN: Efficient Context Window Extension of Large Language Models*, 2023.

    Args:
        dim: Number of rotated entries $d$.
        factor: $f$.
        base: $\beta$.

    Examples:
        >>> ntk_base(4, 3.0, base=10.0)
        90.0
    """
    if dim < 4 or not factor > 0:
        raise ValueError(f"dim must be at least 4 and factor positive: got {dim=}, {factor=}")
    return base * factor ** (dim / (dim - 2))


def relative_positions(queries: Int[Tensor, "*rows t"], keys: Int[Tensor, "*rows s"]) -> Int[Tensor, "*rows t s"]:
    """Returns the position of each key minus the position of each query.

    Examples:
        >>> relative_positions(torch.tensor([2]), torch.tensor([0, 1, 2, 3]))
        tensor([[-2, -1,  0,  1]])
    """
    return keys[..., None, :] - queries[..., :, None]


class ALiBi(nn.Module):
    r"""Attention with linear biases: subtracts a multiple of the distance from the scores, with one slope per head.

    $$b^h_{ij} = -m_h \, |p_j - p_i|, \qquad m_h = 2^{-8 h / H}, \quad h = 1, \dots, H$$

    Nothing is learned, and any length works. If $H$ is not a power of two, the slopes for the power of two below are
    followed by every other slope for the power of two above.

    Reference:
        Press, Smith and Lewis, *Train Short, Test Long: Attention with Linear Biases Enables Input Length
        Extrapolation*, 2021.

    Args:
        num_heads: Number of heads $H$.

    Examples:
        >>> ALiBi(8)(torch.tensor([2]), torch.arange(3))[0]
        tensor([[-1.0000, -0.5000, -0.0000]])
    """

    dtype_reference: Tensor

    def __init__(self, num_heads: int) -> None:
        if num_heads < 1:
            raise ValueError(f"num_heads must be at least 1, got {num_heads}")
        super().__init__()
        power = 2 ** int(math.log2(num_heads))
        self.num_heads = num_heads
        self.slopes = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
        self.slopes += [2.0 ** (-4 * h / power) for h in range(1, 2 * (num_heads - power), 2)]
        self.register_buffer("dtype_reference", torch.empty(0), persistent=False)

    def forward(self, queries: Int[Tensor, "*rows t"], keys: Int[Tensor, "*rows s"]) -> Float[Tensor, "*rows h t s"]:
        """Returns the bias of the scores from the positions of queries and keys."""
        slopes = torch.tensor(self.slopes, dtype=self.dtype_reference.dtype, device=queries.device)
        return relative_positions(queries, keys).abs().unsqueeze(-3) * -slopes[:, None, None]

    def extra_repr(self) -> str:
        return str(self.num_heads)


class ClippedRelativeBias(nn.Module):
    r"""Learned bias of the scores for each relative position, clipped at a maximum distance.

    $$b^h_{ij} = W_{c,\,h}, \qquad c = r + \max(-r, \min(r, \, p_j - p_i))$$

    The parameter `weight` is $W$, of shape (2r + 1, num_heads), from $-r$ to $r$; it is initialized to 0.

    Reference:
        Shaw, Uszkoreit and Vaswani, *Self-Attention with Relative Position Representations*, 2018; as a bias.

    Args:
        num_heads: Number of heads.
        max_distance: $r$, the distance beyond which all positions share a bias.

    Examples:
        >>> ClippedRelativeBias(4, max_distance=8)(torch.arange(3), torch.arange(5)).shape
        torch.Size([4, 3, 5])
    """

    def __init__(self, num_heads: int, *, max_distance: int = 16) -> None:
        if num_heads < 1 or max_distance < 0:
            raise ValueError(
                f"num_heads must be at least 1 and max_distance non-negative: got {num_heads=}, {max_distance=}"
            )
        super().__init__()
        self.num_heads, self.max_distance = num_heads, max_distance
        self.weight = nn.Parameter(torch.zeros(2 * max_distance + 1, num_heads))

    def forward(self, queries: Int[Tensor, "*rows t"], keys: Int[Tensor, "*rows s"]) -> Float[Tensor, "*rows h t s"]:
        """Returns the bias of the scores from the positions of queries and keys."""
        r = self.max_distance
        return F.embedding(relative_positions(queries, keys).clamp(-r, r) + r, self.weight).movedim(-1, -3)

    def extra_repr(self) -> str:
        return f"{self.num_heads}, max_distance={self.max_distance}"


class T5RelativeBias(nn.Module):
    r"""Learned bias of the scores for buckets of relative positions, which widen with the distance.

    $$b^h_{ij} = W_{c,\,h}, \qquad c = \begin{cases} n & n < m \\
    \min \bigl( 2m - 1, \, m + \lfloor m \, \tfrac{\log(n/m)}{\log(r/m)} \rfloor \bigr) & \text{else} \end{cases},
    \qquad n = |p_j - p_i|$$

    If bidirectional, later keys have their own buckets, $4 m$ in all; otherwise they count as distance 0, and there
    are $2 m$ buckets. Bucket boundaries are computed in integers, without rounding. The parameter `weight` is $W$, of
    shape (num_buckets, num_heads), as T5's `relative_attention_bias`; it is initialized to 0.

    Reference:
        Raffel et al., *Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer*, 2019.

    Args:
        num_heads: Number of heads.
        num_buckets: Number of buckets.
        max_distance: $r$, the distance beyond which all positions share the last bucket.
        bidirectional: Whether queries see later keys.

    Examples:
        >>> layer = T5RelativeBias(4, bidirectional=False)
        >>> layer(torch.arange(3), torch.arange(5)).shape
        torch.Size([4, 3, 5])
    """

    boundaries: Tensor

    def __init__(
        self, num_heads: int, *, num_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
    ) -> None:
        m, rest = divmod(num_buckets, 4 if bidirectional else 2)
        if m < 1 or rest or not max_distance > m:
            expected = f"num_buckets must be a multiple of {4 if bidirectional else 2}, max_distance above {max(m, 1)}"
            raise ValueError(f"{expected}: got {num_buckets=}, {max_distance=}")
        if num_heads < 1:
            raise ValueError(f"num_heads must be at least 1, got {num_heads}")
        super().__init__()
        self.num_heads, self.max_distance, self.bidirectional = num_heads, max_distance, bidirectional
        self.weight = nn.Parameter(torch.zeros(num_buckets, num_heads))
        boundaries = [*range(1, m + 1), *_log_boundaries(m, max_distance)]
        self.register_buffer("boundaries", torch.tensor(boundaries), persistent=False)

    def forward(self, queries: Int[Tensor, "*rows t"], keys: Int[Tensor, "*rows s"]) -> Float[Tensor, "*rows h t s"]:
        """Returns the bias of the scores from the positions of queries and keys."""
        relative = relative_positions(queries, keys)
        if self.bidirectional:
            bucket = torch.bucketize(relative.abs(), self.boundaries, right=True)
            bucket = bucket + (relative > 0) * (len(self.weight) // 2)
        else:
            bucket = torch.bucketize(-relative, self.boundaries, right=True)
        return F.embedding(bucket, self.weight).movedim(-1, -3)

    def extra_repr(self) -> str:
        sizes = f"num_buckets={len(self.weight)}, max_distance={self.max_distance}"
        return f"{self.num_heads}, {sizes}, bidirectional={self.bidirectional}"


def _log_boundaries(m: int, max_distance: int) -> Iterator[int]:
    """First distance of the last m - 1 buckets: the least n with n >= m (max_distance / m)^(j / m)."""
    for j in range(1, m):
        low, high = m, max_distance
        while low < high:
            n = (low + high) // 2
            low, high = (low, n) if n**m >= m ** (m - j) * max_distance**j else (n + 1, high)
        yield low


def claims() -> Iterator[Claim]:
    """Laws of position schemes."""
    learned, sinusoidal = LearnedPositions(5, 3), SinusoidalPositions(6)
    yield Claim(
        positions_matter(),
        lambda x, p: x + learned(p),
        (shape("t:2 3"), tokens("t:2", vocab_size=5)),
        name="LearnedPositions",
    )

    def dot_products(x: Tensor, p: Tensor) -> Tensor:
        return x * (sinusoidal(p) @ sinusoidal(p).mT)

    scores = shape("t t"), tokens("t", vocab_size=100)
    yield Claim(relative_position_only(), dot_products, scores, name="SinusoidalPositions, dot products")
    for rotary in (RotaryEmbedding(6, base=50.0, fraction=2 / 3, scaling_factor=3.0), RotaryEmbedding(6, layout=PAIRS)):

        def rotary_scores(q: Tensor, k: Tensor, p: Tensor, rotary: RotaryEmbedding = rotary) -> Tensor:
            return rotary(q, p) @ rotary(k, p).mT

        yield Claim(isometry(input=0), rotary, (shape("b 2 t 6"), tokens("t", vocab_size=100)), name=str(rotary))
        inputs = shape("2 t 6"), shape("2 t 6"), tokens("t", vocab_size=100)
        yield Claim(relative_position_only(), rotary_scores, inputs, name=f"{rotary}, scores")
    for bias in (
        ALiBi(2),
        ClippedRelativeBias(2, max_distance=2),
        T5RelativeBias(2, num_buckets=16, max_distance=20),
        T5RelativeBias(2, num_buckets=8, max_distance=20, bidirectional=False),
    ):

        def scores_with_bias(x: Tensor, p: Tensor, bias: nn.Module = bias) -> Tensor:
            return x + bias(p, p)

        yield Claim(
            relative_position_only(), scores_with_bias, (shape("2 t t"), tokens("t", vocab_size=24)), name=str(bias)
        )
