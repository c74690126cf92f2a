import numpy as np
import pytest
import scipy.linalg
import torch

from lawful.functions import givens_qr, householder_qr, modified_gram_schmidt, qr

CONSTRUCTIONS = [qr, modified_gram_schmidt, householder_qr, givens_qr]
ANY_RANK = [qr, householder_qr, givens_qr]


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
@pytest.mark.parametrize("size", [(5, 5), (7, 4), (6, 1), (1, 1)])
def test_equals_scipy_up_to_signs(construction, size):
    a = normal(*size)
    q, r = scipy.linalg.qr(a.numpy(), mode="economic")
    sign = np.sign(np.diag(r))
    found = construction(a)
    np.testing.assert_allclose(found[0], q * sign, atol=1e-12)
    np.testing.assert_allclose(found[1], r * sign[:, None], atol=1e-12)


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_a_batch_is_its_matrices_one_by_one(construction):
    a = normal(2, 3, 5, 4)
    q, r = construction(a)
    for i in range(2):
        for k in range(3):
            one = construction(a[i, k])
            torch.testing.assert_close((q[i, k], r[i, k]), tuple(one))


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_is_as_good_in_float32(construction):
    a = normal(20, 10, dtype=torch.float32)
    q, r = construction(a)
    assert q.dtype == r.dtype == torch.float32
    torch.testing.assert_close(q @ r, a, rtol=0, atol=1e-5)
    torch.testing.assert_close(q.mT @ q, torch.eye(10), rtol=0, atol=1e-4)


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_gradients_are_pytorchs(construction):
    def slope(function):
        a = normal(3, 5, 3).requires_grad_()
        q, r = function(a)
        (normal(*q.shape, seed=1) * q).sum().add((normal(*r.shape, seed=2) * r).sum()).backward()
        return a.grad

    torch.testing.assert_close(slope(construction), slope(qr))


@pytest.mark.parametrize("construction", ANY_RANK)
def test_dependent_columns_leave_q_orthonormal(construction):
    a = normal(5, 3)
    a[:, 1] = 2 * a[:, 0]
    for case in (a, torch.zeros(4, 3, dtype=torch.float64), torch.eye(4, dtype=torch.float64)[:, [3, 3, 0]]):
        q, r = construction(case)
        torch.testing.assert_close(q @ r, case)
        torch.testing.assert_close(q.mT @ q, torch.eye(3, dtype=torch.float64))


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
@pytest.mark.parametrize(
    ("scale", "dtype"),
    [(1e-200, torch.float64), (1e200, torch.float64), (1e20, torch.float32), (1e-22, torch.float32)],
)
def test_squares_neither_overflow_nor_vanish(construction, scale, dtype):
    a = normal(4, 3, dtype=dtype)
    q, r = construction(scale * a)
    torch.testing.assert_close((q, r / scale), tuple(construction(a)))


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_derivatives_are_right_where_squares_overflow(construction):
    def slope(scale):
        a = (scale * normal(4, 3, dtype=torch.float32)).requires_grad_()
        q, r = construction(a)
        (normal(4, 3, seed=1, dtype=torch.float32) * q).sum().add(r.sum() / scale).backward()
        return a.grad * scale

    torch.testing.assert_close(slope(1e20), slope(1.0), rtol=1e-4, atol=1e-4)


def test_gram_schmidt_of_a_zero_column_is_not_silent():
    q, _ = modified_gram_schmidt(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    assert q[:, 1].isnan().all()


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_errors(construction):
    with pytest.raises(ValueError, match="as many rows as columns are wanted: got 2 x 3"):
        construction(torch.zeros(2, 3))
    for wrong in (torch.zeros(3), torch.zeros(3, 3, dtype=torch.long), torch.zeros(3, 3, dtype=torch.complex64)):
        with pytest.raises(TypeError, match=r"a matrix of real numbers is wanted|parameter 'a'"):
            construction(wrong)


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_an_empty_batch_stays_empty(construction):
    q, r = construction(torch.zeros(0, 3, 2))
    assert q.shape == (0, 3, 2)
    assert r.shape == (0, 2, 2)


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_no_columns_have_no_factors(construction):
    q, r = construction(torch.zeros(2, 4, 0))
    assert q.shape == (2, 4, 0)
    assert r.shape == (2, 0, 0)
