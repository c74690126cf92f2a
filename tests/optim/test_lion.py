"""Lion against its equation."""

import torch
from torch import nn

from lawful.optim import Lion


def test_lion_matches_its_equation(dtype, tools):
    class Equation(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self):
            for p in self.param_groups[0]["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                sign = (0.9 * m + 0.1 * p.grad).sign()
                self.state[p]["m"] = 0.99 * m + 0.01 * p.grad
                p.mul_(1 - 0.01 * 0.1).sub_(0.01 * sign)

    ours, _ = tools.train_network(lambda m: Lion(m.parameters(), lr=0.01, weight_decay=0.1), dtype)
    other, _ = tools.train_network(lambda m: Equation(m.parameters(), {}), dtype)
    tools.assert_close(ours, other, dtype)


def test_the_defaults_of_lion_are_those_of_the_paper():
    x = nn.Parameter(torch.tensor([2.0, -3.0], dtype=torch.float64))
    x.square().sum().backward()
    Lion([x]).step()
    torch.testing.assert_close(x.detach(), torch.tensor([2.0 - 1e-4, -3.0 + 1e-4], dtype=torch.float64))
