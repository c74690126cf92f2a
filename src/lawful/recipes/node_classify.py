"""Node classification: the labels of some nodes of a graph predict those of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    LoadedGraph,
    NodeEncoding,
    ShuffledBatches,
    fingerprint,
    karate_club,
    read_graph,
    stochastic_block_model,
)
from lawful.functions import propagate_labels
from lawful.inference.metrics import accuracy, confusion_matrix, per_class
from lawful.laws import Claim, node_permutation_equivariance, shape, tokens
from lawful.probe import figures
from lawful.recipes.classify import _classification_metrics, _tables
from lawful.recipes.data import _Path
from lawful.recipes.graphs import GATSpec, GCNSpec, GraphDataConfig, GraphModelSpec, _GraphModel, _model_name
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

_BLOCKS = (120, 120, 120, 120)
"""Number of nodes of each class of the built-in random graph."""
_BUILTIN: dict[str, Callable[[], Graph]] = {
    "blocks": partial(stochastic_block_model, _BLOCKS),
    "karate": karate_club,
}
_BUILTIN_NAMES = tuple(_BUILTIN)
_PARTS = 4
"""Number of parts of the known labels: the labels of each are predicted from the others."""
_PROPAGATION_STEPS = 20
_MAX_DRAWN = 1000
"""Largest number of nodes in a drawing."""


class NodeClassifier(nn.Module):
    r"""Predicts the class of each node from the features, the edges and the known labels of other nodes.

    $$z_i = f\bigl([x_i, \log(1 + d_i), y_i, p_i], E\bigr)$$

    $y$ are the known labels, one-hot and 0 if unknown, and $p$ are the same labels spread along the edges
    (`propagate_labels`). In training, the label of a node that is predicted is unknown.

    Args:
        spec: Specification of the network.
        encoding: Encoding of the nodes.
        use_labels: Whether known labels are inputs.
    """

    def __init__(self, spec: GraphModelSpec, encoding: NodeEncoding, *, use_labels: bool = True) -> None:
        super().__init__()
        self.encoding, self.use_labels = encoding, use_labels
        num_features, num_classes = len(encoding.features) + 1, len(encoding.classes)
        self.normalizer = Standardize(num_features)
        self.network = spec.build(num_features + 2 * num_classes * use_labels, num_classes)

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
        known: Float[Tensor, "n c"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Returns the logits of each node.

        Args:
            x: Features of the nodes.
            edge_index: Source and target of each edge.
            edge_weight: Positive weights of the edges.
            known: Known labels, one-hot, and 0 if unknown. None if none is known.
        """
        parts = [self.normalizer(_with_degree(x, edge_index))]
        if self.use_labels:
            labels = x.new_zeros(len(x), len(self.classes)) if known is None else known.to(x)
            with torch.no_grad():
                spread = propagate_labels(labels, edge_index, edge_weight=edge_weight, steps=_PROPAGATION_STEPS)
            parts += [labels, spread]
        return self.network(torch.cat(parts, -1), edge_index, edge_weight)

    def predict(self, graph: Graph | str | Path, nodes: str | Path | None = None) -> np.ndarray:
        """Returns the class of each node.

        Args:
            graph: Graph, or its edge list.
            nodes: Table of the nodes, with an edge list.
        """
        return np.array(self.classes)[self.predict_proba(graph, nodes).argmax(-1)]

    @torch.no_grad()
    def predict_proba(self, graph: Graph | str | Path, nodes: str | Path | None = None) -> np.ndarray:
        """Returns the probability of each class for each node, `(n, classes)`.

        Labels of the graph are known labels of other nodes; no node sees its own.

        Args:
            graph: Graph, or its edge list.
            nodes: Table of the nodes, with an edge list.
        """
        if not isinstance(graph, Graph):
            graph = read_graph(graph, nodes, encoding=self.encoding).graph
        if graph.x.shape[1] != len(self.encoding.features):
            expected = len(self.encoding.features)
            raise ValueError(f"expected a graph with {expected} features per node, got {graph.x.shape[1]}")
        with eval_mode(self):
            return _predict(self, graph, self.known_labels(graph)).softmax(-1).cpu().numpy()

    def known_labels(self, graph: Graph) -> Int[Tensor, " n"]:
        """Returns the labels of a graph as classes of the model, -1 if unknown."""
        if graph.y is None or not graph.y.numel():
            return torch.full((graph.num_nodes,), -1)
        if graph.classes is None or graph.classes == self.classes:
            return graph.y.long()
        if strange := [name for name in graph.classes if name not in self.classes]:
            raise ValueError(
                f"the graph has a class {strange[0]!r}, the model has {', '.join(map(quote, self.classes))}"
            )
        order = torch.tensor([*map(self.classes.index, graph.classes), -1])
        return order[graph.y.long()]


