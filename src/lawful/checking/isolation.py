"""Runs a check in child processes with a time limit per law.

Nothing here imports PyTorch, and nothing that the user's code does can end this process.
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

from lawful._names import quote
from lawful.checking.verdict import Discovery, Report, Verdict

_START_SECONDS = 60.0
"""Time that a child may take, in addition to the limit of a law, to import PyTorch and its target."""

_MAX_CRASHES = 3
"""A discovery ends after this many consecutive laws that end the child process."""


@dataclass
class CheckRequest:
    """A target with laws and inputs, or (without laws) a module with claims.

    Args:
        target: `package.module:Name`, `path/file.py:Name`, or a module with claims. Defaults to lawful itself.
        laws: Laws as text, such as `causality:time=1`.
        inputs: Inputs as text, such as `b t 16`.
        cases: Number of cases per law.
        seed: Random seed.
        timeout: Seconds per law.
        script: File for a reproduction script.
        discover: Whether to try every law instead.
        num_workers: Number of child processes.
    """

    target: str | None = None
    laws: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    cases: int = 100
    seed: int = 0
    timeout: float = 60.0
    script: str | None = None
    discover: bool = False
    num_workers: int = 1


@dataclass
class CheckResult:
    """The report of a request, and errors of the request itself."""

    report: Report
    usage_error: str = ""
    target_error: str = ""
    internal_error: str = ""
    tracebacks: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    discovery: Discovery | None = None

    @property
    def errors(self) -> dict[str, str]:
        """The errors by kind."""
        kinds = ("usage_error", "target_error", "internal_error")
        return {kind: getattr(self, kind) for kind in kinds if getattr(self, kind)}

    @property
    def exit_code(self) -> int:
        """0 held, 1 refuted or error, 3 internal error, 4 usage error, 5 nothing was checked."""
        if self.internal_error:
            return 3
        if self.usage_error:
            return 4
        return 1 if self.target_error else self.report.exit_code


Listener = Callable[[str, Any], None]
"""Called with ("started", name), ("progress", cases) and ("verdict", verdict); verdicts come in the order of claims."""

_Place = tuple[int, int]
"""Number of a group of tasks (one per module with claims), and the position in it."""


def run_request(request: CheckRequest, listen: Listener = lambda kind, value: None) -> CheckResult:
    """Runs a request in child processes: one per worker, and a new one each time a law is stopped."""
    start = time.monotonic()
    result = CheckResult(Report(()))
    lock = threading.Lock()
    verdicts: dict[_Place, Verdict] = {}
    sizes: dict[int, int] = {}
    reported: set[_Place] = set()
    group = position = 0

    def forward(kind: str, value: Any) -> None:
        nonlocal group, position
        with lock:
            if kind == "group":
                sizes[value[0]] = value[1]
            elif kind == "verdict":
                verdicts[value[0]] = value[1]
            else:
                listen(kind, value)
                return
            while True:  # report in the order of the claims, whichever worker is first
                if (group, position) in verdicts:
                    reported.add((group, position))
                    listen("verdict", verdicts[group, position])
                    position += 1
                elif sizes.get(group) == position:
                    group, position = group + 1, 0
                else:
                    return

    workers = [_Worker(request, n, result, forward) for n in range(max(1, request.num_workers))]
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
    for place in sorted(verdicts.keys() - reported):
        listen("verdict", verdicts[place])
    ordered = tuple(verdicts[place] for place in sorted(verdicts))
    result.report = Report(ordered, time.monotonic() - start, request.seed)
    return result


class _Worker:
    """Runs its share of a request in one child process after another."""

    def __init__(self, request: CheckRequest, number: int, result: CheckResult, listen: Listener) -> None:
        self.request, self.number, self.result, self.listen = request, number, result, listen
        self.verdicts: dict[_Place, Verdict] = {}
        self.single_target = request.target is not None and ":" in request.target and not request.discover
        self.size: int | None = None
        self.process: subprocess.Popen[str] | None = None

    def run(self) -> None:
        """Starts children until nothing is left to do, or one ends before its first law."""
        finished, crashes = False, 0
        while not finished:
            before = len(self.verdicts)
            finished = self._run_child()
            new = list(self.verdicts.values())[before:]
            crashes = crashes + 1 if len(new) == 1 else 0
            if not finished and (not new or (self.single_target and len(self.verdicts) == self.size)):
                break  # without another child, which would import PyTorch only to find nothing left
            if not finished and self.request.discover and crashes == _MAX_CRASHES:
                self.result.target_error = (
                    f"{quote(self.request.target)}: {new[0].reason}, {_MAX_CRASHES} laws in a row"
                )
                break

    def stop(self) -> None:
        """Ends the child process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()

    def _run_child(self) -> bool:
        """Runs one child; returns whether nothing is left to do."""
        self.process = process = subprocess.Popen(
            [sys.executable, "-m", "lawful.checking._child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        try:
            current: dict[str, Any] = {}
            share = {"worker": self.number, "num_workers": max(1, self.request.num_workers)}
            known = [verdict.to_json() for verdict in self.verdicts.values()]
            done = {"done": list(self.verdicts), "known": known, "num_scripts": len(self.result.scripts)}
            if process.stdin is not None:
                process.stdin.write(json.dumps({**vars(self.request), **share, **done}))
                process.stdin.close()
            for message in _read_messages(process, self.request.timeout, current):
                if message is None:
                    self._give_up(current, f"timed out after {self.request.timeout:g} s")
                    return False
                current |= message
                if self._handle(message, current):
                    return True
            if self.result.usage_error or self.result.target_error:
                return True
            if self.result.internal_error and "started" not in current:
                return True
            code = process.wait()
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            self._give_up(current, f"the process ended ({name})")
            return False
        finally:
            self.stop()

    def _handle(self, message: dict[str, Any], current: dict[str, Any]) -> bool:
        """Handles a message of the child; returns whether it was the last."""
        if "group" in message:
            self.size = message["size"]
            self.listen("group", (message["group"], message["size"]))
        elif "started" in message:
            self.listen("started", f"{message['target']}  {message['law']}")
        elif "progress" in message:
            self.listen("progress", message["progress"])
        elif "verdict" in message:
            self.result.tracebacks += [message["traceback"]] if message["traceback"] else []
            self.result.scripts += [message["script"]] if "script" in message else []
            self._add(current, Verdict.from_json(message["verdict"]))
        elif "discovery" in message:
            self.result.discovery = Discovery.from_json(message["discovery"])
        elif "finished" in message:
            return True
        else:
            for kind in ("usage_error", "target_error", "internal_error"):
                if kind in message:
                    setattr(self.result, kind, message[kind])
                    self.result.tracebacks.append(message["traceback"])
        return False

    def _add(self, current: dict[str, Any], verdict: Verdict) -> None:
        group, position = current.pop("started")
        self.verdicts[group, position] = verdict
        self.listen("verdict", ((group, position), verdict))

    def _give_up(self, current: dict[str, Any], reason: str) -> None:
        if "started" not in current:
            self.result.target_error = f"{quote(self.request.target or 'lawful')}: {reason} during import"
            return
        self._add(current, Verdict("error", current["law"], current["formula"], current["target"], reason))


def _read_messages(
    process: subprocess.Popen[str], timeout: float, current: dict[str, Any]
) -> Iterator[dict[str, Any] | None]:
    """Yields the messages of a child; None if a law, or the start, takes too long."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        if process.stdout is not None:
            for line in process.stdout:
                lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    since = time.monotonic()
    while True:
        limit = timeout if "started" in current else timeout + _START_SECONDS
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
