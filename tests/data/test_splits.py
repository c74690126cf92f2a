import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful.data import SupervisedDataset, digits, load_dataset, split
from lawful.data.splits import split_indices


@settings(max_examples=100, deadline=None)
@given(
    counts=st.lists(st.integers(20, 60), min_size=1, max_size=6),
    fractions=st.sampled_from([(1.0,), (0.8, 0.2), (0.6, 0.2, 0.2), (0.7, 0.1, 0.2), (0.25, 0.25, 0.25, 0.25)]),
    seed=st.integers(0, 2**32),
)
def test_parts_are_disjoint_complete_and_keep_the_shares(counts, fractions, seed):
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]
    for given_labels in (labels, None):
        parts = split_indices(len(labels), fractions=fractions, seed=seed, labels=given_labels)
        assert torch.cat(parts).sort().values.tolist() == list(range(len(labels)))
        for part, fraction in zip(parts, fractions, strict=True):
            assert abs(len(part) - fraction * len(labels)) <= 1
            if given_labels is not None:
                found = labels[part].bincount(minlength=len(counts))
                wanted = fraction * torch.tensor(counts)
                assert ((found - wanted).abs() <= len(fractions)).all()


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


def test_a_regression_is_split_too():
    train, test = split(load_dataset("diabetes").examples, fractions=(0.5, 0.5))
    assert len(train) == len(test) == 221
    assert train.targets.shape == (221, 1)


def test_errors_say_what_was_wanted_and_what_came():
    few = SupervisedDataset(inputs=torch.zeros(21, 1), targets=torch.tensor([0] * 20 + [1]), classes=("many", "few"))
    with pytest.raises(ValueError, match="class 'few' has 1 of 21 examples, a split into 2 needs 2"):
        split(few, fractions=(0.5, 0.5))
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
