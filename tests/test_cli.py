"""The command line: clear messages, the right exit codes, no tracebacks, and one failure does not stop the others."""

import io
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

from lawful.checking import _child, isolation
from lawful.cli import main

TARGETS = Path(__file__).with_name("targets.py")


class InProcess:
    """Replaces the child process of a check: importing PyTorch again would take seconds for each test."""

    def __init__(self, *_, **__):
        self.stdin, self.stdout = io.StringIO(), io.StringIO()
        self.stdin.close = self.run

    def run(self):
        del self.stdin.close  # or garbage collection would run the check again
        lines = []
        _child.run(json.loads(self.stdin.getvalue()), lambda message: lines.append(json.dumps(message) + "\n"))
        self.stdout = io.StringIO("".join(lines))

    def wait(self):
        return 0

    def kill(self):
        pass


@pytest.fixture
def in_process(monkeypatch):
    """Runs checks in this process."""
    monkeypatch.setattr(isolation, "subprocess", SimpleNamespace(Popen=InProcess, PIPE=None))


def lawful(capfd, *arguments):
    code = main([str(a) for a in arguments])
    shown = capfd.readouterr()
    assert "Traceback" not in shown.out + shown.err
    return code, shown.out + shown.err


def check(capfd, name, *laws, input="b t 4", cases=20, extra=()):
    named = [part for law in laws for part in ("--law", law)]
    given = ("--input", input) if input else ()
    return lawful(capfd, "check", f"{TARGETS}:{name}", *named, *given, "--cases", cases, *extra)


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("Good", 0, "held         Good  causality(time=1)"),
        ("factory", 0, "held         factory  causality(time=1)"),
        ("instance", 0, "held         instance  causality(time=1)"),
        ("double", 0, "held         double  causality(time=1)"),
        ("Leaks", 1, "refuted      Leaks  causality(time=1)"),
        ("Raises", 1, "the map raised on x [1, 4, 4]: RuntimeError: too long for me"),
        ("ReturnsNone", 1, "got None"),
        ("ReturnsWords", 1, "got a tuple without tensors"),
        ("Ragged", 1, "the law applies in some cases only"),
        ("NotANumber", 1, "is nan"),
        ("NeedsGPU", 1, "the map raised on x [1, 2, 4]:"),
        ("Exits", 1, "SystemExit: 7"),
        ("WantsArguments", 1, "missing 1 required positional argument: 'd'; use a factory"),
        ("HasNoWeights", 1, "HasNoWeights() raised OSError: no weights here"),
        ("number", 4, "number must be a module, a class, a factory or a function, got int"),
        ("Leak", 4, "has no attribute Leak: did you mean Leaks?"),
    ],
)
def test_targets(capfd, in_process, name, code, message):
    found, shown = check(capfd, name, "causality")
    assert message in shown
    assert found == code


@pytest.mark.parametrize(
    ("law", "code", "message"),
    [
        ("causalty", 4, "no law named causalty: did you mean causality?"),
        ("causality:tim=1", 4, "causality has no parameter tim: did you mean time?"),
        ("causality:time=7", 4, "time=7 is out of range for an input of shape"),
        ("causality:time=soon", 4, "causality: time must be an axis (an integer), got 'soon'"),
        ("causality:rtol=2", 4, "rtol must be in [0, 1), got 2"),
        ("locality", 4, "locality needs radius"),
        ("locality:radius=-1", 4, "radius must be at least 0, got -1"),
        ("masked_positions_have_no_influence", 4, "needs 2 inputs, got 1"),
        ("causality:input=y", 4, "no input 'y'"),
        ("causality:output=3", 4, "the map has no output 3"),
        (f"{TARGETS}:number", 4, "is not a law but a int"),
        (f"{TARGETS}:returns_a_bool", 1, "a law must return a statement, such as Equal(left, right), got bool"),
        (f"{TARGETS}:raises_an_error", 1, "the law raised KeyError: 'a mistake in the law'"),
        (f"{TARGETS}:oddness", 0, "held         double  oddness()"),
        (f"agreement:other={TARGETS}:double", 0, "held         double  agreement(other=double)"),
        ("agreement:other=double", 4, "function has no method 'double'"),
        (f"{TARGETS}:repeats_a_call", 5, "none of 20 cases tested the map"),
        ("batch_independence:batch=-1", 0, "held         double  batch_independence(batch=-1)"),
    ],
)
def test_laws(capfd, in_process, law, code, message):
    found, shown = check(capfd, "double", law)
    assert message in shown
    assert found == code


