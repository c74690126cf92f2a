"""The figures of every step, a line of JSON each."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lawful.training.storage import files

TAIL = 1 << 16
"""The bytes in which the last line is looked for."""


class Journal:
    """Appends to `metrics.jsonl`: lines are written about every second, and are on disk before every checkpoint.

    Args:
        path: The file.
        step: Where the training goes on: later lines, which a crash left, are removed.
        seconds: The time that it had taken by then.
    """

    def __init__(self, path: Path, *, step: int = 0, seconds: float = 0.0) -> None:
        if path.is_file():
            files.write(path, "".join(json.dumps(line) + "\n" for line in lines(path) if line["step"] <= step))
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


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Reads the lines that tell a step; what a crash cut off, or was never one, is left out."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        yield from _told(file)


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
