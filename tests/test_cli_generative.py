import csv

import numpy as np
import pytest
from PIL import Image

import lawful
from lawful.cli import main
from lawful.recipes import RECIPES, PCARecipe, TextRecipe, complete, draw, score
from lawful.recipes import generate as ask
from lawful.recipes import generate as asked
from lawful.recipes.data import GenerativeData
from lawful.recipes.optimization import Descent
from lawful.training import TrainerConfig

ENGINE = TrainerConfig(threads=1, laws=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of images, of a table and of text."""
    place = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lawful.recipes.pca.figures.save", lambda *_: None)
        lawful.train(PCARecipe(components=5, engine=ENGINE), folder=place)
        lawful.train(PCARecipe(components=2, given=GenerativeData(data="iris"), engine=ENGINE), folder=place)
    (place / "text.txt").write_text("abcabcabc" * 20)
    words = TextRecipe(data=str(place / "text.txt"), context=4, learning=Descent(steps=1, batch=2), engine=ENGINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextRecipe, "draw", lambda *_: None)
        patch.setattr(TextRecipe, "written", lambda *_: [])
        lawful.train(words, folder=place)
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
    code, out, err = run(capsys, "sample", folder / "pca-001", "--n", 5, "--out", tmp_path / "s.png")
    assert (code, out) == (0, "")
    assert "5 samples" in err
    with Image.open(tmp_path / "s.png") as image:
        assert image.mode == "L"
        assert image.width == 19 * (26)
        assert image.height == 19 * 17


def test_samples_of_images_go_to_the_run_unless_told(folder, capsys):
    code, _, err = run(capsys, "sample", folder / "pca-001", "--n", 2, "--seed", 7)
    assert code == 0
    assert (folder / "pca-001" / "samples" / "samples of seed 7.png").is_file()
    assert "samples of seed 7.png" in err


def test_samples_of_a_table_are_csv_and_the_same_in_python(folder, tmp_path, capsys):
    code, out, _ = run(capsys, "sample", folder / "pca-002", "--n", 3)
    header, *rows = csv.reader(out.splitlines())
    assert code == 0
    assert header[0] == "sepal length (cm)"
    x = draw(folder / "pca-002", 3)
    assert np.allclose(np.array(rows, dtype=float), x, rtol=1e-4)
    assert run(capsys, "sample", folder / "pca-002", "--n", 3, "--out", tmp_path / "s.npy")[0] == 0
    assert np.array_equal(np.load(tmp_path / "s.npy"), x)


def test_samples_have_the_levels_of_the_data(folder):
    x = draw(folder / "pca-001", 3) * 16
    assert x.equal(x.round().clamp(0, 16))


def test_more_samples_begin_with_the_same(folder, monkeypatch):
    few = draw(folder / "pca-002", 3, seed=4)
    monkeypatch.setattr(asked, "AT_ONCE", 2)
    assert np.allclose(draw(folder / "pca-002", 5, seed=4)[:3], few)


@pytest.mark.parametrize(
    ("kind", "words", "message"),
    [
        ("pca-001", ["--prompt", "a"], "prompt is for a run of text"),
        ("pca-001", ["--temperature", "0.5"], "how tokens are drawn is for a run of text"),
        ("pca-001", ["--n", "0"], "n is at least 1: got 0"),
        ("pca-001", ["--label", "3"], "this model knows no labels"),
        ("pca-001", ["--label", "x"], "the labels are 0, 1, 2"),
        ("pca-001", ["--steps", "3"], "are for a model of diffusion: the run has a PCA"),
        ("pca-001", ["--out", "s.txt"], "are written as .png, .npy or .csv: got '.txt'"),
        ("pca-002", ["--out", "s.png"], "are written as .npy or .csv: got '.png'"),
        ("text-001", ["--n", "3"], "n, label, guidance, steps, out are for a run of a generative model"),
        ("nothing", [], "nothing"),
    ],
)
def test_what_a_run_cannot_be_asked_is_refused(kind, words, message, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "sample", folder / kind, *words)
    assert (code, out) == (4, "")
    assert message in err


def test_text_is_still_written(folder, capsys):
    code, out, _ = run(capsys, "sample", folder / "text-001", "--prompt", "ab", "--tokens", "3")
    assert code == 0
    assert set(out.strip()) <= set("abc")


def test_scores_are_nats_and_bits_and_the_strangest_rows_are_named(folder, tmp_path, capsys):
    np.save(tmp_path / "new.npy", np.stack([np.zeros((1, 8, 8)), np.full((1, 8, 8), 0.5), np.eye(8)[None]]))
    code, out, err = run(capsys, "score", folder / "pca-001", tmp_path / "new.npy", "--draws", 3)
    header, *rows = csv.reader(out.splitlines())
    assert code == 0
    assert header == ["row", "nats", "standard error", "bits per dimension"]
    nats = [float(row[1]) for row in rows]
    assert all(float(row[2]) > 0 for row in rows)
    width = 1 / 16
    assert [float(row[3]) for row in rows] == pytest.approx([-(n / 64 + np.log(width)) / np.log(2) for n in nats], 1e-4)
    assert f"most surprising: {int(np.argmin(nats))} (" in err


def test_scores_of_a_table_go_to_a_file_and_are_those_of_the_model(folder, tmp_path, capsys):
    assert run(capsys, "score", folder / "pca-002", "iris", "--out", tmp_path / "s.csv")[0] == 0
    rows = csv.DictReader((tmp_path / "s.csv").read_text().splitlines())
    model, form = ask.opened(folder / "pca-002")
    nats = model.log_prob(form.read("iris").x).value
    assert [float(row["nats"]) for row in rows] == pytest.approx(nats.tolist(), 1e-4)
    assert len(score(folder / "pca-002", "iris").surprising(3)) == 3


@pytest.mark.parametrize(
    ("kind", "data", "words", "message"),
    [
        ("pca-002", "wine", [], "other columns, shapes or classes"),
        ("pca-002", "iris", ["--draws", "0"], "draws are at least 1"),
        ("text-001", "iris", [], "a run of a generative model was wanted"),
        ("pca-001", "bright.npy", [], "17 levels from 0 to 1"),
    ],
)
def test_what_cannot_be_scored_is_refused(kind, data, words, message, folder, tmp_path, monkeypatch, capsys):
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
    code, _, err = run(capsys, "complete", "image.png", "--mask", "mask.png", "--out", "done.png")
    assert code == 0
    assert "completed: done.png" in err
    with Image.open("done.png") as image:
        assert np.abs(np.asarray(image).astype(int) - stripes).max() <= 2
    assert complete(None, "image.png", mask="mask.png").shape == (1, 24, 24)


class Means:
    """Completes by a constant."""

    shape = (1, 8, 8)

    def complete(self, x, mask, seed=0):
        return x.where(mask, 0.5)


def test_a_model_that_completes_gets_the_image_in_its_own_levels(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    form = ask.opened(folder / "pca-001").form
    monkeypatch.setattr(ask, "opened", lambda run: asked.LoadedModel(Means(), form))
    Image.fromarray(np.full((8, 8), 255, np.uint8)).save("image.png")
    hole = np.zeros((8, 8), np.uint8)
    hole[2:4, 2:4] = 255
    Image.fromarray(hole).save("mask.png")
    assert run(capsys, "complete", folder / "pca-001", "image.png", "--mask", "mask.png", "--out", "done.png")[0] == 0
    with Image.open("done.png") as image:
        assert set(np.asarray(image)[hole > 0].tolist()) == {128}
        assert set(np.asarray(image)[hole == 0].tolist()) == {255}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pca-001", "image.png"], "a PCA completes nothing"),
        (["image.png", "--out", "done.jpg"], "is written as .png"),
        (["a", "b", "c"], "takes an image, or a run and an image"),
        (["nowhere.png"], "nowhere.png"),
        (["small.png"], "the mask mask.png is 24 x 24, the image 5 x 5"),
        (["image.png", "--mask", "black.png"], "black all over"),
        (["image.png", "--mask", "white.png"], "white all over"),
    ],
)
@pytest.mark.usefixtures("stripes")
def test_what_cannot_be_completed_is_refused(words, message, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, size, grey in (("small", 5, 0), ("black", 24, 0), ("white", 24, 255)):
        Image.fromarray(np.full((size, size), grey, np.uint8)).save(f"{name}.png")
    words = [folder / word if word == "pca-001" else word for word in words]
    code, _, err = run(capsys, "complete", *words, *([] if "--mask" in words else ["--mask", "mask.png"]))
    assert code == 4
    assert message in err
