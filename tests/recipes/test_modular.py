import pytest
import torch

from lawful._json import to_json
from lawful.losses.regularization import affine_layers
from lawful.recipes import load
from lawful.recipes.modular import _TASKS, ModularRecipe
from lawful.training import Run, from_json, train


def tiny(**options):
    small = {"hidden_dims": (6, 5), "steps": 40, "num_examples": 10, "swap_every": 8}
    return ModularRecipe(**small | {"threads": 1, "law_cases": 0} | options)


def test_formulas_equal_the_paper():
    x = torch.tensor([[0.5], [-0.25], [1.0], [0.5]])
    for name, expected in (
        ("independence", [1.5**3, 0.0625 + 1.0]),
        ("feature-sharing", [0.25, 0.3125, 1.3125]),
        ("compositionality", [(0.75**2 + 0.5**2) ** 0.5]),
    ):
        task = _TASKS[name]
        found = torch.stack(task.values(x[: task.in_dim]))[:, 0]
        torch.testing.assert_close(found, torch.tensor(expected))
        assert len(task.formulas) == len(expected)


def test_several_networks_are_averaged(tmp_path):
    run = train(tiny(num_members=2), output_dir=tmp_path)
    members = [Run(path) for path in sorted((run.path / "members").iterdir())]
    assert [member.config["options"]["seed"] for member in members] == [0, 1]
    x = torch.rand(5, 4)
    with torch.no_grad():
        each = torch.stack([load(member)(x) for member in members])
        torch.testing.assert_close(load(run)(x), each.mean(0))
    assert not torch.equal(each[0], each[1])
    assert run.results["members"] == 2
    assert set(run.results["test loss"]) == {"value", "low", "high"}


def test_the_penalty_rises_at_a_quarter_and_falls_at_three_quarters():
    recipe = ModularRecipe(steps=100, locality_penalty=1e-3)
    assert [recipe._penalty_weight(step, 100) for step in (0, 24, 25, 74, 75)] == pytest.approx(
        [1e-3, 1e-3, 1e-2, 1e-2, 1e-3]
    )
    far = ModularRecipe(task="compositionality", steps=100)
    assert [far._penalty_weight(step, 100) for step in (0, 25, 75)] == pytest.approx([1e-3, 3e-3, 3e-3])


@pytest.mark.parametrize("task", _TASKS)
def test_run_writes_the_network_diagram_and_losses(task, tmp_path):
    run = train(tiny(task=task, layout="grid"), output_dir=tmp_path)
    assert (run.figures / "network.png").stat().st_size > 10_000
    results = run.results
    assert results["published test loss, 100 examples"] == _TASKS[task].published
    assert results["test loss"]["low"] <= results["test loss"]["value"] <= results["test loss"]["high"]
    assert results["penalty"]["after"] < results["penalty"]["before"]
    assert f"the published one is {_TASKS[task].published:.4g}" in results["summary"]
    model = tiny(task=task, layout="grid").build_model({})
    model.load_state_dict(run.weights())
    assert int(model.steps) == 40


@pytest.mark.parametrize("step", [pytest.param(7, marks=pytest.mark.long), 8, pytest.param(13, marks=pytest.mark.long)])
def test_resumed_run_equals_an_uninterrupted_one(tmp_path, stop_at, step):
    """Stopped before, at and after a swap of neurons."""
    whole = train(tiny(), output_dir=tmp_path)
    begun = train(tiny(), output_dir=tmp_path, loggers=[stop_at(step)])
    assert not begun.results
    again = train(tiny(), output_dir=tmp_path, resume=begun)
    for name, weight in whole.weights().items():
        assert torch.equal(weight, again.weights()[name]), name
    for name in ("test loss", "penalty", "connections"):
        assert again.results[name] == whole.results[name]


def test_swaps_permute_inputs_and_outputs():
    training = tiny(steps=8, swap_every=1).setup()
    for _ in range(8):
        training.constrain(training.model)
    assert training.model.inputs.tolist() != [0, 1, 2, 3] or training.model.outputs.tolist() != [0, 1]
    x = training.data.train[0]
    torch.testing.assert_close(training.model(x), training.data.initial_model(x))
    assert training.model.locality() < training.data.initial_model.locality()


def test_options_round_trip_through_json():
    recipe = tiny(task="compositionality", distance_order=2)
    assert from_json(ModularRecipe, to_json(recipe)) == recipe
    assert from_json(ModularRecipe, {}) == ModularRecipe()


def test_swaps_cannot_run_sharded():
    with pytest.raises(ValueError, match="swap_every=0"):
        tiny(parallel="sharded")
    assert tiny(parallel="sharded", swap_every=0).swap_every == 0


def test_too_large_sizes_are_rejected_before_allocation():
    with pytest.raises(ValueError, match="are supported"):
        tiny(hidden_dims=(10_000,) * 50).setup()
    with pytest.raises(ValueError, match="hidden"):
        tiny(hidden_dims=(0,))


@pytest.mark.long
def test_connections_become_sparse():
    training = ModularRecipe(steps=3000, threads=1).setup()
    turn, model = training.optimizer_steps[0], training.model
    for step in range(training.steps):
        loss = turn.loss_fn(model, training.batches.batch(step))
        loss["loss"].backward()
        turn.optimizer.step()
        model.zero_grad()
        training.constrain(model)
    large = sum(int((layer.weight.abs() > 0.01 * layer.weight.abs().max()).sum()) for layer in affine_layers(model))
    assert large < 100
    assert loss["error"].item() < 0.1
