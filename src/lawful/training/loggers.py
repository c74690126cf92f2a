"""What a run tells others while it goes, and how: those that cannot be reached do not stop it.

Curves and times in few characters, and no characters that steer a terminal.
The progress of a run on a terminal, or as plain lines where there is none.
Event files that TensorBoard reads, written without it.
"""

from __future__ import annotations

import atexit
import math
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol, runtime_checkable

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from lawful.checking.formatting import number

if TYPE_CHECKING:
    from lawful.training.run import Run
    from lawful.training.setup import TrainingSetup


@runtime_checkable
class Logger(Protocol):
    """Receives the figures of a run: anything with these three methods will do.

    Examples:
        Keep the smallest loss:

        >>> class Smallest:
        ...     def start(self, run, training):
        ...         self.loss = float("inf")
        ...
        ...     def log(self, step, figures):
        ...         self.loss = min(self.loss, figures["loss"])
        ...
        ...     def close(self):
        ...         pass
        >>> tracker = Smallest()
        >>> isinstance(tracker, Logger)
        True
    """

    def start(self, run: Run, training: TrainingSetup) -> None:
        """Begins, before the first step, or before the next one of a run that is resumed."""

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Takes the figures after a step: `loss`, `learning_rate` and more.

        Those of an evaluation begin with `validation/`. It is called at every step: it is quick, or seldom does much.
        """

    def close(self) -> None:
        """Ends, also after an error or an interruption."""


class Trackers:
    """Tells several trackers the same; one that cannot be reached is told no more, and the training goes on.

    Args:
        told: The trackers.
        say: Where to say that one is told no more.
    """

    def __init__(self, told: list[Logger], say: Callable[[str], None]) -> None:
        self.told, self.say = told, say

    def start(self, run: Run, training: TrainingSetup) -> None:
        """Lets all begin."""
        for tracker in self.told:
            tracker.start(run, training)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Tells all the figures after a step."""
        for tracker in self.told:
            try:
                tracker.log(step, figures)
            except OSError as error:  # a dashboard that cannot be reached is not to end the training
                self.told = [other for other in self.told if other is not tracker]
                self.say(f"{type(tracker).__name__} is told no more: {type(error).__name__}: {error}")

    def close(self) -> None:
        """Lets all end; one that cannot is not to keep others from it."""
        for tracker in self.told:
            with suppress(Exception):
                tracker.close()


