import csv
import io
import shutil

import numpy as np
import pytest
import torch

from lawful.recipes import (
    AutoRegressorSpec,
    ClassifyRecipe,
    KNNSpec,
    LinearSpec,
    MLPRegressorSpec,
    MLPSpec,
    RegressRecipe,
    load,
)
from lawful.recipes import predict as predict_module
from lawful.recipes.predict import predictions
from lawful.training import Run, train
from tests.recipes.conftest import HEADER, TRAINER, rows

pytestmark = pytest.mark.usefixtures("no_figures")


@pytest.fixture
def run(options, table, tmp_path):
    return train(
        ClassifyRecipe(model=MLPSpec(hidden_dims=(8,)), **options(data=table(), learning_rate=0.05)),
        output_dir=tmp_path / "runs",
    )


def read(found):
    return list(csv.DictReader(io.StringIO(found.csv())))


def test_probabilities_equal_the_model_on_encoded_rows(run, tmp_path):
    """The encoding by hand: numbers unchanged, one-hot colors."""
    (tmp_path / "new.csv").write_text("size,color,weight\n4.1,green,-2\n0,red,0.5\n")
    x = torch.tensor([[4.1, 0, 1, 0, -2.0], [0.0, 0, 0, 1, 0.5]])
    with torch.no_grad():
        expected = load(run)(x).softmax(-1)
    found = read(predictions(run, tmp_path / "new.csv"))
    p = torch.tensor([[float(row[f"p({name})"]) for name in ("cat", "dog", "owl")] for row in found])
    torch.testing.assert_close(p, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(p.sum(-1), torch.ones(2), rtol=0, atol=1e-5)
    assert [row["prediction"] for row in found] == [("cat", "dog", "owl")[i] for i in p.argmax(-1)]
    assert [row["row"] for row in found] == ["0", "1"]


def test_the_order_of_columns_and_other_columns_do_not_matter(run, table, tmp_path):
    whole = predictions(run, table())
    with (tmp_path / "new.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["weight", "remark", "color", "size"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows({**dict(zip(HEADER, row, strict=True)), "remark": "new"} for row in rows())
    assert predictions(run, tmp_path / "new.csv").rows == whole.rows


def test_data_with_targets_have_an_accuracy(run, table):
    found = predictions(run, table())
    right = sum(row["prediction"] == true[3] for row, true in zip(read(found), rows(), strict=True))
    assert found.summary.startswith(f"accuracy {right / 60:.4g} [")
    assert found.summary.endswith("on 60 rows")
    no_targets = predictions(run, table("no.csv", change=lambda all: [(*row[:3], "") for row in all]))
    assert no_targets.summary == ""


@pytest.mark.parametrize("average", [0.0, 0.9])
@pytest.mark.parametrize("patience", [0, 3])
def test_a_run_that_was_interrupted_predicts_with_its_newest_weights(options, tmp_path, stop_at, average, patience):
    recipe = ClassifyRecipe(model=MLPSpec(hidden_dims=(4,)), **options(ema_decay=average, patience=patience, epochs=5))
    run = train(recipe, output_dir=tmp_path, loggers=[stop_at(5)])
    assert run.status == "at step 5"
    assert predictions(run, "iris").summary.startswith("accuracy ")


def test_an_ensemble_that_was_interrupted_says_so(options, tmp_path, stop_at):
    run = train(
        ClassifyRecipe(model=MLPSpec(hidden_dims=(4,)), **options(num_members=2)),
        output_dir=tmp_path,
        loggers=[stop_at(5)],
    )
    with pytest.raises(ValueError, match=r"an ensemble with 0 members trained.* lawful train --resume"):
        predictions(run, "iris")


def test_arrays_with_targets_have_the_same_figures(options, tmp_path):
    x, y = np.random.default_rng(0).normal(size=(40, 1, 3, 3)), np.arange(40) % 2
    path = tmp_path / "a.npz"
    np.savez(path, x=x, y=np.array([7, 9])[y])
    run = train(ClassifyRecipe(model=MLPSpec(hidden_dims=(4,)), **options(data=path)), output_dir=tmp_path)
    found = predictions(run, path)
    right = sum(int(row["prediction"]) == 7 + 2 * true for row, true in zip(read(found), y, strict=True))
    assert found.summary.startswith(f"accuracy {right / 40:.4g} [")
    np.savez(path, x=x)
    assert predictions(run, path).summary == ""
    for wrong, sentence in (
        (np.full(40, 8), "unknown category '8'"),
        (y[:3], "expected 40 targets in a.npz"),
        (x, "expected 40 targets"),
    ):
        np.savez(path, x=x, y=wrong)
        with pytest.raises(ValueError, match=sentence):
            predictions(run, path)


def test_arrays_with_several_numbers_have_an_error(closed_form, tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 3))
    path = tmp_path / "a.npz"
    np.savez(path, x=x, y=x[:, :2])
    run = train(RegressRecipe(model=LinearSpec(), **closed_form(data=path)), output_dir=tmp_path)
    assert predictions(run, path).summary.startswith("root mean squared error ")
    np.savez(path, x=x, y=x)
    with pytest.raises(ValueError, match="the model predicts 2 numbers per row but the data have 3 targets"):
        predictions(run, path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("size,weight\n1,2\n", "new.csv has no column 'color'"),
        ("size,colr,weight\n1,red,2\n", "has no column 'color': did you mean colr?"),
        ("size,color,weight\nbig,red,2\n", "column 'size'"),
        ("1,red,2\n3,red,4\n", "has no column 'size'. new.csv has no header"),
        ("size,color,weight,kind\n1,red,2,emu\n", "'emu'"),
        ("", "new.csv is empty"),
    ],
)
def test_new_data_that_do_not_fit_are_refused(run, tmp_path, text, sentence):
    (tmp_path / "new.csv").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        predictions(run, tmp_path / "new.csv")


