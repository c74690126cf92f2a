"""Prediction with a trained run: new data in, a table of predictions out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lawful._files import check_memory
from lawful._names import csv_text
from lawful.blocks.dropout import RANDOM_MODULES
from lawful.checking.formatting import format_number
from lawful.data import Encoded, encoding_from_json, load_like, read_trajectories
from lawful.data.images import ImageEncoding, list_images
from lawful.data.text import pad_sequences
from lawful.inference import Ensemble, class_uncertainty, mc_dropout_predict, predict, probabilities, value_uncertainty
from lawful.inference.metrics import accuracy, root_mean_squared_error, wilson
from lawful.models import ParticleModel
from lawful.models.standardized import Standardized
from lawful.recipes.classify_text import ClassifyTextRecipe, TextClassifier
from lawful.recipes.forecast import ForecastModel, ForecastRecipe
from lawful.recipes.generate import _wrong_recipe
from lawful.recipes.graph_classify import GraphClassifier, GraphClassifyRecipe
from lawful.recipes.molecules import MoleculeModel, MoleculesRecipe
from lawful.recipes.nbody import NBodyRecipe, ParticleStates, predict_positions
from lawful.recipes.node_classify import NodeClassifier, NodeClassifyRecipe
from lawful.recipes.supervised import SupervisedRecipe
from lawful.recipes.translate import TranslateRecipe, Translator
from lawful.training import Run
from lawful.training.registry import load, recipe_of

_DROPOUT_SAMPLES = 32
"""Default number of dropout samples."""
_BATCH_SIZE, _TEXT_BATCH_SIZE = 1024, 64
_SAMPLED_ROWS = 2**16
"""Number of rows whose samples are in memory at a time."""
_PREDICTING = (
    "classify, classify-sequence, classify-text, forecast, graph-classify, molecules, nbody, node-classify, regress or "
    "translate"
)
"""Recipes whose runs predict."""
_WITHOUT_ROWS = (
    *(ClassifyTextRecipe, ForecastRecipe, GraphClassifyRecipe, MoleculesRecipe, NBodyRecipe, NodeClassifyRecipe),
    TranslateRecipe,
)
"""Recipes without `drop_missing`."""


@dataclass(frozen=True)
class Predictions:
    """A table of predictions, with a metric if the new data have targets."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    summary: str = ""
    """The metric, as text."""
    notes: tuple[str, ...] = ()
    """Notes for the user: filled values, unknown categories, dropped rows."""
    positions: np.ndarray | None = None
    """Predicted positions of particles, (trajectories, frames, particles, d): `--output out.npz` writes them."""

    def csv(self, *, escape: bool = True) -> str:
        """Returns the table as CSV with a header.

        Args:
            escape: Whether cells that a spreadsheet would run as formulas get a leading apostrophe, and cells with
                control characters are quoted.
        """
        return csv_text([self.columns, *self.rows], escape=escape)


