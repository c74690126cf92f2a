"""Data of the recipes: options, loading, splits, and the format of the data that a run stores."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lawful._files import check_memory
from lawful._json import Config, MaxLength, Range, Requires, from_json, require_fields, require_int
from lawful._names import quote
from lawful.data import (
    BUILTIN,
    Column,
    ColumnSummary,
    Density,
    Dequantizer,
    Encodings,
    GaussianMixture,
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
    split_indices,
    table_of,
    two_moons,
)
from lawful.data.dataset import Arrays, _channels_first, _check_axes, _to_finite
from lawful.data.images import _SPLIT_NAMES, ImageEncoding, list_images, read_images, read_unlabeled_images
from lawful.data.loading import read_table, resolve_path
from lawful.data.table_encoding import Task
from lawful.data.tables import _INPUT_NAMES, _TARGET_NAMES, ColumnValues, Table, _find_arrays

_Path = Annotated[str, MaxLength(4096)]
_Columns = Annotated[tuple[str, ...], MaxLength(10_000)]
_ImageSize = Annotated[tuple[Annotated[int, Range(1, 10**4)], ...], MaxLength(2)]


@dataclass(frozen=True, kw_only=True)
class DataConfig(Config):
    """Data source and splits."""

    data: _Path = "digits"
    """Data: a file, a folder, or the name of a built-in dataset."""
    ignore_columns: _Columns = ()
    """Columns of a table to ignore."""
    keep_columns: _Columns = ()
    """Columns to use although they look like identifiers. By default, identifiers are left out."""
    drop_missing: bool = False
    """Drop rows with missing values. By default, missing values are an error."""
    resize: _ImageSize = ()
    """Height and width to resize images to."""
    test_fraction: Annotated[float, Range(0.01, 0.9)] = 0.2
    """Fraction of the data used for the test."""
    validation_fraction: Annotated[float, Range(0, 0.9)] = 0.1
    """Fraction of the remaining data used for validation."""
    split_seed: Annotated[int, Range(0, 2**62)] = 0
    """Random seed of the split."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.data:
            raise ValueError("data must be a file, a folder or a built-in dataset, got an empty string")
        if len(self.resize) not in (0, 2):
            raise ValueError(f"resize must be a height and a width, got {self.resize}")

    def split_fractions(self) -> dict[str, float]:
        """Returns the fraction of each split that is not empty."""
        rest = 1 - self.test_fraction
        fractions = {
            "train": rest * (1 - self.validation_fraction),
            "validation": rest * self.validation_fraction,
            "test": self.test_fraction,
        }
        return {name: fraction for name, fraction in fractions.items() if fraction}


# ---------------------------------------------------------------- supervised data


@dataclass(frozen=True)
class DataSplits:
    """Training, validation and test examples of a supervised recipe."""

    train: SupervisedDataset
    validation: SupervisedDataset | None
    test: SupervisedDataset
    encoding: Encodings
    """How rows, images or arrays are converted to tensors."""
    warnings: tuple[str, ...]
    """Problems of the data: dropped rows, duplicates between splits, missing classes."""
    fingerprint: str
    columns: tuple[ColumnSummary, ...] = ()
    """How each column of a table is used."""

    @property
    def counts(self) -> dict[str, int]:
        """Number of examples of each split."""
        return {"train": len(self.train), "validation": len(self.validation or ()), "test": len(self.test)}


_MIN_TEST = 2
"""Minimum number of test observations of a generative model: its metrics have standard errors."""


