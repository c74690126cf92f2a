"""A flow subtracts the log-determinants of its layers on the way forward (normalizing-flows#27)."""

import torch
from torch import Tensor, nn

from lawful import shape
from lawful.laws import log_determinant

law = log_determinant(log_det=1)
inputs = shape("b 1")
max_sizes = {"b": 1}


class Layer(nn.Module):
    r"""Bends a line: $y = x + a \tanh(x)$ with $a > 0$."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.randn(()))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, t = self.a.exp(), x.tanh()
        return x + a * t, (a * (1 - t * t)).log1p().sum(-1)


class Fixed(nn.Module):
    """Chains layers, and adds up their log-determinants."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        total = torch.zeros_like(x[:, 0])
        for layer in self.layers:
            x, log_det = layer(x)
            total = self.add(total, log_det)
        return x, total

    def add(self, total: Tensor, log_det: Tensor) -> Tensor:
        return total + log_det


class Broken(Fixed):
    """Subtracts the log-determinants, as for the density of a sample."""

    def add(self, total: Tensor, log_det: Tensor) -> Tensor:
        return total - log_det
