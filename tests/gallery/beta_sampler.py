"""A Beta sampler takes both of its gamma variates from one draw (pytorch#10118)."""

import torch
from torch import Tensor, nn
from torch.distributions import Gamma

from lawful.laws import samples_follow_density

law = samples_follow_density(sample="sample", log_prob="log_prob")
inputs = None
max_sizes = {}


class Fixed(nn.Module):
    """Has the density of Beta(2, 5), and samples it as a ratio of gamma variates."""

    def __init__(self) -> None:
        super().__init__()
        self.concentration = nn.Parameter(torch.tensor([2.0, 5.0]))

    def sample(self, n: int) -> Tensor:
        first, second = self.variates(n).unbind(-1)
        return first / (first + second)

    def variates(self, n: int) -> Tensor:
        """Draws a gamma variate for each concentration, independent of the other."""
        return Gamma(self.concentration, 1).sample((n,))

    def log_prob(self, x: Tensor) -> Tensor:
        a, b = self.concentration
        inside = (x > 0) & (x < 1)
        x = torch.where(inside, x, 0.5)
        log_norm = a.lgamma() + b.lgamma() - (a + b).lgamma()
        return torch.where(inside, (a - 1) * x.log() + (b - 1) * (-x).log1p() - log_norm, -torch.inf)


class Broken(Fixed):
    """Draws the second variate as the first plus another one; with equal concentrations, every sample is 0.5."""

    def variates(self, n: int) -> Tensor:
        steps = self.concentration.diff(prepend=self.concentration.new_zeros(1))
        return Gamma(steps, 1).sample((n,)).cumsum(-1)
