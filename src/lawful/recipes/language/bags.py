"""What a classifier of texts has to beat: counting words, and counting runs of letters."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.models import SoftmaxRegression, SoftmaxRegressionConfig
from lawful.objectives import cross_entropy
from lawful.optim import adamw, linear
from lawful.recipes.language.labelled import Labelled

FEATURES, LONGEST, STEPS = 4096, 3, 150
"""The numbers of a bag, the letters of the longest run, and the steps of the regression."""


def letters(text: str) -> list[str]:
    """The runs of one to three letters.

    Examples:
        >>> letters("abc")
        ['a', 'b', 'c', 'ab', 'bc', 'abc']
    """
    return [text[i : i + n] for n in range(1, LONGEST + 1) for i in range(len(text) - n + 1)]


def words(text: str) -> list[str]:
    """The words.

    Examples:
        >>> words("a cat, and milk")
        ['a', 'cat', 'and', 'milk']
    """
    return re.findall(r"\w+", text)


def bag(texts: Sequence[str], *, parts: Callable[[str], list[str]], most: int = 5000) -> Float[Tensor, "n k"]:
    """Counts the parts of each text, in small letters; a number is the logarithm of 1 and the count.

    Parts share the numbers by a checksum.

    Args:
        texts: The texts.
        parts: What is counted: `letters`, `words`.
        most: The letters of a text that are looked at.
    """
    found = torch.zeros(len(texts), FEATURES)
    for row, text in enumerate(text[:most].lower() for text in texts):
        places = [zlib.crc32(part.encode("utf-8", "replace")) % FEATURES for part in parts(text)]
        found[row] = torch.bincount(torch.tensor(places, dtype=torch.int64), minlength=FEATURES).float()
    return found.log1p()


def bag_accuracy(train: Labelled, test: Labelled, *, parts: Callable[[str], list[str]]) -> float:
    r"""The accuracy of a softmax regression on bags, in which what few texts have counts more.

    The weight of a part is $1 + \log \frac{1 + n}{1 + n_i}$, where $n_i$ of $n$ texts have it; a bag has length 1.
    """
    counts, y = bag(train.texts, parts=parts), torch.tensor(train.labels)
    rare = 1 + ((1 + len(counts)) / (1 + (counts > 0).sum(0))).log()

    def weighed(x: Tensor) -> Tensor:
        return torch.nn.functional.normalize(x * rare, dim=1)

    x = weighed(counts)
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
        said = model(weighed(bag(test.texts, parts=parts))).argmax(-1)
    return float((said == torch.tensor(test.labels)).double().mean())


BAGS = {"bag of words": words, "bag of runs of letters": letters}
"""What is counted, by name."""
