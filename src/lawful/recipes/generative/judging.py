"""What a frozen classifier sees in samples: features to compare with those of data, and classes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lawful.blocks import Standardize
from lawful.inference.metrics import class_coverage, frechet_distance
from lawful.models import MLP, MLPConfig
from lawful.objectives import cross_entropy
from lawful.optim import adamw
from lawful.recipes.generative.given import Observations

HIDDEN, STEPS, BATCH, RATE = (128, 32), 600, 128, 3e-3


@dataclass(frozen=True)
class Judge:
    """A small classifier of the training data, which is not trained on any sample."""

    units: Standardize
    below: nn.Module
    """From examples in standard units to 32 features."""
    last: nn.Module
    """From features to classes."""
    classes: int

    @torch.no_grad()
    def features(self, x: Tensor) -> Tensor:
        """What the last layer sees of examples."""
        return self.below(self.units(x.float()).flatten(1))

    def named(self, x: Tensor) -> Tensor:
        """The class of each example."""
        return self.last(self.features(x)).argmax(-1)

    def compared(self, x: Tensor, data: Tensor, *, labels: Tensor | None) -> dict[str, float]:
        """Figures of samples beside data, and of their labels where these were asked for."""
        seen = class_coverage(self.named(x), classes=self.classes)
        found = {"classes covered": seen.covered}
        if min(len(x), len(data)) > HIDDEN[-1]:
            found["Fréchet distance in features"] = frechet_distance(self.features(x), self.features(data))
        if labels is not None:
            found["of the label asked for"] = float((self.named(x) == labels).double().mean())
        return found


def judge(seen: Observations, *, seed: int = 0) -> Judge | None:
    """Trains a classifier on the training data; none where they have no labels, or where their density is known."""
    y = seen.train_labels
    if y is None or seen.density is not None or len(seen.classes) < 2:
        return None
    x = seen.train
    units = Standardize((1,) * (x.dim() - 1) if x.dim() > 2 else x.shape[1:]).fit(x)
    rows = units(x).flatten(1)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        model = MLP(MLPConfig(d_in=rows.shape[1], d_out=len(seen.classes), hidden=HIDDEN))
        optimizer = adamw(model.parameters(), lr=RATE)
        for _ in range(STEPS):
            some = torch.randint(len(rows), (BATCH,))
            optimizer.zero_grad()
            cross_entropy(model(rows[some]), y[some]).backward()
            optimizer.step()
    layers = [*model.eval().requires_grad_(False).layers]
    return Judge(units, nn.Sequential(*layers[:-1]), layers[-1], len(seen.classes))
