"""From what a search found to a verdict: the status, the notes, and the counterexample as plain data."""

from __future__ import annotations

import dataclasses
import traceback

import torch
from torch import Tensor

from lawful.checking import compare as statistics
from lawful.checking.bound_map import MapRaised
from lawful.checking.compare import dtype_name
from lawful.checking.repro import script
from lawful.checking.runner import CaseRun, CaseRunner, Outcome
from lawful.checking.search import STEPS, Failure, SearchStats, simplify_values
from lawful.checking.verdict import Counterexample, Status, Value, Verdict
from lawful.laws._tree import leaves
from lawful.laws.interfaces import RejectCase

PRINTED = 4096
"""Tensors of more entries are not written out in a report."""


AS_GIVEN = "of the parameters as given"


def unrefuted(trial: CaseRunner, tally: SearchStats, verdict: Verdict) -> Verdict:
    """Grades a law that no case refuted."""
    notes = _notes(trial, tally)
    if missing := [name for name, reached in trial.reached.items() if not reached]:
        reason = f"never in {tally.tried} cases: {', '.join(missing)}"
        return dataclasses.replace(verdict, status="refuted", cases=tally.tried, reason=reason, notes=notes)
    if tally.exercised and tally.exercised >= trial.counts["excused"]:
        return dataclasses.replace(verdict, status="held", cases=tally.tried, worst=trial.worst, notes=notes, reason="")
    if trial.counts["excused"] > tally.exercised:
        reason = f"rounding alone decides {trial.counts['excused']} of {tally.tried} cases"
    elif tally.tried:
        reason = f"nothing was exercised in {tally.tried} cases: no input was changed, or nothing was compared"
    elif trial.counts["set aside"]:
        reason = f"no value was finite: all {trial.counts['set aside']} cases were set aside"
    else:
        reason = f"its condition never held in {tally.discarded} draws"
    return dataclasses.replace(verdict, status="vacuous", cases=tally.tried, reason=reason, notes=notes)


def combined(judged: list[Verdict], verdict: Verdict) -> Verdict:
    """The verdict about a law that is made of others: that of the first part that is worst off."""
    order: tuple[Status, ...] = ("refuted", "error", "vacuous", "inapplicable", "held", "waived")
    worst = min(judged, key=lambda v: order.index(v.status))
    reason = f"{worst.law}: {worst.reason}" if worst.reason else "" if worst.status == "held" else worst.law
    return dataclasses.replace(
        worst,
        law=verdict.law,
        formula=worst.formula if worst.failed else verdict.formula,
        reason=reason,
        cases=sum(v.cases for v in judged) if worst.status == "held" else worst.cases,
        worst=max((v.worst for v in judged if v.worst is not None), default=None),
        notes=tuple(f"{v.law}: {note}" for v in judged for note in (*v.notes, *_waived(v))),
    )


def _waived(verdict: Verdict) -> tuple[str, ...]:
    return (f"waived: {verdict.reason}",) if verdict.status == "waived" else ()


def _notes(trial: CaseRunner, tally: SearchStats) -> tuple[str, ...]:
    notes = list(trial.notes)
    if tally.randomised:
        notes.append(f"in {tally.randomised} of {tally.tried} cases re-randomised: {_plain(trial)}")
    elif trial.state.plain and not trial.law.any_weights:
        notes.append(f"{AS_GIVEN}: {_plain(trial)}")
    if count := trial.counts["set aside"]:
        notes.append(f"{count} cases set aside: not finite on extreme values")
    if count := trial.counts["excused"]:
        notes.append(f"{count} cases excused: rounding alone decides them (a tie, a kink or a jump)")
    if count := trial.counts["excepted"]:
        near = ", ".join(map(str, trial.law.exclusions))
        notes.append(f"{count} cases excepted: close to {near}")
    notes += [f"largest {name} seen: {value:.4g}" for name, value in trial.observed.items()]
    if tally.stopped:
        notes.append(f"stopped by the time limit after {tally.tried} cases")
    return tuple(notes)


