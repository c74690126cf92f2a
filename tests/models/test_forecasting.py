import numpy as np
import pytest

from lawful.models import (
    ExponentialSmoothing,
    ForecastCombination,
    SeasonalRegression,
    drift_forecast,
    naive_forecast,
    seasonal_naive_forecast,
)
from lawful.models.forecasting import _PRIOR, _isotonic, _Rule, _spread, _student_ratio, _volatility, _weighted_median


def seasonal(n=96, *, slope=0.2, noise=0.5, seed=0, growth=0.0):
    rng, t = np.random.default_rng(seed), np.arange(n)
    pattern = np.random.default_rng(7).standard_normal(12)[t % 12]
    return 50 + slope * t + 3 * (1 + growth * t) * pattern + noise * rng.standard_normal(n)


def smooth_by_hand(x, *, alpha, beta, gamma, phi, level, slope, season):
    """Holt-Winters in its component form: averages of new and old values."""
    season, forecasts = list(season), []
    for t, value in enumerate(x):
        i = t % len(season)
        forecasts.append(level + phi * slope + season[i])
        new = alpha * (value - season[i]) + (1 - alpha) * (level + phi * slope)
        star = beta / alpha
        slope, old = star * (new - level) + (1 - star) * phi * slope, level + phi * slope
        season[i] += gamma * (value - old - season[i])
        level = new
    return forecasts, level, slope, season


def test_filter_equals_the_component_form_of_holt_winters():
    from lawful.models.forecasting import _filter, _Smoothing, _State

    x = seasonal(40)
    numbers = {"alpha": 0.3, "beta": 0.06, "gamma": 0.2, "phi": 0.9}
    start = {"level": 40.0, "slope": 0.5, "season": np.linspace(-1, 1, 12)}
    expected, level, slope, season = smooth_by_hand(x, **numbers, **start)
    parameters = _Smoothing(*(np.array([value]) for value in numbers.values()))
    state = _State(np.array([40.0]), np.array([0.5]), start["season"][:, None])
    found = _filter(x, parameters, state)
    np.testing.assert_allclose(found.forecasts[:, 0], expected)
    np.testing.assert_allclose(found.errors[:, 0], x - expected)
    np.testing.assert_allclose([found.state.level[0], found.state.slope[0]], [level, slope])
    np.testing.assert_allclose(found.state.season[:, 0], season)
    halves = _filter(x[17:], parameters, _filter(x[:17], parameters, state).state, start=17)
    np.testing.assert_allclose(halves.state.season, found.state.season)


def test_multiplicative_smoothing_is_scale_equivariant():
    x = np.exp(0.01 * seasonal(72))
    forecasts = [
        ExponentialSmoothing.fit(c * x, season=12, multiplicative=True).forecast(c * x, horizon=5) / c
        for c in (1.0, 1000.0)
    ]
    np.testing.assert_allclose(*forecasts, rtol=1e-6)


@pytest.mark.parametrize(("growth", "multiplicative"), [(0.0, False), (0.03, True)])
def test_smoothing_finds_trend_and_season(growth, multiplicative):
    x = seasonal(132, growth=growth, slope=1.5 if multiplicative else 0.2)
    fit = ExponentialSmoothing.fit(x[:120], season=12)
    assert (fit.trend, fit.multiplicative) == ("linear", multiplicative)
    error = np.abs(fit.forecast(x[:120], horizon=12) - x[120:]).mean()
    assert error < 0.5 * np.abs(seasonal_naive_forecast(x[:120], horizon=12, season=12) - x[120:]).mean()


@pytest.mark.parametrize(
    "forecaster",
    [
        ExponentialSmoothing.fit(seasonal(), season=12, trend="damped", multiplicative=False),
        ExponentialSmoothing.fit(seasonal(), season=12, trend="linear", multiplicative=True),
        SeasonalRegression.fit(seasonal(), seasons=(12,)),
        SeasonalRegression.fit(seasonal(), seasons=(4, 12), log=True),
    ],
    ids=["additive", "multiplicative", "regression", "regression of the logarithm"],
)
def test_a_forecast_depends_on_earlier_values_only(forecaster):
    x = seasonal(130)
    origins = np.array([96, 101, 115])
    found = forecaster.forecasts(x, origins, horizon=6)
    changed = x.copy()
    changed[101:] = 1.0
    assert found.shape == (3, 6)
    np.testing.assert_array_equal(forecaster.forecasts(changed, origins, horizon=6)[:2], found[:2])
    np.testing.assert_allclose(forecaster.forecast(x[:96], horizon=6), found[0])


def test_regression_finds_an_autoregression():
    rng = np.random.default_rng(0)
    x = np.zeros(600)
    for t in range(2, 600):
        x[t] = 1.5 * x[t - 1] - 0.7 * x[t - 2] + rng.standard_normal()
    fit = SeasonalRegression.fit(x, trend=False)
    assert fit.lags[:2] == (1, 2)
    np.testing.assert_allclose(fit.weights[:2], [1.5, -0.7], atol=0.15)


