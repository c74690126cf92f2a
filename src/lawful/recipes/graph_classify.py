"""Graph classification: a class for each of many graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful._json import MaxLength, Range
from lawful._names import quote
from lawful.blocks import Standardize
from lawful.blocks.modes import eval_mode
from lawful.data import (
    Batch,
    Column,
    Graph,
    GraphBatch,
    LoadedGraphs,
    NodeEncoding,
    ShuffledBatches,
    fingerprint,
    read_graphs,
    ring_graphs,
)
from lawful.functions import color_refinement, return_probabilities
from lawful.inference.metrics import accuracy, confusion_matrix, per_class
from lawful.laws import Claim, node_permutation_invariance, shape, tokens
from lawful.models import GraphPool
from lawful.probe import figures
from lawful.recipes.classify import _classification_metrics, _tables
from lawful.recipes.data import _Path
from lawful.recipes.graphs import GATSpec, GraphDataConfig, GraphModelSpec, MessagePassingSpec, _GraphModel, _model_name
from lawful.recipes.optimization import (
    EvaluationConfig,
    OptimizationConfig,
    _classification_loss,
    _NonNegative,
    _NumEvals,
    _Patience,
    _PositiveInt,
    _Steps,
)
from lawful.recipes.supervised import _fit_softmax_regression
from lawful.training import Recipe, Run, TrainingSetup, compare_with_baselines
from lawful.training.registry import _check_parameter_count

_BUILTIN_NAMES = ("rings",)
_NUM_RINGS = 600
_MAX_DEGREE, _MAX_COLORS, _REFINEMENTS = 20, 1000, 3
"""Largest degree of the histogram; number of colors and steps of the Weisfeiler-Leman baseline."""
_MAX_COLORED_NODES = 300_000
"""With more nodes, there is no Weisfeiler-Leman baseline."""
_EVALUATION_BATCH, _SHOWN = 256, 12


class GraphClassifier(nn.Module):
    """Predicts the class of graphs: logistic regression on size and degrees, plus a network that corrects it.

    The network sees the features of the nodes, their degrees and return probabilities of random walks. Its output layer
    starts at 0.

    Args:
        spec: Specification of the network.
        encoding: Encoding of nodes and labels.
        walk_length: Number of return probabilities.
        mean_size: Mean number of nodes of a graph.
    """

    def __init__(self, spec: GraphModelSpec, encoding: NodeEncoding, *, walk_length: int, mean_size: float) -> None:
        super().__init__()
        self.encoding, self.walk_length = encoding, walk_length
        num_features = len(encoding.features)
        width, summary = num_features + 1 + walk_length, num_features + 2 + _MAX_DEGREE + 1
        self.normalizer, self.summary_normalizer = Standardize(width), Standardize(summary)
        self.linear = nn.Linear(summary, len(encoding.classes)).requires_grad_(False)
        self.network = GraphPool(spec.build(width, spec.dim), len(encoding.classes), dim=spec.dim, mean_size=mean_size)
        for parameter in (*self.linear.parameters(), *self.network.head[-1].parameters()):
            nn.init.zeros_(parameter)

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in the order of `predict_proba`."""
        return self.encoding.classes

    def forward(
        self,
        x: Float[Tensor, "n d"],
        edge_index: Int[Tensor, "2 e"],
        edge_weight: Float[Tensor, " e"] | None = None,
        *,
        batch: Int[Tensor, " n"] | None = None,
        num_graphs: int | None = None,
    ) -> Float[Tensor, "g c"]:
        """Returns the logits of each graph.

        Args:
            x: Features of the nodes, from `node_features`.
            edge_index: Source and target of each edge.
            edge_weight: Positive weights of the edges.
            batch: Graph of each node. Defaults to one graph.
            num_graphs: Number of graphs. Defaults to the largest entry of `batch` plus 1.
        """
        batch = torch.zeros(len(x), dtype=torch.int64, device=x.device) if batch is None else batch
        count = int(batch.max()) + 1 if num_graphs is None else num_graphs
        summary = _summaries(x[:, : len(self.encoding.features)], edge_index, batch, count)
        correction = self.network(self.normalizer(x), edge_index, edge_weight, batch=batch, num_graphs=count)
        return self.linear(self.summary_normalizer(summary)) + correction

    def fit_linear(self, graphs: Sequence[Graph], labels: Int[Tensor, " g"]) -> GraphClassifier:
        """Fits the normalizers and the logistic regression.

        Args:
            graphs: Training graphs, with the features of `node_features`.
            labels: Class of each graph.
        """
        self.normalizer.fit(torch.cat([graph.x for graph in graphs]))
        x = _batch_summaries(graphs, len(self.encoding.features))
        x = self.summary_normalizer.fit(x)(x)
        fitted = _fit_softmax_regression(x, labels, num_classes=len(self.classes)).linear.float()
        self.linear.load_state_dict(fitted.state_dict())
        return self

    def node_features(self, x: Float[Tensor, "n d"], edge_index: Int[Tensor, "2 e"]) -> Float[Tensor, "n m"]:
        """Returns the features of nodes with their degrees and return probabilities.

        Args:
            x: Features of the nodes.
            edge_index: Source and target of each edge.
        """
        return _node_features(x, edge_index, self.walk_length)

    def predict(self, graphs: Sequence[Graph] | str | Path, nodes: str | Path | None = None) -> np.ndarray:
        """Returns the class of each graph.

        Args:
            graphs: Graphs, or a table or folder of graphs.
            nodes: Table of the nodes, with a table of graphs.
        """
        return np.array(self.classes)[self.predict_proba(graphs, nodes).argmax(-1)]

    def predict_proba(self, graphs: Sequence[Graph] | str | Path, nodes: str | Path | None = None) -> np.ndarray:
        """Returns the probability of each class for each graph, `(n, classes)`.

        Args:
            graphs: Graphs, or a table or folder of graphs.
            nodes: Table of the nodes, with a table of graphs.
        """
        if isinstance(graphs, str | Path):
            graphs = read_graphs(graphs, nodes=nodes, encoding=self.encoding).graphs
        width = len(self.encoding.features)
        if strange := [graph.x.shape[1] for graph in graphs if graph.x.shape[1] != width]:
            raise ValueError(f"expected graphs with {width} features per node, got {strange[0]}")
        prepared = [replace(graph, x=self.node_features(graph.x, graph.edge_index), y=None) for graph in graphs]
        with eval_mode(self):
            return _predict(self, prepared).softmax(-1).numpy()


