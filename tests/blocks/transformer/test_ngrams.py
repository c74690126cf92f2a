import pytest
import torch
from torch import nn

from lawful.blocks import NGramEmbedding


def test_each_run_has_a_row_of_its_own():
    table = NGramEmbedding(3, 1, n=3)
    assert table.weight.shape == (64, 1)
    assert (table.weight == 0).all()
    table.weight.data = torch.arange(64.0)[:, None]
    runs = torch.cartesian_prod(*[torch.arange(3)] * 3)
    assert table(runs)[:, 2, 0].unique().numel() == 27
    assert table(runs)[:, 0, 0].unique().numel() == 3


def test_a_hash_spreads_runs_over_the_rows():
    table = NGramEmbedding(1000, 1, n=4, rows=512)
    table.weight.data = torch.arange(512.0)[:, None]
    runs = torch.randint(1000, (20000, 4), generator=torch.Generator().manual_seed(0))
    counts = table(runs)[:, 3, 0].long().bincount(minlength=512)
    assert counts.min() > 10
    assert counts.max() < 90


def test_as_many_rows_as_runs_need_no_hash():
    assert not NGramEmbedding(5, 2, rows=10**6).hashed
    assert NGramEmbedding(5, 2, rows=7).extra_repr() == "5, 2, n=2, rows=7"


def test_tokens_before_may_be_given_more_or_fewer_than_count():
    table = NGramEmbedding(5, 3, n=3)
    nn.init.normal_(table.weight)
    x = torch.tensor([[1, 2, 3, 4]])
    for i in range(4):
        assert torch.equal(table(x[:, i:], x[:, :i]), table(x)[:, i:])
    assert torch.equal(table(x, torch.tensor([[-1]])), table(x))


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="at least 1: got vocab=5, d=2, n=2, rows=0"):
        NGramEmbedding(5, 2, rows=0)
    with pytest.raises(ValueError, match="n=0"):
        NGramEmbedding(5, 2, n=0)
    with pytest.raises(ValueError, match="between 1 and d: got width=3, d=2"):
        NGramEmbedding(5, 2, width=3)


def test_vectors_are_left_out_as_a_whole_in_training_only():
    table = NGramEmbedding(3, 4, width=3, dropout=0.25)
    nn.init.ones_(table.weight)
    x = torch.zeros(100, 100, dtype=torch.long)
    torch.manual_seed(0)
    y = table(x)
    assert (y[..., 3] == 0).all()
    torch.testing.assert_close(y[..., :3].unique(), torch.tensor([0, 4 / 3]))
    assert ((y[..., :3] == 0).all(-1) == (y[..., 0] == 0)).all()
    assert abs((y[..., 0] == 0).float().mean() - 0.25) < 0.02
    assert (table.eval()(x)[..., :3] == 1).all()
