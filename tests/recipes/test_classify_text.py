import importlib.util
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import lawful
from lawful.data.text import CharTokenizer, pad_sequences
from lawful.data.text.labeled import LabeledTexts, read_labeled_texts
from lawful.recipes import ClassifyTextRecipe, NGramClassifier, load, recipe_of
from lawful.recipes.classify_text import (
    _HASH,
    _INVERSE_HASH,
    _letters,
    _linear_baselines,
    _logistic_regression,
    _ngram_keys,
)
from lawful.training import TrainingFailed, train

SMALL = {"dim": 8, "ngram_rows": 32, "steps": 6, "batch_size": 4, "threads": 1, "law_cases": 0}
"""Options of a quick run of a tiny model."""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "texts.csv"
    rows = [f'"{i}: the cat, and {"milk" if i % 2 else "fish"}",{"white" if i % 2 else "grey"}' for i in range(60)]
    path.write_text("\n".join(["what,kind", *rows]) + "\n")
    return path


@pytest.fixture
def recipe(table):
    return ClassifyTextRecipe(data=str(table), context_length=16, **SMALL)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A quick run on texts whose words decide the class."""
    path = tmp_path_factory.mktemp("texts") / "texts.csv"
    rows = [f'"{i}: The cat, and {"milk" if i % 2 else "fish"}",{"white" if i % 2 else "grey"}' for i in range(60)]
    path.write_text("\n".join(["what,kind", *rows]) + "\n")
    return train(ClassifyTextRecipe(data=str(path), context_length=32, **{**SMALL, "steps": 5}), output_dir=path.parent)


def test_the_run_reports_linear_baselines_and_the_winner(run):
    results = run.results
    assert results["baselines"].keys() == {"most frequent class", "letter n-grams", "words"}
    assert results["baselines"]["letter n-grams"] == results["baselines"]["words"] == 1.0
    assert results["test"]["accuracy"]["value"] == 1.0  # few steps, but the n-grams are fitted
    assert "The model and letter n-grams tie" in results["summary"]
    assert results["summary"] in run.report.read_text()
    assert results["texts"] == {"train": 49, "validation": 5, "test": 6, "classes": 2}
    assert run.config["model"]["text_spec"]["classes"] == ["grey", "white"]
    assert (run.samples / "mistakes.txt").is_file()


def test_steps_are_the_number_of_steps(run):
    assert run.results["steps"] == 5
    assert "texts.csv: text column 'what', class column 'kind'; 60 texts: grey 30, white 30" in run.log.read_text()


def test_the_loaded_model_predicts_texts(run):
    model = load(run)
    texts = ["the cat, and MILK", "the cat, and fish", ""]
    p = model.predict_proba(texts)
    assert p.shape == (3, 2)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)
    assert model.predict(texts[:2]).tolist() == ["white", "grey"] == [model.predict(text)[0] for text in texts[:2]]
    np.testing.assert_allclose(model.predict_proba(texts[0]), p[:1], rtol=1e-5)
    assert model.predict([]).shape == (0,)
    assert np.isfinite(p).all()


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="onnxruntime is not installed")
def test_onnx_file_has_the_logits_of_the_model(run, tmp_path):
    import onnxruntime

    exported, model = lawful.export(run, tmp_path / "model.onnx"), load(run).eval()
    assert exported.metadata["inputs"] == [{"name": "tokens", "dtype": "int64", "shape": ["batch", "length"]}]
    session = onnxruntime.InferenceSession(exported.path, providers=["CPUExecutionProvider"])
    texts = ["3: The cat, and milk", "fish and fish", "9", "a b c d e f g h i j k l m n o p q r s t"]
    for count in (1, 2, 4):  # rows of 22, 22 and 32 tokens, most of them padded
        tokens = pad_sequences(model.encode(texts[:count]), model.padding)
        (logits,) = session.run(None, {"tokens": tokens.numpy()})
        torch.testing.assert_close(torch.from_numpy(logits), model(tokens).detach(), rtol=1e-4, atol=1e-4)


def test_resumed_run_equals_an_uninterrupted_one(recipe, tmp_path, stop_at):
    whole = train(recipe, output_dir=tmp_path)
    begun = train(recipe, output_dir=tmp_path, loggers=[stop_at(3)])
    again = train(recipe_of(begun), resume=begun)
    for name, weight in whole.weights().items():
        assert torch.equal(weight, again.weights()[name]), name


def test_padding_is_neither_seen_nor_counted(run):
    model = load(run)
    short = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        padded = torch.nn.functional.pad(short, (0, 4), value=model.padding)
        torch.testing.assert_close(model(short), model(padded))


def test_token_dropout_only_in_training_mode(table, tmp_path):
    """A dropped token is left out of the mean; n-grams and the other tokens do not change."""
    from dataclasses import replace

    recipe = ClassifyTextRecipe(data=str(table), context_length=16, token_dropout=0.5, ngram_classifier=False, **SMALL)
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
def test_beats_letter_ngrams_on_topics(tmp_path):
    results = train(ClassifyTextRecipe(test_fraction=0.3), output_dir=tmp_path).results
    assert results["test"]["accuracy"]["value"] > results["baselines"]["letter n-grams"]


# ---------------------------------------------------------------- n-grams

TEXTS = ("ab abc", "abc ab ab", "b", "cab cab", "a-b c", "bca ab")
LABELS = (0, 1, 0, 1, 2, 2)


@pytest.fixture(scope="module")
def ngrams():
    """A classifier of n-grams for `TEXTS`, and the tokens of the texts."""
    tokenizer = CharTokenizer.train(TEXTS)
    size = tokenizer.vocab_size
    model = NGramClassifier(3, num_rows=10**5 + 1, letters=_letters(tokenizer), padding=size + 1)
    return model, [[size, *tokenizer.encode(text), size] for text in TEXTS]


def count_by_hand(text):
    """N-grams of the text between two boundaries, and its words and pairs of words."""
    letters = f"#{text}#"
    grams = [letters[i : i + n] for n in range(1, 6) for i in range(len(letters) - n + 1)]
    words = "".join(c if c.isalnum() else " " for c in text).split()
    return grams, [*words, *("+".join(pair) for pair in pairwise(words))]


def test_keys_are_equal_for_equal_ngrams_only(ngrams):
    model, rows = ngrams
    hashed, counted = [{}, {}], [count_by_hand(text) for text in TEXTS]
    found = _ngram_keys(pad_sequences(rows, model.padding), model.letters, padding=model.padding)
    for part, (keys, valid) in enumerate(found):
        for i in range(len(TEXTS)):
            of_text = keys[i][valid[i]].tolist()
            assert len(of_text) == len(counted[i][part]), TEXTS[i]
            for key in of_text:
                hashed[part].setdefault(key, 0)
                hashed[part][key] += 1
        by_hand = [gram for both in counted for gram in both[part]]
        assert sorted(hashed[part].values()) == sorted(by_hand.count(gram) for gram in set(by_hand))
    assert not hashed[0].keys() & hashed[1].keys()


def keys_by_cumulative_maximum(tokens, letters):
    """The hashes of words and pairs of words, with the operators that ONNX lacks."""
    t, x, index = tokens.shape[1], tokens + 1, torch.arange(tokens.shape[1]).expand_as(tokens)
    is_letter = letters[tokens]
    start = (torch.where(is_letter, -1, index).cummax(1).values + 1).clamp_max(t - 1)
    powers, inverse = (torch.full_like(index[0], factor).cumprod(0) for factor in (_HASH, _INVERSE_HASH))
    sums = (x * powers).cumsum(1)
    word = (sums - F.pad(sums, (1, 0))[:, :t].gather(1, start)) * inverse[start]
    is_end = is_letter & ~F.pad(is_letter, (0, 1))[:, 1:]
    last_end = torch.where(is_end, index, -1).cummax(1).values
    previous = F.pad(last_end, (1, 0), value=-1)[:, :t].gather(1, start)
    pair = _HASH * (3 * word + 2) + word.gather(1, previous.clamp_min(0))
    return torch.cat([3 * word + 1, pair], 1), torch.cat([is_end, is_end & (previous >= 0)], 1)


@pytest.mark.parametrize(
    ("length", "share"), [(1, 0.5), (2, 0.5), (9, 0.0), (9, 1.0), (70, 0.3), (70, 0.9), (2000, 0.8)]
)
def test_keys_of_words_equal_those_by_cumulative_maximum(length, share):
    """Of random tokens, a share of which are letters."""
    letters = torch.arange(20) < 20 * share
    tokens = torch.randint(20, (5, length))
    _, found = _ngram_keys(tokens, letters, padding=19)
    for key, expected in zip(found, keys_by_cumulative_maximum(tokens, letters), strict=True):
        assert torch.equal(key, expected)


def test_ngram_classifier_equals_logistic_regression_on_tf_idf(ngrams):
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    model, rows = ngrams
    model.fit(rows, LABELS)
    features = make_union(
        *(TfidfVectorizer(analyzer=lambda text, i=i: count_by_hand(text)[i], sublinear_tf=True) for i in (0, 1))
    )
    x = features.fit_transform(TEXTS)
    expected = _logistic_regression().fit(x, LABELS).decision_function(x)
    found = model(pad_sequences(rows, model.padding))
    torch.testing.assert_close(found, torch.from_numpy(expected).float(), rtol=0.02, atol=0.02)


def test_logits_for_training_come_from_the_other_texts(ngrams):
    """A text whose words no other text has gets no information from its own label."""
    model, rows = ngrams
    logits = []
    for label in (0, 1):
        labels = [0, 1] * 5 + [label]
        texts = [rows[2] if y == 0 else rows[3] for y in labels[:-1]] + [rows[4]]
        logits.append(model.fit(texts, labels))
        assert (logits[-1][:-1].argmax(-1) == torch.tensor(labels[:-1])).all()
    assert logits[0][-1, :2].diff().abs() < 0.5
    torch.testing.assert_close(logits[0][-1], logits[1][-1], rtol=0, atol=0.5)


def test_an_encoder_alone(table):
    recipe = ClassifyTextRecipe(data=str(table), ngram_classifier=False, context_length=16, **SMALL)
    setup = recipe.setup()
    assert setup.model.ngrams is None
    assert not setup.batches.batch(0)[2].any()


def test_rare_classes_are_refused(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("text,kind\n" + "a word,x\nthe word,y\n" * 5 + "one,z\n")
    message = r"class 'z' of column 'kind' of texts.csv has 1 text, at least 3 are needed for training"
    with pytest.raises(ValueError, match=message):
        ClassifyTextRecipe(data=str(path), **SMALL).setup()


def test_test_texts_that_occur_in_training_are_a_warning(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("text,kind\n" + "a word,x\nthe word,y\n" * 20)
    assert "4 of 4 test texts also occur in training" in ClassifyTextRecipe(data=str(path), **SMALL).setup().warnings


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
def test_invalid_tables_raise(content, said, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text(content)
    with pytest.raises(TrainingFailed, match=said):
        train(ClassifyTextRecipe(data=str(path), **SMALL), output_dir=tmp_path)


def test_linear_baselines_separate_texts_by_their_letters():
    texts = ("aaa aa", "bbb bb", "aa a", "b bb")
    data = LabeledTexts(texts, (0, 1, 0, 1), ("a", "b"), "letters")
    assert _linear_baselines(data, data) == {"letter n-grams": 1.0, "words": 1.0}
    data = LabeledTexts(("!!", "??", "!", "?"), (0, 1, 0, 1), ("a", "b"), "marks")
    assert _linear_baselines(data, data) == {"letter n-grams": 1.0}
