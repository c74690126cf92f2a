import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss
from torch.nn import functional as F

from lawful.losses.classification import binary_cross_entropy, cross_entropy, focal_loss
from lawful.losses.reduction import each, worst_case


def logits(*shape, scale=2.0, dtype=torch.float64):
    return (scale * torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).to(dtype)


def classes(*shape, c):
    return torch.randint(c, shape, generator=torch.Generator().manual_seed(1))


def test_equals_scikit_learn():
    x, k = logits(9, 4), classes(9, c=4)
    np.testing.assert_allclose(cross_entropy(x, k), log_loss(k, x.softmax(-1), labels=range(4)))
    x, k = logits(9), classes(9, c=2)
    np.testing.assert_allclose(binary_cross_entropy(x, k), log_loss(k, x.sigmoid(), labels=[0, 1]))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_equals_torch_for_classes_and_for_probabilities(smoothing):
    x, k, p = logits(2, 5, 4), classes(2, 5, c=4), logits(2, 5, 4, scale=1.0).flip(0).softmax(-1)
    found = cross_entropy(x, k, smoothing=smoothing)
    torch.testing.assert_close(found, F.cross_entropy(x.mT, k, label_smoothing=smoothing))
    found = cross_entropy(x, p, smoothing=smoothing)
    torch.testing.assert_close(found, F.cross_entropy(x.mT, p.mT, label_smoothing=smoothing))


def test_reduce_is_a_function_of_the_losses_of_the_examples():
    x, k = logits(2, 5, 4), classes(2, 5, c=4)
    for loss in (cross_entropy, focal_loss):
        losses = loss(x, k, reduce=each)
        assert losses.shape == (2, 5)
        torch.testing.assert_close(loss(x, k), losses.mean())
        torch.testing.assert_close(loss(x, k, reduce=worst_case), losses.max())
        torch.testing.assert_close(losses[1, 2], loss(x[1, 2], k[1, 2]))


def test_a_class_of_probability_zero_costs_nothing():
    x = torch.tensor([[0.0, 0.0, -torch.inf]], requires_grad=True)
    loss = cross_entropy(x, torch.tensor([[0.5, 0.5, 0.0]]))
    torch.testing.assert_close(loss, torch.tensor(2.0).log())
    loss.backward()
    assert x.grad.isfinite().all()
    assert cross_entropy(x, torch.tensor([[0.5, 0.0, 0.5]])) == torch.inf


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_logits_do_no_harm(dtype):
    x = torch.tensor([[1e4, 0.0], [0.0, 1e4]], dtype=dtype, requires_grad=True)
    for loss in (cross_entropy, focal_loss):
        assert loss(x, torch.tensor([0, 0]), reduce=each).tolist() == [0, 1e4]
        assert torch.autograd.grad(loss(x, torch.tensor([0, 0])), x)[0].isfinite().all()
    assert binary_cross_entropy(x[:, 0], torch.tensor([0, 1])).isfinite()


@pytest.mark.parametrize("target", [torch.tensor([True, False]), torch.tensor([1, 0]), torch.tensor([1.0, 0.0])])
def test_a_binary_target_is_a_truth_value_or_a_number(target):
    x = logits(2, dtype=torch.float32)
    wanted = F.binary_cross_entropy_with_logits(x, torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(binary_cross_entropy(x, target), wanted)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0, 5.0])
def test_focal_loss_equals_its_equation(gamma):
    x, k = logits(6, 3), classes(6, c=3)
    q = x.softmax(-1)[torch.arange(6), k]
    torch.testing.assert_close(focal_loss(x, k, gamma=gamma, reduce=each), -((1 - q) ** gamma) * q.log())
    assert torch.autograd.gradcheck(lambda x: focal_loss(x, k, gamma=gamma), x.requires_grad_())


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("gap", [-20.0, 0.5, 0.8, 5.0, 15.0, 20.0])
def test_focal_loss_keeps_its_digits_where_the_class_is_sure(gamma, gap):
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
    losses = focal_loss(masked, k, gamma=gamma, reduce=each)
    assert losses[0] == 0
    torch.testing.assert_close(losses[1], focal_loss(masked[1, :2], k[1], gamma=gamma))
    (slope,) = torch.autograd.grad(losses.sum(), masked)
    assert (slope[0] == 0).all()
    (alone,) = torch.autograd.grad(focal_loss(masked[1, :2], k[1], gamma=gamma), masked)
    torch.testing.assert_close(slope[1], alone[1])


