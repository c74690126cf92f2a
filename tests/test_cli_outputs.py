"""A file that cannot be written is an error before the work whose result it is for."""

from importlib import import_module
from unittest.mock import MagicMock

import pytest

from lawful.cli import main
from lawful.cli.console import check_output

WORK = {
    "predict": "lawful.recipes.predict.predictions",
    "score": "lawful.recipes.generate.score",
    "export": "lawful.recipes.model_export.export",
    "inpaint": "lawful.recipes.generate.inpaint",
    "check": "lawful.cli.check.run_request",
    "discover": "lawful.cli.check.run_request",
}
COMMANDS = [
    ["predict", "run", "data.csv", "--output"],
    ["score", "run", "data.csv", "--output"],
    ["export", "run", "--output"],
    ["inpaint", "photo.png", "--mask", "mask.png", "--output"],
    ["check", "torch.nn:ReLU", "--json"],
    ["check", "torch.nn:ReLU", "--sarif"],
    ["check", "torch.nn:ReLU", "--script"],
    ["discover", "torch.nn:ReLU", "--json"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: f"{words[0]} {words[-1]}")
@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("missing/x.png", "cannot write missing/x.png: there is no folder missing"),
        ("folder.png", "cannot write folder.png: it is a folder, expected a file"),
    ],
    ids=["missing", "folder"],
)
def test_an_output_that_cannot_be_written_is_refused_before_any_work(
    words, file, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.png").mkdir()
    module, _, name = WORK[words[0]].rpartition(".")
    monkeypatch.setattr(import_module(module), name, MagicMock(side_effect=AssertionError("work")))
    assert main([*words, file]) == 4
    assert capsys.readouterr().err == f"lawful: error: {message}\n"


def test_what_can_be_written_passes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.csv").write_text("")
    check_output("new.csv", "old.csv", str(tmp_path / "new.csv"), "-", None)


def test_a_number_of_processes_is_limited(capsys):
    assert main(["check", "lawful.blocks", "--jobs", "100000000000"]) == 4
    assert capsys.readouterr().err == "lawful: error: --jobs must be from 0 to 256, got 100000000000\n"


def test_a_name_that_is_not_utf_8_is_a_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "n\udcff.csv").write_text("a,b\n" + "1,2\n2,3\n3,5\n" * 8)
    assert main(["train", "regress", "--data", "n\udcff.csv", "--steps", "1"]) == 4
    message = "lawful: error: data must be UTF-8 text, got \"'n\\\\udcff.csv'\": rename the file\n"
    assert capsys.readouterr().err == message
    assert not (tmp_path / "runs").exists()
