"""Inverse roots, moments, standardization and whitening."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.linalg
import torch
from sklearn.decomposition import PCA, IncrementalPCA
from sklearn.preprocessing import StandardScaler

from lawful.functions import (
    RunningMoments,
    Standardizer,
    Whitening,
    cholesky_whitening,
    inverse_root,
    pca_whitening,
    standardize,
    sum_of_products,
    sum_of_squares,
    whiten,
    zca_whitening,
)
from lawful.functions.whitening import _CHUNK_ENTRIES, _center
from lawful.laws import AtMost, Claim, agreement, boundedness, gradient, law, second_order_gradient, shape, transformed

METHODS = [pca_whitening, zca_whitening, cholesky_whitening]


def sample_covariance(d=4, n=9):
    return torch.randn(d, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64).cov()


def test_inverse_root_equals_scipy():
    a = sample_covariance()
    expected = scipy.linalg.fractional_matrix_power(a.numpy(), -0.5)
    torch.testing.assert_close(inverse_root(a), torch.from_numpy(expected))


EQUAL = (torch.eye(3).double(), torch.diag(torch.tensor([1.0, 1.0, 2.0])).double(), sample_covariance(3))


@pytest.mark.parametrize("a", EQUAL)
@pytest.mark.parametrize("root", [inverse_root, zca_whitening])
def test_inverse_root_gradient_at_repeated_eigenvalues(a, root):
    assert torch.autograd.gradcheck(lambda x: root((x + x.mT) / 2), a.clone().requires_grad_())


def test_inverse_root_of_a_singular_matrix():
    a = sample_covariance(3, 2)  # of rank 1
    root = inverse_root(a)
    torch.testing.assert_close(root @ root, torch.linalg.pinv(a, hermitian=True))


@pytest.mark.parametrize("a", EQUAL)
def test_inverse_root_second_derivative_at_repeated_eigenvalues(a):
    assert torch.autograd.gradgradcheck(lambda x: inverse_root((x + x.mT) / 2), a.clone().requires_grad_())


def test_inverse_root_under_vmap():
    a = torch.stack(EQUAL)
    jacobian = torch.func.jacrev(inverse_root)
    torch.testing.assert_close(torch.func.vmap(jacobian)(a), torch.stack([jacobian(x) for x in a]))


def normal_data(n, d, dtype=torch.float64):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=dtype)


@pytest.mark.parametrize("n", [1, 7, _CHUNK_ENTRIES // 2 + 5, _CHUNK_ENTRIES * 3 // 2])
def test_moments_equal_numpy(n):
    x = normal_data(n, 2) * 3 + 5
    found = RunningMoments.from_data(x, sum_of_products)
    np.testing.assert_allclose(found.mean, x.numpy().mean(0))
    np.testing.assert_allclose(found.scatter / n, np.cov(x.numpy().T, bias=True) if n > 1 else 0, atol=1e-12)
    np.testing.assert_allclose(RunningMoments.from_data(x, sum_of_squares).scatter / n, x.numpy().var(0), atol=1e-12)


def test_moments_far_from_the_origin():
    x = normal_data(5000, 3)
    near, far = RunningMoments.from_data(x, sum_of_products), RunningMoments.from_data(x + 1e8, sum_of_products)
    torch.testing.assert_close(far.scatter, near.scatter, rtol=1e-6, atol=1e-3)


def test_moments_of_sorted_data_with_an_outlier():
    x = normal_data(_CHUNK_ENTRIES, 1).sort(0).values
    x[0] = 1e6
    exact = x.numpy().astype(np.longdouble).var()
    np.testing.assert_allclose(
        float(RunningMoments.from_data(x, sum_of_squares).scatter[0]) / len(x), float(exact), rtol=1e-12
    )


def test_moments_merge_in_any_order():
    x = normal_data(1000, 4)
    whole = RunningMoments.from_data(x, sum_of_products)
    streamed = RunningMoments.from_batches(iter(x.split([1, 1, 98, 900])), sum_of_products)
    a, b, c = (RunningMoments.from_data(part, sum_of_products) for part in x.split([300, 300, 400]))
    for found in (streamed, a.merge(b.merge(c)), c.merge(a).merge(b)):
        assert found.count == 1000
        torch.testing.assert_close(found.mean, whole.mean)
        torch.testing.assert_close(found.scatter, whole.scatter)


def test_moments_in_float32_and_of_any_shape():
    x = normal_data(600, 4, torch.float32).reshape(600, 2, 2)
    found = RunningMoments.from_data(x, sum_of_squares)
    assert found.mean.shape == found.scatter.shape == (2, 2)
    np.testing.assert_allclose(found.scatter / 600, x.numpy().var(0), rtol=1e-5)


def test_moments_of_constants():
    x = torch.full((999, 1), 0.1)
    assert (
        RunningMoments.from_data(x, sum_of_squares).merge(RunningMoments.from_data(x[:5], sum_of_squares)).scatter == 0
    )


def test_moments_of_strided_data_and_of_data_with_gradient():
    x = normal_data(8, 6)
    torch.testing.assert_close(RunningMoments.from_data(x[::2, ::3], sum_of_products).mean, x[::2, ::3].mean(0))
    assert not RunningMoments.from_data(x.requires_grad_(), sum_of_products).scatter.requires_grad


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf, 1e200])
def test_moments_of_non_finite_data_raise(bad):
    x = normal_data(5, 2)
    x[3, 1] = bad
    with pytest.raises(ValueError, match="expected finite data"):
        RunningMoments.from_data(x, sum_of_products)


def test_moments_of_wrong_arguments_raise():
    with pytest.raises(ValueError, match=r"expected at least one row and one feature, got shape \(0, 2\)"):
        RunningMoments.from_data(torch.zeros(0, 2), sum_of_squares)
    with pytest.raises(ValueError, match="expected at least one batch, got none"):
        RunningMoments.from_batches([], sum_of_squares)
    with pytest.raises(ValueError, match=r"expected features of shape \(2,\), got \(3,\)"):
        RunningMoments.from_data(torch.zeros(1, 2), sum_of_squares).merge(
            RunningMoments.from_data(torch.zeros(1, 3), sum_of_squares)
        )
    with pytest.raises(TypeError, match=r"expected a floating-point dtype, got torch\.int64"):
        RunningMoments.from_data(torch.zeros(3, 2, dtype=torch.long), sum_of_squares)


def test_moments_with_different_scatter_raise():
    x = normal_data(5, 2)
    with pytest.raises(ValueError, match="same scatter_fn, got sum_of_squares and sum_of_products"):
        RunningMoments.from_data(x, sum_of_squares).merge(RunningMoments.from_data(x, sum_of_products))
    with pytest.raises(ValueError, match="moments with sum_of_products, got sum_of_squares"):
        Whitening(RunningMoments.from_data(x, sum_of_squares))
    with pytest.raises(ValueError, match="moments with sum_of_squares, got sum_of_products"):
        Standardizer(RunningMoments.from_data(x, sum_of_products))


@pytest.mark.parametrize("scatter_fn", [sum_of_squares, sum_of_products])
def test_moments_raise_on_underflow(scatter_fn):
    x = normal_data(5, 2, torch.float32)
    x[:, 1] *= 1e-30
    with pytest.raises(ValueError, match="squares do not underflow"):
        RunningMoments.from_data(x, scatter_fn)
    x[:, 1] = 1e-30
    assert RunningMoments.from_data(x, scatter_fn).count == 5


def covariance(d=5, rank=None, dtype=torch.float64):
    x = torch.randn(d, rank or d, generator=torch.Generator().manual_seed(d), dtype=torch.float64)
    return (x @ x.mT).to(dtype)


def test_zca_equals_scipy():
    np.testing.assert_allclose(
        zca_whitening(covariance()), np.linalg.inv(scipy.linalg.sqrtm(covariance().numpy())), rtol=1e-8
    )


def test_cholesky_equals_scipy():
    lower = scipy.linalg.cholesky(covariance().numpy(), lower=True)
    np.testing.assert_allclose(cholesky_whitening(covariance()), np.linalg.inv(lower).T, rtol=1e-8, atol=1e-12)


def test_pca_equals_numpy_up_to_sign():
    values, axes = np.linalg.eigh(covariance().numpy())
    np.testing.assert_allclose(pca_whitening(covariance()).abs(), np.abs((axes / np.sqrt(values))[:, ::-1]), rtol=1e-8)


def test_pca_signs():
    w = pca_whitening(covariance(6))
    largest = w.gather(0, w.abs().argmax(0, keepdim=True))
    assert (largest[0, :-1] > 0).all()
    assert torch.linalg.det(w) > 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("d", "rank"), [(2, 1), (5, 3), (6, 1), (40, 20)])
def test_whitening_matrix_at_lower_rank(method, dtype, d, rank):
    sigma = covariance(d, rank, dtype)
    w = method(sigma)
    kept = w.mT @ sigma @ w
    close = 1e-8 if dtype == torch.float64 else 1e-2
    torch.testing.assert_close(kept @ kept, kept, atol=close, rtol=close)
    assert round(float(kept.trace())) == rank
    torch.testing.assert_close(sigma @ w @ w.mT @ sigma, sigma, atol=close * float(sigma.max()), rtol=close)


@pytest.mark.parametrize("method", METHODS)
def test_whitening_matrices_of_a_batch(method):
    assert (method(torch.zeros(3, 3)) == 0).all()
    batch = torch.stack([covariance(4), covariance(4, 2), torch.zeros(4, 4).double()])
    torch.testing.assert_close(method(batch), torch.stack([method(sigma) for sigma in batch]))


def test_cholesky_drops_dependent_features():
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = torch.stack([x[:, 0], 2 * x[:, 0], x[:, 1], x[:, 0] - x[:, 1], 1e-9 * x[:, 2]], -1)
    w = cholesky_whitening(x.mT @ x)
    assert (w.abs().amax(0) > 0).tolist() == [True, False, True, False, True]
    assert (w.tril(-1) == 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_whitening_matrix_gradients(method):
    def of_data(x):
        return method(x.mT @ x)

    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(of_data, x)


def test_cholesky_gradient_at_lower_rank():
    x = torch.randn(6, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = torch.cat([x, x[:, :1]], -1).requires_grad_()
    cholesky_whitening(x.mT @ x).sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("method", METHODS)
def test_nan_covariance_raises(method):
    with pytest.raises(ValueError, match="expected a finite covariance"):
        method(torch.full((2, 2), torch.nan))


@pytest.mark.parametrize("method", METHODS)
def test_data_instead_of_a_covariance_raises(method):
    with pytest.raises((ValueError, TypeError), match=r"to whiten data use whiten|parameter"):
        method(torch.zeros(5, 3))


def scaled_data(*shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype) * 3 + 7


@pytest.mark.parametrize("axes", [(0,), (1,), (-1,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("eps", [0.0, 0.3])
def test_standardize_equals_numpy(axes, eps):
    x = scaled_data(4, 3, 5)
    a = x.numpy()
    expected = (a - a.mean(axes, keepdims=True)) / np.sqrt(a.var(axes, keepdims=True) + eps)
    np.testing.assert_allclose(standardize(x, dim=axes, eps=eps), expected, atol=1e-12)


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("n", [20, _CHUNK_ENTRIES])
def test_standardizer_equals_scikit_learn(dtype, close, n):
    x, new = scaled_data(n, 3, dtype=dtype), scaled_data(5, 3, dtype=dtype) * 2
    ours, peer = Standardizer.fit(x), StandardScaler().fit(x.numpy())
    np.testing.assert_allclose(ours.mean, peer.mean_, rtol=close)
    np.testing.assert_allclose(ours.variance, peer.var_, rtol=close)
    np.testing.assert_allclose(ours.transform(new), peer.transform(new.numpy()), atol=10 * close)
    np.testing.assert_allclose(ours.inverse_transform(new), peer.inverse_transform(new.numpy()), rtol=close)
    np.testing.assert_allclose(ours.transform(x), peer.transform(x.numpy()), atol=10 * close)


def test_standardizer_of_a_stream_equals_scikit_learn():
    x = scaled_data(500, 3)
    ours, peer = Standardizer.fit(x[:2]), StandardScaler()
    for batch in x[2:].split(77):
        ours = ours.update(batch)
    for batch in x.split(50):
        peer.partial_fit(batch.numpy())
    np.testing.assert_allclose(ours.transform(x), peer.transform(x.numpy()), atol=1e-12)
    np.testing.assert_allclose(
        Standardizer(RunningMoments.from_batches(x.split(1), sum_of_squares)).variance, peer.var_
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.0, 0.1, -1e8 / 3])
@pytest.mark.parametrize("eps", [0.0, 1e-3])
def test_constant_features_are_exactly_zero(dtype, value, eps):
    x = scaled_data(1001, 2, dtype=dtype)
    x[:, 1] = value
    fitted = Standardizer.fit(x, eps=eps)
    assert fitted.constant.tolist() == [False, True]
    assert (fitted.transform(x)[:, 1] == 0).all()
    assert (standardize(x, eps=eps)[:, 1] == 0).all()
    assert (fitted.inverse_transform(fitted.transform(x))[:, 1] == x[0, 1]).all()
    assert not fitted.update(x[:1] + 1).constant.any()


@pytest.mark.parametrize("axes", [(0,), (0, 1)])
def test_standardize_gradient(axes):
    assert torch.autograd.gradcheck(lambda x: standardize(x, dim=axes, eps=0.1), scaled_data(4, 3).requires_grad_())


def test_standardize_gradient_of_constants():
    x = torch.full((4, 2), 0.1, requires_grad=True)
    standardize(x).square().sum().backward()
    assert (x.grad == 0).all()


def test_standardizer_gradients():
    fitted = Standardizer.fit(scaled_data(9, 2))
    x = scaled_data(3, 2).requires_grad_()
    assert torch.autograd.gradcheck(fitted.transform, x)
    assert torch.autograd.gradcheck(fitted.inverse_transform, x)


def test_standardizer_on_single_rows_and_other_dtypes():
    x = scaled_data(10, 2, 3)
    fitted = Standardizer.fit(x)
    torch.testing.assert_close(fitted.transform(x[0]), fitted.transform(x)[0])
    torch.testing.assert_close(fitted.transform(x.float()), fitted.transform(x), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(fitted.inverse_transform(fitted.transform(x)), x)


def test_standardizer_propagates_nan_and_fit_raises():
    x = scaled_data(5, 2)
    fitted = Standardizer.fit(x)
    x[0, 0] = torch.nan
    assert fitted.transform(x).isnan().sum() == 1
    assert standardize(x).isnan().sum() == 5
    with pytest.raises(ValueError, match="expected finite data"):
        Standardizer.fit(x)
    with pytest.raises(ValueError, match="expected finite data"):
        fitted.update(x)


def test_standardizer_of_wrong_arguments_raises():
    with pytest.raises(ValueError, match="at least 2 rows, got 1"):
        Standardizer.fit(torch.zeros(1, 2))
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        standardize(torch.zeros(3, 2), eps=-1.0)
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        Standardizer.fit(torch.zeros(3, 2), eps=-1.0)
    with pytest.raises(ValueError, match=r"got shape \(0, 2\)"):
        standardize(torch.zeros(0, 2))
    with pytest.raises(ValueError, match=r"dim=\(\)"):
        standardize(torch.zeros(3, 2), dim=())
    with pytest.raises(ValueError, match=r"expected features of shape \(2,\), got x of shape \(4, 3\)"):
        Standardizer.fit(torch.zeros(3, 2)).transform(torch.zeros(4, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e30])
def test_standardize_at_any_magnitude(dtype, size):
    x = scaled_data(8, 3, dtype=dtype) - 7
    torch.testing.assert_close(standardize(size * x), standardize(x))
    lifted = standardize(1e-30 * x, eps=4.0)
    torch.testing.assert_close(lifted * 1e30, (x - x.mean(0)) / 2, rtol=1e-5, atol=1e-5)


def correlated_data(n=200, d=4, rank=None, dtype=torch.float64):
    generator = torch.Generator().manual_seed(d)
    turn = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q
    spread = torch.arange(1, d + 1) * (torch.arange(d) < (rank or d))
    return (torch.randn(n, d, generator=generator, dtype=torch.float64) * spread @ turn + 3).to(dtype)


def match_signs(a, b):
    return a.numpy() * np.sign((a.numpy() * b).sum(0))


@pytest.mark.parametrize("n", [200, _CHUNK_ENTRIES // 2])
def test_pca_whitening_equals_scikit_learn(n):
    x = correlated_data(n)
    expected = PCA(whiten=True).fit_transform(x.numpy()) * np.sqrt(n / (n - 1))
    for found in (whiten(x, method=pca_whitening), Whitening.fit(x, method=pca_whitening).transform(x)):
        np.testing.assert_allclose(match_signs(found, expected), expected, atol=1e-9)


def test_whitening_of_a_stream_equals_scikit_learn():
    x = correlated_data(300)
    peer = IncrementalPCA(whiten=True)
    for batch in x.split(50):
        peer.partial_fit(batch.numpy())
    ours = Whitening.fit(x[:2], method=pca_whitening)
    for batch in x[2:].split(37):
        ours = ours.update(batch)
    expected = peer.transform(x.numpy()) * np.sqrt(300 / 299)
    np.testing.assert_allclose(match_signs(ours.transform(x), expected), expected, atol=1e-9)
    single = Whitening(RunningMoments.from_batches(x.split(1), sum_of_products), pca_whitening)
    torch.testing.assert_close(single.transform(x), ours.transform(x))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-10), (torch.float32, 1e-3)])
def test_whitened_covariance_is_the_identity(method, dtype, close):
    x = correlated_data(_CHUNK_ENTRIES // 4, 16, dtype=dtype)
    z = Whitening.fit(x, method=method).transform(x)
    np.testing.assert_allclose(np.cov(z.numpy().T, bias=True), np.eye(16), atol=close)
    np.testing.assert_allclose(z.mean(0), 0, atol=close)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-9), (torch.float32, 1e-3)])
@pytest.mark.parametrize("eps", [0.0, 1e-2])
def test_whitening_of_lower_rank_round_trips(method, dtype, close, eps):
    x = correlated_data(100, 5, rank=3, dtype=dtype)
    x[:, 1] = 7.0
    fitted = Whitening.fit(x, method=method, eps=eps)
    assert fitted.rank == (3 if eps == 0 else 5)
    torch.testing.assert_close(fitted.inverse_transform(fitted.transform(x)), x, atol=close, rtol=close)


@pytest.mark.parametrize("method", METHODS)
def test_whitening_projects_onto_the_data(method):
    x = correlated_data(50, 3)
    x[:, 2] = x[:, 0] + x[:, 1]
    fitted = Whitening.fit(x, method=method)
    off = torch.tensor([[1.0, 1.0, -1.0]], dtype=torch.float64)
    z = fitted.transform(x[:1] + off) - fitted.transform(x[:1])
    if method is not cholesky_whitening:  # which reads the first two features alone
        torch.testing.assert_close(z, torch.zeros_like(z), atol=1e-9, rtol=0)
    back = fitted.inverse_transform(fitted.transform(x[:1] + off))
    torch.testing.assert_close(back[:, 2], back[:, 0] + back[:, 1])


@pytest.mark.parametrize("method", METHODS)
def test_fewer_rows_than_features(method):
    x = correlated_data(4, 9)
    fitted = Whitening.fit(x, method=method)
    assert fitted.rank == 3
    torch.testing.assert_close(fitted.inverse_transform(fitted.transform(x)), x)


@pytest.mark.parametrize("method", METHODS)
def test_whitening_of_constants(method):
    x = torch.full((5, 3), 0.1)
    fitted = Whitening.fit(x, method=method)
    assert fitted.rank == 0
    assert (fitted.transform(x) == 0).all()
    assert (whiten(x, method=method) == 0).all()
    assert (fitted.inverse_transform(fitted.transform(x)) == x).all()


def test_whitening_with_eps():
    x = correlated_data()
    for eps in (0.0, 0.1, 10.0):
        values = torch.linalg.eigvalsh(torch.cov(x.mT, correction=0))
        found = torch.linalg.eigvalsh(torch.cov(whiten(x, eps=eps).mT, correction=0))
        torch.testing.assert_close(found, values / (values + eps))


def test_whitening_of_batches_and_custom_methods():
    x = torch.stack([correlated_data(20), correlated_data(20) * 2])
    torch.testing.assert_close(whiten(x), torch.stack([whiten(part) for part in x]))
    fitted = Whitening.fit(x[0])
    torch.testing.assert_close(fitted.transform(x[0, 0]), fitted.transform(x)[0, 0])
    torch.testing.assert_close(fitted.inverse_transform(fitted.transform(x)), x)

    def reversed_cholesky(covariance):
        return cholesky_whitening(covariance.flip(-1, -2)).flip(-2)

    torch.testing.assert_close(whiten(x[0], method=reversed_cholesky), whiten(x[0].flip(-1), method=cholesky_whitening))


def test_whitening_gradients():
    fitted, x = Whitening.fit(correlated_data()), correlated_data(5).requires_grad_()
    assert torch.autograd.gradcheck(fitted.transform, x)
    assert torch.autograd.gradcheck(fitted.inverse_transform, x)
    for method in METHODS:
        assert torch.autograd.gradcheck(lambda x, method=method: whiten(x, method=method), x)


def test_whitening_of_nan_raises():
    x = correlated_data(6)
    fitted = Whitening.fit(x)
    x[2, 1] = torch.nan
    for read in (Whitening.fit, fitted.update, whiten):
        with pytest.raises(ValueError, match="expected finite data"):
            read(x)
    assert fitted.transform(x).isnan().any(-1).sum() == 1
    x[2, 1] = torch.inf
    assert not fitted.transform(x)[2].isfinite().any()


def test_whitening_of_wrong_arguments_raises():
    with pytest.raises(ValueError, match="at least 2 rows, got 1"):
        Whitening.fit(torch.zeros(1, 2))
    with pytest.raises(ValueError, match=r"at least 2 rows and 1 feature, got shape \(1, 2\)"):
        whiten(torch.zeros(1, 2))
    with pytest.raises(ValueError, match=r"got shape \(0, 2\)"):
        Whitening.fit(torch.zeros(0, 2))
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        Whitening.fit(torch.zeros(3, 2), eps=-1.0)
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        whiten(torch.zeros(3, 2), eps=-1.0)
    fitted = Whitening.fit(correlated_data())
    for apply in (fitted.transform, fitted.inverse_transform):
        with pytest.raises(ValueError, match=r"expected 4 features, got x of shape \(2, 3\)"):
            apply(torch.zeros(2, 3))


@pytest.mark.parametrize("shape", [(5,), (5, 2, 2), ()])
def test_whitening_fit_of_other_shapes_raises(shape):
    with pytest.raises(ValueError, match=r"expected x of shape \(n, d\), got"):
        Whitening.fit(torch.ones(shape))


@law("‖f(x) - x‖ ≤ ‖f(x) R - x‖, R orthogonal", discover_with=None)
def least_change(f, x, *, draw):
    """No rotation or reflection of the output is closer to the centered input."""
    y, off = f(x), x - x.mean(-2, keepdim=True)
    rotation = torch.linalg.qr(draw.normal(y.shape[-1], y.shape[-1])).Q
    return AtMost((y - off).square().sum(), (y @ rotation - off).square().sum())


def relative_spread(x):
    """The smallest standard deviation along a principal axis, relative to the largest."""
    spread = torch.linalg.svdvals(x - x.mean(-2, keepdim=True))
    return spread[-1:] / spread[:1].clamp_min(torch.finfo(x.dtype).tiny)


def identity_like(a):
    return torch.eye(a.shape[-1]).to(a).expand_as(a)


def inverse_root_by_svd(a):
    axes, values, _ = torch.linalg.svd(a)
    return axes * values.rsqrt()[..., None, :] @ axes.mT


def singular(x):
    """A matrix of rank 2."""
    factor = x.tanh() + torch.tensor([[3.0, 0.0], [0.0, 3.0], [3.0, -3.0]]).to(x)
    return factor @ factor.mT


def claims():
    """Second derivations of standardization and whitening."""
    yield from inverse_root_claims()
    yield from moment_claims()
    yield from method_claims()
    yield from standardize_claims()
    yield from whiten_claims()


def inverse_root_claims():
    def definite(x):
        return x.tanh() @ x.tanh().mT + identity_like(x)

    def near_identity(x):
        return inverse_root(identity_like(x) + (x + x.mT) / 9)

    inputs = transformed(definite, "b 3 3")
    sandwich = "R A R = 1"
    yield Claim(agreement(other=identity_like), lambda a: inverse_root(a) @ a @ inverse_root(a), inputs, name=sandwich)
    yield Claim(agreement(other=inverse_root_by_svd), inverse_root, inputs)
    pseudo = agreement(other=lambda a: torch.linalg.pinv(a, rtol=1e-4, hermitian=True))
    rank_two = transformed(singular, "b 3 2")
    yield Claim(pseudo, lambda a: inverse_root(a) @ inverse_root(a), rank_two, name="R R = A⁺ at rank 2 of 3")
    bounded = transformed(torch.tanh, "b 3 2")
    yield Claim(gradient(), lambda x: inverse_root(singular(x)), bounded, name="inverse_root at rank 2")
    for law_ in (gradient(), replace(second_order_gradient(), cases=8)):
        yield Claim(law_, near_identity, transformed(torch.zeros_like, "b 2 2"), name="inverse_root at 1")


def moment_claims():
    def equation(x):
        mean = x.mean(0)
        return torch.cat([mean[None], (x - mean).mT @ (x - mean) / len(x)])

    def streamed(x):
        found = RunningMoments.from_batches(x.split(3), sum_of_products)
        return torch.cat([found.mean[None], found.scatter / found.count])

    def of_repeated_rows(x):
        found = RunningMoments.from_data(x[torch.arange(600) % 6], sum_of_products)
        return torch.cat([found.mean[None], found.scatter / found.count])

    def squared(x):
        found = RunningMoments.from_batches(x.split(2), sum_of_squares)
        return torch.stack([found.mean, found.scatter, torch.full_like(found.mean, found.count)])

    def squared_equation(x):
        mean = x.mean(0)
        return torch.stack([mean, (x - mean).square().sum(0), torch.full_like(mean, len(x))])

    def varies(x):
        return (_center(x.expand(7, 3), (0,)) != 0).any().to(x)

    yield Claim(agreement(other=lambda x: x - x.mean(0)), lambda x: _center(x, (0,)), shape("n 3"), name="_center")
    both = agreement(other=lambda x: x - x.mean((0, 2), keepdim=True))
    yield Claim(both, lambda x: _center(x, (0, 2)), shape("n 3 2"), name="_center, two dimensions")
    zero = agreement(other=lambda x: x.new_zeros(()))
    yield Claim(zero, varies, shape("3"), name="_center of constants is exactly 0")
    yield Claim(agreement(other=equation), streamed, shape("n:1..8 3"), name="RunningMoments.from_batches, products")
    yield Claim(agreement(other=squared_equation), squared, shape("n:1..5 3"), name="from_batches, squares")
    yield Claim(agreement(other=equation), of_repeated_rows, shape("6 2"), name="RunningMoments.from_data, 600 rows")


def method_claims():
    def covariances(x):
        return x @ x.mT / (1 + x.square().sum((-1, -2), keepdim=True)) + torch.diag(torch.tensor([0.5, 1.0, 2.0])).to(x)

    def lengths(covariance):
        return pca_whitening(covariance).mT @ pca_whitening(covariance)

    def signs(covariance):
        columns = pca_whitening(covariance)[..., :-1]
        return columns.amax(-2) + columns.amin(-2)

    def rotation(covariance):
        between = torch.linalg.solve(zca_whitening(covariance), pca_whitening(covariance))
        return between.mT @ between

    inputs, rank_two = transformed(covariances, "b 3 3"), transformed(singular, "b 3 2")
    for method in METHODS:

        def whitened(covariance, method=method):
            return method(covariance).mT @ covariance @ method(covariance)

        def restored(covariance, method=method):
            return covariance @ method(covariance) @ method(covariance).mT @ covariance

        name = method.__name__
        yield Claim(agreement(other=identity_like), whitened, inputs, name=f"{name}: Wᵀ Σ W = 1")
        yield Claim(agreement(other=torch.clone), restored, rank_two, name=f"{name}: Σ W Wᵀ Σ = Σ at rank 2 of 3")
    volume = agreement(other=lambda c: torch.linalg.det(c).rsqrt())
    yield Claim(volume, lambda c: torch.linalg.det(pca_whitening(c)), inputs, name="pca_whitening: det W > 0")
    inverse = agreement(other=lambda c: torch.diag_embed(1 / torch.linalg.svdvals(c)))
    yield Claim(inverse, lengths, inputs, name="pca_whitening: Wᵀ W = 1 / Λ")
    yield Claim(agreement(other=inverse_root_by_svd), zca_whitening, inputs)
    yield Claim(boundedness(low=0.0), signs, inputs, name="pca_whitening: largest entries are positive")
    triangular = agreement(other=lambda c: torch.linalg.inv(torch.linalg.cholesky(c)).mT.triu())
    yield Claim(triangular, cholesky_whitening, inputs)
    yield Claim(agreement(other=identity_like), rotation, inputs, name="PCA whitening is ZCA whitening, rotated")


def standardize_claims():
    data = shape("n:2..6 3")

    def equation(x):
        z = (x - x.mean(0)) / x.var(0, correction=0).sqrt()
        return torch.where((x == x[0]).all(0), 0.0, z)

    def eps_equation(x):
        return (x - x.mean()) / (x.var(correction=0) + 0.1).sqrt()

    def streamed(x):
        return Standardizer.fit(x[:2], eps=0.1).update(x[2:]).transform(x)

    def round_trip(x):
        fitted = Standardizer.fit(x)
        return fitted.inverse_transform(fitted.transform(x))

    def with_constant(x):
        steps = torch.arange(len(x)).to(x)[:, None]
        return torch.cat([x.tanh() + 3 * steps, 5 + 0 * steps], -1)

    def on_new_data(x):
        fitted, new = Standardizer.fit(x, eps=0.1), x + 1
        rows = fitted.transform(new), fitted.inverse_transform(new), fitted.constant.to(x)[None], fitted.variance[None]
        return torch.cat(rows)

    def new_data_equation(x):
        variance, varies, new = x.var(0, correction=0), x.new_tensor([1, 1, 0]), x + 1
        z, y = (new - x.mean(0)) / (variance + 0.1).sqrt(), new * (variance + 0.1).sqrt()
        return torch.cat([varies * z, varies * y + x.mean(0), 1 - varies[None], variance[None]])

    yield Claim(agreement(other=equation), standardize, data)
    both = partial(standardize, dim=(0, 1), eps=0.1)
    yield Claim(agreement(other=eps_equation), both, data, name="standardize(dim=(0, 1), eps=0.1)")
    yield Claim(agreement(other=partial(standardize, eps=0.1)), streamed, shape("n:3..8 3"), name="Standardizer.update")
    yield Claim(agreement(other=torch.clone), round_trip, data, name="Standardizer.inverse_transform")
    constant = transformed(with_constant, "n:2..6 2")
    yield Claim(agreement(other=new_data_equation), on_new_data, constant, name="Standardizer, a constant feature")


def whiten_claims():
    def of_rank_two(x):
        return torch.cat([x, 2 * x[..., :1] - x[..., 1:] + 1], -1)

    def orthonormal(x):
        q, r = torch.linalg.qr(x - x.mean(0))
        return q * r.diagonal().sign() * len(x) ** 0.5

    def equation(x):
        u, s, v = torch.linalg.svd(x - x.mean(0), full_matrices=False)
        return u * (s / (s.square() / len(x) + 0.5).sqrt()) @ v

    def streamed(x):
        return Whitening.fit(x[:2], eps=0.5).update(x[2:]).transform(x)

    def attributes(x):
        fitted, regular = Whitening.fit(x), Whitening.fit(x, eps=0.5)
        ranks, back = (
            x.new_tensor([[fitted.rank, regular.rank, 0]]),
            regular.inverse_transform(regular.transform(x + 1)),
        )
        return torch.cat([ranks, fitted.covariance, fitted.transform(x), back])

    def attributes_equation(x):
        return torch.cat([x.new_tensor([[2, 3, 0]]), x.mT.cov(correction=0), whiten(x), x + 1])

    def plane(x):
        return of_rank_two(x.tanh() + x.new_tensor([[3.0, 0.0], [0.0, 3.0], [-3.0, 0.0], [0.0, -3.0]]))

    data, rank_two = shape("n:4..7 3"), transformed(of_rank_two, "n:4..7 2")
    for method in METHODS:

        def round_trip(x, method=method):
            fitted = Whitening.fit(x, method=method)
            return fitted.inverse_transform(fitted.transform(x))

        yield Claim(agreement(other=torch.clone), round_trip, rank_two, name=f"{method.__name__} of rank 2, inverted")
    yield Claim(least_change(), whiten, data, name="whiten(method=zca_whitening)")
    gram_schmidt = agreement(other=orthonormal).excluding(relative_spread, radius=0.1)
    yield Claim(
        gram_schmidt, partial(whiten, method=cholesky_whitening), data, name="whiten(method=cholesky_whitening)"
    )
    yield Claim(agreement(other=equation), partial(whiten, eps=0.5), data, name="whiten(eps=0.5)")
    yield Claim(agreement(other=equation), streamed, data, name="Whitening.update(eps=0.5)")
    yield Claim(agreement(other=attributes_equation), attributes, transformed(plane, "4 2"), name="Whitening of rank 2")