def _node_features(x: Float[Tensor, "n d"], edge_index: Int[Tensor, "2 e"], walk_length: int) -> Float[Tensor, "n m"]:
    degree = x.new_zeros(len(x)).index_add(0, edge_index[1], x.new_ones(edge_index.shape[1]))
    parts = [x, degree.log1p()[:, None]]
    parts += [return_probabilities(edge_index, len(x), walk_length).to(x)] if walk_length else []
    return torch.cat(parts, -1)


def _summaries(
    x: Float[Tensor, "n d"], edge_index: Int[Tensor, "2 e"], batch: Int[Tensor, " n"], count: int
) -> Float[Tensor, "g m"]:
    """Returns the numbers of nodes and edges of each graph, the fraction of nodes of each degree and mean features."""
    degree = x.new_zeros(len(x)).index_add(0, edge_index[1], x.new_ones(edge_index.shape[1]))
    one_hot = F.one_hot(degree.long().clamp_max(_MAX_DEGREE), _MAX_DEGREE + 1).to(x)
    rows = torch.cat([x.new_ones(len(x), 1), degree[:, None], one_hot, x], 1)
    total = x.new_zeros(count, rows.shape[1]).index_add(0, batch, rows)
    return torch.cat([total[:, :2], total[:, 2:] / total[:, :1].clamp_min(1)], 1)


def _batch_summaries(graphs: Sequence[Graph], num_features: int) -> Float[Tensor, "g m"]:
    batch = GraphBatch.from_graphs([replace(graph, y=None, edge_attr=None) for graph in graphs])
    return _summaries(batch.x[:, :num_features], batch.edge_index, batch.batch, len(graphs))


@torch.no_grad()
def _predict(model: GraphClassifier, graphs: Sequence[Graph]) -> Float[Tensor, "g c"]:
    """Returns the logits of prepared graphs."""
    found = [model.normalizer.mean.new_zeros(0, len(model.classes)).cpu()]
    for start in range(0, len(graphs), _EVALUATION_BATCH):
        found.append(_logits(model, graphs[start : start + _EVALUATION_BATCH], model.normalizer.mean.device).cpu())
    return torch.cat(found)


def _logits(model: nn.Module, graphs: Sequence[Graph], device: torch.device) -> Float[Tensor, "g c"]:
    batch = GraphBatch.from_graphs(graphs)
    weight = None if batch.edge_weight is None else batch.edge_weight.to(device)
    return model(
        batch.x.to(device),
        batch.edge_index.to(device),
        weight,
        batch=batch.batch.to(device),
        num_graphs=batch.num_graphs,
    )


