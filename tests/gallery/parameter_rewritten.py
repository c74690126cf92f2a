"""An input longer than the kernel rewrites a parameter in place (state-spaces/s4)."""

import torch
from torch import Tensor, nn

from lawful import shape
from lawful.laws import no_parameter_change

law = no_parameter_change()
inputs = shape("b t 4")
max_sizes = {"t": 5}


class Fixed(nn.Module):
    r"""Convolves with the kernel $K_l = \sum_n c_n a_n^l$ of a diagonal state space, found from its spectrum.

    The parameter is $\tilde c_n = c_n (1 - a_n^L)$ for the kernel's length $L$, so that the spectrum of the
    truncated kernel is $\sum_n \tilde c_n / (1 - a_n \omega)$. A doubled length multiplies it by $1 + a_n^L$.
    """

    def __init__(self, length: int = 4) -> None:
        super().__init__()
        self.length = length
        self.decay = nn.Parameter(torch.randn(4, 3))
        self.c = nn.Parameter(torch.randn(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        t = x.shape[1]
        a = self.decay.sigmoid()
        c, length = self.lengthen(a, t)
        omega = torch.exp(-2j * torch.pi * torch.arange(length // 2 + 1, device=x.device).to(x) / length)
        spectrum = (c.unsqueeze(-1) / (1 - a.unsqueeze(-1) * omega)).sum(1)
        kernel = torch.fft.irfft(spectrum, n=length).mT[:t]
        y = torch.fft.rfft(x, n=2 * t, dim=1) * torch.fft.rfft(kernel, n=2 * t, dim=0)
        return torch.fft.irfft(y, n=2 * t, dim=1)[:, :t]

    def lengthen(self, a: Tensor, t: int) -> tuple[Tensor, int]:
        """Doubles the length until it covers the input."""
        c, length = self.c, self.length
        while length < t:
            c, length = c * (1 + a**length), 2 * length
        return c, length


class Broken(Fixed):
    """Rescales the parameter in place, but the next call assumes the original length."""

    def lengthen(self, a: Tensor, t: int) -> tuple[Tensor, int]:
        length = self.length
        while length < t:
            self.c.data *= 1 + a.detach() ** length
            length = 2 * length
        return self.c, length
