"""The log of metrics, `metrics.jsonl`."""

from __future__ import annotations

import io
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lawful._files import open_append, open_file, write_file


class _MetricsLog:
    """Appends to `metrics.jsonl`. Lines are flushed about every second, and to disk before every checkpoint.

    Args:
        path: The file.
        step: Step from which training resumes; later lines, left by a crash, are removed.
        seconds: Training time up to that step.
        root: Folder below which no link is followed.
    """

    def __init__(self, path: Path, *, step: int = 0, seconds: float = 0.0, root: Path | None = None) -> None:
        if path.exists():
            lines = [line for line in _read_metrics(path, root=root) if line["step"] <= step]
            write_file(path, _to_json_lines(lines), root=root)
        self._file = io.TextIOWrapper(open_append(path, root=root), encoding="utf-8")
        self._flushed = time.monotonic()
        self._start = self._flushed - seconds

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Appends the metrics of a step. Values that are not finite are written as null."""
        now = time.monotonic()
        finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        self._file.write(json.dumps({"step": step, **finite, "time": round(now - self._start, 4)}) + "\n")
        if now - self._flushed > 1:
            self._file.flush()
            self._flushed = now

    def flush(self) -> None:
        """Flushes all lines to disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file. On a full disk, the lines since the last flush are lost."""
        with suppress(OSError):
            self._file.close()


def _to_json_lines(lines: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def _read_metrics(path: Path, *, root: Path | None = None) -> Iterator[dict[str, Any]]:
    """Reads the lines of `metrics.jsonl` and skips lines that are cut off or have no step."""
    try:
        file = io.TextIOWrapper(open_file(path, root=root), encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    with file:
        yield from _parse_metrics(file)


_TAIL_BYTES = 1 << 16


def _read_last_metrics(path: Path, *, root: Path | None = None) -> dict[str, Any] | None:
    """Reads the line of the last step from the end of `metrics.jsonl`."""
    try:
        with open_file(path, root=root) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            lines = _parse_metrics(file.read().decode(errors="replace").splitlines())
    except FileNotFoundError:
        return None
    return max(lines, key=lambda line: line["step"], default=None)


def _parse_metrics(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for text in lines:
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict) and type(line.get("step")) is int:
            yield line


def _average_metrics(members: Iterable[Iterable[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Averages the metrics of the members of an ensemble, step by step; times are added.

    Steps and metrics that some member lacks are left out. A metric is null if it is null for a member.

    Examples:
        >>> _average_metrics([[{"step": 1, "loss": 2.0, "time": 3.0}], [{"step": 1, "loss": 4.0, "time": 5.0}]])
        [{'step': 1, 'loss': 3.0, 'time': 8.0}]
    """
    histories = [{line["step"]: line for line in lines} for lines in members]
    averaged = []
    for step, first in histories[0].items() if histories else ():
        lines = [history[step] for history in histories if step in history]
        if len(lines) < len(histories):
            continue
        names = [name for name in first if name != "step" and all(name in line for line in lines)]
        averaged.append({"step": step} | {name: _mean(name, [line[name] for line in lines]) for name in names})
    return averaged


def _mean(name: str, values: list[Any]) -> float | None:
    if not all(isinstance(value, int | float) for value in values):
        return None
    return sum(values) if name == "time" else sum(values) / len(values)