def predictions(
    run: Run | Path | str,
    data: str | Path | None = None,
    *,
    nodes: str | Path | None = None,
    horizon: int | None = None,
    num_samples: int = 0,
    seed: int = 0,
    drop_missing: bool = False,
) -> Predictions:
    """Predicts new data with a trained run.

    A model with dropout and an ensemble also return how much their samples or members disagree (epistemic
    uncertainty): the mutual information in nats for classes, a standard deviation for numbers. It does not include the
    noise of the data, which the test error shows.

    Missing values of a table are filled as in training: with the median or the most frequent category. Unknown
    categories count as other.

    Args:
        run: The run or its folder.
        data: New data in the format of the training data. By default a forecast continues the training data, and
            node-classify predicts the unlabeled nodes of its graph.
        nodes: Table of the nodes, if the data are edges.
        horizon: Number of values to forecast. Defaults to the horizon of the training.
        num_samples: Number of dropout samples per row. 0 means 32 for models with dropout.
        seed: Random seed of the dropout samples.
        drop_missing: Whether to leave out the rows of a table with missing values instead.
    """
    if not -(2**63) <= seed < 2**63:
        raise ValueError(f"seed must be a 64-bit integer, got {seed}")
    run = run if isinstance(run, Run) else Run(run)
    recipe, model_config = recipe_of(run), run.config.get("model")
    model_config = model_config if isinstance(model_config, dict) else {}
    if not isinstance(recipe, (*_WITHOUT_ROWS, SupervisedRecipe)) or recipe.name == "attack":
        raise _wrong_recipe(_PREDICTING, run)
    if nodes is not None and not isinstance(recipe, NodeClassifyRecipe | GraphClassifyRecipe):
        raise ValueError(f"nodes needs a run of node-classify or graph-classify, got one of {recipe.name}")
    if drop_missing and isinstance(recipe, _WITHOUT_ROWS):
        raise ValueError(f"drop_missing needs a run of classify or regress on a table, got one of {recipe.name}")
    if isinstance(recipe, ForecastRecipe):
        return _forecast(recipe, run, data, horizon=horizon, num_samples=num_samples, seed=seed)
    if horizon is not None:
        raise ValueError(f"horizon needs a run of forecast, got one of {recipe.name}")
    if isinstance(recipe, NodeClassifyRecipe):
        return _predict_nodes(recipe, run, data, nodes, num_samples=num_samples)
    if data is None:
        raise ValueError(f"expected new data to predict: a run of {recipe.name} has no default")
    if isinstance(recipe, ClassifyTextRecipe):
        return _predict_texts(recipe, run, model_config, data, num_samples=num_samples, seed=seed)
    if isinstance(recipe, GraphClassifyRecipe):
        return _predict_graphs(recipe, run, data, nodes, num_samples=num_samples)
    if isinstance(recipe, MoleculesRecipe):
        return _predict_molecules(recipe, run, model_config, data, num_samples=num_samples)
    if isinstance(recipe, TranslateRecipe):
        return _translate_file(recipe, run, model_config, data, num_samples=num_samples)
    if isinstance(recipe, NBodyRecipe):
        return _predict_particles(recipe, run, data, num_samples=num_samples)
    encoding = encoding_from_json(model_config.get("encoding"))
    model, new = load(run), load_like(data, encoding, drop_missing=drop_missing)
    classes = encoding.target.levels if hasattr(encoding, "target") else getattr(encoding, "classes", None)
    spread = _uncertainty(model, new.inputs, num_samples=num_samples, seed=seed, classify=classes is not None)
    if classes is not None:
        table = _class_table(model, new, tuple(classes), spread)
    else:
        table = _number_table(model, new, (encoding.target.name,) if hasattr(encoding, "target") else (), spread)
    table = replace(table, notes=(*new.notes, *_error_note(run, table)))
    if new.rows is not None:
        rows = [(str(number), *row[1:]) for number, row in zip(new.rows, table.rows, strict=True)]
        table = replace(table, rows=rows)
    return _with_files(table, list_images(Path(data))) if isinstance(encoding, ImageEncoding) else table


def _forecast(
    recipe: ForecastRecipe,
    run: Run,
    data: str | Path | None,
    *,
    horizon: int | None,
    num_samples: int,
    seed: int,
) -> Predictions:
    """Continues the training series, or the series of a file."""
    if num_samples:
        raise ValueError(f"num_samples needs a model with dropout, got num_samples={num_samples} for a forecast")
    model = load(run)
    if not isinstance(model, ForecastModel):
        raise TypeError(f"expected a ForecastModel, got {type(model).__name__}")
    series = None if data is None else recipe.read(data)
    found = model.forecast(horizon, series=series, seed=seed)
    summary = f"{found.name}: {len(found)} values, {found.dates[0]} to {found.dates[-1]}, with the 80 % interval"
    return Predictions(found.columns, found.rows, "\n".join([*found.notes, summary]))


