import numpy as np
import pytest
import torch

from lawful.functions import outer, pure_tensor, tensor_product


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_outer_equals_numpy_and_is_batched():
    x, y = drawn(2, 3), drawn(2, 4, seed=1)
    for i in range(2):
        np.testing.assert_allclose(outer(x, y)[i], np.outer(x[i], y[i]))


@pytest.mark.parametrize("shapes", [((2, 3), (4,)), ((2,), (3, 4)), ((), (2, 2)), ((2, 1, 3), (2, 2))])
def test_tensor_product_equals_numpy(shapes):
    s, t = drawn(*shapes[0]), drawn(*shapes[1], seed=1)
    np.testing.assert_allclose(tensor_product(s, t), np.multiply.outer(s.numpy(), t.numpy()))


def test_the_order_of_the_factors_matters():
    s, t = drawn(2), drawn(2, seed=1)
    assert not torch.allclose(tensor_product(s, t), tensor_product(t, s))


def test_a_pure_tensor_has_rank_one_along_every_axis():
    t = pure_tensor(drawn(2), drawn(3, seed=1), drawn(4, seed=2))
    for axis in range(3):
        assert np.linalg.matrix_rank(t.movedim(axis, 0).flatten(1).numpy()) == 1


def test_one_vector_is_pure_and_none_is_refused():
    v = drawn(3)
    torch.testing.assert_close(pure_tensor(v), v)
    with pytest.raises(ValueError, match="at least one vector: got none"):
        pure_tensor()
