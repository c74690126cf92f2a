"""What comes of a case: the statement that was made in it, and what was found.

One law tried on one map: a case is run in both precisions, judged, and judged again against the noise.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch.nn.parameter import is_lazy

from lawful.checking import compare as numerics
from lawful.checking import compare as statistics
from lawful.checking.bound_map import (
    BoundMap,
    Calls,
    Excepted,
    MapRaised,
    NotContiguous,
    Setting,
    argument_names,
    focus,
    labels,
)
from lawful.checking.compare import Deterministic, Finding, RoundingNoise, Statistical, dtype_name, judge, judge_samples
from lawful.checking.module_state import ModuleSnapshot, modules_behind, seed_all
from lawful.checking.strategies import LAYOUTS, SAMPLES, CaseDraw, CaseRecord, DrawnTensor, Pick, build, replay
from lawful.checking.trace import OperationTrace
from lawful.laws._tree import leaves
from lawful.laws.interfaces import RejectCase
from lawful.laws.law import Inapplicable, Law
from lawful.laws.statements import AtMost, Equal, Finite, Occurs, Statement


class LawRaised(Exception):
    """The law cannot be stated: with these parameters on these inputs (`usage`), or because it raised."""

    def __init__(self, sentence: str, usage: bool = False) -> None:
        super().__init__(sentence)
        self.usage = usage


Answer = TypeVar("Answer")


def attribute_errors_to_law(question: Callable[[], Answer]) -> Answer:
    """Tells what goes wrong in the law itself from what goes wrong in the map, or in the judge."""
    try:
        return question()
    except (RejectCase, Inapplicable, MapRaised, NotContiguous):
        raise
    except ValueError as error:
        raise LawRaised(str(error), usage=True) from error
    except Exception as error:
        raise LawRaised(f"the law itself raised {type(error).__name__}: {error}") from error


@dataclass
class CaseRun:
    """A statement, with the choices and the setting that it was made in."""

    statement: Statement
    record: CaseRecord
    setting: Setting
    exercised: bool
    arguments: Any
    names: dict[str, str]
    """The name of every input, by its path."""
    inputs_drawn: int
    """How many of the drawn tensors are inputs; the law drew the others."""
    trained: bool = False
    """Whether any call was made in training mode."""
    several: bool = False
    """Whether the map was called more than once."""
    uneven: bool = False
    """Whether some calls in training mode drew more random numbers than others."""


@dataclass
class Outcome:
    """What a case showed: the finding in the leading precision and the run that it was found in."""

    finding: Finding
    run: CaseRun


RUNS = 3
"""How often the noise is measured before a residual counts as more than that."""

CLEAR = 1e6
"""A residual of this many times the noise, measured once, is not measured again."""

JUMP = 1e-3
"""Noise of more than this part of the outputs is a tie or a branch that rounding decides: the case is excused."""

FINE = 10
"""So many ordinary cases that are finite in float32 say that the others are; once one is not, all are run in it."""

_TOO_FEW = "Expected more than 1 value per channel when training"
_TYPE_ERROR = re.compile(r"dtype|scalar type|Double|Float|float64|float32", re.I)


class CaseRunner:
    """Runs cases of a law on a map.

    Attributes:
        precision: The precision that judges; float64 unless the map does not run in it.
        counts: How many cases were set aside, excused or excepted.
        notes: What the report should say about the way the map was judged.
        most: The largest size that each letter may have; empty for no bound.
        reached: What was to happen in some case, and whether it did.
        observed: The largest values of the numbers that the law said.
    """

    def __init__(self, law: Law, target: Any, inputs: Any, *, rerandomize_weights: bool = True) -> None:
        self.law, self.target, self.inputs = law, target, inputs
        helpers = [value for value in law.values.values() if callable(value)]
        roots = {id(m): m for source in (target, *helpers) for m in modules_behind(source)}
        if any(is_lazy(p) for m in roots.values() for p in m.parameters()):
            raise LawRaised("the module has parameters without a shape yet: call it once before the check", usage=True)
        self.state = ModuleSnapshot(list(roots.values()))
        self.names = argument_names(target)
        self.precision: torch.dtype = torch.float64
        self.effective: torch.dtype | None = None
        self.second: torch.dtype | None = torch.float32
        self.fine = 0.0
        self.contiguous_only = self.evaluation_only = False
        self.rerandomize_weights = rerandomize_weights and law.any_weights and bool(self.state.plain)
        self.counts: Counter[str] = Counter()
        self.notes: dict[str, None] = {}
        self.worst = 0.0
        self.reached: dict[str, bool] = {}
        self.observed: dict[str, float] = {}
        self.most: dict[str, int] = {}
        self.seed = 0

    def run(
        self,
        pick: Pick,
        dtype: torch.dtype,
        *,
        given: list[DrawnTensor] | None = None,
        noise: RoundingNoise | None = None,
        samples: int = SAMPLES,
        trace: OperationTrace | None = None,
    ) -> CaseRun:
        """Draws the inputs, sets the module up, and lets the law make its statement."""
        draw = CaseDraw(pick, dtype, self.state.device, given=given, noise=noise, samples=samples, trace=trace)
        torch.set_default_dtype(dtype)
        setting = self._setting(draw)
        seed_all(0)
        arguments = build(self.inputs, draw, self.most)
        if not isinstance(arguments, tuple | dict):
            arguments = (arguments,)
        draw.build = lambda again: build(self.inputs, draw)
        self.state.prepare(dtype, setting.randomised, noise=noise)
        calls = Calls()
        paths = attribute_errors_to_law(lambda: focus(self.law, arguments, self.names))
        key, exclusions = self.law.output, self.law.exclusions
        f = BoundMap(
            self.target,
            self.target,
            arguments,
            paths,
            key,
            self.state,
            setting,
            calls,
            exclusions=exclusions,
            trace=trace,
        )
        names = labels(arguments, self.names)
        draw.labels = {id(x): names[path] for path, x in leaves(arguments).items()}
        if trace is not None:
            for path, x in leaves(arguments).items():
                trace.suggest(x, names[path])
        drawn_before = len(draw.record.tensors)
        options: dict[str, Any] = self.law.values | ({"draw": draw} if self.law.takes_draw else {})
        with noise or trace or nullcontext(), torch.set_grad_enabled(False):
            statement = attribute_errors_to_law(lambda: self.law.function(f, *f.inputs(), **options))
        if not isinstance(statement, Statement):
            raise LawRaised(f"a law returns a statement, such as Equal(left, right): got {type(statement).__name__}")
        exercised = calls.varied if statement.exercised is None else statement.exercised
        return CaseRun(
            statement,
            draw.record,
            setting,
            exercised,
            arguments,
            names,
            drawn_before,
            trained=calls.trained,
            several=calls.count > 1,
            uneven=len(calls.ends) > 1,
        )

    def inputs_of(self, record: CaseRecord) -> CaseRun | None:
        """Draws the inputs of a case again, without calling the map."""
        draw = CaseDraw(replay(record), self.precision, self.state.device)
        try:
            setting = self._setting(draw)
            seed_all(0)
            arguments = build(self.inputs, draw)
        except RejectCase:
            return None
        if not isinstance(arguments, tuple | dict):
            arguments = (arguments,)
        return CaseRun(Finite(()), draw.record, setting, False, arguments, labels(arguments, self.names), 0)

    def _setting(self, draw: CaseDraw) -> Setting:
        training = self.state.trains and draw.choice((True, False)) and not self.evaluation_only
        grad = draw.choice((True, False))
        layout = LAYOUTS[max(0, draw.integer(0, 5) - 3)]
        randomised = draw.integer(1, 3) if self.rerandomize_weights and draw.boolean() else 0
        return Setting(training, "contiguous" if self.contiguous_only else layout, grad, randomised, self.seed)

    def examine(self, pick: Pick, given: list[DrawnTensor] | None = None) -> Outcome:
        """Judges one case; raises `Discard` if it has nothing to say."""
        try:
            run = self.run(pick, self.precision, given=given)
        except NotContiguous:
            self.contiguous_only = True
            self.notes["it takes contiguous tensors only (it uses view): no others were tried"] = None
            raise RejectCase from None
        except MapRaised as error:
            if _TOO_FEW in str(error):
                self.notes["a batch norm in training takes no single value: such cases were passed over"] = None
                raise RejectCase from None
            if self.state.native or not _TYPE_ERROR.search(str(error)):
                raise
            self._step_down()
            raise RejectCase from None
        except Excepted:
            self.counts["excepted"] += 1
            raise
        if isinstance(run.statement, Occurs):
            for name, reached in zip(run.statement.names, run.statement.occurred, strict=True):
                self.reached[name] = self.reached.get(name, False) or bool(reached)
            return Outcome(Finding(compared=len(run.statement.names)), run)
        if isinstance(run.statement, Statistical):
            return Outcome(self._of_samples(run, run.statement), run)
        finding = self.judge(run, run.statement)
        if not finding.failed and self.second is not None:
            finding = self._second(run) or finding
        return Outcome(finding, run)

    def _of_samples(self, run: CaseRun, statement: Statistical) -> Finding:
        """Judges samples; those that fail are drawn again, ten times as many, and judged at a stricter rate."""
        finding = judge_samples(statement)
        if finding.kind in statistics.KINDS:
            larger = self.run(replay(run.record), self.precision, samples=10 * SAMPLES).statement
            if isinstance(larger, Statistical):
                return judge_samples(larger, statistics.SECOND)
        return finding

    def _step_down(self) -> None:
        """Takes the next lower precision: float32, then whatever types the parameters came in."""
        if self.precision is torch.float64:
            self.precision, self.second = torch.float32, None
            self.notes["judged in float32 only: it does not run in float64"] = None
        else:
            self.state.native = True
            self.notes["judged in the types that its parameters have: it runs in no other"] = None

    def judge(self, run: CaseRun, statement: Deterministic) -> Finding:
        """Judges a run in the leading precision, and against the noise where rounding is in question."""
        rtol = self.law.rtol or 0.0
        finding = judge(statement, self.effective or self.precision, rtol)
        exact = isinstance(statement, Equal) and statement.exact
        if exact and run.uneven:
            raise self._random_in_training()
        if finding.kind in ("differs", "exceeds"):
            if run.trained and run.several and not exact and self._is_random(run):
                raise self._random_in_training()
            if not (isinstance(statement, AtMost) and statement.ignore_noise):
                finding = self._against_noise(run, statement, rtol)
        if finding.kind == "not finite" and not self._ordinary(run):
            self.counts["set aside"] += 1
            raise RejectCase
        return finding

    def _random_in_training(self) -> RejectCase:
        """Leaves training mode: random numbers do not follow what a law does to inputs."""
        self.evaluation_only = True
        self.notes["judged in evaluation mode only: in training mode the map is random"] = None
        return RejectCase()

    def _against_noise(self, run: CaseRun, statement: Deterministic, rtol: float) -> Finding:
        noises: list[float] = []
        lowest = self.effective or self.precision
        for seed in range(RUNS):
            mode = RoundingNoise(seed)
            try:
                moved = self.run(replay(run.record), self.precision, given=run.record.tensors, noise=mode)
            except (RejectCase, MapRaised):
                continue
            found = numerics.noise_between(statement, moved.statement)
            noises = [max(pair) for pair in zip(noises, found, strict=True)] if noises else found
            if torch.finfo(mode.lowest).eps > torch.finfo(lowest).eps:
                lowest = mode.lowest
            if judge(statement, lowest, rtol, noises or None).times > CLEAR:
                break
        if lowest is not self.precision and self.effective is not lowest:
            self.effective = lowest
            self.notes[f"judged as {dtype_name(lowest)}: the map computes in it inside"] = None
        finding = judge(statement, lowest, rtol, noises or None)
        if not finding.failed and finding.noise > JUMP * finding.largest:
            if not self._repeats(run):
                return judge(statement, lowest, rtol)
            self.counts["excused"] += 1
            run.exercised = False
        return finding

    def _is_random(self, run: CaseRun) -> bool:
        """Whether another random state gives another statement: dropout does not follow what a law does to inputs."""
        again = self._again(run, seed=1)
        return again is not None and any(numerics.noise_between(run.statement, again.statement))

    def _again(self, run: CaseRun, seed: int = 0) -> CaseRun | None:
        """Runs a case once more, from a random state; None if it does not come through."""
        self.seed = seed
        try:
            return self.run(replay(run.record), self.precision, given=run.record.tensors)
        except (RejectCase, MapRaised):
            return None
        finally:
            self.seed = 0

    def _repeats(self, run: CaseRun) -> bool:
        """Whether the case comes out the same when nothing is moved: else the map is random on its own."""
        again = self._again(run)
        return again is not None and not any(numerics.noise_between(run.statement, again.statement))

    def _second(self, run: CaseRun) -> Finding | None:
        """Runs the case in float32 too: a residual there is rounding, but a value that is not finite is a fault."""
        if self.second is None or self.fine >= FINE or not self._ordinary(run):
            return None
        try:
            again = self.run(replay(run.record), self.second, given=run.record.tensors)
        except RejectCase:
            return None
        except MapRaised as error:
            if _TYPE_ERROR.search(str(error)):
                self.second = None
                self.notes["judged in float64 only: it does not run in float32"] = None
                return None
            raise
        if not isinstance(again.statement, Deterministic):
            return None
        finding = judge(again.statement, self.second, self.law.rtol or 0.0)
        fails = finding.kind == "not finite"
        self.fine = -math.inf if fails else self.fine + 1  # a smaller case is to fail in the same way
        return finding if fails else None

    def _ordinary(self, run: CaseRun) -> bool:
        """Whether the law asks for a number: not where inputs are extreme or parameters drawn, unless it says so."""
        everywhere = isinstance(run.statement, Finite) and run.statement.include_extremes
        return everywhere or not (run.record.extreme or run.setting.randomised)

    def in_second(self, run: CaseRun) -> float:
        """The residual of a case in float32; NaN where there is none."""
        if self.second is not None:
            with suppress(RejectCase, MapRaised):
                statement = self.run(replay(run.record), self.second, given=run.record.tensors).statement
                return judge(statement, self.second).residual if isinstance(statement, Deterministic) else math.nan
        return math.nan
