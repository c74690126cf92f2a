"""The recurrent step of a state space model differs from its parallel pass (mamba#1024)."""

import torch
from torch import Tensor, nn

from lawful import shape
from lawful.laws import recurrence

law = recurrence(time=1)
inputs = shape("b t 4")
max_sizes = {"t": 1}

State = tuple[Tensor, Tensor]


class Fixed(nn.Module):
    r"""Runs the recurrence $h_t = a h_{t-1} + a b_{t-1} / 2 + b_t / 2$, a trapezoidal rule, for $b_t = B x_t$."""

    def __init__(self) -> None:
        super().__init__()
        self.decay = nn.Parameter(torch.randn(4))
        self.b = nn.Linear(4, 4, bias=False)
        self.c = nn.Linear(4, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        t = torch.arange(x.shape[1], device=x.device)
        age = (t.unsqueeze(-1) - t).unsqueeze(-1)
        a = self.decay.sigmoid()
        kernel = torch.where(age > 0, a ** age.clamp_min(0), torch.where(age == 0, 0.5, 0.0))
        return self.c(torch.einsum("tsd,bsd->btd", kernel, self.b(x)))

    def step(self, x: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Advances by a position, from the hidden state and the last input to it."""
        h, last = state if state is not None else (torch.zeros_like(x), torch.zeros_like(x))
        a = self.decay.sigmoid()
        now, last = self.shift(self.b(x), last)
        h = a * h + a * last / 2 + now / 2
        return self.c(h), (h, now)

    def shift(self, now: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the input to the state, and the one before."""
        return now, last


class Broken(Fixed):
    """Overwrites the old input before reading it."""

    def shift(self, now: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        return now, last.copy_(now)
