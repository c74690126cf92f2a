import numpy as np
import pytest
import scipy.special
import torch
from sklearn.metrics import mean_absolute_error, mean_squared_error
from torch.nn import functional as F

from lawful.losses.reduction import each, worst_case
from lawful.losses.regression import absolute_error, huber_loss, lp_error, squared_error

LOSSES = [absolute_error, squared_error, huber_loss, lambda v, w, **more: lp_error(v, w, p=1.5, **more)]


def pair(*shape):
    generator = torch.Generator().manual_seed(0)
    return tuple(2 * torch.randn(*shape, generator=generator, dtype=torch.float64) for _ in range(2))


def test_equal_scikit_learn_and_torch():
    v, w = pair(7, 3)
    np.testing.assert_allclose(absolute_error(v, w), mean_absolute_error(w, v))
    np.testing.assert_allclose(squared_error(v, w), mean_squared_error(w, v))
    torch.testing.assert_close(huber_loss(v, w, delta=0.4), F.huber_loss(v, w, delta=0.4))


@pytest.mark.parametrize("delta", [0.1, 1.0, 3.0])
def test_huber_equals_scipy(delta):
    v, w = pair(20)
    wanted = scipy.special.huber(delta, (v - w).numpy())
    np.testing.assert_allclose(huber_loss(v, w, delta=delta, reduce=each), wanted)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 7.0])
def test_lp_equals_numpy(p):
    v, w = pair(4, 5)
    np.testing.assert_allclose(lp_error(v, w, p=p, reduce=each), (np.abs((v - w).numpy()) ** p).mean(-1))


@pytest.mark.parametrize("loss", LOSSES)
def test_reduce_is_a_function_of_the_losses_of_the_examples(loss):
    v, w = pair(4, 2, 3)
    losses = loss(v, w, reduce=each)
    assert losses.shape == (4,)
    torch.testing.assert_close(losses, torch.stack([loss(a[None], b[None]) for a, b in zip(v, w, strict=True)]))
    torch.testing.assert_close(loss(v, w), losses.mean())
    torch.testing.assert_close(loss(v, w, reduce=worst_case), losses.max())
    torch.testing.assert_close(loss(v, w, reduce=torch.sum), losses.sum())


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_are_right_and_zero_at_the_target(loss):
    v, w = pair(3, 2)
    assert torch.autograd.gradcheck(lambda v: loss(v, w), v.requires_grad_())
    at = w.clone().requires_grad_()
    loss(at, w).backward()
    assert (at.grad == 0).all()


@pytest.mark.parametrize(("p", "wanted"), [(2.0, 0.4), (3.0, 0.0)])
def test_second_derivatives_at_the_target(p, wanted):
    w = pair(5)[0]
    curvature = torch.autograd.functional.hessian(lambda v: lp_error(v, w, p=p), w)
    torch.testing.assert_close(curvature, wanted * torch.eye(5).double())


@pytest.mark.parametrize("loss", LOSSES)
def test_nan_propagates(loss):
    v, w = pair(3, 2)
    v[0, 0] = torch.nan
    assert loss(v, w).isnan()
    assert loss(v, w, reduce=each).isnan().tolist() == [True, False, False]


@pytest.mark.parametrize("loss", LOSSES)
def test_errors_say_what_was_wanted_and_what_came(loss):
    with pytest.raises(ValueError, match=r"a target of shape \(3, 1\) was wanted: got \(3,\)"):
        loss(torch.zeros(3, 1), torch.zeros(3))
    with pytest.raises(ValueError, match=r"at least one example was wanted: got shape \(0, 2\)"):
        loss(torch.zeros(0, 2), torch.zeros(0, 2))
    for v, w in (
        (torch.zeros(2), torch.zeros(2, dtype=torch.long)),
        (torch.zeros(2, dtype=torch.long), torch.zeros(2)),
    ):
        with pytest.raises(TypeError):
            loss(v, w)


def test_parameters_out_of_range():
    with pytest.raises(ValueError, match=r"p is at least 1 and finite: got 0\.5"):
        lp_error(*pair(2), p=0.5)
    for p in (torch.inf, torch.nan):
        with pytest.raises(ValueError, match=f"p is at least 1 and finite: got {p}"):
            lp_error(*pair(2), p=p)
    with pytest.raises(ValueError, match="delta is above 0: got 0"):
        huber_loss(*pair(2), delta=0.0)
