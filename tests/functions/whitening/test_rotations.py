import numpy as np
import pytest
import scipy.linalg
import torch

from lawful.functions.whitening import cholesky, pca_whitening, zca_whitening

ROTATIONS = [pca_whitening, zca_whitening, cholesky]


def covariance(d=5, rank=None, dtype=torch.float64):
    x = torch.randn(d, rank or d, generator=torch.Generator().manual_seed(d), dtype=torch.float64)
    return (x @ x.mT).to(dtype)


def test_zca_equals_scipys_root():
    np.testing.assert_allclose(
        zca_whitening(covariance()), np.linalg.inv(scipy.linalg.sqrtm(covariance().numpy())), rtol=1e-8
    )


def test_cholesky_equals_scipys_factor():
    lower = scipy.linalg.cholesky(covariance().numpy(), lower=True)
    np.testing.assert_allclose(cholesky(covariance()), np.linalg.inv(lower).T, rtol=1e-8, atol=1e-12)


def test_pca_equals_numpys_axes_up_to_sign():
    values, axes = np.linalg.eigh(covariance().numpy())
    np.testing.assert_allclose(pca_whitening(covariance()).abs(), np.abs((axes / np.sqrt(values))[:, ::-1]), rtol=1e-8)


def test_pca_has_signs_of_its_own():
    w = pca_whitening(covariance(6))
    largest = w.gather(0, w.abs().argmax(0, keepdim=True))
    assert (largest[0, :-1] > 0).all()
    assert torch.linalg.det(w) > 0


@pytest.mark.parametrize("rotation", ROTATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("d", "rank"), [(2, 1), (5, 3), (6, 1), (40, 20)])
def test_of_lower_rank_the_rest_maps_to_zero(rotation, dtype, d, rank):
    sigma = covariance(d, rank, dtype)
    w = rotation(sigma)
    kept = w.mT @ sigma @ w
    close = 1e-8 if dtype == torch.float64 else 1e-2
    torch.testing.assert_close(kept @ kept, kept, atol=close, rtol=close)
    assert round(float(kept.trace())) == rank
    torch.testing.assert_close(sigma @ w @ w.mT @ sigma, sigma, atol=close * float(sigma.max()), rtol=close)


@pytest.mark.parametrize("rotation", ROTATIONS)
def test_zero_and_batches_of_mixed_rank(rotation):
    assert (rotation(torch.zeros(3, 3)) == 0).all()
    batch = torch.stack([covariance(4), covariance(4, 2), torch.zeros(4, 4).double()])
    torch.testing.assert_close(rotation(batch), torch.stack([rotation(sigma) for sigma in batch]))


def test_cholesky_leaves_a_feature_out_that_those_before_it_determine():
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = torch.stack([x[:, 0], 2 * x[:, 0], x[:, 1], x[:, 0] - x[:, 1], 1e-9 * x[:, 2]], -1)
    w = cholesky(x.mT @ x)
    assert (w.abs().amax(0) > 0).tolist() == [True, False, True, False, True]
    assert (w.tril(-1) == 0).all()


@pytest.mark.parametrize("rotation", ROTATIONS)
def test_gradients_are_right(rotation):
    def of_data(x):
        return rotation(x.mT @ x)

    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(of_data, x)


def test_cholesky_has_a_gradient_at_lower_rank():
    x = torch.randn(6, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = torch.cat([x, x[:, :1]], -1).requires_grad_()
    cholesky(x.mT @ x).sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("rotation", ROTATIONS)
def test_nan_is_refused(rotation):
    with pytest.raises(ValueError, match="finite covariance"):
        rotation(torch.full((2, 2), torch.nan))
