"""`check`: tests whether a module or function satisfies laws."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import linecache
import re
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lawful.checking._bound_map import MapRaised
from lawful.checking._compare import STATISTICAL_FAILURES, dtype_name
from lawful.checking._module_state import preserve_global_state, seed_all
from lawful.checking._repro import build_script
from lawful.checking._runner import CaseRun, CaseRunner, LawRaised, Outcome
from lawful.checking._search import SHRINKS, Failure, SearchStats, search, simplify_values
from lawful.checking._strategies import describe_inputs, fix_example_sizes
from lawful.checking.verdict import Counterexample, Report, Status, TensorValue, Verdict
from lawful.laws._tree import leaves
from lawful.laws.law import Claim, Inapplicable, Law

DEFAULT_CASES, DEFAULT_TIMEOUT = 100, 60.0

_MAX_PRINTED = 4096
"""Larger tensors are not printed in a report."""


@dataclass(frozen=True)
class SearchBudget:
    """Limits of the search for a counterexample.

    Args:
        cases: Number of cases per law.
        seed: Random seed; the same seed gives the same counterexample.
        rerandomize_weights: Whether to re-randomize weights that are zero, one, constant or the identity, in half of
            the cases of a law that must hold for all weights.
        timeout: Seconds per law, after which the verdict is based on the cases so far.
        shrinks: Maximum number of smaller cases to try after a failure; 0 reports the first failure as it is.
    """

    cases: int = DEFAULT_CASES
    seed: int = 0
    rerandomize_weights: bool = True
    timeout: float = DEFAULT_TIMEOUT
    shrinks: int = SHRINKS


_DEFAULT_BUDGET = SearchBudget()


def check(
    target: Callable[..., Any],
    *laws: Law,
    inputs: Any = None,
    cases: int = DEFAULT_CASES,
    seed: int = 0,
    rerandomize_weights: bool = True,
    timeout: float = DEFAULT_TIMEOUT,
) -> Report:
    """Tests whether a module or function satisfies laws, and finds the smallest counterexample if it does not.

    A module is tested in its current mode; one in training mode is tested in eval mode as well. It is tested in
    float64, or in float32 if it is finite there and not in float64. Parameters, buffers, gradients, hooks, mode and
    random state are restored afterwards.

    Args:
        target: An `nn.Module`, a function, or a module class without required arguments.
        laws: The laws, such as `causality(time=1)`.
        inputs: A description (`shape("b t 16")`), an example tensor, a function of a `Draw`, or a structure of these:
            a tuple for positional arguments, a dict for keyword arguments.
        cases: Number of cases per law.
        seed: Random seed; the same seed gives the same counterexample.
        rerandomize_weights: Whether to re-randomize weights that are zero, one, constant or the identity, in half of
            the cases of a law that must hold for all weights.
        timeout: Seconds per law, after which the verdict is based on the cases so far.

    Examples:
        >>> from lawful import shape
        >>> from lawful.laws import causality
        >>> report = check(lambda x: x.cumsum(1), causality(time=1), inputs=shape("b t 4"))
        >>> report.passed
        True
    """
    if not laws:
        raise ValueError("check needs at least one law: check(module, causality(time=1), inputs=...)")
    if cases < 1:
        raise ValueError(f"cases must be at least 1, got {cases}")
    for law in laws:
        if not isinstance(law, Law):
            raise TypeError(f"expected a law such as causality(time=1), got {type(law).__name__}")
    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        with preserve_global_state():
            seed_all(seed)
            target = target()
    name = getattr(target, "__name__", type(target).__name__)
    start = time.monotonic()
    budget = SearchBudget(cases, seed, rerandomize_weights, timeout)
    verdicts = [judge_law(law, target, inputs, name, budget) for law in laws]
    return Report(tuple(verdicts), time.monotonic() - start, seed)


def check_claims(claims: Iterable[Claim], *, cases: int = DEFAULT_CASES, seed: int = 0) -> Report:
    """Checks claims; the random state is seeded before each claim is constructed."""
    start = time.monotonic()
    budget = SearchBudget(cases, seed)
    with preserve_global_state():
        verdicts = [judge_law(c.law, c.target, c.inputs, c.label, budget) for c in seeded_claims(claims, seed)]
    return Report(tuple(verdicts), time.monotonic() - start, seed)


def seeded_claims(claims: Iterable[Claim], seed: int = 0) -> Iterable[Claim]:
    """Yields the claims; the random state is seeded before each is constructed."""
    pending = iter(claims)
    while True:
        seed_all(seed)
        try:
            yield next(pending)
        except StopIteration:
            return


@functools.lru_cache(maxsize=4096)
def _class_location(source: type) -> tuple[str, int]:
    """Finds a class by its name: `inspect.getsourcelines` would parse the whole file."""
    file = inspect.getsourcefile(source) or ""
    pattern = re.compile(rf"\s*class {re.escape(source.__name__)}\b")
    return file, next((n for n, line in enumerate(linecache.getlines(file), start=1) if pattern.match(line)), 0)


def source_location(target: Any) -> tuple[str, int]:
    """Returns the file and line that define a function, or the class of an object."""
    source = inspect.unwrap(target) if inspect.isroutine(target) or isinstance(target, type) else type(target)
    if code := getattr(source, "__code__", None):
        return ("", 0) if code.co_filename.startswith("<") else (code.co_filename, code.co_firstlineno)
    try:
        return _class_location(source)
    except (OSError, TypeError):  # a builtin
        return "", 0


def judge_law(
    law: Law,
    target: Any,
    inputs: Any,
    name: str,
    budget: SearchBudget = _DEFAULT_BUDGET,
    *,
    definition: str | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Verdict:
    """Checks one law. Errors in the map or the law become verdicts, never exceptions.

    Args:
        law: The law.
        target: The module or function.
        inputs: Inputs, as in `check`.
        name: Name of the target in the report.
        budget: Limits of the search.
        definition: Lines of Python that define the target as `f`, for the reproduction script.
        progress: Called with the number of cases so far.
    """
    file, line = source_location(target)
    verdict = Verdict("error", str(law), law.formula, name, rtol=law.rtol, file=file, line=line)
    start = time.monotonic()

    def finish(status: Status, reason: str, **fields: Any) -> Verdict:
        return dataclasses.replace(verdict, status=status, reason=reason, seconds=time.monotonic() - start, **fields)

    def run_on(inputs: Any) -> Verdict:
        with preserve_global_state():
            runner = CaseRunner(law, target, inputs, rerandomize_weights=budget.rerandomize_weights)
            try:
                cases = min(budget.cases, law.cases or budget.cases)
                stats = search(
                    runner, cases, budget.seed, timeout=budget.timeout, shrinks=budget.shrinks, progress=progress
                )
                if stats.failure is None:
                    found = _verdict_without_failure(runner, stats, verdict)
                else:
                    on_cases = dataclasses.replace(verdict, cases=cases, notes=tuple(runner.notes))
                    found = _verdict_on_failure(runner, stats, stats.failure, on_cases, definition, budget.shrinks)
                return dataclasses.replace(
                    found,
                    requested_cases=cases,
                    inputs=tuple(runner.input_names.values()),
                    varied=tuple(name for path, name in runner.input_names.items() if path in runner.varied),
                    largest_sizes=dict(runner.largest_sizes),
                )
            finally:
                runner.state.restore()

    if law.waiver is not None:
        return finish("waived", law.waiver)
    if law.parts:
        parts = [
            judge_law(p, target, inputs, name, budget, definition=definition, progress=progress) for p in law.parts
        ]
        return dataclasses.replace(_combine(parts, verdict), seconds=time.monotonic() - start)
    try:
        _ = law.values
        described, varies = describe_inputs(inputs, law)
    except (TypeError, ValueError) as error:
        return finish("error", str(error), usage_error=True, traceback=traceback.format_exc())
    try:
        found = run_on(described)
        if found.status == "error" and varies:
            again = run_on(fix_example_sizes(described))
            if again.status != "error":
                note = "tested with the sizes of the example only: the map accepts no others"
                found = dataclasses.replace(again, notes=(*again.notes, note))
    except Inapplicable as error:
        return finish("inapplicable", str(error))
    except LawRaised as error:
        return finish("error", str(error), usage_error=error.usage_error, traceback=traceback.format_exc())
    return dataclasses.replace(found, seconds=time.monotonic() - start)


def _verdict_without_failure(runner: CaseRunner, stats: SearchStats, verdict: Verdict) -> Verdict:
    """Returns held, vacuous, or (for an event that never occurred) refuted."""
    verdict = dataclasses.replace(verdict, cases=stats.tried, timed_out=stats.timed_out, notes=_notes(runner, stats))
    excused = runner.counts["excused"]
    if missing := [name for name, occurred in runner.occurred.items() if not occurred]:
        reason = f"not observed in {stats.tried} cases: {', '.join(missing)}"
        return dataclasses.replace(verdict, status="refuted", reason=reason)
    if stats.exercised and stats.exercised >= excused:
        return dataclasses.replace(verdict, status="held", worst=runner.worst)
    if excused > stats.exercised:
        reason = f"rounding decides {excused} of {stats.tried} cases"
    elif stats.tried:
        reason = f"none of {stats.tried} cases tested the map: no input was changed, or nothing was compared"
    elif runner.counts["not finite"]:
        reason = f"no finite value in {runner.counts['not finite']} cases"
    else:
        reason = f"the assumptions of the law were not met in {stats.rejected} cases"
    return dataclasses.replace(verdict, status="vacuous", reason=reason)


def _combine(parts: list[Verdict], verdict: Verdict) -> Verdict:
    """Returns the verdict on a law from `all_of`: the worst verdict of its parts."""
    order: tuple[Status, ...] = ("refuted", "error", "vacuous", "inapplicable", "held", "waived")
    worst = min(parts, key=lambda v: order.index(v.status))
    reason = f"{worst.law}: {worst.reason}" if worst.reason else "" if worst.status == "held" else worst.law
    notes = [
        f"{part.law}: {note}"
        for part in parts
        for note in (*part.notes, *((f"waived: {part.reason}",) if part.status == "waived" else ()))
    ]
    return dataclasses.replace(
        worst,
        law=verdict.law,
        formula=worst.formula if worst.failed else verdict.formula,
        reason=reason,
        cases=sum(v.cases for v in parts) if worst.status == "held" else worst.cases,
        requested_cases=sum(v.requested_cases for v in parts) if worst.status == "held" else worst.requested_cases,
        timed_out=any(v.timed_out for v in parts) if worst.status == "held" else worst.timed_out,
        worst=max((v.worst for v in parts if v.worst is not None), default=None),
        varied=tuple(name for name in worst.inputs if any(name in v.varied for v in parts)),
        largest_sizes={
            letter: max(v.largest_sizes.get(letter, 0) for v in parts) for v in parts for letter in v.largest_sizes
        },
        notes=tuple(notes),
    )


def _notes(runner: CaseRunner, stats: SearchStats) -> tuple[str, ...]:
    notes = list(runner.notes)
    if stats.randomized:
        notes.append(f"weights re-randomized in {stats.randomized} of {stats.tried} cases: {_degenerate(runner)}")
    elif runner.state.degenerate and not runner.law.any_weights:
        notes.append(f"tested with the current weights only: {_degenerate(runner)}")
    if count := runner.counts["not finite"]:
        notes.append(f"{count} cases skipped: not finite for extreme values")
    if count := runner.counts["excused"]:
        notes.append(f"{count} cases excused: rounding decides them (a tie, a kink or a jump)")
    if count := runner.counts["excluded"]:
        notes.append(f"{count} cases excluded: close to {', '.join(map(str, runner.law.exclusions))}")
    for letter, (_, error) in runner.too_large.items():
        notes.append(f"{letter} above {runner.largest_sizes.get(letter, 0)} not tested: the map raised {error}")
    notes += [f"largest {name}: {value:.4g}" for name, value in runner.observed.items()]
    return tuple(notes)


def _verdict_on_failure(
    runner: CaseRunner, stats: SearchStats, failure: Failure, verdict: Verdict, definition: str | None, steps: int
) -> Verdict:
    """Simplifies the values of the counterexample; returns refuted, or error if the map raised."""
    if failure.outcome is None:
        raised = failure.raised or MapRaised("the map raised")
        trace = "".join(traceback.format_exception(raised.cause)) if raised.cause else ""
        found = _raising_input(runner, failure, stats.found_at)
        inputs = ", ".join(f"{v.name} {list(v.shape)}" for v in found.inputs) if found else "no input"
        reason = f"the map raised on {inputs}: {raised}" if raised.cause else str(raised)
        return dataclasses.replace(verdict, status="error", reason=reason, counterexample=found, traceback=trace)
    outcome = simplify_values(runner, failure, steps)
    training = runner.submodules_in_training_mode(outcome.run)
    status: Status = "error" if outcome.finding.kind == "shapes differ" else "refuted"
    reason = outcome.finding.reason or outcome.finding.cause
    if training and not reason:
        reason = f"still in training mode: {', '.join(training)}"
    return dataclasses.replace(
        verdict,
        status=status,
        reason=f"the two sides cannot be compared: {reason}" if status == "error" else reason,
        counterexample=_counterexample(runner, outcome, stats.found_at),
        make_script=lambda: build_script(runner, outcome.run, outcome.finding, definition),
    )


def _counterexample(runner: CaseRunner, outcome: Outcome, case: int) -> Counterexample:
    finding, run = outcome.finding, outcome.run
    both_precisions = runner.precision is torch.float64 and finding.dtype is not torch.float32
    numeric = finding.kind in ("differs", "exceeds", *STATISTICAL_FAILURES)
    residual32 = runner.second_residual(run) if numeric and both_precisions else finding.residual
    return Counterexample(
        kind=finding.kind,
        inputs=_input_values(run),
        drawn=tuple(
            _tensor_value(d.label, d.shown, d.dtype)
            for d in run.record.tensors[run.num_inputs :]
            if d.label and d.shown is not None
        ),
        choices=dict(run.record.choices),
        output=finding.output,
        name=finding.name,
        index=finding.index,
        left=None if finding.reason else finding.left,
        right=None if finding.reason else finding.right,
        residual64=finding.residual if numeric and runner.precision is torch.float64 else None,
        residual32=residual32 if numeric else None,
        noise=finding.noise if numeric else None,
        noise_ratio=finding.noise_ratio if numeric else None,
        mode=("training mode" if run.trained and runner.state.roots_training else "eval mode")
        if runner.state.modules
        else "",
        settings=_settings(runner, run),
        case=case,
    )


def _degenerate(runner: CaseRunner, limit: int = 4) -> str:
    """Lists the parameters that are zero, one, constant or the identity."""
    names = [f"{name} ({kind})" for name, kind in runner.state.degenerate.items()]
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def _settings(runner: CaseRunner, run: CaseRun) -> tuple[str, ...]:
    settings = []
    if run.settings.weights_seed:
        settings.append(f"re-randomized weights: {_degenerate(runner)}")
    if not run.settings.grad:
        settings.append("no_grad")
    if run.settings.layout != "contiguous":
        settings.append(f"{run.settings.layout} tensors")
    return tuple(settings)


def _input_values(run: CaseRun) -> tuple[TensorValue, ...]:
    return tuple(_tensor_value(run.names[path], x) for path, x in leaves(run.arguments).items())


def _tensor_value(name: str, x: Tensor, dtype: torch.dtype | None = None) -> TensorValue:
    values = x.detach().cpu().tolist() if x.numel() <= _MAX_PRINTED and not x.is_complex() else None
    return TensorValue(name, dtype_name(dtype or x.dtype), tuple(x.shape), values)


def _raising_input(runner: CaseRunner, failure: Failure, case: int) -> Counterexample | None:
    """Returns the input on which the map raised."""
    run = runner.redraw_inputs(failure.record)
    if run is None:
        return None
    return Counterexample("raised", _input_values(run), settings=_settings(runner, run), case=case)
