"""Splitting examples into parts that share none: to train, to validate, to test.

Finding inputs that stand in two parts of a data set, so that a test would measure memory.
Drawing examples again, for an ensemble; giving some of them wrong labels.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from lawful.data.batches import make_generator
from lawful.data.dataset import SupervisedDataset


def split(
    examples: SupervisedDataset, *, fractions: Sequence[float] = (0.8, 0.1, 0.1), seed: int = 0
) -> tuple[SupervisedDataset, ...]:
    """Splits examples at random; where they have classes, each part has the share of each class.

    Args:
        examples: What to split.
        fractions: How much each part gets; they add up to 1.
        seed: What the draw depends on.

    Examples:
        >>> from lawful.data import read
        >>> [len(part) for part in split(read("iris").examples, fractions=(0.6, 0.2, 0.2))]
        [90, 30, 30]
    """
    labels = None if examples.classes is None else examples.targets
    parts = split_indices(len(examples), fractions=fractions, seed=seed, labels=labels, classes=examples.classes)
    return tuple(examples.take(part) for part in parts)


def split_indices(
    n: int,
    *,
    fractions: Sequence[float],
    seed: int = 0,
    labels: Int[Tensor, "n"] | None = None,
    classes: Sequence[str] | None = None,
) -> tuple[Int[Tensor, "_"], ...]:
    """Splits the numbers from 0 to `n` - 1 into parts, each in rising order.

    With labels, examples are lined up class by class, in random order within each, and a part takes every so many of
    those that are left: its size is right, and so is its number of examples of each class, up to one for each part that
    was taken before.

    Args:
        n: The number of examples.
        fractions: How much each part gets; they add up to 1.
        seed: What the draw depends on.
        labels: The class of each example, whose shares the parts keep.
        classes: The names of the classes, for messages.

    Examples:
        >>> split_indices(4, fractions=(0.5, 0.5), labels=torch.tensor([0, 1, 0, 1]))[0].shape
        torch.Size([2])
    """
    sizes = _sizes(n, fractions)
    generator = make_generator(seed)
    left = torch.randperm(n, generator=generator)
    if labels is not None:
        _check_classes(labels, classes, len(sizes))
        left = left[labels.cpu()[left].argsort(stable=True)]
    parts: list[Tensor] = []
    for size in reversed(sizes[1:]):
        offset = torch.rand((), generator=generator, dtype=torch.float64)
        places = ((torch.arange(size) + offset) * (len(left) / size)).long().clamp_max(len(left) - 1)
        taken = torch.zeros(len(left), dtype=torch.bool).index_fill_(0, places, True)
        parts.append(left[taken])
        left = left[~taken]
    parts = [part.sort().values for part in (left, *reversed(parts))]
    if labels is not None:
        _warn_of_absent(labels.cpu(), parts, classes)
    return tuple(parts)


def _sizes(n: int, fractions: Sequence[float]) -> list[int]:
    """How many examples each part has: at least one."""
    if not fractions or min(fractions) <= 0 or not math.isclose(sum(fractions), 1, abs_tol=1e-6):
        raise ValueError(f"fractions above 0 that add up to 1 were wanted: got {tuple(fractions)}")
    ends = [0, *(round(n * sum(fractions[: i + 1])) for i in range(len(fractions)))]
    sizes = [end - start for start, end in pairwise(ends)]
    if min(sizes) < 1:
        raise ValueError(f"{n} examples are too few for parts of {tuple(fractions)}: one would be empty")
    return sizes


def _name(label: int, classes: Sequence[str] | None) -> str:
    return str(label) if classes is None else repr(classes[label])


def _check_classes(labels: Tensor, classes: Sequence[str] | None, parts: int) -> None:
    """Refuses a class that cannot be in every part."""
    for label, count in zip(*(x.tolist() for x in labels.unique(return_counts=True)), strict=True):
        if count < parts:
            name = _name(label, classes)
            raise ValueError(f"class {name} has {count} of {len(labels)} examples: {parts} parts need at least {parts}")


def _warn_of_absent(labels: Tensor, parts: Sequence[Tensor], classes: Sequence[str] | None) -> None:
    """Says which classes are so rare that a part has none of them."""
    there = [set(labels[part].tolist()) for part in parts]
    for number, found in enumerate(there, 1):
        if absent := sorted(set().union(*there) - found):
            names = ", ".join(_name(label, classes) for label in absent[:5])
            warnings.warn(f"part {number} of {len(parts)} has no example of class {names}", stacklevel=4)


@dataclass(frozen=True)
class Leak:
    """Says how many examples of one part have inputs that another part has too."""

    first: str
    """The part that has them first, such as the one for training."""
    second: str
    """The part in which they are counted."""
    count: int
    """How many examples of `second` have inputs that stand in `first`."""
    of: int
    """How many examples `second` has."""
    pairs: tuple[tuple[int, int], ...]
    """Up to five of them: an index in `first` and one in `second`."""

    def __str__(self) -> str:
        return f"{self.count} of {self.of} examples of {self.second} have the same inputs as one of {self.first}"


def leaks(parts: Mapping[str, Shaped[Tensor, "_ *shape"]], *, shown: int = 5) -> tuple[Leak, ...]:
    """Finds exact duplicates of inputs between parts, pair by pair; those without are left out.

    Args:
        parts: The inputs of each part, under its name.
        shown: How many pairs of indices a record has.

    Examples:
        >>> import torch
        >>> print(*leaks({"train": torch.eye(3), "test": torch.eye(3)[1:]}))
        2 of 2 examples of test have the same inputs as one of train
    """
    digests = {name: list(_digests(x)) for name, x in parts.items()}
    found = []
    for first, second in combinations(parts, 2):
        places: dict[bytes, int] = {}
        for index, digest in enumerate(digests[first]):
            places.setdefault(digest, index)
        pairs = [(places[digest], j) for j, digest in enumerate(digests[second]) if digest in places]
        if pairs:
            found.append(Leak(first, second, len(pairs), len(digests[second]), tuple(pairs[:shown])))
    return tuple(found)


def _digests(x: Tensor) -> Iterator[bytes]:
    """A short digest of each example; 0 and -0 are one number."""
    rows = (x.detach().cpu() + 0).contiguous().reshape(len(x), -1).numpy()
    return (hashlib.blake2b(row, digest_size=16).digest() for row in rows)


def bootstrap_indices(n: int, *, seed: int) -> Int[Tensor, "n"]:
    r"""Draws `n` of `n` examples with replacement: the bootstrap, on which bagging trains each of its models.

    About $1 - 1/e \approx 63\,\%$ of the examples are drawn at least once.

    Reference:
        Breiman, *Bagging Predictors*, 1996.

    Args:
        n: The number of examples.
        seed: What the draw depends on.

    Examples:
        >>> bootstrap_indices(5, seed=0).shape
        torch.Size([5])
    """
    if n < 1:
        raise ValueError(f"at least 1 example was wanted: got {n}")
    return torch.randint(n, (n,), generator=make_generator(seed))


def noisy_labels(labels: Int[Tensor, "n"], *, classes: int, fraction: float, seed: int) -> Int[Tensor, "n"]:
    """Gives a fraction of the examples a wrong label, each other class being equally likely.

    Reference:
        Nakkiran et al., *Deep Double Descent*, 2019.

    Args:
        labels: The right labels, from 0 to `classes` - 1.
        classes: The number of classes.
        fraction: How many labels become wrong, from 0 to 1.
        seed: What the draw depends on.

    Examples:
        >>> labels = torch.zeros(100, dtype=torch.int64)
        >>> int((noisy_labels(labels, classes=10, fraction=0.15, seed=0) != labels).sum())
        15
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction is from 0 to 1: got {fraction}")
    if classes < 2:
        raise ValueError(f"a wrong label needs at least 2 classes: got {classes}")
    generator = make_generator(seed)
    chosen = torch.randperm(len(labels), generator=generator)[: round(fraction * len(labels))]
    step = torch.randint(1, classes, chosen.shape, generator=generator).to(labels.device)
    noisy, chosen = labels.clone(), chosen.to(labels.device)
    noisy[chosen] = (labels[chosen] + step) % classes
    return noisy