@pytest.mark.parametrize(
    ("law", "code", "message"),
    [
        ("weight_sharing:names=embedding.weight,output.weight", 0, "held         Tied  weight_sharing"),
        ("weight_sharing:names=embedding.weight, output.weight,rtol=1e-3", 0, "held         Tied  weight_sharing"),
        ("weight_sharing:names=('embedding.weight', 'output.weight')", 0, "held         Tied  weight_sharing"),
        ("weight_sharing:names=embedding.weight,output.bias", 4, "the module has no parameter 'output.bias'"),
        ("weight_sharing:names=embedding.weight", 4, "expected two or more parameters of the same shape"),
        ("scale_free_weights:weights=output.weight", 1, "refuted      Tied  scale_free_weights"),
        ("agreement:other=forward_reference", 0, "held         Tied  agreement(other='forward_reference')"),
        ("agreement:other=forward_referenc", 4, "no method 'forward_referenc': did you mean forward_reference?"),
    ],
)
def test_laws_with_names(capfd, in_process, law, code, message):
    found, shown = check(capfd, "Tied", law, input="tokens(b t, vocab_size=5)", cases=10)
    assert message in shown
    assert found == code


def test_errors_do_not_stop_other_laws(capfd, in_process):
    code, shown = check(capfd, "double", "causalty", "causality", "causality:time=9", "linearity")
    assert code == 4
    assert shown.count("held ") == 2
    code, shown = check(capfd, "ReturnsNone", "causality", "no_mutation")
    assert code == 1
    assert "held         ReturnsNone  no_mutation()" in shown


def test_a_map_that_hangs_is_stopped(capfd):
    code, shown = check(capfd, "Hangs", "causality", "sums_to_one", extra=("--timeout", 0.2))
    assert code == 1
    assert shown.count("timed out after 0.2 s") == 2


def test_a_map_that_ends_the_process(capfd):
    code, shown = check(capfd, "Dies", "causality")
    assert code == 1
    assert "the process ended (SIGABRT)" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["check", "nosuch.module:Name"], 4, "no module named nosuch.module"),
        (["check", "nosuch.py:Name"], 4, "no such file: nosuch.py"),
        (["check", f"{TARGETS}:double", "--law", "causality"], 4, "causality needs an input"),
        (
            ["check", f"{TARGETS}:double", "--law", "causality", "--input", "b t("],
            4,
            "expected an input such as 'b t 16'",
        ),
        (
            ["check", f"{TARGETS}:double", "--law", "causality", "--input", "b 0"],
            4,
            "an axis must have size at least 1, got 0",
        ),
        (["check", f"{TARGETS}:double", "--input", "x=b 4", "--input", "b 4"], 4, "name all inputs or none"),
        (["check", str(TARGETS), "--law", "causality"], 4, "--law and --input need a single target"),
        (["check", "--cases", "0"], 4, "--cases must be from 1 to 1,000,000, got 0"),
        (["check", "--cases", "100000000000"], 4, "--cases must be from 1 to 1,000,000, got 100000000000"),
        (["discover", "x.py:X", "--cases", "100000000000"], 4, "--cases must be from 1 to 1,000,000, got 100000000000"),
        (["check", "--seed", "-1"], 4, "--seed must be from 0 to 2^32 - 1, got -1"),
        (["check", "--seed", "100000000000"], 4, "--seed must be from 0 to 2^32 - 1, got 100000000000"),
        (["check", "--timeout", "nan"], 4, "--timeout must be positive and at most 1,000,000 seconds, got nan"),
        (["check", "--timeout", "1e300"], 4, "--timeout must be positive and at most 1,000,000 seconds, got 1e+300"),
        (["check", "--cases", "many"], 4, "many"),
        (["check", "--wrong"], 4, "--wrong"),
        (["check", str(TARGETS)], 5, "nothing was checked"),
        (["laws", "causalty"], 4, "did you mean causality?"),
        (["laws"], 0, "batch_independence"),
        (["laws", "locality"], 0, "radius: int (required)"),
        (["--help"], 0, "check"),
    ],
)
def test_usage(capfd, in_process, arguments, code, message):
    found, shown = lawful(capfd, *arguments)
    assert message in shown
    assert found == code


