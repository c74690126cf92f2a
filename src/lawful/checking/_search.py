"""Searches for a counterexample and shrinks it: first sizes and choices (with Hypothesis), then values."""

from __future__ import annotations

import os
import random
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import torch
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir, storage_directory
from hypothesis.errors import HypothesisException, Unsatisfiable
from torch import Tensor

from lawful.checking._bound_map import MapRaised
from lawful.checking._compare import REFUTE_RATIO, STATISTICAL_FAILURES
from lawful.checking._runner import CaseRunner, Outcome
from lawful.checking._sizes import USUAL_SIZE
from lawful.checking._strategies import CaseRecord, DrawnTensor, Pick, replay
from lawful.laws.inputs import ExampleDomain, Simplex
from lawful.laws.interfaces import RejectCase
from lawful.laws.law import Inapplicable, Unsupported

SHRINKS, _SHRINK_SECONDS = 400, 20.0
"""Maximum number of smaller cases to try, and time limit; a smaller number has a proportional limit."""

_MAX_DRAW_RATIO = 10
"""At most this many draws per requested case, if most are rejected."""

_REPEAT_RATIO = 3
"""At most this many times the requested cases when Hypothesis looks for the failure again."""

_MAX_INAPPLICABLE = 20
"""Stop after this many cases to which the law does not apply, if it applied to few."""

_USUAL_CASES = 6
"""Number of cases with usual sizes at the start. They show whether the law applies at all sizes, or only at some."""

_SIZE_RETRIES = 60
"""Number of draws in search of the failure with a smaller size."""

_NUM_BYTES = 96
"""Length of the byte string from which a case reads its choices."""


@dataclass
class Failure:
    """A case that failed: its outcome, or the exception of the map."""

    record: CaseRecord
    outcome: Outcome | None = None
    raised: MapRaised | None = None

    @property
    def kind(self) -> str:
        return self.outcome.finding.kind if self.outcome else "raised"


@dataclass
class SearchStats:
    """The course of a search."""

    tried: int = 0
    exercised: int = 0
    rejected: int = 0
    randomized: int = 0
    """Cases with re-randomized weights."""
    found_at: int = 0
    inapplicable: list[Inapplicable] = field(default_factory=list)
    timed_out: bool = False
    failure: Failure | None = None


class _CaseFailed(Exception):
    """Reports a failure to Hypothesis. Each kind of failure is a subclass, so that shrinking keeps the kind."""


class _CaseRejected(Exception):
    """Skips a case that does not test the law."""


class _StopSearch(BaseException):
    """Ends the search: enough cases, or out of time."""


_FAILURE_TYPES: dict[str, type[_CaseFailed]] = {}


class _ByteChoices:
    """Reads choices from a byte string: small bytes are small choices, so that shrinking one shrinks the other.

    A single byte string, instead of many draws, keeps the cases independent: Hypothesis would otherwise spend most of
    them on copies of choices from one position of a case to another.
    """

    def __init__(self, choices: bytes) -> None:
        self.choices, self.position, self.taken = choices, 0, list[int]()

    def pick(self, low: int, high: int) -> int:
        """Reads as many bytes as the range needs; zeros after the end."""
        width = ((high - low).bit_length() + 7) // 8
        value = int.from_bytes(self.choices[self.position : self.position + width], "big")
        self.position += width
        self.taken.append(low + value % (high - low + 1))
        return self.taken[-1]


