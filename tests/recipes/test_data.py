import json

import numpy as np
import pytest
import torch
from PIL import Image

from lawful.data import Dequantizer, load_dataset
from lawful.recipes import PCARecipe
from lawful.recipes.data import _DENSITIES, DataSpec, GenerativeDataConfig


def load_data(path, **options):
    return GenerativeDataConfig(data=str(path), **options).load_splits()


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("digits", (1, 8, 8), 10),
        ("iris", (4,), 3),
        ("diabetes", (11,), 0),
        ("ring", (2,), 8),
        ("checkerboard", (2,), 0),
    ],
)
def test_built_in_data_are_split_and_reloaded(name, shape, classes):
    seen = load_data(name, **({"num_samples": 500} if name in _DENSITIES else {}))
    assert seen.shape == shape
    assert len(seen.classes) == classes
    assert seen.train.dtype == torch.float32
    assert seen.train.shape[1:] == shape
    assert sum(seen.counts.values()) == {"digits": 1797, "iris": 150, "diabetes": 442}.get(name, 500)
    assert (seen.train_labels is None) == (classes == 0)
    assert (seen.density is not None) == (name in _DENSITIES)
    assert DataSpec.from_config(json.loads(json.dumps(seen.model_config))) == seen.spec
    assert seen.spec.read(name).x.shape[1:] == shape


def test_the_same_split_gives_the_same_parts_and_another_gives_others():
    one, again, other = (load_data("iris", split_seed=split) for split in (0, 0, 1))
    assert torch.equal(one.train, again.train)
    assert one.fingerprint == again.fingerprint != other.fingerprint
    assert not torch.equal(one.test, other.test)


def test_ring_labels_are_its_modes_and_splits_are_stratified():
    seen = load_data("ring", num_samples=800)
    angles = torch.atan2(seen.train[:, 1], seen.train[:, 0]) / (torch.pi / 4)
    assert float(((angles.round().long() % 8) == seen.train_labels).double().mean()) > 0.99
    counts = [labels.bincount(minlength=8).double() / len(labels) for labels in (seen.train_labels, seen.test_labels)]
    assert float((counts[0] - counts[1]).abs().max()) < 0.02


def test_quantization_levels_are_detected():
    assert load_data("digits").dequantizer == Dequantizer(levels=17)
    assert load_data("iris").dequantizer is None


def test_tables_are_read_whole_or_with_a_column_of_labels(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b,kind\n" + "".join(f"{i},{i * i / 7},{'xy'[i % 2]}\n" for i in range(30)))
    whole, labelled = load_data(path, keep_columns=("kind",)), load_data(path, label_column="kind")
    assert whole.spec.columns == ("a", "b", "kind=x", "kind=y")
    assert not whole.classes
    assert any("kind" in note for note in whole.warnings)
    assert labelled.spec.columns == ("a", "b")
    assert labelled.classes == ("x", "y")
    assert labelled.spec.read(path).labels.tolist()[:3] == [0, 1, 0]
    new = tmp_path / "new.csv"
    new.write_text("b,a\n5,1\n")
    assert labelled.spec.read(new).x.tolist() == [[1.0, 5.0]]
    with pytest.raises(ValueError, match="has no column 'c'"):
        load_data(path, label_column="c")


def test_the_only_column_of_categories_has_the_labels(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("kind,a,b\n" + "".join(f"{'xy'[i % 2]},{i},{i * i / 7}\n" for i in range(30)))
    found = load_data(path)
    assert found.spec.columns == ("a", "b")
    assert found.classes == ("x", "y")
    assert "'kind' has the labels" in found.warnings[-1]
    assert "--keep-columns kind" in found.warnings[-1]
    assert not load_data(path, ignore_columns=("kind",)).classes
    path.write_text("kind,a,city\n" + "".join(f"{'xy'[i % 2]},{i},{'uvw'[i % 3]}\n" for i in range(30)))
    both = load_data(path)
    assert not both.classes
    assert both.spec.columns == ("kind=x", "kind=y", "a", "city=u", "city=v", "city=w")
    assert any("--label-column kind" in note for note in both.warnings)


def test_arrays_of_any_shape_with_labels_or_without(tmp_path):
    x = np.random.RandomState(0).rand(40, 1, 3, 4)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x=x, y=np.arange(40) % 2)
    plain, labelled = load_data(tmp_path / "x.npy"), load_data(tmp_path / "x.npz")
    assert plain.shape == (1, 3, 4)
    assert plain.train_labels is None
    assert labelled.classes == ("0", "1")
    assert labelled.spec.label_index("1") == 1
    with pytest.raises(ValueError, match="label must be one of 0, 1, got '7'"):
        labelled.spec.label_index("7")
    with pytest.raises(ValueError, match="have no labels"):
        plain.spec.label_index("1")
    np.save(tmp_path / "y.npy", x[:, :, :, :2])
    with pytest.raises(ValueError, match=r"shape \(n, 1, 3, 4\)"):
        plain.spec.read(tmp_path / "y.npy")


def test_uint8_data_have_256_levels_and_value_range_is_checked(tmp_path):
    x = np.random.RandomState(0).randint(0, 256, (40, 1, 3, 4))
    np.save(tmp_path / "bytes.npy", x.astype(np.uint8))
    np.save(tmp_path / "whole.npy", x.astype(np.float32))
    assert load_data(tmp_path / "bytes.npy").dequantizer == Dequantizer(levels=256, high=255.0)
    with pytest.raises(ValueError, match=r"values from \d+ to 25\d, expected 0 to 1: these look like 8-bit"):
        load_data(tmp_path / "whole.npy", value_range=(0.0, 1.0))
    assert any("set data_levels" in note for note in load_data(tmp_path / "whole.npy").warnings)
    stated = load_data(tmp_path / "whole.npy", value_range=(0.0, 255.0), data_levels=256)
    assert stated.dequantizer == Dequantizer(levels=256, high=255.0)
    with pytest.raises(ValueError, match="16 levels"):
        load_data(tmp_path / "whole.npy", value_range=(0.0, 255.0), data_levels=16)


def test_images_in_one_folder_or_one_folder_per_label(tmp_path):
    random = np.random.RandomState(0)
    for label in ("cat", "dog"):
        (tmp_path / "two" / label).mkdir(parents=True)
        for i in range(6):
            Image.fromarray(random.randint(0, 256, (5, 4), np.uint8)).save(tmp_path / "two" / label / f"{i}.png")
    flat, both = load_data(tmp_path / "two" / "cat", test_fraction=0.4), load_data(tmp_path / "two")
    assert flat.shape == both.shape == (1, 5, 4)
    assert flat.dequantizer == both.dequantizer == Dequantizer(levels=256)
    assert not flat.classes
    assert both.classes == ("cat", "dog")
    assert DataSpec.from_config(flat.model_config) == flat.spec
    new = both.spec.read(tmp_path / "two")
    assert len(new.files) == 12
    assert new.labels.tolist() == [0] * 6 + [1] * 6
    assert load_data(tmp_path / "two", resize=(2, 2)).shape == (1, 2, 2)
    with pytest.raises(ValueError, match="resize needs a folder"):
        load_data("digits", resize=(4, 4))


def test_one_test_observation_is_refused_before_training(tmp_path):
    for i in range(6):
        Image.new("L", (8, 8), 40 * i).save(tmp_path / f"{i}.png")
    with pytest.raises(ValueError, match=r"the test split has 1 of the 6 observations of .*, at least 2 are needed"):
        load_data(tmp_path)


def test_arrays_with_too_many_axes_are_refused(tmp_path):
    np.savez(tmp_path / "five.npz", x=np.arange(160.0).reshape(10, 2, 2, 2, 2), y=np.arange(10) % 2)
    message = r"five\.npz has shape \(10, 2, 2, 2, 2\), expected vectors \(n, d\), series \(n, c, t\) or images"
    with pytest.raises(ValueError, match=message):
        load_data(tmp_path / "five.npz")
    with pytest.raises(ValueError, match=message):
        load_dataset(tmp_path / "five.npz")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.full((20, 2), np.nan), "(?i)nan"),
        (np.array([[0.0, np.inf]] * 20), "inf"),
        (np.zeros((0, 2)), "is empty"),
        (np.zeros((1, 2)), "has 1 observations, at least 3 are needed"),
        (np.arange(40.0).reshape(20, 2) * 1e20, "varies by .*e.21, .* rescale the data"),
        (np.arange(40.0).reshape(20, 2) * 1e-20, "varies by .*e-19, .* rescale the data"),
        (np.ones((20, 2)), "training observations of .* are equal"),
    ],
)
def test_degenerate_data_raise(values, message, tmp_path):
    np.save(tmp_path / "x.npy", values)
    with pytest.raises(ValueError, match=message):
        load_data(tmp_path / "x.npy")


