"""Classification of series: a table with one series per row, arrays, images as sequences of pixels, or MNIST-1D."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from lawful.data import Arrays, SupervisedDataset, TableEncoding
from lawful.data.table_encoding import Task
from lawful.recipes.classify import ClassifyRecipe
from lawful.recipes.data import DataSplits, _Path
from lawful.recipes.supervised import StateSpaceSpec, _ClassifierSpec


@dataclass(frozen=True, kw_only=True)
class ClassifySequenceRecipe(ClassifyRecipe):
    """Train a classifier of series: a table with one series per row, arrays, images or MNIST-1D."""

    name: ClassVar[str] = "classify-sequence"

    data: _Path = "mnist1d"
    """CSV, TSV or Parquet file with one series and its class per row; NumPy file with x of shape (n, t), (n, c, t) or
    (n, t, c) and y; a folder with one folder of images per class; or a name: mnist1d, digits."""
    model: _ClassifierSpec = field(default_factory=StateSpaceSpec)
    """Model architecture."""

    def load_splits(self, task: Task) -> DataSplits:
        """Loads the series and splits them, stratified by class. The longer axis of an array is the time."""
        splits = super().load_splits(task)
        match splits.encoding:
            case TableEncoding():
                _check_numbers(splits.encoding, self.data)
            case Arrays(shape=(t, c), classes=classes) if t > c:
                note = f"the series of shape ({t}, {c}) are read as {t} time steps of {c} channels"
                return replace(
                    splits,
                    train=_transpose(splits.train),
                    validation=None if splits.validation is None else _transpose(splits.validation),
                    test=_transpose(splits.test),
                    encoding=Arrays((c, t), classes),
                    warnings=(note, *splits.warnings),
                )
        return splits

    def _as_series(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        return x.unsqueeze(1) if x.dim() == 2 else x


def _check_numbers(encoding: TableEncoding, data: str) -> None:
    """Raises if a column is not a number, or has missing values: a series has one number per time step."""
    for column in encoding.columns:
        if column.kind != "number":
            raise ValueError(
                f"{data} must have one series per row: column {column.name!r} is a {column.kind}, expected numbers. "
                "Leave it out with --ignore-columns"
            )
        if column.indicator:
            raise ValueError(
                f"{data} must have series without missing values: column {column.name!r} has some. Leave the rows out "
                "with --drop-missing"
            )


def _transpose(examples: SupervisedDataset) -> SupervisedDataset:
    return replace(examples, inputs=examples.inputs.mT.contiguous())