def _predict_nodes(
    recipe: NodeClassifyRecipe, run: Run, data: str | Path | None, nodes: str | Path | None, *, num_samples: int
) -> Predictions:
    """Predicts the unlabeled nodes of a graph; all nodes if each has a label. No node sees its own label."""
    _refuse_samples(num_samples, recipe.name)
    if data is None and nodes is not None:
        raise ValueError("nodes needs the edges of the new graph: pass data")
    model = load(run)
    if not isinstance(model, NodeClassifier):
        raise TypeError(f"expected a NodeClassifier, got {type(model).__name__}")
    loaded = recipe.read(data, nodes, encoding=model.encoding)
    graph, labels, p = (
        loaded.graph,
        model.known_labels(loaded.graph),
        torch.from_numpy(model.predict_proba(loaded.graph)),
    )
    names, notes, summary = graph.names or tuple(map(str, range(graph.num_nodes))), loaded.notes, ""
    some = (labels < 0).nonzero()[:, 0]
    if not len(some):
        some = torch.arange(graph.num_nodes)
        summary = f"accuracy {accuracy(p, labels)} on {len(p)} nodes, each from the labels of the others"
        notes = (*notes, "all nodes have labels: each is predicted from the labels of the others")
    rows = [[names[i], model.classes[int(p[i].argmax())], *(f"{q:.6g}" for q in p[i].tolist())] for i in some.tolist()]
    return Predictions(("node", "prediction", *(f"p({name})" for name in model.classes)), rows, summary, notes)


def _refuse_samples(num_samples: int, recipe: str) -> None:
    if num_samples:
        raise ValueError(f"num_samples is not supported for a run of {recipe}, got num_samples={num_samples}")


def _predict_graphs(
    recipe: GraphClassifyRecipe, run: Run, data: str | Path, nodes: str | Path | None, *, num_samples: int
) -> Predictions:
    """Predicts graphs, with the accuracy if they are in folders that are named as the classes."""
    _refuse_samples(num_samples, recipe.name)
    model = load(run)
    if not isinstance(model, GraphClassifier):
        raise TypeError(f"expected a GraphClassifier, got {type(model).__name__}")
    loaded = recipe.read(data, nodes, encoding=model.encoding)
    p = torch.from_numpy(model.predict_proba(loaded.graphs))
    labels = torch.cat([torch.tensor([-1]) if graph.y is None else graph.y for graph in loaded.graphs])
    summary = f"accuracy {accuracy(p, labels)} on {len(p)} graphs" if bool((labels >= 0).all()) else ""
    rows = [
        [name, model.classes[int(row.argmax())], *(f"{q:.6g}" for q in row.tolist())]
        for name, row in zip(loaded.names, p, strict=True)
    ]
    columns = ("graph", "prediction", *(f"p({name})" for name in model.classes))
    return Predictions(columns, rows, summary, loaded.notes)


def _predict_molecules(
    recipe: MoleculesRecipe, run: Run, model_config: Mapping[str, Any], data: str | Path, *, num_samples: int
) -> Predictions:
    """Predicts a property of molecules, with the error if all have it."""
    _refuse_samples(num_samples, recipe.name)
    model, target = load(run), str(model_config.get("target") or "prediction")
    if not isinstance(model, MoleculeModel):
        raise TypeError(f"expected a MoleculeModel, got {type(model).__name__}")
    molecules, notes = recipe.read(data)
    y, summary = torch.from_numpy(model.predict(molecules)), ""
    if all(target in molecule.properties for molecule in molecules):
        true = torch.tensor([molecule.properties[target] for molecule in molecules])
        summary = f"root mean squared error {root_mean_squared_error(y, true)} on {len(y)} molecules"
    rows = [[molecule.name, f"{value:.8g}"] for molecule, value in zip(molecules, y.tolist(), strict=True)]
    return Predictions(("molecule", target), rows, summary, notes)


def _predict_texts(
    recipe: ClassifyTextRecipe,
    run: Run,
    model_config: Mapping[str, Any],
    data: str | Path,
    *,
    num_samples: int,
    seed: int,
) -> Predictions:
    new, model = recipe.load_texts(data, model_config), load(run)
    if not isinstance(model, TextClassifier):
        raise TypeError(f"expected a TextClassifier, got {type(model).__name__}")
    tokens = pad_sequences(model.encode(new.texts), model.padding)
    encoded = Encoded(tokens, None if new.labels is None else torch.tensor(new.labels))
    spread = _uncertainty(model, tokens, num_samples=num_samples, seed=seed, classify=True, batch=_TEXT_BATCH_SIZE)
    table = _class_table(model, encoded, model.classes, spread, batch=_TEXT_BATCH_SIZE)
    return table if new.files is None else _with_files(table, new.files)


