import numpy as np
import pytest
import torch

from lawful.recipes import Forecast, recipe_of, sample
from lawful.recipes.language.rules import RULES
from lawful.recipes.language.series import Scale, Windows, read_back, read_series, seasonal, synthetic, written
from lawful.training import TrainingFailed, train


@pytest.fixture
def recipe(tiny):
    return Forecast(history=6, horizon=2, season=3, tests=2, samples=4, **tiny(transformer={"ngrams": (2,)}))


def test_a_run_is_measured_beside_rules(recipe, tmp_path):
    run = train(recipe, folder=tmp_path)
    errors = run.results["mean absolute error"]
    assert list(errors) == ["zero-shot", "trained", "last value", "last season", "linear"]
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
    assert (float(scale.low), float(scale.high)) == (0.0, 4.0)
    assert scale.levels(x)[0, -1] == 99
    assert torch.isfinite(Scale.of(torch.ones(1, 3), digits=2).levels(torch.ones(1, 3)).double()).all()


def test_what_is_no_number_is_told():
    assert read_back(torch.tensor([[1, 2, 10, 10, 1, 10, 1, 1, 1]]), digits=2).tolist() == [[12, -1, -1]]


def test_no_value_of_the_test_is_trained_on():
    series = torch.arange(100.0, dtype=torch.float64)
    source = Windows(series[:-20], history=5, horizon=2, digits=2, size=64, seed=0, drawn=1)
    assert float(source.windows.max()) == 79.0
    drawn, given = source.batch(0)[0], source.batch(1)[0]
    assert drawn.shape == given.shape
    assert len(given.unique(dim=0)) == 1  # a straight line, whichever window is taken


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
