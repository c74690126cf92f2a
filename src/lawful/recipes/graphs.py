"""Shared parts of the recipes for graphs: data options, model specifications, splits."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from jaxtyping import Int
from torch import Tensor

from lawful._json import Config, Range, Tagged
from lawful._suggest import did_you_mean
from lawful.models import GNN, build_gnn
from lawful.recipes.data import _Columns, _Path
from lawful.recipes.optimization import _Probability

_MAX_CLASSES = 1000
_Dim = Annotated[int, Range(1, 10**5)]
_NumLayers = Annotated[int, Range(1, 100)]


@dataclass(frozen=True, kw_only=True)
class GraphModelSpec(Config, Tagged):
    """Base class of the models of graphs."""

    dim: _Dim = 64
    """Width of the layers."""
    num_layers: _NumLayers = 2
    """Number of layers: a node sees neighbors up to this distance."""
    dropout: _Probability = 0.3
    """Dropout probability."""

    def build(self, in_dim: int, out_dim: int) -> GNN:
        """Builds the network."""
        raise NotImplementedError(f"{type(self).__name__} must implement build()")


@dataclass(frozen=True, kw_only=True)
class GCNSpec(GraphModelSpec):
    """Graph convolutional network."""

    name: ClassVar[str] = "gcn"

    def build(self, in_dim: int, out_dim: int) -> GNN:
        """Builds the network."""
        return build_gnn(
            in_dim, out_dim, layer="gcn", dim=self.dim, num_layers=self.num_layers, dropout=float(self.dropout)
        )


@dataclass(frozen=True, kw_only=True)
class GATSpec(GraphModelSpec):
    """Graph attention network, which ignores edge weights."""

    name: ClassVar[str] = "gat"

    num_heads: Annotated[int, Range(1, 1000)] = 4
    """Number of attention heads. It divides `dim`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim % self.num_heads:
            raise ValueError(f"num_heads must divide dim: got dim={self.dim}, num_heads={self.num_heads}")

    def build(self, in_dim: int, out_dim: int) -> GNN:
        """Builds the network."""
        return build_gnn(
            in_dim,
            out_dim,
            layer="gat",
            dim=self.dim,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            dropout=float(self.dropout),
        )


@dataclass(frozen=True, kw_only=True)
class MessagePassingSpec(GraphModelSpec):
    """Message passing with an MLP of both nodes and the weight of each edge."""

    name: ClassVar[str] = "message-passing"

    aggregation: Literal["sum", "mean", "max"] = "mean"
    """Aggregation of the messages to a node."""

    def build(self, in_dim: int, out_dim: int) -> GNN:
        """Builds the network."""
        return build_gnn(
            in_dim,
            out_dim,
            layer="message-passing",
            dim=self.dim,
            num_layers=self.num_layers,
            aggregation=self.aggregation,
            dropout=float(self.dropout),
        )


_GraphModel = GCNSpec | GATSpec | MessagePassingSpec
"""Models of graphs."""


@dataclass(frozen=True, kw_only=True)
class GraphDataConfig(Config):
    """Files of graphs and splits."""

    data: _Path = ""
    """Edge list."""
    nodes: _Path | None = None
    """Table of the nodes, with their features."""
    target: _Path | None = None
    """Column with the label. Defaults to the last column."""
    ignore_columns: _Columns = ()
    """Columns of the table of nodes to ignore."""
    keep_columns: _Columns = ()
    """Columns to use although they look like identifiers. By default, identifiers are left out."""
    directed: bool = False
    """Whether edges have a direction. By default, the reverse of each edge is added."""
    test_fraction: Annotated[float, Range(0.01, 0.9)] = 0.2
    """Fraction of the labeled data used for the test."""
    validation_fraction: Annotated[float, Range(0, 0.9)] = 0.2
    """Fraction of the remaining labeled data used for validation."""
    split_seed: Annotated[int, Range(0, 2**62)] = 0
    """Random seed of the split."""

    def _check_builtin(self, builtin: Sequence[str], *options: str) -> bool:
        """Returns whether the data are built in. Raises if they are not and no file has this name."""
        if self.data in builtin:
            for name in ("nodes", "target", "ignore_columns", "keep_columns", "directed", *options):
                if getattr(self, name):
                    raise ValueError(f"{name} needs a file, got data={self.data}")
            return True
        if not Path(self.data).exists() and not Path(self.data).suffix and "/" not in self.data:
            close = did_you_mean(self.data, builtin)
            raise FileNotFoundError(f"no such file or graph: {self.data!r}{close} Built-in: {', '.join(builtin)}")
        return False

    def _split(self, labels: Int[Tensor, " n"], classes: Sequence[str]) -> dict[str, Tensor]:
        """Splits the labeled examples, stratified by class. Returns the indices of each split."""
        from lawful.data import split_indices

        labeled = (labels >= 0).nonzero()[:, 0]
        if 2 * len(classes) > len(labeled) or len(classes) > _MAX_CLASSES:
            what = f"{len(classes)} different values in {len(labeled)} labeled examples"
            raise ValueError(f"the target has {what}, expected classes with several examples each")
        rest = 1 - self.test_fraction
        fractions = {
            "train": rest * (1 - self.validation_fraction),
            "validation": rest * self.validation_fraction,
            "test": self.test_fraction,
        }
        fractions = {name: fraction for name, fraction in fractions.items() if fraction}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a small class may be missing from a split
            parts = split_indices(
                len(labeled),
                fractions=[*fractions.values()],
                seed=self.split_seed,
                labels=labels[labeled],
                classes=classes,
            )
        splits = {name: labeled[part] for name, part in zip(fractions, parts, strict=True)}
        return {"train": splits["train"], "validation": splits.get("validation", labeled[:0]), "test": splits["test"]}


def _model_name(spec: GraphModelSpec) -> str:
    """Returns the name of the model in a sentence."""
    return f"the {spec.name.upper() if len(spec.name) < 4 else spec.name} model"