WIDTH, LEVELS = 30, "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], *, width: int = WIDTH) -> str:
    """Draws numbers as blocks of eight heights, on a logarithmic scale if they are positive and far apart.

    Each block is the mean of its share of the numbers; one without a finite number is an `x`.

    Examples:
        >>> sparkline([1, 2, 3, 4, 5, 6, 7, 8])
        '▁▂▃▄▅▆▇█'
        >>> sparkline([1000, 100, float("nan"), 1])
        '█▆x▁'
    """
    values = list(values)
    n = min(width, len(values))
    shares = [values[i * len(values) // n : (i + 1) * len(values) // n] for i in range(n)]
    means = [sum(part) / len(part) if (part := [x for x in share if math.isfinite(x)]) else None for share in shares]
    finite = [x for x in means if x is not None]
    if not finite:
        return "x" * n
    low, high = min(finite), max(finite)
    if low > 0 and low * 10 < high:
        means, low, high = [x and math.log(x) for x in means], math.log(low), math.log(high)
    heights = [None if x is None else (x - low) / (high - low) if high > low else 0.0 for x in means]
    return "".join("x" if h is None else LEVELS[min(7, int(8 * h))] for h in heights)


def without_controls(text: str) -> str:
    r"""Replaces what could move the cursor or change its colour, such as an escape character in the name of a class.

    Examples:
        >>> without_controls("a\x1b[31mb")
        'a [31mb'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def duration(seconds: float) -> str:
    """Writes a time.

    Examples:
        >>> duration(75), duration(3700), duration(200000)
        ('1:15', '1:01:40', '2 d 7 h')
    """
    if not math.isfinite(seconds):
        return "-"
    minutes, s = divmod(round(seconds), 60)
    h, m = divmod(minutes, 60)
    if h >= 48:
        return f"{h // 24} d {h % 24} h"
    return f"{h}:{m:02d}:{s:02d}" if h else f"{m}:{s:02d}"


REFRESH_SECONDS, LINE_SECONDS = 0.125, 5.0
MOST = 8
"""The figures of a line, at most."""
EVALUATED = "validation/"
ASCII = str.maketrans(LEVELS + "━─", "_.:-=+*##-")
SHARE = 0.005
"""The share of the time that drawing may take."""


class Terminal:
    """Shows how a run goes: the step, the loss and its recent past, the speed, the time left, the learning rate.

    On a terminal it is drawn anew at most eight times a second, and less often where drawing is slow. Elsewhere there
    are lines: the first step, every tenth of the way, the last step, evaluations that are a second apart, and one
    now and then where those are far apart. An output that can no longer be written to ends the showing, not the run.

    Args:
        console: Where to show it; standard output unless given.
        run: Whose `log.txt` has what is said before a run is shown; otherwise it waits for the run.

    Examples:
        >>> from types import SimpleNamespace
        >>> tracker = Terminal(Console(force_terminal=False))
        >>> tracker.start(SimpleNamespace(log=None), SimpleNamespace(steps=10))
        >>> tracker.log(1, {"loss": 2.5, "learning_rate": 1e-3})
        step 1 of 10 (10 %)  loss 2.5  learning_rate 0.001
        >>> tracker.close()
    """

    def __init__(self, console: Console | None = None, *, run: Run | None = None) -> None:
        self.console = Console(highlight=False) if console is None else console
        self._live: Live | None = None
        self._open = False
        self._run = run
        self._unwritten: list[str] = []

    def start(self, run: Run, training: TrainingSetup) -> None:
        """Begins to show a run."""
        self.close()
        self._open, self._run, self._total = True, run, training.steps or None
        self._losses: deque[float] = deque(maxlen=8 * WIDTH)
        self._marks: deque[tuple[float, int]] = deque(maxlen=8 * WIDTH)
        self._name = "loss"
        self._evaluated: dict[str, float] = {}
        self._sum = self._count = self._step = self._shown = self._evaluated_at = self._told = 0
        self._latest: Mapping[str, float] = {}
        self._began, self._next, self._soon, self._due = time.monotonic(), 0.0, 0.0, 0.0
        self._file(*self._unwritten)
        self._unwritten = []
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            atexit.register(self.close)
            self._live = Live(console=self.console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
            self._safely(self._live.start)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Takes the figures of a step, and shows them if it is time to."""
        self._step, self._latest = step, figures
        if self._name not in figures:
            self._name = "loss" if "loss" in figures else next(iter(figures), "loss")
        self._sum += figures.get(self._name, math.nan)
        self._count += 1
        evaluated = False
        for name in figures:
            if name.startswith(EVALUATED):
                evaluated = True
        now = time.monotonic()
        if evaluated:
            self._evaluated, self._evaluated_at = {k: v for k, v in figures.items() if k.startswith(EVALUATED)}, step
        if now < self._next and step < self._due and not (evaluated and now > self._soon):
            return
        self._show(now)

    def say(self, text: str) -> None:
        """Prints a message, above the progress if there is any, and writes it to `log.txt`."""
        text = without_controls(text)
        self._print(text)
        self.note(text)

    def note(self, text: str) -> None:
        """Writes a message to `log.txt`."""
        stamped = f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}"
        if self._run is None:
            self._unwritten.append(stamped)
        else:
            self._file(stamped)

    def close(self) -> None:
        """Shows the last step, and leaves the terminal as it was."""
        if self._open and self._step != self._shown:
            self._show(time.monotonic())
        live, self._live, self._open = self._live, None, False
        if live is not None:
            atexit.unregister(self.close)
            self._safely(live.stop)

    def _show(self, now: float) -> None:
        if self._count:
            self._losses.append(self._sum / self._count)
        self._sum, self._count, self._shown = 0.0, 0, self._step
        self._marks.append((now, self._step))
        if self._live is None:
            self._print(self._line())
            self._next, self._due = now + max(LINE_SECONDS, (now - self._began) / 10), self._mark()
            self._soon = now + 1
        else:
            live, drawn = self._live, Group(*self._drawn())
            self._safely(lambda: live.update(drawn, refresh=True))
            ended = time.monotonic()
            self._next, self._due = ended + max(REFRESH_SECONDS, (ended - now) / SHARE), math.inf

    def _mark(self) -> int:
        """The step at which a line is printed however soon it comes: the next tenth of the way, or power of ten."""
        if self._total is None:
            return 10 ** len(str(self._step))
        return -(-(self._step * 10 // self._total + 1) * self._total // 10)

    def _where(self) -> str:
        if self._total is None:
            return f"step {self._step:,}"
        return f"step {self._step:,} of {self._total:,} ({self._step / self._total:.0%})".replace("%", " %")

    def _pace(self) -> list[str]:
        (then, first), (now, last) = self._marks[0], self._marks[-1]
        if last <= first or now <= then:
            return []
        speed = (last - first) / (now - then)
        said = [f"{number(speed)} steps/s" if speed >= 1 else f"{number(1 / speed)} s/step"]
        if self._total is not None and self._step < self._total:
            said.append(f"{duration((self._total - self._step) / speed)} left")
        return said

    def _line(self) -> str:
        """The step and its figures, with those of an evaluation since the line before."""
        figures = dict(self._latest) | (self._evaluated if self._evaluated_at > self._told else {})
        self._told = self._step
        said = [f"{name} {number(value)}" for name, value in figures.items()]
        more = [f"and {len(said) - MOST} more"] if len(said) > MOST else []
        return "  ".join([self._where(), *said[:MOST], *more, *self._pace()])

    def _drawn(self) -> list[Text]:
        """The rows on a terminal."""
        width = max(0, min(WIDTH, self.console.width - 60))
        done = round(width * min(1.0, self._step / self._total)) if self._total else 0
        past = f"{number(self._losses[-1])} {sparkline(self._losses)}" if self._losses else "-"
        others = [k for k in self._latest if k != self._name and not k.startswith(EVALUATED)]
        rows = [
            ["━" * done + "─" * (width - done), self._where(), *self._pace()],
            [f"{self._name} {past}", *(f"{name} {number(self._latest[name])}" for name in others)],
        ]
        if self._evaluated:
            evaluated = [f"{name} {number(value)}" for name, value in self._evaluated.items()]
            rows.append([*evaluated, f"(step {self._evaluated_at:,})"])
        texts = [Text(self._printable("  ".join(filter(None, row))), no_wrap=True, overflow="crop") for row in rows]
        texts[0].stylize("cyan", 0, done)
        return texts

    def _printable(self, text: str) -> str:
        """Replaces control characters, and what the output has no code for."""
        text, encoding = without_controls(text), self.console.encoding
        if encoding.startswith("utf"):
            return text
        return text.translate(ASCII).encode(encoding, "replace").decode(encoding)

    def _print(self, text: str) -> None:
        text = self._printable(text)
        if self._live is not None:
            self._safely(lambda: self.console.print(Text(text), soft_wrap=True))
        else:
            self._safely(lambda: print(text, file=self.console.file, flush=True))

    @staticmethod
    def _safely(act: Callable[[], object]) -> None:
        with suppress(OSError, ValueError, RuntimeError):  # gone, closed, or in the middle of a write, by a signal
            act()

    def _file(self, *lines: str) -> None:
        if self._run is not None and lines:
            with suppress(OSError), open(self._run.log, "a", encoding="utf-8", errors="replace") as file:
                file.writelines(line + "\n" for line in lines)


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

    def start(self, run: Run, training: TrainingSetup) -> None:
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
