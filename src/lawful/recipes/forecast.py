"""What a forecast has to beat: the last value, the last season, a line with seasons, and a linear map of the past.

Series as digits of text, and series of many kinds to learn from.
Forecast: a language model of digits says how a series goes on, beside simple rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lawful.data import Batch, fingerprint, make_generator, read_delimited
from lawful.data.text import CharTokenizer, Tokenizer
from lawful.losses.classification import cross_entropy
from lawful.models.generation import SamplingConfig, generate
from lawful.probe import figures
from lawful.probe.figures.training import forecast_band
from lawful.recipes.optimization import Descent
from lawful.recipes.text import GenerationRequest, model_claims, objective
from lawful.recipes.transformer import Transformer, decoder_of
from lawful.training import MaxLength, Range, Run, TrainerConfig, TrainingSetup, validate

RIDGE = 1e-3
"""The penalty on squared weights of the linear rule."""
SHRUNK = 0.1
"""The penalty on the squared slope of a line, and on the squared deviations of a season from it."""


def naive(
    series: Float[Tensor, " n"], history: Float[Tensor, "k t"], horizon: int, season: int
) -> Float[Tensor, "k horizon"]:
    """The last value goes on."""
    return history[:, -1:].expand(-1, horizon)


def seasonal_naive(
    series: Float[Tensor, " n"], history: Float[Tensor, "k t"], horizon: int, season: int
) -> Float[Tensor, "k horizon"]:
    """The last season comes again.

    Examples:
        >>> seasonal_naive(torch.zeros(1), torch.tensor([[1.0, 2.0, 3.0]]), 3, 2)
        tensor([[2., 3., 2.]])
    """
    return history[:, -season:].repeat(1, -(-horizon // season))[:, :horizon]


def continued(history: Float[Tensor, "k t"], horizon: int, season: int) -> Float[Tensor, "k all"]:
    r"""Fits a line and a season that may grow to each history, and goes on: what is expected of it, and after it.

    $$\hat x_t = \bar x + a \, u_t + (1 + g \, u_t) \, s_{t \bmod p}$$

    $u$ rises from -1 to 1 over the history and on after it. The line and the season are those of least squares without
    growth, with the penalty $\lambda (a^2 + \lVert s \rVert^2)$; the growth is that of least squares of what these
    leave, with $\lambda \lVert g s \rVert^2$. A history that has not two seasons has a line alone.

    Args:
        history: $x$.
        horizon: How many values come after it.
        season: $p$.

    Examples:
        >>> continued(torch.tensor([[0.0, 5.0] * 50]), 3, 2)[0, -3:].round()
        tensor([0., 5., 0.])
    """
    t, x = history.shape[1], history.double()
    place = torch.arange(t + horizon, dtype=torch.float64)
    line = (2 * place - t + 1) / max(1, t - 1)
    phases = (
        torch.eye(season, dtype=torch.float64)[place.long() % season] if 1 < season <= t // 2 else line[:, None][:, :0]
    )
    every = torch.cat([line[:, None], phases], dim=1)
    gram = every[:t].T @ every[:t] + SHRUNK * torch.eye(every.shape[1], dtype=torch.float64)
    mean = x.mean(1, keepdim=True)
    weights = torch.linalg.solve(gram, every[:t].T @ (x - mean).T)
    found, growing = mean + (every @ weights).T, (phases @ weights[1:]).T * line
    size = growing[:, :t].square().sum(1, keepdim=True) + SHRUNK * weights[1:].square().sum(0)[:, None]
    growth = ((x - found[:, :t]) * growing[:, :t]).sum(1, keepdim=True) / torch.where(size > 0, size, 1.0)
    return (found + growth * growing).to(history.dtype)


def line_and_season(
    series: Float[Tensor, " n"], history: Float[Tensor, "k t"], horizon: int, season: int
) -> Float[Tensor, "k horizon"]:
    """A line and a season that fit the history go on, the season growing as it grew."""
    return continued(history, horizon, season)[:, -horizon:]


def linear(
    series: Float[Tensor, " n"], history: Float[Tensor, "k t"], horizon: int, season: int
) -> Float[Tensor, "k horizon"]:
    """An affine map of the history to what follows, by least squares with a small penalty, on what is trained on.

    Each window is seen from its last value, so that a series may rise.
    """
    windows = series.unfold(0, history.shape[1] + horizon, 1)
    past, future = windows.split([history.shape[1], horizon], dim=1)
    size = past.std().clamp_min(1e-12)

    def seen(x: Tensor) -> Tensor:
        return torch.nn.functional.pad((x[:, :-1] - x[:, -1:]) / size, (0, 1), value=1.0)

    x, y = seen(past), (future - past[:, -1:]) / size
    gram = x.T @ x + RIDGE * len(x) * torch.eye(x.shape[1], dtype=x.dtype)
    weights = torch.linalg.solve(gram, x.T @ y)
    return history[:, -1:] + size * (seen(history) @ weights)


Rule = Callable[[Tensor, Tensor, int, int], Tensor]
RULES: dict[str, Rule] = {
    "last value": naive,
    "last season": seasonal_naive,
    "line and season": line_and_season,
    "linear": linear,
}
"""The rules by name: from the series that is trained on, histories, the horizon and the season."""


DIGITS = CharTokenizer("0123456789,;")
"""The letters of a series: a semicolon ends its history."""
COMMA, END = 10, 11
MARGIN = 1.0
"""How far a series may go beyond its history, as a share of the range of that, on either side."""
SEASONAL, OWN = 0.7, 0.5
"""The share of drawn series that have the season that is asked for, and of windows that are of the series, at last."""


@dataclass(frozen=True, eq=False)
class Scale:
    r"""Maps numbers to whole ones from 0 to $10^k - 1$, by the range of a history.

    $$n = \operatorname{round}\Bigl((10^k - 1) \frac{x - a}{b - a}\Bigr), \qquad
    a = \min h - m \, r, \; b = \max h + m \, r, \; r = \max h - \min h$$

    with the margin $m = 1$; what lies beyond is clipped. A history that does not change has $r = 1$.
    """

    low: Float[Tensor, "n 1"]
    high: Float[Tensor, "n 1"]
    digits: int

    @classmethod
    def of(cls, history: Float[Tensor, "n t"], *, digits: int) -> Scale:
        """The scale of each history."""
        low, high = history.amin(-1, keepdim=True), history.amax(-1, keepdim=True)
        reach = torch.where(high > low, high - low, 1.0)
        return cls(low - MARGIN * reach, high + MARGIN * reach, digits)

    def levels(self, x: Float[Tensor, "n t"]) -> Int[Tensor, "n t"]:
        """Numbers as whole ones."""
        most = 10**self.digits - 1
        return (most * (x - self.low) / (self.high - self.low)).round().clamp(0, most).long()

    def values(self, levels: Int[Tensor, "n t"]) -> Float[Tensor, "n t"]:
        """Whole numbers as they were, but for the rounding."""
        return self.low + (self.high - self.low) * levels / (10**self.digits - 1)


def written(levels: Int[Tensor, "n t"], *, digits: int) -> Int[Tensor, "n m"]:
    """The tokens of whole numbers: so many digits each, and a comma after each.

    Examples:
        >>> written(torch.tensor([[7, 42]]), digits=2)
        tensor([[ 0,  7, 10,  4,  2, 10]])
    """
    powers = 10 ** torch.arange(digits - 1, -1, -1)
    each = levels[..., None] // powers % 10
    return torch.nn.functional.pad(each, (0, 1), value=COMMA).flatten(1)


def read_back(tokens: Int[Tensor, "n m"], *, digits: int) -> Int[Tensor, "n t"]:
    """The whole numbers of tokens; -1 for what is not so many digits and a comma.

    Examples:
        >>> read_back(torch.tensor([[0, 7, 10, 4, 10, 10]]), digits=2)
        tensor([[ 7, -1]])
    """
    each = tokens.unflatten(1, (-1, digits + 1))
    powers = 10 ** torch.arange(digits - 1, -1, -1)
    sound = (each[..., :-1] < 10).all(-1) & (each[..., -1] == COMMA)
    return torch.where(sound, (each[..., :-1] * powers).sum(-1), -1)


def synthetic(count: int, length: int, *, generator: torch.Generator, season: int = 1) -> Float[Tensor, "n t"]:
    """Draws series of many kinds: trends, repeated patterns that may grow, waves, walks and noise, in random parts.

    Args:
        count: How many.
        length: The values of each.
        generator: What they depend on.
        season: After how many values most of the patterns repeat, unless it is 1; the others do so after any number.
    """
    t = torch.arange(length)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator)

    def uniform() -> Tensor:
        return torch.rand(count, 1, generator=generator)

    def part(share: float) -> Tensor:
        """A random size of a part that is there in a share of the series."""
        return (uniform() < share) * uniform()

    other = torch.randint(3, max(4, length // 2), (count, 1), generator=generator)
    period = torch.where((uniform() < SEASONAL) & (season > 1), season, other)
    pattern = normal(count, length).gather(1, t % period)
    wave = torch.sin(2 * torch.pi * (t / period + uniform()))
    kept = uniform() ** 0.3
    walk = torch.zeros(count, length)
    for i, shock in enumerate(normal(count, length).unbind(1)):
        walk[:, i] = (kept[:, 0] * walk[:, i - 1] if i else 0.0) + shock
    trend, growth = normal(count, 1) * t / length, 1 + 0.5 * part(0.5) * t / length
    return (
        2 * part(0.6) * trend
        + growth * (part(0.5) * pattern + 2 * part(0.5) * wave)
        + part(0.4) * walk / (1 - kept.square() + 1 / length).rsqrt()
        + 0.3 * part(0.8) * normal(count, length)
        + 1e-3 * normal(count, length)
    )


def seasonal(*, length: int = 400, seed: int = 0) -> np.ndarray:
    """A series that rises, repeats itself every twelve values, and is a little noisy: it grows as it repeats.

    Examples:
        >>> seasonal().shape
        (400,)
    """
    t = torch.arange(length, dtype=torch.float64)
    noise = torch.randn(length, generator=make_generator(seed), dtype=torch.float64)
    shape = torch.sin(2 * torch.pi * t / 12) + 0.5 * torch.cos(4 * torch.pi * t / 12)
    return (100 + 0.2 * t + (10 + 0.02 * t) * shape + 2 * noise).numpy()


SERIES: dict[str, Callable[[], np.ndarray]] = {"seasonal": seasonal}
"""The series that need no file."""


def read_series(source: str, *, column: str | None = None) -> Float[Tensor, " n"]:
    """Reads a series: built in, or a column of a table, by default the last that has numbers."""
    if source in SERIES:
        return torch.from_numpy(SERIES[source]())
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {source!r}; built in: {', '.join(SERIES)}")
    if not path.stat().st_size:
        raise ValueError(f"{path.name} is empty: a series was wanted")
    columns = read_delimited(path).columns
    if column is not None and column not in columns:
        raise ValueError(f"{path.name} has no column {column!r}: it has {', '.join(columns)}")
    numeric = {name: values.numbers for name, values in columns.items() if values.numbers is not None}
    name = column or next(reversed(numeric), None)
    if name is None or name not in numeric:
        raise ValueError(f"{path.name} has no numbers in {'any column' if name is None else f'column {name!r}'}")
    values = torch.from_numpy(np.asarray(numeric[name], dtype=np.float64))
    if not values.isfinite().all():
        at = int((~values.isfinite()).nonzero()[0, 0])
        raise ValueError(f"a series has a number at every place: column {name!r} has none at row {at + 1}")
    return values


@dataclass(frozen=True, kw_only=True)
class SeriesWindow:
    """What a model of digits reads and writes of a window: what a line and a season leave of it."""

    history: int
    """The values that are read, by which a window is scaled."""
    horizon: int
    """The values that follow."""
    season: int
    """After how many values the series repeats itself."""
    digits: int
    """The digits of a value."""

    @property
    def tokens(self) -> int:
        """The tokens of a window."""
        return (self.history + self.horizon) * (self.digits + 1)

    def read(self, history: Float[Tensor, "n t"]) -> tuple[Int[Tensor, "n m"], Float[Tensor, "n h"], Scale]:
        """The tokens of histories, what a line and a season expect after them, and the scale of what these leave."""
        expected, t = continued(history, self.horizon, self.season), history.shape[1]
        left = history - expected[:, :t]
        scale = Scale.of(left, digits=self.digits)
        tokens = written(scale.levels(left), digits=self.digits)
        tokens[:, -1] = END
        return tokens, expected[:, t:], scale

    def whole(self, windows: Float[Tensor, "n t"]) -> Int[Tensor, "n m"]:
        """The tokens of histories and of what follows them."""
        read, expected, scale = self.read(windows[:, : self.history])
        after = scale.levels(windows[:, self.history :] - expected)
        return torch.cat([read, written(after, digits=self.digits)], dim=1)


class Windows:
    """Gives windows of series as tokens: drawn ones for the first steps, then half of them of one series.

    Args:
        series: The series.
        window: How windows are written.
        size: The windows of a batch.
        seed: What they depend on.
        drawn: For how many steps all series are drawn.
        own: The share of windows of the series after these.
    """

    def __init__(
        self, series: Float[Tensor, " n"], window: SeriesWindow, *, size: int, seed: int, drawn: int, own: float = OWN
    ) -> None:
        self.length = window.history + window.horizon
        self.windows, self.window = series.unfold(0, self.length, 1), window
        self.size, self.seed, self.drawn, self.own = size, seed, drawn, own

    def __len__(self) -> int:
        return max(1, len(self.windows) // self.size)

    def batch(self, step: int) -> Batch:
        """The windows of a step, as tokens, and the token after each."""
        generator = make_generator(self.seed, step)
        own = 0 if step < self.drawn else max(1, round(self.own * self.size))
        chosen = torch.randint(len(self.windows), (own,), generator=generator)
        drawn = synthetic(self.size - own, self.length, generator=generator, season=self.window.season)
        tokens = self.window.whole(torch.cat([self.windows[chosen], drawn.double()]))
        return tokens[:, :-1], tokens[:, 1:]


QUANTILES = (0.1, 0.5, 0.9)
SHOWN = 3
"""How many horizons of a history are drawn."""
WIDTH, WIDEST = "widening", 10.0
"""The buffer of a model by which its bands are wider than the quantiles of its draws, and the most that it may be."""


@dataclass(frozen=True, kw_only=True)
class Forecasting(TrainingSetup):
    """A training together with its series."""

    series: Tensor


@dataclass(frozen=True, kw_only=True)
class ForecastRecipe:
    """Train a language model of digits to go on with a series: on drawn series of many kinds, and on yours.

    Zero-shot means: after the drawn series, and before the first value of yours is trained on.
    """

    name: ClassVar[str] = "forecast"

    data: Annotated[str, MaxLength(4096)] = "seasonal"
    """A CSV or TSV file, or seasonal: a built-in series."""
    column: Annotated[str, MaxLength(4096)] | None = None
    """The column with the series; by default the last that has numbers."""
    season: Annotated[int, Range(1, 10**6)] = 12
    """After how many values the series repeats itself; 1 for never."""
    history: Annotated[int, Range(2, 10**4)] = 96
    """The values that are read: at least two seasons."""
    horizon: Annotated[int, Range(1, 10**4)] = 12
    """The values that are forecast."""
    digits: Annotated[int, Range(1, 6)] = 2
    """The digits of what a line and a season leave of a value, by the range of that in the history."""
    train_on: Literal["both", "drawn", "series"] = "both"
    """Half of the steps on drawn series, and half on those and yours; or all on one kind."""
    tests: Annotated[int, Range(1, 10**4)] = 5
    """How many horizons at the end of the series are not trained on, and forecast."""
    calibrate_on: Annotated[int, Range(0, 10**4)] = 5
    """How many horizons before these are not trained on: they say which weights are kept, and how wide a band is."""
    samples: Annotated[int, Range(1, 10**4)] = 100
    """How often each forecast is drawn; quantiles are those of the draws."""
    transformer: Transformer = field(default_factory=lambda: Transformer(width=32, depth=2, ngrams=(2, 3)))
    learning: Descent = field(default_factory=lambda: Descent(steps=300, batch=16))
    engine: TrainerConfig = field(default_factory=TrainerConfig)

    def __post_init__(self) -> None:
        validate(self)
        if self.season > 1 and 2 * self.season > self.history:
            raise ValueError(f"a history has at least two seasons: got {self.history} values, seasons of {self.season}")

    def training(self) -> Forecasting:
        """Reads the series and builds the model."""
        series = read_series(self.data, column=self.column)
        held, window = self.horizon * (self.tests + self.calibrate_on), self.history + self.horizon
        if len(series) < held + window:
            raise ValueError(
                f"{self.data} is too short: of its {len(series)} values {held} are kept for the test and for the band, "
                f"and a history of {self.history} with a horizon of {self.horizon} takes {window} more; give fewer "
                "tests, calibrate on fewer, or read a shorter history"
            )
        if self.learning.epochs is not None:
            raise ValueError("series are drawn without end: give steps, not epochs")
        model, steps = self.restored({}), self.learning.steps
        every = max(1, steps // 4)
        drawn = {"both": 2 * every, "drawn": steps, "series": 0}[self.train_on]
        return Forecasting(
            model=model,
            turns=[self.learning.turn(model, objective, steps=steps)],
            batches=Windows(
                series[:-held],
                self.window,
                size=self.learning.batch,
                seed=self.engine.seed,
                drawn=drawn,
                own=1.0 if self.train_on == "series" else OWN,
            ),
            steps=steps,
            evaluate=lambda model: self.measured(model, series),
            every=every,
            watch="loss" if self.calibrate_on else None,
            patience=steps if self.calibrate_on else None,
            average=self.learning.average or None,
            accumulate=self.learning.accumulate,
            claims=partial(model_claims, vocab=DIGITS.vocab, context=self.window.tokens),
            described={"tokenizer": DIGITS.to_json()},
            fingerprint=fingerprint(series),
            series=series,
        )

    def finish(self, run: Run, training: TrainingSetup) -> Mapping[str, Any]:
        """Measures the forecasts beside simple rules, and draws what comes after the end of the series."""
        if not isinstance(training, Forecasting):
            return {}
        series, model = training.series, training.model
        known = series[: -self.tests * self.horizon]
        if self.calibrate_on:
            before, after = self.tested(known, self.calibrate_on)
            model.get_buffer(WIDTH).fill_(widening(self.forecast(model, before), after))
            run.keep_weights(model.state_dict())
        before, after = self.tested(series, self.tests)
        low, median, high = self.forecast(model, before).unbind(0)
        rules = {name: rule(known, before, self.horizon, self.season) for name, rule in RULES.items()}
        ahead = self.forecast(model, series[None, -self.history :])[:, 0]
        rows = [",".join(f"{value:.6g}" for value in row) for row in ahead.T.tolist()]
        head = ",".join(f"quantile {q}" for q in QUANTILES)
        (run.samples / "forecast.csv").write_text("\n".join([f"step,{head}", *numbered(rows)]) + "\n", "utf-8")
        shown = before[-1, -SHOWN * self.horizon :]
        figures.save(
            forecast_band(shown, (low[-1], median[-1], high[-1]), truth=after[-1]), run.figures / "forecast.png"
        )
        learnt = float((median - after).abs().mean())
        zero = [line.get("validation/error") for line in run.metrics() if line.get("step") == 2 * training.every]
        losses = [(line["validation/loss"], line["step"]) for line in run.metrics() if "validation/loss" in line]
        trained = {"both": {"zero-shot": zero[0] if zero else None, "trained": learnt}}
        return {
            "mean absolute error": {
                **trained.get(self.train_on, {"zero-shot" if self.train_on == "drawn" else "trained": learnt}),
                **{name: float((found - after).abs().mean()) for name, found in rules.items()},
            },
            "share within the quantiles 0.1 and 0.9": float(((low <= after) & (after <= high)).double().mean()),
            "step of the weights that are kept": min(losses)[1] if losses else self.learning.steps,
            "widening of the band": float(model.get_buffer(WIDTH)),
            "values": {"trained on": len(known) - self.calibrate_on * self.horizon, "tested": after.numel()},
            "parameters": sum(p.numel() for p in model.parameters()),
        }

    def restored(self, facts: Mapping[str, Any]) -> nn.Module:
        """Builds the model of a run, before its weights are put in."""
        if facts.get("tokenizer", DIGITS.to_json()) != DIGITS.to_json():
            raise ValueError("the run is of an earlier forecast, which wrote series otherwise: train it again")
        model = self.transformer.decoder(DIGITS.vocab, context=self.window.tokens)
        model.register_buffer(WIDTH, torch.ones(()))
        return model

    def write(self, model: nn.Module, tokenizer: Tokenizer, prompt: str, asked: GenerationRequest) -> Iterator[str]:
        """Goes on with the numbers of a prompt: a line for each value, with its quantiles."""
        try:
            values = torch.tensor([float(word) for word in prompt.replace(",", " ").split()], dtype=torch.float64)
        except ValueError:
            raise ValueError(f"the prompt is to be numbers with commas between: got {prompt[:100]!r}") from None
        if len(values) < 2 or not values.isfinite().all():
            raise ValueError(f"the prompt is to have at least 2 finite numbers: got {len(values)}")
        found = self.forecast(model, values[None, -self.history :], seed=asked.seed)[:, 0]
        yield "  ".join(f"quantile {q}" for q in QUANTILES)
        for row in found.T.tolist():
            yield "\n" + "  ".join(f"{value:.6g}" for value in row)

    # ------------------------------------------------------------ the parts

    @property
    def window(self) -> SeriesWindow:
        """How a window is written."""
        return SeriesWindow(history=self.history, horizon=self.horizon, season=self.season, digits=self.digits)

    def tested(self, series: Float[Tensor, " n"], count: int) -> tuple[Float[Tensor, "k t"], Float[Tensor, "k h"]]:
        """So many histories and what came after them, at the end of a series."""
        starts = [len(series) - (k + 1) * self.horizon for k in reversed(range(count))]
        return (
            torch.stack([series[start - self.history : start] for start in starts]),
            torch.stack([series[start : start + self.horizon] for start in starts]),
        )

    @torch.no_grad()
    def measured(self, model: nn.Module, series: Float[Tensor, " n"]) -> dict[str, float]:
        """The error of the medians of the test; and, which is watched, the surprise at what the band is found on."""
        before, after = self.tested(series, self.tests)
        found = {"error": float((self.forecast(model, before)[1] - after).abs().mean())}
        if self.calibrate_on:
            length = self.history + self.calibrate_on * self.horizon
            held = series[: -self.tests * self.horizon][-length:].unfold(0, self.history + self.horizon, 1)
            tokens = self.window.whole(held).to(next(model.parameters()).device)
            ahead = self.horizon * (self.digits + 1)
            found["loss"] = float(cross_entropy(model(tokens[:, :-1])[:, -ahead:], tokens[:, -ahead:]))
        return found

    def forecast(
        self, model: nn.Module, history: Float[Tensor, "n t"], *, seed: int = 0
    ) -> Float[Tensor, "quantiles n h"]:
        """The quantiles of what comes after each history; draws that are no numbers are left out."""
        read, expected, scale = self.window.read(history)
        drawn = generate(
            decoder_of(model),
            read.repeat_interleave(self.samples, 0),
            max_new_tokens=self.horizon * (self.digits + 1),
            sampling=SamplingConfig(suppress_tokens=DIGITS.reserved),
            seed=seed,
        )
        levels = read_back(drawn.cpu(), digits=self.digits).view(len(history), self.samples, self.horizon)
        left = scale.values(levels.clamp_min(0).flatten(1)).view_as(levels)
        values, unsound = expected[:, None] + left, (levels < 0).any(-1, keepdim=True)
        values = values.masked_fill(unsound & ~unsound.all(1, keepdim=True), torch.nan)
        found = values.double().nanquantile(torch.tensor(QUANTILES, dtype=torch.float64), dim=1)
        return found[1] + model.get_buffer(WIDTH).cpu() * (found - found[1])


def widening(found: Float[Tensor, "quantiles n h"], after: Float[Tensor, "n h"]) -> float:
    r"""By how much a band about its median is to be wider, so that its share of what came lies in it.

    $$c = \text{the } \lceil 0.8 \, (n + 1) \rceil \text{th smallest of }
    \max\Bigl(\frac{y_i - m_i}{h_i - m_i}, \frac{m_i - y_i}{m_i - l_i}\Bigr)$$

    with the median $m$ and the quantiles $l$ and $h$; of another $y$ that is like these, the band from
    $m - c \, (m - l)$ to $m + c \, (h - m)$ then holds at least 80 % on average. At most it is ten times as wide.

    Reference:
        Romano, Patterson and Candès, *Conformalized Quantile Regression*, 2019.

    Examples:
        >>> band = torch.tensor([-1.0, 0.0, 1.0]).view(3, 1, 1).expand(3, 1, 9)
        >>> widening(band, torch.tensor([[1.0, -2.0, 3.0, -4.0, 5.0, -6.0, 7.0, -8.0, 9.0]]))
        8.0
    """
    low, median, high = found.unbind(0)
    tiny = torch.finfo(found.dtype).tiny
    scores = torch.maximum((after - median) / (high - median + tiny), (median - after) / (median - low + tiny))
    rank = math.ceil((QUANTILES[2] - QUANTILES[0]) * (after.numel() + 1))
    return min(WIDEST, float(scores.flatten().sort().values[min(rank, after.numel()) - 1]))


def numbered(rows: list[str]) -> list[str]:
    """Rows with their numbers, from 1."""
    return [f"{number},{row}" for number, row in enumerate(rows, 1)]
