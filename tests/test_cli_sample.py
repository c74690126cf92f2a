import sys

import pytest

from lawful.cli import main
from lawful.models.generation import GREEDY
from lawful.recipes import TextRecipe, generate_from_run
from lawful.training import train

USAGE = 4


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample")
    text = folder / "words.txt"
    text.write_text("the cat sat on the mat, and the dog sat on the log.\n" * 30)
    recipe = TextRecipe(
        data=str(text),
        context_length=8,
        dim=8,
        num_heads=2,
        head_dim=0,
        ngram_rows=32,
        ngram_dim=0,
        ngram_dropout=0.0,
        steps=20,
        batch_size=8,
        threads=1,
        law_cases=0,
    )
    return str(train(recipe, output_dir=folder).path)


def test_generate_prints_text(run, capsys):
    assert main(["generate", run, "--prompt", "the cat", "--max-new-tokens", "20"]) == 0
    said = capsys.readouterr()
    assert len(said.out) == 21
    assert not said.err
    assert main(["generate", run, "--prompt", "the cat", "--max-new-tokens", "20", "--seed", "1"]) == 0
    assert capsys.readouterr().out != said.out


def test_same_seed_gives_the_same_text(run, capsys):
    words = [
        "generate",
        run,
        "--max-new-tokens",
        "30",
        "--top-k",
        "5",
        "--top-p",
        "0.9",
        "--min-p",
        "0.01",
        "--seed",
        "7",
    ]
    assert main(words) == main(words) == 0
    out = capsys.readouterr().out
    assert out[: len(out) // 2] == out[len(out) // 2 :]


def test_greedy_beams_and_stops(run, capsys):
    assert main(["generate", run, "--prompt", "the", "--temperature", "0", "--max-new-tokens", "12"]) == 0
    greedy = capsys.readouterr().out
    assert (
        main(
            ["generate", run, "--prompt", "the", "--temperature", "0", "--max-new-tokens", "12", "--stop", greedy[3:5]]
        )
        == 0
    )
    assert capsys.readouterr().out == greedy[: greedy.index(greedy[3:5])] + "\n"
    assert main(["generate", run, "--prompt", "the", "--num-beams", "3", "--max-new-tokens", "12"]) == 0
    searched = capsys.readouterr().out
    assert len(searched) >= 2
    rules = ["--num-beams", "3", "--temperature", "0.8", "--top-k", "5", "--top-p", "0.9", "--seed"]
    for seed in ("1", "2"):
        assert main(["generate", run, "--prompt", "the", "--max-new-tokens", "12", *rules, seed]) == 0
    sampled = capsys.readouterr().out
    assert len(sampled) == 2 * len(searched)
    assert sampled[: len(searched)] != sampled[len(searched) :]


def test_unknown_characters_and_large_top_k_give_a_warning(run, capsys):
    assert main(["generate", run, "--prompt", "the €", "--max-new-tokens", "3", "--top-k", "1000"]) == 0
    said = capsys.readouterr()
    assert len(said.out) == 4
    assert "'€'" in said.err
    assert "exceeds the vocabulary" in said.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--temperature", "-1"], "temperature"),
        (["--temperature", "nan"], "temperature"),
        (["--top-k", "-3"], "top_k"),
        (["--top-p", "0"], "top_p"),
        (["--min-p", "2"], "min_p"),
        (["--max-new-tokens", "0"], "from 1 to"),
        (["--num-beams", "0"], "from 1 to"),
        (["--max-new-tokens", "100000000000"], "max_new_tokens must be from 1 to 1,000,000, got 100000000000"),
        (["--num-beams", "100000000000"], "num_beams must be from 1 to 1,000, got 100000000000"),
        (["--stop", ""], "stop"),
        (["--seed", str(2**64)], "64-bit"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_arguments_give_a_one_line_error(words, said, run, capsys):
    assert main(["generate", run, *words]) == USAGE
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_generate_needs_a_run(tmp_path, capsys):
    assert main(["generate", str(tmp_path / "nix")]) == USAGE
    assert "nix" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "empty"), (b"x", "too short"), (b"ab\0" * 99, "not text"), (b"\xff" * 99, "not UTF-8 text")],
)
def test_bad_text_gives_a_one_line_error(content, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.txt").write_bytes(content)
    assert main(["train", "text", "--data", "bad.txt"]) != 0
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_stops_may_be_given_at_once_or_one_by_one(run, capsys):
    words = ["generate", run, "--prompt", "the", "--temperature", "0", "--max-new-tokens", "12"]
    assert main(words) == 0
    whole = capsys.readouterr().out
    early, late = whole[2], whole[5:7]
    for stops in (["--stop", early, late], ["--stop", early, "--stop", late], ["--stop", late, "--stop", early]):
        assert main([*words, *stops]) == 0
        assert capsys.readouterr().out == whole[: min(whole.index(early), whole.index(late))] + "\n"
    assert (
        "".join(generate_from_run(run, "the", max_new_tokens=12, sampling=GREEDY, stop=late))
        == whole[: whole.index(late)]
    )


def test_generate_runs_through_few_files(run, capsys):
    """Counts the files of lawful whose functions run, without `__init__` and imports."""
    main(["generate", run, "--max-new-tokens", "2"])  # imports
    files = set()

    def profile(frame, event, argument):
        name = frame.f_code.co_filename
        if event == "call" and "/lawful/" in name and "/src/" in name and not name.endswith("__init__.py"):
            files.add(name.rpartition("/src/")[2])

    sys.setprofile(profile)
    try:
        assert main(["generate", run, "--prompt", "the", "--max-new-tokens", "20"]) == 0
    finally:
        sys.setprofile(None)
    capsys.readouterr()
    assert len(files) <= 25, sorted(files)