def test_constant_and_too_many_features_are_noted(tmp_path):
    x = np.random.RandomState(0).randn(20, 30)
    x[:, 3] = 5
    np.save(tmp_path / "x.npy", x)
    notes = " ".join(PCARecipe(data=str(tmp_path / "x.npy")).setup().warnings)
    assert "1 of 30 features are constant" in notes
    assert "the covariance is singular" in notes


def test_images_of_other_axes_are_read(tmp_path):
    rng = np.random.default_rng(0)
    for name, x, expected in (
        ("color", rng.random((9, 6, 7, 3)), lambda x: x.transpose(0, 3, 1, 2)),
        ("gray", rng.integers(0, 256, (9, 6, 7), dtype=np.uint8), lambda x: x[:, None]),
    ):
        np.save(tmp_path / f"{name}.npy", x)
        splits = load_data(tmp_path / f"{name}.npy")
        assert splits.shape == expected(x).shape[1:], name
        assert any("images" in note for note in splits.warnings), name
        new = splits.spec.read(tmp_path / f"{name}.npy").x
        np.testing.assert_allclose(new.numpy(), expected(x), rtol=1e-6, err_msg=name)


def test_channels_last_images_give_a_warning(tmp_path):
    np.save(tmp_path / "x.npy", np.random.RandomState(0).rand(20, 6, 6, 3))
    assert any("channels-last" in note for note in load_data(tmp_path / "x.npy").warnings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": ""}, "got an empty string"),
        ({"data": "nowhere"}, "nowhere"),
        ({"value_range": (1.0, 0.0)}, "a lowest and a highest"),
        ({"data_levels": 1}, "at least 2"),
        ({"label_column": "x"}, "need a table"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises((ValueError, OSError), match=message):
        GenerativeDataConfig(**options).load_splits()


ARRAYS = {"kind": "arrays", "shape": [2], "classes": None}


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"encoding": ARRAYS},
        {"encoding": {"kind": "other"}, "dequantizer": None},
        {
            "encoding": ARRAYS,
            "dequantizer": {"levels": 1, "low": 0, "high": 1},
        },
        {
            "encoding": ARRAYS,
            "dequantizer": {"levels": 2, "low": "0", "high": 1},
        },
    ],
)
def test_data_spec_from_json_is_validated(value):
    with pytest.raises(ValueError, match=r"data_spec|encoding|kind|dequantizer"):
        DataSpec.from_json(value)
