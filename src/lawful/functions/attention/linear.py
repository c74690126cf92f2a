"""Linear attention: feature maps instead of a softmax, in time linear in the length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.functions.attention.dense import Bias, check_kv_heads, single_head
from lawful.functions.attention.masks import CAUSAL, NO_MASK, Mask
from lawful.laws import Claim, cached_decoding, causality, convex_combination, fully_masked_row_is_finite, shape
from lawful.laws import mask as mask_input


def elu_features(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Positive feature map: ELU plus 1.

    $$\phi(x) = \begin{cases} x + 1 & x > 0 \\ e^x & \text{else} \end{cases}$$

    Small features are accurate: $e^x$ is not computed as $(e^x - 1) + 1$.

    Args:
        x: Queries or keys.

    Examples:
        >>> elu_features(torch.tensor([-1.0, 0.0, 2.0]))
        tensor([0.3679, 1.0000, 3.0000])
    """
    return torch.where(x > 0, x + 1, x.clamp_max(0).exp())


def linear_attention(
    q: Float[Tensor, "*batch h t k"],
    k: Float[Tensor, "*batch g s k"],
    v: Float[Tensor, "*batch g s v"],
    *,
    feature_map: Callable[[Tensor], Tensor] = elu_features,
    mask: Mask = NO_MASK,
    scale: float | None = None,
    chunk_size: int = 64,
) -> Float[Tensor, "*batch h t v"]:
    r"""Linear attention.

    $$y_i = \frac{\sum_j \phi(q_i) \cdot \phi(k_j) \, v_j}{\sum_j \phi(q_i) \cdot \phi(k_j)}
    = \frac{\phi(q_i)^\top S_i}{\phi(q_i)^\top z_i}, \qquad S_i = \sum_j \phi(k_j) \, v_j^\top, \quad
    z_i = \sum_j \phi(k_j)$$

    Under a causal mask $S_i$ and $z_i$ are running sums: recurrent between chunks, all pairs within a chunk. A query
    without visible keys gives 0.

    Reference:
        Katharopoulos, Vyas, Pappas and Fleuret, *Transformers are RNNs*, 2020.

    Args:
        q: Queries.
        k: Keys.
        v: Values.
        feature_map: Feature map $\phi$ along the last dimension, whose size it may change. Must be positive.
        mask: Causal mask, prefix and padding; other rules are not supported.
        scale: Factor of the queries.
        chunk_size: Number of queries per chunk.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 4, 10, 8)
        >>> linear_attention(q, k, v, mask=CAUSAL).shape
        torch.Size([2, 4, 10, 8])
    """
    return LinearAttention(feature_map, chunk_size)(q, k, v, mask=mask, scale=scale)


