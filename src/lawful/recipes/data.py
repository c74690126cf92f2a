"""The data of a supervised recipe: read, split, and never mixed.

The sizes that data give a model.
The form of observations: what a model is built for, and how new data are read in the same way.
Reading observations: with labels where there are some, and never a target.
The data of a generative recipe: observed, checked, and split into parts that share nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lawful._json import fields, whole
from lawful.data import (
    BUILTIN,
    Column,
    Density,
    Dequantizer,
    Encodings,
    Mixture,
    SupervisedDataset,
    TableEncoding,
    checkerboard,
    encoding_from_json,
    fingerprint,
    fit_table_encoding,
    grid,
    leaks,
    load_dataset,
    load_like,
    read_arrays,
    ring,
    split,
    split_indices,
    table_of,
    two_moons,
)
from lawful.data.dataset import Arrays, finite
from lawful.data.images import PARTS, Images, pictures, read_images, read_pictures
from lawful.data.loading import ARRAYS, Encodings, resolve_path, table_at
from lawful.data.table_encoding import Task
from lawful.data.tables import INPUTS, TARGETS, Table, Values, find_arrays
from lawful.training import MaxLength, Range, from_json, validate

Size = Annotated[int, Range(1, 10**4)]


@dataclass(frozen=True)
class DataSplits:
    """Examples to train on, to choose by and to test with."""

    train: SupervisedDataset
    validation: SupervisedDataset | None
    test: SupervisedDataset
    encoding: Encodings
    notes: tuple[str, ...]
    """What a reader should know: dropped rows, duplicates between the parts."""
    fingerprint: str

    @property
    def counts(self) -> dict[str, int]:
        """How many examples each part has."""
        return {"train": len(self.train), "validation": len(self.validation or ()), "test": len(self.test)}


@dataclass(frozen=True, kw_only=True)
class SupervisedData:
    """Where the examples come from, and how they are split."""

    data: Annotated[str, MaxLength(4096)] = "digits"
    """A CSV, TSV, Parquet or NumPy file, a folder with a folder of images for each class, or a name: digits, iris."""
    target: Annotated[str, MaxLength(4096)] | None = None
    """The column to predict; by default the last."""
    ignore: Annotated[tuple[str, ...], MaxLength(10_000)] = ()
    """Columns that are not inputs."""
    categorical: Annotated[tuple[str, ...], MaxLength(10_000)] = ()
    """Columns whose values are words even if they look like numbers, such as 01234, which is then not 1234."""
    drop_missing: bool = False
    """Whether to drop rows with a missing value, rather than to refuse them."""
    resize: Annotated[tuple[Size, ...], MaxLength(2)] = ()
    """Height and width that images are resized to."""
    test: Annotated[float, Range(0.01, 0.9)] = 0.2
    """The share of the examples that is for the test alone."""
    validation: Annotated[float, Range(0, 0.9)] = 0.1
    """The share of the others that is to choose by, and not trained on."""
    split: Annotated[int, Range(0, 2**62)] = 0
    """The seed of the split."""

    def __post_init__(self) -> None:
        validate(self)
        if not self.data:
            raise ValueError("data is a file, a folder or a name: got an empty text")
        if len(self.resize) not in (0, 2):
            raise ValueError(f"resize is a height and a width: got {self.resize}")

    def parts(self, task: Task) -> DataSplits:
        """Reads the examples and splits them; classes keep their shares."""
        size: Any = self.resize or None
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always", UserWarning)
            examples, encoding, notes = load_dataset(
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
        return DataSplits(
            train=parts["train"],
            validation=parts.get("validation"),
            test=parts["test"],
            encoding=encoding,
            notes=(*notes, *told, *absent(parts), *found),
            fingerprint=examples.fingerprint(),
        )

    def divided(self, examples: SupervisedDataset) -> dict[str, SupervisedDataset]:
        """The parts by name, of which none shares an example with another."""
        rest = 1 - self.test
        shares = {"train": rest * (1 - self.validation), "validation": rest * self.validation, "test": self.test}
        shares = {name: share for name, share in shares.items() if share}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # classes that a part lacks are told by its name
            return dict(zip(shares, split(examples, fractions=[*shares.values()], seed=self.split), strict=True))


def absent(parts: Mapping[str, SupervisedDataset]) -> Iterator[str]:
    """Says which classes are so rare that a part has none of them."""
    for name, part in parts.items():
        there = set(part.targets.tolist()) if part.classes else set()
        lacking = [label for number, label in enumerate(part.classes or ()) if number not in there]
        if lacking:
            yield f"{name} has no example of class {', '.join(map(repr, lacking[:5]))}"


Axis = Annotated[int, Range(1, 10**8)]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What a model has to know of its data."""

    shape: Annotated[tuple[Axis, ...], MaxLength(4)]
    """The shape of an example."""
    outputs: Annotated[int, Range(1, 10**6)]
    """The number of classes, or of targets."""
    examples: Annotated[int, Range(1, 10**10)]
    """How many examples it is trained on."""

    def __post_init__(self) -> None:
        validate(self)

    @classmethod
    def of(cls, examples: SupervisedDataset) -> Sizes:
        outputs = examples.targets.shape[1] if examples.classes is None else len(examples.classes)
        return cls(shape=tuple(examples.inputs.shape[1:]), outputs=outputs, examples=len(examples))

    @classmethod
    def described(cls, facts: Mapping[str, Any]) -> Sizes:
        """Reads the sizes of a run's configuration, which nobody vouches for."""
        return from_json(cls, facts.get("sizes"), at="model.sizes")


