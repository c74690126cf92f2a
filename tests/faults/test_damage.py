"""A checkpoint that is not what was written is named, and the one before is used."""

import shutil

import pytest
import torch
from torch import nn

from lawful.data.batches import ShuffledBatches
from lawful.training.errors import TrainingFailed
from lawful.training.run import Run
from lawful.training.setup import OptimizerStep, TrainerConfig, TrainingSetup
from lawful.training.trainer import train

ENGINE = TrainerConfig(threads=1, checkpoint_every=2, keep_checkpoints=3, law_cases=0)


def small(steps=6):
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    x = torch.randn(9, 2)
    turn = OptimizerStep(loss_fn=lambda m, b: m(b[0]).square().mean(), optimizer=torch.optim.Adam(model.parameters()))
    return TrainingSetup(model=model, optimizer_steps=[turn], batches=ShuffledBatches(x, size=4, seed=0), steps=steps)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return train(small(), trainer=ENGINE, output_dir=tmp_path_factory.mktemp("runs"))


@pytest.fixture
def run(done, tmp_path):
    shutil.copytree(done.path, tmp_path / "copy")
    return Run(tmp_path / "copy")


def truncated(path):
    path.write_bytes(path.read_bytes()[:-3])


def flipped(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def emptied(path):
    path.write_bytes(b"")


def removed(path):
    path.unlink()


def a_folder(path):
    path.unlink()
    path.mkdir()


HARM = (truncated, flipped, emptied, removed, a_folder)


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("file", ["*.safetensors", "facts.json", "checksums.json"])
def test_the_one_before_is_used_and_the_end_is_the_same(run, done, file, harm, capsys):
    (path,) = run.checkpoints.at(6).glob(file)
    harm(path)
    resumed = train(small(), trainer=ENGINE, resume=run)
    said = capsys.readouterr().out.replace("\n", " ")
    assert "checkpoint step-00000006" in said
    assert path.name in said
    assert "going on after step 4" in said
    assert (resumed.path / "model.safetensors").read_bytes() == (done.path / "model.safetensors").read_bytes()
    assert run.checkpoints.steps() == [2, 4, 6]
    assert run.checkpoints.newest().step == 6


def test_all_damaged_begins_anew_and_says_so(run, done, capsys):
    for step in (2, 4, 6):
        emptied(run.checkpoints.at(step) / "facts.json")
    train(small(), trainer=ENGINE, resume=run)
    said = capsys.readouterr().out.replace("\n", " ")
    assert "has no sound checkpoint: it begins at the first step" in said
    assert (run.path / "model.safetensors").read_bytes() == (done.path / "model.safetensors").read_bytes()
    assert len(list(run.path.glob("state/*.damaged"))) == 3


def test_damaged_ones_do_not_push_out_those_to_come(run):
    for step in (4, 6):
        flipped(run.checkpoints.at(step) / "facts.json")
    train(small(steps=3), trainer=TrainerConfig(threads=1, checkpoint_every=1, keep_checkpoints=1, law_cases=0), resume=run)
    assert run.checkpoints.steps() == [3]


def test_a_checkpoint_of_another_training_is_refused_in_a_sentence(run):
    other = small()
    other.model.extra = nn.Linear(1, 1)
    with pytest.raises(TrainingFailed, match=r"the checkpoint lacks 'extra.bias': it is of another model"):
        train(other, trainer=ENGINE, resume=run)


def test_unfinished_files_are_swept_away(run):
    (run.path / "state" / "step-00000008.unfinished").mkdir()
    (run.path / "state" / "step-00000008.unfinished" / "half").write_bytes(b"x")
    (run.path / "results.json.unfinished").write_bytes(b"{")
    train(small(), trainer=ENGINE, resume=run)
    assert not list(run.path.rglob("*unfinished*"))
