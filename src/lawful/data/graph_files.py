"""Files of graphs: edge lists, tables of nodes, and several graphs in one table or folder."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lawful._files import write_file
from lawful._json import require_fields, require_text
from lawful._names import csv_text
from lawful._suggest import did_you_mean
from lawful.data._inputs import list_files, read_text
from lawful.data.graphs import Graph, clean_edges
from lawful.data.loading import _ARRAY_SUFFIXES, read_table, resolve_path
from lawful.data.table_encoding import _MAX_WIDTH, Column, TableEncoding, _column, _fit_input, _fit_target
from lawful.data.tables import _MEMORY_FACTOR, ColumnValues, Table, _parse_delimited, _parse_number

_SOURCES = ("source", "src", "from", "u", "node1", "node_1", "sender", "head")
_TARGETS = ("target", "dst", "to", "v", "node2", "node_2", "receiver", "tail", "destination")
_GRAPHS, _WEIGHTS = ("graph", "graph_id", "graphid"), ("weight", "weights", "w")
_IDS = ("id", "node", "node_id", "nodeid", "name")
"""Names of columns, case-insensitive. Without them the order counts."""
_EDGE_SUFFIXES = (".csv", ".tsv", ".txt", ".edges", ".edgelist", ".parquet", *_ARRAY_SUFFIXES)
"""Suffixes of the files of a folder of graphs."""
_ATTRIBUTES = re.compile(r"\s*\{(?:.*?['\"]weight['\"]:\s*([-+.\deE]+))?.*\}\s*$")
"""Attributes of an edge, as `networkx.write_edgelist` writes them."""


# ---------------------------------------------------------------- encoding of nodes and labels


@dataclass(frozen=True)
class NodeEncoding:
    """Encoding of a table of nodes: the column with the names, features and the label.

    Examples:
        >>> encoding = NodeEncoding("id", (Column("age"),), Column("club", ("a", "b")))
        >>> NodeEncoding.from_json(encoding.to_json()) == encoding
        True
    """

    id_column: str | None
    """Column with the names of the nodes; None without a table."""
    columns: tuple[Column, ...]
    """Columns with features."""
    target: Column | None
    """Column with the label; None without labels."""

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; empty without labels."""
        return () if self.target is None else self.target.levels or ()

    def inputs(self, table: Table) -> Float[Tensor, "n d"]:
        """Returns the features of the rows of a table."""
        parts = [column.encode(table) for column in self.columns]
        return torch.from_numpy(np.concatenate([np.zeros((len(table), 0), np.float32), *parts], axis=1))

    def labels(self, table: Table) -> Int[Tensor, " n"]:
        """Returns the class of each row of a table, -1 if it has none.

        Raises:
            ValueError: If a label is not one of the classes.
        """
        if self.target is None or self.target.name not in table.columns:
            return torch.full((len(table),), -1)
        missing = table.columns[self.target.name].missing
        found = np.where(missing, 0, self.target._level_indices(table))
        self.target._check_known(table, found)
        return torch.from_numpy(np.where(missing, -1, found))

    def notes(self, table: Table) -> tuple[str, ...]:
        """Returns what the encoding changes in rows: filled values and unknown categories."""
        return TableEncoding(self.columns, Column("")).notes(table)

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-compatible dictionary."""
        target = None if self.target is None else self.target.to_json()
        return {"id_column": self.id_column, "columns": [c.to_json() for c in self.columns], "target": target}

    @classmethod
    def from_json(cls, value: object) -> NodeEncoding:
        """Rebuilds the encoding from untrusted JSON. Raises ValueError if it is malformed."""
        loaded = require_fields(value, ("id_column", "columns", "target"), where="encoding")
        name, columns, target = loaded["id_column"], loaded["columns"], loaded["target"]
        if not isinstance(columns, list) or len(columns) > _MAX_WIDTH:
            raise ValueError(f"encoding.columns must be a list of at most {_MAX_WIDTH} items")
        encoding = cls(
            None if name is None else require_text(name, where="encoding.id_column"),
            tuple(Column.from_json(c, where=f"encoding.columns[{i}]") for i, c in enumerate(columns)),
            None if target is None else Column.from_json(target, where="encoding.target"),
        )
        if len(encoding.features) > _MAX_WIDTH or (target is not None and len(encoding.classes) < 2):
            raise ValueError(f"encoding must have at least 2 classes and at most {_MAX_WIDTH} features")
        return encoding


def _fit_columns(
    table: Table, without: Collection[str], *, ignore: Collection[str], keep: Collection[str]
) -> tuple[tuple[Column, ...], list[str]]:
    """Fits the encoding of the features of a table. Returns it with notes for the user."""
    for name in (*ignore, *keep):
        _column(table, name)
    columns, notes = [], list(table.notes)
    for name in table.columns:
        if name in without or name in ignore:
            continue
        values = table.columns[name]
        column = "it has no values" if values.missing.all() else _fit_input(table, name, (), keep)
        if isinstance(column, str):
            notes.append(f"left out column {name!r}: {column}; to use it, list it in --keep-columns")
        else:
            columns.append(replace(column.fit_fill(table), indicator=bool(values.missing.any())))
    return tuple(columns), notes


def _fit_labels(table: Table, target: str) -> Column:
    """Fits the encoding of the labels of the rows that have one."""
    known = ~_column(table, target).missing
    if not known.any():
        raise ValueError(f"column {target!r} of {table.name} has no labels")
    return _fit_target(table.take(known), target, "classify", ())


# ---------------------------------------------------------------- one graph


class LoadedGraph(NamedTuple):
    """A graph with the encoding of its nodes and notes for the user."""

    graph: Graph
    encoding: NodeEncoding
    notes: tuple[str, ...] = ()


def read_graph(
    edges: str | Path,
    nodes: str | Path | None = None,
    *,
    target: str | None = None,
    id_column: str | None = None,
    ignore_columns: Collection[str] = (),
    keep_columns: Collection[str] = (),
    directed: bool = False,
    encoding: NodeEncoding | None = None,
) -> LoadedGraph:
    r"""Reads a graph from an edge list and a table of nodes.

    The edge list has one edge per line: source, target and, if there is one, a weight. Columns are separated by commas,
    semicolons, tabs, bars or spaces; lines that begin with # or % are comments. A header is detected. Names of nodes
    are any text. Self-loops are removed, and duplicate edges are merged.

    Args:
        edges: Edge list: CSV, TSV, text, Parquet or NumPy file.
        nodes: Table with one row per node: its name, features, and a label, which may be missing.
        target: Column of `nodes` with the label. Defaults to the last column.
        id_column: Column of `nodes` with the names. Defaults to a column named id, node or name, else the first.
        ignore_columns: Columns of `nodes` to leave out.
        keep_columns: Columns of `nodes` to use although they look like identifiers.
        directed: Whether the edges have a direction.
        encoding: Encoding of another graph, for prediction.

    Raises:
        ValueError: If an edge has a node that `nodes` does not have, or a file cannot be read.

    Examples:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = Path(folder.name) / "friends.txt"
        >>> _ = path.write_text("# friends\nann bob\nbob eve\n")
        >>> read_graph(path).graph.names
        ('ann', 'bob', 'eve')
        >>> folder.cleanup()
    """
    table = _read_edge_list(edges, 2)
    source, ends, weight, notes = _edge_columns(table)
    rows = None if nodes is None else read_table(resolve_path(nodes))
    if rows is None:
        if encoding is not None and encoding.columns:
            raise _missing_features(encoding)
        encoding = encoding or NodeEncoding(None, (), None)
        names = _order([*source, *ends])
        x, y = torch.zeros(len(names), 0), None
    else:
        if encoding is None:
            encoding, more = _fit_nodes(rows, target, id_column, ignore=ignore_columns, keep=keep_columns)
            notes += more
        column = encoding.id_column or _id_column(rows)
        names = tuple(_node_names(rows, column))
        _check_distinct(rows, column, names)
        x, y = encoding.inputs(rows), encoding.labels(rows) if encoding.target is not None else None
        notes += encoding.notes(rows)
        _check_nodes(table, (source, ends), names, where=f"column {column!r} of {rows.name}")
    number = {name: i for i, name in enumerate(names)}
    index = torch.tensor([[number[a], number[b]] for a, b in zip(source, ends, strict=True)]).reshape(-1, 2).T
    index, weight, more = clean_edges(index, weight, len(names), directed=directed)
    attr = None if weight is None else weight[:, None]
    graph = Graph(x, index, attr, y, names, encoding.classes or None)
    return LoadedGraph(graph, encoding, (*notes, *more))


def write_graph(graph: Graph, edges: str | Path, nodes: str | Path) -> None:
    """Writes a graph as an edge list and a table of nodes, such as one from NetworkX, to train on.

    An undirected graph has each edge once; a directed one is read again with `directed=True`. The columns of the table
    are node, x1, x2, ... and label.

    Args:
        graph: Graph with a label per node, or without labels.
        edges: CSV file to write.
        nodes: CSV file to write.
    """
    names = graph.names or tuple(map(str, range(graph.num_nodes)))
    weights = [None] * graph.num_edges if graph.edge_weight is None else graph.edge_weight.tolist()
    pairs = dict(zip(map(tuple, graph.edge_index.T.tolist()), weights, strict=True))
    undirected = all(pairs.get((j, i), "missing") == weight for (i, j), weight in pairs.items())
    rows = [
        [names[i], names[j], *([] if weight is None else [weight])]
        for (i, j), weight in pairs.items()
        if i <= j or not undirected
    ]
    head = ["node", *(f"x{k}" for k in range(1, graph.x.shape[1] + 1))]
    table: list[list[object]] = [[name, *x] for name, x in zip(names, graph.x.tolist(), strict=True)]
    if graph.y is not None:
        if graph.y.shape != (graph.num_nodes,):
            raise ValueError(f"expected a graph with a label per node, got y of shape {tuple(graph.y.shape)}")
        classes = graph.classes or tuple(map(str, range(int(graph.y.max()) + 1)))
        head.append("label")
        for row, label in zip(table, graph.y.tolist(), strict=True):
            row.append("" if label < 0 else classes[label])
    _write_csv(edges, [["source", "target", *(["weight"] if graph.edge_weight is not None else [])], *rows])
    _write_csv(nodes, [head, *table])


def _write_csv(path: str | Path, rows: Sequence[Sequence[object]]) -> None:
    write_file(path, csv_text(rows, escape=False).replace("\n", "\r\n"))


def _missing_features(encoding: NodeEncoding) -> ValueError:
    names = ", ".join(encoding.features[:5])
    return ValueError(f"the model needs the features {names}: pass a table of nodes, --nodes on the command line")


def _fit_nodes(
    table: Table, target: str | None, id_column: str | None, *, ignore: Collection[str], keep: Collection[str]
) -> tuple[NodeEncoding, list[str]]:
    """Fits the encoding of a table of nodes."""
    id_column = _id_column(table) if id_column is None else id_column
    _column(table, id_column)
    others = [name for name in table.columns if name != id_column]
    target = others[-1] if target is None and others else target
    if target == id_column:
        raise ValueError(f"the target {target!r} is the column with the names of the nodes: set id_column")
    columns, notes = _fit_columns(table, (id_column, target or ""), ignore=ignore, keep=keep)
    return NodeEncoding(id_column, columns, None if target is None else _fit_labels(table, target)), notes


def _id_column(table: Table) -> str:
    return next((name for name in table.columns if name.lower() in _IDS), next(iter(table.columns)))


def _read_edge_list(path: str | Path, num_columns: int) -> Table:
    """Reads the table of an edge list with at least that many columns."""
    path = resolve_path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder, expected an edge list")
    if path.suffix.lower() in (".parquet", *_ARRAY_SUFFIXES):
        table = read_table(path)
    else:
        text = read_text(path, encoding="utf-8-sig", memory_factor=_MEMORY_FACTOR)
        lines = ["" if line.lstrip().startswith(("#", "%")) else line for line in text.splitlines(keepends=True)]
        lines = [_ATTRIBUTES.sub(r" \1\n", line) if line.rstrip().endswith("}") else line for line in lines]
        first = next((line for line in lines if line.strip()), "")
        if not first:
            raise ValueError(f"{path.name} has no edges")
        spaces = path.suffix.lower() != ".tsv" and not any(delimiter in first for delimiter in ",;\t|")
        if spaces:
            lines = ["\t".join(line.split()) + "\n" for line in lines]
        delimiter = "\t" if spaces else None
        table = _parse_delimited(lines, name=path.name, header=False, delimiter=delimiter)
        if _has_edge_header(table):
            table = _parse_delimited(lines, name=path.name, header=True, delimiter=delimiter)
    if len(table.columns) < num_columns:
        names = ("graph", "source", "target")[3 - num_columns :]
        raise ValueError(
            f"{path.name} has {len(table.columns)} column{'s' * (len(table.columns) > 1)}, expected at least "
            f"{num_columns}: {', '.join(names)}"
        )
    return replace(table, notes=())


def _has_edge_header(table: Table) -> bool:
    """Whether the first row names columns. In a list of names, such as ann,bob, it is an edge."""
    first = [(values.words[0] or "").lower() for values in table.columns.values()]
    below = table.take(np.arange(len(table)) > 0).columns.values()
    if {*first} & {*_SOURCES, *_TARGETS, *_GRAPHS, *_WEIGHTS, *_IDS}:
        return not {*first} & {word.lower() for values in below for word in values.words if word is not None}
    return len(table) > 1 and any(
        values.numbers is not None and not values.missing.all() and _parse_number(word) is None
        for word, values in zip(first, below, strict=True)
    )


def _edge_columns(
    table: Table, *, skip: Collection[str] = ()
) -> tuple[list[str], list[str], Float[Tensor, " e"] | None, list[str]]:
    """Returns sources, targets, weights and notes on columns that are not used."""
    names = [name for name in table.columns if name not in skip]
    source = next((name for name in names if name.lower() in _SOURCES), None)
    target = next((name for name in names if name.lower() in _TARGETS), None)
    if source is None or target is None:
        source, target = names[:2]
    rest = [name for name in names if name not in (source, target)]
    weight = next((name for name in rest if name.lower() in _WEIGHTS), None)
    if weight is None and not table.has_header and rest and table.columns[rest[0]].numbers is not None:
        weight = rest[0]
    unused = [name for name in rest if name != weight]
    some = ", ".join(map(repr, unused[:5]))
    notes = [f"{table.name}: columns {some} are not used; the weight is a column named weight"] if unused else []
    values = None if weight is None else torch.from_numpy(Column(weight).numbers(table).astype(np.float32))
    return _node_names(table, source), _node_names(table, target), values, notes


def _node_names(table: Table, column: str) -> list[str]:
    """Returns the names in a column. Of numbers, 3.0 is 3."""
    values: ColumnValues = _column(table, column)
    if values.missing.any():
        raise ValueError(f"missing name at {table.place(int(values.missing.argmax()), column)}")
    words = [word for word in values.words if word is not None]
    return words if values.numbers is None else [word.removesuffix(".0") for word in words]


def _order(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the distinct names: numbers in order, others as they occur."""
    found = list(dict.fromkeys(names))
    numbers = [_parse_number(name) for name in found]
    if all(number is not None for number in numbers):
        found = [name for _, name in sorted(zip(numbers, found, strict=True), key=lambda pair: pair[0] or 0.0)]
    return tuple(found)


