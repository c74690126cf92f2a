import csv
from unittest.mock import MagicMock

import numpy as np
import pytest
from PIL import Image

import lawful
from lawful.cli import main
from lawful.data import Dequantizer, ImageEncoding, load_like
from lawful.models.generative import PCA
from lawful.recipes import RECIPES, DataSpec, PCARecipe, TextRecipe, generative, inpaint, sample_from_run, score
from lawful.recipes import generate as generation
from lawful.training import loggers

TRAINER = {"threads": 1, "law_cases": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of images, of a table and of text."""
    place = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lawful.recipes.pca.figures.save", lambda *_, **__: None)
        lawful.train(PCARecipe(num_components=5, **TRAINER), output_dir=place)
        lawful.train(PCARecipe(num_components=2, data="iris", **TRAINER), output_dir=place)
    (place / "text.txt").write_text("abcabcabc" * 20)
    words = TextRecipe(data=str(place / "text.txt"), context_length=4, steps=1, batch_size=2, **TRAINER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextRecipe, "_plot_attention", lambda *_: None)
        patch.setattr("lawful.recipes.text.generate_text", lambda *_, **__: [])
        lawful.train(words, output_dir=place)
    return place


def run(capsys, *words):
    code = main([str(word) for word in words])
    heard = capsys.readouterr()
    return code, heard.out, heard.err


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_shows_its_options(name, capsys):
    code, out, _ = run(capsys, "train", name, "--help")
    assert code == 0
    assert "--seed" in out


def test_samples_of_images_are_a_grid(folder, tmp_path, capsys):
    code, out, err = run(capsys, "sample", folder / "pca-001", "-n", 5, "--output", tmp_path / "s.png")
    assert (code, out) == (0, "")
    assert "5 samples" in err
    with Image.open(tmp_path / "s.png") as image:
        assert image.mode == "L"
        assert image.width == 19 * (26)
        assert image.height == 19 * 17


def test_image_samples_are_written_to_the_run_by_default(folder, capsys):
    code, _, err = run(capsys, "sample", folder / "pca-001", "--n", 2, "--seed", 7)
    assert code == 0
    assert (folder / "pca-001" / "samples" / "samples, seed 7.png").is_file()
    assert "samples, seed 7.png" in err


def test_samples_of_a_table_are_csv_and_the_same_in_python(folder, tmp_path, capsys):
    code, out, _ = run(capsys, "sample", folder / "pca-002", "--n", 3)
    header, *rows = csv.reader(out.splitlines())
    assert code == 0
    assert header[0] == "sepal length (cm)"
    x = sample_from_run(folder / "pca-002", 3)
    assert np.allclose(np.array(rows, dtype=float), x, rtol=1e-4)
    assert run(capsys, "sample", folder / "pca-002", "--n", 3, "--output", tmp_path / "s.npy")[0] == 0
    assert np.array_equal(np.load(tmp_path / "s.npy"), x)


def test_a_count_that_no_memory_holds_is_refused_before_any_work(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(PCA, "sample", MagicMock(side_effect=AssertionError("work")))
    output = tmp_path / "s.npy"
    code, out, err = run(capsys, "sample", folder / "pca-001", "--n", 100_000_000_000, "--output", output)
    assert (code, out, output.exists()) == (4, "", False)
    assert "n=100000000000, samples of 64 values each, needs 409.6 TB of memory, " in err
    assert "lower n" in err
    code, out, err = run(capsys, "score", folder / "pca-002", "iris", "--num-samples", 100_000_000_000)
    assert (code, out) == (4, "")
    assert "num_samples=100000000000 needs 360.0 TB of memory, " in err


def test_samples_have_the_levels_of_the_data(folder):
    x = sample_from_run(folder / "pca-001", 3) * 16
    assert x.equal(x.round().clamp(0, 16))


def test_samples_do_not_depend_on_their_number(folder, monkeypatch):
    few = sample_from_run(folder / "pca-002", 3, seed=4)
    monkeypatch.setattr(generation, "_BATCH_SIZE", 2)
    assert np.allclose(sample_from_run(folder / "pca-002", 5, seed=4)[:3], few)


@pytest.mark.parametrize(
    ("kind", "words", "message"),
    [
        ("pca-001", ["--n", "0"], "n must be at least 1, got 0"),
        ("pca-001", ["--label", "3"], "the PCA of the run does not sample by label\n"),
        ("pca-001", ["--label", "x"], "label must be one of 0, 1, 2"),
        ("pca-001", ["--steps", "3"], "need a diffusion model, the run has a PCA"),
        ("pca-001", ["--output", "s.txt"], "expected a file name with .png, .npy or .csv, got '.txt'"),
        ("pca-002", ["--output", "s.png"], "expected a file name with .npy or .csv, got '.png'"),
        ("pca-001", ["--no-noise"], "noise=False needs a VAE, the run has a PCA"),
        ("text-001", ["--n", "3"], "text-001 of text: use lawful generate"),
        ("nothing", [], "nothing"),
    ],
)
def test_sample_errors(kind, words, message, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "sample", folder / kind, *words)
    assert (code, out) == (4, "")
    assert message in err


def test_text_is_still_written(folder, capsys):
    code, out, _ = run(capsys, "generate", folder / "text-001", "--prompt", "ab", "--max-new-tokens", "3")
    assert code == 0
    assert set(out.strip()) <= set("abc")


def test_score_prints_nats_bits_and_anomalies(folder, tmp_path, capsys):
    np.save(tmp_path / "new.npy", np.stack([np.zeros((1, 8, 8)), np.full((1, 8, 8), 0.5), np.eye(8)[None]]))
    code, out, err = run(capsys, "score", folder / "pca-001", tmp_path / "new.npy", "--num-samples", 3)
    header, *rows = csv.reader(out.splitlines())
    assert code == 0
    assert header == ["row", "nats", "standard error", "bits per dimension"]
    nats = [float(row[1]) for row in rows]
    assert all(float(row[2]) > 0 for row in rows)
    width = 1 / 16
    assert [float(row[3]) for row in rows] == pytest.approx([-(n / 64 + np.log(width)) / np.log(2) for n in nats], 1e-4)
    assert f"most unusual: {int(np.argmin(nats))} (" in err


def test_sample_and_score_show_their_progress_on_standard_error(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(loggers, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr(generative, "_BATCH_SIZE", 100)
    code, out, err = run(capsys, "score", folder / "pca-002", "iris")
    assert (code, len(out.splitlines())) == (0, 151)
    assert "scoring 150 observations: 2 of 2" in err
    code, out, err = run(capsys, "sample", folder / "pca-002", "-n", 3)
    assert (code, len(out.splitlines())) == (0, 4)
    assert "drawing 3 samples: 1 of 1" in err


def test_scores_of_a_table_equal_the_model(folder, tmp_path, capsys):
    assert run(capsys, "score", folder / "pca-002", "iris", "--output", tmp_path / "s.csv")[0] == 0
    rows = csv.DictReader((tmp_path / "s.csv").read_text().splitlines())
    model, spec = generation.load_generative_model(folder / "pca-002")
    nats = model.log_prob(spec.read("iris").x)
    assert [float(row["nats"]) for row in rows] == pytest.approx(nats.tolist(), 1e-4)
    assert len(score(folder / "pca-002", "iris").anomalies(3)) == 3


@pytest.mark.parametrize(
    ("kind", "data", "words", "message"),
    [
        ("pca-002", "wine", [], "other columns, shapes or classes"),
        ("pca-002", "iris", ["--num-samples", "0"], "num_samples must be at least 1"),
        ("text-001", "iris", [], "expected a run of a generative recipe, got"),
        ("pca-001", "bright.npy", [], "17 levels"),
    ],
)
def test_score_errors(kind, data, words, message, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("bright.npy", np.full((2, 1, 8, 8), 255.0))
    code, out, err = run(capsys, "score", folder / kind, data, *words)
    assert (code, out) == (4, "")
    assert message in err


@pytest.fixture
def stripes(tmp_path):
    """A striped image with a hole, and its mask."""
    whole = np.tile(np.array([0, 80, 160, 240], np.uint8), (24, 6))
    hole = np.zeros((24, 24), np.uint8)
    hole[9:15, 9:15] = 255
    Image.fromarray(np.where(hole > 0, 0, whole)).save(tmp_path / "image.png")
    Image.fromarray(hole).save(tmp_path / "mask.png")
    return whole


def test_an_image_is_completed_by_its_own_patches(stripes, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, "inpaint", "image.png", "--mask", "mask.png", "--output", "done.png")
    assert code == 0
    assert "inpainted: done.png" in err
    with Image.open("done.png") as image:
        assert np.abs(np.asarray(image).astype(int) - stripes).max() <= 2
    assert inpaint(None, "image.png", mask="mask.png").shape == (1, 24, 24)


class Means:
    """Completes by a constant."""

    shape = (1, 8, 8)

    def inpaint(self, x, mask, seed=0):
        return x.where(mask, 0.5)


def test_inpainting_rescales_the_image_to_the_training_range(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    spec = generation.load_generative_model(folder / "pca-001").spec
    monkeypatch.setattr(generation, "load_generative_model", lambda run: generation.LoadedModel(Means(), spec))
    Image.fromarray(np.full((8, 8), 255, np.uint8)).save("image.png")
    hole = np.zeros((8, 8), np.uint8)
    hole[2:4, 2:4] = 255
    Image.fromarray(hole).save("mask.png")
    assert run(capsys, "inpaint", folder / "pca-001", "image.png", "--mask", "mask.png", "--output", "done.png")[0] == 0
    with Image.open("done.png") as image:
        assert set(np.asarray(image)[hole > 0].tolist()) == {128}
        assert set(np.asarray(image)[hole == 0].tolist()) == {255}


def image_model(monkeypatch, *, resized, size=(8, 8)):
    """Replaces the model of a run by one of grayscale images that inpaints and scores."""

    class Model(Means):
        def log_prob(self, x, *, labels=None):
            return -x.flatten(1).sum(1)

    spec = DataSpec(encoding=ImageEncoding(*size, 1, (), resized), dequantizer=Dequantizer(levels=256))
    monkeypatch.setattr(generation, "load_generative_model", lambda run: generation.LoadedModel(Model(), spec))


def save_with_hole(name, mode, *, width=20, height=12):
    """Writes an image with a hole, and its mask."""
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    hole = np.zeros((height, width), np.uint8)
    hole[:5, :5] = 255
    Image.fromarray(np.where(hole[..., None] > 0, 255, pixels)).convert(mode).save(name)
    Image.fromarray(hole).save("mask.png")


@pytest.mark.parametrize("resized", [True, False], ids=["trained with resize", "trained without resize"])
@pytest.mark.parametrize("name", ["gray.png", "photo.jpg", "alpha.png", "palette.gif"])
def test_score_and_inpaint_treat_sizes_alike(name, resized, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    image_model(monkeypatch, resized=resized)
    save_with_hole(name, {"gray.png": "L", "photo.jpg": "RGB", "alpha.png": "RGBA", "palette.gif": "P"}[name])
    scored, out, refusal = run(capsys, "score", "run", name)
    filled, _, err = run(capsys, "inpaint", "run", name, "--mask", "mask.png")
    if not resized:
        assert (scored, filled, refusal) == (4, 4, err)
        assert f"{name} is 20 x 12, expected 8 x 8" in err
        return
    assert scored == filled == 0
    assert inpaint("run", name, mask="mask.png").shape == (1, 8, 8)
    with Image.open("inpainted.png") as image:
        known = np.asarray(image)[4:, 3:] / 255
    x = load_like(name, ImageEncoding(8, 8, 1, (), True)).inputs[0, 0]
    assert np.allclose(known, x[4:, 3:], atol=1 / 500)
    assert f"{name},{-float(x.sum()):.3f}"[:-2] in out


def test_a_run_on_arrays_scores_and_inpaints_images(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    digits = generation.load_generative_model(folder / "pca-001")
    save_with_hole("photo.png", "RGB", width=8, height=8)
    code, out, _ = run(capsys, "score", folder / "pca-001", "photo.png")
    assert (code, out.splitlines()[1].split(",")[0]) == (0, "photo.png")
    monkeypatch.setattr(generation, "load_generative_model", lambda run: generation.LoadedModel(Means(), digits.spec))
    filled = inpaint(folder / "pca-001", "photo.png", mask="mask.png")
    assert filled[0, 5:].equal(digits.spec.read("photo.png").x[0, 0, 5:])
    save_with_hole("photo.png", "RGB")
    with pytest.raises(ValueError, match=r"photo\.png is 20 x 12, expected 8 x 8"):
        inpaint("run", "photo.png", mask="mask.png")


def test_a_resized_hole_covers_every_pixel_that_it_touches(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    image_model(monkeypatch, resized=True)
    hole = np.zeros((24, 24), np.uint8)
    hole[7, 7] = 255
    Image.fromarray(255 - 255 * (hole > 0).astype(np.uint8)).save("photo.png")
    Image.fromarray(hole).save("mask.png")
    filled = inpaint("run", "photo.png", mask="mask.png")
    assert filled[0, 2, 2] == 0.5
    assert set(filled.unique().tolist()) == {0.5, 1.0}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pca-001", "image.png"], "PCA does not inpaint"),
        (["image.png", "--output", "done.jpg"], "must be a .png file"),
        (["a", "b", "c"], "expected an image, or a run and an image"),
        (["nowhere.png"], "there is no file or folder nowhere.png"),
        (["image.png", "--mask", "nowhere.png"], "there is no file or folder nowhere.png"),
        (["small.png"], "must have the size of the image, 5 x 5, got 24 x 24"),
        (["image.png", "--mask", "black.png"], "all black"),
        (["image.png", "--mask", "white.png"], "all white"),
    ],
)
@pytest.mark.usefixtures("stripes")
def test_inpaint_errors(words, message, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, size, grey in (("small", 5, 0), ("black", 24, 0), ("white", 24, 255)):
        Image.fromarray(np.full((size, size), grey, np.uint8)).save(f"{name}.png")
    words = [folder / word if word == "pca-001" else word for word in words]
    code, _, err = run(capsys, "inpaint", *words, *([] if "--mask" in words else ["--mask", "mask.png"]))
    assert code == 4
    assert message in err
