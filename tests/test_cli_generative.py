import csv

import numpy as np
import pytest
from PIL import Image

import lawful
from lawful.cli import main
from lawful.recipes import RECIPES, PCARecipe, TextRecipe, inpaint, sample_from_run, score
from lawful.recipes import generate as generation

TRAINER = {"threads": 1, "law_cases": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of images, of a table and of text."""
    place = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lawful.recipes.pca.figures.save", lambda *_: None)
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
        ("pca-001", ["--label", "3"], "label"),
        ("pca-001", ["--label", "x"], "label must be one of 0, 1, 2"),
        ("pca-001", ["--steps", "3"], "need a diffusion model, the run has a PCA"),
        ("pca-001", ["--output", "s.txt"], "expected a file name with .png, .npy or .csv, got '.txt'"),
        ("pca-002", ["--output", "s.png"], "expected a file name with .npy or .csv, got '.png'"),
        ("text-001", ["--n", "3"], "expected a run of a generative recipe"),
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
        ("text-001", "iris", [], "expected a run of a generative recipe"),
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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pca-001", "image.png"], "PCA does not inpaint"),
        (["image.png", "--output", "done.jpg"], "must be a .png file"),
        (["a", "b", "c"], "expected an image, or a run and an image"),
        (["nowhere.png"], "nowhere.png"),
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
