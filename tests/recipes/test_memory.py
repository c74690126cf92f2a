import math

import numpy as np
import pytest
import torch

from lawful.blocks import S4D
from lawful.data import read_series
from lawful.functions import hippo_memory
from lawful.recipes import MemoryRecipe, StateSpaceMemory, load, recipe_of
from lawful.recipes import memory as recipe_module
from lawful.training import TrainingFailed, train

SMALL = {"length": 60, "sizes": (4, 8, 16), "max_frequency": 3.0, "steps": 40, "threads": 1}


@pytest.fixture(autouse=True, scope="module")
def _few_histories():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe_module, "_NUM_HISTORIES", (128, 32, 8))
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(MemoryRecipe(law_cases=3, **SMALL), output_dir=tmp_path_factory.mktemp("runs"))


def waves(count=400):
    t = np.arange(count)
    return 50 + 3 * np.sin(t / 7) + np.sin(t / 3)


@pytest.fixture
def write(tmp_path):
    """Writes a daily series as CSV."""

    def write(values, name="series.csv"):
        days = np.datetime64("2024-01-01") + np.arange(len(values))
        rows = [f"{day},{'' if np.isnan(value) else value}" for day, value in zip(days, values, strict=True)]
        (tmp_path / name).write_text("\n".join(["day,level", *rows]) + "\n")
        return str(tmp_path / name)

    return write


def test_states_are_those_of_the_layer():
    memory, x = StateSpaceMemory(50, state_dim=8), torch.randn(3, 50)
    cache = memory.ssm.cache()
    memory.ssm(x.unsqueeze(-1), cache=cache)
    torch.testing.assert_close(memory.states(x), cache.state[0].squeeze(1))
    torch.testing.assert_close(memory.recurrent_states(x), cache.state[0].squeeze(1))


def test_only_the_modes_and_the_readout_are_trained():
    memory = StateSpaceMemory(50, state_dim=8)
    memory(torch.randn(3, 50)).square().sum().backward()
    unused = {name for name, p in memory.named_parameters() if p.grad is None}
    assert unused == {name for name, p in memory.named_parameters() if not p.requires_grad} == {"ssm.c", "ssm.skip"}
    assert isinstance(memory.ssm, S4D)


@torch.no_grad()
def test_the_fitted_readout_is_exact_for_signals_with_few_parameters():
    t = torch.linspace(0, 6, 80)
    x = torch.randn(40, 3) @ torch.stack([torch.ones_like(t), t.sin(), t.cos()]) + 5
    memory = StateSpaceMemory(80, state_dim=8)
    memory.fit_readout(x[:30], x[30:])
    assert recipe_module._mean_error(memory(x[30:]), x[30:]) < 1e-4


def test_a_fitted_readout_never_validates_worse():
    memory, x = StateSpaceMemory(20, state_dim=4), torch.zeros(6, 20)
    torch.nn.init.zeros_(memory.readout.weight)
    torch.nn.init.ones_(memory.readout.bias)
    memory.fit_readout(x, x + 1)  # the training histories say 0, the validation histories 1
    torch.testing.assert_close(memory(x), x + 1)


def test_results_are_those_of_the_functions(run):
    recipe, results = recipe_of(run), run.results
    data, _ = recipe._load()
    model = load(run)
    test = model.normalizer(data.test)
    errors = results["relative error"]
    for n in (4, 8, 16):
        found = {
            "HiPPO legs": hippo_memory(test, n),
            "HiPPO legt": hippo_memory(test, n, operator="legt", window=60.0),
            "HiPPO lagt, recent past": hippo_memory(test, n, operator="lagt", window=6.0),
            "HiPPO fourier": hippo_memory(test, n - 1, operator="fourier", window=60.0),
        }
        for name, memory in found.items():
            assert errors[name][str(n)] == pytest.approx(float(memory.error.mean())), name
        fits = np.stack([np.polynomial.Polynomial.fit(range(60), x, n - 1)(np.arange(60)) for x in test.numpy()])
        mean_error = np.mean(np.linalg.norm(fits - test.numpy(), axis=1) / np.linalg.norm(test.numpy(), axis=1))
        assert errors["best polynomial"][str(n)] == pytest.approx(mean_error, rel=1e-3)
        assert mean_error <= errors["HiPPO legs"][str(n)] * 1.001
        assert errors["principal components"][str(n)] <= 1.2 * errors["state-space layer"][str(n)]