def _as_graph_classifier(model: nn.Module) -> GraphClassifier:
    if not isinstance(model, GraphClassifier):
        raise TypeError(f"expected a GraphClassifier, got {type(model).__name__}")
    return model


@dataclass(frozen=True)
class GraphsData:
    """Graphs, prepared for the model, with those of each split."""

    graphs: Sequence[Graph]
    """Graphs, with degrees and return probabilities as features."""
    raw: Sequence[Graph]
    """Graphs as they were read."""
    names: tuple[str, ...]
    """Names of the graphs."""
    labels: Int[Tensor, " g"]
    """Class of each graph, -1 if it is unknown."""
    splits: Mapping[str, Int[Tensor, " k"]]
    """Labeled graphs for training, validation and test."""
    warnings: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Number of graphs of each split, and without a label."""
        unlabeled = int((self.labels < 0).sum())
        return {name: len(some) for name, some in self.splits.items()} | {"unlabeled": unlabeled}

    def take(self, indices: Int[Tensor, " k"]) -> list[Graph]:
        """Returns the prepared graphs at `indices`."""
        return [self.graphs[i] for i in indices.tolist()]


@dataclass(frozen=True, kw_only=True)
class GraphClassifyRecipe(GraphDataConfig, OptimizationConfig, EvaluationConfig, Recipe[GraphsData]):
    """Train a classifier of graphs: a table of edges, one folder of edge lists per class, or built-in rings."""

    name: ClassVar[str] = "graph-classify"

    model: _GraphModel = field(default_factory=lambda: MessagePassingSpec(dropout=0.1, aggregation="sum"))
    """Model architecture."""
    data: Annotated[str, MaxLength(4096)] = "rings"
    """Table with the columns graph, source, target (and weight); folder with one edge list per graph; or rings:
    built-in graphs."""
    labels: _Path | None = None
    """Table with the name and the label of each graph. The subfolders of a folder are classes."""
    nodes: _Path | None = None
    """Table with the columns graph, node and features."""
    target: _Path | None = None
    """Column of the labels. Defaults to the last column."""
    walk_length: Annotated[int, Range(0, 100)] = 8
    """Length of the random walks whose return probabilities are features of the nodes, so that the network recognizes
    rings; 0 disables."""
    steps: _Steps = 300
    batch_size: _PositiveInt | None = 32
    """Graphs per step."""
    learning_rate: _NonNegative | None = 1e-3
    num_evals: _NumEvals = 15
    """Number of evaluations during training."""
    patience: _Patience = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.data in _BUILTIN_NAMES:
            self._check_builtin(_BUILTIN_NAMES, "labels")
        elif self.labels is None and self.target:
            raise ValueError("target needs labels: a table with the names and labels of the graphs")
        elif self.nodes is None and (self.ignore_columns or self.keep_columns):
            raise ValueError("ignore_columns and keep_columns need nodes: a table with the features of the nodes")

    def setup(self) -> TrainingSetup[GraphsData]:
        """Reads the graphs, splits them and builds the model."""
        loaded = self.read()
        graphs, encoding, notes = loaded.graphs, loaded.encoding, loaded.notes
        if encoding.target is None:
            raise ValueError(
                "graph-classify needs labels: pass --labels with a table of graphs and labels, or a folder with one "
                "subfolder of edge lists per class"
            )
        if low := [float(g.edge_weight.min()) for g in graphs if g.edge_weight is not None and g.num_edges]:
            if min(low) <= 0:
                raise ValueError(f"edge weights must be positive, got {min(low):g}")
            if isinstance(self.model, GATSpec):
                notes = (*notes, "model gat ignores the edge weights")
        labels = torch.cat([g.y if g.y is not None else torch.tensor([-1]) for g in graphs])
        prepared = [replace(g, x=_node_features(g.x, g.edge_index, self.walk_length)) for g in graphs]
        data = GraphsData(prepared, graphs, loaded.names, labels, self._split(labels, encoding.classes), notes)
        train = data.take(data.splits["train"])
        mean_size = sum(g.num_nodes for g in train) / len(train)
        model_config = {"encoding": encoding.to_json(), "mean_size": mean_size}
        model = _as_graph_classifier(self.build_model(model_config))
        model.fit_linear(train, labels[data.splits["train"]])
        batches = ShuffledBatches(data.splits["train"], batch_size=self.batch_size or 32, seed=self.seed)
        steps, validated = self.num_steps(len(batches)), len(data.splits["validation"]) > 0
        if self.patience and not validated:
            raise ValueError("patience needs validation data: set validation_fraction above 0, or patience=0")
        return TrainingSetup(
            model=model,
            optimizer_steps=[self.optimizer_step(model, partial(_loss, data=data), steps=steps)],
            batches=batches,
            steps=steps,
            evaluate=partial(_evaluate, data=data) if validated else None,
            eval_every=self.eval_every(steps, steps_per_epoch=len(batches)),
            patience=self.patience or None,
            restore_best=validated,
            ema_decay=self.ema_decay or None,
            grad_accumulation_steps=self.grad_accumulation_steps,
            claims=_claims,
            model_config=model_config,
            data_fingerprint=fingerprint(
                labels, *(t for g in graphs for t in (g.x, g.edge_index)), *data.splits.values()
            ),
            notes=[_describe(Path(self.data).name, data, encoding)],
            warnings=data.warnings,
            data=data,
        )

    def finish(self, run: Run, setup: TrainingSetup[GraphsData]) -> Mapping[str, Any]:
        """Evaluates the classifier on the test graphs and writes figures."""
        data, model = setup.data, _as_graph_classifier(setup.model)
        names = model.classes
        p = _predict(model, data.graphs).softmax(-1)
        metrics = {
            name: {"accuracy": accuracy(p[some], data.labels[some]).json()}
            for name, some in data.splits.items()
            if len(some)
        }
        test = data.splits["test"]
        y = data.labels[test]
        counts = confusion_matrix(p[test], y)
        scores = [score.json() for score in per_class(counts)]
        baselines = _baselines(data, len(names))
        plots = {
            "predictions": _draw(data, p, names),
            "confusion": figures.confusion_matrix(counts, names=names),
            "per class": figures.class_scores(scores, names=names),
        }
        for name, figure in plots.items():
            figures.save(figure, run.figures / f"{name}.png", root=run.root)
        tables = _tables(p[test], y, names, counts, scores)
        head, *rows = tables["test predictions"]
        tables["test predictions"] = [
            ["graph", *head],
            *([data.names[i], *row] for i, row in zip(test.tolist(), rows, strict=False)),
        ]
        for name, rows in tables.items():
            run.write_csv(f"samples/{name}.csv", rows)
        return {
            **metrics,
            "test": _classification_metrics(p[test], y),
            "baseline accuracy": baselines,
            "examples": {name: count for name, count in data.counts.items() if count},
            "summary": compare_with_baselines(
                "test accuracy",
                accuracy(p[test], y).json(),
                baselines,
                higher_is_better=True,
                model=_model_name(self.model),
            ),
            "lead_figures": ["predictions.png"],
            "warnings": list(data.warnings),
        }

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the classifier of a run, without its weights."""
        encoding, mean_size = NodeEncoding.from_json(model_config.get("encoding")), model_config.get("mean_size")
        if isinstance(mean_size, bool) or not isinstance(mean_size, int | float) or not 0 < mean_size < 1e12:
            raise ValueError(f"model.mean_size must be a positive number, got {str(mean_size)[:100]}")
        build = partial(GraphClassifier, self.model, encoding, walk_length=self.walk_length, mean_size=float(mean_size))
        _check_parameter_count([build])
        return build()

    def read(
        self, data: str | Path | None = None, nodes: str | Path | None = None, *, encoding: NodeEncoding | None = None
    ) -> LoadedGraphs:
        """Reads the graphs of the options, or others in the same format.

        Args:
            data: Another table or folder.
            nodes: Table of its nodes.
            encoding: Encoding of the training graphs.
        """
        source = self.data if data is None else data
        if str(source) in _BUILTIN_NAMES:
            graphs = ring_graphs(_NUM_RINGS)
            names = tuple(str(i) for i in range(len(graphs)))
            return LoadedGraphs(graphs, names, NodeEncoding(None, (), Column("ring", graphs[0].classes)))
        if data is None:
            self._check_builtin(_BUILTIN_NAMES)
        return read_graphs(
            source,
            labels=self.labels if data is None else None,
            nodes=self.nodes if data is None else nodes,
            target=self.target,
            ignore_columns=self.ignore_columns,
            keep_columns=self.keep_columns,
            directed=self.directed,
            encoding=encoding,
        )


