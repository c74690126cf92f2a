import pytest
from hypothesis import given
from hypothesis import strategies as st

from lawful.data.text import BPETokenizer, ByteTokenizer, CharTokenizer
from lawful.inference import StreamingDetokenizer, generate_text, stream_text
from lawful.models import GREEDY, SamplingConfig
from tests.models.small import Counting, Decaying

LETTERS = CharTokenizer("\nabcde")
PAIRS = BPETokenizer.train(["ab abc aé aéé bc"] * 5, vocab_size=262)


def decode_stream(tokenizer, tokens, stop=()):
    pieces = StreamingDetokenizer(tokenizer, stop=stop)
    parts = []
    for token in tokens:
        parts.append(pieces.push(token))
        if pieces.ended:
            return parts
    return [*parts, pieces.close()]


@given(st.text(), st.sampled_from([ByteTokenizer(), PAIRS]))
def test_streamed_text_equals_text(text, tokenizer):
    parts = decode_stream(tokenizer, tokenizer.encode(text))
    assert "".join(parts) == text
    assert all(not part or part in text for part in parts)


@given(st.lists(st.integers(0, 255)))
def test_invalid_utf8_equals_decode(tokens):
    assert "".join(decode_stream(ByteTokenizer(), tokens)) == ByteTokenizer().decode(tokens)


@given(st.text("abé", max_size=30), st.lists(st.text("abé", min_size=1, max_size=4), max_size=3))
def test_stop_strings_end_the_text(text, stop):
    found = "".join(decode_stream(ByteTokenizer(), ByteTokenizer().encode(text), stop))
    complete_at = [end for end in range(len(text) + 1) if any(text[:end].endswith(s) for s in stop)]
    if complete_at:
        begun = text[: complete_at[0]]
        assert found == begun[: min(begun.find(s) for s in stop if s in begun)]
    else:
        assert found == text


def test_possible_stop_string_waits():
    pieces = StreamingDetokenizer(ByteTokenizer(), stop=["\n\n"])
    assert [pieces.push(token) for token in b"a\nb\n\nc"] == ["a", "", "\nb", "", "", ""]
    assert pieces.ended
    assert pieces.close() == ""


def test_reserved_tokens_are_not_generated():
    model = Decaying(vocab_size=LETTERS.vocab_size)
    parts = list(stream_text(model, LETTERS, "ab", max_new_tokens=200, sampling=SamplingConfig(temperature=5.0)))
    assert len("".join(parts)) == 200
    assert set("".join(parts)) <= set(LETTERS.alphabet)


def test_batch_equals_single_prompts():
    model = Decaying(vocab_size=LETTERS.vocab_size)
    prompts = ["ab", "a", "ecdba", ""]
    together = generate_text(model, LETTERS, prompts, max_new_tokens=30, sampling=GREEDY, stop=["ce"])
    assert together == [
        "".join(stream_text(model, LETTERS, p, max_new_tokens=30, sampling=GREEDY, stop=["ce"])) for p in prompts
    ]


def test_stop_strings_and_stop_tokens():
    model = Counting(LETTERS.vocab_size)
    options = {"max_new_tokens": 20, "sampling": GREEDY}
    assert "".join(stream_text(model, LETTERS, "a", stop=["de"], **options)) == "bc"
    assert generate_text(model, LETTERS, ["a", "b", "d"], stop=["de", 0], **options) == ["bc", "c", "e"]
    assert "".join(stream_text(model, LETTERS, "a", stop=[LETTERS.encode("d")[0]], **options)) == "bc"


def test_empty_prompt_is_a_newline():
    model = Decaying(vocab_size=LETTERS.vocab_size)
    empty, line = ("".join(stream_text(model, LETTERS, prompt, max_new_tokens=9)) for prompt in ("", "\n"))
    assert empty == line
    with pytest.raises(ValueError, match="an empty prompt is encoded as a newline"):
        next(stream_text(Decaying(vocab_size=3), CharTokenizer("ab"), ""))


def test_unknown_characters():
    model = Decaying(vocab_size=LETTERS.vocab_size)
    strange, stranger = (generate_text(model, LETTERS, [prompt], max_new_tokens=9) for prompt in ("ab!", "ab€"))
    assert strange == stranger


def test_errors():
    model = Decaying(vocab_size=LETTERS.vocab_size)
    with pytest.raises(ValueError, match="a stop string must not be empty"):
        next(stream_text(model, LETTERS, "a", stop=[""]))
    with pytest.raises(ValueError, match="expected at least one prompt"):
        generate_text(model, LETTERS, [])
    with pytest.raises(ValueError, match="token ids must be between 0 and 6, got 8"):
        StreamingDetokenizer(LETTERS).push(8)


def test_a_single_string_is_accepted_as_stop_and_prompt():
    model, letters = Counting(7), CharTokenizer("abcdef")
    options = {"max_new_tokens": 4, "sampling": GREEDY}
    assert "".join(stream_text(model, letters, "a", stop="de", **options)) == "bc"
    assert generate_text(model, letters, "ab", stop="zd", **options) == generate_text(model, letters, ["ab"], **options)
    pieces = StreamingDetokenizer(ByteTokenizer(), stop="END")
    assert "".join(pieces.push(token) for token in b"NEEND") == "NE"
