"""The backward pass of a softmax overwrites the incoming gradient (apex#1430)."""

from typing import Any

import torch
from torch import Tensor, nn

from lawful import shape
from lawful.laws import gradient

law = gradient()
inputs = shape("b 4")
max_sizes = {"b": 1}


class Softmax(torch.autograd.Function):
    """A softmax with a custom backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, in_place: bool) -> Tensor:
        y = x.softmax(-1)
        ctx.save_for_backward(y)
        ctx.in_place = in_place
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (y,) = ctx.saved_tensors
        result = y * (gradient - (y * gradient).sum(-1, keepdim=True))
        return gradient.copy_(result) if ctx.in_place else result, None


class Fixed(nn.Module):
    """Adds a softmax to its own input, between two linear maps."""

    in_place = False

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.last = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.last(x + Softmax.apply(x, self.in_place))


class Broken(Fixed):
    """Overwrites the incoming gradient, which the other summand also receives."""

    in_place = True