def _predict_particles(recipe: NBodyRecipe, run: Run, data: str | Path, *, num_samples: int) -> Predictions:
    """Predicts every frame of trajectories. A file with 3 axes has one trajectory, or states without an order."""
    if num_samples:
        raise ValueError(f"num_samples needs a model with dropout, got num_samples={num_samples} for particles")
    found, model = read_trajectories(data), load(run)
    if not isinstance(model, ParticleModel):
        raise TypeError(f"expected a ParticleModel, got {type(model).__name__}")
    b, frames, n, d = found.positions.shape
    if d != len(model.center):
        raise ValueError(f"the model predicts in {len(model.center)} dimensions, {Path(data).name} has {d}")
    if model.edge_dim and found.charges is None:
        raise ValueError(f"{Path(data).name} has no array charges, which the model was trained with")
    charges = found.charges if model.edge_dim else None
    states = ParticleStates(
        found.positions.flatten(0, 1),
        found.velocities.flatten(0, 1),
        found.positions.flatten(0, 1),
        None if charges is None else charges.repeat_interleave(frames, 0),
    )
    y = predict_positions(model, states).unflatten(0, (b, frames))
    rows = [
        [str(i), str(k), str(j), *(f"{value:.6g}" for value in y[i, k, j].tolist())]
        for i in range(b)
        for k in range(frames)
        for j in range(n)
    ]
    summary, h = f"{b * frames} states, {recipe.horizon} frames ahead", recipe.horizon
    if h < frames:
        error = float((y[:, :-h] - found.positions[:, h:]).square().mean())
        summary += f"; mean squared error {format_number(error)} where the file has the later frame"
    notes = () if model.edge_dim or found.charges is None else ("charges are ignored: the training data had none",)
    columns = ("trajectory", "frame", "particle", *(f"x{i + 1}" for i in range(d)))
    return Predictions(columns, rows, summary, notes, y.numpy())


def _translate_file(
    recipe: TranslateRecipe, run: Run, model_config: Mapping[str, Any], data: str | Path, *, num_samples: int
) -> Predictions:
    if num_samples:
        raise ValueError(f"num_samples needs a model with dropout, got num_samples={num_samples} for a translation")
    model, (sources, targets) = load(run), recipe.load_sources(data, model_config)
    if not isinstance(model, Translator):
        raise TypeError(f"expected a Translator, got {type(model).__name__}")
    translations = model.translate(sources)
    summary, notes = "", ()
    if targets is not None:
        hits = sum(x == y for x, y in zip(translations, targets, strict=True))
        summary = f"accuracy {wilson(hits, len(targets))} on {len(targets)} rows"
    unknown = [model.tokenizer.unknown_characters(source) for source in sources]
    if letters := sorted({letter for found in unknown for letter in found}):
        count = f"{sum(map(bool, unknown))} of {len(sources)} sources"
        notes = (f"{count} have characters that the training data do not have: {', '.join(map(ascii, letters[:10]))}",)
    columns = [list(map(str, range(len(sources)))), sources, translations, *([] if targets is None else [targets])]
    names = ("row", "source", "prediction", "target")[: len(columns)]
    return Predictions(names, list(zip(*columns, strict=True)), summary, notes)


def _with_files(table: Predictions, files: Sequence[Path | str]) -> Predictions:
    """Replaces the row numbers by file names."""
    rows = [(str(path), *row[1:]) for path, row in zip(files, table.rows, strict=True)]
    return replace(table, columns=("file", *table.columns[1:]), rows=rows)


def _networks(model: nn.Module) -> Iterator[nn.Module]:
    """Yields the networks of an ensemble and of cross-validated models, each with the normalizers of its model."""
    if isinstance(model, Ensemble):
        for member in model.members:
            yield from _networks(member)
    elif isinstance(model, Standardized) and isinstance(model.model, Ensemble):
        for member in model.model.members:
            yield Standardized(member, normalizer=model.normalizer, output_normalizer=model.output_normalizer)
    else:
        yield model


