"""A tiny training with everything that a resume could lose."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from lawful.data.batches import ShuffledBatches
from lawful.training import OptimizerStep, Recipe, TrainerConfig, TrainingSetup

TRAINER = TrainerConfig(seed=3, threads=1, checkpoint_every=5, keep_checkpoints=2, law_cases=0)


class TinyGAN(nn.Module):
    """A small GAN with dropout, BatchNorm and buffers."""

    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(2, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 2))
        self.discriminator = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Dropout(0.3), nn.Linear(5, 1))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("passing", torch.zeros(2), persistent=False)

    def forward(self, x):
        self.calls += 1
        self.passing.copy_(x.mean(0))
        return self.generator(x)


def generator_loss(model, batch):
    made = model(torch.randn(len(batch[0]), 2))
    loss = nn.functional.softplus(-model.discriminator(made)).mean()
    return {"loss": loss, "spread": made.detach().std()}


def discriminator_loss(model, batch):
    with torch.no_grad():
        made = model(torch.randn(len(batch[0]), 2))
    true, false = model.discriminator(batch[0]), model.discriminator(made)
    return nn.functional.softplus(-true).mean() + nn.functional.softplus(false).mean()


def add_noise(batch):
    """Uses the random generators of PyTorch, NumPy and Python."""
    x = batch[0] + 0.1 * torch.randn_like(batch[0]) + random.gauss(0, 0.01) + float(np.random.normal(0, 0.01))
    return (x, *batch[1:])


def clip_weights(model):
    with torch.no_grad():
        model.discriminator[0].weight.renorm_(2, 0, 1.0)


@dataclass(frozen=True, kw_only=True)
class GANRecipe(Recipe[None]):
    """Two optimizers with state, a schedule, dropout, noise, accumulation, EMA, evaluations."""

    name: ClassVar[str] = "gan"

    patience: int | None = None
    steps: int = 24
    seed: int = TRAINER.seed
    threads: int = TRAINER.threads
    checkpoint_every: int = TRAINER.checkpoint_every
    keep_checkpoints: int = TRAINER.keep_checkpoints
    law_cases: int = TRAINER.law_cases

    def setup(self) -> TrainingSetup[None]:
        model = TinyGAN()
        x = torch.randn(42, 2).cumsum(1)
        generator = torch.optim.AdamW(model.generator.parameters(), lr=0.02, weight_decay=0.1)
        discriminator = torch.optim.SGD(model.discriminator.parameters(), lr=0.1, momentum=0.9, nesterov=True)

        def evaluate(model: nn.Module) -> Mapping[str, float]:
            made = model(torch.randn(30, 2))
            return {"loss": float((made.mean(0) - x.mean(0)).norm()) + random.random()}

        return TrainingSetup(
            model=model,
            optimizer_steps=[
                OptimizerStep(
                    name="generator",
                    loss_fn=generator_loss,
                    optimizer=generator,
                    schedule=lambda step: 1 / (1 + step / 10),
                ),
                OptimizerStep(
                    name="discriminator", loss_fn=discriminator_loss, optimizer=discriminator, grad_clip_norm=1.0
                ),
            ],
            batches=ShuffledBatches(x, batch_size=6, seed=1),
            steps=self.steps,
            evaluate=evaluate,
            eval_every=4,
            patience=self.patience,
            augment=add_noise,
            constrain=clip_weights,
            ema_decay=0.8,
            grad_accumulation_steps=3,
        )

    def finish(self, run: Any, setup: TrainingSetup[None]) -> Mapping[str, Any]:
        made = setup.model(torch.randn(5, 2)).detach()
        (run.samples / "made.txt").write_text(str(made.tolist()))
        return {"made": float(made.sum()), "python": random.random(), "numpy": float(np.random.rand())}
