"""The gradient of the energy is used as the score, with the wrong sign (torchebm#318)."""

import torch
from torch import Tensor, nn

from lawful import shape
from lawful.laws import score

law = score()
inputs = shape("b 1")
max_sizes = {"b": 1}


class Fixed(nn.Module):
    """An energy-based model: the log-density is the negative energy up to a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 16), nn.SiLU(), nn.Linear(16, 1))

    def energy(self, x: Tensor) -> Tensor:
        return x.square().sum(-1) / 2 + self.net(x).squeeze(-1)

    def log_prob(self, x: Tensor) -> Tensor:
        return -self.energy(x)

    def score(self, x: Tensor) -> Tensor:
        """Returns the score, for denoising score matching."""
        return -self.slope(x)

    def slope(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)[0]


class Broken(Fixed):
    """Forgets the sign; training then lowers the energy away from the data."""

    def score(self, x: Tensor) -> Tensor:
        return self.slope(x)
