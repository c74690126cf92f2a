import pytest
import torch

from lawful.data import Dequantizer
from lawful.data.dataset import Arrays
from lawful.models.generative import ContinuousFlow, SupportsLogProb, SupportsSample
from lawful.recipes import load
from lawful.recipes.data import DataSpec, GenerativeData
from lawful.recipes.flow import FlowRecipe
from lawful.training import TrainerConfig, train

SMALL = {"steps": 3, "hidden": (8,), "batch": 64, "engine": TrainerConfig(threads=1, laws=0)}


def run_of(recipe, tmp_path):
    return train(recipe, folder=tmp_path)


@pytest.mark.parametrize("model", ["suited", "autoregressive", "affine", "nice", "continuous"])
def test_every_model_trains_and_comes_back_with_its_density(model, tmp_path):
    recipe = FlowRecipe(model=model, given=GenerativeData(data="ring", examples=300), **SMALL)
    run = run_of(recipe, tmp_path)
    flow = load(run)
    assert isinstance(flow, SupportsSample)
    assert isinstance(flow, SupportsLogProb)
    assert flow.sample(3, seed=1).shape == (3, 2)
    results = run.results
    assert {"log-likelihood", "KL from the density"} <= results["test"].keys()
    assert results["baselines"]["the density itself"] > results["baselines"]["a Gaussian"]


def test_digits_have_bits_and_labels(tmp_path):
    recipe = FlowRecipe(conditional=True, **SMALL)
    run = run_of(recipe, tmp_path)
    flow = load(run)
    assert flow.sample(2, labels=torch.tensor([3, 7])).shape == (2, 1, 8, 8)
    found = run.results
    assert found["test"]["bits per dimension"]["value"] > 0
    assert found["baselines"]["levels counted for each feature, bits per dimension"] < 2.6
    assert float(flow.frequencies.sum()) == pytest.approx(1, abs=1e-5)
    assert {file.name for file in run.figures.iterdir()} >= {"samples.png", "samples of labels.png"}


def test_what_suits_the_data_is_chosen():
    levels = DataSpec(encoding=Arrays((2,)), dequantizer=Dequantizer(levels=4))
    numbers = DataSpec(encoding=Arrays((2,)))
    assert FlowRecipe().suited(levels).model == "levels"
    assert FlowRecipe().suited(numbers).model == "spline"
    assert FlowRecipe(hidden=(5,)).suited(numbers).hidden == (5,)
    assert isinstance(FlowRecipe(model="continuous").suited(numbers).built(numbers), ContinuousFlow)


def test_errors_say_what_was_wanted_and_what_came():
    numbers = DataSpec(encoding=Arrays((2,)))
    with pytest.raises(ValueError, match="takes no labels"):
        FlowRecipe(model="continuous", conditional=True)
    with pytest.raises(ValueError, match="have no levels"):
        FlowRecipe(model="levels").suited(numbers)
    with pytest.raises(ValueError, match="wants labels: the data have none"):
        FlowRecipe(conditional=True).suited(numbers)
