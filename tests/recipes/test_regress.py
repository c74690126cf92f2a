import numpy as np
import pytest
import torch

from lawful.recipes import RegressRecipe, load
from lawful.training import TrainingFailed, train

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def two_targets(tmp_path):
    """Two targets of very different sizes that are affine in the inputs."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(80, 3)) * (1, 100, 0.01) + (5, 0, 1)
    y = x @ np.array([[2.0, 100.0], [0.1, -5.0], [30.0, 0.0]]) + (1, 1000)
    np.savez(tmp_path / "two.npz", x=x, y=y)
    return tmp_path / "two.npz"


def test_a_straight_line_is_found(options, two_targets, tmp_path):
    run = train(RegressRecipe(model="linear", **options(data=two_targets)), folder=tmp_path)
    assert run.results["steps"] == 0
    assert run.results["test"]["R²"]["value"] > 0.999999
    x = torch.tensor([[5.0, 0.0, 1.0], [0.0, 100.0, 0.0]])
    torch.testing.assert_close(load(run)(x), torch.tensor([[41.0, 1500.0], [11.0, 500.0]]), rtol=1e-3, atol=0.1)


def test_several_targets_are_no_inputs(options, two_targets, tmp_path):
    """The first of two targets does not give the second away."""
    run = train(RegressRecipe(hidden=(8,), **options(data=two_targets, patience=0)), folder=tmp_path)
    assert run.config["model"]["sizes"] == {"shape": [3], "outputs": 2, "examples": 58}


@pytest.mark.parametrize("model", ["linear", "polynomial", "nearest"])
def test_models_in_closed_form_against_scikit_learn(options, tmp_path, model):
    from sklearn.linear_model import LinearRegression
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    recipe = RegressRecipe(model=model, **options(data="diabetes"))
    parts = recipe.given.parts("regress")
    peers = {
        "linear": LinearRegression(),
        "polynomial": make_pipeline(StandardScaler(), PolynomialFeatures(2), LinearRegression()),
        "nearest": make_pipeline(StandardScaler(), KNeighborsRegressor(5)),
    }
    peer = peers[model].fit(parts.train.inputs.double(), parts.train.targets.double())
    expected = torch.as_tensor(peer.predict(parts.test.inputs.double())).float()
    with torch.no_grad():
        found = load(train(recipe, folder=tmp_path))(parts.test.inputs)
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=0.5)


def test_a_model_in_closed_form_needs_no_examples_to_choose_by(options):
    fields = options(data="diabetes", given={"validation": 0.0}, patience=5)
    assert RegressRecipe(model="linear", **fields).training().patience is None
    with pytest.raises(ValueError, match="or patience 0"):
        RegressRecipe(**fields).training()


def test_ridge_makes_weights_smaller(options, tmp_path):
    lengths = []
    for ridge in (0.0, 100.0):
        weights = train(
            RegressRecipe(model="linear", ridge=ridge, **options(data="diabetes")), folder=tmp_path
        ).weights()
        lengths.append(next(w for name, w in weights.items() if name.endswith("weight")).norm())
    assert lengths[1] < 0.9 * lengths[0]


@pytest.mark.parametrize("loss", ["squared", "absolute", "huber"])
def test_a_network_learns_by_each_loss(options, tmp_path, loss):
    learning = options(data="sine", epochs=15, learning_rate=0.03)
    run = train(RegressRecipe(hidden=(32,), loss=loss, **learning), folder=tmp_path)
    losses = [line["validation/loss"] for line in run.metrics() if "validation/loss" in line]
    assert losses[-1] < 0.8 * losses[0]
    baseline = run.results["baseline root mean squared error"]["mean"]["value"]
    assert run.results["test"]["root mean squared error"]["value"] < 0.9 * baseline


def test_errors_are_in_the_units_of_the_targets(options, two_targets, tmp_path):
    recipe = RegressRecipe(model="nearest", **options(data=two_targets))
    run = train(recipe, folder=tmp_path)
    test = recipe.given.parts("regress").test
    with torch.no_grad():
        expected = (load(run)(test.inputs) - test.targets).square().mean().sqrt()
    assert run.results["test"]["root mean squared error"]["value"] == pytest.approx(float(expected), rel=1e-4)


def test_figures_and_warnings(options, table, tmp_path, monkeypatch):
    monkeypatch.undo()
    data = table(change=lambda rows: rows + rows)
    run = train(RegressRecipe(model="linear", **options(data=data, given={"target": "size"})), folder=tmp_path)
    assert [path.name for path in run.figures.iterdir()] == ["predicted and true.png"]
    assert any("the same inputs as one of train" in note for note in run.results["warnings"])


@pytest.mark.parametrize(
    ("fields", "given", "sentence"),
    [
        ({}, {"data": "iris"}, "the target of iris is classes"),
        ({"model": "polynomial", "degree": 100}, {"data": "diabetes"}, "at most 100,?000"),
    ],
)
def test_what_cannot_be_trained_is_refused(options, tmp_path, fields, given, sentence):
    with pytest.raises(TrainingFailed, match=sentence):
        train(RegressRecipe(**fields, **options(**given)), folder=tmp_path)
    assert list(tmp_path.iterdir()) == []
