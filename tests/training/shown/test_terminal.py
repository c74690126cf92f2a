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

from lawful.training import loggers as terminal
from lawful.training.loggers import LEVELS, Terminal


def shown(tmp_path, *, steps, total, live=False, width=100, encoding="utf-8", figures=None, every=None):
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, force_terminal=live, width=width, height=20, color_system=None, legacy_windows=False)
    tracker = Terminal(console)
    tracker.start(SimpleNamespace(log=tmp_path / "log.txt"), SimpleNamespace(steps=total))
    for step in steps:
        evaluated = {"validation/accuracy": 0.75} if every and step % every == 0 else {}
        tracker.log(step, (figures or {"loss": 1 / step, "learning_rate": 0.001}) | evaluated)
    tracker.close()
    file.flush()
    return file.buffer.getvalue().decode(encoding)


def numbers(text):
    return [int(line.split()[1].replace(",", "")) for line in text.splitlines()]


def test_lines_where_there_is_no_terminal(tmp_path):
    text = shown(tmp_path, steps=range(1, 1001), total=1000, every=250)
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


def test_a_line_has_not_too_many_figures(tmp_path):
    tracker = Terminal(Console(file=io.StringIO(), force_terminal=False))
    tracker.start(SimpleNamespace(log=None), SimpleNamespace(steps=10))
    tracker.log(1, {f"loss {i}": 1.0 for i in range(20)})
    assert "loss 7 1  and 12 more" in tracker.console.file.getvalue()


def test_lines_of_a_run_without_an_end(tmp_path):
    text = shown(tmp_path, steps=range(1, 3001), total=None)
    assert numbers(text) == [1, 10, 100, 1000, 3000]
    assert "of" not in text


def test_a_resumed_run_begins_where_it_was(tmp_path):
    assert numbers(shown(tmp_path, steps=range(555, 1001), total=1000)) == [555, 600, 700, 800, 900, 1000]


def test_a_slow_run_has_a_line_now_and_then_and_ever_fewer(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    file = io.StringIO()
    tracker = Terminal(Console(file=file))
    tracker.start(SimpleNamespace(log=tmp_path / "log.txt"), SimpleNamespace(steps=10**6))
    for step in range(1, 3601):
        now[0] += 1.0
        tracker.log(step, {"loss": 1.0})
    lines = numbers(file.getvalue())
    assert lines[:4] == [1, 6, 11, 16]
    assert 30 < len(lines) < 80
    assert "1 steps/s  11 d 12 h left" in file.getvalue()


def test_a_terminal_shows_all_in_few_rows(tmp_path):
    text = shown(tmp_path, steps=range(1, 101), total=100, live=True, every=50)
    last = text.rsplit("\x1b[2K", 1)[1]
    assert "step 100 of 100 (100 %)" in last
    assert "learning_rate 0.001" in last
    assert "validation/accuracy 0.75  (step 100)" in last
    assert any(block in last for block in LEVELS)
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1


def test_it_is_drawn_seldom(tmp_path, monkeypatch):
    now = [0.0]

    def later():
        now[0] += 0.0001
        return now[0]

    monkeypatch.setattr(terminal.time, "monotonic", later)
    text = shown(tmp_path, steps=range(1, 20001), total=20000, live=True)
    assert text.count(" of 20,000") <= 8 * now[0] + 4


@pytest.mark.parametrize("width", [1, 2, 9, 20, 59, 61, 300])
@pytest.mark.parametrize("live", [False, True])
def test_any_width_will_do(tmp_path, width, live):
    text = shown(tmp_path, steps=range(1, 20), total=10**9, live=live, width=width, every=3)
    if live:
        rows = re.sub(r"\x1b\[[?0-9]*[A-Za-z]", "", text).replace("\r", "\n").split("\n")
        assert max(map(len, rows)) <= width


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf, 1e300, 0.0, -1.0])
@pytest.mark.parametrize("live", [False, True])
def test_any_loss_will_do(tmp_path, loss, live):
    assert f"loss {loss:.4g}" in shown(tmp_path, steps=range(1, 20), total=0, live=live, figures={"loss": loss})


def test_figures_of_any_name_will_do(tmp_path):
    assert "generator/loss 2" in shown(tmp_path, steps=[1], total=3, live=True, figures={"generator/loss": 2.0})
    assert "step 1 of 3" in shown(tmp_path, steps=[1], total=3, live=True, figures={})


@pytest.mark.parametrize("live", [False, True])
def test_an_output_without_blocks_gets_other_signs(tmp_path, live):
    text = shown(tmp_path, steps=range(1, 20), total=19, live=live, encoding="ascii", figures={"loss ü": 2.0})
    assert "loss ? 2" in text


@pytest.mark.parametrize("live", [False, True])
def test_messages_stand_above_and_in_the_log(tmp_path, live):
    file = io.StringIO()
    tracker = Terminal(Console(file=file, force_terminal=live, width=30, legacy_windows=False))
    run = SimpleNamespace(log=tmp_path / "log.txt")
    tracker.say("before [bold]it[/bold]")
    tracker.start(run, SimpleNamespace(steps=5))
    tracker.log(1, {"loss": 1.0})
    tracker.say("a class named \x1b[31mred\x07 and a sentence that is longer than the terminal is wide")
    tracker.close()
    tracker.say("after")
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
def test_an_output_that_breaks_ends_the_showing_and_not_the_run(tmp_path, live):
    class Broken(io.StringIO):
        def write(self, text):
            raise OSError(5, "Input/output error")

    tracker = Terminal(Console(file=Broken(), force_terminal=live, legacy_windows=False))
    tracker.start(SimpleNamespace(log=tmp_path / "nowhere" / "log.txt"), SimpleNamespace(steps=5))
    tracker.log(1, {"loss": 1.0})
    tracker.say("not written anywhere")
    tracker.close()


SCRIPT = """
import sys
from types import SimpleNamespace
from lawful.training.loggers import Terminal
tracker = Terminal()
tracker.start(SimpleNamespace(log="log.txt"), SimpleNamespace(steps=5))
tracker.log(1, {"loss": 1.0})
raise %s
"""


LONG = [pytest.param(error, marks=pytest.mark.long) for error in ("ValueError('no')", "SystemExit(3)")]


@pytest.mark.parametrize("error", ["KeyboardInterrupt", *LONG])
def test_the_cursor_comes_back_after_an_error(tmp_path, error):
    master, slave = pty.openpty()
    command = [sys.executable, "-c", SCRIPT % error]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    process = subprocess.Popen(command, stdout=slave, stderr=slave, cwd=tmp_path, env=environment)
    os.close(slave)
    said = b""
    while select.select([master], [], [], 60)[0]:
        try:
            said += os.read(master, 4096)
        except OSError:
            break
    os.close(master)
    assert process.wait() != 0
    assert b"step 1 of 5" in said
    assert said.rindex(b"\x1b[?25h") > said.rindex(b"\x1b[?25l")


def test_a_part_of_ones_own_console_is_left_as_it_was(tmp_path):
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, legacy_windows=False)
    for _ in range(2):
        tracker = Terminal(console)
        tracker.start(SimpleNamespace(log=tmp_path / "log.txt"), SimpleNamespace(steps=2))
        tracker.start(SimpleNamespace(log=tmp_path / "log.txt"), SimpleNamespace(steps=2))
        tracker.close()
        tracker.close()
    assert file.getvalue().count("\x1b[?25l") == file.getvalue().count("\x1b[?25h") == 4
