"""The exponential map of rotations has no second derivative at 0 (roma, e3nn, relie)."""

import torch
from torch import Tensor, nn

from lawful.laws import Draw, second_order_gradient

law = second_order_gradient()
max_sizes = {"b": 1}


def inputs(draw: Draw) -> Tensor:
    """Rotation vectors including 0, where optimization often starts."""
    return draw.normal(draw.integer(1, 3, "b"), 3) * draw.integer(0, 1)


class Fixed(nn.Module):
    r"""Rotation matrix of a vector $v$: $R = 1 + \frac{\sin\theta}{\theta} K + \frac{1-\cos\theta}{\theta^2} K^2$."""

    def forward(self, v: Tensor) -> Tensor:
        zero = torch.zeros_like(v[..., 0])
        x, y, z = v.unbind(-1)
        k = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], dim=-1).unflatten(-1, (3, 3))
        half = self.sinc(v / 2)[..., None, None]
        return torch.eye(3, dtype=v.dtype, device=v.device) + self.sinc(v)[..., None, None] * k + half**2 * k @ k / 2

    def sinc(self, v: Tensor) -> Tensor:
        """The sine of the length of a vector over its length, as a function of the square."""
        square = v.square().sum(-1)
        small = square < 1e-2
        length = torch.where(small, 1.0, square).sqrt()
        series = torch.ones_like(square)
        for n in (6, 5, 4, 3, 2, 1):
            series = 1 - square * series / (2 * n * (2 * n + 1))
        return torch.where(small, series, length.sin() / length)


class Broken(Fixed):
    """Uses the length, which has a kink at 0: value and gradient are right, the second derivative is not."""

    def sinc(self, v: Tensor) -> Tensor:
        return torch.sinc(v.norm(dim=-1) / torch.pi)
