"""Forecasts of synthetic series against exponential smoothing, and the coverage of the 80 % interval.

Run `OMP_NUM_THREADS=1 python benchmarks/forecasts.py`, or name families: `python benchmarks/forecasts.py airline`.
`--series 40` draws 40 series of each family, and `--fresh` draws others.

Each family draws series of different length, season, noise and horizon. `ForecastCombination`, the default of
`lawful train forecast` without its language model, and its baselines see all values but the last horizon. Exponential
smoothing is the form with the smallest AICc. Errors are divided by the mean absolute difference of neighboring values,
so that all series count alike. A ratio below 1 means that the combination is better.

The prior of the regressions was chosen on the default series. Nobody looked at `--fresh` until the end.

`--own-data 100` measures the datasets visits and load of `own_data.py` instead, with seeds from 100 on and its
exponential smoothing; `own_data.py` has the seeds 0 to 2 and 1000 to 1002. For load it adds the forecast of someone who
knows the process and its parameters: the conditional mean.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import own_data

from lawful.data import detect_seasons
from lawful.models.forecasting import ExponentialSmoothing, ForecastCombination, seasonal_naive_forecast

FRESH = 10_000
"""First seed of `--fresh`."""


@dataclass(frozen=True)
class Case:
    """A series with its horizon at the end, and the periods that its calendar suggests."""

    values: np.ndarray
    horizon: int
    usual: tuple[int, ...] = ()


# ---------------------------------------------------------------- families


def autoregression(rng: np.random.Generator, length: int, coefficient: float, scale: float) -> np.ndarray:
    x, shocks = np.zeros(length), rng.normal(0, scale, length)
    for t in range(1, length):
        x[t] = coefficient * x[t - 1] + shocks[t]
    return x


def hourly(rng: np.random.Generator) -> Case:
    """A daily and a weekly season with autoregressive errors; some are exponentials."""
    horizon = int(rng.choice([24, 48]))
    length = 24 * int(rng.integers(30, 90)) + horizon
    t = np.arange(length)
    smooth = np.convolve(np.tile(rng.normal(0, 1, 24), 3), np.ones(5) / 5, "same")[24:48]
    week, both = rng.normal(0, rng.uniform(0, 3), 7), rng.normal(0, rng.uniform(0, 1), 168)
    x = (
        rng.uniform(3, 12) * smooth[t % 24]
        + week[t // 24 % 7]
        + both[t % 168]
        + rng.normal(0, rng.uniform(0, 1), length)
    )
    x += autoregression(rng, length, rng.choice([0.5, 0.8, 0.9, 0.95, 0.98, 0.995]), rng.uniform(0.3, 1.5))
    return Case(30 * np.exp(x / 25) if rng.random() < 0.3 else 60 + x, horizon, (24, 168))


def daily(rng: np.random.Generator) -> Case:
    """A weekly season of counts or positive numbers, with a drifting level and a weak yearly wave."""
    horizon = int(rng.choice([7, 14, 28]))
    length = int(rng.integers(150, 800)) + horizon
    t = np.arange(length)
    drift, step = rng.uniform(-0.0005, 0.0008), rng.choice([0.001, 0.005, 0.015])
    log = (
        rng.uniform(2, 7) + np.cumsum(rng.normal(drift, step, length)) + rng.normal(0, rng.uniform(0.02, 0.3), 7)[t % 7]
    )
    log += autoregression(rng, length, rng.uniform(0, 0.8), rng.uniform(0, 0.1))
    mean = np.exp(log + rng.uniform(0, 0.2) * np.sin(2 * np.pi * t / 365.25 + rng.uniform(0, 6)))
    noisy = mean * np.exp(rng.normal(0, 0.05, length))
    return Case(rng.poisson(mean).astype(float) if rng.random() < 0.6 else noisy, horizon, (7, 365))


def monthly(rng: np.random.Generator) -> Case:
    """A yearly season, multiplicative or additive, on a random walk with drift."""
    length = int(rng.integers(60, 200)) + 12
    pattern = rng.normal(0, rng.uniform(0.03, 0.25), 12)[np.arange(length) % 12]
    level = np.cumsum(rng.normal(rng.uniform(-0.004, 0.012), rng.choice([0.002, 0.01, 0.03]), length))
    if rng.random() < 0.6:
        x = rng.uniform(50, 1000) * np.exp(level + pattern + rng.normal(0, rng.uniform(0.01, 0.06), length))
    else:
        x = 100 * (1 + level) + 60 * pattern + rng.normal(0, rng.uniform(1, 6), length)
    return Case(x, 12, (12,))


def quarterly(rng: np.random.Generator) -> Case:
    """30 to 90 quarters of a multiplicative season on a random walk with drift."""
    horizon = int(rng.choice([4, 8]))
    length = int(rng.integers(30, 90)) + horizon
    pattern = rng.normal(0, rng.uniform(0.03, 0.2), 4)[np.arange(length) % 4]
    level = np.cumsum(rng.normal(rng.uniform(-0.005, 0.02), rng.choice([0.005, 0.02, 0.04]), length))
    return Case(200 * np.exp(level + pattern + rng.normal(0, rng.uniform(0.005, 0.05), length)), horizon, (4,))


def unseasonal(rng: np.random.Generator) -> Case:
    """A random walk, an autoregression, a trend with autoregressive errors, or a smooth walk."""
    horizon = int(rng.choice([6, 12, 20]))
    length = int(rng.integers(40, 500)) + horizon
    match int(rng.integers(4)):
        case 0:
            x = np.cumsum(rng.normal(0, 1, length))
        case 1:
            x = autoregression(rng, length, rng.uniform(0.3, 0.97), 1)
        case 2:
            x = rng.uniform(-0.1, 0.1) * np.arange(length) + autoregression(rng, length, rng.uniform(0, 0.9), 1)
        case _:
            x = np.cumsum(autoregression(rng, length, rng.uniform(0.3, 0.9), 0.3)) + rng.normal(0, 0.5, length)
    return Case(50 + x, horizon)


def half_hourly(rng: np.random.Generator) -> Case:
    """10 to 25 days of two waves with autoregressive errors; 48 or 96 values a day."""
    period = int(rng.choice([48, 96]))
    length = period * int(rng.integers(10, 25)) + period // 2
    t, (a, b) = np.arange(length), rng.uniform(2, 10, 2)
    x = 40 + a * np.sin(2 * np.pi * t / period) + b * np.cos(4 * np.pi * t / period + 1)
    return Case(
        x + autoregression(rng, length, rng.choice([0.7, 0.9, 0.97]), rng.uniform(0.3, 1.2)), period // 2, (period,)
    )


def smoothing(rng: np.random.Generator) -> Case:
    """The process for which additive exponential smoothing is optimal."""
    period = int(rng.choice([7, 12, 24]))
    alpha, beta, gamma = rng.uniform(0.05, 0.6), rng.choice([0, 0.02, 0.05]), rng.uniform(0, 0.3)
    level, slope, season, x = 100.0, rng.uniform(-0.2, 0.2), rng.normal(0, 5, period), []
    for t in range(period * int(rng.integers(8, 30)) + period):
        error = rng.normal(0, 2)
        x.append(level + slope + season[t % period] + error)
        level, slope = level + slope + alpha * error, slope + beta * error
        season[t % period] += gamma * error
    return Case(np.array(x), period, (period,))


def airline(rng: np.random.Generator) -> Case:
    """The airline model, ARIMA(0, 1, 1)(0, 1, 1), which fits many economic series; some are exponentials."""
    period = int(rng.choice([4, 7, 12]))
    length = period * int(rng.integers(8, 20)) + period
    theta, seasonal = rng.uniform(0.1, 0.9), rng.uniform(0.2, 0.95)
    count = length + 10 * period
    shocks = rng.normal(0, 1, count)
    w = shocks.copy()
    w[1:] -= theta * shocks[:-1]
    w[period:] -= seasonal * shocks[:-period]
    w[period + 1 :] += theta * seasonal * shocks[: -period - 1]
    x = np.zeros(count)
    x[: period + 1] = rng.normal(0, 5, period + 1)
    for t in range(period + 1, count):
        x[t] = x[t - 1] + x[t - period] - x[t - period - 1] + w[t]
    x = x[-length:] / np.abs(np.diff(x[-length:])).mean()
    return Case(np.exp(5 + 0.05 * (x - x[0])) if rng.random() < 0.6 else 100 + x - x[0], period, (period,))


def breaks(rng: np.random.Generator) -> Case:
    """A weekly season with shifts of the level, outliers and, in half of the series, a change of the season."""
    horizon = int(rng.choice([7, 14]))
    length = int(rng.integers(150, 600)) + horizon
    t = np.arange(length)
    x = 100 + rng.normal(0, rng.uniform(2, 10), 7)[t % 7] + autoregression(rng, length, rng.uniform(0, 0.9), 2)
    for _ in range(rng.integers(1, 5)):
        x[rng.integers(length - horizon) :] += rng.normal(0, 15)
    if rng.random() < 0.5:
        start = rng.integers(length - horizon)
        x[start:] += rng.normal(0, 6, 7)[t[start:] % 7]
    x[rng.random(length) < 0.01] += 30
    return Case(x, horizon, (7, 365))


FAMILIES: dict[str, Callable[[np.random.Generator], Case]] = {
    family.__name__.replace("_", "-"): family
    for family in (hourly, daily, monthly, quarterly, unseasonal, half_hourly, smoothing, airline, breaks)
}


# ---------------------------------------------------------------- the table


@dataclass(frozen=True)
class Errors:
    """Scaled mean absolute errors of one series, and the fraction of values in the interval."""

    combination: float
    smoothing: float
    naive: float
    coverage: float


def measure(case: Case) -> Errors:
    known, future = case.values[: -case.horizon], case.values[-case.horizon :]
    seasons = tuple(p for p in detect_seasons(known, usual=case.usual) if p <= len(known) // 2)
    combination = ForecastCombination.fit(known, seasons=seasons, horizon=case.horizon)
    found = combination.forecast(known)
    forms = (model for model in combination.models.values() if isinstance(model, ExponentialSmoothing))
    smoothed = min(forms, key=lambda form: form.aicc).forecast(known, horizon=case.horizon)
    naive = seasonal_naive_forecast(known, horizon=case.horizon, season=max(seasons, default=1))
    scale = np.abs(np.diff(known)).mean()
    errors = (float(np.abs(forecast - future).mean() / scale) for forecast in (found.forecast, smoothed, naive))
    return Errors(*errors, float(((found.lower <= future) & (future <= found.upper)).mean()))


# ---------------------------------------------------------------- own_data with other seeds

PHI, SHOCK, NOISE = 0.97, 0.5, 0.7
"""Autoregression of the weather in `load`, the standard deviation of its shocks, and that of the noise."""


@dataclass(frozen=True)
class OwnSeries:
    """The arguments of `own_data.series_case`."""

    folder: Path
    days: list[str]
    values: list[float]
    horizon: int
    seasons: tuple[int, ...]
    name: str


def own_series(name: str, seed: int) -> OwnSeries:
    with patch.object(own_data, "series_case", OwnSeries):
        return getattr(own_data, name)(seed, Path())


def conditional_mean(seed: int, values: np.ndarray, horizon: int) -> np.ndarray:
    """Returns the best forecast of `load`: its profile, and the weather by a Kalman filter."""
    rng, hours = np.random.default_rng(seed), np.arange(24)
    work = 12 * np.exp(-(((hours - 9) / 4) ** 2)) + 15 * np.exp(-(((hours - 19) / 3) ** 2)) + rng.normal(0, 0.8, 24)
    rest = 9 * np.exp(-(((hours - 12) / 5) ** 2)) + 12 * np.exp(-(((hours - 20) / 3) ** 2)) + rng.normal(0, 0.8, 24)
    t = np.arange(len(values))
    profile = 50 + np.where(t // 24 % 7 >= 5, rest[t % 24] - 4, work[t % 24])
    mean, variance = 0.0, SHOCK**2 / (1 - PHI**2)
    for rest_of_value in (values - profile)[:-horizon]:
        mean, variance = PHI * mean, PHI**2 * variance + SHOCK**2
        gain = variance / (variance + NOISE**2)
        mean, variance = mean + gain * (rest_of_value - mean), (1 - gain) * variance
    return profile[-horizon:] + mean * PHI ** np.arange(1, horizon + 1)


def print_own_data(seeds: range) -> None:
    names = "combination | exponential smoothing | seasonal naive | conditional mean"
    print(f"| dataset | seeds | {names} | ratio | coverage |")
    print("|---|---|---|---|---|---|---|---|")
    for name, usual in (("visits", (7, 365)), ("load", (24, 168))):
        rows = []
        for seed in seeds:
            series = own_series(name, seed)
            x, h = np.array(series.values, dtype=float), series.horizon
            known, future = x[:-h], x[-h:]
            found = ForecastCombination.fit(known, seasons=detect_seasons(known, usual=usual), horizon=h).forecast(
                known
            )
            forecasts = (
                found.forecast,
                own_data.exponential_smoothing(known.tolist(), horizon=h, seasons=series.seasons),
                seasonal_naive_forecast(known, horizon=h, season=series.seasons[-1]),
                conditional_mean(seed, x, h) if name == "load" else np.full(h, np.nan),
            )
            errors = [float(np.abs(np.asarray(forecast) - future).mean()) for forecast in forecasts]
            rows.append([*errors, float(((found.lower <= future) & (future <= found.upper)).mean())])
        ours, smoothed, naive, best, coverage = np.mean(rows, axis=0)
        print(
            f"| {name} | {seeds.start} to {seeds.stop - 1} | {ours:.4g} | {smoothed:.4g} | {naive:.4g} "
            f"| {'' if np.isnan(best) else f'{best:.4g}'} | {ours / smoothed:.3f} | {coverage:.0%} |",
            flush=True,
        )


# ---------------------------------------------------------------- the command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"all by default: {', '.join(FAMILIES)}")
    parser.add_argument("--series", type=int, default=40, help="number of series of each family")
    parser.add_argument("--fresh", action="store_true", help="draw series that nothing was chosen on")
    parser.add_argument("--own-data", type=int, metavar="SEED", help="visits and load of own_data.py from this seed on")
    options = parser.parse_args()
    if unknown := [name for name in options.families if name not in FAMILIES]:
        parser.error(f"unknown family {unknown[0]!r}, expected one of {', '.join(FAMILIES)}")
    if options.own_data is not None:
        print_own_data(range(options.own_data, options.own_data + options.series))
        return
    print("| family | combination | exponential smoothing | seasonal naive | ratio | better on | coverage |")
    print("|---|---|---|---|---|---|---|")
    rows: dict[str, list[Errors]] = {}
    for name in options.families or FAMILIES:
        seeds = range(FRESH * options.fresh, FRESH * options.fresh + options.series)
        rows[name] = [measure(FAMILIES[name](np.random.default_rng([seed, *name.encode()]))) for seed in seeds]
        print_row(name, rows[name])
    everything = [errors for family in rows.values() for errors in family]
    print_row("all", everything)


def print_row(name: str, rows: list[Errors]) -> None:
    combination, smoothing, naive, coverage = np.mean([list(vars(row).values()) for row in rows], axis=0)
    better = np.mean([row.combination < row.smoothing for row in rows])
    print(
        f"| {name} | {combination:.3f} | {smoothing:.3f} | {naive:.3f} | {combination / smoothing:.3f} "
        f"| {better:.0%} | {coverage:.0%} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
