import json
import math
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from lawful.blocks import S4D
from lawful.inference.likelihood import token_log_probs
from lawful.models.generation import SamplingConfig
from lawful.recipes import (
    BPETokenizerSpec,
    ByteTokenizerSpec,
    TextRecipe,
    TransformerConfig,
    generate_from_run,
    load,
    load_tokenizer,
    recipe_of,
)
from lawful.recipes import text as text_recipe
from lawful.recipes.text import ngram_baseline
from lawful.training import Run, TrainingFailed, train


def train_text(words, tiny, folder, *, loggers=(), resume=None, **options):
    recipe = TextRecipe(**{"data": str(words), "context_length": 8} | tiny() | options)
    return train(recipe, output_dir=folder, loggers=loggers, resume=resume)


@pytest.fixture(autouse=True, scope="module")
def _short_samples():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_recipe, "_SAMPLE_TOKENS", 10)
        yield


@pytest.fixture
def no_attention_figures(monkeypatch):
    """Skips the attention figures, which take longer than the training."""
    monkeypatch.setattr(TextRecipe, "_plot_attention", lambda *_: None)


@pytest.fixture(scope="module")
def run(words, tiny, tmp_path_factory):
    return train_text(words, tiny, tmp_path_factory.mktemp("runs"))


def test_run_writes_metrics_samples_and_figures(run):
    results = run.results
    assert results["validation"]["perplexity"] == pytest.approx(math.exp(results["validation"]["loss"]))
    assert results["validation"]["bits per byte"] == pytest.approx(results["validation"]["loss"] / math.log(2))
    assert results["baselines"]["2-gram model"] < results["baselines"]["1-gram model"]
    assert "-gram model" in results["summary"]
    assert "validation loss (nats per token)" in results["summary"]
    assert len(list(run.samples.glob("sample_*.txt"))) == 3
    assert (run.figures / "attention_layers.0.png").stat().st_size > 5000
    assert json.loads((run.path / "config.json").read_text())["model"]["tokenizer"]["kind"] == "characters"


def test_report_shows_validation_text_beside_the_samples(run, words):
    text = words.read_text()
    start = text[int(0.9 * len(text)) :][:10]
    assert (run.samples / "validation_text.txt").read_text() == start
    assert "validation_text.txt" in run.report.read_text()


def test_start_of_training_says_what_the_text_was_taken_for(words, tmp_path):
    folder = tmp_path / "books"
    folder.mkdir()
    (folder / "a.txt").write_text(words.read_text())
    (folder / "b.txt").write_bytes("Größe".encode("latin-1"))
    setup = TextRecipe(data=str(folder), context_length=8, num_layers=1).setup()
    size = len(words.read_text())
    (note,) = setup.notes
    assert note.startswith(f"books: {size:,} tokens (characters, vocabulary ")
    assert note.endswith(f"), {int(0.9 * size):,} for training, {size - int(0.9 * size):,} for validation")
    assert setup.warnings == ("skipped files that are not UTF-8 text: b.txt",)


def test_default_width_of_ngram_embeddings_is_at_most_dim(words):
    recipe = TextRecipe(data=str(words), dim=32, num_layers=1, context_length=8)
    assert recipe.setup().model.ngrams[0].weight.shape[1] == 32
    with pytest.raises(ValueError, match="ngram_dim must be at most dim: got ngram_dim=33, dim=32"):
        TextRecipe(dim=32, ngram_dim=33)


def test_loaded_model_has_the_training_context_length(run):
    model, letters = load(run), load_tokenizer(run)
    assert model.context_length == 8
    ids = letters.encode("the cat sat on the mat, and the dog sat")
    assert torch.equal(token_log_probs(model, ids), token_log_probs(model, ids, context_length=8))
    assert not torch.equal(token_log_probs(model, ids), token_log_probs(model, ids, context_length=16))


def test_beams_follow_the_sampling_options(run):
    plain, penalized = (
        "".join(generate_from_run(run, "the", num_beams=3, sampling=SamplingConfig(repetition_penalty=penalty)))
        for penalty in (1.0, 100.0)
    )
    assert plain != penalized


def test_the_loss_is_over_every_token_of_the_validation_text_in_windows_that_do_not_overlap(run, words):
    model, letters = load(run), load_tokenizer(run)
    ids = torch.tensor(letters.encode(words.read_text()))
    ids = ids[int(0.9 * len(ids)) :]
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(ids) - 1, 8):
            part = ids[start : start + 9]
            total += F.cross_entropy(model(part[None, :-1])[0], part[1:], reduction="sum").item()
    assert run.results["validation"]["loss"] == pytest.approx(total / (len(ids) - 1), rel=1e-5)