def test_a_run_that_was_moved_still_predicts(run, table, tmp_path):
    data = table()
    before = predictions(run, data)
    shutil.move(run.path, tmp_path / "elsewhere")
    data.rename(tmp_path / "new name.csv")
    assert predictions(tmp_path / "elsewhere", tmp_path / "new name.csv") == before


def test_dropout_gives_an_uncertainty_that_a_seed_decides(run, table):
    found = [predictions(run, table(), num_samples=n, seed=s) for n, s in ((0, 0), (32, 0), (32, 1))]
    doubts = [[float(row["mutual information"]) for row in read(f)] for f in found]
    assert doubts[0] == doubts[1] != doubts[2]
    assert min(doubts[0]) >= 0
    assert max(doubts[0]) > 0


@pytest.mark.parametrize("rows", [3, 10**6])
def test_the_uncertainty_is_that_of_the_samples(run, table, monkeypatch, rows):
    data = table()
    whole = predictions(run, data, num_samples=400)
    monkeypatch.setattr(predict_module, "_SAMPLED_ROWS", rows)
    parts = predictions(run, data, num_samples=400)
    assert [row[:-1] for row in parts.rows] == [row[:-1] for row in whole.rows]
    doubts = [[float(row["mutual information"]) for row in read(found)] for found in (whole, parts)]
    assert doubts[0] == (doubts[1] if rows > 3 else pytest.approx(doubts[1], rel=0.5, abs=0.01))


def test_without_dropout_there_is_no_uncertainty(options, table, tmp_path):
    run = train(
        ClassifyRecipe(model=MLPSpec(hidden_dims=(4,), dropout=0.0), **options(data=table())), output_dir=tmp_path
    )
    assert "mutual information" not in predictions(run, table()).columns
    with pytest.raises(ValueError, match="num_samples needs a model with dropout, got num_samples=2"):
        predictions(run, table(), num_samples=2)
    with pytest.raises(ValueError, match="seed must be a 64-bit integer, got 18446744073709551616"):
        predictions(run, table(), seed=2**64)


@pytest.mark.parametrize("recipe", [ClassifyRecipe, RegressRecipe])
def test_disagreeing_members_give_uncertainty(options, table, tmp_path, recipe):
    data, given = table(), {} if recipe is ClassifyRecipe else {"target": "size"}
    fields = options(data=data, **given, num_members=2, learning_rate=0.1)
    spec = MLPSpec if recipe is ClassifyRecipe else MLPRegressorSpec
    run = train(recipe(model=spec(hidden_dims=(4,), dropout=0.0), **fields), output_dir=tmp_path)
    found = predictions(run, data)
    name = "mutual information" if recipe is ClassifyRecipe else "epistemic std of size"
    doubts = torch.tensor([float(row[name]) for row in read(found)])
    with torch.no_grad():
        each = torch.stack([load(path)(_inputs(run, data)) for path in sorted((run.path / "members").iterdir())])
    if recipe is RegressRecipe:
        assert "the test RMSE was" in found.notes[-1]
        torch.testing.assert_close(doubts, each.std(0)[:, 0], rtol=1e-3, atol=1e-5)
    assert doubts.max() > 0


