from datetime import datetime

import pytest
import torch

from lawful.data.text import ByteTokenizer, PairBatches, Pairs, SpecialTokens, dates, read_pairs, read_sources, sorting


def test_pairs_from_a_file(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(b"\xef\xbb\xbfone\tun\tCC-BY\r\n\ntwo words\tdeux\n")
    pairs = read_pairs(path)
    assert pairs == Pairs(("one", "two words"), ("un", "deux"), "pairs.tsv")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "pairs.tsv has no pairs"),
        (b"one\t\n", "pairs.tsv has no pairs"),
        (b"one\tun\ntwo\n", "line 2 of pairs.tsv: expected a source and a target separated by a tab, got 'two'"),
        (b"one,un\n", "got 'one,un'. Name a comma-separated file .csv"),
        (b"\xff\tun\n", "pairs.tsv is not UTF-8 text"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path, content, sentence):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        read_pairs(path)


def test_lines_without_a_source_or_a_target_are_left_out_with_a_note(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("one\tun\ntwo\t\n\tdrei\n  four \t quatre \n")
    pairs = read_pairs(path)
    assert (pairs.sources, pairs.targets) == (("one", "four"), ("un", "quatre"))
    assert pairs.notes == ("left out 2 of 4 lines of pairs.tsv without a source or a target: lines 2, 3",)


def test_sources_with_different_targets_are_noted(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("bank\tBank\nbank\tUfer\none\teins\none\teins\n")
    (note,) = read_pairs(path).notes
    assert note.startswith("1 of 2 sources have different targets")


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.csv", '\ufeffsource,target\n"one, two","un\n deux"\nthree,trois\n', ("source", "target")),
        ("a.csv", '"one, two";"un\n deux"\nthree;trois\n', None),
        ("a.tsv", "Input\tOutput\none, two\tun\n\nthree\ttrois\n", ("Input", "Output")),
    ],
    ids=["csv with a header", "semicolons", "tabs with a header"],
)
def test_a_csv_file_has_quotes_and_usual_names_are_a_header(tmp_path, name, content, columns):
    (tmp_path / name).write_text(content, encoding="utf-8")
    pairs = read_pairs(tmp_path / name)
    assert pairs.sources == ("one, two", "three")
    assert pairs.columns == columns
    assert any("is a header" in note for note in pairs.notes) == (columns is not None)


@pytest.mark.parametrize(
    ("first", "targets", "columns"),
    [
        ("english,german", ["Hund", "Katze"], ("english", "german")),
        ("words,number", ["1", "2"] * 6, ("words", "number")),
        ("cat,Katze", ["Hund", "Maus"] * 6, None),
        ("words,number", ["1", "2"], None),
        ("three,3", ["1", "2"] * 6, None),
    ],
    ids=["languages", "letters above digits", "a pair of words", "few lines", "a pair with a digit"],
)
def test_header_is_two_languages_or_a_word_above_a_column_without_letters(tmp_path, first, targets, columns):
    path = tmp_path / "pairs.csv"
    path.write_text("\n".join([first, *(f"dog{i},{target}" for i, target in enumerate(targets))]))
    pairs = read_pairs(path)
    assert pairs.columns == columns
    assert len(pairs) == len(targets) + (columns is None)


@pytest.mark.parametrize(
    ("name", "content", "targets"),
    [
        ("new.txt", "one\n\ntwo words\n", None),
        ("new.tsv", "one\tun\ntwo words\tdeux\n", ("un", "deux")),
        ("new.tsv", "one\tun\ntwo words\t\n", None),
        ("new.csv", "French,remark,English\nun,,one\ndeux,x,two words\n", ("un", "deux")),
        ("new.csv", "English\none\ntwo words\n", None),
        ("new.csv", "source\none\ntwo words\n", None),
    ],
)
def test_new_sources_with_and_without_targets(tmp_path, name, content, targets):
    (tmp_path / name).write_text(content)
    assert read_sources(tmp_path / name, columns=("English", "French")) == (("one", "two words"), targets)


