import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful.data.text import SequentialWindows, ShuffledWindows, windows


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 5), st.integers(0, 60), st.integers(0, 3))
def test_an_epoch_has_windows_that_do_not_overlap(context, size, more, seed):
    n = context + 1 + more
    source = ShuffledWindows(torch.arange(n), context_length=context, batch_size=size, seed=seed)
    for epoch in range(2):
        batches = [source.batch(epoch * len(source) + step) for step in range(len(source))]
        inputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
        assert (targets == inputs + 1).all()
        starts = inputs[:, 0].sort().values
        assert (starts.diff() >= context).all()
        assert (starts.diff() % context == 0).all()
        assert (inputs == inputs[:, :1] + torch.arange(context)).all()
        windows = max(1, n // context - 1)
        assert len(inputs) == (windows if windows < size else windows // size * size)


def test_every_token_appears_at_every_position_over_epochs():
    source = ShuffledWindows(torch.arange(40), context_length=4, batch_size=3, seed=0)
    seen = {
        (token, place)
        for step in range(60 * len(source))
        for row in source.batch(step)[0].tolist()
        for place, token in enumerate(row)
    }
    assert all((token, place) in seen for token in range(8, 30) for place in range(4))


def test_a_batch_depends_on_the_seed_and_the_step_alone():
    tokens = torch.arange(200, dtype=torch.uint8)
    source, other = (ShuffledWindows(tokens, context_length=8, batch_size=4, seed=1) for _ in range(2))
    expected = [source.batch(step) for step in range(30)]
    for step in (29, 0, 7, 7, 13):
        assert all(a.equal(b) for a, b in zip(other.batch(step), expected[step], strict=True))
    assert expected[0][0].dtype == torch.int64
    assert not ShuffledWindows(tokens, context_length=8, batch_size=4, seed=2).batch(0)[0].equal(expected[0][0])
    assert not expected[0][0].equal(expected[len(source)][0])


def test_a_long_text_is_taken_in_shards(monkeypatch):
    monkeypatch.setattr(windows, "_SHARD", 10)
    source = ShuffledWindows(torch.arange(1000), context_length=4, batch_size=3, seed=0)
    assert source.shards > 1
    starts = torch.cat([source.batch(step)[0][:, 0] for step in range(len(source))])
    assert len(starts.unique()) == len(starts) == len(source) * 3
    assert len(starts) >= 0.85 * 1000 / 4
    again = torch.cat([source.batch(step)[0][:, 0] for step in range(len(source), 2 * len(source))])
    assert not starts.equal(again)


@given(st.integers(2, 60), st.integers(1, 9), st.integers(1, 5))
def test_sequential_windows_predict_every_token_but_the_first_once(n, context, size):
    source = SequentialWindows(torch.arange(n), context_length=context, batch_size=size)
    batches = list(source)
    assert len(batches) == len(source)
    assert torch.cat([y.flatten() for _, y in batches]).tolist() == list(range(1, n))
    assert torch.cat([x.flatten() for x, _ in batches]).tolist() == list(range(n - 1))
    assert all(x.shape[1] == context for x, _ in batches[:-1])


def test_invalid_arguments_raise():
    tokens = torch.arange(5)
    with pytest.raises(ValueError, match="context_length=8 needs at least 9 tokens, got 5: use a longer"):
        ShuffledWindows(tokens, context_length=8, batch_size=2, seed=0)
    with pytest.raises(ValueError, match="tokens, got 1"):
        ShuffledWindows(tokens[:1], context_length=1, batch_size=2, seed=0)
    with pytest.raises(ValueError, match="context_length and batch_size must be at least 1, got 0 and 2"):
        ShuffledWindows(tokens, context_length=0, batch_size=2, seed=0)
    with pytest.raises(ValueError, match="got 2 and 0"):
        SequentialWindows(tokens, context_length=2, batch_size=0)
    with pytest.raises(ValueError, match="expected at least 2 tokens, one input and one target, got 1"):
        SequentialWindows(tokens[:1], context_length=2, batch_size=1)
    for source in (
        ShuffledWindows(tokens, context_length=2, batch_size=1, seed=0),
        SequentialWindows(tokens, context_length=2, batch_size=1),
    ):
        with pytest.raises(IndexError, match="step must be non-negative, got -1"):
            source.batch(-1)
