import numpy as np
import pytest
import torch

from lawful.recipes import AutoSpec, ClassifyRecipe, CNNSpec, KNNSpec, LogisticSpec, MLPSpec, ThresholdedSpec
from lawful.training import TrainingFailed, train

SMALL_CNN = CNNSpec(channels=8, num_layers=1, dropout=0.0)
AUGMENTATION = {"random_shift": 1, "random_flip": True, "cutout": 2, "noise_std": 0.1}
MODELS = (AutoSpec(), MLPSpec(), LogisticSpec(), ThresholdedSpec(), KNNSpec())


def pictures(folder, *, channels, count=12, size=(6, 5)):
    """Writes a folder of dark images and one of light images."""
    from PIL import Image

    draw = np.random.default_rng(0)
    for level, name in enumerate(("dark", "light")):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = draw.integers(0, 100, (*size, channels)) + 120 * level
            pixels = pixels[..., 0] if channels == 1 else pixels
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{i}.png")
    return folder


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_each_model_learns_a_table(options, closed_form, table, tmp_path, no_figures, model):
    """Thresholded regression masks the middle class."""
    fields = closed_form(data=table()) if model.closed_form else options(data=table(), epochs=20, learning_rate=0.05)
    run = train(ClassifyRecipe(model=model, **fields), output_dir=tmp_path)
    assert run.results["test"]["accuracy"]["value"] >= (0.6 if model.name == "thresholded" else 0.8)
    assert run.config["model"]["example_spec"] == {"shape": [5], "out_dim": 3, "num_examples": 43}


def test_every_table_format_gives_the_same_model(options, table, tmp_path, no_figures):
    import pyarrow as pa
    import pyarrow.parquet

    kinds = [table("own.csv"), table("own.tsv", delimiter="\t"), tmp_path / "own.parquet"]
    lines = [line.split(",") for line in kinds[0].read_text().splitlines()]
    columns = dict(zip(lines[0], zip(*lines[1:], strict=True), strict=True))
    numeric = {name: [*map(float, columns[name])] for name in ("size", "weight")}
    pa.parquet.write_table(pa.table(columns | numeric), kinds[2])
    runs = [
        train(ClassifyRecipe(model=MLPSpec(hidden_dims=(4,)), **options(data=path)), output_dir=tmp_path)
        for path in kinds
    ]
    for other in runs[1:]:
        assert other.config["data"] == runs[0].config["data"]
        for name, weight in runs[0].weights().items():
            torch.testing.assert_close(other.weights()[name], weight, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("shape", "model"),
    [((7,), LogisticSpec()), ((1, 9), SMALL_CNN), ((2, 5, 6), SMALL_CNN), ((2, 5, 6), MLPSpec())],
)
def test_arrays_of_two_classes(options, tmp_path, no_figures, shape, model):
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, 40)
    inputs = draw.normal(size=(40, *shape)) + 3 * labels.reshape(-1, *[1] * len(shape))
    np.savez(tmp_path / "arrays.npz", x=inputs, y=labels)
    quick = options(data=tmp_path / "arrays.npz", epochs=8, learning_rate=0.03)
    run = train(ClassifyRecipe(model=model, label_smoothing=0.0, **quick), output_dir=tmp_path)
    assert run.results["test"]["accuracy"]["value"] == 1
    assert run.config["model"]["example_spec"]["shape"] == list(shape)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_folder_of_images(options, tmp_path, no_figures, channels):
    folder = pictures(tmp_path / "images", channels=channels)
    quick = options(data=folder, resize=(4, 8), epochs=15, batch_size=8, learning_rate=0.03, **AUGMENTATION)
    run = train(ClassifyRecipe(model=SMALL_CNN, label_smoothing=0.0, **quick), output_dir=tmp_path)
    assert run.results["test"]["accuracy"]["value"] == 1
    assert run.config["model"]["example_spec"]["shape"] == [channels, 4, 8]


def test_series_have_one_dimensional_kernels(options, tmp_path, no_figures):
    quick = options(data="mnist1d", epochs=1, batch_size=512)
    run = train(ClassifyRecipe(model=CNNSpec(channels=4, num_layers=1), **quick), output_dir=tmp_path)
    assert any(weight.shape[2:] == (5,) for weight in run.weights().values())


def test_no_evaluation_without_validation_data(options, tmp_path, no_figures):
    run = train(ClassifyRecipe(**options(validation_fraction=0.0)), output_dir=tmp_path)
    assert "validation" not in run.results
    assert run.results["examples"] == {"train": 120, "validation": 0, "test": 30}
    assert not any("validation/loss" in line for line in run.metrics)


def test_label_smoothing_and_augmentation_change_training_only(options):
    plain, smooth, moved = (
        ClassifyRecipe(model=MLPSpec(hidden_dims=(4,), dropout=0.0), **extra, **options(data="digits")).setup()
        for extra in ({}, {"label_smoothing": 0.3}, {"random_shift": 2})
    )
    batch = plain.batches.batch(0)
    smooth.model.load_state_dict(plain.model.state_dict())
    scores = plain.model(batch[0])
    expected = torch.nn.functional.cross_entropy(scores, batch[1], label_smoothing=0.3)
    torch.testing.assert_close(smooth.optimizer_steps[0].loss_fn(smooth.model, batch)["objective"], expected)
    assert plain.evaluate(plain.model) == smooth.evaluate(smooth.model)
    assert plain.augment is None
    x, y = moved.augment(batch)
    assert torch.equal(y, batch[1])
    assert not torch.equal(x, batch[0])


@pytest.mark.parametrize(
    ("fields", "data", "sentence"),
    [
        (
            {"model": CNNSpec()},
            "iris",
            r"model cnn needs images or series, got examples of shape \(4,\): use model mlp",
        ),
        ({"random_shift": 1}, "iris", r"cutout need images or series, got examples of shape \(4,\)"),
        ({"model": MLPSpec(hidden_dims=(10**6, 10**6))}, "iris", "at most 2,000,000,000 are supported"),
        ({}, "diabetes", "diabetes"),
        ({}, "nothing.csv", "nothing.csv"),
    ],
)
def test_unsuitable_data_are_an_error(options, tmp_path, fields, data, sentence):
    with pytest.raises(TrainingFailed, match=sentence):
        train(ClassifyRecipe(**fields, **options(data=data)), output_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MLPSpec(dropout=1.0), "dropout must be .* got 1.0"),
        (lambda: ClassifyRecipe(model="mpl"), "model"),
        (lambda: MLPSpec(hidden_dims=(0,)), r"hidden_dims\[0\]"),
        (lambda: MLPSpec(hidden_dims=16), "hidden_dims must be .* got 16"),
        (lambda: KNNSpec(p=0.5), "p must be .* got 0.5"),
    ],
)
def test_invalid_options_are_an_error(build, message):
    with pytest.raises(ValueError, match=message):
        build()
