import numpy as np
import pytest
import torch

from lawful.recipes import ForecastRecipe, generate_from_run, load, recipe_of
from lawful.recipes.forecast import (
    _BASELINES,
    _DIGITS,
    _conformal_scale,
    _digits_to_tokens,
    _DigitScale,
    _fit_trend_and_season,
    _read_series,
    _seasonal_series,
    _SeriesBatches,
    _SeriesWindow,
    _synthetic_series,
    _tokens_to_digits,
)
from lawful.training import TrainingFailed, train


@pytest.fixture(scope="module")
def recipe(tiny):
    return ForecastRecipe(history=6, horizon=2, season=3, test_horizons=2, num_samples=4, **tiny(ngrams=(2,)))


@pytest.fixture(scope="module")
def run(recipe, tmp_path_factory):
    return train(recipe, output_dir=tmp_path_factory.mktemp("runs"))


def test_run_reports_forecast_baselines(run):
    errors = run.results["mean absolute error"]
    assert list(errors) == [
        "zero-shot",
        "trained",
        "last value",
        "last season",
        "trend and season",
        "linear regression",
    ]
    assert errors["zero-shot"] == next(line["validation/error"] for line in run.metrics if line["step"] == 2)
    lines = (run.samples / "forecast.csv").read_text().splitlines()
    assert len(lines) == 3
    for line in lines[1:]:
        _, low, median, high = map(float, line.split(","))
        assert low <= median <= high
    assert (run.figures / "forecast.png").stat().st_size > 5000
    assert len("".join(generate_from_run(run, "1, 2.5, 3")).splitlines()) == 3
    for prompt in ("", "1", "a, b", "1, nan, 2"):
        with pytest.raises(ValueError, match="prompt must"):
            list(generate_from_run(run, prompt))


@pytest.mark.parametrize("step", [pytest.param(2, marks=pytest.mark.long), 4])
def test_resumed_run_equals_an_uninterrupted_one(run, recipe, tmp_path, stop_at, step):
    begun = train(recipe, output_dir=tmp_path, loggers=[stop_at(step)])
    again = train(recipe_of(begun), resume=begun)
    for name, weight in run.weights().items():
        assert torch.equal(weight, again.weights()[name]), name
    assert again.results["mean absolute error"] == run.results["mean absolute error"]


def test_digit_tokens_round_trip_up_to_rounding():
    x = torch.from_numpy(_seasonal_series())[None, :50]
    for digits in (1, 2, 3):
        scale = _DigitScale.of(x, digits=digits)
        tokens = _digits_to_tokens(scale.quantize(x), digits=digits)
        assert tokens.shape == (1, 50 * (digits + 1))
        back = scale.dequantize(_tokens_to_digits(tokens, digits=digits))
        assert float((back - x).abs().max()) <= float(scale.high - scale.low) / (10**digits - 1) / 2 + 1e-9


def test_digit_scale_depends_only_on_the_history():
    x = torch.tensor([[1.0, 2.0, 3.0, 100.0]])
    scale = _DigitScale.of(x[:, :3], digits=2)
    assert (float(scale.low), float(scale.high)) == (-1.0, 5.0)
    assert scale.quantize(x)[0, -1] == 99
    assert torch.isfinite(_DigitScale.of(torch.ones(1, 3), digits=2).quantize(torch.ones(1, 3)).double()).all()


def test_invalid_digit_tokens_become_minus_one():
    assert _tokens_to_digits(torch.tensor([[1, 2, 10, 10, 1, 10, 1, 1, 1]]), digits=2).tolist() == [[12, -1, -1]]


def test_window_encodes_residuals_of_trend_and_season():
    """A semicolon ends the history, earlier tokens do not depend on the future, and decoding restores the values."""
    window = _SeriesWindow(history=24, horizon=3, season=12, digits=2)
    x = torch.from_numpy(_seasonal_series())[None, :27]
    tokens, (read, expected, scale) = window.encode(x), window.encode_history(x[:, :24])
    assert tokens.shape == (1, window.num_tokens)
    assert _DIGITS.decode(tokens[0].tolist())[71] == ";"
    assert torch.equal(tokens[:, :72], read)
    assert torch.equal(window.encode(torch.cat([x[:, :24], x[:, 24:] + 5], 1))[:, :72], read)
    back = expected + scale.dequantize(_tokens_to_digits(tokens[:, 72:], digits=2))
    inside = (x[:, 24:] - expected > scale.low) & (x[:, 24:] - expected < scale.high)
    assert float((back - x[:, 24:]).abs()[inside].max()) <= float(scale.high - scale.low) / 99 / 2 + 1e-9


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