def test_vacuous_is_not_held(capfd, in_process):
    code, shown = check(capfd, "double", "causality", input="b 1 4")
    assert code == 5
    assert "vacuous" in shown


def test_import_error(capfd, in_process, tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("raise KeyError('missing thing')")
    code, shown = lawful(capfd, "check", f"{path}:Name", "--law", "causality", "--input", "b 4")
    assert code == 1
    assert "raised KeyError: 'missing thing'" in shown


def test_debug_shows_the_traceback(capfd, in_process):
    main(["check", f"{TARGETS}:Raises", "--law", "causality", "--input", "b t 4", "--debug"])
    assert "Traceback" in capfd.readouterr().out


def test_json_is_documented(capfd, in_process, tmp_path):
    path = tmp_path / "report.json"
    check(capfd, "Leaks", "causality", "linearity", extra=("--json", path))
    report = json.loads(path.read_text())
    documented = (Path(__file__).parents[1] / "docs/command-line.md").read_text()
    refuted, held = report["verdicts"]
    assert (refuted["status"], held["status"], report["exit_code"]) == ("refuted", "held", 1)
    assert refuted["counterexample"]["inputs"][0]["shape"] == [1, 2, 4]
    for field in (*report, *refuted, *refuted["counterexample"], *refuted["counterexample"]["inputs"][0]):
        assert f"`{field}`" in documented, field


def test_standard_output_contains_only_json(capfd):
    main(["check", f"{TARGETS}:Talks", "--law", "linearity", "--input", "b 4", "--cases", "2", "--json", "-"])
    shown = capfd.readouterr()
    assert json.loads(shown.out)["verdicts"][0]["status"] == "held"
    assert "text on standard output" in shown.err


def test_scripts_are_standalone(capfd, in_process, tmp_path):
    path = tmp_path / "leak.py"
    code, shown = check(
        capfd, "Leaks", "causality", f"{TARGETS}:oddness", "locality:radius=0", extra=("--script", path)
    )
    assert code == 1
    assert f"wrote {path}" in shown
    assert path.with_stem("leak-2").exists()
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=60)
    left, right = (float(line.split()[1]) for line in done.stdout.splitlines())
    assert left != right
    assert "lawful.check" not in path.read_text()


def test_the_same_seed_gives_the_same_counterexample(capfd, in_process, tmp_path):
    reports = []
    for seed in (3, 3):
        path = tmp_path / f"{len(reports)}.json"
        check(capfd, "Leaks", "causality", extra=("--seed", seed, "--json", path))
        reports.append(json.loads(path.read_text())["verdicts"][0]["counterexample"])
    assert reports[0] == reports[1]


def test_no_color_and_no_progress_outside_a_terminal(capfd, in_process):
    _, shown = check(capfd, "Leaks", "causality")
    assert "\x1b" not in shown


def test_interrupt(monkeypatch, capfd):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["lawful.cli.check"], "run_request", interrupt)
    assert lawful(capfd, "check") == (2, "lawful: interrupted\n")


def test_internal_error(monkeypatch, capfd):
    def fail(*_):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(sys.modules["lawful.cli.check"], "run_request", fail)
    assert lawful(capfd, "check") == (3, "lawful: internal error: ZeroDivisionError: a bug\n")


def test_the_command_line_does_not_import_torch():
    code = "import sys, lawful.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.parametrize("words", ["train --help", "laws", "check --help"])
def test_a_pipe_to_head_ends_quietly(words):
    command = f"set -o pipefail; {sys.executable} -W error -m lawful {words} | head -n 0"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.returncode in (0, 2)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"lawful {version('lawful')}\n"


def test_the_list_of_commands_has_a_line_each(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert "Export a trained model" in text
    assert "Batch size and sequence length are dynamic" not in text
    assert "lawful --version" in text
    assert main(["export", "--help"]) == 0
    assert "Batch size and sequence length are dynamic" in capsys.readouterr().out


def test_a_misspelled_command(capsys):
    assert main(["chek", "module.py"]) == 4
    assert "there is no command chek: did you mean check? See lawful --help" in capsys.readouterr().err


def test_a_null_character_in_an_argument(capsys):
    assert main(["runs", "a\0b"]) == 4
    assert capsys.readouterr().err == "lawful: error: an argument contains a NUL character\n"


def test_an_empty_target_is_not_the_whole_library(capsys):
    for target in ("", " "):
        assert main(["check", target]) == 4
        assert f"no module named {target!r} (a target is" in capsys.readouterr().err
