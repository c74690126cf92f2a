"""A sampler reads strided probabilities as contiguous ones (pytorch#5062)."""

import torch
from torch import Tensor, nn

from lawful import probabilities, shape
from lawful.laws import layout_independence

law = layout_independence()
inputs = (probabilities("b 3"), shape("b"))
max_sizes = {"b": 1}


class Fixed(nn.Module):
    """Draws a category: the first whose cumulated probability is above a uniform number."""

    def forward(self, p: Tensor, noise: Tensor) -> Tensor:
        u = noise.sigmoid().unsqueeze(-1)
        return (self.read(p).cumsum(-1)[..., :-1] <= u).sum(-1)

    def read(self, p: Tensor) -> Tensor:
        return p


class Broken(Fixed):
    """Resizes in place, which keeps the values only if they are contiguous."""

    def read(self, p: Tensor) -> Tensor:
        strides = torch.empty(p.shape, device="meta").stride()
        return p.as_strided(p.shape, strides)
