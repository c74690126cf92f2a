"""Forecasting of a series by a combination of a language model over digits and classical forecasts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful._json import MaxLength, Range, is_default, require_fields, require_int, require_text
from lawful.data import (
    Batch,
    Calendar,
    Series,
    detect_seasons,
    fill_missing,
    fingerprint,
    make_generator,
    read_series,
    series_of,
)
from lawful.data.text import CharTokenizer
from lawful.models.forecasting import (
    ExponentialSmoothing,
    ForecastCombination,
    Forecaster,
    drift_forecast,
    naive_forecast,
    seasonal_naive_forecast,
)
from lawful.models.generation import SamplingConfig, generate
from lawful.models.transformer import Decoder
from lawful.recipes.optimization import TransformerOptimizationConfig, _PositiveInt, _Steps
from lawful.recipes.text import _next_token_loss, language_model_claims
from lawful.recipes.transformer import DecoderConfig, _NumHeads
from lawful.training import Recipe, Run, TrainingSetup, compare_with_baselines

# ---------------------------------------------------------------- series as digits

_TREND_RIDGE = 0.1
"""Ridge penalty of the slope and of the seasonal component."""


def _fit_trend_and_season(history: Float[Tensor, "k t"], horizon: int, season: int) -> Float[Tensor, "k all"]:
    r"""Fits a linear trend and a growing seasonal component to each history; returns the fit and its continuation.

    $$\hat x_t = \bar x + a \, u_t + (1 + g \, u_t) \, s_{t \bmod p}$$

    $u$ rises from -1 to 1 over the history and continues after it. Trend and season are fitted by ridge regression
    with the penalty $\lambda (a^2 + \lVert s \rVert^2)$, without growth; then the growth is fitted to the residual,
    with $\lambda \lVert g s \rVert^2$. A history shorter than two seasons has a trend only.

    Args:
        history: Values $x$.
        horizon: Number of values after the history.
        season: Period $p$.

    Examples:
        >>> _fit_trend_and_season(torch.tensor([[0.0, 5.0] * 50]), 3, 2)[0, -3:].round()
        tensor([0., 5., 0.])
    """
    t, x = history.shape[1], history.double()
    index = torch.arange(t + horizon, dtype=torch.float64)
    trend = (2 * index - t + 1) / max(1, t - 1)
    seasonal = 1 < season <= t // 2
    phases = torch.eye(season, dtype=torch.float64)[index.long() % season] if seasonal else trend[:, None][:, :0]
    features = torch.cat([trend[:, None], phases], dim=1)
    gram = features[:t].T @ features[:t] + _TREND_RIDGE * torch.eye(features.shape[1], dtype=torch.float64)
    mean = x.mean(1, keepdim=True)
    weights = torch.linalg.solve(gram, features[:t].T @ (x - mean).T)
    fit, growing = mean + (features @ weights).T, (phases @ weights[1:]).T * trend
    norm = growing[:, :t].square().sum(1, keepdim=True) + _TREND_RIDGE * weights[1:].square().sum(0)[:, None]
    growth = ((x - fit[:, :t]) * growing[:, :t]).sum(1, keepdim=True) / torch.where(norm > 0, norm, 1.0)
    return (fit + growth * growing).to(history.dtype)


_DIGITS = CharTokenizer("0123456789,;")
"""Characters of a series; a semicolon ends the history."""
_COMMA, _END = 10, 11
_MARGIN = 1.0
"""Margin around the range of the history, as a fraction of that range."""
_SEASONAL_FRACTION, _OWN_FRACTION = 0.7, 0.5
"""Fraction of synthetic series with the given season; fraction of a batch from the user's series."""


@dataclass(frozen=True, eq=False)
class _DigitScale:
    r"""Quantizes values to integers from 0 to $10^k - 1$, by the range of a history.

    $$n = \operatorname{round}\Bigl((10^k - 1) \frac{x - a}{b - a}\Bigr), \qquad
    a = \min h - m \, r, \; b = \max h + m \, r, \; r = \max h - \min h$$

    with the margin $m = 1$; values outside are clipped. A constant history has $r = 1$.
    """

    low: Float[Tensor, "n 1"]
    high: Float[Tensor, "n 1"]
    digits: int

    @classmethod
    def of(cls, history: Float[Tensor, "n t"], *, digits: int) -> _DigitScale:
        """Returns the scale of each history."""
        low, high = history.amin(-1, keepdim=True), history.amax(-1, keepdim=True)
        span = torch.where(high > low, high - low, 1.0)
        return cls(low - _MARGIN * span, high + _MARGIN * span, digits)

    def quantize(self, x: Float[Tensor, "n t"]) -> Int[Tensor, "n t"]:
        """Converts values to integers."""
        top = 10**self.digits - 1
        return (top * (x - self.low) / (self.high - self.low)).round().clamp(0, top).long()

    def dequantize(self, levels: Int[Tensor, "n t"]) -> Float[Tensor, "n t"]:
        """Converts integers to values."""
        return self.low + (self.high - self.low) * levels / (10**self.digits - 1)