@dataclass(frozen=True, kw_only=True)
class SupervisedDataConfig(DataConfig):
    """Data source and splits of supervised recipes."""

    data: _Path = "digits"
    """CSV, TSV, Parquet or NumPy file, a folder with one folder of images per class, or a name: digits, iris."""
    target: _Path | None = None
    """Column to predict. Defaults to the last column."""
    categorical_columns: _Columns = ()
    """Columns with categories that look like numbers, such as zip codes."""
    validation_fraction: Annotated[float, Range(0, 0.9)] = 0.1
    """Fraction of the remaining data used for validation. Model auto cross-validates tables instead: leave it at the
    default, or set 0 to train one MLP without validation."""
    drop_missing: bool = False
    """Drop rows with missing values. By default, they are imputed with the median or the most frequent category."""

    def load_splits(self, task: Task) -> DataSplits:
        """Loads the examples and splits them, stratified by class."""
        size: Any = self.resize or None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            examples, encoding, notes, columns, table = load_dataset(
                self.data,
                target=self.target,
                task=task,
                categorical_columns=self.categorical_columns,
                ignore_columns=self.ignore_columns,
                keep_columns=self.keep_columns,
                drop_missing=self.drop_missing,
                size=size,
            )
        if examples.classes and 2 * len(examples.classes) > len(examples):
            raise ValueError(
                f"the target of {self.data} has {len(examples.classes)} classes in {len(examples)} examples: "
                "use the recipe regress for numeric targets"
            )
        fractions = self.split_fractions()
        labels = None if examples.classes is None else examples.targets
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # _missing_classes reports them by the name of the split
            rows = split_indices(
                len(examples),
                fractions=[*fractions.values()],
                seed=self.split_seed,
                labels=labels,
                classes=examples.classes,
            )
        data_fingerprint = fingerprint(examples.inputs, examples.targets, *rows)
        if table is not None and isinstance(encoding, TableEncoding):
            is_train = np.zeros(len(examples), dtype=bool)
            is_train[rows[0].numpy()] = True
            encoding = encoding.fit_fill(table, is_train)
            examples = replace(examples, inputs=encoding.inputs(table))
            columns = encoding.describe(table, columns)
        splits = {name: examples.take(part) for name, part in zip(fractions, rows, strict=True)}
        parts = self._evaluated_parts(splits)
        duplicates = leaks({name: part.inputs for name, part in parts.items()})
        return DataSplits(
            train=splits["train"],
            validation=splits.get("validation"),
            test=splits["test"],
            encoding=encoding,
            warnings=(
                *notes,
                *(str(warning.message) for warning in caught),
                *_missing_classes(parts),
                *(f"{leak}: {leak.second} does not measure generalization" for leak in duplicates),
            ),
            fingerprint=data_fingerprint,
            columns=columns,
        )

    def _evaluated_parts(self, splits: Mapping[str, SupervisedDataset]) -> Mapping[str, SupervisedDataset]:
        """Returns the splits that the model is trained and evaluated on, by name."""
        return splits


def _missing_classes(splits: Mapping[str, SupervisedDataset]) -> Iterator[str]:
    for name, part in splits.items():
        present = set(part.targets.unique().tolist()) if part.classes else set()
        missing = [label for number, label in enumerate(part.classes or ()) if number not in present]
        if missing:
            yield f"the {name} split has no examples of class {', '.join(map(repr, missing[:5]))}"


@dataclass(frozen=True, kw_only=True)
class ExampleSpec(Config):
    """Sizes of supervised data that a model depends on."""

    shape: Annotated[tuple[Annotated[int, Range(1, 10**8)], ...], MaxLength(4)]
    """Shape of an example."""
    out_dim: Annotated[int, Range(1, 10**6)]
    """Number of classes or targets."""
    num_examples: Annotated[int, Range(1, 10**10)]
    """Number of training examples."""

    @classmethod
    def of(cls, examples: SupervisedDataset) -> ExampleSpec:
        """Reads the sizes of a dataset."""
        out_dim = examples.targets.shape[1] if examples.classes is None else len(examples.classes)
        return cls(shape=tuple(examples.inputs.shape[1:]), out_dim=out_dim, num_examples=len(examples))

    @classmethod
    def from_config(cls, model_config: Mapping[str, Any]) -> ExampleSpec:
        """Reads the sizes from the configuration of a run, and validates them."""
        return from_json(cls, model_config.get("example_spec"), at="model.example_spec")


def _describe_data(name: str, encoding: Encodings, counts: Mapping[str, int]) -> str:
    """Says in one line what data were read as, and how they are split.

    Examples:
        >>> _describe_data("photos", ImageEncoding(16, 24, 3, ("cat", "dog"), True), {"train": 1800, "test": 200})
        'photos: 2,000 RGB images, resized to 16 x 24, classes cat, dog; 1,800 train, 200 test'
    """
    total = sum(counts.values())
    match encoding:
        case ImageEncoding():
            color, size = "grayscale" if encoding.channels == 1 else "RGB", f"{encoding.height} x {encoding.width}"
            what = f"{total:,} {color} images, {'resized to ' if encoding.resized else ''}{size}"
        case TableEncoding():
            what = f"{total:,} rows, columns {_shorten(encoding.names)}"
        case Arrays():
            what = f"{total:,} arrays of shape {encoding.shape}"
    classes = (encoding.target.levels if isinstance(encoding, TableEncoding) else encoding.classes) or ()
    labels = f", classes {_shorten(classes)}" if classes else ""
    splits = ", ".join(f"{count:,} {split}" for split, count in counts.items() if count)
    return f"{name}: {what}{labels}; {splits}"