def test_conformal_scale_gives_80_percent_coverage():
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(2, 40, 50, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 3.0]).view(2, 1, 1)
    band = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64).view(3, 1, 1).expand(3, 40, 50)
    for rows in y:
        factor = _conformal_scale(band, rows)
        inside = ((-factor <= rows) & (rows <= 2 * factor)).double().mean()
        assert float(inside) == pytest.approx(0.8, abs=1e-3)
    assert _conformal_scale(torch.zeros(3, 40, 50), y[0].float()) == 10.0  # draws that are all alike


def test_calibration_data_are_not_trained_on_and_scale_the_loaded_model(recipe, run):
    from dataclasses import replace

    training, plain = recipe.setup(), replace(recipe, calibration_horizons=0).setup()
    series = _read_series("seasonal")
    assert torch.equal(training.batches._windows[-1], series[:-14][-8:])  # of (2 + 5) horizons of 2
    assert torch.equal(plain.batches._windows[-1], series[:-4][-8:])
    model = load(run)
    assert float(model.get_buffer("band_scale")) == pytest.approx(run.results["scale of the intervals"])
    bands = []
    for factor in (1.0, 2.0):
        model.get_buffer("band_scale").fill_(factor)
        bands.append(recipe.forecast(model, series[None, -6:]))
    assert torch.equal(bands[0][1], bands[1][1])
    torch.testing.assert_close(bands[1][2] - bands[1][1], 2 * (bands[0][2] - bands[0][1]))


def test_test_values_are_not_trained_on():
    series, window = torch.arange(100.0, dtype=torch.float64), _SeriesWindow(history=5, horizon=2, season=1, digits=2)
    source = _SeriesBatches(series[:-20], window, batch_size=64, seed=0, synthetic_steps=1)
    assert float(source._windows.max()) == 79.0
    drawn, given = source.batch(0)[0], source.batch(1)[0]
    assert drawn.shape == given.shape
    levels = _tokens_to_digits(given[:, :12], digits=2)
    assert int((levels[:32] - levels[:1]).abs().max()) <= 1  # a straight line, whichever window is taken
    assert len(levels[32:].unique(dim=0)) > 16  # drawn still


def test_build_model_rejects_another_tokenizer(recipe):
    from lawful.data.text import CharTokenizer

    with pytest.raises(ValueError, match="another tokenizer"):
        recipe.build_model({"tokenizer": CharTokenizer("0123456789,").to_json()})


@pytest.mark.long
def test_a_seasonal_series_is_forecast_better_than_by_its_last_season(tmp_path):
    results = train(ForecastRecipe(), output_dir=tmp_path).results
    errors = results["mean absolute error"]
    assert max(errors["zero-shot"], errors["trained"]) < errors["last season"]
    assert 0.6 < results["coverage of the 80 % interval"] < 0.95


def test_synthetic_series_are_finite_and_distinct():
    found = _synthetic_series(200, 40, generator=torch.Generator().manual_seed(0))
    assert found.isfinite().all()
    assert len(found.unique(dim=0)) == 200


def test_forecast_baselines():
    line = torch.arange(60.0, dtype=torch.float64)
    history = line[None, 40:52]
    assert _BASELINES["last value"](line, history, 3, 4).tolist() == [[51.0] * 3]
    assert _BASELINES["last season"](line, history, 5, 4).tolist() == [[48.0, 49.0, 50.0, 51.0, 48.0]]
    found = _BASELINES["linear regression"](line, history, 3, 4)
    np.testing.assert_allclose(found, [[52.0, 53.0, 54.0]], atol=0.05)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("t,y\n" + "".join(f"{i},{i}\n" for i in range(5)), "are needed"),
        ("t,y\n" + "".join(f"w{i},z{i}\n" for i in range(50)), "no numbers"),
        ("t,y\n" + "".join(f"w{i},{i if i != 7 else ''}\n" for i in range(50)), "none in row 8"),
    ],
)
def test_invalid_series_raise(content, said, recipe, tmp_path):
    from dataclasses import replace

    path = tmp_path / "bad.csv"
    path.write_text(content)
    with pytest.raises(TrainingFailed, match=said):
        train(replace(recipe, data=str(path)), output_dir=tmp_path)


def test_column_option_selects_a_column(tmp_path):
    path = tmp_path / "two.csv"
    path.write_text("a,b\n1,4\n2,5\n3,6\n")
    assert _read_series(str(path)).tolist() == [4, 5, 6]
    assert _read_series(str(path), column="a").tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="no column 'c'"):
        _read_series(str(path), column="c")
