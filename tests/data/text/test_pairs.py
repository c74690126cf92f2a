from datetime import datetime

import pytest
import torch

from lawful.data.text import ByteTokenizer, PairBatches, Pairs, SpecialTokens, dates, read_pairs, sorting


def test_pairs_from_a_file(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(b"\xef\xbb\xbfone\tun\tCC-BY\r\n\ntwo words\tdeux\n")
    pairs = read_pairs(path)
    assert pairs == Pairs(("one", "two words"), ("un", "deux"), "pairs.tsv")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "pairs.tsv has no pairs"),
        (b"one\tun\ntwo\n", "line 2 of pairs.tsv: expected two texts separated by a tab"),
        (b"one\t\n", "line 1 of"),
        (b"\tun\n", "line 1 of"),
        (b"\xff\tun\n", "pairs.tsv is not UTF-8 text"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path, content, sentence):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        read_pairs(path)


def test_batches_are_padded_and_shifted_by_one():
    pairs = Pairs(("a", "bcd"), ("xyz", "w"))
    source = PairBatches(pairs, ByteTokenizer(), batch_size=2, seed=0)
    marks = source.special_tokens
    assert marks == SpecialTokens(256)
    read, given, wanted = source.collate([0, 1])
    assert read.tolist() == [[97, marks.padding, marks.padding], [98, 99, 100]]
    assert given.tolist() == [[marks.start, 120, 121, 122], [marks.start, 119, marks.padding, marks.padding]]
    assert wanted.tolist() == [[120, 121, 122, marks.end], [119, marks.end, marks.padding, marks.padding]]
    assert int(max(x.max() for x in (read, given, wanted))) < marks.vocab_size


def test_an_epoch_has_every_pair_once_and_depends_on_the_step_alone():
    pairs = sorting(samples=25, length=9, digits=10)
    one, other = (PairBatches(pairs, ByteTokenizer(), batch_size=4, seed=3) for _ in range(2))
    epoch = [one.batch(step) for step in range(len(one))]
    assert sorted(ByteTokenizer().decode(row) for batch in epoch for row in batch[0].tolist()) == sorted(pairs.sources)
    for step in (5, 0, 3):
        assert all(a.equal(b) for a, b in zip(other.batch(step), epoch[step], strict=True))


def test_splits_share_no_source():
    pairs = sorting(samples=3000)
    train, held = pairs.split(every=4)
    assert not set(train.sources) & set(held.sources)
    assert len(train) + len(held) == 3000
    assert 0.15 < len(held) / 3000 < 0.35
    with pytest.raises(ValueError, match="too few distinct sources to split: got 1"):
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
