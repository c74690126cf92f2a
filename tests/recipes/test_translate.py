import pytest
import torch

from lawful.data.text import Pairs
from lawful.recipes import TranslateRecipe, generate_from_run, load, predictions, recipe_of
from lawful.recipes import translate as module
from lawful.recipes.translate import _edit_distance, _most_similar_targets
from lawful.training import TrainingFailed, train

SMALL = {"dim": 8, "num_layers": 1, "num_heads": 2, "steps": 6, "batch_size": 4, "threads": 1, "law_cases": 0}
"""Options of a quick run of a tiny model."""


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{n}\t{str(n)[::-1]}\n" for n in range(200)))
    return path


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A quick run on numbers and their digits in reverse order."""
    folder = tmp_path_factory.mktemp("translate")
    path = folder / "pairs.csv"
    path.write_text("source,target\n" + "".join(f"{n},{str(n)[::-1]}\n" for n in range(200)))
    return train(TranslateRecipe(data=str(path), **SMALL), output_dir=folder)


def test_a_resumed_run_equals_an_uninterrupted_one(pairs, tmp_path, stop_at):
    recipe = TranslateRecipe(data=str(pairs), **SMALL)
    run = train(recipe, output_dir=tmp_path)
    begun = train(recipe, output_dir=tmp_path, loggers=[stop_at(3)])
    again = train(recipe_of(begun), resume=begun)
    for name, weight in run.weights().items():
        assert torch.equal(weight, again.weights()[name]), name


def test_the_parts_are_disjoint_and_the_results_are_of_the_test(shared):
    assert shared.results["pairs"] == {"train": 162, "validation": 18, "test": 20}
    assert set(shared.results["test"]) == {"accuracy", "character error rate"}
    assert "test accuracy" in shared.results["summary"]
    evaluated = [line for line in shared.metrics if "validation/accuracy" in line]
    assert all({"validation/loss", "validation/character error rate"} <= set(line) for line in evaluated)
    assert evaluated


def test_generation_takes_beams_and_needs_a_prompt(shared):
    assert isinstance("".join(generate_from_run(shared, "12")), str)
    assert isinstance("".join(generate_from_run(shared, "12", num_beams=2, max_new_tokens=5)), str)
    with pytest.raises(ValueError, match="expected a text to translate"):
        list(generate_from_run(shared, ""))


def test_a_text_that_is_too_long_is_refused(shared):
    with pytest.raises(ValueError, match=r"has 10,001 tokens, at most 10,000 are supported: translate it in parts"):
        load(shared).translate("1" * 10_001)


def test_evaluation_and_generation_use_one_limit_from_the_training_targets(tmp_path, monkeypatch):
    """A model that knows every target has accuracy 1, also if targets are much longer than sources."""
    path = tmp_path / "pairs.tsv"
    targets = {str(n): str(n) * 40 for n in range(10, 60)}
    path.write_text("".join(f"{source}\t{target}\n" for source, target in targets.items()))

    def oracle(decoder, prompts, *, max_new_tokens, stop_tokens, **_):
        tokenizer, (end,) = decoder.model.tokenizer, stop_tokens
        texts = [tokenizer.decode(i for i in row.tolist() if i < prompts[0][0]) for row in decoder.source]
        rows = [(tokenizer.encode(targets[text]) + [end] * max_new_tokens)[:max_new_tokens] for text in texts]
        return torch.tensor(rows)

    monkeypatch.setattr(module, "generate", oracle)
    run = train(TranslateRecipe(data=str(path), **{**SMALL, "steps": 1}), output_dir=tmp_path)
    assert run.results["test"]["accuracy"]["value"] == 1
    assert run.results["test"]["character error rate"]["value"] == 0
    assert run.metrics[-1]["validation/accuracy"] == 1
    assert "".join(generate_from_run(run, "12")) == load(run).translate("12") == "12" * 40


def test_batched_translation_equals_single_translations(shared):
    model, sources = load(shared), ["1", "123", "12"]
    together = model.translate(sources)
    assert together == [model.translate(source) for source in sources] == model.predict(sources)
    assert isinstance(model.translate("12", num_beams=2), str)
    assert model.translate([]) == []
    with pytest.raises(ValueError, match="expected a text to translate, got an empty string"):
        model.translate(["1", ""])


def test_predictions_of_a_file(shared, tmp_path):
    (tmp_path / "new.csv").write_text("target,source\n21,12\n43,34\n")
    model, table = load(shared), predictions(shared, tmp_path / "new.csv")
    assert table.columns == ("row", "source", "prediction", "target")
    assert [tuple(row) for row in table.rows] == [
        ("0", "12", model.translate("12"), "21"),
        ("1", "34", model.translate("34"), "43"),
    ]
    assert table.summary.startswith("accuracy ")
    (tmp_path / "new.txt").write_text("12\n5~\n")
    table = predictions(shared, tmp_path / "new.txt")
    assert table.columns == ("row", "source", "prediction")
    assert table.notes == ("1 of 2 sources have characters that the training data do not have: '~'",)
    with pytest.raises(ValueError, match="num_samples needs a model with dropout"):
        predictions(shared, tmp_path / "new.txt", num_samples=3)
    with pytest.raises(FileNotFoundError, match=r"no such file: .*nowhere.tsv"):
        predictions(shared, tmp_path / "nowhere.tsv")


def test_header_option_skips_the_first_line(pairs):
    pairs.write_text("number\treversed\n" + pairs.read_text())
    for header, count in ((True, 200), (False, 201), (None, 200)):
        data = TranslateRecipe(data=str(pairs), header=header, **SMALL).setup().data
        found = {*data.train.sources, *data.validation.sources, *data.test.sources}
        assert (len(found), "number" in found) == (count, header is False)


@pytest.mark.parametrize(("x", "y"), [("", ""), ("", "ab"), ("kitten", "sitting"), ("ab", "ba"), ("aXbXc", "abc")])
def test_edit_distance_equals_the_recursion(x, y):
    def recursion(x, y):
        if not x or not y:
            return len(x) + len(y)
        return min(recursion(x[1:], y) + 1, recursion(x, y[1:]) + 1, recursion(x[1:], y[1:]) + (x[0] != y[0]))

    assert _edit_distance(x, y) == _edit_distance(y, x) == recursion(x, y)


def test_most_similar_targets():
    train_on = Pairs(("3 May 2020", "4 June 1999"), ("a", "b"))
    assert _most_similar_targets(train_on, ["5 June 1999", "3 May 2021"]) == ["b", "a"]


@pytest.mark.parametrize(
    ("content", "said"),
    [("", "has no pairs"), ("one line\n", "separated by a tab, got 'one line'"), ("a\tb\n", "too few distinct")],
)
def test_invalid_pairs_raise(content, said, tmp_path):
    path = tmp_path / "bad.tsv"
    path.write_text(content)
    with pytest.raises(TrainingFailed, match=said):
        train(TranslateRecipe(data=str(path), **SMALL), output_dir=tmp_path)


@pytest.mark.long
def test_learns_dates(tmp_path):
    run = train(TranslateRecipe(), output_dir=tmp_path)
    assert run.results["test"]["accuracy"]["value"] > 0.98
