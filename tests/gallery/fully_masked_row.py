"""A row without a visible key becomes NaN (pytorch#103963)."""

import torch
from torch import Tensor, nn

from lawful import mask, shape
from lawful.laws import fully_masked_row_is_finite

law = fully_masked_row_is_finite()
inputs = (shape("b t 8"), mask("b t"))
max_sizes = {"t": 1}


class Fixed(nn.Module):
    """Attends to the visible positions; without any, the weights are 0."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        weights = self.weigh(q @ k.mT / 2, ~mask[:, None, None, :])
        return self.out((weights @ v).transpose(1, 2).flatten(2))

    def weigh(self, scores: Tensor, hidden: Tensor) -> Tensor:
        """Keeps the softmax finite, then sets the weights of hidden positions to 0."""
        lowest = torch.finfo(scores.dtype).min
        return scores.masked_fill(hidden, lowest).softmax(-1).masked_fill(hidden, 0)


class Broken(Fixed):
    """Divides 0 by 0 in a row of negative infinities."""

    def weigh(self, scores: Tensor, hidden: Tensor) -> Tensor:
        return scores.masked_fill(hidden, -torch.inf).softmax(-1)
