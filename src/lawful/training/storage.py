"""Atomic writes, so that a crash leaves the old or the new file but never half of one, and the log of metrics."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_UNFINISHED = ".unfinished"
"""Suffix of a file or folder that is being written. `_remove_unfinished` deletes leftovers of a crash."""
_REMOVED = ".removed" + _UNFINISHED
"""Suffix of a folder that is being removed."""


def _temporary_path(path: Path) -> Path:
    """Returns the path of a file or folder before it is renamed to `path`."""
    return path.with_name(path.name + _UNFINISHED)


def _write_file(path: Path, data: bytes | str) -> None:
    """Writes a file atomically: to a temporary path, flushed to disk, renamed."""
    temporary = _temporary_path(path)
    try:
        with temporary.open("wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _fsync_folder(path.parent)


@contextmanager
def _atomic_folder(path: Path) -> Iterator[Path]:
    """Creates a folder atomically: the body writes into a temporary folder, which is then flushed and renamed."""
    temporary = _temporary_path(path)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        for file in temporary.iterdir():
            _fsync_file(file)
        _fsync_folder(temporary)
        if path.exists():
            _remove_folder(path)
        temporary.rename(path)
        _fsync_folder(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on a file (not on Windows).

    Raises:
        ValueError: If another process holds the lock.
    """
    if os.name == "nt":
        yield
        return
    import fcntl

    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"another process is training {path.parent}") from None
        yield


def _remove_folder(path: Path) -> None:
    """Removes a folder. It is renamed first, so that a crash leaves no half-removed folder under its name."""
    removed = path.with_name(path.name + _REMOVED)
    shutil.rmtree(removed, ignore_errors=True)
    path.rename(removed)
    shutil.rmtree(removed, ignore_errors=True)


def _remove_unfinished(folder: Path) -> None:
    """Removes files and folders whose writing a crash interrupted."""
    for path in folder.glob(f"*{_UNFINISHED}"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _fsync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _fsync_folder(path: Path) -> None:
    """Makes renames in a folder durable (Windows cannot open folders)."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _MetricsLog:
    """Appends to `metrics.jsonl`. Lines are flushed about every second, and to disk before every checkpoint.

    Args:
        path: The file.
        step: Step from which training resumes; later lines, left by a crash, are removed.
        seconds: Training time up to that step.
    """

    def __init__(self, path: Path, *, step: int = 0, seconds: float = 0.0) -> None:
        if path.is_file():
            _write_file(path, _to_json_lines(line for line in _read_metrics(path) if line["step"] <= step))
        self._file = path.open("a", encoding="utf-8")
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


def _read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """Reads the lines of `metrics.jsonl` and skips lines that are cut off or have no step."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        yield from _parse_metrics(file)


_TAIL_BYTES = 1 << 16


def _read_last_metrics(path: Path) -> dict[str, Any] | None:
    """Reads the line of the last step from the end of `metrics.jsonl`."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = _parse_metrics(file.read().decode(errors="replace").splitlines())
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
