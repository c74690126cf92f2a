"""What a run keeps is compared with checksums; options of a training change only when they are overridden."""

import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

from lawful.cli import main
from lawful.recipes import ClassifyRecipe, MLPSpec
from lawful.training import Run, TrainingFailed, train
from tests.training.linear import TRAINER, TwoRecipe, make_setup


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(make_setup(), trainer=TRAINER, output_dir=tmp_path_factory.mktemp("trained"))


@pytest.fixture
def run(trained, tmp_path):
    return Run(shutil.copytree(trained.path, tmp_path / "linear-001"))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "results.json", "metrics.jsonl"])
def test_a_flipped_bit_is_an_error_that_names_the_file(run, name):
    path = run.path / name
    whole = path.read_bytes()
    draw = random.Random(0)
    for position in [0, len(whole) - 2, *(draw.randrange(len(whole) - 1) for _ in range(60))]:
        damaged = bytearray(whole)
        damaged[position] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=name.replace(".", r"\.")):
            Run(run.path).verify("config.json"), run.weights(), run.results, run.metrics
        assert any(name in problem for problem in run.problems())
    path.write_bytes(whole)
    assert run.problems() == []


def test_missing_and_repeated_lines_of_the_metrics_are_noticed(run):
    path = run.path / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    for wrong in (lines[1:], [lines[0], *lines[2:]], [*lines, lines[-1]], [lines[1], lines[0], *lines[2:]]):
        path.write_text("".join(wrong))
        with pytest.raises(ValueError, match=r"line \d of .*metrics\.jsonl does not match its checksum"):
            _ = run.metrics
    path.write_text("".join(lines[:-1]))
    assert "ends at step 3, expected 4" in str(run.problems())
    path.write_text("".join([*lines[:-1], lines[-1][:-9]]))
    assert [line["step"] for line in run.metrics] == [1, 2, 3]


def test_damage_after_the_checkpoint_does_not_matter_for_resuming(run):
    (run.path / "results.json").unlink()
    shutil.rmtree(run.checkpoints.path(4))
    path = run.path / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], "\0" * 40 + "\n", lines[3]]))
    train(make_setup(), trainer=TRAINER, resume=run)
    assert [line["step"] for line in run.metrics] == [1, 2, 3, 4]
    path.write_text("".join(["\0" * 40 + "\n", *lines[1:]]))
    with pytest.raises(
        TrainingFailed, match=r"metrics\.jsonl does not match its checksum: restore the file, or rename"
    ):
        train(make_setup(6), trainer=TRAINER, resume=run)


def test_runs_verify_lists_what_is_damaged(run, trained, tmp_path, capsys):
    shutil.copytree(trained.path, tmp_path / "linear-002")
    (tmp_path / "not a run").mkdir()
    path = run.checkpoints.path(4) / "metadata.json"
    path.write_bytes(path.read_bytes().replace(b"4", b"5", 1))
    (run.path / "model.safetensors").unlink()
    assert main(["runs", str(tmp_path), "--verify"]) == 1
    shown = capsys.readouterr().out
    assert f"{run.path}: damaged" in shown
    assert f"model.safetensors of {run.path} is missing" in shown
    assert "step-00000004: the checksum of metadata.json does not match" in shown
    assert f"{tmp_path / 'linear-002'}: intact" in shown
    assert main(["runs", str(tmp_path / "linear-002"), "--verify"]) == 0


def test_a_run_without_its_state_starts_again(run, trained):
    shutil.rmtree(run.path / "state")
    shutil.rmtree(run.figures)
    (run.path / "results.json").unlink()
    again = train(make_setup(), trainer=TRAINER, resume=run)
    assert torch.equal(again.weights()["weight"], trained.weights()["weight"])


def test_a_crash_between_a_checksum_and_its_file_leaves_an_intact_run(run, monkeypatch):
    before, true = run.results, os.replace

    def crash(source, target):
        if str(target).endswith("results.json"):
            raise KeyboardInterrupt("crash")
        true(source, target)

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(KeyboardInterrupt, match="crash"):
        run.save_results({"steps": 4, "new": True})
    monkeypatch.undo()
    assert run.results == before
    assert run.problems() == []
    run.save_results({"steps": 4, "new": True})
    assert run.results["new"]


# ------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("change", "name", "value"),
    [
        ({"lr": 0.2}, "optimizer.lr", 0.2),
        ({"batch_size": 2}, "batch_size", 2),
        ({"optimizer": torch.optim.Adagrad}, "optimizer", "Adagrad"),
    ],
)
def test_a_changed_setup_is_refused_unless_it_is_overridden(run, change, name, value, capsys):
    with pytest.raises(TrainingFailed, match=f"option '{name}' is {value!r}, the run has") as failed:
        train(make_setup(6, **change), trainer=TRAINER, resume=run)
    assert f"override={{'{name}': ...}} in Python" in str(failed.value)
    with pytest.raises(TrainingFailed, match="is not what the setup has"):
        train(make_setup(6, **change), trainer=TRAINER, resume=run, override={name: 77})
    override = {name: value}
    if name == "optimizer":
        facts = Run(run.path).config["setup"]
        override |= {f"optimizer.{key}": v for key, v in {"lr_decay": 0}.items() if f"optimizer.{key}" in facts}
    resumed = train(make_setup(6, **change), trainer=TRAINER, resume=run, override=override)
    assert resumed.config["overrides"][0]["after_step"] == 4
    assert resumed.config["overrides"][0]["options"][name][1] == value
    assert f"overridden: {name} is {value!r}" in capsys.readouterr().out
    assert run.problems() == []
    if name == "optimizer.lr":
        assert [line["learning_rate"] for line in resumed.metrics] == [0.1] * 4 + [0.2] * 2


