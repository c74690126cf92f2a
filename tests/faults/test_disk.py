"""Full disks, missing permissions and vanished folders: the error says so, and saved checkpoints stay."""

import errno
import os
import resource
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from torch import nn

from lawful.data.batches import ShuffledBatches
from lawful.training import OptimizerStep, TrainerConfig, TrainingFailed, TrainingSetup, checkpoint, storage, train

TRAINER = TrainerConfig(threads=1, checkpoint_every=2, keep_checkpoints=2, law_cases=0)


def make_setup(*, steps=8, at=None, do=None, width=4):
    """Builds a training that calls `do` before the step `at`."""
    torch.manual_seed(0)
    model = nn.Linear(width, 1)

    class Watched(ShuffledBatches):
        def batch(self, step):
            if step == at:
                for thread in threading.enumerate():
                    if thread.name == "checkpoint":  # it is being written
                        thread.join()
                do()
            return super().batch(step)

    turn = OptimizerStep(loss_fn=lambda m, b: m(b[0]).square().mean(), optimizer=torch.optim.Adam(model.parameters()))
    return TrainingSetup(
        model=model, optimizer_steps=[turn], batches=Watched(torch.randn(9, width), batch_size=4, seed=0), steps=steps
    )


@pytest.fixture
def uninterrupted_run(tmp_path):
    return train(make_setup(), trainer=TRAINER, output_dir=tmp_path / "uninterrupted")


def assert_same_result(run, uninterrupted_run):
    resumed = train(make_setup(), trainer=TRAINER, resume=run)
    assert (resumed.path / "model.safetensors").read_bytes() == (
        uninterrupted_run.path / "model.safetensors"
    ).read_bytes()
    assert not list(run.path.rglob("*.unfinished"))


def refusing(number, name):
    """Returns a function that raises an OSError."""

    def refused(*args, **kwargs):
        raise OSError(number, os.strerror(number), name)

    return refused


MESSAGES = {
    errno.ENOSPC: "no space left on the disk",
    errno.EDQUOT: "disk quota exceeded",
    errno.EROFS: "read-only file system",
    errno.EACCES: "permission denied",
    errno.EIO: "Input/output error",
}


@pytest.mark.parametrize("number", MESSAGES)
@pytest.mark.parametrize("call", ["fsync", "mkdir", "rename"])
def test_failing_system_call(tmp_path, monkeypatch, uninterrupted_run, call, number):
    def refuse():
        monkeypatch.setattr(os, call, refusing(number, "the file"))

    with pytest.raises(TrainingFailed, match=MESSAGES[number]) as failed:
        train(make_setup(at=5, do=refuse), trainer=TRAINER, output_dir=tmp_path)
    monkeypatch.undo()
    assert "the checkpoint of step 4 is saved; resume with: lawful train --resume" in str(failed.value)
    assert failed.value.run.checkpoints.load_newest().step in (4, 6)
    assert_same_result(failed.value.run, uninterrupted_run)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG])
def test_safetensors_errors(tmp_path, monkeypatch, uninterrupted_run, number):
    def refused(tensors, path, metadata=None):
        Path(path).write_bytes(b"half")
        raise SafetensorError(f"Error while serializing: I/O error: {os.strerror(number)} (os error {number})")

    with pytest.raises(TrainingFailed, match=r"no space left on the disk|file too large") as failed:
        train(
            make_setup(at=5, do=lambda: monkeypatch.setattr(checkpoint, "save_file", refused)),
            trainer=TRAINER,
            output_dir=tmp_path,
        )
    assert failed.value.__cause__.errno == number
    monkeypatch.undo()
    assert_same_result(failed.value.run, uninterrupted_run)


def test_file_size_limit(tmp_path, uninterrupted_run):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(TrainingFailed, match="file too large") as failed:
            train(make_setup(at=5, do=limit), trainer=TRAINER, output_dir=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert failed.value.run.checkpoints.load_newest().step == 4
    assert_same_result(failed.value.run, uninterrupted_run)


def test_a_full_disk(tmp_path, uninterrupted_run):
    """Uses a real file system of one megabyte, if permissions allow."""
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
        with pytest.raises(TrainingFailed, match="no space left on the disk") as failed:
            train(make_setup(at=5, do=fill), trainer=TRAINER, output_dir=small_disk / "runs")
        assert failed.value.run.checkpoints.load_newest().step == 4
        (small_disk / "filler").unlink()
        assert_same_result(failed.value.run, uninterrupted_run)
    finally:
        subprocess.run(["umount", "-l", str(small_disk)], check=True, capture_output=True)


def test_a_full_disk_for_the_metrics(tmp_path, monkeypatch, uninterrupted_run):
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    run = train(make_setup(steps=4), trainer=TRAINER, output_dir=tmp_path)
    monkeypatch.setattr(storage, "open_append", lambda path, root: os.fdopen(os.open("/dev/full", os.O_WRONLY), "wb"))
    with pytest.raises(TrainingFailed, match="no space left on the disk"):
        train(make_setup(), trainer=TRAINER, resume=run)
    monkeypatch.undo()
    assert_same_result(run, uninterrupted_run)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_missing_permissions(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(TrainingFailed, match="permission denied"):
        train(make_setup(), trainer=TRAINER, output_dir=tmp_path / "runs")


def test_a_folder_that_cannot_be_created(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainingFailed, match="Not a directory"):
        train(make_setup(), trainer=TRAINER, output_dir=tmp_path / "file" / "runs")


def test_the_run_is_deleted(tmp_path):
    def vanish():
        (run,) = tmp_path.iterdir()
        shutil.rmtree(run)

    with pytest.raises(TrainingFailed, match=r"no longer exists"):
        train(make_setup(at=5, do=vanish), trainer=TRAINER, output_dir=tmp_path)


def test_the_data_is_deleted(tmp_path, uninterrupted_run):
    def vanish():
        (tmp_path / "data.csv").read_text()

    with pytest.raises(TrainingFailed, match=r"no such file or folder.*data.csv\nthe checkpoint of step 4") as failed:
        train(make_setup(at=5, do=vanish), trainer=TRAINER, output_dir=tmp_path)
    assert_same_result(failed.value.run, uninterrupted_run)


def test_a_failed_creation_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", refusing(errno.ENOSPC, "config.json"))
    with pytest.raises(TrainingFailed, match=r"no space left on the disk: config.json"):
        train(make_setup(), trainer=TRAINER, output_dir=tmp_path)
    assert not list(tmp_path.iterdir())
