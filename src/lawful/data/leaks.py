"""Finding inputs that stand in two parts of a data set, so that a test would measure memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from jaxtyping import Shaped
from torch import Tensor


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
