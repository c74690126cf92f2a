"""Text and tasks that need no file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

import torch

from lawful.data.generators import generator_of
from lawful.data.text.pairs import Pairs


def python_topics() -> str:
    """The English reference of the language that ships with Python itself, topic by topic.

    It is about 460 thousand characters long; which ones depends on the version of Python.

    Examples:
        >>> python_topics()[:22]
        'The "assert" statement'
    """
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


TEXTS: dict[str, Callable[[], str]] = {"python": python_topics}
"""The texts that need no file, by name."""


def dates(*, samples: int = 10_000, seed: int = 0) -> Pairs:
    """Draws dates from 1900 to 2099 as people write them, to be written as the standard has it.

    Args:
        samples: How many dates.
        seed: What the draw depends on.

    Examples:
        >>> pairs = dates(samples=3)
        >>> len(pairs), len(pairs.targets[0])
        (3, 10)
    """
    _at_least_one(samples)
    generator = generator_of(seed)
    first = date(1900, 1, 1)
    days = torch.randint((date(2100, 1, 1) - first).days, (samples,), generator=generator).tolist()
    forms = torch.randint(len(_FORMS), (samples,), generator=generator).tolist()
    drawn = [first + timedelta(days=day) for day in days]
    return Pairs(
        tuple(_FORMS[form](day) for form, day in zip(forms, drawn, strict=True)),
        tuple(day.isoformat() for day in drawn),
        name="dates",
    )


_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_FORMS: tuple[Callable[[date], str], ...] = (
    lambda day: f"{day.day} {_MONTHS[day.month - 1]} {day.year}",
    lambda day: f"{_MONTHS[day.month - 1]} {day.day}, {day.year}",
    lambda day: f"{_DAYS[day.weekday()]}, {day.day} {_MONTHS[day.month - 1][:3]} {day.year}",
    lambda day: f"{day.day}.{day.month}.{day.year}",
    lambda day: f"{day.month}/{day.day}/{day.year}",
    lambda day: f"{day.day} {_MONTHS[day.month - 1][:3].lower()} {day.year}",
)


def sorting(*, samples: int = 10_000, length: int = 6, digits: int = 3, seed: int = 0) -> Pairs:
    """Draws words of digits, to be sorted.

    Args:
        samples: How many words; few are distinct if they are short.
        length: The digits of each.
        digits: How many kinds of digits there are, from 0 on, at most 10.
        seed: What the draw depends on.

    Examples:
        >>> pairs = sorting(samples=100)
        >>> all("".join(sorted(x)) == y for x, y in zip(pairs.sources, pairs.targets))
        True
    """
    _at_least_one(samples)
    if length < 1 or not 2 <= digits <= 10:
        raise ValueError(f"a length of at least 1 and 2 to 10 digits were wanted: got {length} and {digits}")
    drawn = torch.randint(digits, (samples, length), generator=generator_of(seed))
    words = ["".join(map(str, row)) for row in drawn.tolist()]
    return Pairs(tuple(words), tuple("".join(sorted(word)) for word in words), name="sorting")


TASKS: dict[str, Callable[[], Pairs]] = {"dates": dates, "sorting": sorting}
"""The tasks that need no file, by name."""


def _at_least_one(samples: int) -> None:
    if samples < 1:
        raise ValueError(f"samples are at least 1: got {samples}")
