"""The data of a generative recipe: observed, checked, and split into parts that share nothing."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from torch import Tensor

from lawful.data import Density, Dequantizer, fingerprint, leaks, split_indices
from lawful.recipes.generative.form import Form
from lawful.recipes.generative.seen import Seen, seen
from lawful.training import AtMost, Between, validate

Number = Annotated[float, Between(-1e30, 1e30)]
LARGE = 1e15
"""How far at most, and 1 / this at least, observations may be from their mean."""
Side = Annotated[int, Between(1, 10**4)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Observations:
    """Observations to train on, to choose by and to test with, in the units of the data."""

    train: Tensor
    """`n *shape`, 32 bits."""
    validation: Tensor | None
    test: Tensor
    train_labels: Tensor | None
    """The numbers of the labels, `n`; none where the data have no labels."""
    validation_labels: Tensor | None
    test_labels: Tensor | None
    form: Form
    """What an observation looks like: shape, labels, levels."""
    density: Density | None
    """The density that they were drawn from, where it is known."""
    notes: tuple[str, ...]
    """What a reader should know."""
    fingerprint: str

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an observation."""
        return self.form.shape

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the labels; none where there are no labels."""
        return self.form.classes

    @property
    def dequantizer(self) -> Dequantizer | None:
        """The levels of the data, where they have some."""
        return self.form.dequantizer

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns of a table."""
        return self.form.names

    @property
    def held_out(self) -> Tensor:
        """What choices are made by: the validation, or the training data where there is none."""
        return self.train if self.validation is None else self.validation

    @property
    def described(self) -> dict[str, Any]:
        """What `Training.described` is to hold, so that `Form.described` reads it back."""
        return {"form": self.form.to_json()}

    @property
    def counts(self) -> dict[str, int]:
        """How many observations each part has."""
        chosen_by = 0 if self.validation is None else len(self.validation)
        return {"train": len(self.train), "validation": chosen_by, "test": len(self.test)}


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Where the observations come from, and how they are split."""

    data: Annotated[str, AtMost(4096)] = "digits"
    """A .csv, .tsv, .parquet, .npy or .npz file, a folder of images, or a name: digits, mnist1d, iris, ring, moons."""
    labels: Annotated[str, AtMost(4096)] | None = None
    """The column of a table that has labels; images have them by folder, an .npz file as y."""
    ignore: Annotated[tuple[str, ...], AtMost(10_000)] = ()
    """Columns of a table that are left out."""
    drop_missing: bool = False
    """Whether to drop rows with a missing value, rather than to refuse them."""
    resize: Annotated[tuple[Side, ...], AtMost(2)] = ()
    """Height and width that images are resized to."""
    between: Annotated[tuple[Number, ...], AtMost(2)] = ()
    """The lowest and the highest value that there can be; others are refused. By default nothing is said."""
    data_levels: Annotated[int, Between(0, 2**31)] = 0
    """How many levels the values have, from the lowest to the highest; 0 for what the data say: images have 256."""
    examples: Annotated[int, Between(3, 10**8)] = 20_000
    """ring, checkerboard, moons, grid: how many samples are drawn."""
    test: Annotated[float, Between(0.01, 0.9)] = 0.2
    """The share of the observations that is for the test alone."""
    validation: Annotated[float, Between(0, 0.9)] = 0.1
    """The share of the others that is to choose by, and not trained on."""
    split: Annotated[int, Between(0, 2**62)] = 0
    """The seed of the split, and of samples."""

    def __post_init__(self) -> None:
        validate(self)
        if not self.data:
            raise ValueError("data is a file, a folder or a name: got an empty text")
        if len(self.resize) not in (0, 2):
            raise ValueError(f"resize is a height and a width: got {self.resize}")
        if len(self.between) not in (0, 2) or (self.between and not self.between[0] < self.between[1]):
            raise ValueError(f"between is a lowest and a highest value: got {self.between}")
        if self.data_levels == 1:
            raise ValueError("data levels are at least 2, or 0 for what the data say: got 1")

    def parts(self) -> Observations:
        """Reads the observations, checks them and splits them; labels keep their shares."""
        size: Any = self.resize or None
        found = seen(
            self.data,
            labels=self.labels,
            ignore=self.ignore,
            drop_missing=self.drop_missing,
            size=size,
            n=self.examples,
            seed=self.split,
        )
        x = found.x
        if len(x) < 3:
            raise ValueError(f"{self.data} has {len(x)} observations: how they vary takes at least 3")
        if not bool(x.isfinite().all()):
            raise ValueError(f"{self.data} is to have finite numbers: got NaN or infinite ones")
        size = float(x.double().sub(x.double().mean(0)).abs().max())
        if size and not 1 / LARGE < size < LARGE:
            raise ValueError(f"{self.data} varies by {size:.2g}, whose square 32 bits do not hold: use other units")
        dequantizer = self.checked(found)
        chosen = self.divided(found)
        parts = {name: x[rows] for name, rows in chosen.items()}
        labels = {name: None if found.labels is None else found.labels[rows] for name, rows in chosen.items()}
        if bool((parts["train"] == parts["train"][:1]).all()):
            raise ValueError(
                f"all {len(parts['train'])} training observations of {self.data} are equal: nothing varies"
            )
        copies = [] if found.density else leaks(parts)
        told = [f"{leak}: {leak.second} does not measure unseen data" for leak in copies]
        return Observations(
            train=parts["train"],
            validation=parts.get("validation"),
            test=parts["test"],
            train_labels=labels["train"],
            validation_labels=labels.get("validation"),
            test_labels=labels["test"],
            form=Form(encoding=found.encoding, dequantizer=dequantizer),
            density=found.density,
            notes=(*found.notes, *told_of(parts["train"], dequantizer), *told),
            fingerprint=fingerprint(x) if found.labels is None else fingerprint(x, found.labels),
        )

    def checked(self, found: Seen) -> Dequantizer | None:
        """The levels of the data, after a look whether values are what was said of them."""
        low, high = float(found.x.min()), float(found.x.max())
        came = f"{self.data} has values from {low:g} to {high:g}"
        if self.between and not self.between[0] <= low <= high <= self.between[1]:
            hint = ": these look like 8 bits, 0 to 255" if low >= 0 and 1 < high <= 255 >= self.between[1] else ""
            raise ValueError(f"{came}: between {self.between[0]:g} and {self.between[1]:g} was said{hint}")
        if not self.data_levels:
            return found.dequantizer
        least, most = self.between or (low, high)
        dequantizer = Dequantizer(levels=self.data_levels, low=least, high=most)
        dequantizer.dequantized(found.x[:1000])
        return dequantizer

    def divided(self, found: Seen) -> dict[str, Tensor]:
        """The rows of each part, of which none is in two."""
        rest = 1 - self.test
        shares = {"train": rest * (1 - self.validation), "validation": rest * self.validation, "test": self.test}
        shares = {name: round(share, 9) for name, share in shares.items() if share}
        labels = found.labels
        if labels is not None and int(labels.unique(return_counts=True)[1].min()) < len(shares):
            labels = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # labels that a part lacks do no harm here
            rows = split_indices(len(found.x), fractions=[*shares.values()], seed=self.split, labels=labels)
        return dict(zip(shares, rows, strict=True))


def told_of(x: Tensor, dequantizer: Dequantizer | None) -> Iterator[str]:
    """Says what is special about training data: features that do not vary, levels that look like numbers."""
    rows = x.flatten(1)
    constant = int((rows == rows[:1]).all(0).sum())
    if constant:
        yield f"{constant} of {rows.shape[1]} features are constant in the training data"
    if len(rows) <= rows.shape[1]:
        yield f"{len(rows)} training observations have {rows.shape[1]} features each: a covariance is not full"
    if dequantizer is None and bool((rows == rows.round()).all()):
        span = f"{float(rows.min()):g} to {float(rows.max()):g}"
        yield f"all values are whole, from {span}: a density has no bound there; say data-levels to count them as such"
    elif dequantizer is None and len(rows.unique()) < min(300, 0.05 * rows.numel()):
        yield f"there are only {len(rows.unique())} different values: a density has no bound there; say data-levels"