def _check_distinct(table: Table, column: str, names: Sequence[str]) -> None:
    first: dict[str, int] = {}
    for row, name in enumerate(names):
        if name in first:
            raise ValueError(f"{table.place(row, column)}: {name!r} occurs twice, first in row {first[name] + 1}")
        first[name] = row


def _check_nodes(table: Table, ends: Sequence[Sequence[str]], known: Sequence[str], *, where: str) -> None:
    unique = set(known)
    for column, names in zip(table.columns, ends, strict=False):
        for row, name in enumerate(names):
            if name not in unique:
                close = did_you_mean(name, [*known][:10_000])
                raise ValueError(f"{table.place(row, column)}: node {name!r} is not in {where}{close}")


# ---------------------------------------------------------------- several graphs


class LoadedGraphs(NamedTuple):
    """Several graphs with their names, the encoding of nodes and labels, and notes for the user."""

    graphs: list[Graph]
    names: tuple[str, ...]
    """Name of each graph: its id, or its file."""
    encoding: NodeEncoding
    notes: tuple[str, ...] = ()


def read_graphs(
    source: str | Path,
    *,
    labels: str | Path | None = None,
    nodes: str | Path | None = None,
    target: str | None = None,
    ignore_columns: Collection[str] = (),
    keep_columns: Collection[str] = (),
    directed: bool = False,
    encoding: NodeEncoding | None = None,
) -> LoadedGraphs:
    """Reads several graphs with their labels.

    One table has the columns graph, source, target and, if there is one, weight. A folder has one edge list per graph;
    its subfolders are classes. Labels come from a table with the name of the graph and the label.

    Args:
        source: Table of edges, or folder.
        labels: Table with one row per graph: its name and its label. A graph without a label has -1.
        nodes: Table with one row per node: graph, node and features.
        target: Column of `labels` with the label. Defaults to the last column.
        ignore_columns: Columns of `nodes` to leave out.
        keep_columns: Columns of `nodes` to use although they look like identifiers.
        directed: Whether the edges have a direction.
        encoding: Encoding of other graphs, for prediction.

    Raises:
        ValueError: If a file cannot be read, or names a graph or a node that does not exist.
    """
    path = resolve_path(source)
    parts, folders = _edges_of_folder(path) if path.is_dir() else (_edges_of_table(path), None)
    notes: list[str] = []
    node_rows = None if nodes is None else read_table(resolve_path(nodes))
    label_rows = None if labels is None else read_table(resolve_path(labels))
    if encoding is None:
        columns, more = ((), [])
        if node_rows is not None:
            columns, more = _fit_columns(node_rows, [*node_rows.columns][:2], ignore=ignore_columns, keep=keep_columns)
        notes += more
        encoding = NodeEncoding(None, columns, _fit_graph_labels(label_rows, target, folders))
    if encoding.columns and node_rows is None:
        raise _missing_features(encoding)
    features = {} if node_rows is None else _rows_of_graphs(node_rows)
    for name in features:
        parts.setdefault(name, ([], [], None, f"{Path(nodes or '').name}"))
    y = _graph_labels(encoding, parts, label_rows, folders)
    inputs = None if node_rows is None else encoding.inputs(node_rows)
    notes += () if node_rows is None else encoding.notes(node_rows)
    graphs, removed = [], []
    for k, (name, (a, b, weight, place)) in enumerate(parts.items()):
        if node_rows is None or inputs is None:
            members, x = _order([*a, *b]), torch.zeros(len({*a, *b}), 0)
        else:
            rows = features.get(name, {})
            members, x = tuple(rows), inputs[list(rows.values())]
        number = {node: i for i, node in enumerate(members)}
        if strange := next((node for node in (*a, *b) if node not in number), None):
            raise ValueError(f"{place}: node {strange!r} of graph {name!r} is not in {Path(nodes or '').name}")
        index = torch.tensor([[number[i], number[j]] for i, j in zip(a, b, strict=True)], dtype=torch.int64)
        index, weight, more = clean_edges(index.reshape(-1, 2).T, weight, len(members), directed=directed)
        removed += [name] if more else []
        attr = None if weight is None else weight[:, None]
        graphs.append(Graph(x, index, attr, y[k : k + 1], members, encoding.classes or None))
    if removed:
        some = ", ".join(map(repr, removed[:3])) + (", ..." if len(removed) > 3 else "")
        notes.append(f"removed self-loops or duplicate edges of {len(removed)} graphs: {some}")
    return LoadedGraphs(graphs, tuple(parts), encoding, tuple(notes))