LOSSES = {
    "classes": (cross_entropy, logits(5, 4, 3), classes(5, 4, c=3)),
    "probabilities": (cross_entropy, logits(5, 4, 3), logits(5, 4, 3).flip(0).softmax(-1)),
    "focal": (focal_loss, logits(5, 4, 3), classes(5, 4, c=3)),
    "binary": (binary_cross_entropy, logits(5, 4), classes(5, 4, c=2)),
}


@pytest.mark.parametrize("kind", LOSSES)
def test_a_loss_goes_through_vmap(kind):
    loss, x, target = LOSSES[kind]
    one_by_one = torch.stack([loss(a, b) for a, b in zip(x, target, strict=True)])
    torch.testing.assert_close(torch.func.vmap(loss)(x, target), one_by_one)
    slopes = torch.func.vmap(torch.func.grad(loss))(x, target)
    torch.testing.assert_close(slopes, 5 * torch.func.grad(loss)(x, target))


def test_focal_loss_of_two_classes_equals_the_binary_one():
    x, k = logits(6), classes(6, c=2)
    q = torch.where(k == 1, x.sigmoid(), (-x).sigmoid())
    wanted = (1 - q) ** 2 * binary_cross_entropy(x, k, reduce=each)
    torch.testing.assert_close(focal_loss(torch.stack([0 * x, x], -1), k, reduce=each), wanted)


def test_nan_propagates():
    x = logits(2, 3)
    x[0, 0] = torch.nan
    for loss in (cross_entropy, focal_loss):
        assert loss(x, torch.tensor([1, 1]), reduce=each).isnan().tolist() == [True, False]
    assert binary_cross_entropy(x[:, 0], torch.tensor([1, 1]), reduce=each).isnan().tolist() == [True, False]


@pytest.mark.parametrize("loss", [cross_entropy, focal_loss])
def test_classes_out_of_range_or_of_another_kind(loss):
    x = logits(2, 3)
    for target, said in (([0, 3], "got 0 to 3"), ([-1, 0], "got -1 to 0"), ([-100, 0], "got -100 to 0")):
        with pytest.raises(ValueError, match=f"classes from 0 to 2 were wanted: {said}"):
            loss(x, torch.tensor(target))
    with pytest.raises(ValueError, match="at least one example"):
        loss(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))
    with pytest.raises(TypeError, match=r"classes are integers: got torch\.bool"):
        loss(x, torch.tensor([True, False]))


def test_probabilities_that_are_none():
    x = logits(1, 2)
    with pytest.raises(ValueError, match=r"not negative: got -0\.5"):
        cross_entropy(x, torch.tensor([[1.5, -0.5]]).double())
    with pytest.raises(ValueError, match=r"add up to 1 along the last axis: got 0\.7"):
        cross_entropy(x, torch.tensor([[0.5, 0.2]]).double())
    with pytest.raises(ValueError, match=r"shape \(1, 2\) were wanted: got \(1, 3\)"):
        cross_entropy(x, torch.ones(1, 3).double() / 3)
    with pytest.raises(ValueError, match=r"from 0 to 1 were wanted: got -0\.5 to 1\.5"):
        binary_cross_entropy(x, torch.tensor([[1.5, -0.5]]))
    with pytest.raises(ValueError, match=r"shape \(1, 2\) was wanted: got \(2,\)"):
        binary_cross_entropy(x, torch.ones(2))
    with pytest.raises(TypeError):
        cross_entropy(torch.ones(1, 2, dtype=torch.long), torch.tensor([0]))
    with pytest.raises(TypeError):
        focal_loss(x, torch.ones(1))


def test_parameters_out_of_range():
    x, k = logits(2, 3), torch.tensor([0, 1])
    for smoothing in (-0.1, 1.1, torch.nan):
        with pytest.raises(ValueError, match=f"smoothing is from 0 to 1: got {smoothing}"):
            cross_entropy(x, k, smoothing=smoothing)
    with pytest.raises(ValueError, match="gamma is not negative: got -1"):
        focal_loss(x, k, gamma=-1.0)
    with pytest.raises(ValueError, match="at least 2 classes"):
        focal_loss(x[:, :1], 0 * k)
    with pytest.raises(ValueError, match=r"classes of shape \(2,\) were wanted: got \(1,\)"):
        cross_entropy(x, k[:1])
