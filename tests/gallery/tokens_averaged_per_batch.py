"""Micro-batches with different token counts are averaged with equal weight (transformers#34191)."""

from torch import Tensor, nn
from torch.nn import functional as F

from lawful.laws import Draw, gradient_accumulation

law = gradient_accumulation(reduction="sum")
max_sizes = {"b": 2, "t": 2}


def inputs(draw: Draw) -> tuple[Tensor, ...]:
    """Sequences, the tokens to predict, which of them count, and how many sequences and tokens there are in all."""
    b, t = draw.integer(2, 4, "b"), draw.integer(1, 4, "t")
    x, there = draw.values(b, t, 8), draw.normal(b, t) > 0
    there[:, 0] = True
    return x, (draw.normal(b, t) > 0).long(), there, x.new_tensor(b), x.new_tensor(int(there.sum()))


class Fixed(nn.Module):
    """Sums the losses of the tokens, over the number of tokens of the whole batch."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(8, 2)

    def forward(self, x: Tensor, labels: Tensor, there: Tensor, sequences: Tensor, tokens: Tensor) -> Tensor:
        losses = F.cross_entropy(self.score(x).mT, labels, reduction="none")
        return self.total(losses * there, there, sequences, tokens)

    def total(self, losses: Tensor, there: Tensor, sequences: Tensor, tokens: Tensor) -> Tensor:
        return losses.sum() / tokens


class Broken(Fixed):
    """Averages over its own tokens, so that micro-batches with fewer tokens count too much."""

    def total(self, losses: Tensor, there: Tensor, sequences: Tensor, tokens: Tensor) -> Tensor:
        return losses.sum() / there.sum() * len(losses) / sequences
