import json

import pytest
import torch
from safetensors.torch import save_file

from lawful.recipes import RECIPES, ClassifyRecipe, MLPSpec, load, recipe_of
from lawful.training import Run, train
from tests.recipes.conftest import TRAINER

pytestmark = pytest.mark.usefixtures("no_figures")


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory):
    """A recipe and its run."""
    recipe = ClassifyRecipe(model=MLPSpec(hidden_dims=(4,)), data="iris", epochs=1, **TRAINER)
    return recipe, train(recipe, output_dir=tmp_path_factory.mktemp("trained"))


@pytest.fixture
def copy_with_config(trained_run, tmp_path):
    """Copies the run with a changed configuration."""

    def change(edit):
        config = json.loads((trained_run[1].path / "config.json").read_text())
        edit(config)
        (tmp_path / "config.json").write_text(json.dumps(config))
        save_file(trained_run[1].weights(), tmp_path / "model.safetensors")
        return Run(tmp_path)

    return change


def test_recipe_of_a_run(trained_run):
    recipe, run = trained_run
    assert recipe_of(run) == recipe_of(Run(run.path)) == recipe


def test_every_recipe_has_a_name_and_a_summary():
    for name, kind in RECIPES.items():
        assert kind.name == name
        assert kind.__doc__.startswith(("Train", "Fit", "Attack"))


def test_loading_preserves_the_random_state(trained_run):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    model = load(trained_run[1].path)
    assert torch.equal(torch.get_rng_state(), before)
    assert not model.training


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda c: c.update(recipe="clasify"), "unknown recipe 'clasify'.*classify"),
        (lambda c: c.update(recipe=None), "was trained from Python without a recipe"),
        (lambda c: c.update(recipe=["classify"]), "unknown recipe"),
        (lambda c: c["options"].update(epoch=3), "options has .* 'epoch'.*did you mean"),
        (lambda c: c["options"]["model"].update(hiden_dims=[3]), "options.model has .* 'hiden_dims'.*did you mean"),
        (lambda c: c["options"]["model"].update(name="resnet"), "options.model.name must be one of mlp, cnn"),
        (lambda c: c["options"].update(model="mlp"), "options.model.name must be one of mlp, cnn"),
        (lambda c: c["options"].update(epochs="3"), "options.epochs must be an integer"),
        (lambda c: c["options"]["model"].update(hidden_dims=[10**9]), r"options.model.hidden_dims\[0\] must be"),
        (lambda c: c.update(options=[]), "options must be an object with the fields of ClassifyRecipe"),
        (lambda c: c["model"]["example_spec"].update(shape=[10**8, 10**8]), "at most 2,000,000,000"),
        (lambda c: c["model"]["example_spec"].update(out_dim=4), "do not fit its configuration"),
        (
            lambda c: c["model"].pop("example_spec"),
            "model.example_spec must be an object with the fields of ExampleSpec",
        ),
        (lambda c: c.update(model=3), "model.example_spec must be an object"),
    ],
)
def test_invalid_configurations_are_an_error(copy_with_config, edit, message):
    run = copy_with_config(edit)
    with pytest.raises(ValueError, match=message):
        load(run)
