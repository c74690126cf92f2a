"""A NaN that is replaced after the softmax is still in its gradient (pytorch#131254, pytorch#41508)."""

import torch
from torch import Tensor, nn

from lawful import mask, shape
from lawful.laws import fully_masked_row_is_finite

law = fully_masked_row_is_finite()
inputs = (shape("b t 8"), mask("b t"))
max_sizes = {"t": 1}


class Fixed(nn.Module):
    """Pools a sequence by attention over its visible positions; an empty one pools to 0."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(8, 1)
        self.value = nn.Linear(8, 8)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        weights = self.weigh(self.score(x), ~mask.unsqueeze(-1))
        return (weights * self.value(x)).sum(1)

    def weigh(self, scores: Tensor, hidden: Tensor) -> Tensor:
        """Replaces before the softmax, and clears after it."""
        lowest = torch.finfo(scores.dtype).min
        return scores.masked_fill(hidden, lowest).softmax(1).masked_fill(hidden, 0)


class Broken(Fixed):
    """Replaces after the softmax: the value is finite, and the gradient is 0 * NaN."""

    def weigh(self, scores: Tensor, hidden: Tensor) -> Tensor:
        bias = torch.zeros_like(scores).masked_fill(hidden, -torch.inf)
        return (scores + bias).softmax(1).nan_to_num(0)
