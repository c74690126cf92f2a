import pytest
import torch

from lawful.data.text.labeled import LabeledTexts, read_labeled_texts
from lawful.recipes import ClassifyTextRecipe, load, recipe_of
from lawful.recipes.classify_text import _BAGS, _bag_baseline
from lawful.training import TrainingFailed, train


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "texts.csv"
    rows = [f'"{i}: the cat, and {"milk" if i % 2 else "fish"}",{"white" if i % 2 else "grey"}' for i in range(60)]
    path.write_text("\n".join(["what,kind", *rows]) + "\n")
    return path


@pytest.fixture
def recipe(table, tiny):
    return ClassifyTextRecipe(data=str(table), context_length=16, **tiny())


def test_run_reports_bag_of_words_baselines(recipe, tmp_path):
    run = train(recipe, output_dir=tmp_path)
    results = run.results
    assert list(results["baselines"]) == ["most frequent class", *_BAGS]
    assert results["baselines"]["bag of words"] == results["baselines"]["bag of character n-grams"] == 1.0
    assert results["texts"] == {"train": 48, "test": 12, "classes": 2}
    assert run.config["model"]["text_spec"]["classes"] == ["grey", "white"]
    assert (run.samples / "mistakes.txt").is_file()


def test_resumed_run_equals_an_uninterrupted_one(recipe, tmp_path, stop_at):
    whole = train(recipe, output_dir=tmp_path)
    begun = train(recipe, output_dir=tmp_path, loggers=[stop_at(3)])
    again = train(recipe_of(begun), resume=begun)
    for name, weight in whole.weights().items():
        assert torch.equal(weight, again.weights()[name]), name


def test_padding_is_neither_seen_nor_counted(recipe, tmp_path):
    run = train(recipe, output_dir=tmp_path)
    model = load(run)
    short = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        padded = torch.nn.functional.pad(short, (0, 4), value=model.padding)
        torch.testing.assert_close(model(short), model(padded))


def test_token_dropout_only_in_training_mode(table, tiny, tmp_path):
    """A dropped token is left out of the mean; n-grams and the other tokens do not change."""
    from dataclasses import replace

    recipe = ClassifyTextRecipe(data=str(table), context_length=16, token_dropout=0.5, **tiny())
    model, x = recipe.setup().model, torch.tensor([[1, 2, 3, 4, 5]])
    open_ = replace(recipe, token_dropout=0.0).setup().model
    open_.load_state_dict(model.state_dict())
    vectors = []
    model.encoder.register_forward_hook(lambda _, __, y: vectors.append(y))
    with torch.no_grad():
        assert torch.equal(open_.train()(x), open_.eval()(x))
        torch.testing.assert_close(model.eval()(x), open_(x))
        torch.manual_seed(0)
        scores = model.train()(x)
        assert torch.equal(vectors[0], vectors[1])
        shares = [
            model.head(vectors[0][:, [bool(n >> i & 1) for i in range(5)]].sum(1) / max(1, n.bit_count()))
            for n in range(32)
        ]
    assert sum(torch.allclose(scores, share, atol=1e-6) for share in shares) == 1


@pytest.mark.long
def test_beats_bag_of_words_on_topics(tmp_path):
    results = train(ClassifyTextRecipe(), output_dir=tmp_path).results
    assert results["test"]["accuracy"]["value"] > results["baselines"]["bag of words"] + 0.03


def test_columns_are_found_and_can_be_named(table):
    found = read_labeled_texts(str(table))
    assert found.classes == ("grey", "white")
    assert found.texts[1] == "1: the cat, and milk"
    assert read_labeled_texts(str(table), text="what", target="kind") == found
    with pytest.raises(ValueError, match="no column 'nix'"):
        read_labeled_texts(str(table), text="nix")


def test_a_folder_for_each_class(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(2):
            (tmp_path / name / f"{i}.txt").write_text(f"{name}{i}")
    found = read_labeled_texts(str(tmp_path))
    assert found.classes == ("a", "b")
    assert found.texts == ("a0", "a1", "b0", "b1")


@pytest.mark.parametrize(
    ("content", "said"),
    [("", "is empty"), ("text,kind\na,x\nb,x\n", "at least 2 classes"), ("text\na\nb\n", "a class column")],
)
def test_invalid_tables_raise(content, said, tiny, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text(content)
    with pytest.raises(TrainingFailed, match=said):
        train(ClassifyTextRecipe(data=str(path), **tiny()), output_dir=tmp_path)


@pytest.mark.parametrize("parts", _BAGS.values(), ids=_BAGS)
def test_bag_baseline_separates_texts_by_word_counts(parts):
    texts = ("aaa aa", "bbb bb", "aa a", "b bb")
    held = LabeledTexts(texts, (0, 1, 0, 1), ("a", "b"), "letters")
    assert _bag_baseline(held, held, split=parts) == 1.0
