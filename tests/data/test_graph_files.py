import numpy as np
import pytest
import torch

from lawful.data import (
    Column,
    Graph,
    NodeEncoding,
    karate_club,
    read_graph,
    read_graphs,
    stochastic_block_model,
    write_graph,
)

PEOPLE = "id,age,city,team\nann,30,Rome,red\nbob,40,Oslo,blue\neve,,Rome,\n"


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
        return path

    return write


def edges_of(graph):
    return {(graph.names[i], graph.names[j]) for i, j in graph.edge_index.T.tolist()}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("e.csv", "ann,bob\nbob,eve\n"),
        ("e.csv", "source,target\nann,bob\nbob,eve\n"),
        ("e.csv", "\ufefffrom;to\nann;bob\nbob;eve\n"),
        ("e.csv", "target,kind,source\nbob,x,ann\neve,y,bob\n"),
        ("e.tsv", "ann\tbob\nbob\teve\n"),
        ("e.txt", "# who knows whom\n\n  ann   bob\nbob eve\n% end\n"),
        ("e.edgelist", "ann bob {}\nbob eve {'color': 'red'}\n"),
        ("e.csv", "ann,bob\nbob,eve\nbob,ann\nann,bob\neve,eve\n"),
        ("e.csv", "person,friend,weight\nann,bob,1\nbob,eve,1\n"),
    ],
)
def test_edge_lists(write, name, text):
    graph = read_graph(write(name, text)).graph
    assert graph.names == ("ann", "bob", "eve") or "target,kind" in text
    assert edges_of(graph) == {("ann", "bob"), ("bob", "ann"), ("bob", "eve"), ("eve", "bob")}
    assert read_graph(write(name, text), directed=True).graph.num_edges == (3 if "bob,ann" in text else 2)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("e.csv", "a,b,weight\n10,9,0.5\n9,2,2\n"),
        ("e.csv", "10,9,0.5\n9,2,2\n"),
        ("e.txt", "10 9 0.5\n9 2 2\n"),
        ("e.edgelist", "10 9 {'weight': 0.5}\n9 2 {'weight': 2}\n"),
        ("e.csv", "u,v,w\n10.0,9.0,0.5\n9.0,2.0,2\n"),
    ],
)
def test_weights_and_numbers_as_names(write, name, text):
    graph = read_graph(write(name, text), directed=True).graph
    assert graph.names == ("2", "9", "10")
    assert dict(zip(graph.edge_index[0].tolist(), graph.edge_weight.tolist(), strict=True)) == {2: 0.5, 1: 2.0}


def test_arrays_are_edge_lists(tmp_path):
    np.save(tmp_path / "e.npy", np.array([[0, 1], [1, 2]]))
    assert read_graph(tmp_path / "e.npy").graph.names == ("0", "1", "2")