def _with_degree(x: Float[Tensor, "n d"], edge_index: Int[Tensor, "2 e"]) -> Float[Tensor, "n d1"]:
    degree = x.new_zeros(len(x)).index_add(0, edge_index[1], x.new_ones(edge_index.shape[1]))
    return torch.cat([x, degree.log1p()[:, None]], -1)


def _one_hot(labels: Int[Tensor, " n"], num_classes: int) -> Float[Tensor, "n c"]:
    """Returns one-hot labels, 0 everywhere for -1."""
    return F.one_hot(labels.clamp_min(0), num_classes).float() * (labels >= 0)[:, None]


@torch.no_grad()
def _predict(model: NodeClassifier, graph: Graph, labels: Int[Tensor, " n"]) -> Float[Tensor, "n c"]:
    """Returns the logits of each node. The labels are known, except that of the node itself."""
    device, count = model.normalizer.mean.device, len(model.classes)
    x, index = graph.x.to(device), graph.edge_index.to(device)
    weight = None if graph.edge_weight is None else graph.edge_weight.to(device)
    logits = model(x, index, weight, known=_one_hot(labels, count).to(device))
    labeled = (labels >= 0).nonzero()[:, 0]
    for part in range(_PARTS if model.use_labels else 0):
        hidden = labeled[part::_PARTS]
        if len(hidden):
            known = _one_hot(labels.index_fill(0, hidden, -1), count).to(device)
            logits[hidden] = model(x, index, weight, known=known)[hidden]
    return logits.to(graph.x.device)


def _as_node_classifier(model: nn.Module) -> NodeClassifier:
    if not isinstance(model, NodeClassifier):
        raise TypeError(f"expected a NodeClassifier, got {type(model).__name__}")
    return model


@dataclass(frozen=True)
class NodeData:
    """A graph with the nodes of each split."""

    graph: Graph
    splits: Mapping[str, Int[Tensor, " k"]]
    """Labeled nodes for training, validation and test."""
    warnings: tuple[str, ...] = ()

    @property
    def labels(self) -> Int[Tensor, " n"]:
        """Class of each node, -1 if it is unknown."""
        return torch.full((self.graph.num_nodes,), -1) if self.graph.y is None else self.graph.y

    def known(self, *splits: str) -> Int[Tensor, " n"]:
        """Returns the labels of these splits, -1 for other nodes."""
        nodes = torch.cat([self.splits[name] for name in splits])
        return torch.full_like(self.labels, -1).index_copy(0, nodes, self.labels[nodes])

    @property
    def counts(self) -> dict[str, int]:
        """Number of nodes of each split, and without a label."""
        unlabeled = int((self.labels < 0).sum())
        return {name: len(nodes) for name, nodes in self.splits.items()} | {"unlabeled": unlabeled}


