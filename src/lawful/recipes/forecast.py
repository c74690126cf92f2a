"""Forecasting: a language model over digits continues a series; simple forecasts are its baselines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lawful._json import MaxLength, Range
from lawful.data import Batch, fingerprint, make_generator, read_delimited
from lawful.data.text import CharTokenizer, Tokenizer
from lawful.models.generation import SamplingConfig, generate
from lawful.recipes.optimization import TransformerOptimizationConfig, _PositiveInt, _Steps
from lawful.recipes.text import GenerationRequest, _next_token_loss, language_model_claims
from lawful.recipes.transformer import TransformerConfig, as_decoder
from lawful.training import Recipe, Run, TrainingSetup

# ---------------------------------------------------------------- baselines

_LINEAR_RIDGE = 1e-3
"""Ridge penalty of the linear forecast."""
_TREND_RIDGE = 0.1
"""Ridge penalty of the slope and of the seasonal component."""


def _last_value_forecast(
    series: Float[Tensor, " n"], history: Float[Tensor, "k t"], horizon: int, season: int
) -> Float[Tensor, "k horizon"]:
    """Repeats the last value."""
    return history[:, -1:].expand(-1, horizon)


def _last_season_forecast(
    series: Float[Tensor, " n"], history: Float[Tensor, "k t"], horizon: int, season: int
) -> Float[Tensor, "k horizon"]:
    """Repeats the last season.

    Examples:
        >>> _last_season_forecast(torch.zeros(1), torch.tensor([[1.0, 2.0, 3.0]]), 3, 2)
        tensor([[2., 3., 2.]])
    """
    return history[:, -season:].repeat(1, -(-horizon // season))[:, :horizon]


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


def _trend_and_season_forecast(
    series: Float[Tensor, " n"], history: Float[Tensor, "k t"], horizon: int, season: int
) -> Float[Tensor, "k horizon"]:
    """Continues the linear trend and the growing season of the history."""
    return _fit_trend_and_season(history, horizon, season)[:, -horizon:]


def _linear_forecast(
    series: Float[Tensor, " n"], history: Float[Tensor, "k t"], horizon: int, season: int
) -> Float[Tensor, "k horizon"]:
    """Ridge regression from the history, relative to its last value, fitted on the training series."""
    windows = series.unfold(0, history.shape[1] + horizon, 1)
    past, future = windows.split([history.shape[1], horizon], dim=1)
    scale = past.std().clamp_min(1e-12)

    def features(x: Tensor) -> Tensor:
        return F.pad((x[:, :-1] - x[:, -1:]) / scale, (0, 1), value=1.0)

    x, y = features(past), (future - past[:, -1:]) / scale
    gram = x.T @ x + _LINEAR_RIDGE * len(x) * torch.eye(x.shape[1], dtype=x.dtype)
    weights = torch.linalg.solve(gram, x.T @ y)
    return history[:, -1:] + scale * (features(history) @ weights)


_BASELINES: dict[str, Callable[[Tensor, Tensor, int, int], Tensor]] = {
    "last value": _last_value_forecast,
    "last season": _last_season_forecast,
    "trend and season": _trend_and_season_forecast,
    "linear regression": _linear_forecast,
}
"""Baseline forecasts, called with the training series, histories, the horizon and the season."""


# ---------------------------------------------------------------- series as digits

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

    with the margin $m = 1$; values beyond are clipped. A constant history has $r = 1$.
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


def _digits_to_tokens(levels: Int[Tensor, "n t"], *, digits: int) -> Int[Tensor, "n m"]:
    """Converts integers to tokens: the digits of each and a comma.

    Examples:
        >>> _digits_to_tokens(torch.tensor([[7, 42]]), digits=2)
        tensor([[ 0,  7, 10,  4,  2, 10]])
    """
    powers = 10 ** torch.arange(digits - 1, -1, -1)
    return F.pad(levels[..., None] // powers % 10, (0, 1), value=_COMMA).flatten(1)


def _tokens_to_digits(tokens: Int[Tensor, "n m"], *, digits: int) -> Int[Tensor, "n t"]:
    """Converts tokens to integers; -1 for tokens that are not digits and a comma.

    Examples:
        >>> _tokens_to_digits(torch.tensor([[0, 7, 10, 4, 10, 10]]), digits=2)
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


