"""What a language model has to beat: counting which token comes after which."""

from __future__ import annotations

import math

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

MOST, PART = 2**22, 2**18
"""The tokens that are counted, and those that are predicted, at most; and of the latter, at a time."""


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
        runs = runs_of(train, n, vocab)
        runs.numpy().sort()  # in place, without the places that torch.sort would give as well
        runs, times = runs.unique_consecutive(return_counts=True)
        heads, kinds = (runs // vocab).unique_consecutive(return_counts=True)
        totals = times.cumsum(0)[kinds.cumsum(0) - 1].diff(prepend=times.new_zeros(1))
        for first in range(max(n - 2, 0), len(p), PART):  # those with fewer tokens before keep what shorter runs say
            shorter = p[first : first + PART]
            asked = runs_of(test[first + 2 - n : first + 1 + len(shorter)], n, vocab)
            seen, before = looked_up(asked, runs, times), asked // vocab
            total, kind = looked_up(before, heads, totals), looked_up(before, heads, kinds)
            shorter.copy_(torch.where(total > 0, (seen + kind * shorter) / (total + kind).clamp_min(1), shorter))
        found.append(float(-p.log().mean()))
    return found


def runs_of(tokens: Int[Tensor, " n"], length: int, vocab: int) -> Int[Tensor, " m"]:
    """The number of each run of tokens, the first digit being the oldest token."""
    m = max(len(tokens) - length + 1, 0)
    found = tokens[:m].clone()
    for i in range(1, length):
        found.mul_(vocab).add_(tokens[i : i + m])
    return found


def looked_up(keys: Int[Tensor, " n"], known: Int[Tensor, " k"], values: Int[Tensor, " k"]) -> Int[Tensor, " n"]:
    """The values of keys, 0 for those that are not known; these are in order."""
    if not len(known):
        return values.new_zeros(len(keys))
    place = torch.searchsorted(known, keys).clamp_max(len(known) - 1)
    return torch.where(known[place] == keys, values[place], 0)


def bits(nats: float) -> float:
    """Nats as bits."""
    return nats / math.log(2)
