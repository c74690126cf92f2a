import pytest
import torch

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