def _integers_to_tokens(levels: Int[Tensor, "n t"], *, digits: int) -> Int[Tensor, "n m"]:
    """Converts integers to tokens: the digits of each and a comma.

    Examples:
        >>> _integers_to_tokens(torch.tensor([[7, 42]]), digits=2)
        tensor([[ 0,  7, 10,  4,  2, 10]])
    """
    powers = 10 ** torch.arange(digits - 1, -1, -1)
    return F.pad(levels[..., None] // powers % 10, (0, 1), value=_COMMA).flatten(1)


def _tokens_to_integers(tokens: Int[Tensor, "n m"], *, digits: int) -> Int[Tensor, "n t"]:
    """Converts tokens to integers; -1 where the tokens are not digits followed by a comma.

    Examples:
        >>> _tokens_to_integers(torch.tensor([[0, 7, 10, 4, 10, 10]]), digits=2)
        tensor([[ 7, -1]])
    """
    groups = tokens.unflatten(1, (-1, digits + 1))
    powers = 10 ** torch.arange(digits - 1, -1, -1)
    valid = (groups[..., :-1] < 10).all(-1) & (groups[..., -1] == _COMMA)
    return torch.where(valid, (groups[..., :-1] * powers).sum(-1), -1)


def _synthetic_series(count: int, length: int, *, generator: torch.Generator, season: int = 1) -> Float[Tensor, "n t"]:
    """Draws random series: trends, growing seasonal patterns, waves, autoregressive walks and noise.

    Args:
        count: Number of series.
        length: Number of values of each.
        generator: Random generator.
        season: Period of most patterns; the others, and all if it is 1, have random periods.
    """
    t = torch.arange(length)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator)

    def uniform() -> Tensor:
        return torch.rand(count, 1, generator=generator)

    def amplitude(probability: float) -> Tensor:
        """Random amplitude of a component that is present with a probability."""
        return (uniform() < probability) * uniform()

    other = torch.randint(3, max(4, length // 2), (count, 1), generator=generator)
    period = torch.where((uniform() < _SEASONAL_FRACTION) & (season > 1), season, other)
    pattern = normal(count, length).gather(1, t % period)
    wave = torch.sin(2 * torch.pi * (t / period + uniform()))
    decay = uniform() ** 0.3
    walk = torch.zeros(count, length)
    for i, shock in enumerate(normal(count, length).unbind(1)):
        walk[:, i] = (decay[:, 0] * walk[:, i - 1] if i else 0.0) + shock
    trend, growth = normal(count, 1) * t / length, 1 + 0.5 * amplitude(0.5) * t / length
    return (
        2 * amplitude(0.6) * trend
        + growth * (amplitude(0.5) * pattern + 2 * amplitude(0.5) * wave)
        + amplitude(0.4) * walk / (1 - decay.square() + 1 / length).rsqrt()
        + 0.3 * amplitude(0.8) * normal(count, length)
        + 1e-3 * normal(count, length)
    )


def _seasonal_series(*, length: int = 400, seed: int = 0) -> np.ndarray:
    """Returns a noisy series with a trend and a growing season of period 12.

    Examples:
        >>> _seasonal_series().shape
        (400,)
    """
    t = torch.arange(length, dtype=torch.float64)
    noise = torch.randn(length, generator=make_generator(seed), dtype=torch.float64)
    pattern = torch.sin(2 * torch.pi * t / 12) + 0.5 * torch.cos(4 * torch.pi * t / 12)
    return (100 + 0.2 * t + (10 + 0.02 * t) * pattern + 2 * noise).numpy()


_SERIES: dict[str, Callable[[], np.ndarray]] = {"seasonal": _seasonal_series}
"""Built-in series."""


@dataclass(frozen=True, kw_only=True)
class _SeriesWindow:
    """Tokenizes windows: the digits of the residuals after trend and season are subtracted."""

    past: int
    """Number of values that trend and season are fitted to."""
    history: int
    """Number of last values of the past that are tokenized."""
    horizon: int
    """Number of values to forecast."""
    season: int
    """Period of the series."""
    digits: int
    """Digits per value."""

    @property
    def num_tokens(self) -> int:
        """Number of tokens of a window."""
        return (self.history + self.horizon) * (self.digits + 1)

    def encode_history(
        self, history: Float[Tensor, "n t"]
    ) -> tuple[Int[Tensor, "n m"], Float[Tensor, "n h"], _DigitScale]:
        """Returns the tokens of the last values, the trend and season after them, and the scale of the residuals."""
        fit, t = _fit_trend_and_season(history, self.horizon, self.season), history.shape[1]
        residual = (history - fit[:, :t])[:, -self.history :]
        scale = _DigitScale.of(residual, digits=self.digits)
        tokens = _integers_to_tokens(scale.quantize(residual), digits=self.digits)
        tokens[:, -1] = _END
        return tokens, fit[:, t:], scale

    def encode(self, windows: Float[Tensor, "n t"]) -> Int[Tensor, "n m"]:
        """Returns the tokens of windows of past and future values."""
        history, expected, scale = self.encode_history(windows[:, : self.past])
        future = scale.quantize(windows[:, self.past :] - expected)
        return torch.cat([history, _integers_to_tokens(future, digits=self.digits)], dim=1)


class _SeriesBatches:
    """Batches of tokenized windows: synthetic series in the first steps, then a mixture with one series.

    Args:
        series: The series.
        window: Tokenizer of windows.
        batch_size: Number of windows per batch.
        seed: Random seed.
        synthetic_steps: Number of steps with synthetic series only.
        own_fraction: Fraction of windows of the series in the later steps.
    """

    def __init__(
        self,
        series: Float[Tensor, " n"],
        window: _SeriesWindow,
        *,
        batch_size: int,
        seed: int,
        synthetic_steps: int,
        own_fraction: float = _OWN_FRACTION,
    ) -> None:
        self._length, self._window = window.past + window.horizon, window
        self._windows = series.unfold(0, self._length, 1)
        self._batch_size, self._seed = batch_size, seed
        self._synthetic_steps, self._own_fraction = synthetic_steps, own_fraction

    def __len__(self) -> int:
        return max(1, len(self._windows) // self._batch_size)

    def batch(self, step: int) -> Batch:
        """Returns the input and target tokens of a step."""
        generator = make_generator(self._seed, step)
        own = 0 if step < self._synthetic_steps else max(1, round(self._own_fraction * self._batch_size))
        rows = torch.randint(len(self._windows), (own,), generator=generator)
        season = self._window.season
        drawn = _synthetic_series(self._batch_size - own, self._length, generator=generator, season=season)
        tokens = self._window.encode(torch.cat([self._windows[rows], drawn.double()]))
        return tokens[:, :-1], tokens[:, 1:]


# ---------------------------------------------------------------- the model


@dataclass(frozen=True, eq=False, repr=False)
class Forecast:
    """A forecast: dates, medians and the ends of the 80 % prediction interval."""

    name: str
    """Name of the series."""
    dates: tuple[str, ...]
    """Dates of the values, or their numbers if the series has no dates."""
    forecast: Float[np.ndarray, " h"]
    """Median forecast."""
    lower: Float[np.ndarray, " h"]
    """Lower end of the interval."""
    upper: Float[np.ndarray, " h"]
    """Upper end of the interval."""
    has_dates: bool
    """Whether the series has dates."""
    notes: tuple[str, ...] = ()
    """Notes on the series."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns: date or step, forecast, lower, upper."""
        return ("date" if self.has_dates else "step", *_COLUMNS)

    @property
    def rows(self) -> list[list[str]]:
        """The table as text."""
        numbers = zip(self.forecast.tolist(), self.lower.tolist(), self.upper.tolist(), strict=True)
        return [[date, *(f"{x:.6g}" for x in row)] for date, row in zip(self.dates, numbers, strict=True)]

    def csv(self) -> str:
        """Returns the table as CSV with a header."""
        return "".join(",".join(row) + "\n" for row in (self.columns, *self.rows))

    def __len__(self) -> int:
        return len(self.dates)

    def __repr__(self) -> str:
        rows = [self.columns, *self.rows]
        widths = [max(len(row[i]) for row in rows) for i in range(len(self.columns))]
        return "\n".join("  ".join(word.rjust(w) for word, w in zip(row, widths, strict=True)) for row in rows)


_COLUMNS = ("forecast", "lower", "upper")
_LANGUAGE_MODEL = "language model"
_MAX_HORIZON = 10**4


class ForecastModel(nn.Module):
    """A language model over digits, with the series that it was trained on.

    `forecast` combines the language model with exponential smoothing, regression, drift and seasonal naive forecasts,
    which are fitted to the series in a few seconds.

    Args:
        decoder: Language model.
        window: Tokenizer of windows.
        series: Name and calendar of the series. Its values are ignored: set them by `add_series`.
        seasons: Periods of the seasons; the last is the main one.
        num_samples: Number of samples of the language model.
    """

    values: Tensor
    missing: Tensor
    train_length: Tensor

    def __init__(
        self,
        decoder: Decoder,
        window: _SeriesWindow,
        *,
        series: Series,
        seasons: Sequence[int],
        num_samples: int,
    ) -> None:
        super().__init__()
        self.decoder, self._window, self._series = decoder, window, series
        self._seasons, self._num_samples = tuple(seasons), num_samples

    def forward(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t v"]:
        """Returns the logits of the next tokens."""
        return self.decoder(tokens)

    def add_series(self, values: Float[np.ndarray, " n"], train_length: int) -> None:
        """Registers the values of the series as buffers.

        Args:
            values: Values, NaN where missing.
            train_length: Number of first values that the language model was trained on; 0 if it was not trained.
        """
        missing = np.isnan(values)  # a mask, since a checkpoint refuses weights that are not finite
        self.register_buffer("values", torch.from_numpy(np.where(missing, 0.0, values)))
        self.register_buffer("missing", torch.from_numpy(missing))
        self.register_buffer("train_length", torch.tensor(train_length))

    def forecast(
        self,
        horizon: int | None = None,
        *,
        series: Series | Sequence[float] | np.ndarray | Tensor | None = None,
        seed: int = 0,
    ) -> Forecast:
        """Forecasts the values after the training series, or after another series.

        Args:
            horizon: Number of values. Defaults to the horizon of the training.
            series: Series to continue: a `Series` or an array, NaN where missing. Defaults to the training series.
            seed: Random seed of the samples of the language model.
        """
        horizon = self._window.horizon if horizon is None else horizon
        if not 1 <= horizon <= _MAX_HORIZON:
            raise ValueError(f"horizon must be between 1 and {_MAX_HORIZON}, got {horizon}")
        if series is None:
            series = replace(self._series, values=self._known_values())
        elif not isinstance(series, Series):
            series = series_of(np.asarray(series, dtype=np.float64), name=self._series.name)
        x = series.values
        others = self.forecasters(x, seed=seed)
        found = ForecastCombination.fit(x, seasons=self._seasons, horizon=horizon, others=others).forecast(x)
        dates = tuple(series.dates(horizon, first=len(x)))
        has_dates = series.calendar is not None
        return Forecast(series.name, dates, found.forecast, found.lower, found.upper, has_dates, series.notes)

    def forecasters(self, x: Float[np.ndarray, " n"], *, seed: int = 0) -> dict[str, Forecaster]:
        """Returns the language model as a forecaster of `x`, or an empty dict if it was not trained.

        It does not forecast values that it was trained on.
        """
        length = int(self.train_length)
        if not length:
            return {}
        known = self._known_values()[:length]
        start = length if np.array_equal(x[:length], known, equal_nan=True) else self._window.past
        return {_LANGUAGE_MODEL: _LanguageModelForecasts(self, start, seed)}

    def _known_values(self) -> Float[np.ndarray, " n"]:
        """Values of the series, NaN where missing."""
        return torch.where(self.missing, torch.nan, self.values).cpu().numpy()

    def sample_medians(self, past: Float[Tensor, "n t"], *, seed: int = 0) -> Float[Tensor, "n h"]:
        """Median of samples of the language model after each past. Samples that are not valid numbers are ignored."""
        window, count = self._window, self._num_samples
        tokens, expected, scale = window.encode_history(past)
        sampled = torch.cat(
            [
                generate(  # one past at a time: the cache of all of them would need gigabytes
                    self.decoder,
                    tokens[i : i + 1],
                    max_new_tokens=window.horizon * (window.digits + 1),
                    sampling=SamplingConfig(suppress_tokens=_DIGITS.reserved_ids),
                    num_return_sequences=count,
                    seed=seed,
                    first_index=i * count,
                )
                for i in range(len(past))
            ]
        )
        levels = _tokens_to_integers(sampled.cpu(), digits=window.digits).view(len(past), count, window.horizon)
        residuals = scale.dequantize(levels.clamp_min(0).flatten(1)).view_as(levels)
        invalid = (levels < 0).any(-1, keepdim=True)
        residuals = residuals.masked_fill(invalid & ~invalid.all(1, keepdim=True), torch.nan)
        return expected + residuals.double().nanquantile(0.5, dim=1)


@dataclass(frozen=True, eq=False)
class _LanguageModelForecasts:
    """Forecasts of the language model. Those after origins before `start`, and beyond its horizon, are NaN."""

    model: ForecastModel
    start: int
    seed: int

    def forecasts(
        self, x: Float[np.ndarray, " n"], origins: Int[np.ndarray, " k"], *, horizon: int
    ) -> Float[np.ndarray, "k h"]:
        """Forecasts the values after each origin."""
        window, rows = self.model._window, np.full((len(origins), horizon), np.nan)
        later = np.flatnonzero(origins >= min(self.start, len(x)))
        if len(later):
            pasts = [
                fill_missing(x[:origin], season=window.season)[-window.past :] for origin in origins[later].tolist()
            ]
            found = self.model.sample_medians(torch.from_numpy(np.stack(pasts)), seed=self.seed).numpy()[:, :horizon]
            rows[later, : found.shape[1]] = found
        return rows


# ---------------------------------------------------------------- the recipe

_HISTORY, _HORIZONS = 96, 5
"""Default number of values that the language model reads, and of horizons for the test and for calibration."""
_PAST_SEASONS = 3
"""Number of seasons that trend and season of the language model are fitted to."""
_PLOTTED_HORIZONS, _MIN_PLOTTED = 4, 30


@dataclass(frozen=True)
class ForecastData:
    """A series, its seasons, and its parts: training, calibration and test."""

    series: Series
    seasons: tuple[int, ...]
    test: int
    """Number of test horizons."""
    calibration: int
    """Number of calibration horizons."""
    window: _SeriesWindow

    @property
    def test_start(self) -> int:
        """Number of values before the test."""
        return len(self.series.values) - self.test * self.window.horizon

    @property
    def train_length(self) -> int:
        """Number of values that the language model is trained on."""
        return self.test_start - self.calibration * self.window.horizon

    def origins(self, end: int, count: int) -> Int[np.ndarray, " k"]:
        """Origins of the last horizons before `end`."""
        return end - self.window.horizon * np.arange(count, 0, -1)

    def past(self, end: int) -> Float[np.ndarray, " n"]:
        """Values before `end`; missing ones are filled from these values only."""
        return fill_missing(self.series.values[:end], season=max(self.seasons, default=1))

    def futures(self, origins: Int[np.ndarray, " k"]) -> Float[np.ndarray, "k h"]:
        """Values after each origin, NaN where missing."""
        return np.stack([self.series.values[origin : origin + self.window.horizon] for origin in origins])


@dataclass(frozen=True, kw_only=True)
class ForecastRecipe(DecoderConfig, TransformerOptimizationConfig, Recipe[ForecastData]):
    """Forecast a series with exponential smoothing, regression and a language model over digits.

    The language model is trained on synthetic series, then also on yours. Its weight in the combination depends on its
    error on held-out values.
    """

    name: ClassVar[str] = "forecast"

    data: Annotated[str, MaxLength(4096)] = "seasonal"
    """CSV, TSV, Parquet or NumPy file, or seasonal: a built-in series. Dates are recognized."""
    target: Annotated[str, MaxLength(4096)] | None = None
    """Column with the series. Defaults to the last numeric column."""
    date_column: Annotated[str, MaxLength(4096)] | None = None
    """Column with the dates. Defaults to the first column with dates."""
    season: Annotated[int, Range(1, 10**5)] | None = None
    """Seasonal period, in values; 1 for none. By default, it is detected."""
    horizon: Annotated[int, Range(1, _MAX_HORIZON)] = 12
    """Number of values to forecast."""
    history: Annotated[int, Range(2, 10**4)] | None = None
    """Number of past values that the language model reads. Defaults to 96, or fewer for a short series."""
    digits: Annotated[int, Range(1, 6)] = 2
    """Number of digits per value; values are scaled to the range of the history."""
    train_on: Literal["both", "synthetic", "series"] = "both"
    """Series to train on. both: first on synthetic series, then also on the given series."""
    test_horizons: Annotated[int, Range(1, 10**4)] | None = None
    """Number of forecasts for the test, of `horizon` values each, at the end of the series. Defaults to a fifth of the
    series, but at most 5 forecasts."""
    calibration_horizons: Annotated[int, Range(0, 10**4)] | None = None
    """Number of forecasts before the test, at least 2, on values that the language model is not trained on. They
    determine its weight and the prediction interval. Defaults to a fifth of the series, but at most 5 forecasts. 0
    disables the language model."""
    num_samples: Annotated[int, Range(1, 10**4)] = 100
    """Number of samples of the language model per forecast."""
    dim: Annotated[int, Range(1, 10**5)] = 32
    num_layers: Annotated[int, Range(1, 1000)] = 2
    num_heads: _NumHeads = 2
    ngrams: Annotated[tuple[Annotated[int, Range(2, 16)], ...], MaxLength(8)] = (2, 3)
    steps: _Steps = 300
    batch_size: _PositiveInt | None = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs is not None:
            raise ValueError("forecast draws synthetic series without end: set steps instead of epochs")
        if self.calibration_horizons == 1:
            raise ValueError(
                "calibration_horizons must be 0 or at least 2, got 1: the weight of the language model and the "
                "interval need different horizons"
            )
        configs = (DecoderConfig, TransformerOptimizationConfig)
        names = (
            *(f.name for config in configs for f in fields(config)),
            "history",
            "digits",
            "train_on",
            "num_samples",
        )
        ignored = [name for name in dict.fromkeys(names) if not is_default(self, name)]
        if self.calibration_horizons == 0 and ignored:
            raise ValueError(
                f"{', '.join(ignored)} would be ignored: calibration_horizons=0 disables the language model. Remove "
                "these options, or set calibration_horizons to 2 or more"
            )

    def setup(self) -> TrainingSetup[ForecastData]:
        """Reads the series, detects its season and builds the model."""
        data, notes = self._load()
        series, window = data.series, data.window
        config = {
            "tokenizer": _DIGITS.to_json(),
            "series": {
                "name": series.name,
                "length": len(series),
                "calendar": None if series.calendar is None else series.calendar.to_json(),
                "seasons": list(data.seasons),
                "window": [window.past, window.history],
            },
        }
        model, calibrate = self._build(series, data.seasons, window), data.calibration > 0
        model.add_series(series.values, data.train_length if calibrate else 0)
        steps = self.num_steps(1) if calibrate else 0
        eval_every = max(1, steps // 4)
        return TrainingSetup(
            model=model,
            optimizer_steps=[self.optimizer_step(model, _next_token_loss, steps=steps)] if steps else [],
            batches=_SeriesBatches(
                torch.from_numpy(data.past(data.train_length)),
                window,
                batch_size=self.batch_size or 16,
                seed=self.seed,
                synthetic_steps={"both": 2 * eval_every, "synthetic": steps, "series": 0}[self.train_on],
                own_fraction=1.0 if self.train_on == "series" else _OWN_FRACTION,
            ),
            steps=steps,
            evaluate=(lambda model: self._evaluate(model, data)) if calibrate else None,
            eval_every=eval_every,
            ema_decay=self.ema_decay or None if steps else None,
            grad_accumulation_steps=self.grad_accumulation_steps,
            claims=lambda model: language_model_claims(
                model.get_submodule("decoder"),
                vocab_size=_DIGITS.vocab_size,
                context_length=window.num_tokens,
                name=_LANGUAGE_MODEL,
            ),
            model_config=config,
            data_fingerprint=fingerprint(
                torch.from_numpy(np.nan_to_num(series.values)), torch.tensor(data.train_length)
            ),
            notes=notes,
            data=data,
        )

    def finish(self, run: Run, setup: TrainingSetup[ForecastData]) -> Mapping[str, Any]:
        """Compares the forecasts with the baselines on the test values, and forecasts the values after the series."""
        data, model = setup.data, setup.model
        if not isinstance(model, ForecastModel):
            raise TypeError(f"expected a ForecastModel, got {type(model).__name__}")
        x, season, horizon = data.series.values, max(data.seasons, default=1), self.horizon
        known, origins = x[: data.test_start], data.origins(len(x), data.test)
        actual, others = data.futures(origins), model.forecasters(x)
        combination = ForecastCombination.fit(known, seasons=data.seasons, horizon=horizon, others=others)
        found = combination.forecasts(x, origins)
        baselines = _baseline_forecasts(x, known, origins, horizon, season)
        errors = {name: _mean_error(rows, actual) for name, rows in baselines.items()}
        own = {name: _mean_error(o.forecasts(x, origins, horizon=horizon), actual) for name, o in others.items()}
        error, inside = _mean_error(found.forecast, actual), (found.lower <= actual) & (actual <= found.upper)
        coverage = float(inside[~np.isnan(actual)].mean())

        future = model.forecast()
        run.write("samples/forecast.csv", future.csv())
        self._plot(run, data, future, (found.lower[-1], found.forecast[-1], found.upper[-1]))
        weights = sorted(combination.weights.items(), key=lambda item: -item[1])
        share = combination.weights.get(_LANGUAGE_MODEL, 0.0)
        number = int((~np.isnan(actual)).sum())
        winner = compare_with_baselines(
            f"mean absolute error on the last {number} values",
            error,
            errors,
            higher_is_better=False,
            model="the forecast",
        )
        return {
            "summary": f"{winner} {_describe_season(data.seasons)} The 80 % interval contains {100 * coverage:.0f} % "
            f"of the test values. The language model has {100 * share:.0f} % of the weight.",
            "mean absolute error": {"forecast": error, **errors, **own},
            "coverage of the 80 % interval": coverage,
            "weights of the forecasts": {name: weight for name, weight in weights if weight >= 0.01},
            "language model": {"weight": share},
            "series": {
                "name": data.series.name,
                "frequency": data.series.calendar.name if data.series.calendar else "no dates",
                "season": season if season > 1 else "none",
                "values for training": data.train_length,
                "values for calibration": data.test_start - data.train_length,
                "values for the test": len(x) - data.test_start,
                "missing values": int(np.isnan(x).sum()),
            },
            "parameters": sum(p.numel() for p in model.parameters()),
        }

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the model of a run, without its weights and values."""
        if model_config.get("tokenizer") != _DIGITS.to_json():
            raise ValueError("the run has another tokenizer of digits: train it again")
        loaded = require_fields(
            model_config.get("series"), ("name", "length", "calendar", "seasons", "window"), where="model.series"
        )
        calendar = None if loaded["calendar"] is None else Calendar.from_json(loaded["calendar"])
        seasons, sizes = (
            [require_int(item, 1, 10**6, where=f"model.series.{key}") for item in loaded[key]]
            for key in ("seasons", "window")
        )
        if len(sizes) != 2:
            raise ValueError(f"model.series.window must have 2 numbers, got {len(sizes)}")
        length = require_int(loaded["length"], 1, 10**8, where="model.series.length")
        series = Series(np.zeros(0), require_text(loaded["name"], where="model.series.name"), calendar)
        model = self._build(series, seasons, self._window(*sizes, season=max(seasons, default=1)))
        model.add_series(np.zeros(length), 0)
        return model

    def read(self, source: str | Path) -> Series:
        """Reads a series as the training series was read.

        Args:
            source: A file or the name of a built-in series.
        """
        if str(source) in _SERIES:
            return Series(_SERIES[str(source)](), str(source))
        try:
            return read_series(source, target=self.target, date_column=self.date_column)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error}; built-in series: {', '.join(_SERIES)}") from None

    def _build(self, series: Series, seasons: Sequence[int], window: _SeriesWindow) -> ForecastModel:
        decoder = self.build_decoder(_DIGITS.vocab_size, context_length=window.num_tokens)
        plain = replace(series, values=np.zeros(0), notes=())
        return ForecastModel(decoder, window, series=plain, seasons=seasons, num_samples=self.num_samples)

    def _window(self, past: int, history: int, *, season: int) -> _SeriesWindow:
        return _SeriesWindow(past=past, history=history, horizon=self.horizon, season=season, digits=self.digits)

    def _load(self) -> tuple[ForecastData, list[str]]:
        """Reads the series, detects its seasons and divides it. Returns notes for the user as well."""
        series = self.read(self.data)
        n, h = len(series), self.horizon
        default = min(_HORIZONS, max(1, n // (5 * h)))
        test = default if self.test_horizons is None else self.test_horizons
        calibration = max(2, default) if self.calibration_horizons is None else self.calibration_horizons
        train = n - h * (test + calibration)
        if self.calibration_horizons is None and train < h + _MIN_PAST:
            calibration, train = 0, n - h * test
        history = min(_HISTORY, max(_MIN_PAST, (train - h) // 2)) if self.history is None else self.history
        if train < h + history:
            raise ValueError(
                f"{self.data} has {n} values, at least {n - train + h + history} are needed: {h * test} for the test, "
                f"{h * calibration} for calibration, {h + history} for a window. Lower horizon"
                + (", test_horizons or calibration_horizons" if test + calibration > 1 else "")
                + (" or history" if self.history is not None else "")
            )
        usual = series.calendar.seasons if series.calendar else ()
        if self.season is None:
            seasons = detect_seasons(series.values[: n - h * test], usual=usual)
        else:
            seasons = (self.season,) if self.season > 1 else ()
            if self.season > (n - h * test) // 2:
                raise ValueError(
                    f"season must be at most half of the {n - h * test} values before the test, got {self.season}"
                )
        season = max(seasons, default=1)
        past = max(history, min(_PAST_SEASONS * season, train - h))
        window = self._window(past, history, season=season if 2 * season <= past else 1)
        how = "detected" if self.season is None else "given"
        notes = [*series.notes, f"season: {' and '.join(map(str, seasons)) or 'none'} ({how})"]
        if not calibration:
            why = (
                "calibration_horizons=0" if self.calibration_horizons == 0 else f"{n} values are too few to validate it"
            )
            notes.append(f"the language model is left out and not trained: {why}")
        return ForecastData(series, seasons, test, calibration, window), notes

    @torch.no_grad()
    def _evaluate(self, model: nn.Module, data: ForecastData) -> dict[str, float]:
        """Cross-entropy of the language model on the calibration horizons. It does not select the best weights."""
        origins = data.origins(data.test_start, data.calibration)
        start = int(origins[0]) - data.window.past
        windows = torch.from_numpy(data.past(data.test_start)[start:]).unfold(0, data.window.past + self.horizon, 1)
        tokens = data.window.encode(windows).to(next(model.parameters()).device)
        num_future = self.horizon * (self.digits + 1)
        logits = model(tokens[:, :-1])[:, -num_future:]
        return {"loss": float(F.cross_entropy(logits.flatten(0, 1), tokens[:, -num_future:].flatten()))}

    def _plot(
        self, run: Run, data: ForecastData, future: Forecast, test: tuple[np.ndarray, np.ndarray, np.ndarray]
    ) -> None:
        """Plots the forecast after the series, and the last forecast of the test with the actual values."""
        from lawful.probe import figures
        from lawful.probe.figures import forecast_band

        x, h, calendar = data.series.values, self.horizon, data.series.calendar
        count = min(len(x) - h, max(_PLOTTED_HORIZONS * h, 2 * max(data.seasons, default=1), _MIN_PLOTTED))
        for name, end, quantiles, truth in (
            ("forecast", len(x), (future.lower, future.forecast, future.upper), None),
            ("test", len(x) - h, test, x[-h:]),
        ):
            dates = None if calendar is None else calendar.dates(count + h, first=end - count)
            figure = forecast_band(x[end - count : end], quantiles, truth=truth, dates=dates, name=data.series.name)
            figures.save(figure, run.figures / f"{name}.png", root=run.root)


_MIN_PAST = 8
"""Smallest number of past values that the language model reads."""


def _baseline_forecasts(
    x: Float[np.ndarray, " n"],
    known: Float[np.ndarray, " m"],
    origins: Int[np.ndarray, " k"],
    horizon: int,
    season: int,
) -> dict[str, Float[np.ndarray, "k h"]]:
    """Baseline forecasts after each origin; exponential smoothing is fitted to the values before the test."""

    def roll(rule: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        return np.array([rule(fill_missing(x[:origin], season=season)) for origin in origins])

    smoothing = ExponentialSmoothing.fit(known, season=season)
    seasonal = {"seasonal naive": roll(lambda past: seasonal_naive_forecast(past, horizon=horizon, season=season))}
    return {
        "last value": roll(lambda past: naive_forecast(past, horizon=horizon)),
        **(seasonal if season > 1 else {}),
        "drift": roll(lambda past: drift_forecast(past, horizon=horizon)),
        "exponential smoothing": smoothing.forecasts(x, origins, horizon=horizon),
    }


def _mean_error(forecasts: Float[np.ndarray, "k h"], actual: Float[np.ndarray, "k h"]) -> float:
    """Mean absolute error, without missing values."""
    return float(np.nanmean(np.abs(forecasts - actual)))


def _describe_season(seasons: Sequence[int]) -> str:
    if not seasons:
        return "The series has no season."
    return f"The season has {seasons[-1]} steps."