def refuted(
    trial: CaseRunner,
    tally: SearchStats,
    failure: Failure,
    cases: int,
    verdict: Verdict,
    made: str | None,
    steps: int = STEPS,
) -> Verdict:
    """Makes the counterexample of a law as small as it gets, and writes it down."""
    notes = tuple(trial.notes)
    if failure.outcome is None:
        raised = failure.raised or MapRaised("the map raised")
        trace = "".join(traceback.format_exception(raised.cause)) if raised.cause else ""
        found = _raised(trial, failure, tally.found_at)
        where = ", ".join(f"{v.name} {list(v.shape)}" for v in found.inputs) if found else "no input"
        return dataclasses.replace(
            verdict,
            status="error",
            reason=f"the map raised on {where}: {raised}" if raised.cause else str(raised),
            cases=cases,
            counterexample=found,
            notes=notes,
            trace=trace,
        )
    outcome = simplify_values(trial, failure, steps)
    try:
        repro = script(trial, outcome.run, outcome.finding, made)
    except (RejectCase, MapRaised):  # the map does not do the same twice
        repro = None
    found = _counterexample(trial, outcome, tally.found_at)
    reason = outcome.finding.reason
    status: Status = "error" if outcome.finding.kind == "shapes differ" else "refuted"
    return dataclasses.replace(
        verdict,
        status=status,
        reason=f"the two sides cannot be compared: {reason}" if status == "error" else reason,
        cases=cases,
        counterexample=found,
        notes=notes,
        repro=repro,
    )


def _counterexample(trial: CaseRunner, outcome: Outcome, case: int) -> Counterexample:
    finding, run = outcome.finding, outcome.run
    double = trial.precision is torch.float64 and finding.dtype is not torch.float32
    numeric = finding.kind in ("differs", "exceeds", *statistics.KINDS)
    return Counterexample(
        kind=finding.kind,
        inputs=_inputs(run),
        drawn=tuple(
            _value(d.label, d.shown, d.dtype)
            for d in run.record.tensors[run.inputs_drawn :]
            if d.label and d.shown is not None
        ),
        bindings=dict(run.record.bindings),
        output=finding.output,
        name=finding.name,
        index=finding.index,
        left=None if finding.reason else finding.left,
        right=None if finding.reason else finding.right,
        residual64=finding.residual if numeric and trial.precision is torch.float64 else None,
        residual32=trial.in_second(run) if numeric and double else finding.residual if numeric else None,
        noise=finding.noise if numeric else None,
        times=finding.times if numeric else None,
        mode=("training mode" if run.trained else "evaluation mode") if trial.state.modules else "",
        setting=_setting(trial, run),
        case=case,
    )


def _plain(trial: CaseRunner, most: int = 4) -> str:
    """Names the parameters that are re-randomised, and how they were plain."""
    said = [f"{name} ({kind})" for name, kind in trial.state.plain.items()]
    return ", ".join(said[:most]) + (f" and {len(said) - most} more" if len(said) > most else "")


def _setting(trial: CaseRunner, run: CaseRun) -> tuple[str, ...]:
    said = []
    if trial.state.parameters:
        said.append(f"re-randomised {_plain(trial)}" if run.setting.randomised else "parameters as given")
    if not run.setting.grad:
        said.append("gradient off")
    if run.setting.layout != "contiguous":
        said.append(f"{run.setting.layout} tensors")
    return tuple(said)


def _inputs(run: CaseRun) -> tuple[Value, ...]:
    return tuple(_value(run.names[path], x) for path, x in leaves(run.arguments).items())


def _value(name: str, x: Tensor, dtype: torch.dtype | None = None) -> Value:
    values = x.detach().cpu().tolist() if x.numel() <= PRINTED and not x.is_complex() else None
    return Value(name, dtype_name(dtype or x.dtype), tuple(x.shape), values)


def _raised(trial: CaseRunner, failure: Failure, case: int) -> Counterexample | None:
    """The input on which the map raised."""
    run = trial.inputs_of(failure.record)
    if run is None:
        return None
    return Counterexample("raised", _inputs(run), mode="", setting=_setting(trial, run), case=case)