def _describe(name: str, data: GraphsData, encoding: NodeEncoding) -> str:
    sizes = [graph.num_nodes for graph in data.raw]
    splits = ", ".join(f"{count:,} {split}" for split, count in data.counts.items() if count)
    span = f"{min(sizes)} to {max(sizes)} nodes" if min(sizes) < max(sizes) else f"{sizes[0]} nodes"
    classes = ", ".join(map(quote, encoding.classes[:10]))
    return f"{name}: {len(sizes):,} graphs of {span}, {len(encoding.features)} features, classes {classes}; {splits}"


def _loss(model: nn.Module, batch: Batch, data: GraphsData) -> dict[str, Tensor]:
    """Cross-entropy and accuracy of the graphs of a batch."""
    (indices,) = batch
    logits = _logits(model, data.take(indices), indices.device)
    return _classification_loss(logits, data.labels.to(indices.device)[indices], label_smoothing=0.0)


def _evaluate(model: nn.Module, data: GraphsData) -> dict[str, float]:
    """Cross-entropy and accuracy of the validation graphs."""
    some = data.splits["validation"]
    logits, y = _predict(_as_graph_classifier(model), data.take(some)), data.labels[some]
    return {"loss": float(F.cross_entropy(logits, y)), "accuracy": float((logits.argmax(-1) == y).double().mean())}


