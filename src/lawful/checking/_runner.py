"""Runs and judges one case of a law, in both precisions and against the noise floor."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch.nn.parameter import is_lazy

from lawful.checking._bound_map import (
    BoundMap,
    CallLog,
    CallSettings,
    CallTracer,
    InExcludedRegion,
    MapRaised,
    NotContiguous,
    argument_names,
    input_names,
    input_paths,
)
from lawful.checking._compare import (
    SECOND_RATE,
    STATISTICAL_FAILURES,
    Deterministic,
    Finding,
    RoundingNoise,
    Statistical,
    dtype_name,
    judge,
    judge_samples,
    measure_noise,
)
from lawful.checking._module_state import (
    ModuleSnapshot,
    find_modules,
    seed_all,
    seeded_state,
    submodules_in_training_mode,
)
from lawful.checking._sizes import MAX_PLANS, USUAL_SIZE, SizePlan, constants_of, size_plans
from lawful.checking._strategies import (
    LAYOUTS,
    SAMPLES,
    CaseDraw,
    CaseRecord,
    DrawnTensor,
    Pick,
    axis_letters,
    draw_inputs,
    infer_letters,
    replay,
)
from lawful.laws._tree import leaves
from lawful.laws.inputs import ExampleDomain, Input
from lawful.laws.interfaces import RejectCase
from lawful.laws.law import Inapplicable, Law
from lawful.laws.statements import AtMost, Finite, Occurs, Statement


class LawRaised(Exception):
    """The law cannot be evaluated: it does not fit the inputs (`usage_error`), or it raised an exception."""

    def __init__(self, message: str, usage_error: bool = False) -> None:
        super().__init__(message)
        self.usage_error = usage_error


_Result = TypeVar("_Result")


def _attribute_errors_to_law(function: Callable[[], _Result]) -> _Result:
    """Converts exceptions of the law to `LawRaised`. Exceptions of the map pass through."""
    try:
        return function()
    except (RejectCase, Inapplicable, MapRaised, NotContiguous):
        raise
    except ValueError as error:
        raise LawRaised(str(error), usage_error=True) from error
    except Exception as error:
        raise LawRaised(f"the law raised {type(error).__name__}: {error}") from error


@dataclass
class CaseRun:
    """A statement, with the choices and settings of the case."""

    statement: Statement
    record: CaseRecord
    settings: CallSettings
    exercised: bool
    arguments: Any
    names: dict[str, str]
    """Name of every input by path."""
    num_inputs: int
    """Number of drawn tensors that are inputs; the law drew the others."""
    varied: set[str] = field(default_factory=set)
    """Paths of the inputs that the law varied."""
    trained: bool = False
    """Whether any call was in training mode."""
    several_calls: bool = False
    is_random: bool = False
    """Whether calls in training mode drew random numbers from torch's generator or a generator of a module."""
    uneven_randomness: bool = False
    """Whether calls in training mode drew different amounts of random numbers."""
    samples_by_rejection: bool = False
    """Whether a call in training mode sampled by rejection. Its gradient is not the one for fixed random numbers."""


@dataclass
class Outcome:
    """The finding in the main precision, and its run."""

    finding: Finding
    run: CaseRun


_NOISE_RUNS = 3
"""Number of noise measurements before a residual counts as a fault."""

_SHAPE_DRAWS = 8
"""Number of draws from a function of a `Draw` that show which axes have the same size."""

_NUM_SLOTS = 3 * MAX_PLANS
"""At most one of three cases has planned sizes, and a plan is tried in one of this many cases."""

_CLEAR_RATIO = 1e6
"""A residual of this many times the noise needs no further noise measurement."""

_JUMP = 1e-3
"""Noise above this fraction of the output is a tie or a branch that rounding decides; the case is excused."""

_FLOAT32_RUNS = 10
"""After this many ordinary cases that are finite in float32, the others are not run in float32."""

