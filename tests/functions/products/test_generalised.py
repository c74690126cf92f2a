import numpy as np
import pytest
import torch

from lawful.functions import amount_of_similarity, dot, generalised_product, rectified_dot


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("pair", [("multiply", "sum"), ("multiply", "prod"), ("add", "prod"), ("add", "sum")])
def test_equals_numpy(pair):
    x, y = drawn(3, 4), drawn(3, 4, seed=1)
    map, reduce = pair
    found = generalised_product(x, y, map=getattr(torch, map), reduce=getattr(torch, reduce))
    np.testing.assert_allclose(found, getattr(np, reduce)(getattr(np, map)(x.numpy(), y.numpy()), -1), rtol=1e-12)


def test_any_pair_of_functions():
    x, y = drawn(3, 4), drawn(3, 4, seed=1)
    chebyshev = generalised_product(x, y, map=lambda a, b: (a - b).abs(), reduce=torch.amax)
    torch.testing.assert_close(chebyshev, torch.linalg.vector_norm(x - y, torch.inf, -1))


def test_only_the_dot_product_is_linear_in_each_vector():
    x, y, z = (drawn(4, seed=n) for n in range(3))
    for map, reduce in ((torch.mul, torch.prod), (torch.add, torch.prod), (torch.add, torch.sum)):
        f = lambda a, b, map=map, reduce=reduce: generalised_product(a, b, map=map, reduce=reduce)  # noqa: E731
        assert not torch.allclose(f(x + z, y), f(x, y) + f(z, y))


def test_rectified_dot_counts_what_agrees():
    x, y = drawn(5, 6), drawn(5, 6, seed=1)
    np.testing.assert_allclose(rectified_dot(x, y), np.maximum(x.numpy() * y.numpy(), 0).sum(-1), rtol=1e-12)
    torch.testing.assert_close(rectified_dot(x, x), dot(x, x))


def test_amount_of_similarity_equals_numpy():
    x, a = drawn(5, 3), drawn(7, 3, seed=1)
    np.testing.assert_allclose(amount_of_similarity(x, a), np.maximum(x.numpy() @ a.numpy().T, 0).sum(-1), rtol=1e-12)


def test_shapes_fit():
    with pytest.raises((TypeError, ValueError)):
        generalised_product(torch.ones(2), torch.ones(3))
    with pytest.raises((TypeError, RuntimeError)):
        amount_of_similarity(torch.ones(2), torch.ones(4, 3))
