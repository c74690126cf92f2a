import numpy as np
import pytest
import torch

from lawful.functions import einsum


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("pattern", "letters", "shapes"),
    [
        ("row inner, inner column -> row column", "ik,kj->ij", [(2, 3), (3, 4)]),
        ("row inner, column inner", "ik,jk->ij", [(2, 3), (4, 3)]),
        ("row row", "ii->", [(3, 3)]),
        ("row row -> row", "ii->i", [(3, 3)]),
        ("i k l, k l j", "ikl,klj->ij", [(2, 3, 4), (3, 4, 2)]),
        ("head query key, head key value -> query head value", "hqk,hkv->qhv", [(2, 3, 4), (2, 4, 5)]),
        ("a, b, c -> c a b", "a,b,c->cab", [(2,), (3,), (4,)]),
        ("a b ->", "ab->", [(2, 3)]),
    ],
)
def test_equals_numpy(pattern, letters, shapes):
    tensors = [drawn(*shape, seed=n) for n, shape in enumerate(shapes)]
    np.testing.assert_allclose(einsum(pattern, *tensors), np.einsum(letters, *tensors), rtol=1e-12)


@pytest.mark.parametrize(
    ("pattern", "shapes", "message"),
    [
        ("i k, k j -> i j", [(2, 3)], "'i k, k j -> i j' names 2 tensors: got 1"),
        ("i k, k j -> i j", [(2, 3), (3,)], r"'k j' in 'i k, k j -> i j' names 2 axes: got \(3,\)"),
        ("i k, k j -> i j", [(2, 3), (4, 5)], "'k' in 'i k, k j -> i j' is one size: got 3 and 4"),
        ("i k -> i m", [(2, 3)], r"'m' in the result of 'i k -> i m' is an axis of no tensor: got \['i', 'k'\]"),
        ("i k -> i i", [(2, 3)], "'i' stands twice in the result of 'i k -> i i'"),
    ],
)
def test_errors_name_the_axis(pattern, shapes, message):
    with pytest.raises(ValueError, match=message):
        einsum(pattern, *(torch.ones(shape) for shape in shapes))
