import csv

import numpy as np
import pytest
import torch

import lawful
from lawful.cli import main
from lawful.data import Graph, ring_graphs
from lawful.recipes import GraphClassifyRecipe, predictions
from lawful.recipes import graph_classify as recipe_module
from lawful.training import TrainingFailed

QUICK = {"steps": 40, "dim": 16, "threads": 1, "law_cases": 5}


@pytest.fixture(scope="module", autouse=True)
def _few_graphs():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe_module, "_NUM_RINGS", 120)
        patch.setattr(recipe_module, "_SHOWN", 2)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with rings and one with paths, of equal sizes."""
    folder = tmp_path_factory.mktemp("graphs")
    for k in range(48):
        n, kind = 4 + k % 8, ("path", "ring")[k % 2]
        (folder / kind).mkdir(exist_ok=True)
        edges = [(i, (i + 1) % n) for i in range(n - (kind == "path"))]
        (folder / kind / f"{k}.csv").write_text("".join(f"{i},{j}\n" for i, j in edges))
    return folder


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    return lawful.train("graph-classify", data=str(folder), output_dir=tmp_path_factory.mktemp("runs"), **QUICK)


@pytest.mark.usefixtures("no_figures")
def test_rings_need_return_probabilities(tmp_path):
    """Without them, a network sees no more than the baselines: the size."""
    found = {}
    for walk_length in (4, 0):
        run = lawful.train(
            "graph-classify", walk_length=walk_length, lr=1e-2, output_dir=tmp_path, **{**QUICK, "law_cases": 0}
        )
        found[walk_length] = run.results["test"]["accuracy"]["value"]
        baselines = [score["value"] for score in run.results["baseline accuracy"].values()]
        assert len(baselines) == 3
        assert max(baselines) < 0.8
    assert found[4] > 0.75 > found[0]
    assert "beats every baseline" in lawful.training.Run(tmp_path / "graph-classify-001").results["summary"]


def test_the_report(run):
    assert sorted(p.name for p in run.figures.iterdir()) == ["confusion.png", "per class.png", "predictions.png"]
    assert "held     node_permutation_invariance" in run.log.read_text()
    assert run.results["examples"] == {"train": 31, "validation": 7, "test": 10}
    rows = list(csv.reader((run.samples / "test predictions.csv").read_text().splitlines()))
    assert rows[0] == ["graph", "true", "predicted", "probability"]
    assert rows[1][0].endswith(".csv")
    assert len(rows) == 11


def test_new_graphs_are_predicted_on_the_command_line(run, folder, tmp_path, capsys):
    (tmp_path / "new.csv").write_text("graph,from,to\na,1,2\na,2,3\na,3,1\nb,1,2\nb,2,3\n")
    assert main(["predict", str(run.path), str(tmp_path / "new.csv")]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["graph"] for row in rows] == ["a", "b"]
    model = lawful.load(run)
    triangle = Graph(torch.zeros(3, 0), torch.tensor([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]]))
    p = model.predict_proba([triangle])
    assert float(rows[0]["p(path)"]) == pytest.approx(p[0, 0], abs=1e-4)
    assert list(model.predict(tmp_path / "new.csv")) == [row["prediction"] for row in rows]
    table = predictions(run, folder)
    assert table.summary.startswith("accuracy ")
    assert table.summary.endswith("on 48 graphs")
    with pytest.raises(ValueError, match="expected graphs with 0 features per node, got 2"):
        model.predict([Graph(torch.zeros(2, 2), torch.zeros(2, 0, dtype=torch.int64))])
    with pytest.raises(ValueError, match="num_samples is not supported for a run of graph-classify"):
        predictions(run, folder, num_samples=3)


def test_one_prediction_does_not_depend_on_the_others(run):
    model, graphs = lawful.load(run), ring_graphs(5)
    together = model.predict_proba(graphs)
    np.testing.assert_allclose(together[2:3], model.predict_proba(graphs[2:3]), atol=1e-5)


@pytest.mark.usefixtures("no_figures")
def test_labels_and_features_come_from_tables(tmp_path):
    edges = [f"g{g},{i},{i + 1},{1 + g % 3}" for g in range(30) for i in range(4)]
    (tmp_path / "edges.csv").write_text("\n".join(["graph,from,to,weight", *edges]))
    labels = [f"g{g},{'ab'[g % 2] if g < 28 else ''}" for g in range(30)]
    (tmp_path / "labels.csv").write_text("\n".join(["graph,kind", *labels]))
    nodes = [f"g{g},{i},{g % 2 + 0.1 * i}" for g in range(30) for i in range(5)]
    (tmp_path / "nodes.csv").write_text("\n".join(["graph,node,mass", *nodes]))
    files = {name: str(tmp_path / f"{name}.csv") for name in ("labels", "nodes")}
    for model in ("gat", "gcn"):
        run = lawful.train(
            "graph-classify", data=str(tmp_path / "edges.csv"), model=model, output_dir=tmp_path, **files, **QUICK
        )
        assert run.results["examples"]["unlabeled"] == 2
        assert ("model gat ignores the edge weights" in run.results["warnings"]) == (model == "gat")
        assert run.results["baseline accuracy"]["logistic regression on size and degrees"]["value"] == 1.0
    table = predictions(run, tmp_path / "edges.csv", nodes=tmp_path / "nodes.csv")
    assert len(table.rows) == 30
    assert table.summary == ""
    with pytest.raises(ValueError, match="the model needs the features mass: pass a table of nodes"):
        predictions(run, tmp_path / "edges.csv")


def test_color_counts_are_those_of_each_graph():
    """Of two different colors after one step: ends and middle of a path, and one color of a ring."""
    ends = torch.tensor([[0, 1], [1, 2]])
    graphs = [
        Graph(torch.zeros(3, 0), torch.cat([e, e.flip(0)], 1)) for e in (ends, torch.tensor([[0, 1, 2], [1, 2, 0]]))
    ]
    counts = recipe_module._color_counts(graphs)
    assert counts.sum(1).tolist() == [12.0, 12.0]
    assert sorted(counts[0].tolist())[-4:] == [2.0, 2.0, 2.0, 3.0]
    assert sorted(counts[1].tolist())[-4:] == [3.0, 3.0, 3.0, 3.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": "ring"}, "no such file or graph: 'ring': did you mean rings"),
        ({"labels": "labels.csv"}, "labels needs a file, got data=rings"),
        ({"data": "edges.csv", "target": "kind"}, "target needs labels"),
        ({"data": "edges.csv", "keep_columns": ("a",)}, "ignore_columns and keep_columns need nodes"),
        ({"data": "edges.csv"}, "graph-classify needs labels: pass --labels"),
        ({"data": "negative.csv", "labels": "labels.csv"}, "edge weights must be positive, got -1"),
        ({"validation_fraction": 0.0, "patience": 2}, "patience needs"),
    ],
)
def test_bad_data_raise(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edges.csv").write_text("graph,from,to\na,1,2\nb,1,2\n")
    (tmp_path / "negative.csv").write_text("graph,from,to,weight\na,1,2,-1\nb,1,2,1\n")
    (tmp_path / "labels.csv").write_text("graph,kind\na,x\nb,y\n")
    with pytest.raises((TrainingFailed, ValueError), match=message):
        lawful.train("graph-classify", threads=1, **options)


@pytest.mark.parametrize("mean_size", [None, True, 0, "3", float("nan")])
def test_a_damaged_configuration_raises(run, mean_size):
    config = {**run.config["model"], "mean_size": mean_size}
    with pytest.raises(ValueError, match=r"model\.mean_size must be a positive number"):
        GraphClassifyRecipe().build_model(config)