def _shorten(names: Sequence[str], *, limit: int = 10) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{', '.join(map(quote, names[:limit]))}{more}"


# ---------------------------------------------------------------- observations of generative models

_DENSITIES: dict[str, Callable[[], Density]] = {
    "ring": ring,
    "checkerboard": checkerboard,
    "moons": two_moons,
    "grid": grid,
}
"""Two-dimensional densities to sample from, by name."""
_NO_LABELS = Column(" ")
"""Placeholder for the label column of a table without labels."""
_POINT_COLUMNS = (Column("x1"), Column("x2"))
_PIXEL_LEVELS = Dequantizer(levels=256)
"""Levels of 8-bit images, scaled to [0, 1]."""
_BUILTIN_LEVELS = {"digits": Dequantizer(levels=17), "cubes": _PIXEL_LEVELS}
"""Levels of built-in images."""
_MAX_SCALE = 1e15
"""Largest deviation from the mean, and its inverse the smallest."""


class NewData(NamedTuple):
    """New data in the format of a run: values, labels if there are any, and files if they are images."""

    x: Tensor
    labels: Tensor | None
    files: tuple[Path, ...] | None


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """Format of the observations of a generative model: shape, columns, labels and quantization levels.

    Examples:
        >>> spec = DataSpec(encoding=Arrays((1, 8, 8)), dequantizer=Dequantizer(levels=17))
        >>> spec.shape, DataSpec.from_json(spec.to_json()) == spec
        ((1, 8, 8), True)
    """

    encoding: Encodings
    """How rows, images or arrays are converted to tensors."""
    dequantizer: Dequantizer | None = None
    """Quantization levels of discrete data; bits per dimension refer to them."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an observation."""
        match self.encoding:
            case TableEncoding():
                return (len(self.encoding.names),)
            case ImageEncoding():
                return self.encoding.channels, self.encoding.height, self.encoding.width
            case Arrays():
                return self.encoding.shape

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the labels; empty without labels."""
        return (
            self.encoding.target.levels if isinstance(self.encoding, TableEncoding) else self.encoding.classes
        ) or ()

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Column names of a table."""
        return self.encoding.names if isinstance(self.encoding, TableEncoding) else None

    @property
    def is_image(self) -> bool:
        """Whether an observation is a grayscale or RGB image, `c h w`."""
        return len(self.shape) == 3 and self.shape[0] in (1, 3)

    def read(self, source: str | Path, *, seed: int = 1) -> NewData:
        """Reads new data in this format.

        Args:
            source: A file, a folder of images, or the name of a built-in dataset.
            seed: Random seed for samples of a built-in density.
        """
        name = str(source)
        if name in _DENSITIES and isinstance(self.encoding, TableEncoding) and self.shape == (2,):
            return NewData(_DENSITIES[name]().sample(1000, seed).float(), None, None)
        if name in BUILTIN:
            x, labels, encoding = _load_builtin(name)
            if encoding != self.encoding:
                raise ValueError(f"{source} has other columns, shapes or classes than the training data of the run")
            return NewData(x, labels, None)
        files = tuple(list_images(Path(source)))
        if files and isinstance(self.encoding, Arrays) and self.is_image:
            return NewData(self._read_images(files), None, files)
        x, labels, *_ = load_like(source, self.encoding)
        return NewData(x, labels if self.classes else None, files or None)

    def _read_images(self, files: tuple[Path, ...]) -> Tensor:
        """Reads image files in the levels of arrays."""
        channels, height, width = self.shape
        x, levels = ImageEncoding(height, width, channels, ()).inputs([*files]), self.dequantizer
        return x if levels is None else levels.quantize(levels.low + (levels.high - levels.low) * x)

    def label_index(self, label: str | int) -> int:
        """Returns the index of a label.

        Examples:
            >>> DataSpec(encoding=Arrays((2,), ("cat", "dog"))).label_index("dog")
            1
        """
        if not self.classes:
            raise ValueError(f"the training data of the run have no labels, got label {str(label)!r}")
        if str(label) not in self.classes:
            raise ValueError(f"label must be one of {', '.join(map(quote, self.classes[:20]))}, got {str(label)!r}")
        return self.classes.index(str(label))

    def to_json(self) -> dict[str, Any]:
        """Converts the format to JSON."""
        d = self.dequantizer
        levels = None if d is None else {"levels": d.levels, "low": d.low, "high": d.high}
        return {"encoding": self.encoding.to_json(), "dequantizer": levels}

    @classmethod
    def from_json(cls, value: object) -> DataSpec:
        """Reads and validates the output of `to_json`."""
        entries = require_fields(value, ("encoding", "dequantizer"), where="data_spec")
        return cls(encoding=encoding_from_json(entries["encoding"]), dequantizer=_dequantizer(entries["dequantizer"]))

    @classmethod
    def from_config(cls, model_config: Mapping[str, Any]) -> DataSpec:
        """Reads the format from the configuration of a run, and validates it."""
        return cls.from_json(model_config.get("data_spec"))


