import pytest
import torch

from lawful.recipes.data import SupervisedDataConfig


def rows_of(examples):
    return {tuple(row.tolist()) for row in examples.inputs.flatten(1)}


@pytest.mark.parametrize("validation", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("split", [0, 7])
def test_splits_are_disjoint_and_complete(validation, split):
    """The examples of MNIST-1D are distinct."""
    parts = SupervisedDataConfig(data="mnist1d", validation_fraction=validation, split_seed=split).load_splits(
        "classify"
    )
    found = [part for part in (parts.train, parts.validation, parts.test) if part is not None]
    assert sum(map(len, found)) == len(set.union(*map(rows_of, found))) == 5000
    assert len(parts.test) == 1000
    assert parts.counts["validation"] == round(4000 * validation)
    assert parts.warnings == ()


def test_splits_are_stratified():
    parts = SupervisedDataConfig(data="iris", test_fraction=0.2, validation_fraction=0.25).load_splits("classify")
    for part in (parts.train, parts.validation, parts.test):
        shares = part.targets.bincount(minlength=3)
        assert shares.max() - shares.min() <= 1


def test_split_seed():
    torch.manual_seed(0)
    first = SupervisedDataConfig(split_seed=0).load_splits("classify")
    torch.manual_seed(1)
    again, other = (SupervisedDataConfig(split_seed=s).load_splits("classify") for s in (0, 1))
    assert torch.equal(first.test.inputs, again.test.inputs)
    assert not torch.equal(first.test.inputs, other.test.inputs)
    assert first.fingerprint == again.fingerprint != other.fingerprint


def test_duplicates_between_splits_are_a_warning(table):
    parts = SupervisedDataConfig(data=str(table(change=lambda rows: rows + rows))).load_splits("classify")
    assert any("examples of test also occur in train" in note for note in parts.warnings)
    assert any("examples of test also occur in validation" in note for note in parts.warnings)


def test_dropped_rows_and_constant_columns_are_warnings(table):
    def change(rows):
        return [("", *row[1:]) if i == 3 else (row[0], "red", *row[2:]) for i, row in enumerate(rows)]

    parts = SupervisedDataConfig(data=str(table(change=change)), drop_missing=True).load_splits("classify")
    assert "dropped 1 row with missing values" in parts.warnings
    assert "column 'color' is constant" in parts.warnings
    assert sum(parts.counts.values()) == 59


def test_fill_values_come_from_the_training_rows(table):
    """The median of all rows would show something of the test rows."""
    path = table(change=lambda rows: [("" if i % 4 == 0 else row[0], *row[1:]) for i, row in enumerate(rows)])
    parts = SupervisedDataConfig(data=str(path)).load_splits("classify")
    size, mark = (parts.train.columns.index(name) for name in ("size", "size is missing"))
    known = parts.train.inputs[parts.train.inputs[:, mark] == 0, size]
    for part in (parts.train, parts.validation, parts.test):
        filled = part.inputs[part.inputs[:, mark] == 1, size]
        assert filled.tolist() == pytest.approx([float(known.median())] * len(filled), abs=0.1)
    assert (
        len({float(v) for part in (parts.train, parts.test) for v in part.inputs[part.inputs[:, mark] == 1, size]}) == 1
    )
    assert parts.encoding.columns[0].fill == pytest.approx(float(known.quantile(0.5)))
    assert any(note.startswith("filled 15 missing values of column 'size'") for note in parts.warnings)
    assert parts.columns[0].detail.endswith(
        f"; 15 missing values, filled with the median, {parts.encoding.columns[0].fill:.6g}"
    )


def test_ignored_and_categorical_columns(table):
    path = table(change=lambda rows: [(i % 2, *row[1:]) for i, row in enumerate(rows)])
    assert SupervisedDataConfig(data=str(path), ignore_columns=("color",)).load_splits("classify").train.columns == (
        "size",
        "weight",
    )
    columns = (
        SupervisedDataConfig(data=str(path), ignore_columns=("color",), categorical_columns=("size",))
        .load_splits("classify")
        .train.columns
    )
    assert columns == ("size=0", "size=1", "weight")


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_rare_classes_are_an_error_or_a_warning(table, count):
    """A class with too few examples for three splits is an error; one that a split lacks is a warning."""
    given = SupervisedDataConfig(
        data=str(table(change=lambda rows: [*rows, *[("9", "red", str(i), "emu") for i in range(count)]]))
    )
    if count < 3:
        with pytest.raises(ValueError, match=rf"class 'emu' has {count} of {60 + count} examples"):
            given.load_splits("classify")
        return
    parts = given.load_splits("classify")
    lacking = [n for n in ("train", "validation", "test") if 2 not in getattr(parts, n).targets.tolist()]
    assert sorted(parts.warnings) == sorted(f"the {name} split has no examples of class 'emu'" for name in lacking)


def test_numeric_targets_are_not_classified(table):
    with pytest.raises(ValueError, match="classes in 60 examples: use the recipe regress"):
        SupervisedDataConfig(data=str(table()), target="size").load_splits("classify")


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("resize", (8,), "resize must be a height and a width, got"),
        ("resize", (8, 0), r"resize\[1\] must be"),
        ("test_fraction", 0.0, "test_fraction must be .* got 0.0"),
        ("validation_fraction", 1.0, "validation_fraction must be .* got 1.0"),
        ("data", 3, "data must be .* got 3"),
        ("data", "", "data must be a file, a folder or a built-in dataset, got an empty string"),
        ("ignore_columns", ["a"], "ignore_columns must be"),
        ("split_seed", -1, "split_seed must be"),
    ],
)
def test_invalid_options_are_an_error(field, value, sentence):
    with pytest.raises(ValueError, match=sentence):
        SupervisedDataConfig(**{field: value})
