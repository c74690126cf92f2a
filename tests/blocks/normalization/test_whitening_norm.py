import pytest
import torch
from torch import nn

from lawful.blocks import WhiteningNorm


def correlated(*sizes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*sizes, generator=generator, dtype=torch.float64)
    mix = torch.randn(sizes[1], sizes[1], generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    return 2 + torch.einsum("ij,bj...->bi...", mix, x)


@pytest.mark.parametrize("space", [(), (5,), (2, 3)])
def test_the_channels_come_out_white(space):
    x = correlated(50, 3, *space)
    rows = WhiteningNorm(3, eps=1e-12).double()(x).movedim(1, -1).reshape(-1, 3)
    torch.testing.assert_close(rows.mean(0), torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(rows.T.cov(correction=0), torch.eye(3, dtype=torch.float64))


def test_evaluation_uses_the_running_averages():
    norm = WhiteningNorm(3, momentum=0.05, eps=1e-9).double()
    for seed in range(200):
        norm(correlated(100, 3, seed=seed))
    y = norm.eval()(correlated(2000, 3, seed=1000))
    torch.testing.assert_close(y.T.cov(), torch.eye(3, dtype=torch.float64), atol=0.1, rtol=0)
    assert norm(correlated(1, 3)).shape == (1, 3)


def test_fewer_samples_than_channels_stay_finite():
    x = correlated(2, 5).requires_grad_()
    y = WhiteningNorm(5).double()(x)
    y.square().sum().backward()
    assert y.isfinite().all()
    assert x.grad.isfinite().all()


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match=r"axis 1 is to have size 3: got shape \(2, 4\)"):
        WhiteningNorm(3)(torch.zeros(2, 4))
    with pytest.raises(ValueError, match="got c=0, eps=1e-05"):
        WhiteningNorm(0)
    with pytest.raises(ValueError, match=r"eps above 0.*got c=3, eps=0"):
        WhiteningNorm(3, eps=0.0)


@pytest.mark.parametrize("sizes", [(0, 2, 5), (4, 2, 0)])
def test_an_empty_batch_leaves_the_averages_alone(sizes):
    norm = WhiteningNorm(2)
    norm(correlated(5, 2).float())
    before = [buffer.clone() for buffer in norm.buffers()]
    assert norm(torch.zeros(sizes)).shape == sizes
    for buffer, old in zip(norm.buffers(), before, strict=True):
        assert buffer.equal(old)


@pytest.mark.parametrize("training", [True, False])
def test_autocast_computes_in_single_precision(training):
    x = correlated(8, 3).float()
    norm, other = WhiteningNorm(3).train(training), WhiteningNorm(3).train(training)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = norm(x)
    torch.testing.assert_close(y, other(x), rtol=0, atol=0)
    torch.testing.assert_close(norm.running_matrix, other.running_matrix, rtol=0, atol=0)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_comes_out_as_it_came(training, dtype):
    x = correlated(8, 3, 2).to(dtype)
    norm, other = WhiteningNorm(3, eps=1e-2).to(dtype).train(training), WhiteningNorm(3, eps=1e-2).train(training)
    y = norm(x)
    assert y.dtype is dtype
    torch.testing.assert_close(y.float(), other(x.float()), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(norm.running_mean.float(), other.running_mean, rtol=1e-2, atol=1e-2)


def test_it_trains_under_autocast():
    model = nn.Sequential(nn.Linear(4, 3), WhiteningNorm(3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(correlated(8, 4).float())[:, 0].pow(3).sum()
    loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_integers_are_refused(unchecked):
    with pytest.raises(TypeError, match=r"floating point numbers were wanted: got torch\.int64"):
        WhiteningNorm(3).eval()(torch.ones(2, 3, dtype=torch.long))
