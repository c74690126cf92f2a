import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful.data import SupervisedDataset, bootstrap_indices, digits, leaks, load_dataset, noisy_labels, split
from lawful.data.splits import split_indices


@settings(max_examples=100, deadline=None)
@given(
    counts=st.lists(st.integers(20, 60), min_size=1, max_size=6),
    fractions=st.sampled_from([(1.0,), (0.8, 0.2), (0.6, 0.2, 0.2), (0.7, 0.1, 0.2), (0.25, 0.25, 0.25, 0.25)]),
    seed=st.integers(0, 2**32),
)
def test_splits_are_disjoint_complete_and_stratified(counts, fractions, seed):
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]
    for given_labels in (labels, None):
        parts = split_indices(len(labels), fractions=fractions, seed=seed, labels=given_labels)
        assert torch.cat(parts).sort().values.tolist() == list(range(len(labels)))
        for part, fraction in zip(parts, fractions, strict=True):
            assert abs(len(part) - fraction * len(labels)) <= 1
            if given_labels is not None:
                found = labels[part].bincount(minlength=len(counts))
                expected = fraction * torch.tensor(counts)
                assert ((found - expected).abs() <= len(fractions)).all()


def test_a_split_depends_on_the_seed_alone():
    data = digits()
    torch.manual_seed(0)
    first = [part.fingerprint() for part in split(data, fractions=(0.8, 0.2), seed=4)]
    torch.manual_seed(1)
    assert [part.fingerprint() for part in split(data, fractions=(0.8, 0.2), seed=4)] == first
    assert [part.fingerprint() for part in split(data, fractions=(0.8, 0.2), seed=5)] != first


def test_every_example_may_be_in_every_part():
    seen = torch.zeros(30, dtype=torch.bool)
    for seed in range(60):
        seen[split_indices(30, fractions=(0.8, 0.2), seed=seed, labels=torch.arange(30) % 3)[1]] = True
    assert seen.all()


def test_regression_is_split():
    train, test = split(load_dataset("diabetes").examples, fractions=(0.5, 0.5))
    assert len(train) == len(test) == 221
    assert train.targets.shape == (221, 1)


def test_invalid_splits_raise():
    few = SupervisedDataset(inputs=torch.zeros(21, 1), targets=torch.tensor([0] * 20 + [1]), classes=("many", "few"))
    message = "class 'few' has 1 of 21 examples, a split into 2 needs 2: add examples, or leave this class out"
    with pytest.raises(ValueError, match=message):
        split(few, fractions=(0.5, 0.5))
    with pytest.raises(
        ValueError, match=r"5 examples are too few for a split into 0\.72, 0\.08, 0\.2: got parts of 4, 0, 1"
    ):
        split_indices(5, fractions=(0.8 * 0.9, 0.8 * 0.1, 0.2))
    rare = SupervisedDataset(
        inputs=torch.zeros(22, 1), targets=torch.tensor([0] * 19 + [1] * 3), classes=("many", "few")
    )
    with pytest.warns(UserWarning, match=r"part \d of 3 has no example of class 'few'"):
        split(rare, fractions=(0.8, 0.1, 0.1))
    for fractions in ((0.5, 0.6), (), (1.5, -0.5), (float("nan"), 0.5)):
        with pytest.raises(ValueError, match="must be positive and sum to 1, got"):
            split(rare, fractions=fractions)
    with pytest.raises(ValueError, match="3 examples are too few"):
        split_indices(3, fractions=(0.9, 0.05, 0.05))


rows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12)


@settings(max_examples=100, deadline=None)
@given(rows, rows)
def test_count_equals_the_comparison_of_all_pairs(a, b):
    x, y = torch.tensor(a).float(), torch.tensor(b).float()
    same = (x[:, None] == y[None]).all(-1)
    found = leaks({"train": x, "test": y})
    assert sum(leak.count for leak in found) == int(same.any(0).sum())
    assert bool(found) == bool(same.any())
    for leak in found:
        assert (leak.first, leak.second, leak.total) == ("train", "test", len(b))
        assert len(leak.pairs) == min(5, leak.count)
        assert all(a[i] == b[j] for i, j in leak.pairs)


def test_images_integers_zeros_of_both_signs_and_strided_inputs():
    x = torch.randn(4, 1, 3, 3, generator=torch.Generator().manual_seed(0))
    assert leaks({"a": x, "b": x.flip(0).transpose(2, 3).contiguous().transpose(2, 3)})[0].count == 4
    assert leaks({"a": torch.tensor([[0.0]]), "b": torch.tensor([[-0.0]])})[0].pairs == ((0, 0),)
    assert leaks({"a": torch.tensor([[1, 2]]), "b": torch.tensor([[2, 1]])}) == ()


def test_every_pair_of_splits_is_compared():
    one, two = torch.tensor([[1.0]]), torch.tensor([[2.0]])
    found = leaks({"train": one, "validation": two, "test": torch.cat([two, one, one])})
    assert [(leak.first, leak.second, leak.count) for leak in found] == [
        ("train", "test", 2),
        ("validation", "test", 1),
    ]
    assert str(found[0]) == "2 of 3 examples of test also occur in train"


def test_bootstrap_samples_with_replacement():
    drawn = bootstrap_indices(10_000, seed=0)
    assert drawn.shape == (10_000,)
    assert abs(len(drawn.unique()) / 10_000 - (1 - math.exp(-1))) < 0.02
    assert (drawn == bootstrap_indices(10_000, seed=0)).all()
    assert (drawn != bootstrap_indices(10_000, seed=1)).any()


@pytest.mark.parametrize("fraction", [0.0, 0.15, 1.0])
def test_noisy_labels_changes_exactly_the_given_fraction(fraction):
    labels = torch.arange(2000) % 4
    before = labels.clone()
    noisy = noisy_labels(labels, classes=4, fraction=fraction, seed=0)
    assert int((noisy != labels).sum()) == round(2000 * fraction)
    assert (labels == before).all()
    assert int(noisy.min()) >= 0
    assert int(noisy.max()) < 4
    if fraction == 1:
        steps = ((noisy - labels) % 4).bincount(minlength=4) / 2000
        assert ((steps - torch.tensor([0, 1 / 3, 1 / 3, 1 / 3])).abs() < 0.05).all()


def test_invalid_resampling_arguments_raise():
    labels = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"fraction must be between 0 and 1, got 1\.5"):
        noisy_labels(labels, classes=2, fraction=1.5, seed=0)
    with pytest.raises(ValueError, match="classes must be at least 2, got 1"):
        noisy_labels(labels, classes=1, fraction=0.5, seed=0)
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        bootstrap_indices(0, seed=0)
