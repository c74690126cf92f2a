"""Splits, duplicate detection between splits, bootstrap samples and label noise."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from lawful.data.batches import make_generator
from lawful.data.dataset import SupervisedDataset


def split(
    examples: SupervisedDataset, *, fractions: Sequence[float] = (0.8, 0.1, 0.1), seed: int = 0
) -> tuple[SupervisedDataset, ...]:
    """Splits a dataset at random, stratified by class.

    Args:
        examples: Dataset.
        fractions: Fraction of each part. They sum to 1.
        seed: Random seed.

    Examples:
        >>> from lawful.data import load_dataset
        >>> [len(part) for part in split(load_dataset("iris").examples, fractions=(0.6, 0.2, 0.2))]
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
    """Splits the indices 0 to `n` - 1 into sorted parts.

    With labels the split is stratified: the examples are sorted by class, in random order within a class, and each
    part takes them at equal distances. The sizes of the parts are exact. The number of examples per class is off by at
    most one for each part taken before.

    Args:
        n: Number of examples.
        fractions: Fraction of each part. They sum to 1.
        seed: Random seed.
        labels: Class of each example, for a stratified split.
        classes: Class names, for messages.

    Examples:
        >>> split_indices(4, fractions=(0.5, 0.5), labels=torch.tensor([0, 1, 0, 1]))[0].shape
        torch.Size([2])
    """
    sizes = _part_sizes(n, fractions)
    generator = make_generator(seed)
    left = torch.randperm(n, generator=generator)
    if labels is not None:
        _check_classes(labels, classes, len(sizes))
        left = left[labels.cpu()[left].argsort(stable=True)]
    parts: list[Tensor] = []
    for size in reversed(sizes[1:]):
        offset = torch.rand((), generator=generator, dtype=torch.float64)
        places = ((torch.arange(size) + offset) * (len(left) / size)).long().clamp_max(len(left) - 1)
        selected = torch.zeros(len(left), dtype=torch.bool).index_fill_(0, places, True)
        parts.append(left[selected])
        left = left[~selected]
    parts = [part.sort().values for part in (left, *reversed(parts))]
    if labels is not None:
        _warn_missing_classes(labels.cpu(), parts, classes)
    return tuple(parts)


def _part_sizes(n: int, fractions: Sequence[float]) -> list[int]:
    """Returns the number of examples of each part."""
    if not fractions or min(fractions) <= 0 or not math.isclose(sum(fractions), 1, abs_tol=1e-6):
        raise ValueError(f"fractions must be positive and sum to 1, got {tuple(fractions)}")
    ends = [0, *(round(n * sum(fractions[: i + 1])) for i in range(len(fractions)))]
    sizes = [end - start for start, end in pairwise(ends)]
    if min(sizes) < 1:
        shares, found = ", ".join(f"{fraction:.4g}" for fraction in fractions), ", ".join(map(str, sizes))
        raise ValueError(f"{n} examples are too few for a split into {shares}: got parts of {found} examples")
    return sizes


def _name(label: int, classes: Sequence[str] | None) -> str:
    return str(label) if classes is None else repr(classes[label])


def _check_classes(labels: Tensor, classes: Sequence[str] | None, parts: int) -> None:
    """Raises if a class has fewer examples than there are parts."""
    for label, count in zip(*(x.tolist() for x in labels.unique(return_counts=True)), strict=True):
        if count < parts:
            name = _name(label, classes)
            raise ValueError(
                f"class {name} has {count} of {len(labels)} examples, a split into {parts} needs {parts}: add "
                "examples, or leave this class out"
            )


def _warn_missing_classes(labels: Tensor, parts: Sequence[Tensor], classes: Sequence[str] | None) -> None:
    """Warns if a part has no example of a class."""
    present = [set(labels[part].unique().tolist()) for part in parts]
    for number, found in enumerate(present, 1):
        if absent := sorted(set().union(*present) - found):
            names = ", ".join(_name(label, classes) for label in absent[:5])
            warnings.warn(f"part {number} of {len(parts)} has no example of class {names}", stacklevel=4)


