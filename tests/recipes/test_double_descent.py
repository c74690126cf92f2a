from dataclasses import replace

import numpy as np
import pytest
import torch

from lawful._json import to_json
from lawful.recipes.double_descent import DoubleDescentRecipe, _family_loss, _find_double_descent
from lawful.training import from_json, train


def tiny(**options):
    small = {"num_sizes": 3, "largest": 8, "num_examples": 200, "epochs": 4, "eval_every_epochs": 1, "batch_size": 20}
    return DoubleDescentRecipe(**small | {"threads": 1, "law_cases": 0} | options)


def test_defaults_equal_the_paper():
    recipe = DoubleDescentRecipe()
    assert recipe.widths == sorted(set(np.geomspace(2, 300, 20, dtype=int).tolist()))
    assert (recipe.widths[0], recipe.widths[-1], len(recipe.widths)) == (2, 300, 19)
    assert DoubleDescentRecipe(model="cnn").widths[-1] == 100


def test_only_training_labels_are_noisy():
    clean, noisy = (tiny(label_noise=noise).setup() for noise in (0.0, 0.2))
    assert len(clean.data.train) == 50
    assert len(clean.data.test) == 150
    assert int((clean.data.train.targets != noisy.data.train.targets).sum()) == 10
    assert torch.equal(clean.data.test.targets, noisy.data.test.targets)


def test_each_model_has_the_gradient_of_its_own_loss():
    training = tiny().setup()
    batch = training.batches.batch(0)
    _family_loss(training.model, batch).backward()
    for member in training.model.members:
        alone = torch.nn.functional.cross_entropy(member(batch[0]), batch[1])
        for p, grad in zip(member.parameters(), torch.autograd.grad(alone, list(member.parameters())), strict=True):
            torch.testing.assert_close(p.grad, grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"model": "cnn", "num_seeds": 2}], ids=["mlp", "cnn"])
def test_run_writes_figures_and_an_error_per_size(options, tmp_path):
    recipe = tiny(**options)
    run = train(recipe, output_dir=tmp_path)
    for name in ("error over model size.png", "error over epochs.png"):
        assert (run.figures / name).stat().st_size > 10_000
    assert list(run.results["test error"]) == ["2", "4", "8"]
    assert "ouble descent" in run.results["summary"]
    low, value, high = (run.results["test error"]["8"][key] for key in ("low", "value", "high"))
    assert 0 <= low <= value <= high <= 1
    model = recipe.build_model({})
    model.load_state_dict(run.weights())
    assert model(torch.zeros(5, 1, 40)).shape == (5, 3 * recipe.num_seeds, 10)


def test_resumed_run_equals_an_uninterrupted_one(tmp_path, stop_at):
    whole = train(tiny(), output_dir=tmp_path)
    begun = train(tiny(), output_dir=tmp_path, loggers=[stop_at(5)])  # in the second of four epochs
    again = train(tiny(), output_dir=tmp_path, resume=begun)
    for name, weight in whole.weights().items():
        assert torch.equal(weight, again.weights()[name]), name
    assert again.results["test error"] == whole.results["test error"]
    figures = [(r.figures / "error over epochs.png").read_bytes() for r in (whole, again)]
    assert figures[0] == figures[1]


def test_without_metrics_the_errors_are_those_of_the_final_models(tmp_path):
    recipe = tiny()
    run = train(recipe, output_dir=tmp_path)
    expected = run.results["test error"]
    (run.path / "metrics.jsonl").rename(run.path / "moved")
    assert recipe.finish(run, replace(recipe.setup(), model=loaded(recipe, run)))["test error"] == expected


def loaded(recipe, run):
    model = recipe.build_model({})
    model.load_state_dict(run.weights())
    return model.eval()


def test_find_double_descent():
    for errors in ([0.6, 0.5, 0.4], [0.4, 0.5, 0.6], [0.4], [0.5, 0.4, 0.41, 0.3]):
        assert _find_double_descent(errors, range(4), margin=0.02) == {"found": False}
    found = _find_double_descent([0.7, 0.5, 0.52, 0.6, 0.45], [1, 2, 3, 4, 5], margin=0.02)
    assert [found[k] for k in ("first", "peak", "second")] == [2, 4, 5]
    assert [found[f"{k} error"] for k in ("first", "peak", "second")] == [0.5, 0.6, 0.45]


def test_options_round_trip_through_json():
    recipe = tiny(model="cnn")
    assert from_json(DoubleDescentRecipe, to_json(recipe)) == recipe
    assert from_json(DoubleDescentRecipe, {}) == DoubleDescentRecipe()


def test_too_large_sizes_are_rejected_before_allocation():
    with pytest.raises(ValueError, match="smallest must be at most largest, got 9 and 8"):
        tiny(smallest=9)
    with pytest.raises(ValueError, match="are supported"):
        tiny(largest=100_000, num_seeds=10).setup()
    with pytest.raises(ValueError, match="label_noise"):
        tiny(label_noise=1.5)
