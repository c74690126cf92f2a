"""Series: values at regular times, their calendar and their seasons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from lawful._json import require_choice, require_fields, require_int, require_text
from lawful._suggest import did_you_mean
from lawful.data.dates import DatePrecision, Dates, parse_dates
from lawful.data.loading import read_table
from lawful.data.tables import ColumnValues, Table, read_arrays

# ---------------------------------------------------------------- calendar

CalendarUnit = Literal["second", "business day", "month"]
"""Unit of the steps of a calendar."""
_DAY = 86_400
_PRECISIONS: tuple[DatePrecision | Literal["year"], ...] = ("year", "month", "day", "time")
_MAX_STEP = 10**10
_LAST_BUSINESS_DAY = 32
"""Anchor day of a month that stands for its last business day."""
_MAX_MISSING = 0.5
"""Largest fraction of missing values."""
_USUAL_STEPS = (1, 5, 10, 15, 30, 60, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, _DAY, 7 * _DAY)
"""Usual steps in seconds, which times with jitter are rounded to."""
_JITTER = 0.1
"""Largest deviation of a time from the grid, as a fraction of a step."""


@dataclass(frozen=True)
class Calendar:
    """Dates at regular steps.

    Examples:
        >>> calendar = Calendar(start="2024-01-31", unit="month", step=1, day=31, precision="day")
        >>> calendar.name, calendar.format(calendar.dates(3))
        ('monthly', ['2024-01-31', '2024-02-29', '2024-03-31'])
    """

    start: str
    """First date, in ISO format."""
    unit: CalendarUnit
    """Unit of a step."""
    step: int = 1
    """Number of units per step."""
    day: int = 1
    """Day of the month; 31 is the last day, 32 the last business day. For months only."""
    precision: DatePrecision | Literal["year"] = "day"
    """Smallest unit that is written."""
    offset: int | None = None
    """Offset from UTC of the written times, in minutes."""

    @property
    def name(self) -> str:
        """Frequency in words, such as "daily" or "every 15 minutes"."""
        if self.unit == "business day":
            return "every business day"
        if self.unit == "month":
            return {1: "monthly", 3: "quarterly", 12: "yearly"}.get(self.step, f"every {self.step} months")
        known = {1: "every second", 60: "every minute", 3600: "hourly", _DAY: "daily", 7 * _DAY: "weekly"}
        if self.step in known:
            return known[self.step]
        for size, word in ((_DAY, "days"), (3600, "hours"), (60, "minutes")):
            if self.step % size == 0:
                return f"every {self.step // size} {word}"
        return f"every {self.step} seconds"

    @property
    def seasons(self) -> tuple[int, ...]:
        """Periods that are usual at this frequency: a day, a week and a year."""
        if self.unit == "business day":
            return (5, 261)
        if self.unit == "month":
            return (12 // self.step,) if self.step in (1, 2, 3, 4, 6) else ()
        periods = [size // self.step for size in (3600, _DAY, 7 * _DAY) if size % self.step == 0]
        periods += [round(365.25 * _DAY / self.step)] if self.step >= _DAY else []
        return tuple(period for period in periods if period > 1)

    def dates(self, count: int, *, first: int = 0) -> np.ndarray:
        """Returns dates as `datetime64[us]`.

        Args:
            count: Number of dates.
            first: Step of the first one.
        """
        steps, start = np.arange(first, first + count), np.datetime64(self.start, "us")
        if self.unit == "second":
            return start + (steps * self.step).astype("timedelta64[s]")
        day = start.astype("datetime64[D]")
        time = start - day
        if self.unit == "business day":
            return np.busday_offset(day, steps, roll="forward") + time
        return _month_days(day.astype("datetime64[M]") + self.step * steps, self.day) + time

    def format(self, dates: np.ndarray) -> list[str]:
        """Formats dates as they were written in the data, in ISO order."""
        dates = dates.astype("datetime64[us]")
        if self.precision != "time":
            unit = {"year": "Y", "month": "M", "day": "D"}[self.precision]
            return dates.astype(f"datetime64[{unit}]").astype(str).tolist()
        local = (dates + np.timedelta64(self.offset or 0, "m")).astype("datetime64[s]").astype(str).tolist()
        length = len("2024-01-31T00:00") if self.step % 60 == 0 else None
        words = [word[:length].replace("T", " ") for word in local]
        if self.offset is None:
            return words
        hours, minutes = divmod(abs(self.offset), 60)
        return [f"{word}{'-' if self.offset < 0 else '+'}{hours:02}:{minutes:02}" for word in words]

    def after(self, steps: int) -> Calendar:
        """Returns the calendar that starts a number of steps later."""
        start = str(self.dates(1, first=steps)[0])
        return Calendar(start, self.unit, self.step, self.day, self.precision, self.offset)

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-compatible dictionary."""
        return {
            "start": self.start,
            "unit": self.unit,
            "step": self.step,
            "day": self.day,
            "precision": self.precision,
            "offset": self.offset,
        }

    @classmethod
    def from_json(cls, value: object) -> Calendar:
        """Rebuilds the calendar from untrusted JSON. Raises ValueError if it is malformed."""
        names = ("start", "unit", "step", "day", "precision", "offset")
        loaded = require_fields(value, names, where="calendar")
        start = require_text(loaded["start"], where="calendar.start")
        try:
            start = str(np.datetime64(start[:32], "us"))
        except ValueError:
            raise ValueError(f"calendar.start must be an ISO date, got {start[:100]!r}") from None
        offset = loaded["offset"]
        return cls(
            start,
            require_choice(loaded["unit"], ("second", "business day", "month"), where="calendar.unit"),  # type: ignore[arg-type]
            require_int(loaded["step"], 1, _MAX_STEP, where="calendar.step"),
            require_int(loaded["day"], 1, _LAST_BUSINESS_DAY, where="calendar.day"),
            require_choice(loaded["precision"], _PRECISIONS, where="calendar.precision"),  # type: ignore[arg-type]
            None if offset is None else require_int(offset, -1440, 1440, where="calendar.offset"),
        )


