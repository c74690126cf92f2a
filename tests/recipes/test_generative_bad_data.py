"""Bad data give a clear error in every latent-variable and GAN recipe."""

import numpy as np
import pytest

from lawful.recipes.autoencode import AutoencodeRecipe
from lawful.recipes.gan import GANRecipe
from lawful.recipes.vae import VAERecipe
from lawful.training import train

RECIPES = pytest.mark.parametrize("kind", [AutoencodeRecipe, GANRecipe, VAERecipe])
TRAINER = {"threads": 1, "law_cases": 0}


def save_array(tmp_path, x):
    np.save(tmp_path / "x.npy", x)
    return str(tmp_path / "x.npy")


@RECIPES
@pytest.mark.parametrize(
    ("x", "options", "said"),
    [
        (np.array([[1.0, np.nan], [2.0, 3.0], [0.0, 1.0]]), {}, "x.npy.*(NaN|finite)"),
        (np.array([[1.0, np.inf], [2.0, 3.0], [0.0, 1.0]]), {}, "x.npy.*(infinite|finite)"),
        (np.ones((20, 3)), {}, "are equal"),
        (np.ones((1, 3)), {}, "has 1 observations, at least 3 are needed"),
        (np.zeros((0, 3)), {}, "x.npy is empty"),
        (np.arange(60.0).reshape(20, 3) * 4, {"value_range": (0.0, 1.0)}, "these look like 8-bit values"),
    ],
    ids=["nan", "infinite", "constant", "one", "empty", "range"],
)
def test_bad_data_raise(tmp_path, kind, x, options, said):
    with pytest.raises(ValueError, match=said):
        kind(data=save_array(tmp_path, x), **options).setup()


@RECIPES
def test_no_steps_are_refused(kind):
    with pytest.raises(ValueError, match="steps"):
        kind(steps=0)


@RECIPES
def test_constant_column_gives_a_warning(tmp_path, kind):
    x = np.random.default_rng(0).normal(size=(30, 3))
    x[:, 1] = 7
    recipe = kind(data=save_array(tmp_path, x), steps=2, **TRAINER)
    found = train(recipe, output_dir=tmp_path).results
    assert any("1 of 3 features are constant" in note for note in found["warnings"])


def test_gan_needs_at_least_2_validation_examples(tmp_path):
    x = np.random.default_rng(0).normal(size=(12, 3))
    with pytest.raises(ValueError, match="at least 2 observations to compare samples with, got 1"):
        GANRecipe(data=save_array(tmp_path, x)).setup()