_Edges = tuple[list[str], list[str], Tensor | None, str]
"""Sources, targets and weights of one graph, and the name of its file."""


def _edges_of_table(path: Path) -> dict[str, _Edges]:
    """Returns the edges of each graph of a table."""
    table = _read_edge_list(path, 3)
    column = next((name for name in table.columns if name.lower() in _GRAPHS), next(iter(table.columns)))
    ids = _node_names(table, column)
    a, b, weight, _ = _edge_columns(table, skip=(column,))
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(ids):
        rows.setdefault(name, []).append(row)
    return {
        name: ([a[i] for i in some], [b[i] for i in some], None if weight is None else weight[some], path.name)
        for name, some in rows.items()
    }


def _edges_of_folder(path: Path) -> tuple[dict[str, _Edges], list[str] | None]:
    """Returns the edges of each file of a folder, and the folder of each file if there are several."""
    files = list_files(path, suffixes=_EDGE_SUFFIXES)
    if not files:
        raise ValueError(f"{path} has no edge lists: expected files such as graph1.csv, one per graph")
    found = {}
    for file in files:
        a, b, weight, _ = _edge_columns(_read_edge_list(file, 2))
        found[file.relative_to(path).as_posix()] = (a, b, weight, file.name)
    folders = [name.rpartition("/")[0] for name in found]
    return found, folders if len({*folders}) > 1 and all(folders) else None


