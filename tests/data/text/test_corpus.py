import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful.data.text import (
    BPETokenizer,
    ByteTokenizer,
    CharTokenizer,
    Corpus,
    python_topics,
    read_text,
    tokenize_corpus,
)


def write(folder, content, name="text.txt"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def whole(text, **options):
    return "".join(text.chunks(**options))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a", "a"),
        (b"one\ntwo\n", "one\ntwo\n"),
        (b"one\r\ntwo\rthree\n", "one\ntwo\nthree\n"),
        (b"\xef\xbb\xbfaf", "af"),
        ("äöü 東京 😀".encode(), "äöü 東京 😀"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_a_file_is_read_in_chunks(tmp_path, content, expected, size):
    text = read_text(write(tmp_path, content))
    chunks = list(text.chunks(size=size))
    assert "".join(chunks) == expected
    assert all(0 < len(chunk) <= size + 1 for chunk in chunks)
    assert text.size == len(content)
    assert whole(text) == expected


@given(st.text().filter(bool), st.integers(1, 9))
def test_a_text_in_memory(text, size):
    assert whole(Corpus(text), size=size) == text


def test_folder_reads_all_text_files_in_order(tmp_path):
    write(tmp_path, b"second", "b.txt")
    write(tmp_path, b"first", "a.md")
    write(tmp_path, b"third", "c/x.py")
    write(tmp_path, b"", "empty.txt")
    write(tmp_path, b"hidden", ".hidden")
    write(tmp_path, b"hidden", ".git/x")
    write(tmp_path, b"\x89PNG\x00\xff", "picture.png")
    os.mkfifo(tmp_path / "pipe")
    text = read_text(tmp_path)
    assert whole(text) == "first\nsecond\nthird"
    assert text.notes == ("skipped files that are not UTF-8 text: picture.png",)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "text.txt is empty"),
        (b"abc\x00def", "text.txt is not text: byte 3 is NUL"),
        (b"ab\xffcd", r"text.txt is not UTF-8 text: byte 2 is 0xff \(invalid start byte\)"),
        (b"\xef\xbb\xbfab\xffcd", "byte 5 is 0xff"),
        ("aé".encode()[:2], "byte 1 is 0xc3"),
        (b"\xff\xfea\x00", r"text\.txt is not (UTF-8 )?text"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 1000])
def test_invalid_text_raises_with_its_position(tmp_path, content, sentence, size):
    path = write(tmp_path, content)
    with pytest.raises(ValueError, match=sentence):
        list(read_text(path).chunks(size=size))


def test_missing_files(tmp_path):
    write(tmp_path, b"x", "novel.txt")
    with pytest.raises(FileNotFoundError, match=r"novl.txt'?: did you mean novel.txt\?"):
        read_text(tmp_path / "novl.txt")
    with pytest.raises(FileNotFoundError, match="Built-in texts: python"):
        read_text("nothing-of-this-name")
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="has no text files"):
        read_text(tmp_path / "none")


def test_python_reference_is_built_in():
    text = whole(read_text("python"))
    assert len(text) > 300_000
    assert "statement" in text


@pytest.mark.parametrize(
    "make",
    [
        lambda text: CharTokenizer.train([text]),
        lambda _: ByteTokenizer(),
        lambda text: BPETokenizer.train([text], vocab_size=500),
    ],
)
def test_tokens_on_disk_equal_the_tokenized_text(tmp_path, make):
    content = python_topics()[:200_000]
    (tmp_path / "a.txt").write_text(content)
    tokenizer = make(content)
    text = read_text(tmp_path / "a.txt")
    tokens = tokenize_corpus(text, tokenizer, into=tmp_path / "tokens.bin")
    assert tokens.ids.tolist() == tokenizer.encode(content)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a.txt", "tokens.bin"]
    assert (tmp_path / "tokens.bin").stat().st_size == len(tokens) * tokens.ids.element_size()
    again = tokenize_corpus(Corpus(content), tokenizer)
    assert again.ids.equal(tokens.ids)
    assert again.fingerprint == tokens.fingerprint != tokenize_corpus(Corpus(content[1:]), tokenizer).fingerprint


@settings(deadline=None, max_examples=50)
@given(st.text("ab \n", min_size=1), st.integers(1, 20))
def test_tokens_do_not_depend_on_the_chunk_size(text, size):
    class Small(Corpus):
        def chunks(self, *, size=size):
            return Corpus.chunks(self, size=size)

    for tokenizer in (ByteTokenizer(), CharTokenizer("ab \n")):
        assert tokenize_corpus(Small(text), tokenizer).ids.tolist() == tokenizer.encode(text)
    assert BPETokenizer(()).decode(tokenize_corpus(Small(text), BPETokenizer(())).ids.tolist()) == text


def test_token_ids_use_the_smallest_dtype():
    assert tokenize_corpus(Corpus("ab"), CharTokenizer("ab")).ids.dtype == torch.uint8
    letters = CharTokenizer("".join(map(chr, range(32, 400))))
    assert tokenize_corpus(Corpus("ab"), letters).ids.dtype == torch.uint16


def test_split_is_contiguous():
    tokens = tokenize_corpus(Corpus("0123456789" * 3), ByteTokenizer())
    first, rest = tokens.split()
    assert first.tolist() + rest.tolist() == tokens.ids.tolist()
    assert len(first) == 27
    assert len(tokens.split(fraction=0.5)[0]) == 15
    with pytest.raises(ValueError, match="between 0 and 1, got 1"):
        tokens.split(fraction=1)


def test_a_failure_leaves_no_file(tmp_path):
    path = tmp_path / "bad.txt"
    path.write_bytes(b"good " * 100_000 + b"\xff")
    with pytest.raises(ValueError, match="byte 500000 is 0xff"):
        tokenize_corpus(read_text(path), ByteTokenizer(), into=tmp_path / "tokens.bin")
    assert [p.name for p in tmp_path.iterdir()] == ["bad.txt"]
    with pytest.raises(ValueError, match="text is empty"):
        tokenize_corpus(Corpus(""), ByteTokenizer())


PEAK = """
import resource, sys
from pathlib import Path
from lawful.data.text import CharTokenizer, ShuffledWindows, read_text, tokenize_corpus
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
text = read_text(sys.argv[1])
letters = CharTokenizer.train(text.chunks())
tokens = tokenize_corpus(text, letters, into=sys.argv[2])
train, rest = tokens.split()
source = ShuffledWindows(train, context_length=64, batch_size=12, seed=0)
for step in range(20):
    x, y = source.batch(step)
print(len(tokens), letters.vocab_size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def peak(folder, copies):
    path = folder / "large.txt"
    block = (np.arange(2**20) % 60 + 33).astype(np.uint8)
    block[99::100] = 10
    with path.open("wb") as file:
        for _ in range(copies):
            block.tofile(file)
    run = [sys.executable, "-c", PEAK, str(path), str(folder / "tokens.bin")]
    found = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()
    for file in folder.iterdir():
        file.unlink()
    return tuple(map(int, found))


def test_the_memory_does_not_grow_with_the_text(tmp_path):
    tokens, vocab, kilobytes = peak(tmp_path, 48)
    assert (tokens, vocab) == (48 * 2**20, 62)
    assert kilobytes < 40_000


@pytest.mark.long
def test_two_gigabytes_are_never_read_whole(tmp_path):
    tokens, _, kilobytes = peak(tmp_path, 2048)
    assert tokens == 2 * 2**30
    assert kilobytes < 100_000
