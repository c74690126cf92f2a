"""Group normalization pools over time in a "causal" stack (asteroid#503, magvit2-pytorch#41)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful import shape
from lawful.laws import causality

law = causality(time=2)
inputs = shape("b 4 t")
max_sizes = {"t": 2}


class Fixed(nn.Module):
    """Convolves the past, padded on the left only, and normalizes every frame by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 4, kernel_size=3)
        self.gain = nn.Parameter(torch.ones(4))
        self.bias = nn.Parameter(torch.zeros(4))
        self.act = nn.PReLU()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.act(self.normalize(self.conv(F.pad(x, (2, 0)))))

    def normalize(self, x: Tensor) -> Tensor:
        """Pools over the channels."""
        return F.layer_norm(x.mT, (4,), self.gain, self.bias).mT


class Broken(Fixed):
    """Normalizes over the channels and all frames, including future ones."""

    def normalize(self, x: Tensor) -> Tensor:
        return F.group_norm(x, 1, self.gain, self.bias)
