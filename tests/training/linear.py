"""A tiny training: a linear layer, or an ensemble of two."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import nn

from lawful.data.batches import ShuffledBatches
from lawful.training import OptimizerStep, Recipe, TrainerConfig, TrainingSetup

TRAINER = TrainerConfig(threads=1, checkpoint_every=2, law_cases=0)


def make_setup(steps=4, lr=0.1, optimizer=torch.optim.SGD, batch_size=4):
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    step = OptimizerStep(
        loss_fn=lambda m, b: (m(b[0]) - 1).square().mean(), optimizer=optimizer(model.parameters(), lr=lr)
    )
    batches = ShuffledBatches(torch.randn(8, 3), batch_size=batch_size, seed=0)
    return TrainingSetup(model=model, optimizer_steps=[step], batches=batches, steps=steps)


@dataclass(frozen=True, kw_only=True)
class TwoRecipe(Recipe[None]):
    """An ensemble of two models."""

    name: ClassVar[str] = "two"
    single: bool = False
    threads: int = 1
    law_cases: int = 0

    def setup(self):
        return make_setup(2)

    def ensemble_members(self):
        return () if self.single else [replace(member, single=True) for member in self.with_seeds(2)]

    def build_model(self, model_config):
        return nn.Linear(3, 1)

    def combine(self, models):
        return nn.ModuleList(models)
