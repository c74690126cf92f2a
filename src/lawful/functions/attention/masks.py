"""Masks: who sees whom, as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lawful.laws import Claim, agreement, mask, shape, tokens


@dataclass(frozen=True, kw_only=True, eq=False)
class Mask:
    r"""Says which keys each query sees: all those that every one of its rules lets through.

    The last query stands at the last key: of $t$ queries and $s$ keys, query $i$ is at $p = s - t + i$, so that a few
    new queries over many cached keys see what they would see in the full pass. Two masks combine by `&`.

    Args:
        causal: Whether $p$ sees only keys $j \le p$.
        window: $w$: only keys with $|p - j| < w$ are seen; with `causal`, the last $w$, its own among them.
        prefix: The first keys, so many of them, are seen whatever `causal` says, as in a prefix language model.
        padding: True at the keys that are there.
        documents: The number of the document of each key; a token sees those of its own.
        pairs: Any other rule: True where a query, one a row, sees a key.

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
                raise TypeError(f"{name} is to be True or False, a tensor of bool: got {rule.dtype}")
        if self.documents is not None and self.documents.is_floating_point():
            raise TypeError(f"documents are numbered by whole numbers: got {self.documents.dtype}")
        if self.window is not None and (self.window < 1 or self.window != int(self.window)):
            raise ValueError(f"window must be a whole number, at least 1: got {self.window}")
        if self.prefix < 0:
            raise ValueError(f"prefix must be at least 0: got {self.prefix}")

    def __and__(self, other: Mask) -> Mask:
        """The mask that sees what both see."""
        if not isinstance(other, Mask):
            raise TypeError(f"a Mask was wanted, such as Mask(padding=there): got {type(other).__name__}")
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
    def is_triangle(self) -> bool:
        """Whether that it is causal is its only rule."""
        return self.causal and not self.prefix and self._says_no_more

    @property
    def is_everything(self) -> bool:
        """Whether it hides nothing."""
        return not self.causal and self._says_no_more

    @property
    def _says_no_more(self) -> bool:
        return self.window is None and self.padding is None and self.documents is None and self.pairs is None

    def reduced(self, t: int, s: int) -> Mask:
        """Leaves out what hides nothing from t queries over s keys."""
        causal = self.causal and t > 1 and self.prefix < s
        window = None if self.window is None or max(t, s) <= self.window else self.window
        if causal == self.causal and window == self.window:
            return self
        if not causal and window is None and self.padding is None and self.documents is None and self.pairs is None:
            return NO_MASK
        return replace(self, causal=causal, window=window)

    def reach(self, low: int, high: int, s: int) -> slice:
        """Returns the stretch of s keys outside which queries at positions from low to before high see none."""
        last = min(s, max(high, self.prefix)) if self.causal else s
        first = 0
        if self.window is not None:
            first, last = max(0, low - self.window + 1), min(last, high + self.window - 1)
        first = min(first, s - 1)
        return slice(first, max(last, first + 1))

    def dense(self, t: int, s: int, device: torch.device | str | None = None) -> Bool[Tensor, "*batch {t} {s}"] | None:
        """Returns the mask of the last t queries over s keys, True where seen, or None where everything is."""
        self.check(t, s)
        mask = self.reduced(t, s)
        seen = None if mask.is_everything else mask.between(*positions(t, s, device))
        return None if seen is None else seen.expand(*seen.shape[:-2], t, s)

    def check(self, t: int, s: int) -> None:
        """Says whether the mask was made for so many queries and keys."""
        for name, rule in (("padding", self.padding), ("documents", self.documents), ("pairs", self.pairs)):
            if rule is not None and rule.shape[-1] != s:
                raise ValueError(f"{name} must have one entry for each of the {s} keys: got {rule.shape[-1]}")
        rows = s if self.documents is not None else t if self.pairs is None else self.pairs.shape[-2]
        if t > rows:
            raise ValueError(f"the mask has rows for {rows} queries: got {t}")

    def between(self, queries: Int[Tensor, "*blocks t"], keys: Int[Tensor, "*blocks s"]) -> Bool[Tensor, "..."] | None:
        """Returns which of some keys are seen from some positions, of shape (*batch, *blocks, t or 1, s)."""
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
        seen = None
        for rule in rules:
            seen = _both(seen, rule)
        return seen


NO_MASK = Mask()
CAUSAL = Mask(causal=True)


def positions(t: int, s: int, device: torch.device | str | None = None) -> tuple[Tensor, Tensor]:
    """The positions of the last t queries, and of s keys."""
    return torch.arange(s - t, s, device=device), torch.arange(s, device=device)


def _both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a & b


