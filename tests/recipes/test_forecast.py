import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from lawful.data import Series
from lawful.models import forecasting
from lawful.models.generation import SamplingConfig, generate
from lawful.recipes import Forecast, ForecastModel, ForecastRecipe, load, predictions, recipe_of
from lawful.recipes.forecast import (
    _DIGITS,
    _DigitScale,
    _fit_trend_and_season,
    _integers_to_tokens,
    _seasonal_series,
    _SeriesBatches,
    _SeriesWindow,
    _synthetic_series,
    _tokens_to_integers,
)
from lawful.training import TrainingFailed, train


@pytest.fixture(autouse=True, scope="module")
def _few_candidates():
    """Rough fits of exponential smoothing, from few origins: the usual ones take longer than the training."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("_POPULATION", 12), ("_ROUNDS", 2), ("_MAX_ORIGINS", 4)):
            patch.setattr(forecasting, name, value)
        yield


START = np.datetime64("2024-01-01")


def sales(count=70):
    """Daily values with a weekly season, and a missing one."""
    rng, t = np.random.default_rng(0), np.arange(count)
    values = 50 + 0.1 * t + np.array([0, 1, 2, 3, 4, -6, -8])[t % 7] + 0.5 * rng.standard_normal(count)
    values[20] = np.nan
    return values


def write(path, values, *, start=START):
    rows = [f"{start + i},{i % 3},{'' if np.isnan(value) else f'{value:.4f}'}" for i, value in enumerate(values)]
    path.write_text("\n".join(["day,shop,sales", *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("data") / "sales.csv", sales())


@pytest.fixture(scope="module")
def recipe(tiny, path):
    return ForecastRecipe(data=str(path), horizon=4, num_samples=4, **tiny(ngrams=(2,)))


@pytest.fixture(scope="module")
def run(recipe, tmp_path_factory):
    return train(recipe, output_dir=tmp_path_factory.mktemp("runs"))


def test_run_says_what_it_found_and_which_forecast_won(run):
    log = (run.path / "log.txt").read_text()
    for said in (
        "target: column 'sales'; not used: 'shop'",
        "dates: daily, from 2024-01-01 to 2024-03-10",
        "1 of 70 values are missing",
        "season: 7 (detected)",
    ):
        assert said in log, said
    results = run.results
    errors = results["mean absolute error"]
    assert list(errors) == [
        "forecast",
        "last value",
        "seasonal naive",
        "drift",
        "exponential smoothing",
        "language model",
    ]
    assert results["series"]["season"] == 7
    assert results["summary"].startswith(("The forecast ", "The baseline "))
    coverage = results["coverage of the 80 % interval"]
    sentence = f"The season has 7 steps. The 80 % interval contains {100 * coverage:.0f} % of the test values."
    assert sentence in results["summary"]
    assert 0 <= coverage <= 1
    assert sum(results["weights of the forecasts"].values()) == pytest.approx(1, abs=0.1)
    assert results["summary"] in run.report.read_text().replace("&#x27;", "'")


def test_run_writes_dated_forecasts_and_figures(run):
    lines = (run.samples / "forecast.csv").read_text().splitlines()
    assert lines[0] == "date,forecast,lower,upper"
    assert [line.split(",")[0] for line in lines[1:]] == ["2024-03-11", "2024-03-12", "2024-03-13", "2024-03-14"]
    for line in lines[1:]:
        forecast, lower, upper = map(float, line.split(",")[1:])
        assert lower <= forecast <= upper
    for name in ("forecast", "test"):
        assert (run.figures / f"{name}.png").stat().st_size > 5000


def test_loaded_model_forecasts_any_horizon(run):
    model = load(run)
    assert isinstance(model, ForecastModel)
    found = model.forecast(horizon=9)
    assert (found.dates[0], found.dates[-1], len(found)) == ("2024-03-11", "2024-03-19", 9)
    truth = 50 + 0.1 * np.arange(70, 79) + np.array([0, 1, 2, 3, 4, -6, -8])[np.arange(70, 79) % 7]
    assert np.abs(found.forecast - truth).max() < 2.5
    assert found.csv() == load(run).forecast(horizon=9).csv()
    assert repr(found).splitlines()[0].split() == ["date", "forecast", "lower", "upper"]
    with pytest.raises(ValueError, match="horizon must be between 1 and"):
        model.forecast(horizon=0)


def test_predict_continues_the_training_series_and_others(run, tmp_path):
    table = predictions(run, horizon=2)
    assert table.columns == ("date", "forecast", "lower", "upper")
    assert [row[0] for row in table.rows] == ["2024-03-11", "2024-03-12"]
    other = write(tmp_path / "other.csv", 1000 + 10 * sales(40), start=np.datetime64("2025-01-01"))
    table = predictions(run, other, horizon=2)
    assert [row[0] for row in table.rows] == ["2025-02-10", "2025-02-11"]
    assert all(1300 < float(row[1]) < 1700 for row in table.rows)
    array = load(run).forecast(3, series=sales(40))
    assert array.dates == ("41", "42", "43")
    with pytest.raises(ValueError, match="drop_missing needs a run of classify"):
        predictions(run, drop_missing=True)
    with pytest.raises(ValueError, match="num_samples needs a model with dropout"):
        predictions(run, num_samples=3)
    with pytest.raises(ValueError, match="at least 8 values"):
        load(run).forecast(series=[1.0, 2.0])


@pytest.mark.parametrize("state_space", ["s4d", pytest.param("s4", marks=pytest.mark.long), "selective"])
def test_state_space_layers_replace_attention(state_space, path, tiny, tmp_path):
    options = {"layer_pattern": "(mf)*", "state_space": state_space, "state_dim": 4, "ngrams": (2,), "law_cases": 5}
    run = train(ForecastRecipe(data=str(path), horizon=4, num_samples=4, **tiny(**options)), output_dir=tmp_path)
    log, model = run.log.read_text(), load(run)
    assert "held     cached_decoding" in log
    assert "refuted" not in log
    assert [type(block).__name__ for block in model.decoder.blocks("m")] == [
        "SelectiveStateSpace" if state_space == "selective" else "StateSpace"
    ]
    assert np.isfinite(run.results["mean absolute error"]["language model"])
    assert [row[0] for row in predictions(run, horizon=14).rows][-1] == "2024-03-24"
    past = model.values[-30:][None]
    tokens, _, _ = model._window.encode_history(past)
    found = generate(model.decoder, tokens, max_new_tokens=6, sampling=SamplingConfig(temperature=0.0))
    for _ in range(6):  # the whole past for every token, without a cache
        tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(-1)], 1)
    assert torch.equal(found, tokens[:, -6:])


@pytest.mark.parametrize("step", [pytest.param(2, marks=pytest.mark.long), 4])
def test_resumed_run_equals_an_uninterrupted_one(run, recipe, tmp_path, stop_at, step):
    begun = train(recipe, output_dir=tmp_path, loggers=[stop_at(step)])
    again = train(recipe_of(begun), resume=begun)
    for name, weight in run.weights().items():
        assert torch.equal(weight, again.weights()[name]), name
    assert again.results["mean absolute error"] == run.results["mean absolute error"]


def test_a_run_that_stopped_early_forecasts(recipe, tmp_path, stop_at):
    begun = train(recipe, output_dir=tmp_path, loggers=[stop_at(2)])
    assert [row[0] for row in predictions(begun, horizon=2).rows] == ["2024-03-11", "2024-03-12"]


def test_digit_tokens_round_trip_up_to_rounding():
    x = torch.from_numpy(_seasonal_series())[None, :50]
    for digits in (1, 2, 3):
        scale = _DigitScale.of(x, digits=digits)
        tokens = _integers_to_tokens(scale.quantize(x), digits=digits)
        assert tokens.shape == (1, 50 * (digits + 1))
        back = scale.dequantize(_tokens_to_integers(tokens, digits=digits))
        assert float((back - x).abs().max()) <= float(scale.high - scale.low) / (10**digits - 1) / 2 + 1e-9


def test_digit_scale_depends_only_on_the_history():
    x = torch.tensor([[1.0, 2.0, 3.0, 100.0]])
    scale = _DigitScale.of(x[:, :3], digits=2)
    assert (float(scale.low), float(scale.high)) == (-1.0, 5.0)
    assert scale.quantize(x)[0, -1] == 99
    assert torch.isfinite(_DigitScale.of(torch.ones(1, 3), digits=2).quantize(torch.ones(1, 3)).double()).all()


def test_invalid_digit_tokens_become_minus_one():
    assert _tokens_to_integers(torch.tensor([[1, 2, 10, 10, 1, 10, 1, 1, 1]]), digits=2).tolist() == [[12, -1, -1]]


def test_window_encodes_residuals_of_trend_and_season():
    """A semicolon ends the history, earlier tokens do not depend on the future, and decoding restores the values."""
    window = _SeriesWindow(past=36, history=24, horizon=3, season=12, digits=2)
    x = torch.from_numpy(_seasonal_series())[None, :39]
    tokens, (read, expected, scale) = window.encode(x), window.encode_history(x[:, :36])
    assert tokens.shape == (1, window.num_tokens)
    assert _DIGITS.decode(tokens[0].tolist())[71] == ";"
    assert torch.equal(tokens[:, :72], read)
    assert torch.equal(window.encode(torch.cat([x[:, :36], x[:, 36:] + 5], 1))[:, :72], read)
    back = expected + scale.dequantize(_tokens_to_integers(tokens[:, 72:], digits=2))
    inside = (x[:, 36:] - expected > scale.low) & (x[:, 36:] - expected < scale.high)
    assert float((back - x[:, 36:]).abs()[inside].max()) <= float(scale.high - scale.low) / 99 / 2 + 1e-9


def test_trend_and_season_equal_least_squares():
    x, t, season = torch.randn(2, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), 40, 7
    u = np.linspace(-1, 1, t)
    phases = np.eye(season)[np.arange(t) % season]
    basis = np.column_stack([u, phases])
    regularized = np.vstack([basis, np.sqrt(0.1) * np.eye(season + 1)])
    for row, found in zip(x.numpy(), _fit_trend_and_season(x, 0, season).numpy(), strict=True):
        target = np.concatenate([row - row.mean(), np.zeros(season + 1)])
        weights = np.linalg.lstsq(regularized, target, rcond=None)[0]
        season_of = phases @ weights[1:]
        left = np.concatenate([row - row.mean() - basis @ weights, np.zeros(season)])
        growing = np.concatenate([u * season_of, np.sqrt(0.1) * weights[1:]])[:, None]
        growth = np.linalg.lstsq(growing, left, rcond=None)[0]
        np.testing.assert_allclose(found, row.mean() + basis @ weights + growth * u * season_of, atol=1e-10)


def test_growing_season_is_extrapolated():
    t = torch.arange(84.0, dtype=torch.float64)
    x = (3 + 0.1 * t + (1 + 0.02 * t) * torch.sin(2 * torch.pi * t / 12))[None]
    off = (_fit_trend_and_season(x[:, :72], 12, 12) - x).abs().amax(1)
    assert float(off) < 0.2  # 0.9 if it did not grow
    for level in (torch.zeros(1, 24, dtype=torch.float64), torch.full((1, 24), 7.0)):
        assert torch.equal(_fit_trend_and_season(level, 3, 12), level[:, :1].expand(1, 27))


def test_test_and_calibration_values_are_not_trained_on(recipe):
    setup = recipe.setup()
    data = setup.data
    assert (data.test, data.calibration, data.train_length) == (3, 3, 70 - 24)
    assert setup.batches._windows[-1, -1] == data.past(46)[45]


def test_batches_mix_synthetic_windows_and_the_series():
    window = _SeriesWindow(past=5, history=5, horizon=2, season=1, digits=2)
    source = _SeriesBatches(torch.arange(80.0).double(), window, batch_size=64, seed=0, synthetic_steps=1)
    drawn, given = source.batch(0)[0], source.batch(1)[0]
    assert drawn.shape == given.shape
    levels = _tokens_to_integers(given[:, :12], digits=2)
    assert int((levels[:32] - levels[:1]).abs().max()) <= 1  # a straight line, whichever window is taken
    assert len(levels[32:].unique(dim=0)) > 16


def test_without_calibration_nothing_is_trained(path, tmp_path):
    run = train(ForecastRecipe(data=str(path), horizon=4, calibration_horizons=0, law_cases=0), output_dir=tmp_path)
    assert "language model" not in run.results["weights of the forecasts"]
    assert "language model" not in run.results["mean absolute error"]
    log = (run.path / "log.txt").read_text()
    assert "the language model is left out and not trained: calibration_horizons=0" in log
    assert "0 steps on" in log
    assert len(load(run).forecast()) == 4


def test_calibration_horizons_that_cannot_be_used_raise(path):
    with pytest.raises(ValueError, match="steps, num_samples would be ignored: calibration_horizons=0"):
        ForecastRecipe(data=str(path), calibration_horizons=0, steps=5, num_samples=3)
    with pytest.raises(ValueError, match="calibration_horizons must be 0 or at least 2, got 1"):
        ForecastRecipe(data=str(path), calibration_horizons=1)


def test_the_language_model_is_validated_after_its_training_values_only(run):
    model = load(run)
    x, start = model._known_values(), int(model.train_length)
    assert start == 46
    (found,) = model.forecasters(x).values()
    rows = found.forecasts(x, np.array([start - 1, start, 60]), horizon=5)
    assert np.isnan(rows[0]).all()
    assert np.isfinite(rows[1:, :4]).all()
    assert np.isnan(rows[:, 4]).all()
    changed = x.copy()
    changed[60:] = 0
    np.testing.assert_array_equal(found.forecasts(changed, np.array([60]), horizon=4)[0], rows[2, :4])


@pytest.mark.parametrize(("option", "found"), [(None, (7,)), (5, (5,)), (1, ())])
def test_season_is_detected_or_given(recipe, option, found):
    setup = replace(recipe, season=option).setup()
    assert setup.data.seasons == found
    how = "detected" if option is None else "given"
    assert f"season: {found[0] if found else 'none'} ({how})" in setup.notes


@pytest.mark.parametrize(("count", "parts"), [(30, (1, 2, 18)), (24, (1, 2, 12)), (144, (5, 5, 104))])
def test_short_series_have_short_tests(recipe, tmp_path, count, parts):
    path = write(tmp_path / "short.csv", np.nan_to_num(sales(count), nan=50.0))
    data = replace(recipe, data=str(path)).setup().data
    assert (data.test, data.calibration, data.train_length) == parts


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("t,y\n" + "".join(f"w{i},{i % 4}\n" for i in range(9)), "at least 16 are needed"),
        ("t,y\n" + "".join(f"w{i},z{i}\n" for i in range(50)), "no numbers"),
    ],
)
def test_invalid_series_raise(content, said, recipe, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text(content)
    with pytest.raises(TrainingFailed, match=said):
        train(replace(recipe, data=str(path)), output_dir=tmp_path)


def test_invalid_options_raise(recipe, tmp_path):
    with pytest.raises(ValueError, match="season must be at most half of the 58 values"):
        replace(recipe, season=40).setup()
    with pytest.raises(ValueError, match="epochs"):
        replace(recipe, epochs=1, steps=None)
    with pytest.raises(FileNotFoundError, match="does not exist; built-in series: seasonal"):
        replace(recipe, data=str(tmp_path / "missing.csv")).setup()


def test_configuration_of_a_run_is_validated(run, recipe):
    config = json.loads((run.path / "config.json").read_text())["model"]
    for change, said in (
        ({"tokenizer": {"kind": "characters"}}, "another tokenizer"),
        ({"series": {**config["series"], "window": [3]}}, "window must have 2 numbers"),
        ({"series": {**config["series"], "length": -1}}, "length must be an integer"),
        ({"series": {**config["series"], "calendar": {}}}, "calendar has no field"),
    ):
        with pytest.raises(ValueError, match=said):
            recipe.build_model({**config, **change})


def test_series_without_dates_are_numbered():
    assert Series(np.arange(5.0)).dates(2, first=5) == ["6", "7"]


@pytest.mark.long
def test_defaults_are_as_good_as_the_baselines(tmp_path):
    results = train(ForecastRecipe(), output_dir=tmp_path).results
    errors = results["mean absolute error"]
    best = min(errors[name] for name in ("seasonal naive", "drift", "exponential smoothing"))
    assert errors["forecast"] < 1.01 * best
    assert 0.6 < results["coverage of the 80 % interval"] < 0.95


def test_synthetic_series_are_finite_and_distinct():
    found = _synthetic_series(200, 40, generator=torch.Generator().manual_seed(0))
    assert found.isfinite().all()
    assert len(found.unique(dim=0)) == 200


def test_numbers_of_values_are_no_years():
    values = np.zeros(1)
    assert Forecast("x", ("1000",), values, values, values, has_dates=False).columns[0] == "step"
    assert Forecast("x", ("2024",), values, values, values, has_dates=True).columns[0] == "date"
