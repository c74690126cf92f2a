"""The smallest model that decoding takes: the next token depends on the last one alone."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn


class Nothing:
    """The cache of a model that remembers nothing."""

    def select(self, rows: Int[Tensor, "k"]) -> Nothing:
        """Remembers as little of these rows."""
        return self


class Bigrams(nn.Module):
    """Looks the scores of the next token up, by the last one: a Markov chain, for examples and for laws.

    Args:
        scores: A row for each token: the scores of what comes after it.

    Examples:
        >>> import torch
        >>> from lawful.inference.decoding import GREEDY, generate
        >>> after = torch.eye(5).roll(1, dims=1)
        >>> generate(Bigrams(after), [[1, 2], [4]], tokens=3, sampling=GREEDY)
        tensor([[3, 4, 0],
                [0, 1, 2]])
    """

    def __init__(self, scores: Float[Tensor, "v v"]) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, tokens: Int[Tensor, "b t"], *, cache: Nothing | None = None) -> Float[Tensor, "b t v"]:
        """The scores after each token."""
        return self.scores[tokens]

    def cache(self, padding: Bool[Tensor, "b t"] | None = None) -> Nothing:
        """A cache, which is empty and stays so."""
        return Nothing()
