import os
import signal
from dataclasses import replace

import pytest
import torch

from lawful import _json
from lawful.inference import predict
from lawful.recipes import (
    AutoRegressorSpec,
    AutoSpec,
    ClassifyRecipe,
    ExampleSpec,
    KNNSpec,
    MLPRegressorSpec,
    MLPSpec,
    RegressRecipe,
    ThresholdedSpec,
    load,
    predictions,
    recipe_of,
)
from lawful.recipes.data import SupervisedDataConfig
from lawful.recipes.supervised import _column_lines
from lawful.training import Run, TrainerConfig, TrainingFailed, train

SMALL = MLPSpec(hidden_dims=(8,), dropout=0.0)
pytestmark = pytest.mark.usefixtures("no_figures")


class StopAfter:
    """A logger that sends SIGINT at the n-th step that it logs."""

    def __init__(self, after):
        self.left = after

    def start(self, run, setup):
        pass

    def log(self, step, metrics):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)

    def close(self):
        pass


def members(run):
    return [Run(path) for path in sorted((run.path / "members").iterdir())]


@pytest.mark.parametrize("combine", ["probabilities", "log-probabilities"])
def test_an_ensemble_is_the_average_of_its_members(options, tmp_path, combine):
    recipe = ClassifyRecipe(model=SMALL, **options(num_members=3, combine_with=combine, learning_rate=0.1))
    run = train(recipe, output_dir=tmp_path)
    x = recipe.load_splits("classify").test.inputs
    each = torch.stack([predict(load(member), x) for member in members(run)])
    together = each.mean(0) if combine == "probabilities" else each.log().mean(0).softmax(-1)
    torch.testing.assert_close(predict(load(run), x), together, rtol=1e-4, atol=1e-6)
    assert [member.config["options"]["seed"] for member in members(run)] == [0, 1, 2]
    assert not torch.equal(each[0], each[1])
    assert run.results["members"] == 3
    assert run.report.is_file()


def test_ensemble_log_lists_each_member_with_its_result(options, tmp_path):
    run = train(ClassifyRecipe(model=MLPSpec(hidden_dims=(4,)), **options(num_members=2)), output_dir=tmp_path)
    said = run.log.read_text()
    for number, member in enumerate(members(run), 1):
        assert f"member {number} of 2, seed {number - 1}" in said
        accuracy = member.results["test"]["accuracy"]["value"]
        assert f"{member.path}: Finished after" in said
        assert f"test accuracy {accuracy:.4g}" in said
    each = [member.metrics for member in members(run)]
    assert [line["step"] for line in run.metrics] == [line["step"] for line in each[0]]
    for line, one, other in zip(run.metrics, *each, strict=True):
        assert line["loss"] == pytest.approx((one["loss"] + other["loss"]) / 2)
        assert line["time"] == pytest.approx(one["time"] + other["time"])
    assert "validation/accuracy" in run.metrics[-1]
    assert "There are no metrics yet" not in run.report.read_text()


