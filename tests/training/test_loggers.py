import io
import math
import os
import pty
import re
import select
import subprocess
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from lawful.training import ConsoleLogger, Logger, TensorBoardLogger, track
from lawful.training import loggers as loggers_module
from lawful.training.loggers import (
    _LEVELS,
    _evaluation_console,
    _format_duration,
    _Loggers,
    _sparkline,
    strip_control_characters,
)


def test_any_object_with_three_methods_is_a_logger(tmp_path):
    class MetricsList:
        def start(self, run, setup):
            self.metrics = []

        def log(self, step, metrics):
            self.metrics.append((step, dict(metrics)))

        def close(self):
            pass

    for logger in (MetricsList(), ConsoleLogger(), TensorBoardLogger(tmp_path)):
        assert isinstance(logger, Logger)
    assert not isinstance(print, Logger)


class Recorder:
    def __init__(self, error=None):
        self.error, self.calls = error, []

    def start(self, run, setup):
        self.calls.append("start")

    def log(self, step, metrics):
        if self.error:
            raise self.error
        self.calls.append(step)

    def close(self):
        self.calls.append("close")
        raise RuntimeError("closed twice")


def test_a_logger_that_fails_is_dropped():
    first, lost, last, messages = Recorder(), Recorder(OSError("no route")), Recorder(), []
    loggers = _Loggers([first, lost, last], messages.append)
    loggers.start(None, None)
    for step in (1, 2):
        loggers.log(step, {})
    loggers.close()
    assert first.calls == last.calls == ["start", 1, 2, "close"]
    assert lost.calls == ["start"]
    assert messages == ["Recorder is disabled: OSError: no route"]


def console_output(tmp_path, *, steps, total, live=False, width=100, encoding="utf-8", metrics=None, every=None):
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, force_terminal=live, width=width, height=20, color_system=None, legacy_windows=False)
    logger = ConsoleLogger(console)
    logger.start(SimpleNamespace(log=tmp_path / "log.txt", root=tmp_path), SimpleNamespace(steps=total))
    for step in steps:
        evaluated = {"validation/accuracy": 0.75} if every and step % every == 0 else {}
        logger.log(step, (metrics or {"loss": 1 / step, "learning_rate": 0.001}) | evaluated)
    logger.close()
    file.flush()
    return file.buffer.getvalue().decode(encoding)


def numbers(text):
    return [int(line.split()[1].replace(",", "")) for line in text.splitlines()]


def test_lines_without_a_terminal(tmp_path):
    text = console_output(tmp_path, steps=range(1, 1001), total=1000, every=250)
    assert numbers(text) == [1, *range(100, 1001, 100)]
    assert text.splitlines()[0] == "step 1 of 1,000 (0 %)  loss 1  learning_rate 0.001"
    assert re.fullmatch(
        r"step 300 of 1,000 \(30 %\)  loss 0\.003333  learning_rate 0\.001  validation/accuracy 0\.75"
        r"  \S+ steps/s  \d+:\d\d left",
        text.splitlines()[3],
    )
    assert text.count("validation/accuracy") == 4
    assert text.isascii()
    assert "\x1b" not in text
    assert "\r" not in text


def test_a_line_has_at_most_eight_metrics(tmp_path):
    logger = ConsoleLogger(Console(file=io.StringIO(), force_terminal=False))
    logger.start(SimpleNamespace(log=None), SimpleNamespace(steps=10))
    logger.log(1, {f"loss {i}": 1.0 for i in range(20)})
    assert "loss 7 1  and 12 more" in logger.console.file.getvalue()


def test_lines_without_a_number_of_steps(tmp_path):
    text = console_output(tmp_path, steps=range(1, 3001), total=None)
    assert numbers(text) == [1, 10, 100, 1000, 3000]
    assert "of" not in text


def test_lines_of_a_resumed_run(tmp_path):
    assert numbers(console_output(tmp_path, steps=range(555, 1001), total=1000)) == [555, 600, 700, 800, 900, 1000]