@dataclass(frozen=True)
class LinearAttention:
    """`linear_attention` as the kernel of an attention layer: `MultiHeadAttention(64, kernel=LinearAttention())`.

    Args:
        feature_map: Feature map along the last dimension, whose size it may change. Must be positive.
        chunk_size: Number of queries per chunk.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 4, 10, 8)
        >>> LinearAttention()(q, k, v, mask=CAUSAL).shape
        torch.Size([2, 4, 10, 8])
    """

    feature_map: Callable[[Tensor], Tensor] = elu_features
    chunk_size: int = 64

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
        """Computes attention; see `linear_attention`. A bias is not supported."""
        return self.attend_with_state(q, k, v, mask=mask, bias=bias, scale=scale)[0]

    def attend_with_state(
        self,
        q: Float[Tensor, "*batch h t k"],
        k: Float[Tensor, "*batch g s k"],
        v: Float[Tensor, "*batch g s v"],
        *,
        state: Float[Tensor, "*batch g f w"] | None = None,
        mask: Mask = NO_MASK,
        bias: Tensor | Bias | None = None,
        scale: float | None = None,
    ) -> tuple[Float[Tensor, "*batch h t v"], Float[Tensor, "*batch g f w"]]:
        """Computes attention to new and earlier keys, and returns the new state.

        Args:
            q: Queries.
            k: New keys.
            v: New values.
            state: Sums over earlier keys: $S$, and $z$ as its last column. None if there are no earlier keys.
            mask: Which of the new keys each query sees.
            bias: Not supported; must be None.
            scale: Factor of the queries.
        """
        _check_supported(mask, bias)
        (h, t), (g, s) = q.shape[-3:-1], k.shape[-3:-1]
        check_kv_heads(h, g)
        mask.check(t, s)
        mask = mask.simplify(t, s)
        q, k = self.feature_map(q if scale is None else q * scale), self.feature_map(k)
        if mask.padding is not None:
            k = k * mask.padding[..., None, :, None]
        q, k, v = q.unflatten(-3, (g, h // g)), k.unsqueeze(-3), F.pad(v, (0, 1), value=1.0).unsqueeze(-3)
        early = max(s - t, mask.prefix) if mask.causal else s
        before = k[..., :early, :].mT @ v[..., :early, :]
        before = before if state is None else before + state.unsqueeze(-3)
        if mask.causal:
            k = F.pad(k[..., early:, :], (0, 0, early - (s - t), 0))
            y, after = _causal_sums(q, k, F.pad(v, (0, 0, t - s, 0)), before, self.chunk_size)
        else:
            y, after = q @ before, before
        weight = y[..., -1:]
        y = y[..., :-1] / weight.masked_fill(weight == 0, 1.0)
        return y.flatten(-4, -3), after.squeeze(-3)

    def weights(
        self,
        q: Float[Tensor, "*batch h t k"],
        k: Float[Tensor, "*batch g s k"],
        *,
        mask: Mask = NO_MASK,
        bias: Tensor | Bias | None = None,
        scale: float | None = None,
    ) -> Float[Tensor, "*batch h t s"]:
        """Returns the attention weights, which the attention itself never forms."""
        values = torch.eye(k.shape[-2], dtype=k.dtype, device=k.device).expand(*k.shape[:-1], k.shape[-2])
        return self(q, k, values, mask=mask, bias=bias, scale=scale)

    def cache(self) -> LinearAttentionState:
        """Returns an empty decoding state."""
        return LinearAttentionState(self)


class LinearAttentionState:
    r"""Decoding state of linear attention: the sums over all keys and values seen so far, of constant size.

    $$S \leftarrow S + \phi(k) \, v^\top, \qquad z \leftarrow z + \phi(k)$$

    Args:
        kernel: The linear attention.

    Examples:
        >>> state = LinearAttention().cache()
        >>> q, k, v = torch.randn(3, 1, 2, 5, 4)
        >>> state.attend(q, k, v, mask=CAUSAL).shape, state.length, state.nbytes
        (torch.Size([1, 2, 5, 4]), 5, 160)
    """

    def __init__(self, kernel: LinearAttention) -> None:
        self.kernel = kernel
        self.sums: list[Tensor] = []
        self.length = 0

    def attend(
        self,
        q: Float[Tensor, "*batch h t k"],
        k: Float[Tensor, "*batch g t k"],
        v: Float[Tensor, "*batch g t v"],
        *,
        mask: Mask = CAUSAL,
        bias: Tensor | Bias | None = None,
        scale: float | None = None,
        group: int = 0,
    ) -> Float[Tensor, "*batch h t v"]:
        """Adds new keys and values to the sums, and attends to all seen so far.

        Args:
            q: Queries of the new tokens.
            k: Keys of the new tokens.
            v: Values of the new tokens.
            mask: Which of the new keys each query sees.
            bias: Not supported; must be None.
            scale: Factor of the queries.
            group: Index of the head group, in a layer whose heads differ in size. The first one counts the tokens.
        """
        before = self.sums[group] if group < len(self.sums) else None
        y, after = self.kernel.attend_with_state(q, k, v, state=before, mask=mask, bias=bias, scale=scale)
        self.sums[group : group + 1] = [after]
        if group == 0:
            self.length += k.shape[-2]
        return y

    def select(self, rows: Tensor) -> LinearAttentionState:
        """Returns the state of the given rows of the batch, for beam search."""
        selected = LinearAttentionState(self.kernel)
        selected.sums, selected.length = [sums[rows] for sums in self.sums], self.length
        return selected

    def trim(self, length: int) -> None:
        """Drops all tokens (length 0) or none: a sum cannot be undone.

        Raises:
            ValueError: If `length` is neither 0 nor the current length.
        """
        if length not in (0, self.length):
            raise ValueError(f"LinearAttentionState can only be trimmed to 0 or {self.length} tokens, got {length}")
        if length == 0:
            self.sums, self.length = [], 0

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return sum(sums.nbytes for sums in self.sums)


def _check_supported(mask: Mask, bias: object) -> None:
    unsupported = [name for name in ("window", "documents", "pairs") if getattr(mask, name) is not None]
    unsupported += ["bias"] if bias is not None else []
    if unsupported:
        raise ValueError(f"linear attention supports causal masks, prefixes and padding, got {', '.join(unsupported)}")


def _causal_sums(q: Tensor, k: Tensor, v: Tensor, before: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Returns the product of each query with the sums up to it, and the final sums."""
    t = q.shape[-2]
    size = min(size, max(t, 1))
    chunks = -(-t // size)
    q, k, v = (F.pad(x, (0, 0, 0, chunks * size - t)).unflatten(-2, (chunks, size)) for x in (q, k, v))
    sums = torch.cat([before.unsqueeze(-3), k.mT @ v], dim=-3).cumsum(-3)
    y = q @ sums[..., :-1, :, :] + (q @ k.mT).tril() @ v
    return y.flatten(-3, -2)[..., :t, :], sums[..., -1, :, :]


def claims() -> Iterator[Claim]:
    """Laws of linear attention."""
    kernel = LinearAttention(chunk_size=2)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return kernel(q.tanh(), k.tanh(), v)  # features of very negative keys underflow to 0

    def attend_causal(x: Tensor) -> Tensor:
        return single_head(kernel, x, x, x, mask=CAUSAL)

    def attend_padded(x: Tensor, valid: Tensor) -> Tensor:
        return single_head(kernel, x, x, x, mask=CAUSAL & Mask(padding=valid))

    def step(x: Tensor, state: LinearAttentionState | None) -> tuple[Tensor, LinearAttentionState]:
        state = state or kernel.cache()
        x = x.unsqueeze(-3)
        return state.attend(x, x, x).squeeze(-3), state

    yield Claim(convex_combination(), attend, (shape("b 2 t 2"), shape("b 2 s 2"), shape("b 2 s 3")), "LinearAttention")
    yield Claim(causality(), attend_causal, shape("b t 3"), name="LinearAttention, causal")
    yield Claim(cached_decoding(step=step), attend_causal, shape("b t 3"), name="LinearAttentionState")
    padded = (shape("b t 3"), mask_input("b t"))
    yield Claim(fully_masked_row_is_finite(), attend_padded, padded, name="LinearAttention, padded")