@dataclass(frozen=True)
class Leak:
    """Duplicates between two splits: examples of `second` whose inputs also occur in `first`."""

    first: str
    """Name of the first split, such as "train"."""
    second: str
    """Name of the second split, such as "test"."""
    count: int
    """Number of examples of `second` that occur in `first`."""
    total: int
    """Number of examples of `second`."""
    pairs: tuple[tuple[int, int], ...]
    """Up to five index pairs (in `first`, in `second`)."""

    def __str__(self) -> str:
        return f"{self.count} of {self.total} examples of {self.second} also occur in {self.first}"


def leaks(parts: Mapping[str, Shaped[Tensor, "_ *shape"]], *, max_pairs: int = 5) -> tuple[Leak, ...]:
    """Finds exact duplicates of inputs between splits.

    Args:
        parts: Inputs of each split, by name.
        max_pairs: Maximum number of index pairs per result.

    Examples:
        >>> import torch
        >>> print(*leaks({"train": torch.eye(3), "test": torch.eye(3)[1:]}))
        2 of 2 examples of test also occur in train
    """
    digests = {name: _digests(x) for name, x in parts.items()}
    results = []
    for first, second in combinations(parts, 2):
        found = np.flatnonzero(np.isin(digests[second], digests[first]))
        if len(found):
            values, places = np.unique(digests[first], return_index=True)
            some = found[:max_pairs]
            pairs = zip(places[values.searchsorted(digests[second][some])].tolist(), some.tolist(), strict=True)
            results.append(Leak(first, second, len(found), len(digests[second]), tuple(pairs)))
    return tuple(results)


_HASHED_ROWS = 2**13


def _digests(x: Tensor) -> Int[np.ndarray, " n"]:
    """Returns a digest of each example. 0 and -0 are equal."""
    found = np.empty(len(x), np.uint64)
    for start, part in zip(range(0, len(x), _HASHED_ROWS), x.split(_HASHED_ROWS), strict=True):
        rows = (part.detach().cpu() + 0).contiguous().reshape(len(part), -1).numpy()
        words = b"".join(hashlib.blake2b(row, digest_size=8).digest() for row in rows)
        found[start : start + len(part)] = np.frombuffer(words, np.uint64)
    return found


def bootstrap_indices(n: int, *, seed: int) -> Int[Tensor, "n"]:
    r"""Returns a bootstrap sample: `n` of `n` indices, drawn with replacement.

    About $1 - 1/e \approx 63\,\%$ of the examples occur at least once.

    Reference:
        Breiman, *Bagging Predictors*, 1996.

    Args:
        n: Number of examples.
        seed: Random seed.

    Examples:
        >>> bootstrap_indices(5, seed=0).shape
        torch.Size([5])
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    return torch.randint(n, (n,), generator=make_generator(seed))


def noisy_labels(labels: Int[Tensor, "n"], *, classes: int, fraction: float, seed: int) -> Int[Tensor, "n"]:
    """Replaces a fraction of the labels with a different, uniformly random class.

    Reference:
        Nakkiran et al., *Deep Double Descent*, 2019.

    Args:
        labels: True labels, from 0 to `classes` - 1.
        classes: Number of classes.
        fraction: Fraction of wrong labels.
        seed: Random seed.

    Examples:
        >>> labels = torch.zeros(100, dtype=torch.int64)
        >>> int((noisy_labels(labels, classes=10, fraction=0.15, seed=0) != labels).sum())
        15
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction must be between 0 and 1, got {fraction}")
    if classes < 2:
        raise ValueError(f"classes must be at least 2, got {classes}")
    generator = make_generator(seed)
    chosen = torch.randperm(len(labels), generator=generator)[: round(fraction * len(labels))]
    step = torch.randint(1, classes, chosen.shape, generator=generator).to(labels.device)
    noisy, chosen = labels.clone(), chosen.to(labels.device)
    noisy[chosen] = (labels[chosen] + step) % classes
    return noisy
