"""Writing so that a crash leaves the old or the new, never half of either.

The figures of every step, a line of JSON each.
"""

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

UNFINISHED = ".unfinished"
"""The ending of what is being written; after a crash it is swept away."""
DOOMED = ".removed" + UNFINISHED
"""The ending of what is being removed."""


def sibling_of(path: Path) -> Path:
    """Returns where a file or folder is written, before it gets its name."""
    return path.with_name(path.name + UNFINISHED)


def write(path: Path, data: bytes | str) -> None:
    """Puts a file in place whole: written to a sibling, flushed to disk, renamed."""
    sibling = sibling_of(path)
    try:
        with sibling.open("wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        sibling.replace(path)
    except BaseException:
        with suppress(OSError):
            sibling.unlink()
        raise
    flush_folder(path.parent)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Puts a folder in place whole: what the body writes into the sibling that it is given appears at once or never."""
    sibling = sibling_of(path)
    shutil.rmtree(sibling, ignore_errors=True)
    sibling.mkdir()
    try:
        yield sibling
        publish(sibling, path)
    except BaseException:
        shutil.rmtree(sibling, ignore_errors=True)
        raise


def publish(sibling: Path, path: Path) -> None:
    """Flushes every file of a folder to disk and gives the folder its name."""
    for file in sibling.iterdir():
        flush_file(file)
    flush_folder(sibling)
    if path.exists():
        remove(path)
    sibling.rename(path)
    flush_folder(path.parent)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Keeps other processes from what a file stands for, where the system can (Windows cannot lock so).

    Raises:
        ValueError: where another process has it.
    """
    if os.name == "nt":
        yield
        return
    import fcntl

    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{path.parent} is being trained by another process") from None
        yield


def remove(path: Path) -> None:
    """Removes a folder; one that is half removed does not keep its name."""
    doomed = path.with_name(path.name + DOOMED)
    shutil.rmtree(doomed, ignore_errors=True)
    path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Removes what a crash left unfinished."""
    for path in folder.glob(f"*{UNFINISHED}"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def flush_file(path: Path) -> None:
    """Makes what was written to a file last."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def flush_folder(path: Path) -> None:
    """Makes a rename in a folder last, where the system can (Windows cannot open folders)."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


TAIL = 1 << 16
"""The bytes in which the last line is looked for."""


class MetricsLog:
    """Appends to `metrics.jsonl`: lines are written about every second, and are on disk before every checkpoint.

    Args:
        path: The file.
        step: Where the training goes on: later lines, which a crash left, are removed.
        seconds: The time that it had taken by then.
    """

    def __init__(self, path: Path, *, step: int = 0, seconds: float = 0.0) -> None:
        if path.is_file():
            write(path, written(line for line in lines(path) if line["step"] <= step))
        self._file = path.open("a", encoding="utf-8")
        self._flushed = time.monotonic()
        self._begun = self._flushed - seconds

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Adds the figures of a step; those that are not finite are null."""
        now = time.monotonic()
        finite = {name: value if math.isfinite(value) else None for name, value in figures.items()}
        self._file.write(json.dumps({"step": step, **finite, "time": round(now - self._begun, 4)}) + "\n")
        if now - self._flushed > 1:
            self._file.flush()
            self._flushed = now

    def flush(self) -> None:
        """Makes every line last."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Ends; on a full disk without the lines since the last flush."""
        with suppress(OSError):
            self._file.close()


def written(told: Iterable[Mapping[str, Any]]) -> str:
    """Lines as a journal has them."""
    return "".join(json.dumps(line) + "\n" for line in told)


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Reads the lines that tell a step; what a crash cut off, or was never one, is left out."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        yield from _told(file)


def averaged(members: Iterable[Iterable[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Averages the figures of several trainings, step by step; the time is that of all together.

    Steps and figures that not all of them have are left out, and a figure is null where one of them is.

    Examples:
        >>> averaged([[{"step": 1, "loss": 2.0, "time": 3.0}], [{"step": 1, "loss": 4.0, "time": 5.0}]])
        [{'step': 1, 'loss': 3.0, 'time': 8.0}]
    """
    totals: dict[int, dict[str, float | None]] = {}
    count = 0
    for count, told in enumerate(members, 1):
        here = {line["step"]: {name: _figure(value) for name, value in line.items()} for line in told}
        totals = here if count == 1 else {at: _added(line, here[at]) for at, line in totals.items() if at in here}
    return [
        {"step": step} | {name: _share(name, total, count) for name, total in line.items() if name != "step"}
        for step, line in totals.items()
    ]


def _figure(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None


def _added(one: Mapping[str, float | None], other: Mapping[str, float | None]) -> dict[str, float | None]:
    """The sum of the figures that both lines have."""
    pairs = {name: (value, other[name]) for name, value in one.items() if name in other}
    return {name: None if a is None or b is None else a + b for name, (a, b) in pairs.items()}


def _share(name: str, total: float | None, count: int) -> float | None:
    return total if total is None or name == "time" else total / count


def last(path: Path) -> dict[str, Any] | None:
    """Reads the last line that tells a step, without those before it."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL))
        return max(
            _told(file.read().decode(errors="replace").splitlines()), key=lambda line: line["step"], default=None
        )


def _told(text: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in text:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and type(found.get("step")) is int:
            yield found
