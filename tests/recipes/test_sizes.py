import pytest
import torch

from lawful._json import to_json
from lawful.data import SupervisedDataset
from lawful.recipes.data import Sizes


def test_sizes_of_classes_and_of_numbers():
    classes = SupervisedDataset(
        inputs=torch.zeros(5, 1, 4), targets=torch.tensor([0, 1, 0, 1, 0]), classes=("a", "b", "c")
    )
    numbers = SupervisedDataset(inputs=torch.zeros(5, 4), targets=torch.zeros(5, 2))
    assert Sizes.of(classes) == Sizes(shape=(1, 4), outputs=3, examples=5)
    assert Sizes.of(numbers) == Sizes(shape=(4,), outputs=2, examples=5)
    assert Sizes.described({"sizes": to_json(Sizes.of(numbers))}) == Sizes.of(numbers)


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({}, "model.sizes is an object with the fields of Sizes: got None"),
        ({"sizes": {"shape": [4], "outputs": 2}}, "model.sizes wants examples"),
        ({"sizes": {"shape": [0], "outputs": 2, "examples": 3}}, r"model.sizes.shape\[0\] is from 1 to"),
        ({"sizes": {"shape": [1] * 5, "outputs": 2, "examples": 3}}, "at most 4 items"),
        ({"sizes": {"shape": [4], "output": 2, "examples": 3}}, "did you mean 'outputs'"),
        ({"sizes": {"shape": [4], "outputs": 10**9, "examples": 3}}, "model.sizes.outputs is from 1 to"),
    ],
)
def test_sizes_that_nobody_vouches_for(facts, sentence):
    with pytest.raises(ValueError, match=sentence):
        Sizes.described(facts)
