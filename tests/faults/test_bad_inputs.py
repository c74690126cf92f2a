"""Bad files, options and run folders end with a sentence and a documented exit code, whatever the command."""

import os
import signal
from importlib import import_module

import pytest

from tests.faults import bad_inputs
from tests.faults.bad_inputs import DATA, QUICK, Outcome, run_cases

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux")


@pytest.fixture
def no_patches():
    """`run_cases` patches the figures and the training loop of its process."""
    from lawful.probe import figures
    from lawful.training import loop

    kept = figures.save, loop._TrainingLoop.step
    yield
    figures.save, loop._TrainingLoop.step = kept


def describe(failed):
    return "\n".join(f"{o.problem}: {o.seed}: {o.words!r:.500}\n{o.error[-800:]}" for o in failed)


def test_bad_inputs(no_patches):
    failed, codes, _, _ = run_cases([f"default-{i}" for i in range(80)], QUICK)
    assert not failed, describe(failed)
    assert len(codes) > 1


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_bad_inputs(no_patches, part):
    failed, *_ = run_cases([f"0-{i}" for i in range(1000 * part, 1000 * (part + 1))], list(DATA))
    assert not failed, describe(failed)


@pytest.mark.parametrize(
    ("planted", "problem"),
    [
        ("raise KeyError('planted')", "internal error"),
        ("import traceback; traceback.print_stack(); print('Traceback (most recent call last)')", "traceback"),
        ("b' ' * (3 * 10**9)", "internal error"),
        ("while True: pass", "hang"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", f"signal {int(signal.SIGSEGV)}"),
        ("import os; os._exit(17)", "exit code 17"),
    ],
    ids=["error", "traceback", "allocation", "loop", "crash", "exit"],
)
def test_a_planted_bug_is_found(tmp_path, monkeypatch, planted, problem):
    """A case fails if the command has the bug. The limit of the memory makes a large allocation an error."""

    def predict(*args, **options):
        exec(planted)
        return 4

    monkeypatch.setattr("lawful.recipes.predict.predictions", predict)
    monkeypatch.setattr(import_module("lawful.cli.train"), "_write_predictions", lambda *args, **options: None)
    monkeypatch.setattr(bad_inputs, "MAX_SECONDS", 1)
    monkeypatch.setattr(bad_inputs, "KINDS", {"file": lambda *_: ["predict", "run", "data.csv"]})
    monkeypatch.chdir(tmp_path)
    valid = tmp_path / "valid"
    valid.mkdir()
    outcome = bad_inputs.run_one(valid, "0", [], kinds=("file",))
    assert outcome.problem == problem


def test_memory_and_time_are_problems():
    assert Outcome([], "file", "0", 0, 0, 1.0, 3 * 10**9, "").problem == "memory"
    assert Outcome([], "file", "0", 0, 0, 11.0, 0, "").problem == "hang"
    assert Outcome([], "file", "0", 3, 0, 1.0, 0, "lawful: internal error: KeyError").problem == "internal error"
    assert not Outcome([], "file", "0", 4, 0, 1.0, 0, "lawful: error: no such file").problem