_REJECTION_SAMPLERS = (torch.ops.aten._standard_gamma, torch.ops.aten._sample_dirichlet)

_BATCH_NORM_ERROR = "Expected more than 1 value per channel when training"
_DTYPE_ERROR = re.compile(r"dtype|scalar type|Double|Float|float64|float32", re.I)


class CaseRunner:
    """Runs cases of a law on a map.

    Attributes:
        precision: The main precision: float64, unless the map does not run in it.
        counts: Number of cases that were not finite, excused or excluded.
        notes: Notes for the report.
        max_sizes: Largest size of each letter; empty for no limit.
        occurred: The events of an `Occurs` statement, and whether each occurred.
        observed: Largest values of the numbers that the law observed.
        size_plans: Sizes to try, such as the constants of the target; see `plan_sizes`.
        too_large: For each letter, the smallest size above the usual ones for which the map raised, and its error.
        largest_sizes: Largest size of each letter so far.
        input_names: Name of every input by path.
        varied: Paths of the inputs that the law varied.
    """

    def __init__(self, law: Law, target: Any, inputs: Any, *, rerandomize_weights: bool = True) -> None:
        self.law, self.target, self.inputs = law, target, inputs
        helpers = [value for value in law.values.values() if callable(value)]
        roots = {id(m): m for source in (target, *helpers) for m in find_modules(source)}
        if any(is_lazy(p) for m in roots.values() for p in m.parameters()):
            raise LawRaised("the module has uninitialized lazy parameters: call it once before the check", True)
        self.state = ModuleSnapshot(list(roots.values()))
        self.names = argument_names(target)
        self.precision: torch.dtype = torch.float64
        self.cast_to_float64 = self._own_dtype() is not torch.float64
        self.effective_precision: torch.dtype | None = None
        self.second_precision: torch.dtype | None = torch.float32
        self.float32_runs = 0.0
        self.contiguous_only = self.eval_only = False
        self.rerandomize_weights = rerandomize_weights and law.any_weights and bool(self.state.degenerate)
        self.counts: Counter[str] = Counter()
        self.notes: dict[str, None] = {}
        self.worst = 0.0
        self.occurred: dict[str, bool] = {}
        self.observed: dict[str, float] = {}
        self.max_sizes: dict[str, int] = {}
        self.size_plans: list[SizePlan] = []
        self.too_large: dict[str, tuple[int, str]] = {}
        self.case_sizes: dict[str, int] = {}
        self.largest_sizes: dict[str, int] = {}
        self.input_names: dict[str, str] = {}
        self.varied: set[str] = set()
        self.seed = 0

    def fresh_copy(self) -> CaseRunner:
        """Returns a runner with the same settings and a new snapshot of the modules."""
        copy = CaseRunner(self.law, self.target, self.inputs, rerandomize_weights=self.rerandomize_weights)
        copy.size_plans, copy.max_sizes = self.size_plans, self.max_sizes
        for name in ("precision", "effective_precision", "second_precision", "contiguous_only", "eval_only"):
            setattr(copy, name, getattr(self, name))
        copy.rerandomize_weights, copy.cast_to_float64 = self.rerandomize_weights, self.cast_to_float64
        copy.state.keep_dtypes, copy.state.changed_by_calls = self.state.keep_dtypes, self.state.changed_by_calls
        return copy

    def run(
        self,
        pick: Pick,
        dtype: torch.dtype,
        *,
        tensors: list[DrawnTensor] | None = None,
        noise: RoundingNoise | None = None,
        samples: int = SAMPLES,
        tracer: CallTracer | None = None,
        random_operations: bool = False,
    ) -> CaseRun:
        """Draws the inputs, prepares the modules, and evaluates the law.

        With `random_operations`, the random operations are recorded. Calls that draw in different shapes are then
        uneven, too: the random state after dropout is often the same for all shapes.
        """
        draw = CaseDraw(pick, dtype, self.state.device, tensors=tensors, noise=noise, samples=samples, tracer=tracer)
        torch.set_default_dtype(dtype)
        settings = self._draw_settings(draw)
        arguments = self._draw_arguments(draw, self.max_sizes)
        self.case_sizes = draw.record.sizes
        draw.draw_all = lambda: draw_inputs(self.inputs, draw)
        self.state.prepare(dtype, settings.weights_seed, noise=noise)
        by_axis = self.law.arity is None and bool(self.law.axes)
        letters = self.letters if by_axis else {}
        calls = CallLog(random_operations=set() if random_operations else None)
        f = BoundMap(
            self.target,
            self.target,
            arguments,
            _attribute_errors_to_law(lambda: input_paths(self.law, arguments, self.names, letters)),
            self.law.output,
            self.state,
            settings,
            calls,
            exclusions=self.law.exclusions,
            letters=letters,
            tracer=tracer,
        )
        names = self.input_names = input_names(arguments, self.names)
        draw.labels = {id(x): names[path] for path, x in leaves(arguments).items()}
        if tracer is not None:
            for path, x in leaves(arguments).items():
                tracer.suggest_name(x, names[path])
        num_inputs = len(draw.record.tensors)
        options: dict[str, Any] = self.law.values | ({"draw": draw} if self.law.takes_draw else {})
        with noise or tracer or nullcontext(), torch.set_grad_enabled(False):  # pyrefly: ignore
            statement = _attribute_errors_to_law(lambda: self.law.function(f, *f.drawn_inputs(), **options))
        if not isinstance(statement, Statement):
            kind = type(statement).__name__
            raise LawRaised(f"a law must return a statement, such as Equal(left, right), got {kind}")
        operations = calls.random_operations or set()
        return CaseRun(
            statement,
            draw.record,
            settings,
            calls.varied if statement.exercised is None else statement.exercised,
            arguments,
            names,
            num_inputs,
            varied=calls.varied_inputs,
            trained=calls.trained,
            several_calls=calls.count > 1,
            is_random=bool(self.state.generators or calls.final_random_states - {seeded_state(0)}),
            uneven_randomness=max(len(calls.final_random_states), len(operations)) > 1,
            samples_by_rejection=any(name in _REJECTION_SAMPLERS for call in operations for name, *_ in call),
        )

    @cached_property
    def letters(self) -> dict[str, tuple[str, ...]]:
        """The letter of every axis of every input, by path: axes with the same letter have the same size."""
        if not callable(self.inputs) or isinstance(self.inputs, Input):
            return axis_letters(self.inputs)
        drawn = [self._draw_shapes(seed) for seed in range(_SHAPE_DRAWS)]
        return infer_letters([shapes for shapes in drawn if shapes])

    def _draw_shapes(self, seed: int) -> dict[str, tuple[int, ...]]:
        draw = CaseDraw(random.Random(seed).randint, self.precision, self.state.device)
        try:
            return {path: tuple(x.shape) for path, x in leaves(self._draw_arguments(draw, {})).items()}
        except RejectCase:
            return {}

    def _draw_arguments(self, draw: CaseDraw, max_sizes: dict[str, int]) -> tuple[Any, ...] | dict[str, Any]:
        if callable(self.inputs) and not isinstance(self.inputs, Input):
            seed_all(0)  # a function of the draw may use global generators
        else:
            torch.default_generator.manual_seed(0)
        arguments = draw_inputs(self.inputs, draw, max_sizes, draw.size_plan)
        return arguments if isinstance(arguments, tuple | dict) else (arguments,)

    def redraw_inputs(self, record: CaseRecord) -> CaseRun | None:
        """Draws the inputs of a case again, without calling the map."""
        draw = CaseDraw(replay(record), self.precision, self.state.device)
        try:
            settings = self._draw_settings(draw)
            arguments = self._draw_arguments(draw, {})
        except RejectCase:
            return None
        return CaseRun(Finite(()), draw.record, settings, False, arguments, input_names(arguments, self.names), 0)

    def plan_sizes(self) -> None:
        """Plans cases whose sizes are constants of the target, such as its context length."""
        if callable(self.inputs) and not isinstance(self.inputs, Input):
            return
        first = next(iter(axis_letters(self.inputs).values()), ())
        letters = [first[axis] for axis in self.law.axes.values() if -len(first) <= axis < len(first)]
        constants = constants_of(self.target, self.state.modules, self.inputs)
        self.size_plans = size_plans(self.inputs, constants, letters)

    @property
    def num_slots(self) -> int:
        """The number of slots from which a case draws: the ordinary cases, then the size plans."""
        return _NUM_SLOTS if self.size_plans else 0

    def _draw_plan(self, draw: CaseDraw) -> SizePlan:
        """Draws one of the size plans, or an empty one; rejects plans with sizes for which the map raised."""
        if not self.size_plans:
            return {}
        n = draw.integer(0, self.num_slots - 1) - (self.num_slots - len(self.size_plans))
        plan = self.size_plans[n] if n >= 0 else {}
        if any(size >= self.too_large[letter][0] for letter, size in plan.items() if letter in self.too_large):
            raise RejectCase
        return plan

    def _is_too_large(self, error: MapRaised) -> bool:
        """Returns whether a case of unusual sizes raised; these sizes are not tried again."""
        large = {
            letter: n
            for letter, n in self.case_sizes.items()
            if n > USUAL_SIZE and any(letter in p for p in self.size_plans)
        }
        for letter, n in large.items():
            self.too_large[letter] = min((n, str(error)), self.too_large.get(letter, (n, str(error))))
        return bool(large)

    def _draw_settings(self, draw: CaseDraw) -> CallSettings:
        draw.size_plan = self._draw_plan(draw)
        training = self.state.was_training and draw.choice((True, False)) and not self.eval_only
        grad = draw.choice((True, False))
        layout = LAYOUTS[max(0, draw.integer(0, 5) - 3)]
        weights_seed = draw.integer(1, 3) if self.rerandomize_weights and draw.boolean() else 0
        return CallSettings(training, "contiguous" if self.contiguous_only else layout, grad, weights_seed, self.seed)

    def examine(self, pick: Pick, tensors: list[DrawnTensor] | None = None) -> Outcome:
        """Runs and judges one case; raises `RejectCase` if it does not test the law."""
        try:
            run = self.run(pick, self.precision, tensors=tensors)
        except NotContiguous:
            self.contiguous_only = True
            self.notes["tested with contiguous tensors only: the map uses view"] = None
            raise RejectCase from None
        except MapRaised as error:
            if self._is_too_large(error):
                raise RejectCase from None
            if _BATCH_NORM_ERROR in str(error):
                self.notes["cases with a single value per channel skipped: batch norm in training mode"] = None
                raise RejectCase from None
            if self.state.keep_dtypes or not _DTYPE_ERROR.search(str(error)):
                raise
            self._lower_precision("the map does not run in float64")
            raise RejectCase from None
        except InExcludedRegion:
            self.counts["excluded"] += 1
            raise
        self.varied |= run.varied
        for letter, n in run.record.sizes.items():
            self.largest_sizes[letter] = max(n, self.largest_sizes.get(letter, 0))
        if isinstance(run.statement, Occurs):
            for name, occurred in zip(run.statement.names, run.statement.occurred, strict=True):
                self.occurred[name] = self.occurred.get(name, False) or bool(occurred)
            return Outcome(Finding(compared=len(run.statement.names)), run)
        if isinstance(run.statement, Statistical):
            return Outcome(self._judge_samples(run, run.statement), run)
        finding = self.judge(run, run.statement)
        if not finding.failed and self.second_precision is not None:
            finding = self._judge_in_second_precision(run) or finding
        return Outcome(finding, run)

    def _judge_samples(self, run: CaseRun, statement: Statistical) -> Finding:
        """Tests samples; those that fail are drawn again, ten times as many, and tested at a stricter rate."""
        finding = judge_samples(statement)
        if finding.kind == "not finite":
            self._require_finite_in_float32(run)
        if finding.kind in STATISTICAL_FAILURES:
            larger = self.run(replay(run.record), self.precision, samples=10 * SAMPLES).statement
            if isinstance(larger, Statistical):
                return judge_samples(larger, SECOND_RATE)
        return finding

    def _own_dtype(self) -> torch.dtype:
        """Returns the lowest floating-point dtype of the modules or, without one, of the examples and the default."""
        inputs = leaves(self.inputs, Input).values() if not callable(self.inputs) else ()
        examples = [i.domain.example for i in inputs if isinstance(i.domain, ExampleDomain)]
        for tensors in (self.state.originals, examples):
            if found := {x.real.dtype for x in tensors if x.is_floating_point() or x.is_complex()}:
                return max(found, key=lambda dtype: torch.finfo(dtype).eps)
        return torch.get_default_dtype()

    def _lower_precision(self, reason: str) -> None:
        """Switches to float32, then to the original dtypes of the parameters."""
        if self.precision is torch.float64:
            self.precision, self.second_precision = torch.float32, None
            self.notes[f"tested in float32 only: {reason}"] = None
        else:
            self.state.keep_dtypes = True
            self.notes["tested in the dtypes of the parameters: the map does not run in others"] = None

    def judge(self, run: CaseRun, statement: Deterministic) -> Finding:
        """Judges a run in the main precision, and against the noise if the residual may be rounding."""
        rtol = self.law.rtol or 0.0
        finding = judge(statement, self.effective_precision or self.precision, rtol)
        if finding.kind in ("differs", "exceeds"):
            if run.trained and run.several_calls:
                self._require_same_randomness(run)
            if not (isinstance(statement, AtMost) and statement.ignore_noise):
                finding = self._judge_against_noise(run, statement, rtol)
        if finding.kind == "not finite":
            if not self._must_be_finite(run):
                self.counts["not finite"] += 1
                raise RejectCase
            self._require_finite_in_float32(run)
        return finding

    def _require_finite_in_float32(self, run: CaseRun) -> None:
        """Switches to float32 if the map has a lower precision than float64, and is finite in float32."""
        if self.precision is not torch.float64 or not self.cast_to_float64:
            return
        try:
            statement = self.run(replay(run.record), torch.float32, tensors=run.record.tensors).statement
        except MapRaised:
            return
        if isinstance(statement, Occurs):
            return
        found = judge_samples(statement) if isinstance(statement, Statistical) else judge(statement, torch.float32)
        if found.kind != "not finite":
            self._lower_precision("in float64 the map is not finite, in float32 it is")
            raise RejectCase

    def _require_same_randomness(self, run: CaseRun) -> None:
        """Switches to eval mode if the calls of a case match random numbers to different entries.

        Otherwise the law is tested in training mode: every call starts from the same random state.
        """
        if self.law.eval_if_random:
            if not self._changes_with_seed(run):
                return
            reason = "the map is random in training mode, and the law changes which entries random numbers belong to"
        else:
            recorded = run if run.uneven_randomness or not run.is_random else self._run_again(run, record=True) or run
            if recorded.uneven_randomness:
                reason = "the calls of a case draw different amounts of random numbers in training mode"
            elif recorded.samples_by_rejection:
                reason = "the map samples by rejection in training mode"
            else:
                return
        self.eval_only = True
        self.notes[f"tested in eval mode only: {reason}"] = None
        raise RejectCase

    def _judge_against_noise(self, run: CaseRun, statement: Deterministic, rtol: float) -> Finding:
        noises: list[float] = []
        lowest = self.effective_precision or self.precision
        for seed in range(_NOISE_RUNS):
            mode = RoundingNoise(seed)
            try:
                perturbed = self.run(replay(run.record), self.precision, tensors=run.record.tensors, noise=mode)
            except (RejectCase, MapRaised):
                continue
            found = measure_noise(statement, perturbed.statement)
            noises = [max(pair) for pair in zip(noises, found, strict=True)] if noises else found
            if torch.finfo(mode.lowest).eps > torch.finfo(lowest).eps:
                lowest = mode.lowest
            if judge(statement, lowest, rtol, noises or None).noise_ratio > _CLEAR_RATIO:
                break
        if lowest is not self.precision and self.effective_precision is not lowest:
            self.effective_precision = lowest
            self.notes[f"judged in {dtype_name(lowest)}: the map computes in it internally"] = None
        finding = judge(statement, lowest, rtol, noises or None)
        if not finding.failed and finding.noise > _JUMP * finding.largest:
            if not self._is_repeatable(run):
                return judge(statement, lowest, rtol)
            self.counts["excused"] += 1
            run.exercised = False
        return finding

    def _changes_with_seed(self, run: CaseRun) -> bool:
        """Returns whether another seed changes the statement, as with dropout."""
        again = self._run_again(run, seed=1)
        return again is not None and any(measure_noise(run.statement, again.statement))

    def _is_repeatable(self, run: CaseRun) -> bool:
        """Returns whether the case gives the same result again; else the map has its own randomness."""
        again = self._run_again(run)
        return again is not None and not any(measure_noise(run.statement, again.statement))

    def _run_again(self, run: CaseRun, seed: int = 0, record: bool = False) -> CaseRun | None:
        """Runs a case again, with another seed, or with a record of its random operations."""
        self.seed = seed
        try:
            return self.run(replay(run.record), self.precision, tensors=run.record.tensors, random_operations=record)
        except (RejectCase, MapRaised):
            return None
        finally:
            self.seed = 0

    def _judge_in_second_precision(self, run: CaseRun) -> Finding | None:
        """Runs the case in float32: a residual there is rounding, but NaN or infinity is a fault."""
        if self.second_precision is None or self.float32_runs >= _FLOAT32_RUNS or not self._must_be_finite(run):
            return None
        try:
            again = self.run(replay(run.record), self.second_precision, tensors=run.record.tensors)
        except RejectCase:
            return None
        except MapRaised as error:
            if _DTYPE_ERROR.search(str(error)):
                self.second_precision = None
                self.notes["tested in float64 only: the map does not run in float32"] = None
                return None
            raise
        if not isinstance(again.statement, Deterministic):
            return None
        finding = judge(again.statement, self.second_precision, self.law.rtol or 0.0)
        fails = finding.kind == "not finite"
        self.float32_runs = -math.inf if fails else self.float32_runs + 1  # smaller cases must fail in the same way
        return finding if fails else None

    def _must_be_finite(self, run: CaseRun) -> bool:
        """Returns whether NaN is a fault: not for extreme inputs or random weights, unless the law says so."""
        everywhere = isinstance(run.statement, Finite) and run.statement.include_extremes
        return everywhere or not (run.record.extreme or run.settings.weights_seed)

    def submodules_in_training_mode(self, run: CaseRun) -> list[str]:
        """Runs a case again, and lists the submodules that were in training mode while the module was in eval mode."""
        if self.state.modules and not isinstance(run.statement, Statistical):
            self._run_again(run)
        return [name for root in self.state.roots for name in submodules_in_training_mode(root)]

    def second_residual(self, run: CaseRun) -> float:
        """Returns the residual of a case in float32; NaN if there is none."""
        if self.second_precision is not None:
            with suppress(RejectCase, MapRaised):
                statement = self.run(replay(run.record), self.second_precision, tensors=run.record.tensors).statement
                if isinstance(statement, Deterministic):
                    return judge(statement, self.second_precision).residual
        return math.nan
