from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from sklearn.datasets import load_digits, make_low_rank_matrix
from sklearn.decomposition import PCA, IncrementalPCA
from torch import Tensor

from lawful.functions import PrincipalComponents, incremental_pca_axes, pca_axes, randomized_pca_axes
from lawful.laws import Claim, agreement, transformed


def rows(n=60, d=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * torch.linspace(5, 0.5, d) + 3


SOLVERS = {
    "exact": lambda x, k: pca_axes(x, n_components=k),
    "randomized": lambda x, k: randomized_pca_axes(x, n_components=k, n_iter=20),
    "incremental": lambda x, k: incremental_pca_axes(x.split(7), n_components=k),
}


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("components", [1, 3, 8])
@pytest.mark.parametrize("n", [60, 9])
def test_equals_scikit_learn(solver, components, n):
    x = rows(n)
    pca = SOLVERS[solver](x, components)
    peer = PCA(components, svd_solver="full").fit(x.numpy())
    torch.testing.assert_close(pca.explained_variance, torch.from_numpy(peer.explained_variance_) * (n - 1) / n)
    torch.testing.assert_close(pca.mean, torch.from_numpy(peer.mean_))
    theirs = torch.from_numpy(peer.components_)
    torch.testing.assert_close(pca.components.mT @ pca.components, theirs.mT @ theirs)
    torch.testing.assert_close(pca.total_variance, float(x.var(0, correction=0).sum()))
    torch.testing.assert_close(
        pca.residual_variance, max(0.0, pca.total_variance - float(pca.explained_variance.sum()))
    )


def test_incremental_is_more_accurate_than_scikit_learn():
    x = torch.from_numpy(load_digits().data)
    exact = pca_axes(x, n_components=10).explained_variance
    ours = incremental_pca_axes(x.split(100), n_components=10).explained_variance
    theirs = torch.from_numpy(IncrementalPCA(10, batch_size=100).fit(x.numpy()).explained_variance_)
    theirs = theirs * (len(x) - 1) / len(x)
    assert (ours / exact - 1).abs().max() < 0.2 * (theirs / exact - 1).abs().max()


@pytest.mark.parametrize("shift", [0.0, 10.0])
@pytest.mark.parametrize(("n", "d", "rank"), [(1000, 10, 2), (300, 60, 8), (40, 200, 6)])
def test_whitened_covariance_is_the_identity_for_any_rank(n, d, rank, shift):
    data = make_low_rank_matrix(n, d, effective_rank=rank, tail_strength=0, random_state=0)
    x = torch.from_numpy(data) + shift
    pca = pca_axes(x)
    z = (x - pca.mean) @ pca.whitener
    assert len(pca.explained_variance) < min(n - 1, d) or (n, d) == (40, 200)
    torch.testing.assert_close(z.mT.cov(correction=0), torch.eye(z.shape[1], dtype=x.dtype), rtol=0, atol=1e-10)
    assert z.abs().max() < 10


def test_constant_directions_are_left_out():
    x = rows()
    x[:, 2], x[:, 5] = 0.1, x[:, 0] - 2 * x[:, 1]
    for solver in SOLVERS.values():
        pca = solver(x, 8)
        assert len(pca.explained_variance) == 6
        assert pca.components[:, 2].abs().max() < 1e-12


def test_float32_data_are_solved_in_float64():
    x = rows(2000).float()
    pca = pca_axes(x)
    assert pca.components.dtype == torch.float64
    assert len(pca.explained_variance) == 8
    torch.testing.assert_close(pca.explained_variance, pca_axes(x.double()).explained_variance)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(1, 3), "at least 2 rows"),
        (torch.zeros(0, 3), "at least 1 row|at least 2 rows"),
        (torch.zeros(4, 0), "1 feature"),
        (torch.full((4, 3), float("nan")), "got NaN or infinity"),
        (torch.full((4, 3), float("inf")), "got NaN or infinity"),
        (torch.full((4, 3), 0.1), "got 4 equal rows"),
    ],
)
def test_invalid_data(solver, x, message):
    with pytest.raises(ValueError, match=message):
        SOLVERS[solver](x, 1)


def test_invalid_arguments():
    for n in (0, 9):
        with pytest.raises(ValueError, match=rf"expected n_components from 1 to 8 \(the number of features\), got {n}"):
            pca_axes(rows(), n_components=n)
    with pytest.raises(ValueError, match="expected 8 features in every batch"):
        incremental_pca_axes([rows(), rows(d=7)], n_components=2)
    with pytest.raises(ValueError, match="expected at least 2 rows, got 0"):
        incremental_pca_axes([], n_components=2)
    with pytest.raises(ValueError, match="n_iter >= 0"):
        randomized_pca_axes(rows(), n_components=2, n_iter=-1)


def claims() -> Iterator[Claim]:
    """Second derivations of whitening and truncation."""

    def spread(x: Tensor) -> Tensor:
        q = torch.linalg.qr(x[:, :4].tanh() + 2 * torch.eye(len(x), 4).to(x)).Q
        return (q - q.mean(0)) * x.new_tensor([8, 4, 2, 1]) + x.new_tensor([1.0, 2.0, 3.0, 4.0])

    def covariance(x: Tensor) -> Tensor:
        return (x - x.mean(0)).mT @ (x - x.mean(0)) / len(x)

    data = transformed(spread, "n:7..9 4")
    for name, solver in SOLVERS.items():

        def whitened(x: Tensor, solver: Callable[..., PrincipalComponents] = solver) -> Tensor:
            pca = solver(x, 4)
            return covariance((x.double() - pca.mean) @ pca.whitener).to(x)

        identity = agreement(other=lambda x: torch.eye(4).to(x))
        yield Claim(replace(identity, cases=8), whitened, data, name=f"{name}: Wᵀ Σ W = 1")

        def leading_two(x: Tensor, solver: Callable[..., PrincipalComponents] = solver) -> Tensor:
            pca = solver(x, 2)
            return (pca.components.mT * pca.explained_variance @ pca.components).to(x)

        def truncated(x: Tensor) -> Tensor:
            _, s, vt = torch.linalg.svd(x - x.mean(0), full_matrices=False)
            return (vt.mT[:, :2] * s[:2].square() / len(x)) @ vt[:2]

        yield Claim(replace(agreement(other=truncated), cases=8), leading_two, data, name=f"{name}: two components")