def test_another_seed_is_refused(run):
    with pytest.raises(TrainingFailed, match="option 'seed' is 7, the run has 0"):
        train(make_setup(6), trainer=replace(TRAINER, seed=7), resume=run)


@pytest.fixture(scope="module")
def flowers(tmp_path_factory):
    recipe = ClassifyRecipe(data="iris", model=MLPSpec(hidden_dims=(4,)), epochs=2, threads=1, law_cases=0)
    return train(recipe, output_dir=tmp_path_factory.mktemp("flowers"))


@pytest.fixture
def iris(flowers, tmp_path):
    return Run(shutil.copytree(flowers.path, tmp_path / "classify-001"))


def test_an_edited_configuration_is_refused_and_an_override_is_recorded(iris, capsys):
    path = iris.path / "config.json"
    whole = path.read_text()
    path.write_text(whole.replace('"epochs": 2', '"epochs": 3'))
    assert main(["train", "--resume", str(iris.path)]) == 4
    assert "config.json of" in (shown := capsys.readouterr().err)
    assert "--override NAME=VALUE" in shown
    path.write_text(whole)
    words = ["--override", "epochs=3", "--override", "lr=0.5", "--override=hidden_dims=[4]"]
    assert main(["train", "--resume", str(iris.path), *words]) == 0
    again = Run(iris.path)
    assert again.config["options"]["epochs"] == 3
    assert again.config["options"]["learning_rate"] == 0.5
    assert set(again.config["overrides"][0]["options"]) == {"epochs", "learning_rate"}
    assert again.results["steps"] == 3 * len(again.metrics) // 3
    assert again.problems() == []
    assert main(["train", "--resume", str(iris.path), "--override", "epoch=3"]) == 4
    assert "has no option epoch" in capsys.readouterr().err


def test_the_fingerprint_covers_the_split(iris, monkeypatch):
    """Another split of the same data is noticed even if no option has changed, and may be overridden."""
    from lawful.recipes import data as data_module

    true = data_module.split_indices
    monkeypatch.setattr(data_module, "split_indices", lambda *a, **k: [part.flip(0) for part in true(*a, **k)])
    with pytest.raises(TrainingFailed, match="its data, or their split, have changed"):
        train(resume=iris)
    monkeypatch.undo()
    with pytest.raises(TrainingFailed, match="option 'split_seed' is 1, the run has 0"):
        train(replace(ClassifyRecipe(**vars(_recipe(iris))), split_seed=1), resume=iris)
    resumed = train(resume=iris, override={"split_seed": 1})
    assert resumed.config["overrides"][0]["options"] == {"split_seed": [0, 1]}
    train(resume=Run(iris.path))


def _recipe(run):
    from lawful.training.registry import recipe_of

    return recipe_of(run)


# ------------------------------------------------------------ locks


LOCK = """
import sys, time
from pathlib import Path
from lawful._files import lock
with lock(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("member", [False, True])
def test_a_second_process_names_the_first(tmp_path, member):
    run = train(TwoRecipe(), output_dir=tmp_path)
    (run.members[1].path / "results.json").unlink()
    path = run.members[1].path if member else run.path
    first = subprocess.Popen([sys.executable, "-c", LOCK, str(path / ".lock")], stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout.readline() == "locked\n"
        with pytest.raises(TrainingFailed, match=rf"process {first.pid} on .*, since .*, is training {path}"):
            train(TwoRecipe(), resume=run)
    finally:
        first.kill()
        first.communicate()
    assert train(TwoRecipe(), resume=run).status == "finished"


# ------------------------------------------------------------ files that commands write


@pytest.mark.parametrize("kind", ["csv", "npy", "png", "safetensors"])
def test_a_file_that_a_command_writes_is_replaced_as_a_whole(tmp_path, monkeypatch, kind):
    from lawful.data.dataset import Arrays
    from lawful.recipes import export
    from lawful.recipes.data import DataSpec
    from lawful.recipes.generate import save_samples

    path = tmp_path / f"out.{kind}"
    path.write_text("old")

    def write():
        if kind == "safetensors":
            export(nn.Linear(2, 1), path)
        else:
            save_samples(torch.rand(3, 1, 4, 4), path, DataSpec(encoding=Arrays((1, 4, 4))))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write()
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    monkeypatch.undo()
    write()
    assert path.stat().st_size > 60


def test_output_to_a_pipe_or_a_device_is_written_directly(tmp_path):
    from lawful._files import write_file

    write_file("/dev/null", "x")
    target = tmp_path / "target.csv"
    target.write_text("old")
    (tmp_path / "link.csv").symlink_to(target)
    write_file(tmp_path / "link.csv", "new")
    assert (tmp_path / "link.csv").is_symlink()
    assert target.read_text() == "new"