def test_lines_of_a_slow_run(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(loggers_module.time, "monotonic", lambda: now[0])
    file = io.StringIO()
    logger = ConsoleLogger(Console(file=file))
    logger.start(SimpleNamespace(log=tmp_path / "log.txt", root=tmp_path), SimpleNamespace(steps=10**6))
    for step in range(1, 3601):
        now[0] += 1.0
        logger.log(step, {"loss": 1.0})
    lines = numbers(file.getvalue())
    assert lines[:4] == [1, 6, 11, 16]
    assert 30 < len(lines) < 80
    assert "1 steps/s  11 d 12 h left" in file.getvalue()


def test_live_display(tmp_path):
    text = console_output(tmp_path, steps=range(1, 101), total=100, live=True, every=50)
    last = text.rsplit("\x1b[2K", 1)[1]
    assert "step 100 of 100 (100 %)" in last
    assert "learning_rate 0.001" in last
    assert "validation/accuracy 0.75  (step 100)" in last
    assert any(block in last for block in _LEVELS)
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1


def test_the_display_is_rarely_redrawn(tmp_path, monkeypatch):
    now = [0.0]

    def later():
        now[0] += 0.0001
        return now[0]

    monkeypatch.setattr(loggers_module.time, "monotonic", later)
    text = console_output(tmp_path, steps=range(1, 20001), total=20000, live=True)
    assert text.count(" of 20,000") <= 8 * now[0] + 4


@pytest.mark.parametrize("width", [1, 2, 9, 20, 59, 61, 300])
@pytest.mark.parametrize("live", [False, True])
def test_any_width(tmp_path, width, live):
    text = console_output(tmp_path, steps=range(1, 20), total=10**9, live=live, width=width, every=3)
    if live:
        rows = re.sub(r"\x1b\[[?0-9]*[A-Za-z]", "", text).replace("\r", "\n").split("\n")
        assert max(map(len, rows)) <= width


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf, 1e300, 0.0, -1.0])
@pytest.mark.parametrize("live", [False, True])
def test_any_loss(tmp_path, loss, live):
    assert f"loss {loss:.4g}" in console_output(
        tmp_path, steps=range(1, 20), total=0, live=live, metrics={"loss": loss}
    )


def test_metrics_of_any_name(tmp_path):
    assert "generator/loss 2" in console_output(
        tmp_path, steps=[1], total=3, live=True, metrics={"generator/loss": 2.0}
    )
    assert "step 1 of 3" in console_output(tmp_path, steps=[1], total=3, live=True, metrics={})


@pytest.mark.parametrize("live", [False, True])
def test_ascii_output(tmp_path, live):
    text = console_output(tmp_path, steps=range(1, 20), total=19, live=live, encoding="ascii", metrics={"loss ü": 2.0})
    assert "loss ? 2" in text


@pytest.mark.parametrize("live", [False, True])
def test_messages_are_printed_and_logged(tmp_path, live):
    file = io.StringIO()
    logger = ConsoleLogger(Console(file=file, force_terminal=live, width=30, legacy_windows=False))
    run = SimpleNamespace(log=tmp_path / "log.txt", root=tmp_path)
    logger.say("before [bold]it[/bold]")
    logger.start(run, SimpleNamespace(steps=5))
    logger.log(1, {"loss": 1.0})
    logger.say("a class named \x1b[31mred\x07 and a sentence that is longer than the terminal is wide")
    logger.close()
    logger.say("after")
    lines = run.log.read_text(encoding="utf-8").splitlines()
    assert [line[21:] for line in lines] == [
        "before [bold]it[/bold]",
        "a class named  [31mred  and a sentence that is longer than the terminal is wide",
        "after",
    ]
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ", line) for line in lines)
    for line in lines:
        assert line[21:] in file.getvalue()
    assert "\x1b[31m" not in file.getvalue()


@pytest.mark.parametrize("live", [False, True])
def test_a_broken_output_does_not_stop_the_run(tmp_path, live):
    class Broken(io.StringIO):
        def write(self, text):
            raise OSError(5, "Input/output error")

    logger = ConsoleLogger(Console(file=Broken(), force_terminal=live, legacy_windows=False))
    logger.start(SimpleNamespace(log=tmp_path / "nowhere" / "log.txt", root=tmp_path), SimpleNamespace(steps=5))
    logger.log(1, {"loss": 1.0})
    logger.say("not written anywhere")
    logger.close()


SCRIPT = """
import sys
from pathlib import Path
from types import SimpleNamespace
from lawful.training.loggers import ConsoleLogger
logger = ConsoleLogger()
logger.start(SimpleNamespace(log=Path("log.txt"), root=Path()), SimpleNamespace(steps=5))
logger.log(1, {"loss": 1.0})
raise %s
"""


LONG = [pytest.param(error, marks=pytest.mark.long) for error in ("ValueError('no')", "SystemExit(3)")]


@pytest.mark.parametrize("error", ["KeyboardInterrupt", *LONG])
def test_the_cursor_is_restored_after_an_error(tmp_path, error):
    master, slave = pty.openpty()
    command = [sys.executable, "-c", SCRIPT % error]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    process = subprocess.Popen(command, stdout=slave, stderr=slave, cwd=tmp_path, env=environment)
    os.close(slave)
    output = b""
    while select.select([master], [], [], 60)[0]:
        try:
            output += os.read(master, 4096)
        except OSError:
            break
    os.close(master)
    assert process.wait() != 0
    assert b"step 1 of 5" in output
    assert output.rindex(b"\x1b[?25h") > output.rindex(b"\x1b[?25l")


