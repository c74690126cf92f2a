"""`check`: judge whether a module or function keeps the laws that it promises."""

from __future__ import annotations

import dataclasses
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from lawful.checking.reduce import reduced
from lawful.checking.script import script
from lawful.checking.search import Failure, Tally, search
from lawful.checking.state import seed_all, undisturbed
from lawful.checking.subject import MapRaised
from lawful.checking.trial import LawRaised, Outcome, Run, Trial, dtype_name
from lawful.checking.verdict import Counterexample, Grade, Report, Value, Verdict
from lawful.laws.language import Claim, Inapplicable, Input, Law
from lawful.laws.language.inputs import Size, as_input
from lawful.laws.language.tree import leaves, transform

CASES = 100
PRINTED = 4096
"""Tensors of more entries are not written out in a report."""


def check(
    target: Callable[..., Any],
    *laws: Law,
    inputs: Any = None,
    cases: int = CASES,
    seed: int = 0,
    rerandomise: bool = True,
    seconds: float = 60.0,
) -> Report:
    """Judges whether a module or function keeps laws, and finds the smallest counterexample where it does not.

    The module is judged in the mode that it is in (one in training mode in evaluation mode too) and comes back
    as it was: parameters, buffers, gradients, hooks, mode and the random state are restored.

    Args:
        target: An `nn.Module`, a function, or a class or factory without arguments to make one with.
        laws: The laws, such as `causality(time=1)`.
        inputs: A description (`shape("b t 16")`), an example tensor, a function of a `Draw`, or a structure of
            them: a tuple for positional arguments, a dict for keyword arguments.
        cases: How many cases to try for each law.
        seed: The same seed gives the same counterexample.
        rerandomise: Whether laws that should hold for any parameters are also judged with the parameters that
            are zero, one or the identity re-randomised.
        seconds: After this long a law is judged by the cases tried so far, and the report says so.

    Examples:
        >>> from lawful.laws import causality, shape
        >>> report = check(lambda x: x.cumsum(1), causality(time=1), inputs=shape("b t 4"))
        >>> report.verdicts[0].grade
        'held'
    """
    if not laws:
        raise ValueError("check wants at least one law: check(module, causality(time=1), inputs=...)")
    if cases < 1:
        raise ValueError(f"cases is at least 1: got {cases}")
    for law in laws:
        if not isinstance(law, Law):
            raise TypeError(f"a law was wanted, such as causality(time=1): got {type(law).__name__}")
    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        with undisturbed():
            seed_all(seed)
            target = target()
    name = getattr(target, "__name__", type(target).__name__)
    start = time.monotonic()
    found = [
        judge_law(law, target, inputs, name, cases=cases, seed=seed, rerandomise=rerandomise, seconds=seconds)
        for law in laws
    ]
    return Report(tuple(found), time.monotonic() - start, seed)


def check_claims(claims: Iterable[Claim], *, cases: int = CASES, seed: int = 0, seconds: float = 60.0) -> Report:
    """Judges claims; the random state is seeded before each is made."""
    start = time.monotonic()
    found = []
    with undisturbed():
        for claim in seeded(claims, seed):
            found.append(
                judge_law(
                    claim.law,
                    claim.subject,
                    claim.inputs,
                    claim.label,
                    cases=cases,
                    seed=seed,
                    seconds=seconds,
                )
            )
    return Report(tuple(found), time.monotonic() - start, seed)


def seeded(claims: Iterable[Claim], seed: int = 0) -> Iterable[Claim]:
    """Seeds the random state before each claim is made."""
    pending = iter(claims)
    while True:
        seed_all(seed)
        try:
            yield next(pending)
        except StopIteration:
            return