def search(
    runner: CaseRunner,
    cases: int,
    seed: int,
    *,
    timeout: float = float("inf"),
    shrinks: int = SHRINKS,
    progress: Callable[[int], None] = lambda done: None,
) -> SearchStats:
    """Tries cases until one fails, then shrinks it. The same seed gives the same search.

    Hypothesis takes as long for a case as many maps do. So it runs only after a failure: it searches for the failure
    again in its own way, and shrinks it.
    """
    stats = SearchStats()
    end, shrink_seconds = time.monotonic() + timeout, _SHRINK_SECONDS * shrinks / SHRINKS
    smaller_cases, failed_at = 0, 0.0
    last_failure: tuple[bytes, type[_CaseFailed]] | None = None

    def attempt(reader: _ByteChoices) -> type[_CaseFailed] | None:
        nonlocal smaller_cases, failed_at, last_failure
        if last_failure is not None and reader.choices.startswith(last_failure[0]):
            return last_failure[1]  # the same case: the bytes that differ are not read
        if time.monotonic() > end and (stats.tried or stats.rejected or stats.failure):
            stats.timed_out = True
            raise _StopSearch
        if stats.failure:
            smaller_cases += 1
            if smaller_cases > shrinks or time.monotonic() > failed_at + shrink_seconds:
                raise _StopSearch
        failure, outcome = None, None
        try:
            outcome = runner.examine(reader.pick)
            if outcome.finding.failed:
                failure = Failure(outcome.run.record, outcome)
        except RejectCase:
            if not stats.failure:
                stats.rejected += 1
            raise _CaseRejected from None
        except MapRaised as error:
            failure = Failure(CaseRecord(integers=reader.taken), raised=error)
        except Inapplicable as error:
            stats.inapplicable.append(error)
            if isinstance(error, Unsupported) or len(stats.inapplicable) >= max(_MAX_INAPPLICABLE, 4 * stats.tried):
                raise _StopSearch from error
            raise _CaseRejected from error
        if not stats.failure:
            stats.tried += 1
            progress(stats.tried)
            if outcome is not None and failure is None:
                stats.exercised += outcome.run.exercised and outcome.finding.compared > 0
                stats.randomized += bool(outcome.run.settings.weights_seed)
                runner.worst = max(runner.worst, outcome.finding.noise_ratio)
                for name, value in outcome.run.record.observed.items():
                    runner.observed[name] = max(value, runner.observed.get(name, value))
        if failure is None:
            return None
        if not stats.failure:
            stats.found_at, failed_at = stats.tried, time.monotonic()
        stats.failure = failure
        name = failure.kind.title().replace(" ", "")
        failure_type = _FAILURE_TYPES.setdefault(failure.kind, type(name, (_CaseFailed,), {}))
        last_failure = (reader.choices[: reader.position], failure_type)
        if failure.kind in STATISTICAL_FAILURES:  # they do not shrink
            raise _StopSearch
        return failure_type

    def draw_cases() -> None:
        """Draws byte strings, all zeros first, until there are enough cases or one fails."""
        source, drawn = random.Random(seed), 0
        slots = _shuffled_rounds(runner.num_slots, seed)
        while stats.failure is None and stats.tried < cases and drawn < _MAX_DRAW_RATIO * cases:
            choices = source.randbytes(_NUM_BYTES) if drawn else bytes(_NUM_BYTES)
            if drawn and runner.size_plans:  # the first choice of a case is its slot
                choices = bytes([next(slots) if drawn > _USUAL_CASES else 0]) + choices[1:]
            with suppress(_CaseRejected):
                attempt(_ByteChoices(choices))
            drawn += 1
        for _ in range(drawn, _USUAL_CASES if stats.failure else 0):
            with suppress(RejectCase, MapRaised):
                try:
                    runner.examine(_ByteChoices(bytes(1) + source.randbytes(_NUM_BYTES - 1)).pick)
                except Inapplicable as error:
                    stats.inapplicable.append(error)

    @hypothesis.seed(seed)
    @settings(
        max_examples=_REPEAT_RATIO * cases,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
        print_blob=False,
    )
    @hypothesis.given(st.binary(min_size=_NUM_BYTES, max_size=_NUM_BYTES))
    def run_hypothesis(choices: bytes) -> None:
        try:
            failure_type = attempt(_ByteChoices(choices))
        except _CaseRejected:
            hypothesis.reject()
        if failure_type is not None:
            raise failure_type  # always from this line, so that Hypothesis sees one failure

    runner.plan_sizes()
    with suppress(_StopSearch):
        draw_cases()
    shrinkable = stats.failure is not None and stats.failure.kind not in STATISTICAL_FAILURES
    if shrinkable and shrinks > 0:
        first, stats, last_failure = stats, SearchStats(), None
        runner.counts.clear()
        with warnings.catch_warnings(), suppress(_StopSearch, _CaseFailed, Unsatisfiable, HypothesisException):
            warnings.simplefilter("ignore", hypothesis.errors.HypothesisWarning)
            with _without_folder():
                run_hypothesis()
        if stats.failure is None:
            stats = first
        stats.found_at = first.found_at  # not the case in which Hypothesis found it again
    unsupported = next((error for error in stats.inapplicable if isinstance(error, Unsupported)), None)
    if unsupported is not None and stats.failure is None:
        raise unsupported
    if stats.inapplicable and (stats.failure or len(stats.inapplicable) > 2 * stats.tried):
        raise stats.inapplicable[0]  # the cases that did apply had a matching size by chance
    if stats.inapplicable:
        changed = MapRaised(f"the law applies in some cases only: {stats.inapplicable[0]}")
        stats.failure = Failure(CaseRecord(), raised=changed)
    if stats.failure is not None:
        retries = shrinks * _SIZE_RETRIES // SHRINKS
        stats.failure = _shrink_failure(runner, stats.failure, seed, failed_at + shrink_seconds, retries)
    return stats


