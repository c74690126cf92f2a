import numpy as np
import pytest
import torch

from lawful.recipes import Forecast, recipe_of, sample
from lawful.recipes.language.rules import RULES, continued
from lawful.recipes.language.series import (
    DIGITS,
    Scale,
    Window,
    Windows,
    read_back,
    read_series,
    seasonal,
    synthetic,
    written,
)
from lawful.training import TrainingFailed, train


@pytest.fixture
def recipe(tiny):
    return Forecast(history=6, horizon=2, season=3, tests=2, samples=4, **tiny(transformer={"ngrams": (2,)}))


def test_a_run_is_measured_beside_rules(recipe, tmp_path):
    run = train(recipe, folder=tmp_path)
    errors = run.results["mean absolute error"]
    assert list(errors) == ["zero-shot", "trained", "last value", "last season", "line and season", "linear"]
    assert errors["zero-shot"] == next(line["validation/error"] for line in run.metrics() if line["step"] == 3)
    lines = (run.samples / "forecast.csv").read_text().splitlines()
    assert len(lines) == 3
    for line in lines[1:]:
        _, low, median, high = map(float, line.split(","))
        assert low <= median <= high
    assert (run.figures / "forecast.png").stat().st_size > 5000
    assert len("".join(sample(run, "1, 2.5, 3")).splitlines()) == 3
    for prompt in ("", "1", "a, b", "1, nan, 2"):
        with pytest.raises(ValueError, match="the prompt is to"):
            list(sample(run, prompt))


def test_a_run_that_goes_on_gives_the_same_weights(recipe, tmp_path, stops_at):
    whole = train(recipe, folder=tmp_path)
    for step in (2, 4):
        begun = train(recipe, folder=tmp_path, trackers=[stops_at(step)])
        again = train(recipe_of(begun), resume=begun)
        for name, weight in whole.weights().items():
            assert torch.equal(weight, again.weights()[name]), name
        assert again.results["mean absolute error"] == whole.results["mean absolute error"]


def test_numbers_come_back_but_for_the_rounding():
    x = torch.from_numpy(seasonal())[None, :50]
    for digits in (1, 2, 3):
        scale = Scale.of(x, digits=digits)
        tokens = written(scale.levels(x), digits=digits)
        assert tokens.shape == (1, 50 * (digits + 1))
        back = scale.values(read_back(tokens, digits=digits))
        assert float((back - x).abs().max()) <= float(scale.high - scale.low) / (10**digits - 1) / 2 + 1e-9


def test_a_scale_knows_nothing_of_the_future():
    x = torch.tensor([[1.0, 2.0, 3.0, 100.0]])
    scale = Scale.of(x[:, :3], digits=2)
    assert (float(scale.low), float(scale.high)) == (-1.0, 5.0)
    assert scale.levels(x)[0, -1] == 99
    assert torch.isfinite(Scale.of(torch.ones(1, 3), digits=2).levels(torch.ones(1, 3)).double()).all()


def test_what_is_no_number_is_told():
    assert read_back(torch.tensor([[1, 2, 10, 10, 1, 10, 1, 1, 1]]), digits=2).tolist() == [[12, -1, -1]]


def test_a_window_is_what_a_line_and_a_season_leave_of_it():
    """Its tokens end the history by a semicolon, say nothing of the future before it, and come back as they were."""
    window = Window(history=24, horizon=3, season=12, digits=2)
    x = torch.from_numpy(seasonal())[None, :27]
    tokens, (read, expected, scale) = window.whole(x), window.read(x[:, :24])
    assert tokens.shape == (1, window.tokens)
    assert DIGITS.decode(tokens[0].tolist())[71] == ";"
    assert torch.equal(tokens[:, :72], read)
    assert torch.equal(window.whole(torch.cat([x[:, :24], x[:, 24:] + 5], 1))[:, :72], read)
    back = expected + scale.values(read_back(tokens[:, 72:], digits=2))
    inside = (x[:, 24:] - expected > scale.low) & (x[:, 24:] - expected < scale.high)
    assert float((back - x[:, 24:]).abs()[inside].max()) <= float(scale.high - scale.low) / 99 / 2 + 1e-9


