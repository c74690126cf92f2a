"""The child process of the command line: it runs the user's code, and tells its parent what it finds, in JSON lines."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from lawful.checking.check import Effort, judge_law, seeded
from lawful.checking.discover import EFFORT, Exploration
from lawful.checking.process import targets
from lawful.checking.process.targets import TargetError, UsageError
from lawful.checking.verdict import Verdict
from lawful.laws.language import Law

WITHOUT_INPUT = ("samples_follow_density", "density_integrates_to_one", "reparameterised_gradient")
"""The laws that may speak of a map that takes nothing."""


@dataclass
class Task:
    """One law to judge on one map, or the sentence that says why it cannot be."""

    label: str
    law: Law | None = None
    target: Any = None
    inputs: Any = None
    made: str | None = None
    problem: Verdict | None = None


def plan(job: dict[str, Any]) -> Iterator[Task]:
    """Finds out what there is to judge; problems come as tasks, so that the others go on."""
    name = job["target"]
    if name is None or ":" not in name:
        module = targets.import_module(name or "lawful")
        if job["laws"] or job["inputs"]:
            raise UsageError(f"--law and --input speak of one map: name it, as in {name or 'package.module'}:Name")
        yield from _claims(module, job["seed"])
        return
    short = name.rpartition(":")[2]
    laws: list[Law | Verdict] = []
    for text in job["laws"]:
        try:
            laws.append(targets.law(text))
        except UsageError as error:
            laws.append(Verdict("error", text, "", short, str(error), usage=True))
    described = targets.inputs(job["inputs"])
    loaded = targets.load(name)
    try:
        target, called = targets.build(loaded, short, job["seed"])
    except TargetError as error:
        trace = traceback.format_exc()
        for law in laws or list(targets.USUAL):
            yield Task(short, problem=law if isinstance(law, Verdict) else _failed(law, short, str(error), trace))
        return
    made = targets.definition(name, called, job["seed"])
    for law in laws or list(targets.USUAL):
        if isinstance(law, Verdict):
            yield Task(short, problem=law)
        elif described is None and law.arity != 0 and law.name not in WITHOUT_INPUT:
            raise UsageError(f"{law.name} wants an input: say what {short} takes, as in --input 'b t 16'")
        else:
            yield Task(short, law, target, described, made)


def _failed(law: Law, target: str, reason: str, trace: str) -> Verdict:
    return Verdict("error", str(law), law.formula, target, reason, trace=trace)


def _claims(module: Any, seed: int) -> Iterator[Task]:
    for home, function in targets.claims_in(module):
        try:
            for position, claim in enumerate(seeded(function(), seed)):
                made = f"from itertools import islice\n\nfrom {home} import claims\n\ntorch.manual_seed({seed})\n"
                made += f"f = next(islice(claims(), {position}, None)).subject"
                yield Task(claim.label, claim.law, claim.subject, claim.inputs, made)
        except Exception as error:
            reason = f"claims() of {home} raised {type(error).__name__}: {error}"
            yield Task(home, problem=Verdict("error", "claims", "", home, reason, trace=traceback.format_exc()))


def work(job: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
    """Judges every task that is not done yet, and says what it finds."""
    tasks = list(plan(job))
    say({"plan": [task.problem.law if task.problem else str(task.law) for task in tasks]})
    scripts = job["scripts"]
    for position, task in enumerate(tasks):
        if position % job["of"] != job["part"] or position in job["done"]:
            continue
        say(
            {
                "started": position,
                "target": task.label,
                "law": str(task.law),
                "formula": getattr(task.law, "formula", ""),
            }
        )
        verdict = task.problem
        if verdict is None and task.law is not None:
            verdict = _judged(task, task.law, job, say)
        if verdict is None:
            continue
        message: dict[str, Any] = {"verdict": verdict.to_json(), "trace": verdict.trace}
        if job["script"] and verdict.repro is not None:
            scripts += 1
            path = Path(job["script"])
            path = path if scripts == 1 else path.with_stem(f"{path.stem}-{scripts}")
            verdict.script(path)
            message["script"] = str(path)
        say(message)


def explore(job: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
    """Tries every law on a target, but for those whose verdict is known, and says what came of it all."""
    name = job["target"]
    described = targets.inputs(job["inputs"])
    if described is None:
        raise UsageError("discover wants an input: say what the target takes, as in --input 'b t 16'")
    short = name.rpartition(":")[2]
    target, called = targets.build(targets.load(name), short, job["seed"])
    known = {v["law"]: Verdict.from_json(v) for v in job["known"]}
    effort = dataclasses.replace(EFFORT, cases=job["cases"], seed=job["seed"])
    exploration = Exploration(target, described, short, effort, known)

    def started(law: Law) -> None:
        say({"started": len(exploration.judged), "target": short, "law": str(law), "formula": law.formula})

    say({"plan": list(exploration.laws)})
    for verdict in exploration.verdicts(started):
        say({"verdict": verdict.to_json(), "trace": verdict.trace})
    made = f"{short}()" if called else short
    say({"discovery": exploration.discovery(made, targets.home(name)).to_json()})


def _judged(task: Task, law: Law, job: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> Verdict:
    try:
        return judge_law(
            law,
            task.target,
            task.inputs,
            task.label,
            Effort(job["cases"], job["seed"], seconds=job["seconds"] / 2),
            made=task.made,
            progress=lambda done: say({"progress": done}),
        )
    except Exception as error:
        sentence = f"{type(error).__name__}: {error}"
        say({"internal": sentence, "trace": traceback.format_exc()})
        return _failed(law, task.label, f"internal error: {sentence}", "")


def main() -> None:
    """Reads the job, and leaves standard output to it alone: what the user's code prints goes to standard error."""
    channel: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    job = json.load(sys.stdin)

    def say(message: dict[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    try:
        (explore if job["discover"] else work)(job, say)
        say({"finished": True})
    except (UsageError, TargetError) as error:
        kind = "usage" if isinstance(error, UsageError) else "failed"
        say({kind: str(error), "trace": traceback.format_exc()})
    except Exception as error:
        say({"internal": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()})


if __name__ == "__main__":
    main()
