"""A disk that is full, a folder that cannot be written or is gone: a sentence, and what was kept stays."""

import errno
import os
import resource
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from torch import nn

from lawful.data.batches import ShuffledBatches
from lawful.training import checkpoint as checkpoints
from lawful.training.errors import TrainingFailed
from lawful.training.setup import OptimizerStep, TrainerConfig, TrainingSetup
from lawful.training.trainer import train
from tests.scripts import ROOT

ENGINE = TrainerConfig(threads=1, checkpoint_every=2, keep_checkpoints=2, law_cases=0)


def small(*, steps=8, at=None, do=None, width=4):
    """A training that calls `do` before the step `at`."""
    torch.manual_seed(0)
    model = nn.Linear(width, 1)

    class Watched(ShuffledBatches):
        def batch(self, step):
            if step == at:
                do()
            return super().batch(step)

    turn = OptimizerStep(loss_fn=lambda m, b: m(b[0]).square().mean(), optimizer=torch.optim.Adam(model.parameters()))
    return TrainingSetup(model=model, optimizer_steps=[turn], batches=Watched(torch.randn(9, width), size=4, seed=0), steps=steps)


@pytest.fixture
def whole(tmp_path):
    return train(small(), trainer=ENGINE, output_dir=tmp_path / "whole")


def ends_the_same(run, whole):
    resumed = train(small(), trainer=ENGINE, resume=run)
    assert (resumed.path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()
    assert not list(run.path.rglob("*.unfinished"))


def refusing(number, name):
    """A function that the system refuses."""

    def refused(*args, **kwargs):
        raise OSError(number, os.strerror(number), name)

    return refused


SENTENCES = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the folder can only be read",
    errno.EACCES: "not ours to use",
    errno.EIO: "Input/output error",
}


@pytest.mark.parametrize("number", SENTENCES)
@pytest.mark.parametrize("call", ["fsync", "mkdir", "rename"])
def test_the_system_refuses_a_save(tmp_path, monkeypatch, whole, call, number):
    def refuse():
        monkeypatch.setattr(os, call, refusing(number, "the file"))

    with pytest.raises(TrainingFailed, match=SENTENCES[number]) as failed:
        train(small(at=5, do=refuse), trainer=ENGINE, output_dir=tmp_path)
    monkeypatch.undo()
    assert "the checkpoint of step 4 is kept; go on with: lawful train --resume" in str(failed.value)
    assert failed.value.run.checkpoints.newest().step in (4, 6)
    ends_the_same(failed.value.run, whole)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG])
def test_the_library_of_tensors_says_it_in_words(tmp_path, monkeypatch, whole, number):
    def refused(tensors, path, metadata=None):
        Path(path).write_bytes(b"half")
        raise SafetensorError(f"Error while serializing: I/O error: {os.strerror(number)} (os error {number})")

    with pytest.raises(TrainingFailed, match=r"the disk is full|larger than is allowed") as failed:
        train(
            small(at=5, do=lambda: monkeypatch.setattr(checkpoints, "save_file", refused)),
            trainer=ENGINE,
            output_dir=tmp_path,
        )
    assert failed.value.__cause__.errno == number
    monkeypatch.undo()
    ends_the_same(failed.value.run, whole)


def test_a_limit_on_the_size_of_files(tmp_path, whole):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(TrainingFailed, match="a file grew larger than is allowed") as failed:
            train(small(at=5, do=limit), trainer=ENGINE, output_dir=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert failed.value.run.checkpoints.newest().step == 4
    ends_the_same(failed.value.run, whole)


def test_a_disk_that_is_full(tmp_path, whole):
    """On a real one of a megabyte, where we may make it."""
    small_disk = tmp_path / "disk"
    small_disk.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small_disk)], capture_output=True)
    if made.returncode:
        pytest.skip("no disk can be made here")

    def fill():
        with (small_disk / "filler").open("wb") as file:
            while True:
                try:
                    file.write(b"x" * 4096)
                    file.flush()
                except OSError:
                    break

    try:
        with pytest.raises(TrainingFailed, match="the disk is full") as failed:
            train(small(at=5, do=fill), trainer=ENGINE, output_dir=small_disk / "runs")
        assert failed.value.run.checkpoints.newest().step == 4
        (small_disk / "filler").unlink()
        ends_the_same(failed.value.run, whole)
    finally:
        subprocess.run(["umount", "-l", str(small_disk)], check=True, capture_output=True)


def test_a_full_disk_as_the_journal_finds_it(tmp_path, whole):
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    run = train(small(steps=4), trainer=ENGINE, output_dir=tmp_path)
    (run.path / "metrics.jsonl").unlink()
    (run.path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(TrainingFailed, match="the disk is full"):
        train(small(), trainer=ENGINE, resume=run)
    (run.path / "metrics.jsonl").unlink()
    ends_the_same(run, whole)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_that_is_not_ours(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(TrainingFailed, match="not ours to use"):
        train(small(), trainer=ENGINE, output_dir=tmp_path / "runs")


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainingFailed, match="Not a directory"):
        train(small(), trainer=ENGINE, output_dir=tmp_path / "file" / "runs")


def test_the_run_vanishes(tmp_path):
    def vanish():
        (run,) = tmp_path.iterdir()
        shutil.rmtree(run)

    with pytest.raises(TrainingFailed, match=r"is gone, and its checkpoints with it"):
        train(small(at=5, do=vanish), trainer=ENGINE, output_dir=tmp_path)


def test_data_vanishes(tmp_path, whole):
    def vanish():
        (tmp_path / "data.csv").read_text()

    with pytest.raises(TrainingFailed, match=r"a file or folder is gone.*data.csv\nthe checkpoint of step 4") as failed:
        train(small(at=5, do=vanish), trainer=ENGINE, output_dir=tmp_path)
    ends_the_same(failed.value.run, whole)


def test_a_folder_that_is_not_made_whole_is_no_run(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", refusing(errno.ENOSPC, "config.json"))
    with pytest.raises(TrainingFailed, match=r"the disk is full: config.json"):
        train(small(), trainer=ENGINE, output_dir=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_failure_ends_a_script_with_a_code_and_the_sentence(tmp_path):
    script = f"""
        import sys
        from lawful.training.errors import TrainingFailed
        from lawful.training.trainer import train
        from tests.faults.test_disk import ENGINE, refusing, small
        try:
            train(small(at=5, do=refusing({errno.ENOSPC}, None)), trainer=ENGINE, output_dir={str(tmp_path)!r})
        except TrainingFailed as failed:
            sys.exit(str(failed))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert "the disk is full\nthe checkpoint of step 4 is kept" in done.stderr
    assert "Traceback" not in done.stderr