def test_a_shared_console_is_restored(tmp_path):
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, legacy_windows=False)
    for _ in range(2):
        logger = ConsoleLogger(console)
        logger.start(SimpleNamespace(log=tmp_path / "log.txt", root=tmp_path), SimpleNamespace(steps=2))
        logger.start(SimpleNamespace(log=tmp_path / "log.txt", root=tmp_path), SimpleNamespace(steps=2))
        logger.close()
        logger.close()
    assert file.getvalue().count("\x1b[?25l") == file.getvalue().count("\x1b[?25h") == 4


def test_sparkline():
    assert _sparkline([]) == ""
    assert _sparkline([2.0]) == "▁"
    assert _sparkline([math.nan] * 3) == "xxx"
    assert _sparkline([-1.0, 0.0, 1.0]) == "▁▅█"
    assert _sparkline([1e-6, 1e-3, 1.0]) == "▁▅█"
    assert len(_sparkline(range(1000))) == 30
    heights = [_LEVELS.index(c) for c in _sparkline(range(1000))]
    assert heights == sorted(heights)
    assert _sparkline([0.0, 1.0, 100.0]) == "▁▁█"


def test_durations():
    times = {0: "0:00", 59.6: "1:00", 3599: "59:59", 3600: "1:00:00", 86400: "24:00:00", 172800: "2 d 0 h"}
    assert {seconds: _format_duration(seconds) for seconds in times} == times
    assert _format_duration(math.inf) == _format_duration(math.nan) == "-"


def test_control_characters_are_stripped():
    assert strip_control_characters("a\x1b]0;title\x07\r\x9b31m\u202eb\n") == "a ]0;title   31m b\n"


def write_events(path, steps, **metrics):
    logger = TensorBoardLogger()
    logger.start(SimpleNamespace(path=path, root=path), SimpleNamespace(steps=10))
    for step in steps:
        logger.log(step, {"loss": 1 / (step + 1), **metrics})
    logger.close()
    logger.close()
    return logger.log_dir


def read_events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {tag: [(value.step, value.value) for value in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_reads_the_events(tmp_path):
    folder = write_events(tmp_path, range(1, 300), learning_rate=0.5, **{"validation/accuracy": 0.25})
    assert folder == tmp_path / "tensorboard"
    events = read_events(folder)
    assert set(events) == {"loss", "learning_rate", "validation/accuracy"}
    assert events["loss"] == [(step, pytest.approx(1 / (step + 1), rel=1e-6)) for step in range(1, 300)]
    assert events["validation/accuracy"][-1] == (299, 0.25)


def test_a_resumed_run_replaces_later_events(tmp_path):
    write_events(tmp_path, range(1, 8))
    folder = write_events(tmp_path, range(5, 11))
    assert len(list(folder.iterdir())) == 2
    assert [step for step, _ in read_events(folder)["loss"]] == list(range(1, 11))


@pytest.mark.parametrize(("value", "expected"), [(math.nan, math.nan), (1e300, math.inf), (-1e300, -math.inf), (0, 0)])
def test_values_beyond_float32(tmp_path, value, expected):
    ((_, found),) = read_events(write_events(tmp_path, [1], odd=value))["odd"]
    assert found == pytest.approx(expected, nan_ok=True)


def test_without_tensorboard_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match=r"pip install 'lawful\[recipes\]'"):
        TensorBoardLogger()


def tracked_output(monkeypatch, *, parts, seconds, live=False):
    now, file = [0.0], io.StringIO()
    monkeypatch.setattr(loggers_module.time, "monotonic", lambda: now[0])
    logger = ConsoleLogger(Console(file=file, force_terminal=live, width=80, color_system=None, legacy_windows=False))
    logger.start(SimpleNamespace(log=None), SimpleNamespace(steps=5))
    with _evaluation_console(logger):
        for part in track(range(parts), "scoring"):
            assert part == round(now[0] / seconds)
            now[0] += seconds
    logger.close()
    return file.getvalue()


def test_progress_of_a_long_evaluation(monkeypatch):
    lines = tracked_output(monkeypatch, parts=60, seconds=1.0).splitlines()
    assert lines[:2] == ["scoring: 2 of 60, 0:58 left", "scoring: 7 of 60, 0:53 left"]
    assert lines[-1] == "scoring: 60 of 60"
    assert 8 < len(lines) < 15


def test_a_short_evaluation_prints_nothing(monkeypatch):
    assert tracked_output(monkeypatch, parts=10, seconds=0.1) == ""


def test_a_terminal_shows_the_progress_of_a_short_evaluation_too(monkeypatch):
    text = tracked_output(monkeypatch, parts=10, seconds=0.1, live=True)
    assert "scoring: 2 of 10, 0:01 left" in text
    assert "scoring: 10 of 10" in text


def test_no_progress_outside_of_an_evaluation(capsys):
    assert [*track([3, 4], "scoring")] == [3, 4]
    assert capsys.readouterr().out == ""
