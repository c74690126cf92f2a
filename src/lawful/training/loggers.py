"""Loggers: the console, TensorBoard, and any object with three methods."""

from __future__ import annotations

import atexit
import math
import secrets
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from lawful._files import create_folder, open_append, pin_folder
from lawful._names import printable
from lawful.checking.formatting import format_number

if TYPE_CHECKING:
    from lawful.training.run import Run
    from lawful.training.setup import TrainingSetup


@runtime_checkable
class Logger(Protocol):
    """Receives the metrics of a run: any object with these three methods.

    Examples:
        Track the smallest loss:

        >>> class SmallestLoss:
        ...     def start(self, run, setup):
        ...         self.loss = float("inf")
        ...
        ...     def log(self, step, metrics):
        ...         self.loss = min(self.loss, metrics["loss"])
        ...
        ...     def close(self):
        ...         pass
        >>> isinstance(SmallestLoss(), Logger)
        True
    """

    def start(self, run: Run, setup: TrainingSetup) -> None:
        """Called before the first step, also of a resumed run."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Called after every step with `loss`, `learning_rate` and others; `validation/` marks validation metrics."""

    def close(self) -> None:
        """Called at the end, also after an error or an interruption."""


class _Loggers:
    """Forwards to several loggers. One that raises an OSError, such as a lost connection, is dropped.

    Args:
        active: The loggers.
        say: Prints a message.
    """

    def __init__(self, active: list[Logger], say: Callable[[str], None]) -> None:
        self.active, self.say = active, say

    def start(self, run: Run, setup: TrainingSetup) -> None:
        for logger in self.active:
            logger.start(run, setup)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for logger in self.active:
            try:
                logger.log(step, metrics)
            except OSError as error:
                self.active = [other for other in self.active if other is not logger]
                self.say(f"{type(logger).__name__} is disabled: {type(error).__name__}: {error}")

    def close(self) -> None:
        for logger in self.active:
            with suppress(Exception):
                logger.close()


