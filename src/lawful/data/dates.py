"""Recognition and parsing of date columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

import numpy as np
from jaxtyping import Int

DateOrder = Literal["year first", "month first", "day first"]
"""Order of year, month and day. Month names count as "year first": they are not ambiguous."""
DatePrecision = Literal["month", "day", "time"]
"""Smallest unit that a column states."""

_MISSING = frozenset({"", "na", "n/a", "nan", "nat", "null", "none", "?"})
_MIN_YEAR, _MAX_YEAR, _PIVOT = 1600, 2200, 69
"""Range of years, and the first two-digit year of the last century."""
_MIN_VALID = 0.9
"""Fraction of values that must be dates."""
_NOT_A_DATE = np.datetime64("NaT", "us")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

_NAME = "(?P<name>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[.]?"
_TIME = (
    r"(?:(?:\s*t\s*|,?\s+)(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"\s*(?P<half>[ap]m)?\s*(?P<zone>z|utc|gmt|[+-]\d{2}:?\d{2})?)?"
)
_DAY_NAME = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*[.,]*\s+)?"
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?P<year>\d{4})([-/.])(?P<month>\d{1,2})\2(?P<day>\d{1,2})" + _TIME,
        r"(?P<year>\d{4})[-/](?P<month>\d{1,2})",
        r"(?P<year>\d{4})(?P<month>\d{2})(?P<day>\d{2})" + _TIME,
        r"(?P<first>\d{1,2})([-/.])(?P<second_part>\d{1,2})\2(?P<year>\d{4})" + _TIME,
        r"(?P<first>\d{1,2})(/)(?P<second_part>\d{1,2})\2(?P<short>\d{2})" + _TIME,
        r"(?P<first>\d{2})([-.])(?P<second_part>\d{2})\2(?P<short>\d{2})" + _TIME,
        r"(?P<month>\d{1,2})[-/](?P<year>\d{4})",
        _DAY_NAME + r"(?P<day>\d{1,2})(?:st|nd|rd|th)?[-./\s]*" + _NAME + r"[-./,\s]*(?P<year>\d{4})" + _TIME,
        _DAY_NAME + _NAME + r"\s*(?P<day>\d{1,2})(?:st|nd|rd|th)?(?:,\s*|\s+)(?P<year>\d{4})" + _TIME,
        _NAME + r"[-./,\s]*(?P<year>\d{4})",
        _NAME + r"[-/'\s]+(?P<short>\d{2})",
        r"(?P<year>\d{4})[-/\s]*" + _NAME + r"(?:[-/\s]*(?P<day>\d{1,2}))?",
        r"(?P<year>\d{4})[-/\s]*q(?P<quarter>[1-4])",
        r"q(?P<quarter>[1-4])[-/\s]*(?P<year>\d{4})",
        r"(?P<year>\d{4})-?w(?P<week>\d{2})",
    )
)


@dataclass(frozen=True, eq=False)
class Dates:
    """A column of dates.

    Examples:
        >>> dates = parse_dates(["31.12.2024", "", "01.01.2025"])
        >>> dates.values.astype("datetime64[D]").tolist()[0], dates.order, dates.precision
        (datetime.date(2024, 12, 31), 'day first', 'day')
        >>> parse_dates(["red", "blue"]) is None
        True
    """

    values: np.ndarray
    """Dates as `datetime64[us]`, NaT where missing. Times with an offset are in UTC."""
    order: DateOrder
    """Order of year, month and day. Pass it to `parse_dates` to parse new values in the same way."""
    precision: DatePrecision
    """Smallest unit that the column states."""
    ambiguous: bool
    """Whether day and month could be swapped in all values. The order is then a guess."""
    invalid: tuple[int, ...]
    """Rows that are neither dates nor missing; NaT in `values`."""
    offset: int | None
    """Offset from UTC in minutes, if all values state the same one."""


@dataclass(frozen=True)
class _Parts:
    """Numbers of a date; day and month may be swapped."""

    year: int
    month: int
    day: int
    time: timedelta
    precision: DatePrecision
    offset: int | None
    swappable: bool
    dotted: bool

    def date(self, *, swap: bool) -> np.datetime64 | None:
        month, day = (self.day, self.month) if swap and self.swappable else (self.month, self.day)
        try:
            return np.datetime64(datetime(self.year, month, day) + self.time, "us")
        except (ValueError, OverflowError):
            return None


def _parse_parts(word: str) -> _Parts | None:
    """Parses a date, the month before the day if it is ambiguous. Returns None if it is not a date."""
    if len(word) > 50 or not word.isascii():
        return None
    found = next((m for m in (pattern.fullmatch(word) for pattern in _PATTERNS) if m), None)
    if found is None:
        return None
    parts = {key: value for key, value in found.groupdict().items() if value is not None}
    short = int(parts.get("short", -1))
    year = int(parts["year"]) if short < 0 else short + (1900 if short >= _PIVOT else 2000)
    time, offset = _parse_time(parts)
    if not _MIN_YEAR <= year < _MAX_YEAR or time is None:
        return None
    precision: DatePrecision = "time" if "hour" in parts else "day"
    if "week" in parts:
        try:
            monday = datetime.fromisocalendar(year, int(parts["week"]), 1)
        except ValueError:
            return None
        return _Parts(monday.year, monday.month, monday.day, time, precision, offset, False, False)
    if "first" in parts:
        dotted = "." in found.group(2)
        return _Parts(year, int(parts["first"]), int(parts["second_part"]), time, precision, offset, True, dotted)
    if "quarter" in parts:
        month = 3 * int(parts["quarter"]) - 2
    else:
        month = _MONTHS.index(parts["name"]) + 1 if "name" in parts else int(parts["month"])
    precision = precision if "day" in parts else "month"
    return _Parts(year, month, int(parts.get("day", 1)), time, precision, offset, False, False)


def _parse_time(parts: dict[str, str]) -> tuple[timedelta | None, int | None]:
    """Returns the time of day in UTC, None if it is invalid, and the offset in minutes."""
    if "hour" not in parts:
        return timedelta(), None
    hour, minute, second = (int(parts.get(key, 0)) for key in ("hour", "minute", "second"))
    if minute > 59 or second > 59 or hour > 23 or ("half" in parts and not 1 <= hour <= 12):
        return None, None
    if "half" in parts:
        hour = hour % 12 + 12 * (parts["half"] == "pm")
    fraction = float("0." + parts.get("fraction", "0"))
    offset = None
    if "zone" in parts:
        zone = parts["zone"].replace(":", "")
        offset = 0 if zone[0] not in "+-" else (-1 if zone[0] == "-" else 1) * (60 * int(zone[1:3]) + int(zone[3:]))
    return timedelta(hours=hour, minutes=minute - (offset or 0), seconds=second + fraction), offset


def parse_dates(
    text: Sequence[str | None], *, order: DateOrder | None = None, codes: Int[np.ndarray, " n"] | None = None
) -> Dates | None:
    """Parses a column of dates. Returns None if it is not a column of dates.

    Recognizes ISO dates and times (2024-01-31, 2024-01-31T12:00Z, 20240131), dates with slashes, dots or dashes
    (31/01/2024, 1/31/24, 31.01.2024), month names (31 Jan 2024, January 31, 2024), months (2024-01, Jan 2024),
    quarters (2024Q1) and weeks (2024-W05). If day and month can be swapped, the order that makes all values valid is
    used; if both do, the order that makes the column sorted or evenly spaced; otherwise the day comes first in dates
    with dots, and the month in dates with slashes and dashes.

    Args:
        text: Values as text. None and spellings such as "NA" are missing.
        order: Order of day and month, if it is known from earlier data.
        codes: Index in `text` of each row, if `text` has only the different values.

    Examples:
        >>> parse_dates(["03/04/2024", "25/04/2024"]).order
        'day first'
        >>> parse_dates(["2024-01", "2024-02"]).precision
        'month'
    """
    words = ["" if word is None else " ".join(word.lower().split()) for word in text]
    if codes is None:
        index: dict[str, int] = {}
        codes = np.array([index.setdefault(word, len(index)) for word in words], dtype=np.int64)
        words = list(index)
    is_present = np.array([word not in _MISSING for word in words], dtype=bool)[codes]
    num_present = int(is_present.sum())
    if not num_present:
        return None
    parsed: dict[str, _Parts] = {}
    for count, word in enumerate(dict.fromkeys(word for word in words if word not in _MISSING), 1):
        if (parts := _parse_parts(word)) is not None:
            parsed[word] = parts
        elif count - len(parsed) > (1 - _MIN_VALID) * num_present:
            return None
    compact = [word for word in parsed if word.isdigit()]
    if not parsed or (compact and len(compact) < 3):
        return None
    dates = {
        swap: np.array(
            [(parsed[word].date(swap=swap) or _NOT_A_DATE) if word in parsed else _NOT_A_DATE for word in words],
            "datetime64[us]",
        )
        for swap in (False, True)
    }
    swappable = any(parts.swappable for parts in parsed.values())
    columns = {swap: values[codes[is_present]] for swap, values in dates.items()} if swappable else {}
    swap, ambiguous = _choose_order(columns, dotted=any(parts.dotted for parts in parsed.values()))
    if order is not None:
        swap, ambiguous = order == "day first", False
    values = dates[swap][codes]
    invalid = tuple(np.flatnonzero(is_present & np.isnat(values)).tolist())
    if len(invalid) > (1 - _MIN_VALID) * num_present:
        return None
    precisions = {parts.precision for parts in parsed.values()}
    offsets = {parts.offset for parts in parsed.values()}
    return Dates(
        values,
        ("day first" if swap else "month first") if swappable else order or "year first",
        next(unit for unit in ("time", "day", "month") if unit in precisions),
        swappable and ambiguous,
        invalid,
        next(iter(offsets)) if len(offsets) == 1 else None,
    )


def _choose_order(columns: dict[bool, np.ndarray], *, dotted: bool) -> tuple[bool, bool]:
    """Returns whether the day comes first, and whether this is a guess. No columns are dates without a choice."""
    if not columns or np.array_equal(columns[False].view(np.int64), columns[True].view(np.int64)):
        return False, False
    invalid = {swap: int(np.isnat(dates).sum()) for swap, dates in columns.items()}
    if invalid[False] != invalid[True]:
        return invalid[True] < invalid[False], False
    if dotted:
        return True, False
    spread = {swap: _spread(dates) for swap, dates in columns.items()}
    if spread[False] != spread[True]:
        return spread[True] < spread[False], False
    return False, True


def _spread(dates: np.ndarray) -> float:
    """Returns how unevenly dates are spaced: 1 for steps of similar length, infinity for unsorted dates."""
    steps = np.diff(dates[~np.isnat(dates)]) / np.timedelta64(1, "s")
    steps = steps[steps != 0]
    if len(steps) < 2 or steps.min() < 0 < steps.max():
        return float("inf")
    sizes = np.abs(steps)
    return 1.0 if sizes.max() < 2 * sizes.min() else float(sizes.max() / sizes.min())
