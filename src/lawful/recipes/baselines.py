"""What a model has to beat: the commonest class, the mean, and the nearest examples."""

from __future__ import annotations

import torch
from torch import Tensor

from lawful.blocks import Standardize
from lawful.data import Examples
from lawful.inference.metrics import accuracy, root_mean_squared_error
from lawful.models import KNearest, KNearestClassifier, KNearestConfig
from lawful.models.labels import one_hot

MOST = 20_000
"""The examples that the nearest ones are looked for among, at most."""


def of_classes(train: Examples, test: Examples) -> dict[str, dict[str, float]]:
    """The accuracy of always saying the commonest class, and of asking the five nearest examples."""
    classes = len(train.classes or ())
    counts = train.targets.bincount(minlength=classes)
    always = one_hot(counts.argmax().expand(len(test)), classes=classes)
    x, y, asked = _near(train, test)
    config = KNearestConfig(n=len(x), d=x.shape[1], outputs=classes, k=min(5, len(x)))
    near = KNearestClassifier(config).fit(x, y)(asked).exp()
    return {
        "commonest class": accuracy(always, test.targets).json(),
        "5 nearest examples": accuracy(near, test.targets).json(),
    }


def of_numbers(train: Examples, test: Examples) -> dict[str, dict[str, float]]:
    """The error of always saying the mean, and of asking the five nearest examples."""
    always = train.targets.mean(0).expand_as(test.targets)
    x, y, asked = _near(train, test)
    config = KNearestConfig(n=len(x), d=x.shape[1], outputs=y.shape[1], k=min(5, len(x)))
    near = KNearest(config).fit(x, y)(asked)
    return {
        "mean": root_mean_squared_error(always, test.targets).json(),
        "5 nearest examples": root_mean_squared_error(near, test.targets).json(),
    }


@torch.no_grad()
def _near(train: Examples, test: Examples) -> tuple[Tensor, Tensor, Tensor]:
    """Standardised inputs and their targets, and the inputs that are asked for."""
    some = train.take(torch.arange(min(len(train), MOST)))
    scale = Standardize(tuple(train.inputs.shape[1:])).fit(some.inputs)
    return scale(some.inputs).flatten(1), some.targets, scale(test.inputs).flatten(1)
