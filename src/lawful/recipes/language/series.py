"""Series as digits of text, and series of many kinds to learn from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lawful.data import Batch, generator_of, read_delimited
from lawful.data.text import Characters
from lawful.recipes.language.rules import continued

DIGITS = Characters("0123456789,;")
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
    noise = torch.randn(length, generator=generator_of(seed), dtype=torch.float64)
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
class Window:
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
        self, series: Float[Tensor, " n"], window: Window, *, size: int, seed: int, drawn: int, own: float = OWN
    ) -> None:
        self.length = window.history + window.horizon
        self.windows, self.window = series.unfold(0, self.length, 1), window
        self.size, self.seed, self.drawn, self.own = size, seed, drawn, own

    def __len__(self) -> int:
        return max(1, len(self.windows) // self.size)

    def batch(self, step: int) -> Batch:
        """The windows of a step, as tokens, and the token after each."""
        generator = generator_of(self.seed, step)
        own = 0 if step < self.drawn else max(1, round(self.own * self.size))
        chosen = torch.randint(len(self.windows), (own,), generator=generator)
        drawn = synthetic(self.size - own, self.length, generator=generator, season=self.window.season)
        tokens = self.window.whole(torch.cat([self.windows[chosen], drawn.double()]))
        return tokens[:, :-1], tokens[:, 1:]
