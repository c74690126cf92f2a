"""The progress of a run on a terminal, or as plain lines where there is none."""

from __future__ import annotations

import atexit
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from lawful.checking.show import number
from lawful.training.shown.characters import LEVELS, WIDTH, duration, sparkline, without_controls

if TYPE_CHECKING:
    from lawful.training.plan import Training
    from lawful.training.run import Run

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

    def start(self, run: Run, training: Training) -> None:
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