@pytest.mark.parametrize("gap", [slice(20, 21), slice(30, 45), slice(0, 90, 5)], ids=["one", "long", "every fifth"])
def test_missing_values_change_a_forecast_little(gap):
    x = seasonal(noise=0.1)
    gaps = x.copy()
    gaps[gap] = np.nan
    for fit in (
        lambda y: ExponentialSmoothing.fit(y, season=12, trend="linear", multiplicative=False).forecast(y, horizon=6),
        lambda y: SeasonalRegression.fit(y, seasons=(12,)).forecast(y, horizon=6),
    ):
        np.testing.assert_allclose(fit(gaps), fit(x), atol=1.0)


def test_weighted_median():
    forecasts = {"a": np.array([[0.0, 1.0]]), "b": np.array([[10.0, np.nan]]), "c": np.array([[20.0, 3.0]])}
    even = _weighted_median(forecasts, dict.fromkeys("abc", 1 / 3))
    np.testing.assert_allclose(even, [[10.0, 2.0]])
    np.testing.assert_allclose(_weighted_median(forecasts, {"a": 1.0, "b": 1e-9, "c": 1e-9}), [[0.0, 1.0]], atol=1e-6)
    assert _weighted_median(forecasts, {"c": 1.0}).tolist() == [[20.0, 3.0]]


def test_isotonic_fit():
    assert _isotonic(np.array([1.0, 3.0, 2.0, 4.0]), np.ones(4)).tolist() == [1.0, 2.5, 2.5, 4.0]


def test_weights_are_akaike_weights_over_a_power_of_the_validation_error():
    x = seasonal(96)
    fit = ForecastCombination.fit(x, seasons=(12,), horizon=6)
    aicc = np.array([getattr(model, "aicc", np.nan) for model in fit.models.values()])
    akaike = np.exp((np.nanmin(aicc) - aicc) / 2)
    prior = np.nan_to_num(akaike / np.nanmean(akaike), nan=_PRIOR)
    expected = prior * np.array([fit.errors[name] for name in fit.models]) ** -8.0
    np.testing.assert_allclose([fit.weights[name] for name in fit.models], expected / expected.sum(), rtol=1e-6)


def test_forecasts_that_the_whole_series_rules_out_have_no_weight():
    """The first part has a logarithm, the whole series has none."""
    x = np.append(seasonal(90), np.zeros(6))
    fit = ForecastCombination.fit(x, seasons=(12,), horizon=6)
    assert not any("logarithm" in name or "multiplicative" in name for name in fit.weights)
    assert fit.weights.keys() == fit.models.keys()


def test_the_interval_widens_with_the_step():
    walk = 100 + np.cumsum(np.random.default_rng(0).standard_normal(150))
    fit = ForecastCombination.fit(walk, horizon=12)
    assert sum(fit.weights.values()) == pytest.approx(1)
    interval = fit.forecast(walk)
    width = interval.upper - interval.lower
    assert width[-1] > 1.5 * width[0]
    assert (np.diff(width) >= -1e-9).all() or fit.relative
    with pytest.raises(ValueError, match="horizon must be between 1 and 12, got 13"):
        fit.forecast(walk, horizon=13)
    with pytest.raises(ValueError, match=r"coverage must be between 0 and 1, got 1\.0"):
        ForecastCombination.fit(walk, horizon=2, coverage=1.0)
    with pytest.raises(ValueError, match="at least 8 values"):
        ForecastCombination.fit(walk[:5], horizon=2)


def test_forecasts_of_values_that_are_not_negative_are_not_negative():
    x = np.random.default_rng(0).poisson(0.5, 60).astype(float)
    assert (ForecastCombination.fit(x, horizon=8).forecast(x).lower >= 0).all()


class Given:
    """A forecast from origins from `start` on: the true values plus an error."""

    def __init__(self, x, error, start=0):
        self.x, self.error, self.start = x, error, start

    def forecasts(self, x, origins, *, horizon):
        rows = [self.x[origin : origin + horizon] + self.error for origin in origins.tolist()]
        return np.where((origins >= self.start)[:, None], np.stack(rows), np.nan)


def test_further_forecasts_are_validated_like_the_others():
    x = seasonal(100)
    others = {"mine": Given(x, 0.1), "worse": Given(x, 9.0), "never": Given(x, 0.1, start=99)}
    fit = ForecastCombination.fit(x[:96], seasons=(12,), horizon=4, others=others)
    plain = {name: error for name, error in fit.errors.items() if name not in others}
    assert fit.errors["mine"] == min(plain.values())  # few horizons may flatter it
    assert fit.weights["mine"] > 1000 * fit.weights["worse"]
    assert "never" not in fit.weights
    assert fit.errors["mine"] == min(fit.errors.values())