def test_networks_of_a_cross_validated_model_give_uncertainty(options, table, tmp_path):
    spec = AutoRegressorSpec(hidden_dims=(4,), dropout=0.0, num_folds=3)
    run = train(RegressRecipe(model=spec, **options(data=table(), target="size", epochs=2)), output_dir=tmp_path)
    found = torch.tensor([float(row["epistemic std of size"]) for row in read(predictions(run, table()))])
    with torch.no_grad():
        expected = load(run).member_outputs(_inputs(run, table())).std(0)[:, 0]
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def _inputs(run, data):
    from lawful.data import encoding_from_json, load_like

    return load_like(data, encoding_from_json(run.config["model"]["encoding"])).inputs


def test_numbers_are_in_the_units_of_the_target(closed_form, table, tmp_path):
    run = train(RegressRecipe(model=LinearSpec(), **closed_form(data=table(), target="size")), output_dir=tmp_path)
    found = predictions(run, table())
    with torch.no_grad():
        expected = load(run)(_inputs(run, table()))[:, 0]
    torch.testing.assert_close(torch.tensor([float(r["size"]) for r in read(found)]), expected, rtol=1e-4, atol=1e-5)
    assert found.summary.startswith("root mean squared error ")


def test_several_targets_have_a_column_each(closed_form, tmp_path):
    draw = np.random.default_rng(0)
    np.savez(tmp_path / "two.npz", x=draw.normal(size=(30, 3)), y=draw.normal(size=(30, 2)))
    run = train(RegressRecipe(model=LinearSpec(), **closed_form(data=tmp_path / "two.npz")), output_dir=tmp_path)
    np.save(tmp_path / "new.npy", draw.normal(size=(4, 3)))
    found = predictions(run, tmp_path / "new.npy")
    assert found.columns == ("row", "target 0", "target 1")
    assert len(found.rows) == 4
    np.save(tmp_path / "wrong.npy", draw.normal(size=(4, 5)))
    with pytest.raises(ValueError, match=r"expected wrong.npy of shape \(n, 3\), got \(4, 5\)"):
        predictions(run, tmp_path / "wrong.npy")


def test_images_are_named_by_their_files(closed_form, tmp_path):
    from tests.recipes.test_classify import pictures

    folder = pictures(tmp_path / "images", channels=1)
    run = train(ClassifyRecipe(model=KNNSpec(), **closed_form(data=folder)), output_dir=tmp_path)
    found = predictions(run, folder)
    assert found.summary.startswith("accuracy ")
    assert read(found)[0]["file"] == str(folder / "dark" / "0.png")
    alone = predictions(run, folder / "light" / "3.png")
    assert [(row["file"], row["prediction"]) for row in read(alone)] == [(str(folder / "light" / "3.png"), "light")]
    files = [folder / "light" / "3.png", str(folder / "dark" / "0.png")]
    assert load(run).predict(files).tolist() == ["light", "dark"]


def test_built_in_data_are_predicted_by_name(closed_form, tmp_path):
    run = train(ClassifyRecipe(model=KNNSpec(num_neighbors=1), **closed_form()), output_dir=tmp_path)
    assert predictions(Run(run.path), "iris").summary.endswith("on 150 rows")
    with pytest.raises(ValueError, match="wine has other columns"):
        predictions(run, "wine")


class Frame:
    """As a data frame: columns, and one column by name."""

    columns = ("weight", "color", "size")

    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, name):
        return [row[name] for row in self.rows]


def test_a_loaded_classifier_predicts_rows(run, table):
    model = load(run)
    expected = read(predictions(run, table()))
    named = [dict(zip(HEADER, row, strict=True)) for row in rows()]
    numbers = [{**row, "size": float(row["size"]), "weight": float(row["weight"])} for row in named]
    plain = [(row["size"], row["color"], row["weight"]) for row in numbers]
    sources = {
        "dicts": numbers,
        "dicts of text": named,
        "columns": {name: [row[name] for row in numbers] for name in HEADER},
        "frame": Frame(numbers),
        "lists": plain,
        "array": np.array(plain, dtype=object),
        "file": table(),
        "name of a file": str(table()),
    }
    for name, source in sources.items():
        assert model.predict(source).tolist() == [row["prediction"] for row in expected], name
    p = model.predict_proba(numbers)
    assert p.shape == (60, 3)
    np.testing.assert_allclose(p[:, 1], [float(row["p(dog)"]) for row in expected], rtol=1e-4, atol=1e-6)
    assert model.classes == ("cat", "dog", "owl")
    with pytest.raises(ValueError, match="rows has no column 'color'"):
        model.predict([{"size": 1, "weight": 2}])


