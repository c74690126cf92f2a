import json

import pytest
import torch
from safetensors.torch import save_file

from lawful.cli.train import parse_recipe
from lawful.recipes import RECIPES, ClassifyRecipe, MLPSpec, load, recipe_of
from lawful.training import Run, build_recipe, train
from lawful.training.registry import _ALIASES, _RELATED
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
        assert kind.__doc__.startswith(("Train", "Fit", "Find", "Attack", "Forecast"))


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
        (lambda c: c["options"]["model"].update(name="resnet"), "options.model.name must be one of .*mlp, cnn"),
        (lambda c: c["options"].update(model="mlp"), "options.model.name must be one of .*mlp, cnn"),
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


# ---------------------------------------------------------------- flat options

FLAT = [
    (
        "text",
        {"data": "book.txt", "lr": 1e-3, "layers": 3, "heads": 4, "d_model": 64, "block_size": 32, "bs": 8, "wd": 0.1}
        | {"max_steps": 7, "grad_clip": 1.0, "ema": 0.9, "tokenizer": "bpe", "vocab_size": 300},
        {"learning_rate": 1e-3, "num_layers": 3, "num_heads": 4, "dim": 64, "context_length": 32, "batch_size": 8}
        | {"weight_decay": 0.1, "steps": 7, "grad_clip_norm": 1.0, "ema_decay": 0.9, "tokenizer.vocab_size": 300},
    ),
    (
        "classify",
        {"model": "mlp", "hidden_dims": (64, 64), "dropout": 0.5, "test_size": 0.3, "epochs": 5},
        {"model.hidden_dims": (64, 64), "model.dropout": 0.5, "test_fraction": 0.3, "epochs": 5},
    ),
    ("classify", {"model": "cnn", "channels": 8, "layers": 2}, {"model.channels": 8, "model.num_layers": 2}),
    (
        "vae",
        {"latent": "categorical", "num_categories": 4, "z_dim": 3},
        {"latent.num_categories": 4, "latent.latent_dim": 3},
    ),
]


def words(options):
    """Options as arguments of the command line."""
    for name, value in options.items():
        yield f"--{name.replace('_', '-')}"
        yield from map(str, value if isinstance(value, tuple) else (value,))


@pytest.mark.parametrize(("name", "options", "expected"), FLAT, ids=lambda value: str(value))
def test_flat_options_are_those_of_the_command_line(name, options, expected):
    recipe = build_recipe(name, options)
    for path, value in expected.items():
        found = recipe
        for attribute in path.split("."):
            found = getattr(found, attribute)
        assert found == value, path
    parsed, _ = parse_recipe(RECIPES[name], list(words(options)))
    assert parsed == recipe


def test_lists_and_paths_are_options(tmp_path):
    recipe = build_recipe("classify", {"data": tmp_path / "own.csv", "model": "mlp", "hidden_dims": [8, 8]})
    assert recipe == ClassifyRecipe(data=str(tmp_path / "own.csv"), model=MLPSpec(hidden_dims=(8, 8)))


def test_the_name_of_a_model_stands_for_its_defaults():
    assert ClassifyRecipe(model="mlp") == ClassifyRecipe(model=MLPSpec())
    with pytest.raises(ValueError, match=r"model must be .*MLPSpec or .*, got 'mpl'"):
        ClassifyRecipe(model="mpl")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("txt", {}, "unknown recipe 'txt': did you mean text?"),
        ("images", {}, "unknown recipe 'images'. Recipes: classify, regress, text, "),
        ("text", {"stepz": 5}, "recipe text has no option stepz: did you mean steps?"),
        ("text", {"eval_every": 5}, "recipe text has no option eval_every: use num_evals"),
        ("text", {"test_size": 0.2}, "recipe text has no option test_size: use validation_fraction"),
        ("text", {"name": "mine"}, "recipe text has no option name"),
        ("text", {"lr": 0.1, "learning_rate": 0.2}, "learning_rate is set twice"),
        ("text", {"steps": "many"}, "steps must be an integer"),
        ("classify", {"model": "mlp", "channels": 3}, "channels needs model cnn, got model mlp"),
        ("classify", {"model": "mlp", "layers": 3}, "layers needs model cnn or state-space, got model mlp"),
        ("classify", {"model": "resnet"}, "model must be one of .*mlp, cnn, logistic.*, got 'resnet'"),
        ("classify", {"hiden_dims": (3,)}, "did you mean hidden_dims?"),
    ],
    ids=str,
)
def test_unknown_options_are_an_error_that_names_the_nearest(name, options, message):
    with pytest.raises(ValueError, match=message):
        build_recipe(name, options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--stepz 5", "no option --stepz: did you mean --steps?"),
        ("--eval-every 5", "no option --eval-every: use --num-evals"),
        ("--name mine", "no option --name: use --output-dir"),
        ("--vocab-size 300", "--vocab-size needs --tokenizer bpe, got --tokenizer auto"),
    ],
    ids=str,
)
def test_unknown_flags_are_an_error_that_names_the_nearest(arguments, message):
    with pytest.raises(ValueError, match=message):
        parse_recipe(RECIPES["text"], arguments.split())


def test_other_names_are_of_options_that_exist():
    names = {field for kind in RECIPES.values() for field in kind.__dataclass_fields__}
    names |= {"output_dir", "num_neighbors", "hidden_dims", "channels"}  # of the command line and of models
    targets = {target for targets in (*_ALIASES.values(), *_RELATED.values()) for target in targets}
    assert targets <= names
    assert not set(_ALIASES) & names


def test_train_takes_the_name_of_a_recipe(tmp_path):
    run = train("classify", data="iris", model="mlp", hidden_dims=[4], epochs=1, output_dir=tmp_path, **TRAINER)
    expected = ClassifyRecipe(data="iris", model=MLPSpec(hidden_dims=(4,)), epochs=1, **TRAINER)
    assert recipe_of(run) == expected
    assert train(resume=run).results == run.results


def test_train_without_a_recipe_is_an_error():
    with pytest.raises(TypeError, match="needs a recipe, or the run to resume"):
        train()
    with pytest.raises(TypeError, match="takes steps only with the name of a recipe"):
        train(ClassifyRecipe(data="iris"), steps=5)