def _rows_of_graphs(table: Table) -> dict[str, dict[str, int]]:
    """Returns the row of each node of each graph of a table of nodes."""
    if len(table.columns) < 2:
        raise ValueError(f"{table.name} has 1 column, expected graph, node and features")
    graph, node = [*table.columns][:2]
    found: dict[str, dict[str, int]] = {}
    for row, (name, member) in enumerate(zip(_node_names(table, graph), _node_names(table, node), strict=True)):
        rows = found.setdefault(name, {})
        if member in rows:
            raise ValueError(f"{table.place(row, node)}: node {member!r} of graph {name!r} occurs twice")
        rows[member] = row
    return found


def _fit_graph_labels(table: Table | None, target: str | None, folders: Sequence[str] | None) -> Column | None:
    """Fits the classes of graphs to the column of a table, or to the names of folders."""
    if table is not None:
        if len(table.columns) < 2:
            raise ValueError(f"{table.name} has 1 column, expected the name of the graph and its label")
        return _fit_labels(table, [*table.columns][-1] if target is None else target)
    return None if folders is None else Column("class", tuple(sorted({*folders})))


def _graph_labels(
    encoding: NodeEncoding, graphs: Collection[str], table: Table | None, folders: Sequence[str] | None
) -> Int[Tensor, " g"]:
    """Returns the class of each graph, -1 if it is unknown."""
    y = torch.full((len(graphs),), -1)
    if encoding.target is None:
        return y
    if table is None:
        known = encoding.target.keys
        return torch.tensor([known.get(name, -1) for name in folders]) if folders else y
    column = next(iter(table.columns))
    number = {name: i for i, name in enumerate(graphs)}
    number |= {Path(name).stem: i for name, i in number.items() if "." in name}
    ids = _node_names(table, column)
    _check_distinct(table, column, ids)
    for row, (name, label) in enumerate(zip(ids, encoding.labels(table).tolist(), strict=True)):
        if name not in number:
            close = did_you_mean(name, [*number][:10_000])
            raise ValueError(f"{table.place(row, column)}: there is no graph {name!r}{close}")
        y[number[name]] = label
    return y