def _dequantizer(value: object) -> Dequantizer | None:
    if value is None:
        return None
    entries = require_fields(value, ("levels", "low", "high"), where="data_spec.dequantizer")
    levels = require_int(entries["levels"], 2, 2**31, where="data_spec.dequantizer.levels")
    for name in ("low", "high"):
        if isinstance(entries[name], bool) or not isinstance(entries[name], int | float):
            raise ValueError(f"data_spec.dequantizer.{name} must be a number, got {str(entries[name])[:100]}")
    return Dequantizer(levels=levels, low=float(entries["low"]), high=float(entries["high"]))


class _RawObservations(NamedTuple):
    """All observations, before the split."""

    x: Tensor
    labels: Tensor | None
    encoding: Encodings
    dequantizer: Dequantizer | None = None
    density: Density | None = None
    warnings: tuple[str, ...] = ()


def _load_builtin(name: str) -> tuple[Tensor, Tensor | None, Encodings]:
    """A built-in dataset. The numeric target of a table becomes one more column."""
    examples, encoding = BUILTIN[name]()
    if examples.classes is None and isinstance(encoding, TableEncoding):
        together = TableEncoding((*encoding.columns, encoding.target), _NO_LABELS)
        return torch.cat([examples.inputs, examples.targets], 1), None, together
    return examples.inputs, None if examples.classes is None else examples.targets, encoding


def _load_density(name: str, *, n: int, seed: int) -> _RawObservations:
    """Samples of a two-dimensional density, labeled by the component that they come from."""
    check_memory(64 * n, what=f"num_samples={n}", remedy="lower num_samples")
    density = _DENSITIES[name]()
    labels, target = None, _NO_LABELS
    if isinstance(density, GaussianMixture) and name in ("ring", "moons"):
        parts = 2 if name == "moons" else len(density.weights)
        labels = density.sample_components(n, seed) * parts // len(density.weights)
        target = Column("label", tuple(map(str, range(parts))))
    encoding = TableEncoding(_POINT_COLUMNS, target)
    return _RawObservations(density.sample(n, seed).float(), labels, encoding, None, density)


def _load_images(root: Path, *, size: tuple[int, int] | None) -> _RawObservations:
    """Images of a folder, labeled by subfolder if there are several."""
    folders = [f.name for f in root.iterdir() if f.is_dir() and not f.name.startswith(".") and list_images(f)]
    if len(folders) > 1 and not {name.lower() for name in folders} <= _SPLIT_NAMES:
        examples, encoding = read_images(root, size=size)
        x, labels = examples.inputs, examples.targets
    else:
        x, encoding = read_unlabeled_images(root, size=size)
        labels = None
    steps = x * 255
    is_8_bit = bool(((steps - steps.round()).abs() < 1e-3).all())
    return _RawObservations(x, labels, encoding, _PIXEL_LEVELS if is_8_bit else None)


