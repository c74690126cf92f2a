"""The child process of a check: it runs the user's code and writes its results to the parent as JSON lines."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from lawful.checking import targets
from lawful.checking.check import SearchBudget, judge_law, seeded_claims
from lawful.checking.discover import DISCOVERY_BUDGET, DiscoverySearch
from lawful.checking.targets import TargetError, UsageError
from lawful.checking.verdict import Verdict
from lawful.laws.law import Law

_INPUT_OPTIONAL = ("samples_follow_density", "density_integrates_to_one", "reparameterized_gradient")
"""Laws that also apply to maps without inputs."""

_PROGRESS_SECONDS = 0.05
"""Seconds between two messages about the progress of a law."""

Send = Callable[[dict[str, Any]], None]


@dataclass
class CheckTask:
    """One law to check on one map, or a verdict that is known beforehand."""

    label: str
    law: Law | None = None
    target: Any = None
    inputs: Any = None
    definition: str | None = None
    verdict: Verdict | None = None


def _task_groups(request: dict[str, Any]) -> Iterator[tuple[int, list[CheckTask]]]:
    """Yields this worker's tasks in numbered groups: one group per module with claims."""
    name = request["target"]
    if name is not None and ":" in name:
        yield 0, list(_tasks_of_target(request))
        return
    module = targets.import_target("lawful" if name is None else name)
    if request["laws"] or request["inputs"]:
        raise UsageError(f"--law and --input need a single target, such as {name or 'package.module'}:Name")
    for group, (home, function) in enumerate(targets.find_claims(module)):
        if group % request["num_workers"] == request["worker"]:
            yield group, list(_tasks_of_claims(home, function, request["seed"]))


def _tasks_of_target(request: dict[str, Any]) -> Iterator[CheckTask]:
    name = request["target"]
    label = name.rpartition(":")[2]
    laws: list[Law | Verdict] = []
    for text in request["laws"]:
        try:
            laws.append(targets.parse_law(text))
        except UsageError as error:
            laws.append(Verdict("error", text, "", label, str(error), usage_error=True))
    inputs = targets.parse_inputs(request["inputs"])
    value = targets.load_target(name)
    try:
        target, called = targets.build_target(value, label, request["seed"])
    except TargetError as error:
        trace = traceback.format_exc()
        for law in laws or list(targets.STANDARD_LAWS):
            yield CheckTask(label, verdict=law if isinstance(law, Verdict) else _error(law, label, str(error), trace))
        return
    definition = targets.target_definition(name, called, request["seed"])
    for law in laws or list(targets.STANDARD_LAWS):
        if isinstance(law, Verdict):
            yield CheckTask(label, verdict=law)
        elif inputs is None and law.arity != 0 and law.name not in _INPUT_OPTIONAL:
            raise UsageError(f"{law.name} needs an input: describe the input of {label}, such as --input 'b t 16'")
        else:
            yield CheckTask(label, law, target, inputs, definition)


def _tasks_of_claims(home: str, function: Callable[[], Any], seed: int) -> Iterator[CheckTask]:
    try:
        for position, claim in enumerate(seeded_claims(function(), seed)):
            definition = f"from itertools import islice\n\nfrom {home} import claims\n\ntorch.manual_seed({seed})\n"
            definition += f"f = next(islice(claims(), {position}, None)).target"
            yield CheckTask(claim.label, claim.law, claim.target, claim.inputs, definition)
    except Exception as error:
        reason = f"claims() of {home} raised {type(error).__name__}: {error}"
        verdict = Verdict("error", "claims", "", home, reason, traceback=traceback.format_exc())
        yield CheckTask(home, verdict=verdict)


def _error(law: Law, target: str, reason: str, trace: str = "") -> Verdict:
    return Verdict("error", str(law), law.formula, target, reason, traceback=trace)


def _run_check(request: dict[str, Any], send: Send) -> None:
    """Checks every task that is not done yet."""
    done = {tuple(place) for place in request["done"]}
    num_scripts = request["num_scripts"]
    for group, tasks in _task_groups(request):
        send({"group": group, "size": len(tasks)})
        for position, task in enumerate(tasks):
            if (group, position) in done:
                continue
            formula = task.law.formula if task.law is not None else ""
            started = [group, position]
            send({"started": started, "target": task.label, "law": str(task.law), "formula": formula})
            verdict = task.verdict or _judge_task(task, request, send)
            message: dict[str, Any] = {"verdict": verdict.to_json(), "traceback": verdict.traceback}
            if request["script"] and verdict.make_script is not None:
                path = Path(request["script"])
                path = path if num_scripts == 0 else path.with_stem(f"{path.stem}-{num_scripts + 1}")
                with suppress(ValueError):  # the failure does not repeat
                    verdict.script(path)
                    num_scripts += 1
                    message["script"] = str(path)
            send(message)


def _judge_task(task: CheckTask, request: dict[str, Any], send: Send) -> Verdict:
    if task.law is None:
        raise ValueError("expected a task with a law or a verdict")
    budget = SearchBudget(request["cases"], request["seed"], timeout=request["timeout"] / 2)
    last = 0.0

    def report_progress(cases: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _PROGRESS_SECONDS:
            last = now
            send({"progress": cases})

    try:
        return judge_law(
            task.law,
            task.target,
            task.inputs,
            task.label,
            budget,
            definition=task.definition,
            progress=report_progress,
        )
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        send({"internal_error": message, "traceback": traceback.format_exc()})
        return _error(task.law, task.label, f"internal error: {message}")


def _run_discover(request: dict[str, Any], send: Send) -> None:
    """Tries every law on a target, except those with a known verdict."""
    name = request["target"]
    inputs = targets.parse_inputs(request["inputs"])
    if inputs is None:
        raise UsageError("discover needs an input: describe it, such as --input 'b t 16'")
    label = name.rpartition(":")[2]
    target, called = targets.build_target(targets.load_target(name), label, request["seed"])
    known = {v["law"]: Verdict.from_json(v) for v in request["known"]}
    budget = dataclasses.replace(DISCOVERY_BUDGET, cases=request["cases"], seed=request["seed"])
    search = DiscoverySearch(target, inputs, label, budget, known)

    def report_start(law: Law) -> None:
        started = [0, len(search.verdicts)]
        send({"started": started, "target": label, "law": str(law), "formula": law.formula})

    for verdict in search.run(report_start):
        send({"verdict": verdict.to_json(), "traceback": verdict.traceback})
    construction = f"{label}()" if called else label
    send({"discovery": search.result(construction, targets.target_module(name)).to_json()})


def run(request: dict[str, Any], send: Send) -> None:
    """Runs a request and sends its results; errors become messages."""
    try:
        (_run_discover if request["discover"] else _run_check)(request, send)
        send({"finished": True})
    except UsageError as error:
        send({"usage_error": str(error), "traceback": traceback.format_exc()})
    except TargetError as error:
        send({"target_error": str(error), "traceback": traceback.format_exc()})
    except Exception as error:
        send({"internal_error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()})


def main() -> None:
    """Reads a request from standard input. The user's code prints to standard error."""
    channel: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    gc.set_threshold(100_000, 20, 50)  # collections visit the objects of all imported modules

    def send(message: dict[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    run(request, send)


if __name__ == "__main__":
    main()
