import numpy as np
import pytest
import torch
from torch import nn

from lawful.losses.classification import cross_entropy
from lawful.losses.reduction import dataset_loss, each, weighted, worst_case
from lawful.losses.regression import squared_error


def data(n=10):
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(n, d, generator=generator, dtype=torch.float64) for d in (3, 2))


def test_equals_numpy():
    losses, weights = torch.tensor([1.0, 4.0, 2.0]), torch.tensor([2.0, 0.0, 1.0])
    np.testing.assert_allclose(weighted(weights)(losses), np.average(losses.numpy(), weights=weights.numpy()))
    np.testing.assert_allclose(worst_case(losses), losses.numpy().max())
    assert each(losses) is losses


@pytest.mark.parametrize(
    "reduce", [torch.mean, torch.sum, torch.amax, worst_case, weighted(torch.arange(10.0).double())]
)
@pytest.mark.parametrize("size", [1, 3, 10])
def test_batches_of_any_size_give_what_the_whole_gives(reduce, size):
    (x, y), model = data(), nn.Linear(3, 2).double()
    found = dataset_loss(model, zip(x.split(size), y.split(size), strict=True), loss=squared_error, reduce=reduce)
    wanted = squared_error(model(x), y, reduce=reduce)
    torch.testing.assert_close(found, wanted)
    for a, b in zip(*(torch.autograd.grad(loss, model.parameters()) for loss in (found, wanted)), strict=True):
        torch.testing.assert_close(a, b)


def test_any_loss_will_do_sequences_included():
    x, y = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0)), torch.ones(5, 4, dtype=torch.long)
    found = dataset_loss(torch.tanh, zip(x.split(2), y.split(2), strict=True), loss=cross_entropy)
    torch.testing.assert_close(found, cross_entropy(x.tanh(), y))


def test_sequences_may_differ_in_length_from_batch_to_batch():
    generator = torch.Generator().manual_seed(0)
    batches = [(torch.randn(2, t, 3, generator=generator), torch.ones(2, t, dtype=torch.long)) for t in (4, 1, 6)]
    found = dataset_loss(torch.tanh, batches, loss=cross_entropy)
    tokens = (torch.cat([pair[i].flatten(0, 1) for pair in batches]) for i in (0, 1))
    torch.testing.assert_close(found, cross_entropy(*(a.tanh() if a.is_floating_point() else a for a in tokens)))


def test_a_test_loss_keeps_no_graph():
    (x, y), model = data(), nn.Linear(3, 2).double()
    with torch.no_grad():
        assert not dataset_loss(model, [(x, y)], loss=squared_error).requires_grad


def test_a_weight_of_zero_leaves_an_example_out():
    x, y = data(2)
    weight = torch.tensor([1.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(squared_error(x[:, :2], y, reduce=weighted(weight)), squared_error(x[:1, :2], y[:1]))


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match=r"not negative, and their sum is above 0: got -1 and a sum of -100000$"):
        weighted(-torch.ones(100_000))
    with pytest.raises(ValueError, match="at least one weight was wanted: got none"):
        weighted(torch.ones(0))
    for loss in (lambda a, b, reduce: (a - b).square().mean(), lambda a, b, reduce: cross_entropy(a, b.argmax())):
        with pytest.raises(ValueError, match="a loss for each example of a batch was wanted: got one number"):
            dataset_loss(torch.tanh, [(torch.ones(3), torch.ones(3))], loss=loss)
    with pytest.raises(ValueError, match="not negative"):
        weighted(torch.tensor([1.0, -1.0]))
    with pytest.raises(ValueError, match="sum is above 0"):
        weighted(torch.zeros(2))
    with pytest.raises(ValueError, match=r"losses of shape \(2,\) were wanted: got \(3,\)"):
        weighted(torch.ones(2))(torch.ones(3))
    with pytest.raises(ValueError, match="at least one example was wanted: got none"):
        worst_case(torch.zeros(0))
    with pytest.raises(ValueError, match="at least one batch was wanted: got none"):
        dataset_loss(torch.tanh, [], loss=squared_error)
