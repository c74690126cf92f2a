"""S4D as published, in plain PyTorch: the whole kernel as a sum of exponentials, then an FFT of twice the length."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class PlainS4D(nn.Module):
    """One diagonal state-space model per channel, with a zero-order hold."""

    def __init__(self, dim: int, state_dim: int, *, dt_min: float = 1e-3, dt_max: float = 1e-1) -> None:
        super().__init__()
        modes = state_dim // 2
        self.log_dt = nn.Parameter(torch.rand(dim) * math.log(dt_max / dt_min) + math.log(dt_min))
        self.c = nn.Parameter(torch.randn(dim, modes, 2) * 0.5**0.5)
        self.log_decay = nn.Parameter(torch.full((dim, modes), math.log(0.5)))
        self.frequency = nn.Parameter((math.pi * torch.arange(modes)).expand(dim, -1).clone())
        self.skip = nn.Parameter(torch.randn(dim))

    def kernel(self, length: int) -> Tensor:
        a = -self.log_decay.exp() + 1j * self.frequency
        z = a * self.log_dt.exp().unsqueeze(-1)
        c = torch.view_as_complex(self.c) * (z.exp() - 1) / a
        return 2 * torch.einsum("dn,dnt->dt", c, (z.unsqueeze(-1) * torch.arange(length)).exp()).real

    def forward(self, x: Tensor) -> Tensor:
        t = x.shape[1]
        spectrum = torch.fft.rfft(x.mT, n=2 * t) * torch.fft.rfft(self.kernel(t), n=2 * t)
        return torch.fft.irfft(spectrum, n=2 * t)[..., :t].mT + x * self.skip
