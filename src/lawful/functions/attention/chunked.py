"""Chunked attention: exact, in memory linear in the length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lawful.functions.attention.fused import MASKS, agrees, fused_attention
from lawful.functions.attention.masks import CAUSAL, EVERYTHING, Mask, positions
from lawful.functions.attention.plain import Kernel, plain_attention
from lawful.functions.attention.scores import Bias
from lawful.laws import Claim, agreement, gradient, second_order_gradient, shape


@dataclass(frozen=True, kw_only=True)
class Chunked:
    r"""Attends with some queries at a time, and computes these again in the backward pass.

    $$y_{I} = \operatorname{attention}(q_{I}, k_{J(I)}, v_{J(I)})$$

    for chunks $I$ of queries, with the keys $J(I)$ that these may see. Of masks and biases there is never more than a
    chunk, in either direction, so that memory is linear in the number of keys.

    Reference:
        Rabe and Staats, *Self-attention Does Not Need O(n²) Memory*, 2021.

    Args:
        size: The number of queries in a chunk.
        kernel: What each chunk is computed with; with `plain_attention` there are second derivatives.

    Examples:
        >>> q, k, v = torch.randn(3, 1, 2, 10, 8)
        >>> torch.allclose(Chunked(size=4)(q, k, v), plain_attention(q, k, v), atol=1e-6)
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
        mask: Mask = EVERYTHING,
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
            here = EVERYTHING if seen is None else Mask(pairs=seen.expand(*seen.shape[:-2], len(queries), len(keys)))
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


def claims() -> Iterator[Claim]:
    """The laws that chunked attention obeys."""
    yield from agrees("Chunked(size=2)", Chunked(size=2), MASKS)
    heads = shape("b 2 t 2"), shape("b 2 s 2"), shape("b 2 s 3")

    def sloped(kernel: Kernel) -> Kernel:
        return lambda q, k, v: kernel(q, k, v, mask=CAUSAL, bias=lambda i, j: (i.unsqueeze(-1) - j).abs().to(q))

    twice = sloped(Chunked(size=2, kernel=plain_attention))
    yield Claim(replace(gradient(), cases=40), Chunked(size=2), heads)
    yield Claim(
        replace(agreement(other=sloped(plain_attention)), cases=40),
        twice,
        heads,
        name="Chunked(kernel=plain_attention)",
    )
    yield Claim(second_order_gradient(), twice, heads, name="Chunked(kernel=plain_attention)")
