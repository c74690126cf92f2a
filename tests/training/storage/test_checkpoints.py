import os

import pytest
import torch

from lawful.training import storage as files
from lawful.training.checkpoint import LARGEST, Checkpoint, Checkpoints, Damaged


def made(step):
    return Checkpoint(step, {"a": torch.full((2,), float(step))}, {"step": step})


def test_the_last_and_the_best_are_kept(tmp_path):
    kept = Checkpoints(tmp_path)
    for step in range(1, 8):
        kept.write(made(step), keep=2, best=3 if step >= 3 else None)
    assert kept.steps() == [3, 6, 7]
    assert kept.newest().step == 7
    assert torch.equal(kept.read(3).tensors["a"], torch.tensor([3.0, 3.0]))
    assert kept.read(6).facts == {"step": 6}


def test_one_of_the_same_step_replaces_it(tmp_path):
    kept = Checkpoints(tmp_path)
    kept.write(made(1), keep=1)
    kept.write(Checkpoint(1, {"a": torch.zeros(1)}, {"new": True}), keep=1)
    assert kept.newest().facts == {"new": True}
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_nothing_is_left_of_one_that_failed(tmp_path, monkeypatch):
    kept = Checkpoints(tmp_path)
    kept.write(made(1), keep=1)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kept.write(made(2), keep=1)
    assert kept.steps() == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_only_names_that_are_steps_count(tmp_path):
    for name in ("step-1", "step-000000010", "step-00000003.unfinished", "step-00000004.damaged", "step-xyz"):
        (tmp_path / name).mkdir()
    kept = Checkpoints(tmp_path)
    assert kept.steps() == []
    assert kept.newest() is None
    assert Checkpoints(tmp_path / "none").newest() is None


def test_a_file_that_is_not_listed_is_named(tmp_path):
    kept = Checkpoints(tmp_path)
    kept.write(made(1), keep=1)
    (kept.at(1) / "more.safetensors").write_bytes(b"")
    with pytest.raises(Damaged, match=r"checkpoint step-00000001: 'more.safetensors' is not in checksums.json"):
        kept.read(1)


def test_facts_that_could_not_be_read_again_are_not_written(tmp_path):
    with pytest.raises(ValueError, match=f"have at most {LARGEST} bytes"):
        Checkpoints(tmp_path).write(Checkpoint(1, {}, {"a": "x" * LARGEST}), keep=1)
    assert not list(tmp_path.iterdir())


def test_many_settings_can_be_read_again(tmp_path):
    kept = Checkpoints(tmp_path)
    facts = {"groups": [{"lr": 0.1, "betas": [0.9, 0.999]}] * 50_000}
    kept.write(Checkpoint(1, {"a": torch.ones(1)}, facts), keep=1)
    assert kept.read(1).facts == facts


def test_a_file_is_put_in_place_whole(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    files.write(path, "old")

    def full(*_):
        raise OSError(28, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        files.write(path, b"new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