def _same(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Numbers that are equal where those of a and those of b are."""
    if a is None or b is None:
        return b if a is None else a
    (_, first), (some, second) = (torch.unique(x, return_inverse=True) for x in (a, b))
    return first * len(some) + second


def claims() -> Iterator[Claim]:
    """The laws that masks obey."""

    def one_by_one(padding: Tensor, documents: Tensor, t: int, causal: bool = True) -> Tensor:
        b, s = padding.shape
        seen = padding.new_zeros(b, t, s)
        for n in range(b):
            for i in range(t):
                for j in range(s):
                    p = s - t + i
                    early = not causal or j <= p or j < 2
                    seen[n, i, j] = early and abs(p - j) <= 2 and padding[n, j] and documents[n, p] == documents[n, j]
        return seen.double()

    def made(padding: Tensor, documents: Tensor, t: int, causal: bool = True) -> Tensor:
        whole = Mask(causal=causal, window=3, prefix=2, padding=padding, documents=documents)
        return _numbers(whole, t, padding.shape[-1])

    for causal in (True, False):
        for less in (0, 1):

            def dense(p: Tensor, d: Tensor, less: int = less, causal: bool = causal) -> Tensor:
                return made(p, d, max(p.shape[-1] - less, 1), causal)

            def listed(p: Tensor, d: Tensor, less: int = less, causal: bool = causal) -> Tensor:
                return one_by_one(p, d, max(p.shape[-1] - less, 1), causal)

            inputs = mask("b:1..2 s:1..5"), tokens("b:1..2 s:1..5", vocab_size=2)
            yield Claim(agreement(other=listed), dense, inputs, name=f"Mask({causal=}), {less} fewer queries")

    def rules(p: Tensor, d: Tensor) -> list[Mask]:
        pairs = p.unsqueeze(-1) | d.bool().unsqueeze(-2)
        one = Mask(causal=True, prefix=3, padding=p, documents=d)
        return [one, Mask(window=2, prefix=1), Mask(causal=True, prefix=1, documents=p.long(), pairs=pairs), CAUSAL]

    def combined(p: Tensor, d: Tensor) -> Tensor:
        s = p.shape[-1]
        return torch.stack([_numbers(a & b, s, s).expand(len(p), s, s) for a in rules(p, d) for b in rules(p, d)])

    def each(p: Tensor, d: Tensor) -> Tensor:
        s = p.shape[-1]
        found = [_numbers(a, s, s).expand(len(p), s, s) for a in rules(p, d)]
        return torch.stack([a * b for a in found for b in found])

    inputs = mask("b s:1..5"), tokens("b s:1..5", vocab_size=3)
    yield Claim(agreement(other=each), combined, inputs, name="(a & b)")

    def out_of_reach(p: Tensor, d: Tensor) -> Tensor:
        found = []
        for a in rules(p, d):
            s = p.shape[-1]
            seen = _numbers(a, s, s).expand(len(p), s, s).clone()
            for i in range(s):
                seen[:, i, a.reach(i, i + 1, s)] = 0
            found.append(seen)
        return torch.stack(found)

    def kinds(x: Tensor) -> Tensor:
        t, s = x.shape
        padded = Mask(causal=True, padding=torch.ones(t + s, dtype=torch.bool))
        masks = [Mask(causal=c, window=w, prefix=n) for c in (True, False) for w in (None, 2, 4) for n in (0, 2, 4)]
        found = [[mask.dense(t, t + s) is None, mask.is_triangle, mask.is_everything] for mask in (*masks, padded)]
        return torch.tensor(found).double()

    def counted(x: Tensor) -> Tensor:
        t, s = x.shape
        found = []
        for causal in (True, False):
            for window in (None, 2, 4):
                for prefix in (0, 2, 4):
                    whole = all(
                        (not causal or j <= p or j < prefix) and (window is None or abs(p - j) < window)
                        for p in range(s, t + s)
                        for j in range(t + s)
                    )
                    found.append([whole, causal and window is None and not prefix, not causal and window is None])
        return torch.tensor([*found, [False, False, False]]).double()

    yield Claim(agreement(other=counted), kinds, shape("t:1..3 s:1..3"), name="Mask, what hides nothing")

    def last_rows(p: Tensor) -> Tensor:
        t, wide = max(p.shape[-2] - 1, 1), torch.cat([p, p], dim=-1)
        below, s = _numbers(CAUSAL, t, t).expand(len(p), t, t), wide.shape[-1]
        alone = _numbers(Mask(causal=True, pairs=wide), 1, s).expand(-1, t, -1)
        return torch.cat([_numbers(Mask(pairs=wide), t, s), below, alone], -1)

    def rows_of(p: Tensor) -> Tensor:
        t = max(p.shape[-2] - 1, 1)
        below = torch.tensor([[float(j <= i) for j in range(t)] for i in range(t)], dtype=torch.float64)
        wide = torch.cat([p, p], -1).double()
        return torch.cat([wide[:, -t:], below.expand(len(p), t, t), wide[:, -1:].expand(-1, t, -1)], -1)

    yield Claim(agreement(other=rows_of), last_rows, mask("b t:1..4 s:2..4"), name="Mask(pairs), the last rows")

    nothing = agreement(other=lambda p, d: p.new_zeros(4, *p.shape, p.shape[-1]).double())
    yield Claim(nothing, out_of_reach, inputs, name="reach")


def _numbers(mask: Mask, t: int, s: int) -> Tensor:
    """The mask as numbers, 1 where a key is seen."""
    seen = mask.dense(t, s)
    return torch.ones(t, s, dtype=torch.float64) if seen is None else seen.double()
