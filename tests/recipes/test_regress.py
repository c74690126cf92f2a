import numpy as np
import pytest
import torch

from lawful.recipes import KNNSpec, LinearSpec, MLPRegressorSpec, PolynomialSpec, RegressRecipe, load
from lawful.training import TrainingFailed, train

MODELS = {spec.name: spec for spec in (LinearSpec(), PolynomialSpec(), KNNSpec())}
pytestmark = pytest.mark.usefixtures("no_figures")


@pytest.fixture
def two_targets(tmp_path):
    """Two targets of very different scales, affine in the inputs."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(80, 3)) * (1, 100, 0.01) + (5, 0, 1)
    y = x @ np.array([[2.0, 100.0], [0.1, -5.0], [30.0, 0.0]]) + (1, 1000)
    np.savez(tmp_path / "two.npz", x=x, y=y)
    return tmp_path / "two.npz"


def test_linear_regression_of_a_linear_target(closed_form, two_targets, tmp_path):
    run = train(RegressRecipe(model=LinearSpec(), **closed_form(data=two_targets)), output_dir=tmp_path)
    assert run.results["steps"] == 0
    assert run.results["test"]["R²"]["value"] > 0.999999
    x = torch.tensor([[5.0, 0.0, 1.0], [0.0, 100.0, 0.0]])
    torch.testing.assert_close(load(run)(x), torch.tensor([[41.0, 1500.0], [11.0, 500.0]]), rtol=1e-3, atol=0.1)


def test_several_targets_are_not_inputs(options, two_targets, tmp_path):
    run = train(
        RegressRecipe(model=MLPRegressorSpec(hidden_dims=(8,)), **options(data=two_targets, patience=0)),
        output_dir=tmp_path,
    )
    assert run.config["model"]["example_spec"] == {"shape": [3], "out_dim": 2, "num_examples": 58}


@pytest.mark.parametrize("model", ["linear", "polynomial", "knn"])
def test_closed_form_models_match_scikit_learn(closed_form, tmp_path, model):
    from sklearn.linear_model import LinearRegression
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    recipe = RegressRecipe(model=MODELS[model], **closed_form(data="diabetes"))
    parts = recipe.load_splits("regress")
    peers = {
        "linear": LinearRegression(),
        "polynomial": make_pipeline(StandardScaler(), PolynomialFeatures(2), LinearRegression()),
        "knn": make_pipeline(StandardScaler(), KNeighborsRegressor(5)),
    }
    peer = peers[model].fit(parts.train.inputs.double(), parts.train.targets.double())
    expected = torch.as_tensor(peer.predict(parts.test.inputs.double())).float()
    with torch.no_grad():
        found = load(train(recipe, output_dir=tmp_path))(parts.test.inputs)
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=0.5)


def test_closed_form_models_need_no_validation_data(closed_form):
    fields = closed_form(data="diabetes", validation_fraction=0.0)
    assert RegressRecipe(model=LinearSpec(), **fields).setup().patience is None
    with pytest.raises(ValueError, match="patience needs validation_fraction"):
        RegressRecipe(**fields, patience=5).setup()


def test_ridge_shrinks_the_weights(closed_form, tmp_path):
    lengths = []
    for ridge in (0.0, 100.0):
        weights = train(
            RegressRecipe(model=LinearSpec(ridge=ridge), **closed_form(data="diabetes")), output_dir=tmp_path
        ).weights()
        lengths.append(next(w for name, w in weights.items() if name.endswith("weight")).norm())
    assert lengths[1] < 0.9 * lengths[0]


@pytest.mark.parametrize("loss", ["mse", "mae", "huber"])
def test_mlp_learns_with_each_loss(options, tmp_path, loss):
    quick = options(data="sine", epochs=15, learning_rate=0.03)
    model = MLPRegressorSpec(hidden_dims=(32,), loss=loss)
    run = train(RegressRecipe(model=model, **quick), output_dir=tmp_path)
    losses = [line["validation/loss"] for line in run.metrics if "validation/loss" in line]
    assert losses[-1] < 0.8 * losses[0]
    baseline = run.results["baseline root mean squared error"]["mean"]["value"]
    assert run.results["test"]["root mean squared error"]["value"] < 0.9 * baseline


def test_errors_are_in_the_units_of_the_targets(closed_form, two_targets, tmp_path):
    recipe = RegressRecipe(model=KNNSpec(), **closed_form(data=two_targets))
    run = train(recipe, output_dir=tmp_path)
    test = recipe.load_splits("regress").test
    with torch.no_grad():
        expected = (load(run)(test.inputs) - test.targets).square().mean().sqrt()
    assert run.results["test"]["root mean squared error"]["value"] == pytest.approx(float(expected), rel=1e-4)


def test_figures_and_warnings(closed_form, table, tmp_path, monkeypatch):
    monkeypatch.undo()
    data = table(change=lambda rows: rows + rows)
    run = train(RegressRecipe(model=LinearSpec(), **closed_form(data=data, target="size")), output_dir=tmp_path)
    assert [path.name for path in run.figures.iterdir()] == ["predicted and true.png"]
    assert any("does not measure generalization" in note for note in run.results["warnings"])


@pytest.mark.parametrize(
    ("fields", "given", "sentence"),
    [
        ({}, {"data": "iris"}, "iris"),
        ({"model": PolynomialSpec(degree=100)}, {"data": "diabetes"}, "more than 100000"),
    ],
)
def test_unsuitable_data_are_an_error(closed_form, tmp_path, fields, given, sentence):
    with pytest.raises(TrainingFailed, match=sentence):
        train(RegressRecipe(**fields, **closed_form(**given)), output_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []
