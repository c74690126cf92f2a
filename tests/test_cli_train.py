"""Training, listing runs and predicting from the command line: clear sentences, exit codes, no traceback."""

import csv
import dataclasses
import itertools
import json
import random
import re
import shlex
import shutil
import sys

import pytest
import torch

from lawful.cli import main
from lawful.recipes import RECIPES
from lawful.training import Run
from lawful.training.report import _train_command as command_of

QUICK = ("--epochs", "1", "--batch-size", "32", "--law-cases", "0", "--threads", "1")
HEADER = "size,color,weight,kind\n"


@pytest.fixture(autouse=True)
def work_dir(tmp_path, monkeypatch):
    """A temporary working directory, and a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture
def lawful(capfd):
    def run(*arguments):
        code = main([str(a) for a in arguments])
        shown = capfd.readouterr()
        assert "Traceback" not in shown.out + shown.err
        assert code != 3, shown.err
        return code, shown.out, shown.err

    return run


def lines(count=60):
    draw = random.Random(0)
    for i in range(count):
        k = i % 3
        color, kind = ("red", "blue", "green")[k], ("cat", "dog", "owl")[k]
        yield f"{draw.gauss(2 * k, 0.5):.4f},{color},{draw.gauss(-k, 0.5):.4f},{kind}\n"


@pytest.fixture
def own_csv(work_dir):
    (work_dir / "own.csv").write_text(HEADER + "".join(lines()))
    return "own.csv"


def plain(text):
    """A text without boxes and line breaks."""
    return " ".join(re.sub(r"[╭─╮│╰╯]", " ", text).split())


@pytest.mark.parametrize("command", ["train", "runs"])
def test_a_reader_that_leaves_is_no_internal_error(command, monkeypatch, capsys):
    def close(*arguments):
        raise BrokenPipeError

    discarded = []
    monkeypatch.setattr(sys.modules["lawful.cli"], "train", close)
    monkeypatch.setitem(sys.modules["lawful.cli"]._COMMANDS, command, close)
    monkeypatch.setattr(sys.modules["lawful.cli"], "discard_output", lambda: discarded.append(True))
    assert main([command]) == 2
    assert discarded
    assert capsys.readouterr().err == ""


# ------------------------------------------------------------ help


def test_help_lists_the_recipes(lawful):
    code, out, _ = lawful("train", "--help")
    assert code == 0
    for name, kind in RECIPES.items():
        assert f"{name} " in out
        assert kind.__doc__.splitlines()[0] in out
    assert lawful("train")[0] == 4


@pytest.mark.parametrize("recipe", list(RECIPES))
def test_help_has_every_option_with_its_default(lawful, recipe):
    code, out, _ = lawful("train", recipe, "--help")
    assert code == 0
    assert max(len(line) for line in out.splitlines() if line.startswith("│")) <= 80
    words = re.sub(r", --no-[a-z-]+", "", plain(out))
    for name, default in options_of(RECIPES[recipe]()):
        option = name.replace("_", "-")
        entry = re.search(rf"--{option} (.+?)(?= --[a-z]| [a-z-]+ options|$)", words)
        assert entry, option
        assert len(entry[1].split()) > 2, entry[0]
        assert ("(default:" in entry[1]) == (default not in (None, ())), entry[0]
        assert not re.search(r"(Defaults to|The default depends).*\(default:", entry[1]), entry[0]


def options_of(recipe):
    """The options of a recipe and of its default model, with their defaults."""
    for field in dataclasses.fields(recipe):
        value = getattr(recipe, field.name)
        yield field.name, value
        yield from options_of(value) if dataclasses.is_dataclass(value) else []


@pytest.mark.parametrize("recipe", list(RECIPES))
def test_optional_values_show_their_type_in_help(lawful, recipe):
    shown = lawful("train", recipe, "--help")[1]
    assert "None" not in shown
    for name, kind in {"epochs": "INT", "learning-rate": "FLOAT", "target": "STR", "largest": "INT"}.items():
        assert f"--{name} " not in shown or f"--{name} {kind} " in shown


@pytest.mark.parametrize("recipe", RECIPES)
def test_help_lines_are_filled(lawful, recipe):
    """A line with room for the next word ends an entry."""
    rows = [line.strip("│ ") for line in lawful("train", recipe, "--help")[1].splitlines() if line.startswith("│  ")]
    width = max(map(len, rows))
    for line, after in itertools.pairwise(rows):
        assert len(line) + 1 + len(after.split()[0]) > width or line.endswith((")", ".")), line


# ------------------------------------------------------------ arguments


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("clasify",), "unknown recipe 'clasify': did you mean classify?"),
        (("xyz",), "unknown recipe 'xyz'"),
        (("classify", "--epoch", "3"), "no option --epoch: did you mean --epochs?"),
        (("classify", "--model", "mpl"), "invalid choice 'mpl' for argument '--model'. Expected one of ('auto', 'mlp'"),
        (("classify", "--batch-size", "many"), "'many'"),
        (("classify", "--epochs", "0"), "epochs must be"),
        (("classify", "--dropout", "2"), "dropout must be"),
        (("classify", "--hidden-dims", "-3"), "hidden_dims[0] must be"),
        (("classify", "--learning-rate", "nan"), "learning_rate must be a finite number, got nan"),
        (("classify", "--channels", "64"), "--channels needs --model cnn, got --model auto"),
        (
            ("regress", "--model", "knn", "--degree", "3"),
            "--degree needs --model polynomial, got --model knn",
        ),
        (("classify", "--resize", "8"), "resize must be a height and a width, got (8,)"),
        (("--resume", "nowhere"), "nowhere"),
        (("--resume",), "lawful train --resume RUN takes no other arguments"),
        (("--resume", "a", "--epochs", "3"), "than --override NAME=VALUE, got --resume a --epochs 3"),
        (("classify", "--resume", "a"), "than --override NAME=VALUE, got classify --resume a"),
    ],
)
def test_invalid_arguments(lawful, work_dir, arguments, sentence):
    code, out, err = lawful("train", *arguments)
    assert code == 4
    assert sentence in plain(out + err)
    assert list(work_dir.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--target", "knd"), "own.csv has no column 'knd': did you mean kind?"),
        (("--target", "size"), "use the recipe regress"),
        (("--model", "cnn"), "model cnn needs images or series"),
        (("--penalty", "l1", "--penalty-params", "layer*"), "no parameter matches 'layer*'"),
        (("--num-members", "2", "--target", "knd"), "own.csv has no column 'knd'"),
        (("--device", "cuda"), "cuda"),
        (("--resize", "8", "8"), "own.csv"),
        (("--hidden-dims", "1000000", "1000000"), "at most 2,000,000,000 are supported"),
    ],
)
def test_arguments_that_do_not_fit_the_data(lawful, own_csv, work_dir, arguments, sentence):
    if "cuda" in arguments and torch.cuda.is_available():
        pytest.skip("there is such a device")
    code, _, err = lawful("train", "classify", "--data", own_csv, *QUICK, *arguments)
    assert code == 4
    assert sentence in err
    assert not (work_dir / "runs").exists()


# ------------------------------------------------------------ data


BAD = {
    "empty": ("", "bad.csv is empty"),
    "header": (HEADER, "bad.csv has a header but no rows"),
    "one class": (HEADER + "".join(line.rpartition(",")[0] + ",cat\n" for line in lines()), "has only the class 'cat'"),
    "one example": (HEADER + "1,red,1,emu\n" + "".join(lines()), "class 'emu' has 1 of 61 examples"),
    "text": (HEADER + "big,red,1,cat\n" + "".join(lines()), "line 2 of bad.csv, column 'size': got 'big' among"),
    "few": (HEADER + "".join(lines(3)), "3 classes in 3 examples"),
    "ragged": (HEADER + "1,red\n" + "".join(lines()), "line 2"),
    "huge": (HEADER + "1e60,red,1,cat\n" + "".join(lines()), "column 'size': expected a finite float32 number"),
    "binary": (bytes(range(256)), "bad.csv is not UTF-8 text"),
}


@pytest.mark.parametrize("kind", list(BAD))
def test_bad_data_give_a_clear_error(lawful, work_dir, kind):
    content, sentence = BAD[kind]
    (work_dir / "bad.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    code, _, err = lawful("train", "classify", "--data", "bad.csv", *QUICK)
    assert code == 4
    assert sentence in err
    assert not (work_dir / "runs").exists()


def test_missing_file_suggests_a_similar_name(lawful, own_csv, work_dir):
    code, _, err = lawful("train", "classify", "--data", "won.csv", *QUICK)
    assert code == 4
    assert "no such file or folder: won.csv: did you mean own.csv?" in err


def test_too_few_rows_to_split(lawful, work_dir):
    (work_dir / "few.csv").write_text("a,b\n1,2\n3,4\n")
    code, _, err = lawful("train", "regress", "--data", "few.csv", *QUICK)
    assert code == 4
    assert "2 examples are too few for a split into 0.72, 0.08, 0.2" in err


# ------------------------------------------------------------ from training to predictions


def test_a_run_from_the_first_command_to_the_last(lawful, own_csv, work_dir):
    """Train, list, predict, resume, move, predict again."""
    assert lawful("runs") == (0, "", "lawful: runs has no runs\n")
    code, out, _ = lawful("train", "classify", "--data", own_csv, *QUICK, "--hidden-dims", "8")
    assert code == 0
    assert "report: runs/classify-001/report.html" in out
    assert "test: accuracy " in out.splitlines()[-1]
    results = json.loads((work_dir / "runs/classify-001/results.json").read_text())

    code, out, _ = lawful("runs")
    assert code == 0
    assert f"runs/classify-001 classify {own_csv} finished accuracy" in plain(out)
    assert len(out.splitlines()) == 2

    code, first, err = lawful("predict", "runs/classify-001", own_csv)
    assert code == 0
    assert re.fullmatch(r"accuracy \S+ \[\S+ \S+\] on 60 rows\n", err)
    rows = list(csv.DictReader(first.splitlines()))
    assert len(rows) == 60
    for row in rows:
        assert sum(float(row[f"p({name})"]) for name in ("cat", "dog", "owl")) == pytest.approx(1, abs=1e-5)

    code, out, _ = lawful("train", "--resume", "runs/classify-001")
    assert code == 0
    assert "step" in out
    assert json.loads((work_dir / "runs/classify-001/results.json").read_text())["test"] == results["test"]

    shutil.move("runs/classify-001", "elsewhere")
    code, out, _ = lawful("predict", "elsewhere", own_csv, "--output", "p.csv")
    assert code == 0
    assert (out, (work_dir / "p.csv").read_text()) == ("", first)


def test_command_in_the_report_reproduces_the_run(lawful, own_csv, work_dir):
    odd = (
        "--hidden-dims",
        "6",
        "5",
        "--ignore-columns",
        "weight",
        "--validation-fraction",
        "0",
        "--seed",
        "4",
        "--learning-rate",
        "1e-2",
    )
    assert lawful("train", "classify", "--data", own_csv, *QUICK, *odd, "--bagging")[0] == 0
    command = shlex.split(command_of(Run("runs/classify-001").config))
    assert command[:3] == ["lawful", "train", "classify"]
    assert lawful(*command[1:])[0] == 0
    first, again = (Run(f"runs/classify-00{i}") for i in (1, 2))
    assert first.config == again.config
    assert all(torch.equal(weight, again.weights()[name]) for name, weight in first.weights().items())


def test_duplicates_are_reported_at_the_start_and_in_the_report(lawful, work_dir):
    (work_dir / "twice.csv").write_text(HEADER + "".join(lines()) * 2)
    options = ["--target", "size", "--model", "linear", "--threads", "1", "--law-cases", "0"]
    code, out, _ = lawful("train", "regress", "--data", "twice.csv", *options)
    assert code == 0
    sentence = "examples of test also occur in train: test does not measure generalization"
    assert sentence in out
    assert out.index(sentence) < out.index("0 steps")
    assert sentence in (work_dir / "runs/regress-001/report.html").read_text(encoding="utf-8")
    assert sentence in (work_dir / "runs/regress-001/log.txt").read_text()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda c: c["options"]["model"].update(ridg=1.0), "options.model has no field 'ridg': did you mean ridge?"),
        (lambda c: c["options"].update(data="gone.csv"), "no such file or folder: gone.csv"),
        (lambda c: c.update(recipe="regres"), "did you mean regress?"),
        (lambda c: c.update(threads=10**9), "threads"),
        (lambda c: c.update(data="0"), "changed"),
    ],
)
def test_resuming_with_an_edited_config(lawful, work_dir, altered_run, change, sentence):
    path = work_dir / "runs/regress-001/config.json"
    held = json.loads(path.read_text())
    change(held)
    path.write_text(json.dumps(held))
    code, _, err = lawful("train", "--resume", "runs/regress-001")
    assert code == 4
    assert "config.json of runs/regress-001 does not match its checksum: it was edited or damaged" in err
    (path.parent / "checksums.json").unlink()
    code, _, err = lawful("train", "--resume", "runs/regress-001")
    assert code in (1, 4)
    assert sentence in err


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory):
    """A run of linear regression, to be copied."""
    from lawful.recipes import LinearSpec, RegressRecipe
    from lawful.training import train

    recipe = RegressRecipe(model=LinearSpec(), threads=1, law_cases=0)
    return train(recipe, output_dir=tmp_path_factory.mktemp("linear")).path


@pytest.fixture
def altered_run(trained_run, work_dir):
    shutil.copytree(trained_run, work_dir / "runs/regress-001")


def test_a_narrow_terminal_shows_the_first_metric(lawful, work_dir, altered_run, monkeypatch):
    folder = work_dir / "runs/regress-001"
    results = json.loads((folder / "results.json").read_text())
    (folder / "checksums.json").unlink()
    (folder / "results.json").write_text(json.dumps(results | {"test": {"error": 1.0, "other": 2.0}}))
    config = json.loads((folder / "config.json").read_text())
    config["options"]["run"] = "runs/regress-001"
    (work_dir / "runs/attack-001").mkdir()
    (work_dir / "runs/attack-001/config.json").write_text(json.dumps(config))
    assert "error 1; other 2" in lawful("runs")[1]
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.modules["lawful.cli.train"], "_FILE_WIDTH", None)
    _, regress, attack = lawful("runs")[1].splitlines()
    assert regress.split() == ["runs/regress-001", "regress", "diabetes", "finished", "error", "1"]
    assert attack.split()[2] == "runs/regress-001"


def test_broken_runs_are_listed_or_omitted(lawful, work_dir, altered_run):
    for name in ("no config", "no json", "a list", "no results", "bad results"):
        (work_dir / "runs" / name).mkdir()
    (work_dir / "runs/no json/config.json").write_text("{")
    (work_dir / "runs/a list/config.json").write_text("[]")
    (work_dir / "runs/no results/config.json").write_text("{}")
    (work_dir / "runs/bad results/config.json").write_text('{"recipe": ["x"]}')
    (work_dir / "runs/bad results/results.json").write_text('{"test": ')
    (work_dir / "runs/no results/metrics.jsonl").write_text('{"step": "x"}\n[]\n{')
    code, out, _ = lawful("runs")
    assert code == 0
    assert "runs/regress-001" in out
    assert "not" in out
    assert "damaged" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nowhere", "diabetes"), "nowhere"),
        (("runs", "diabetes"), "config.json"),
        (("runs/regress-001", "gone.csv"), "no such file or folder: gone.csv"),
        (("runs/regress-001", "iris"), "iris has other columns, shapes or classes"),
        (("runs/regress-001", "diabetes", "--num-samples", "-1"), "--num-samples must be at least 0, got -1"),
        (("runs/regress-001", "diabetes", "--num-samples", "2"), "num_samples needs a model with dropout"),
        (("runs/regress-001", "diabetes", "--output", "no/p.csv"), "no/p.csv"),
        (("runs/regress-001", "diabetes", "--sample", "2"), "Unrecognized options"),
    ],
)
def test_prediction_errors(lawful, altered_run, arguments, sentence):
    code, out, err = lawful("predict", *arguments)
    assert code == 4
    assert sentence in plain(out + err)


def test_weights_that_are_damaged(lawful, work_dir, altered_run):
    path = work_dir / "runs/regress-001/model.safetensors"
    path.write_bytes(path.read_bytes()[:-7])
    code, _, err = lawful("predict", "runs/regress-001", "diabetes")
    assert code == 4
    assert "model.safetensors" in err
