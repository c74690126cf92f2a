import pytest
import torch

from lawful.data import SequentialBatches, ShuffledBatches


def epoch(source, number):
    return [source.batch(step) for step in range(number * len(source), (number + 1) * len(source))]


@pytest.mark.parametrize(("n", "size"), [(1, 1), (7, 3), (6, 3), (5, 8), (10, 1)])
def test_an_epoch_has_every_example_once_and_keeps_pairs(n, size):
    source = ShuffledBatches(torch.arange(n), 10 * torch.arange(n), batch_size=size, seed=3)
    assert len(source) == -(-n // size)
    for number in range(3):
        batches = epoch(source, number)
        assert [len(x) for x, _ in batches[:-1]] == [size] * (len(batches) - 1)
        x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
        assert x.sort().values.tolist() == list(range(n))
        assert (y == 10 * x).all()


def test_a_batch_depends_on_the_step_alone():
    data = torch.arange(20)
    forward, other = ShuffledBatches(data, batch_size=3, seed=0), ShuffledBatches(data, batch_size=3, seed=0)
    wanted = [forward.batch(step)[0].tolist() for step in range(21)]
    torch.manual_seed(5)
    for step in (20, 0, 7, 7, 13, 6):
        assert other.batch(step)[0].tolist() == wanted[step]
    assert wanted[:7] != wanted[7:14]
    assert [ShuffledBatches(data, batch_size=3, seed=1).batch(step)[0].tolist() for step in range(21)] != wanted


def test_the_global_random_state_is_left_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    ShuffledBatches(torch.arange(20), batch_size=3, seed=0).batch(0)
    assert (torch.get_rng_state() == before).all()


def test_the_order_is_uniform():
    counts = torch.zeros(3, 3)
    source = ShuffledBatches(torch.arange(3), batch_size=3, seed=0)
    for step in range(3000):
        counts[torch.arange(3), source.batch(step)[0]] += 1
    assert ((counts / 3000 - 1 / 3).abs() < 0.05).all()


def test_in_order():
    source = SequentialBatches(torch.arange(7), torch.arange(7).neg(), batch_size=3)
    assert [x.tolist() for x, _ in source] == [[0, 1, 2], [3, 4, 5], [6]]
    assert source.batch(5)[0].tolist() == [6]
    assert len(source) == 3


@pytest.mark.parametrize(
    "make", [lambda *x, batch_size: ShuffledBatches(*x, batch_size=batch_size, seed=0), SequentialBatches]
)
def test_invalid_arguments_raise(make):
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        make(torch.zeros(3), batch_size=0)
    with pytest.raises(ValueError, match=r"expected equal, non-zero lengths along dim 0, got \[3, 2\]"):
        make(torch.zeros(3), torch.zeros(2), batch_size=1)
    with pytest.raises(ValueError, match=r"got \[0\]"):
        make(torch.zeros(0), batch_size=1)
    with pytest.raises(IndexError, match="step must be non-negative"):
        make(torch.zeros(3), batch_size=1).batch(-1)
    with pytest.raises((ValueError, IndexError)):
        make(batch_size=1)
