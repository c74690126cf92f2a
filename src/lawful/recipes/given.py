"""The data of a supervised recipe: read, split, and never mixed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from lawful.data import Examples, leaks, read, split
from lawful.data.encode import Encodings
from lawful.data.tables import Task
from lawful.training import AtMost, Between, validate

Size = Annotated[int, Between(1, 10**4)]


@dataclass(frozen=True)
class Parts:
    """Examples to train on, to choose by and to test with."""

    train: Examples
    validation: Examples | None
    test: Examples
    encoding: Encodings
    notes: tuple[str, ...]
    """What a reader should know: dropped rows, duplicates between the parts."""
    fingerprint: str

    @property
    def counts(self) -> dict[str, int]:
        """How many examples each part has."""
        return {"train": len(self.train), "validation": len(self.validation or ()), "test": len(self.test)}


@dataclass(frozen=True, kw_only=True)
class Given:
    """Where the examples come from, and how they are split."""

    data: Annotated[str, AtMost(4096)] = "digits"
    """A CSV, TSV, Parquet or NumPy file, a folder with a folder of images for each class, or a name: digits, iris."""
    target: Annotated[str, AtMost(4096)] | None = None
    """The column to predict; by default the last."""
    ignore: Annotated[tuple[str, ...], AtMost(10_000)] = ()
    """Columns that are not inputs."""
    categorical: Annotated[tuple[str, ...], AtMost(10_000)] = ()
    """Columns whose values are words even if they look like numbers, such as 01234, which is then not 1234."""
    drop_missing: bool = False
    """Whether to drop rows with a missing value, rather than to refuse them."""
    resize: Annotated[tuple[Size, ...], AtMost(2)] = ()
    """Height and width that images are resized to."""
    test: Annotated[float, Between(0.01, 0.9)] = 0.2
    """The share of the examples that is for the test alone."""
    validation: Annotated[float, Between(0, 0.9)] = 0.1
    """The share of the others that is to choose by, and not trained on."""
    split: Annotated[int, Between(0, 2**62)] = 0
    """The seed of the split."""

    def __post_init__(self) -> None:
        validate(self)
        if not self.data:
            raise ValueError("data is a file, a folder or a name: got an empty text")
        if len(self.resize) not in (0, 2):
            raise ValueError(f"resize is a height and a width: got {self.resize}")

    def parts(self, task: Task) -> Parts:
        """Reads the examples and splits them; classes keep their shares."""
        size: Any = self.resize or None
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always", UserWarning)
            examples, encoding, notes = read(
                self.data,
                target=self.target,
                task=task,
                categorical=self.categorical,
                ignore=self.ignore,
                drop_missing=self.drop_missing,
                size=size,
            )
        if examples.classes and 2 * len(examples.classes) > len(examples):
            found = f"{len(examples.classes)} classes in {len(examples)} examples"
            raise ValueError(f"the target of {self.data} has {found}: to fit numbers, train regress")
        parts = self.divided(examples)
        told = [str(warning.message) for warning in heard]
        copies = leaks({name: part.inputs for name, part in parts.items()})
        found = [f"{leak}: {leak.second} does not measure unseen data" for leak in copies]
        return Parts(
            train=parts["train"],
            validation=parts.get("validation"),
            test=parts["test"],
            encoding=encoding,
            notes=(*notes, *told, *absent(parts), *found),
            fingerprint=examples.fingerprint(),
        )

    def divided(self, examples: Examples) -> dict[str, Examples]:
        """The parts by name, of which none shares an example with another."""
        rest = 1 - self.test
        shares = {"train": rest * (1 - self.validation), "validation": rest * self.validation, "test": self.test}
        shares = {name: share for name, share in shares.items() if share}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # classes that a part lacks are told by its name
            return dict(zip(shares, split(examples, fractions=[*shares.values()], seed=self.split), strict=True))


def absent(parts: Mapping[str, Examples]) -> Iterator[str]:
    """Says which classes are so rare that a part has none of them."""
    for name, part in parts.items():
        there = set(part.targets.tolist()) if part.classes else set()
        lacking = [label for number, label in enumerate(part.classes or ()) if number not in there]
        if lacking:
            yield f"{name} has no example of class {', '.join(map(repr, lacking[:5]))}"
