"""A family of models that are trained side by side, in one loop."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.data import Batch
from lawful.objectives import cross_entropy


class Family(nn.Module):
    """Runs models side by side on the same inputs."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Float[Tensor, "b *shape"]) -> Float[Tensor, "b m classes"]:
        """The scores of every member."""
        return torch.stack([member(x) for member in self.members], dim=1)


def objective(model: nn.Module, batch: Batch) -> Tensor:
    """The sum of the losses of all members, so that each has the gradient of its own."""
    x, y = batch
    scores = model(x)
    members = scores.shape[1]
    return members * cross_entropy(scores.flatten(0, 1), y.repeat_interleave(members))


@torch.no_grad()
def wrong(model: nn.Module, x: Float[Tensor, "n *shape"], labels: Int[Tensor, " n"]) -> list[float]:
    """The share of wrong answers of every member."""
    device = next(model.parameters()).device
    answers = torch.cat([model(part.to(device)).argmax(-1) for part in x.split(2000)])
    return (answers.cpu() != labels[:, None]).double().mean(0).tolist()
