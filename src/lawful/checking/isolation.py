"""The child process of the command line: it runs the user's code, and tells its parent what it finds, in JSON lines.

The parent's side of a check: each target in a child process, with a time limit for each law.

Nothing here loads PyTorch, and nothing that the user's code does can end it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from lawful.checking import targets
from lawful.checking.check import SearchBudget, judge_law, seeded
from lawful.checking.discover import EFFORT, Discovery, DiscoverySearch
from lawful.checking.targets import TargetError, UsageError
from lawful.checking.verdict import Report, Verdict
from lawful.laws.law import Law

WITHOUT_INPUT = ("samples_follow_density", "density_integrates_to_one", "reparameterized_gradient")
"""The laws that may speak of a map that takes nothing."""


@dataclass
class CheckTask:
    """One law to judge on one map, or the sentence that says why it cannot be."""

    label: str
    law: Law | None = None
    target: Any = None
    inputs: Any = None
    made: str | None = None
    problem: Verdict | None = None


def plan(job: dict[str, Any]) -> Iterator[CheckTask]:
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
            yield CheckTask(short, problem=law if isinstance(law, Verdict) else _failed(law, short, str(error), trace))
        return
    made = targets.definition(name, called, job["seed"])
    for law in laws or list(targets.USUAL):
        if isinstance(law, Verdict):
            yield CheckTask(short, problem=law)
        elif described is None and law.arity != 0 and law.name not in WITHOUT_INPUT:
            raise UsageError(f"{law.name} wants an input: say what {short} takes, as in --input 'b t 16'")
        else:
            yield CheckTask(short, law, target, described, made)


def _failed(law: Law, target: str, reason: str, trace: str) -> Verdict:
    return Verdict("error", str(law), law.formula, target, reason, trace=trace)


def _claims(module: Any, seed: int) -> Iterator[CheckTask]:
    for home, function in targets.claims_in(module):
        try:
            for position, claim in enumerate(seeded(function(), seed)):
                made = f"from itertools import islice\n\nfrom {home} import claims\n\ntorch.manual_seed({seed})\n"
                made += f"f = next(islice(claims(), {position}, None)).target"
                yield CheckTask(claim.label, claim.law, claim.target, claim.inputs, made)
        except Exception as error:
            reason = f"claims() of {home} raised {type(error).__name__}: {error}"
            yield CheckTask(home, problem=Verdict("error", "claims", "", home, reason, trace=traceback.format_exc()))


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
    exploration = DiscoverySearch(target, described, short, effort, known)

    def started(law: Law) -> None:
        say({"started": len(exploration.judged), "target": short, "law": str(law), "formula": law.formula})

    say({"plan": list(exploration.laws)})
    for verdict in exploration.verdicts(started):
        say({"verdict": verdict.to_json(), "trace": verdict.trace})
    made = f"{short}()" if called else short
    say({"discovery": exploration.discovery(made, targets.home(name)).to_json()})


def _judged(task: CheckTask, law: Law, job: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> Verdict:
    try:
        return judge_law(
            law,
            task.target,
            task.inputs,
            task.label,
            SearchBudget(job["cases"], job["seed"], timeout=job["timeout"] / 2),
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


STARTING = 60.0
"""How long a child may take beyond the limit of a law until it has loaded PyTorch and its target."""


@dataclass
class Job:
    """What to check: a target with laws and inputs, or (without laws) the claims of a module.

    Args:
        discover: Whether to try every law on the target instead.
        workers: How many children share the work.
    """

    target: str | None = None
    laws: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    cases: int = 100
    seed: int = 0
    timeout: float = 60.0
    script: str | None = None
    discover: bool = False
    workers: int = 1


@dataclass
class Result:
    """The report of a job, and what went wrong with the job itself."""

    report: Report
    usage: str = ""
    failed: str = ""
    internal: str = ""
    traces: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    discovery: Discovery | None = None

    @property
    def exit_code(self) -> int:
        """0 held, 1 refuted or error, 3 internal error, 4 usage error, 5 nothing was checked."""
        if self.internal:
            return 3
        if self.usage:
            return 4
        return 1 if self.failed else self.report.exit_code


Listener = Callable[[str, Any], None]
"""Told ("plan", laws), ("started", name) and ("progress", cases) as they come; ("verdict", verdict) in their order."""


def run(job: Job, listen: Listener = lambda kind, value: None) -> Result:
    """Runs a job in child processes: as many as there are workers, and another one each time a law is stopped."""
    start = time.monotonic()
    result = Result(Report(()))
    lock = threading.Lock()
    found: dict[int, Verdict] = {}
    told = 0

    def heard(kind: str, value: Any) -> None:
        nonlocal told
        with lock:
            if kind != "verdict":
                listen(kind, value)
                return
            place, verdict = value
            found[place] = verdict
            while told in found:  # whichever worker is first, the order is that of the claims
                listen(kind, found[told])
                told += 1

    workers = [Worker(job, part, result, heard) for part in range(max(1, job.workers))]
    threads = [threading.Thread(target=worker.run, daemon=True) for worker in workers[1:]]
    try:
        for thread in threads:
            thread.start()
        workers[0].run()
        for thread in threads:
            thread.join()
    finally:
        for worker in workers:
            worker.stop()
    for place in sorted(found):
        if place >= told:
            listen("verdict", found[place])
    result.report = Report(tuple(found[place] for place in sorted(found)), time.monotonic() - start, job.seed)
    return result


FALLS = 3
"""After so many laws in a row that no child survives, a discovery ends: the map itself is at fault."""


class Worker:
    """Does its part of a job, in one child after another."""

    def __init__(self, job: Job, part: int, result: Result, listen: Listener) -> None:
        self.job, self.part, self.result, self.listen = job, part, result, listen
        self.verdicts: dict[int, Verdict] = {}
        self.process: subprocess.Popen[str] | None = None

    def run(self) -> None:
        """Starts children until there is nothing left to do, or one falls before it has begun."""
        finished, falls = False, 0
        while not finished:
            before = len(self.verdicts)
            finished = self._child()
            new = list(self.verdicts.values())[before:]
            falls = falls + 1 if len(new) == 1 else 0
            if not finished and not new:
                break
            if not finished and self.job.discover and falls == FALLS:
                self.result.failed = f"{self.job.target}: {new[0].reason}, {FALLS} laws in a row"
                break

    def stop(self) -> None:
        """Ends the child, if there is one."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()

    def _child(self) -> bool:
        """Runs one child; returns whether there is nothing left to do."""
        self.process = process = subprocess.Popen(
            [sys.executable, "-m", "lawful.checking.isolation"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        try:
            current: dict[str, Any] = {}
            known = [verdict.to_json() for verdict in self.verdicts.values()]
            share = {"part": self.part, "of": max(1, self.job.workers)}
            done = {"done": list(self.verdicts), "known": known, "scripts": len(self.result.scripts)}
            if process.stdin is not None:
                process.stdin.write(json.dumps({**vars(self.job), **share, **done}))
                process.stdin.close()
            for message in _messages(process, self.job.timeout, current):
                if message is None:  # the time is up
                    self._stopped(current, f"no answer within {self.job.timeout:g} s")
                    return False
                current |= message
                if self._heard(message, current):
                    return True
            if self.result.usage or self.result.failed or (self.result.internal and "started" not in current):
                return True
            code = process.wait()
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            self._stopped(current, f"the process died ({name})")
            return False
        finally:
            self.stop()

    def _heard(self, message: dict[str, Any], current: dict[str, Any]) -> bool:
        """Takes in what the child said; returns whether that was its last word."""
        if "plan" in message:
            self.listen("plan", message["plan"])
        elif "started" in message:
            self.listen("started", f"{message['target']}  {message['law']}")
        elif "progress" in message:
            self.listen("progress", message["progress"])
        elif "verdict" in message:
            self.result.traces += [message["trace"]] if message["trace"] else []
            self.result.scripts += [message["script"]] if "script" in message else []
            self._add(current, Verdict.from_json(message["verdict"]))
        elif "discovery" in message:
            self.result.discovery = Discovery.from_json(message["discovery"])
        elif "finished" in message:
            return True
        else:
            for kind in ("usage", "failed", "internal"):
                if kind in message:
                    setattr(self.result, kind, message[kind])
                    self.result.traces.append(message["trace"])
        return False

    def _add(self, current: dict[str, Any], verdict: Verdict) -> None:
        place = current.pop("started")
        self.verdicts[place] = verdict
        self.listen("verdict", (place, verdict))

    def _stopped(self, current: dict[str, Any], reason: str) -> None:
        if "started" not in current:
            self.result.failed = f"{self.job.target or 'lawful'}: {reason} while it was loaded"
            return
        self._add(current, Verdict("error", current["law"], current["formula"], current["target"], reason))


def _messages(
    process: subprocess.Popen[str], seconds: float, current: dict[str, Any]
) -> Iterator[dict[str, Any] | None]:
    """Yields what the child says, line by line; None when a law, or the start, takes too long."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        if process.stdout is not None:
            for line in process.stdout:
                lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    since = time.monotonic()
    while True:
        limit = seconds if "started" in current else seconds + STARTING
        try:
            line = lines.get(timeout=max(0.01, since + limit - time.monotonic()))
        except queue.Empty:
            yield None
            return
        if line is None:
            return
        message = json.loads(line)
        if "progress" not in message:
            since = time.monotonic()
        yield message