@dataclass(frozen=True, kw_only=True)
class NodeClassifyRecipe(GraphDataConfig, OptimizationConfig, EvaluationConfig, Recipe[NodeData]):
    """Train a classifier of the nodes of a graph, from features, edges and the labels of other nodes."""

    name: ClassVar[str] = "node-classify"

    model: _GraphModel = field(default_factory=GCNSpec)
    """Model architecture."""
    data: Annotated[str, MaxLength(4096)] = "blocks"
    """Edge list with one edge per line (source, target, weight if any), or a name: blocks (random graph), karate."""
    nodes: _Path | None = None
    """Table with one row per node: its name, features, and the label, which may be missing."""
    id_column: _Path | None = None
    """Column of the table with the names of the nodes. Defaults to a column named id, node or name, else the first."""
    use_labels: bool = True
    """Use the known labels of other nodes as inputs, also of new graphs."""
    test_fraction: Annotated[float, Range(0.01, 0.9)] = 0.3
    """Fraction of the labeled nodes used for the test."""
    validation_fraction: Annotated[float, Range(0, 0.9)] = 0.2
    """Fraction of the remaining labeled nodes used for validation."""
    steps: _Steps = 200
    batch_size: _PositiveInt | None = None
    """Training nodes per step. Their labels are hidden from the network and predicted. Defaults to a quarter of the
    training nodes."""
    learning_rate: _NonNegative | None = 5e-3
    num_evals: _NumEvals = 40
    """Number of evaluations during training."""
    patience: _Patience = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.data in _BUILTIN_NAMES:
            self._check_builtin(_BUILTIN_NAMES, "id_column")
        elif self.nodes is None and (self.target or self.id_column):
            raise ValueError("target and id_column need nodes: a table with the names and labels of the nodes")

    def setup(self) -> TrainingSetup[NodeData]:
        """Reads the graph, splits its nodes and builds the model."""
        loaded = self.read()
        graph, encoding = loaded.graph, loaded.encoding
        if graph.y is None:
            raise ValueError("node-classify needs labels of nodes: pass --nodes with a table of names and labels")
        if graph.edge_weight is not None and bool((graph.edge_weight <= 0).any()):
            raise ValueError(f"edge weights must be positive, got {float(graph.edge_weight.min()):g}")
        data = NodeData(graph, self._split(graph.y, encoding.classes), loaded.notes)
        if isinstance(self.model, GATSpec) and graph.edge_weight is not None:
            data = replace(data, warnings=(*data.warnings, "model gat ignores the edge weights"))
        build = partial(NodeClassifier, self.model, encoding, use_labels=self.use_labels)
        _check_parameter_count([build])
        model = build()
        model.normalizer.fit(_with_degree(graph.x, graph.edge_index))
        train = data.splits["train"]
        batches = ShuffledBatches(train, batch_size=self.batch_size or max(1, len(train) // _PARTS), seed=self.seed)
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
            model_config={"encoding": encoding.to_json()},
            data_fingerprint=fingerprint(graph.x, graph.edge_index, graph.y, *data.splits.values()),
            notes=[self._describe(data, encoding)],
            warnings=data.warnings,
            data=data,
        )

    def finish(self, run: Run, setup: TrainingSetup[NodeData]) -> Mapping[str, Any]:
        """Evaluates the classifier on the test nodes and writes figures."""
        data, model = setup.data, _as_node_classifier(setup.model)
        graph, labels, names = data.graph, data.labels, model.classes
        found = {
            "validation": _predict(model, graph, data.known("train")),
            "train": _predict(model, graph, data.known("train")),
            "test": _predict(model, graph, data.known("train", "validation")),
        }
        found = {name: logits.softmax(-1) for name, logits in found.items() if len(data.splits[name])}
        test = data.splits["test"]
        p, y = found["test"][test], labels[test]
        counts = confusion_matrix(p, y)
        scores = [score.json() for score in per_class(counts)]
        results: dict[str, Any] = {"test": _classification_metrics(p, y)}
        for name in ("validation", "train"):
            if name in found:
                nodes = data.splits[name]
                results[name] = {"accuracy": accuracy(found[name][nodes], labels[nodes]).json()}
        baselines = _baselines(data, len(names))
        plots = {
            "graph": _draw(data, found["test"], names),
            "confusion": figures.confusion_matrix(counts, names=names),
            "per class": figures.class_scores(scores, names=names),
        }
        for name, figure in plots.items():
            if figure is not None:
                figures.save(figure, run.figures / f"{name}.png", root=run.root)
        tables = _tables(p, y, names, counts, scores)
        tables["test predictions"] = _with_names(tables["test predictions"], graph, test)
        if data.counts["unlabeled"]:
            nodes = (labels < 0).nonzero()[:, 0]
            known = _predict(model, graph, labels).softmax(-1)[nodes]
            rows = [[names[int(row.argmax())], f"{float(row.max()):.4f}"] for row in known]
            tables["unlabeled nodes"] = _with_names([["predicted", "probability"], *rows], graph, nodes)
        for name, rows in tables.items():
            run.write_csv(f"samples/{name}.csv", rows)
        return {
            **results,
            "baseline accuracy": baselines,
            "examples": {name: count for name, count in data.counts.items() if count},
            "nodes": graph.num_nodes,
            "edges": graph.num_edges if self.directed else graph.num_edges // 2,
            "summary": compare_with_baselines(
                "test accuracy",
                results["test"]["accuracy"],
                baselines,
                higher_is_better=True,
                model=_model_name(self.model),
            ),
            "lead_figures": ["graph.png"] if plots["graph"] is not None else [],
            "warnings": list(data.warnings),
        }

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the classifier of a run, without its weights."""
        encoding = NodeEncoding.from_json(model_config.get("encoding"))
        build = partial(NodeClassifier, self.model, encoding, use_labels=self.use_labels)
        _check_parameter_count([build])
        return build()

    def read(
        self, data: str | Path | None = None, nodes: str | Path | None = None, *, encoding: NodeEncoding | None = None
    ) -> LoadedGraph:
        """Reads the graph of the options, or another one in the same format.

        Args:
            data: Another edge list.
            nodes: Table of its nodes.
            encoding: Encoding of the training graph.
        """
        if data is None:
            data, nodes = self.data, self.nodes
        if str(data) in _BUILTIN_NAMES:
            graph = _BUILTIN[str(data)]()
            columns = tuple(Column(f"x{i}") for i in range(1, graph.x.shape[1] + 1))
            return LoadedGraph(graph, NodeEncoding("node", columns, Column("label", graph.classes)))
        self._check_builtin(_BUILTIN_NAMES)
        return read_graph(
            data,
            nodes,
            target=self.target,
            id_column=self.id_column,
            ignore_columns=self.ignore_columns,
            keep_columns=self.keep_columns,
            directed=self.directed,
            encoding=encoding,
        )

    def _describe(self, data: NodeData, encoding: NodeEncoding) -> str:
        """Says in one line what the files were read as."""
        graph, names = data.graph, encoding.features
        edges = f"{graph.num_edges:,} directed" if self.directed else f"{graph.num_edges // 2:,}"
        some = f" ({', '.join(map(quote, names[:8]))}{', ...' if len(names) > 8 else ''})" if names else ""
        splits = ", ".join(f"{count:,} {name}" for name, count in data.counts.items() if count)
        label = "label" if encoding.target is None else encoding.target.name
        return (
            f"{Path(self.data).name}: {graph.num_nodes:,} nodes, {edges} edges, {len(names)} features{some}; "
            f"{label} with classes {', '.join(map(quote, encoding.classes[:10]))}; {splits}"
        )


def _loss(model: nn.Module, batch: Batch, data: NodeData) -> dict[str, Tensor]:
    """Cross-entropy and accuracy of the nodes of a batch. The labels of the other training nodes are inputs."""
    (nodes,), graph = batch, data.graph
    labels = data.labels.to(nodes.device)
    known = _one_hot(data.known("train").to(nodes.device).index_fill(0, nodes, -1), len(graph.classes or ()))
    weight = None if graph.edge_weight is None else graph.edge_weight.to(nodes.device)
    logits = model(graph.x.to(nodes.device), graph.edge_index.to(nodes.device), weight, known=known)
    return _classification_loss(logits[nodes], labels[nodes], label_smoothing=0.0)


def _evaluate(model: nn.Module, data: NodeData) -> dict[str, float]:
    """Cross-entropy and accuracy of the validation nodes."""
    nodes = data.splits["validation"]
    logits, y = _predict(_as_node_classifier(model), data.graph, data.known("train"))[nodes], data.labels[nodes]
    return {"loss": float(F.cross_entropy(logits, y)), "accuracy": float((logits.argmax(-1) == y).double().mean())}


def _baselines(data: NodeData, num_classes: int) -> dict[str, dict[str, float]]:
    """Returns the accuracy of the majority, of logistic regression on the features and of label propagation."""
    graph, test, labels = data.graph, data.splits["test"], data.labels
    fitting = torch.cat([data.splits["train"], data.splits["validation"]])
    counts = labels[fitting].bincount(minlength=num_classes)
    majority = F.one_hot(counts.argmax().expand(len(test)), num_classes).float()
    known = data.known("train", "validation")
    spread = propagate_labels(
        known, graph.edge_index, num_classes=num_classes, edge_weight=graph.edge_weight, steps=_BASELINE_STEPS
    )
    spread = spread + 1e-6 * counts / counts.sum()  # nodes that no label reaches
    found = {"most frequent class": majority, "label propagation": spread[test]}
    if graph.x.shape[1]:
        x = Standardize(graph.x.shape[1]).fit(graph.x[fitting])(graph.x)
        logistic = _fit_softmax_regression(x[fitting], labels[fitting], num_classes=num_classes)
        with torch.no_grad():
            found["logistic regression without edges"] = logistic(x[test].double()).softmax(-1)
    return {name: accuracy(p, labels[test]).json() for name, p in found.items()}


_BASELINE_STEPS = 100


def _claims(model: nn.Module) -> Iterator[Claim]:
    """A renumbering of the nodes permutes the logits."""
    classifier = _as_node_classifier(model)
    width, count = len(classifier.encoding.features), len(classifier.classes)

    def logits(x: Tensor, edge_index: Tensor) -> Tensor:
        return classifier(x[:, :width], edge_index, known=x[:, width:])

    inputs = shape(f"6 {width + count}"), tokens("2 e:1..15", 6)
    yield Claim(node_permutation_equivariance(), logits, inputs, name="node classifier")


def _with_names(rows: Sequence[Sequence[object]], graph: Graph, nodes: Int[Tensor, " k"]) -> list[list[object]]:
    """Puts the name of each node before its row."""
    names = graph.names or tuple(map(str, range(graph.num_nodes)))
    head, *body = rows
    return [["node", *head], *([names[i], *row] for i, row in zip(nodes.tolist(), body, strict=False))]


def _draw(data: NodeData, p: Float[Tensor, "n c"], names: Sequence[str]) -> Any:
    """Draws the graph with known labels and the predicted classes of the other nodes. None for a large graph."""
    graph = data.graph
    if graph.num_nodes > _MAX_DRAWN:
        return None
    known = data.known("train", "validation")
    shown = torch.where(known >= 0, known, p.argmax(-1))
    wrong = (data.labels >= 0) & (shown != data.labels)
    labels = graph.names if graph.num_nodes <= 60 else None
    return figures.graph_drawing(graph.edge_index, shown, names=names, known=known >= 0, wrong=wrong, node_names=labels)
