"""What a classifier of texts has to beat: counting runs of letters."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.models import SoftmaxRegression, SoftmaxRegressionConfig
from lawful.objectives import cross_entropy
from lawful.optim import adamw, linear
from lawful.recipes.language.labelled import Labelled

FEATURES, LONGEST, STEPS = 4096, 3, 150
"""The numbers of a bag, the letters of the longest run, and the steps of the regression."""


def bag(texts: Sequence[str], *, most: int = 5000) -> Float[Tensor, "n k"]:
    """Counts the runs of one to three letters of each text, in small letters, as vectors of length 1.

    Runs share the entries of a vector by a checksum; an entry is the logarithm of 1 and the count.

    Args:
        texts: The texts.
        most: The letters of a text that are looked at.
    """
    found = torch.zeros(len(texts), FEATURES)
    for row, text in enumerate(text[:most].lower() for text in texts):
        runs = [text[i : i + n] for n in range(1, LONGEST + 1) for i in range(len(text) - n + 1)]
        places = [zlib.crc32(run.encode("utf-8", "replace")) % FEATURES for run in runs]
        found[row] = torch.bincount(torch.tensor(places, dtype=torch.int64), minlength=FEATURES).float()
    return torch.nn.functional.normalize(found.log1p(), dim=1)


def bag_accuracy(train: Labelled, test: Labelled) -> float:
    """The accuracy of a softmax regression on bags of runs of letters."""
    x, y = bag(train.texts), torch.tensor(train.labels)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        model = SoftmaxRegression(SoftmaxRegressionConfig(d=FEATURES, classes=len(train.classes)))
    optimizer, falling = adamw(model.parameters(), lr=0.1, decay=1e-3), linear(steps=STEPS)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = 0.1 * falling(step)
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        said = model(bag(test.texts)).argmax(-1)
    return float((said == torch.tensor(test.labels)).double().mean())
