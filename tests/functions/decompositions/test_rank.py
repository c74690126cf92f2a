import numpy as np
import pytest
import torch

from lawful.functions import is_pure, pure_tensor, rank_bounds, unfolding


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_the_bounds_meet_for_a_matrix(rank):
    a = normal(5, rank) @ normal(rank, 4, seed=1)
    assert rank_bounds(a) == (rank, rank) == (np.linalg.matrix_rank(a.numpy()),) * 2


def test_the_rank_of_complex_multiplication_lies_within_the_bounds():
    t = torch.zeros(2, 2, 2)
    t[0, 0, 0] = t[0, 1, 1] = t[1, 0, 1] = 1
    t[1, 1, 0] = -1
    lower, upper = rank_bounds(t)
    assert lower == 2 <= 3 <= upper == 4


def test_bounds_see_through_a_change_of_basis():
    t = pure_tensor(normal(3), normal(4, seed=1), normal(5, seed=2))
    t = t + pure_tensor(normal(3, seed=3), normal(4, seed=4), normal(5, seed=5))
    assert rank_bounds(t) == (2, 4)


def test_pure():
    assert is_pure(pure_tensor(normal(3), normal(4, seed=1), normal(5, seed=2)))
    assert is_pure(torch.zeros(2, 3))
    assert is_pure(normal(3))
    assert not is_pure(normal(2, 2, 2))


def test_unfoldings_keep_every_fibre():
    t = normal(2, 3, 4)
    for axis in (0, 1, 2, -1):
        matrix = unfolding(t, axis=axis)
        assert matrix.shape == (t.shape[axis], t.numel() // t.shape[axis])
        torch.testing.assert_close(matrix[1], t.select(axis, 1).flatten())


def test_a_number_has_no_axes():
    with pytest.raises(ValueError, match="at least one axis"):
        rank_bounds(torch.tensor(1.0))
