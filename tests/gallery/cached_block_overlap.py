"""The cache forgets the tokens that overlapping blocks share (native-sparse-attention-pytorch#20)."""

import torch
from torch import Tensor, nn

from lawful import shape
from lawful.laws import cached_decoding

law = cached_decoding(time=1)
inputs = shape("b t 8")
max_sizes = {"t": 3}

State = tuple[Tensor, Tensor, int]


class Fixed(nn.Module):
    """Attends to summaries of the blocks that are complete, each of two tokens and one token after the last."""

    def __init__(self, block: int = 2, stride: int = 1) -> None:
        super().__init__()
        self.block, self.stride = block, stride
        self.query = nn.Linear(8, 8)
        self.summary = nn.Linear(8, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(x, self.compress(x), 0)

    def step(self, x: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Continues from the tokens that wait for their block, the summaries so far and the number of tokens."""
        waiting, summaries, seen = state or (x[:, :0], x[:, :0].repeat(1, 1, 2), 0)
        waiting = torch.cat([waiting, x], dim=1)
        new = self.compress(waiting)
        summaries = torch.cat([summaries, new], dim=1)
        return self.attend(x, summaries, seen), (self.rest(waiting, new.shape[1]), summaries, seen + x.shape[1])

    def compress(self, x: Tensor) -> Tensor:
        """Summarizes every complete block."""
        if x.shape[1] < self.block:
            return x[:, :0].repeat(1, 1, 2)
        return self.summary(x.unfold(1, self.block, self.stride).mean(-1))

    def attend(self, x: Tensor, summaries: Tensor, seen: int) -> Tensor:
        """Weighs the summaries of blocks that have ended, and nothing at all with a score of 0."""
        t, n = x.shape[1], summaries.shape[1]
        k, v = summaries.chunk(2, dim=-1)
        ends = torch.arange(n, device=x.device) * self.stride + self.block - 1
        now = torch.arange(seen, seen + t, device=x.device)
        scores = (self.query(x) @ k.mT).masked_fill(ends > now.unsqueeze(-1), -torch.inf)
        weights = torch.cat([torch.zeros_like(x[..., :1]), scores], dim=-1).softmax(-1)[..., 1:]
        return x + weights @ v

    def rest(self, waiting: Tensor, blocks: int) -> Tensor:
        """Keeps the tokens from the start of the next block on."""
        return waiting[:, blocks * self.stride :]


class Broken(Fixed):
    """Keeps only tokens that no block has used, which is right only if blocks do not overlap."""

    def rest(self, waiting: Tensor, blocks: int) -> Tensor:
        return waiting[:, (blocks - 1) * self.stride + self.block :] if blocks else waiting