def _month_days(months: np.ndarray, day: int) -> np.ndarray:
    """Returns a day of each month, the last one if the month is shorter."""
    last = (months + 1).astype("datetime64[D]") - 1
    if day == _LAST_BUSINESS_DAY:
        return np.busday_offset(last, 0, roll="backward")
    return np.minimum(months.astype("datetime64[D]") + (day - 1), last)


def infer_calendar(dates: Dates) -> tuple[Calendar, Int[np.ndarray, " n"]]:
    """Finds the frequency of sorted dates. Returns the calendar and the step of each date.

    Frequencies: a number of seconds, minutes, hours, days or weeks; business days; a number of months, on the same day,
    the last day or the last business day. Missing dates are gaps in the steps.

    Args:
        dates: Ascending dates without repetitions.

    Raises:
        ValueError: If the dates are not at regular steps.

    Examples:
        >>> calendar, steps = infer_calendar(parse_dates(["2024-01-05", "2024-01-06", "2024-01-08"]))
        >>> calendar.name, steps.tolist()
        ('daily', [0, 1, 3])
    """
    values = dates.values
    start = str(values[0])
    precision = dates.precision
    day, time = values.astype("datetime64[D]"), values - values.astype("datetime64[D]")
    if (time == time[0]).all():
        monthly = _infer_months(day)
        if monthly is not None:
            step, anchor, steps = monthly
            return Calendar(start, "month", step, anchor, precision, dates.offset), steps
        gaps = np.diff(day).astype(int)
        weekday = (day.astype(int) + 3) % 7
        weeks = (day[-1] - day[0]).astype(int) / 7
        steps = np.busday_count(day[0], day)
        dense = len(day) >= (1 - _MAX_MISSING) * (steps[-1] + 1)
        if gaps.min() == 1 and weekday.max() <= 4 and weeks >= 2 and dense:
            return Calendar(start, "business day", 1, 1, precision, dates.offset), steps
    seconds = np.diff(values).astype("timedelta64[us]").astype(np.int64) / 1e6
    step = _regular_step(seconds)
    if step is None:
        sizes = (max(1, round(float(size))) for size in (seconds.min(), seconds.max()))
        low, high = (Calendar(start, "second", size).name for size in sizes)
        raise ValueError(
            f"dates are at irregular steps, from {low} to {high}: aggregate the values to regular steps, such as one "
            "per day or per month, or remove the date column to use the order of the rows"
        )
    steps = np.concatenate([[0], np.cumsum(np.round(seconds / step).astype(int))])
    return Calendar(start, "second", step, 1, precision, dates.offset), steps


