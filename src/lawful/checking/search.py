"""The search for a counterexample: shapes, flags and seeds are drawn until one fails, and Hypothesis shrinks them."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException, Unsatisfiable

from lawful.checking import statistics
from lawful.checking.arguments import MapRaised
from lawful.checking.case import Record
from lawful.checking.shrink import RETRIES, Failure, settled
from lawful.checking.trial import Trial
from lawful.laws.language import Discard, Inapplicable, Unable

SHRINKS, SHRINK_SECONDS = 400, 20.0
"""How many smaller cases are tried after the first that fails, and for how long; of fewer cases, for less."""


MOST_DRAWN = 10
"""At most so many times the cases wanted are drawn, if most have nothing to say."""

FEW = 10
"""So few cases, of a statement that is costly to judge, are left to Hypothesis from the start."""

AGAIN = 3
"""At most so many times the cases wanted are tried when the failure is looked for again."""

SILENT = 20
"""After this many cases of which the law has nothing to say, and none of which it has, the search ends."""


@dataclass
class Tally:
    """How the search went."""

    tried: int = 0
    exercised: int = 0
    discarded: int = 0
    randomised: int = 0
    found_at: int = 0
    silent: list[Inapplicable] = field(default_factory=list)
    """Why the law had nothing to say, for each case of which it had not."""
    stopped: bool = False
    failure: Failure | None = None


class _Fails(Exception):
    """Tells Hypothesis that a case failed; there is a subclass for each way to fail, so that it keeps to one."""


class _Rejected(Exception):
    """Leaves a case that has nothing to say."""


class _Stop(BaseException):
    """Leaves the search at once: enough was tried, or the time is up."""


_WAYS: dict[str, type[_Fails]] = {}

BYTES = 96
"""How long the string is that a case reads its choices from."""


class Reader:
    """Reads choices from a string of bytes: small bytes are small choices, so that shrinking one shrinks the other.

    One string rather than many draws keeps the cases independent of each other: Hypothesis would otherwise spend
    most of them on copying choices from one place of a case to another.
    """

    def __init__(self, choices: bytes) -> None:
        self.choices, self.position, self.taken = choices, 0, list[int]()

    def pick(self, low: int, high: int) -> int:
        """Reads as many bytes as the range needs; zeros when there are no more."""
        width = ((high - low).bit_length() + 7) // 8
        read = int.from_bytes(self.choices[self.position : self.position + width], "big")
        self.position += width
        self.taken.append(low + read % (high - low + 1))
        return self.taken[-1]


def search(
    trial: Trial,
    cases: int,
    seed: int,
    *,
    seconds: float = float("inf"),
    shrinks: int = SHRINKS,
    progress: Callable[[int], None] = lambda done: None,
) -> Tally:
    """Tries cases until one fails, then shrinks it; the same seed gives the same search.

    Hypothesis takes as long over a case as many a map does. So it is asked only where there is something to shrink: it
    looks for the failure again, by its own ways, and shrinks what it finds.
    """
    tally = Tally()
    end, patience = time.monotonic() + seconds, SHRINK_SECONDS * shrinks / SHRINKS
    smaller, found = 0, 0.0
    failing: tuple[bytes, type[_Fails]] | None = None

    def attempt(reader: Reader) -> type[_Fails] | None:
        nonlocal smaller, found, failing
        if failing is not None and reader.choices.startswith(failing[0]):
            return failing[1]  # the same case: what differs is not read
        if time.monotonic() > end and (tally.tried or tally.discarded or tally.failure):
            tally.stopped = True
            raise _Stop
        if tally.failure:
            smaller += 1
            if smaller > shrinks or time.monotonic() > found + patience:
                raise _Stop
        failure, outcome = None, None
        try:
            outcome = trial.examine(reader.pick)
            record = outcome.run.record
            if outcome.finding.failed:
                failure = Failure(record, outcome)
        except Discard:
            if not tally.failure:
                tally.discarded += 1
            raise _Rejected from None
        except MapRaised as error:
            failure = Failure(Record(integers=reader.taken), raised=error)
        except Inapplicable as error:
            tally.silent.append(error)
            if isinstance(error, Unable) or (len(tally.silent) >= SILENT and not tally.tried):
                raise _Stop from error
            raise _Rejected from error
        if not tally.failure:
            tally.tried += 1
            progress(tally.tried)
            if outcome is not None and failure is None:
                tally.exercised += outcome.run.exercised and outcome.finding.compared > 0
                tally.randomised += bool(outcome.run.setting.randomised)
                trial.worst = max(trial.worst, outcome.finding.times)
                for name, value in outcome.run.record.observed.items():
                    trial.observed[name] = max(value, trial.observed.get(name, value))
        if failure is None:
            return None
        if not tally.failure:
            tally.found_at, found = tally.tried, time.monotonic()
        tally.failure = failure
        way = _WAYS.setdefault(failure.kind, type(failure.kind.title().replace(" ", ""), (_Fails,), {}))
        failing = (reader.choices[: reader.position], way)
        if failure.kind in statistics.KINDS:  # samples have no smaller size
            raise _Stop
        return way

    def draw_cases() -> None:
        """Draws strings of bytes, the simplest one first, until enough were tried or one fails."""
        source, drawn = random.Random(seed), 0
        while tally.failure is None and tally.tried < cases and drawn < MOST_DRAWN * cases:
            with suppress(_Rejected):
                attempt(Reader(source.randbytes(BYTES) if drawn else bytes(BYTES)))
            drawn += 1

    @hypothesis.seed(seed)
    @settings(
        max_examples=cases if cases <= FEW else AGAIN * cases,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
        print_blob=False,
    )
    @hypothesis.given(st.binary(min_size=BYTES, max_size=BYTES))
    def cases_of_the_law(choices: bytes) -> None:
        try:
            way = attempt(Reader(choices))
        except _Rejected:
            hypothesis.reject()
        if way is not None:
            raise way  # from one place, so that Hypothesis takes it for one failure

    if cases > FEW:
        with suppress(_Stop):
            draw_cases()
    if cases <= FEW or (tally.failure is not None and tally.failure.kind not in statistics.KINDS):
        first, tally, failing = tally, Tally(), None
        trial.counts.clear()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", hypothesis.errors.HypothesisWarning)
                cases_of_the_law()
        except (_Stop, _Fails, Unsatisfiable, HypothesisException):
            pass
        if tally.failure is None and first.failure is not None:
            tally = first
    unable = next((error for error in tally.silent if isinstance(error, Unable)), None)
    if unable is not None and tally.failure is None:
        raise unable
    if tally.silent and (tally.failure or len(tally.silent) > 2 * tally.tried):
        raise tally.silent[0]  # where it did apply, a size was right by chance
    if tally.silent:
        changed = MapRaised(f"whether the law applies changes from case to case: {tally.silent[0]}")
        tally.failure = Failure(Record(), raised=changed)
    if tally.failure is not None:
        tally.failure = settled(trial, tally.failure, seed, found + patience, tries=shrinks * RETRIES // SHRINKS)
    return tally
