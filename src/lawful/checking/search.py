"""After Hypothesis: the failure is run once more, and looked for in smaller sizes with other values.

The search for a counterexample: shapes, flags and seeds are drawn until one fails, and Hypothesis shrinks them.
Making the values of a counterexample simple: fewer entries that differ, zeros, whole numbers.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import hypothesis
import torch
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException, Unsatisfiable
from torch import Tensor

from lawful.checking import compare as statistics
from lawful.checking.bound_map import MapRaised
from lawful.checking.compare import MARGIN
from lawful.checking.runner import CaseRunner, Outcome
from lawful.checking.strategies import CaseRecord, DrawnTensor, Pick, replay
from lawful.laws.inputs import ExampleDomain, Simplex
from lawful.laws.interfaces import RejectCase
from lawful.laws.law import Inapplicable, Unsupported

RETRIES = 60
"""How many draws are tried in search of a failure of a smaller size."""


@dataclass
class Failure:
    """The smallest case that failed: its outcome, or the sentence with which the map raised."""

    record: CaseRecord
    outcome: Outcome | None = None
    raised: MapRaised | None = None

    @property
    def kind(self) -> str:
        return self.outcome.finding.kind if self.outcome else "raised"


def shrink_failure(trial: CaseRunner, failure: Failure, seed: int, end: float, tries: int = RETRIES) -> Failure:
    """Returns the failure as it shows when it is run again, as small as it gets until the time is up."""
    _repeat(trial, failure)
    return failure if failure.outcome is None else _lower(trial, _smaller(trial, failure, seed, end, tries), end)


def _smaller(trial: CaseRunner, failure: Failure, seed: int, end: float, tries: int) -> Failure:
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


def _lower(trial: CaseRunner, failure: Failure, end: float) -> Failure:
    """Lowers one choice after another as long as the same failure remains."""
    position = 0
    while position < len(failure.record.integers):
        value = failure.record.integers[position]
        for smaller in sorted({0, 1, value // 2, value - 1} - {value, -1}):
            integers = list(failure.record.integers)
            integers[position] = smaller
            again = _same(trial, replay(CaseRecord(integers)), failure.kind, end) if smaller < value else None
            if again is not None:
                failure = again
                break
        position += 1
    return failure


def _retry(trial: CaseRunner, kind: str, source: random.Random, end: float, tries: int) -> Failure | None:
    found = (_same(trial, source.randint, kind, end) for _ in range(tries))
    return next((failure for failure in found if failure is not None), None)


def _same(trial: CaseRunner, pick: Pick, kind: str, end: float) -> Failure | None:
    """Runs a case, and returns it if it fails in the same way and the time is not up."""
    if time.monotonic() > end:
        return None
    try:
        outcome = trial.examine(pick)
    except (RejectCase, MapRaised, Inapplicable):
        return None
    return Failure(outcome.run.record, outcome) if outcome.finding.kind == kind else None


def _repeat(trial: CaseRunner, failure: Failure) -> None:
    """Runs the smallest case once more: whoever reads the report will do the same."""
    try:
        again = trial.examine(replay(failure.record))
    except (RejectCase, MapRaised, Inapplicable):
        again = None
    if failure.outcome is not None and (again is None or not again.finding.failed):
        trial.notes["the failure does not show every time: the map has a source of randomness of its own"] = None
    elif again is not None and failure.outcome is not None:
        failure.outcome = again


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
class SearchStats:
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


class ByteChoices:
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
    trial: CaseRunner,
    cases: int,
    seed: int,
    *,
    timeout: float = float("inf"),
    shrinks: int = SHRINKS,
    progress: Callable[[int], None] = lambda done: None,
) -> SearchStats:
    """Tries cases until one fails, then shrinks it; the same seed gives the same search.

    Hypothesis takes as long over a case as many a map does. So it is asked only where there is something to shrink: it
    looks for the failure again, by its own ways, and shrinks what it finds.
    """
    tally = SearchStats()
    end, patience = time.monotonic() + timeout, SHRINK_SECONDS * shrinks / SHRINKS
    smaller, found = 0, 0.0
    failing: tuple[bytes, type[_Fails]] | None = None

    def attempt(reader: ByteChoices) -> type[_Fails] | None:
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
        except RejectCase:
            if not tally.failure:
                tally.discarded += 1
            raise _Rejected from None
        except MapRaised as error:
            failure = Failure(CaseRecord(integers=reader.taken), raised=error)
        except Inapplicable as error:
            tally.silent.append(error)
            if isinstance(error, Unsupported) or (len(tally.silent) >= SILENT and not tally.tried):
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
                attempt(ByteChoices(source.randbytes(BYTES) if drawn else bytes(BYTES)))
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
            way = attempt(ByteChoices(choices))
        except _Rejected:
            hypothesis.reject()
        if way is not None:
            raise way  # from one place, so that Hypothesis takes it for one failure

    if cases > FEW:
        with suppress(_Stop):
            draw_cases()
    if cases <= FEW or (tally.failure is not None and tally.failure.kind not in statistics.KINDS):
        first, tally, failing = tally, SearchStats(), None
        trial.counts.clear()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", hypothesis.errors.HypothesisWarning)
                cases_of_the_law()
        except (_Stop, _Fails, Unsatisfiable, HypothesisException):
            pass
        if tally.failure is None and first.failure is not None:
            tally = first
    unable = next((error for error in tally.silent if isinstance(error, Unsupported)), None)
    if unable is not None and tally.failure is None:
        raise unable
    if tally.silent and (tally.failure or len(tally.silent) > 2 * tally.tried):
        raise tally.silent[0]  # where it did apply, a size was right by chance
    if tally.silent:
        changed = MapRaised(f"whether the law applies changes from case to case: {tally.silent[0]}")
        tally.failure = Failure(CaseRecord(), raised=changed)
    if tally.failure is not None:
        tally.failure = shrink_failure(trial, tally.failure, seed, found + patience, tries=shrinks * RETRIES // SHRINKS)
    return tally


STEPS, SECONDS = 300, 20.0
"""How many simpler values are tried, and for how long; of fewer values, for less."""

SAFE = 10 * MARGIN
"""A simpler case has to fail by this many times the noise, so that the counterexample is not a close call."""


class Reducer:
    """Simplifies the drawn tensors of a failing case one after another, as long as the same failure remains."""

    def __init__(self, trial: CaseRunner, failure: Failure, steps: int = STEPS) -> None:
        if failure.outcome is None:
            raise ValueError("a case in which the map raised has no values to reduce")
        self.trial, self.kind, self.best = trial, failure.kind, failure.outcome
        self.steps, self.end = steps, time.monotonic() + SECONDS * steps / STEPS

    def reduce(self) -> Outcome:
        """Returns the simplest outcome found."""
        order = sorted(range(len(self.tensors)), key=lambda n: not self.tensors[n].replaces)
        for n in order:
            drawn = self.tensors[n]
            if (
                isinstance(drawn.domain, ExampleDomain | Simplex)
                or drawn.value.dtype is torch.bool
                or not drawn.value.numel()
            ):
                continue
            self._clear(n)
            if drawn.value.is_floating_point():
                self._round(n)
        return self.best

    @property
    def tensors(self) -> list[DrawnTensor]:
        return self.best.run.record.tensors

    def _try(self, n: int, value: Tensor) -> bool:
        old = self.tensors[n].value
        if self.steps <= 0 or time.monotonic() > self.end or _identical(old, value):
            return False
        if self.kind == "not finite" and value.is_floating_point() and not (value.nan_to_num() != 0).any():
            return False  # all zero may fail in another way
        self.steps -= 1
        record = self.best.run.record
        given = list(self.tensors)
        given[n] = DrawnTensor(value, given[n].domain, given[n].replaces)
        try:
            outcome = self.trial.examine(replay(record), given)
        except (RejectCase, MapRaised):
            return False
        if outcome.finding.kind != self.kind or not self._clear_of_noise(outcome):
            return False
        self.best = outcome
        return True

    def _clear_of_noise(self, outcome: Outcome) -> bool:
        finding = outcome.finding
        return self.kind not in ("differs", "exceeds") or finding.residual > SAFE * finding.noise

    def _clear(self, n: int) -> None:
        """Sets as many entries as possible to zero (or to what they replace), in halves, quarters, ... of them."""
        value = self.tensors[n].value
        plain = float("nan") if self.tensors[n].replaces and value.is_floating_point() else 0
        chunk = value.numel()
        while chunk >= 1:
            for start in range(0, value.numel(), chunk):
                candidate = self.tensors[n].value.clone()
                candidate.reshape(-1)[start : start + chunk] = plain
                self._try(n, candidate)
            chunk //= 2

    def _round(self, n: int) -> None:
        """Makes all entries whole numbers, or ones, or rounds them to a digit; then one by one."""
        value = self.tensors[n].value
        for simpler in (torch.sign(value), value.round(), (value * 10).round() / 10):
            if self._try(n, simpler):
                return
        for i in range(value.numel()):
            for simpler in (torch.sign(value), value.round(), (value * 10).round() / 10):
                candidate = self.tensors[n].value.clone()
                candidate.reshape(-1)[i] = simpler.reshape(-1)[i]
                if self._try(n, candidate):
                    break


def _identical(a: Tensor, b: Tensor) -> bool:
    return bool(((a == b) | (a.isnan() & b.isnan())).all()) if a.is_floating_point() else torch.equal(a, b)


def simplify_values(trial: CaseRunner, failure: Failure, steps: int = STEPS) -> Outcome:
    """Returns the failure with its values made as simple as they get in a number of steps."""
    return Reducer(trial, failure, steps).reduce()