def _load_arrays(path: Path) -> _RawObservations | None:
    """The array `x` of a NumPy file with its labels `y`; None if the file has columns."""
    arrays = read_arrays(path)
    found = _find_arrays(arrays, ("", *_INPUT_NAMES))
    if len(found) != 1 or found[0].ndim < 2 or found[0].dtype.names:
        return None
    x, classes, labels, notes = found[0], None, None, []
    _check_axes(x, name=f"the array of {path.name}")
    if y := _find_arrays(arrays, _TARGET_NAMES):
        if y[0].ndim == 1 and y[0].dtype.kind in "iuUb" and 1 < len(np.unique(y[0])) <= 1000:
            table = table_of({"x": np.arange(len(y[0])), "y": y[0]}, name=path.name)
            encoding, table, *_ = fit_table_encoding(table, task="classify")
            labels, classes = encoding.targets(table), encoding.target.levels
            if len(labels) != len(x):
                raise ValueError(f"{path.name} has {len(x)} observations but {len(labels)} labels")
        else:
            notes.append("y is ignored: labels must be integers or strings, with at least two different values")
    if not x.size:
        raise ValueError(f"{path.name} is empty: its shape is {x.shape}")
    x, note = _channels_first(x)
    notes += [note] if note else []
    top = {"u": 255.0 if x.dtype.itemsize == 1 else 0.0, "b": 1.0}.get(x.dtype.kind, 0.0)
    levels = Dequantizer(levels=int(top) + 1, high=top) if top else None
    return _RawObservations(
        _to_finite(x, name=path.name), labels, Arrays(tuple(x.shape[1:]), classes), levels, None, tuple(notes)
    )


def _load_table(
    table: Table, *, labels: str | None, ignore: tuple[str, ...], keep: tuple[str, ...], drop_missing: bool
) -> _RawObservations:
    """Rows of a table. Every column except the labels is part of the observation; dates are numbers of days.

    Without a label column, the only column of categories has the labels, unless it is kept.
    """
    without = replace(table, columns={**table.columns, _NO_LABELS.name: ColumnValues(None, np.zeros(len(table)))})
    encoding, kept, notes, _ = fit_table_encoding(
        without if labels is None else table,
        target=labels or _NO_LABELS.name,
        task="regress" if labels is None else "classify",
        ignore_columns=ignore,
        keep_columns=keep,
        drop_missing=drop_missing,
        impute=False,
    )
    columns = [c if c.dates is None else replace(c, dates=replace(c.dates, cycles=())) for c in encoding.columns]
    encoding = replace(encoding, columns=tuple(columns))
    categorical = [column.name for column in encoding.columns if column.levels is not None]
    if labels is None and len(categorical) == 1 < len(columns) and categorical[0] not in keep:
        (name,) = categorical
        raw = _load_table(table, labels=name, ignore=ignore, keep=keep, drop_missing=drop_missing)
        note = f"{name!r} has the labels, as the only column of categories; to model it, use --keep-columns {name}"
        return raw._replace(warnings=(*raw.warnings, note))
    if categorical:
        names = ", ".join(categorical[:5])
        notes = (
            *notes,
            f"text columns are one-hot, which has no density: {names}; "
            f"use --label-column {categorical[0]} for labels, or --ignore-columns {' '.join(categorical[:5])}",
        )
    targets = encoding.targets(kept)
    return _RawObservations(encoding.inputs(kept), None if labels is None else targets, encoding, warnings=tuple(notes))


def _load_observations(
    source: str,
    *,
    labels: str | None = None,
    ignore: tuple[str, ...] = (),
    keep: tuple[str, ...] = (),
    drop_missing: bool = False,
    size: tuple[int, int] | None = None,
    n: int = 20_000,
    seed: int = 0,
) -> _RawObservations:
    """Loads all observations of a source.

    Args:
        source: Name of a density or a built-in dataset, a file, or a folder of images.
        labels: Label column of a table.
        ignore: Columns to ignore.
        keep: Columns to use although they look like identifiers.
        drop_missing: Drop rows with missing values.
        size: Height and width to resize images to.
        n: Number of samples of a density.
        seed: Random seed of the samples.

    Examples:
        >>> [tuple(_load_observations(name, n=5).x.shape) for name in ("iris", "ring", "diabetes")]
        [(150, 4), (5, 2), (442, 11)]
    """
    builtin = source in _DENSITIES or source in BUILTIN
    path = Path(source) if builtin else resolve_path(source)
    folder = not builtin and path.is_dir()
    if (labels or ignore or keep or drop_missing) and (builtin or folder):
        raise ValueError(f"label_column, ignore_columns, keep_columns and drop_missing need a table, got {source}")
    if size is not None and not folder:
        raise ValueError(f"resize needs a folder of images, got {source}")
    if source in _DENSITIES:
        return _load_density(source, n=n, seed=seed)
    if source in BUILTIN:
        return _RawObservations(*_load_builtin(source), _BUILTIN_LEVELS.get(source))
    if folder:
        return _load_images(path, size=size)
    if (
        path.suffix.lower() in (".npy", ".npz")
        and labels is None
        and not ignore
        and not keep
        and (arrays := _load_arrays(path)) is not None
    ):
        return arrays
    return _load_table(read_table(path), labels=labels, ignore=ignore, keep=keep, drop_missing=drop_missing)