def test_a_table_of_nodes_has_features_and_labels(write):
    edges, nodes = write("e.csv", "ann,bob\n"), write("n.csv", PEOPLE)
    graph, encoding, notes = read_graph(edges, nodes)
    assert encoding.features == ("age", "age is missing", "city=Oslo", "city=Rome")
    assert graph.x.tolist() == [[30, 0, 0, 1], [40, 0, 1, 0], [35, 1, 0, 1]]
    assert (graph.y.tolist(), graph.classes) == ([1, 0, -1], ("blue", "red"))
    assert notes == ("filled 1 missing value of column 'age'",)
    assert NodeEncoding.from_json(encoding.to_json()) == encoding
    again = read_graph(edges, write("new.csv", "city,id,age\nRome,bob,1\nParis,ann,2\n"), encoding=encoding)
    assert again.graph.x.tolist() == [[1, 0, 0, 1], [2, 0, 0, 0]]
    assert again.graph.y.tolist() == [-1, -1]
    assert again.notes == ("column 'city': 1 value is an unknown category, which counts as other: 'Paris'",)
    assert read_graph(edges, nodes, target="city", ignore_columns=("age", "team")).graph.x.shape == (3, 0)
    assert read_graph(edges, write("n.csv", "who,team\nann,x\nbob,y\n")).graph.y.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("edges", "nodes", "message"),
    [
        ("ann,bob\nbob,joe\n", PEOPLE, r"line 2 of e\.csv, column 'x2': node 'joe' is not in column 'id' of n\.csv"),
        ("ann,bobb\n", PEOPLE, "did you mean bob"),
        ("ann\nbob\n", None, r"e\.csv has 1 column, expected at least 2: source, target"),
        ("", None, r"e\.csv has no edges"),
        ("# nothing\n", None, r"e\.csv has no edges"),
        ("source,target\nann,\n", None, r"missing name at line 2 of e\.csv, column 'target'"),
        ("ann,bob\nann\n", None, r"line 2 of e\.csv has 1 fields, expected 2 as in line 1"),
        ("source,target,weight\nann,bob,inf\n", None, r"line 2 of e\.csv, column 'weight': expected a finite"),
        ("source,target,weight\nann,bob,x\n", None, "column 'weight': expected a number, got 'x'"),
        ("source,target,weight\nann,bob,\n", None, r"missing value at line 2 of e\.csv, column 'weight'"),
        ("ann,bob\n", "id,team\nann,x\nann,y\nbob,x\n", r"line 3 of n\.csv, column 'id': 'ann' occurs twice"),
        ("ann,bob\n", "id,team\nann,\nbob,\n", r"column 'team' of n\.csv has no labels"),
        ("ann,bob\n", "id,team\nann,x\nbob,\n", "has only the class 'x', expected at least 2"),
        ("ann,bob\n", "id,age,team\nann,inf,x\nbob,1,y\n", r"line 2 of n\.csv, column 'age': expected a finite"),
    ],
)
def test_bad_files_raise(write, edges, nodes, message):
    nodes = None if nodes is None else write("n.csv", nodes)
    with pytest.raises(ValueError, match=message):
        read_graph(write("e.csv", edges), nodes)


