import math
from typing import get_args, get_type_hints

import pytest
import torch

from lawful.losses.regularization import elastic_net, l1, l2
from lawful.recipes import ClassifyRecipe, load
from lawful.recipes.optimization import Learning
from lawful.training import train

HINTS = get_type_hints(Learning)
OPTIMIZERS, SCHEDULES = get_args(HINTS["optimizer"]), get_args(HINTS["schedule"])
pytestmark = pytest.mark.usefixtures("undrawn")


def first_and_last(run):
    lines = run.metrics()
    return lines[0], lines[-1]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_each_optimizer_lowers_the_loss(options, tmp_path, optimizer):
    rate = {"sgd": 0.3, "momentum": 0.3, "lion": 0.01, "muon": 0.02}.get(optimizer, 0.03)
    learning = options(epochs=5, optimizer=optimizer, learning_rate=rate, schedule="constant")
    recipe = ClassifyRecipe(hidden=(16,), dropout=0.0, smoothing=0.0, **learning)
    first, last = first_and_last(train(recipe, folder=tmp_path))
    assert last["validation/loss"] < 0.9 * first["loss"]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("warmup", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("steps", [1, 2, 3, 50])
def test_each_schedule_has_a_factor_for_every_step(schedule, warmup, steps):
    factor = Learning(schedule=schedule, warmup=warmup).schedule_of(steps)
    found = [factor(step) for step in range(steps)]
    assert all(math.isfinite(f) and 0 <= f <= 1 for f in found)
    assert max(found) > 0


def test_one_step_is_a_training(options, tmp_path):
    run = train(ClassifyRecipe(**options(epochs=1, batch=1000)), folder=tmp_path)
    assert [line["step"] for line in run.metrics()] == [1]


def test_vectors_are_not_pulled_to_0():
    model = torch.nn.Linear(2, 3)
    for optimizer in set(OPTIMIZERS) - {"muon"}:
        made = Learning(optimizer=optimizer, learning_rate=0.1).optimizer_of(model)
        assert [group["decay"] for group in made.param_groups] == [Learning.weight_decay, 0.0]


@pytest.mark.parametrize(("name", "rho"), [("l1", l1), ("l2", l2), ("elastic", lambda w: elastic_net(w, alpha=0.5))])
def test_the_penalty_is_added_for_the_layers_that_are_named(options, name, rho):
    learning = {"penalty": name, "penalty_weight": 0.3, "penalty_on": "*layers.0.weight"}
    plain = ClassifyRecipe(hidden=(4,), dropout=0.0, **options()).training()
    torch.manual_seed(0)
    training = ClassifyRecipe(hidden=(4,), dropout=0.0, **options(**learning)).training()
    plain.model.load_state_dict(training.model.state_dict())
    batch = training.batches.batch(0)
    figures = training.turns[0].objective(training.model, batch)
    without = plain.turns[0].objective(plain.model, batch)
    added = rho(training.model.get_parameter("model.1.layers.0.weight"))
    torch.testing.assert_close(figures["penalty"], added)
    torch.testing.assert_close(figures["loss"], without["loss"] + 0.3 * added)


def test_a_penalty_on_nothing_is_refused_before_the_first_step(options):
    with pytest.raises(
        ValueError, match=r"no parameter is named 'layer\*': the module has \['model.1.layers.0.weight'"
    ):
        ClassifyRecipe(**options(penalty="l2", penalty_on="layer*")).training()


def test_max_norm_holds_in_the_weights_that_are_kept(options, tmp_path):
    run = train(ClassifyRecipe(**options(max_norm=0.2)), folder=tmp_path)
    norms = [w.norm(dim=1).max() for name, w in run.weights().items() if name.endswith("weight")]
    assert max(norms) <= 0.2001
    assert len(norms) == 2


def test_a_clipped_gradient_is_no_longer_than_the_bound(options):
    assert ClassifyRecipe(**options(clip=0.5)).training().turns[0].clip == 0.5
    assert ClassifyRecipe(**options()).training().turns[0].clip is None


def test_the_moving_average_is_what_is_kept(options, tmp_path):
    """With a decay of almost 1 the kept weights hardly leave where they began; the last weights do."""
    rate = {"learning_rate": 0.1, "schedule": "constant"}
    plain = train(ClassifyRecipe(**options(**rate)), folder=tmp_path).weights()
    kept = train(ClassifyRecipe(**options(**rate, average=0.99999)), folder=tmp_path).weights()
    torch.manual_seed(0)
    name = "model.1.layers.0.weight"
    before = ClassifyRecipe(**options()).training().model.state_dict()[name]
    assert (kept[name] - before).norm() < 0.01 * (plain[name] - before).norm()


def test_patience_ends_the_training_and_puts_the_best_weights_back(options, tmp_path, table):
    """Labels without a reason are learnt by heart, and the validation loss soon rises."""
    data = table(change=lambda rows: [(*row[:3], rows[7 * i % 60 // 4][3]) for i, row in enumerate(rows)])
    learning = options(data=data, epochs=50, patience=3, learning_rate=0.03, schedule="constant")
    recipe = ClassifyRecipe(dropout=0.0, **learning)
    run = train(recipe, folder=tmp_path)
    losses = [line["validation/loss"] for line in run.metrics() if "validation/loss" in line]
    assert len(losses) < 50
    assert min(losses) not in losses[-3:]
    validation = recipe.given.parts("classify").validation
    with torch.no_grad():
        found = torch.nn.functional.cross_entropy(load(run)(validation.inputs), validation.targets)
    assert float(found) == pytest.approx(min(losses), rel=1e-5)


def test_patience_wants_examples_to_choose_by(options):
    with pytest.raises(ValueError, match="give validation a share above 0"):
        ClassifyRecipe(**options(patience=2, given={"validation": 0.0})).training()


def test_parts_of_a_batch_give_the_gradient_of_the_whole(options, tmp_path):
    whole, parts = (
        train(ClassifyRecipe(dropout=0.0, **options(accumulate=a)), folder=tmp_path).weights() for a in (1, 5)
    )
    for name in whole:
        torch.testing.assert_close(whole[name], parts[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("epochs", 0, "epochs is from 1 to"),
        ("batch", 0, "batch is from 1 to"),
        ("learning_rate", -1.0, "learning_rate is from 0 to"),
        ("learning_rate", math.nan, "learning_rate is a finite number"),
        ("optimizer", "adamax", "optimizer is one of adamw, adam,"),
        ("average", 1.0, "average is from 0 to"),
        ("members", 0, "members is from 1 to"),
        ("bagging", 1, "bagging is true or false: got 1"),
    ],
)
def test_values_out_of_bounds(field, value, sentence):
    with pytest.raises(ValueError, match=sentence):
        Learning(**{field: value})