@torch.no_grad()
def test_the_loaded_model_reconstructs_histories_in_their_own_unit(run):
    data, _ = recipe_of(run)._load()
    model = load(run)
    values = model(data.test)
    assert values.shape == (8, 3, 60)
    scale = model.normalizer(data.test), model.normalizer(values)
    for i, (n, error) in enumerate(run.results["relative error"]["state-space layer"].items()):
        assert recipe_module._mean_error(scale[1][:, i], scale[0]) == pytest.approx(error, rel=1e-3), n
    assert error < 0.05


def test_the_layer_remembers_only_the_signals_it_was_trained_on(run):
    same, faster = run.results["relative error"], run.results["relative error at 1.5 times the frequency"]
    assert faster["state-space layer"]["16"] > 10 * same["state-space layer"]["16"]
    assert "best polynomial" not in faster


def test_the_report_says_who_won_and_what_is_remembered(run):
    summary, log = run.results["summary"], run.log.read_text()
    assert "in relative error over 60 samples from " in summary
    assert "Numbers for an error below 5 %: " in summary
    assert "Errors at 1.5 times the frequency, from 16 numbers: " in summary
    assert summary.split(".")[0] in run.report.read_text()
    ((name, error),) = run.results["test"].items()
    assert run.results["relative error"]["state-space layer"][name.split()[2]] == error
    assert run.summary == f"{name} {error:.4g}"
    for law in ("batch_independence", "affinity", "agreement(other=recurrent_states)"):
        assert f"held     {law}" in log, law
    names = ["HiPPO fourier", "HiPPO lagt, recent past", "HiPPO legs", "HiPPO legt", "error over size"]
    found = sorted(path.stem for path in run.figures.iterdir())
    assert [name for name in found if not name.startswith("modes of ")] == [*names, "state-space layer"]
    assert len(found) == 7


@pytest.mark.parametrize(
    ("layer", "legs", "sentences"),
    [
        (0.01, 0.02, ("The state-space layer beats every baseline", "8 (state-space layer), 8 (HiPPO legs).")),
        (0.2, 0.02, ("The baseline HiPPO legs beats", "more than 8 (state-space layer), 8 (HiPPO legs).")),
        (0.2, 0.3, ("The state-space layer beats every baseline", "No error is below 5 % with at most 8 numbers.")),
        (0.2, math.inf, ("The state-space layer beats", "No error is below 5 % with at most 8 numbers.")),
    ],
)
def test_summary(layer, legs, sentences):
    errors = {"state-space layer": {8: layer}, "HiPPO legs": {8: legs}, "HiPPO lagt, recent past": {8: 0.001}}
    found = recipe_module._summarize(errors, {8: 0.4}, {}, length=50, size=8)
    assert all(sentence in found for sentence in sentences), found
    assert "lagt" not in found
    found = recipe_module._summarize(errors, {8: 0.4}, errors, length=50, size=8)
    assert f"Errors at 1.5 times the frequency, from 8 numbers: {layer} (state-space layer)" in found


def test_a_series_is_divided_in_time(write):
    values = waves()
    values[7] = np.nan
    path = write(values)
    recipe = MemoryRecipe(data=path, length=50)
    data, notes = recipe._load()
    series = read_series(path)
    assert data.train.shape == (128, 50)
    assert data.validation.shape == (31, 50)
    assert data.test.shape == (8, 50)
    assert not data.signal.isnan().any()
    last = torch.from_numpy(values)
    torch.testing.assert_close(data.test[-1], last[-50:])
    torch.testing.assert_close(data.test[0], last[320:370])
    torch.testing.assert_close(data.validation[0], last[240:290])
    torch.testing.assert_close(data.train[-1], last[190:240])
    torch.testing.assert_close(data.train[0, 7], (last[6] + last[8]) / 2)
    torch.testing.assert_close(data.signal[-300:], last[-300:])
    assert notes == [*series.notes, notes[-1]]
    assert notes[-1].startswith("histories of 50 values; of 400, the last 80 are the test")


@torch.no_grad()
def test_errors_do_not_depend_on_the_unit(write):
    """They are relative to the deviation from the mean, not to the values."""
    found = []
    for scale in (1.0, 1000.0):
        recipe = MemoryRecipe(data=write(scale * waves()), discretization="zoh")
        setup = recipe.setup()
        test = setup.model.normalizer(setup.data.test)
        found.append(recipe_module._errors(setup.model, recipe._operators(80), test))
    first, second = (errors["HiPPO legs"] for errors in found)
    assert list(first) == [8, 16, 32, 64]
    assert second == pytest.approx(first, rel=1e-4)
    assert 1e-3 < first[32] < 0.2