DENSITIES: dict[str, Callable[[], Density]] = {
    "ring": ring,
    "checkerboard": checkerboard,
    "moons": two_moons,
    "grid": grid,
}
"""Densities in the plane that samples are drawn from, by name."""
UNLABELLED = Column(" ")
"""What stands for the labels of a table that has none: no column can be called so."""
PLANE = (Column("x1"), Column("x2"))


def of_builtin(name: str) -> tuple[Tensor, Tensor | None, Encodings]:
    """Built-in data, their labels and encoding; a target that is a number is one more column."""
    examples, encoding = BUILTIN[name]()
    if examples.classes is None and isinstance(encoding, TableEncoding):
        together = TableEncoding((*encoding.columns, encoding.target), UNLABELLED)
        return torch.cat([examples.inputs, examples.targets], 1), None, together
    return examples.inputs, examples.targets, encoding


class New(NamedTuple):
    """New data: their values, their labels if they have them, and the files that they come from if they are images."""

    x: Tensor
    labels: Tensor | None
    files: tuple[Path, ...] | None


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """Says what observations look like.

    Examples:
        >>> form = DataSpec(encoding=Arrays((1, 8, 8)), dequantizer=Dequantizer(levels=17))
        >>> form.shape, DataSpec.from_json(form.to_json()) == form
        ((1, 8, 8), True)
    """

    encoding: Encodings
    """How rows, images or arrays become numbers."""
    dequantizer: Dequantizer | None = None
    """The levels of the data, where they have some; bits per dimension are then of these."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an observation."""
        match self.encoding:
            case TableEncoding():
                return (len(self.encoding.names),)
            case Images():
                return self.encoding.channels, self.encoding.height, self.encoding.width
            case Arrays():
                return self.encoding.shape

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the labels; none where there are no labels."""
        return (
            self.encoding.target.levels if isinstance(self.encoding, TableEncoding) else self.encoding.classes
        ) or ()

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns of a table."""
        return self.encoding.names if isinstance(self.encoding, TableEncoding) else None

    @property
    def picture(self) -> bool:
        """Whether an observation can be shown as an image: grey or coloured, `c h w`."""
        return len(self.shape) == 3 and self.shape[0] in (1, 3)

    def read(self, source: str | Path, *, seed: int = 1) -> New:
        """Reads new data in this form: what was trained on, or anything that looks like it.

        Args:
            source: A file, a folder of images, or a name of built-in data.
            seed: What samples of a built-in density depend on.
        """
        if (name := str(source)) in DENSITIES and isinstance(self.encoding, TableEncoding) and self.shape == (2,):
            x = DENSITIES[name]().sample(1000, seed).float()
            return New(x, None, None)
        if name in BUILTIN:
            x, labels, own = of_builtin(name)
            if own != self.encoding:
                raise ValueError(f"{source} has other columns, shapes or classes than the data of this run")
            return New(x, labels, None)
        x, labels = load_like(source, self.encoding)
        files = tuple(pictures(Path(source))) if isinstance(self.encoding, Images) else None
        return New(x, labels if self.classes else None, files)

    def label(self, name: str | int) -> int:
        """The number of a label, by its name.

        Examples:
            >>> DataSpec(encoding=Arrays((2,), ("cat", "dog"))).label("dog")
            1
        """
        if not self.classes:
            raise ValueError(f"the data of this run had no labels: got label {str(name)!r}")
        if str(name) not in self.classes:
            raise ValueError(f"the labels are {', '.join(self.classes[:20])}: got {str(name)!r}")
        return self.classes.index(str(name))

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        d = self.dequantizer
        levels = None if d is None else {"levels": d.levels, "low": d.low, "high": d.high}
        return {"encoding": self.encoding.to_json(), "dequantizer": levels}

    @classmethod
    def from_json(cls, value: object) -> DataSpec:
        """Reads what `to_json` gave, from a file that nobody vouches for: anything else is refused."""
        held = fields(value, ("encoding", "dequantizer"), where="form")
        return cls(encoding=encoding_from_json(held["encoding"]), dequantizer=_dequantizer(held["dequantizer"]))

    @classmethod
    def described(cls, facts: Mapping[str, Any]) -> DataSpec:
        """Reads the form of a run's data from what `Training.described` said."""
        return cls.from_json(facts.get("form"))