def test_ensemble_cannot_run_distributed(options, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(TrainingFailed, match="ensemble"):
        train(ClassifyRecipe(**options(num_members=2)), output_dir=tmp_path)


def test_resuming_needs_the_same_options(options, tmp_path):
    for count in (1, 2):
        run = train(ClassifyRecipe(label_smoothing=0.1, **options(num_members=count)), output_dir=tmp_path)
        with pytest.raises(TrainingFailed, match="label_smoothing"):
            train(ClassifyRecipe(label_smoothing=0.2, **options(num_members=count)), resume=run)


def test_trainer_argument_is_saved_in_the_config(options, tmp_path):
    run = train(ClassifyRecipe(**options()), trainer=TrainerConfig(threads=1, law_cases=0, seed=7), output_dir=tmp_path)
    assert run.config["options"]["seed"] == 7


def test_regression_members_are_averaged(options, tmp_path):
    run = train(
        RegressRecipe(model=MLPRegressorSpec(hidden_dims=(8,)), **options(data="sine", num_members=2)),
        output_dir=tmp_path,
    )
    x = torch.linspace(-1, 1, 5)[:, None]
    with torch.no_grad():
        each = torch.stack([load(member)(x) for member in members(run)])
        torch.testing.assert_close(load(run)(x), each.mean(0))


def test_bagging_gives_each_member_examples_of_its_own(closed_form, tmp_path):
    learning = closed_form(num_members=2, bagging=True)
    run = train(ClassifyRecipe(model=KNNSpec(num_neighbors=1), **learning), output_dir=tmp_path)
    first, second = (member.weights() for member in members(run))
    assert any(not torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("name", ["seed", "num_members"])
@pytest.mark.parametrize(("kind", "model"), [(ClassifyRecipe, "knn"), (RegressRecipe, "linear")])
def test_random_options_of_a_deterministic_model_need_bagging(kind, model, name):
    """Without bagging, all seeds give the same model and all members of an ensemble are equal."""
    with pytest.raises(ValueError, match=f"{name} needs bagging: model {model} is deterministic"):
        kind(model=model, **{name: 2})
    assert getattr(kind(model=model, bagging=True, **{name: 2}), name) == 2


def test_bagged_batches_have_the_examples_that_were_drawn(options):
    plain, bagged = (ClassifyRecipe(model=SMALL, **options(bagging=b, batch_size=1000)).setup() for b in (False, True))
    rows = [{tuple(row.tolist()) for row in t.batches.batch(0)[0]} for t in (plain, bagged)]
    assert rows[1] < rows[0]
    assert 0.5 < len(rows[1]) / len(rows[0]) < 0.75  # 1 - 1/e


def test_thresholded_members_cannot_average_log_probabilities(closed_form, tmp_path):
    with pytest.raises(ValueError, match="thresholded models"):
        ClassifyRecipe(
            model=ThresholdedSpec(), **closed_form(num_members=3, bagging=True, combine_with="log-probabilities")
        )
    recipe = ClassifyRecipe(model=ThresholdedSpec(), **closed_form(num_members=3, bagging=True))
    run = train(recipe, output_dir=tmp_path)
    p = predict(load(run), recipe.load_splits("classify").test.inputs)
    torch.testing.assert_close(p.sum(-1), torch.ones(len(p)))


@pytest.mark.parametrize("after", [pytest.param(1, marks=pytest.mark.long), 6, pytest.param(9, marks=pytest.mark.long)])
def test_resumed_ensemble_equals_an_uninterrupted_one(options, tmp_path, after):
    """Four steps each: stopped in the first, in the second member, and in the third."""
    recipe = ClassifyRecipe(model=MLPSpec(hidden_dims=(4,)), **options(num_members=3, batch_size=54))
    whole = train(recipe, output_dir=tmp_path / "whole")
    stopped = train(recipe, output_dir=tmp_path / "stopped", loggers=[StopAfter(after)])
    assert stopped.status != "finished"
    assert len(members(stopped)) == 1 + (after - 1) // 4
    resumed = train(recipe_of(stopped), resume=stopped, output_dir=stopped.path.parent)
    assert resumed.status == "finished"
    for name, weight in whole.weights().items():
        assert torch.equal(weight, resumed.weights()[name])
    again = train(recipe_of(resumed), resume=resumed, output_dir=tmp_path)
    assert len(members(again)) == 3


def test_ensemble_members_are_matched_by_options_not_by_date(options, tmp_path):
    recipe = ClassifyRecipe(model=MLPSpec(hidden_dims=(4,)), **options(num_members=2))
    run = train(recipe, output_dir=tmp_path)
    first, second = (member.path / "config.json" for member in members(run))
    os.utime(first, (2e9, 2e9))
    (second.parent / "results.json").unlink()
    before = members(run)[1].weights()
    train(recipe, resume=run, output_dir=tmp_path)
    assert all(torch.equal(before[name], weight) for name, weight in members(run)[1].weights().items())


def test_bad_data_raise_training_failed(options, tmp_path):
    with pytest.raises(TrainingFailed, match="diabetes"):
        train(ClassifyRecipe(**options(data="diabetes", num_members=2)), output_dir=tmp_path)


def test_ensemble_member_is_the_recipe_with_its_own_seed(options):
    recipe = ClassifyRecipe(**options(num_members=2))
    alone = recipe.ensemble_members()[1]
    assert alone.ensemble_members() == []
    last = replace(recipe, seed=2**63 - 1)
    assert [member.seed for member in last.ensemble_members()] == [2**63 - 1, 0]
    assert alone == replace(recipe, num_members=1, seed=1)


def test_the_best_weights_are_kept(options, table, tmp_path, no_figures, capsys):
    """The last weights have a larger validation loss here: the learning rate is large and constant."""
    fields = options(data=table(), epochs=30, learning_rate=0.3, schedule="constant", patience=0, seed=1)
    recipe = ClassifyRecipe(model=MLPSpec(hidden_dims=(8,), dropout=0.0), **fields)
    run = train(recipe, output_dir=tmp_path)
    losses = {line["step"]: line["validation/loss"] for line in run.metrics if "validation/loss" in line}
    best = min(losses, key=losses.__getitem__)
    assert best < max(losses), losses
    setup = recipe.setup()
    setup.model.load_state_dict(run.weights())
    assert setup.evaluate(setup.model.eval())["loss"] == pytest.approx(losses[best], rel=1e-5)
    assert f"restored the best weights, of step {best}" in capsys.readouterr().out


@pytest.mark.parametrize("recipe", [ClassifyRecipe(data="iris"), RegressRecipe(data="diabetes")], ids=lambda r: r.name)
def test_networks_of_a_table_are_validated_on_rows_that_they_do_not_see(recipe):
    """A network has no gradient of the rows of its fold, and the validation metrics of a row come from it alone."""
    torch.manual_seed(0)
    setup = recipe.setup()
    x, y, folds = setup.batches.tensors
    model, loss_fn = setup.model.eval(), setup.optimizer_steps[0].loss_fn
    assert len(x) == len(setup.data.train) + len(setup.data.validation)
    assert folds.bincount().tolist() == [len(x) // 8 + (j < len(x) % 8) for j in range(8)]
    loss = loss_fn(model, (x[folds == 2], y[folds == 2], folds[folds == 2]))
    (loss if torch.is_tensor(loss) else loss["loss"]).backward()
    touched = [any(p.grad.abs().sum() > 0 for p in m.parameters() if p.requires_grad) for m in model.model.members]
    assert touched == [j != 2 for j in range(8)]
    before = setup.evaluate(model)
    with torch.no_grad():
        for p in model.model.members[2].parameters():
            p += torch.randn_like(p)
    after = setup.evaluate(model)
    assert after["loss"] > before["loss"]
    own = model.member_outputs(x)[folds, torch.arange(len(x))].detach()
    if recipe.name == "classify":
        assert after["loss"] == pytest.approx(float(torch.nn.functional.cross_entropy(own, y)))
    else:
        assert after["rmse"] == pytest.approx(float((own - y).square().mean().sqrt()))


def test_networks_of_a_table_start_at_the_linear_model(options):
    from sklearn.linear_model import Ridge

    setup = RegressRecipe(data="diabetes").setup()
    x, y, folds = setup.batches.tensors
    model = setup.model
    z, t = model.normalizer(x).numpy(), model.output_normalizer(y).numpy()
    seen = (folds != 3).numpy()
    peers = [Ridge(alpha).fit(z[seen], t[seen]).coef_.reshape(1, -1) for alpha in (0.1, 1.0, 10.0, 100.0)]
    found = model.model.members[3][1].linear.weight.detach()
    assert min(float((found - torch.from_numpy(peer)).abs().max()) for peer in peers) < 1e-4
    with torch.no_grad():
        expected = model.output_normalizer.inverse(model.model.members[3][1].linear(model.normalizer(x)))
        torch.testing.assert_close(model.eval().member_outputs(x)[3], expected)


@pytest.mark.parametrize(
    ("fields", "cross_validated"),
    [
        ({}, True),
        ({"validation_fraction": 0.0}, False),
        ({"bagging": True}, False),
        ({"adversarial_eps": 0.1}, False),
        ({"data": "digits"}, False),
        ({"data": "moons"}, True),
    ],
    ids=str,
)
def test_auto_is_cross_validated_for_tables(fields, cross_validated):
    recipe = ClassifyRecipe(**{"data": "iris", **fields})
    setup = recipe.setup()
    assert (len(setup.batches.tensors) == 3) == cross_validated
    rebuilt = recipe.build_model({"example_spec": _json.to_json(setup.model_config["example_spec"])})
    assert rebuilt.state_dict().keys() == setup.model.state_dict().keys()
    if not cross_validated:
        with pytest.raises(
            ValueError, match=r"num_folds=4 needs a cross-validated model: model auto is one (MLP|CNN), because "
        ):
            replace(recipe, model=AutoSpec(num_folds=4)).setup()


@pytest.mark.parametrize(
    ("fields", "choice"),
    [
        ({}, "8 cross-validated networks, because the data are a table of 120 rows"),
        pytest.param(
            {"num_members": 2},
            "8 cross-validated networks, because the data are a table of 120 rows",
            marks=pytest.mark.long,
        ),
        ({"bagging": True}, "MLP, because bagging=True"),
        ({"bagging": True, "validation_fraction": 0.0}, "MLP, because validation_fraction=0.0 and bagging=True"),
        ({"test_fraction": 0.9}, "MLP, because 13 training rows are fewer than two for each of 8 folds"),
        ({"data": "digits", "epochs": 1}, "CNN, because the data are images"),
        (
            {"data": "digits", "epochs": 1, "model": AutoSpec(hidden_dims=(8,))},
            "MLP, because the data are not a table",
        ),
    ],
    ids=str,
)
def test_the_choice_of_auto_and_its_reason_are_shown(fields, choice, options, tmp_path, capsys):
    run = train(ClassifyRecipe(**options(**fields)), output_dir=tmp_path)
    assert f"model auto: {choice}\n" in capsys.readouterr().out
    assert run.results["model auto"] == choice
    assert choice in run.report.read_text(encoding="utf-8")
    inner = run if fields.get("num_members") is None else members(run)[0]
    assert inner.config["model"]["auto"] == choice


@pytest.mark.parametrize(
    ("shape", "num_examples", "choice"),
    [
        ((1, 40), 1000, "CNN, because the data are series"),
        ((3, 224, 224), 1000, "MLP, because a CNN is slow for 50,176,000 pixels; model cnn trains one nevertheless"),
    ],
    ids=str,
)
def test_auto_is_a_cnn_unless_it_is_slow(shape, num_examples, choice):
    spec, found = ClassifyRecipe()._choose_network(
        AutoSpec(), ExampleSpec(shape=shape, out_dim=3, num_examples=num_examples)
    )
    assert (spec.name, found) == (choice[:3].lower(), choice)
    name, _ = RegressRecipe()._choose_network(AutoRegressorSpec(), ExampleSpec(shape=shape, out_dim=1, num_examples=9))
    assert name.name == "mlp"


def test_other_models_have_no_choice(options):
    setup = ClassifyRecipe(model=SMALL, **options()).setup()
    assert "auto" not in setup.model_config
    assert not any("auto" in note for note in setup.notes)


@pytest.mark.parametrize("recipe", [ClassifyRecipe(data="iris"), RegressRecipe(data="diabetes")], ids=lambda r: r.name)
def test_a_cross_validated_model_refuses_a_validation_fraction(recipe):
    message = (
        r"validation_fraction=0\.3 has no effect: model auto cross-validates this table. Set num_folds instead, or "
        "model=mlp"
    )
    changed = replace(recipe, validation_fraction=0.3)
    with pytest.raises(ValueError, match=message):
        changed.setup()
    spec = MLPSpec() if recipe.name == "classify" else MLPRegressorSpec()
    data = replace(changed, model=spec).setup().data
    assert len(data.validation) == pytest.approx(0.3 * (len(data.train) + len(data.validation)), abs=2)
    replace(changed, data="digits" if recipe.name == "classify" else "sine", bagging=True).setup()


def test_cross_validation_has_no_warnings_about_a_validation_split(options, table):
    fields = options(data=table(change=lambda rows: rows + rows))
    alone, folds = ClassifyRecipe(model=SMALL, **fields).setup(), ClassifyRecipe(**fields).setup()
    assert any("examples of test also occur in validation" in warning for warning in alone.warnings)
    (leak,) = folds.warnings
    assert "examples of test also occur in train: test does not measure generalization" in leak
    assert folds.data.warnings == folds.warnings


def test_results_of_a_cross_validated_model(options, tmp_path):
    run = train(ClassifyRecipe(**options(epochs=2)), output_dir=tmp_path)
    assert run.results["examples"] == {"train": 120, "test": 30}
    assert run.results["cross-validation folds"] == 8
    best = min((line for line in run.metrics if "validation/loss" in line), key=lambda line: line["validation/loss"])
    assert run.results["validation"]["accuracy"]["value"] == pytest.approx(best["validation/accuracy"])
    assert "mutual information" in predictions(run, "iris").columns


def test_the_target_is_shown_after_the_first_of_many_columns(tmp_path):
    rows = [",".join([f"c{i % 3}", *(str(i % (7 + k)) for k in range(26)), f"A{i:03}"]) for i in range(60)]
    path = tmp_path / "wide.csv"
    path.write_text("\n".join([",".join(["kind", *(f"x{k}" for k in range(26)), "id"]), *rows]))
    lines = _column_lines(SupervisedDataConfig(data=str(path), target="kind").load_splits("classify"))
    assert lines[0] == "columns:"
    assert [line.split()[0] for line in lines[1:21]] == [f"x{k}" for k in range(20)]
    assert lines[21] == "  and 7 more: 6 numbers, 1 left out"
    assert lines[22].split()[:2] == ["kind", "target"]
    assert len(lines) == 23


def test_ranges_of_large_numbers_are_written_out(tmp_path):
    path = tmp_path / "houses.csv"
    path.write_text("area,price\n" + "".join(f"{40 + i % 50},{117_131 + 16_771 * i}\n" for i in range(61)))
    lines = _column_lines(SupervisedDataConfig(data=str(path)).load_splits("regress"))
    assert lines[-1].endswith("117131 to 1123391; the last column, choose another with --target")


def test_columns_and_winner_are_in_the_output_and_the_report(options, table, tmp_path, no_figures, capsys):
    def change(rows):
        days = (f"2024-{1 + i % 12:02}-{1 + i % 28:02}" for i in range(len(rows)))
        return [(day, f"N{i:03}", *row[1:]) for i, (day, row) in enumerate(zip(days, rows, strict=True))]

    path = table(change=change)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(["day,id,color,weight,kind", *lines[1:]]))
    run = train(ClassifyRecipe(model=MLPSpec(hidden_dims=(4,)), **options(data=path)), output_dir=tmp_path)
    output, report = capsys.readouterr().out, run.report.read_text(encoding="utf-8")
    assert [(row["column"], row["used as"]) for row in run.results["columns"]] == [
        ("day", "date"),
        ("id", "left out"),
        ("color", "category"),
        ("weight", "number"),
        ("kind", "target"),
    ]
    for row in run.results["columns"]:
        assert row["details"] in output, row
        assert row["details"] in report, row
    assert "3 classes: cat, dog, owl; the last column, choose another with --target" in output
    assert "warning: left out column 'id'" in output
    assert "logistic regression" in run.results["baseline accuracy"]
    assert any(word in run.results["summary"] for word in (" beats ", " tie: ")), run.results["summary"]
    assert run.results["summary"] in output
