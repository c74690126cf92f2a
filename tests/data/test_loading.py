import json

import numpy as np
import pytest
import torch

from lawful.data import Arrays, encoding_from_json, load_dataset, load_like


def test_new_rows_are_encoded_like_the_training_table(tmp_path):
    (tmp_path / "pets.csv").write_text("size,color,kind\n1,red,cat\n2,blue,dog\n3,red,dog\n")
    data = load_dataset(tmp_path / "pets.csv")
    assert data.examples.name == "pets"
    assert data.examples.classes == ("cat", "dog")
    assert data.examples.columns == ("size", "color=blue", "color=red")
    (tmp_path / "new.csv").write_text("color,size\nblue,5\n")
    encoding = encoding_from_json(json.loads(json.dumps(data.encoding.to_json())))
    new = load_like(tmp_path / "new.csv", encoding)
    assert new.inputs.tolist() == [[5, 1, 0]]
    assert new.targets is None
    assert load_like(tmp_path / "pets.csv", encoding).targets.tolist() == [0, 1, 1]
    (tmp_path / "some.csv").write_text("size,color,kind\n1,red,\n2,blue,dog\n")
    assert load_like(tmp_path / "some.csv", encoding).targets is None


def test_arrays_with_more_axes(tmp_path):
    x = np.random.default_rng(0).normal(size=(4, 1, 3, 3))
    np.savez(tmp_path / "a.npz", x=x, y=np.array([3, 7, 3, 7]))
    data = load_dataset(tmp_path / "a.npz")
    assert data.encoding == Arrays((1, 3, 3), ("3", "7"))
    assert data.examples.targets.tolist() == [0, 1, 0, 1]
    np.save(tmp_path / "new.npy", x[:2])
    torch.testing.assert_close(load_like(tmp_path / "new.npy", data.encoding).inputs, data.examples.inputs[:2])
    regression = load_dataset(tmp_path / "a.npz", task="regress")
    assert regression.examples.targets.tolist() == [[3], [7], [3], [7]]
    np.save(tmp_path / "other.npy", x[:, :, :2])
    with pytest.raises(ValueError, match=r"expected other.npy of shape \(n, 1, 3, 3\), got \(4, 1, 2, 3\)"):
        load_like(tmp_path / "other.npy", data.encoding)
    x[1, 0, 2, 0] = np.nan
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(4))
    with pytest.raises(ValueError, match=r"finite in float32: got nan at index \(1, 0, 2, 0\)"):
        load_dataset(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", x=x[:1], y=np.arange(4))
    with pytest.raises(ValueError, match="equal, non-zero lengths: got 1 and 4"):
        load_dataset(tmp_path / "a.npz", task="regress")


def test_a_target_without_examples_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 1, 3)), y=np.array(1.0))
    with pytest.raises(ValueError, match=r"'x' of a.npz has shape \(4, 1, 3\), expected columns or one matrix"):
        load_dataset(tmp_path / "a.npz")


def test_builtin_name_takes_precedence_over_a_folder_of_the_same_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "iris").mkdir()
    data = load_dataset("iris")
    assert len(data.examples) == 150
    assert (load_like("iris", data.encoding).inputs == data.examples.inputs).all()
    with pytest.raises(ValueError, match="one folder of images per class"):
        load_dataset("./iris")
    with pytest.raises(ValueError, match="wine has other columns, shapes or classes"):
        load_like("wine", data.encoding)


@pytest.mark.parametrize(
    ("name", "task", "came"), [("iris", "regress", "categorical"), ("diabetes", "classify", "numeric")]
)
def test_task_must_fit_the_target(name, task, came):
    with pytest.raises(ValueError, match=f"task='{task}' does not fit the {came} target of {name}"):
        load_dataset(name, task=task)


def test_missing_data_suggest_a_similar_name(tmp_path):
    with pytest.raises(
        FileNotFoundError,
        match=r"no such dataset: 'digitz': did you mean digits\? Built-in datasets: digits, .* pass a .csv",
    ):
        load_dataset("digitz")
    (tmp_path / "prices.csv").write_text("a,b\n1,2\n")
    with pytest.raises(FileNotFoundError, match=r"no such file or folder: .*price.csv: did you mean prices.csv\?"):
        load_dataset(tmp_path / "price.csv")
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        load_dataset("no/such/place.csv")
    with pytest.raises(FileNotFoundError, match=r"no such dataset: 'a\\x00b'"):
        load_dataset("a\0b")
    (tmp_path / "a.xlsx").write_text("")
    with pytest.raises(ValueError, match=r"a.xlsx has the suffix '.xlsx', expected one of .csv, .*.npz"):
        load_dataset(tmp_path / "a.xlsx")


def test_source_must_match_the_encoding(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"expected a .npy or .npz file with examples of shape \(1, 8, 8\), got a.csv"):
        load_like(tmp_path / "a.csv", load_dataset("digits").encoding)
    with pytest.raises(ValueError, match="is a folder, expected a file"):
        load_like(tmp_path, load_dataset("iris").encoding)
    np.savez(tmp_path / "a.npz", z=np.zeros(3))
    with pytest.raises(ValueError, match="has no array x, it has z"):
        load_like(tmp_path / "a.npz", load_dataset("digits").encoding)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("iris", {"target": "species"}, "target only applies to tables, iris is not a table"),
        ("digits", {"drop_missing": True}, "drop_missing only applies to tables"),
        ("digits", {"size": (4, 4)}, "resize needs a folder of images"),
        ("a.csv", {"size": (4, 4)}, "resize needs a folder of images"),
        ("folder", {"ignore_columns": ("a",), "header": True}, "ignore_columns and header only apply to tables"),
    ],
)
def test_options_that_would_do_nothing_are_refused(tmp_path, monkeypatch, source, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(ValueError, match=message):
        load_dataset(source, **options)


def test_index_column_is_dropped_with_a_note(tmp_path):
    (tmp_path / "a.csv").write_text(",a,y\n0,5,1\n1,6,2\n")
    data = load_dataset(tmp_path / "a.csv")
    assert data.examples.columns == ("a",)
    assert "counts the rows" in data.notes[0]


def test_new_rows_are_filled_or_dropped(tmp_path):
    (tmp_path / "pets.csv").write_text("size,color,kind\n1,red,cat\n2,blue,dog\n3,red,dog\n")
    encoding = load_dataset(tmp_path / "pets.csv").encoding
    (tmp_path / "new.csv").write_text("size,color,kind\n,red,cat\n7,green,dog\n")
    new = load_like(tmp_path / "new.csv", encoding)
    assert new.inputs.tolist() == [[2, 0, 1], [7, 0, 0]]
    assert new.rows is None
    assert [note.split(":")[0] for note in new.notes][1] == "column 'color'"
    dropped = load_like(tmp_path / "new.csv", encoding, drop_missing=True)
    assert (dropped.inputs.tolist(), dropped.targets.tolist(), dropped.rows) == ([[7, 0, 0]], [1], (1,))
    assert dropped.notes[0] == "dropped 1 row with missing values"
    (tmp_path / "new.csv").write_text("size,color\n,red\n")
    with pytest.raises(ValueError, match=r"new.csv has no row without missing values"):
        load_like(tmp_path / "new.csv", encoding, drop_missing=True)
    with pytest.raises(ValueError, match="drop_missing only applies to tables, digits is not a table"):
        load_like("digits", load_dataset("digits").encoding, drop_missing=True)
