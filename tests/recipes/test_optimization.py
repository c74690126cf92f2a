import math
from typing import get_args, get_type_hints

import pytest
import torch
from torch import nn

from lawful.losses.regularization import elastic_net_penalty, l1_penalty, l2_penalty
from lawful.recipes import (
    ClassifyRecipe,
    DoubleDescentRecipe,
    FlowRecipe,
    GANRecipe,
    MLPSpec,
    OptimizationConfig,
    TextRecipe,
    TransformerOptimizationConfig,
    load,
)
from lawful.recipes.optimization import RegularizationConfig
from lawful.training import train

HINTS = get_type_hints(OptimizationConfig)
OPTIMIZERS, SCHEDULES = get_args(HINTS["optimizer"]), get_args(HINTS["schedule"])
MODEL = MLPSpec(hidden_dims=(16,), dropout=0.0)
pytestmark = pytest.mark.usefixtures("no_figures")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_each_optimizer_lowers_the_loss(options, tmp_path, optimizer):
    rate = {"sgd": 0.3, "lion": 0.01, "muon": 0.02}.get(optimizer, 0.03)
    quick = options(epochs=5, optimizer=optimizer, learning_rate=rate, schedule="constant")
    lines = train(ClassifyRecipe(model=MODEL, label_smoothing=0.0, **quick), output_dir=tmp_path).metrics
    assert lines[-1]["validation/loss"] < 0.9 * lines[0]["loss"]


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_equals_torch(nesterov):
    ours, theirs = nn.Linear(2, 3), nn.Linear(2, 3)
    theirs.load_state_dict(ours.state_dict())
    config = OptimizationConfig(
        optimizer="sgd", momentum=0.9, nesterov=nesterov, learning_rate=0.1, weight_decay=0.0, schedule="constant"
    )
    pair = (
        (ours, config.build_optimizer(ours, steps=3)),
        (theirs, torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9, nesterov=nesterov)),
    )
    for _ in range(3):
        for model, optimizer in pair:
            model.zero_grad()
            model(torch.ones(4, 2)).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(ours.weight, theirs.weight)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("warmup_ratio", [None, 0.0, 0.3, 1.0])
@pytest.mark.parametrize("steps", [1, 2, 3, 50])
def test_each_schedule_is_defined_at_every_step(schedule, warmup_ratio, steps):
    if schedule == "one-cycle" and warmup_ratio is not None:
        pytest.skip("one-cycle has its own warmup")
    factor = OptimizationConfig(schedule=schedule, warmup_ratio=warmup_ratio).build_schedule(steps)
    factors = [factor(step) for step in range(steps)]
    assert all(math.isfinite(f) and 0 <= f <= 1 for f in factors)
    assert max(factors) > 0


def test_warmup_steps_equal_a_ratio():
    by_steps = OptimizationConfig(schedule="linear", warmup_steps=10).build_schedule(100)
    by_ratio = OptimizationConfig(schedule="linear", warmup_ratio=0.1).build_schedule(100)
    assert [by_steps(t) for t in range(100)] == [by_ratio(t) for t in range(100)]


def test_constant_schedule_of_a_supervised_recipe_has_no_default_warmup():
    assert ClassifyRecipe(schedule="constant").build_schedule(100)(0) == 1
    assert ClassifyRecipe(schedule="constant", warmup_steps=9).build_schedule(100)(0) == 0.1
    assert ClassifyRecipe(schedule="constant", warmup_ratio=0.09).build_schedule(100)(0) == 0.1
    assert ClassifyRecipe(schedule="linear").build_schedule(90)(0) == 0.1


@pytest.mark.parametrize("recipe", [ClassifyRecipe, DoubleDescentRecipe, FlowRecipe, GANRecipe])
def test_warmup_stable_decay_decays_by_default(recipe):
    schedule = recipe(schedule="warmup-stable-decay").build_schedule(1000)
    assert schedule(500) == 1
    assert schedule(999) < 0.1
    assert recipe(schedule="warmup-stable-decay", min_lr_ratio=0.5).build_schedule(1000)(999) > 0.5


def test_training_of_one_step(options, tmp_path):
    run = train(ClassifyRecipe(**options(epochs=1, batch_size=1000)), output_dir=tmp_path)
    assert [line["step"] for line in run.metrics] == [1]


def test_steps_and_epochs(options):
    assert ClassifyRecipe(**options(epochs=None, steps=7)).setup().steps == 7
    assert ClassifyRecipe(**options(epochs=3)).setup().steps == 3 * 4
    assert TextRecipe(epochs=3).num_steps(5) == 15
    assert DoubleDescentRecipe(steps=3).num_steps(5) == 3
    assert DoubleDescentRecipe().num_steps(5) == 2500


