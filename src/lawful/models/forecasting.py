"""Forecasts of a series: seasonal naive, drift, exponential smoothing, seasonal regression, and their combination."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from lawful.data.series import fill_missing

# ---------------------------------------------------------------- naive forecasts


def naive_forecast(x: Float[np.ndarray, " n"], *, horizon: int) -> Float[np.ndarray, " h"]:
    """Repeats the last value.

    Examples:
        >>> naive_forecast(np.array([1.0, 3.0]), horizon=2)
        array([3., 3.])
    """
    return np.repeat(x[-1:], horizon)


def drift_forecast(x: Float[np.ndarray, " n"], *, horizon: int) -> Float[np.ndarray, " h"]:
    r"""Continues the line from the first to the last value.

    $$\hat x_{n + h} = x_n + h \, \frac{x_n - x_1}{n - 1}$$

    Examples:
        >>> drift_forecast(np.array([1.0, 5.0, 3.0]), horizon=2)
        array([4., 5.])
    """
    slope = (x[-1] - x[0]) / max(1, len(x) - 1)
    return x[-1] + slope * np.arange(1, horizon + 1)


def seasonal_naive_forecast(x: Float[np.ndarray, " n"], *, horizon: int, season: int) -> Float[np.ndarray, " h"]:
    r"""Repeats the last season.

    $$\hat x_{n + h} = x_{n + h - p \lceil h / p \rceil}$$

    Args:
        x: Values.
        horizon: Number of values to forecast.
        season: Period $p$; 1 repeats the last value.

    Examples:
        >>> seasonal_naive_forecast(np.array([1.0, 2.0, 3.0]), horizon=3, season=2)
        array([2., 3., 2.])
    """
    return np.resize(x[-season:], horizon)


# ---------------------------------------------------------------- exponential smoothing

Trend = Literal["none", "damped", "linear"]
"""Trend of exponential smoothing."""
_TRENDS: tuple[Trend, ...] = ("none", "damped", "linear")
_NUM_PARAMETERS = {"none": 0, "damped": 3, "linear": 2}
_FIT_LENGTH = 1000
"""Number of last values that parameters are fitted to."""
_POPULATION, _ROUNDS, _SURVIVORS = 48, 6, 10


@dataclass(frozen=True)
class _Smoothing:
    """Parameters of exponential smoothing, one row per candidate."""

    alpha: Float[np.ndarray, " k"]
    beta: Float[np.ndarray, " k"]
    gamma: Float[np.ndarray, " k"]
    phi: Float[np.ndarray, " k"]
    multiplicative: bool = False


@dataclass(frozen=True)
class _State:
    """Level, slope and season of exponential smoothing, one row per candidate."""

    level: Float[np.ndarray, " k"]
    slope: Float[np.ndarray, " k"]
    season: Float[np.ndarray, "p k"]


@dataclass(frozen=True)
class _Filtered:
    """One-step forecasts and errors, 0 where a value is missing, and the state after the values."""

    forecasts: Float[np.ndarray, "n k"]
    errors: Float[np.ndarray, "n k"]
    state: _State


def _filter(x: Float[np.ndarray, " n"], parameters: _Smoothing, state: _State, *, start: int = 0) -> _Filtered:
    """Runs exponential smoothing over values.

    Args:
        x: Values at the times `start`, `start + 1`, ...
        parameters: Parameters.
        state: State before the values.
        start: Time of the first value.
    """
    alpha, beta, gamma, phi = parameters.alpha, parameters.beta, parameters.gamma, parameters.phi
    level, slope, season = state.level, state.slope, state.season.copy()
    forecasts, errors = np.zeros((2, len(x), len(alpha)))
    for t, value in enumerate(x.tolist()):
        slope = phi * slope
        level = level + slope
        seasonal = season[(start + t) % len(season)]
        if parameters.multiplicative:
            level = np.maximum(level, 1e-12)
            forecasts[t] = level * seasonal
        else:
            forecasts[t] = level + seasonal
        if math.isnan(value):
            continue
        errors[t] = error = value - forecasts[t]
        if parameters.multiplicative:
            relative = error / seasonal
            seasonal += gamma * error / level
            np.maximum(seasonal, 1e-6, out=seasonal)
            error = relative
        else:
            seasonal += gamma * error
        level = level + alpha * error
        slope = slope + beta * error
    return _Filtered(forecasts, errors, _State(level, slope, season))


def _initial_state(x: Float[np.ndarray, " n"], season: int, parameters: _Smoothing) -> _State:
    """Level, slope and season at the start, from the first seasons."""
    count = min(len(x), max(4 * season, 12))
    head, t = x[:count], np.arange(count)
    known = ~np.isnan(head)
    design = np.column_stack([np.ones(count), t / count])
    weights = np.linalg.lstsq(design[known], head[known], rcond=None)[0]
    line = design @ weights
    neutral = 1.0 if parameters.multiplicative else 0.0
    rest = head / np.maximum(line, 1e-12) if parameters.multiplicative else head - line
    pattern = np.full(season, neutral)
    if season > 1:
        counts = np.bincount(t[known] % season, minlength=season)
        sums = np.bincount(t[known] % season, rest[known], minlength=season)
        pattern = np.where(counts > 0, sums / np.maximum(counts, 1), neutral)
        pattern = np.maximum(pattern / pattern.mean(), 1e-6) if parameters.multiplicative else pattern - pattern.mean()
    trend = parameters.phi > 0
    slope = weights[1] / count
    level = np.where(trend, weights[0] - slope, np.nanmean(head))
    return _State(level, np.where(trend, slope, 0.0), np.repeat(pattern[:, None], len(trend), 1))


def _backcast_and_filter(x: Float[np.ndarray, " n"], parameters: _Smoothing, season: int) -> _Filtered:
    """Finds the initial state by filtering the reversed series (backcasting), then filters the series."""
    last = _filter(x[::-1], parameters, _initial_state(x[::-1], season, parameters)).state
    order = (len(x) - 1 - np.arange(season)) % season  # the reversed series has phase n - 1 - i where this has i
    return _filter(x, parameters, _State(last.level, -last.slope, last.season[order]))


def _parameters(
    points: Float[np.ndarray, "trends k 4"], trends: Sequence[Trend], season: int, multiplicative: bool
) -> _Smoothing:
    """Maps points of the unit cube to parameters, for each trend."""
    has_trend = np.array([[trend != "none"] for trend in trends])
    damped = np.array([[trend == "damped"] for trend in trends])
    alpha = 0.001 + 0.998 * points[..., 0] ** 1.5
    beta = np.where(has_trend, alpha * points[..., 1] ** 3, 0.0)
    gamma = (1 - alpha) * points[..., 2] ** 3 * (season > 1)
    phi = np.where(damped, 0.8 + 0.198 * points[..., 3], 1.0 * has_trend)
    return _Smoothing(alpha.ravel(), beta.ravel(), gamma.ravel(), phi.ravel(), multiplicative)


@dataclass(frozen=True, kw_only=True)
class ExponentialSmoothing:
    r"""Exponential smoothing (Holt-Winters): a level, a trend that may be damped, and a season.

    $$\hat x_{t} = l_{t-1} + \phi b_{t-1} + s_{t-p}, \quad e_t = x_t - \hat x_t$$
    $$l_t = l_{t-1} + \phi b_{t-1} + \alpha e_t, \quad b_t = \phi b_{t-1} + \beta e_t, \quad
    s_t = s_{t-p} + \gamma e_t$$

    With a multiplicative season, $\hat x_{t} = (l_{t-1} + \phi b_{t-1}) \, s_{t-p}$; the parameters are then fitted to
    absolute or to relative errors. The initial state is found by filtering the reversed series. A missing value (NaN)
    has no error.

    Reference:
        Hyndman and Athanasopoulos, *Forecasting: Principles and Practice*, 2021, chapter 8.

    Examples:
        >>> x = np.array([1.0, 2.0, 3.0] * 10)
        >>> ExponentialSmoothing.fit(x, season=3).forecast(x, horizon=4).round()
        array([1., 2., 3., 1.])
    """

    season: int = 1
    """Period $p$; 1 for none."""
    trend: Trend = "none"
    """Kind of trend."""
    multiplicative: bool = False
    """Whether the season is multiplicative."""
    alpha: float
    """Smoothing of the level."""
    beta: float = 0.0
    """Smoothing of the trend."""
    gamma: float = 0.0
    """Smoothing of the season."""
    phi: float = 0.0
    """Damping of the trend; 1 for a linear trend, 0 for none."""
    aicc: float = math.nan
    """Corrected Akaike information criterion of the fit."""

    @classmethod
    def fit(
        cls,
        x: Float[np.ndarray, " n"],
        *,
        season: int = 1,
        trend: Trend | None = None,
        multiplicative: bool | None = None,
    ) -> ExponentialSmoothing:
        """Fits the parameters to the one-step errors.

        Args:
            x: Values, NaN where missing.
            season: Period; 1 for none.
            trend: Kind of trend. By default the one with the smallest AICc.
            multiplicative: Whether the season is multiplicative. By default if the AICc is smaller.
        """
        x = x[-max(_FIT_LENGTH, 8 * season) :]
        trends = _TRENDS if trend is None else (trend,)
        if multiplicative is None:
            kinds = (False, True) if season > 1 and np.nanmin(x) > 0 else (False,)
        else:
            kinds = (multiplicative,)
        forms = [(kind, relative) for kind in kinds for relative in {kind, False}]
        fits = (_fit_smoothing(x, season, trends, kind, relative=relative) for kind, relative in forms)
        return min((fit for each in fits for fit in each), key=_aicc)

    def forecast(self, x: Float[np.ndarray, " n"], *, horizon: int) -> Float[np.ndarray, " h"]:
        """Forecasts the values after `x`."""
        return self.forecasts(x, np.array([len(x)]), horizon=horizon)[0]

    def forecasts(
        self, x: Float[np.ndarray, " n"], origins: Int[np.ndarray, " k"], *, horizon: int
    ) -> Float[np.ndarray, "k h"]:
        """Forecasts the values after each origin, from `x[:origin]`. Origins ascend."""
        start = max(0, int(origins[0]) - max(_FIT_LENGTH, 8 * self.season))
        x, at = x[start:], int(origins[0]) - start
        numbers = (self.alpha, self.beta, self.gamma, self.phi)
        alpha, beta, gamma, phi = np.array(numbers)[:, None]
        parameters = _Smoothing(alpha, beta, gamma, phi, self.multiplicative)
        state = _backcast_and_filter(x[:at], parameters, self.season).state
        rise, found = np.cumsum(self.phi ** np.arange(1.0, horizon + 1)), []
        for origin in (origins - start).tolist():
            state = _filter(x[at:origin], parameters, state, start=at).state
            at = origin
            level = state.level[0] + rise * state.slope[0]
            seasonal = state.season[(at + np.arange(horizon)) % self.season, 0]
            found.append(level * seasonal if self.multiplicative else level + seasonal)
        return np.array(found)


def _aicc(fit: ExponentialSmoothing) -> float:
    return fit.aicc


def _fit_smoothing(
    x: Float[np.ndarray, " n"], season: int, trends: Sequence[Trend], multiplicative: bool, *, relative: bool
) -> list[ExponentialSmoothing]:
    """Maximizes the likelihood of the one-step errors by differential evolution, for all trends at once.

    Args:
        x: Values.
        season: Period.
        trends: Kinds of trends.
        multiplicative: Whether the season is multiplicative.
        relative: Whether errors are divided by the forecast.
    """
    rng = np.random.default_rng(0)
    known = ~np.isnan(x)
    n, count = int(known.sum()), len(trends)
    points = np.tile(rng.random((_POPULATION, 4)), (count, 1, 1))
    best, scores = np.zeros((count, 0, 4)), np.zeros((count, 0))
    for _ in range(_ROUNDS):
        found = _backcast_and_filter(x, _parameters(points, trends, season, multiplicative), season)
        errors, jacobian = found.errors[known], 0.0
        if relative:
            forecasts = np.maximum(np.abs(found.forecasts[known]), 1e-12)
            errors, jacobian = errors / forecasts, 2 * np.log(forecasts).sum(0)
        score = n * np.log(np.maximum((errors**2).sum(0), 1e-300) / n) + jacobian
        best = np.concatenate([best, points], 1)
        scores = np.concatenate([scores, np.nan_to_num(score, nan=np.inf).reshape(count, -1)], 1)
        keep = np.argsort(scores, 1)[:, :_SURVIVORS]
        best, scores = np.take_along_axis(best, keep[..., None], 1), np.take_along_axis(scores, keep, 1)
        a, b, c = rng.integers(best.shape[1], size=(3, _POPULATION))
        points = best[:, a] + 0.7 * (best[:, b] - best[:, c])
        points = np.clip(points + 0.02 * rng.standard_normal(points.shape), 0, 1)
    chosen = _parameters(best[:, :1], trends, season, multiplicative)
    fits = []
    for i, trend in enumerate(trends):
        k = 3 + season * (season > 1) + _NUM_PARAMETERS[trend]
        numbers = {key: float(getattr(chosen, key)[i]) for key in ("alpha", "beta", "gamma", "phi")}
        aicc = float(scores[i, 0]) + 2 * k * n / max(1, n - k - 1)
        fits.append(
            ExponentialSmoothing(season=season, trend=trend, multiplicative=multiplicative, **numbers, aicc=aicc)
        )
    return fits


# ---------------------------------------------------------------- seasonal regression

_RIDGES = (0.01, 0.1, 1.0, 10.0, 100.0)
"""Ridge penalties of a seasonal component to choose from."""
_MAX_LAGS = 6


@dataclass(frozen=True, kw_only=True, eq=False)
class SeasonalRegression:
    r"""Ridge regression on lagged values, a linear trend and seasons, iterated over the horizon.

    $$x_t = c + d \, t + \sum_{i \in \text{lags}} a_i \, x_{t-i} + \sum_p s^{(p)}_{t \bmod p} + e_t$$

    It is a regression with autoregressive errors. The number of lags and the ridge penalties of the seasons are chosen
    by generalized cross-validation.

    Examples:
        >>> x = np.array([1.0, 2.0, 3.0] * 20)
        >>> SeasonalRegression.fit(x, seasons=(3,)).forecast(x, horizon=4).round()
        array([1., 2., 3., 1.])
    """

    seasons: tuple[int, ...]
    """Periods $p$."""
    lags: tuple[int, ...]
    """Lags of the autoregression."""
    weights: Float[np.ndarray, " d"]
    """Weights of the lags, the constant, the trend and the seasons."""
    center: float
    """Mean that is subtracted from the values."""
    scale: float
    """Standard deviation that the values are divided by."""
    length: int
    """Number of values that the trend was fitted to."""
    log: bool = False
    """Whether the logarithm is regressed."""

    @classmethod
    def fit(
        cls, x: Float[np.ndarray, " n"], *, seasons: Sequence[int] = (), trend: bool = True, log: bool = False
    ) -> SeasonalRegression:
        """Fits the weights.

        Args:
            x: Values, NaN where missing.
            seasons: Periods of the seasons.
            trend: Whether there is a linear trend.
            log: Whether to regress the logarithm; values must be positive.
        """
        seasons = tuple(p for p in seasons if 1 < p <= len(x) // 2)
        known = ~np.isnan(x)
        y = fill_missing(x, season=max(seasons, default=1))
        y = np.log(y) if log else y
        center, scale = float(y.mean()), float(y.std()) or 1.0
        y = (y - center) / scale
        best: tuple[float, tuple[int, ...], np.ndarray] | None = None
        for lags in _lag_sets(seasons, len(y)):
            skip = lags[-1] if lags else 0
            rows = np.flatnonzero(known[skip:]) + skip
            features = np.column_stack([*(y[rows - lag] for lag in lags), _calendar(rows, len(y), seasons, trend)])
            gram = features.T @ features
            for ridges in _ridge_sets(seasons):
                penalty = np.concatenate([np.full(len(lags), 1e-3), [0.0, 1e-3]] + [np.full(p, r) for p, r in ridges])
                weights, score = _ridge(features, y[rows], gram, penalty)
                if best is None or score < best[0]:
                    best = score, lags, weights
        if best is None:
            raise ValueError(f"expected at least 4 values, got {len(x)}")
        return cls(seasons=seasons, lags=best[1], weights=best[2], center=center, scale=scale, length=len(y), log=log)

    def forecast(self, x: Float[np.ndarray, " n"], *, horizon: int) -> Float[np.ndarray, " h"]:
        """Forecasts the values after `x`."""
        return self.forecasts(x, np.array([len(x)]), horizon=horizon)[0]

    def forecasts(
        self, x: Float[np.ndarray, " n"], origins: Int[np.ndarray, " k"], *, horizon: int
    ) -> Float[np.ndarray, "k h"]:
        """Forecasts the values after each origin, from `x[:origin]`."""
        depth = max(self.lags, default=1)
        season = max(self.seasons, default=1)
        rows = []
        for origin in origins.tolist():
            past = x[max(0, origin - depth - 2 * season) : origin]
            rows.append(fill_missing(past, season=season)[-depth:])
        y = np.array(rows)
        y = np.log(np.maximum(y, math.exp(self.center - 10 * self.scale))) if self.log else y
        y = (y - self.center) / self.scale
        trend = bool(self.weights[len(self.lags) + 1])
        for step in range(horizon):
            now = _calendar(origins + step, self.length, self.seasons, trend) @ self.weights[len(self.lags) :]
            for lag, weight in zip(self.lags, self.weights, strict=False):
                now = now + weight * y[:, -lag]
            y = np.column_stack([y, np.clip(now, -20, 20)])
        y = self.center + self.scale * y[:, -horizon:]
        return np.exp(np.minimum(y, 700)) if self.log else y


def _lag_sets(seasons: Sequence[int], n: int) -> list[tuple[int, ...]]:
    """Sets of lags to choose from: the first few, and those around the season."""
    counts = [k for k in (0, 1, 2, 3, _MAX_LAGS) if 4 * k < n]
    sets: list[tuple[int, ...]] = [tuple(range(1, k + 1)) for k in counts]
    period = max(seasons, default=1)
    if period > _MAX_LAGS and 4 * period < n:
        sets += [(*range(1, k + 1), period, *([period + 1] if k else [])) for k in counts if k in (1, 2)]
    return sets


def _ridge_sets(seasons: Sequence[int]) -> list[list[tuple[int, float]]]:
    """Ridge penalties to choose from, one per season."""
    if not seasons:
        return [[]]
    if len(seasons) == 1:
        return [[(seasons[0], ridge)] for ridge in _RIDGES]
    return [
        [*((p, small) for p in seasons[:-1]), (seasons[-1], large)] for small in _RIDGES[::2] for large in _RIDGES[1:]
    ]


def _calendar(t: Int[np.ndarray, " k"], length: int, seasons: Sequence[int], trend: bool) -> Float[np.ndarray, "k d"]:
    """Features of the time: a constant, the trend and the phases of the seasons."""
    line = 2 * t / length - 1 if trend else np.zeros(len(t))
    return np.column_stack([np.ones(len(t)), line, *(np.eye(p)[t % p] for p in seasons)])


def _ridge(
    x: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, " n"],
    gram: Float[np.ndarray, "d d"],
    penalty: Float[np.ndarray, " d"],
) -> tuple[Float[np.ndarray, " d"], float]:
    """Returns the weights of a ridge regression and the logarithm of its generalized cross-validation error."""
    inverse = np.linalg.inv(gram + np.diag(penalty + 1e-6))
    weights = inverse @ (x.T @ y)
    freedom = float(np.einsum("ij,ji->", inverse, gram))
    n = len(y)
    if freedom > 0.9 * n:
        return weights, math.inf
    error = float(((y - x @ weights) ** 2).mean())
    return weights, math.log(max(error, 1e-300)) - 2 * math.log(1 - freedom / n)


# ---------------------------------------------------------------- combination

_POWER = 8.0
"""Weights are errors to the power of minus this."""
_MAX_ORIGINS = 24
_MAX_RATIO = 1e6
_PRIOR = 1.5
"""Prior weight of each forecast but exponential smoothing, whose forms have a mean of 1."""
_MIN_LENGTH = 8
"""Smallest number of values of a series."""


class PredictionInterval(NamedTuple):
    """A forecast with an interval."""

    forecast: Float[np.ndarray, "*n h"]
    """Median forecast."""
    lower: Float[np.ndarray, "*n h"]
    """Lower end of the interval."""
    upper: Float[np.ndarray, "*n h"]
    """Upper end of the interval."""


@runtime_checkable
class Forecaster(Protocol):
    """A fitted forecast."""

    def forecasts(
        self, x: Float[np.ndarray, " n"], origins: Int[np.ndarray, " k"], *, horizon: int
    ) -> Float[np.ndarray, "k h"]:
        """Forecasts the values after each origin, from `x[:origin]`; NaN where there is no forecast."""
        ...


@dataclass(frozen=True)
class _Rule:
    """A forecast without parameters."""

    rule: Callable[[np.ndarray, int], np.ndarray]
    season: int

    def forecasts(
        self, x: Float[np.ndarray, " n"], origins: Int[np.ndarray, " k"], *, horizon: int
    ) -> Float[np.ndarray, "k h"]:
        pasts = (fill_missing(x[:origin], season=self.season) for origin in origins.tolist())
        return np.array([self.rule(past, horizon) for past in pasts])


def _candidates(x: Float[np.ndarray, " n"], seasons: Sequence[int]) -> dict[str, Forecaster]:
    """Fits all forecasts to combine."""
    season, positive = max(seasons, default=1), bool(np.nanmin(x) > 0)
    found: dict[str, Forecaster] = {
        "drift": _Rule(lambda past, h: drift_forecast(past, horizon=h), season),
        "seasonal naive" if season > 1 else "last value": _Rule(
            lambda past, h: seasonal_naive_forecast(past, horizon=h, season=season), season
        ),
    }
    recent = x[-max(_FIT_LENGTH, 8 * season) :]
    forms = ((False, False), (True, False), (True, True)) if season > 1 and positive else ((False, False),)
    for multiplicative, relative in forms:
        kind = f", {'multiplicative' if multiplicative else 'additive'} season" if season > 1 else ""
        kind += ", relative errors" if relative else ""
        for fit in _fit_smoothing(recent, season, _TRENDS, multiplicative, relative=relative):
            found[f"exponential smoothing, {'no' if fit.trend == 'none' else fit.trend} trend{kind}"] = fit
    for log in (False, True) if positive else (False,):
        for trend in (True, False):
            name = f"regression{' of the logarithm' if log else ''}, {'linear' if trend else 'no'} trend"
            found[name] = SeasonalRegression.fit(x, seasons=seasons, trend=trend, log=log)
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class ForecastCombination:
    r"""Weighted median of seasonal naive, drift, exponential smoothing and seasonal regression.

    Each forecast is fitted to the first part of the series and forecasts from rolling origins in the rest. Its weight
    is $w_i \propto \pi_i \, \epsilon_i^{-8}$ with its mean absolute error $\epsilon_i$ there. The priors $\pi_i$ of the
    forms of exponential smoothing are Akaike weights, $\pi_i \propto \exp(-\text{AICc}_i / 2)$ with mean 1. The prior
    of each other forecast is 1.5. Then all are fitted to the whole series.

    The prediction interval of step $h$ is $\pm c \, t_h \, s_h \, v$. $v$ is the volatility before the origin: the mean
    absolute seasonal difference, in which later differences count more. $s_h$ is the mean absolute error of the
    combination at step $h$ divided by $v$; it does not decrease with $h$. $c$ is the quantile of the errors divided by
    $s_h \, v$ (conformal prediction). $t_h \ge 1$ is the ratio of the quantiles of Student's t and the normal
    distribution for the number of errors at step $h$ that do not overlap. The weights for these errors come from other
    origins, whose horizons do not overlap.

    Further forecasts, such as those of a trained network, are validated and combined like the others.

    Examples:
        >>> t = np.arange(72)
        >>> combination = ForecastCombination.fit(10 + 0.5 * t + 3 * np.sin(t * np.pi / 6), seasons=(12,), horizon=6)
        >>> interval = combination.forecast(10 + 0.5 * t + 3 * np.sin(t * np.pi / 6), horizon=2)
        >>> interval.forecast.round()
        array([46., 48.])
    """

    season: int
    """Period of the series; 1 for none."""
    models: Mapping[str, Forecaster]
    """Fitted forecasts by name."""
    errors: Mapping[str, float]
    """Mean absolute validation error of each forecast."""
    weights: Mapping[str, float]
    """Weight of each forecast."""
    spread: Float[np.ndarray, " h"]
    """Half the width of the interval at each step, in units of the volatility before the origin."""
    volatility: float
    """Mean absolute seasonal difference of the series."""
    relative: bool
    """Whether errors grow with the forecast."""
    lowest: float
    """Smallest possible value: 0 for values that are not negative, otherwise minus infinity."""

    @classmethod
    def fit(
        cls,
        x: Float[np.ndarray, " n"],
        *,
        seasons: Sequence[int] = (),
        horizon: int,
        coverage: float = 0.8,
        others: Mapping[str, Forecaster] | None = None,
    ) -> ForecastCombination:
        """Fits all forecasts, their weights and the prediction interval.

        Args:
            x: Values, NaN where missing.
            seasons: Periods of the seasons; the last is the main one.
            horizon: Number of values to forecast.
            coverage: Probability of the prediction interval.
            others: Further forecasts, already fitted. They return NaN after origins in the values that they were fitted
                to; without any forecast, they have no weight. Their errors are compared with the others after the same
                origins. They never count as better than the best of the others.
        """
        if len(x) < _MIN_LENGTH:
            raise ValueError(f"expected at least {_MIN_LENGTH} values, got {len(x)}")
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must be between 0 and 1, got {coverage}")
        seasons = tuple(p for p in seasons if 1 < p <= len(x) // 2)
        season = max(seasons, default=1)
        steps = min(horizon, max(1, len(x) // 4))
        origins = _rolling_origins(len(x), steps, season)
        actual = np.array([x[origin : origin + steps] for origin in origins])
        before, models = _candidates(x[: origins[0]], seasons), _candidates(x, seasons)
        validation = {name: before[name].forecasts(x, origins, horizon=steps) for name in models}
        further = {name: model.forecasts(x, origins, horizon=steps) for name, model in (others or {}).items()}
        abs_errors = {name: np.abs(found - actual) for name, found in (validation | further).items()}
        errors = _mean_errors(abs_errors, further)
        weights = _weights(errors, _priors(models))
        combined = _held_out_combination(validation | further, abs_errors, further, origins, _priors(before))
        growing = {name: "multiplicative" in name or "logarithm" in name for name in weights if name in validation}
        share = sum(weights[name] for name in growing if growing[name]) / sum(weights[name] for name in growing)
        relative = share > 0.5 and bool((combined > 0).all())
        local = _volatility(x, origins, season, relative=relative)
        volatility = float(_volatility(x, np.array([len(x)]), season, relative=relative, half_life=math.inf)[0])
        units = _units(local, volatility)[:, None] * (np.abs(combined) if relative else 1.0)
        span = int(origins[-1] - origins[0]) + 1
        spread = _spread(np.abs(actual - combined) / units, span, coverage=coverage)
        if steps < horizon:
            spread = np.concatenate([spread, spread[-1] * np.sqrt(np.arange(steps + 1, horizon + 1) / steps)])
        return cls(
            season=season,
            models={**models, **(others or {})},
            errors=errors,
            weights=weights,
            spread=spread,
            volatility=volatility,
            relative=relative,
            lowest=0.0 if np.nanmin(x) >= 0 else -math.inf,
        )

    def forecast(
        self,
        x: Float[np.ndarray, " n"],
        *,
        horizon: int | None = None,
    ) -> PredictionInterval:
        """Forecasts the values after `x`.

        Args:
            x: Values, NaN where missing.
            horizon: Number of values. Defaults to the horizon of the fit, which is also the largest.
        """
        found = self.forecasts(x, np.array([len(x)]), horizon=horizon)
        return PredictionInterval(*(part[0] for part in found))

    def forecasts(
        self,
        x: Float[np.ndarray, " n"],
        origins: Int[np.ndarray, " k"],
        *,
        horizon: int | None = None,
    ) -> PredictionInterval:
        """Forecasts the values after each origin, from `x[:origin]`. Origins ascend."""
        horizon = len(self.spread) if horizon is None else horizon
        if not 1 <= horizon <= len(self.spread):
            raise ValueError(f"horizon must be between 1 and {len(self.spread)}, got {horizon}")
        models = ((name, model) for name, model in self.models.items() if name in self.weights)
        parts = {name: model.forecasts(x, origins, horizon=horizon) for name, model in models}
        median = np.maximum(_weighted_median(parts, self.weights), self.lowest)
        local = _volatility(x, origins, self.season, relative=self.relative)
        units = _units(local, self.volatility)[:, None] * (np.abs(median) if self.relative else 1.0)
        width = self.spread[:horizon] * units
        return PredictionInterval(median, np.maximum(median - width, self.lowest), median + width)


def _mean_errors(abs_errors: Mapping[str, Float[np.ndarray, "k h"]], further: Collection[str]) -> dict[str, float]:
    """Mean absolute error of each forecast.

    A further forecast is compared with the best other forecast after the same origins. Its error is the error of the
    best other forecast over all origins, times their ratio, which is at least 1.
    """
    errors = {name: float(np.nanmean(abs_error)) for name, abs_error in abs_errors.items() if name not in further}
    best = min(error for error in errors.values() if math.isfinite(error))
    for name in further:
        known = ~np.isnan(abs_errors[name])
        if not known.any():
            errors[name] = math.inf
            continue
        same = min(float(abs_errors[other][known].mean()) for other in abs_errors if other not in further)
        own = float(abs_errors[name][known].mean())
        errors[name] = best * max(1.0, own / same) if same > 0 else math.inf
    return errors


def _priors(models: Mapping[str, Forecaster]) -> dict[str, float]:
    """Akaike weights of the forms of exponential smoothing, with mean 1. The other forecasts have none."""
    scores = {name: model.aicc for name, model in models.items() if isinstance(model, ExponentialSmoothing)}
    best = min(scores.values())
    weights = {name: math.exp((best - score) / 2) if score > best else 1.0 for name, score in scores.items()}
    return {name: len(weights) * weight / sum(weights.values()) for name, weight in weights.items()}


def _weights(errors: Mapping[str, float], priors: Mapping[str, float]) -> dict[str, float]:
    """Weights that fall with the errors."""
    best = min(error for error in errors.values() if math.isfinite(error))
    scores = {name: error / best if best > 0 else math.inf if error > 0 else 1.0 for name, error in errors.items()}
    powers = {
        name: priors.get(name, _PRIOR) * min(score, _MAX_RATIO) ** -_POWER
        for name, score in scores.items()
        if score < math.inf
    }
    return {name: power / sum(powers.values()) for name, power in powers.items()}


def _held_out_combination(
    forecasts: Mapping[str, Float[np.ndarray, "k h"]],
    abs_errors: Mapping[str, Float[np.ndarray, "k h"]],
    further: Collection[str],
    origins: Int[np.ndarray, " k"],
    priors: Mapping[str, float],
) -> Float[np.ndarray, "k h"]:
    """Combines the forecasts of each origin with weights from the origins whose horizons do not overlap with its own.

    If there are none, the weights come from all origins.
    """
    rows = []
    for i, origin in enumerate(origins.tolist()):
        apart = np.abs(origins - origin) >= next(iter(abs_errors.values())).shape[1]
        apart = apart if apart.any() else np.ones(len(origins), dtype=bool)
        apart_errors = {name: abs_error[apart] for name, abs_error in abs_errors.items()}
        weights = _weights(_mean_errors(apart_errors, further), priors)
        rows.append(_weighted_median({name: found[i] for name, found in forecasts.items()}, weights))
    return np.array(rows)


def _rolling_origins(n: int, horizon: int, season: int) -> Int[np.ndarray, " k"]:
    """Origins in the last part of a series of length n."""
    last = n - horizon
    first = min(last, max(n // 2, min(2 * season + 4, last), n - max(6 * horizon, n // 3)))
    return np.unique(np.linspace(first, last, min(_MAX_ORIGINS, last - first + 1)).astype(int))


def _weighted_median(
    forecasts: Mapping[str, Float[np.ndarray, "*n h"]], weights: Mapping[str, float]
) -> Float[np.ndarray, "*n h"]:
    """Interpolated weighted median over the forecasts that are finite."""
    names = [name for name in forecasts if name in weights]
    values = np.stack([forecasts[name] for name in names])
    mass = np.array([weights[name] for name in names]).reshape(-1, *[1] * (values.ndim - 1))
    mass = np.where(np.isfinite(values), np.maximum(mass, 1e-300), 0.0)
    values = np.where(np.isfinite(values), values, np.inf)
    order = np.argsort(values, axis=0)
    values, mass = np.take_along_axis(values, order, 0), np.take_along_axis(mass, order, 0)
    middle = (np.cumsum(mass, 0) - mass / 2) / mass.sum(0)
    above = np.minimum((middle < 0.5).sum(0), (mass > 0).sum(0) - 1)[None]
    below = np.maximum(above - 1, 0)
    low, high = (np.take_along_axis(values, index, 0)[0] for index in (below, above))
    a, b = (np.take_along_axis(middle, index, 0)[0] for index in (below, above))
    fraction = np.clip((0.5 - a) / np.where(b > a, b - a, 1.0), 0.0, 1.0)
    return np.where(below[0] == above[0], high, low + fraction * (high - low))


_HALF_LIFE = 10
"""Half-life of the weights of the differences in the volatility: this number of steps, or one season."""
_TYPICAL_VOLATILITY = 0.3
"""Fraction of the volatility of the series that is added to that before an origin."""


def _volatility(
    x: Float[np.ndarray, " n"],
    origins: Int[np.ndarray, " k"],
    season: int,
    *,
    relative: bool,
    half_life: float | None = None,
) -> Float[np.ndarray, " k"]:
    """Mean absolute seasonal difference before each origin, with exponentially decaying weights.

    Args:
        x: Values, NaN where missing.
        origins: Origins.
        season: Period of the differences.
        relative: Whether differences are divided by the mean of their two values.
        half_life: Half-life of the weights, in steps. Defaults to one season, at least 10.
    """
    before, after = x[:-season], x[season:]
    sizes = np.abs(after - before)
    if relative:
        sizes = sizes / np.maximum((np.abs(before) + np.abs(after)) / 2, 1e-12)
    known = ~np.isnan(sizes)
    sizes, found = np.where(known, sizes, 0.0), []
    for end in np.maximum(origins - season, 0).tolist():
        ages = np.arange(end)[::-1] / (max(_HALF_LIFE, season) if half_life is None else half_life)
        weights = 0.5**ages * known[:end]
        found.append(float(weights @ sizes[:end]) / max(float(weights.sum()), 1e-12))
    return np.array(found)


def _units(local: Float[np.ndarray, " k"], volatility: float) -> Float[np.ndarray, " k"]:
    """Units of the errors: the local volatility and a part of the volatility of the series, which bounds them below."""
    return np.maximum(local + _TYPICAL_VOLATILITY * volatility, 1e-12)


def _spread(abs_errors: Float[np.ndarray, "k h"], span: int, *, coverage: float) -> Float[np.ndarray, " h"]:
    """Half the width of the interval at each step, from absolute errors after origins in a span of values."""
    known = ~np.isnan(abs_errors)
    counts = known.sum(0)
    means = np.where(known, abs_errors, 0.0).sum(0) / np.maximum(counts, 1)
    scale = np.maximum(_isotonic(means, counts.astype(np.float64)), 1e-12)
    scores = np.sort((abs_errors / scale)[known])
    quantile = float(np.quantile(scores, min(1.0, coverage * (1 + 1 / len(scores)))))
    freedom = 1 + span / np.arange(1, abs_errors.shape[1] + 1)  # errors at step h after origins closer than h overlap
    return scale * quantile * _student_ratio(freedom, coverage)


def _student_ratio(freedom: Float[np.ndarray, " n"], coverage: float) -> Float[np.ndarray, " n"]:
    """Ratio of the quantiles of Student's t and the normal distribution, to second order in 1 / freedom."""
    z = NormalDist().inv_cdf((1 + coverage) / 2)
    return 1 + (z**2 + 1) / (4 * freedom) + (5 * z**4 + 16 * z**2 + 3) / (96 * freedom**2)


def _isotonic(values: Float[np.ndarray, " n"], weights: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Least-squares fit that does not decrease (pool adjacent violators)."""
    blocks: list[list[float]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        blocks.append([value, max(weight, 1e-9), 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, v, m), (b, w, n) = blocks[-2:]
            blocks[-2:] = [[(a * v + b * w) / (v + w), v + w, m + n]]
    return np.concatenate([np.full(int(n), value) for value, _, n in blocks])
