import csv

import numpy as np
import pytest
import torch

from lawful.cli import main
from lawful.data import simulate_charged_particles
from lawful.models import EGNNDynamics, LinearDynamics, ParticleModel
from lawful.recipes import NBodyRecipe, load, predictions, recipe_of
from lawful.recipes import nbody as recipe_module
from lawful.training import train

QUICK = {"num_trajectories": 30, "input_frame": 0, "horizon": 2, "steps": 6, "batch_size": 10, "threads": 1}
SMALL = {"dim": 8, "num_layers": 1}


def build(**changes):
    options = {**QUICK, "law_cases": 0, **changes}
    return NBodyRecipe(**options)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    model = recipe_module.EGNNDynamicsSpec(**SMALL)
    return train(build(model=model, law_cases=3), output_dir=tmp_path_factory.mktemp("runs"))


@pytest.fixture
def write(tmp_path):
    """Writes trajectories of particles with constant velocities."""

    def write(name="own.npz", b=8, frames=6, n=3, d=2, **changes):
        draw = np.random.default_rng(0)
        start, v = draw.normal(size=(b, 1, n, d)), draw.normal(size=(b, 1, n, d))
        times = np.arange(frames)[None, :, None, None]
        arrays = {"positions": start + 0.25 * times * v, "velocities": np.broadcast_to(v, (b, frames, n, d)), **changes}
        np.savez(tmp_path / name, **{key: value for key, value in arrays.items() if value is not None})
        return str(tmp_path / name)

    return write


def test_results_are_those_of_the_simulation(run):
    results, (test, model) = run.results, (recipe_of(run)._load()[0].test, load(run))
    whole = simulate_charged_particles(30, steps=301, seed=0)
    assert set(map(tuple, test.positions[:, 0].tolist())) <= set(map(tuple, whole.positions[:, 0, 0].tolist()))
    moved = test.positions + 0.2 * test.velocities
    assert results["baselines"]["constant velocity"] == pytest.approx(float((moved - test.targets).square().mean()))
    with torch.no_grad():
        error = (model(test.positions, test.velocities, test.charges) - test.targets).square().mean()
    assert results["test"]["mean squared error"]["value"] == pytest.approx(float(error), rel=1e-4)
    assert results["examples"] == {"train": 22, "validation": 2, "test": 6}
    assert results["time between frames"] == 0.1


def test_the_report_says_who_won_and_how_equivariant_the_model_is(run):
    summary, log = run.results["summary"], run.log.read_text()
    assert "in test mean squared error of the positions: " in summary
    assert "Rotating the input instead of the prediction changes it by " in summary
    errors = run.results["equivariance error, relative to the displacement"]
    assert list(errors) == ["rotations and reflections", "translations", "permutations"]
    assert max(errors.values()) < 1e-3
    for law in ("permutation_equivariance(axis=1)", "Orthogonal(3)", "Translation(3)"):
        assert any(law in line and "held" in line for line in log.splitlines()), law
    assert sorted(path.stem for path in run.figures.iterdir()) == [
        "predicted and true positions",
        "true and predicted paths",
    ]


def test_training_beats_the_untrained_model(tmp_path):
    model = recipe_module.EGNNDynamicsSpec(**SMALL)
    lines = train(build(model=model, steps=60, num_trajectories=60), output_dir=tmp_path).metrics
    losses = [line["validation/loss"] for line in lines if "validation/loss" in line]
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=pytest.mark.long) for name in ("gram", "radial-field")), "gnn"]
)
def test_other_models(name, tmp_path):
    run = train(build(model=name, space_dim=2, num_particles=3, steps=2), output_dir=tmp_path)
    errors = run.results["equivariance error, relative to the displacement"]
    assert (errors["rotations and reflections"] > 1e-2) == (name == "gnn")
    assert errors["permutations"] < 1e-3
    x = torch.randn(4, 3, 2)
    assert load(run)(x, x, x[..., 0]).shape == x.shape


def test_a_linear_model_is_exact_for_constant_velocities(write, tmp_path):
    recipe = NBodyRecipe(model="linear", data=write(), horizon=3, threads=1, law_cases=3)
    run = train(recipe, output_dir=tmp_path)
    assert run.results["test"]["mean squared error"]["value"] < 1e-10
    assert run.results["time between frames"] == pytest.approx(0.25)
    assert run.results["baselines"]["constant velocity"] < 1e-10
    assert "linear regression" not in run.results["baselines"]
    assert run.results["examples"] == {"train": 15, "validation": 3, "test": 6}


def test_one_trajectory_is_split_by_time(write):
    positions = np.cumsum(np.ones((40, 2, 3)), 0)
    path = write(positions=positions, velocities=np.ones((40, 2, 3)))
    data, (note,), _ = NBodyRecipe(data=path, horizon=2)._load()
    assert "parts of the time" in note
    assert float(data.train.targets.max()) < float(data.validation.positions.min())
    assert float(data.validation.targets.max()) < float(data.test.positions.min())
    assert (len(data.train), len(data.validation), len(data.test)) == (27, 1, 6)


def test_masses_of_different_sizes_are_features_of_both_particles(write):
    masses = np.arange(1.0, 4.0)
    assert NBodyRecipe(data=write(charges=masses), horizon=1)._load()[0].edge_dim == 3
    assert NBodyRecipe(data=write(charges=np.sign(masses - 1.5)), horizon=1)._load()[0].edge_dim == 1
    assert NBodyRecipe(data=write(), horizon=1)._load()[0].edge_dim == 0


