import pytest
import torch

from lawful.recipes.data import SupervisedData


def rows_of(examples):
    return {tuple(row.tolist()) for row in examples.inputs.flatten(1)}


@pytest.mark.parametrize("validation", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("split", [0, 7])
def test_no_example_stands_in_two_parts_and_none_is_lost(validation, split):
    """Each example of MNIST-1D is its own, so that its values are its name."""
    parts = SupervisedData(data="mnist1d", validation=validation, split=split).parts("classify")
    found = [part for part in (parts.train, parts.validation, parts.test) if part is not None]
    assert sum(map(len, found)) == len(set.union(*map(rows_of, found))) == 5000
    assert len(parts.test) == 1000
    assert parts.counts["validation"] == round(4000 * validation)
    assert parts.notes == ()


def test_classes_keep_their_shares():
    parts = SupervisedData(data="iris", test=0.2, validation=0.25).parts("classify")
    for part in (parts.train, parts.validation, parts.test):
        shares = part.targets.bincount(minlength=3)
        assert shares.max() - shares.min() <= 1


def test_the_split_has_a_seed_of_its_own():
    torch.manual_seed(0)
    first = SupervisedData(split=0).parts("classify")
    torch.manual_seed(1)
    again, other = (SupervisedData(split=s).parts("classify") for s in (0, 1))
    assert torch.equal(first.test.inputs, again.test.inputs)
    assert not torch.equal(first.test.inputs, other.test.inputs)
    assert first.fingerprint == other.fingerprint


def test_duplicates_between_the_parts_are_told(table):
    parts = SupervisedData(data=str(table(change=lambda rows: rows + rows))).parts("classify")
    assert any("examples of test have the same inputs as one of train" in note for note in parts.notes)
    assert any("examples of test have the same inputs as one of validation" in note for note in parts.notes)


def test_dropped_rows_and_constant_columns_are_told(table):
    def change(rows):
        return [("", *row[1:]) if i == 3 else (row[0], "red", *row[2:]) for i, row in enumerate(rows)]

    parts = SupervisedData(data=str(table(change=change)), drop_missing=True).parts("classify")
    assert "1 rows with a missing value are dropped" in parts.notes
    assert "column 'colour' is constant" in parts.notes
    assert sum(parts.counts.values()) == 59


def test_columns_can_be_ignored_or_read_as_words(table):
    path = table(change=lambda rows: [(i % 2, *row[1:]) for i, row in enumerate(rows)])
    assert SupervisedData(data=str(path), ignore=("colour",)).parts("classify").train.columns == ("size", "weight")
    columns = SupervisedData(data=str(path), ignore=("colour",), categorical=("size",)).parts("classify").train.columns
    assert columns == ("size=0", "size=1", "weight")


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_rare_classes_are_refused_or_told(table, count):
    """A class that cannot stand in each of the three parts is refused; one that by chance does not is told."""
    given = SupervisedData(
        data=str(table(change=lambda rows: [*rows, *[("9", "red", str(i), "emu") for i in range(count)]]))
    )
    if count < 3:
        with pytest.raises(
            ValueError, match=rf"class 'emu' has {count} of {60 + count} examples: 3 parts need at least 3"
        ):
            given.parts("classify")
        return
    parts = given.parts("classify")
    lacking = [n for n in ("train", "validation", "test") if 2 not in getattr(parts, n).targets.tolist()]
    assert sorted(parts.notes) == sorted(f"{name} has no example of class 'emu'" for name in lacking)


def test_numbers_are_not_taken_for_classes(table):
    with pytest.raises(ValueError, match="classes in 60 examples: to fit numbers, train regress"):
        SupervisedData(data=str(table()), target="size").parts("classify")


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("resize", (8,), "resize is a height and a width: got"),
        ("resize", (8, 0), r"resize\[1\] is from 1 to"),
        ("test", 0.0, "test is from 0.01 to 0.9: got 0.0"),
        ("validation", 1.0, "validation is from 0 to 0.9: got 1.0"),
        ("data", 3, "data is a text: got 3"),
        ("data", "", "data is a file, a folder or a name: got an empty text"),
        ("ignore", ["a"], "ignore is a list of a text"),
        ("split", -1, "split is from 0 to"),
    ],
)
def test_values_out_of_bounds(field, value, sentence):
    with pytest.raises(ValueError, match=sentence):
        SupervisedData(**{field: value})