def _uncertainty(
    model: nn.Module, x: Tensor, *, num_samples: int, seed: int, classify: bool, batch: int = _BATCH_SIZE
) -> Tensor | None:
    """Returns the mutual information or the standard deviation of several predictions per row, if there are several."""
    found = []
    for number, part in enumerate(x.split(_SAMPLED_ROWS)):
        samples = _samples(model, part, num_samples=num_samples, seed=seed + number, classify=classify, batch=batch)
        if samples is None or (len(samples) < 2 and not classify):
            return None
        found.append(class_uncertainty(samples).mutual_information if classify else value_uncertainty(samples).std)
    return torch.cat(found)


def _samples(
    model: nn.Module, x: Tensor, *, num_samples: int, seed: int, classify: bool, batch: int = _BATCH_SIZE
) -> Tensor | None:
    """Several predictions per row, by dropout or by the members of an ensemble."""
    link = probabilities if classify else _identity
    members = list(_networks(model))
    if any(isinstance(m, RANDOM_MODULES) and getattr(m, "p", 0.0) > 0 for m in model.modules()):
        each = -(-(num_samples or _DROPOUT_SAMPLES) // len(members))
        num_values = predict(members[0], x[:1], link=link).numel() * each * len(members) * len(x)
        check_memory(16 * num_values, what=f"num_samples={num_samples} for {len(x):,} rows", remedy="lower num_samples")
        found = [
            mc_dropout_predict(member, x, num_samples=each, seed=seed, batch_size=batch, link=link)
            for member in members
        ]
        return torch.cat(found) if len(found) > 1 else found[0]
    if num_samples:
        raise ValueError(f"num_samples needs a model with dropout, got num_samples={num_samples} for one without")
    return torch.stack([predict(member, x, link=link) for member in members]) if len(members) > 1 else None


def _class_table(
    model: nn.Module, new: Encoded, classes: tuple[str, ...], uncertainty: Tensor | None, *, batch: int = _BATCH_SIZE
) -> Predictions:
    p = predict(model, new.inputs, batch_size=batch)
    if p.shape[1] != len(classes):
        raise ValueError(f"config.json names {len(classes)} classes but the model has {p.shape[1]}")
    last = p.new_zeros(len(p), 0) if uncertainty is None else uncertainty[:, None]
    rows = [
        (str(i), classes[max(range(len(classes)), key=row.__getitem__)], *(f"{q:.6g}" for q in row))
        for i, row in enumerate(_lists(torch.cat([p, last], 1)))
    ]
    columns = ("row", "prediction", *(f"p({name})" for name in classes))
    summary = "" if new.targets is None else f"accuracy {accuracy(p, new.targets)} on {len(p)} rows"
    return Predictions(columns if uncertainty is None else (*columns, "mutual information"), rows, summary)


def _number_table(model: nn.Module, new: Encoded, names: tuple[str, ...], std: Tensor | None) -> Predictions:
    y = predict(model, new.inputs, link=_identity)
    names = names if len(names) == y.shape[1] else tuple(f"target {j}" for j in range(y.shape[1]))
    numbers = y if std is None else torch.cat([y, std], 1)
    rows = [(str(i), *(f"{v:.6g}" for v in row)) for i, row in enumerate(_lists(numbers))]
    columns = ("row", *names, *(() if std is None else (f"epistemic std of {name}" for name in names)))
    summary = ""
    if new.targets is not None:
        if new.targets.shape != y.shape:
            got = new.targets.shape[1]
            raise ValueError(f"the model predicts {y.shape[1]} numbers per row but the data have {got} targets")
        summary = f"root mean squared error {root_mean_squared_error(y, new.targets)} on {len(y)} rows"
    return Predictions(columns, rows, summary)


def _error_note(run: Run, table: Predictions) -> tuple[str, ...]:
    """Says how large the errors of numbers are, if the table shows only the disagreement of the model."""
    test = run.results.get("test")
    rmse = test.get("root mean squared error") if isinstance(test, dict) else None
    if not any(name.startswith("epistemic std") for name in table.columns) or not isinstance(rmse, dict):
        return ()
    error = format_number(rmse.get("value", math.nan))
    return (f"the epistemic std leaves out the noise of the data: the test RMSE was {error}",)


def _lists(x: Tensor) -> Iterator[list[float]]:
    """Yields the rows of a matrix as lists."""
    for part in x.split(_SAMPLED_ROWS):
        yield from part.tolist()


def _identity(y: Tensor) -> Tensor:
    return y
