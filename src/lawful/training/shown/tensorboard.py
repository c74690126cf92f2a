"""Event files that TensorBoard reads, written without it."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from lawful.training.plan import Training
    from lawful.training.run import Run

FLUSH_SECONDS = 2.0


class TensorBoard:
    """Writes the figures of a run as TensorBoard event files: `tensorboard --logdir RUN` shows them.

    A run that is resumed gets a further file; what the first one has after the step of the checkpoint is then not
    shown.

    Args:
        folder: Where to write, if not `tensorboard` in the folder of the run.

    Examples:
        >>> from tempfile import mkdtemp
        >>> from types import SimpleNamespace
        >>> tracker = TensorBoard(Path(mkdtemp()))
        >>> tracker.start(SimpleNamespace(), SimpleNamespace())
        >>> tracker.log(1, {"loss": 0.5, "validation/accuracy": 0.9})
        >>> tracker.close()
        >>> [path.name[:19] for path in tracker.folder.iterdir()]
        ['events.out.tfevents']
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._file: BinaryIO | None = None
        self._started = False
        self._next = 0.0

    def start(self, run: Run, training: Training) -> None:
        """Opens a new event file."""
        self.close()
        self.folder = run.path / "tensorboard" if self.folder is None else self.folder
        self.folder.mkdir(parents=True, exist_ok=True)
        now, earlier = time.time(), sum(1 for _ in self.folder.iterdir())
        self._file = open(self.folder / f"events.out.tfevents.{int(now)}.{earlier:04d}.lawful", "xb")  # noqa: SIM115
        self._write(event(now, version="brain.Event:2"))
        self._started = False
        self._flush()

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Writes the figures of a step."""
        now = time.time()
        if not self._started:
            self._write(event(now, step=step, starts=True))
            self._started = True
        self._write(event(now, step=step, figures=figures))
        if time.monotonic() >= self._next:
            self._flush()

    def close(self) -> None:
        """Closes the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _write(self, data: bytes) -> None:
        if self._file is None:
            raise ValueError("the tracker is not open: start comes before log")
        self._file.write(record(data))

    def _flush(self) -> None:
        if self._file is not None:
            self._file.flush()
        self._next = time.monotonic() + FLUSH_SECONDS


def event(
    at: float, *, step: int = 0, version: str = "", starts: bool = False, figures: Mapping[str, float] | None = None
) -> bytes:
    """Encodes an `Event`: a version, the start of a session, or a summary of scalars.

    Examples:
        >>> event(0.0, version="v").hex()
        '0900000000000000001a0176'
    """
    said = b"\x09" + struct.pack("<d", at)
    if step:
        said += b"\x10" + varint(step)
    if version:
        said += field(3, version.encode())
    if figures is not None:
        said += field(5, b"".join(field(1, scalar(tag, value)) for tag, value in figures.items()))
    if starts:
        said += field(7, b"\x08\x01")
    return said


def scalar(tag: str, value: float) -> bytes:
    """Encodes a `Summary.Value`: its tag and its value in single precision."""
    try:
        number = struct.pack("<f", value)
    except OverflowError:
        number = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return field(1, tag.encode("utf-8", "replace")) + b"\x15" + number


def field(number: int, data: bytes) -> bytes:
    """Encodes a field of bytes: its number and type, its length, and the bytes."""
    return bytes((number << 3 | 2,)) + varint(len(data)) + data


def varint(n: int) -> bytes:
    """Encodes a number in groups of seven bits, the lowest first, each but the last with its top bit set.

    Examples:
        >>> varint(300).hex()
        'ac02'
    """
    if n < 0:
        raise ValueError(f"a number is at least 0: got {n}")
    groups = bytearray()
    while n > 127:
        groups.append(n & 127 | 128)
        n >>= 7
    groups.append(n)
    return bytes(groups)


def record(data: bytes) -> bytes:
    """Frames bytes as a TFRecord: the length, and after it and after the bytes their checksums."""
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _remainder(n: int) -> int:
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    return n


_TABLE = tuple(map(_remainder, range(256)))


def crc32c(data: bytes) -> int:
    """Computes the cyclic redundancy check with Castagnoli's polynomial.

    Reference:
        RFC 3720, *Internet Small Computer Systems Interface (iSCSI)*, 2004, section 12.1 and appendix B.4.

    Examples:
        >>> hex(crc32c(b"123456789"))
        '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
