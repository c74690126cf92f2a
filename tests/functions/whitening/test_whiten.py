from inspect import unwrap

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA, IncrementalPCA

from lawful.functions.whitening import (
    ENTRIES,
    RunningMoments,
    Whitening,
    cholesky,
    pca_whitening,
    products,
    whiten,
    zca_whitening,
)

ROTATIONS = [pca_whitening, zca_whitening, cholesky]


def data(n=200, d=4, rank=None, dtype=torch.float64):
    generator = torch.Generator().manual_seed(d)
    turn = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q
    spread = torch.arange(1, d + 1) * (torch.arange(d) < (rank or d))
    return (torch.randn(n, d, generator=generator, dtype=torch.float64) * spread @ turn + 3).to(dtype)


def up_to_sign(a, b):
    return a.numpy() * np.sign((a.numpy() * b).sum(0))


@pytest.mark.parametrize("n", [200, ENTRIES // 2])
def test_pca_equals_scikit_learn(n):
    x = data(n)
    wanted = PCA(whiten=True).fit_transform(x.numpy()) * np.sqrt(n / (n - 1))
    for found in (whiten(x, rotation=pca_whitening), Whitening.fit(x, rotation=pca_whitening).transform(x)):
        np.testing.assert_allclose(up_to_sign(found, wanted), wanted, atol=1e-9)


def test_a_stream_equals_scikit_learns():
    x = data(300)
    peer = IncrementalPCA(whiten=True)
    for batch in x.split(50):
        peer.partial_fit(batch.numpy())
    ours = Whitening.fit(x[:2], rotation=pca_whitening)
    for batch in x[2:].split(37):
        ours = ours.update(batch)
    wanted = peer.transform(x.numpy()) * np.sqrt(300 / 299)
    np.testing.assert_allclose(up_to_sign(ours.transform(x), wanted), wanted, atol=1e-9)
    single = Whitening(RunningMoments.over(x.split(1), scatters=products), pca_whitening)
    torch.testing.assert_close(single.transform(x), ours.transform(x))


@pytest.mark.parametrize("rotation", ROTATIONS)
@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-10), (torch.float32, 1e-3)])
def test_covariance_of_the_output_is_the_identity(rotation, dtype, close):
    x = data(ENTRIES // 4, 16, dtype=dtype)
    z = Whitening.fit(x, rotation=rotation).transform(x)
    np.testing.assert_allclose(np.cov(z.numpy().T, bias=True), np.eye(16), atol=close)
    np.testing.assert_allclose(z.mean(0), 0, atol=close)


@pytest.mark.parametrize("rotation", ROTATIONS)
@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-9), (torch.float32, 1e-3)])
@pytest.mark.parametrize("eps", [0.0, 1e-2])
def test_of_lower_rank_it_says_so_and_the_inverse_restores_the_data(rotation, dtype, close, eps):
    x = data(100, 5, rank=3, dtype=dtype)
    x[:, 1] = 7.0
    fitted = Whitening.fit(x, rotation=rotation, eps=eps)
    assert fitted.rank == (3 if eps == 0 else 5)
    torch.testing.assert_close(fitted.inverse(fitted.transform(x)), x, atol=close, rtol=close)


@pytest.mark.parametrize("rotation", ROTATIONS)
def test_what_is_off_the_data_is_projected_onto_them(rotation):
    x = data(50, 3)
    x[:, 2] = x[:, 0] + x[:, 1]
    fitted = Whitening.fit(x, rotation=rotation)
    off = torch.tensor([[1.0, 1.0, -1.0]], dtype=torch.float64)
    z = fitted.transform(x[:1] + off) - fitted.transform(x[:1])
    if rotation is not cholesky:  # which reads the first two features alone
        torch.testing.assert_close(z, torch.zeros_like(z), atol=1e-9, rtol=0)
    back = fitted.inverse(fitted.transform(x[:1] + off))
    torch.testing.assert_close(back[:, 2], back[:, 0] + back[:, 1])


