import csv

import numpy as np
import pytest
import torch

import lawful
from lawful.cli import main
from lawful.data import Molecule, metal_clusters
from lawful.recipes import MoleculesRecipe, predictions
from lawful.recipes import molecules as recipe_module
from lawful.training import TrainingFailed

QUICK = {"steps": 60, "dim": 24, "num_layers": 2, "lr": 1e-2, "threads": 1, "law_cases": 3}


@pytest.fixture(scope="module", autouse=True)
def _few_clusters():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe_module, "_NUM_CLUSTERS", 150)
        yield


def xyz(molecules, energy=True):
    return "".join(
        f"{len(m)}\n{'energy=' + str(m.properties['energy']) if energy else 'new'}\n"
        + "".join(f"{e} {x} {y} {z}\n" for e, (x, y, z) in zip(m.elements, m.positions.tolist(), strict=True))
        for m in molecules
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return lawful.train("molecules", output_dir=tmp_path_factory.mktemp("runs"), **QUICK)


def test_the_network_beats_linear_regression_on_atom_counts(run):
    results = run.results
    error = results["test"]["root mean squared error"]
    assert error["low"] <= error["value"] <= error["high"]
    assert [*results["baseline root mean squared error"]] == [
        "mean",
        "linear regression on atom counts",
        "linear regression on atom counts and pair distances",
    ]
    assert error["value"] < results["baseline root mean squared error"]["linear regression on atom counts"]["value"]
    assert "test root mean squared error of energy" in results["summary"]
    assert "held     invariance(group=Euclidean(3)" in run.log.read_text()
    assert "held     permutation_invariance" in run.log.read_text()
    assert [p.name for p in run.figures.iterdir()] == ["predicted and true.png"]
    rows = list(csv.reader((run.samples / "test predictions.csv").read_text().splitlines()))
    assert rows[0] == ["molecule", "true energy", "predicted energy"]
    assert len(rows) == 31


def test_new_molecules_are_predicted_on_the_command_line(run, tmp_path, capsys):
    clusters = metal_clusters(4, seed=9)
    (tmp_path / "new.xyz").write_text(xyz(clusters, energy=False))
    assert main(["predict", str(run.path), str(tmp_path / "new.xyz")]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["molecule"] for row in rows] == [f"new.xyz:{k}" for k in range(4)]
    found = [float(row["energy"]) for row in rows]
    np.testing.assert_allclose(lawful.load(run).predict(clusters), found, rtol=1e-4)
    (tmp_path / "known.xyz").write_text(xyz(clusters))
    table = predictions(run, tmp_path / "known.xyz")
    assert table.summary.startswith("root mean squared error ")
    with pytest.raises(ValueError, match="unknown element 'Au', the model has Ag, Cu"):
        lawful.load(run).predict([Molecule(("Au",), torch.zeros(1, 3))])
    with pytest.raises(ValueError, match="num_samples is not supported for a run of molecules"):
        predictions(run, tmp_path / "known.xyz", num_samples=2)


def test_predictions_follow_no_motion_and_no_order(run):
    model, cluster = lawful.load(run), metal_clusters(1, seed=5)[0]
    turn = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64)).Q
    order = torch.randperm(len(cluster))
    moved = Molecule(tuple(cluster.elements[i] for i in order), cluster.positions[order] @ turn.T + 50)
    found = model.predict([cluster, moved, *metal_clusters(3)])
    assert found[1] == pytest.approx(found[0], rel=1e-4)
    assert model.predict([cluster])[0] == pytest.approx(found[0], rel=1e-4)


def test_the_linear_part_is_the_baseline():
    setup = MoleculesRecipe().setup()
    data, model = setup.data, setup.model
    for parameter in model.head[-1].parameters():
        torch.nn.init.zeros_(parameter)
    counts = torch.tensor([[m.elements.count(e) for e in ("Ag", "Cu")] + [1] for m in data.molecules]).double()
    train = data.splits["train"]
    weights = torch.linalg.lstsq(counts[train], data.targets[train].double()).solution
    found = recipe_module._predict(model, data.graphs).double()
    torch.testing.assert_close(found, counts @ weights, atol=1e-3, rtol=1e-4)


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("options", [{"model": "gram"}, {"readout": "mean"}, {"cutoff": 3.0}])
def test_other_models(options, tmp_path):
    run = lawful.train("molecules", output_dir=tmp_path, **{**QUICK, "steps": 3, **options})
    assert "held     invariance(group=Euclidean(3)" in run.log.read_text()


@pytest.mark.usefixtures("no_figures")
def test_own_files_with_another_property(tmp_path):
    folder = tmp_path / "molecules"
    folder.mkdir()
    for k, m in enumerate(metal_clusters(30)):
        text = xyz([m]).replace("energy=", f"gap={len(m) / 10 + k / 1000} total=")
        (folder / f"{k}.xyz").write_text(text)
    options = {"data": str(folder), "output_dir": tmp_path, **QUICK, "steps": 3}
    run = lawful.train("molecules", target="gap", **options)
    assert "of gap" in run.results["summary"]
    assert predictions(run, folder).columns == ("molecule", "gap")
    with pytest.raises(TrainingFailed, match="target must be one of the properties gap, total"):
        lawful.train("molecules", **options)
    with pytest.raises(
        TrainingFailed, match=r"0\.xyz has no property 'gab' with a finite number: .*gap.*: did you mean gap"
    ):
        lawful.train("molecules", target="gab", **options)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (None, {"data": "cluster"}, "no such file or folder: 'cluster': did you mean clusters"),
        ("", {}, "has no molecules"),
        (
            xyz(metal_clusters(5)) + "1\nenergy=nan\nCu 0 0 0\n",
            {},
            "5 has no property 'energy' with a finite number: it has none",
        ),
        (xyz(metal_clusters(5), energy=False), {}, "has no property in its comment lines, such as energy=-1.5"),
        ("1\nenergy=2\nH 0 0 0\n" * 9, {}, "energy is the same for all 6 training molecules"),
        (xyz(metal_clusters(2)), {}, "2 examples are too few for a split"),
        (xyz(metal_clusters(9)), {"validation_fraction": 0.0, "patience": 2}, "patience needs"),
    ],
)
def test_bad_data_raise(text, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "own.xyz").write_text(text)
    with pytest.raises((TrainingFailed, ValueError), match=message):
        lawful.train("molecules", threads=1, **{"data": "own.xyz", **options})


@pytest.mark.parametrize("elements", [None, [], ["Cu", "Cu"], [3]])
def test_a_damaged_configuration_raises(elements):
    with pytest.raises(ValueError, match=r"model\.elements"):
        MoleculesRecipe().build_model({"elements": elements})
