"""The log of metrics, `metrics.jsonl`."""

from __future__ import annotations

import io
import json
import math
import os
import re
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lawful._files import open_append, open_file, write_file
from lawful._names import quote


class _MetricsLog:
    """Appends to `metrics.jsonl`. Lines are flushed about every second, and to the disk before every checkpoint.

    Args:
        path: The file.
        step: Step from which training resumes; later lines, left by a crash, are removed.
        seconds: Training time up to that step.
        root: Folder below which symbolic links are not followed.
    """

    def __init__(self, path: Path, *, step: int = 0, seconds: float = 0.0, root: Path | None = None) -> None:
        text = _format_lines(_read_metrics(path, root=root, up_to=step))
        self._crc = int(text[-11:-3], 16) if text else 0
        write_file(path, text, root=root)  # also a new file, whose name is then on the disk
        self._file = io.TextIOWrapper(open_append(path, root=root), encoding="utf-8")
        self._flushed = time.monotonic()
        self._start = self._flushed - seconds

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Appends the metrics of a step. Values that are not finite are written as null."""
        now = time.monotonic()
        finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        line, self._crc = _add_checksum({"step": step, **finite, "time": round(now - self._start, 4)}, self._crc)
        self._file.write(line)
        if now - self._flushed > 1:
            self._file.flush()
            self._flushed = now

    def flush(self) -> None:
        """Flushes all lines to the operating system."""
        self._file.flush()

    def sync(self) -> None:
        """Waits until all flushed lines are on the disk. Another thread may call it."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file. On a full disk, the lines since the last flush are lost."""
        with suppress(OSError):
            self._file.close()


_CHECKSUM = re.compile(r', "crc": "([0-9a-f]{8})"}\n?')
"""End of a line: the CRC-32 of this line, without the checksum, and of all lines before."""


def _add_checksum(line: Mapping[str, Any], crc: int) -> tuple[str, int]:
    """Returns a line with its checksum, and the checksum, which also covers the lines before (`crc` is theirs)."""
    text = json.dumps(line)
    crc = zlib.crc32(text.encode(), crc)
    return f'{text[:-1]}, "crc": "{crc:08x}"}}\n', crc


def _format_lines(lines: Iterable[Mapping[str, Any]]) -> str:
    texts, crc = [], 0
    for line in lines:
        text, crc = _add_checksum(line, crc)
        texts.append(text)
    return "".join(texts)


def _read_metrics(path: Path, *, root: Path | None = None, up_to: int | None = None) -> Iterator[dict[str, Any]]:
    """Reads the lines of `metrics.jsonl`. A last line that a crash left incomplete is skipped.

    Args:
        path: The file.
        root: Folder below which symbolic links are not followed.
        up_to: Last step to read. Later lines may be damaged.

    Raises:
        ValueError: If a line does not match its checksum.
    """
    try:
        file = io.TextIOWrapper(open_file(path, root=root), encoding="utf-8", errors="replace", newline="\n")
    except FileNotFoundError:
        return
    with file:
        for line in _parse_metrics(file, path, up_to=up_to):
            if up_to is None or line["step"] <= up_to:
                yield line


_TAIL_BYTES = 1 << 16


def _read_last_metrics(path: Path, *, root: Path | None = None) -> dict[str, Any] | None:
    """Reads the line of the last step from the end of `metrics.jsonl`."""
    try:
        with open_file(path, root=root) as file:
            start = max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES)
            file.seek(start)
            texts = file.read().decode(errors="replace").splitlines(keepends=True)
    except FileNotFoundError:
        return None
    return max(_parse_metrics(texts, path, skip_first=start > 0), key=lambda line: line["step"], default=None)


def _parse_metrics(
    texts: Iterable[str], path: Path, *, up_to: int | None = None, skip_first: bool = False
) -> Iterator[dict[str, Any]]:
    """Parses lines and checks their checksums. Files without checksums may have invalid lines, which are skipped.

    Args:
        texts: The lines.
        path: The file, for the error.
        up_to: Last step to check. Damaged lines after it are not an error.
        skip_first: Whether the text starts inside the file. The first line may then be incomplete and is skipped.
    """
    has_checksums: bool | None = None
    crc, last = 0, None
    for number, text in enumerate(texts, 1):
        match = _CHECKSUM.fullmatch(text, max(0, len(text) - 20 - text.endswith("\n")))
        if has_checksums is None:
            has_checksums = match is not None
            if skip_first:
                crc = int(match[1], 16) if match else 0
                continue
        line = _parse_line(text)
        if has_checksums and match is not None:
            crc = zlib.crc32(f"{text[: match.start()]}}}".encode(), crc)
        if has_checksums != (match is not None) or (match is not None and (line is None or crc != int(match[1], 16))):
            if (match is None and not text.endswith("\n")) or (
                up_to is not None and last is not None and last >= up_to
            ):
                return
            raise ValueError(
                f"line {number} of {quote(path)} does not match its checksum: "
                "restore the file, or rename it to resume without its metrics"
            )
        if line is not None:
            last = line["step"]
            if has_checksums:
                del line["crc"]
            yield line


def _parse_line(text: str) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) and type(line.get("step")) is int else None


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
