"""Chunked and sliding-window attention: exact, without the full matrix of scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from lawful.functions.attention.dense import Bias, Kernel, fused_attention, reference_attention, single_head
from lawful.functions.attention.masks import CAUSAL, NO_MASK, Mask, query_key_positions
from lawful.laws import Claim, agreement, causality, gradient, locality, second_order_gradient, shape


def chunked_attention(
    q: Float[Tensor, "*batch h t k"],
    k: Float[Tensor, "*batch g s k"],
    v: Float[Tensor, "*batch g s v"],
    *,
    chunk_size: int = 256,
    kernel: Kernel = fused_attention,
    mask: Mask = NO_MASK,
    bias: Tensor | Bias | None = None,
    scale: float | None = None,
) -> Float[Tensor, "*batch h t v"]:
    r"""Exact attention over chunks of queries, recomputed in the backward pass.

    $$y_{I} = \operatorname{attention}(q_{I}, k_{J(I)}, v_{J(I)})$$

    for chunks $I$ of queries and the keys $J(I)$ that they may see. Masks and biases exist for one chunk at a time, so
    memory is linear in the number of keys.

    Reference:
        Rabe and Staats, *Self-attention Does Not Need O(n²) Memory*, 2021.

    Args:
        q: Queries.
        k: Keys.
        v: Values.
        chunk_size: Number of queries per chunk.
        kernel: Attention of a chunk; `reference_attention` has second derivatives.
        mask: Which keys each query sees.
        bias: Bias of the scores, or a function of the positions of queries and keys.
        scale: Factor of the dot products. Defaults to $1 / \sqrt{k}$.

    Examples:
        >>> q, k, v = torch.randn(3, 1, 2, 10, 8)
        >>> torch.allclose(chunked_attention(q, k, v, chunk_size=4), fused_attention(q, k, v), atol=1e-6)
        True
    """
    t, s = q.shape[-2], k.shape[-2]
    if t <= chunk_size:
        return kernel(q, k, v, mask=mask, bias=bias, scale=scale)
    mask.check(t, s)
    mask = mask.simplify(t, s)

    def attend(q: Tensor, k: Tensor, v: Tensor, rows: slice, columns: slice) -> Tensor:
        queries, keys = query_key_positions(t, s, q.device)
        queries, keys = queries[rows], keys[columns]
        visible = mask.evaluate(queries, keys)
        chunk_mask = NO_MASK
        if visible is not None:
            chunk_mask = Mask(pairs=visible.expand(*visible.shape[:-2], len(queries), len(keys)))
        is_tensor = bias is None or isinstance(bias, Tensor)
        chunk_bias = _slice_bias(bias, rows, columns) if is_tensor else bias(queries, keys)
        return kernel(q, k, v, mask=chunk_mask, bias=chunk_bias, scale=scale)

    chunks = []
    for start in range(0, t, chunk_size):
        rows = slice(start, min(start + chunk_size, t))
        columns = mask.key_range(rows.start + s - t, rows.stop + s - t, s)
        inputs = q[..., rows, :], k[..., columns, :], v[..., columns, :]
        chunks.append(_checkpoint(attend, *inputs, rows, columns))
    return torch.cat(chunks, dim=-2)


@dataclass(frozen=True)
class ChunkedAttention:
    """`chunked_attention` as the kernel of an attention layer: `MultiHeadAttention(64, kernel=ChunkedAttention(128))`.

    Args:
        chunk_size: Number of queries per chunk.
        kernel: Attention of a chunk; `reference_attention` has second derivatives.

    Examples:
        >>> q, k, v = torch.randn(3, 1, 2, 10, 8)
        >>> ChunkedAttention(4)(q, k, v).shape
        torch.Size([1, 2, 10, 8])
    """

    chunk_size: int = 256
    kernel: Kernel = fused_attention

    def __post_init__(self) -> None:
        if self.chunk_size < 1:
            raise ValueError(f"chunk_size must be at least 1, got {self.chunk_size}")

    def __call__(
        self,
        q: Float[Tensor, "*batch h t k"],
        k: Float[Tensor, "*batch g s k"],
        v: Float[Tensor, "*batch g s v"],
        *,
        mask: Mask = NO_MASK,
        bias: Tensor | Bias | None = None,
        scale: float | None = None,
    ) -> Float[Tensor, "*batch h t v"]:
        """Computes attention; see `chunked_attention`."""
        options = {"chunk_size": self.chunk_size, "kernel": self.kernel}
        return chunked_attention(q, k, v, mask=mask, bias=bias, scale=scale, **options)


def sliding_window_attention(
    q: Float[Tensor, "*batch h t k"],
    k: Float[Tensor, "*batch g s k"],
    v: Float[Tensor, "*batch g s v"],
    *,
    window: int | None = None,
    mask: Mask = NO_MASK,
    bias: Tensor | Bias | None = None,
    scale: float | None = None,
    block_size: int | None = None,
    segment_size: int = 1024,
) -> Float[Tensor, "*batch h t v"]:
    r"""Attention to the keys within a window around each query.

    $$y_i = \sum_{|i - j| < w} \operatorname{softmax}_j \Bigl( \frac{q_i \cdot k_j}{\sqrt{k}} + b_{ij} \Bigr) \, v_j$$

    With a causal mask, a query sees the last $w$ keys, including its own. Blocks of queries attend to the slice of keys
    within their reach, all in one call of `fused_attention`: time and memory are $O(t w)$.

    Reference:
        Beltagy, Peters and Cohan, *Longformer: The Long-Document Transformer*, 2020.

    Args:
        q: Queries.
        k: Keys.
        v: Values.
        window: Window size $w$. Defaults to the window of the mask.
        mask: Which keys each query sees, besides the window.
        bias: Bias of the scores, or a function of the positions of queries and keys.
        scale: Factor of the dot products. Defaults to $1 / \sqrt{k}$.
        block_size: Number of queries per block. Defaults to half a window, at least 32.
        segment_size: Longer sequences are split into segments of about this many queries, recomputed in the backward
            pass, which bounds the memory of the overlapping slices.

    Examples:
        >>> q, k, v = torch.randn(3, 1, 2, 100, 8)
        >>> y = sliding_window_attention(q, k, v, window=5, mask=CAUSAL)
        >>> torch.allclose(y, fused_attention(q, k, v, mask=Mask(causal=True, window=5)), atol=1e-6)
        True
    """
    if window is not None:
        mask = mask & Mask(window=window)
    if mask.window is None:
        raise ValueError("sliding_window_attention needs a window: pass window= or a mask with a window")
    batch, (h, t), s = q.shape[:-3], q.shape[-3:-1], k.shape[-2]
    mask.check(t, s)
    if not q.numel():
        return fused_attention(q, k, v, scale=scale)
    if max(t, s) <= mask.window or not s:
        return fused_attention(q, k, v, mask=mask, bias=bias, scale=scale)
    size = min(block_size or max(mask.window // 2, 32), max(t, 1))
    back = mask.window - 1
    ahead = back if mask.prefix or not mask.causal else 0
    tail = -t % size
    q = F.pad(q, (0, 0, 0, tail)) if tail else q
    low = s - t - back

    def attend(first: int, q: Tensor, *pieces: Tensor) -> Tensor:
        k, v = (_join(pieces[n::2], low + first, q.shape[-2] + back + ahead) for n in range(2))
        starts = s - t + torch.arange(first, first + q.shape[-2], size, device=q.device).unsqueeze(-1)
        queries = starts + torch.arange(size, device=q.device)
        keys = starts + torch.arange(-back, size + ahead, device=q.device)
        inside = ((keys >= 0) & (keys < s)).unsqueeze(-2)
        queries, keys = queries.clamp_max(s - 1), keys.clamp(0, s - 1)
        visible = mask.evaluate(queries, keys)
        visible = inside if visible is None else inside & visible
        k, v = (x.unfold(-2, size + back + ahead, size).mT for x in (k, v))
        y = fused_attention(
            *(x.movedim(-3, -4).flatten(0, -4) for x in (q.unflatten(-2, (-1, size)), k, v)),
            mask=Mask(pairs=visible.expand(*batch, *visible.shape[-3:]).flatten(0, -3)),
            bias=_block_bias(bias, queries, keys, (*batch, h, t, s)),
            scale=scale,
        )
        return y.reshape(*batch, -1, *y.shape[1:]).movedim(-4, -3).flatten(-3, -2)

    span = size * -(-max(segment_size, back + ahead) // size)
    segments = q.split(span, dim=-2)
    edges = [min(max(low + n * span, 0), s) for n in range(len(segments) + 2)]
    sizes = [y - x for x, y in pairwise((0, *edges, s))]
    _, *keys, _ = k.split(sizes, dim=-2)
    _, *values, _ = v.split(sizes, dim=-2)
    if len(segments) == 1:
        return attend(0, q, keys[0], values[0], keys[1], values[1])[..., :t, :]
    outputs = []
    for n, segment in enumerate(segments):
        pieces = keys[n], values[n], keys[n + 1], values[n + 1]
        outputs.append(_checkpoint(attend, n * span, segment, *pieces))
    return torch.cat(outputs, dim=-2)[..., :t, :]


@dataclass(frozen=True)
class SlidingWindowAttention:
    """`sliding_window_attention` as the kernel of an attention layer.

    Args:
        window: Window size. None takes the window of the mask that the layer is called with.
        block_size: Number of queries per block. Defaults to half a window, at least 32.
        segment_size: Longer sequences are split into segments of about this many queries.

    Examples:
        >>> q, k, v = torch.randn(3, 1, 2, 100, 8)
        >>> SlidingWindowAttention(5)(q, k, v, mask=CAUSAL).shape
        torch.Size([1, 2, 100, 8])
    """

    window: int | None = None
    block_size: int | None = None
    segment_size: int = 1024

    def __post_init__(self) -> None:
        for name in ("window", "block_size"):
            if (size := getattr(self, name)) is not None and size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")

    def __call__(
        self,
        q: Float[Tensor, "*batch h t k"],
        k: Float[Tensor, "*batch g s k"],
        v: Float[Tensor, "*batch g s v"],
        *,
        mask: Mask = NO_MASK,
        bias: Tensor | Bias | None = None,
        scale: float | None = None,
    ) -> Float[Tensor, "*batch h t v"]:
        """Computes attention; see `sliding_window_attention`."""
        sizes = {"block_size": self.block_size, "segment_size": self.segment_size}
        return sliding_window_attention(q, k, v, window=self.window, mask=mask, bias=bias, scale=scale, **sizes)

    def restrict(self, mask: Mask) -> Mask:
        """Returns the mask restricted to the window."""
        return mask if self.window is None else mask & Mask(window=self.window)


def _checkpoint(f: Callable[..., Tensor], *inputs: object) -> Tensor:
    """Calls a function of tensors, and recomputes it in the backward pass."""
    if not torch.is_grad_enabled():
        return f(*inputs)
    return checkpoint(f, *inputs, use_reentrant=False, preserve_rng_state=False)


def _slice_bias(bias: Tensor | None, rows: slice, columns: slice) -> Tensor | None:
    """Slices a bias; dimensions of size 1 stay."""
    if bias is None:
        return None
    bias = bias if bias.shape[-1] == 1 else bias[..., columns]
    return bias if bias.dim() < 2 or bias.shape[-2] == 1 else bias[..., rows, :]


def _join(pieces: tuple[Tensor, ...], start: int, n: int) -> Tensor:
    """Concatenates pieces to the n positions from `start`, with zeros outside of the sequence."""
    x, before = torch.cat(pieces, dim=-2), min(max(-start, 0), n)
    return F.pad(x, (0, 0, before, n - before - x.shape[-2]))


def _block_bias(bias: Tensor | Bias | None, queries: Tensor, keys: Tensor, full: tuple[int, ...]) -> Tensor | None:
    """Returns the bias of each block, of shape (batch * blocks, h, block_size, reach)."""
    if bias is None:
        return None
    *batch, _, t, s = full
    if isinstance(bias, Tensor):
        rows = (queries - (s - t)).unsqueeze(-1)
        blocks = bias.expand(full)[..., rows, keys.unsqueeze(-2)].movedim(-3, -4)
    else:
        blocks = bias(queries, keys)
    return blocks.expand(*batch, *blocks.shape[-4:]).flatten(0, -4)


def claims() -> Iterator[Claim]:
    """Laws of chunked and sliding-window attention."""
    heads = shape("b 2 t 2"), shape("b 2 s 2"), shape("b 2 s 3")
    chunked, twice = ChunkedAttention(2), ChunkedAttention(2, kernel=reference_attention)
    yield Claim(agreement(other=partial(reference_attention, mask=CAUSAL)), partial(chunked, mask=CAUSAL), heads)
    yield Claim(replace(gradient(), cases=40), chunked, heads)
    yield Claim(second_order_gradient(), twice, heads, name="ChunkedAttention(kernel=reference_attention)")
    window = SlidingWindowAttention(3, block_size=2, segment_size=4)
    dense = partial(reference_attention, mask=Mask(window=3))
    yield Claim(agreement(other=dense), window, heads)
    yield Claim(gradient(), window, heads)

    def attend(x: Tensor) -> Tensor:
        return single_head(window, x, x, x)

    def attend_causal(x: Tensor) -> Tensor:
        return single_head(window, x, x, x, mask=CAUSAL)

    yield Claim(locality(radius=2), attend, shape("b t 3"), name="SlidingWindowAttention(3)")
    yield Claim(causality(), attend_causal, shape("b t 3"), name="SlidingWindowAttention(3), causal")
