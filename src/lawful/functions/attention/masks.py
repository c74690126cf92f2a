"""Attention masks as data: which keys each query sees."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Mask:
    r"""Attention mask: the keys that each query sees, as the conjunction of rules.

    Queries are aligned to the last key: of $t$ queries and $s$ keys, query $i$ has position $p = s - t + i$, so that
    new queries over cached keys see the same keys as in the full pass. `a & b` combines two masks.

    Args:
        causal: Whether a query at $p$ sees only keys $j \le p$.
        window: Window $w$: only keys with $|p - j| < w$ are visible; with `causal`, the last $w$, including its own.
        prefix: Number of first keys that are visible regardless of `causal`, as in a prefix language model.
        padding: True for valid keys, False for padding.
        documents: Document id of each key; a token sees only its own document.
        pairs: Any other rule: True where a query (row) sees a key (column).

    Examples:
        >>> Mask(causal=True, window=2).dense(2, 4).int()
        tensor([[0, 1, 1, 0],
                [0, 0, 1, 1]], dtype=torch.int32)
        >>> (Mask(causal=True) & Mask(padding=torch.tensor([False, True, True]))).dense(3, 3).int()
        tensor([[0, 0, 0],
                [0, 1, 0],
                [0, 1, 1]], dtype=torch.int32)
    """

    causal: bool = False
    window: int | None = None
    prefix: int = 0
    padding: Bool[Tensor, "*#batch s"] | None = None
    documents: Int[Tensor, "*#batch s"] | None = None
    pairs: Bool[Tensor, "*#batch t s"] | None = None

    def __post_init__(self) -> None:
        for name, rule in (("padding", self.padding), ("pairs", self.pairs)):
            if rule is not None and rule.dtype != torch.bool:
                raise TypeError(f"{name} must be a bool tensor, got {rule.dtype}")
        if self.documents is not None and self.documents.is_floating_point():
            raise TypeError(f"documents must be an integer tensor, got {self.documents.dtype}")
        if self.window is not None and (self.window < 1 or self.window != int(self.window)):
            raise ValueError(f"window must be a positive integer, got {self.window}")
        if self.prefix < 0:
            raise ValueError(f"prefix must not be negative, got {self.prefix}")

    def __and__(self, other: Mask) -> Mask:
        """Returns the mask of the keys that are visible in both."""
        if not isinstance(other, Mask):
            raise TypeError(
                f"expected a Mask, got {type(other).__name__}: write Mask(padding=valid) or Mask(pairs=visible)"
            )
        windows = [w for w in (self.window, other.window) if w is not None]
        prefixes = [mask.prefix for mask in (self, other) if mask.causal]
        return Mask(
            causal=self.causal or other.causal,
            window=min(windows, default=None),
            prefix=min(prefixes, default=0),
            padding=_both(self.padding, other.padding),
            documents=_same(self.documents, other.documents),
            pairs=_both(self.pairs, other.pairs),
        )

    @property
    def is_lower_triangular(self) -> bool:
        """Whether causality is the only rule."""
        return self.causal and not self.prefix and self._has_no_other_rule

    @property
    def is_trivial(self) -> bool:
        """Whether every query sees every key."""
        return not self.causal and self._has_no_other_rule

    @property
    def _has_no_other_rule(self) -> bool:
        return self.window is None and self.padding is None and self.documents is None and self.pairs is None

    def simplify(self, t: int, s: int) -> Mask:
        """Returns the mask without the rules that hide nothing from t queries over s keys."""
        causal = self.causal and t > 1 and self.prefix < s
        window = None if self.window is None or max(t, s) <= self.window else self.window
        if causal == self.causal and window == self.window:
            return self
        if not causal and window is None and self.padding is None and self.documents is None and self.pairs is None:
            return NO_MASK
        return replace(self, causal=causal, window=window)

    def key_range(self, low: int, high: int, s: int) -> slice:
        """Returns the range of the s keys that contains all keys visible from positions low to high - 1."""
        last = min(s, max(high, self.prefix)) if self.causal else s
        first = 0
        if self.window is not None:
            first, last = max(0, low - self.window + 1), min(last, high + self.window - 1)
        first = min(first, s - 1)
        return slice(first, max(last, first + 1))

    def dense(self, t: int, s: int, device: torch.device | str | None = None) -> Bool[Tensor, "*batch {t} {s}"] | None:
        """Returns the mask of the last t queries over s keys, True where visible, or None if all keys are."""
        self.check(t, s)
        mask = self.simplify(t, s)
        visible = None if mask.is_trivial else mask.evaluate(*query_key_positions(t, s, device))
        return None if visible is None else visible.expand(*visible.shape[:-2], t, s)

    def check(self, t: int, s: int) -> None:
        """Raises ValueError if a rule has another size than t queries and s keys."""
        for name, rule in (("padding", self.padding), ("documents", self.documents), ("pairs", self.pairs)):
            if rule is not None and rule.shape[-1] != s:
                raise ValueError(f"{name} must have one entry per key: expected {s}, got {rule.shape[-1]}")
        rows = s if self.documents is not None else t if self.pairs is None else self.pairs.shape[-2]
        if t > rows:
            raise ValueError(f"the mask has rows for {rows} queries, got {t} queries")

    def evaluate(self, queries: Int[Tensor, "*blocks t"], keys: Int[Tensor, "*blocks s"]) -> Bool[Tensor, "..."] | None:
        """Returns which keys are visible from which positions, of shape (*batch, *blocks, t or 1, s)."""
        p, j = queries.unsqueeze(-1), keys.unsqueeze(-2)
        rules = []
        if self.causal:
            rules.append((j <= p) | (j < self.prefix) if self.prefix else j <= p)
        if self.window is not None:
            rules.append((j > p - self.window) & (j < p + self.window))
        if self.padding is not None:
            rules.append(self.padding[..., keys].unsqueeze(-2))
        if self.documents is not None:
            rules.append(self.documents[..., p] == self.documents[..., j])
        if self.pairs is not None:
            rows, columns = self.pairs.shape[-2:]
            rules.append(self.pairs[..., p + (rows - columns), j])
        visible = None
        for rule in rules:
            visible = _both(visible, rule)
        return visible


NO_MASK = Mask()
"""Every query sees every key."""

CAUSAL = Mask(causal=True)
"""A query sees its own key and earlier ones."""


def query_key_positions(t: int, s: int, device: torch.device | str | None = None) -> tuple[Tensor, Tensor]:
    """Returns the positions of the last t queries and of s keys."""
    return torch.arange(s - t, s, device=device), torch.arange(s, device=device)


def _both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a & b


def _same(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Returns ids that are equal where both the ids of a and the ids of b are."""
    if a is None or b is None:
        return b if a is None else a
    (_, first), (some, second) = (torch.unique(x, return_inverse=True) for x in (a, b))
    return first * len(some) + second
