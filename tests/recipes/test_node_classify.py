import csv
import random

import numpy as np
import pytest
import torch

import lawful
from lawful.cli import main
from lawful.data import from_networkx, karate_club, read_graph
from lawful.recipes import NodeClassifyRecipe, predictions
from lawful.recipes import node_classify as recipe_module
from lawful.training import TrainingFailed

QUICK = {"steps": 20, "dim": 16, "threads": 1, "law_cases": 5}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Edges and nodes of three teams, a third of them unlabeled."""
    folder, draw = tmp_path_factory.mktemp("graph"), random.Random(1)
    team = [i % 3 for i in range(60)]
    edges = [(i, j) for i in range(60) for j in range(i) if draw.random() < (0.25 if team[i] == team[j] else 0.03)]
    (folder / "edges.csv").write_text("from,to\n" + "".join(f"p{i},p{j}\n" for i, j in edges))
    rows = [f"p{i},{draw.gauss(team[i], 1):.3f},{'xyz'[team[i]] if i % 9 > 2 else ''}\n" for i in range(60)]
    (folder / "nodes.csv").write_text("id,age,team\n" + "".join(rows))
    (folder / "truth.csv").write_text("".join("xyz"[t] for t in team))
    return folder


@pytest.fixture(scope="module")
def run(files, tmp_path_factory):
    return lawful.train(
        "node-classify",
        data=str(files / "edges.csv"),
        nodes=str(files / "nodes.csv"),
        target="team",
        output_dir=tmp_path_factory.mktemp("runs"),
        **{**QUICK, "steps": 60},
    )


def test_the_report_compares_with_simple_baselines(run):
    results = run.results
    assert [*results["baseline accuracy"]] == [
        "most frequent class",
        "label propagation",
        "logistic regression without edges",
    ]
    assert results["test"]["accuracy"]["low"] <= results["test"]["accuracy"]["value"]
    assert results["examples"] == {"train": 22, "validation": 5, "test": 12, "unlabeled": 21}
    assert "in test accuracy: " in results["summary"] or "test accuracy " in results["summary"]
    assert sorted(p.name for p in run.figures.iterdir()) == ["confusion.png", "graph.png", "per class.png"]
    assert "held     node_permutation_equivariance" in run.log.read_text()
    tables = {path.name: list(csv.reader(path.read_text().splitlines())) for path in run.samples.iterdir()}
    assert len(tables["test predictions.csv"]) == 13
    assert tables["unlabeled nodes.csv"][0] == ["node", "predicted", "probability"]
    assert len(tables["unlabeled nodes.csv"]) == 22


def test_unlabeled_nodes_are_predicted_on_the_command_line(run, files, capsys):
    assert main(["predict", str(run.path)]) == 0
    table = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    truth = (files / "truth.csv").read_text()
    assert [row["node"] for row in table] == [f"p{i}" for i in range(60) if i % 9 <= 2]
    assert sum(row["prediction"] == truth[int(row["node"][1:])] for row in table) >= 14
    assert main(["predict", str(run.path), str(files / "edges.csv"), "--nodes", str(files / "nodes.csv")]) == 0
    assert list(csv.DictReader(capsys.readouterr().out.splitlines())) == table
    assert main(["predict", str(run.path), str(files / "edges.csv")]) == 4
    assert "the model needs the features age: pass a table of nodes" in capsys.readouterr().err


def test_a_loaded_model_predicts_graphs(run, files):
    model = lawful.load(run)
    graph = read_graph(files / "edges.csv", files / "nodes.csv", encoding=model.encoding).graph
    p = model.predict_proba(graph)
    assert p.shape == (60, 3)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(model.predict(files / "edges.csv", files / "nodes.csv"), model.predict(graph))
    with pytest.raises(ValueError, match="expected a graph with 1 features per node, got 0"):
        model.predict(karate_club())


def test_a_node_does_not_see_its_own_label(run, files):
    model = lawful.load(run)
    graph = read_graph(files / "edges.csv", files / "nodes.csv", encoding=model.encoding).graph
    before = model.predict_proba(graph)
    graph.y[3] = (graph.y[3] + 1) % 3
    after = model.predict_proba(graph)
    np.testing.assert_allclose(before[3], after[3], atol=1e-6)
    assert not np.allclose(before, after, atol=1e-6)


@pytest.mark.usefixtures("no_figures")
def test_labels_of_other_graphs_are_matched_by_name(tmp_path):
    run = lawful.train("node-classify", data="karate", output_dir=tmp_path, **QUICK)
    nx = pytest.importorskip("networkx")
    graph, model = nx.karate_club_graph(), lawful.load(run)
    for _, data in graph.nodes(data=True):
        data["club"] = {"Mr. Hi": "instructor", "Officer": "officer"}[data["club"]]
    nx.relabel_nodes(graph, {i: str(i + 1) for i in graph}, copy=False)
    found = from_networkx(graph, label="club")
    order = [found.names.index(str(i)) for i in range(1, 35)]
    known = model.known_labels(found)
    assert known[order].tolist() == karate_club().y.tolist()
    table = predictions(run, "karate")
    assert len(table.rows) == 34
    assert table.summary.startswith("accuracy ")
    found = from_networkx(nx.karate_club_graph(), label="club")
    with pytest.raises(ValueError, match=r"the graph has a class 'Mr. Hi', the model has instructor, officer"):
        model.predict(found)


def test_label_propagation_is_a_baseline_that_knows_training_and_validation_nodes():
    setup = NodeClassifyRecipe(data="karate", **{k: v for k, v in QUICK.items() if k != "dim"}).setup()
    data = setup.data
    fitting = torch.cat([data.splits["train"], data.splits["validation"]])
    p = torch.full((34, 2), 0.5)
    links = torch.zeros(34, 34).index_put_((data.graph.edge_index[0], data.graph.edge_index[1]), torch.tensor(1.0))
    for _ in range(500):
        p = links @ p / links.sum(1, keepdim=True)
        p[fitting] = torch.eye(2)[data.labels[fitting]]
    test = data.splits["test"]
    expected = float((p.argmax(1) == data.labels)[test].double().mean())
    assert recipe_module._baselines(data, 2)["label propagation"]["value"] == pytest.approx(expected)


@pytest.mark.usefixtures("no_figures")
def test_resumed_run_equals_an_uninterrupted_one(tmp_path, stop_at):
    options = {"data": "karate", "output_dir": tmp_path, **QUICK}
    whole = lawful.train("node-classify", **options)
    begun = lawful.train("node-classify", loggers=[stop_at(7)], **options)
    again = lawful.train(resume=begun)
    for name, weight in whole.weights().items():
        assert torch.equal(weight, again.weights()[name]), name


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("model", ["gat", "message-passing"])
def test_other_models(model, files, tmp_path):
    edges = tmp_path / "weighted.csv"
    rows = (files / "edges.csv").read_text().splitlines()
    edges.write_text("\n".join([f"{rows[0]},weight", *(f"{row},2.5" for row in rows[1:])]))
    run = lawful.train(
        "node-classify", data=str(edges), nodes=str(files / "nodes.csv"), model=model, output_dir=tmp_path, **QUICK
    )
    assert ("model gat ignores the edge weights" in run.results["warnings"]) == (model == "gat")
    assert "held     node_permutation_equivariance" in run.log.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": "karat"}, "no such file or graph: 'karat': did you mean karate"),
        ({"data": "nowhere.csv"}, "no such file or folder"),
        ({"data": "edges"}, "needs labels of nodes: pass --nodes"),
        ({"data": "edges", "nodes": "nodes", "target": "teem"}, "has no column 'teem': did you mean team"),
        (
            {"data": "edges", "nodes": "nodes", "target": "age"},
            r"the target has .* different values in",
        ),
        ({"data": "negative", "nodes": "nodes"}, "edge weights must be positive, got -1"),
        ({"data": "edges", "nodes": "nodes", "validation_fraction": 0.0, "patience": 3}, "patience needs validation"),
    ],
)
def test_bad_data_raise(options, message, files, tmp_path):
    (files / "negative.csv").write_text("source,target,weight\np0,p1,-1\n")
    named = {k: str(files / f"{v}.csv") if v in ("edges", "nodes", "negative") else v for k, v in options.items()}
    with pytest.raises((TrainingFailed, ValueError), match=message):
        lawful.train("node-classify", output_dir=tmp_path, threads=1, **named)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": "nodes.csv"}, "nodes needs a file, got data=blocks"),
        ({"id_column": "id"}, "id_column needs a file, got data=blocks"),
        ({"directed": True}, "directed needs a file"),
        ({"model": "gat", "num_heads": 3}, "num_heads must divide dim: got dim=64, num_heads=3"),
    ],
)
def test_bad_options_raise(options, message, tmp_path):
    with pytest.raises((ValueError, TrainingFailed), match=message):
        lawful.train("node-classify", output_dir=tmp_path, **options)


def test_prediction_refuses_options_of_other_recipes(run):
    with pytest.raises(ValueError, match="num_samples is not supported for a run of node-classify"):
        predictions(run, num_samples=3)
    with pytest.raises(ValueError, match="nodes needs the edges of the new graph: pass data"):
        predictions(run, nodes="nodes.csv")
    with pytest.raises(ValueError, match="horizon needs a run of forecast"):
        predictions(run, horizon=3)
    with pytest.raises(ValueError, match="drop_missing needs a run of classify or regress"):
        predictions(run, drop_missing=True)
