"""Corrupt checkpoints: they are named, and the checkpoint before them is used."""

import shutil

import pytest
import torch
from torch import nn

from lawful.data.batches import ShuffledBatches
from lawful.training import OptimizerStep, Run, TrainerConfig, TrainingFailed, TrainingSetup, train

TRAINER = TrainerConfig(threads=1, checkpoint_every=2, keep_checkpoints=3, law_cases=0)


def make_setup(steps=6):
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    x = torch.randn(9, 2)
    turn = OptimizerStep(loss_fn=lambda m, b: m(b[0]).square().mean(), optimizer=torch.optim.Adam(model.parameters()))
    return TrainingSetup(
        model=model, optimizer_steps=[turn], batches=ShuffledBatches(x, batch_size=4, seed=0), steps=steps
    )


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    return train(make_setup(), trainer=TRAINER, output_dir=tmp_path_factory.mktemp("runs"))


@pytest.fixture
def run(finished_run, tmp_path):
    shutil.copytree(finished_run.path, tmp_path / "copy")
    return Run(tmp_path / "copy")


def truncate(path):
    path.write_bytes(path.read_bytes()[:-3])


def flip_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def clear_file(path):
    path.write_bytes(b"")


def remove_file(path):
    path.unlink()


def a_folder(path):
    path.unlink()
    path.mkdir()


DAMAGES = (truncate, flip_bit, clear_file, remove_file, a_folder)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", ["*.safetensors", "metadata.json", "checksums.json"])
def test_the_checkpoint_before_is_used_with_the_same_result(run, finished_run, file, damage, capsys):
    (path,) = run.checkpoints.path(6).glob(file)
    damage(path)
    resumed = train(make_setup(), trainer=TRAINER, resume=run)
    output = capsys.readouterr().out.replace("\n", " ")
    assert "checkpoint step-00000006" in output
    assert path.name in output
    assert "resuming after step 4" in output
    assert (resumed.path / "model.safetensors").read_bytes() == (finished_run.path / "model.safetensors").read_bytes()
    assert run.checkpoints.steps() == [2, 4, 6]
    assert run.checkpoints.load_newest().step == 6


def test_without_an_intact_checkpoint_training_starts_over(run, finished_run, capsys):
    for step in (2, 4, 6):
        clear_file(run.checkpoints.path(step) / "metadata.json")
    train(make_setup(), trainer=TRAINER, resume=run)
    output = capsys.readouterr().out.replace("\n", " ")
    assert "has no intact checkpoint: starting from the first step" in output
    assert (run.path / "model.safetensors").read_bytes() == (finished_run.path / "model.safetensors").read_bytes()
    assert len(list(run.path.glob("state/*.corrupt"))) == 3


def test_corrupt_checkpoints_do_not_count_as_kept(run):
    for step in (4, 6):
        flip_bit(run.checkpoints.path(step) / "metadata.json")
    train(
        make_setup(steps=3),
        trainer=TrainerConfig(threads=1, checkpoint_every=1, keep_checkpoints=1, law_cases=0),
        resume=run,
    )
    assert run.checkpoints.steps() == [3]


def test_a_checkpoint_of_another_model_is_refused(run):
    other = make_setup()
    other.model.extra = nn.Linear(1, 1)
    with pytest.raises(TrainingFailed, match=r"'extra\.bias' is missing in the checkpoint"):
        train(other, trainer=TRAINER, resume=run)


def test_unfinished_files_are_removed(run):
    (run.path / "state" / "step-00000008.unfinished").mkdir()
    (run.path / "state" / "step-00000008.unfinished" / "half").write_bytes(b"x")
    (run.path / "results.json.unfinished").write_bytes(b"{")
    train(make_setup(), trainer=TRAINER, resume=run)
    assert not list(run.path.rglob("*unfinished*"))
