"""The layer returns features and coordinates in swapped order (egnn-pytorch#10)."""

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
    """Rotates the coordinates, which are the first three columns."""
    return torch.cat([x[..., :3] @ g.to(x).mT, x[..., 3:]], dim=-1)


law = equivariance(sample=rotation, act=rotate, act_out=rotate)
inputs = shape("b n 6")
max_sizes = {"n": 1}


class Layer(nn.Module):
    """Moves every node along the lines to the others, and updates its three features."""

    def __init__(self) -> None:
        super().__init__()
        self.message = nn.Sequential(nn.Linear(7, 16), nn.SiLU())
        self.pull = nn.Linear(16, 1)
        self.update = nn.Sequential(nn.Linear(19, 16), nn.SiLU(), nn.Linear(16, 3))

    def forward(self, coordinates: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        lines = coordinates.unsqueeze(2) - coordinates.unsqueeze(1)
        nearness = 1 / (1 + lines.square().sum(-1, keepdim=True))
        pairs = features.unsqueeze(2).expand(*lines.shape), features.unsqueeze(1).expand(*lines.shape)
        messages = self.message(torch.cat([*pairs, nearness], dim=-1))
        coordinates = coordinates + (lines * nearness * self.pull(messages)).mean(2)
        return coordinates, features + self.update(torch.cat([features, messages.mean(2)], dim=-1))


class Fixed(nn.Module):
    """Stacks two layers that take and return one tensor: coordinates, then features."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.join(*layer(x[..., :3], x[..., 3:]))
        return x

    def join(self, coordinates: Tensor, features: Tensor) -> Tensor:
        return torch.cat([coordinates, features], dim=-1)


class Broken(Fixed):
    """Swaps the two; the second layer swaps again, so that the shapes look right."""

    def join(self, coordinates: Tensor, features: Tensor) -> Tensor:
        return torch.cat([features, coordinates], dim=-1)
