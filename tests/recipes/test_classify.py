import numpy as np
import pytest
import torch

from lawful.recipes import ClassifyRecipe
from lawful.recipes.classify import Augmentation
from lawful.training import TrainingFailed, train

SMALL = {"width": 8, "depth": 1, "dropout": 0.0, "smoothing": 0.0}
VARIED = Augmentation(shift=1, flip=True, cutout=2, noise=0.1)
MODELS = ("mlp", "logistic", "thresholded", "nearest")


def pictures(folder, *, channels, count=12, size=(6, 5)):
    """A folder of dark images and one of light ones."""
    from PIL import Image

    draw = np.random.default_rng(0)
    for level, name in enumerate(("dark", "light")):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = draw.integers(0, 100, (*size, channels)) + 120 * level
            pixels = pixels[..., 0] if channels == 1 else pixels
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{i}.png")
    return folder


@pytest.mark.parametrize("model", MODELS)
def test_each_model_learns_a_table_of_ones_own(options, table, tmp_path, undrawn, model):
    """The rates are those of a short training; thresholded regression masks the class in the middle."""
    learning = options(data=table(), epochs=20, learning_rate=0.05)
    run = train(ClassifyRecipe(model=model, **learning), folder=tmp_path)
    assert run.results["test"]["accuracy"]["value"] >= (0.6 if model == "thresholded" else 0.8)
    assert run.config["model"]["sizes"] == {"shape": [5], "outputs": 3, "examples": 43}


def test_every_kind_of_table_gives_the_same_model(options, table, tmp_path, undrawn):
    import pyarrow as pa
    import pyarrow.parquet

    kinds = [table("own.csv"), table("own.tsv", delimiter="\t"), tmp_path / "own.parquet"]
    lines = [line.split(",") for line in kinds[0].read_text().splitlines()]
    columns = dict(zip(lines[0], zip(*lines[1:], strict=True), strict=True))
    numeric = {name: [*map(float, columns[name])] for name in ("size", "weight")}
    pa.parquet.write_table(pa.table(columns | numeric), kinds[2])
    runs = [train(ClassifyRecipe(hidden=(4,), **options(data=path)), folder=tmp_path) for path in kinds]
    for other in runs[1:]:
        assert other.config["data"] == runs[0].config["data"]
        for name, weight in runs[0].weights().items():
            torch.testing.assert_close(other.weights()[name], weight, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("shape", "model"), [((7,), "logistic"), ((1, 9), "cnn"), ((2, 5, 6), "cnn"), ((2, 5, 6), "mlp")]
)
def test_arrays_of_two_classes(options, tmp_path, undrawn, shape, model):
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, 40)
    inputs = draw.normal(size=(40, *shape)) + 3 * labels.reshape(-1, *[1] * len(shape))
    np.savez(tmp_path / "arrays.npz", x=inputs, y=labels)
    learning = options(data=tmp_path / "arrays.npz", epochs=8, learning_rate=0.03)
    small = SMALL if model == "cnn" else {"smoothing": 0.0}
    run = train(ClassifyRecipe(model=model, **small, **learning), folder=tmp_path)
    assert run.results["test"]["accuracy"]["value"] == 1
    assert run.config["model"]["sizes"]["shape"] == list(shape)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_folder_of_images(options, tmp_path, undrawn, channels):
    folder = pictures(tmp_path / "images", channels=channels)
    learning = options(data=folder, given={"resize": (4, 8)}, epochs=15, batch=8, learning_rate=0.03)
    run = train(
        ClassifyRecipe(model="cnn", **SMALL, augmentation=VARIED, **learning),
        folder=tmp_path,
    )
    assert run.results["test"]["accuracy"]["value"] == 1
    assert run.config["model"]["sizes"]["shape"] == [channels, 4, 8]


def test_series_have_a_network_of_their_own(options, tmp_path, undrawn):
    run = train(
        ClassifyRecipe(model="cnn", width=4, depth=1, **options(data="mnist1d", epochs=1, batch=512)), folder=tmp_path
    )
    assert any(weight.shape[2:] == (5,) for weight in run.weights().values())


def test_without_examples_to_choose_by_nothing_is_evaluated(options, tmp_path, undrawn):
    run = train(ClassifyRecipe(hidden=(4,), **options(given={"validation": 0.0})), folder=tmp_path)
    assert "validation" not in run.results
    assert run.results["examples"] == {"train": 120, "validation": 0, "test": 30}
    assert not any("validation/loss" in line for line in run.metrics())


def test_smoothing_and_shifts_change_the_loss_and_not_the_measure(options):
    plain, smooth, moved = (
        ClassifyRecipe(hidden=(4,), dropout=0.0, **extra, **options(data="digits")).training()
        for extra in ({}, {"smoothing": 0.3}, {"augmentation": Augmentation(shift=2)})
    )
    batch = plain.batches.batch(0)
    smooth.model.load_state_dict(plain.model.state_dict())
    scores = plain.model(batch[0])
    expected = torch.nn.functional.cross_entropy(scores, batch[1], label_smoothing=0.3)
    torch.testing.assert_close(smooth.turns[0].objective(smooth.model, batch)["loss"], expected)
    assert plain.evaluate(plain.model) == smooth.evaluate(smooth.model)
    assert plain.augment is None
    x, y = moved.augment(batch)
    assert torch.equal(y, batch[1])
    assert not torch.equal(x, batch[0])


@pytest.mark.parametrize(
    ("fields", "data", "sentence"),
    [
        ({"model": "cnn"}, "iris", r"a cnn takes images or series: these examples have shape \(4,\); model mlp"),
        (
            {"augmentation": Augmentation(shift=1)},
            "iris",
            r"shift, flip and cutout are for images and series: these examples have shape \(4,\)",
        ),
        ({"hidden": (10**6, 10**6)}, "iris", "at most 2,000,000,000 weights were wanted"),
        ({}, "diabetes", "the target of diabetes is numbers"),
        ({}, "nothing.csv", "there is no file or folder nothing.csv|there are no data"),
    ],
)
def test_what_cannot_be_trained_is_refused(options, tmp_path, fields, data, sentence):
    with pytest.raises(TrainingFailed, match=sentence):
        train(ClassifyRecipe(**fields, **options(data=data)), folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"dropout": 1.0}, "dropout is from 0 to 0.99: got 1.0"),
        ({"model": "mpl"}, "model is one of mlp, cnn,"),
        ({"hidden": (0,)}, r"hidden\[0\] is from 1 to"),
        ({"hidden": 16}, "hidden is a list of a whole number: got 16"),
        ({"order": 0.5}, "order is from 1 to"),
    ],
)
def test_values_out_of_bounds(fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        ClassifyRecipe(**fields)