def test_bad_options_raise(write, tmp_path):
    edges, nodes = write("e.csv", "ann,bob\n"), write("n.csv", PEOPLE)
    encoding = read_graph(edges, nodes).encoding
    with pytest.raises(ValueError, match=r"n\.csv has no column 'teams': did you mean team"):
        read_graph(edges, nodes, target="teams")
    with pytest.raises(ValueError, match="is the column with the names of the nodes"):
        read_graph(edges, nodes, target="id")
    with pytest.raises(ValueError, match=r"needs the features age, .*: pass a table of nodes"):
        read_graph(edges, encoding=encoding)
    with pytest.raises(ValueError, match="unknown category 'green', expected 'blue', 'red'"):
        read_graph(edges, write("new.csv", "id,age,city,team\nann,1,Rome,green\nbob,1,Rome,\n"), encoding=encoding)
    with pytest.raises(ValueError, match="is a folder, expected an edge list"):
        read_graph(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no such file or folder: .*missing\.csv"):
        read_graph(tmp_path / "missing.csv")
    for value in ({}, {"id_column": 1, "columns": [], "target": None}, {**encoding.to_json(), "columns": 3}):
        with pytest.raises(ValueError, match="encoding"):
            NodeEncoding.from_json(value)
    assert NodeEncoding(None, (), Column("y", ("a", "b"))).classes == ("a", "b")


EDGES = "graph,source,target,weight\ng1,a,b,1\ng1,b,c,2\ng2,a,b,3\ng2,a,a,1\n"
LABELS = "graph,kind\ng2,tree\ng1,ring\n"


def test_several_graphs_in_one_table(write):
    graphs, names, encoding, notes = read_graphs(write("e.csv", EDGES), labels=write("l.csv", LABELS))
    assert names == ("g1", "g2")
    assert [(g.num_nodes, g.num_edges, g.y.tolist()) for g in graphs] == [(3, 4, [0]), (2, 2, [1])]
    assert graphs[1].edge_weight.tolist() == [3.0, 3.0]
    assert encoding.classes == ("ring", "tree")
    assert notes == ("removed self-loops or duplicate edges of 1 graphs: 'g2'",)
    nodes = write("n.csv", "graph,node,mass\ng1,a,1\ng1,b,2\ng1,c,3\ng2,a,4\ng2,b,5\ng3,a,6\n")
    graphs, names, encoding, _ = read_graphs(write("e.csv", EDGES), labels=write("l.csv", LABELS), nodes=nodes)
    assert names == ("g1", "g2", "g3")
    assert [g.x.tolist() for g in graphs] == [[[1.0], [2.0], [3.0]], [[4.0], [5.0]], [[6.0]]]
    assert [g.y.tolist() for g in graphs] == [[0], [1], [-1]]
    new = read_graphs(write("e.csv", EDGES), nodes=nodes, encoding=encoding)
    assert [g.y.tolist() for g in new.graphs] == [[-1]] * 3


def test_several_graphs_in_a_folder(write, tmp_path):
    for name in ("ring/1.csv", "ring/2.txt", "tree/1.csv"):
        write(f"graphs/{name}", "0,1\n1,2\n" if name.endswith("csv") else "0 1\n")
    graphs, names, encoding, _ = read_graphs(tmp_path / "graphs")
    assert (names, encoding.classes) == (("ring/1.csv", "ring/2.txt", "tree/1.csv"), ("ring", "tree"))
    assert [int(g.y) for g in graphs] == [0, 0, 1]
    labels = write("l.csv", "file,kind\n1,x\n2.csv,y\n")
    for name in ("flat/1.csv", "flat/2.csv"):
        write(name, "0,1\n")
    found = read_graphs(tmp_path / "flat", labels=labels)
    assert [int(g.y) for g in found.graphs] == [0, 1]
    assert isinstance(found.graphs[0], Graph)
    assert all(torch.equal(g.y, torch.tensor([-1])) for g in read_graphs(tmp_path / "flat", encoding=encoding).graphs)


@pytest.mark.parametrize(
    ("edges", "labels", "nodes", "message"),
    [
        ("a,b\n", None, None, r"has 2 columns, expected at least 3: graph, source, target"),
        (EDGES, "graph,kind\ng7,x\ng1,y\n", None, r"line 2 of l\.csv, column 'graph': there is no graph 'g7'"),
        (EDGES, "graph,kind\ng1,x\ng1,y\n", None, "'g1' occurs twice"),
        (EDGES, "graph\ng1\n", None, "expected the name of the graph and its label"),
        (EDGES, LABELS, "graph,node,m\ng1,a,1\ng1,b,1\ng2,a,1\n", r"e\.csv: node 'c' of graph 'g1' is not in n\.csv"),
        (EDGES, LABELS, "graph,node,m\ng1,a,1\ng1,a,1\n", "node 'a' of graph 'g1' occurs twice"),
    ],
)
def test_bad_files_of_several_graphs_raise(write, edges, labels, nodes, message):
    labels = None if labels is None else write("l.csv", labels)
    nodes = None if nodes is None else write("n.csv", nodes)
    with pytest.raises(ValueError, match=message):
        read_graphs(write("e.csv", edges), labels=labels, nodes=nodes)


def test_an_empty_folder_raises(tmp_path):
    with pytest.raises(ValueError, match="has no edge lists"):
        read_graphs(tmp_path)


def test_a_written_graph_is_read_again(tmp_path):
    edges, nodes = tmp_path / "e.csv", tmp_path / "n.csv"
    weighted = Graph(
        torch.randn(3, 2),
        torch.tensor([[0, 2], [1, 0]]),
        torch.tensor([[0.5], [2.0]]),
        torch.tensor([1, -1, 0]),
        ("a,b", "c", "d"),
        ("no", "yes"),
    )
    for graph, directed in (
        (karate_club(), False),
        (stochastic_block_model((9, 9), p_within=0.5), False),
        (weighted, True),
    ):
        write_graph(graph, edges, nodes)
        found = read_graph(edges, nodes, directed=directed).graph
        for name in ("x", "edge_index", "edge_attr", "y"):
            expected = getattr(graph, name)
            assert expected is None or torch.equal(getattr(found, name)[*_order(graph, name)], expected), name
        assert (found.names, found.classes) == (graph.names, graph.classes)
    with pytest.raises(ValueError, match=r"expected a graph with a label per node, got y of shape \(1,\)"):
        write_graph(Graph(torch.zeros(2, 1), torch.zeros(2, 0, dtype=torch.int64), y=torch.zeros(1)), edges, nodes)


def _order(graph, name):
    """The edges of a file are sorted."""
    order = (graph.edge_index[0] * graph.num_nodes + graph.edge_index[1]).argsort().argsort()
    return {"edge_index": (slice(None), order), "edge_attr": (order,)}.get(name, (slice(None),))
