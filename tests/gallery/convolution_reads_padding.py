"""The convolution and the norm of a speech encoder read the padding (pytorch/audio#4205)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful import mask, shape
from lawful.laws import padding_invariance

law = padding_invariance(time=1)
inputs = (shape("b t 8"), mask("b t"))
max_sizes = {"t": 1}


class Fixed(nn.Module):
    """Gates, convolves each channel over time, and normalizes: the convolution module of a Conformer."""

    def __init__(self) -> None:
        super().__init__()
        self.expand = nn.Linear(8, 16)
        self.depthwise = nn.Conv1d(8, 8, kernel_size=3, padding=1, groups=8)
        self.gain = nn.Parameter(torch.ones(8))
        self.bias = nn.Parameter(torch.zeros(8))
        self.project = nn.Linear(8, 8)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        gated = self.hide(F.glu(self.expand(x), dim=-1), mask)
        return x + self.project(F.silu(self.normalize(self.depthwise(gated.mT).mT)))

    def hide(self, x: Tensor, mask: Tensor) -> Tensor:
        """Sets the padding to 0, the value of the convolution's own padding."""
        return x.masked_fill(~mask.unsqueeze(-1), 0)

    def normalize(self, x: Tensor) -> Tensor:
        """Pools over the channels of one frame."""
        return F.layer_norm(x, (8,), self.gain, self.bias)


class Broken(Fixed):
    """Ignores the mask, and normalizes over all frames."""

    def hide(self, x: Tensor, mask: Tensor) -> Tensor:
        return x

    def normalize(self, x: Tensor) -> Tensor:
        return F.group_norm(x.mT, 1, self.gain, self.bias).mT
