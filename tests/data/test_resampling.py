import math

import pytest
import torch

from lawful.data import bootstrap_indices, noisy_labels


def test_the_bootstrap_draws_all_with_replacement():
    drawn = bootstrap_indices(10_000, seed=0)
    assert drawn.shape == (10_000,)
    assert abs(len(drawn.unique()) / 10_000 - (1 - math.exp(-1))) < 0.02
    assert (drawn == bootstrap_indices(10_000, seed=0)).all()
    assert (drawn != bootstrap_indices(10_000, seed=1)).any()


@pytest.mark.parametrize("fraction", [0.0, 0.15, 1.0])
def test_just_a_fraction_of_labels_becomes_wrong(fraction):
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


def test_errors_say_what_was_wanted_and_what_came():
    labels = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"fraction must lie between 0 and 1, got 1\.5"):
        noisy_labels(labels, classes=2, fraction=1.5, seed=0)
    with pytest.raises(ValueError, match="classes must be at least 2, got 1"):
        noisy_labels(labels, classes=1, fraction=0.5, seed=0)
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        bootstrap_indices(0, seed=0)
