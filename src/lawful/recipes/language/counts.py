"""What a language model has to beat: counting which token comes after which."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

MOST = 2**22
"""The tokens that are counted, and those that are predicted, at most."""


def counted(train: Shaped[Tensor, " n"], test: Shaped[Tensor, " m"], *, vocab: int, orders: int) -> list[float]:
    r"""Measures the surprise, in nats a token, of predicting by counts of runs of 1, 2, ... tokens.

    $$p_n(x \mid h) = \frac{c(h x) + |h \cdot| \, p_{n-1}(x \mid h')}{c(h) + |h \cdot|}, \qquad p_0 = \frac{1}{V}$$

    $c$ counts runs in the training text, $h$ is the $n - 1$ tokens before $x$, $h'$ the last $n - 2$ of them, and
    $|h \cdot|$ is how many different tokens came after $h$. Where $h$ was never seen, $p_n = p_{n-1}$.

    Reference:
        Witten and Bell, *The Zero-Frequency Problem*, 1991.

    Args:
        train: The tokens that are counted.
        test: The tokens that are predicted, all but the first.
        vocab: $V$, the number of tokens.
        orders: The longest run, as far as its number fits 63 bits.

    Examples:
        >>> ids = torch.tensor([0, 1] * 500)
        >>> [round(nats, 2) for nats in counted(ids, ids, vocab=2, orders=2)]
        [0.69, 0.0]
    """
    train, test = train[:MOST].long(), test[:MOST].long()
    p = torch.full((len(test) - 1,), 1 / vocab, dtype=torch.float64)
    found = []
    for n in range(1, orders + 1):
        if vocab**n >= 2**63:
            break
        runs, times = runs_of(train, n, vocab).unique(return_counts=True)
        heads, which = (runs // vocab).unique(return_inverse=True)
        totals = torch.zeros(len(heads), dtype=torch.float64).index_add_(0, which, times.double())
        kinds = which.bincount(minlength=len(heads)).double()
        short = max(n - 2, 0)  # so many tokens have too few before them, and keep what shorter runs say
        asked = runs_of(test, n, vocab)[max(2 - n, 0) :]
        seen, total, kind = (
            looked_up(asked, runs, times.double()),
            looked_up(asked // vocab, heads, totals),
            looked_up(asked // vocab, heads, kinds),
        )
        shorter = p[short:]
        mixed = torch.where(total > 0, (seen + kind * shorter) / (total + kind).clamp_min(1), shorter)
        p = torch.cat([p[:short], mixed])
        found.append(float(-p.log().mean()))
    return found


def runs_of(tokens: Int[Tensor, " n"], length: int, vocab: int) -> Int[Tensor, " m"]:
    """The number of each run of tokens, the first digit being the oldest token."""
    m = len(tokens) - length + 1
    if m < 1:
        return tokens[:0]
    return sum((tokens[i : i + m] * vocab ** (length - 1 - i) for i in range(length)), tokens.new_zeros(m))


def looked_up(keys: Int[Tensor, " n"], known: Int[Tensor, " k"], values: Float[Tensor, " k"]) -> Float[Tensor, " n"]:
    """The values of keys, 0 for those that are not known; these are in order."""
    if not len(known):
        return values.new_zeros(len(keys))
    place = torch.searchsorted(known, keys).clamp_max(len(known) - 1)
    return torch.where(known[place] == keys, values[place], 0.0)


def bits(nats: float) -> float:
    """Nats as bits."""
    return nats / math.log(2)
