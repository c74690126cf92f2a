"""The state of a chunk of 16 tokens is read by the chunk's own tokens (nanochat#844)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful import shape
from lawful.laws import causality

law = causality(time=1)
inputs = shape("b t:1..40 4")
max_sizes = {"t": 16}


class Fixed(nn.Module):
    """Adds linear attention in chunks: token by token within a chunk, through a state from those before."""

    def __init__(self, chunk: int = 16) -> None:
        super().__init__()
        self.chunk = chunk
        self.qkv = nn.Linear(4, 12)

    def forward(self, x: Tensor) -> Tensor:
        t = x.shape[1]
        padded = F.pad(self.qkv(x), (0, 0, 0, -t % self.chunk)).unflatten(1, (-1, self.chunk))
        q, k, v = padded.chunk(3, dim=-1)
        within = (q @ k.mT).tril() @ v
        return x + (within + q @ self.before(self.complete(k.mT @ v, t))).flatten(1, 2)[:, :t]

    def complete(self, states: Tensor, t: int) -> Tensor:
        """Leaves out a chunk that has not ended."""
        ended = torch.arange(states.shape[1], device=states.device) < t // self.chunk
        return states * ended[:, None, None]

    def before(self, states: Tensor) -> Tensor:
        """Sums the states of all earlier chunks."""
        return states.cumsum(1) - states


class Broken(Fixed):
    """Includes each chunk itself in its state; an input shorter than a chunk looks right."""

    def before(self, states: Tensor) -> Tensor:
        return states.cumsum(1)
