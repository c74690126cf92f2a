"""After Hypothesis: the failure is run once more, and looked for in smaller sizes with other values."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from lawful.checking.arguments import MapRaised
from lawful.checking.case import Pick, Record, replay
from lawful.checking.outcome import Outcome
from lawful.checking.trial import Trial
from lawful.laws.language import Discard, Inapplicable

RETRIES = 60
"""How many draws are tried in search of a failure of a smaller size."""


@dataclass
class Failure:
    """The smallest case that failed: its outcome, or the sentence with which the map raised."""

    record: Record
    outcome: Outcome | None = None
    raised: MapRaised | None = None

    @property
    def kind(self) -> str:
        return self.outcome.finding.kind if self.outcome else "raised"


def settled(trial: Trial, failure: Failure, seed: int, end: float, tries: int = RETRIES) -> Failure:
    """Returns the failure as it shows when it is run again, as small as it gets until the time is up."""
    _repeat(trial, failure)
    return failure if failure.outcome is None else _lower(trial, _smaller(trial, failure, seed, end, tries), end)


def _smaller(trial: Trial, failure: Failure, seed: int, end: float, tries: int) -> Failure:
    """Looks for the same failure with one size smaller and all else drawn anew.

    Hypothesis keeps the seed of the values while it shrinks a size, and a fault may need other values there.
    """
    source = random.Random(seed)
    sizes = dict(failure.record.sizes)
    for letter in sizes:
        while sizes[letter] > 1:
            trial.most = sizes | {letter: sizes[letter] - 1}
            again = _retry(trial, failure.kind, source, end, tries)
            if again is None:
                break
            failure, sizes = again, dict(again.record.sizes)
    trial.most = {}
    return failure


def _lower(trial: Trial, failure: Failure, end: float) -> Failure:
    """Lowers one choice after another as long as the same failure remains."""
    position = 0
    while position < len(failure.record.integers):
        value = failure.record.integers[position]
        for smaller in sorted({0, 1, value // 2, value - 1} - {value, -1}):
            integers = list(failure.record.integers)
            integers[position] = smaller
            again = _same(trial, replay(Record(integers)), failure.kind, end) if smaller < value else None
            if again is not None:
                failure = again
                break
        position += 1
    return failure


def _retry(trial: Trial, kind: str, source: random.Random, end: float, tries: int) -> Failure | None:
    found = (_same(trial, source.randint, kind, end) for _ in range(tries))
    return next((failure for failure in found if failure is not None), None)


def _same(trial: Trial, pick: Pick, kind: str, end: float) -> Failure | None:
    """Runs a case, and returns it if it fails in the same way and the time is not up."""
    if time.monotonic() > end:
        return None
    try:
        outcome = trial.examine(pick)
    except (Discard, MapRaised, Inapplicable):
        return None
    return Failure(outcome.run.record, outcome) if outcome.finding.kind == kind else None


def _repeat(trial: Trial, failure: Failure) -> None:
    """Runs the smallest case once more: whoever reads the report will do the same."""
    try:
        again = trial.examine(replay(failure.record))
    except (Discard, MapRaised, Inapplicable):
        again = None
    if failure.outcome is not None and (again is None or not again.finding.failed):
        trial.notes["the failure does not show every time: the map has a source of randomness of its own"] = None
    elif again is not None and failure.outcome is not None:
        failure.outcome = again
