from unittest.mock import MagicMock

import pytest
import torch

from lawful.data import Dequantizer
from lawful.data.dataset import Arrays
from lawful.models.generative import ContinuousFlow, SupportsLogProb, SupportsSample
from lawful.recipes import (
    AutoFlowSpec,
    AutoregressiveFlowSpec,
    ContinuousFlowSpec,
    DiscretizedFlowSpec,
    NICESpec,
    RealNVPSpec,
    SplineFlowSpec,
    generative,
    load,
)
from lawful.recipes.data import DataSpec
from lawful.recipes.flow import FlowRecipe
from lawful.training import train

SMALL = {"steps": 3, "batch_size": 64, "threads": 1, "law_cases": 0}
MODELS = (SplineFlowSpec, AutoregressiveFlowSpec, RealNVPSpec, NICESpec, ContinuousFlowSpec)


def run_of(recipe, tmp_path):
    return train(recipe, output_dir=tmp_path)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_trains_and_loads_with_its_density(model, tmp_path, monkeypatch):
    if model is not SplineFlowSpec:
        monkeypatch.setattr(generative, "figures", MagicMock())
    recipe = FlowRecipe(model=model(hidden_dims=(8,)), data="ring", num_samples=100, **SMALL)
    run = run_of(recipe, tmp_path)
    flow = load(run)
    assert isinstance(flow, SupportsSample)
    assert isinstance(flow, SupportsLogProb)
    assert flow.sample(3, seed=1).shape == (3, 2)
    results = run.results
    assert {"log-likelihood", "KL from the true density"} <= results["test"].keys()
    assert results["baselines"]["true density"] > results["baselines"]["Gaussian"]
    assert "the flow" in results["summary"].replace("The", "the")
    assert "true density" not in results["summary"]


def test_digits_report_bits_per_dimension_and_have_labels(tmp_path, monkeypatch):
    monkeypatch.setattr(generative, "_NUM_IMAGES", 2)
    recipe = FlowRecipe(model=DiscretizedFlowSpec(hidden_dims=(8,)), conditional=True, **SMALL)
    run = run_of(recipe, tmp_path)
    flow = load(run)
    assert flow.sample(2, labels=torch.tensor([3, 7])).shape == (2, 1, 8, 8)
    found = run.results
    assert found["test"]["bits per dimension"]["value"] > 0
    assert found["baselines"]["histogram per feature, bits per dimension"] < 2.6
    assert float(flow.frequencies.sum()) == pytest.approx(1, abs=1e-5)
    assert found["lead_figures"] == ["samples.png", "samples per label.png"]
    assert "log-likelihood given the labels" in found["test"]


def test_default_model_depends_on_the_data():
    levels = DataSpec(encoding=Arrays((2,)), dequantizer=Dequantizer(levels=4))
    numbers = DataSpec(encoding=Arrays((2,)))
    assert FlowRecipe(model=AutoFlowSpec())._with_data_defaults(levels).model == DiscretizedFlowSpec()
    assert FlowRecipe()._with_data_defaults(numbers).model == SplineFlowSpec()
    assert FlowRecipe()._with_data_defaults(numbers).steps == SplineFlowSpec.steps
    assert isinstance(
        FlowRecipe(model=ContinuousFlowSpec())._with_data_defaults(numbers)._build(numbers), ContinuousFlow
    )


def test_incompatible_options_raise():
    numbers = DataSpec(encoding=Arrays((2,)))
    with pytest.raises(ValueError, match="does not support conditional"):
        FlowRecipe(model=ContinuousFlowSpec(), conditional=True)
    with pytest.raises(ValueError, match="needs discrete data"):
        FlowRecipe(model=DiscretizedFlowSpec())._with_data_defaults(numbers)
    for model in ("real-nvp", "nice"):
        with pytest.raises(ValueError, match=f"model {model} needs at least 2 features, got 1"):
            FlowRecipe(model=model)._with_data_defaults(DataSpec(encoding=Arrays((1,))))
    with pytest.raises(ValueError, match="needs labels"):
        FlowRecipe(conditional=True)._with_data_defaults(numbers)
