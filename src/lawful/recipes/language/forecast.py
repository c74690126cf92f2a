"""Forecast: a language model of digits says how a series goes on, beside simple rules."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lawful.data import fingerprint
from lawful.data.text import Tokenizer
from lawful.inference.decoding import Sampling, generate
from lawful.objectives import cross_entropy
from lawful.probe import figures
from lawful.probe.figures.forecast import forecast_band
from lawful.recipes.language.asked import Asked
from lawful.recipes.language.descent import Descent
from lawful.recipes.language.rules import RULES
from lawful.recipes.language.series import DIGITS, OWN, Window, Windows, read_back, read_series
from lawful.recipes.language.text import kept_by, objective
from lawful.recipes.language.transformer import Transformer, decoder_of
from lawful.training import AtMost, Between, Engine, Run, Training, validate

QUANTILES = (0.1, 0.5, 0.9)
SHOWN = 3
"""How many horizons of a history are drawn."""
WIDTH, WIDEST = "widening", 10.0
"""The buffer of a model by which its bands are wider than the quantiles of its draws, and the most that it may be."""


@dataclass(frozen=True, kw_only=True)
class Forecasting(Training):
    """A training together with its series."""

    series: Tensor


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Train a language model of digits to go on with a series: on drawn series of many kinds, and on yours.

    Zero-shot means: after the drawn series, and before the first value of yours is trained on.
    """

    name: ClassVar[str] = "forecast"

    data: Annotated[str, AtMost(4096)] = "seasonal"
    """A CSV or TSV file, or seasonal: a built-in series."""
    column: Annotated[str, AtMost(4096)] | None = None
    """The column with the series; by default the last that has numbers."""
    season: Annotated[int, Between(1, 10**6)] = 12
    """After how many values the series repeats itself; 1 for never."""
    history: Annotated[int, Between(2, 10**4)] = 96
    """The values that are read: at least two seasons."""
    horizon: Annotated[int, Between(1, 10**4)] = 12
    """The values that are forecast."""
    digits: Annotated[int, Between(1, 6)] = 2
    """The digits of what a line and a season leave of a value, by the range of that in the history."""
    train_on: Literal["both", "drawn", "series"] = "both"
    """Half of the steps on drawn series, and half on those and yours; or all on one kind."""
    tests: Annotated[int, Between(1, 10**4)] = 5
    """How many horizons at the end of the series are not trained on, and forecast."""
    calibrate_on: Annotated[int, Between(0, 10**4)] = 5
    """How many horizons before these are not trained on: they say which weights are kept, and how wide a band is."""
    samples: Annotated[int, Between(1, 10**4)] = 100
    """How often each forecast is drawn; quantiles are those of the draws."""
    transformer: Transformer = field(default_factory=lambda: Transformer(width=32, depth=2, ngrams=(2, 3)))
    learning: Descent = field(default_factory=lambda: Descent(steps=300, batch=16))
    engine: Engine = field(default_factory=Engine)

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
            claims=partial(kept_by, vocab=DIGITS.vocab, context=self.window.tokens),
            described={"tokenizer": DIGITS.to_json()},
            fingerprint=fingerprint(series),
            series=series,
        )

    def finish(self, run: Run, training: Training) -> Mapping[str, Any]:
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

    def write(self, model: nn.Module, tokenizer: Tokenizer, prompt: str, asked: Asked) -> Iterator[str]:
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
    def window(self) -> Window:
        """How a window is written."""
        return Window(history=self.history, horizon=self.horizon, season=self.season, digits=self.digits)

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
            tokens=self.horizon * (self.digits + 1),
            sampling=Sampling(never=DIGITS.reserved),
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
