import numpy as np
import pytest
import scipy.special
import torch

from lawful.functions import log_softmax, softmax


def drawn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_equals_scipy(axis, temperature):
    x = drawn(3, 4)
    for ours, theirs in ((softmax, scipy.special.softmax), (log_softmax, scipy.special.log_softmax)):
        found = ours(x, axis=axis, temperature=temperature)
        np.testing.assert_allclose(found, theirs(x.numpy() / temperature, axis), rtol=1e-12)


def test_a_low_temperature_gives_all_to_the_maximum():
    x = torch.tensor([0.1, 0.3, 0.2])
    assert softmax(x, temperature=1e-4).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("function", [softmax, log_softmax])
@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_temperature_is_above_zero(function, temperature):
    with pytest.raises(ValueError, match=f"above 0: got {temperature}"):
        function(torch.zeros(2), temperature=temperature)


@pytest.mark.parametrize("function", [softmax, log_softmax])
def test_edges(function):
    assert function(torch.zeros(2, 0)).shape == (2, 0)
    assert function(torch.tensor([0.0, float("nan")])).isnan().all()
    with pytest.raises(IndexError):
        function(torch.zeros(2), axis=3)
    with pytest.raises((TypeError, RuntimeError)):
        function(torch.zeros(2, dtype=torch.int64))


@pytest.mark.parametrize(("dtype", "top", "temperature"), [(torch.float16, 100.0, 1e-3), (torch.float32, 1e30, 1e-20)])
def test_a_tiny_temperature_overflows_nothing(dtype, top, temperature):
    x = torch.tensor([top, 0.0], dtype=dtype, requires_grad=True)
    p = softmax(x, temperature=temperature)
    assert p.tolist() == [1.0, 0.0]
    assert torch.autograd.grad(p[0], x)[0].isfinite().all()
    assert float(log_softmax(x.detach(), temperature=temperature)[0]) == 0


@pytest.mark.parametrize("function", [softmax, log_softmax])
def test_a_temperature_keeps_gradients_edges_and_transforms(function):
    x = drawn(3, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: function(x, axis=0, temperature=0.3), x)
    assert function(torch.zeros(2, 0), temperature=2.0).shape == (2, 0)
    torch.testing.assert_close(torch.vmap(lambda x: function(x, temperature=2.0))(x), function(x, temperature=2.0))
