import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful.data.text import BPETokenizer, ByteTokenizer, CharTokenizer, python_topics, tokenizer_from_json

LETTERS = CharTokenizer.train(["hello wörld\n😀"])
PAIRS = BPETokenizer.train([python_topics()[:50_000]], vocab_size=400)
ALL = [LETTERS, ByteTokenizer(), PAIRS]


@given(st.text())
@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), PAIRS])
def test_every_text_round_trips(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.unknown_characters(text) == ()


@given(st.text(LETTERS.alphabet))
def test_known_characters_round_trip(text):
    assert LETTERS.decode(LETTERS.encode(text)) == text
    assert LETTERS.unknown_characters(text) == ()
    assert len(LETTERS.encode(text)) == len(text)


@given(st.text())
def test_an_unknown_character_becomes_the_replacement_character(text):
    expected = "".join(letter if letter in LETTERS.alphabet else "\ufffd" for letter in text)
    assert LETTERS.decode(LETTERS.encode(text)) == expected
    assert set(LETTERS.unknown_characters(text)) == set(text) - set(LETTERS.alphabet) - {"\ufffd"}


@given(st.text())
def test_trained_alphabet_covers_the_text(text):
    if set(text) - {"\ufffd"}:
        made = CharTokenizer.train([text[:2], text[2:]])
        assert made.alphabet == "".join(sorted(set(text) - {"\ufffd"}))
        assert made.decode(made.encode(text)) == text


@pytest.mark.parametrize("tokenizer", ALL)
def test_half_a_surrogate_pair_is_unknown(tokenizer):
    text = "he\ud800l"
    assert tokenizer.unknown_characters(text) == ("\ud800",)
    assert tokenizer.decode(tokenizer.encode(text)) == "he\ufffdl"


@settings(deadline=None)
@given(st.text("helo wr\n"))
@pytest.mark.parametrize("tokenizer", ALL)
def test_tokens_are_numbers_below_the_vocabulary(tokenizer, text):
    tokens = tokenizer.encode(text)
    assert all(0 <= token < tokenizer.vocab_size for token in tokens)
    array = tokenizer.encode_array(text)
    assert array.tolist() == tokens
    assert array.dtype == np.min_scalar_type(tokenizer.vocab_size - 1)
    assert len(tokenizer.token_bytes) == tokenizer.vocab_size
    assert not set(tokens) & set(tokenizer.reserved_ids)


@pytest.mark.parametrize("tokenizer", ALL)
def test_json_and_back(tokenizer):
    text = json.dumps(tokenizer.to_json())
    back = tokenizer_from_json(json.loads(text))
    assert back == tokenizer
    assert back.encode("hello w") == tokenizer.encode("hello w")


def test_bpe_equals_the_tokenizers_library():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    library.train_from_iterator([python_topics()[:50_000]], trainer)
    text = python_topics()[60_000:70_000] + " äöü 東京 😀\n\n  x"
    expected = library.encode(text)
    assert [len(PAIRS.token_bytes[token]) for token in PAIRS.encode(text)] == [len(name) for name in expected.tokens]
    assert PAIRS.decode(PAIRS.encode(text)) == library.decode(expected.ids)
    assert PAIRS.vocab_size == 400
    assert len(PAIRS.encode(text)) < 0.7 * len(text)


def test_two_merges_can_give_the_same_token():
    pairs = BPETokenizer(((97, 98), (98, 99), (256, 99), (97, 257)))
    assert pairs.vocab_size == 259
    assert pairs.token_bytes[256:] == (b"ab", b"bc", b"abc")


@pytest.mark.parametrize("tokenizer", ALL)
@pytest.mark.parametrize("token", [-1, 1000])
def test_a_token_outside_the_vocabulary_is_refused(tokenizer, token):
    with pytest.raises(ValueError, match=f"token ids must be between 0 and {tokenizer.vocab_size - 1}, got {token}"):
        tokenizer.decode([0, token])


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (None, "tokenizer.kind must be one of 'characters', 'bytes', 'bpe'"),
        ({"kind": "pickle"}, "got 'pickle'"),
        ({"kind": ["bpe"]}, "tokenizer.kind must be one of"),
        ({"kind": "characters"}, "tokenizer has no field 'alphabet'"),
        ({"kind": "characters", "alphabet": 3}, "tokenizer.alphabet must be a string, got int"),
        ({"kind": "characters", "alphabet": ""}, "alphabet must be non-empty"),
        ({"kind": "characters", "alphabet": "aba"}, "without repeated characters"),
        ({"kind": "characters", "alphabet": "a\ufffd"}, r"alphabet must not contain U\+FFFD"),
        ({"kind": "characters", "alphabet": "a\ud800"}, r"alphabet must not contain U\+D800"),
        ({"kind": "bytes", "more": 1}, "unknown field 'more'"),
        ({"kind": "bpe", "merges": {}}, "must be a list of pairs"),
        ({"kind": "bpe", "merges": [[1]]}, "must be a list of pairs"),
        ({"kind": "bpe", "merges": [[1, "2"]]}, "must be an integer"),
        ({"kind": "bpe", "merges": [[1, True]]}, "must be an integer"),
        ({"kind": "bpe", "merges": [[256, 0]]}, r"merges\[0\] must be an integer from 0 to 255, got 256"),
        ({"kind": "bpe", "merges": [[1, 2], [1, 2]]}, "must not repeat a pair"),
        ({"kind": "bpe", "merges": [[0, 0], *([n, n] for n in range(256, 300))]}, "at most 10000 allowed"),
    ],
)
def test_invalid_tokenizer_json_raises(value, sentence):
    with pytest.raises(ValueError, match=sentence):
        tokenizer_from_json(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=9,
)


@given(st.sampled_from(["characters", "bytes", "bpe"]), JSON, JSON)
def test_arbitrary_json_is_a_tokenizer_or_raises_value_error(kind, first, second):
    for value in (first, {"kind": kind, "alphabet": first}, {"kind": kind, "merges": [first, second]}):
        try:
            made = tokenizer_from_json(value)
        except ValueError:
            continue
        assert tokenizer_from_json(made.to_json()) == made


def test_training_errors():
    with pytest.raises(ValueError, match="vocab_size must be between 256"):
        BPETokenizer.train(["abc"], vocab_size=100)
    assert BPETokenizer.train(["ab"], vocab_size=10_000).vocab_size < 300


def test_bpe_trains_on_a_single_string():
    assert BPETokenizer.train("abcabc abc", vocab_size=260) == BPETokenizer.train(["abcabc abc"], vocab_size=260)


@pytest.mark.parametrize("letters", ["acgt", "\n", "é漢", " \t"])
def test_bpe_time_is_linear_for_text_without_spaces(letters):
    text = "".join(np.random.default_rng(0).choice([*letters], 400_000))  # minutes, were it one word
    pairs = BPETokenizer.train(text, vocab_size=300)
    assert pairs.decode(pairs.encode(text)) == text
    assert len(pairs.encode(text)) < 0.8 * len(text.encode())


def test_words_up_to_200_characters_are_not_split():
    word = "ab" * 100
    pairs = BPETokenizer.train([f"{word} {word}"] * 3, vocab_size=1000)
    assert len(pairs.encode(f"{word} {word}")) == 2
