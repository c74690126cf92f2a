from inspect import unwrap

import numpy as np
import pytest
import torch

from lawful.functions import gram, matmul_by_blocks, matmul_by_outer_products


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_by_outer_products_equals_numpy():
    a, b = drawn(2, 3, 4), drawn(4, 5, seed=1)
    np.testing.assert_allclose(matmul_by_outer_products(a, b), a.numpy() @ b.numpy(), rtol=1e-10)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 3, 4), (100, 100, 100), ([1, 2], [3, 1], [2, 2, 1])])
def test_by_blocks_equals_numpy(sizes):
    a, b = drawn(2, 3, 4), drawn(2, 4, 5, seed=1)
    rows, inner, columns = sizes
    found = matmul_by_blocks(a, b, rows=rows, inner=inner, columns=columns)
    np.testing.assert_allclose(found, a.numpy() @ b.numpy(), rtol=1e-10)


def test_gradients():
    a, b = drawn(3, 4).requires_grad_(), drawn(4, 2, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: matmul_by_blocks(a, b, rows=2, inner=[1, 3], columns=1), (a, b))
    assert torch.autograd.gradcheck(matmul_by_outer_products, (a, b))


def test_block_sizes_fit():
    a, b = drawn(3, 4), drawn(4, 2)
    with pytest.raises(ValueError, match=r"inner is to add up to 4: got \[1, 2\]"):
        matmul_by_blocks(a, b, rows=1, inner=[1, 2], columns=1)
    with pytest.raises(ValueError, match="rows is at least 1: got 0"):
        matmul_by_blocks(a, b, rows=0, inner=1, columns=1)


def test_gram_equals_numpy():
    x = drawn(2, 3, 4)
    np.testing.assert_allclose(gram(x), np.einsum("bid,bjd->bij", x, x), rtol=1e-12)
    assert np.linalg.eigvalsh(gram(drawn(5, 2))).min() > -1e-12


def test_shapes_fit():
    for multiply in (matmul_by_outer_products, torch.matmul):
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            multiply(torch.ones(2, 3), torch.ones(2, 3))


def test_what_does_not_fit_is_refused_and_not_cut_or_spread():
    wanted = r"A is to have as many columns as B has rows: got \(2, 3\) and"
    for b in (torch.ones(1, 3), torch.ones(6, 3), torch.ones(3)):
        with pytest.raises(ValueError, match=wanted):
            unwrap(matmul_by_outer_products)(torch.ones(2, 3), b)
        with pytest.raises(ValueError, match=wanted):
            unwrap(matmul_by_blocks)(torch.ones(2, 3), b, rows=1, inner=3, columns=1)
    with pytest.raises(ValueError, match=r"inner is to add up to 0: got \[\]"):
        matmul_by_blocks(torch.ones(2, 0), torch.ones(0, 2), rows=1, inner=[], columns=1)