@dataclass(frozen=True, kw_only=True, eq=False)
class GenerativeSplits:
    """Training, validation and test observations, in the units of the data."""

    train: Tensor
    """`n *shape`, float32."""
    validation: Tensor | None
    test: Tensor
    train_labels: Tensor | None
    """Label indices, `n`; None without labels."""
    validation_labels: Tensor | None
    test_labels: Tensor | None
    spec: DataSpec
    """Shape, labels and levels of the observations."""
    density: Density | None
    """True density, if it is known."""
    warnings: tuple[str, ...]
    """Problems of the data."""
    fingerprint: str
    name: str = "data"
    """Name shown in messages."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an observation."""
        return self.spec.shape

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the labels; empty without labels."""
        return self.spec.classes

    @property
    def dequantizer(self) -> Dequantizer | None:
        """Quantization levels of discrete data."""
        return self.spec.dequantizer

    @property
    def evaluation(self) -> Tensor:
        """Validation observations, or the training observations without validation."""
        return self.train if self.validation is None else self.validation

    @property
    def evaluation_labels(self) -> Tensor | None:
        """Labels of `evaluation`."""
        return self.train_labels if self.validation is None else self.validation_labels

    @property
    def description(self) -> str:
        """A line that says how the data were read."""
        return _describe_data(self.name, self.spec.encoding, self.counts)

    @property
    def model_config(self) -> dict[str, Any]:
        """Entry of `TrainingSetup.model_config`; `DataSpec.from_config` reads it."""
        return {"data_spec": self.spec.to_json()}

    @property
    def counts(self) -> dict[str, int]:
        """Number of observations of each split."""
        validation = 0 if self.validation is None else len(self.validation)
        return {"train": len(self.train), "validation": validation, "test": len(self.test)}

    def dequantize(self, x: Tensor, *, seed: int = 0) -> Tensor:
        """Adds uniform noise to discrete data; returns continuous data unchanged."""
        return x if self.dequantizer is None else self.dequantizer.dequantize(x, seed=seed)


@dataclass(frozen=True, kw_only=True)
class GenerativeDataConfig(DataConfig):
    """Data source and splits of generative recipes."""

    data: _Path = "digits"
    """CSV, TSV, Parquet or NumPy file, folder of images, or a name: digits, iris, ring, moons, ..."""
    label_column: _Path | None = None
    """Label column of a table. Defaults to the only column of categories, unless keep_columns lists it. Images are
    labeled by folder, an .npz file by y."""
    value_range: Annotated[tuple[Annotated[float, Range(-1e30, 1e30)], ...], MaxLength(2)] = ()
    """Lowest and highest allowed value. By default, all values are allowed."""
    data_levels: Annotated[int, Range(0, 2**31)] = 0
    """Number of quantization levels of discrete data. 0 means 256 for 8-bit images and continuous
    values for all other data."""
    num_samples: Annotated[int, Range(3, 10**8), Requires(data=tuple(_DENSITIES))] = 20_000
    """Number of samples, for the densities ring, moons, grid and checkerboard."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.value_range) not in (0, 2) or (self.value_range and not self.value_range[0] < self.value_range[1]):
            raise ValueError(f"value_range must be a lowest and a highest value, got {self.value_range}")
        if self.data_levels == 1:
            raise ValueError("data_levels must be 0 or at least 2, got 1")

    def load_splits(self) -> GenerativeSplits:
        """Loads, validates and splits the observations, stratified by label."""
        size: Any = self.resize or None
        raw = _load_observations(
            self.data,
            labels=self.label_column,
            ignore=self.ignore_columns,
            keep=self.keep_columns,
            drop_missing=self.drop_missing,
            size=size,
            n=self.num_samples,
            seed=self.split_seed,
        )
        x = raw.x
        if len(x) < 3:
            raise ValueError(f"{self.data} has {len(x)} observations, at least 3 are needed")
        if not bool(x.isfinite().all()):
            raise ValueError(f"{self.data} has NaN or infinite values, expected finite numbers")
        scale = float(x.double().sub(x.double().mean(0)).abs().max())
        if scale and not 1 / _MAX_SCALE < scale < _MAX_SCALE:
            raise ValueError(f"{self.data} varies by {scale:.2g}, whose square exceeds float32: rescale the data")
        dequantizer = self._find_levels(raw)
        rows = self._split_rows(raw)
        parts = {name: x[chosen] for name, chosen in rows.items()}
        labels = {name: None if raw.labels is None else raw.labels[chosen] for name, chosen in rows.items()}
        if len(parts["test"]) < _MIN_TEST:
            raise ValueError(
                f"the test split has {len(parts['test'])} of the {len(x)} observations of {self.data}, at least "
                f"{_MIN_TEST} are needed: add data, or raise test_fraction"
            )
        if bool((parts["train"] == parts["train"][:1]).all()):
            raise ValueError(f"all {len(parts['train'])} training observations of {self.data} are equal")
        duplicates = [] if raw.density else leaks(parts)
        return GenerativeSplits(
            train=parts["train"],
            validation=parts.get("validation"),
            test=parts["test"],
            train_labels=labels["train"],
            validation_labels=labels.get("validation"),
            test_labels=labels["test"],
            spec=DataSpec(encoding=raw.encoding, dequantizer=dequantizer),
            density=raw.density,
            warnings=(
                *raw.warnings,
                *_data_warnings(parts["train"], dequantizer),
                *(f"{leak}: {leak.second} does not measure generalization" for leak in duplicates),
            ),
            fingerprint=fingerprint(x, *([] if raw.labels is None else [raw.labels]), *rows.values()),
            name=Path(self.data).name,
        )

    def _find_levels(self, raw: _RawObservations) -> Dequantizer | None:
        """Checks the range of the values and returns their levels."""
        low, high = float(raw.x.min()), float(raw.x.max())
        if self.value_range and not self.value_range[0] <= low <= high <= self.value_range[1]:
            hint = (
                ": these look like 8-bit values, 0 to 255"
                if low >= 0 and 1 < high <= 255 >= self.value_range[1]
                else ""
            )
            expected = f"{self.value_range[0]:g} to {self.value_range[1]:g}"
            raise ValueError(f"{self.data} has values from {low:g} to {high:g}, expected {expected}{hint}")
        if not self.data_levels:
            return raw.dequantizer
        least, most = self.value_range or (low, high)
        dequantizer = Dequantizer(levels=self.data_levels, low=least, high=most)
        dequantizer.dequantize(raw.x[:1000])
        return dequantizer

    def _split_rows(self, raw: _RawObservations) -> dict[str, Tensor]:
        fractions = {name: round(fraction, 9) for name, fraction in self.split_fractions().items()}
        labels = raw.labels
        if labels is not None and int(labels.unique(return_counts=True)[1].min()) < len(fractions):
            labels = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a label that is missing from a split does no harm here
            rows = split_indices(len(raw.x), fractions=[*fractions.values()], seed=self.split_seed, labels=labels)
        return dict(zip(fractions, rows, strict=True))


def _data_warnings(x: Tensor, dequantizer: Dequantizer | None) -> Iterator[str]:
    """Returns warnings about training data: constant features, values that look discrete."""
    rows = x.flatten(1)
    constant = int((rows == rows[:1]).all(0).sum())
    if constant:
        yield f"{constant} of {rows.shape[1]} features are constant in the training data"
    if dequantizer is None and bool((rows == rows.round()).all()):
        span = f"{float(rows.min()):g} to {float(rows.max()):g}"
        yield f"all values are integers from {span}: the density is unbounded; set data_levels for discrete data"
    elif dequantizer is None and len(rows.unique()) < min(300, 0.05 * rows.numel()):
        yield f"only {len(rows.unique())} different values: the density is unbounded; set data_levels for discrete data"
