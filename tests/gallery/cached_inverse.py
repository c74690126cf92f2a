"""A cache hides a wrong inverse: the output remembers its input (flowtorch#100)."""

import torch
from torch import Tensor, nn

from lawful import shape
from lawful.laws import invertibility

law = invertibility(inverse="inverse")
inputs = shape("b 4")
max_sizes = {"b": 1}


class Fixed(nn.Module):
    """Scales and shifts each coordinate."""

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.linspace(-1, 1, 4))
        self.shift = nn.Parameter(torch.linspace(1, 2, 4))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.log_scale.exp() + self.shift

    def inverse(self, y: Tensor) -> Tensor:
        return (y - self.shift) * (-self.log_scale).exp()


class Broken(Fixed):
    """Inverts in the wrong order, except for its own cached outputs."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        y.source = x
        return y

    def inverse(self, y: Tensor) -> Tensor:
        if hasattr(y, "source"):
            return y.source
        return y * (-self.log_scale).exp() - self.shift