class TensorBoardLogger:
    """Writes metrics with `torch.utils.tensorboard.SummaryWriter`. View them with `tensorboard --logdir RUN`.

    A resumed run writes another file; TensorBoard then hides the later steps of the first file.

    Args:
        log_dir: Folder of the event files. Defaults to `tensorboard` in the run's folder.

    Raises:
        ImportError: If TensorBoard is not installed.

    Examples:
        >>> from tempfile import mkdtemp
        >>> logger = TensorBoardLogger(mkdtemp())
        >>> logger.start(None, None)
        >>> logger.log(1, {"loss": 0.5, "validation/accuracy": 0.9})
        >>> logger.close()
        >>> [path.name[:19] for path in logger.log_dir.iterdir()]
        ['events.out.tfevents']
    """

    def __init__(self, log_dir: Path | str | None = None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError("TensorBoard is not installed. Install it with: pip install 'lawful[recipes]'") from error
        self.log_dir = None if log_dir is None else Path(log_dir)
        self._summary_writer = SummaryWriter
        self._writer: Any = None
        self._root: Path | None = None
        self._stack = ExitStack()

    def start(self, run: Run, setup: TrainingSetup) -> None:
        """Sets the folder."""
        self.close()
        if self.log_dir is None:
            self.log_dir, self._root = run.path / "tensorboard", run.root

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Writes the metrics of a step."""
        if self._writer is None:
            self._writer = self._open(step)
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Closes the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._stack.close()

    def _open(self, step: int) -> Any:
        """Opens an event file with a name that nobody can predict, in a folder that is no link inside the run."""
        folder = Path(self.log_dir or ".")
        create_folder(folder, root=self._root)
        place = self._stack.enter_context(pin_folder(folder, root=self._root))
        suffix = f".{secrets.token_hex(8)}"
        return self._summary_writer(str(place), purge_step=step, flush_secs=2, filename_suffix=suffix)


_WIDTH, _LEVELS = 30, "▁▂▃▄▅▆▇█"


def _sparkline(values: Sequence[float], *, width: int = _WIDTH) -> str:
    """Draws numbers as blocks of eight heights, on a log scale if they are positive and span a factor of ten.

    A block is the mean of several numbers; a block without finite numbers is an `x`.

    Examples:
        >>> _sparkline([1, 2, 3, 4, 5, 6, 7, 8])
        '▁▂▃▄▅▆▇█'
        >>> _sparkline([1000, 100, float("nan"), 1])
        '█▆x▁'
    """
    values = list(values)
    n = min(width, len(values))
    chunks = [values[i * len(values) // n : (i + 1) * len(values) // n] for i in range(n)]
    means = [sum(part) / len(part) if (part := [x for x in chunk if math.isfinite(x)]) else None for chunk in chunks]
    finite = [x for x in means if x is not None]
    if not finite:
        return "x" * n
    low, high = min(finite), max(finite)
    if low > 0 and low * 10 < high:
        means, low, high = [x and math.log(x) for x in means], math.log(low), math.log(high)
    heights = [None if x is None else (x - low) / (high - low) if high > low else 0.0 for x in means]
    return "".join("x" if h is None else _LEVELS[min(7, int(8 * h))] for h in heights)


def strip_control_characters(text: str) -> str:
    r"""Replaces control characters, such as an escape sequence in a class name, by spaces.

    Examples:
        >>> strip_control_characters("a\x1b[31mb")
        'a [31mb'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def _format_duration(seconds: float) -> str:
    """Formats a duration.

    Examples:
        >>> _format_duration(75), _format_duration(3700), _format_duration(200000)
        ('1:15', '1:01:40', '2 d 7 h')
    """
    if not math.isfinite(seconds):
        return "-"
    minutes, s = divmod(round(seconds), 60)
    h, m = divmod(minutes, 60)
    if h >= 48:
        return f"{h // 24} d {h % 24} h"
    return f"{h}:{m:02d}:{s:02d}" if h else f"{m}:{s:02d}"


_REFRESH_SECONDS, _LINE_SECONDS, _QUIET_SECONDS = 0.125, 5.0, 2.0
_MAX_METRICS = 8
"""Maximum number of metrics in a line."""
_VALIDATION = "validation/"
_ASCII = str.maketrans(_LEVELS + "━─", "_.:-=+*##-")
_DRAW_FRACTION = 0.005
"""Fraction of the time that drawing may take."""


class ConsoleLogger:
    """Shows the progress of a run: step, loss and its history, speed, remaining time, learning rate.

    A terminal shows a live display, redrawn at most eight times a second. Other outputs get lines: the first step,
    every 10 % of the steps, evaluations at least a second apart, and one every few seconds otherwise. A closed output
    does not stop the training.

    Args:
        console: Console to print to. Defaults to standard output.
        run: Run whose `log.txt` receives messages before `start`. By default they wait for `start`.

    Examples:
        >>> from types import SimpleNamespace
        >>> logger = ConsoleLogger(Console(force_terminal=False))
        >>> logger.start(SimpleNamespace(log=None), SimpleNamespace(steps=10))
        >>> logger.log(1, {"loss": 2.5, "learning_rate": 1e-3})
        step 1 of 10 (10 %)  loss 2.5  learning_rate 0.001
        >>> logger.close()
    """

    def __init__(self, console: Console | None = None, *, run: Run | None = None) -> None:
        self.console = Console(highlight=False) if console is None else console
        self._live: Live | None = None
        self._open = False
        self._run = run
        self._early_messages: list[str] = []

    def start(self, run: Run, setup: TrainingSetup) -> None:
        """Starts the display."""
        self.close()
        self._open, self._run, self._total = True, run, setup.steps or None
        self._losses: deque[float] = deque(maxlen=8 * _WIDTH)
        self._marks: deque[tuple[float, int]] = deque(maxlen=8 * _WIDTH)
        self._name = "loss"
        self._validation: dict[str, float] = {}
        self._sum = self._count = self._step = self._shown_step = self._validation_step = self._printed_step = 0
        self._latest: Mapping[str, float] = {}
        self._start, self._next_time, self._next_validation, self._due_step = time.monotonic(), 0.0, 0.0, 0.0
        self._write_log(*self._early_messages)
        self._early_messages = []
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            atexit.register(self.close)
            self._live = Live(console=self.console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
            self._ignore_errors(self._live.start)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Receives the metrics of a step, and shows them if it is time."""
        self._step, self._latest = step, metrics
        if self._name not in metrics:
            self._name = "loss" if "loss" in metrics else next(iter(metrics), "loss")
        self._sum += metrics.get(self._name, math.nan)
        self._count += 1
        evaluated = any(name.startswith(_VALIDATION) for name in metrics)
        now = time.monotonic()
        if evaluated:
            self._validation, self._validation_step = (
                {k: v for k, v in metrics.items() if k.startswith(_VALIDATION)},
                step,
            )
        if now < self._next_time and step < self._due_step and not (evaluated and now > self._next_validation):
            return
        self._show(now)

    def say(self, text: str) -> None:
        """Prints a message above the display, and writes it to `log.txt`."""
        self._print(text)
        self.note(text)

    def note(self, text: str) -> None:
        """Writes a message to `log.txt`."""
        stamped = f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {printable(text)}"
        if self._run is None:
            self._early_messages.append(stamped)
        else:
            self._write_log(stamped)

    def close(self) -> None:
        """Shows the last step, and ends the display."""
        if self._open and self._step != self._shown_step:
            self._show(time.monotonic())
        live, self._live, self._open = self._live, None, False
        if live is not None:
            atexit.unregister(self.close)
            self._ignore_errors(live.stop)

    def show_progress(self, description: str, done: int, total: int, *, seconds: float) -> None:
        """Shows the progress of an evaluation.

        Args:
            description: Description of the evaluation.
            done: Number of finished parts.
            total: Number of parts.
            seconds: Time since the first part began.
        """
        text = f"{description}: {done} of {total}"
        if 0 < done < total:
            text += f", {_format_duration(seconds / done * (total - done))} left"
        if self._live is None:
            self._print(text)
        else:
            row = Text(self._printable(text), no_wrap=True, overflow="crop")
            live, display = self._live, Group(*(self._rows() if self._marks else ()), row)
            self._ignore_errors(lambda: live.update(display, refresh=True))

    @property
    def progress_seconds(self) -> tuple[float, float]:
        """Seconds before the first display of the progress of an evaluation, and between two of them."""
        return (0.0, _REFRESH_SECONDS) if self._live is not None else (_QUIET_SECONDS, _LINE_SECONDS)

    def _show(self, now: float) -> None:
        if self._count:
            self._losses.append(self._sum / self._count)
        self._sum, self._count, self._shown_step = 0.0, 0, self._step
        self._marks.append((now, self._step))
        if self._live is None:
            self._print(self._line())
            self._next_time, self._due_step = now + max(_LINE_SECONDS, (now - self._start) / 10), self._next_line_step()
            self._next_validation = now + 1
        else:
            live, display = self._live, Group(*self._rows())
            self._ignore_errors(lambda: live.update(display, refresh=True))
            ended = time.monotonic()
            self._next_time, self._due_step = ended + max(_REFRESH_SECONDS, (ended - now) / _DRAW_FRACTION), math.inf

    def _next_line_step(self) -> int:
        """Returns the step of the next line: the next 10 % of the steps, or power of ten."""
        if self._total is None:
            return 10 ** len(str(self._step))
        return -(-(self._step * 10 // self._total + 1) * self._total // 10)

    def _position(self) -> str:
        if self._total is None:
            return f"step {self._step:,}"
        return f"step {self._step:,} of {self._total:,} ({self._step / self._total:.0%})".replace("%", " %")

    def _speed(self) -> list[str]:
        (then, first), (now, last) = self._marks[0], self._marks[-1]
        if last <= first or now <= then:
            return []
        speed = (last - first) / (now - then)
        texts = [f"{format_number(speed)} steps/s" if speed >= 1 else f"{format_number(1 / speed)} s/step"]
        if self._total is not None and self._step < self._total:
            texts.append(f"{_format_duration((self._total - self._step) / speed)} left")
        return texts

    def _line(self) -> str:
        """Returns the step and its metrics, and the validation metrics since the last line."""
        metrics = dict(self._latest) | (self._validation if self._validation_step > self._printed_step else {})
        self._printed_step = self._step
        texts = [f"{name} {format_number(value)}" for name, value in metrics.items()]
        more = [f"and {len(texts) - _MAX_METRICS} more"] if len(texts) > _MAX_METRICS else []
        return "  ".join([self._position(), *texts[:_MAX_METRICS], *more, *self._speed()])

    def _rows(self) -> list[Text]:
        """Returns the rows of the live display."""
        width = max(0, min(_WIDTH, self.console.width - 60))
        done = round(width * min(1.0, self._step / self._total)) if self._total else 0
        history = f"{format_number(self._losses[-1])} {_sparkline(self._losses)}" if self._losses else "-"
        others = [k for k in self._latest if k != self._name and not k.startswith(_VALIDATION)]
        rows = [
            ["━" * done + "─" * (width - done), self._position(), *self._speed()],
            [f"{self._name} {history}", *(f"{name} {format_number(self._latest[name])}" for name in others)],
        ]
        if self._validation:
            validation = [f"{name} {format_number(value)}" for name, value in self._validation.items()]
            rows.append([*validation, f"(step {self._validation_step:,})"])
        texts = [Text(self._printable("  ".join(filter(None, row))), no_wrap=True, overflow="crop") for row in rows]
        texts[0].stylize("cyan", 0, done)
        return texts

    def _printable(self, text: str) -> str:
        """Replaces control characters, and characters that the output cannot encode."""
        text, encoding = printable(text), self.console.encoding
        if encoding.startswith("utf"):
            return text
        return text.translate(_ASCII).encode(encoding, "replace").decode(encoding)

    def _print(self, text: str) -> None:
        text = self._printable(text)
        if self._live is not None:
            self._ignore_errors(lambda: self.console.print(Text(text), soft_wrap=True))
        else:
            self._ignore_errors(lambda: print(text, file=self.console.file, flush=True))

    @staticmethod
    def _ignore_errors(act: Callable[[], object]) -> None:
        with suppress(OSError, ValueError, RuntimeError):  # closed, or called by a signal during a write
            act()

    def _write_log(self, *lines: str) -> None:
        if self._run is not None and lines:
            with suppress(OSError), open_append(self._run.log, root=self._run.root) as file:
                file.write("".join(line + "\n" for line in lines).encode("utf-8", "replace"))


# ---------------------------------------------------------------- progress of an evaluation

_T = TypeVar("_T")
_CONSOLE: ContextVar[ConsoleLogger | None] = ContextVar("_CONSOLE", default=None)
"""Console of the training that is being evaluated."""


@contextmanager
def _evaluation_console(console: ConsoleLogger | None = None) -> Iterator[None]:
    """Lets `track` write to a console, by default to standard error."""
    token = _CONSOLE.set(ConsoleLogger(Console(stderr=True, highlight=False)) if console is None else console)
    try:
        yield
    finally:
        _CONSOLE.reset(token)


def track(items: Collection[_T], description: str) -> Iterator[_T]:
    """Yields items, and shows the progress and the remaining time on the console of the training.

    Use it in `Recipe.finish` for loops that take more than a few seconds. Elsewhere it shows nothing. An output that is
    not a terminal gets a line every few seconds, and none for short loops.

    Args:
        items: Items, such as batches.
        description: Description of the task, such as `scoring 64 test images`.

    Examples:
        >>> [2 * i for i in track(range(3), "doubling")]
        [0, 2, 4]
    """
    console, start = _CONSOLE.get(), time.monotonic()
    if console is None:
        yield from items
        return
    first, every = console.progress_seconds
    due, shown = start + first, False
    for done, item in enumerate(items):
        if (now := time.monotonic()) >= due:
            console.show_progress(description, done, len(items), seconds=now - start)
            due, shown = now + max(every, (now - start) / 10), True
        yield item
    if shown:
        console.show_progress(description, len(items), len(items), seconds=time.monotonic() - start)
