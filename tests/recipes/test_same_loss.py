"""Training and validation metrics of one name share a plot, so they are the same quantity."""

import pytest
import torch

from lawful.recipes import (
    AutoencodeRecipe,
    ClassifyRecipe,
    GaussianCorruptionSpec,
    GaussianLatentSpec,
    MLPVAESpec,
    RegressRecipe,
    VAERecipe,
)

SUPERVISED = {
    "label smoothing": ClassifyRecipe(data="iris", model="mlp", label_smoothing=0.3),
    "classification with a penalty": ClassifyRecipe(data="iris", model="mlp", penalty="l2", penalty_weight=0.1),
    "regression with a penalty": RegressRecipe(data="diabetes", model="mlp", penalty="l1", penalty_weight=0.1),
}


@pytest.mark.parametrize("recipe", SUPERVISED.values(), ids=SUPERVISED)
def test_supervised_losses(recipe):
    torch.manual_seed(0)
    setup = recipe.setup()
    model, validation = setup.model.eval(), setup.data.validation
    metrics = setup.optimizer_steps[0].loss_fn(model, (validation.inputs, validation.targets))
    evaluated = setup.evaluate(model)
    assert abs(float(metrics["objective"].detach()) - float(metrics["loss"].detach())) > 1e-4
    for name in metrics.keys() & evaluated.keys():
        assert float(metrics[name].detach()) == pytest.approx(evaluated[name], rel=1e-5), name


def test_metrics_of_adversarial_inputs_have_their_own_names():
    setup = ClassifyRecipe(data="iris", adversarial_eps=0.1, adversarial_steps=1).setup()
    metrics = setup.optimizer_steps[0].loss_fn(setup.model.train(), setup.batches.batch(0))
    assert metrics.keys() == {"objective", "adversarial_accuracy"}


VAE = {"data": "iris", "model": MLPVAESpec(hidden_dims=(8,)), "latent": GaussianLatentSpec(latent_dim=4)}
GENERATIVE = {
    "beta": (VAERecipe(beta=4.0, **VAE), {"objective"}),
    "free bits": (VAERecipe(free_bits=1.0, **VAE), {"objective"}),
    "elbo": (VAERecipe(**VAE), {"loss"}),
    "denoising": (AutoencodeRecipe(data="iris", latent_dim=2, corruption=GaussianCorruptionSpec()), {"objective"}),
    "clean": (AutoencodeRecipe(data="iris", latent_dim=2), {"loss"}),
}


@pytest.mark.parametrize(("recipe", "names"), GENERATIVE.values(), ids=GENERATIVE)
def test_generative_losses(recipe, names):
    torch.manual_seed(0)
    setup = recipe.setup()
    x = setup.data.evaluation
    with torch.no_grad():
        outputs = [setup.optimizer_steps[0].loss_fn(setup.model.train(), (x,)) for _ in range(100)]
        evaluated = [setup.evaluate(setup.model.eval()) for _ in range(2)]
    outputs = [{"loss": value} if isinstance(value, torch.Tensor) else value for value in outputs]
    assert outputs[0].keys() == names
    assert evaluated[0] == evaluated[1]
    assert evaluated[0].keys() == names | {"loss"}
    for name in names:
        values = torch.stack([output[name] for output in outputs])
        tolerance = 6 * float(values.std()) + 1e-5
        assert float(values.mean()) == pytest.approx(evaluated[0][name], abs=tolerance)
