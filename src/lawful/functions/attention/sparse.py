"""Chunked attention: exact, in memory linear in the length.

Sliding-window attention: time and memory grow with the window, not with the square of the length.
"""

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

from lawful.functions.attention.dense import (
    MASKS,
    Bias,
    Kernel,
    agrees,
    fused_attention,
    reference_attention,
    single_head,
)
from lawful.functions.attention.masks import CAUSAL, NO_MASK, Mask, positions
from lawful.laws import Claim, agreement, gradient, locality, second_order_gradient, shape


@dataclass(frozen=True, kw_only=True)
class ChunkedAttention:
    r"""Attends with some queries at a time, and computes these again in the backward pass.

    $$y_{I} = \operatorname{attention}(q_{I}, k_{J(I)}, v_{J(I)})$$

    for chunks $I$ of queries, with the keys $J(I)$ that these may see. Of masks and biases there is never more than a
    chunk, in either direction, so that memory is linear in the number of keys.

    Reference:
        Rabe and Staats, *Self-attention Does Not Need O(n²) Memory*, 2021.

    Args:
        size: The number of queries in a chunk.
        kernel: What each chunk is computed with; with `reference_attention` there are second derivatives.

    Examples:
        >>> q, k, v = torch.randn(3, 1, 2, 10, 8)
        >>> torch.allclose(ChunkedAttention(size=4)(q, k, v), reference_attention(q, k, v), atol=1e-6)
        True
    """

    size: int = 256
    kernel: Kernel = fused_attention

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be at least 1: got {self.size}")

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
        """Averages the values."""
        t, s = q.shape[-2], k.shape[-2]
        if t <= self.size:
            return self.kernel(q, k, v, mask=mask, bias=bias, scale=scale)
        mask.check(t, s)
        mask = mask.reduced(t, s)

        def attend(q: Tensor, k: Tensor, v: Tensor, rows: slice, columns: slice) -> Tensor:
            queries, keys = positions(t, s, q.device)
            queries, keys = queries[rows], keys[columns]
            seen = mask.between(queries, keys)
            here = NO_MASK if seen is None else Mask(pairs=seen.expand(*seen.shape[:-2], len(queries), len(keys)))
            there = _part(bias, rows, columns) if bias is None or isinstance(bias, Tensor) else bias(queries, keys)
            return self.kernel(q, k, v, mask=here, bias=there, scale=scale)

        parts = []
        for start in range(0, t, self.size):
            rows = slice(start, min(start + self.size, t))
            columns = mask.reach(rows.start + s - t, rows.stop + s - t, s)
            inputs = q[..., rows, :], k[..., columns, :], v[..., columns, :]
            parts.append(recomputed(attend, *inputs, rows, columns))
        return torch.cat(parts, dim=-2)


def recomputed(f: Callable[..., Tensor], *inputs: object) -> Tensor:
    """Calls a function of tensors, and calls it again in the backward pass rather than keep what it computes."""
    if not torch.is_grad_enabled():
        return f(*inputs)
    return checkpoint(f, *inputs, use_reentrant=False, preserve_rng_state=False)


def _part(bias: Tensor | None, rows: slice, columns: slice) -> Tensor | None:
    """A part of a bias, of which an axis may have size 1."""
    if bias is None:
        return None
    bias = bias if bias.shape[-1] == 1 else bias[..., columns]
    return bias if bias.dim() < 2 or bias.shape[-2] == 1 else bias[..., rows, :]


def _chunked_claims() -> Iterator[Claim]:
    """The laws that chunked attention obeys."""
    yield from agrees("Chunked(size=2)", ChunkedAttention(size=2), MASKS)
    heads = shape("b 2 t 2"), shape("b 2 s 2"), shape("b 2 s 3")

    def sloped(kernel: Kernel) -> Kernel:
        return lambda q, k, v: kernel(q, k, v, mask=CAUSAL, bias=lambda i, j: (i.unsqueeze(-1) - j).abs().to(q))

    twice = sloped(ChunkedAttention(size=2, kernel=reference_attention))
    yield Claim(replace(gradient(), cases=40), ChunkedAttention(size=2), heads)
    yield Claim(
        replace(agreement(other=sloped(reference_attention)), cases=40),
        twice,
        heads,
        name="Chunked(kernel=plain_attention)",
    )
    yield Claim(second_order_gradient(), twice, heads, name="Chunked(kernel=plain_attention)")


