"""The mean of a block of 64 tokens reaches the block's first token (nanochat#844)."""

from torch import Tensor, nn
from torch.nn import functional as F

from lawful import shape
from lawful.laws import causality

law = causality(time=1)
inputs = shape("b t:1..96 8")
max_sizes = {"t": 64}


class Fixed(nn.Module):
    """Adds to every token a summary of the last block that was complete before its own block began."""

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
        """Hands each block's summary to the block that follows."""
        return F.pad(summaries, (0, 0, self.block, 0))[:, :t]


class Broken(Fixed):
    """Hands each block's summary to the block itself; a shorter input has no block, and looks right."""

    def spread(self, summaries: Tensor, t: int) -> Tensor:
        return F.pad(summaries, (0, 0, 0, t - summaries.shape[1]))