def _infer_months(day: np.ndarray) -> tuple[int, int, Int[np.ndarray, " n"]] | None:
    """Returns the step in months, the day of the month and the steps; None if the dates are not monthly."""
    months = day.astype("datetime64[M]")
    gaps = np.diff(months).astype(int)
    if gaps.min() < 1 or np.diff(day).astype(int).min() < 27:
        return None
    number = (day - months.astype("datetime64[D]")).astype(int) + 1
    anchors = (int(number.max()), 31, _LAST_BUSINESS_DAY)
    anchor = next((a for a in anchors if (_month_days(months, a) == day).all()), None)
    if anchor is None:
        return None
    if len(set(number.tolist())) == 1 and int(number[0]) == 28 and len(day) > 2:
        anchor = 28
    step = int(np.gcd.reduce(gaps))
    return step, anchor, np.concatenate([[0], np.cumsum(gaps // step)])


def _regular_step(seconds: Float[np.ndarray, " n"]) -> int | None:
    """Returns the step in seconds if all gaps are multiples of it, up to jitter."""
    whole = np.round(seconds).astype(int)
    if whole.min() < 1:
        return None
    values, counts = np.unique(whole, return_counts=True)
    common, middle = int(values[counts.argmax()]), float(np.median(whole))
    usual = min(_USUAL_STEPS, key=lambda step: abs(math.log(step / middle)))
    usual = usual if abs(usual / middle - 1) < 0.02 else common
    for step in (usual, common, int(np.gcd.reduce(whole))):
        ratio = seconds / step
        regular = (np.abs(ratio - np.round(ratio)) <= _JITTER).all() and ratio.min() > 0.5
        if regular and len(seconds) >= (1 - _MAX_MISSING) * np.round(ratio).sum():
            return step
    return None


# ---------------------------------------------------------------- series


@dataclass(frozen=True, eq=False)
class Series:
    """Values at regular times.

    Examples:
        >>> series = Series(np.array([1.0, 2.0]), "sales", Calendar("2024-01-01", "month", precision="month"))
        >>> len(series), series.dates(2, first=2)
        (2, ['2024-03', '2024-04'])
    """

    values: Float[np.ndarray, " n"]
    """Values, NaN where missing."""
    name: str = "value"
    """Name of the values."""
    calendar: Calendar | None = None
    """Dates of the values; None if they are only numbered."""
    notes: tuple[str, ...] = ()
    """Notes for the user: the target, the frequency, missing values."""

    def __len__(self) -> int:
        return len(self.values)

    def dates(self, count: int, *, first: int = 0) -> list[str]:
        """Returns formatted dates, or row numbers from 1 if there is no calendar."""
        if self.calendar is None:
            return [str(i + 1) for i in range(first, first + count)]
        return self.calendar.format(self.calendar.dates(count, first=first))


def read_series(source: str | Path, *, target: str | None = None, date_column: str | None = None) -> Series:
    """Reads a series from a column of a table.

    Dates are recognized and must be regular; missing dates become missing values. Rows may be in any order if they have
    dates.

    Args:
        source: CSV, TSV, Parquet or NumPy file.
        target: Column with the values. Defaults to the last numeric column.
        date_column: Column with the dates. Defaults to the first column that has dates.
    """
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"file {str(source)!r} does not exist")
    if not path.stat().st_size:
        raise ValueError(f"{path.name} is empty")
    if path.suffix.lower() == ".npy" and (array := read_arrays(path)[""]).ndim == 1:
        return series_of(np.array(array, dtype=np.float64), name=path.stem)  # a mapped file is not writable
    table = read_table(path)
    for option, name in (("target", target), ("date_column", date_column)):
        if name is not None and name not in table.columns:
            close, columns = did_you_mean(name, table.columns), ", ".join(map(repr, list(table.columns)[:20]))
            raise ValueError(f"{option} must be a column of {path.name}, got {name!r}{close} It has {columns}")
    column, dates = _find_dates(table, date_column, target)
    numeric = {
        name: values.numbers
        for name, values in table.columns.items()
        if values.numbers is not None and name != column and not values.missing.all()
    }
    counters = [name for name, numbers in numeric.items() if _is_row_number(numbers)]
    default = [name for name in numeric if name not in counters] or list(numeric)
    name = target or next(reversed(default), None)
    if name is None or name not in numeric:
        raise ValueError(_target_error(table, target))
    others = [other for other in table.columns if other not in (name, column)]
    note = f"target: column {name!r}" + (f"; not used: {', '.join(map(repr, others[:10]))}" if others else "")
    if others and target is None:
        note += " (set target to choose another)"
    values = numeric[name]
    if dates is None:
        if date_column is None and (years := _year_dates(table, name)) is not None:
            return _on_calendar(values, years, name, (*table.notes, note), path.name)
        return series_of(values, name=name, notes=(*table.notes, note, "no dates: rows are in order"))
    return _on_calendar(values, dates, name, (*table.notes, note), path.name)


def series_of(
    values: Float[np.ndarray, " n"],
    *,
    name: str = "value",
    calendar: Calendar | None = None,
    notes: Sequence[str] = (),
) -> Series:
    """Returns a series. Missing values at its ends are removed.

    Args:
        values: Values, NaN where missing.
        name: Name of the values.
        calendar: Dates of the values.
        notes: Notes for the user.
    """
    values = np.asarray(values, dtype=np.float64)
    if (infinite := np.isinf(values)).any():
        raise ValueError(f"column {name!r} has an infinite value in row {int(infinite.argmax()) + 1}")
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        raise ValueError(f"column {name!r} has no values")
    first, last = int(known[0]), int(known[-1]) + 1
    notes = list(notes)
    if first or last < len(values):
        notes.append(f"left out {first + len(values) - last} missing values at the ends")
    values, calendar = values[first:last], calendar.after(first) if calendar and first else calendar
    if count := int(np.isnan(values).sum()):
        if count > _MAX_MISSING * len(values):
            raise ValueError(
                f"column {name!r} has {count} missing values of {len(values)}, at most half may be missing: "
                "aggregate the values to longer steps"
            )
        notes.append(f"{count} of {len(values)} values are missing: they are interpolated, and not used for errors")
    return Series(values, name, calendar, tuple(notes))


def _find_dates(table: Table, column: str | None, target: str | None) -> tuple[str | None, Dates | None]:
    """Returns the name and the dates of the date column, if there is one."""
    names = [name for name in table.columns if name != target] if column is None else [column]
    for name in names:
        values = table.columns[name]
        if values.numbers is not None and column is None and not _may_be_compact_dates(values):
            continue
        dates = parse_dates(values.words)
        if dates is None:
            continue
        if np.isnat(dates.values).any():
            row = int(np.isnat(dates.values).argmax())
            word = "" if values.text is None else values.text[row]
            raise ValueError(f"expected a date at {table.place(row, name)}, got {word[:50]!r}")
        return name, dates
    if column is not None:
        shown = next((word for word in table.columns[column].words if word is not None), "")
        raise ValueError(f"date_column must have dates such as 2024-01-31, column {column!r} has {shown[:50]!r}")
    return None, None


def _may_be_compact_dates(values: ColumnValues) -> bool:
    """Whether numbers may be dates such as 20240131."""
    numbers = values.numbers
    return numbers is not None and bool(((numbers >= 16_000_101) & (numbers < 22_000_101)).all())


def _is_row_number(numbers: np.ndarray) -> bool:
    """Whether a column numbers the rows, from 0 or 1."""
    return len(numbers) > 2 and bool((np.diff(numbers) == 1).all()) and numbers[0] in (0, 1)


def _year_dates(table: Table, target: str) -> Dates | None:
    """Returns the dates of a column with years."""
    for name, values in table.columns.items():
        numbers = values.numbers
        if name == target or numbers is None or not name.strip().lower().startswith("year"):
            continue
        if ((numbers >= 1600) & (numbers < 2200) & (numbers % 1 == 0)).all():
            return parse_dates([f"{int(number)}-01" for number in numbers])
    return None


def _target_error(table: Table, target: str | None) -> str:
    if target is None:
        return f"{table.name} has no numbers in any column"
    words = [(i, word) for i, word in enumerate(table.columns[target].words) if word is not None]
    wrong = next(((i, word) for i, word in words if not _is_number(word)), None)
    if wrong is None:
        return f"target must be a column with numbers: column {target!r} of {table.name} has none"
    return f"target must be a column with numbers: got {wrong[1][:50]!r} at {table.place(wrong[0], target)}"


def _is_number(word: str) -> bool:
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


def _on_calendar(values: Float[np.ndarray, " n"], dates: Dates, name: str, notes: Sequence[str], file: str) -> Series:
    """Infers the calendar of the dates and returns the values on it, NaN where a date is missing."""
    notes = list(notes)
    order = np.argsort(dates.values, kind="stable")
    when = dates.values[order]
    if len(when) < 3:
        raise ValueError(f"{file} has {len(when)} rows, a series needs more")
    repeated = np.flatnonzero(when[1:] == when[:-1])
    if len(repeated):
        day = str(when[repeated[0]]).replace("T00:00:00.000000", "")
        raise ValueError(
            f"{file} has several rows with the date {day}: sum or average them, or, if it has several series, write "
            "each to its own file"
        )
    if (np.diff(dates.values) < np.timedelta64(0)).any():
        notes.append("sorted the rows by date")
    if dates.ambiguous:
        notes.append(f"dates could be day first or month first: they were read as {dates.order}")
    sorted_dates = Dates(when, dates.order, dates.precision, False, (), dates.offset)
    calendar, steps = infer_calendar(sorted_dates)
    if calendar.unit == "month" and calendar.step == 12 and dates.precision == "month":
        calendar = Calendar(calendar.start, "month", 12, calendar.day, "year")
    grid = np.full(int(steps[-1]) + 1, np.nan)
    grid[steps] = values[order]
    ends = calendar.format(calendar.dates(1))[0], calendar.format(calendar.dates(1, first=len(grid) - 1))[0]
    notes.append(f"dates: {calendar.name}, from {ends[0]} to {ends[1]}, {len(grid)} steps")
    return series_of(grid, name=name, calendar=calendar, notes=notes)


# ---------------------------------------------------------------- missing values and seasons


def fill_missing(x: Float[np.ndarray, " n"], *, season: int = 1) -> Float[np.ndarray, " n"]:
    """Fills missing values by linear interpolation of the seasonally adjusted values.

    Examples:
        >>> fill_missing(np.array([1.0, np.nan, 3.0]))
        array([1., 2., 3.])
    """
    known = ~np.isnan(x)
    if known.all():
        return x
    if not known.any():
        raise ValueError("expected at least one value that is not missing")
    t = np.arange(len(x))
    filled = np.interp(t, t[known], x[known])
    if 1 < season <= len(x) // 2:
        rest = x - _moving_average(filled, season)
        counts = np.bincount(t[known] % season, minlength=season)
        pattern = np.bincount(t[known] % season, rest[known], minlength=season) / np.maximum(counts, 1)
        plain = x - pattern[t % season]
        filled = np.interp(t, t[known], plain[known]) + pattern[t % season]
    return np.where(known, x, filled)


def _moving_average(x: Float[np.ndarray, " n"], width: int) -> Float[np.ndarray, " n"]:
    """Centered moving average. At the ends the window is shifted inward and a line is fitted through its mean."""
    n = len(x)
    width = min(width, n)
    sums = np.concatenate([[0.0], np.cumsum(x - x.mean())])
    start = np.arange(n - width + 1)
    means = (sums[start + width] - sums[start]) / width + x.mean()
    middle = start + (width - 1) / 2
    slope = (means[-1] - means[0]) / max(1, len(means) - 1)
    t = np.arange(n)
    return np.interp(t, middle, means) + slope * (np.minimum(t - middle[0], 0) + np.maximum(t - middle[-1], 0))


_MIN_CYCLES, _USUAL_CYCLES = 4, 2
"""Smallest number of cycles of a season: in general, and if the calendar suggests the season."""
_MIN_SCORE, _USUAL_SCORE = 0.2, 0.08
"""Smallest fraction of the variance that a season predicts: in general, and if the calendar suggests the season."""
_MAX_RESIDUAL = 0.9
"""A multiple of a season is chosen if its residual variance is below this fraction of the season's. The fraction is
smaller in a short series, unless the calendar suggests the multiple."""
_MAX_SEASON = 1000
_MAX_DEVIATION = 12.0
"""Values further from the median, in median absolute deviations, are clipped: an outlier is not a season."""


def detect_seasons(x: Float[np.ndarray, " n"], *, usual: Sequence[int] = ()) -> tuple[int, ...]:
    """Detects the seasons of a series. Returns their periods in ascending order; none if there is no season.

    The trend is removed by a moving average over one period. A period scores the fraction of the variance that the mean
    of the other cycles predicts. The period with the best score is a season, if the score is high enough; a multiple of
    it is chosen if it predicts more. A usual period that divides the season is returned too.

    Args:
        x: Values, NaN where missing.
        usual: Periods that the calendar suggests, which need less evidence.

    Examples:
        >>> t = np.arange(60)
        >>> detect_seasons(10 + 0.1 * t + np.sin(2 * np.pi * t / 12))
        (12,)
        >>> detect_seasons(10 + 0.1 * t)
        ()
    """
    n = len(x)
    filled = fill_missing(x)
    middle = np.median(filled)
    size = _MAX_DEVIATION * np.median(np.abs(filled - middle))
    filled = np.clip(filled, middle - size, middle + size) if size > 0 else filled
    largest = min(_MAX_SEASON, n // _MIN_CYCLES)
    periods = sorted({*range(2, largest + 1), *(p for p in usual if 1 < p <= n // _USUAL_CYCLES)})
    scores = {p: _season_score(filled, p) for p in periods}
    enough = {p: s for p, s in scores.items() if s >= (_USUAL_SCORE if p in usual else _threshold(n // p))}
    if not enough:
        return ()
    best = max(enough.values())
    season = min(p for p, score in enough.items() if 1 - score <= 1.1 * (1 - best) + 0.005)
    for multiple in (p for p in enough if p > season):
        alone, both = scores[season], _season_score(filled, multiple, width=season)
        limit = _MAX_RESIDUAL if multiple in usual else min(_MAX_RESIDUAL, 1 - 3 / math.sqrt(n))
        if multiple % season == 0 and 1 - both < limit * (1 - alone):
            season = multiple
    inner = [p for p in enough if p in usual and p < season and season % p == 0 and enough[p] >= _MIN_SCORE]
    return (*inner[-1:], season)


def _threshold(cycles: int) -> float:
    """Smallest score of a season. It is higher with few cycles, which chance alone predicts better."""
    return max(_MIN_SCORE, 1.1 / math.sqrt(cycles))


def _season_score(x: Float[np.ndarray, " n"], period: int, *, width: int = 0) -> float:
    """Fraction of the variance of each cycle, without the trend, that the mean of the other cycles predicts."""
    cycles = len(x) // period
    rest = (x - _moving_average(x, width or period))[len(x) - cycles * period :].reshape(cycles, period)
    size = 6 * np.median(np.abs(rest))  # an outlier is not a season
    rest = np.clip(rest, -size, size) if size > 0 else rest
    total = float((rest**2).sum())
    if total <= 1e-18 * float((x**2).sum()) or cycles < 2:
        return 0.0
    others = (rest.sum(0) - rest) / (cycles - 1)
    return 1 - float(((rest - others) ** 2).sum()) / total