def test_velocities_in_another_order_and_distant_positions_are_reported(write):
    draw = np.random.default_rng(1)
    shuffled = write(velocities=draw.normal(size=(8, 6, 3, 2)))
    assert "check their order and unit" in NBodyRecipe(data=shuffled, horizon=1)._load()[2][0]
    far = write(positions=1e7 + draw.normal(size=(8, 6, 3, 2)), velocities=None)
    with pytest.raises(ValueError, match="no array velocities"):
        NBodyRecipe(data=far, horizon=1)._load()
    far = write(positions=1e7 + draw.normal(size=(8, 6, 3, 2)))
    assert "subtract their mean" in NBodyRecipe(data=far, horizon=1)._load()[2][-1]


def test_units_do_not_matter():
    """Scaled positions and velocities give scaled predictions."""
    torch.manual_seed(0)
    x, v, target = torch.randn(3, 50, 4, 3)
    network, q = EGNNDynamics(dim=8, num_layers=1, edge_dim=1), torch.ones(50, 4)
    one = ParticleModel(network, edge_dim=1).fit_normalizer(x, v, target)
    other = ParticleModel(network, edge_dim=1).fit_normalizer(100 * x + 7, 20 * v, 100 * target + 7)
    torch.testing.assert_close(other(100 * x + 7, 20 * v, q), 100 * one(x, v, q) + 7, rtol=1e-3, atol=1e-3)


def test_linear_model_equals_least_squares():
    x, v, noise = torch.randn(3, 40, 5, 2, dtype=torch.float64)
    target = x + 0.7 * v + 0.2 * v.mean(1, keepdim=True) - 0.1 * (x - x.mean(1, keepdim=True)) + 0.1 * noise
    columns = [v, v.mean(1, keepdim=True).expand_as(v), x - x.mean(1, keepdim=True)]
    expected = np.linalg.lstsq(np.stack([c.flatten() for c in columns], 1), (target - x).flatten(), rcond=None)[0]
    np.testing.assert_allclose(LinearDynamics().fit(x, v, target).weight, expected, rtol=1e-5)


def test_predictions_of_new_trajectories(run, tmp_path, capsys):
    data = simulate_charged_particles(3, steps=501, seed=5)
    arrays = {name: getattr(data, name).numpy() for name in ("positions", "velocities", "charges")}
    np.savez(tmp_path / "new.npz", **arrays)
    table = predictions(run, tmp_path / "new.npz")
    assert table.columns == ("trajectory", "frame", "particle", "x1", "x2", "x3")
    assert len(table.rows) == 3 * 5 * 5
    with torch.no_grad():
        expected = load(run)(data.positions[1, 2], data.velocities[1, 2], data.charges[1])
    np.testing.assert_allclose(table.positions[1, 2], expected, rtol=1e-4, atol=1e-5)
    assert table.summary.startswith("15 states, 2 frames ahead; mean squared error ")
    out = tmp_path / "out.npz"
    assert main(["predict", str(run.path), str(tmp_path / "new.npz"), "--output", str(out)]) == 0
    np.testing.assert_array_equal(np.load(out)["positions"], table.positions)
    out = tmp_path / "out.csv"
    assert main(["predict", str(run.path), str(tmp_path / "new.npz"), "--output", str(out)]) == 0
    with out.open() as file:
        rows = list(csv.reader(file))
    assert rows[1:] == [list(row) for row in table.rows]
    assert "15 states" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"velocities": None}, "has no array velocities, its arrays are positions"),
        ({"positions": None, "velocities": None, "x": np.zeros(3)}, "no array positions and velocities, its arrays"),
        ({"positions": np.full((8, 6, 3, 2), np.nan)}, r"288 NaN or infinite values, the first at \[0, 0, 0, 0\]"),
        ({"positions": np.zeros((8, 6))}, r"must have shape \(trajectories, frames, particles, dimensions\), got"),
        (
            {"velocities": np.zeros((8, 6, 3, 3))},
            r"the shape of positions, \(8, 6, 3, 2\), got \(8, 6, 3, 3\)",
        ),
        ({"charges": np.zeros(4)}, r"must have shape \(8, 3\) or \(3,\), got \(4,\)"),
        ({"charges": np.array(["a", "b", "c"])}, "must be numbers, got dtype <U1"),
    ],
)
def test_bad_files(changes, message, write):
    with pytest.raises(ValueError, match=message):
        NBodyRecipe(data=write(**changes), horizon=1)._load()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 6}, "own.npz has 6 frames: horizon must be at most 5, got 6"),
        ({"horizon": 3, "input_frame": 4}, "horizon must be at most 1 after input_frame 4, got 3"),
        ({"num_particles": 4}, "num_particles needs data=charged-particles"),
        ({"model": "linear", "horizon": 1, "learning_rate": 0.1}, "model linear is fitted by least squares"),
    ],
)
def test_bad_options(options, message, write):
    with pytest.raises(ValueError, match=message):
        NBodyRecipe(data=write(), **options)._load()


def test_other_bad_files(write, tmp_path, run):
    with pytest.raises(ValueError, match="split by time into 2, 1, 1 frames"):
        NBodyRecipe(data=write(b=2, frames=4), horizon=1)._load()
    with pytest.raises(ValueError, match="input_frame needs at least 5 trajectories, got 2"):
        NBodyRecipe(data=write(b=2, frames=30), horizon=1, input_frame=0)._load()
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"arrays positions and velocities, got table.csv"):
        NBodyRecipe(data=str(tmp_path / "table.csv"))._load()
    with pytest.raises(FileNotFoundError, match="built-in simulation: charged-particles"):
        NBodyRecipe(data="charged-particle")._load()
    with pytest.raises(ValueError, match=r"predicts in 3 dimensions, own.npz has 2"):
        predictions(run, write())
    with pytest.raises(ValueError, match="has no array charges"):
        predictions(run, write(d=3))
