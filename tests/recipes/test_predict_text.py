import csv
import io

import pytest
import torch

from lawful.data.text.labeled import read_texts
from lawful.recipes import ClassifyTextRecipe, PCARecipe, load
from lawful.recipes.predict import predictions
from lawful.training import train

SMALL = {"dim": 8, "ngram_rows": 32, "steps": 6, "batch_size": 4, "threads": 1, "law_cases": 0}
"""Options of a quick run of a tiny model."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts.csv"
    rows = [f'"{i}: the cat, and {"milk" if i % 2 else "fish"}",{"white" if i % 2 else "grey"}' for i in range(40)]
    path.write_text("\n".join(["what,kind", *rows]) + "\n")
    return train(ClassifyTextRecipe(data=str(path), context_length=16, **SMALL), output_dir=path.parent / "runs")


def read(found):
    return list(csv.DictReader(io.StringIO(found.csv())))


def test_each_row_has_probabilities_and_labels_an_accuracy(run, tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("kind,what,remark\ngrey,a cat,a remark that is longer than it\nwhite,,none\n")
    found = predictions(run, path)
    rows = read(found)
    assert [row["row"] for row in rows] == ["0", "1"]
    p = torch.tensor([[float(row["p(grey)"]), float(row["p(white)"])] for row in rows])
    torch.testing.assert_close(p.sum(-1), torch.ones(2), rtol=0, atol=1e-5)
    right = sum(row["prediction"] == kind for row, kind in zip(rows, ("grey", "white"), strict=True))
    assert found.summary.startswith(f"accuracy {right / 2:.4g} [")
    torch.testing.assert_close(p[:1], torch.from_numpy(load(run).predict_proba("a cat")), rtol=1e-4, atol=1e-6)


def test_unlabeled_texts_are_predicted(run, tmp_path):
    (tmp_path / "new.csv").write_text("what\na cat\na dog\n")
    (tmp_path / "half.csv").write_text("what,kind\na cat,grey\na dog,\n")
    for name in ("new.csv", "half.csv"):
        found = predictions(run, tmp_path / name)
        assert found.summary == ""
        assert len(found.rows) == 2


def test_predictions_name_the_file(run, tmp_path):
    for kind in ("grey", "white"):
        (tmp_path / "files" / kind).mkdir(parents=True)
        (tmp_path / "files" / kind / "a.txt").write_text(f"the {kind} cat")
    found = predictions(run, tmp_path / "files")
    assert read(found)[1]["file"] == str(tmp_path / "files" / "white" / "a.txt")
    assert found.summary.endswith("on 2 rows")
    assert predictions(run, tmp_path / "files" / "grey").summary == ""


def test_a_text_file_has_one_text_per_line(run, tmp_path):
    path = tmp_path / "new.txt"
    path.write_text("a cat, and milk\n\na dog\n")
    assert len(predictions(run, path).rows) == 2
    path.write_text("one cat\n")
    assert len(predictions(run, path).rows) == 1
    path.write_text("n,what\n1,one cat\n2,a dog\n3,fish\n")
    assert len(predictions(run, path).rows) == 3


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("kind,text\ngrey,a cat\n", "no column 'what'"),
        ("what,kind\na cat,pink\n", "unknown class 'pink', expected 'grey', 'white'"),
    ],
)
def test_new_texts_that_do_not_fit_are_refused(run, tmp_path, content, said):
    (tmp_path / "new.csv").write_text(content)
    with pytest.raises(ValueError, match=said):
        predictions(run, tmp_path / "new.csv")


def test_built_in_texts_of_other_classes_are_refused(run, tmp_path):
    with pytest.raises(ValueError, match="topics has other classes"):
        predictions(run, "topics")
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        predictions(run, tmp_path / "nowhere.csv")


def test_columns_are_inferred_if_training_had_none(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("n,text,kind\n1,some words,b\n2,other words,a\n")
    assert read_texts(path, classes=("a", "b")).labels == (1, 0)
    assert read_texts(path, classes=("c", "d")).labels is None
    note = tmp_path / "note.txt"
    note.write_text("n,text\n")
    assert read_texts(note, classes=("a", "b")).texts == ("n,text\n",)


@pytest.mark.parametrize("data", ["topics", None])
def test_a_run_of_another_recipe_is_an_error(tmp_path, monkeypatch, data):
    monkeypatch.setattr("lawful.recipes.pca.figures.save", lambda *_, **__: None)
    run = train(PCARecipe(num_components=2, threads=1, law_cases=0), output_dir=tmp_path)
    with pytest.raises(
        ValueError,
        match=r"expected a run of classify, classify-sequence, .* or translate, got .* of pca: use lawful sample",
    ):
        predictions(run, data)