def _read_series(source: str, *, column: str | None = None) -> Float[Tensor, " n"]:
    """Reads a built-in series or a column of a table, by default the last numeric one."""
    if source in _SERIES:
        return torch.from_numpy(_SERIES[source]())
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"file {source!r} does not exist; built-in series: {', '.join(_SERIES)}")
    if not path.stat().st_size:
        raise ValueError(f"{path.name} is empty")
    columns = read_delimited(path).columns
    if column is not None and column not in columns:
        raise ValueError(f"{path.name} has no column {column!r}, it has {', '.join(columns)}")
    numeric = {name: values.numbers for name, values in columns.items() if values.numbers is not None}
    name = column or next(reversed(numeric), None)
    if name is None or name not in numeric:
        raise ValueError(f"{path.name} has no numbers in {'any column' if name is None else f'column {name!r}'}")
    values = torch.from_numpy(np.asarray(numeric[name], dtype=np.float64))
    if not values.isfinite().all():
        row = int((~values.isfinite()).nonzero()[0, 0])
        raise ValueError(f"a series needs a number in every row, column {name!r} has none in row {row + 1}")
    return values


@dataclass(frozen=True, kw_only=True)
class _SeriesWindow:
    """Tokenizes a window: the digits of the residual of trend and season."""

    history: int
    """Number of values in the history."""
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
        """Returns the tokens of histories, the trend and season after them, and the scale of the residuals."""
        fit, t = _fit_trend_and_season(history, self.horizon, self.season), history.shape[1]
        residual = history - fit[:, :t]
        scale = _DigitScale.of(residual, digits=self.digits)
        tokens = _digits_to_tokens(scale.quantize(residual), digits=self.digits)
        tokens[:, -1] = _END
        return tokens, fit[:, t:], scale

    def encode(self, windows: Float[Tensor, "n t"]) -> Int[Tensor, "n m"]:
        """Returns the tokens of histories and the values after them."""
        history, expected, scale = self.encode_history(windows[:, : self.history])
        future = scale.quantize(windows[:, self.history :] - expected)
        return torch.cat([history, _digits_to_tokens(future, digits=self.digits)], dim=1)


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
        self._length, self._window = window.history + window.horizon, window
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


# ---------------------------------------------------------------- the recipe

_QUANTILES = (0.1, 0.5, 0.9)
"""Quantiles of a forecast."""
_PLOTTED_HORIZONS = 3
_BAND_SCALE, _MAX_BAND_SCALE = "band_scale", 10.0
"""Buffer of the model that scales its prediction intervals, and its largest value."""


