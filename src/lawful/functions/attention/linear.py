"""Linear attention: a sum of features in place of a softmax, in time linear in the length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lawful.functions.attention.dense import Bias, between_values, single_head
from lawful.functions.attention.masks import CAUSAL, NO_MASK, Mask
from lawful.laws import Claim, agreement, cached_decoding, causality, fully_masked_row_is_finite, shape
from lawful.laws import mask as mask_of


def elu_features(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Makes every number positive: the exponential linear unit, plus 1.

    $$\phi(x) = \begin{cases} x + 1 & x > 0 \\ e^x & \text{else} \end{cases}$$

    Written so, small features keep their digits, which adding 1 to $e^x - 1$ would lose.

    Args:
        x: The numbers.

    Examples:
        >>> elu_features(torch.tensor([-1.0, 0.0, 2.0]))
        tensor([0.3679, 1.0000, 3.0000])
    """
    return torch.where(x > 0, x + 1, x.clamp_max(0).exp())


@dataclass(frozen=True, kw_only=True)
class LinearAttention:
    r"""Averages the values by a similarity that is a dot product of features, and so can be summed up beforehand.

    $$y_i = \frac{\sum_j \phi(q_i) \cdot \phi(k_j) \, v_j}{\sum_j \phi(q_i) \cdot \phi(k_j)}
    = \frac{\phi(q_i)^\top S_i}{\phi(q_i)^\top z_i}, \qquad S_i = \sum_j \phi(k_j) \, v_j^\top, \quad
    z_i = \sum_j \phi(k_j)$$

    Under a causal mask $S_i$ and $z_i$ are sums up to the query, a recurrence: between chunks it runs over sums, within
    a chunk all pairs are compared. A query that sees no key gives 0. Features are to be positive, so that nothing is
    divided by 0.

    Reference:
        Katharopoulos, Vyas, Pappas and Fleuret, *Transformers are RNNs*, 2020.

    Args:
        features: $\phi$, along the last axis, whose size it may change.
        chunk: The number of queries in a chunk.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 4, 10, 8)
        >>> LinearAttention()(q, k, v, mask=CAUSAL).shape
        torch.Size([2, 4, 10, 8])
    """

    features: Callable[[Tensor], Tensor] = elu_features
    chunk: int = 64

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
        """Averages the values; the mask may be causal, with a prefix, and padded; a scale multiplies the queries."""
        return self.with_sums(q, k, v, mask=mask, bias=bias, scale=scale)[0]

    def with_sums(
        self,
        q: Float[Tensor, "*batch h t k"],
        k: Float[Tensor, "*batch g s k"],
        v: Float[Tensor, "*batch g s v"],
        *,
        sums: Float[Tensor, "*batch g f w"] | None = None,
        mask: Mask = NO_MASK,
        bias: Tensor | Bias | None = None,
        scale: float | None = None,
    ) -> tuple[Float[Tensor, "*batch h t v"], Float[Tensor, "*batch g f w"]]:
        """Averages the values, after those of which the sums are given, and returns the sums over all of them.

        The last column of the sums is $z$, the others are $S$.
        """
        _check(mask, bias)
        (h, t), (g, s) = q.shape[-3:-1], k.shape[-3:-1]
        if h % g:
            raise ValueError(f"the heads of keys must divide those of queries: got h={h}, g={g}")
        mask.check(t, s)
        mask = mask.reduced(t, s)
        q, k = self.features(q if scale is None else q * scale), self.features(k)
        if mask.padding is not None:
            k = k * mask.padding[..., None, :, None]
        q, k, v = q.unflatten(-3, (g, h // g)), k.unsqueeze(-3), F.pad(v, (0, 1), value=1.0).unsqueeze(-3)
        early = max(s - t, mask.prefix) if mask.causal else s
        before = k[..., :early, :].mT @ v[..., :early, :]
        before = before if sums is None else before + sums.unsqueeze(-3)
        if mask.causal:
            k = F.pad(k[..., early:, :], (0, 0, early - (s - t), 0))
            y, after = _running(q, k, F.pad(v, (0, 0, t - s, 0)), before, self.chunk)
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
        """Returns the weight of each value in each average: a table that the averages themselves do without."""
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
        y, after = self.kernel.with_sums(q, k, v, sums=before, mask=mask, bias=bias, scale=scale)
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


def _check(mask: Mask, bias: object) -> None:
    unknown = [name for name in ("window", "documents", "pairs") if getattr(mask, name) is not None]
    unknown += ["bias"] if bias is not None else []
    if unknown:
        raise ValueError(f"linear attention knows causal masks, prefixes and padding: got {', '.join(unknown)}")


def _running(q: Tensor, k: Tensor, v: Tensor, before: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """What each query finds in the sums up to it, and the sums at the end."""
    t = q.shape[-2]
    size = min(size, max(t, 1))
    chunks = -(-t // size)
    q, k, v = (F.pad(x, (0, 0, 0, chunks * size - t)).unflatten(-2, (chunks, size)) for x in (q, k, v))
    sums = torch.cat([before.unsqueeze(-3), k.mT @ v], dim=-3).cumsum(-3)
    y = q @ sums[..., :-1, :, :] + (q @ k.mT).tril() @ v
    return y.flatten(-3, -2)[..., :t, :], sums[..., -1, :, :]


def claims() -> Iterator[Claim]:
    """The laws that linear attention obeys."""
    kernel = LinearAttention(chunk=2)
    heads = shape("b 4 t 2"), shape("b 2 s 2"), shape("b 2 s 3")

    def quadratic(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        k, v = (torch.stack([x[:, 0], x[:, 0], x[:, 1], x[:, 1]], 1) for x in (k, v))
        q, k = (torch.nn.functional.elu(x) + 1 for x in (q, k))
        weights = torch.einsum("bhtk,bhsk->bhts", q, k)
        seen = mask.dense(weights.shape[-2], weights.shape[-1])
        weights = weights if seen is None else weights * seen.unsqueeze(-3)
        total = weights.sum(-1, keepdim=True)
        return torch.einsum("bhts,bhsv->bhtv", weights / torch.where(total > 0, total, 1.0), v)

    masks = NO_MASK, CAUSAL, Mask(causal=True, prefix=2)

    def padded(f: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def over_masks(q: Tensor, k: Tensor, v: Tensor, present: Tensor) -> Tensor:
            there = Mask(padding=present)
            return torch.stack([f(q, k, v, mask=mask) for seen in masks for mask in (seen, seen & there)])

        return over_masks

    yield Claim(agreement(other=padded(quadratic)), padded(kernel), (*heads, mask_of("b s")), name="Linear, over masks")
    scaled = agreement(other=lambda q, k, v: quadratic(q / 3, k, v, NO_MASK))
    yield Claim(scaled, lambda q, k, v: kernel(q, k, v, scale=1 / 3), heads, name="Linear, scaled")

    def causal(x: Tensor) -> Tensor:
        return single_head(kernel, x, x, x, mask=CAUSAL)

    def step(x: Tensor, state: LinearAttentionState | None) -> tuple[Tensor, LinearAttentionState]:
        state = state or kernel.cache()
        x = x.unsqueeze(-3)
        return state.attend(x, x, x).squeeze(-3), state

    def hidden(x: Tensor, present: Tensor) -> Tensor:
        return single_head(kernel, x, x, x, mask=CAUSAL & Mask(padding=present))

    yield Claim(causality(), causal, shape("b t 3"), name="Linear, causal")
    yield Claim(cached_decoding(step=step), causal, shape("b t 3"), name="LinearAttentionState")
    yield Claim(fully_masked_row_is_finite(), hidden, (shape("b t 3"), mask_of("b t")), name="Linear, padded")

    def moderate(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return kernel(q.tanh(), k.tanh(), v)  # the features of far negative keys are 0 in any precision

    def weighed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = kernel.weights(q, k, mask=CAUSAL, scale=0.5)
        return torch.einsum("bhts,bhsv->bhtv", weights, torch.stack([v[:, n // 2] for n in range(4)], 1))

    average = agreement(other=lambda q, k, v: kernel(q, k, v, mask=CAUSAL, scale=0.5))
    yield Claim(average, weighed, heads, name="Linear.weights")
    yield Claim(between_values(), moderate, (shape("b 2 t 2"), shape("b 2 s 2"), shape("b 2 s 3")), name="Linear")
    features = agreement(other=lambda x: x.clamp_min(0) + x.clamp_max(0).exp())
    yield Claim(features, elu_features, shape("b n"))
