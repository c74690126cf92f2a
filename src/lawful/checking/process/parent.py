"""The parent's side of a check: each target in a child process, with a time limit for each law.

Nothing here loads PyTorch, and nothing that the user's code does can end it.
"""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lawful.checking.verdict import Report, Verdict

STARTING = 60.0
"""How long a child may take beyond the limit of a law until it has loaded PyTorch and its target."""


@dataclass
class Job:
    """What to check: a target with laws and inputs, or (without laws) the claims of a module."""

    target: str | None = None
    laws: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    cases: int = 100
    seed: int = 0
    seconds: float = 60.0
    script: str | None = None


@dataclass
class Result:
    """The report of a job, and what went wrong with the job itself."""

    report: Report
    usage: str = ""
    failed: str = ""
    internal: str = ""
    traces: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 held, 1 refuted or error, 3 internal error, 4 usage error, 5 nothing was checked."""
        if self.internal:
            return 3
        if self.usage:
            return 4
        return 1 if self.failed else self.report.exit_code


Listener = Callable[[str, Any], None]
"""Told ("plan", laws), ("started", name), ("progress", cases) and ("verdict", verdict) as they come."""


def run(job: Job, listen: Listener = lambda kind, value: None) -> Result:
    """Runs a job in child processes: one, and another one each time a law has to be stopped."""
    start = time.monotonic()
    verdicts: list[Verdict] = []
    result = Result(Report(()))
    finished = False
    while not finished:
        before = len(verdicts)
        finished = _child(job, verdicts, result, listen)
        if not finished and len(verdicts) == before:
            break  # the child fell before it had begun: another one would too
    result.report = Report(tuple(verdicts), time.monotonic() - start, job.seed)
    return result


def _child(job: Job, verdicts: list[Verdict], result: Result, listen: Listener) -> bool:
    """Runs one child; returns whether there is nothing left to do."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lawful.checking.process.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    try:
        current: dict[str, Any] = {}
        task = {**vars(job), "done": len(verdicts), "scripts": len(result.scripts)}
        if process.stdin is not None:
            process.stdin.write(json.dumps(task))
            process.stdin.close()
        for message in _messages(process, job.seconds, current):
            if message is None:  # the time is up
                _stopped(job, current, verdicts, result, listen, f"no answer within {job.seconds:g} s")
                return False
            current |= message
            if "plan" in message:
                listen("plan", message["plan"])
            elif "started" in message:
                listen("started", f"{message['target']}  {message['law']}")
            elif "progress" in message:
                listen("progress", message["progress"])
            elif "verdict" in message:
                verdicts.append(Verdict.from_json(message["verdict"]))
                result.traces += [message["trace"]] if message["trace"] else []
                result.scripts += [message["script"]] if "script" in message else []
                listen("verdict", verdicts[-1])
                current.pop("started", None)
            elif "finished" in message:
                return True
            else:
                for kind in ("usage", "failed", "internal"):
                    if kind in message:
                        setattr(result, kind, message[kind])
                        result.traces.append(message["trace"])
        if result.usage or result.failed or (result.internal and "started" not in current):
            return True
        code = process.wait()
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        _stopped(job, current, verdicts, result, listen, f"the process died ({name})")
        return False
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _stopped(
    job: Job, current: dict[str, Any], verdicts: list[Verdict], result: Result, listen: Listener, reason: str
) -> None:
    if "started" not in current:
        result.failed = f"{job.target or 'lawful'}: {reason} while it was loaded"
        return
    verdicts.append(Verdict("error", current["law"], current["formula"], current["target"], reason))
    listen("verdict", verdicts[-1])


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
