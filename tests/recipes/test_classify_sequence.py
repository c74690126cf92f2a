import numpy as np
import pytest
import torch

from lawful.recipes import ClassifyRecipe, ClassifySequenceRecipe, StateSpaceSpec, load, predictions
from lawful.training import TrainingFailed, train

SMALL = StateSpaceSpec(dim=8, state_dim=4, num_layers=1, dropout=0.0)


def waves(count=40, length=12, channels=1):
    """Slow and fast sine waves of random phase: (n, c, t), and their classes."""
    draw = np.random.default_rng(0)
    kinds = np.arange(count) % 2
    phase = draw.uniform(0, 2 * np.pi, (count, channels, 1))
    t = np.arange(length) / length
    return np.sin(2 * np.pi * (1 + 3 * kinds[:, None, None]) * t + phase) + 5, np.array(["slow", "fast"])[kinds]


@pytest.fixture
def series(tmp_path):
    """Writes the waves as a table with one series per row."""

    def write(name="series.csv", change=lambda rows: rows):
        x, y = waves()
        rows = [[*(f"{v:.4f}" for v in row[0]), kind] for row, kind in zip(x, y, strict=True)]
        header = [*(f"t{i}" for i in range(x.shape[-1])), "speed"]
        (tmp_path / name).write_text("\n".join(",".join(row) for row in [header, *change(rows)]) + "\n")
        return tmp_path / name

    return write


def test_a_table_with_one_series_per_row(options, series, tmp_path, no_figures):
    quick = options(data=series(), epochs=25, batch_size=16, learning_rate=0.03, random_shift=1)
    run = train(ClassifySequenceRecipe(model=SMALL, **quick), output_dir=tmp_path)
    assert run.results["test"]["accuracy"]["value"] >= 0.8
    assert run.config["model"]["example_spec"]["shape"] == [12]
    assert load(run).normalizer.mean.shape == (1,)
    assert len(predictions(run, series("new.csv")).rows) == 40


def test_arrays_with_channels_last_are_transposed(options, tmp_path, no_figures):
    x, y = waves(channels=2)
    np.savez(tmp_path / "first.npz", x=x, y=y)
    np.savez(tmp_path / "last.npz", x=x.swapaxes(1, 2), y=y)
    first, last = (
        train(ClassifySequenceRecipe(model=SMALL, **options(data=tmp_path / name)), output_dir=tmp_path)
        for name in ("first.npz", "last.npz")
    )
    for name, weight in first.weights().items():
        torch.testing.assert_close(last.weights()[name], weight, rtol=0, atol=0)
    assert last.config["model"]["example_spec"]["shape"] == [2, 12]
    assert "read as 12 time steps of 2 channels" in last.log.read_text()
    assert (load(last).predict(x) == load(last).predict(x.swapaxes(1, 2))).all()


def test_images_are_sequences_of_pixels(options):
    setup = ClassifySequenceRecipe(model=SMALL, **options(data="digits")).setup()
    x = setup.data.test.inputs[:2]
    expected = setup.model.model.sequence(setup.model.normalizer(x).reshape(2, 64, 1))
    torch.testing.assert_close(setup.model(x), expected)


def test_the_default_is_a_small_state_space_model_of_mnist1d():
    recipe = ClassifySequenceRecipe()
    assert (recipe.data, recipe.model) == ("mnist1d", StateSpaceSpec())


def test_classify_has_the_same_model(options):
    quick = options(data="mnist1d")
    own, other = (kind(model=SMALL, **quick).setup().model for kind in (ClassifyRecipe, ClassifySequenceRecipe))
    assert own.state_dict().keys() == other.state_dict().keys()


def test_rows_of_a_table_are_augmented_as_series(options, series):
    setup = ClassifySequenceRecipe(model=SMALL, random_shift=3, **options(data=series())).setup()
    x, y = setup.batches.batch(0)
    torch.manual_seed(0)
    moved, same = setup.augment((x, y))
    assert moved.shape == x.shape
    assert torch.equal(same, y)
    assert not torch.equal(moved, x)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda rows: [["red" if i % 2 else "blue", *row[1:]] for i, row in enumerate(rows)], "'t0' is a category"),
        (lambda rows: [["", *rows[0][1:]], *rows[1:]], "without missing values: column 't0'"),
    ],
)
def test_columns_that_are_not_numbers_are_an_error(options, series, tmp_path, change, sentence):
    with pytest.raises(TrainingFailed, match=sentence):
        train(ClassifySequenceRecipe(**options(data=series(change=change))), output_dir=tmp_path / "runs")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda x: x[:0], "must be a non-empty numeric array"),
        (lambda x: x[..., :0], "must be a non-empty numeric array"),
        (lambda x: np.where(x == x[3, 1, 4], np.nan, x), r"must be finite in float32: got nan at index \(3, 1, 4\)"),
        (lambda x: np.where(x == x[3, 1, 4], np.inf, x), r"must be finite in float32: got inf at index \(3, 1, 4\)"),
    ],
)
def test_bad_arrays_are_an_error(options, tmp_path, change, sentence):
    x, y = waves(channels=2)
    np.savez(tmp_path / "x.npz", x=change(x), y=y[: len(change(x))])
    with pytest.raises(TrainingFailed, match=sentence):
        train(ClassifySequenceRecipe(**options(data=tmp_path / "x.npz")), output_dir=tmp_path / "runs")


@pytest.mark.parametrize("content", ["", "t0,speed\n", "t0,speed\n1,slow\n"], ids=["empty", "header", "one row"])
def test_tables_without_series_are_an_error(options, tmp_path, content):
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(TrainingFailed, match=r"is empty|has a header but no rows|expected at least 2"):
        train(ClassifySequenceRecipe(**options(data=tmp_path / "x.csv")), output_dir=tmp_path / "runs")


@pytest.mark.parametrize("series", ["constant", "of one sample"])
def test_constant_and_short_series_are_classified(options, tmp_path, no_figures, series):
    x, y = waves()
    x = np.full_like(x, 7.0) if series == "constant" else x[..., :1] + 100 * (y == "fast")[:, None, None]
    np.savez(tmp_path / "x.npz", x=x, y=y)
    recipe = ClassifySequenceRecipe(model=SMALL, **options(data=tmp_path / "x.npz", epochs=20, learning_rate=0.03))
    run = train(recipe, output_dir=tmp_path)
    probabilities = load(run).predict_proba(x)
    assert np.isfinite(probabilities).all()
    if series == "constant":
        np.testing.assert_allclose(probabilities, np.broadcast_to(probabilities[:1], probabilities.shape), rtol=1e-5)
    else:
        assert run.results["test"]["accuracy"]["value"] == 1


def test_series_of_another_length_are_an_error_at_prediction(options, tmp_path, no_figures):
    x, y = waves(channels=2)
    np.savez(tmp_path / "x.npz", x=x, y=y)
    run = train(ClassifySequenceRecipe(model=SMALL, **options(data=tmp_path / "x.npz")), output_dir=tmp_path)
    for wrong in (x[..., :5], x[:, :1], x[:0]):
        with pytest.raises(ValueError, match=r"\(n, 2, 12\), got|non-empty"):
            load(run).predict(wrong)
    with pytest.raises(ValueError, match="finite"):
        load(run).predict(np.where(x == x[0, 0, 0], np.nan, x))