@dataclass(frozen=True, kw_only=True)
class ForecastRecipe(TransformerConfig, TransformerOptimizationConfig, Recipe[Tensor]):
    """Train a language model over digits to forecast a series: on synthetic series, then also on yours.

    Its zero-shot error is measured after the synthetic series, before training on yours.
    """

    name: ClassVar[str] = "forecast"

    data: Annotated[str, MaxLength(4096)] = "seasonal"
    """CSV or TSV file, or seasonal: a built-in series."""
    column: Annotated[str, MaxLength(4096)] | None = None
    """Column with the series. Defaults to the last numeric column."""
    season: Annotated[int, Range(1, 10**6)] = 12
    """Period of the series; 1 for none."""
    history: Annotated[int, Range(2, 10**4)] = 96
    """Number of past values that the model reads, at least two seasons."""
    horizon: Annotated[int, Range(1, 10**4)] = 12
    """Number of values to forecast."""
    digits: Annotated[int, Range(1, 6)] = 2
    """Digits per value, relative to the range of the history."""
    train_on: Literal["both", "synthetic", "series"] = "both"
    """Train on synthetic series and then on both, on synthetic series only, or on the given series only."""
    test_horizons: Annotated[int, Range(1, 10**4)] = 5
    """Number of horizons at the end of the series used for the test."""
    calibration_horizons: Annotated[int, Range(0, 10**4)] = 5
    """Number of horizons before the test that select the best weights and calibrate the prediction intervals."""
    num_samples: Annotated[int, Range(1, 10**4)] = 100
    """Number of samples per forecast, for its quantiles."""
    dim: Annotated[int, Range(1, 10**5)] = 32
    num_layers: Annotated[int, Range(1, 1000)] = 2
    ngrams: Annotated[tuple[Annotated[int, Range(2, 16)], ...], MaxLength(8)] = (2, 3)
    steps: _Steps = 300
    batch_size: _PositiveInt | None = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.season > 1 and 2 * self.season > self.history:
            raise ValueError(f"history must be at least 2 * season: got history={self.history}, season={self.season}")
        if self.epochs is not None:
            raise ValueError("forecast draws synthetic series without end: set steps instead of epochs")

    def setup(self) -> TrainingSetup[Tensor]:
        """Reads the series and builds the model."""
        series = _read_series(self.data, column=self.column)
        held_out = self.horizon * (self.test_horizons + self.calibration_horizons)
        window = self.history + self.horizon
        if len(series) < held_out + window:
            raise ValueError(
                f"{self.data} has {len(series)} values, at least {held_out + window} are needed ({held_out} for test "
                f"and calibration, {window} for a window): lower test_horizons, calibration_horizons or history"
            )
        model, steps = self.build_model({}), self.num_steps(1)
        eval_every = max(1, steps // 4)
        calibrate = bool(self.calibration_horizons)
        return TrainingSetup(
            model=model,
            optimizer_steps=[self.optimizer_step(model, _next_token_loss, steps=steps)],
            batches=_SeriesBatches(
                series[:-held_out],
                self._window,
                batch_size=self.batch_size or 16,
                seed=self.seed,
                synthetic_steps={"both": 2 * eval_every, "synthetic": steps, "series": 0}[self.train_on],
                own_fraction=1.0 if self.train_on == "series" else _OWN_FRACTION,
            ),
            steps=steps,
            evaluate=lambda model: self._evaluate(model, series),
            eval_every=eval_every,
            monitor="loss" if calibrate else None,
            patience=steps if calibrate else None,
            ema_decay=self.ema_decay or None,
            grad_accumulation_steps=self.grad_accumulation_steps,
            claims=partial(
                language_model_claims, vocab_size=_DIGITS.vocab_size, context_length=self._window.num_tokens
            ),
            model_config={"tokenizer": _DIGITS.to_json()},
            data_fingerprint=fingerprint(series),
            data=series,
        )

    def finish(self, run: Run, setup: TrainingSetup[Tensor]) -> Mapping[str, Any]:
        """Compares forecasts with the baselines, and forecasts the values after the series."""
        from lawful.probe import figures
        from lawful.probe.figures import forecast_band

        series, model = setup.data, setup.model
        known = series[: -self.test_horizons * self.horizon]
        if self.calibration_horizons:
            before, after = self._last_windows(known, self.calibration_horizons)
            model.get_buffer(_BAND_SCALE).fill_(_conformal_scale(self.forecast(model, before), after))
            run.save_weights(model.state_dict())
        before, after = self._last_windows(series, self.test_horizons)
        low, median, high = self.forecast(model, before).unbind(0)
        baselines = {name: rule(known, before, self.horizon, self.season) for name, rule in _BASELINES.items()}
        future = self.forecast(model, series[None, -self.history :])[:, 0]
        lines = ["step," + ",".join(f"quantile {q}" for q in _QUANTILES)]
        lines += [
            ",".join([str(step), *(f"{value:.6g}" for value in row)]) for step, row in enumerate(future.T.tolist(), 1)
        ]
        (run.samples / "forecast.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        recent = before[-1, -_PLOTTED_HORIZONS * self.horizon :]
        figure = forecast_band(recent, (low[-1], median[-1], high[-1]), truth=after[-1])
        figures.save(figure, run.figures / "forecast.png")
        error = float((median - after).abs().mean())
        metrics = run.metrics
        zero_shot = [line.get("validation/error") for line in metrics if line.get("step") == 2 * setup.eval_every]
        losses = [(line["validation/loss"], line["step"]) for line in metrics if "validation/loss" in line]
        errors = {
            "both": {"zero-shot": zero_shot[0] if zero_shot else None, "trained": error},
            "synthetic": {"zero-shot": error},
            "series": {"trained": error},
        }[self.train_on]
        return {
            "mean absolute error": {
                **errors,
                **{name: float((forecast - after).abs().mean()) for name, forecast in baselines.items()},
            },
            "coverage of the 80 % interval": float(((low <= after) & (after <= high)).double().mean()),
            "step of the best weights": min(losses)[1] if losses else setup.steps,
            "scale of the intervals": float(model.get_buffer(_BAND_SCALE)),
            "values": {"train": len(known) - self.calibration_horizons * self.horizon, "test": after.numel()},
            "parameters": sum(p.numel() for p in model.parameters()),
        }

    def build_model(self, model_config: Mapping[str, Any]) -> nn.Module:
        """Rebuilds the model of a run, without its weights."""
        if model_config.get("tokenizer", _DIGITS.to_json()) != _DIGITS.to_json():
            raise ValueError("the run has another tokenizer of digits: train it again")
        model = self.build_decoder(_DIGITS.vocab_size, context_length=self._window.num_tokens)
        model.register_buffer(_BAND_SCALE, torch.ones(()))
        return model

    def generate(
        self, model: nn.Module, tokenizer: Tokenizer, prompt: str, request: GenerationRequest
    ) -> Iterator[str]:
        """Forecasts the numbers of a prompt: one line of quantiles per value."""
        try:
            values = torch.tensor([float(word) for word in prompt.replace(",", " ").split()], dtype=torch.float64)
        except ValueError:
            raise ValueError(f"prompt must be numbers separated by commas, got {prompt[:100]!r}") from None
        if len(values) < 2 or not values.isfinite().all():
            raise ValueError(f"prompt must have at least 2 finite numbers, got {len(values)}")
        quantiles = self.forecast(model, values[None, -self.history :], seed=request.seed)[:, 0]
        yield "  ".join(f"quantile {q}" for q in _QUANTILES)
        for row in quantiles.T.tolist():
            yield "\n" + "  ".join(f"{value:.6g}" for value in row)

    def forecast(
        self, model: nn.Module, history: Float[Tensor, "n t"], *, seed: int = 0
    ) -> Float[Tensor, "quantiles n h"]:
        """Returns the quantiles of the values after each history. Samples that are not numbers are ignored."""
        tokens, expected, scale = self._window.encode_history(history)
        sampled = generate(
            as_decoder(model),
            tokens.repeat_interleave(self.num_samples, 0),
            max_new_tokens=self.horizon * (self.digits + 1),
            sampling=SamplingConfig(suppress_tokens=_DIGITS.reserved_ids),
            seed=seed,
        )
        levels = _tokens_to_digits(sampled.cpu(), digits=self.digits).view(len(history), self.num_samples, self.horizon)
        residuals = scale.dequantize(levels.clamp_min(0).flatten(1)).view_as(levels)
        values, invalid = expected[:, None] + residuals, (levels < 0).any(-1, keepdim=True)
        values = values.masked_fill(invalid & ~invalid.all(1, keepdim=True), torch.nan)
        quantiles = values.double().nanquantile(torch.tensor(_QUANTILES, dtype=torch.float64), dim=1)
        return quantiles[1] + model.get_buffer(_BAND_SCALE).cpu() * (quantiles - quantiles[1])

    @property
    def _window(self) -> _SeriesWindow:
        return _SeriesWindow(history=self.history, horizon=self.horizon, season=self.season, digits=self.digits)

    def _last_windows(
        self, series: Float[Tensor, " n"], count: int
    ) -> tuple[Float[Tensor, "k t"], Float[Tensor, "k h"]]:
        """The last histories of a series and the values after them."""
        starts = [len(series) - (k + 1) * self.horizon for k in reversed(range(count))]
        return (
            torch.stack([series[start - self.history : start] for start in starts]),
            torch.stack([series[start : start + self.horizon] for start in starts]),
        )

    @torch.no_grad()
    def _evaluate(self, model: nn.Module, series: Float[Tensor, " n"]) -> dict[str, float]:
        """Mean absolute error of the test medians, and the cross-entropy of the calibration values."""
        before, after = self._last_windows(series, self.test_horizons)
        metrics = {"error": float((self.forecast(model, before)[1] - after).abs().mean())}
        if self.calibration_horizons:
            length = self.history + self.calibration_horizons * self.horizon
            calibration = series[: -self.test_horizons * self.horizon][-length:]
            windows = calibration.unfold(0, self.history + self.horizon, 1)
            tokens = self._window.encode(windows).to(next(model.parameters()).device)
            num_future = self.horizon * (self.digits + 1)
            logits = model(tokens[:, :-1])[:, -num_future:]
            metrics["loss"] = float(F.cross_entropy(logits.flatten(0, 1), tokens[:, -num_future:].flatten()))
        return metrics


def _conformal_scale(quantiles: Float[Tensor, "quantiles n h"], after: Float[Tensor, "n h"]) -> float:
    r"""Returns the factor by which prediction intervals must be scaled to have their nominal coverage.

    $$c = \text{the } \lceil 0.8 \, (n + 1) \rceil \text{th smallest of }
    \max\Bigl(\frac{y_i - m_i}{h_i - m_i}, \frac{m_i - y_i}{m_i - l_i}\Bigr)$$

    with the median $m$ and the quantiles $l$ and $h$. The interval from $m - c \, (m - l)$ to $m + c \, (h - m)$ covers
    an exchangeable $y$ with probability at least 80 %. The factor is at most 10.

    Reference:
        Romano, Patterson and Candès, *Conformalized Quantile Regression*, 2019.

    Examples:
        >>> band = torch.tensor([-1.0, 0.0, 1.0]).view(3, 1, 1).expand(3, 1, 9)
        >>> _conformal_scale(band, torch.tensor([[1.0, -2.0, 3.0, -4.0, 5.0, -6.0, 7.0, -8.0, 9.0]]))
        8.0
    """
    low, median, high = quantiles.unbind(0)
    tiny = torch.finfo(quantiles.dtype).tiny
    scores = torch.maximum((after - median) / (high - median + tiny), (median - after) / (median - low + tiny))
    rank = math.ceil((_QUANTILES[2] - _QUANTILES[0]) * (after.numel() + 1))
    return min(_MAX_BAND_SCALE, float(scores.flatten().sort().values[min(rank, after.numel()) - 1]))
