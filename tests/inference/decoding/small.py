"""A decoder of a few lines, which does what decoding asks of a model: a decaying sum of the past, with a cache."""

import torch
from torch import nn


class Kept:
    def __init__(self, padding):
        self.padding, self.state, self.length = padding, None, 0

    def select(self, rows):
        made = Kept(None if self.padding is None else self.padding[rows])
        made.state, made.length = self.state[rows], self.length
        return made


class Decaying(nn.Module):
    """Scores of the next token from a state h <- h / 2 + e(token); padding is not read."""

    def __init__(self, vocab=7, d=5, context=None, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.embedding = nn.Parameter(torch.randn(vocab, d, generator=generator, dtype=torch.float64))
        self.head = nn.Parameter(torch.randn(d, vocab, generator=generator, dtype=torch.float64))
        self.context, self.calls = context, []

    def cache(self, padding=None):
        return Kept(padding)

    def forward(self, tokens, *, cache=None):
        cache = Kept(None) if cache is None else cache
        start, self.calls = cache.length, [*self.calls, tuple(tokens.shape)]
        assert self.context is None or start + tokens.shape[1] <= self.context
        state = (
            torch.zeros(len(tokens), self.embedding.shape[1], dtype=torch.float64)
            if cache.state is None
            else cache.state
        )
        states = []
        for i, column in enumerate(tokens.unbind(1), start):
            new = state / 2 + self.embedding[column]
            if cache.padding is not None and i < cache.padding.shape[1]:
                new = torch.where(cache.padding[:, i, None], new, state)
            states.append(state := new)
        cache.state, cache.length = state, start + tokens.shape[1]
        return torch.stack(states, 1).tanh() @ self.head * 3


class Counting(nn.Module):
    """After token n comes n + 1."""

    def __init__(self, vocab):
        super().__init__()
        self.vocab_size = vocab

    def cache(self, padding=None):
        return Kept(padding)

    def forward(self, tokens, *, cache=None):
        return 50.0 * nn.functional.one_hot((tokens + 1) % self.vocab_size, self.vocab_size).double()