def _dequantizer(value: object) -> Dequantizer | None:
    if value is None:
        return None
    held = fields(value, ("levels", "low", "high"), where="form.dequantizer")
    levels = whole(held["levels"], 2, 2**31, where="form.dequantizer.levels")
    for name in ("low", "high"):
        if isinstance(held[name], bool) or not isinstance(held[name], int | float):
            raise ValueError(f"form.dequantizer.{name} is to be a number: got {str(held[name])[:100]}")
    return Dequantizer(levels=levels, low=float(held["low"]), high=float(held["high"]))


PIXELS = Dequantizer(levels=256)
"""The levels of images of 8 bits, read as numbers from 0 to 1."""


class RawObservations(NamedTuple):
    """All observations, before they are split."""

    x: Tensor
    labels: Tensor | None
    encoding: Encodings
    dequantizer: Dequantizer | None = None
    density: Density | None = None
    notes: tuple[str, ...] = ()


def of_density(name: str, *, n: int, seed: int) -> RawObservations:
    """Samples of a density in the plane; their labels say which part of it they come from."""
    density = DENSITIES[name]()
    labels, target = None, UNLABELLED
    if isinstance(density, Mixture) and name in ("ring", "moons"):
        parts = 2 if name == "moons" else len(density.weights)
        labels = density.components(n, seed) * parts // len(density.weights)
        target = Column("label", tuple(map(str, range(parts))))
    return RawObservations(density.sample(n, seed).float(), labels, TableEncoding(PLANE, target), None, density)


def of_images(root: Path, *, size: tuple[int, int] | None) -> RawObservations:
    """The images of a folder, with labels where there is a folder for each."""
    folders = [f.name for f in root.iterdir() if f.is_dir() and not f.name.startswith(".") and pictures(f)]
    if len(folders) > 1 and not {name.lower() for name in folders} <= PARTS:
        examples, encoding = read_images(root, size=size)
        x, labels = examples.inputs, examples.targets
    else:
        x, encoding = read_pictures(root, size=size)
        labels = None
    steps = x * 255
    return RawObservations(x, labels, encoding, PIXELS if bool(((steps - steps.round()).abs() < 1e-3).all()) else None)


