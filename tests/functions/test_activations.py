import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch

from lawful.functions import bilinear, geglu, glu, gtu, halves, reglu, swiglu


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


ORACLES = {
    glu: lambda x, g: x * scipy.special.expit(g),
    bilinear: lambda x, g: x * g,
    reglu: lambda x, g: x * np.maximum(g, 0),
    geglu: lambda x, g: x * g * scipy.stats.norm.cdf(g),
    swiglu: lambda x, g: x * g * scipy.special.expit(g),
    gtu: lambda x, g: np.tanh(x) * scipy.special.expit(g),
}


@pytest.mark.parametrize("gate", ORACLES, ids=lambda f: f.__name__)
def test_equals_numpy(gate):
    x, g = drawn(3, 4), drawn(3, 4, seed=1)
    np.testing.assert_allclose(gate(x, g), ORACLES[gate](x.numpy(), g.numpy()), rtol=1e-11)


def test_halves_are_the_split_of_pytorch():
    x = drawn(3, 8)
    torch.testing.assert_close(glu(*halves(x)), torch.nn.functional.glu(x))


def test_only_gtu_lets_the_gradient_vanish():
    x, g = torch.tensor(50.0, requires_grad=True), torch.tensor(2.0)
    slopes = {gate: float(torch.autograd.grad(gate(x, g), x)[0]) for gate in ORACLES}
    assert [gate for gate, slope in slopes.items() if slope == 0] == [gtu]


def test_errors():
    with pytest.raises(ValueError, match=r"even size: got shape \(2, 3\)"):
        halves(torch.zeros(2, 3))
    with pytest.raises((TypeError, RuntimeError), match=r"size|shape"):
        glu(torch.zeros(3), torch.zeros(4))