@pytest.mark.usefixtures("no_attention_figures")
def test_resumed_run_equals_an_uninterrupted_one(words, tiny, tmp_path, stop_at, run):
    begun = train_text(words, tiny, tmp_path, loggers=[stop_at(4)])
    assert not begun.results
    again = train(recipe_of(begun), resume=begun)
    for name, weight in run.weights().items():
        assert torch.equal(weight, again.weights()[name]), name
    assert again.results["validation"] == run.results["validation"]


@pytest.mark.usefixtures("no_attention_figures")
@pytest.mark.parametrize(("kind", "spec"), [("bytes", ByteTokenizerSpec()), ("bpe", BPETokenizerSpec(vocab_size=300))])
def test_other_tokens_than_characters(kind, spec, words, tiny, tmp_path):
    run = train_text(words, tiny, tmp_path, tokenizer=spec)
    assert load_tokenizer(run).vocab_size == (256 if kind == "bytes" else pytest.approx(280, abs=20))
    nats, bits = run.results["validation"]["loss"], run.results["validation"]["bits per byte"]
    assert bits <= nats / math.log(2) + 1e-9
    assert "".join(generate_from_run(run, "the ", max_new_tokens=5, seed=1)) == "".join(
        generate_from_run(run, "the ", max_new_tokens=5, seed=1)
    )


def test_more_than_256_characters_use_the_byte_tokenizer(tmp_path):
    text = tmp_path / "many.txt"
    text.write_text("".join(map(chr, range(0x4E00, 0x4F00))) * 3)
    from lawful.data.text import ByteTokenizer, CharTokenizer, read_text

    assert isinstance(TextRecipe(data=str(text))._train_tokenizer(read_text(text)), CharTokenizer)
    text.write_text("".join(map(chr, range(0x4E00, 0x4F01))) * 3)
    assert isinstance(TextRecipe(data=str(text))._train_tokenizer(read_text(text)), ByteTokenizer)


def loss_after_three_steps(recipe):
    torch.manual_seed(0)
    training = recipe.setup()
    training.model.train()
    for step in range(3):
        loss = training.optimizer_steps[0].loss_fn(training.model, training.batches.batch(step))
        training.model.zero_grad()
        loss.backward()
        training.optimizer_steps[0].optimizer.step()
    return training.optimizer_steps[0].loss_fn(training.model.eval(), training.batches.batch(9)).item()


@pytest.fixture(scope="module")
def default_loss(tiny, words):
    return loss_after_three_steps(TextRecipe(data=str(words), context_length=8, **tiny()))


@pytest.mark.parametrize(
    "change",
    [
        {"positions": "learned"},
        {"positions": "sinusoidal"},
        {"positions": "alibi"},
        {"positions": "t5"},
        {"positions": "none"},
        {"qk_norm": False},
        {"activation": "gelu"},
        {"activation": "swiglu"},
        {"norm": "layer"},
        {"norm": "rms"},
        {"norm_position": "post"},
        {"norm_position": "sandwich"},
        {"ngrams": ()},
        {"embedding_norm": False},
        {"embedding_skip": False},
        {"value_residual": True, "num_layers": 2},
        {"zero_init_outputs": False},
        {"tie_embeddings": True},
        {"logit_softcap": 15.0},
        {"attention_window": 3},
        {"dropout": 0.5},
        {"layer_pattern": "s(sf)*f"},
        {"hidden_dim": 5},
    ],
    ids=str,
)
def test_every_option_changes_the_training(change, tiny, words, default_loss):
    options = {k: v for k, v in tiny(**change).items() if change.get("ngrams", True) or not k.startswith("ngram_")}
    found = loss_after_three_steps(TextRecipe(data=str(words), context_length=8, **options))
    assert math.isfinite(found)
    assert found != default_loss


def test_the_default_is_small():
    model = TextRecipe().build_decoder(65, context_length=64)
    assert sum(p.numel() for p in model.parameters()) <= 1_500_000


def test_ngram_model_equals_witten_bell_smoothing():
    train, test, vocab = [0, 1, 2, 0, 1, 1, 0, 2, 2, 1], [1, 0, 2, 1, 1, 0, 0, 2], 4

    def p(x, before):
        runs = [tuple(train[i : i + len(before) + 1]) for i in range(len(train) - len(before))]
        after = [run[-1] for run in runs if run[:-1] == tuple(before)]
        shorter = p(x, before[1:]) if before else 1 / vocab
        kinds = len(set(after))
        return (after.count(x) + kinds * shorter) / (len(after) + kinds) if after else shorter

    for orders in (1, 2, 3, 4):
        said = [p(test[i], test[max(0, i - orders + 1) : i]) for i in range(1, len(test))]
        expected = -sum(map(math.log, said)) / len(said)
        found = ngram_baseline(torch.tensor(train), torch.tensor(test), vocab_size=vocab, max_order=orders)
        assert found[-1] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"a", "is too short"),
        (b"abc" * 20, "is too short"),
        (b"abc\0" * 100, "is not text"),
        (b"abc\xff\xfe" * 100, "is not UTF-8 text"),
    ],
)
def test_invalid_text_raises_a_one_line_error(content, said, tmp_path, tiny):
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(TrainingFailed, match=said) as refused:
        train(TextRecipe(data=str(path), **tiny()), output_dir=tmp_path)
    assert "\n" not in str(refused.value)