@pytest.mark.parametrize(
    ("recipe", "options", "message"),
    [
        (ClassifyRecipe, {"optimizer": "adamw", "momentum": 0.9}, "momentum needs optimizer=sgd or muon, got .*adamw"),
        (ClassifyRecipe, {"optimizer": "sgd", "betas": (0.8, 0.9)}, "betas needs optimizer=adamw or adam"),
        (ClassifyRecipe, {"optimizer": "sgd", "nesterov": True}, "nesterov needs momentum, got momentum=None"),
        (ClassifyRecipe, {"warmup_steps": 5}, "warmup_steps needs schedule=cosine .*, got schedule=one-cycle"),
        (ClassifyRecipe, {"schedule": "constant", "min_lr_ratio": 0.1}, "min_lr_ratio needs schedule"),
        (ClassifyRecipe, {"penalty_weight": 0.1}, "penalty_weight needs penalty=l1 or l2 or elastic-net, got .*none"),
        (ClassifyRecipe, {"steps": 5, "epochs": 5}, "steps and epochs exclude each other"),
        (DoubleDescentRecipe, {"optimizer": "adam", "momentum": 0.5}, "momentum needs optimizer=sgd or muon"),
        (DoubleDescentRecipe, {"steps": 5, "epochs": 5}, "steps and epochs exclude each other"),
        (TextRecipe, {"optimizer": "adamw", "adam_learning_rate": 0.1}, "adam_learning_rate needs optimizer=muon"),
        (TextRecipe, {"ngrams": (), "ngram_learning_rate": 0.1}, r"ngram_learning_rate needs ngrams, got ngrams=\(\)"),
    ],
    ids=str,
)
def test_options_without_effect_are_refused(recipe, options, message):
    with pytest.raises(ValueError, match=message):
        recipe(**options)


def test_defaults_of_a_recipe_do_not_exclude_another_optimizer():
    assert DoubleDescentRecipe(optimizer="adamw").momentum == 0.9
    assert FlowRecipe(optimizer="sgd").betas == (0.9, 0.99)


def test_vectors_have_no_weight_decay():
    model = nn.Linear(2, 3)
    for name in set(OPTIMIZERS) - {"muon"}:
        optimizer = OptimizationConfig(optimizer=name, learning_rate=0.1).build_optimizer(model, steps=1)
        assert [group["weight_decay"] for group in optimizer.param_groups] == [OptimizationConfig.weight_decay, 0.0]


@pytest.mark.parametrize(
    ("name", "penalty"),
    [("l1", l1_penalty), ("l2", l2_penalty), ("elastic-net", lambda w: elastic_net_penalty(w, alpha=0.5))],
)
def test_penalty_of_the_named_parameters(options, name, penalty):
    regularized = options(penalty=name, penalty_weight=0.3, penalty_params="*layers.0.weight")
    plain = ClassifyRecipe(model=MODEL, **options()).setup()
    setup = ClassifyRecipe(model=MODEL, **regularized).setup()
    plain.model.load_state_dict(setup.model.state_dict())
    batch = setup.batches.batch(0)
    metrics = setup.optimizer_steps[0].loss_fn(setup.model, batch)
    without = plain.optimizer_steps[0].loss_fn(plain.model, batch)
    added = penalty(setup.model.get_parameter("model.1.layers.0.weight"))
    torch.testing.assert_close(metrics["penalty"], added)
    before = without["objective" if "objective" in without else "loss"]
    torch.testing.assert_close(metrics["objective"], before + 0.3 * added)
    torch.testing.assert_close(metrics["loss"], without["loss"])


def test_penalty_without_a_matching_parameter_is_an_error(options):
    with pytest.raises(ValueError, match=r"no parameter matches 'layer\*': the module has \['model.1.layers.0.weight'"):
        ClassifyRecipe(model=MODEL, **options(penalty="l2", penalty_params="layer*")).setup()


def test_max_norm_holds_in_the_saved_weights(options, tmp_path):
    run = train(ClassifyRecipe(model=MODEL, **options(max_norm=0.2)), output_dir=tmp_path)
    norms = [w.norm(dim=1).max() for name, w in run.weights().items() if name.endswith("weight")]
    assert max(norms) <= 0.2001
    assert len(norms) == 2
    assert RegularizationConfig().constraint() is None


def test_gradient_clipping(options):
    assert ClassifyRecipe(**options(grad_clip_norm=0.5)).setup().optimizer_steps[0].grad_clip_norm == 0.5
    assert ClassifyRecipe(**options()).setup().optimizer_steps[0].grad_clip_norm is None