def of_arrays(path: Path) -> RawObservations | None:
    """The observations `x` of a NumPy file, and their labels `y`; none if the file holds columns."""
    arrays = read_arrays(path)
    found = find_arrays(arrays, ("", *INPUTS))
    if len(found) != 1 or found[0].ndim < 2 or found[0].dtype.names:
        return None
    x, classes, labels, notes = found[0], None, None, []
    if y := find_arrays(arrays, TARGETS):
        if y[0].ndim == 1 and y[0].dtype.kind in "iuUb" and 1 < len(np.unique(y[0])) <= 1000:
            table = table_of({"x": np.arange(len(y[0])), "y": y[0]}, name=path.name)
            encoding, table, _ = fit_table_encoding(table, task="classify")
            labels, classes = encoding.targets(table), encoding.target.levels
            if len(labels) != len(x):
                raise ValueError(f"{path.name} has {len(x)} observations and {len(labels)} labels")
        else:
            notes.append("y has no labels, which are whole numbers or words, at least two of them: left out")
    if not x.size:
        raise ValueError(f"{path.name} is empty: its shape is {x.shape}")
    if x.ndim == 4 and x.shape[-1] in (1, 3) and x.shape[1] > 4:
        notes.append(f"shape {x.shape} looks as if channels come last: images are n c h w here")
    top = {"u": 255.0 if x.dtype.itemsize == 1 else 0.0, "b": 1.0}.get(x.dtype.kind, 0.0)
    levels = Dequantizer(levels=int(top) + 1, high=top) if top else None
    return RawObservations(
        finite(x, name=path.name), labels, Arrays(tuple(x.shape[1:]), classes), levels, None, tuple(notes)
    )


def of_table(table: Table, *, labels: str | None, ignore: tuple[str, ...], drop_missing: bool) -> RawObservations:
    """The rows of a table: every column is part of the observation but that of the labels."""
    if labels is None:
        table = replace(table, columns={**table.columns, UNLABELLED.name: Values(None, np.zeros(len(table)))})
    encoding, kept, notes = fit_table_encoding(
        table,
        target=labels or UNLABELLED.name,
        task="regress" if labels is None else "classify",
        ignore=ignore,
        drop_missing=drop_missing,
    )
    words = [column.name for column in encoding.columns if column.levels is not None]
    if words:
        notes = (*notes, f"words become a 1 among 0s, which is no density: columns {', '.join(words[:5])}")
    found = encoding.targets(kept)
    return RawObservations(encoding.inputs(kept), None if labels is None else found, encoding, notes=tuple(notes))


def of_file(path: Path, *, labels: str | None, ignore: tuple[str, ...], drop_missing: bool) -> RawObservations:
    """The observations of a file, as its ending says."""
    if path.suffix.lower() in ARRAYS and labels is None and not ignore and (found := of_arrays(path)) is not None:
        return found
    return of_table(table_at(path), labels=labels, ignore=ignore, drop_missing=drop_missing)