def test_the_interval_contains_the_errors_of_further_forecasts():
    """Forecasts that are good early and bad late have a weight, and their late errors widen the interval."""
    x = seasonal(100, growth=0.03, slope=1.5)

    class Late(Given):
        def forecasts(self, x, origins, *, horizon):
            return super().forecasts(x, origins, horizon=horizon) + 20.0 * (origins > 80)[:, None]

    plain = ForecastCombination.fit(x[:96], seasons=(12,), horizon=4)
    good, late = (
        ForecastCombination.fit(x[:96], seasons=(12,), horizon=4, others=dict.fromkeys("abcdefghijklmnopqrst", other))
        for other in (Given(x, 0.0), Late(x, 0.0))
    )
    assert plain.relative
    assert good.relative  # the further forecasts have no say in whether errors grow
    assert (good.spread < plain.spread).all()
    assert (late.spread >= good.spread).all()


def test_the_interval_widens_with_the_volatility_before_the_origin():
    rng = np.random.default_rng(0)
    calm, wild = 50 + rng.standard_normal((2, 120)) * np.array([[1.0], [4.0]])
    x = np.concatenate([calm, wild])
    fit = ForecastCombination.fit(x, horizon=6)
    found = fit.forecasts(x, np.array([120, 240]))
    widths = (found.upper - found.lower).mean(1)
    assert widths[1] > 2 * widths[0]
    changed = np.where(np.arange(240) < 120, x, 0.0)
    np.testing.assert_array_equal(fit.forecasts(changed, np.array([120])).upper, found.upper[:1])


def test_few_errors_that_do_not_overlap_widen_the_interval():
    from scipy.stats import norm, t

    freedom = np.array([2.0, 5.0, 30.0])
    for coverage in (0.5, 0.8, 0.9):
        level = (1 + coverage) / 2
        np.testing.assert_allclose(
            _student_ratio(freedom, coverage), t.ppf(level, freedom) / norm.ppf(level), rtol=0.08
        )
    sizes = np.abs(np.random.default_rng(0).standard_normal((24, 6)))
    few, many = (_spread(sizes, span, coverage=0.8) for span in (24, 10**9))
    np.testing.assert_allclose(few / many, _student_ratio(1 + 24 / np.arange(1.0, 7.0), 0.8))
    assert (sizes <= many).mean() == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("relative", [False, True])
def test_volatility_is_the_weighted_mean_of_seasonal_differences(relative):
    x = np.array([1.0, 2.0, np.nan, 4.0, 3.0, 7.0])
    sizes = {3: (4.0 - 2.0, 3.0), 5: (7.0 - 4.0, 5.5)}  # the other differences have a missing value
    expected = [0.0, 0.0, 2.0, 2.0, (2.0 * 0.5 ** (2 / 10) + 3.0) / (0.5 ** (2 / 10) + 1)]
    if relative:
        early, late = (size / mean for size, mean in sizes.values())
        expected = [0.0, 0.0, early, early, (early * 0.5 ** (2 / 10) + late) / (0.5 ** (2 / 10) + 1)]
    found = _volatility(x, np.array([1, 3, 4, 5, 6]), 2, relative=relative)
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("x", [np.full(60, 3.0), np.repeat([0.0, 1.0, 0.0], 20), np.resize([1.0, 2.0, 3.0], 60)])
def test_intervals_of_series_without_noise_are_finite(x):
    found = ForecastCombination.fit(x, seasons=(3,), horizon=6).forecast(x)
    assert np.isfinite(found).all()
    assert (found.upper - found.lower < 3).all()


@pytest.mark.long
def test_the_interval_covers_80_percent_over_many_series():
    inside = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        walk = np.cumsum(0.3 * rng.standard_normal(132)) if seed % 2 else 0.0
        x = seasonal(132, seed=seed, noise=1.0) + walk
        found = ForecastCombination.fit(x[:120], seasons=(12,), horizon=12).forecast(x[:120])
        inside.append((found.lower <= x[120:]) & (x[120:] <= found.upper))
    assert 0.72 < np.mean(inside) < 0.88


def test_simple_forecasts():
    x = np.array([1.0, 5.0, 3.0])
    assert naive_forecast(x, horizon=2).tolist() == [3, 3]
    assert drift_forecast(x, horizon=2).tolist() == [4, 5]
    assert seasonal_naive_forecast(x, horizon=3, season=2).tolist() == [5, 3, 5]


def test_rolling_forecasts_do_not_see_later_values_in_gaps():
    x = np.array([1.0, 2.0, 3.0, np.nan, 100.0, 100.0])
    rule = _Rule(lambda past, h: np.repeat(past[-1:], h), 1)
    assert rule.forecasts(x, np.array([4]), horizon=2).tolist() == [[3.0, 3.0]]
