import math
from inspect import unwrap

import numpy as np
import pytest
import torch
from scipy.spatial import distance as scipy_distance

from lawful.functions import angle, cosine_similarity, dot


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_dot_equals_numpy():
    x, y = drawn(3, 4), drawn(3, 4, seed=1)
    np.testing.assert_allclose(dot(x, y), np.einsum("ij,ij->i", x, y), rtol=1e-12)
    torch.testing.assert_close(dot(x[:, None], y), x @ y.mT)


def test_cosine_equals_scipy():
    x, y = drawn(5), drawn(5, seed=1)
    assert float(cosine_similarity(x, y)) == pytest.approx(1 - scipy_distance.cosine(x, y))
    torch.testing.assert_close(cosine_similarity(x, y), torch.nn.functional.cosine_similarity(x, y, dim=0))


def test_a_tiny_vector_has_a_direction():
    x = torch.tensor([1e-12, 0.0])
    torch.testing.assert_close(cosine_similarity(x, torch.tensor([1.0, 1.0])), torch.tensor(0.5).sqrt())


@pytest.mark.parametrize("theta", [0.0, 1e-8, 1e-3, 1.0, math.pi / 2, 3.0, math.pi - 1e-8, math.pi])
def test_angle_is_exact_everywhere(theta):
    turned = torch.tensor([math.cos(theta), math.sin(theta)], dtype=torch.float64)
    found = angle(torch.tensor([2.0, 0.0], dtype=torch.float64), 3 * turned)
    assert float(found) == pytest.approx(theta, rel=1e-7, abs=1e-15)


@pytest.mark.parametrize("function", [cosine_similarity, angle])
@pytest.mark.parametrize("pair", [([0.0, 0.0], [1.0, 2.0]), ([0.0, 0.0], [0.0, 0.0]), ([1.0, 2.0], [2.0, 4.0])])
def test_gradients_are_finite_where_there_is_no_angle(function, pair):
    x, y = (torch.tensor(v, requires_grad=True) for v in pair)
    function(x, y).backward()
    assert x.grad.isfinite().all()
    assert y.grad.isfinite().all()


def test_zero_is_at_a_right_angle_to_everything():
    zero, x = torch.zeros(2), torch.ones(2)
    for pair in ((zero, x), (x, zero), (zero, zero)):
        assert float(cosine_similarity(*pair)) == 0
        assert float(angle(*pair)) == pytest.approx(math.pi / 2)


def test_shapes_fit():
    with pytest.raises((TypeError, ValueError)):
        dot(torch.ones(3), torch.ones(4))


@pytest.mark.parametrize("size", [1e-30, 1e-22, 1e18, 1e30, 3e38])
def test_vectors_of_any_length_have_a_direction(size):
    x, y = torch.tensor([1.0, 1.0]), torch.tensor([1.0, 0.0])
    long = size * x
    assert float(cosine_similarity(long, long)) == pytest.approx(1.0, abs=1e-6)
    assert float(cosine_similarity(long, y)) == pytest.approx(0.5**0.5)
    assert float(angle(long, y)) == pytest.approx(math.pi / 4)
    assert float(angle(long, long)) == 0
    if size <= 1e30:
        slope = torch.func.grad(cosine_similarity)(long, y) * size
        torch.testing.assert_close(slope, torch.tensor([1.0, -1.0]) / 8**0.5)


@pytest.mark.parametrize("function", [dot, cosine_similarity, angle])
def test_one_entry_is_not_spread_over_many(function):
    with pytest.raises((ValueError, TypeError)):
        function(torch.ones(3), torch.ones(1))
    with pytest.raises(ValueError, match=r"of one size were wanted: got shapes \(2, 3\) and \(1,\)"):
        unwrap(dot)(torch.ones(2, 3), torch.ones(1))


@pytest.mark.parametrize("function", [dot, cosine_similarity])
def test_empty_vectors(function):
    assert function(torch.ones(2, 0), torch.ones(2, 0)).tolist() == [0.0, 0.0]