def test_the_averaged_weights_are_saved(options, tmp_path):
    """The average is behind the last weights, but nearer to them than the initial ones."""
    rate = {"learning_rate": 0.1, "schedule": "constant"}
    plain = train(ClassifyRecipe(model=MODEL, **options(**rate)), output_dir=tmp_path).weights()
    averaged = train(ClassifyRecipe(model=MODEL, **options(**rate, ema_decay=0.99999)), output_dir=tmp_path).weights()
    torch.manual_seed(0)
    name = "model.1.layers.0.weight"
    initial = ClassifyRecipe(model=MODEL, **options()).setup().model.state_dict()[name]
    assert 0 < (averaged[name] - plain[name]).norm() < 0.7 * (initial - plain[name]).norm()


def test_patience_stops_and_restores_the_best_weights(options, tmp_path, table):
    """Random labels are memorized, so that the validation loss soon rises."""
    data = table(change=lambda rows: [(*row[:3], rows[7 * i % 60 // 4][3]) for i, row in enumerate(rows)])
    quick = options(data=data, epochs=50, patience=3, learning_rate=0.03, schedule="constant")
    recipe = ClassifyRecipe(model=MLPSpec(dropout=0.0), **quick)
    run = train(recipe, output_dir=tmp_path)
    losses = [line["validation/loss"] for line in run.metrics if "validation/loss" in line]
    assert len(losses) < 50
    assert min(losses) not in losses[-3:]
    validation = recipe.load_splits("classify").validation
    with torch.no_grad():
        loss = nn.functional.cross_entropy(load(run)(validation.inputs), validation.targets)
    assert float(loss) == pytest.approx(min(losses), rel=1e-5)


def test_patience_needs_validation_data(options):
    with pytest.raises(ValueError, match="patience needs validation_fraction"):
        ClassifyRecipe(**options(patience=2, validation_fraction=0.0)).setup()


def test_gradient_accumulation_gives_the_same_gradient(options, tmp_path):
    model = MLPSpec(dropout=0.0)
    whole, parts = (
        train(ClassifyRecipe(model=model, **options(grad_accumulation_steps=n)), output_dir=tmp_path).weights()
        for n in (1, 5)
    )
    for name in whole:
        torch.testing.assert_close(whole[name], parts[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("epochs", 0, "epochs must be"),
        ("batch_size", 0, "batch_size must be"),
        ("learning_rate", -1.0, "learning_rate must be"),
        ("learning_rate", math.nan, "learning_rate must be a finite number"),
        ("optimizer", "adamax", "optimizer must be one of adamw, adam,"),
        ("ema_decay", 1.0, "ema_decay must be"),
        ("nesterov", 1, "nesterov must be .* got 1"),
        ("betas", (0.9,), "betas"),
    ],
)
def test_invalid_options_are_an_error(field, value, message):
    with pytest.raises(ValueError, match=message):
        OptimizationConfig(**{field: value})


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.layers = nn.Embedding(5, 3), nn.ModuleList([nn.Linear(3, 3)])
        self.ngrams, self.head = nn.ModuleList([nn.Embedding(7, 3)]), nn.Linear(3, 5)


def rates(config):
    model = Tiny()
    names = {id(p): name for name, p in model.named_parameters()}
    groups = config.build_optimizer(model, steps=40).param_groups
    return {names[id(p)]: (group["optimizer"], group["lr"]) for group in groups for p in group["params"]}


def test_learning_rates_of_a_transformer():
    muon = rates(TransformerOptimizationConfig())
    assert muon["layers.0.weight"] == ("muon", 0.02)
    assert {muon[name] for name in ("embedding.weight", "ngrams.0.weight", "head.weight")} == {("adamw", 0.01)}
    assert set(rates(TransformerOptimizationConfig(optimizer="adamw")).values()) == {("adamw", 0.01)}
    text = rates(TextRecipe())
    assert text["ngrams.0.weight"] == ("adamw", 0.03)
    assert text["head.weight"] == ("adamw", 0.02)


def test_explicit_learning_rate_of_adamw_applies_to_all_parameters():
    assert set(rates(TextRecipe(optimizer="adamw", learning_rate=3e-4)).values()) == {("adamw", 3e-4)}
    head = rates(TextRecipe(optimizer="adamw", learning_rate=3e-4, head_learning_rate=1e-3))
    assert head["head.weight"] == ("adamw", 1e-3)


def test_momentum_warmup():
    config = TransformerOptimizationConfig(momentum=0.9, momentum_warmup_ratio=0.25)
    group = config.build_optimizer(Tiny(), steps=40).param_groups[0]
    assert (group["momentum"], group["initial_momentum"], group["warmup_steps"]) == (0.9, pytest.approx(0.8), 10)
    constant = TransformerOptimizationConfig(momentum=0.9).build_optimizer(Tiny(), steps=40).param_groups[0]
    assert constant["momentum"] == 0.9
    assert "warmup_steps" not in constant
