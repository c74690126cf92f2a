"""The mean of a block of 64 tokens reaches the block's first token (nanochat#844)."""

from torch import Tensor, nn
from torch.nn import functional as F

from lawful import shape
from lawful.laws import causality

law = causality(time=1)
inputs = shape("b t:1..96 8")
max_sizes = {"t": 64}


class Fixed(nn.Module):
    """Adds the mean of the previous block to every token."""

    def __init__(self, block: int = 64) -> None:
        super().__init__()
        self.block = block
        self.summary = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        n = t // self.block
        means = x[:, : n * self.block].reshape(b, n, self.block, d).mean(2)
        return x + self.spread(self.summary(means).repeat_interleave(self.block, dim=1), t)

    def spread(self, summaries: Tensor, t: int) -> Tensor:
        """Passes each block's mean to the next block."""
        return F.pad(summaries, (0, 0, self.block, 0))[:, :t]


class Broken(Fixed):
    """Adds each block's mean to the block itself; an input shorter than a block looks right."""

    def spread(self, summaries: Tensor, t: int) -> Tensor:
        return F.pad(summaries, (0, 0, 0, t - summaries.shape[1]))