@pytest.mark.parametrize(
    ("content", "said"), [("", "has no sources"), ("one\n\tun\n", "line 2 of new.tsv has no source")]
)
def test_new_sources_that_are_missing_are_refused(tmp_path, content, said):
    (tmp_path / "new.tsv").write_text(content)
    with pytest.raises(ValueError, match=said):
        read_sources(tmp_path / "new.tsv")


def test_batches_are_padded_and_shifted_by_one():
    pairs = Pairs(("a", "bcd"), ("xyz", "w"))
    source = PairBatches(pairs, ByteTokenizer(), batch_size=2, seed=0)
    marks = source.special_tokens
    assert marks == SpecialTokens(256)
    read, given, expected = source.collate([0, 1])
    assert read.tolist() == [[97, marks.padding, marks.padding], [98, 99, 100]]
    assert given.tolist() == [[marks.start, 120, 121, 122], [marks.start, 119, marks.padding, marks.padding]]
    assert expected.tolist() == [[120, 121, 122, marks.end], [119, marks.end, marks.padding, marks.padding]]
    assert int(max(x.max() for x in (read, given, expected))) < marks.vocab_size


def test_an_epoch_has_every_pair_once_and_depends_on_the_step_alone():
    pairs = sorting(samples=25, length=9, digits=10)
    one, other = (PairBatches(pairs, ByteTokenizer(), batch_size=4, seed=3) for _ in range(2))
    epoch = [one.batch(step) for step in range(len(one))]
    assert sorted(ByteTokenizer().decode(row) for batch in epoch for row in batch[0].tolist()) == sorted(pairs.sources)
    for step in (5, 0, 3):
        assert all(a.equal(b) for a, b in zip(other.batch(step), epoch[step], strict=True))


def test_splits_share_no_source_and_have_their_fractions():
    pairs = sorting(samples=3000)
    train, validation, test = pairs.split(fractions=(0.5, 0.2, 0.3))
    found = [set(part.sources) for part in (train, validation, test)]
    assert not found[0] & found[1] | found[0] & found[2] | found[1] & found[2]
    assert len(train) + len(validation) + len(test) == 3000
    distinct = len(set(pairs.sources))
    assert [len(sources) for sources in found] == pytest.approx([0.5 * distinct, 0.2 * distinct, 0.3 * distinct], abs=1)
    with pytest.raises(ValueError, match=r"too few distinct sources for a split into fractions 0.8, 0.1, 0.1: got 1"):
        Pairs(("a", "a"), ("b", "b")).split()


def test_sorting_is_sorted():
    pairs = sorting(samples=200, length=7, digits=5, seed=1)
    assert all("".join(sorted(x)) == y for x, y in zip(pairs.sources, pairs.targets, strict=True))
    assert {len(x) for x in pairs.sources} == {7}
    assert set("".join(pairs.sources)) == set("01234")
    assert pairs == sorting(samples=200, length=7, digits=5, seed=1) != sorting(samples=200, length=7, digits=5)


def test_dates_are_the_same_day():
    pairs = dates(samples=500)
    forms = ("%d %B %Y", "%B %d, %Y", "%A, %d %b %Y", "%d.%m.%Y", "%m/%d/%Y", "%d %b %Y")
    for source, target in zip(pairs.sources, pairs.targets, strict=True):
        days = set()
        for form in forms:
            try:
                days.add(datetime.strptime(source, form).date().isoformat())
            except ValueError:
                continue
        assert days == {target}
    assert len(set(pairs.sources)) > 450


def test_errors_name_what_was_expected():
    state = torch.get_rng_state()
    with pytest.raises(ValueError, match="samples must be at least 1, got 0"):
        dates(samples=0)
    with pytest.raises(ValueError, match="digits between 2 and 10: got 6 and 11"):
        sorting(digits=11)
    with pytest.raises(ValueError, match="equal, non-zero lengths: got 1 and 0"):
        Pairs(("a",), ())
    dates(samples=3)
    assert (torch.get_rng_state() == state).all()