@dataclass(frozen=True, kw_only=True)
class SlidingWindowAttention:
    r"""Averages the values of the keys within a window around each query, and touches no others.

    $$y_i = \sum_{|i - j| < w} \operatorname{softmax}_j \Bigl( \frac{q_i \cdot k_j}{\sqrt{k}} + b_{ij} \Bigr) \, v_j$$

    Queries are taken in blocks, each with the slice of keys that it can reach: the blocks are one call of fused
    attention. Time and memory grow with $t w$; there is no mask of $t s$ entries. The mask that it is called with
    has a window $w$, and any other rules; `window_attention` is one that chooses the size of its blocks.

    Reference:
        Beltagy, Peters and Cohan, *Longformer: The Long-Document Transformer*, 2020.

    Args:
        block: The number of queries in a block; half a window, and 32 at least, unless given.
        span: The number of queries, about, beyond which the sequence is cut up, and each part computed again in the
            backward pass: of the slices, which overlap, there are never more than for one part.

    Examples:
        >>> q, k, v = torch.randn(3, 1, 2, 100, 8)
        >>> mask = Mask(causal=True, window=5)
        >>> torch.allclose(window_attention(q, k, v, mask=mask), reference_attention(q, k, v, mask=mask), atol=1e-6)
        True
    """

    block: int | None = None
    span: int = 1024

    def __post_init__(self) -> None:
        if self.block is not None and self.block < 1:
            raise ValueError(f"block must be at least 1: got {self.block}")

    def __call__(
        self,
        q: Float[Tensor, "*batch h t k"],
        k: Float[Tensor, "*batch g s k"],
        v: Float[Tensor, "*batch g s v"],
        *,
        mask: Mask,
        bias: Tensor | Bias | None = None,
        scale: float | None = None,
    ) -> Float[Tensor, "*batch h t v"]:
        """Averages the values within the mask's window."""
        if mask.window is None:
            raise ValueError("window attention needs a mask with a window: got none")
        batch, (h, t), s = q.shape[:-3], q.shape[-3:-1], k.shape[-2]
        mask.check(t, s)
        if not q.numel():
            return fused_attention(q, k, v, scale=scale)
        if max(t, s) <= mask.window or not s:
            return fused_attention(q, k, v, mask=mask, bias=bias, scale=scale)
        size = min(self.block or max(mask.window // 2, 32), max(t, 1))
        back = mask.window - 1
        ahead = back if mask.prefix or not mask.causal else 0
        tail = -t % size
        q = F.pad(q, (0, 0, 0, tail)) if tail else q
        low = s - t - back

        def attend(first: int, q: Tensor, *pieces: Tensor) -> Tensor:
            k, v = (_stretch(pieces[n::2], low + first, q.shape[-2] + back + ahead) for n in range(2))
            starts = s - t + torch.arange(first, first + q.shape[-2], size, device=q.device).unsqueeze(-1)
            queries = starts + torch.arange(size, device=q.device)
            keys = starts + torch.arange(-back, size + ahead, device=q.device)
            inside = ((keys >= 0) & (keys < s)).unsqueeze(-2)
            queries, keys = queries.clamp_max(s - 1), keys.clamp(0, s - 1)
            seen = mask.between(queries, keys)
            seen = inside if seen is None else inside & seen
            k, v = (x.unfold(-2, size + back + ahead, size).mT for x in (k, v))
            y = fused_attention(
                *(x.movedim(-3, -4).flatten(0, -4) for x in (q.unflatten(-2, (-1, size)), k, v)),
                mask=Mask(pairs=seen.expand(*batch, *seen.shape[-3:]).flatten(0, -3)),
                bias=_blocked_bias(bias, queries, keys, (*batch, h, t, s)),
                scale=scale,
            )
            return y.reshape(*batch, -1, *y.shape[1:]).movedim(-4, -3).flatten(-3, -2)

        span = size * -(-max(self.span, back + ahead) // size)
        queries = q.split(span, dim=-2)
        edges = [min(max(low + n * span, 0), s) for n in range(len(queries) + 2)]
        sizes = [y - x for x, y in pairwise((0, *edges, s))]
        _, *keys, _ = k.split(sizes, dim=-2)
        _, *values, _ = v.split(sizes, dim=-2)
        if len(queries) == 1:
            return attend(0, q, keys[0], values[0], keys[1], values[1])[..., :t, :]
        parts = []
        for n, part in enumerate(queries):
            pieces = keys[n], values[n], keys[n + 1], values[n + 1]
            parts.append(recomputed(attend, n * span, part, *pieces))
        return torch.cat(parts, dim=-2)[..., :t, :]


window_attention = SlidingWindowAttention()


def _stretch(pieces: tuple[Tensor, ...], start: int, n: int) -> Tensor:
    """The n positions from start on, out of pieces in a row, with zeros where there are none."""
    x, before = torch.cat(pieces, dim=-2), min(max(-start, 0), n)
    return F.pad(x, (0, 0, before, n - before - x.shape[-2]))


def _blocked_bias(bias: Tensor | Bias | None, queries: Tensor, keys: Tensor, full: tuple[int, ...]) -> Tensor | None:
    """The bias of each block, of shape (batch * blocks, h, size, reach)."""
    if bias is None:
        return None
    *batch, _, t, s = full
    if isinstance(bias, Tensor):
        rows = (queries - (s - t)).unsqueeze(-1)
        found = bias.expand(full)[..., rows, keys.unsqueeze(-2)].movedim(-3, -4)
    else:
        found = bias(queries, keys)
    return found.expand(*batch, *found.shape[-4:]).flatten(0, -4)


def _window_claims() -> Iterator[Claim]:
    """The laws that sliding-window attention obeys."""
    windows = [mask for mask in MASKS if mask.window is not None]
    yield from agrees(
        "Window", SlidingWindowAttention(block=2, span=4), [*windows, Mask(causal=True, window=2, prefix=3)]
    )
    heads = shape("b 2 t 2"), shape("b 2 s 2"), shape("b 2 s 3")

    def sloped(kernel: Kernel) -> Kernel:
        def bias(i: Tensor, j: Tensor) -> Tensor:
            return (i.unsqueeze(-1) - j.unsqueeze(-2)).abs().double().unsqueeze(-3)

        return lambda q, k, v: kernel(q, k, v, mask=Mask(window=3), bias=lambda i, j: bias(i, j).to(q))

    def near(x: Tensor) -> Tensor:
        return single_head(window_attention, x, x, x, mask=Mask(window=3))

    small = SlidingWindowAttention(block=2, span=2)
    yield Claim(agreement(other=sloped(reference_attention)), sloped(small), heads, name="Window, by positions")
    yield Claim(gradient(), partial(small, mask=Mask(window=2)), heads, name="Window")
    yield Claim(locality(radius=2), near, shape("b t 3"), name="window_attention(window=3)")


def claims() -> Iterator[Claim]:
    """Yields the claims of this module."""
    yield from _chunked_claims()
    yield from _window_claims()