@pytest.mark.parametrize("rotation", ROTATIONS)
def test_fewer_rows_than_features(rotation):
    x = data(4, 9)
    fitted = Whitening.fit(x, rotation=rotation)
    assert fitted.rank == 3
    torch.testing.assert_close(fitted.inverse(fitted.transform(x)), x)


@pytest.mark.parametrize("rotation", ROTATIONS)
def test_data_that_do_not_vary(rotation):
    x = torch.full((5, 3), 0.1)
    fitted = Whitening.fit(x, rotation=rotation)
    assert fitted.rank == 0
    assert (fitted.transform(x) == 0).all()
    assert (whiten(x, rotation=rotation) == 0).all()
    assert (fitted.inverse(fitted.transform(x)) == x).all()


def test_eps_stretches_less():
    x = data()
    for eps in (0.0, 0.1, 10.0):
        values = torch.linalg.eigvalsh(torch.cov(x.mT, correction=0))
        found = torch.linalg.eigvalsh(torch.cov(whiten(x, eps=eps).mT, correction=0))
        torch.testing.assert_close(found, values / (values + eps))


def test_batches_one_row_and_a_rotation_of_ones_own():
    x = torch.stack([data(20), data(20) * 2])
    torch.testing.assert_close(whiten(x), torch.stack([whiten(part) for part in x]))
    fitted = Whitening.fit(x[0])
    torch.testing.assert_close(fitted.transform(x[0, 0]), fitted.transform(x)[0, 0])
    torch.testing.assert_close(fitted.inverse(fitted.transform(x)), x)

    def reversed_cholesky(covariance):
        return cholesky(covariance.flip(-1, -2)).flip(-2)

    torch.testing.assert_close(whiten(x[0], rotation=reversed_cholesky), whiten(x[0].flip(-1), rotation=cholesky))


def test_gradients_pass():
    fitted, x = Whitening.fit(data()), data(5).requires_grad_()
    assert torch.autograd.gradcheck(fitted.transform, x)
    assert torch.autograd.gradcheck(fitted.inverse, x)
    for rotation in ROTATIONS:
        assert torch.autograd.gradcheck(lambda x, rotation=rotation: whiten(x, rotation=rotation), x)


def test_nan_is_refused():
    x = data(6)
    fitted = Whitening.fit(x)
    x[2, 1] = torch.nan
    for read in (Whitening.fit, fitted.update, whiten):
        with pytest.raises(ValueError, match="finite numbers"):
            read(x)
    assert fitted.transform(x).isnan().any(-1).sum() == 1
    x[2, 1] = torch.inf
    assert not fitted.transform(x)[2].isfinite().any()


def test_errors_say_what_was_wanted_and_what_came():
    with pytest.raises(ValueError, match="at least 2 rows: got 1"):
        Whitening.fit(torch.zeros(1, 2))
    with pytest.raises(ValueError, match=r"at least 2 rows and 1 feature were wanted: got shape \(1, 2\)"):
        whiten(torch.zeros(1, 2))
    with pytest.raises(ValueError, match=r"got shape \(0, 2\)"):
        Whitening.fit(torch.zeros(0, 2))
    with pytest.raises(ValueError, match="not negative: got -1"):
        Whitening.fit(torch.zeros(3, 2), eps=-1.0)
    with pytest.raises(ValueError, match="not negative: got -1"):
        whiten(torch.zeros(3, 2), eps=-1.0)
    fitted = Whitening.fit(data())
    for apply in (fitted.transform, fitted.inverse):
        with pytest.raises(ValueError, match=r"4 features were wanted: got shape \(2, 3\)"):
            apply(torch.zeros(2, 3))


@pytest.mark.parametrize("shape", [(5,), (5, 2, 2), ()])
def test_a_fit_wants_rows_of_features(shape):
    with pytest.raises(ValueError, match="a row for each sample was wanted: got shape"):
        unwrap(Whitening.fit.__func__)(Whitening, torch.ones(shape))
