"""The embedding: a vector for each token."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.laws import Claim, agreement, permutation_equivariance, shape, tokens


class Embedding(nn.Embedding):
    r"""Looks up the row of a matrix that belongs to each token.

    $$y = W_{x, :} = \operatorname{onehot}(x)^\top W$$

    It is a linear layer without a bias that is asked with one-hot vectors, and takes the rows out instead of
    multiplying. The parameter `weight` is $W$, of shape (vocab, d), as in PyTorch.

    Args:
        vocab: The number of tokens.
        d: The size of a vector.

    Examples:
        >>> Embedding(65, 8)(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 8])
    """

    def __init__(self, vocab: int, d: int) -> None:
        if min(vocab, d) < 1:
            raise ValueError(f"vocab and d are at least 1: got vocab={vocab}, d={d}")
        super().__init__(vocab, d)

    # pyrefly: ignore [bad-override-param-name]
    def forward(self, x: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch d"]:
        """Looks up integers from 0 to vocab - 1."""
        if x.is_floating_point():
            raise TypeError(f"tokens are integers: got {x.dtype}")
        try:
            return F.embedding(x, self.weight)
        except IndexError:
            wanted = f"tokens from 0 to {self.num_embeddings - 1} were wanted"
            raise IndexError(f"{wanted}: got {int(x.min())} to {int(x.max())}") from None

    @classmethod
    def from_pretrained(  # pyrefly: ignore [bad-override]
        cls, weight: Float[Tensor, "vocab d"], *, freeze: bool = True
    ) -> Embedding:
        """Makes an embedding of given vectors, the very tensor, which is not trained unless `freeze` is false."""
        with torch.device("meta"):
            embedding = cls(*weight.shape)
        embedding.weight = nn.Parameter(weight, requires_grad=not freeze)
        return embedding


def claims() -> Iterator[Claim]:
    """The laws that an embedding obeys."""
    embedding = Embedding(5, 3)

    def one_hot(x: Tensor) -> Tensor:
        return torch.eye(5, dtype=embedding.weight.dtype)[x] @ embedding.weight

    yield Claim(agreement(other=one_hot), embedding, tokens("b t", vocab=5))
    yield Claim(permutation_equivariance(axis=1), embedding, tokens("b t", vocab=5))

    def given(w: Tensor) -> Tensor:
        made = Embedding.from_pretrained(w), Embedding.from_pretrained(w, freeze=False)
        trained = [e.weight.requires_grad for e in made]
        return torch.cat([made[0](torch.arange(3)).flatten(), w.new_tensor(trained)])

    expected = agreement(other=lambda w: torch.cat([w.flatten(), w.new_tensor([False, True])]))
    yield Claim(expected, given, shape("3 2"), name="from_pretrained")
