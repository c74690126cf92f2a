"""Run folders that somebody else has prepared: nothing outside of them is read or written."""

import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch

from lawful import _files
from lawful._names import csv_text, printable, quote
from lawful.cli import main
from lawful.recipes import ClassifyRecipe
from lawful.recipes.predict import Predictions
from lawful.training import Run, TrainingFailed, train
from lawful.training.checkpoint import Checkpoint
from tests.training.linear import TRAINER, TwoRecipe, make_setup

SECRET = "a secret of the user\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run = train(make_setup(), trainer=TRAINER, output_dir=tmp_path_factory.mktemp("trained"))
    run.write("samples/text.txt", "a sample")
    return run


@pytest.fixture
def run(trained, tmp_path):
    return Run(shutil.copytree(trained.path, tmp_path / "runs" / "linear-001"))


def use(run):
    """Reads everything in a run, and resumes it."""
    opened = Run(run.path)
    _ = opened.results, opened.metrics, opened.weights()
    train(make_setup(6), trainer=TRAINER, resume=opened)


@pytest.fixture
def outside(tmp_path):
    """A folder of the user, which must not change."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "secret.txt").write_text(SECRET)
    return folder


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "name", ["log.txt", "metrics.jsonl", "config.json", "model.safetensors", "results.json", "report.html", ".lock"]
)
@pytest.mark.parametrize("hard", [False, True])
def test_resuming_does_not_write_through_a_link(run, outside, name, hard):
    target = outside / "secret.txt"
    if name == "config.json" or (name == "metrics.jsonl" and hard):
        target.write_bytes((run.path / name).read_bytes())
    before = files(outside)
    (run.path / name).unlink()
    if hard:
        os.link(target, run.path / name)
        train(make_setup(6), trainer=TRAINER, resume=run)
        assert run.results["steps"] == 6
    else:
        (run.path / name).symlink_to(target)
        with pytest.raises((TrainingFailed, ValueError), match=rf"{name} is a link, which is not followed"):
            train(make_setup(6), trainer=TRAINER, resume=Run(run.path))
    assert files(outside) == before


@pytest.mark.parametrize("name", ["state", "samples", "figures", "state/step-00000004", "members"])
def test_resuming_does_not_follow_a_linked_folder(run, outside, name):
    if (run.path / name).exists():
        shutil.move(run.path / name, outside / "moved")
    (run.path / name).symlink_to(outside / "moved")
    before = files(outside / "moved") if (outside / "moved").is_dir() else {}
    with pytest.raises((TrainingFailed, ValueError), match="is a link, which is not followed"):
        train(make_setup(6), trainer=TRAINER, resume=run)
    assert before == (files(outside / "moved") if before else {})


def test_resuming_a_run_with_a_linked_state_is_an_error_of_the_data(tmp_path, capsys):
    arguments = ["--epochs", "1", "--law-cases", "0", "--threads", "1", "--output-dir", str(tmp_path)]
    assert main(["train", "classify", "--data", "iris", *arguments]) == 0
    run = tmp_path / "classify-001"
    (run / "state").rename(tmp_path / "elsewhere")
    (run / "state").symlink_to(tmp_path / "elsewhere")
    (run / "results.json").unlink()
    capsys.readouterr()
    assert main(["train", "--resume", str(run)]) == 4
    message = capsys.readouterr().err
    assert "state is a link, which is not followed inside a run" in message
    assert "internal error" not in message


def test_the_run_folder_may_be_reached_by_a_link(run, tmp_path):
    (tmp_path / "latest").symlink_to(run.path)
    resumed = train(make_setup(6), trainer=TRAINER, resume=tmp_path / "latest")
    assert resumed.results["steps"] == 6
    assert not resumed.log.is_symlink()


def test_nothing_of_a_linked_file_is_read(run, outside):
    (run.path / "results.json").unlink()
    (run.path / "results.json").symlink_to(outside / "secret.txt")
    with pytest.raises(ValueError, match="is a link"):
        _ = run.results
    (run.path / "model.safetensors").unlink()
    (run.path / "model.safetensors").symlink_to(outside / "secret.txt")
    with pytest.raises(ValueError, match="is a link"):
        run.weights()
    shutil.rmtree(run.samples)
    run.samples.symlink_to(outside)
    (run.path / "results.json").unlink()
    from lawful.training.report import write_report

    assert "a secret" not in write_report(run).read_text()


@pytest.mark.parametrize("name", ["../x.txt", "samples/../../x.txt", "/tmp/r22_absolute.txt"])
def test_names_do_not_leave_the_run(run, name):
    with pytest.raises(ValueError, match=r"not inside|is not in the subpath"):
        run.write(name, "x")
    assert not (run.path.parent / "x.txt").exists()
    assert not Path("/tmp/r22_absolute.txt").exists()


def test_a_folder_swapped_for_a_link_between_check_and_use(run, outside):
    """Another process swaps `samples` for a link, over and over, while files are written."""
    stop, moved = threading.Event(), run.path / "moved"

    def swap():
        while not stop.is_set():
            with suppress(OSError):  # the writer may have created a folder
                shutil.rmtree(moved, ignore_errors=True)
                os.rename(run.samples, moved)
                run.samples.symlink_to(outside)
                run.samples.unlink()
                os.rename(moved, run.samples)

    thread = threading.Thread(target=swap)
    thread.start()
    before, written = files(outside), 0
    try:
        for i in range(300):
            try:
                run.write(f"samples/{i}.txt", "x")
                written += 1
            except (ValueError, OSError):
                pass
    finally:
        stop.set()
        thread.join()
    assert files(outside) == before
    assert written


def test_temporary_names_cannot_be_prepared(run, outside, monkeypatch):
    for name in ("results.json.unfinished", "report.html.unfinished"):
        (run.path / name).symlink_to(outside / "secret.txt")
    run.save_results({"a": 1})
    assert files(outside) == {"secret.txt": SECRET.encode()}
    monkeypatch.setattr(_files.secrets, "token_hex", lambda n: "known")
    (run.path / ".known.unfinished").symlink_to(outside / "secret.txt")
    with pytest.raises(FileExistsError, match="known"):
        run.save_results({"a": 2})
    assert files(outside) == {"secret.txt": SECRET.encode()}


def test_leftovers_that_are_links_are_removed_and_not_followed(run, outside):
    (run.path / "x.unfinished").symlink_to(outside)
    _files.remove_unfinished(run.path, root=run.path)
    assert files(outside) == {"secret.txt": SECRET.encode()}
    assert not (run.path / "x.unfinished").is_symlink()


@pytest.mark.parametrize("folder", [".", "figures", "samples", "state"])
def test_resuming_removes_what_a_crash_left(run, folder):
    (run.path / folder).mkdir(exist_ok=True)
    (run.path / folder / ".0123456789abcdef.unfinished").write_bytes(b"half of a file")
    (run.path / folder / ".fedcba9876543210.unfinished").mkdir()
    train(make_setup(6), trainer=TRAINER, resume=run)
    assert not list(run.path.rglob("*.unfinished"))


def test_folders_nested_too_deep_are_refused(run, capsys):
    (run.path / "samples" / Path(*"a" * 100)).mkdir(parents=True)
    with pytest.raises(ValueError, match="has folders nested more than 100 deep, the maximum"):
        _files.refuse_links(run.path)
    with pytest.raises(ValueError, match="has folders nested more than 100 deep, the maximum"):
        _files.remove_unfinished(run.path, root=run.root)
    assert main(["runs", "--verify", str(run.path)]) == 1
    assert "nested more than 100 deep" in capsys.readouterr().out


def test_names_in_a_checkpoint_are_quoted(run, capsys):
    step = run.checkpoints.steps()[-1]
    (run.checkpoints.path(step) / "x\n2026-01-01  forged\x1b[31m").write_text("")
    train(make_setup(6), trainer=TRAINER, resume=run)
    shown = capsys.readouterr().out + run.log.read_text()
    assert r"'x\n2026-01-01  forged\x1b[31m' is not listed" in shown
    assert not any(line.startswith("2026-01-01  forged") for line in shown.splitlines())
    assert "\x1b" not in shown


@pytest.mark.parametrize("kind", ["fifo", "folder"])
@pytest.mark.parametrize("name", ["config.json", "results.json", "metrics.jsonl", "model.safetensors", "log.txt"])
def test_what_is_no_file_is_refused_at_once(run, name, kind):
    (run.path / name).unlink()
    os.mkfifo(run.path / name) if kind == "fifo" else (run.path / name).mkdir()
    with pytest.raises((ValueError, TrainingFailed), match=r"(named pipe \(FIFO\)|folder), expected a file"):
        use(run)


def test_a_checkpoint_file_that_is_a_link_is_corrupt(run, outside):
    checkpoints = run.checkpoints
    checkpoints.save(Checkpoint(9, {"a": torch.ones(2)}, {}), keep=9)
    path = checkpoints.path(9) / "metadata.json"
    shutil.copy(path, outside / "metadata.json")
    path.unlink()
    path.symlink_to(outside / "metadata.json")
    with pytest.raises(ValueError, match=r"'metadata\.json' is missing"):
        checkpoints.load(9)


def test_the_members_of_an_ensemble_are_inside_it(tmp_path, outside):
    run = train(TwoRecipe(), output_dir=tmp_path / "runs")
    assert len(run.members) == 2
    shutil.move(run.path / "members", outside / "members")
    (run.path / "members").symlink_to(outside / "members")
    (outside / "members" / "two-002" / "results.json").unlink()
    before = sorted(path.name for path in outside.rglob("*"))
    with pytest.raises((TrainingFailed, ValueError), match="is a link, which is not followed"):
        train(TwoRecipe(), resume=run)
    assert sorted(path.name for path in outside.rglob("*")) == before


def test_samples_are_not_written_through_a_link(tmp_path, outside, capsys):
    recipe = ["train", "pca", "--law-cases", "0", "--output-dir", str(tmp_path / "runs")]
    assert main(recipe) == 0
    run = tmp_path / "runs" / "pca-001"
    (run / "samples" / "samples, seed 0.png").symlink_to(outside / "secret.txt")
    assert main(["sample", str(run)]) == 0
    assert files(outside) == {"secret.txt": SECRET.encode()}
    shutil.rmtree(run / "samples")
    (run / "samples").symlink_to(outside)
    assert main(["sample", str(run)]) == 4
    assert "is a link, which is not followed" in capsys.readouterr().err
    assert files(outside) == {"secret.txt": SECRET.encode()}


def test_class_names_are_quoted_wherever_they_are_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("lawful.recipes.classify.figures", MagicMock())
    classes = ("good", "bad\n2026-01-01  forged\x1b[2J", "=cmd|' /C calc'!A0")
    rows = [f'{i % 7},{i % 3 + i / 100},"{classes[i % 3]}"' for i in range(60)]
    (tmp_path / "data.csv").write_text("a,b,kind\n" + "\n".join(rows) + "\n")
    recipe = ClassifyRecipe(data=str(tmp_path / "data.csv"), model="mlp", epochs=1, threads=1, law_cases=0)
    run = train(recipe, output_dir=tmp_path / "runs")
    assert main(["predict", str(run.path), str(tmp_path / "data.csv")]) == 0
    captured = capsys.readouterr()
    shown = captured.out + captured.err + run.log.read_text()
    tables = "".join(path.read_text() for path in run.samples.glob("*.csv"))
    for text in (shown, tables):
        assert not any(line.strip().startswith("2026-01-01  forged") for line in text.splitlines())
        assert "\x1b" not in text
    assert r"'bad\n2026-01-01  forged\x1b[2J'" in shown
    assert "'=cmd|' /C calc'!A0" in captured.out
    assert not any(cell.startswith("=") for line in tables.splitlines() for cell in line.split(","))


def test_names_pose_as_nothing_else():
    assert quote("plain name") == "plain name"
    assert quote("a\u202eb") == r"'a\u202eb'"
    assert printable("error\nlawful: forged\x1b[2J") == "error\n  lawful: forged [2J"
    assert csv_text([["@SUM(A1)", "=1", "+1", "-x", " =2"]]) == "'@SUM(A1),'=1,+1,'-x,' =2\n"
    assert csv_text([["=1", "\t=2"]], escape=False) == "=1,\t=2\n"
    table = Predictions(("class",), [["=cmd|' /C calc'!A0"], ["a\nb"]])
    assert table.csv() == "class\n'=cmd|' /C calc'!A0\n'a\\nb'\n"
    assert table.csv(escape=False) == "class\n=cmd|' /C calc'!A0\n\"a\nb\"\n"
