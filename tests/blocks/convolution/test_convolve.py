import numpy as np
import pytest
import scipy.signal
import torch

from lawful.blocks import Convolution, convolve


def drawn(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 3), (3, 5), (4, 4)])
def test_equals_numpy(n, m):
    f, g = drawn(n), drawn(m, seed=1)
    torch.testing.assert_close(convolve(f, g), torch.from_numpy(np.convolve(f, g, mode="full")))


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_equals_scipy(axes):
    f, g = drawn(*(4, 3, 5)[:axes]), drawn(*(2, 3, 2)[:axes], seed=1)
    torch.testing.assert_close(convolve(f, g, axes=axes), torch.from_numpy(scipy.signal.convolve(f.numpy(), g.numpy())))


def test_batches_broadcast():
    f, g = drawn(2, 1, 4), drawn(3, 2, seed=1)
    y = convolve(f, g)
    assert y.shape == (2, 3, 5)
    torch.testing.assert_close(y[1, 2], convolve(f[1, 0], g[2]))


def test_multiplies_polynomials():
    assert convolve(torch.tensor([1.0, 1.0]), torch.tensor([1.0, -1.0])).tolist() == [1, 0, -1]


def test_the_layer_is_a_cross_correlation():
    layer = Convolution(1, 1, kernel=(3,), bias=False).double()
    x = drawn(1, 1, 7)
    expected = scipy.signal.correlate(x[0, 0].numpy(), layer.weight[0, 0].detach().numpy(), mode="valid")
    torch.testing.assert_close(layer(x)[0, 0].detach(), torch.from_numpy(expected))
    torch.testing.assert_close(layer(x)[0, 0], convolve(x[0, 0], layer.weight[0, 0].flip(0))[2:-2])


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match=r"got axes=2, \(3,\) and \(2,\)"):
        convolve(torch.zeros(3), torch.zeros(2), axes=2)
    with pytest.raises(ValueError, match=r"at least one entry were wanted: got sizes \(0,\) and \(2,\)"):
        convolve(torch.zeros(0), torch.zeros(2))
    assert convolve(torch.tensor([1.0, torch.nan]), torch.ones(2)).isnan().tolist() == [False, True, True]


@pytest.mark.parametrize(("f", "g", "out"), [((0, 3), (2,), (0, 4)), ((2, 0, 3), (2, 1, 5), (2, 0, 7))])
def test_an_empty_batch_gives_an_empty_batch(f, g, out):
    f, g = torch.zeros(f, requires_grad=True), torch.zeros(g)
    y = convolve(f, g)
    assert y.shape == out
    y.sum().backward()
    assert f.grad.shape == f.shape
