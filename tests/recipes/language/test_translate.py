import pytest
import torch

from lawful.data.text import Pairs, tokenizer_from_json
from lawful.recipes import TranslateRecipe, load, recipe_of, sample
from lawful.recipes.translate import of_likest, translated
from lawful.training import TrainingFailed, train


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{n}\t{str(n)[::-1]}\n" for n in range(200)))
    return path


def test_a_run_of_ones_own_pairs(pairs, tiny, tmp_path, stops_at):
    recipe = TranslateRecipe(data=str(pairs), **tiny())
    run = train(recipe, folder=tmp_path)
    assert run.results["pairs"]["train"] + run.results["pairs"]["held back"] == 200
    assert isinstance("".join(sample(run, "12")), str)
    assert isinstance("".join(sample(run, "12", beams=2, tokens=5)), str)
    with pytest.raises(ValueError, match="empty prompt"):
        list(sample(run, ""))
    begun = train(recipe, folder=tmp_path, trackers=[stops_at(3)])
    again = train(recipe_of(begun), resume=begun)
    for name, weight in run.weights().items():
        assert torch.equal(weight, again.weights()[name]), name


def test_texts_of_unequal_lengths_come_out_as_they_do_alone(pairs, tiny, tmp_path):
    run = train(TranslateRecipe(data=str(pairs), **tiny()), folder=tmp_path)
    model, tokenizer = load(run), tokenizer_from_json(run.config["model"]["tokenizer"])
    sources = ["1", "123", "12"]
    together = translated(model, tokenizer, sources)
    assert together == [translated(model, tokenizer, [source])[0] for source in sources]


def test_a_line_of_names_is_left_out_where_that_is_said(pairs, tiny):
    pairs.write_text("number\treversed\n" + pairs.read_text())
    for header, count in ((True, 200), (False, 201)):
        training = TranslateRecipe(data=str(pairs), header=header, **tiny()).training()
        found = {*training.train.sources, *training.held.sources}
        assert (len(found), "number" in found) == (count, not header)


def test_the_likest_source_is_found():
    train_on = Pairs(("3 May 2020", "4 June 1999"), ("a", "b"))
    assert of_likest(train_on, ["5 June 1999", "3 May 2021"]) == ["b", "a"]


@pytest.mark.parametrize(
    ("content", "said"), [("", "is empty"), ("one line\n", "two texts with a tab"), ("a\tb\n", "too few distinct")]
)
def test_what_are_no_pairs_is_refused(content, said, tiny, tmp_path):
    path = tmp_path / "bad.tsv"
    path.write_text(content)
    with pytest.raises(TrainingFailed, match=said):
        train(TranslateRecipe(data=str(path), **tiny()), folder=tmp_path)


@pytest.mark.long
def test_dates_are_learnt(tmp_path):
    run = train(TranslateRecipe(), folder=tmp_path)
    assert run.results["test"]["accuracy"]["value"] > 0.98