def load_observations(
    source: str,
    *,
    labels: str | None = None,
    ignore: tuple[str, ...] = (),
    drop_missing: bool = False,
    size: tuple[int, int] | None = None,
    n: int = 20_000,
    seed: int = 0,
) -> RawObservations:
    """Reads all observations of a source.

    Args:
        source: The name of a density or of built-in data, a file, or a folder of images.
        labels: The column of a table that has the labels.
        ignore: Columns that are left out.
        drop_missing: Whether rows with a missing value are dropped.
        size: The height and the width that images are resized to.
        n: How many samples are drawn of a density.
        seed: What these depend on.

    Examples:
        >>> load_observations("iris").x.shape, load_observations("ring", n=5).x.shape, load_observations("diabetes").x.shape
        (torch.Size([150, 4]), torch.Size([5, 2]), torch.Size([442, 11]))
    """
    named = source in DENSITIES or source in BUILTIN
    path = Path(source) if named else resolve_path(source)
    folder = not named and path.is_dir()
    if (labels or ignore or drop_missing) and (named or folder):
        raise ValueError(f"labels, ignore and drop_missing are for tables: {source} is none")
    if size is not None and not folder:
        raise ValueError(f"resize is for folders of images: {source} is none")
    if source in DENSITIES:
        return of_density(source, n=n, seed=seed)
    if source in BUILTIN:
        return RawObservations(*of_builtin(source), Dequantizer(levels=17) if source == "digits" else None)
    if folder:
        return of_images(path, size=size)
    return of_file(path, labels=labels, ignore=ignore, drop_missing=drop_missing)


Number = Annotated[float, Range(-1e30, 1e30)]
LARGE = 1e15
"""How far at most, and 1 / this at least, observations may be from their mean."""
Side = Annotated[int, Range(1, 10**4)]


@dataclass(frozen=True, kw_only=True, eq=False)
class GenerativeSplits:
    """Observations to train on, to choose by and to test with, in the units of the data."""

    train: Tensor
    """`n *shape`, 32 bits."""
    validation: Tensor | None
    test: Tensor
    train_labels: Tensor | None
    """The numbers of the labels, `n`; none where the data have no labels."""
    validation_labels: Tensor | None
    test_labels: Tensor | None
    form: DataSpec
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
class GenerativeData:
    """Where the observations come from, and how they are split."""

    data: Annotated[str, MaxLength(4096)] = "digits"
    """A .csv, .tsv, .parquet, .npy or .npz file, a folder of images, or a name: digits, mnist1d, iris, ring, moons."""
    labels: Annotated[str, MaxLength(4096)] | None = None
    """The column of a table that has labels; images have them by folder, an .npz file as y."""
    ignore: Annotated[tuple[str, ...], MaxLength(10_000)] = ()
    """Columns of a table that are left out."""
    drop_missing: bool = False
    """Whether to drop rows with a missing value, rather than to refuse them."""
    resize: Annotated[tuple[Side, ...], MaxLength(2)] = ()
    """Height and width that images are resized to."""
    between: Annotated[tuple[Number, ...], MaxLength(2)] = ()
    """The lowest and the highest value that there can be; others are refused. By default nothing is said."""
    data_levels: Annotated[int, Range(0, 2**31)] = 0
    """How many levels the values have, from the lowest to the highest; 0 for what the data say: images have 256."""
    examples: Annotated[int, Range(3, 10**8)] = 20_000
    """ring, checkerboard, moons, grid: how many samples are drawn."""
    test: Annotated[float, Range(0.01, 0.9)] = 0.2
    """The share of the observations that is for the test alone."""
    validation: Annotated[float, Range(0, 0.9)] = 0.1
    """The share of the others that is to choose by, and not trained on."""
    split: Annotated[int, Range(0, 2**62)] = 0
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

    def parts(self) -> GenerativeSplits:
        """Reads the observations, checks them and splits them; labels keep their shares."""
        size: Any = self.resize or None
        found = load_observations(
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
        return GenerativeSplits(
            train=parts["train"],
            validation=parts.get("validation"),
            test=parts["test"],
            train_labels=labels["train"],
            validation_labels=labels.get("validation"),
            test_labels=labels["test"],
            form=DataSpec(encoding=found.encoding, dequantizer=dequantizer),
            density=found.density,
            notes=(*found.notes, *data_warnings(parts["train"], dequantizer), *told),
            fingerprint=fingerprint(x) if found.labels is None else fingerprint(x, found.labels),
        )

    def checked(self, found: RawObservations) -> Dequantizer | None:
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

    def divided(self, found: RawObservations) -> dict[str, Tensor]:
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


def data_warnings(x: Tensor, dequantizer: Dequantizer | None) -> Iterator[str]:
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
