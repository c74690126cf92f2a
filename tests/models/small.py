"""Small language models with a cache."""

import torch
from torch import nn


class StateCache:
    def __init__(self, padding):
        self.padding, self.state, self.length = padding, None, 0

    def select(self, rows):
        made = StateCache(None if self.padding is None else self.padding[rows])
        made.state, made.length = self.state[rows], self.length
        return made


class Decaying(nn.Module):
    """Scores of the next token from a state h <- h / 2 + e(token); padding is not read."""

    def __init__(self, vocab_size=7, d=5, context_length=None, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.embedding = nn.Parameter(torch.randn(vocab_size, d, generator=generator, dtype=torch.float64))
        self.head = nn.Parameter(torch.randn(d, vocab_size, generator=generator, dtype=torch.float64))
        self.context_length, self.calls = context_length, []

    def cache(self, padding=None):
        return StateCache(padding)

    def forward(self, tokens, *, cache=None):
        cache = StateCache(None) if cache is None else cache
        start, self.calls = cache.length, [*self.calls, tuple(tokens.shape)]
        assert self.context_length is None or start + tokens.shape[1] <= self.context_length
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

    def __init__(self, vocab_size):
        super().__init__()
        self.vocab_size = vocab_size

    def cache(self, padding=None):
        return StateCache(padding)

    def forward(self, tokens, *, cache=None):
        return 50.0 * nn.functional.one_hot((tokens + 1) % self.vocab_size, self.vocab_size).double()


class EmptyCache:
    def select(self, rows):
        return self


class Bigrams(nn.Module):
    """A Markov chain: the logits of the next token depend on the last one."""

    def __init__(self, logits):
        super().__init__()
        self.logits = logits

    def forward(self, tokens, *, cache=None):
        return self.logits[tokens]

    def cache(self, padding=None):
        return EmptyCache()
