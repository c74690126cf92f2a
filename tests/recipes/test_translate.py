import pytest
import torch

from lawful.data.text import Pairs, tokenizer_from_json
from lawful.recipes import TranslateRecipe, generate_from_run, load, recipe_of
from lawful.recipes.translate import _most_similar_targets, translate
from lawful.training import TrainingFailed, train


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{n}\t{str(n)[::-1]}\n" for n in range(200)))
    return path


def test_train_on_custom_pairs(pairs, tiny, tmp_path, stop_at):
    recipe = TranslateRecipe(data=str(pairs), **tiny())
    run = train(recipe, output_dir=tmp_path)
    assert run.results["pairs"]["train"] + run.results["pairs"]["test"] == 200
    assert isinstance("".join(generate_from_run(run, "12")), str)
    assert isinstance("".join(generate_from_run(run, "12", num_beams=2, max_new_tokens=5)), str)
    with pytest.raises(ValueError, match="needs a prompt"):
        list(generate_from_run(run, ""))
    begun = train(recipe, output_dir=tmp_path, loggers=[stop_at(3)])
    again = train(recipe_of(begun), resume=begun)
    for name, weight in run.weights().items():
        assert torch.equal(weight, again.weights()[name]), name


def test_batched_translation_equals_single_translations(pairs, tiny, tmp_path):
    run = train(TranslateRecipe(data=str(pairs), **tiny()), output_dir=tmp_path)
    model, tokenizer = load(run), tokenizer_from_json(run.config["model"]["tokenizer"])
    sources = ["1", "123", "12"]
    together = translate(model, tokenizer, sources)
    assert together == [translate(model, tokenizer, [source])[0] for source in sources]


def test_header_option_skips_the_first_line(pairs, tiny):
    pairs.write_text("number\treversed\n" + pairs.read_text())
    for header, count in ((True, 200), (False, 201)):
        training = TranslateRecipe(data=str(pairs), header=header, **tiny()).setup()
        found = {*training.data.train.sources, *training.data.test.sources}
        assert (len(found), "number" in found) == (count, not header)


def test_most_similar_targets():
    train_on = Pairs(("3 May 2020", "4 June 1999"), ("a", "b"))
    assert _most_similar_targets(train_on, ["5 June 1999", "3 May 2021"]) == ["b", "a"]


@pytest.mark.parametrize(
    ("content", "said"),
    [("", "has no pairs"), ("one line\n", "two texts separated by a tab"), ("a\tb\n", "too few distinct")],
)
def test_invalid_pairs_raise(content, said, tiny, tmp_path):
    path = tmp_path / "bad.tsv"
    path.write_text(content)
    with pytest.raises(TrainingFailed, match=said):
        train(TranslateRecipe(data=str(path), **tiny()), output_dir=tmp_path)


@pytest.mark.long
def test_learns_dates(tmp_path):
    run = train(TranslateRecipe(), output_dir=tmp_path)
    assert run.results["test"]["accuracy"]["value"] > 0.98