def test_options_that_contradict_are_refused():
    with pytest.raises(ValueError, match="num_heads must divide dim"):
        TransformerConfig(dim=10, num_heads=4)
    with pytest.raises(ValueError, match="even head_dim"):
        TransformerConfig(dim=9, num_heads=3)
    with pytest.raises(ValueError, match="an empty string"):
        TextRecipe(data="")


def test_invalid_tokenizer_in_the_config_raises(run, tmp_path):
    copied = shutil.copytree(run.path, tmp_path / "copied")
    facts = json.loads((copied / "config.json").read_text())
    facts["model"]["tokenizer"] = {"kind": "pickle"}
    (copied / "config.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match="does not match its checksum"):
        load(Run(copied))
    (copied / "checksums.json").unlink()
    with pytest.raises(ValueError, match=r"tokenizer\.kind"):
        load(Run(copied))


@pytest.mark.long
def test_laws_of_a_trained_model_are_saved(words, tiny, tmp_path):
    run = train_text(words, tiny, tmp_path, **tiny(law_cases=30))
    page = run.report.read_text()
    for law in ("causality", "cached_decoding", "batch_independence"):
        assert law in page
    assert "held'>held" in page
    assert "refuted'>" not in page


def memory_of_training(folder, *, size):
    """Trains on a text of at least that size; returns the peak memory in bytes and the run."""
    folder.mkdir()
    text, line = folder / "large.txt", b"the quick brown fox jumps over the lazy dog, 0123456789 times\n"
    sizes = {
        "steps": 3,
        "batch-size": 4,
        "dim": 8,
        "num-heads": 2,
        "ngram-rows": 32,
        "ngram-dim": 8,
        "law-cases": 0,
        "threads": 1,
    }
    options = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "lawful", "train", "text", "--data", text.name, *options]
    most = 0
    try:
        with text.open("wb") as file:
            for _ in range(size // (len(line) * 2**14) + 1):
                file.write(line * 2**14)
        with (folder / "said").open("w+") as said:
            process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=subprocess.STDOUT)
            while process.poll() is None:
                status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                most = max(most, *(int(line.split()[1]) for line in status if line.startswith("RssAnon")), 0)
                time.sleep(0.1)
            said.seek(0)
            assert process.returncode == 0, said.read()
    finally:
        text.unlink()
    return 2**10 * most, Run(folder / "runs" / "text-001")


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory of a process is read from /proc")
def test_memory_does_not_grow_with_a_2_gb_file(tmp_path):
    small, _ = memory_of_training(tmp_path / "small", size=2**27)
    large, run = memory_of_training(tmp_path / "large", size=2**31)
    assert large < small + 2**28
    assert len("".join(generate_from_run(run, "the", max_new_tokens=5))) == 5


@pytest.mark.parametrize(
    ("length", "options", "steps"),
    [(1000, {}, 25), (10_000, {}, 32), (200_000, {}, 400), (1000, {"steps": 3}, 3), (200_000, {"epochs": 2}, 174)],
)
def test_default_number_of_steps_depends_on_the_length_of_the_text(tmp_path, length, options, steps):
    path = tmp_path / "text.txt"
    path.write_text(("the quick brown fox, " * (length // 21 + 1))[:length])
    sizes = {"dim": 8, "num_layers": 1, "head_dim": 4, "ngrams": ()}
    assert TextRecipe(data=str(path), **sizes, **options).setup().steps == steps


@pytest.mark.parametrize("context_length", [8, 64])
def test_time_scales_of_state_space_layers_reach_from_tokens_to_the_context(context_length):
    recipe = TextRecipe(layer_pattern="(mf)*", num_layers=1)
    (layer,) = (m for m in recipe.build_decoder(5, context_length=context_length).modules() if isinstance(m, S4D))
    steps = layer.log_dt.exp()
    assert steps.min() >= 1.99 / context_length
    assert steps.max() <= 1.01
    assert steps.min() < 4 / context_length
    assert steps.max() > 0.5
