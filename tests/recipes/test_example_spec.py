import pytest
import torch

from lawful._json import to_json
from lawful.data import SupervisedDataset
from lawful.recipes.data import ExampleSpec


def test_sizes_of_classification_and_regression():
    classes = SupervisedDataset(
        inputs=torch.zeros(5, 1, 4), targets=torch.tensor([0, 1, 0, 1, 0]), classes=("a", "b", "c")
    )
    numbers = SupervisedDataset(inputs=torch.zeros(5, 4), targets=torch.zeros(5, 2))
    assert ExampleSpec.of(classes) == ExampleSpec(shape=(1, 4), out_dim=3, num_examples=5)
    assert ExampleSpec.of(numbers) == ExampleSpec(shape=(4,), out_dim=2, num_examples=5)
    assert ExampleSpec.from_config({"example_spec": to_json(ExampleSpec.of(numbers))}) == ExampleSpec.of(numbers)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (None, "model.example_spec must be an object with the fields of ExampleSpec, got None"),
        ({"shape": [4], "out_dim": 2}, "num_examples"),
        ({"shape": [0], "out_dim": 2, "num_examples": 3}, r"model.example_spec.shape\[0\] must be"),
        ({"shape": [1] * 5, "out_dim": 2, "num_examples": 3}, "at most 4"),
        ({"shape": [4], "out_dims": 2, "num_examples": 3}, "out_dims"),
        ({"shape": [4], "out_dim": 10**9, "num_examples": 3}, "model.example_spec.out_dim must be"),
    ],
)
def test_invalid_sizes_are_an_error(spec, message):
    with pytest.raises(ValueError, match=message):
        ExampleSpec.from_config({} if spec is None else {"example_spec": spec})