def test_a_line_and_a_season_are_those_of_least_squares():
    x, t, season = torch.randn(2, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), 40, 7
    u = np.linspace(-1, 1, t)
    basis = np.column_stack([u, np.eye(season)[np.arange(t) % season]])
    penalised = np.vstack([basis, np.sqrt(0.1) * np.eye(season + 1)])
    for row, found in zip(x.numpy(), continued(x, 0, season).numpy(), strict=True):
        target = np.concatenate([row - row.mean(), np.zeros(season + 1)])
        weights = np.linalg.lstsq(penalised, target, rcond=None)[0]
        np.testing.assert_allclose(found, row.mean() + basis @ weights, atol=1e-10)


def test_no_value_of_the_test_is_trained_on():
    series, window = torch.arange(100.0, dtype=torch.float64), Window(history=5, horizon=2, season=1, digits=2)
    source = Windows(series[:-20], window, size=64, seed=0, drawn=1)
    assert float(source.windows.max()) == 79.0
    drawn, given = source.batch(0)[0], source.batch(1)[0]
    assert drawn.shape == given.shape
    levels = read_back(given[:, :12], digits=2)
    assert int((levels[:32] - levels[:1]).abs().max()) <= 1  # a straight line, whichever window is taken
    assert len(levels[32:].unique(dim=0)) > 16  # drawn still


def test_a_run_that_wrote_series_otherwise_is_refused(recipe):
    from lawful.data.text import Characters

    with pytest.raises(ValueError, match="of an earlier forecast"):
        recipe.restored({"tokenizer": Characters("0123456789,").to_json()})


@pytest.mark.long
def test_a_seasonal_series_is_forecast_better_than_by_its_last_season(tmp_path):
    results = train(Forecast(), folder=tmp_path).results
    errors = results["mean absolute error"]
    assert max(errors["zero-shot"], errors["trained"]) < errors["last season"]
    assert 0.6 < results["share within the quantiles 0.1 and 0.9"] < 0.95


def test_drawn_series_are_finite_and_unlike():
    found = synthetic(200, 40, generator=torch.Generator().manual_seed(0))
    assert found.isfinite().all()
    assert len(found.unique(dim=0)) == 200


def test_rules_say_what_they_should():
    line = torch.arange(60.0, dtype=torch.float64)
    history = line[None, 40:52]
    assert RULES["last value"](line, history, 3, 4).tolist() == [[51.0] * 3]
    assert RULES["last season"](line, history, 5, 4).tolist() == [[48.0, 49.0, 50.0, 51.0, 48.0]]
    found = RULES["linear"](line, history, 3, 4)
    np.testing.assert_allclose(found, [[52.0, 53.0, 54.0]], atol=0.05)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("t,y\n" + "".join(f"{i},{i}\n" for i in range(5)), "too short"),
        ("t,y\n" + "".join(f"w{i},z{i}\n" for i in range(50)), "no numbers"),
        ("t,y\n" + "".join(f"w{i},{i if i != 7 else ''}\n" for i in range(50)), "none at row 8"),
    ],
)
def test_what_is_no_series_is_refused(content, said, recipe, tmp_path):
    from dataclasses import replace

    path = tmp_path / "bad.csv"
    path.write_text(content)
    with pytest.raises(TrainingFailed, match=said):
        train(replace(recipe, data=str(path)), folder=tmp_path)


def test_a_column_can_be_named(tmp_path):
    path = tmp_path / "two.csv"
    path.write_text("a,b\n1,4\n2,5\n3,6\n")
    assert read_series(str(path)).tolist() == [4, 5, 6]
    assert read_series(str(path), column="a").tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="no column 'c'"):
        read_series(str(path), column="c")
