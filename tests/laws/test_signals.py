"""Laws of filters, each with a map that satisfies it and one that breaks it."""

import torch
from torch import nn
from torch.nn import functional as F

from lawful.blocks import S4D, SelectiveStateSpace
from lawful.laws import resampling, shape, time_invariance

X = shape("b t 2")


class Exponential(nn.Module):
    """An exponential moving average in continuous time, sampled with step `rate`."""

    def __init__(self, ignore_rate=False):
        super().__init__()
        self.ignore_rate = ignore_rate

    def forward(self, x, rate=1.0):
        decay = torch.exp(torch.tensor(-0.02 * (1.0 if self.ignore_rate else rate), dtype=x.dtype))
        state, outputs, before = torch.zeros_like(x[:, 0]), [], x[:, 0]
        for now in x.unbind(1):  # the mean of both ends approximates the signal between two samples
            state = decay * state + (1 - decay) * (now + before) / 2
            before = now
            outputs.append(state)
        return torch.stack(outputs, 1)


def causal_convolution(x):
    return F.conv1d(F.pad(x.mT, (2, 0)), torch.tensor([[[1.0, 2.0, 3.0]]] * 2).to(x), groups=2).mT


def with_positions(x):
    return x * (1 + torch.arange(x.shape[1]).to(x)).unsqueeze(-1)


SATISFIED = {
    "time: a causal convolution": (time_invariance(), X, causal_convolution),
    "time: a state-space model": (time_invariance(), X, S4D(2, state_dim=4)),
    "rate: an average over time": (resampling(bound=0.05), shape("b 4 2"), Exponential()),
    "rate: a state-space model": (resampling(), shape("b 4 2"), S4D(2, state_dim=4)),
}
BROKEN = {
    "time: positions": (time_invariance(), X, with_positions),
    "time: a sum with a bias": (time_invariance(), X, lambda x: (x + 1).cumsum(1)),
    "time: a selective layer": (time_invariance(), X, SelectiveStateSpace(2, state_dim=2)),
    "rate: ignored": (resampling(bound=0.05), shape("b 4 2"), Exponential(ignore_rate=True)),
    "rate: a sum over samples": (resampling(bound=0.05), shape("b 4 2"), lambda x, rate=1.0: x.cumsum(1)),
}
