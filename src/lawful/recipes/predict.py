"""Predicting with a run: new data in, a line for each row out."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from lawful.blocks import Dropout
from lawful.data import Encoded, encoding_from_json, load_like
from lawful.data.images import Images, pictures
from lawful.functions.activations import identity
from lawful.inference import Ensemble, class_spread, mc_dropout_predict, predict, probabilities, value_spread
from lawful.inference.metrics import accuracy, root_mean_squared_error
from lawful.recipes.classify_text import ClassifyTextRecipe
from lawful.recipes.registry import load, recipe_of
from lawful.training import Run

SAMPLES = 32
"""How often a row is predicted with dropout on, unless it is said."""
ROWS, TEXTS = 1024, 64
"""How many rows, and how many texts, go through a model at once."""


@dataclass(frozen=True)
class Predictions:
    """A table of predictions, and what they are worth where the truth is known."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    summary: str = ""

    def csv(self) -> str:
        """The table as CSV, with a header."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()


def predictions(run: Run | Path | str, data: str | Path, *, samples: int = 0, seed: int = 0) -> Predictions:
    """Predicts new data with a trained run.

    Where the model has dropout, or is an ensemble, each row has an uncertainty: the disagreement of the samples or of
    the members, in nats for classes and as a standard deviation for numbers.

    Args:
        run: The run, or its folder.
        data: New data of the kind that it was trained on.
        samples: How often each row is predicted with dropout on; 0 for 32 where there is dropout, and none elsewhere.
        seed: What those random numbers begin from.
    """
    run = run if isinstance(run, Run) else Run(run)
    recipe, facts = recipe_of(run), run.config.get("model")
    if isinstance(recipe, ClassifyTextRecipe):
        return _of_texts(recipe, run, data, samples=samples, seed=seed)
    if recipe.name not in ("classify", "regress"):
        wanted = "classify, classify-text or regress"
        raise ValueError(f"lawful predict takes a run of {wanted}: {run.path} is of {recipe.name}")
    encoding = encoding_from_json(facts.get("encoding") if isinstance(facts, dict) else None)
    model, new = load(run), load_like(data, encoding)
    classes = getattr(encoding, "classes", None) if not hasattr(encoding, "target") else encoding.target.levels
    many = _many(model, new.inputs, samples=samples, seed=seed, classes=classes is not None)
    if classes is not None:
        found = _of_classes(model, new, tuple(classes), many)
    else:
        found = _of_numbers(model, new, (encoding.target.name,) if hasattr(encoding, "target") else (), many)
    return _with_files(found, pictures(Path(data))) if isinstance(encoding, Images) else found


def _of_texts(recipe: ClassifyTextRecipe, run: Run, data: str | Path, *, samples: int, seed: int) -> Predictions:
    facts = run.config.get("model")
    facts = facts if isinstance(facts, dict) else {}
    tokens, new = recipe.encoded(data, facts)
    classes = tuple(facts["sizes"]["classes"])
    encoded = Encoded(tokens, None if new.labels is None else torch.tensor(new.labels))
    model = load(run)
    many = _many(model, tokens, samples=samples, seed=seed, classes=True, batch=TEXTS)
    found = _of_classes(model, encoded, classes, many, batch=TEXTS)
    return found if new.files is None else _with_files(found, new.files)


def _with_files(found: Predictions, files: Sequence[Path | str]) -> Predictions:
    """The table with the file of each row, in place of its number."""
    rows = [[str(path), *row[1:]] for path, row in zip(files, found.rows, strict=True)]
    return Predictions(("file", *found.columns[1:]), rows, found.summary)


def _many(model: nn.Module, x: Tensor, *, samples: int, seed: int, classes: bool, batch: int = ROWS) -> Tensor | None:
    """Several predictions of each row, of dropout or of the members of an ensemble."""
    link = probabilities if classes else identity
    members = list(model.members) if isinstance(model, Ensemble) else [model]
    if any(isinstance(m, Dropout | nn.Dropout) and m.p > 0 for m in model.modules()):
        each = -(-(samples or SAMPLES) // len(members))
        return torch.cat(
            [mc_dropout_predict(member, x, samples=each, seed=seed, batch=batch, link=link) for member in members]
        )
    if samples:
        raise ValueError(f"samples are of a model with dropout: this one has none, got samples={samples}")
    return torch.stack([predict(member, x, link=link) for member in members]) if len(members) > 1 else None


def _of_classes(
    model: nn.Module, new: Encoded, classes: tuple[str, ...], many: Tensor | None, *, batch: int = ROWS
) -> Predictions:
    p = predict(model, new.inputs, batch=batch)
    if p.shape[1] != len(classes):
        raise ValueError(f"config.json names {len(classes)} classes: the model has {p.shape[1]}")
    doubt = None if many is None else class_spread(many).information
    rows = []
    for i, row in enumerate(p.tolist()):
        line = [str(i), classes[max(range(len(row)), key=row.__getitem__)], *(f"{q:.6g}" for q in row)]
        rows.append(line if doubt is None else [*line, f"{float(doubt[i]):.6g}"])
    columns = ("row", "prediction", *(f"p({name})" for name in classes), *(() if doubt is None else ("uncertainty",)))
    summary = "" if new.targets is None else f"accuracy {accuracy(p, new.targets)} on {len(p)} rows"
    return Predictions(columns, rows, summary)


def _of_numbers(model: nn.Module, new: Encoded, names: tuple[str, ...], many: Tensor | None) -> Predictions:
    y = predict(model, new.inputs, link=identity)
    names = names if len(names) == y.shape[1] else tuple(f"target {j}" for j in range(y.shape[1]))
    spread = None if many is None or len(many) < 2 else value_spread(many).std
    rows = [
        [str(i), *(f"{v:.6g}" for v in row), *(() if spread is None else (f"{v:.6g}" for v in spread[i].tolist()))]
        for i, row in enumerate(y.tolist())
    ]
    doubts = () if spread is None else tuple(f"uncertainty of {name}" for name in names)
    summary = ""
    if new.targets is not None:
        if new.targets.shape != y.shape:
            came = new.targets.shape[1]
            raise ValueError(f"the model predicts {y.shape[1]} numbers for each row: the data have {came} targets")
        summary = f"root mean squared error {root_mean_squared_error(y, new.targets)} on {len(y)} rows"
    return Predictions(("row", *names, *doubts), rows, summary)