def _claims(model: nn.Module) -> Iterator[Claim]:
    """A renumbering of the nodes does not change the logits."""
    classifier = _as_graph_classifier(model)
    width = len(classifier.encoding.features)

    def logits(x: Tensor, edge_index: Tensor) -> Tensor:
        features = classifier.node_features(x[:, :width], edge_index)
        return classifier(features, edge_index)

    inputs = shape(f"6 {width}" if width else "6 1"), tokens("2 e:1..15", 6)
    yield Claim(node_permutation_invariance(), logits, inputs, name="graph classifier")


# ---------------------------------------------------------------- baselines and figures


def _baselines(data: GraphsData, num_classes: int) -> dict[str, dict[str, float]]:
    """Returns the accuracy of the majority and of logistic regression on size and degrees, and on colors."""
    fitting, test = torch.cat([data.splits["train"], data.splits["validation"]]), data.splits["test"]
    y = data.labels[fitting]
    majority = F.one_hot(y.bincount(minlength=num_classes).argmax().expand(len(test)), num_classes).float()
    found = {"most frequent class": majority}
    features = {"logistic regression on size and degrees": _batch_summaries(data.raw, data.raw[0].x.shape[1])}
    if sum(graph.num_nodes for graph in data.raw) <= _MAX_COLORED_NODES:
        features["logistic regression on Weisfeiler-Leman colors"] = _color_counts(data.raw)
    for name, x in features.items():
        x = Standardize(x.shape[1]).fit(x[fitting])(x)
        model = _fit_softmax_regression(x[fitting], y, num_classes=num_classes)
        with torch.no_grad():
            found[name] = model(x[test].double()).softmax(-1).float()
    return {name: accuracy(p, data.labels[test]).json() for name, p in found.items()}


def _color_counts(graphs: Sequence[Graph]) -> Float[Tensor, "g m"]:
    """Returns how often each color of the Weisfeiler-Leman test occurs in each graph, for the most frequent colors."""
    union = GraphBatch.from_graphs([replace(graph, y=None, edge_attr=None) for graph in graphs])
    colors = union.x.unique(dim=0, return_inverse=True)[1] if union.x.shape[1] else torch.zeros_like(union.batch)
    counts = []
    for _ in range(_REFINEMENTS + 1):
        occurs = colors.bincount()
        chosen = occurs.argsort(descending=True, stable=True)[: _MAX_COLORS // (_REFINEMENTS + 1)]
        place = torch.full((len(occurs),), len(chosen)).index_copy(0, chosen, torch.arange(len(chosen)))
        index = union.batch * (len(chosen) + 1) + place[colors]
        table = index.bincount(minlength=len(graphs) * (len(chosen) + 1)).reshape(len(graphs), -1)
        counts.append(table[:, :-1].float())
        colors = color_refinement(union.edge_index, union.num_nodes, colors=colors, steps=1)
    return torch.cat(counts, 1)


def _draw(data: GraphsData, p: Float[Tensor, "g c"], names: Sequence[str]) -> Any:
    """Draws test graphs with their predicted classes."""
    test = data.splits["test"]
    some = test[torch.linspace(0, len(test) - 1, min(_SHOWN, len(test))).round().long()].tolist()
    titles, wrong = [], []
    for i in some:
        predicted, true = int(p[i].argmax()), int(data.labels[i])
        wrong.append(predicted != true)
        titles.append(names[predicted] if predicted == true else f"{names[predicted]}, not {names[true]}")
    return figures.graph_grid([(data.raw[i].edge_index, data.raw[i].num_nodes) for i in some], titles, wrong=wrong)
