from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lawful.laws import Claim, agreement, shape, tokens
from lawful.losses import focal_loss


def logits(*shape, scale=2.0, dtype=torch.float64):
    return (scale * torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).to(dtype)


def classes(*shape, c):
    return torch.randint(c, shape, generator=torch.Generator().manual_seed(1))


def test_reduction():
    x, k = logits(2, 5, 4), classes(2, 5, c=4)
    losses = focal_loss(x, k, reduction="none")
    assert losses.shape == (2, 5)
    torch.testing.assert_close(focal_loss(x, k), losses.mean())
    torch.testing.assert_close(focal_loss(x, k, reduction="sum"), losses.sum())
    torch.testing.assert_close(losses[1, 2], focal_loss(x[1, 2], k[1, 2]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_logits(dtype):
    x = torch.tensor([[1e4, 0.0], [0.0, 1e4]], dtype=dtype, requires_grad=True)
    assert focal_loss(x, torch.tensor([0, 0]), reduction="none").tolist() == [0, 1e4]
    assert torch.autograd.grad(focal_loss(x, torch.tensor([0, 0])), x)[0].isfinite().all()


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0, 5.0])
def test_focal_loss_equals_its_equation(gamma):
    x, k = logits(6, 3), classes(6, c=3)
    q = x.softmax(-1)[torch.arange(6), k]
    torch.testing.assert_close(focal_loss(x, k, gamma=gamma, reduction="none"), -((1 - q) ** gamma) * q.log())
    assert torch.autograd.gradcheck(lambda x: focal_loss(x, k, gamma=gamma), x.requires_grad_())


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("gap", [-20.0, 0.5, 0.8, 5.0, 15.0, 20.0])
def test_accuracy_for_certain_classes(gamma, gap):
    x = torch.tensor([[gap, 0.0]], requires_grad=True)
    rest = 1 / (1 + np.exp(np.longdouble(gap)))
    loss = focal_loss(x, torch.tensor([0]), gamma=gamma)
    np.testing.assert_allclose(loss.item(), float(-(rest**gamma) * np.log1p(-rest)), rtol=1e-5)
    slope = -(rest**gamma) * (rest - gamma * (1 - rest) * np.log1p(-rest))
    np.testing.assert_allclose(torch.autograd.grad(loss, x)[0][0, 0].item(), float(slope), rtol=1e-5)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_focal_loss_of_masked_logits(gamma):
    masked, k = torch.tensor([[0.3, -torch.inf, -torch.inf], [0.3, 0.1, -torch.inf]]), torch.tensor([0, 1])
    masked.requires_grad_()
    losses = focal_loss(masked, k, gamma=gamma, reduction="none")
    assert losses[0] == 0
    torch.testing.assert_close(losses[1], focal_loss(masked[1, :2], k[1], gamma=gamma))
    (slope,) = torch.autograd.grad(losses.sum(), masked)
    assert (slope[0] == 0).all()
    (alone,) = torch.autograd.grad(focal_loss(masked[1, :2], k[1], gamma=gamma), masked)
    torch.testing.assert_close(slope[1], alone[1])


def test_runs_under_vmap():
    x, target = logits(5, 4, 3), classes(5, 4, c=3)
    one_by_one = torch.stack([focal_loss(a, b) for a, b in zip(x, target, strict=True)])
    torch.testing.assert_close(torch.func.vmap(focal_loss)(x, target), one_by_one)
    gradients = torch.func.vmap(torch.func.grad(focal_loss))(x, target)
    torch.testing.assert_close(gradients, 5 * torch.func.grad(focal_loss)(x, target))


def test_focal_loss_of_two_classes_equals_the_binary_one():
    x, k = logits(6), classes(6, c=2)
    q = torch.where(k == 1, x.sigmoid(), (-x).sigmoid())
    expected = (1 - q) ** 2 * F.binary_cross_entropy_with_logits(x, k.double(), reduction="none")
    torch.testing.assert_close(focal_loss(torch.stack([0 * x, x], -1), k, reduction="none"), expected)


def test_nan_propagates():
    x = logits(2, 3)
    x[0, 0] = torch.nan
    assert focal_loss(x, torch.tensor([1, 1]), reduction="none").isnan().tolist() == [True, False]


def test_invalid_targets():
    x = logits(2, 3)
    for target, message in (([0, 3], "got 0 to 3"), ([-1, 0], "got -1 to 0"), ([-100, 0], "got -100 to 0")):
        with pytest.raises(ValueError, match=f"expected classes from 0 to 2, {message}"):
            focal_loss(x, torch.tensor(target))
    with pytest.raises(ValueError, match="at least one example"):
        focal_loss(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))
    with pytest.raises(TypeError, match=r"expected an integer target, got torch\.bool"):
        focal_loss(x, torch.tensor([True, False]))
    with pytest.raises(TypeError, match=r"expected an integer target, got torch\.float32"):
        focal_loss(x, torch.ones(2))
    with pytest.raises(ValueError, match=r"expected a target of shape \(2,\), got \(1,\)"):
        focal_loss(x, torch.tensor([0]))


def test_invalid_arguments():
    x, k = logits(2, 3), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="expected gamma >= 0, got -1"):
        focal_loss(x, k, gamma=-1.0)
    with pytest.raises(ValueError, match="at least 2 classes"):
        focal_loss(x[:, :1], 0 * k)


def claims() -> Iterator[Claim]:
    """The focal loss by its equation."""

    def equation(x: Tensor, k: Tensor) -> Tensor:
        q = x.softmax(-1).gather(-1, k[:, None])[:, 0]
        return ((1 - q) ** 2 * F.cross_entropy(x, k, reduction="none")).mean()

    inputs = (shape("b 4"), tokens("b", vocab_size=4))
    yield Claim(agreement(other=equation), focal_loss, inputs)