def _shuffled_rounds(n: int, seed: int) -> Iterator[int]:
    """Yields 0 to n - 1 in random order, again and again: every number appears equally often."""
    source, numbers = random.Random(seed), list(range(n))
    while numbers:
        source.shuffle(numbers)
        yield from numbers


@contextmanager
def _without_folder() -> Iterator[None]:
    """Keeps Hypothesis from creating a `.hypothesis` folder. One that exists is used."""
    found: Any = storage_directory(intent_to_write=False)
    home = Path(getattr(found, "path", found))  # older versions of Hypothesis return a path
    if home.exists():
        yield
        return
    set_hypothesis_home_dir(os.devnull)  # Hypothesis ignores that it cannot write there
    try:
        yield
    finally:
        set_hypothesis_home_dir(home)


def _shrink_failure(runner: CaseRunner, failure: Failure, seed: int, end: float, retries: int) -> Failure:
    """Runs the failure again, and shrinks it until the time is up."""
    _repeat(runner, failure)
    if failure.outcome is None:
        return failure
    return _shrink_choices(runner, _shrink_sizes(runner, failure, seed, end, retries), end)


def _shrink_sizes(runner: CaseRunner, failure: Failure, seed: int, end: float, retries: int) -> Failure:
    """Searches for the same kind of failure with one size smaller and everything else drawn again.

    Hypothesis keeps the seed of the values while it shrinks a size, but a fault may need other values there.
    """
    source = random.Random(seed)
    sizes, max_sizes = dict(failure.record.sizes), runner.max_sizes
    for letter in sizes:
        smaller: Failure | None = failure
        while smaller is not None and (n := sizes[letter]) > 1:
            for limit in (n // 2, n - n // 8, n - 1) if n > USUAL_SIZE else (n - 1,):
                runner.max_sizes = sizes | {letter: limit}
                found = (_fails_again(runner, source.randint, failure.kind, end) for _ in range(retries))
                smaller = next((failure for failure in found if failure is not None), None)
                if smaller is not None:
                    failure, sizes, max_sizes = smaller, dict(smaller.record.sizes), runner.max_sizes
                    break
    runner.max_sizes = max_sizes  # the case is repeated under the same limits
    return failure


def _shrink_choices(runner: CaseRunner, failure: Failure, end: float) -> Failure:
    """Lowers one choice after another as long as the same kind of failure remains."""
    position = 0
    while position < len(failure.record.integers):
        value = failure.record.integers[position]
        for smaller in sorted({0, 1, value // 2, value - 1} - {value, -1}):
            integers = list(failure.record.integers)
            integers[position] = smaller
            pick = replay(CaseRecord(integers))
            again = _fails_again(runner, pick, failure.kind, end) if smaller < value else None
            if again is not None:
                failure = again
                break
        position += 1
    return failure


def _fails_again(runner: CaseRunner, pick: Pick, kind: str, end: float) -> Failure | None:
    """Runs a case; returns it if it fails in the same way and the time is not up."""
    if time.monotonic() > end:
        return None
    try:
        outcome = runner.examine(pick)
    except (RejectCase, MapRaised, Inapplicable):
        return None
    return Failure(outcome.run.record, outcome) if outcome.finding.kind == kind else None


def _repeat(runner: CaseRunner, failure: Failure) -> None:
    """Runs the smallest case once more, as the reader of the report will."""
    try:
        again = runner.examine(replay(failure.record))
    except (RejectCase, MapRaised, Inapplicable):
        again = None
    if failure.outcome is not None and (again is None or not again.finding.failed):
        runner.notes["the failure does not repeat every time: the map has its own randomness"] = None
    elif again is not None and failure.outcome is not None:
        failure.outcome = again


STEPS, _SIMPLIFY_SECONDS = 300, 20.0
"""Maximum number of simpler values to try, and time limit; a smaller number has a proportional limit."""

_SAFE_RATIO = 10 * REFUTE_RATIO
"""A simplified case must fail by this many times the noise, so that the counterexample is not a close call."""


def simplify_values(runner: CaseRunner, failure: Failure, steps: int = STEPS) -> Outcome:
    """Returns the failure with zeros, integers and few changed entries, as far as it still fails in the same way."""
    if failure.outcome is not None and failure.kind in STATISTICAL_FAILURES:
        return failure.outcome  # the drawn tensors are samples
    return _Simplifier(runner, failure, steps).run()


class _Simplifier:
    """Simplifies the drawn tensors of a failing case one after another."""

    def __init__(self, runner: CaseRunner, failure: Failure, steps: int = STEPS) -> None:
        if failure.outcome is None:
            raise ValueError("a case where the map raised has no values to simplify")
        self.runner, self.kind, self.best = runner, failure.kind, failure.outcome
        self.steps, self.end = steps, time.monotonic() + _SIMPLIFY_SECONDS * steps / STEPS

    def run(self) -> Outcome:
        """Returns the simplest outcome; a simpler tensor may allow others to be simpler, too."""
        simplest: dict[int, Outcome] = {}
        while not all(simplest.get(n) is self.best for n in range(len(self.tensors))) and self.steps > 0:
            for n in sorted(range(len(self.tensors)), key=lambda n: not self.tensors[n].replaces):
                if simplest.get(n) is not self.best:
                    self._simplify(n)
                    simplest[n] = self.best
        return self.best

    def _simplify(self, n: int) -> None:
        drawn = self.tensors[n]
        if isinstance(drawn.domain, ExampleDomain) or not drawn.value.numel():
            return
        if isinstance(drawn.domain, Simplex):
            self._simplify_probabilities(n)
        elif drawn.value.dtype is torch.bool:
            self._set_to(n, True)
        else:
            unchanged = drawn.replaces and drawn.value.is_floating_point()
            self._set_to(n, float("nan") if unchanged else 0)
            if drawn.value.is_floating_point():
                self._set_to(n, 1)
                self._round(n)

    @property
    def tensors(self) -> list[DrawnTensor]:
        return self.best.run.record.tensors

    def _try(self, n: int, value: Tensor) -> bool:
        old = self.tensors[n].value
        if self.steps <= 0 or time.monotonic() > self.end or _identical(old, value):
            return False
        if self.kind == "not finite" and value.is_floating_point() and not (value.nan_to_num() != 0).any():
            return False  # all zeros may fail in another way
        self.steps -= 1
        tensors = list(self.tensors)
        tensors[n] = DrawnTensor(value, tensors[n].domain, tensors[n].replaces)
        try:
            outcome = self.runner.examine(replay(self.best.run.record), tensors)
        except (RejectCase, MapRaised):
            return False
        finding = outcome.finding
        close_call = self.kind in ("differs", "exceeds") and finding.residual <= _SAFE_RATIO * finding.noise
        if finding.kind != self.kind or close_call:
            return False
        self.best = outcome
        return True

    def _set_to(self, n: int, simple: float) -> None:
        """Sets entries to a number: all of them, then halves, quarters, ...; entries that are 0 do not become 1.

        NaN stands for the value that a replacement replaces.
        """
        value = self.tensors[n].value
        fixed = (value == 0) | value.isnan() if simple == 1 else torch.zeros_like(value, dtype=torch.bool)
        chunk = value.numel()
        while chunk >= 1:
            for start in range(0, value.numel(), chunk):
                candidate = self.tensors[n].value.clone()
                entries = candidate.reshape(-1)[start : start + chunk]
                entries[~fixed.reshape(-1)[start : start + chunk]] = simple
                self._try(n, candidate)
            chunk //= 2

    def _round(self, n: int) -> None:
        """Rounds all entries; if that fails, one entry after another."""
        value = self.tensors[n].value
        if any(self._try(n, simpler) for simpler in _roundings(value)):
            return
        for i in range(value.numel()):
            for simpler in _roundings(value):
                candidate = self.tensors[n].value.clone()
                candidate.reshape(-1)[i] = simpler.reshape(-1)[i]
                if self._try(n, candidate):
                    break

    def _simplify_probabilities(self, n: int) -> None:
        """Sets all distributions, or one after another, to one-hot, uniform or tenths."""
        value = self.tensors[n].value
        largest = torch.nn.functional.one_hot(value.argmax(-1), value.shape[-1]).to(value)
        tenths = (10 * value).round().clamp_min(1)
        tenths += largest * (10 - tenths.sum(-1, keepdim=True))
        options = [largest, torch.full_like(value, 1 / value.shape[-1])]
        options += [tenths / 10] if (tenths > 0).all() else []
        if any(self._try(n, simpler) for simpler in options):
            return
        for i in range(value[..., 0].numel()):
            for simpler in options:
                candidate = self.tensors[n].value.clone()
                candidate.reshape(-1, value.shape[-1])[i] = simpler.reshape(-1, value.shape[-1])[i]
                if self._try(n, candidate):
                    break


def _roundings(value: Tensor) -> list[Tensor]:
    """Returns the sign of a tensor, and the tensor rounded to one digit, integers, tenths and two digits."""
    power = 10 ** value.abs().nan_to_num(1).clamp_min(torch.finfo(value.dtype).tiny).log10().floor()
    one, two = ((value / unit).round() * unit for unit in (power, power / 10))
    return [torch.sign(value), one, value.round(), (value * 10).round() / 10, two]


def _identical(a: Tensor, b: Tensor) -> bool:
    return bool(((a == b) | (a.isnan() & b.isnan())).all()) if a.is_floating_point() else torch.equal(a, b)