def judge_law(
    law: Law,
    target: Any,
    inputs: Any,
    name: str,
    *,
    cases: int = CASES,
    seed: int = 0,
    rerandomise: bool = True,
    seconds: float = 60.0,
    made: str | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Verdict:
    """Judges one law; whatever goes wrong in the map or the law is a verdict, and never an exception."""
    verdict = Verdict("error", str(law), law.formula, name, within=law.within)
    start = time.monotonic()

    def ended(grade: Grade, reason: str, **more: Any) -> Verdict:
        return dataclasses.replace(verdict, grade=grade, reason=reason, seconds=time.monotonic() - start, **more)

    if law.waiver is not None:
        return ended("waived", law.waiver)
    try:
        _ = law.values
        described, varies = described_inputs(inputs, law)
    except (TypeError, ValueError) as error:
        return ended("error", str(error), usage=True, trace=traceback.format_exc())
    try:
        judged = _judge(law, target, described, verdict, cases, seed, rerandomise, seconds, made, progress)
        if judged.grade == "error" and varies and not judged.usage:
            fixed = transform(described, lambda _, i: _fixed(i), Input)
            again = _judge(law, target, fixed, verdict, cases, seed, rerandomise, seconds, made, progress)
            if again.grade != "error":
                note = "the sizes of the example were kept: the map takes no others"
                judged = dataclasses.replace(again, notes=(*again.notes, note))
    except Inapplicable as error:
        return ended("inapplicable", str(error))
    except LawRaised as error:
        return ended("error", str(error), usage=error.usage, trace=traceback.format_exc())
    return dataclasses.replace(judged, seconds=time.monotonic() - start)


def _judge(
    law: Law,
    target: Any,
    inputs: Any,
    verdict: Verdict,
    cases: int,
    seed: int,
    rerandomise: bool,
    seconds: float,
    made: str | None,
    progress: Callable[[int], None],
) -> Verdict:
    with undisturbed():
        trial = Trial(law, target, inputs, rerandomise=rerandomise)
        try:
            tally = search(trial, min(cases, law.cases or cases), seed, seconds=seconds, progress=progress)
            if tally.failure is None:
                return _unrefuted(trial, tally, verdict)
            return _refuted(trial, tally, tally.failure, cases, verdict, made)
        finally:
            trial.state.restore()


def _unrefuted(trial: Trial, tally: Tally, verdict: Verdict) -> Verdict:
    notes = _notes(trial, tally)
    if tally.exercised:
        return dataclasses.replace(verdict, grade="held", cases=tally.tried, worst=trial.worst, notes=notes, reason="")
    if tally.tried:
        reason = f"nothing was exercised in {tally.tried} cases: no input was changed, or nothing was compared"
    elif trial.counts["set aside"]:
        reason = f"no value was finite: all {trial.counts['set aside']} cases were set aside"
    else:
        reason = f"its condition never held in {tally.discarded} draws"
    return dataclasses.replace(verdict, grade="vacuous", cases=tally.tried, reason=reason, notes=notes)


def _notes(trial: Trial, tally: Tally) -> tuple[str, ...]:
    notes = list(trial.notes)
    if tally.randomised:
        names = ", ".join(f"{name} ({kind})" for name, kind in trial.state.plain.items())
        notes.append(f"in {tally.randomised} of {tally.tried} cases re-randomised: {names}")
    if count := trial.counts["set aside"]:
        notes.append(f"{count} cases set aside: not finite on extreme values")
    if count := trial.counts["excused"]:
        notes.append(f"{count} cases excused: rounding alone decides them (a tie, a kink or a jump)")
    if tally.stopped:
        notes.append(f"stopped by the time limit after {tally.tried} cases")
    return tuple(notes)


def _refuted(trial: Trial, tally: Tally, failure: Failure, cases: int, verdict: Verdict, made: str | None) -> Verdict:
    notes = tuple(trial.notes)
    if failure.outcome is None:
        raised = failure.raised or MapRaised("the map raised")
        trace = "".join(traceback.format_exception(raised.cause)) if raised.cause else ""
        found = _raised(trial, failure, tally.found_at)
        where = ", ".join(f"{v.name} {list(v.shape)}" for v in found.inputs) if found else "no input"
        return dataclasses.replace(
            verdict,
            grade="error",
            reason=f"the map raised on {where}: {raised}" if raised.cause else str(raised),
            cases=cases,
            counterexample=found,
            notes=notes,
            trace=trace,
        )
    outcome, _ = reduced(trial, failure)
    repro = script(trial, outcome.run, outcome.finding, made)
    found = _counterexample(trial, outcome, tally.found_at)
    reason = outcome.finding.reason
    grade: Grade = "error" if outcome.finding.kind == "shapes differ" else "refuted"
    return dataclasses.replace(
        verdict,
        grade=grade,
        reason=f"the two sides cannot be compared: {reason}" if grade == "error" else reason,
        cases=cases,
        counterexample=found,
        notes=notes,
        repro=repro,
    )


def _counterexample(trial: Trial, outcome: Outcome, case: int) -> Counterexample:
    finding, run = outcome.finding, outcome.run
    double = trial.precision is torch.float64 and finding.dtype is not torch.float32
    numeric = finding.kind in ("differs", "exceeds", "does not follow")
    return Counterexample(
        kind=finding.kind,
        inputs=_inputs(run),
        drawn=tuple(
            _value(d.label, d.shown) for d in run.record.tensors[run.inputs_drawn :] if d.label and d.shown is not None
        ),
        bindings=dict(run.record.bindings),
        output=finding.output,
        index=finding.index,
        left=finding.left,
        right=finding.right,
        residual64=finding.residual if numeric and trial.precision is torch.float64 else None,
        residual32=trial.in_second(run) if numeric and double else finding.residual if numeric else None,
        noise=finding.noise if numeric else None,
        times=finding.times if numeric else None,
        mode=("training mode" if run.trained else "evaluation mode") if trial.state.modules else "",
        setting=_setting(trial, run),
        case=case,
    )


def _setting(trial: Trial, run: Run) -> tuple[str, ...]:
    said = []
    if trial.state.parameters:
        plain = ", ".join(f"{name} ({kind})" for name, kind in trial.state.plain.items())
        said.append(f"re-randomised {plain}" if run.setting.randomised else "parameters as given")
    if not run.setting.grad:
        said.append("gradient off")
    if run.setting.layout != "contiguous":
        said.append(f"{run.setting.layout} tensors")
    return tuple(said)


def _inputs(run: Run) -> tuple[Value, ...]:
    return tuple(_value(run.names[path], x) for path, x in leaves(run.arguments).items())


def _value(name: str, x: Tensor) -> Value:
    values = x.detach().cpu().tolist() if x.numel() <= PRINTED and not x.is_complex() else None
    return Value(name, dtype_name(x.dtype), tuple(x.shape), values)


def _raised(trial: Trial, failure: Failure, case: int) -> Counterexample | None:
    """The input on which the map raised."""
    run = trial.inputs_of(failure.record)
    if run is None:
        return None
    return Counterexample("raised", _inputs(run), mode="", setting=_setting(trial, run), case=case)


def described_inputs(inputs: Any, law: Law) -> tuple[Any, bool]:
    """Makes descriptions of examples: their batch axis and the axes that the law names vary.

    Returns the descriptions and whether any size of an example varies.
    """
    if inputs is None:
        return (), False
    if callable(inputs) and not isinstance(inputs, Input):
        return inputs, False
    if isinstance(inputs, str):
        raise TypeError(f'inputs is a description, an example or a function: write lawful.shape("{inputs}")')
    described = transform(inputs, lambda _, x: as_input(x), (Input, Tensor))
    examples = leaves(inputs, Tensor)
    if not leaves(described, Input) and inputs not in ((), {}):
        raise TypeError(f"inputs is a description, an example or a function of the draw: got {type(inputs).__name__}")
    if not examples:
        return described, False
    first = next(iter(examples.values()))
    varying = (
        {0, *(a % first.dim() for a in law.axes.values() if -first.dim() <= a < first.dim())} if first.dim() else set()
    )

    def vary(path: str, described: Input) -> Input:
        if path not in examples:
            return described
        axes = tuple(
            Size(letter=f"axis{n}") if n in varying and size.number == first.shape[n] else size
            for n, size in enumerate(described.axes)
        )
        return dataclasses.replace(described, axes=axes)

    return transform(described, vary, Input), bool(varying)


def _fixed(described: Input) -> Input:
    """The description of an example in its own sizes."""
    example = getattr(described.domain, "example", None)
    return (
        described
        if example is None
        else dataclasses.replace(described, axes=tuple(Size(number=n) for n in example.shape))
    )
