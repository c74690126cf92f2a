"""Splitting examples into parts that share none: to train, to validate, to test."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Int
from torch import Tensor

from lawful.data.examples import Examples
from lawful.data.generators import generator_of


def split(examples: Examples, *, fractions: Sequence[float] = (0.8, 0.1, 0.1), seed: int = 0) -> tuple[Examples, ...]:
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
    generator = generator_of(seed)
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
