"""A guard near the poles breaks equivariance for some graphs only (se3-transformer-public#3)."""

import torch
from torch import Tensor, nn

from lawful import shape
from lawful.laws import Draw, equivariance


def rotation(draw: Draw) -> Tensor:
    """A rotation of space."""
    q, r = torch.linalg.qr(draw.normal(3, 3).double())
    q = q * torch.where(r.diagonal() < 0, -1, 1)
    return q * q.det().sign()


def rotate(g: Tensor, x: Tensor) -> Tensor:
    """Rotates points, or vectors."""
    return x @ g.to(x).mT


law = equivariance(sample=rotation, act=rotate, act_out=rotate)
inputs = shape("b n 3")
max_sizes = {"n": 4}


class Fixed(nn.Module):
    """Gives every point a vector: the directions to the others, weighed by a function of the distance."""

    def __init__(self) -> None:
        super().__init__()
        self.radial = nn.Sequential(nn.Linear(1, 16), nn.SiLU(), nn.Linear(16, 1))

    def forward(self, x: Tensor) -> Tensor:
        lines = x.unsqueeze(1) - x.unsqueeze(2)
        length = (1 + lines.square().sum(-1, keepdim=True)).sqrt()
        return (self.radial(1 / length) * self.direction(lines / length)).mean(2)

    def direction(self, u: Tensor) -> Tensor:
        """Returns the direction unchanged."""
        return u


class Broken(Fixed):
    """Replaces directions within 12 degrees of the z axis by the axis, where the azimuth is ill-conditioned."""

    def direction(self, u: Tensor) -> Tensor:
        xy, z = u[..., :2], u[..., 2:]
        near_pole = xy.square().sum(-1, keepdim=True) < 0.2**2 * u.square().sum(-1, keepdim=True)
        return torch.cat([xy.masked_fill(near_pole, 0), z], dim=-1)
