import json

import pytest
import torch
from safetensors.torch import save_file

from lawful.recipes import RECIPES, ClassifyRecipe, load, recipe_of
from lawful.training import Run, train

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A trained run, to be altered in copies."""
    from lawful.recipes.data import SupervisedData
    from lawful.recipes.optimization import Learning
    from tests.recipes.conftest import ENGINE

    recipe = ClassifyRecipe(
        model="logistic", given=SupervisedData(data="iris"), learning=Learning(epochs=1), engine=ENGINE
    )
    return recipe, train(recipe, folder=tmp_path_factory.mktemp("made"))


@pytest.fixture
def altered(made, tmp_path):
    """Copies the run with a change to its configuration."""

    def change(act):
        held = json.loads((made[1].path / "config.json").read_text())
        act(held)
        (tmp_path / "config.json").write_text(json.dumps(held))
        save_file(made[1].weights(), tmp_path / "model.safetensors")
        return Run(tmp_path)

    return change


def test_a_recipe_comes_back_from_its_run(made):
    recipe, run = made
    assert recipe_of(run) == recipe_of(Run(run.path)) == recipe


def test_every_recipe_has_its_name_and_a_sentence():
    for name, kind in RECIPES.items():
        assert kind.name == name
        assert kind.__doc__.startswith(("Train", "Show", "Attack"))


def test_loading_leaves_the_random_state_alone(made):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    model = load(made[1].path)
    assert torch.equal(torch.get_rng_state(), before)
    assert not model.training


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (lambda c: c.update(recipe="clasify"), "config.json names no recipe: got 'clasify'; did you mean 'classify'?"),
        (lambda c: c.update(recipe=None), "was trained from Python, without a recipe"),
        (lambda c: c.update(recipe=["classify"]), "config.json names no recipe"),
        (lambda c: c["options"].update(hiden=[3]), "options has no field 'hiden': did you mean 'hidden'?"),
        (lambda c: c["options"]["learning"].update(epoch=3), "options.learning has no field 'epoch': did you mean"),
        (lambda c: c["options"].update(model="resnet"), "options.model is one of mlp, cnn"),
        (lambda c: c["options"]["learning"].update(epochs="3"), "options.learning.epochs is a whole number"),
        (lambda c: c["options"].update(hidden=[10**9]), r"options.hidden\[0\] is from 1 to 1e\+06"),
        (lambda c: c.update(options=[]), "options is an object with the fields of Classify"),
        (lambda c: c["model"]["sizes"].update(shape=[10**8, 10**8]), "at most 2,000,000,000 weights"),
        (lambda c: c["model"]["sizes"].update(outputs=4), "do not fit its configuration"),
        (lambda c: c["model"].pop("sizes"), "model.sizes is an object with the fields of Sizes"),
        (lambda c: c.update(model=3), "model.sizes is an object"),
    ],
)
def test_a_configuration_that_nobody_vouches_for(altered, act, sentence):
    run = altered(act)
    with pytest.raises(ValueError, match=sentence.replace("?", r"\?")):
        load(run)
