import pytest
import torch

from lawful.functions.attention import CAUSAL, NO_MASK, Mask


def test_everything_needs_no_mask_and_neither_does_what_hides_nothing():
    assert NO_MASK.dense(3, 5) is None
    assert CAUSAL.dense(1, 5) is None
    assert Mask(window=5).dense(3, 5) is None
    assert Mask(causal=True, prefix=5).dense(3, 5) is None
    assert Mask(window=5).dense(3, 6) is not None


def test_causal_is_aligned_to_the_last_key():
    full = CAUSAL.dense(6, 6)
    assert torch.equal(full, torch.ones(6, 6, dtype=torch.bool).tril())
    assert torch.equal(CAUSAL.dense(2, 6), full[-2:])
    assert CAUSAL.dense(4, 2).tolist() == [[False, False], [False, False], [True, False], [True, True]]


def test_a_prefix_is_seen_by_all():
    assert Mask(causal=True, prefix=2).dense(3, 3).int().tolist() == [[1, 1, 0], [1, 1, 0], [1, 1, 1]]


def test_a_window_counts_the_query_itself():
    assert Mask(window=1).dense(3, 3).int().tolist() == torch.eye(3).int().tolist()
    assert Mask(window=2).dense(1, 4).int().tolist() == [[0, 0, 1, 1]]


def test_documents_and_padding_by_row():
    documents, there = torch.tensor([[0, 0, 1], [5, 6, 5]]), torch.tensor([[True, True, True], [True, True, False]])
    seen = Mask(documents=documents, padding=there).dense(3, 3)
    assert seen.int().tolist() == [[[1, 1, 0], [1, 1, 0], [0, 0, 1]], [[1, 0, 0], [0, 1, 0], [1, 0, 0]]]


def test_documents_combine_as_pairs():
    a, b = torch.tensor([0, 0, 1, 1]), torch.tensor([[-7, 2**40, 2**40, 2**40]])
    one, other = Mask(documents=a), Mask(documents=b)
    assert torch.equal((one & other).dense(4, 4), one.dense(4, 4) & other.dense(4, 4))


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="at least 1: got 0"):
        Mask(window=0)
    with pytest.raises(ValueError, match="at least 0: got -1"):
        Mask(prefix=-1)
    with pytest.raises(ValueError, match="each of the 4 keys: got 3"):
        Mask(padding=torch.ones(2, 3, dtype=torch.bool)).dense(4, 4)
    with pytest.raises(ValueError, match="rows for 3 queries: got 4"):
        Mask(documents=torch.zeros(3, dtype=torch.long)).dense(4, 3)


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_mask_is_refused():
    with pytest.raises(TypeError, match=r"padding is to be True or False, a tensor of bool: got torch\.float32"):
        Mask(padding=torch.ones(2, 5))
    with pytest.raises(TypeError, match="pairs is to be True or False"):
        Mask(pairs=torch.ones(5, 5, dtype=torch.int64))
    with pytest.raises(TypeError, match="documents are numbered by whole numbers"):
        Mask(documents=torch.zeros(5))
    with pytest.raises(ValueError, match=r"window must be a whole number, at least 1: got 2\.5"):
        Mask(window=2.5)
    with pytest.raises(TypeError, match=r"a Mask was wanted, such as Mask.*: got Tensor"):
        Mask() & torch.ones(5, 5, dtype=torch.bool)
