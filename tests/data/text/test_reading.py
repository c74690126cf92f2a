import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lawful.data.text import Corpus, read_text


def write(folder, content, name="text.txt"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def whole(text, **options):
    return "".join(text.chunks(**options))


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"a", "a"),
        (b"one\ntwo\n", "one\ntwo\n"),
        (b"one\r\ntwo\rthree\n", "one\ntwo\nthree\n"),
        (b"\xef\xbb\xbfaf", "af"),
        ("äöü 東京 😀".encode(), "äöü 東京 😀"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_a_file_is_read_in_chunks(tmp_path, content, wanted, size):
    text = read_text(write(tmp_path, content))
    chunks = list(text.chunks(size=size))
    assert "".join(chunks) == wanted
    assert all(0 < len(chunk) <= size + 1 for chunk in chunks)
    assert text.size == len(content)
    assert whole(text) == wanted


@given(st.text().filter(bool), st.integers(1, 9))
def test_a_text_in_memory(text, size):
    assert whole(Corpus(text), size=size) == text


def test_a_folder_is_all_its_text_files_in_order(tmp_path):
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
    assert text.notes == ("skipped binary files: picture.png",)


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
def test_what_is_no_text_is_refused_with_its_place(tmp_path, content, sentence, size):
    path = write(tmp_path, content)
    with pytest.raises(ValueError, match=sentence):
        list(read_text(path).chunks(size=size))


def test_what_is_not_there(tmp_path):
    write(tmp_path, b"x", "novel.txt")
    with pytest.raises(FileNotFoundError, match=r"novl.txt'?: did you mean novel.txt\?"):
        read_text(tmp_path / "novl.txt")
    with pytest.raises(FileNotFoundError, match="Built-in texts: python"):
        read_text("nothing-of-this-name")
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="has no text files"):
        read_text(tmp_path / "none")


def test_the_reference_of_python_is_built_in():
    text = whole(read_text("python"))
    assert len(text) > 300_000
    assert "statement" in text
