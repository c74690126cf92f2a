from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lawful.laws import Claim, agreement, shape
from lawful.losses import dataset_loss, weighted_mean, worst_case


def _token_loss(logits, target, reduction):
    losses = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction=reduction)
    return losses.reshape(target.shape) if reduction == "none" else losses


def data(n=10):
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(n, d, generator=generator, dtype=torch.float64) for d in (3, 2))


def test_equals_numpy():
    losses, weights = torch.tensor([1.0, 4.0, 2.0]), torch.tensor([2.0, 0.0, 1.0])
    np.testing.assert_allclose(weighted_mean(weights)(losses), np.average(losses.numpy(), weights=weights.numpy()))
    np.testing.assert_allclose(worst_case(losses), losses.numpy().max())


@pytest.mark.parametrize(
    "reduce", [torch.mean, torch.sum, worst_case, weighted_mean(torch.arange(20.0).double().reshape(10, 2))]
)
@pytest.mark.parametrize("size", [1, 3, 10])
def test_loss_does_not_depend_on_the_batch_size(reduce, size):
    (x, y), model = data(), nn.Linear(3, 2).double()
    found = dataset_loss(model, zip(x.split(size), y.split(size), strict=True), loss=F.mse_loss, reduce=reduce)
    expected = reduce(F.mse_loss(model(x), y, reduction="none"))
    torch.testing.assert_close(found, expected)
    for a, b in zip(*(torch.autograd.grad(loss, model.parameters()) for loss in (found, expected)), strict=True):
        torch.testing.assert_close(a, b)


def test_losses_of_sequences():
    x, y = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0)), torch.ones(5, 4, dtype=torch.long)
    found = dataset_loss(torch.tanh, zip(x.split(2), y.split(2), strict=True), loss=_token_loss)
    torch.testing.assert_close(found, _token_loss(x.tanh(), y, reduction="mean"))


def test_sequences_may_differ_in_length_from_batch_to_batch():
    generator = torch.Generator().manual_seed(0)
    batches = [(torch.randn(2, t, 3, generator=generator), torch.ones(2, t, dtype=torch.long)) for t in (4, 1, 6)]
    found = dataset_loss(torch.tanh, batches, loss=_token_loss)
    tokens = (torch.cat([pair[i].flatten(0, 1) for pair in batches]) for i in (0, 1))
    torch.testing.assert_close(found, F.cross_entropy(*(a.tanh() if a.is_floating_point() else a for a in tokens)))


def test_evaluation_loss_keeps_no_graph():
    (x, y), model = data(), nn.Linear(3, 2).double()
    with torch.no_grad():
        assert not dataset_loss(model, [(x, y)], loss=F.mse_loss).requires_grad


def test_a_weight_of_zero_leaves_an_example_out():
    x, y = data(2)
    weight = torch.tensor([1.0, 0.0], dtype=torch.float64)
    losses = F.mse_loss(x[:, :2], y, reduction="none").mean(1)
    torch.testing.assert_close(weighted_mean(weight)(losses), losses[0])


def test_invalid_arguments():
    with pytest.raises(ValueError, match=r"got a minimum of -1 and a sum of -100000$"):
        weighted_mean(-torch.ones(100_000))
    with pytest.raises(ValueError, match="expected at least one weight, got none"):
        weighted_mean(torch.ones(0))
    with pytest.raises(ValueError, match="expected one loss per example, got a scalar"):
        dataset_loss(torch.tanh, [(torch.ones(3), torch.ones(3))], loss=lambda a, b, reduction: (a - b).square().mean())
    with pytest.raises(ValueError, match="expected weights >= 0"):
        weighted_mean(torch.tensor([1.0, -1.0]))
    with pytest.raises(ValueError, match="a sum > 0"):
        weighted_mean(torch.zeros(2))
    with pytest.raises(ValueError, match=r"expected losses of shape \(2,\), got \(3,\)"):
        weighted_mean(torch.ones(2))(torch.ones(3))
    with pytest.raises(ValueError, match="expected at least one loss, got none"):
        worst_case(torch.zeros(0))
    with pytest.raises(ValueError, match="expected at least one batch, got none"):
        dataset_loss(torch.tanh, [], loss=F.mse_loss)


def claims() -> Iterator[Claim]:
    """Second derivations of reductions."""
    yield Claim(agreement(other=lambda x: x.sort().values[-1]), worst_case, shape("n"))

    def uneven(x: Tensor) -> Tensor:
        return weighted_mean(torch.arange(1, 4).to(x))(x)

    equation = agreement(other=lambda x: (x[0] + 2 * x[1] + 3 * x[2]) / 6)
    yield Claim(equation, uneven, shape("3"), name="weighted_mean([1, 2, 3])")

    def absolute(a: Tensor, b: Tensor, reduction: str) -> Tensor:
        return (a - b).abs()

    def unequal_shapes(x: Tensor) -> Tensor:
        return dataset_loss(torch.neg, [(part, 0 * part) for part in x.split((1, 3), -1)], loss=absolute)

    def columns(x: Tensor) -> Tensor:
        return dataset_loss(torch.neg, [(x, 0 * x), (x, x)], loss=absolute, reduce=lambda losses: losses.sum(0))

    yield Claim(agreement(other=lambda x: x.abs().mean()), unequal_shapes, shape("b 4"), name="unequal shapes")
    yield Claim(agreement(other=lambda x: 3 * x.abs().sum(0)), columns, shape("b 4"), name="columns")
