import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from lawful.data import DataLoaderBatches, SequentialBatches, ShuffledBatches


def epoch(source, number):
    return [source.batch(step) for step in range(number * len(source), (number + 1) * len(source))]


@pytest.mark.parametrize(("n", "size"), [(1, 1), (7, 3), (6, 3), (5, 8), (10, 1)])
def test_epoch_has_every_example_once_with_its_target(n, size):
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
    expected = [forward.batch(step)[0].tolist() for step in range(21)]
    torch.manual_seed(5)
    for step in (20, 0, 7, 7, 13, 6):
        assert other.batch(step)[0].tolist() == expected[step]
    assert expected[:7] != expected[7:14]
    assert [ShuffledBatches(data, batch_size=3, seed=1).batch(step)[0].tolist() for step in range(21)] != expected


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


def test_sequential_batches_are_in_order():
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
    with pytest.raises(ValueError, match=r"expected equal, non-zero lengths along dim 0, got \[\]"):
        make(batch_size=1)


class Jittered(Dataset):
    """Draws random numbers from all three libraries while it is read."""

    def __len__(self):
        return 7

    def __getitem__(self, i):
        return torch.tensor([i, float(torch.rand(())), np.random.rand(), random.random()]), torch.tensor(i)


def jittered_batches(**options):
    return DataLoaderBatches(DataLoader(Jittered(), batch_size=2, shuffle=True, **options), seed=1)


def states():
    return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()


@pytest.mark.parametrize("options", [{}, {"generator": torch.Generator().manual_seed(9)}, {"num_workers": 2}])
def test_batch_depends_only_on_the_step(options):
    source = jittered_batches(**options)
    expected = []
    for step in range(9):
        expected.append(source.batch(step))
        torch.rand(step), np.random.rand(), random.random()
    for start in (5,) if "num_workers" in options else (0, 5, 8):
        resumed = jittered_batches(**options)
        for step in range(start, 9):
            for a, b in zip(resumed.batch(step), expected[step], strict=True):
                assert (a == b).all()
    assert (source.batch(2)[0] == expected[2][0]).all()
    assert (source.batch(2)[0] == expected[2][0]).all()
    first, second = ([int(i) for _, y in expected[k : k + 4] for i in y] for k in (0, 4))
    assert sorted(first) == sorted(second) == list(range(7))
    assert first != second


def test_the_random_state_outside_is_left_alone():
    source = jittered_batches()
    for step in (0, 1, 5, 2):
        before = states()
        source.batch(step)
        assert states() == before


def test_list_of_batches_and_single_tensors():
    source = DataLoaderBatches([torch.zeros(2), [torch.ones(3), torch.ones(3)]])
    assert [tuple(map(len, source.batch(step))) for step in range(3)] == [(2,), (3, 3), (2,)]


def test_a_loader_without_a_length():
    class Endless:
        def __iter__(self):
            while True:
                yield torch.rand(2)

    with pytest.raises(ValueError, match="pass length"):
        DataLoaderBatches(Endless())
    source = DataLoaderBatches(Endless(), length=3)
    assert (source.batch(1)[0] == DataLoaderBatches(Endless(), length=3).batch(1)[0]).all()


def test_set_epoch_is_called_on_the_sampler():
    class Sampler:
        epoch = -1

        def set_epoch(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            return iter([self.epoch, 0])

        def __len__(self):
            return 2

    source = DataLoaderBatches(DataLoader(TensorDataset(torch.arange(5)), sampler=Sampler()))
    assert [int(source.batch(step)[0]) for step in range(6)] == [0, 0, 1, 0, 2, 0]


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ({"x": torch.zeros(2)}, "got dict"),
        ((torch.zeros(2), "a"), r"\['Tensor', 'str'\]"),
        ((), "got tuple"),
        (3, "int"),
    ],
)
def test_other_batches_are_refused(batch, said):
    with pytest.raises(TypeError, match=f"a batch must be a tuple or list of tensors, .*{said}"):
        DataLoaderBatches([batch]).batch(0)


def test_invalid_loaders_raise():
    with pytest.raises(ValueError, match=r"equal lengths along dim 0, got \[2, 3\]"):
        DataLoaderBatches([(torch.zeros(2), torch.zeros(3))]).batch(0)
    with pytest.raises(TypeError, match="loader must be re-iterable, such as a DataLoader, got generator"):
        DataLoaderBatches(x for x in [torch.zeros(1)])
    with pytest.raises(ValueError, match="loader must have at least 1 batch, got 0"):
        DataLoaderBatches([])
    with pytest.raises(ValueError, match="persistent_workers=False"):
        jittered_batches(num_workers=1, persistent_workers=True)
    short = DataLoaderBatches([torch.zeros(1)], length=2)
    for _ in range(2):
        with pytest.raises(ValueError, match="ended after 1 batches, expected 2"):
            short.batch(1)
    assert len(short.batch(0)) == 1
    with pytest.raises(IndexError, match="step must be non-negative, got -1"):
        short.batch(-1)


def test_loader_error_propagates_and_the_epoch_can_be_replayed():
    class Failing:
        fails = True

        def __len__(self):
            return 2

        def __iter__(self):
            yield torch.rand(1)
            if self.fails:
                raise OSError("gone")
            yield torch.rand(1)

    loader = Failing()
    source = DataLoaderBatches(loader)
    first = source.batch(0)[0]
    with pytest.raises(OSError, match="gone"):
        source.batch(1)
    loader.fails = False
    source.batch(1)
    assert (source.batch(0)[0] == first).all()
