"""`check`: judge whether a module or function keeps the laws that it promises."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from lawful.checking.findings import combined, refuted, unrefuted
from lawful.checking.module_state import preserve_global_state, seed_all
from lawful.checking.runner import CaseRunner, LawRaised
from lawful.checking.search import SHRINKS, search
from lawful.checking.strategies import describe_inputs, fixed
from lawful.checking.verdict import Report, Status, Verdict
from lawful.laws.law import Claim, Inapplicable, Law

CASES, SECONDS = 100, 60.0


@dataclass(frozen=True)
class SearchBudget:
    """How hard to look for a counterexample.

    Args:
        cases: How many cases to try for each law.
        seed: The same seed gives the same counterexample.
        rerandomize_weights: Whether laws that should hold for any parameters are also judged with the parameters that
            are zero, one or the identity re-randomised.
        timeout: After this long a law is judged by the cases tried so far, and the report says so.
        shrinks: How many smaller cases to try after the first that fails.
    """

    cases: int = CASES
    seed: int = 0
    rerandomize_weights: bool = True
    timeout: float = SECONDS
    shrinks: int = SHRINKS


USUAL = SearchBudget()


def check(
    target: Callable[..., Any],
    *laws: Law,
    inputs: Any = None,
    cases: int = CASES,
    seed: int = 0,
    rerandomize_weights: bool = True,
    timeout: float = SECONDS,
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
        rerandomize_weights: Whether laws that should hold for any parameters are also judged with the parameters that
            are zero, one or the identity re-randomised.
        timeout: After this long a law is judged by the cases tried so far, and the report says so.

    Examples:
        >>> from lawful.laws import causality, shape
        >>> report = check(lambda x: x.cumsum(1), causality(time=1), inputs=shape("b t 4"))
        >>> report.verdicts[0].status
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
        with preserve_global_state():
            seed_all(seed)
            target = target()
    name = getattr(target, "__name__", type(target).__name__)
    start = time.monotonic()
    effort = SearchBudget(cases, seed, rerandomize_weights, timeout)
    found = [judge_law(law, target, inputs, name, effort) for law in laws]
    return Report(tuple(found), time.monotonic() - start, seed)


def check_claims(claims: Iterable[Claim], *, cases: int = CASES, seed: int = 0) -> Report:
    """Judges claims; the random state is seeded before each is made."""
    start = time.monotonic()
    effort = SearchBudget(cases, seed)
    with preserve_global_state():
        found = [judge_law(c.law, c.target, c.inputs, c.label, effort) for c in seeded(claims, seed)]
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


def place(target: Any) -> tuple[str, int]:
    """The file and the line in which a map, or the class of it, is defined."""
    source = inspect.unwrap(target) if inspect.isroutine(target) or isinstance(target, type) else type(target)
    return _source_location(getattr(source, "__code__", source))


@functools.lru_cache(maxsize=4096)
def _source_location(source: Any) -> tuple[str, int]:
    """Returns file and line of a class or code object. Cached, since `inspect.getsourcelines` parses the file."""
    try:
        file, line = inspect.getsourcefile(source), inspect.getsourcelines(source)[1]
    except (OSError, TypeError):
        return "", 0
    return file or "", line


def judge_law(
    law: Law,
    target: Any,
    inputs: Any,
    name: str,
    effort: SearchBudget = USUAL,
    *,
    made: str | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Verdict:
    """Judges one law; whatever goes wrong in the map or the law is a verdict, and never an exception.

    Args:
        name: What the report calls the map.
        made: Lines of Python that make the map, for a script.
        progress: Told the number of cases tried so far.
    """
    file, line = place(target)
    verdict = Verdict("error", str(law), law.formula, name, rtol=law.rtol, file=file, line=line)
    start = time.monotonic()

    def ended(status: Status, reason: str, **more: Any) -> Verdict:
        return dataclasses.replace(verdict, status=status, reason=reason, seconds=time.monotonic() - start, **more)

    def judged_on(inputs: Any) -> Verdict:
        with preserve_global_state():
            trial = CaseRunner(law, target, inputs, rerandomize_weights=effort.rerandomize_weights)
            try:
                cases = min(effort.cases, law.cases or effort.cases)
                tally = search(
                    trial, cases, effort.seed, timeout=effort.timeout, shrinks=effort.shrinks, progress=progress
                )
                if tally.failure is None:
                    return unrefuted(trial, tally, verdict)
                return refuted(trial, tally, tally.failure, cases, verdict, made, steps=effort.shrinks)
            finally:
                trial.state.restore()

    if law.waiver is not None:
        return ended("waived", law.waiver)
    if law.parts:
        judged = [judge_law(p, target, inputs, name, effort, made=made, progress=progress) for p in law.parts]
        return dataclasses.replace(combined(judged, verdict), seconds=time.monotonic() - start)
    try:
        _ = law.values
        drawn, varies = describe_inputs(inputs, law)
    except (TypeError, ValueError) as error:
        return ended("error", str(error), usage=True, trace=traceback.format_exc())
    try:
        judged = judged_on(drawn)
        if judged.status == "error" and varies:
            again = judged_on(fixed(drawn))
            if again.status != "error":
                note = "the sizes of the example were kept: the map takes no others"
                judged = dataclasses.replace(again, notes=(*again.notes, note))
    except Inapplicable as error:
        return ended("inapplicable", str(error))
    except LawRaised as error:
        return ended("error", str(error), usage=error.usage, trace=traceback.format_exc())
    return dataclasses.replace(judged, seconds=time.monotonic() - start)