def test_rows_with_missing_and_unknown_values_are_predicted_with_a_warning(run):
    model = load(run)
    with pytest.warns(UserWarning, match="filled 1 missing value of column 'weight'$"):
        missing = model.predict_proba([{"size": 1.5, "color": "red", "weight": None}])
    assert missing.shape == (1, 3)
    with pytest.warns(UserWarning, match="column 'color': 1 value is an unknown category, which counts as other"):
        model.predict({"size": [1.5], "color": ["pink"], "weight": [0.5]})


@pytest.mark.parametrize("spelling", [str, str.upper, str.lower])
def test_booleans(spelling, closed_form, tmp_path):
    """A class False is no text, which would be true; rows of Python have booleans, whatever the file has."""
    yes, no = spelling("True"), spelling("False")
    lines = [f"{i % 5 / 9},{(yes, no)[i % 2]},{(yes, no)[i % 2]}" for i in range(40)]
    (tmp_path / "own.csv").write_text("\n".join(["size,old,kind", *lines]))
    run = train(ClassifyRecipe(model=KNNSpec(), **closed_form(data=tmp_path / "own.csv")), output_dir=tmp_path)
    model = load(run)
    found = model.predict([{"size": 0.1, "old": True}, {"size": 0.1, "old": False}])
    assert found.dtype == bool
    assert found.tolist() == [True, False] == model.predict([[0.1, yes], [0.1, no]]).tolist()
    assert model.classes == tuple(sorted((yes, no)))


def test_missing_rows_are_filled_or_dropped(run, tmp_path):
    (tmp_path / "new.csv").write_text("size,color,weight\n,red,0.5\n0,red,0.5\n")
    filled = predictions(run, tmp_path / "new.csv")
    assert [row[0] for row in filled.rows] == ["0", "1"]
    assert filled.notes[0].startswith("filled 1 missing value of column 'size'; to drop these rows, use --drop-missing")
    dropped = predictions(run, tmp_path / "new.csv", drop_missing=True)
    assert [row[:-1] for row in dropped.rows] == [row[:-1] for row in filled.rows[1:]]
    assert dropped.notes == ("dropped 1 row with missing values",)


def test_a_loaded_regression_model_and_ensemble_predict_rows(table, tmp_path):
    run = train(RegressRecipe(model=LinearSpec(), data=str(table()), target="size", **TRAINER), output_dir=tmp_path)
    found = read(predictions(run, table()))
    model = load(run)
    y = model.predict(table())
    assert y.shape == (60,)
    np.testing.assert_allclose(y, [float(row["size"]) for row in found], rtol=1e-4, atol=1e-5)
    assert model.classes is None
    with pytest.raises(TypeError, match="predict_proba needs a classifier"):
        model.predict_proba(table())
    fields = {"data": str(table()), "target": "color", "num_members": 2, "bagging": True, **TRAINER}
    ensemble = load(train(ClassifyRecipe(model=KNNSpec(), **fields), output_dir=tmp_path))
    assert set(ensemble.predict([[1.0, -0.5, "cat"]])) <= {"red", "blue", "green"}


def test_arrays_and_numeric_classes(tmp_path):
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(40, 1, 3, 3)), np.arange(40) % 2
    np.savez(tmp_path / "a.npz", x=x + y[:, None, None, None], y=y)
    fields = {"model": KNNSpec(), **TRAINER}
    model = load(train(ClassifyRecipe(data=str(tmp_path / "a.npz"), **fields), output_dir=tmp_path))
    assert set(model.predict(torch.from_numpy(x))) <= {"0", "1"}
    with pytest.raises(ValueError, match=r"expected rows of shape \(n, 1, 3, 3\), got \(40, 3, 3\)"):
        model.predict(x[:, 0])
    lines = [f"{row[0]},{row[1]},{k + 1}" for row, k in zip(x[:, 0, 0].tolist(), y, strict=True)]
    (tmp_path / "b.csv").write_text("\n".join(["a,b,label", *lines]))
    model = load(train(ClassifyRecipe(data=str(tmp_path / "b.csv"), **fields), output_dir=tmp_path))
    assert model.predict(x[:, 0, 0, :2]).dtype.kind == "i"
    assert set(model.predict(x[:, 0, 0, :2])) <= {1, 2}