def test_a_window_shorter_than_the_history_is_the_recent_past():
    names = [*MemoryRecipe(window=30.0)._operators(60)]
    assert names == ["HiPPO legs", *(f"HiPPO {name}, recent past" for name in ("legt", "lagt", "fourier"))]
    remember = MemoryRecipe(window=30.0, operators=("legt",))._operators(60)["HiPPO legt, recent past"]
    assert remember(torch.arange(60.0), 4).times.tolist() == [*range(29, 60)]


def test_an_unstable_discretization_diverges(tmp_path):
    options = {"operators": ("legt",), "window": 20.0, "sizes": (64,), "length": 400, "max_frequency": 20.0}
    recipe = MemoryRecipe(discretization="forward_euler", steps=2, threads=1, law_cases=0, **options)
    run = train(recipe, output_dir=tmp_path)
    assert run.results["relative error"]["HiPPO legt, recent past"] == {"64": "diverges"}
    assert "No error is below 5 %" not in run.results["summary"]


def test_resumed_run_equals_an_uninterrupted_one(run, tmp_path, stop_at):
    begun = train(MemoryRecipe(law_cases=0, **SMALL), output_dir=tmp_path, loggers=[stop_at(15)])
    again = train(recipe_of(begun), resume=begun)
    for name, weight in run.weights().items():
        assert torch.equal(weight, again.weights()[name]), name
    assert again.results["relative error"] == run.results["relative error"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 1}, "length must be from 3 to 5000, got 1"),
        ({"sizes": ()}, "sizes must be increasing and at least one"),
        ({"sizes": (8, 4)}, "sizes must be increasing and at least one"),
        ({"sizes": (4, 7)}, "sizes must be even"),
        ({"operators": ()}, "operators must be different and at least one"),
        ({"operators": ("legs", "legs")}, "operators must be different and at least one"),
        (
            {"operators": ("legs",), "window": 9.0},
            "window would be ignored: legs remembers all of the past, got window=9",
        ),
        ({"target": "level"}, "target needs a file, got data=band-limited"),
        ({"data": "x.csv", "max_frequency": 3.0}, "max_frequency needs data=band-limited"),
    ],
)
def test_bad_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        MemoryRecipe(**options)


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ([], {}, "has a header but no rows"),
        ([1.0], {}, "has 1 rows, a series needs more"),
        ([np.nan] * 30, {}, "no numbers in any column"),
        ([5.0] * 400, {}, "is constant: there is nothing to remember"),
        ([1.0, np.inf, *waves(50)], {}, "infinite|no numbers"),
        (waves(9), {}, "has 9 values, at least 10 are needed"),
        (waves(400), {"length": 140}, "at least 421 are needed: .* Lower length"),
        (waves(30), {}, r"sizes must be smaller than length: got sizes=\(8, 16, 32, 64\), length=6"),
        (waves(400), {"sizes": (128,)}, r"sizes must be smaller than length: got sizes=\(128,\), length=80"),
    ],
)
def test_bad_series_raise(values, options, message, write, tmp_path):
    with pytest.raises(TrainingFailed, match=message):
        train(MemoryRecipe(data=write(values), **options), output_dir=tmp_path / "runs")


def test_a_missing_file_and_signals_beyond_the_nyquist_frequency_raise(tmp_path):
    with pytest.raises(TrainingFailed, match=r"'nothing\.csv' does not exist; built-in signals: band-limited"):
        train(MemoryRecipe(data="nothing.csv"), output_dir=tmp_path)
    with pytest.raises(TrainingFailed, match="max_frequency must be below length / 2, got 40 and length=80"):
        train(MemoryRecipe(length=80, max_frequency=40.0), output_dir=tmp_path)
    assert MemoryRecipe(length=80, max_frequency=30.0)._load()[0].faster is None


def test_a_history_without_deviation_has_an_absolute_error(write):
    """Steps between constant pieces: some histories equal the mean."""
    errors = recipe_module._relative_errors(
        torch.tensor([[1.0, 1.0], [3.0, 4.0]]), torch.tensor([[0.0, 0.0], [3.0, 0.0]])
    )
    torch.testing.assert_close(errors, torch.tensor([2**0.5, 4 / 3]))
